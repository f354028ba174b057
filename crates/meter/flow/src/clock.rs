//! The clock of a meter, driven by packet times (`docs/metering.md` section 5).
//!
//! Invariant: it never goes back once there was a packet. It starts far above 0, so that flows of
//! another meter that began before this meter's first packet have valid times.

/// A packet may be this much older than the newest one; beyond it, time has stepped back.
const REORDERING_NS: u64 = 1_000_000_000;
/// Start: nine years above 0, 575 years below the end.
const START_NS: u64 = 1 << 58;

/// Time that has passed by packet times. If `newest_ns` is `u64::MAX`, the first packet begins it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Time that has passed, ns, from an arbitrary start.
    pub now_ns: u64,
    /// Packet time at which it shows `now_ns`, ns since 1970 UTC.
    pub newest_ns: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { now_ns: START_NS, newest_ns: 0 }
    }
}

impl Clock {
    /// Advances by a forward step of packet time. A backward step only sets the time from which the
    /// next step counts, and returns false.
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

    /// Time since `then_ns`, ns; 0 if it lies ahead.
    #[inline(always)]
    pub fn since(&self, then_ns: u64) -> u64 {
        self.now_ns.saturating_sub(then_ns)
    }

    /// The time of this clock at the packet time at which `other` shows `then_ns`. It may lie ahead
    /// of this clock: packets that the other meter has seen may not have arrived here.
    pub fn translate(&self, then_ns: u64, other: &Self) -> u64 {
        self.at(i128::from(then_ns) - i128::from(other.now_ns) + i128::from(other.newest_ns))
    }

    /// Moves to a packet time, earlier or later.
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
    fn time_passes_by_forward_steps_alone() {
        const S: u64 = 1_000_000_000;
        let mut clock = Clock { newest_ns: u64::MAX, ..Clock::default() };
        // A clock that goes back an hour does not stop it; packets out of order do not move it.
        for (time_ns, passed_ns) in
            [(5000, 0), (5001, 1), (5000, 1), (8601, 3601), (5001, 3601), (5002, 3602), (5002, 3602), (5004, 3604)]
        {
            clock.advance(time_ns * S);
            assert_eq!(clock.since(START_NS), passed_ns * S, "{time_ns}");
        }
    }

    #[test]
    fn times_translate_between_clocks_by_packet_time() {
        let [mut one, mut other] = [(); 2].map(|()| Clock { newest_ns: 1_000, ..Clock::default() });
        one.advance(5_000);
        other.newest_ns = 7_000;
        // `other` starts 3000 ns after the first clock.
        assert_eq!(other.translate(START_NS + 3_000, &one), START_NS - 3_000);
        assert_eq!(one.translate(START_NS - 3_000, &other), START_NS + 3_000);
        assert_eq!(one.translate(START_NS, &other), START_NS + 6_000);
        assert_eq!(one.since(START_NS + 6_000), 0);
        let then = one.translate(START_NS, &other);
        one.set(1_000);
        assert_eq!((one.now_ns, one.newest_ns, one.translate(START_NS, &other)), (START_NS, 1_000, then));
    }

    #[test]
    fn times_beyond_the_range_are_clamped() {
        let early = Clock { newest_ns: 0, ..Clock::default() };
        let late = Clock { newest_ns: u64::MAX, ..Clock::default() };
        assert_eq!((late.translate(0, &early), early.translate(u64::MAX, &late)), (0, u64::MAX));
    }
}
