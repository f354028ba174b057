//! Hash tables of flows: buckets of 1 to 16 entries, the layout of the meter's buckets, and chaining.
//!
//! Each finds a flow by the hash of its key, compares the whole key and counts a packet. Buckets are
//! 65 % full, and a full bucket continues in the next one (in the meter in an overflow bucket).

use crate::keys::{KEY, bucket_of, counts, numbered, shuffled};
use bytemuck::{Pod, Zeroable};
use weir_bench::error::{CountMismatch, Error};
use weir_bench::mapped_array::MappedArray;
use weir_bench::measure::{Bench, Fact, Group, Run, Work, timed};
use weir_bench::report::Table;
use weir_flow::{KeyHasher, prefetch};
use weir_packet::Packet;

const OURS: &str = "10 entries in a cache line (Weir)";
const LOAD_PERCENT: usize = 65;
/// Packets whose buckets are prefetched together.
const GROUP: usize = 64;
/// Share of the keys outside their own bucket that a recommended size has at most.
const OUTSIDE: f64 = 0.02;

/// Rates by number of flows; in the notes how many keys find their bucket full.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "packets of known flows in random order, decoded before: hash, prefetch, find by the whole key, count";
    let mut table = Table::new("sweep", "Bucket sizes of a hash table", "concurrent flows", load);
    table.against = vec![OURS];
    let flow_counts = if bench.quick { &[1024][..] } else { &[16_384, 131_072, 1 << 20, 1 << 22] };
    for &flows in flow_counts {
        let packets = bench.size((2 * flows).clamp(4 << 20, 8 << 20), 20_000);
        let bytes = size_of::<Packet>() * (packets + flows) + 7 * 100 * flows;
        if !bench.fits(bytes, &format!("{flows} flows"), &mut table) {
            continue;
        }
        let keys: Vec<Packet> = (0..flows as u64).map(numbered).collect();
        let mut load = shuffled(&keys, packets);
        let mut group = Group::new(flows.to_string(), flows as f64)
            .case(OURS, Lookups::new(Lines::new(flows)?, &keys)?)
            .case("chaining", Lookups::new(Chaining::new(flows)?, &keys)?);
        for entries in [1, 2, 4, 8, 16] {
            group = group.case(format!("{entries} entries"), Lookups::new(Cells::new(flows, entries)?, &keys)?);
        }
        group.measure(bench, &mut table, &mut load, |_| Ok(()))?;
    }
    add_collisions(bench, &mut table);
    Ok(table)
}

/// The collision curve: keys outside their bucket by its size, measured and of the Poisson distribution.
fn add_collisions(bench: &Bench<'_>, table: &mut Table) {
    let hasher = KeyHasher::new(Some(1));
    let keys = bench.size(1 << 20, 4096);
    let hashes: Vec<u64> = (0..keys as u64).map(|number| hasher.hash(&numbered(number), KEY)).collect();
    let mut recommended = None;
    for entries in 1..=16_usize {
        let buckets = buckets_for(keys, entries);
        let outside: usize =
            counts(&hashes, buckets).iter().map(|&count| (count as usize).saturating_sub(entries)).sum();
        let (measured, mean) = (outside as f64 / keys as f64, keys as f64 / buckets as f64);
        let expected = poisson_excess(mean, entries) / mean;
        let [measured_percent, expected_percent] = [measured, expected].map(|share| 100.0 * share);
        table.notes.push(format!("{entries} entries: {measured_percent:.2} % of the keys outside their bucket, Poisson {expected_percent:.2} %"));
        recommended = recommended.or((measured <= OUTSIDE).then_some(entries));
    }
    let size = recommended.map_or("none up to 16".into(), |entries| format!("{entries} entries"));
    table.notes.push(format!("recommended: {size}, the smallest with at most {:.0} % outside", 100.0 * OUTSIDE));
}

/// The mean number of keys beyond `entries` in a bucket with a Poisson-distributed number of them.
fn poisson_excess(mean: f64, entries: usize) -> f64 {
    let mut probability = (-mean).exp();
    let mut excess = 0.0;
    for keys in 1..=100 {
        probability *= mean / f64::from(keys);
        excess += probability * (f64::from(keys) - entries as f64).max(0.0);
    }
    excess
}

fn buckets_for(flows: usize, entries: usize) -> usize {
    (flows * 100).div_ceil(entries * LOAD_PERCENT).max(1)
}

/// Bits of the hash beside the slot, never 0.
#[inline(always)]
fn tag(hash: u64) -> u32 {
    hash as u32 | 1
}

/// From the hash of a key to its slot.
trait Index {
    fn insert(&mut self, hash: u64, slot: u32);
    fn prefetch(&self, hash: u64);
    /// The slot under this hash that `is_meant` accepts.
    fn find(&self, hash: u64, is_meant: impl FnMut(u32) -> bool) -> Option<u32>;
}

/// Buckets of some entries of 8 octets: tag and slot.
struct Cells {
    entries: usize,
    cells: MappedArray<u64>,
}

impl Cells {
    fn new(flows: usize, entries: usize) -> Result<Self, Error> {
        Ok(Self { entries, cells: MappedArray::new(buckets_for(flows, entries) * entries)? })
    }

    #[inline(always)]
    fn start(&self, hash: u64) -> usize {
        bucket_of(hash, self.cells.len() / self.entries) * self.entries
    }

    /// The cells from the bucket of a hash on, to the end and on from the beginning.
    #[inline(always)]
    fn from(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let start = self.start(hash);
        (start..self.cells.len()).chain(0..start)
    }
}

impl Index for Cells {
    fn insert(&mut self, hash: u64, slot: u32) {
        let free = self.from(hash).find(|&at| self.cells[at] == 0).expect("a third of the cells is free");
        self.cells[free] = u64::from(tag(hash)) << 32 | u64::from(slot);
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        prefetch(&self.cells[self.start(hash)]);
    }

    #[inline(always)]
    fn find(&self, hash: u64, mut is_meant: impl FnMut(u32) -> bool) -> Option<u32> {
        let cells = self.from(hash).map(|at| self.cells[at]).take_while(|&cell| cell != 0);
        cells.filter(|cell| (cell >> 32) as u32 == tag(hash)).map(|cell| cell as u32).find(|&slot| is_meant(slot))
    }
}

/// Buckets of one cache line: ten short tags, then the slots.
struct Lines(MappedArray<LineBucket>);

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct LineBucket {
    tags: [u16; 10],
    unused: u32,
    slots: [u32; 10],
}

impl Lines {
    fn new(flows: usize) -> Result<Self, Error> {
        Ok(Self(MappedArray::new(buckets_for(flows, 10))?))
    }

    #[inline(always)]
    fn from(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let (start, end) = (bucket_of(hash, self.0.len()), self.0.len());
        (start..end).chain(0..start)
    }
}

impl Index for Lines {
    fn insert(&mut self, hash: u64, slot: u32) {
        let is_free = |&at: &usize| self.0[at].tags.contains(&0);
        let bucket = self.from(hash).find(is_free).expect("a third of the entries is free");
        let bucket = &mut self.0[bucket];
        let free = bucket.tags.iter().position(|&tag| tag == 0).expect("found above");
        (bucket.tags[free], bucket.slots[free]) = (tag(hash) as u16, slot);
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        prefetch(&self.0[bucket_of(hash, self.0.len())]);
    }

    #[inline(always)]
    fn find(&self, hash: u64, mut is_meant: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag(hash) as u16;
        for at in self.from(hash) {
            let LineBucket { tags, slots, .. } = &self.0[at];
            // All tags are compared at once.
            let mut equal: u32 = (0..10).map(|entry| u32::from(tags[entry] == tag) << entry).sum();
            while equal != 0 {
                let slot = slots[equal.trailing_zeros() as usize];
                if is_meant(slot) {
                    return Some(slot);
                }
                equal &= equal - 1;
            }
            if tags[9] == 0 {
                return None;
            }
        }
        None
    }
}

/// Linked records: each step reads a record to compare its key.
struct Chaining {
    /// Slot + 1, or 0 at the end.
    first: MappedArray<u32>,
    next: MappedArray<u32>,
}

impl Chaining {
    fn new(flows: usize) -> Result<Self, Error> {
        Ok(Self { first: MappedArray::new(flows)?, next: MappedArray::new(flows)? })
    }
}

impl Index for Chaining {
    fn insert(&mut self, hash: u64, slot: u32) {
        let bucket = bucket_of(hash, self.first.len());
        self.next[slot as usize] = std::mem::replace(&mut self.first[bucket], slot + 1);
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        prefetch(&self.first[bucket_of(hash, self.first.len())]);
    }

    #[inline(always)]
    fn find(&self, hash: u64, mut is_meant: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut slot = self.first[bucket_of(hash, self.first.len())].checked_sub(1)?;
        while !is_meant(slot) {
            slot = self.next[slot as usize].checked_sub(1)?;
        }
        Some(slot)
    }
}

/// A flow: its key and the number of its packets.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Entry {
    key: [u64; 5],
    packets: u64,
    unused: [u64; 2],
}

#[inline(always)]
fn key(packet: &Packet) -> [u64; 5] {
    let [a, b, c, d, ..] = *packet.words();
    [a, b, c, d, u64::from(packet.source_port) << 16 | u64::from(packet.destination_port)]
}

/// Lookups in one table.
struct Lookups<I> {
    index: I,
    entries: MappedArray<Entry>,
    hasher: KeyHasher,
    /// Packets of all rounds.
    given: u64,
}

impl<I: Index> Lookups<I> {
    fn new(mut index: I, keys: &[Packet]) -> Result<Self, Error> {
        let mut entries = MappedArray::<Entry>::new(keys.len())?;
        let hasher = KeyHasher::new(None);
        for (slot, packet) in keys.iter().enumerate() {
            entries[slot].key = key(packet);
            index.insert(hasher.hash(packet, KEY), slot as u32);
        }
        Ok(Self { index, entries, hasher, given: 0 })
    }

    fn look_up(&mut self, packets: &[Packet]) {
        for group in packets.chunks(GROUP) {
            let mut hashes = [0; GROUP];
            for (hash, packet) in hashes.iter_mut().zip(group) {
                *hash = self.hasher.hash(packet, KEY);
                self.index.prefetch(*hash);
            }
            for &hash in &hashes[..group.len()] {
                if let Some(slot) = self.index.find(hash, |_| true) {
                    prefetch(&self.entries[slot as usize]);
                }
            }
            for (&hash, packet) in hashes.iter().zip(group) {
                let key = key(packet);
                if let Some(slot) = self.index.find(hash, |slot| self.entries[slot as usize].key == key) {
                    self.entries[slot as usize].packets += 1;
                }
            }
        }
    }
}

impl<I: Index> Work<Vec<Packet>> for Lookups<I> {
    fn run(&mut self, packets: &mut Vec<Packet>) -> Result<Run, Error> {
        let ((), seconds) = timed(|| self.look_up(packets));
        self.given += packets.len() as u64;
        Ok(Run::new(packets.len() as u64, seconds))
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        match self.entries.iter().map(|entry| entry.packets).sum::<u64>() {
            found if found == self.given => Ok(vec![]),
            found => Err(CountMismatch(format!("{} packets given, {found} found", self.given))),
        }
    }
}
