//! Two other indexes, for comparison only: what NAPA-FP measured against, and a table from a library.

use crate::huge_page_array::HugePageArray;
use hashbrown::HashTable;
use std::io;
use weir_flow::prefetch;
use weir_flow::{Index, Lanes, PageKind};

const NOWHERE: u32 = u32::MAX;

/// Which of so many places a hash falls to.
#[inline(always)]
pub fn place(hash: u64, places: usize) -> usize {
    (((hash >> 32) * places as u64) >> 32) as usize
}

/// Plain chaining: a head per flow, and from each place to the next. Whether a place is meant, its key alone tells:
/// every step of a search is a line fetched from memory.
pub struct Chained {
    heads: HugePageArray<u32>,
    next: HugePageArray<u32>,
}

impl Chained {
    #[inline(always)]
    fn bucket(&self, hash: u64) -> usize {
        place(hash, self.heads.len())
    }
}

fn array(length: usize) -> io::Result<HugePageArray<u32>> {
    HugePageArray::new(length).map_err(io::Error::other)
}

impl Index for Chained {
    fn new(flows: usize, _: PageKind) -> io::Result<Self> {
        let mut heads = array(flows)?;
        heads.fill(NOWHERE);
        Ok(Self { heads, next: array(flows)? })
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) -> u32 {
        let bucket = self.bucket(hash);
        prefetch(&self.heads[bucket]);
        bucket as u32
    }

    #[inline(always)]
    fn likely(&self, area: u32, _: u64, _: impl Lanes) -> Option<u32> {
        let head = self.heads[area as usize];
        (head != NOWHERE).then_some(head)
    }

    #[inline(always)]
    fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.heads[self.bucket(hash)];
        while at != NOWHERE {
            if is(at) {
                return Some(at);
            }
            at = self.next[at as usize];
        }
        None
    }

    fn insert(&mut self, hash: u64, place: u32) {
        let bucket = self.bucket(hash);
        self.next[place as usize] = std::mem::replace(&mut self.heads[bucket], place);
    }

    fn remove(&mut self, hash: u64, place: u32) {
        let bucket = self.bucket(hash);
        let after = self.next[place as usize];
        let mut at = self.heads[bucket];
        if at == place {
            self.heads[bucket] = after;
            return;
        }
        while self.next[at as usize] != place {
            at = self.next[at as usize];
        }
        self.next[at as usize] = after;
    }

    fn memory(&self) -> usize {
        size_of_val(&self.heads[..]) + size_of_val(&self.next[..])
    }

    fn longest_chain(&self) -> usize {
        let length = |&head: &u32| {
            let (mut at, mut length) = (head, 0);
            while at != NOWHERE {
                (at, length) = (self.next[at as usize], length + 1);
            }
            length
        };
        self.heads.iter().map(length).max().unwrap_or(0)
    }
}

/// Open addressing from a library: hashbrown, which the standard library's map is made of. The hash stands beside the
/// place, so that keys are never needed to move entries. It has no way to fetch ahead but a first search.
pub struct Library(HashTable<(u64, u32)>);

impl Index for Library {
    fn new(flows: usize, _: PageKind) -> io::Result<Self> {
        // Twice the room: with less, removed entries make it take a larger table.
        Ok(Self(HashTable::with_capacity(2 * flows)))
    }

    fn prefetch(&self, _: u64) -> u32 {
        0
    }

    #[inline(always)]
    fn likely(&self, _: u32, hash: u64, _: impl Lanes) -> Option<u32> {
        self.0.find(hash, |&(other, _)| other == hash).map(|&(_, place)| place)
    }

    #[inline(always)]
    fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        self.0.find(hash, |&(other, place)| other == hash && is(place)).map(|&(_, place)| place)
    }

    fn insert(&mut self, hash: u64, place: u32) {
        self.0.insert_unique(hash, (hash, place), |&(hash, _)| hash);
    }

    fn remove(&mut self, hash: u64, place: u32) {
        if let Ok(entry) = self.0.find_entry(hash, |&(_, other)| other == place) {
            entry.remove();
        }
    }

    fn memory(&self) -> usize {
        self.0.allocation_size()
    }

    fn longest_chain(&self) -> usize {
        // It does not say.
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Frames;
    use crate::measure::Work;
    use crate::meter::Metering;
    use weir_flow::{ALL, Config};

    /// Flows that come and go, metered with every index: the books close, and no flow is taken for another.
    fn live<I: Index>() -> f64 {
        let config = Config { flows: 4096, idle_timeout_ns: 20_000_000, secret: Some(5), ..Config::default() };
        let mut frames = Frames::continuing("velan,flows=500,rate=1M,new=20k,directions=2", 64 << 10).unwrap();
        let mut metering = Box::new(Metering::<I, ALL>::new(config).unwrap());
        let mut live = 0.0;
        for _ in 0..3 {
            live = metering.run(&mut frames).unwrap().facts[0].1;
            frames.next_round().unwrap();
        }
        Work::<Frames>::finish(metering).unwrap();
        live
    }

    #[test]
    fn all_indexes_meter_alike() {
        let live = [live::<weir_flow::Hpc>(), live::<Chained>(), live::<Library>()];
        assert!(live[0] > 500.0 && live[0] < 2000.0, "{live:?}");
        assert_eq!(live, [live[0]; 3]);
    }
}
