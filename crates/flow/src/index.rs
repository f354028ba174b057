//! From the hash of a key to the place of its record.
//!
//! HPC, horizontal and partitioned chaining (seed NAPA-FP), in today's form: a bucket is one cache line that holds
//! short tags, compared all at once, and the places they stand for; the rare bucket that is full goes on in another
//! one. One look at one line answers nearly always, also that a key is new.

use crate::PageKind;
use crate::lanes::{Lanes, Plain, prefetch};
use crate::memory::Memory;
use bytemuck::Zeroable;
use std::io;

/// An index of places (numbers of records) by hash. It knows no keys: the caller says which place is meant.
///
/// [`Hpc`] is the one that the meter uses; others are there to be measured against it.
pub trait Index {
    /// Room for `flows` places, fixed from then on.
    ///
    /// # Errors
    /// The system has no room for that much.
    fn new(flows: usize, pages: PageKind) -> io::Result<Self>
    where
        Self: Sized;

    /// Begins to fetch the memory that the hash leads to, and says which that is.
    fn prefetch(&self, hash: u64) -> u32;

    /// A place that the hash may lead to, after one look at `area`, of which `prefetch` spoke: a hint what to fetch next.
    fn likely(&self, area: u32, hash: u64, lanes: impl Lanes) -> Option<u32>;

    /// The place under this hash that `is` accepts.
    fn find(&self, hash: u64, is: impl FnMut(u32) -> bool) -> Option<u32>;

    /// Enters a place that is not in the index. There is always room for as many as were asked for.
    fn insert(&mut self, hash: u64, place: u32);

    /// Removes a place that was entered under this hash.
    fn remove(&mut self, hash: u64, place: u32);

    /// Octets of memory taken.
    fn memory(&self) -> usize;

    /// How many memory areas (buckets, nodes) the longest search has to look at.
    fn longest_chain(&self) -> usize;
}

/// Buckets of `N` entries, 1 to 16, in `LINES` cache lines: up to 10 entries fit into one, 16 into two.
///
/// Always true: the entries of a bucket stand without a gap in it and then in the ones it goes on in, so
/// that no more than one bucket in `N` entries is ever needed beyond the first ones.
#[derive(Debug)]
pub struct Hpc<const N: usize = 10, const LINES: usize = 1> {
    /// One per [`LOAD`] parts of `N` flows.
    buckets: Memory<Bucket<LINES>>,
    /// Buckets that others go on in; number 0 is never used.
    chained: Memory<Bucket<LINES>>,
    /// First of the unused chained buckets that were used before, 0 for none; they hang together by their links.
    free: u32,
    /// Chained buckets that were ever used.
    used: u32,
}

/// Tags (16 bits each, 0 for none), the number of the bucket that it goes on in (0 for none), places.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(C, align(64))]
struct Bucket<const LINES: usize>([[u32; 16]; LINES]);

/// Flows per entry of all first buckets, in percent, when the table is full. At 65 % of 10 entries one bucket in 15
/// goes on in another (Poisson).
const LOAD: usize = 65;

/// What stands for a hash in its bucket: 15 bits of it, and never 0.
#[inline(always)]
fn tag(hash: u64) -> u16 {
    hash as u16 | 1
}

impl<const N: usize, const LINES: usize> Hpc<N, LINES> {
    /// Word of a bucket that holds the link.
    const LINK: usize = N.div_ceil(2);
    const FITS: () = assert!(N >= 1 && N <= 16 && Self::LINK + 1 + N <= 16 * LINES);

    /// Buckets for so many flows, and those that they may go on in.
    fn lengths(flows: usize) -> [usize; 2] {
        [(flows * 100).div_ceil(N * LOAD), 1 + flows / N]
    }

    /// Octets of memory that one for so many flows takes.
    pub(crate) fn octets_for(flows: usize) -> usize {
        Self::lengths(flows).iter().sum::<usize>() * size_of::<Bucket<LINES>>()
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> usize {
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    /// One bit per entry of a bucket whose tag is `tag`.
    #[inline(always)]
    fn equal(bucket: &Bucket<LINES>, tag: u16, lanes: impl Lanes) -> u16 {
        let words: &[u16; 32] = bytemuck::must_cast_ref(&bucket.0[0]);
        let words = words.first_chunk().expect("16 of 32");
        lanes.equal::<N>(words, tag)
    }

    #[inline(always)]
    fn place(bucket: &Bucket<LINES>, entry: usize) -> u32 {
        // Always within: the remainder only tells the compiler so.
        bucket.0.as_flattened()[(Self::LINK + 1 + entry) % (16 * LINES)]
    }

    fn tags(bucket: &mut Bucket<LINES>) -> &mut [u16; N] {
        let words: &mut [u16; 32] = bytemuck::must_cast_mut(&mut bucket.0[0]);
        words.first_chunk_mut().expect("N is at most 16")
    }

    fn link(bucket: &mut Bucket<LINES>) -> &mut u32 {
        &mut bucket.0.as_flattened_mut()[Self::LINK]
    }

    fn set(bucket: &mut Bucket<LINES>, entry: usize, tag: u16, place: u32) {
        Self::tags(bucket)[entry] = tag;
        bucket.0.as_flattened_mut()[Self::LINK + 1 + entry] = place;
    }

    /// Number of entries in a bucket itself.
    fn entries(bucket: &mut Bucket<LINES>) -> usize {
        Self::tags(bucket).iter().position(|&tag| tag == 0).unwrap_or(N)
    }

    /// An empty chained bucket.
    fn chain(&mut self) -> u32 {
        match self.free {
            0 => {
                self.used += 1;
                self.used
            }
            free => {
                self.free = std::mem::take(Self::link(&mut self.chained[free as usize]));
                free
            }
        }
    }

    /// The bucket `link` leads to, or the first bucket of the hash for 0.
    fn at(&mut self, link: u32, first: usize) -> &mut Bucket<LINES> {
        if link == 0 { &mut self.buckets[first] } else { &mut self.chained[link as usize] }
    }
}

impl<const N: usize, const LINES: usize> Index for Hpc<N, LINES> {
    fn new(flows: usize, pages: PageKind) -> io::Result<Self> {
        let () = Self::FITS;
        let [buckets, chained] = Self::lengths(flows);
        Ok(Self { buckets: Memory::new(buckets, pages)?, chained: Memory::new(chained, pages)?, free: 0, used: 0 })
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) -> u32 {
        let bucket = self.bucket(hash);
        prefetch(&self.buckets[bucket]);
        bucket as u32
    }

    #[inline(always)]
    fn likely(&self, area: u32, hash: u64, lanes: impl Lanes) -> Option<u32> {
        let bucket = &self.buckets[area as usize];
        let equal = Self::equal(bucket, tag(hash), lanes);
        if equal == 0 {
            // Not there, or in the bucket that this one goes on in, which then is looked at soon.
            prefetch(&self.chained[bucket.0.as_flattened()[Self::LINK] as usize]);
            return None;
        }
        Some(Self::place(bucket, equal.trailing_zeros() as usize))
    }

    #[inline]
    fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut bucket = &self.buckets[self.bucket(hash)];
        loop {
            let mut equal = Self::equal(bucket, tag(hash), Plain::default());
            while equal != 0 {
                let place = Self::place(bucket, equal.trailing_zeros() as usize);
                if is(place) {
                    return Some(place);
                }
                equal &= equal - 1;
            }
            match bucket.0.as_flattened()[Self::LINK] {
                0 => return None,
                link => bucket = &self.chained[link as usize],
            }
        }
    }

    fn insert(&mut self, hash: u64, place: u32) {
        let first = self.bucket(hash);
        let mut link = 0;
        loop {
            let bucket = self.at(link, first);
            let entries = Self::entries(bucket);
            if entries < N {
                return Self::set(bucket, entries, tag(hash), place);
            }
            let here = link;
            link = *Self::link(bucket);
            if link == 0 {
                link = self.chain();
                *Self::link(self.at(here, first)) = link;
            }
        }
    }

    fn remove(&mut self, hash: u64, place: u32) {
        let first = self.bucket(hash);
        // Where it stands, where the last entry stands, and the bucket before that one.
        let (mut found, mut link, mut before) = (None, 0, 0);
        let (last, entries) = loop {
            let bucket = self.at(link, first);
            let entries = Self::entries(bucket);
            if found.is_none() {
                let here = (0..entries).find(|&entry| Self::place(bucket, entry) == place);
                found = here.map(|entry| (link, entry));
            }
            match *Self::link(bucket) {
                0 => break (link, entries),
                next => (before, link) = (link, next),
            }
        };
        let (link, entry) = found.expect("only what was entered is removed");
        // The last entry fills the gap.
        let end = self.at(last, first);
        let (tag, moved) = (Self::tags(end)[entries - 1], Self::place(end, entries - 1));
        Self::set(self.at(link, first), entry, tag, moved);
        Self::set(self.at(last, first), entries - 1, 0, 0);
        if last != 0 && entries == 1 {
            *Self::link(self.at(before, first)) = 0;
            *Self::link(self.at(last, first)) = self.free;
            self.free = last;
        }
    }

    fn memory(&self) -> usize {
        self.buckets.octets() + self.chained.octets()
    }

    fn longest_chain(&self) -> usize {
        let next = |bucket: &Bucket<LINES>| bucket.0.as_flattened()[Self::LINK];
        let length = |bucket: &Bucket<LINES>| {
            let (mut length, mut link) = (1, next(bucket));
            while link != 0 {
                (length, link) = (length + 1, next(&self.chained[link as usize]));
            }
            length
        };
        self.buckets.iter().map(length).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Instructions;
    use crate::lanes::{Work, run};
    use std::collections::HashMap;

    /// Random entering and removing beside a `HashMap`, the hash of a place being `hash(place)`.
    struct Churn<F, I>(usize, F, std::marker::PhantomData<I>);

    impl<F: Fn(u32) -> u64, I: Index> Work for Churn<F, I> {
        fn run(self, lanes: impl Lanes) {
            let Self(flows, hash, _) = self;
            let mut index = I::new(flows, PageKind::Small).unwrap();
            let mut known: HashMap<u32, ()> = HashMap::new();
            let mut random = 1_u64;
            for _ in 0..if cfg!(miri) { 4 * flows.min(12) } else { 40 * flows } {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let place = (random >> 33) as u32 % (2 * flows as u32);
                assert_eq!(index.find(hash(place), |at| at == place).is_some(), known.contains_key(&place));
                let likely = index.likely(index.prefetch(hash(place)), hash(place), lanes);
                assert!(likely.is_none_or(|likely| known.contains_key(&likely)));
                if known.remove(&place).is_some() {
                    index.remove(hash(place), place);
                } else if known.len() < flows {
                    known.insert(place, ());
                    index.insert(hash(place), place);
                }
            }
            for place in 0..2 * flows as u32 {
                assert_eq!(index.find(hash(place), |at| at == place), known.contains_key(&place).then_some(place));
            }
        }
    }

    fn churn<I: Index>(flows: usize, hash: impl Fn(u32) -> u64 + Copy) {
        for set in [Instructions::Plain, Instructions::Avx2, Instructions::Avx512] {
            run(set, Churn::<_, I>(flows, hash, std::marker::PhantomData));
        }
    }

    fn spread(place: u32) -> u64 {
        u64::from(place).wrapping_add(7).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    }

    #[test]
    fn it_holds_what_was_entered_and_nothing_else() {
        for flows in [1, 2, 9, 100, 1000] {
            churn::<Hpc>(flows, spread);
            churn::<Hpc<1>>(flows, spread);
            churn::<Hpc<7>>(flows, spread);
            churn::<Hpc<16, 2>>(flows, spread);
        }
    }

    #[test]
    fn there_is_room_even_if_all_hashes_are_one() {
        churn::<Hpc>(200, |_| 0);
        churn::<Hpc<3>>(100, |place| u64::from(place % 2) << 63);
        let mut index = Hpc::<10>::new(1000, PageKind::Small).unwrap();
        (0..1000).for_each(|place| index.insert(0, place));
        assert_eq!(index.longest_chain(), 100);
    }
}
