//! A card's clock beside the system's: ticks in, nanoseconds since 1970 UTC out.
//!
//! The unit and the start of a card's clock are its own. Its rate is measured against the system's steady clock since the
//! port was opened, and where it stands against the system's time of day once a second, so that a clock
//! that is set or slewed is followed.

use std::time::{Duration, Instant};

/// How long the first measurement takes.
const FIRST: Duration = Duration::from_millis(50);
/// How often the clocks are compared.
const RENEWED: Duration = Duration::from_secs(1);

/// What was read at one time: ticks, the steady clock, nanoseconds since 1970 UTC.
pub(super) type Reading = (u64, Instant, u64);

/// How ticks are turned into time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    first: Reading,
    last: Reading,
    ns_per_tick: f64,
}

impl Clock {
    /// Measures the rate; none if the clock cannot be read or stands still. Takes a twentieth of a second.
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

    /// Whether it is to be compared anew.
    pub(super) fn is_old(&self) -> bool {
        self.last.1.elapsed() >= RENEWED
    }

    /// Compares it anew if it is time. A clock that cannot be read goes on as it was.
    pub(super) fn refresh(&mut self, read: impl FnOnce() -> Option<Reading>) {
        if self.is_old() {
            let renewed = read().and_then(|reading| Self::between(self.first, reading));
            // Not asked again for every burst.
            *self = renewed.unwrap_or(Self { last: self.moved_to(Instant::now()), ..*self });
        }
    }

    /// The reading that there would be if the clock went on as it did.
    fn moved_to(&self, now: Instant) -> Reading {
        let passed_ns = (now - self.last.1).as_nanos() as f64;
        (self.last.0.wrapping_add((passed_ns / self.ns_per_tick) as u64), now, self.last.2 + passed_ns as u64)
    }

    /// Nanoseconds since 1970 UTC of a packet's ticks, which may lie before or after the last comparison.
    pub(super) fn time_ns(&self, ticks: u64) -> u64 {
        let since = ticks.wrapping_sub(self.last.0).cast_signed();
        self.last.2.saturating_add_signed((since as f64 * self.ns_per_tick) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_time_before_and_after_the_comparison_and_across_a_wrap() {
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
    fn a_clock_that_stands_still_gives_no_time() {
        let start = Instant::now();
        assert!(Clock::between((7, start, 1), (7, start + FIRST, 2)).is_none());
        assert!(Clock::new(|| None).is_none());
    }

    #[test]
    fn a_time_of_day_that_is_set_is_followed_and_the_rate_stays() {
        let start = Instant::now().checked_sub(3 * RENEWED).expect("the machine runs for 3 s");
        let mut clock = Clock::between((0, start, 5_000), (50, start + FIRST, 50_005_000)).expect("it runs");
        assert!(clock.is_old());
        // A tick is a millisecond; meanwhile somebody set the clock to an hour later.
        let hour = 3_600_000_000_000;
        clock.refresh(|| Some((2_000, start + 2 * RENEWED, hour)));
        assert_eq!(clock.time_ns(2_001), hour + 1_000_000);
        // What cannot be read goes on.
        let until = clock.time_ns(2_500);
        clock.refresh(|| None);
        assert!(clock.time_ns(2_500).abs_diff(until) < 2_000_000, "{} {until}", clock.time_ns(2_500));
    }
}
