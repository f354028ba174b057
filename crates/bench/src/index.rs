//! Hash tables compared outside the meter: a loop of lookups over each.
//!
//! In: packets of known flows. Each is hashed, its flow found by the whole key, and counted in an
//! entry of one cache line. No flow starts or ends.

use crate::error::{CountMismatch, Error};
use crate::huge_page_array::HugePageArray;
use crate::measure::{Fact, Run, Work, timed};
use crate::meter::Packets;
use bytemuck::{Pod, Zeroable};
use hashbrown::HashTable;
use weir_flow::{FlowIndex, KeyHasher, KeyOptions, prefetch};
use weir_packet::Packet;

/// End of a chain.
const NONE: u32 = u32::MAX;
/// Packets whose memory is prefetched together, as in the meter.
const GROUP: usize = 64;
const KEY: KeyOptions = KeyOptions { vlan: false, interface: false, tunnel: false, unidirectional: false };

/// Which of `buckets` buckets a hash falls into.
#[inline(always)]
pub fn bucket_of(hash: u64, buckets: usize) -> usize {
    (((hash >> 32) * buckets as u64) >> 32) as usize
}

/// A hash table of slot numbers. It knows no keys: the caller decides which slot is meant.
pub trait Index {
    fn new(flows: usize) -> Result<Self, Error>
    where
        Self: Sized;

    /// Starts to load the bucket of a hash and returns its number.
    fn prefetch(&self, hash: u64) -> u32;

    /// A slot that the hash may lead to, as a hint what to prefetch.
    fn candidate(&self, bucket: u32, hash: u64) -> Option<u32>;

    /// The slot under this hash that `is_meant` accepts.
    fn find(&self, hash: u64, is_meant: impl FnMut(u32) -> bool) -> Option<u32>;

    fn insert(&mut self, hash: u64, slot: u32);
}

impl Index for FlowIndex {
    fn new(flows: usize) -> Result<Self, Error> {
        Self::new(flows).map_err(|error| Error::Memory { bytes: 8 * flows, error })
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) -> u32 {
        self.prefetch(hash)
    }

    #[inline(always)]
    fn candidate(&self, bucket: u32, hash: u64) -> Option<u32> {
        self.candidate(bucket, hash)
    }

    #[inline(always)]
    fn find(&self, hash: u64, is_meant: impl FnMut(u32) -> bool) -> Option<u32> {
        self.find(hash, is_meant)
    }

    fn insert(&mut self, hash: u64, slot: u32) {
        self.insert(hash, slot);
    }
}

/// Separate chaining without tags: every step of a search loads an entry to compare its key.
pub struct Chaining {
    first: HugePageArray<u32>,
    next: HugePageArray<u32>,
}

impl Index for Chaining {
    fn new(flows: usize) -> Result<Self, Error> {
        let mut first = HugePageArray::new(flows)?;
        first.fill(NONE);
        Ok(Self { first, next: HugePageArray::new(flows)? })
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) -> u32 {
        let bucket = bucket_of(hash, self.first.len());
        prefetch(&self.first[bucket]);
        bucket as u32
    }

    #[inline(always)]
    fn candidate(&self, bucket: u32, _: u64) -> Option<u32> {
        Some(self.first[bucket as usize]).filter(|&slot| slot != NONE)
    }

    #[inline(always)]
    fn find(&self, hash: u64, mut is_meant: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut slot = self.first[bucket_of(hash, self.first.len())];
        while slot != NONE && !is_meant(slot) {
            slot = self.next[slot as usize];
        }
        Some(slot).filter(|&slot| slot != NONE)
    }

    fn insert(&mut self, hash: u64, slot: u32) {
        let bucket = bucket_of(hash, self.first.len());
        self.next[slot as usize] = std::mem::replace(&mut self.first[bucket], slot);
    }
}

/// Open addressing: hashbrown, the table of the standard library. It can prefetch only by a search.
pub struct Hashbrown(HashTable<(u64, u32)>);

impl Index for Hashbrown {
    fn new(flows: usize) -> Result<Self, Error> {
        Ok(Self(HashTable::with_capacity(flows)))
    }

    fn prefetch(&self, _: u64) -> u32 {
        0
    }

    #[inline(always)]
    fn candidate(&self, _: u32, hash: u64) -> Option<u32> {
        self.0.find(hash, |&(other, _)| other == hash).map(|&(_, slot)| slot)
    }

    #[inline(always)]
    fn find(&self, hash: u64, mut is_meant: impl FnMut(u32) -> bool) -> Option<u32> {
        self.0.find(hash, |&(other, slot)| other == hash && is_meant(slot)).map(|&(_, slot)| slot)
    }

    fn insert(&mut self, hash: u64, slot: u32) {
        self.0.insert_unique(hash, (hash, slot), |&(hash, _)| hash);
    }
}

/// A flow: its key and the number of its packets.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Entry {
    key: [u64; 5],
    packets: u64,
    unused: [u64; 2],
}

/// Addresses and ports of a packet.
#[inline(always)]
fn key(packet: &Packet) -> [u64; 5] {
    let [a, b, c, d, ..] = *packet.words();
    [a, b, c, d, u64::from(packet.source_port) << 16 | u64::from(packet.destination_port)]
}

/// Lookups in one table.
pub struct Lookups<I> {
    index: I,
    entries: HugePageArray<Entry>,
    hasher: KeyHasher,
    /// Packets of all rounds.
    given: u64,
}

impl<I: Index> Lookups<I> {
    /// A table of the flows of `keys`, one packet of each.
    pub fn new(keys: &[Packet]) -> Result<Self, Error> {
        let mut lookups = Self {
            index: I::new(keys.len())?,
            entries: HugePageArray::new(keys.len())?,
            hasher: KeyHasher::new(None),
            given: 0,
        };
        for (slot, packet) in keys.iter().enumerate() {
            lookups.entries[slot].key = key(packet);
            lookups.index.insert(lookups.hasher.hash(packet, KEY), slot as u32);
        }
        Ok(lookups)
    }

    fn look_up(&mut self, packets: &[Packet]) {
        for group in packets.chunks(GROUP) {
            let mut hashes = [(0, 0); GROUP];
            for (hash, packet) in hashes.iter_mut().zip(group) {
                hash.0 = self.hasher.hash(packet, KEY);
                hash.1 = self.index.prefetch(hash.0);
            }
            for &(hash, bucket) in &hashes[..group.len()] {
                if let Some(slot) = self.index.candidate(bucket, hash) {
                    prefetch(&self.entries[slot as usize]);
                }
            }
            for (&(hash, _), packet) in hashes.iter().zip(group) {
                let key = key(packet);
                if let Some(slot) = self.index.find(hash, |slot| self.entries[slot as usize].key == key) {
                    self.entries[slot as usize].packets += 1;
                }
            }
        }
    }
}

impl<I: Index> Work<Packets> for Lookups<I> {
    fn run(&mut self, packets: &mut Packets) -> Result<Run, Error> {
        let ((), seconds) = timed(|| self.look_up(&packets.0));
        self.given += packets.0.len() as u64;
        Ok(Run::new(packets.0.len() as u64, seconds))
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        let found: u64 = self.entries.iter().map(|entry| entry.packets).sum();
        if found == self.given {
            Ok(vec![])
        } else {
            Err(CountMismatch(format!("{} packets in, {found} found", self.given)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::hashes::{numbered, shuffled};

    #[test]
    fn every_table_finds_every_flow() {
        fn check<I: Index>() {
            let keys: Vec<Packet> = (0..5000).map(numbered).collect();
            let mut lookups = Box::new(Lookups::<I>::new(&keys).unwrap());
            lookups.run(&mut shuffled(&keys, 20_000)).unwrap();
            lookups.finish().unwrap();
        }
        check::<FlowIndex>();
        check::<Chaining>();
        check::<Hashbrown>();
    }
}
