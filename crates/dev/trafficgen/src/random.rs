//! Pseudo-random numbers that are the same on every machine: SplitMix64 (Steele, Lea, Flood 2014),
//! and the two distributions that the traffic profiles need.
//!
//! Logarithm and exponential function are computed here from additions, products and quotients,
//! whose every bit IEEE 754 defines; those of the C library differ between systems.

const LN_2: f64 = std::f64::consts::LN_2;
use weir_capture::{SettingsError, SourceSettings};

/// A pseudo-random number generator. Equal seeds give equal sequences on every machine.
pub struct Random(u64);

impl Random {
    /// Creates a generator.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix64(self.0)
    }

    /// Returns a number from 0 to `bound` - 1; `bound` is at most 2^32.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() >> 32) * bound) >> 32
    }

    /// Returns a number from `low` to `high`, both included.
    #[inline]
    pub fn between(&mut self, [low, high]: [u32; 2]) -> u32 {
        low + self.below(u64::from(high - low) + 1) as u32
    }

    /// Returns true with the probability `share`.
    #[inline]
    pub(super) fn chance(&mut self, share: Fraction) -> bool {
        self.below(Fraction::ALL.0) < share.0
    }

    /// Returns the index of a weight, drawn by the weights, which add up to `sum` or less; `None` for the
    /// rest.
    pub(super) fn weighted(&mut self, sum: u64, weights: impl IntoIterator<Item = u64>) -> Option<usize> {
        let mut drawn = self.below(sum);
        weights.into_iter().position(|weight| {
            let is_this = drawn < weight;
            drawn = drawn.saturating_sub(weight);
            is_this
        })
    }

    /// Returns a number uniformly distributed from half of `mean` to one and a half times `mean`.
    #[inline]
    pub(super) fn around(&mut self, mean: u64) -> u64 {
        mean / 2 + ((u128::from(mean) * u128::from(self.next_u64() >> 32)) >> 32) as u64
    }

    /// Returns an exponentially distributed number with mean 1: a lifetime without memory.
    pub(super) fn exponential(&mut self) -> f64 {
        -ln(self.unit())
    }

    /// Returns a number with a bounded Pareto distribution from `low` to `high`: many small, few
    /// large.
    pub(super) fn pareto(&mut self, shape: f64, [low, high]: [u32; 2]) -> u32 {
        let (low, high) = (f64::from(low), f64::from(high));
        let cut = 1.0 - exp(shape * ln(low / high));
        let drawn = low * exp(-ln(1.0 - self.unit() * cut) / shape);
        drawn.clamp(low, high) as u32
    }

    /// Returns a number above 0 and below 1.
    fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }
}

/// A probability, in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fraction(pub(super) u64);

impl Fraction {
    pub(super) const ALL: Self = Self(1_000_000_000);

    pub(super) const fn percent(percent: u64) -> Self {
        Self(percent * 10_000_000)
    }

    /// Parses a setting; without it, the default is in per mille.
    pub(super) fn read(values: &SourceSettings<'_>, key: &'static str, default: u64) -> Result<Self, SettingsError> {
        Ok(Self(values.fraction_billionths(key)?.unwrap_or(default * 1_000_000)))
    }
}

/// Mixes a number over all 64 bits (the finalizer of SplitMix64); different numbers give different
/// results.
#[inline]
pub(super) fn mix64(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the natural logarithm of a normal positive number: 2 artanh((m - 1) / (m + 1)) of its
/// mantissa m, plus its exponent times ln 2.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i32 - 1023;
    let fraction = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    let s = (fraction - 1.0) / (fraction + 1.0);
    let mut sum = 0.0;
    for odd in (1..28).step_by(2).rev() {
        sum = sum * s * s + 1.0 / f64::from(odd);
    }
    2.0 * s * sum + f64::from(exponent) * LN_2
}

/// Returns e to a power between -700 and 700: a power of two times the Taylor series of the rest.
fn exp(x: f64) -> f64 {
    let power = (x / LN_2).round();
    let rest = x - power * LN_2;
    let mut sum = 1.0;
    for n in (1..16).rev() {
        sum = 1.0 + sum * rest / f64::from(n);
    }
    sum * f64::from_bits(((power as i64 + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generator_gives_published_splitmix64_values() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn logarithm_and_exponential_agree_with_the_standard_library() {
        for x in [1e-12, 0.001, 0.5, 0.999, 1.0, 1.5, 2.0, 3.0, 1e6] {
            assert!((ln(x) - f64::ln(x)).abs() <= 1e-12 * f64::ln(x).abs() + 1e-13, "ln {x}");
        }
        for x in [-300.0, -7.5, -0.1, 0.0, 0.3, 1.0, 12.0, 300.0] {
            assert!((exp(x) / f64::exp(x) - 1.0).abs() < 1e-12, "exp {x}");
        }
    }

    #[test]
    fn distributions_have_the_right_means_and_bounds() {
        let mut random = Random::new(1);
        let n = 200_000;
        let mean = (0..n).map(|_| random.exponential()).sum::<f64>() / f64::from(n);
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        // Half of all draws lie below low / (1 - cut / 2)^(1 / shape).
        let below = (0..n).filter(|_| random.pareto(1.1, [10, 100_000]) < 19).count();
        assert!((90_000..115_000).contains(&below), "{below}");
        assert_eq!(random.pareto(1.1, [2, 2]), 2);
        assert!((0..n).all(|_| (5..=15).contains(&random.around(10))));
    }
}
