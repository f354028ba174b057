//! Time as packets that wait measure it: by packet times.

/// A packet may be this much older than the newest one; beyond it, time has stepped back.
const REORDERING_NS: u64 = 1_000_000_000;

#[derive(Default)]
pub(super) struct PacketClock {
    /// The time of the newest packet.
    newest_ns: u64,
    /// Time that has passed. It never goes back.
    pub passed_ns: u64,
}

impl PacketClock {
    /// Takes a packet time, in any order. After a step back of the clock time continues from there.
    pub fn pass(&mut self, time_ns: u64) {
        if time_ns >= self.newest_ns {
            // The first packet begins it.
            let step_ns = if self.newest_ns == 0 { 0 } else { time_ns - self.newest_ns };
            (self.newest_ns, self.passed_ns) = (time_ns, self.passed_ns.saturating_add(step_ns));
        } else if self.newest_ns - time_ns > REORDERING_NS {
            self.newest_ns = time_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_by_forward_steps_alone() {
        const S: u64 = 1_000_000_000;
        let mut clock = PacketClock::default();
        // A clock that goes back an hour does not stop it; packets out of order do not move it.
        for (time_ns, passed_ns) in
            [(5000, 0), (5001, 1), (5000, 1), (8601, 3601), (5001, 3601), (5002, 3602), (5002, 3602), (5004, 3604)]
        {
            clock.pass(time_ns * S);
            assert_eq!(clock.passed_ns, passed_ns * S, "{time_ns}");
        }
    }
}
