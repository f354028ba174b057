//! The known connections and their state between two batches.
//!
//! ```text
//! index    a power of two of slots: upper half of the hash, entry number plus 1; 0 is free. Linear probing.
//! entries  576 bytes each, in the order of insertion; none is ever removed
//! pool     what directions with anomalies need beyond that
//! ```
//! A GPU keeps a copy of the three. The order within its index may differ; no result depends on it.

use crate::chunked_vec::ChunkedVec;
use crate::key::{ConnectionKey, HashKey};
use bytemuck::{Pod, Zeroable};
use std::net::SocketAddr;
use weir_tcp::{AnomalyPool, CompactReport, Connection};

/// Record of one connection, from its first packet to its end or the end of the capture.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionRecord {
    /// Both endpoints. Side 0 is the lower one, by address and then by port.
    pub endpoints: [SocketAddr; 2],
    /// Time of the earliest packet, ns since 1970-01-01 UTC.
    pub first_ns: u64,
    /// Time of the latest packet, ns since 1970-01-01 UTC.
    pub last_ns: u64,
    /// Packets of each side.
    pub packets: [u64; 2],
    /// TCP report of each side.
    pub reports: [CompactReport; 2],
}

/// A connection in the table.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Entry {
    pub key: ConnectionKey,
    pub hash: u64,
    /// Packets of each side.
    pub packets: [u64; 2],
    pub first_ns: u64,
    pub last_ns: u64,
    unused: [u64; 6],
    pub connection: Connection,
}

const _: () = assert!(size_of::<Entry>() == 576);

/// All known connections.
pub(crate) struct Table {
    pub hash_key: HashKey,
    pub index: Vec<u64>,
    pub entries: ChunkedVec<Entry>,
    pub pool: AnomalyPool,
    /// Number of pool entries in use from which the pool no longer grows.
    pub max_anomalies: usize,
}

impl Entry {
    /// Creates an entry for a connection without packets.
    pub fn new(key: ConnectionKey, hash: u64) -> Self {
        Self { key, hash, first_ns: u64::MAX, ..Self::zeroed() }
    }

    /// The record of the connection so far.
    pub fn record(&self, pool: &AnomalyPool) -> ConnectionRecord {
        ConnectionRecord {
            endpoints: self.key.endpoints(),
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            packets: self.packets,
            reports: [0, 1].map(|side| self.connection.report(side, self.packets[side], pool).into()),
        }
    }

    /// Ends the connection and makes the entry one for the next between the same endpoints.
    pub fn finish(&mut self, pool: &mut AnomalyPool) -> ConnectionRecord {
        let record = self.record(pool);
        self.connection.reset(pool);
        *self = Self::new(self.key, self.hash);
        record
    }
}

impl Table {
    pub fn new(hash_key: HashKey) -> Self {
        let (entries, pool) = (ChunkedVec::new(), AnomalyPool::default());
        Self { hash_key, index: vec![0; 1 << 10], entries, pool, max_anomalies: usize::MAX }
    }

    /// Memory of index, entries and pool, bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&self.index[..]) + self.entries.len() * size_of::<Entry>() + size_of_val(self.pool.entries())
    }

    /// Makes sure that both sides of a connection can have anomalies. Without memory for them their
    /// reports are marked.
    #[inline]
    pub fn reserve_anomalies(&mut self) {
        if self.pool.used() < self.max_anomalies {
            let _ = self.pool.reserve(2);
        }
    }

    /// Returns the number of a connection's entry, which is created if there is none.
    #[inline]
    pub fn find_or_insert(&mut self, key: &ConnectionKey, hash: u64) -> usize {
        let mask = self.index.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let word = self.index[slot];
            if word == 0 {
                break;
            }
            let number = (word as u32 - 1) as usize;
            if word >> 32 == hash >> 32 && self.entries[number].key == *key {
                return number;
            }
            slot = (slot + 1) & mask;
        }
        self.store(self.entries.len(), &Entry::new(*key, hash));
        self.entries.len() - 1
    }

    /// Prefetches the index slot of a hash.
    #[inline(always)]
    pub fn prefetch_slot(&self, hash: u64) {
        prefetch(&self.index[hash as usize & (self.index.len() - 1)]);
    }

    /// Prefetches the likely entry of a hash, whose index slot is in the cache.
    #[inline(always)]
    pub fn prefetch_entry(&self, hash: u64) {
        let word = self.index[hash as usize & (self.index.len() - 1)];
        if let Some(entry) = self.entries.get((word as u32).wrapping_sub(1) as usize) {
            prefetch(&entry.key);
            prefetch(&entry.last_ns);
            prefetch(entry.connection.hot_line(0));
            prefetch(entry.connection.hot_line(1));
            prefetch(entry.connection.times_line());
        }
    }

    /// Stores an entry under a number. New numbers may come in any order; in the end none is
    /// missing.
    pub fn store(&mut self, number: usize, entry: &Entry) {
        while number >= self.entries.len() {
            self.entries.push(Entry::zeroed());
        }
        let is_new = self.entries[number].key == ConnectionKey::zeroed();
        self.entries[number] = *entry;
        if 2 * self.entries.len() > self.index.len() {
            // Entries that are still missing are inserted when they come.
            self.index = self.build_index(4 * self.entries.len().next_power_of_two());
        } else if is_new {
            insert(&mut self.index, entry.hash, number);
        }
    }

    /// Builds an index over all entries.
    pub fn build_index(&self, slots: usize) -> Vec<u64> {
        let mut index = vec![0; slots];
        let stored =
            self.entries.chunks().flatten().enumerate().filter(|(_, entry)| entry.key != ConnectionKey::zeroed());
        stored.for_each(|(number, entry)| insert(&mut index, entry.hash, number));
        index
    }
}

/// Inserts an entry that is not in the index.
fn insert(index: &mut [u64], hash: u64, number: usize) {
    let mask = index.len() - 1;
    let mut slot = hash as usize & mask;
    while index[slot] != 0 {
        slot = (slot + 1) & mask;
    }
    index[slot] = hash >> 32 << 32 | (number as u64 + 1);
}

/// Prefetches the cache line at the start of `item`.
#[inline(always)]
fn prefetch<T>(item: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is a hint about an address and reads nothing; every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch((&raw const *item).cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = item;
}
