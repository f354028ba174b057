//! Random decisions in a conversation, by the probabilities of the settings.

use crate::random::{Fraction, Random};

pub(super) const MILLISECOND_NS: u64 = 1_000_000;

/// The random generator and the probabilities of events.
pub(super) struct Chance<'a> {
    pub(super) random: &'a mut Random,
    pub(super) probabilities: &'a Probabilities,
}

impl Chance<'_> {
    /// Decides at random whether and where a segment is lost.
    pub(super) fn fate(&mut self) -> Fate {
        match self.random.chance(self.probabilities.loss) {
            false => Fate::Arrives,
            true if self.random.chance(self.probabilities.before) => Fate::LostBeforeCapture,
            true => Fate::LostAfterCapture,
        }
    }

    /// Returns a random time of whole milliseconds, ns.
    pub(super) fn milliseconds(&mut self, range: [u32; 2]) -> u64 {
        u64::from(self.random.between(range)) * MILLISECOND_NS
    }
}

/// Probabilities of the events.
pub(super) struct Probabilities {
    pub(super) ipv6: Fraction,
    pub(super) rst: Fraction,
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
}

/// What happens to a segment in flight.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fate {
    Arrives,
    LostBeforeCapture,
    LostAfterCapture,
}

impl Fate {
    pub(super) fn is_captured(self) -> bool {
        self != Self::LostBeforeCapture
    }

    pub(super) fn is_lost(self) -> bool {
        self != Self::Arrives
    }
}
