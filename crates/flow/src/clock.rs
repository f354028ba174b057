//! The clock that decides when flows end (`docs/metering.md` section 5), and how the times of one clock are told by another.
//!
//! Always true: it never goes back once there was a packet. It begins far above 0, so that there is room for what happened before a meter's first
//! packet: flows that another meter has seen begin.

/// A packet may be this much older than the newest before that counts as a step of time back.
const REORDERING_NS: u64 = 1_000_000_000;
/// Where it begins: nine years of room, and 575 to run.
const BEGIN_NS: u64 = 1 << 58;

/// Time that has passed by the capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// What it shows, ns.
    pub now_ns: u64,
    /// The packet time that it stands at, ns since 1970 UTC.
    pub newest_ns: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { now_ns: BEGIN_NS, newest_ns: 0 }
    }
}

impl Clock {
    /// It runs by the steps of packet time forward. A step back only sets where the next is counted from: then false.
    #[inline(always)]
    pub fn advance(&mut self, time_ns: u64) -> bool {
        if time_ns >= self.newest_ns {
            self.now_ns = self.now_ns.saturating_add(time_ns - self.newest_ns);
            self.newest_ns = time_ns;
        } else if self.newest_ns - time_ns > REORDERING_NS {
            self.newest_ns = time_ns;
            return false;
        }
        true
    }

    /// How long ago something was, ns; 0 for what lies ahead.
    #[inline(always)]
    pub fn since(&self, then_ns: u64) -> u64 {
        self.now_ns.saturating_sub(then_ns)
    }

    /// What this clock shows, or showed, when packets had the time at which `other` showed `then_ns`. It may lie ahead: packets
    /// that the other one has seen are still on their way here.
    pub fn translate(&self, then_ns: u64, other: &Self) -> u64 {
        self.at(i128::from(then_ns) - i128::from(other.now_ns) + i128::from(other.newest_ns))
    }

    /// Stands at a packet time, be it before or after the one that it stood at.
    pub fn set(&mut self, time_ns: u64) {
        *self = Self { now_ns: self.at(time_ns.into()), newest_ns: time_ns };
    }

    fn at(&self, packet_time_ns: i128) -> u64 {
        let shown = packet_time_ns - i128::from(self.newest_ns) + i128::from(self.now_ns);
        shown.clamp(0, u64::MAX.into()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_by_another_clock_through_packet_time() {
        let [mut one, mut other] = [(); 2].map(|()| Clock { newest_ns: 1_000, ..Clock::default() });
        one.advance(5_000);
        other.newest_ns = 7_000;
        // One has seen it 3000 ns after it began; the other begins 3000 ns later.
        assert_eq!(other.translate(BEGIN_NS + 3_000, &one), BEGIN_NS - 3_000);
        assert_eq!(one.translate(BEGIN_NS - 3_000, &other), BEGIN_NS + 3_000);
        assert_eq!(one.translate(BEGIN_NS, &other), BEGIN_NS + 6_000);
        assert_eq!(one.since(BEGIN_NS + 6_000), 0);
        let then = one.translate(BEGIN_NS, &other);
        one.set(1_000);
        assert_eq!((one.now_ns, one.newest_ns, one.translate(BEGIN_NS, &other)), (BEGIN_NS, 1_000, then));
    }

    #[test]
    fn times_beyond_a_clock_are_its_first_or_last() {
        let early = Clock { newest_ns: 0, ..Clock::default() };
        let late = Clock { newest_ns: u64::MAX, ..Clock::default() };
        assert_eq!((late.translate(0, &early), early.translate(u64::MAX, &late)), (0, u64::MAX));
    }
}
