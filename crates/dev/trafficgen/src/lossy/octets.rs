//! The received octets of a stream.

/// A set of positions, stored as ranges: without gaps, it is a single range.
#[derive(Default)]
pub(super) struct Octets {
    /// First position and the one after the last; ascending and disjoint.
    ranges: Vec<(u64, u64)>,
}

impl Octets {
    /// Adds the positions from `start` up to `end`. Returns how many of them were in the set
    /// before.
    pub(super) fn add(&mut self, start: u64, end: u64) -> u64 {
        if start == end {
            return 0;
        }
        let first = self.ranges.partition_point(|range| range.1 < start);
        let touched = self.ranges[first..].partition_point(|range| range.0 <= end);
        if touched == 0 {
            self.ranges.insert(first, (start, end));
            return 0;
        }
        let last = first + touched - 1;
        let overlap = |range: &(u64, u64)| end.min(range.1).saturating_sub(start.max(range.0));
        let repeated = self.ranges[first..=last].iter().map(overlap).sum();
        self.ranges[first] = (start.min(self.ranges[first].0), end.max(self.ranges[last].1));
        self.ranges.drain(first + 1..=last);
        repeated
    }

    /// Returns the position after the last one.
    pub(super) fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.1)
    }

    /// Returns the position after the first range: the start of the first gap.
    pub(super) fn first_gap(&self) -> u64 {
        self.ranges.first().map_or(0, |range| range.1)
    }

    /// Returns whether a position before the end is missing.
    pub(super) fn has_gaps(&self) -> bool {
        self.ranges.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn ranges_agree_with_a_table_of_octets() {
        let mut random = Random::new(5);
        for _ in 0..200 {
            let (mut octets, mut table) = (Octets::default(), [false; 64]);
            for _ in 0..20 {
                let start = random.below(60);
                let end = start + random.below(64 - start + 1);
                let range = &mut table[start as usize..end as usize];
                let repeated = range.iter().filter(|&&present| present).count() as u64;
                range.fill(true);
                assert_eq!(octets.add(start, end), repeated);
                assert_eq!(octets.end(), table.iter().rposition(|&present| present).map_or(0, |last| last as u64 + 1));
                assert!(octets.ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", octets.ranges);
                let length: u64 = octets.ranges.iter().map(|range| range.1 - range.0).sum();
                assert_eq!(length, table.iter().filter(|&&present| present).count() as u64);
                assert_eq!(octets.has_gaps(), octets.ranges.len() > 1);
            }
        }
    }
}
