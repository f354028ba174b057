//! Outputs for packets: forwards frames of a pipeline to interfaces, pipes and files.
//!
//! Input: frames of a burst, cut already. Output: the same frames at an interface, in a pipe or in a
//! file. Invariant: each frame is counted as sent or as dropped with a reason.
//! Not done here: which packets go where (rules), and the folder itself (recorder).
//!
//! ```text
//! pipeline 0 ─► Egress ─ balance ─► PacketOutput ─► socket ─────────────► interface
//! pipeline 1 ─► Egress ─ balance ─► PacketOutput ─► queue ─► writer ────► pipe
//! ```
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as weir_egress;

mod attachment;
mod balance;
mod egress;
mod error;
mod interface;
mod output;
mod pipe;
mod pipe_file;
mod queue;
mod specification;
#[cfg(test)]
mod tests;
mod writer;
mod xdp;

pub use balance::Balance;
pub use egress::{Egress, check, check_files, check_interfaces, open};
pub use error::Error;
pub use output::{InterfaceReport, OutputSettings, PacketOutput, ReceivedPackets, WhenFull};
pub use queue::{Chunk, Progress, QUEUE_OCTETS, Queue, QueueSettings, Record};
pub use specification::{EgressSpec, OutputSpec};
