//! One packet of each so many, at random: n-out-of-N sampling with n = 1 (RFC 5475 section 5.2.1).
//!
//! Of each N packets one after the other exactly one is chosen, whichever the source made of its bursts: so the share is exact, and whoever
//! knows the traffic cannot aim between the samples, as with every Nth (systematic) sampling, which also falls for traffic with a beat.

use std::hash::{BuildHasher, RandomState};

/// Chooses packets.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    of: u32,
    /// Packets that came of the present group.
    at: u32,
    /// The one of them that is chosen.
    chosen: u32,
    random: u64,
}

impl Sampler {
    /// One in `of`, at least 1.
    pub fn new(of: u32) -> Self {
        let mut sampler = Self { of: of.max(1), at: 0, chosen: 0, random: RandomState::new().hash_one(of) | 1 };
        sampler.choose();
        sampler
    }

    /// Whether the next packet is chosen.
    #[inline]
    pub fn takes(&mut self) -> bool {
        let takes = self.at == self.chosen;
        self.at += 1;
        if self.at == self.of {
            self.at = 0;
            self.choose();
        }
        takes
    }

    /// xorshift64*: which packet of the next group.
    fn choose(&mut self) {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let high = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        self.chosen = ((high * u64::from(self.of)) >> 32) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_so_many_exactly_one_is_taken_and_every_place_as_often() {
        for of in [1_u32, 2, 3, 16, 1000] {
            let mut sampler = Sampler::new(of);
            let mut places = vec![0_u32; of as usize];
            let groups = 20 * of + 1000;
            for _ in 0..groups {
                let taken: Vec<usize> = (0..of as usize).filter(|_| sampler.takes()).collect();
                assert_eq!(taken.len(), 1);
                places[taken[0]] += 1;
            }
            let mean = f64::from(groups) / f64::from(of);
            let far = |&times: &u32| (f64::from(times) - mean).abs() > 7.0 * mean.sqrt() + 1.0;
            assert!(!places.iter().any(far), "one in {of}: {places:?}");
        }
    }
}
