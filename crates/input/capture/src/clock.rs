//! The clock of live sources: the system's time when it was first read, plus the monotonic time
//! since then. It never steps, so durations are exact when the system's clock is set.
//!
//! [`steps`] compares both clocks. `docs/decisions/0016-clock-steps.md` describes who applies what.

use crate::system::realtime_ns;
use parking_lot::Mutex;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Smaller differences are no step. (Adjustments of the rate act on both clocks.)
const MIN_STEP_NS: u64 = 1_000_000;
/// Readings of both clocks that take longer are not compared.
const MAX_READING_NS: u64 = MIN_STEP_NS / 4;
/// A reading at the start that takes longer is repeated.
const MAX_START_READING: Duration = Duration::from_micros(5);
/// Readings until one is fast enough.
const MAX_READINGS: usize = 4;

/// How often the system's clock was set while live sources were open, and by how much in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockSteps {
    /// Steps forward.
    pub forward: u64,
    /// Steps back.
    pub backward: u64,
    /// What must be added to the times of frames for the time of the system's clock: the sum of all
    /// steps, ns.
    pub offset_ns: i64,
    /// When the last step was noticed, in the time of frames, ns.
    pub last_ns: u64,
}

impl ClockSteps {
    /// Compares the time of frames before and after a reading of the system's clock with that.
    fn observe(&mut self, before_ns: u64, system_ns: u64, after_ns: u64) {
        let offset_ns = system_ns.wrapping_sub(before_ns).cast_signed();
        let step_ns = offset_ns.wrapping_sub(self.offset_ns);
        if step_ns.unsigned_abs() >= MIN_STEP_NS && after_ns - before_ns <= MAX_READING_NS {
            *(if step_ns > 0 { &mut self.forward } else { &mut self.backward }) += 1;
            (self.offset_ns, self.last_ns) = (offset_ns, after_ns);
        }
    }
}

struct Clock {
    start: Instant,
    start_ns: u64,
    steps: Mutex<ClockSteps>,
}

static CLOCK: LazyLock<Clock> = LazyLock::new(|| {
    let (start, start_ns) = read_both();
    Clock { start, start_ns, steps: Mutex::default() }
});

/// Reads the system's clock, and then the monotonic one: so the time of frames is never ahead of the
/// system's. Of several readings it returns the first one without an interruption, or the shortest.
fn read_both() -> (Instant, u64) {
    let reading = || {
        let (before, start_ns) = (Instant::now(), realtime_ns());
        let start = Instant::now();
        (start - before, start, start_ns)
    };
    let mut best = reading();
    for _ in 1..MAX_READINGS {
        if best.0 <= MAX_START_READING {
            break;
        }
        best = std::cmp::min_by_key(best, reading(), |(duration, ..)| *duration);
    }
    (best.1, best.2)
}

/// Returns the time, ns since 1970-01-01 UTC by the system's clock when this clock began.
pub(crate) fn now_ns() -> u64 {
    CLOCK.start_ns.saturating_add(CLOCK.start.elapsed().as_nanos() as u64)
}

/// Compares the clocks. Returns all steps so far.
pub(crate) fn steps() -> ClockSteps {
    let mut steps = CLOCK.steps.lock();
    for _ in 0..MAX_READINGS {
        let (before_ns, system_ns, after_ns) = (now_ns(), realtime_ns(), now_ns());
        steps.observe(before_ns, system_ns, after_ns);
        if after_ns - before_ns <= MAX_READING_NS {
            break;
        }
    }
    *steps
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const HOUR: i64 = 3600 * SECOND as i64;

    #[test]
    fn steps_both_ways_are_counted_and_slow_changes_are_not() {
        let (mut steps, start_ns) = (ClockSteps::default(), 1_795_176_000 * SECOND);
        let mut observe = |second: u64, offset_ns: i64| {
            let before_ns = start_ns + second * SECOND;
            steps.observe(before_ns, before_ns.saturating_add_signed(offset_ns), before_ns + 200);
            (steps.forward, steps.backward, steps.offset_ns)
        };
        assert_eq!(observe(1, 150), (0, 0, 0));
        assert_eq!(observe(2, 900_000), (0, 0, 0), "no step");
        assert_eq!(observe(3, HOUR), (1, 0, HOUR));
        assert_eq!(observe(4, HOUR + 300), (1, 0, HOUR));
        assert_eq!(observe(5, -HOUR), (1, 1, -HOUR));
        assert_eq!(observe(6, -HOUR + 50_000_000), (2, 1, -HOUR + 50_000_000));
        assert_eq!(steps.last_ns, start_ns + 6 * SECOND + 200);
        // The thread was interrupted between the readings.
        steps.observe(start_ns, start_ns + 5 * SECOND, start_ns + 5 * SECOND);
        assert_eq!((steps.forward, steps.backward), (2, 1));
    }

    #[test]
    fn both_clocks_are_read_without_an_interruption_and_the_monotonic_one_last() {
        for _ in 0..1000 {
            let (start, start_ns) = read_both();
            // A frame that arrives now is not from the future, however long this thread was interrupted.
            let now_ns = start_ns + start.elapsed().as_nanos() as u64;
            assert!(now_ns <= realtime_ns());
        }
    }

    #[test]
    fn the_clock_of_live_sources_advances() {
        let first_ns = now_ns();
        assert!(first_ns.abs_diff(realtime_ns()) < 60 * SECOND);
        assert_eq!(steps(), ClockSteps::default());
        assert!(now_ns() > first_ns);
    }
}
