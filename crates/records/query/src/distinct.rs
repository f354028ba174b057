//! The number of different values: exact up to a limit, then estimated with a HyperLogLog sketch.
//!
//! Input: hashes of values, equal for equal ones. Crates for this say neither whether a number is exact nor how far
//! it may be off.

/// Different values that are counted exactly. Their hashes take as much memory as a sketch.
const EXACT: usize = REGISTERS / size_of::<u64>();
/// Bits of a hash that choose a register.
const REGISTER_BITS: u32 = 12;
const REGISTERS: usize = 1 << REGISTER_BITS;

/// A set of values of which the number is known.
#[derive(Clone, Debug)]
pub(crate) enum DistinctSet {
    /// The hashes, sorted.
    Exact(Vec<u64>),
    /// For each part of the hashes, how rare the rarest of them is.
    Sketch(Box<[u8; REGISTERS]>),
}

/// A number of different values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DistinctCount {
    /// The number, or its estimate.
    pub number: u64,
    /// The relative standard error of an estimate; 0 if the number is exact.
    pub error: f64,
}

impl DistinctSet {
    /// Octets that a set takes at most.
    pub const MAX_BYTES: usize = size_of::<Self>() + REGISTERS;
    /// The relative standard error of an estimate (Flajolet et al. 2007).
    pub const ERROR: f64 = 1.04 / 64.0;

    /// Adds a value by its hash.
    pub fn insert(&mut self, hash: u64) {
        match self {
            Self::Exact(hashes) => {
                let Err(at) = hashes.binary_search(&hash) else { return };
                if hashes.len() < EXACT {
                    return hashes.insert(at, hash);
                }
                let mut registers = Box::new([0; REGISTERS]);
                hashes.iter().chain([&hash]).for_each(|hash| note(&mut registers, *hash));
                *self = Self::Sketch(registers);
            }
            Self::Sketch(registers) => note(registers, hash),
        }
    }

    /// Adds the values of another set.
    pub fn merge(&mut self, other: &Self) {
        match (&mut *self, other) {
            (_, Self::Exact(hashes)) => hashes.iter().for_each(|hash| self.insert(*hash)),
            (Self::Sketch(registers), Self::Sketch(others)) => {
                registers.iter_mut().zip(others.iter()).for_each(|(rarity, other)| *rarity = (*rarity).max(*other));
            }
            (Self::Exact(hashes), Self::Sketch(others)) => {
                let mut registers = others.clone();
                hashes.iter().for_each(|hash| note(&mut registers, *hash));
                *self = Self::Sketch(registers);
            }
        }
    }

    /// The number of values.
    pub fn count(&self) -> DistinctCount {
        match self {
            Self::Exact(hashes) => DistinctCount { number: hashes.len() as u64, error: 0.0 },
            Self::Sketch(registers) => DistinctCount { number: estimate(registers), error: Self::ERROR },
        }
    }

    /// Octets that the set takes beside itself.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Exact(hashes) => hashes.capacity() * size_of::<u64>(),
            Self::Sketch(_) => REGISTERS,
        }
    }
}

impl Default for DistinctSet {
    fn default() -> Self {
        Self::Exact(Vec::new())
    }
}

fn note(registers: &mut [u8; REGISTERS], hash: u64) {
    // The hash may be a weak one: each bit of the result depends on all of its bits (Stafford's mix 13).
    let mut bits = hash;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    let register = &mut registers[(bits >> (u64::BITS - REGISTER_BITS)) as usize];
    let rarity = (bits << REGISTER_BITS).leading_zeros().min(u64::BITS - REGISTER_BITS) + 1;
    *register = (*register).max(rarity as u8);
}

/// The estimator of Ertl 2017 ("New cardinality estimation algorithms for HyperLogLog sketches", algorithm 6), which
/// has no bias for small numbers.
fn estimate(registers: &[u8; REGISTERS]) -> u64 {
    const MOST: usize = (u64::BITS - REGISTER_BITS + 1) as usize;
    const SCALE: f64 = 0.5 / std::f64::consts::LN_2;
    let mut registers_with = [0_u32; MOST + 1];
    registers.iter().for_each(|rarity| registers_with[usize::from(*rarity).min(MOST)] += 1);
    let all = REGISTERS as f64;
    let mut sum = all * tau(1.0 - f64::from(registers_with[MOST]) / all);
    for rarity in (1..MOST).rev() {
        sum = 0.5 * (sum + f64::from(registers_with[rarity]));
    }
    sum += all * sigma(f64::from(registers_with[0]) / all);
    (SCALE * all * all / sum).round() as u64
}

/// x + x^2 + 2 x^4 + 4 x^8 + ...
fn sigma(share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut factor, mut sum) = (share, 1.0, share);
    loop {
        power *= power;
        let before = sum;
        sum += power * factor;
        factor += factor;
        if sum <= before {
            return sum;
        }
    }
}

/// The same for registers that are full.
fn tau(share: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    let (mut root, mut factor, mut sum) = (share, 1.0, 1.0 - share);
    loop {
        root = root.sqrt();
        factor *= 0.5;
        let before = sum;
        sum -= (1.0 - root) * (1.0 - root) * factor;
        if sum >= before {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_sets_are_the_set_of_all_values() {
        let set = |values: std::ops::Range<u64>| {
            let mut set = DistinctSet::default();
            values.for_each(|value| set.insert(value));
            set
        };
        let few = EXACT as u64 / 2;
        for (one, other) in
            [(0..few, 10..few + 9), (0..9 * few, 3..7), (0..few, few..9 * few), (0..5 * few, few..9 * few)]
        {
            let mut merged = set(one.clone());
            merged.merge(&set(other.clone()));
            assert_eq!(merged.count(), set(one.start..one.end.max(other.end)).count(), "{one:?} {other:?}");
        }
    }

    fn counted(values: impl Iterator<Item = u64>) -> DistinctCount {
        let mut set = DistinctSet::default();
        values.for_each(|value| set.insert(value));
        set.count()
    }

    #[test]
    fn few_values_are_counted_exactly_and_many_within_five_standard_errors() {
        for number in [0, 1, 2, 100, EXACT as u64] {
            // Twice, in another order.
            let exact = counted((0..number).chain((0..number).rev()));
            assert_eq!((exact.number, exact.error), (number, 0.0));
        }
        for number in [EXACT as u64 + 1, 1000, 5000, 10_000, 15_000, 30_000, 100_000, 1_000_000] {
            for seed in 0..4_u64 {
                let estimate = counted((0..number).map(|value| value.wrapping_add(seed << 40)));
                let off = (estimate.number as f64 - number as f64).abs() / number as f64;
                assert!(estimate.error > 0.0 && off < 5.0 * estimate.error, "{number}: {estimate:?}");
            }
        }
    }

    #[test]
    fn a_set_takes_no_more_memory_than_is_said() {
        let mut set = DistinctSet::default();
        for value in 0..10_000 {
            set.insert(value);
            assert!(size_of_val(&set) + set.heap_bytes() <= DistinctSet::MAX_BYTES);
        }
    }
}
