//! The meter: bursts of packets in, bidirectional flow records out.
//!
//! Always true: every packet given to [`Meter::absorb`] is in exactly one record, live or handed
//! out, or in the count of what the full table dropped. Memory is fixed at the start.
//! Definitions: `docs/metering.md`. It knows no frame, file, socket or clock.
#![forbid(unsafe_code)]

mod bounded;
mod fragments;
mod index;
mod key;
mod list;
mod meter;
mod overflow;
mod record;
mod tuning;

pub use index::Index;
pub use meter::{Config, Counters, KeyOptions, Meter, Policy};
pub use record::{Approximate, Direction, EndReason, Flow};
pub use tuning::{Instructions, Pages, Tuning};
