//! A spool: batches of records that wait on disk for a collector.
//!
//! ```text
//! FOLDER/spool          identity: version, sink, number of runs
//! FOLDER/lock           held by the one writer, with its process id
//! FOLDER/00000001.seg   segments: entries, append only; the oldest is deleted when all of it is gone
//! FOLDER/acks           what is gone: released or dropped; the furthest valid entry counts
//! FOLDER/acks.copy      the same
//! ```
//!
//! Input: batches, octets that the spool does not interpret, with the totals of their records. Output: the same
//! batches in the same order, and what is known of those that are lost.
//! Invariants: `appended = released + dropped + damaged + unknown + waiting`, for batches, flows, packets and octets.
//! Each entry has the totals of all batches before it, so that a gap of any kind is counted exactly. An
//! acknowledgement is on the disk before a segment is deleted. The identifier of a batch is never used again.
//! Damage is skipped: nothing waits for a segment or an entry that is missing.
//! Not done here: encoding, sending, the decision what waits on disk.
//!
//! Decision 0030.
#![forbid(unsafe_code)]

mod acks;
mod count;
mod entry;
mod error;
mod folder;
mod identity;
mod opening;
mod reader;
mod spool;
mod state;
#[cfg(test)]
mod tests;

pub use count::{Count, Split};
pub use error::Error;
pub use folder::lock_of;
pub use opening::{Recovered, check};
pub use spool::{SEGMENT_BYTES, SMALLEST_LIMIT};
pub use state::{Batch, BatchId, Settings, Spool, Status};
