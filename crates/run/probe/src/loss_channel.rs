//! Passes loss snapshots from readers to meters, on the same thread or between threads.
//!
//! ```text
//! reader -> snapshots, ten times a second and on request            -> meter: a history per reader
//!        <- a request, if records end later than the newest snapshot <-
//! ```
//! A snapshot is sent before the packets that were read after it. If the queue is full, the next
//! snapshot includes the content of this one.

use crate::heartbeat::beat;
use crate::loss_history::{LossHistory, LossSnapshot};
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;
use std::time::Duration;

/// Snapshots in a queue: those of 6 s.
const QUEUE_SNAPSHOTS: usize = 64;
/// Time between two checks whether a request was answered, or whether a queue has free slots.
const RETRY_INTERVAL: Duration = Duration::from_micros(50);

pub(crate) struct SnapshotSender {
    queue: Producer<LossSnapshot>,
    requests: Arc<AtomicU64>,
    answered_request: u64,
    /// Levels of snapshots that did not fit into the queue.
    unsent_levels: Option<[u8; 2]>,
}

pub(crate) struct SnapshotReceiver {
    queue: Consumer<LossSnapshot>,
    requests: Arc<AtomicU64>,
    /// The last request of this receiver.
    request: u64,
    /// The reader has finished, and all its snapshots were received.
    is_finished: bool,
}

pub(crate) fn snapshot_channel() -> (SnapshotSender, SnapshotReceiver) {
    let (producer, consumer) = RingBuffer::new(QUEUE_SNAPSHOTS);
    let requests = Arc::new(AtomicU64::new(0));
    (
        SnapshotSender { queue: producer, requests: requests.clone(), answered_request: 0, unsent_levels: None },
        SnapshotReceiver { queue: consumer, requests, request: 0, is_finished: false },
    )
}

impl SnapshotSender {
    /// Whether the meter waits for a snapshot. Costs a load of memory that is rarely written.
    pub fn is_requested(&self) -> bool {
        self.requests.load(Ordering::Relaxed) != self.answered_request
    }

    /// Sends a snapshot that was taken after the last call of [`SnapshotSender::is_requested`].
    pub fn send(&mut self, snapshot: LossSnapshot) {
        let request = self.requests.load(Ordering::Relaxed);
        let [lowest, highest] = snapshot.levels;
        let levels =
            self.unsent_levels.map_or(snapshot.levels, |unsent| [lowest.min(unsent[0]), highest.max(unsent[1])]);
        if self.queue.push(LossSnapshot { request, levels, ..snapshot }).is_ok() {
            (self.answered_request, self.unsent_levels) = (request, None);
        } else {
            self.unsent_levels = Some(levels);
        }
    }

    /// Sends the last snapshot. Waits until it fits into the queue or the receiver is dropped.
    pub fn send_last(&mut self, snapshot: LossSnapshot) {
        while self.queue.is_full() && !self.queue.is_abandoned() {
            beat();
            thread::sleep(RETRY_INTERVAL);
        }
        self.send(snapshot);
    }
}

/// The loss histories of all readers of one meter.
pub(crate) struct LossHistories(Vec<(Option<SnapshotReceiver>, LossHistory)>);

impl LossHistories {
    /// The history of one reader on the same thread.
    pub fn same_thread() -> Self {
        Self(vec![(None, LossHistory::default())])
    }

    /// Histories of readers on other threads.
    pub fn from_receivers(receivers: Vec<SnapshotReceiver>) -> Self {
        Self(receivers.into_iter().map(|receiver| (Some(receiver), LossHistory::default())).collect())
    }

    pub fn add(&mut self, snapshot: LossSnapshot) {
        if let Some((_, history)) = self.0.first_mut() {
            history.add(snapshot);
        }
    }

    pub fn receive(&mut self) {
        for (receiver, history) in &mut self.0 {
            if let Some(receiver) = receiver {
                receiver.receive(history);
            }
        }
    }

    /// Requests a snapshot from each reader whose history does not cover a time; each answers
    /// before its next burst. Waits for the answers if `wait` is set or there is only one reader:
    /// while that one waits for frames, the meter has nothing to do.
    pub fn request(&mut self, time_ns: u64, wait: bool) {
        let wait = wait || self.0.len() == 1;
        for (receiver, history) in &mut self.0 {
            if let Some(receiver) = receiver {
                receiver.request(history, time_ns, wait);
            }
        }
    }

    /// Whether all losses up to a time are known.
    pub fn cover(&self, time_ns: u64) -> bool {
        let is_finished =
            |receiver: &Option<SnapshotReceiver>| receiver.as_ref().is_some_and(|receiver| receiver.is_finished);
        self.0.iter().all(|(receiver, history)| history.covers(time_ns) || is_finished(receiver))
    }

    pub fn iter(&self) -> impl Iterator<Item = &LossHistory> {
        self.0.iter().map(|(_, history)| history)
    }
}

impl SnapshotReceiver {
    fn receive(&mut self, history: &mut LossHistory) {
        // Before the queue is read: what was sent before the reader finished is then in the queue.
        self.is_finished = self.queue.is_abandoned();
        fence(Ordering::Acquire);
        while let Ok(snapshot) = self.queue.pop() {
            history.add(snapshot);
        }
    }

    fn request(&mut self, history: &mut LossHistory, time_ns: u64, wait: bool) {
        self.receive(history);
        if history.covers(time_ns) || self.is_finished {
            return;
        }
        if history.newest.request >= self.request {
            self.request = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        }
        while wait && history.newest.request < self.request && !self.is_finished {
            beat();
            thread::sleep(RETRY_INTERVAL);
            self.receive(history);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(histories: &LossHistories) -> u64 {
        histories.iter().map(|history| history.lost_between(0, u64::MAX)).sum()
    }

    fn snapshot(complete_until_ns: u64, lost: u64) -> LossSnapshot {
        LossSnapshot { complete_until_ns, latest_ns: complete_until_ns, lost, ..LossSnapshot::default() }
    }

    #[test]
    fn a_snapshot_that_does_not_fit_is_included_in_the_next() {
        let (mut sender, receiver) = snapshot_channel();
        let mut histories = LossHistories::from_receivers(vec![receiver]);
        for at in 1..=2 * QUEUE_SNAPSHOTS as u64 {
            sender.send(LossSnapshot { levels: [(at > 100).into(); 2], ..snapshot(at, at) });
        }
        histories.receive();
        assert_eq!(lost(&histories), QUEUE_SNAPSHOTS as u64);
        sender.send(snapshot(1000, 1000));
        histories.receive();
        assert_eq!(lost(&histories), 1000);
        assert_eq!(histories.iter().next().unwrap().levels_between(0, 1000), [0, 1]);
    }

    #[test]
    fn a_request_waits_until_every_reader_has_answered_or_finished() {
        let (mut finishing, first) = snapshot_channel();
        let (mut answering, second) = snapshot_channel();
        let mut histories = LossHistories::from_receivers(vec![first, second]);
        finishing.send(snapshot(10, 0));
        answering.send(snapshot(10, 0));
        histories.receive();
        assert!(histories.cover(10) && !histories.cover(11));
        let answering = thread::spawn(move || {
            while !answering.is_requested() {
                thread::yield_now();
            }
            answering.send(snapshot(20, 5));
            answering
        });
        let finishing = thread::spawn(move || finishing.send_last(snapshot(15, 2)));
        histories.request(12, true);
        assert_eq!(lost(&histories), 7);
        finishing.join().unwrap();
        assert!(!answering.join().unwrap().is_requested());
    }
}
