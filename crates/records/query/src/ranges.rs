//! Sorted ranges of values, for sets.

/// Ranges with both ends included, sorted, without overlaps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ranges<T>(Box<[(T, T)]>);

impl<T: Copy + PartialOrd> Ranges<T> {
    /// Values must be comparable: no NaN.
    pub fn new(ranges: impl Iterator<Item = (T, T)>) -> Self {
        let mut ranges: Vec<(T, T)> = ranges.collect();
        ranges.sort_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
        let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1 => last.1 = if high > last.1 { high } else { last.1 },
                _ => merged.push((low, high)),
            }
        }
        Self(merged.into())
    }

    #[inline]
    pub fn contains(&self, value: T) -> bool {
        let after = self.0.partition_point(|&(low, _)| low <= value);
        after > 0 && value <= self.0[after - 1].1
    }

    /// Whether a range, with both ends included, has a value of the set.
    pub fn intersects(&self, low: T, high: T) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= high);
        low <= high && after > 0 && self.0[after - 1].1 >= low
    }

    /// The ranges.
    pub fn iter(&self) -> impl Iterator<Item = (T, T)> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_the_same_values_as_its_ranges() {
        let ranges = [(5, 9), (1, 1), (8, 12), (20, 20), (12, 13), (30, 25)];
        let set = Ranges::new(ranges.into_iter().filter(|(low, high)| low <= high));
        for value in 0..40 {
            assert_eq!(set.contains(value), ranges.iter().any(|&(low, high)| (low..=high).contains(&value)), "{value}");
            for high in 0..40 {
                let has = (value..=high).any(|value| set.contains(value));
                assert_eq!(set.intersects(value, high), has, "{value} to {high}");
            }
        }
        assert_eq!(set, Ranges(vec![(1, 1), (5, 13), (20, 20)].into()));
    }
}
