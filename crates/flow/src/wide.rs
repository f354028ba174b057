//! Directions that do not fit into 64 octets, kept in full: jumbograms, more than 2^28 packets in a record, times that
//! lie hours apart. Few flows have any; there is room for [`ROOM`] of them at a time.

use crate::Direction;
use crate::bounded::{roomy, table};
use crate::record;
use std::collections::{HashMap, TryReserveError};
use weir_packet::Packet;

/// Directions at a time.
const ROOM: usize = 1 << 12;

/// Wide directions by place and side.
#[derive(Debug)]
pub(crate) struct Wide(HashMap<(u32, u8), Direction, ahash::RandomState>);

impl Wide {
    /// # Errors
    /// The system has no memory for it.
    pub fn new() -> Result<Self, TryReserveError> {
        Ok(Self(table(ROOM, ahash::RandomState::new())?))
    }

    /// Octets of memory taken.
    pub fn octets() -> usize {
        roomy(ROOM) * size_of::<((u32, u8), Direction)>()
    }

    pub fn is_full(&self) -> bool {
        self.0.len() >= ROOM
    }

    /// Whether there is room for so many more.
    pub fn has_room_for(&self, more: usize) -> bool {
        more == 0 || self.0.len() + more <= ROOM
    }

    pub fn has(&self, at: u32, side: usize) -> bool {
        self.0.contains_key(&(at, side as u8))
    }

    /// Enters a packet into a wide direction, or into one that becomes wide now. False if there is no room.
    pub fn enter(&mut self, at: u32, side: usize, narrow: impl FnOnce() -> Direction, packet: &Packet) -> bool {
        let key = (at, side as u8);
        if self.is_full() && !self.0.contains_key(&key) {
            return false;
        }
        record::enter(self.0.entry(key).or_insert_with(narrow), packet);
        true
    }

    /// What was entered for a side, which ends with it.
    pub fn take(&mut self, at: u32, side: usize) -> Option<Direction> {
        self.0.remove(&(at, side as u8))
    }

    /// Takes in a side that was taken elsewhere; there is room.
    pub fn put(&mut self, at: u32, side: usize, direction: Direction) {
        self.0.insert((at, side as u8), direction);
    }

    /// Packets of a side so far.
    pub fn packets(&self, at: u32, side: usize) -> u64 {
        self.0.get(&(at, side as u8)).map_or(0, |direction| direction.packets)
    }
}
