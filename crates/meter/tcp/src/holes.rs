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
    /// Its IP identification; 0 if there is none, or if its sender does not count them.
    pub identification: u16,
}

/// Up to [`MAX_HOLES`] holes in the order of their positions, and space for one more.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C)]
pub(crate) struct Holes {
    count: u32,
    lengths: [u32; MAX_HOLES + 1],
    starts: [u64; MAX_HOLES + 1],
    since_ns: [u64; MAX_HOLES + 1],
    identifications: [u16; MAX_HOLES + 1],
    unused: [u16; 3],
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

    /// The holes that a range overlaps.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = Hole> {
        (self.first_after(start)..self.len()).map(|at| self.get(at)).take_while(move |hole| hole.start < end)
    }

    /// The first hole that ends after a position, or the number of holes.
    fn first_after(&self, position: u64) -> usize {
        let later = self.starts[..self.len()].partition_point(|&start| start <= position);
        let below = later.saturating_sub(1);
        if later > 0 && self.get(below).end() > position { below } else { later }
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
        let later = before..self.len();
        self.lengths.copy_within(later.clone(), before + 1);
        self.starts.copy_within(later.clone(), before + 1);
        self.since_ns.copy_within(later.clone(), before + 1);
        self.identifications.copy_within(later, before + 1);
        self.set(before, hole);
        self.count += 1;
    }

    pub fn remove(&mut self, hole: usize) -> Hole {
        let removed = self.get(hole);
        let later = hole + 1..self.len();
        self.lengths.copy_within(later.clone(), hole);
        self.starts.copy_within(later.clone(), hole);
        self.since_ns.copy_within(later.clone(), hole);
        self.identifications.copy_within(later, hole);
        self.count -= 1;
        removed
    }

    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Removes a range from the holes and passes each part that was missing to `filled`. A range
    /// inside a hole splits it, so that one hole more than before may remain.
    pub fn fill(&mut self, start: u64, end: u64, mut filled: impl FnMut(u64, u64)) {
        let mut at = self.first_after(start);
        while at < self.len() {
            let hole = self.get(at);
            if hole.start >= end {
                break;
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
        Hole {
            start: self.starts[at],
            length: self.lengths[at],
            since_ns: self.since_ns[at],
            identification: self.identifications[at],
        }
    }

    fn set(&mut self, at: usize, hole: Hole) {
        (self.starts[at], self.lengths[at]) = (hole.start, hole.length);
        (self.since_ns[at], self.identifications[at]) = (hole.since_ns, hole.identification);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Positions that are missing, with the time since when and the identification.
    type Missing = BTreeMap<u64, (u64, u16)>;

    fn missing(holes: &Holes) -> Missing {
        let opened = |hole: &Hole| (hole.since_ns, hole.identification);
        let positions = |hole: Hole| (hole.start..hole.end()).map(move |position| (position, opened(&hole)));
        holes.overlapping(0, u64::MAX).flat_map(positions).collect()
    }

    #[test]
    fn holes_are_the_positions_that_were_not_filled() {
        for seed in 1..=200_u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut next = |limit: u64| {
                random = random.wrapping_mul(0xd129_42f7_2dd1_6b45).wrapping_add(1);
                (random >> 33) % limit
            };
            let (mut holes, mut expected, mut end) = (Holes::zeroed(), Missing::new(), 1);
            for time_ns in 0..300 {
                if holes.len() <= MAX_HOLES && next(2) == 0 {
                    let (start, length) = (end + 1 + next(3), 1 + next(9) as u32);
                    end = start + u64::from(length);
                    let identification = next(1 << 16) as u16;
                    holes.push(Hole { start, length, since_ns: time_ns, identification });
                    expected.extend((start..end).map(|position| (position, (time_ns, identification))));
                }
                let start = next(end + 2);
                let stop = start + 1 + next(12);
                let overlapped: Vec<u64> = holes.overlapping(start, stop).map(|hole| hole.start).collect();
                let all: Vec<Hole> = holes.overlapping(0, u64::MAX).collect();
                let of_all = all.iter().filter(|hole| hole.start < stop && hole.end() > start);
                assert_eq!(overlapped, of_all.map(|hole| hole.start).collect::<Vec<_>>(), "seed {seed}");
                if holes.len() <= MAX_HOLES {
                    let mut filled = Vec::new();
                    holes.fill(start, stop, |from, to| filled.extend(from..to));
                    let known: Vec<u64> = expected.range(start..stop).map(|(&position, _)| position).collect();
                    assert_eq!(filled, known, "seed {seed}");
                    expected.retain(|position, _| !(start..stop).contains(position));
                }
                if holes.len() > MAX_HOLES {
                    let removed = holes.remove(0);
                    expected.retain(|&position, _| position >= removed.end());
                }
                assert_eq!(missing(&holes), expected, "seed {seed}");
            }
            assert_eq!(holes.missing_bytes(), expected.len() as u64);
        }
    }
}
