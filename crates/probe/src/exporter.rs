//! The exporter: a thread of its own that owns the sinks and is handed batches of records by every pipeline.
//!
//! ```text
//! pipelines -> full batches -> exporter -> every sink
//!           <- empty batches <-
//! ```
//! Always true: the batches of a pipeline are taken in order, none is lost uncounted, and their memory goes around. If the sinks are
//! slower than the pipelines, these wait, or lose records and say so. What the sinks say of themselves is published after each batch,
//! together with what that batch held, so that an account can be drawn up at any moment.

use crate::account::Account;
use crate::place::Place;
use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use weir_export::{Error, Sink};
use weir_flow::Flow;
use weir_ledger::{Ledger, Lost, Records, SinkLine};

/// Batches on their way to sinks that are waited for: few, so that their memory stays near.
const BATCHES: usize = 8;
/// The same to sinks that are not waited for, of 128 records or more: about as many as may end at once.
const BATCHES_LIVE: usize = 512;
/// Empty batches that a pipeline gets back, at most.
const EMPTY: usize = 16;

/// What a pipeline does when the sinks are slower than it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Wait for them: what is read waits, too.
    Wait,
    /// Lose records, and count them: what comes by itself does not wait.
    Lose,
}

/// The sinks, at work.
pub struct Exporter {
    /// `None` once the last batch is on its way.
    full: Option<SyncSender<Work>>,
    published: Arc<Mutex<Published>>,
    thread: Option<JoinHandle<()>>,
    behind: Behind,
}

/// A pipeline's way to the exporter.
pub struct Entrance {
    full: SyncSender<Work>,
    empty: Receiver<Vec<Flow>>,
    home: SyncSender<Vec<Flow>>,
    behind: Behind,
}

/// What the thread is given.
enum Work {
    /// Records, and where their memory goes back to.
    Batch(Vec<Flow>, SyncSender<Vec<Flow>>),
    /// Other sinks in place of those that there are, which are finished.
    Sinks(Vec<Box<dyn Sink + Send>>),
}

/// What the sinks have done, after the last whole batch.
#[derive(Default)]
struct Published {
    taken: Records,
    /// What was taken before the sinks that there are.
    taken_before: Records,
    /// Of sinks that were replaced, with what was taken while they were open.
    replaced: Vec<(SinkLine, Records)>,
    lines: Vec<SinkLine>,
    ended: Vec<bool>,
    errors: Vec<Error>,
}

impl Exporter {
    /// Starts the thread. (A sink that panics there panics in [`Exporter::finish`].)
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn new(mut sinks: Vec<Box<dyn Sink + Send>>, place: Place, behind: Behind) -> io::Result<Self> {
        let (full, to_do) = sync_channel::<Work>(if behind == Behind::Lose { BATCHES_LIVE } else { BATCHES });
        let published = Arc::new(Mutex::new(Published::default()));
        let shared = published.clone();
        lock(&shared).begin(&sinks);
        let work = move || {
            place.take();
            for work in to_do {
                match work {
                    Work::Batch(mut flows, home) => {
                        let results: Vec<_> = sinks.iter_mut().map(|sink| sink.write(&flows)).collect();
                        lock(&shared).publish(&sinks, results, records(&flows));
                        flows.clear();
                        // Nobody waits for it at the end.
                        let _ = home.try_send(flows);
                    }
                    Work::Sinks(others) => {
                        let results = sinks.iter_mut().map(|sink| sink.finish()).collect();
                        lock(&shared).publish(&sinks, results, Records::default());
                        sinks = others;
                        lock(&shared).begin(&sinks);
                    }
                }
            }
            let results = sinks.iter_mut().map(|sink| sink.finish()).collect();
            lock(&shared).publish(&sinks, results, Records::default());
        };
        let thread = thread::Builder::new().name("weir-export".into()).spawn(work)?;
        Ok(Self { full: Some(full), published, thread: Some(thread), behind })
    }

    /// A way in for one more pipeline.
    ///
    /// # Panics
    /// After [`Exporter::finish`].
    pub fn entrance(&self) -> Entrance {
        let (home, empty) = sync_channel(EMPTY);
        let full = self.full.clone().expect("it is not finished before its pipelines are made");
        Entrance { full, empty, home, behind: self.behind }
    }

    /// Has other sinks take the place of those that there are, which are finished, behind the records that are on their way.
    pub fn replace(&self, sinks: Vec<Box<dyn Sink + Send>>) {
        if let Some(full) = &self.full {
            // The thread only ends early if a sink panics, which is told when it is finished.
            let _ = full.send(Work::Sinks(sinks));
        }
    }

    /// Finishes every sink, when the pipelines are gone.
    pub fn finish(&mut self) {
        self.full = None;
        // A panic in a sink goes on here.
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            resume_unwind(panic);
        }
    }

    /// The account of everything, from those of all pipelines. These must be made later than this is called, or by pipelines
    /// that stand still.
    pub fn ledger(&self, accounts: impl IntoIterator<Item = Account>) -> Ledger {
        self.ledger_of(|| accounts)
    }

    /// The same. The accounts are asked for after those of the sinks, so that nothing is taken before it was sent.
    pub(crate) fn ledger_of<A: IntoIterator<Item = Account>>(&self, accounts: impl FnOnce() -> A) -> Ledger {
        let (taken, lines) = lock(&self.published).lines();
        let mut ledger = Ledger { sinks: lines, ..Ledger::default() };
        let (mut sent, mut lost) = (Records::default(), Records::default());
        for account in accounts() {
            ledger.merge(&account.ledger);
            sent.merge(account.sent);
            lost.merge(account.lost);
        }
        ledger.live.merge(sent.without(taken));
        if lost.flows > 0 {
            ledger.sinks.iter_mut().for_each(|line| line.lose(Lost::ExporterBehind, lost));
        }
        ledger
    }

    /// Whether every sink has ended early, and there is one.
    pub fn abandoned(&self) -> bool {
        let ended = &lock(&self.published).ended;
        !ended.is_empty() && ended.iter().all(|&ended| ended)
    }

    /// Errors with which sinks ended, each told once.
    pub fn errors(&self) -> Vec<Error> {
        std::mem::take(&mut lock(&self.published).errors)
    }
}

impl Drop for Exporter {
    /// One that is dropped unfinished waits for its thread, which ends when the pipelines are gone.
    fn drop(&mut self) {
        self.full = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Entrance {
    /// Nothing more comes: from now on it waits.
    pub(crate) fn wait(&mut self) {
        self.behind = Behind::Wait;
    }

    /// Hands over a batch and gives an empty one for it, or gives back the batch for which there was no room.
    pub(crate) fn write(&mut self, flows: Vec<Flow>) -> Result<Vec<Flow>, Vec<Flow>> {
        let room = flows.capacity();
        let batch = Work::Batch(flows, self.home.clone());
        let refused = match self.behind {
            // The thread only ends early if a sink panics, which is told when it is finished.
            Behind::Wait => self.full.send(batch).err().map(|refused| refused.0),
            Behind::Lose => self.full.try_send(batch).err().map(|refused| match refused {
                TrySendError::Full(work) | TrySendError::Disconnected(work) => work,
            }),
        };
        match refused {
            Some(Work::Batch(flows, _)) => Err(flows),
            _ => Ok(self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(room))),
        }
    }
}

impl Published {
    /// What was taken, and the line of every sink that there is or was.
    fn lines(&self) -> (Records, Vec<SinkLine>) {
        let given = self.taken.without(self.taken_before);
        let of_now = self.lines.iter().map(|line| (line, given));
        let of_all = self.replaced.iter().map(|(line, given)| (line, *given)).chain(of_now);
        let lines = of_all.map(|(line, given)| SinkLine { not_open: self.taken.without(given), ..line.clone() });
        (self.taken, lines.collect())
    }

    /// Sinks begin, in place of others.
    fn begin(&mut self, sinks: &[Box<dyn Sink + Send>]) {
        let given = self.taken.without(self.taken_before);
        self.replaced.extend(self.lines.drain(..).map(|line| (line, given)));
        self.taken_before = self.taken;
        self.lines.extend(sinks.iter().map(|sink| sink.line().clone()));
        self.ended = vec![false; sinks.len()];
    }

    fn publish(&mut self, sinks: &[Box<dyn Sink + Send>], results: Vec<Result<(), Error>>, taken: Records) {
        self.taken.merge(taken);
        for (((sink, result), line), ended) in sinks.iter().zip(results).zip(&mut self.lines).zip(&mut self.ended) {
            line.clone_from(sink.line());
            // The error with which a sink ended is kept; later ones say nothing new.
            if let Err(error) = result
                && !std::mem::replace(ended, true)
            {
                self.errors.push(error);
            }
        }
    }
}

/// What is published is whole after every line of [`Published::publish`] that could panic, so a poisoned lock says
/// nothing that the panic itself does not.
fn lock(published: &Mutex<Published>) -> MutexGuard<'_, Published> {
    published.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records as the ledger counts them.
pub(crate) fn records(batch: &[Flow]) -> Records {
    let mut records = Records::default();
    batch.iter().for_each(|flow| records.add(flow.packets(), flow.frame_bytes()));
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weir_ledger::Lost;

    /// A sink that sleeps, fails or panics at some batch.
    struct Odd {
        line: SinkLine,
        batches: u32,
        at: u32,
        does: Does,
    }

    #[derive(PartialEq)]
    enum Does {
        Sleep,
        Fail,
        Panic,
    }

    fn odd(at: u32, does: Does) -> Box<dyn Sink + Send> {
        Box::new(Odd { line: SinkLine { sink: "odd".into(), ..SinkLine::default() }, batches: 0, at, does })
    }

    impl Sink for Odd {
        fn write(&mut self, flows: &[Flow]) -> Result<(), Error> {
            self.batches += 1;
            let sick = self.batches >= self.at;
            if sick && self.does == Does::Panic {
                panic!("a sink that panics");
            } else if sick && self.does == Does::Fail {
                self.line.lose(Lost::WriteFailed, records(flows));
                return Err(Error::Io { sink: "odd".into(), error: io::ErrorKind::StorageFull.into() });
            } else if self.does == Does::Sleep {
                thread::sleep(Duration::from_millis(1));
            }
            self.line.exported.merge(records(flows));
            Ok(())
        }

        fn finish(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn line(&self) -> &SinkLine {
            &self.line
        }
    }

    fn batch(flows: usize) -> Vec<Flow> {
        let mut flow = Flow::default();
        (flow.forward.packets, flow.forward.frame_bytes) = (2, 100);
        vec![flow; flows]
    }

    #[test]
    fn a_slow_sink_is_waited_for_and_the_account_balances_at_any_moment() {
        let mut exporter = Exporter::new(vec![odd(1, Does::Sleep)], Place::default(), Behind::Wait).unwrap();
        let mut entrance = exporter.entrance();
        let mut account = Account::default();
        for sent in 1..100_u64 {
            account.sent.merge(records(&batch(3)));
            entrance.write(batch(3)).unwrap();
            let ledger = exporter.ledger([account.clone()]);
            assert_eq!(ledger.sinks[0].exported.flows + ledger.live.flows, 3 * sent);
            assert_eq!(ledger.sinks[0].exported.packets + ledger.live.packets, 6 * sent);
            assert!(ledger.live.flows <= 3 * (BATCHES as u64 + 2), "{} records wait", ledger.live.flows);
        }
        drop(entrance);
        exporter.finish();
        let ledger = exporter.ledger([account]);
        assert_eq!((ledger.sinks[0].exported.flows, ledger.live), (297, Records::default()));
    }

    #[test]
    fn a_pipeline_that_does_not_wait_gets_back_what_there_is_no_room_for() {
        let mut exporter = Exporter::new(vec![odd(1, Does::Sleep)], Place::default(), Behind::Lose).unwrap();
        let mut entrance = exporter.entrance();
        let mut account = Account::default();
        for _ in 0..2 * BATCHES_LIVE {
            match entrance.write(batch(3)) {
                Ok(empty) => {
                    assert!(empty.is_empty());
                    account.sent.merge(records(&batch(3)));
                }
                Err(refused) => account.lost.merge(records(&refused)),
            }
        }
        drop(entrance);
        exporter.finish();
        let line = &exporter.ledger([account]).sinks[0];
        let lost = line.lost[Lost::ExporterBehind.key()];
        assert!(lost.flows > 0);
        let given = 6 * BATCHES_LIVE as u64;
        assert_eq!((line.total().flows, line.total().packets), (given, 2 * given));
    }

    #[test]
    fn sinks_that_are_replaced_keep_their_line_and_the_account_balances() {
        let mut exporter = Exporter::new(vec![odd(u32::MAX, Does::Fail)], Place::default(), Behind::Wait).unwrap();
        let mut entrance = exporter.entrance();
        let mut account = Account::default();
        for round in 0..3_u32 {
            for _ in 0..=round {
                account.sent.merge(records(&batch(2)));
                entrance.write(batch(2)).unwrap();
            }
            if round < 2 {
                exporter.replace(vec![odd(u32::MAX, Does::Fail)]);
            }
        }
        drop(entrance);
        exporter.finish();
        let sinks = exporter.ledger([account]).sinks;
        let told: Vec<_> = sinks
            .iter()
            .map(|line| [line.exported, line.not_open, line.total()].map(|records| records.flows))
            .collect();
        assert_eq!(told, [[2, 10, 12], [4, 8, 12], [6, 6, 12]]);
    }

    #[test]
    fn batches_go_around() {
        let exporter = Exporter::new(vec![], Place::default(), Behind::Wait).unwrap();
        let mut entrance = exporter.entrance();
        let (mut batch, mut new) = (Vec::with_capacity(7), 0);
        for _ in 0..1000 {
            // One that was on its way before has more room.
            batch.reserve_exact(7);
            let empty = entrance.write(batch).unwrap();
            new += u32::from(empty.capacity() == 7);
            batch = empty;
            batch.reserve_exact(9);
        }
        assert!(new < 2 * EMPTY as u32, "{new} of 1000 batches were new");
    }

    #[test]
    fn a_sink_that_fails_is_told_once_and_the_others_go_on() {
        let mut exporter =
            Exporter::new(vec![odd(3, Does::Fail), odd(u32::MAX, Does::Fail)], Place::default(), Behind::Wait).unwrap();
        let mut entrance = exporter.entrance();
        let sent = records(&batch(10));
        for _ in 0..10 {
            entrance.write(batch(1)).unwrap();
        }
        drop(entrance);
        exporter.finish();
        assert_eq!((exporter.errors().len(), exporter.errors().len()), (1, 0));
        assert!(!exporter.abandoned());
        let lines = exporter.ledger([Account { sent, ..Account::default() }]).sinks;
        assert_eq!(lines.iter().map(|line| line.exported.flows).collect::<Vec<_>>(), [2, 10]);
        assert_eq!(lines[0].lost.values().map(|lost| lost.flows).sum::<u64>(), 8);
        let mut alone = Exporter::new(vec![odd(1, Does::Fail)], Place::default(), Behind::Wait).unwrap();
        alone.entrance().write(batch(1)).unwrap();
        alone.finish();
        assert!(alone.abandoned());
    }

    #[test]
    #[should_panic(expected = "a sink that panics")]
    fn a_sink_that_panics_is_neither_silent_nor_waited_for() {
        let mut exporter = Exporter::new(vec![odd(2, Does::Panic)], Place::default(), Behind::Wait).unwrap();
        let mut entrance = exporter.entrance();
        while entrance.write(batch(1)).is_ok() {}
        exporter.finish();
    }
}
