//! Hash index of the flow cache: from the hash of a key to the number of its slot.
//!
//! A bucket is one cache line: short tags, all compared at once, and the slots that they stand for.
//! A full bucket, one in 15, continues in an overflow bucket. So one cache line answers nearly
//! every lookup, also that of an unknown key. Source: horizontal and partitioned chaining of
//! NAPA-FP (decisions/0005). The index holds no keys: the caller compares them. Invariant: the
//! entries of a bucket and its overflow buckets have no gap.

use crate::instructions::equal_words;
use crate::mapped_array::MappedArray;
use bytemuck::{Pod, Zeroable};
use std::io;

const ENTRIES: usize = 10;
/// Flows per entry of the primary buckets when the cache is full, percent. At 65 % of 10 entries
/// one bucket in 15 overflows (Poisson).
const LOAD_PERCENT: usize = 65;

/// Index of slots by hash, of fixed capacity.
#[derive(Debug)]
pub(crate) struct FlowIndex {
    primary: MappedArray<Bucket>,
    /// Overflow buckets; number 0 is never used.
    overflow: MappedArray<Bucket>,
    /// First of the free overflow buckets that were used before, linked by `next`; 0 for none.
    free: u32,
    /// Overflow buckets that were ever used.
    used: u32,
}

#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
struct Bucket {
    /// 15 bits of the hash of each entry; 0 for none.
    tags: [u16; ENTRIES],
    /// The overflow bucket in which this one continues, 0 for none.
    next: u32,
    slots: [u32; ENTRIES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl FlowIndex {
    /// An empty index for up to `flows` slots.
    pub fn new(flows: usize) -> io::Result<Self> {
        let [primary, overflow] = Self::lengths(flows);
        Ok(Self {
            primary: MappedArray::with_huge_pages(primary)?,
            overflow: MappedArray::with_huge_pages(overflow)?,
            free: 0,
            used: 0,
        })
    }

    /// Prefetches the bucket of a hash and returns its number.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) -> u32 {
        let bucket = self.bucket_number(hash) as u32;
        self.primary.prefetch_line(bucket, 0);
        bucket
    }

    /// A slot whose tag in `bucket`, the bucket of `hash`, is that of the hash: probably the slot
    /// of the flow. `None` if the primary bucket has none.
    #[inline(always)]
    pub fn candidate(&self, bucket: u32, hash: u64) -> Option<u32> {
        let bucket = &self.primary[bucket as usize];
        let matches = bucket.matches(tag(hash));
        if matches == 0 {
            // The key is unknown or in the overflow bucket, which is then searched soon.
            self.overflow.prefetch_line(bucket.next, 0);
            return None;
        }
        Some(bucket.slot(matches))
    }

    /// The slot under this hash for which `has_key` is true.
    #[inline]
    pub fn find(&self, hash: u64, mut has_key: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut bucket = &self.primary[self.bucket_number(hash)];
        loop {
            let mut matches = bucket.matches(tag(hash));
            while matches != 0 {
                let slot = bucket.slot(matches);
                if has_key(slot) {
                    return Some(slot);
                }
                matches &= matches - 1;
            }
            match bucket.next {
                0 => return None,
                next => bucket = &self.overflow[next as usize],
            }
        }
    }

    /// Inserts a slot that is not in the index.
    pub fn insert(&mut self, hash: u64, slot: u32) {
        let primary = self.bucket_number(hash);
        let mut number = 0;
        loop {
            let bucket = self.bucket_mut(number, primary);
            let entries = bucket.entries();
            if entries < ENTRIES {
                (bucket.tags[entries], bucket.slots[entries]) = (tag(hash), slot);
                return;
            }
            let full = number;
            number = bucket.next;
            if number == 0 {
                number = self.take_overflow_bucket();
                self.bucket_mut(full, primary).next = number;
            }
        }
    }

    /// Removes a slot that was inserted under this hash. Panics if it was not.
    pub fn remove(&mut self, hash: u64, slot: u32) {
        let primary = self.bucket_number(hash);
        // The entry of the slot; the last bucket of the chain and the one before it.
        let (mut found, mut last, mut before_last) = (None, 0, 0);
        let entries = loop {
            let bucket = self.bucket_mut(last, primary);
            let entries = bucket.entries();
            if found.is_none() {
                found = bucket.slots[..entries].iter().position(|&other| other == slot).map(|entry| (last, entry));
            }
            match bucket.next {
                0 => break entries,
                next => (before_last, last) = (last, next),
            }
        };
        let (number, entry) = found.expect("only what was inserted is removed");
        // The last entry of the chain fills the gap.
        let end = self.bucket_mut(last, primary);
        let (tag, moved) = (end.tags[entries - 1], end.slots[entries - 1]);
        let gap = self.bucket_mut(number, primary);
        (gap.tags[entry], gap.slots[entry]) = (tag, moved);
        let end = self.bucket_mut(last, primary);
        (end.tags[entries - 1], end.slots[entries - 1]) = (0, 0);
        if last != 0 && entries == 1 {
            self.bucket_mut(before_last, primary).next = 0;
            self.overflow[last as usize].next = self.free;
            self.free = last;
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.primary.memory_bytes() + self.overflow.memory_bytes()
    }

    pub fn memory_bytes_for(flows: usize) -> usize {
        Self::lengths(flows).iter().sum::<usize>() * size_of::<Bucket>()
    }

    /// Buckets of the longest chain.
    pub fn longest_chain(&self) -> usize {
        let length = |bucket: &Bucket| {
            let (mut length, mut next) = (1, bucket.next);
            while next != 0 {
                (length, next) = (length + 1, self.overflow[next as usize].next);
            }
            length
        };
        self.primary.iter().map(length).max().unwrap_or(0)
    }

    /// Numbers of primary and overflow buckets. As chains have no gaps, no more than one overflow
    /// bucket in [`ENTRIES`] flows is in use.
    fn lengths(flows: usize) -> [usize; 2] {
        [(flows * 100).div_ceil(ENTRIES * LOAD_PERCENT), 1 + flows / ENTRIES]
    }

    #[inline(always)]
    fn bucket_number(&self, hash: u64) -> usize {
        (((hash >> 32) * self.primary.len() as u64) >> 32) as usize
    }

    /// An overflow bucket, or the primary one for number 0.
    fn bucket_mut(&mut self, number: u32, primary: usize) -> &mut Bucket {
        if number == 0 { &mut self.primary[primary] } else { &mut self.overflow[number as usize] }
    }

    fn take_overflow_bucket(&mut self) -> u32 {
        match self.free {
            0 => {
                self.used += 1;
                self.used
            }
            free => {
                self.free = std::mem::take(&mut self.overflow[free as usize].next);
                free
            }
        }
    }
}

impl Bucket {
    /// One bit per entry whose tag is `tag`.
    #[inline(always)]
    fn matches(&self, tag: u16) -> u32 {
        let lanes: &[u128; 4] = bytemuck::must_cast_ref(self);
        equal_words([lanes[0], lanes[1]], tag) & ((1 << ENTRIES) - 1)
    }

    #[inline(always)]
    fn slot(&self, matches: u32) -> u32 {
        let words: &[u32; 16] = bytemuck::must_cast_ref(self);
        // The index is below 16; `% 16` only lets the compiler omit the bounds check.
        words[(16 - ENTRIES + matches.trailing_zeros() as usize) % 16]
    }

    fn entries(&self) -> usize {
        self.tags.iter().position(|&tag| tag == 0).unwrap_or(ENTRIES)
    }
}

#[inline(always)]
fn tag(hash: u64) -> u16 {
    hash as u16 | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Inserts and removes at random, compared with a `HashMap`.
    fn churn(flows: usize, hash: impl Fn(u32) -> u64) {
        let mut index = FlowIndex::new(flows).unwrap();
        let mut known: HashMap<u32, ()> = HashMap::new();
        let mut random = 1_u64;
        for _ in 0..if cfg!(miri) { 4 * flows.min(12) } else { 40 * flows } {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let slot = (random >> 33) as u32 % (2 * flows as u32);
            assert_eq!(index.find(hash(slot), |other| other == slot).is_some(), known.contains_key(&slot));
            let candidate = index.candidate(index.prefetch(hash(slot)), hash(slot));
            assert!(candidate.is_none_or(|candidate| known.contains_key(&candidate)));
            if known.remove(&slot).is_some() {
                index.remove(hash(slot), slot);
            } else if known.len() < flows {
                known.insert(slot, ());
                index.insert(hash(slot), slot);
            }
        }
        for slot in 0..2 * flows as u32 {
            assert_eq!(index.find(hash(slot), |other| other == slot), known.contains_key(&slot).then_some(slot));
        }
    }

    #[test]
    fn index_contains_inserted_slots_only() {
        for flows in [1, 2, 9, 100, 1000] {
            churn(flows, |slot| u64::from(slot).wrapping_add(7).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        }
    }

    #[test]
    fn all_slots_fit_if_all_hashes_are_equal() {
        churn(200, |_| 0);
        churn(100, |slot| u64::from(slot % 2) << 63);
        let mut index = FlowIndex::new(1000).unwrap();
        (0..1000).for_each(|slot| index.insert(0, slot));
        assert_eq!(index.longest_chain(), 100);
    }
}
