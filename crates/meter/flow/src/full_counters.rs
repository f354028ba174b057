//! Counters of directions that do not fit into
//! [`CompactCounters`](crate::compact_counters::CompactCounters): jumbograms, more than 2^28
//! packets in a record, packets hours apart. Few flows have any.

use crate::Direction;
use crate::bounded::{map_capacity, map_with_capacity};
use crate::record;
use std::collections::{HashMap, TryReserveError};
use weir_packet::Packet;

/// Largest number of directions.
const CAPACITY: usize = 1 << 12;

/// Full counters by slot and sending endpoint.
#[derive(Debug)]
pub(crate) struct FullCounters(HashMap<(u32, u8), Direction, ahash::RandomState>);

impl FullCounters {
    pub fn new() -> Result<Self, TryReserveError> {
        Ok(Self(map_with_capacity(CAPACITY, ahash::RandomState::new())?))
    }

    pub fn memory_bytes() -> usize {
        map_capacity(CAPACITY) * size_of::<((u32, u8), Direction)>()
    }

    pub fn can_take(&self, directions: usize) -> bool {
        directions == 0 || self.0.len() + directions <= CAPACITY
    }

    pub fn contains(&self, slot: u32, endpoint: usize) -> bool {
        self.0.contains_key(&(slot, endpoint as u8))
    }

    /// Counts a packet. A direction without full counters starts with those of `compact`.
    /// Returns false if there is no capacity for it.
    pub fn add(&mut self, slot: u32, endpoint: usize, compact: impl FnOnce() -> Direction, packet: &Packet) -> bool {
        let key = (slot, endpoint as u8);
        if !self.can_take(1) && !self.0.contains_key(&key) {
            return false;
        }
        record::add(self.0.entry(key).or_insert_with(compact), packet);
        true
    }

    pub fn remove(&mut self, slot: u32, endpoint: usize) -> Option<Direction> {
        self.0.remove(&(slot, endpoint as u8))
    }

    pub fn get(&self, slot: u32, endpoint: usize) -> Option<&Direction> {
        self.0.get(&(slot, endpoint as u8))
    }

    /// Inserts counters that were removed from another meter; the caller has checked the capacity.
    pub fn insert(&mut self, slot: u32, endpoint: usize, direction: Direction) {
        self.0.insert((slot, endpoint as u8), direction);
    }
}
