//! The history of a reader: when it lost packets, and on which levels of load shedding it was. From
//! it follows how many packets may be missing from each record, and why.
//!
//! ```text
//! loss snapshot, ten times a second -> an episode, if more packets were lost than before
//! record                            -> sum of the episodes that overlap its time
//! ```
//! The exact time of a loss is unknown; it lies between two snapshots. So an episode begins with
//! the first packet that was not yet read at the first snapshot, and ends with the latest packet
//! that may have arrived by the second (some sources stamp packets only when they read them).
//! Therefore the figure of a record is an upper bound, except for losses that a driver reports
//! late.
//!
//! Memory is bounded: the oldest episodes are merged, which makes the figure larger, never smaller.

use std::collections::VecDeque;
use weir_capture::ClockSteps;

/// Spans of levels above 0 that are kept; the oldest are merged.
const MAX_SPANS: usize = 256;
/// Loss episodes that are kept; the oldest are merged. These are 100 s of continuous loss.
const MAX_EPISODES: usize = 1024;
/// Steps of the system's clock that are kept.
const MAX_CLOCK_STEPS: usize = 64;
/// CPUs of the kernel may deliver packets out of order, and report losses late, by this time.
const SLACK_NS: u64 = 10_000_000;

/// What a reader sends to the meters between two bursts: its losses and levels of load shedding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LossSnapshot {
    /// Number of the last request that this snapshot answers.
    pub request: u64,
    /// All packets stamped before this time were delivered, or lost and counted; ns since
    /// 1970-01-01 UTC. At least the time of the newest packet read.
    pub complete_until_ns: u64,
    /// No packet received so far has a later time.
    pub latest_ns: u64,
    /// Packets lost so far: by the NIC, the kernel, the source and on the way to the meter.
    pub lost: u64,
    /// Lowest and highest level of load shedding since the previous snapshot.
    pub levels: [u8; 2],
    /// The level from now on.
    pub level: u8,
    /// Steps of the system's clock so far, which are not in the times of packets.
    pub clock: ClockSteps,
}

/// What one reader lost, and on which levels it was.
#[derive(Debug, Default)]
pub(crate) struct LossHistory {
    /// Times on levels above 0, in order.
    spans: VecDeque<LevelSpan>,
    /// Ordered by both start and end.
    episodes: VecDeque<LossEpisode>,
    /// When the system's clock was set: time of the snapshot before, and when it was noticed.
    clock_steps: VecDeque<[u64; 2]>,
    pub newest: LossSnapshot,
    is_live: bool,
}

#[derive(Clone, Copy, Debug)]
struct LevelSpan {
    start_ns: u64,
    end_ns: u64,
    levels: [u8; 2],
}

#[derive(Clone, Copy, Debug)]
struct LossEpisode {
    start_ns: u64,
    /// Lower bound of the end, which keeps the ends of all episodes in order.
    min_end_ns: u64,
    /// `u64::MAX` until the next snapshot.
    end_ns: u64,
    lost: u64,
    /// Sum of all losses up to and including this episode.
    lost_so_far: u64,
}

impl LossHistory {
    pub fn add(&mut self, snapshot: LossSnapshot) {
        let previous = std::mem::replace(&mut self.newest, snapshot);
        self.is_live = true;
        if let Some(last) = self.episodes.back_mut()
            && last.end_ns == u64::MAX
        {
            last.end_ns = snapshot.latest_ns.max(last.min_end_ns);
        }
        // The clock may have been set back.
        let start_ns = previous.complete_until_ns.min(snapshot.complete_until_ns);
        if snapshot.levels[1] > 0 {
            let end_ns = snapshot.complete_until_ns.max(previous.complete_until_ns);
            self.add_span(LevelSpan { start_ns, end_ns, levels: snapshot.levels });
        }
        if snapshot.clock != previous.clock {
            self.clock_steps.push_back([start_ns, snapshot.clock.last_ns]);
            if self.clock_steps.len() > MAX_CLOCK_STEPS {
                self.clock_steps.pop_front();
            }
        }
        let lost = snapshot.lost.saturating_sub(previous.lost);
        if lost > 0 {
            let start_ns = start_ns.saturating_sub(SLACK_NS);
            let (min_end_ns, end_ns, lost_so_far) = (start_ns, u64::MAX, snapshot.lost);
            self.add_episode(LossEpisode { start_ns, min_end_ns, end_ns, lost, lost_so_far });
        }
    }

    fn add_episode(&mut self, mut new: LossEpisode) {
        while let Some(last) = self.episodes.back() {
            new.min_end_ns = new.min_end_ns.max(last.end_ns);
            if last.start_ns <= new.start_ns {
                break;
            }
            new.lost += last.lost;
            self.episodes.pop_back();
        }
        self.episodes.push_back(new);
        if self.episodes.len() > MAX_EPISODES
            && let Some(oldest) = self.episodes.pop_front()
            && let Some(next) = self.episodes.front_mut()
        {
            next.start_ns = oldest.start_ns;
            next.lost += oldest.lost;
        }
    }

    fn add_span(&mut self, new: LevelSpan) {
        match self.spans.back_mut() {
            Some(last) if last.end_ns == new.start_ns && last.levels == new.levels => last.end_ns = new.end_ns,
            _ => self.spans.push_back(new),
        }
        if self.spans.len() > MAX_SPANS
            && let Some(oldest) = self.spans.pop_front()
            && let Some(next) = self.spans.front_mut()
        {
            let level_between = if oldest.end_ns < next.start_ns { 0 } else { oldest.levels[0] };
            *next = LevelSpan {
                start_ns: oldest.start_ns.min(next.start_ns),
                end_ns: oldest.end_ns.max(next.end_ns),
                levels: [next.levels[0].min(level_between), next.levels[1].max(oldest.levels[1])],
            };
        }
    }

    /// The lowest and the highest level between two times, both included.
    pub fn levels_between(&self, first_ns: u64, last_ns: u64) -> [u8; 2] {
        if self.spans.is_empty() {
            return [0; 2];
        }
        // From the newest span to the oldest: the spans so far leave no gap between `covered_ns`
        // and `last_ns`, or the lowest level is 0.
        let (mut levels, mut covered_ns) = ([u8::MAX, 0], last_ns);
        for span in self.spans.iter().filter(|span| span.start_ns <= last_ns && span.end_ns >= first_ns).rev() {
            let lowest = if span.end_ns < covered_ns { 0 } else { span.levels[0] };
            levels = [levels[0].min(lowest), levels[1].max(span.levels[1])];
            covered_ns = covered_ns.min(span.start_ns);
        }
        [if covered_ns < first_ns { levels[0] } else { 0 }, levels[1]]
    }

    /// Whether no packet was lost and the level was always 0.
    pub fn is_empty(&self) -> bool {
        self.episodes.is_empty() && self.spans.is_empty()
    }

    /// Whether the system's clock may have been set between two times, both included.
    pub fn clock_was_set(&self, first_ns: u64, last_ns: u64) -> bool {
        self.clock_steps.iter().any(|&[since_ns, until_ns]| since_ns <= last_ns && until_ns >= first_ns)
    }

    /// Whether all losses up to a time are known. Without snapshots there are none: a file.
    pub fn covers(&self, time_ns: u64) -> bool {
        !self.is_live || time_ns <= self.newest.complete_until_ns
    }

    /// Packets that may have been lost between two times, both included: an upper bound.
    pub fn lost_between(&self, first_ns: u64, last_ns: u64) -> u64 {
        let first = self.episodes.partition_point(|episode| episode.end_ns < first_ns);
        let end = self.episodes.partition_point(|episode| episode.start_ns <= last_ns);
        let last = end.checked_sub(1).and_then(|last| self.episodes.get(last));
        match (self.episodes.get(first), last) {
            (Some(first), Some(last)) => last.lost_so_far.saturating_sub(first.lost_so_far - first.lost),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A snapshot at a time in ms, of a reader that has read everything received.
    fn snapshot(at: u64, lost: u64) -> LossSnapshot {
        LossSnapshot { complete_until_ns: at * MS, latest_ns: at * MS, lost, ..LossSnapshot::default() }
    }

    fn history_of(snapshots: impl IntoIterator<Item = LossSnapshot>) -> LossHistory {
        let mut history = LossHistory::default();
        snapshots.into_iter().for_each(|snapshot| history.add(snapshot));
        history
    }

    /// The history of snapshots: time in ms and packets lost so far.
    fn losses(snapshots: &[(u64, u64)]) -> LossHistory {
        history_of(snapshots.iter().map(|&(at, lost)| snapshot(at, lost)))
    }

    fn between(history: &LossHistory, first: u64, last: u64) -> u64 {
        history.lost_between(first * MS, last * MS)
    }

    #[test]
    fn losses_belong_to_records_that_overlap_the_time_between_the_two_snapshots() {
        let history = losses(&[(100, 0), (200, 0), (300, 7), (400, 7), (500, 9), (600, 9)]);
        // The first episode lasts from 190 to 400 ms, the second from 390 to 600 ms.
        assert_eq!(between(&history, 0, 189), 0);
        assert_eq!(between(&history, 0, 190), 7);
        assert_eq!(between(&history, 250, 260), 7);
        assert_eq!(between(&history, 395, 395), 9, "overlaps both");
        assert_eq!(between(&history, 401, 700), 2);
        assert_eq!(between(&history, 601, 700), 0);
        assert_eq!(between(&history, 0, 10_000), 9);
    }

    #[test]
    fn an_episode_is_open_until_the_next_snapshot() {
        let mut history = losses(&[(100, 0), (200, 5)]);
        assert_eq!(between(&history, 900, 900), 5);
        history.add(snapshot(300, 5));
        assert_eq!(between(&history, 900, 900), 0);
    }

    #[test]
    fn an_episode_covers_packets_that_were_received_and_not_yet_read() {
        // The receive ring holds the packets of one second.
        let behind = |at: u64, lost| LossSnapshot { latest_ns: (at + 1000) * MS, ..snapshot(at, lost) };
        let history = history_of([behind(100, 0), behind(200, 5), behind(300, 5)]);
        assert_eq!(between(&history, 1200, 1200), 5);
        assert_eq!(between(&history, 1301, 1400), 0);
    }

    #[test]
    fn the_oldest_episodes_are_merged() {
        let history = history_of((0..2 * MAX_EPISODES as u64).map(|at| snapshot(100 * at, at)));
        assert_eq!(history.episodes.len(), MAX_EPISODES);
        let all = 2 * MAX_EPISODES as u64 - 1;
        assert_eq!(between(&history, 0, u64::MAX / MS), all);
        assert!(between(&history, 0, 200) >= all - MAX_EPISODES as u64, "an upper bound");
        assert_eq!(between(&history, 100 * all - 50, 100 * all), 2, "the newest episodes are apart");
    }

    #[test]
    fn a_clock_set_back_never_makes_the_figure_smaller() {
        let history = losses(&[(5000, 0), (5100, 3), (5200, 3), (100, 8), (200, 8), (300, 9)]);
        assert!(between(&history, 90, 100) >= 5);
        assert!(between(&history, 5050, 5060) >= 3);
        assert!(between(&history, 250, 5060) >= 9);
    }

    /// The same without losses, on a level since the previous snapshot.
    fn on(at: u64, level: u8) -> LossSnapshot {
        LossSnapshot { levels: [level; 2], level, ..snapshot(at, 0) }
    }

    #[test]
    fn the_levels_of_a_record_are_those_of_its_duration() {
        let spans = [(100, 0), (200, 0), (300, 1), (400, 3), (500, 3), (600, 0), (700, 2), (800, 0)];
        let history = history_of(spans.map(|(at, level)| on(at, level)));
        let levels = |first: u64, last: u64| history.levels_between(first * MS, last * MS);
        assert_eq!(levels(0, 199), [0, 0]);
        assert_eq!(levels(150, 250), [0, 1]);
        assert_eq!(levels(201, 250), [1, 1]);
        assert_eq!(levels(250, 450), [1, 3]);
        assert_eq!(levels(301, 500), [3, 3]);
        assert_eq!(levels(301, 501), [0, 3], "it lasts longer than the span");
        assert_eq!(levels(450, 650), [0, 3], "with all levels between");
        assert_eq!(levels(701, 900), [0, 0]);
    }

    #[test]
    fn the_oldest_spans_are_merged() {
        let history = history_of((1..=8 * MAX_SPANS as u64).map(|at| on(100 * at, [0, 1, 0, 5][at as usize % 4])));
        assert_eq!(history.spans.len(), MAX_SPANS);
        assert_eq!(history.levels_between(250 * MS, 260 * MS), [0, 5]);
        let last = 100 * (8 * MAX_SPANS as u64 - 1);
        assert_eq!(history.levels_between((last - 50) * MS, (last - 40) * MS), [5, 5]);
    }

    #[test]
    fn records_that_overlap_a_step_of_the_clock_are_known() {
        let set = |at: u64, noticed: u64, forward: u64| {
            let clock = ClockSteps { forward, offset_ns: 5, last_ns: noticed * MS, ..ClockSteps::default() };
            LossSnapshot { clock, ..snapshot(at, 0) }
        };
        let mut history = history_of([snapshot(100, 0), set(200, 180, 1), set(300, 180, 1)]);
        let was_set = |history: &LossHistory, first: u64, last: u64| history.clock_was_set(first * MS, last * MS);
        assert!(was_set(&history, 0, 150) && was_set(&history, 150, 900));
        assert!(!was_set(&history, 0, 99) && !was_set(&history, 181, 900));
        (2..200).for_each(|step| history.add(set(200 + 100 * step, 190 + 100 * step, step)));
        assert_eq!(history.clock_steps.len(), MAX_CLOCK_STEPS);
    }

    #[test]
    fn without_snapshots_nothing_was_lost() {
        let history = LossHistory::default();
        assert!(history.covers(u64::MAX));
        assert_eq!(history.lost_between(0, u64::MAX), 0);
        assert!(!losses(&[(100, 0)]).covers(101 * MS));
    }
}
