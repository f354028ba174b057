//! Converts time stamps of the kernel's real-time clock to the clock of live sources, which does not
//! step.
//!
//! In: the steps of the system's clock, asked for before the frames of a block are read, so that the
//! frames of that block are not newer. Out: times as if the clock had not been set. After a step,
//! frames stamped before and after it are in the ring. The time of each frame tells which: it is not
//! before the frames that were delivered, and not in the future. A step that is smaller than the
//! time between two comparisons may leave both possible; then the error is at most the step. If the
//! kernel does not follow the step (a clock that is set for this process only), its frames keep
//! their times.

use crate::clock::ClockSteps;
use crate::source::Frame;

/// CPUs of the kernel may stamp frames out of order by this time.
const SLACK_NS: u64 = 10_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StampClock {
    /// What is subtracted from time stamps.
    offset_ns: i64,
    /// The last step.
    step: Option<Step>,
    /// No frame that is still to be delivered is older.
    delivered_ns: u64,
    /// Time of the last comparison of the clocks.
    pub compared_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    previous_offset_ns: i64,
    /// It occurred between these times.
    since_ns: u64,
    until_ns: u64,
}

impl StampClock {
    /// Takes over the steps known at `now_ns`, when all frames before `delivered_ns` were delivered.
    pub fn update(&mut self, steps: ClockSteps, now_ns: u64, delivered_ns: u64) {
        self.delivered_ns = self.delivered_ns.max(delivered_ns);
        if steps.offset_ns != self.offset_ns {
            let (previous_offset_ns, since_ns) = (self.offset_ns, self.compared_ns);
            self.step = Some(Step { previous_offset_ns, since_ns, until_ns: now_ns });
            self.offset_ns = steps.offset_ns;
        }
        self.compared_ns = now_ns;
    }

    /// Converts the times of frames in the order of the ring. Costs nothing per frame until the clock
    /// is set.
    #[inline]
    pub fn convert_frames(&mut self, frames: &mut [Frame<'_>]) {
        if !self.is_identity() {
            frames.iter_mut().for_each(|frame| frame.time_ns = self.convert(frame.time_ns));
        }
    }

    /// Whether all times stay as they are.
    #[inline]
    fn is_identity(&self) -> bool {
        self.offset_ns == 0 && self.step.is_none()
    }

    #[inline]
    pub fn convert(&mut self, stamp_ns: u64) -> u64 {
        if self.is_identity() { stamp_ns } else { self.convert_after_step(stamp_ns) }
    }

    #[cold]
    fn convert_after_step(&mut self, stamp_ns: u64) -> u64 {
        let with_offset = |offset_ns: i64| stamp_ns.saturating_add_signed(offset_ns.saturating_neg());
        let is_possible = |ns: u64| ns + SLACK_NS >= self.delivered_ns && ns <= self.compared_ns + SLACK_NS;
        let mut time_ns = with_offset(self.offset_ns);
        if let Some(Step { previous_offset_ns, since_ns, until_ns }) = self.step {
            let before_ns = with_offset(previous_offset_ns);
            let contradicts_step = before_ns <= until_ns && time_ns + SLACK_NS < since_ns;
            if is_possible(before_ns) && (!is_possible(time_ns) || contradicts_step) {
                time_ns = before_ns;
            }
        }
        self.delivered_ns = self.delivered_ns.max(time_ns);
        time_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const START: u64 = 1_795_176_000_000 * MS;

    /// Frames every ms, read every 50 ms in blocks; the clock is set by `step_ms` at 525 ms. After
    /// that no frame comes for `pause_ms`.
    fn largest_error_ms(step_ms: i64, pause_ms: u64) -> u64 {
        let offset_ns = step_ms * MS as i64;
        let (mut clock, mut largest, mut delivered_ns) = (StampClock::default(), 0, START);
        clock.update(ClockSteps::default(), START, START);
        let times = |from: u64, to: u64| (from..to).filter(move |at| !(600..600 + pause_ms).contains(at));
        for block in (0..(2000 + pause_ms)).step_by(50) {
            let now_ms = block + 50;
            let is_set = now_ms >= 525;
            let steps = ClockSteps { offset_ns: if is_set { offset_ns } else { 0 }, ..ClockSteps::default() };
            clock.update(steps, START + now_ms * MS, delivered_ns);
            for at in times(block, now_ms) {
                let time_ns = START + at * MS;
                let stamp_ns = time_ns.saturating_add_signed(if at >= 525 { offset_ns } else { 0 });
                let converted_ns = clock.convert(stamp_ns);
                largest = largest.max(converted_ns.abs_diff(time_ns) / MS);
                delivered_ns = delivered_ns.max(converted_ns);
            }
            // Without frames the queue knows that none before now is left.
            delivered_ns = delivered_ns.max(START + now_ms * MS);
        }
        largest
    }

    #[test]
    fn frames_in_the_ring_keep_their_time_when_the_clock_is_set() {
        for step_ms in [3_600_000, -3_600_000, 1000, -1000, 200, -200] {
            assert_eq!(largest_error_ms(step_ms, 0), 0, "{step_ms} ms");
            assert_eq!(largest_error_ms(step_ms, 7000), 0, "{step_ms} ms, then a pause");
        }
        for step_ms in [40, -40, 5, -5] {
            assert!(largest_error_ms(step_ms, 0) <= step_ms.unsigned_abs(), "{step_ms} ms");
        }
    }

    #[test]
    fn times_are_unchanged_while_the_clock_is_not_set() {
        let mut clock = StampClock::default();
        clock.update(ClockSteps::default(), START, 0);
        assert_eq!((clock.convert(5), clock.convert(u64::MAX), clock.convert(START)), (5, u64::MAX, START));
    }

    #[test]
    fn frames_of_a_kernel_that_does_not_follow_the_step_keep_their_times() {
        let mut clock = StampClock::default();
        clock.update(ClockSteps::default(), START, START);
        for block in [1, 10, 10_000] {
            let now_ns = START + block * 100 * MS;
            for offset_ns in [3_600_000 * MS as i64, -3_600_000 * MS as i64] {
                let mut clock = clock;
                clock.update(ClockSteps { offset_ns, ..ClockSteps::default() }, now_ns, now_ns - 100 * MS);
                assert_eq!(clock.convert(now_ns - 50 * MS), now_ns - 50 * MS);
                clock.update(ClockSteps { offset_ns, ..ClockSteps::default() }, now_ns + 900 * MS, now_ns);
                assert_eq!(clock.convert(now_ns + 850 * MS), now_ns + 850 * MS);
            }
        }
    }

    #[test]
    fn steps_there_and_back_leave_times_as_they_are() {
        let mut clock = StampClock::default();
        let hour_ns = 3_600_000 * MS;
        let set = |offset_ns: i64| ClockSteps { offset_ns, ..ClockSteps::default() };
        clock.update(set(0), START, START);
        clock.update(set(hour_ns as i64), START + 100 * MS, START + 99 * MS);
        assert_eq!(clock.convert(START + 100 * MS + hour_ns), START + 100 * MS);
        clock.update(set(0), START + 200 * MS, START + 150 * MS);
        // Stamped before and after the second step.
        assert_eq!(clock.convert(START + 160 * MS + hour_ns), START + 160 * MS);
        assert_eq!(clock.convert(START + 180 * MS), START + 180 * MS);
        clock.update(set(0), START + hour_ns, START + 200 * MS);
        assert_eq!(clock.convert(START + 250 * MS), START + 250 * MS);
        assert_eq!(clock.convert(START + hour_ns), START + hour_ns);
    }
}
