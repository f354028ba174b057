//! Memory for what few connections need: holes, a deep history, and counters of anomalies.

use crate::class::{SegmentClass, SegmentCount};
use crate::history::DeepHistory;
use crate::holes::Holes;
use crate::report::TcpReport;
use crate::segment::DigestKey;
use bytemuck::{Pod, Zeroable};
use std::collections::TryReserveError;
use std::mem::offset_of;

/// A pool of [`PoolEntry`]s, one for each direction with anomalies. The system provides
/// memory only for entries that were used.
#[derive(Debug)]
pub struct AnomalyPool {
    entries: Vec<PoolEntry>,
    /// Indices of entries that were used and are free.
    free: Vec<u32>,
    capacity: usize,
    /// Stored here because [`crate::Connection::classify_fast`] needs it, too.
    pub(crate) digest_key: DigestKey,
}

/// State of a direction with anomalies, beyond that in the [`crate::Connection`]: 1560 bytes.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C)]
pub struct PoolEntry {
    /// By number of [`SegmentClass`]; for some classes only what the connection cannot hold.
    pub(crate) classes: [SegmentCount; SegmentClass::COUNT],
    pub(crate) retransmitted_bytes: u64,
    /// Octets seen for the first time in segments that are not in order.
    pub(crate) unique_bytes: u64,
    pub(crate) partial_retransmissions: u64,
    pub(crate) spurious_retransmissions: u64,
    pub(crate) fins: u64,
    pub(crate) zero_windows: u64,
    pub(crate) largest_hole_bytes: u64,
    /// Octets in holes that are no longer recorded.
    pub(crate) missing_bytes: u64,
    /// Sequence number of the last segment out of window.
    pub(crate) out_of_window_sequence: u32,
    pub(crate) degradation: u8,
    unused: [u8; 3],
    pub(crate) holes: Holes,
    /// Valid only for a direction with duplicates.
    pub(crate) history: DeepHistory,
}

/// Anomaly state of both sides of a connection that has left its pool.
#[derive(Debug, Default)]
pub struct DetachedEntries(pub(crate) [Option<Box<PoolEntry>>; 2]);

impl Default for AnomalyPool {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), capacity: 0, digest_key: DigestKey::of_this_process() }
    }
}

impl AnomalyPool {
    /// Creates a pool for `capacity` directions.
    ///
    /// # Errors
    /// The system does not provide the memory.
    pub fn new(capacity: usize) -> Result<Self, TryReserveError> {
        let mut pool = Self::default();
        pool.entries.try_reserve_exact(capacity)?;
        pool.free.try_reserve_exact(capacity)?;
        pool.capacity = capacity;
        Ok(pool)
    }

    /// Bytes of address space that a pool of a capacity takes.
    pub fn size_bytes_for(capacity: usize) -> usize {
        capacity * (size_of::<PoolEntry>() + size_of::<u32>())
    }

    /// Bytes of address space that this pool takes.
    pub fn size_bytes(&self) -> usize {
        Self::size_bytes_for(self.capacity)
    }

    /// Number of entries in use.
    pub fn used(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Grows the pool until at least `more` entries are free.
    ///
    /// # Errors
    /// The system does not provide the memory.
    pub fn reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        let needed = self.used() + more;
        if needed > self.capacity {
            let capacity = needed.max(2 * self.capacity);
            self.entries.try_reserve(capacity - self.entries.len())?;
            self.free.try_reserve(capacity - self.free.len())?;
            self.capacity = capacity;
        }
        Ok(())
    }

    /// The key for the segments of its connections.
    #[inline]
    pub fn digest_key(&self) -> &DigestKey {
        &self.digest_key
    }

    /// All entries by index, including free ones. A device keeps a copy of them.
    pub fn entries(&self) -> &[PoolEntry] {
        &self.entries
    }

    /// Indices of free entries; the last one is allocated first. Without any, the next allocation
    /// appends an entry.
    pub fn free_indices(&self) -> &[u32] {
        &self.free
    }

    /// Repeats `count` allocations that were made in the copy of a device.
    pub fn mirror_allocations(&mut self, count: usize) {
        let reused = count.min(self.free.len());
        self.free.truncate(self.free.len() - reused);
        self.entries.resize(self.entries.len() + count - reused, PoolEntry::EMPTY);
        self.capacity = self.capacity.max(self.entries.len());
    }

    /// Replaces an entry by its copy on a device.
    pub fn mirror_entry(&mut self, index: u32, entry: &PoolEntry) {
        self.entries[index as usize] = *entry;
    }

    /// A word of each cache line that segments out of order touch of an entry: all but its history. To
    /// prefetch them.
    pub fn lines(&self, index: u32) -> impl Iterator<Item = &u64> {
        const LINES: usize = offset_of!(PoolEntry, history).div_ceil(64);
        let words: Option<&[u64; size_of::<PoolEntry>() / 8]> =
            self.entries.get(index as usize).map(bytemuck::must_cast_ref);
        words.into_iter().flat_map(|words| words.iter().step_by(8).take(LINES))
    }

    /// Allocates an empty entry; `None` if the pool is full.
    pub(crate) fn allocate(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize].reset();
            return Some(index);
        }
        let index = self.entries.len();
        (index < self.capacity).then(|| {
            self.entries.push(PoolEntry::EMPTY);
            index as u32
        })
    }

    pub(crate) fn release(&mut self, index: u32) {
        self.free.push(index);
    }

    pub(crate) fn entry(&self, index: u32) -> &PoolEntry {
        &self.entries[index as usize]
    }

    pub(crate) fn entry_mut(&mut self, index: u32) -> &mut PoolEntry {
        &mut self.entries[index as usize]
    }
}

impl PoolEntry {
    const EMPTY: Self = bytemuck::zeroed();

    /// Sets all counters to 0. The rest belongs to the connection and stays.
    pub(crate) fn reset_counters(&mut self) {
        self.classes = Self::EMPTY.classes;
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

    /// Adds the counters to a report that holds those of the connection. Returns the segments
    /// added.
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
        report.missing_bytes = self.missing_bytes + self.holes.missing_bytes();
        report.degradation.0 = self.degradation;
        self.classes.iter().map(|count| count.segments).sum()
    }

    /// Makes an entry that was used look new. Old holes and history entries are never read again.
    fn reset(&mut self) {
        self.reset_counters();
        self.holes.clear();
        self.out_of_window_sequence = 0;
    }
}
