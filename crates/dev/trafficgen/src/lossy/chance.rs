//! Random decisions in a conversation, by the probabilities of the settings.

use crate::random::{Fraction, Random};

pub(super) const MILLISECOND_NS: u64 = 1_000_000;

pub(super) struct Chance<'a> {
    pub(super) random: &'a mut Random,
    pub(super) probabilities: &'a Probabilities,
}

impl Chance<'_> {
    /// Decides at random whether and where a segment is lost.
    pub(super) fn fate(&mut self) -> Fate {
        let is_lost = self.random.chance(self.probabilities.loss);
        let is_captured = !(is_lost && self.random.chance(self.probabilities.before));
        Fate { is_captured, is_lost }
    }

    /// Returns the time for which a side thinks: exponentially distributed, 0 without a mean time.
    pub(super) fn think(&mut self) -> u64 {
        match self.probabilities.think_ns {
            0 => 0,
            mean_ns => (self.random.exponential() * mean_ns as f64) as u64,
        }
    }

    /// Returns a random time of whole milliseconds, ns.
    pub(super) fn milliseconds(&mut self, range: [u32; 2]) -> u64 {
        u64::from(self.random.between(range)) * MILLISECOND_NS
    }
}

pub(super) struct Probabilities {
    pub(super) noid: Fraction,
    pub(super) loss: Fraction,
    pub(super) before: Fraction,
    pub(super) recut: Fraction,
    pub(super) reorder: Fraction,
    pub(super) spurious: Fraction,
    pub(super) duplicate: Fraction,
    pub(super) routed: Fraction,
    pub(super) keepalive: Fraction,
    pub(super) zerowindow: Fraction,
    /// Mean time that a side thinks before it responds.
    pub(super) think_ns: u64,
}

/// What happens to a segment in flight: a lost one may be captured before.
pub(super) struct Fate {
    pub(super) is_captured: bool,
    pub(super) is_lost: bool,
}
