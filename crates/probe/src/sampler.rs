//! Random n-out-of-N packet sampling with n = 1 (RFC 5475 section 5.2.1).
//!
//! Of each N consecutive packets exactly one is chosen, independent of how they are grouped into
//! bursts. So the share is exact, and neither periodic traffic nor a sender that times its packets
//! can avoid the sample, as is possible with systematic sampling (every Nth packet).

/// Chooses packets.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    /// N, the packets of a group.
    population: u32,
    /// Packets of the current group so far.
    seen: u32,
    /// The number of the packet that is chosen in the current group.
    chosen: u32,
    random: fastrand::Rng,
}

impl Sampler {
    /// A sampler that chooses one packet in `population`, which is at least 1.
    pub fn new(population: u32) -> Self {
        let mut random = fastrand::Rng::new();
        let population = population.max(1);
        Self { population, seen: 0, chosen: random.u32(..population), random }
    }

    /// Whether the next packet is chosen.
    #[inline]
    pub fn choose_next(&mut self) -> bool {
        let is_chosen = self.seen == self.chosen;
        self.seen += 1;
        if self.seen == self.population {
            (self.seen, self.chosen) = (0, self.random.u32(..self.population));
        }
        is_chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_packet_of_each_group_is_chosen_and_each_position_equally_often() {
        for population in [1_u32, 2, 3, 16, 1000] {
            let mut sampler = Sampler::new(population);
            let mut times_chosen = vec![0_u32; population as usize];
            let groups = 20 * population + 1000;
            for _ in 0..groups {
                let chosen: Vec<usize> = (0..population as usize).filter(|_| sampler.choose_next()).collect();
                assert_eq!(chosen.len(), 1);
                times_chosen[chosen[0]] += 1;
            }
            let mean = f64::from(groups) / f64::from(population);
            let is_far = |&times: &u32| (f64::from(times) - mean).abs() > 7.0 * mean.sqrt() + 1.0;
            assert!(!times_chosen.iter().any(is_far), "one in {population}: {times_chosen:?}");
        }
    }
}
