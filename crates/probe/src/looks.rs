//! How a metering half learns what its readers saw: looks, on the same thread or from another one.
//!
//! ```text
//! reader  -> looks, ten times a second and when asked -> metering: a history for each reader
//!         <- a question, before records leave whose end the newest look does not cover <-
//! ```
//! Always true: a look comes before the packets that were read after it; when there is no room for one, the next tells the same and more.

use crate::history::{History, Look};
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;
use std::time::Duration;

/// Looks on their way: those of 6 s.
const QUEUE: usize = 64;
/// How long a metering half sleeps between two looks whether its question was answered.
const NAP: Duration = Duration::from_micros(50);

/// The reader's end.
pub(crate) struct Teller {
    queue: Producer<Look>,
    asked: Arc<AtomicU64>,
    answered: u64,
    /// Rungs of looks that there was no room for.
    untold: Option<[u8; 2]>,
}

/// The end of a metering half that has a thread of its own.
pub(crate) struct Listener {
    queue: Consumer<Look>,
    asked: Arc<AtomicU64>,
    /// The last question.
    question: u64,
    /// The reader has ended, and all that it told was heard.
    ended: bool,
}

/// A way between two threads.
pub(crate) fn looks() -> (Teller, Listener) {
    let (producer, consumer) = RingBuffer::new(QUEUE);
    let asked = Arc::new(AtomicU64::new(0));
    (
        Teller { queue: producer, asked: asked.clone(), answered: 0, untold: None },
        Listener { queue: consumer, asked, question: 0, ended: false },
    )
}

impl Teller {
    /// Whether a look is asked for. One load of memory that is rarely written.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) != self.answered
    }

    /// Tells of a look that was made after [`Teller::is_asked`] was asked, if there is room for it.
    pub fn tell(&mut self, look: Look) {
        let asked = self.asked.load(Ordering::Relaxed);
        let levels = self
            .untold
            .map_or(look.levels, |[lowest, highest]| [lowest.min(look.levels[0]), highest.max(look.levels[1])]);
        if self.queue.push(Look { answers: asked, levels, ..look }).is_ok() {
            (self.answered, self.untold) = (asked, None);
        } else {
            self.untold = Some(levels);
        }
    }

    /// The last look: waits until there is room for it, or nobody to hear it.
    pub fn finish(&mut self, look: Look) {
        while self.queue.is_full() && !self.queue.is_abandoned() {
            thread::sleep(NAP);
        }
        self.tell(look);
    }
}

/// Histories of all readers of a metering half.
pub(crate) struct Histories(Vec<(Option<Listener>, History)>);

impl Histories {
    /// Of one reader on the same thread.
    pub fn here() -> Self {
        Self(vec![(None, History::default())])
    }

    /// Of readers on threads of their own.
    pub fn from(listeners: Vec<Listener>) -> Self {
        Self(listeners.into_iter().map(|listener| (Some(listener), History::default())).collect())
    }

    /// Takes note of a look of the reader on the same thread.
    pub fn note(&mut self, look: Look) {
        if let Some((_, history)) = self.0.first_mut() {
            history.note(look);
        }
    }

    /// Takes note of what readers on other threads told meanwhile.
    pub fn hear(&mut self) {
        for (listener, history) in &mut self.0 {
            if let Some(listener) = listener {
                listener.hear(history);
            }
        }
    }

    /// Asks readers on other threads that did not tell of all until a time: each answers before its next burst. `wait` for them: if it is
    /// the only one it is not long, as nothing else is to do while it waits for frames.
    pub fn ask(&mut self, time_ns: u64, wait: bool) {
        let wait = wait || self.0.len() == 1;
        for (listener, history) in &mut self.0 {
            if let Some(listener) = listener {
                listener.ask(history, time_ns, wait);
            }
        }
    }

    /// Whether all that was lost until a time is known.
    pub fn cover(&self, time_ns: u64) -> bool {
        let ended = |listener: &Option<Listener>| listener.as_ref().is_some_and(|listener| listener.ended);
        self.0.iter().all(|(listener, history)| history.covers(time_ns) || ended(listener))
    }

    /// The levels that readers stood on between two times: the lowest and the highest.
    pub fn levels_between(&self, first_ns: u64, last_ns: u64) -> [u8; 2] {
        let of_each = self.0.iter().map(|(_, history)| history.levels_between(first_ns, last_ns));
        of_each.reduce(|one, other| [one[0].min(other[0]), one[1].max(other[1])]).unwrap_or_default()
    }

    /// Whether nothing was lost or given up so far.
    pub fn are_empty(&self) -> bool {
        self.0.iter().all(|(_, history)| history.is_empty())
    }

    /// The highest level that a reader stands on now.
    pub fn level(&self) -> u8 {
        self.0.iter().map(|(_, history)| history.level()).max().unwrap_or_default()
    }

    /// Packets that may have been lost between two times, by all readers.
    pub fn lost_between(&self, first_ns: u64, last_ns: u64) -> u64 {
        self.0.iter().map(|(_, history)| history.lost_between(first_ns, last_ns)).sum()
    }
}

impl Listener {
    fn hear(&mut self, history: &mut History) {
        // Asked first: what was told before the reader ended is there then.
        self.ended = self.queue.is_abandoned();
        fence(Ordering::Acquire);
        while let Ok(look) = self.queue.pop() {
            history.note(look);
        }
    }

    fn ask(&mut self, history: &mut History, time_ns: u64, wait: bool) {
        self.hear(history);
        if history.covers(time_ns) || self.ended {
            return;
        }
        if history.answered() >= self.question {
            self.question = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        }
        while wait && history.answered() < self.question && !self.ended {
            thread::sleep(NAP);
            self.hear(history);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(settled_ns: u64, lost: u64) -> Look {
        Look { settled_ns, latest_ns: settled_ns, lost, ..Look::default() }
    }

    #[test]
    fn what_there_was_no_room_for_is_told_by_the_next() {
        let (mut teller, listener) = looks();
        let mut histories = Histories::from(vec![listener]);
        (1..=2 * QUEUE as u64).for_each(|at| teller.tell(Look { levels: [(at > 100).into(); 2], ..look(at, at) }));
        histories.hear();
        assert_eq!(histories.lost_between(0, u64::MAX), QUEUE as u64);
        teller.tell(look(1000, 1000));
        histories.hear();
        assert_eq!(histories.lost_between(0, u64::MAX), 1000);
        assert_eq!(histories.levels_between(0, 1000), [0, 1]);
    }

    #[test]
    fn a_question_waits_for_the_answer_of_every_reader_or_its_end() {
        let (teller, first) = looks();
        let (mut other, second) = looks();
        let mut histories = Histories::from(vec![first, second]);
        let mut teller = teller;
        teller.tell(look(10, 0));
        other.tell(look(10, 0));
        histories.hear();
        assert!(histories.cover(10) && !histories.cover(11));
        let answering = thread::spawn(move || {
            while !other.is_asked() {
                thread::yield_now();
            }
            other.tell(look(20, 5));
            other
        });
        let ending = thread::spawn(move || teller.finish(look(15, 2)));
        histories.ask(12, true);
        assert_eq!(histories.lost_between(0, u64::MAX), 7);
        ending.join().unwrap();
        assert!(!answering.join().unwrap().is_asked());
    }
}
