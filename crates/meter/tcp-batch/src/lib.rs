//! TCP analysis of many packets at once, on GPUs or on the CPU: the **batch engine**.
//!
//! In: packets in the order of the capture. Out: a [`ConnectionRecord`] for every connection, with
//! a [`weir_tcp::TcpReport`] for both sides: the same as of a [`weir_tcp::Connection`] that gets
//! one packet after the other (`docs/tcp.md`).
//!
//! ```text
//! packets ─ pack ─→ batch ─→ hash ─→ stable sort ─→ process each connection's run ─→ connection records
//!            36 or 56 bytes each                           ↑ ↓
//!                                              table of connections, from batch to batch
//! ```
//!
//! Invariants:
//! * The records depend neither on the batch size nor on the kind and number of devices. Tests
//!   compare the CPU and the kernels, compiled as C++, with the slow reference.
//! * Every packet is entered or counted as rejected: [`EngineCounters`].
//! * After an error of a GPU, the CPU repeats its batch from the packed packets and a copy of the
//!   table, and processes all later ones.
//!
//! It has no timeouts, and its memory grows with the connections of a capture: 600 bytes each, and
//! 1.6 kB more per side with anomalies, which [`EngineOptions::max_anomalies`] limits. The meter in
//! `weir-flow` has both bounds.
//!
//! ```
//! use weir_tcp_batch::{Backend, Engine, EngineOptions};
//!
//! let mut engine = Engine::open(EngineOptions { backend: Backend::Cpu, ..EngineOptions::default() })?;
//! let mut done = Vec::new();
//! engine.enter(&[weir_packet::Packet::default()], &mut done);
//! let counters = engine.finish(&mut done);
//! assert_eq!((done.len(), counters.not_tcp), (0, 1));
//! # Ok::<(), weir_tcp_batch::DeviceError>(())
//! ```

mod batch;
mod buffer;
mod chunked_vec;
mod cost;
mod cpu;
mod cuda;
mod device;
mod engine;
mod key;
mod offload;
mod packed;
mod self_test;
mod shard;
mod table;
#[cfg(test)]
mod tests;

pub use cost::StageTimes;
pub use device::DeviceError;
pub use engine::{Backend, Engine, EngineCounters, EngineOptions, Fallback};
pub use key::ConnectionKey;
pub use table::ConnectionRecord;
