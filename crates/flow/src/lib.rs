//! The meter: bursts of packets in, bidirectional flow records out.
//!
//! Always true: every packet given to [`Meter::process`] is in exactly one record, live or handed
//! out, or in the count of what the full table dropped. Memory is fixed at the start.
//! Definitions: `docs/metering.md`. It knows no frame, file, socket or clock.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

mod bounded;
mod clock;
mod detail;
mod fragments;
mod hash;
mod index;
mod key;
mod labels;
mod lanes;
mod list;
mod memory;
mod meter;
mod overflow;
mod parts;
mod place;
mod record;
mod tuning;
mod wide;

pub use detail::Detail;
pub use hash::KeyHasher;
pub use index::{Hpc, Index};
pub use lanes::{Lanes, prefetch};
pub use meter::{CacheFullPolicy, Config, Counters, KeyOptions, Meter, MigratedFlow};
pub use parts::{BUCKETS, BucketSet, Partitioner};
pub use record::{Approximate, Direction, EndReason, FlowRecord};
pub use tuning::{ALL, CONVERSATIONS, GAPS, HEADERS, Instructions, LABELS, PageKind, SIZES, Tuning};
