//! Converts ticks of a NIC's clock to nanoseconds since 1970 UTC.
//!
//! The unit and the epoch of a NIC's clock are unknown. Its rate is measured against the system's
//! monotonic clock since the port was opened. Its offset to the system's real-time clock is
//! measured once a second, so that a clock that is set or slewed is followed.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(50);
/// Interval between comparisons of the clocks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Simultaneous readings: ticks, monotonic clock, nanoseconds since 1970 UTC.
pub(super) type Reading = (u64, Instant, u64);

#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    first: Reading,
    last: Reading,
    ns_per_tick: f64,
}

impl Clock {
    /// Measures the rate, which takes 50 ms. Returns `None` if the clock cannot be read or does not
    /// advance.
    pub(super) fn new(mut read: impl FnMut() -> Option<Reading>) -> Option<Self> {
        let first = read()?;
        std::thread::sleep(FIRST);
        Self::between(first, read()?)
    }

    fn between(first: Reading, last: Reading) -> Option<Self> {
        let ticks = last.0.wrapping_sub(first.0);
        let passed = (last.1 - first.1).as_nanos();
        (ticks != 0 && passed != 0).then(|| Self { first, last, ns_per_tick: passed as f64 / ticks as f64 })
    }

    /// Returns whether the clocks must be compared again.
    pub(super) fn is_old(&self) -> bool {
        self.last.1.elapsed() >= INTERVAL
    }

    /// Compares the clocks if it is time. If the NIC's clock cannot be read, its last rate is kept.
    pub(super) fn refresh(&mut self, read: impl FnOnce() -> Option<Reading>) {
        if self.is_old() {
            let renewed = read().and_then(|reading| Self::between(self.first, reading));
            // Also updated after a failure, so that the next bursts do not try again.
            *self = renewed.unwrap_or(Self { last: self.extrapolated(Instant::now()), ..*self });
        }
    }

    /// Returns the reading expected at a time, by the last rate.
    fn extrapolated(&self, now: Instant) -> Reading {
        let passed_ns = (now - self.last.1).as_nanos() as f64;
        (self.last.0.wrapping_add((passed_ns / self.ns_per_tick) as u64), now, self.last.2 + passed_ns as u64)
    }

    /// Returns the time of a packet's ticks, ns since 1970 UTC; they may be before or after the
    /// last comparison.
    pub(super) fn time_ns(&self, ticks: u64) -> u64 {
        let since = ticks.wrapping_sub(self.last.0).cast_signed();
        self.last.2.saturating_add_signed((since as f64 * self.ns_per_tick) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_before_and_after_the_comparison_and_across_a_wrap_are_converted() {
        let start = Instant::now();
        // 156.25 MHz: 6.4 ns a tick. The counter wraps between the readings.
        let first = (u64::MAX - 156_250, start, 1_000_000_000_000);
        let last = (u64::MAX.wrapping_add(156_250_000 - 156_250), start + Duration::from_secs(1), 1_001_000_000_000);
        let clock = Clock::between(first, last).expect("it runs");
        assert_eq!(clock.time_ns(last.0), 1_001_000_000_000);
        assert_eq!(clock.time_ns(last.0 + 10), 1_001_000_000_064);
        assert_eq!(clock.time_ns(last.0.wrapping_sub(156_250_000)), 1_000_000_000_000);
    }

    #[test]
    fn clock_that_does_not_advance_is_refused() {
        let start = Instant::now();
        assert!(Clock::between((7, start, 1), (7, start + FIRST, 2)).is_none());
        assert!(Clock::new(|| None).is_none());
    }

    #[test]
    fn real_time_clock_that_is_set_is_followed() {
        let start = Instant::now().checked_sub(3 * INTERVAL).expect("the machine runs for 3 s");
        let mut clock = Clock::between((0, start, 5_000), (50, start + FIRST, 50_005_000)).expect("it runs");
        assert!(clock.is_old());
        // A tick is a millisecond; meanwhile the clock was set to one hour later.
        let hour = 3_600_000_000_000;
        clock.refresh(|| Some((2_000, start + 2 * INTERVAL, hour)));
        assert_eq!(clock.time_ns(2_001), hour + 1_000_000);
        // A clock that cannot be read keeps its rate.
        let until = clock.time_ns(2_500);
        clock.refresh(|| None);
        assert!(clock.time_ns(2_500).abs_diff(until) < 2_000_000, "{} {until}", clock.time_ns(2_500));
    }
}
