//! Memory for what few connections need: holes, and counts of what is out of the ordinary.

use crate::report::{SegmentClass, SegmentCount, TcpReport};
use crate::rules::{MAX_HOLES, REMEMBERED, REMEMBERED_DEEP};
use crate::segment::DigestKey;
use bytemuck::{Pod, Zeroable};
use std::collections::TryReserveError;

/// Room for a number of directions in trouble. Memory is used as far as it is needed.
#[derive(Debug)]
pub struct AnomalyPool {
    entries: Vec<TcpAnomaly>,
    /// Entries that were used and are free.
    free: Vec<u32>,
    capacity: usize,
    /// At hand for [`crate::Connection::usual`].
    pub(crate) secret: DigestKey,
}

impl Default for AnomalyPool {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), capacity: 0, secret: DigestKey::of_this_process() }
    }
}

/// What a direction in trouble needs more: 1488 octets whose meaning is this crate's.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C)]
pub struct TcpAnomaly {
    /// By number of [`SegmentClass`]; of some only what does not fit elsewhere.
    pub(crate) classes: [SegmentCount; SegmentClass::COUNT],
    pub(crate) retransmitted_bytes: u64,
    /// Octets seen for the first time in segments that are not in order.
    pub(crate) unique_bytes: u64,
    pub(crate) partial_retransmissions: u64,
    pub(crate) spurious_retransmissions: u64,
    pub(crate) fins: u64,
    pub(crate) zero_windows: u64,
    pub(crate) largest_hole_bytes: u64,
    /// Octets of holes that are no longer kept.
    pub(crate) missing_bytes: u64,
    /// Sequence number of a segment out of window.
    pub(crate) strange: u32,
    pub(crate) degradation: u8,
    unused: [u8; 3],
    pub(crate) holes: Holes,
    /// Only of a direction with copies; else whatever it was.
    pub(crate) originals: Originals,
}

/// What both sides of a connection had in a [`Room`], on its way into another one.
#[derive(Debug, Default)]
pub struct TcpAnomalies(pub(crate) [Option<Box<TcpAnomaly>>; 2]);

/// Ranges of positions between the lowest and the highest that were not seen, in order.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C)]
pub(crate) struct Holes {
    count: u32,
    lengths: [u32; MAX_HOLES + 1],
    starts: [u64; MAX_HOLES + 1],
    since_ns: [u64; MAX_HOLES + 1],
}

/// The last segments that were no copies. An entry is that of a `Connection` in two halves, so that marks lie together.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C)]
pub(crate) struct Originals {
    marks: [u32; REMEMBERED_DEEP],
    rest: [u32; REMEMBERED_DEEP],
}

/// One of the holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub start: u64,
    pub length: u32,
    pub since_ns: u64,
}

impl AnomalyPool {
    /// Room for so many directions.
    ///
    /// # Errors
    /// The system has no room for that much.
    pub fn new(capacity: usize) -> Result<Self, TryReserveError> {
        let Self { mut entries, mut free, secret, .. } = Self::default();
        entries.try_reserve_exact(capacity)?;
        free.try_reserve_exact(capacity)?;
        Ok(Self { entries, free, capacity, secret })
    }

    /// Octets that a room of a capacity takes.
    pub fn size_bytes_for(capacity: usize) -> usize {
        capacity * (size_of::<TcpAnomaly>() + size_of::<u32>())
    }

    /// Octets taken; the system provides what is used of them.
    pub fn size_bytes(&self) -> usize {
        Self::size_bytes_for(self.capacity)
    }

    /// Directions that use it now.
    pub fn used(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Grows until so many more directions find room.
    ///
    /// # Errors
    /// The system has no room for that much.
    pub fn reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        let needed = self.used() + more;
        if needed > self.capacity {
            self.entries.try_reserve(needed.max(2 * self.capacity) - self.entries.len())?;
            self.free.try_reserve(needed.max(2 * self.capacity) - self.free.len())?;
            self.capacity = needed.max(2 * self.capacity);
        }
        Ok(())
    }

    /// The secret that segments of its connections are made with.
    #[inline]
    pub fn secret(&self) -> &DigestKey {
        &self.secret
    }

    /// Everything in it by number, what is free included, for a copy of it elsewhere.
    pub fn entries(&self) -> &[TcpAnomaly] {
        &self.entries
    }

    /// The numbers that are free, of which the last is taken first. When none is left it goes on behind the entries.
    pub fn free(&self) -> &[u32] {
        &self.free
    }

    /// Does what a copy of it has done: so many were taken.
    pub fn mirror_allocations(&mut self, count: usize) {
        let reused = count.min(self.free.len());
        self.free.truncate(self.free.len() - reused);
        self.entries.resize(self.entries.len() + count - reused, TcpAnomaly::NONE);
        self.capacity = self.capacity.max(self.entries.len());
    }

    /// Does what a copy of it has done: an entry was written.
    pub fn mirror_entry(&mut self, at: u32, trouble: &TcpAnomaly) {
        self.entries[at as usize] = *trouble;
    }

    /// An empty entry.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(at) = self.free.pop() {
            self.entries[at as usize].clear();
            return Some(at);
        }
        let at = self.entries.len();
        (at < self.capacity).then(|| {
            self.entries.push(TcpAnomaly::NONE);
            at as u32
        })
    }

    pub(crate) fn give_back(&mut self, at: u32) {
        self.free.push(at);
    }

    pub(crate) fn entry(&self, at: u32) -> &TcpAnomaly {
        &self.entries[at as usize]
    }

    pub(crate) fn entry_mut(&mut self, at: u32) -> &mut TcpAnomaly {
        &mut self.entries[at as usize]
    }
}

impl TcpAnomaly {
    const NONE: Self = Self {
        classes: [SegmentCount { segments: 0, bytes: 0 }; SegmentClass::COUNT],
        retransmitted_bytes: 0,
        unique_bytes: 0,
        partial_retransmissions: 0,
        spurious_retransmissions: 0,
        fins: 0,
        zero_windows: 0,
        largest_hole_bytes: 0,
        missing_bytes: 0,
        strange: 0,
        degradation: 0,
        unused: [0; 3],
        holes: Holes {
            count: 0,
            lengths: [0; MAX_HOLES + 1],
            starts: [0; MAX_HOLES + 1],
            since_ns: [0; MAX_HOLES + 1],
        },
        originals: Originals::NONE,
    };

    /// As if new; what holes and originals there were need not be overwritten.
    fn clear(&mut self) {
        self.clear_counts();
        self.holes.count = 0;
        self.strange = 0;
    }

    /// Adds what it counts to a report that has what a direction without trouble counts. How many segments it adds.
    #[cold]
    pub(crate) fn add_to(&self, report: &mut TcpReport) -> u64 {
        for (count, more) in report.classes.iter_mut().zip(&self.classes) {
            count.segments += more.segments;
            count.bytes += more.bytes;
        }
        report.classes[SegmentClass::InOrder as usize].bytes -= self.unique_bytes;
        report.retransmitted_bytes = self.retransmitted_bytes;
        report.partial_retransmissions = self.partial_retransmissions;
        report.spurious_retransmissions = self.spurious_retransmissions;
        report.fins += self.fins;
        report.zero_windows = self.zero_windows;
        report.largest_hole_bytes = self.largest_hole_bytes;
        report.missing_bytes = self.missing_bytes + self.holes.missing();
        report.degradation.0 = self.degradation;
        self.classes.iter().map(|count| count.segments).sum()
    }

    /// Begins to count anew.
    pub fn clear_counts(&mut self) {
        self.classes = Self::NONE.classes;
        self.retransmitted_bytes = 0;
        self.unique_bytes = 0;
        self.partial_retransmissions = 0;
        self.spurious_retransmissions = 0;
        self.fins = 0;
        self.zero_windows = 0;
        self.largest_hole_bytes = 0;
        self.missing_bytes = 0;
        self.degradation = 0;
    }
}

impl Originals {
    const NONE: Self = Self { marks: [0; REMEMBERED_DEEP], rest: [0; REMEMBERED_DEEP] };

    /// Takes over those that are remembered, before so many others.
    pub fn begin(&mut self, recent: &[u64; REMEMBERED], turn: usize) {
        self.clear();
        for before in turn + REMEMBERED_DEEP - REMEMBERED..turn + REMEMBERED_DEEP {
            self.set(before, recent[before % REMEMBERED]);
        }
    }

    pub fn clear(&mut self) {
        *self = Self::NONE;
    }

    pub fn set(&mut self, turn: usize, entry: u64) {
        self.marks[turn % REMEMBERED_DEEP] = (entry >> 32) as u32;
        self.rest[turn % REMEMBERED_DEEP] = entry as u32;
    }

    pub fn get(&self, turn: usize) -> u64 {
        u64::from(self.marks[turn % REMEMBERED_DEEP]) << 32 | u64::from(self.rest[turn % REMEMBERED_DEEP])
    }

    /// Whether any has this mark: mostly not, which is found out without a branch for each.
    pub fn have(&self, mark: u32) -> bool {
        self.marks.iter().fold(false, |any, &one| any | (one == mark))
    }
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

    pub fn get(&self, at: usize) -> Hole {
        Hole { start: self.starts[at], length: self.lengths[at], since_ns: self.since_ns[at] }
    }

    fn set(&mut self, at: usize, hole: Hole) {
        (self.starts[at], self.lengths[at], self.since_ns[at]) = (hole.start, hole.length, hole.since_ns);
    }

    pub fn iter(&self) -> impl Iterator<Item = Hole> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Octets in them.
    pub fn missing(&self) -> u64 {
        self.lengths[..self.len()].iter().map(|&length| u64::from(length)).sum()
    }

    /// Adds one above the others; there is room.
    pub fn push(&mut self, hole: Hole) {
        self.set(self.len(), hole);
        self.count += 1;
    }

    /// Adds one before another; there is room.
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

    /// Cuts a range out. One more than before may be left, of which there is room for one beyond [`MAX_HOLES`].
    pub fn cut(&mut self, start: u64, end: u64) {
        let mut at = 0;
        while at < self.len() {
            let hole = self.get(at);
            if hole.start >= end {
                break;
            }
            let below = start.min(hole.end()).saturating_sub(hole.start) as u32;
            let above = hole.end().saturating_sub(end.max(hole.start)) as u32;
            match (below > 0, above > 0) {
                _ if hole.end() <= start => at += 1,
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
}
