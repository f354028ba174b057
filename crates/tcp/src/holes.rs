//! The holes of a side: ranges of positions between the lowest and the highest that were not seen.

use crate::rules::MAX_HOLES;
use bytemuck::{Pod, Zeroable};

/// One hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub start: u64,
    pub length: u32,
    /// Time of the packet that opened it.
    pub since_ns: u64,
}

/// Up to [`MAX_HOLES`] holes in the order of their positions, and space for one more.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C)]
pub(crate) struct Holes {
    count: u32,
    lengths: [u32; MAX_HOLES + 1],
    starts: [u64; MAX_HOLES + 1],
    since_ns: [u64; MAX_HOLES + 1],
}

impl Hole {
    pub fn end(&self) -> u64 {
        self.start + u64::from(self.length)
    }
}

impl Holes {
    pub fn len(&self) -> usize {
        self.count as usize
    }

    pub fn iter(&self) -> impl Iterator<Item = Hole> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Octets in all holes.
    pub fn missing_bytes(&self) -> u64 {
        self.lengths[..self.len()].iter().map(|&length| u64::from(length)).sum()
    }

    /// Adds a hole above the others. The caller leaves at most [`MAX_HOLES`] before.
    pub fn push(&mut self, hole: Hole) {
        self.set(self.len(), hole);
        self.count += 1;
    }

    /// Inserts a hole before another. The caller leaves at most [`MAX_HOLES`] before.
    pub fn insert(&mut self, before: usize, hole: Hole) {
        for at in (before..self.len()).rev() {
            self.set(at + 1, self.get(at));
        }
        self.set(before, hole);
        self.count += 1;
    }

    pub fn remove(&mut self, hole: usize) -> Hole {
        let removed = self.get(hole);
        for at in hole + 1..self.len() {
            self.set(at - 1, self.get(at));
        }
        self.count -= 1;
        removed
    }

    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Removes a range from the holes and passes each part that was missing to `filled`. A range
    /// inside a hole splits it, so that one hole more than before may remain.
    pub fn fill(&mut self, start: u64, end: u64, mut filled: impl FnMut(u64, u64)) {
        let mut at = 0;
        while at < self.len() {
            let hole = self.get(at);
            if hole.start >= end {
                break;
            }
            if hole.end() <= start {
                at += 1;
                continue;
            }
            filled(hole.start.max(start), hole.end().min(end));
            let below = start.saturating_sub(hole.start) as u32;
            let above = hole.end().saturating_sub(end) as u32;
            match (below > 0, above > 0) {
                (false, false) => _ = self.remove(at),
                (true, false) => {
                    self.set(at, Hole { length: below, ..hole });
                    at += 1;
                }
                (false, true) => {
                    self.set(at, Hole { start: end, length: above, ..hole });
                    break;
                }
                (true, true) => {
                    self.set(at, Hole { length: below, ..hole });
                    self.insert(at + 1, Hole { start: end, length: above, ..hole });
                    break;
                }
            }
        }
    }

    fn get(&self, at: usize) -> Hole {
        Hole { start: self.starts[at], length: self.lengths[at], since_ns: self.since_ns[at] }
    }

    fn set(&mut self, at: usize, hole: Hole) {
        (self.starts[at], self.lengths[at], self.since_ns[at]) = (hole.start, hole.length, hole.since_ns);
    }
}
