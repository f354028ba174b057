//! TCP analysis of many packets at once, on a card or on the processor: the **batch engine**.
//!
//! In: packets in the order of the capture. Out: a [`ConnectionRecord`] for every connection, with a [`weir_tcp::TcpReport`] for
//! both sides: the same that [`weir_tcp::Reference`] says, one packet after the other (`docs/tcp.md`).
//!
//! ```text
//! packets ─ pack ─→ batch of records ─→ hash ─→ stable sort ─→ walk along each connection's run ─→ conversations
//!            32 or 56 octets each                                 ↑ ↓
//!                                                    table of connections, from batch to batch
//! ```
//!
//! What is always true:
//! * Nothing depends on where a batch ends, on the devices or on their number. Tests compare the processor and the kernels,
//!   as a C++ compiler sees them, with the reference, octet by octet.
//! * A packet is entered, or refused with a count: [`EngineCounters`].
//! * After an error of a card its batch is done again by the processor, from the records that are still there and a
//!   copy of the table, and so is everything after it.
//!
//! What it does not do: it has no timeouts, and its memory grows with the connections of a capture (450 octets each, 1.5 kB
//! more per side in trouble, of which there may be a limit: [`EngineOptions::max_anomalies`]). The meter in `weir-flow` has both bounds.
//!
//! ```
//! use weir_tcp_batch::{Backend, Engine, EngineOptions};
//!
//! let mut engine = Engine::open(EngineOptions { backend: Backend::Cpu, ..EngineOptions::default() })?;
//! let mut done = Vec::new();
//! engine.enter(&[weir_packet::Packet::default()], &mut done);
//! let account = engine.finish(&mut done);
//! assert_eq!((done.len(), account.not_tcp), (0, 1));
//! # Ok::<(), weir_tcp_batch::DeviceUnavailable>(())
//! ```

mod ahead;
mod batch;
mod buffer;
mod card;
mod conversation;
mod cpu;
mod cuda;
mod engine;
mod entries;
mod golden;
mod key;
mod lane;
mod pinned;
mod record;
mod table;
#[cfg(test)]
mod tests;

pub use conversation::ConnectionRecord;
pub use cuda::NO_DRIVER;
pub use engine::{Backend, DeviceUnavailable, Engine, EngineCounters, EngineOptions};
pub use key::ConnectionKey;
