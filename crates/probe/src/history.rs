//! What a queue lost, and what its reader gave up, and when: so that a record can say how many packets may be missing in it, and why.
//!
//! ```text
//! a look, ten times a second     packets read until then, packets lost until then -> an episode, if more were lost than before
//! a record that leaves           all episodes that touch its time, added up
//! ```
//! Nobody knows the moment of a loss, only the two looks between which it was counted. So an episode lasts from what had come before the look
//! before, to the latest packet that may have come when the look after was made (a source may stamp packets when it
//! reads them). The figure of a record is never too small, but for packets that a driver is late to tell of.
//!
//! In: [`Look`]s. Out: a number per record. Memory is bounded: the oldest episodes become one, which makes the figure larger.

use std::collections::VecDeque;

/// Times on other levels that are told apart.
const SPANS: usize = 256;
/// Episodes that are told apart: those of 100 s in which something is lost all the time.
const EPISODES: usize = 1024;
/// Packets may be this much out of order between processors of the kernel, and count as lost this much later.
const SLACK_NS: u64 = 10_000_000;

/// What a reader knew at some moment between two bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// Which question of the meter this answers, and all before.
    pub answers: u64,
    /// What is older was handed over, or lost and counted, ns since 1970 UTC: at least the time of the newest packet that was read.
    pub settled_ns: u64,
    /// No packet that had come by then is younger.
    pub latest_ns: u64,
    /// Packets lost until then: by the card, the kernel, the source, and on the way to the meter.
    pub lost: u64,
    /// The levels that it stood on since the look before, the lowest and the highest.
    pub levels: [u8; 2],
    /// The level from now on.
    pub level: u8,
}

/// What one reader lost, and gave up.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Times on levels above 0, in order.
    spans: VecDeque<Span>,
    /// In order, by their beginnings and by their ends.
    episodes: VecDeque<Episode>,
    newest: Look,
    live: bool,
}

/// A time on some levels.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// Packets of this time were not read then yet.
    from_ns: u64,
    /// These were.
    to_ns: u64,
    levels: [u8; 2],
}

/// Between two looks something was lost.
#[derive(Clone, Copy, Debug)]
struct Episode {
    from_ns: u64,
    /// It ends no earlier than the one before.
    earliest_end_ns: u64,
    /// The largest of all while that is open: until the next look.
    to_ns: u64,
    lost: u64,
    /// Lost from the beginning to the end of this one.
    lost_so_far: u64,
}

impl History {
    /// Takes note of a look.
    pub fn note(&mut self, look: Look) {
        let before = std::mem::replace(&mut self.newest, look);
        self.live = true;
        if let Some(last) = self.episodes.back_mut()
            && last.to_ns == u64::MAX
        {
            last.to_ns = look.latest_ns.max(last.earliest_end_ns);
        }
        if look.levels[1] > 0 {
            // Time may have been set back.
            let from_ns = before.settled_ns.min(look.settled_ns);
            self.climb(Span { from_ns, to_ns: look.settled_ns.max(before.settled_ns), levels: look.levels });
        }
        let lost = look.lost.saturating_sub(before.lost);
        if lost > 0 {
            // Time may have been set back.
            let from_ns = before.settled_ns.min(look.settled_ns).saturating_sub(SLACK_NS);
            self.push(Episode { from_ns, earliest_end_ns: from_ns, to_ns: u64::MAX, lost, lost_so_far: look.lost });
        }
    }

    fn push(&mut self, mut new: Episode) {
        while let Some(last) = self.episodes.back() {
            new.earliest_end_ns = new.earliest_end_ns.max(last.to_ns);
            if last.from_ns <= new.from_ns {
                break;
            }
            new.lost += last.lost;
            self.episodes.pop_back();
        }
        self.episodes.push_back(new);
        if self.episodes.len() > EPISODES
            && let Some(oldest) = self.episodes.pop_front()
            && let Some(next) = self.episodes.front_mut()
        {
            next.from_ns = oldest.from_ns;
            next.lost += oldest.lost;
        }
    }

    fn climb(&mut self, new: Span) {
        match self.spans.back_mut() {
            Some(last) if last.to_ns == new.from_ns && last.levels == new.levels => last.to_ns = new.to_ns,
            _ => self.spans.push_back(new),
        }
        if self.spans.len() > SPANS
            && let Some(oldest) = self.spans.pop_front()
            && let Some(next) = self.spans.front_mut()
        {
            let between = if oldest.to_ns < next.from_ns { 0 } else { oldest.levels[0] };
            *next = Span {
                from_ns: oldest.from_ns.min(next.from_ns),
                to_ns: oldest.to_ns.max(next.to_ns),
                levels: [next.levels[0].min(between), next.levels[1].max(oldest.levels[1])],
            };
        }
    }

    /// The levels that it stood on between two times, both included: the lowest and the highest.
    pub fn levels_between(&self, first_ns: u64, last_ns: u64) -> [u8; 2] {
        if self.spans.is_empty() {
            return [0; 2];
        }
        // What is younger than `known_ns` and no younger than the last packet is in spans.
        let (mut levels, mut known_ns) = ([u8::MAX, 0], last_ns);
        for span in self.spans.iter().filter(|span| span.from_ns <= last_ns && span.to_ns >= first_ns).rev() {
            let lowest = if span.to_ns < known_ns { 0 } else { span.levels[0] };
            levels = [levels[0].min(lowest), levels[1].max(span.levels[1])];
            known_ns = known_ns.min(span.from_ns);
        }
        [if known_ns < first_ns { levels[0] } else { 0 }, levels[1]]
    }

    /// Whether nothing was lost or given up so far.
    pub fn is_empty(&self) -> bool {
        self.episodes.is_empty() && self.spans.is_empty()
    }

    /// The level it stands on now.
    pub fn level(&self) -> u8 {
        self.newest.level
    }

    /// Whether all that was lost until a time is known here, or nothing ever will be.
    pub fn covers(&self, time_ns: u64) -> bool {
        !self.live || time_ns <= self.newest.settled_ns
    }

    /// The question that was answered last.
    pub fn answered(&self) -> u64 {
        self.newest.answers
    }

    /// Packets that may have been lost between two times, both included.
    pub fn lost_between(&self, first_ns: u64, last_ns: u64) -> u64 {
        let first = self.episodes.partition_point(|episode| episode.to_ns < first_ns);
        let behind = self.episodes.partition_point(|episode| episode.from_ns <= last_ns);
        let last = behind.checked_sub(1).and_then(|last| self.episodes.get(last));
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

    /// A reader that is up to date, at so many ms.
    fn look(at: u64, lost: u64) -> Look {
        Look { settled_ns: at * MS, latest_ns: at * MS, lost, ..Look::default() }
    }

    fn of(looks: &[Look]) -> History {
        let mut history = History::default();
        looks.iter().for_each(|&look| history.note(look));
        history
    }

    fn between(history: &History, first: u64, last: u64) -> u64 {
        history.lost_between(first * MS, last * MS)
    }

    #[test]
    fn what_was_lost_belongs_to_whoever_lived_between_the_looks_around_it() {
        let history = of(&[look(100, 0), look(200, 0), look(300, 7), look(400, 7), look(500, 9), look(600, 9)]);
        // The first of the two episodes from 190 to 400, the second from 390 to 600.
        assert_eq!(between(&history, 0, 189), 0);
        assert_eq!(between(&history, 0, 190), 7);
        assert_eq!(between(&history, 250, 260), 7);
        assert_eq!(between(&history, 395, 395), 9, "it touches both");
        assert_eq!(between(&history, 401, 700), 2);
        assert_eq!(between(&history, 601, 700), 0);
        assert_eq!(between(&history, 0, 10_000), 9);
    }

    #[test]
    fn until_the_next_look_nobody_knows_whether_it_is_over() {
        let mut history = of(&[look(100, 0), look(200, 5)]);
        assert_eq!(between(&history, 900, 900), 5);
        history.note(look(300, 5));
        assert_eq!(between(&history, 900, 900), 0);
    }

    #[test]
    fn a_reader_that_is_behind_says_so_of_packets_that_are_still_to_be_read() {
        // The ring holds what came within a second.
        let behind = |at: u64, lost| Look { latest_ns: (at + 1000) * MS, ..look(at, lost) };
        let history = of(&[behind(100, 0), behind(200, 5), behind(300, 5)]);
        assert_eq!(between(&history, 1200, 1200), 5);
        assert_eq!(between(&history, 1301, 1400), 0);
    }

    #[test]
    fn what_is_older_than_the_history_keeps_is_one_episode() {
        let looks: Vec<_> = (0..2 * EPISODES as u64).map(|at| look(100 * at, at)).collect();
        let history = of(&looks);
        assert_eq!(history.episodes.len(), EPISODES);
        let all = 2 * EPISODES as u64 - 1;
        assert_eq!(between(&history, 0, u64::MAX / MS), all);
        assert!(between(&history, 0, 200) >= all - EPISODES as u64, "an upper bound");
        assert_eq!(between(&history, 100 * all - 50, 100 * all), 2, "the latest are told apart");
    }

    #[test]
    fn time_that_is_set_back_makes_the_figure_larger_never_smaller() {
        let history = of(&[look(5000, 0), look(5100, 3), look(5200, 3), look(100, 8), look(200, 8), look(300, 9)]);
        assert!(between(&history, 90, 100) >= 5);
        assert!(between(&history, 5050, 5060) >= 3);
        assert!(between(&history, 250, 5060) >= 9);
    }

    /// The same without losses, on a level since the look before.
    fn on(at: u64, level: u8) -> Look {
        Look { levels: [level; 2], level, ..look(at, 0) }
    }

    #[test]
    fn the_levels_of_a_record_are_those_of_its_life() {
        let history =
            of(&[on(100, 0), on(200, 0), on(300, 1), on(400, 3), on(500, 3), on(600, 0), on(700, 2), on(800, 0)]);
        let levels = |first: u64, last: u64| history.levels_between(first * MS, last * MS);
        assert_eq!(levels(0, 199), [0, 0]);
        assert_eq!(levels(150, 250), [0, 1]);
        assert_eq!(levels(201, 250), [1, 1]);
        assert_eq!(levels(250, 450), [1, 3]);
        assert_eq!(levels(301, 500), [3, 3]);
        assert_eq!(levels(301, 501), [0, 3], "it lived on when all was over");
        assert_eq!(levels(450, 650), [0, 3], "with all between");
        assert_eq!(levels(701, 900), [0, 0]);
    }

    #[test]
    fn levels_of_long_ago_are_told_together() {
        let looks: Vec<_> = (1..=8 * SPANS as u64).map(|at| on(100 * at, [0, 1, 0, 5][at as usize % 4])).collect();
        let history = of(&looks);
        assert_eq!(history.spans.len(), SPANS);
        assert_eq!(history.levels_between(250 * MS, 260 * MS), [0, 5]);
        let last = 100 * (8 * SPANS as u64 - 1);
        assert_eq!(history.levels_between((last - 50) * MS, (last - 40) * MS), [5, 5]);
    }

    #[test]
    fn what_no_look_told_of_is_nothing() {
        let history = History::default();
        assert!(history.covers(u64::MAX));
        assert_eq!(history.lost_between(0, u64::MAX), 0);
        assert!(!of(&[look(100, 0)]).covers(101 * MS));
    }
}
