//! The segments of a side that a later segment may be a duplicate of.
//!
//! A history entry has 64 bits: digest (32), TTL (8), capture time in ticks (24). 0 means none.
//! Each entry has a number: the count of segments remembered before it, modulo [`DEEP_HISTORY`].

use crate::rules::{DEEP_HISTORY, DUPLICATE_TICKS, HISTORY, IDENTIFIED_DUPLICATE_TICKS, tick, ticks_between};
use crate::segment::Segment;
use bytemuck::{Pod, Zeroable};

/// The last [`DEEP_HISTORY`] segments. Entries are stored in two halves to keep digests adjacent.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C)]
pub(crate) struct DeepHistory {
    digests: [u32; DEEP_HISTORY],
    rest: [u32; DEEP_HISTORY],
}

impl DeepHistory {
    /// Starts with the last [`HISTORY`] entries before `number`.
    pub fn start(&mut self, recent: &[u64; HISTORY], number: usize) {
        self.clear();
        for earlier in number + DEEP_HISTORY - HISTORY..number + DEEP_HISTORY {
            self.set(earlier, recent[earlier % HISTORY]);
        }
    }

    pub fn clear(&mut self) {
        *self = Self::zeroed();
    }

    pub fn set(&mut self, number: usize, entry: u64) {
        self.digests[number % DEEP_HISTORY] = (entry >> 32) as u32;
        self.rest[number % DEEP_HISTORY] = entry as u32;
    }

    pub fn get(&self, number: usize) -> u64 {
        u64::from(self.digests[number % DEEP_HISTORY]) << 32 | u64::from(self.rest[number % DEEP_HISTORY])
    }

    /// Whether any entry has this digest. Most have none, so the search has no branch per entry.
    pub fn contains(&self, digest: u32) -> bool {
        self.digests.iter().fold(false, |any, &one| any | (one == digest))
    }
}

/// The history entry of a segment.
#[inline(always)]
pub(crate) fn history_entry(digest: u32, ttl: u8, time_ns: u64) -> u64 {
    u64::from(digest) << 32 | u64::from(ttl) << 24 | u64::from(tick(time_ns))
}

/// Finds the latest original of a segment among `length` entries, read by their age from 0.
/// Returns the age of the original and its TTL.
#[inline(always)]
pub(crate) fn find_original(length: usize, segment: &Segment, entry: impl Fn(usize) -> u64) -> Option<(usize, u8)> {
    let limit = if segment.identification != 0 { IDENTIFIED_DUPLICATE_TICKS } else { DUPLICATE_TICKS };
    (0..length).find_map(|age| {
        let entry = entry(age);
        let is_near = ticks_between(entry as u32 & 0x00ff_ffff, tick(segment.time_ns)) <= limit;
        ((entry >> 32) as u32 == segment.digest && is_near).then_some((age, (entry >> 24) as u8))
    })
}
