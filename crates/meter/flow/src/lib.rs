//! Metering process: bursts of packets in, bidirectional flow records out.
//!
//! Invariants: every packet given to [`Meter::process`] is in exactly one record, open or exported,
//! or in the count of packets that the full cache dropped. Memory is taken at the start and never
//! grows, but for that of inspection, which has a limit. The crate uses no frames, files, sockets or system clocks. `docs/metering.md` defines
//! everything.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

#[cfg(test)]
extern crate self as weir_flow;

mod bounded;
mod cache;
mod clock;
mod compact_counters;
mod config;
mod encapsulation;
mod expiry_schedule;
mod flow_index;
mod follower;
mod fragments;
mod free_slots;
mod full_counters;
mod hash;
mod inspection;
mod instructions;
mod key;
mod mapped_array;
mod memory_ahead;
mod meter;
mod migration;
mod overflow;
mod partition;
mod places;
mod record;
mod second_opinion;
mod slot;
mod small_flow_filter;
mod tcp_analysis;
#[cfg(test)]
mod tests;
mod timeouts;
mod tuple;

pub use clock::Clock;
pub use config::{CacheFullPolicy, Config, Detail, KeyOptions};
pub use follower::{FollowedPacket, NoFollower, PacketFollower};
pub use hash::KeyHasher;
pub use inspection::{NoPayloads, Payloads};
pub use instructions::prefetch;
pub use mapped_array::share_allocator;
pub use memory_ahead::MemoryAhead;
pub use meter::{Counters, Meter};
pub use migration::MigratedFlow;
pub use overflow::overflow_prefix;
pub use partition::{BUCKETS, BucketSet, Partitioner};
pub use places::{AutonomousSystem, NamedNetwork, Place, Places};
pub use record::{Approximate, Direction, EndReason, FlowRecord};
pub use tuple::FlowTuple;
pub use weir_ndpi::version as ndpi_version;
