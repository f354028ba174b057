//! Limits how often a repeated message is logged.

use std::time::{Duration, Instant};

/// Permits one message per interval and counts those in between.
#[derive(Debug)]
pub struct RateLimit {
    interval: Duration,
    last: Option<Instant>,
    suppressed: u64,
}

impl RateLimit {
    /// The first message is always permitted.
    pub fn new(interval: Duration) -> Self {
        Self { interval, last: None, suppressed: 0 }
    }

    /// If a message may be logged at `now`: the number of messages suppressed since the last one.
    pub fn permit(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < self.interval) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_per_interval_is_permitted_and_the_others_are_counted() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut limit = RateLimit::new(10 * second);
        assert_eq!(limit.permit(start), Some(0));
        assert_eq!(limit.permit(start + second), None);
        assert_eq!(limit.permit(start + 9 * second), None);
        assert_eq!(limit.permit(start + 10 * second), Some(2));
        assert_eq!(limit.permit(start + 11 * second), None);
        assert_eq!(limit.permit(start + 30 * second), Some(1));
    }
}
