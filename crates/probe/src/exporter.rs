//! The exporter: every sink on a thread of its own, which is handed the batches of all pipelines.
//!
//! ```text
//! pipelines -> batch ─┬─> queue -> sink
//!           <- empty ─┴─> queue -> sink
//! ```
//! Always true: a sink has the batches of a pipeline in order, none is lost uncounted, and their memory, which the sinks share,
//! goes around. If a sink is slower than the pipelines, these wait for it, or it loses records and says so; no other sink does. What
//! the sinks say of themselves is published after each batch, so that an account can be drawn up at any moment.

use crate::account::Account;
use crate::affinity::CpuAffinity;
use crate::desk::busy_ns;
use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_export::{Error, Sink};
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, Ledger, RecordTotals, SinkCounters};

/// Batches on their way to a sink that is waited for: few, so that their memory stays near.
const BATCHES: usize = 8;
/// The same to one that is not waited for, of 128 records or more: about as many as may end at once.
const BATCHES_LIVE: usize = 512;
/// Empty batches that a pipeline gets back, at most.
const EMPTY: usize = 16;
/// How long a sink of live traffic may take nothing at the end before it is given up.
const GIVE_UP: Duration = Duration::from_secs(10);
/// How often it is looked whether it took something.
const LOOK: Duration = Duration::from_millis(1);

/// What a pipeline does when a sink is slower than it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackPressure {
    /// Wait for it: the source waits, too. For captures.
    Block,
    /// Drop the records for that sink and count them. For live traffic, which does not wait.
    Drop,
}

/// The sinks, at work.
pub struct Exporter {
    outlets: Arc<Mutex<SinkWorkers>>,
    /// Where their threads run.
    affinity: CpuAffinity,
    behind: BackPressure,
}

/// A sink after a change.
pub enum SinkChange {
    /// The one that had this number before, from 0, goes on.
    Keep(usize),
    /// This one begins.
    Open(Box<dyn Sink + Send>),
}

/// A pipeline's way to the sinks.
pub struct ExportHandle {
    outlets: Arc<Mutex<SinkWorkers>>,
    empty: Receiver<Vec<FlowRecord>>,
    home: SyncSender<Vec<FlowRecord>>,
    behind: BackPressure,
    /// Since when nothing more comes.
    last_since: Option<Instant>,
}

/// Every sink that there is or was. Locked once per batch.
#[derive(Default)]
struct SinkWorkers {
    open: Vec<SinkWorker>,
    /// Those that others replaced.
    closed: Vec<SinkWorker>,
    /// What was handed over by the pipelines.
    taken: RecordTotals,
}

/// The way to one sink, and the account of what was handed over while it was open.
struct SinkWorker {
    /// `None` once the last batch is on its way.
    queue: Option<SyncSender<Arc<Batch>>>,
    /// What was handed over.
    offered: RecordTotals,
    /// What of that it had no room for.
    lost: RecordTotals,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

/// What a sink has done, after the last whole batch.
struct State {
    line: SinkCounters,
    /// What it was given.
    taken: RecordTotals,
    /// When it began or ended a batch last.
    moved: Instant,
    /// Processor time that its thread took, ns.
    busy_ns: u64,
    /// It was told that nothing more comes, and holds nothing back.
    finished: bool,
    /// It ended early.
    ended: bool,
    /// Nobody waits for it any more: what it has not told of is lost.
    given_up: bool,
    error: Option<Error>,
}

/// Records on their way to several sinks. The last that is done with them sends their memory home.
struct Batch {
    flows: Vec<FlowRecord>,
    home: SyncSender<Vec<FlowRecord>>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        let mut flows = std::mem::take(&mut self.flows);
        flows.clear();
        // Nobody waits for it at the end.
        let _ = self.home.try_send(flows);
    }
}

impl Exporter {
    /// Starts a thread for each sink. (One that panics there panics in [`Exporter::finish`].)
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn new(sinks: Vec<Box<dyn Sink + Send>>, affinity: CpuAffinity, behind: BackPressure) -> io::Result<Self> {
        let exporter = Self { outlets: Arc::default(), affinity, behind };
        exporter.replace_sinks(sinks.into_iter().map(SinkChange::Open).collect())?;
        Ok(exporter)
    }

    /// A way in for one more pipeline.
    pub fn handle(&self) -> ExportHandle {
        let (home, empty) = sync_channel(EMPTY);
        ExportHandle { outlets: self.outlets.clone(), empty, home, behind: self.behind, last_since: None }
    }

    /// Has other sinks take the affinity of those that there are. Of these, in their order, some are kept; the others are finished, behind the
    /// records that are on their way.
    ///
    /// # Errors
    /// The system starts no thread; all goes on as before.
    pub fn replace_sinks(&self, sinks: Vec<SinkChange>) -> io::Result<()> {
        let batches = if self.behind == BackPressure::Drop { BATCHES_LIVE } else { BATCHES };
        let prepare = |change| match change {
            SinkChange::Keep(number) => Ok(Err(number)),
            SinkChange::Open(sink) => SinkWorker::new(sink, self.affinity.clone(), batches).map(Ok),
        };
        let prepared = sinks.into_iter().map(prepare).collect::<io::Result<Vec<_>>>()?;
        let mut outlets = lock(&self.outlets);
        let mut before: Vec<_> = std::mem::take(&mut outlets.open).into_iter().map(Some).collect();
        let kept =
            |prepared: Result<SinkWorker, usize>| prepared.map_or_else(|number| before.get_mut(number)?.take(), Some);
        outlets.open = prepared.into_iter().filter_map(kept).collect();
        let mut others: Vec<_> = before.into_iter().flatten().collect();
        others.iter_mut().for_each(|outlet| outlet.queue = None);
        outlets.closed.append(&mut others);
        Ok(())
    }

    /// Finishes every sink, when the pipelines are gone. One of live traffic that takes nothing for ten seconds is given up.
    pub fn finish(&mut self) {
        // A panic in a sink goes on here.
        if let Some(panic) = self.end() {
            resume_unwind(panic);
        }
    }

    fn end(&mut self) -> Option<Box<dyn std::any::Any + Send>> {
        let since = Instant::now();
        let mut threads = Vec::new();
        for outlet in lock(&self.outlets).all_mut() {
            outlet.queue = None;
            threads.extend(outlet.thread.take().map(|thread| (thread, outlet.state.clone())));
        }
        let mut panicked = None;
        for (thread, state) in threads {
            let waits = || self.behind == BackPressure::Block || !lock(&state).is_given_up(since);
            while self.behind == BackPressure::Drop && !thread.is_finished() && waits() {
                thread::sleep(LOOK);
            }
            if waits() {
                panicked = thread.join().err().or(panicked);
            }
        }
        panicked
    }

    /// The account of everything, from those of all pipelines. These must be made later than this is called, or by pipelines
    /// that stand still.
    pub fn ledger(&self, accounts: impl IntoIterator<Item = Account>) -> Ledger {
        self.ledger_of(|| accounts)
    }

    /// The same. The accounts are asked for after those of the sinks, so that nothing is taken before it was sent.
    pub(crate) fn ledger_of<A: IntoIterator<Item = Account>>(&self, accounts: impl FnOnce() -> A) -> Ledger {
        let (taken, lines) = lock(&self.outlets).lines();
        let mut ledger = Ledger { sinks: lines, ..Ledger::default() };
        let (mut sent, mut lost) = (RecordTotals::default(), RecordTotals::default());
        for account in accounts() {
            ledger.merge(&account.ledger);
            sent.merge(account.sent);
            lost.merge(account.lost);
        }
        ledger.live.merge(sent.without(taken));
        if lost.flows > 0 {
            ledger.sinks.iter_mut().for_each(|line| line.lose(ExportLossReason::ExporterBehind, lost));
        }
        ledger
    }

    /// Processor time that the thread of each sink took up to its last whole batch, ns: of those that are open.
    pub(crate) fn busy_ns(&self) -> Vec<u64> {
        lock(&self.outlets).open.iter().map(|outlet| lock(&outlet.state).busy_ns).collect()
    }

    /// Whether every sink has ended early, and there is one.
    pub fn all_sinks_failed(&self) -> bool {
        let open = &lock(&self.outlets).open;
        !open.is_empty() && open.iter().all(|outlet| lock(&outlet.state).ended)
    }

    /// Errors with which sinks ended, each told once.
    pub fn take_errors(&self) -> Vec<Error> {
        lock(&self.outlets).all_mut().filter_map(|outlet| lock(&outlet.state).error.take()).collect()
    }
}

impl Drop for Exporter {
    /// One that is dropped unfinished waits for its threads.
    fn drop(&mut self) {
        self.end();
    }
}

impl ExportHandle {
    /// Nothing more comes: from now on it waits.
    pub(crate) fn wait(&mut self) {
        self.last_since = Some(Instant::now());
    }

    /// Hands over a batch and gives an empty one for it: `Err` if no sink had room, so that it is lost. What some sinks have
    /// room for and others not counts as lost by these.
    pub(crate) fn write(&mut self, flows: Vec<FlowRecord>) -> Result<Vec<FlowRecord>, Vec<FlowRecord>> {
        let room = flows.capacity();
        let taken = self.hand_over(flows);
        let empty = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(room));
        if taken { Ok(empty) } else { Err(empty) }
    }

    fn hand_over(&mut self, flows: Vec<FlowRecord>) -> bool {
        let records = records(&flows);
        let batch = Arc::new(Batch { flows, home: self.home.clone() });
        let mut outlets = lock(&self.outlets);
        let offers: Vec<_> = outlets.open.iter().map(|outlet| outlet.offer(&batch)).collect();
        let waits = self.behind == BackPressure::Block || self.last_since.is_some();
        let takes = |offer: &Offer| matches!(offer, Offer::Taken) || (waits && matches!(offer, Offer::Full(_)));
        if !offers.is_empty() && !offers.iter().any(takes) {
            return false;
        }
        outlets.taken.merge(records);
        for (outlet, offer) in outlets.open.iter_mut().zip(&offers) {
            outlet.offered.merge(records);
            if !takes(offer) {
                outlet.lost.merge(records);
            }
        }
        let states: Vec<_> = outlets.open.iter().map(|outlet| outlet.state.clone()).collect();
        // Whoever waits does not hold up who asks for an account.
        drop(outlets);
        for (offer, state) in offers.into_iter().zip(states) {
            if let Offer::Full(queue) = offer
                && waits
            {
                self.send(&queue, &state, batch.clone());
            }
        }
        true
    }

    /// Waits until there is room for a batch; at the end of live traffic not for a sink that is given up.
    fn send(&self, queue: &SyncSender<Arc<Batch>>, state: &Mutex<State>, mut batch: Arc<Batch>) {
        let Some(since) = self.last_since.filter(|_| self.behind == BackPressure::Drop) else {
            // The thread only ends early if a sink panics, which is told when it is finished.
            let _ = queue.send(batch);
            return;
        };
        while let Err(TrySendError::Full(refused)) = queue.try_send(batch) {
            if lock(state).is_given_up(since) {
                return;
            }
            batch = refused;
            thread::sleep(LOOK);
        }
    }
}

/// What became of a batch that was offered to a sink.
enum Offer {
    Taken,
    /// It will have room in its queue later, perhaps.
    Full(SyncSender<Arc<Batch>>),
    /// It takes nothing any more.
    Refused,
}

impl SinkWorkers {
    fn all_mut(&mut self) -> impl Iterator<Item = &mut SinkWorker> {
        self.closed.iter_mut().chain(&mut self.open)
    }

    /// What was taken, and the line of every sink that there is or was.
    fn lines(&self) -> (RecordTotals, Vec<SinkCounters>) {
        let all = self.closed.iter().chain(&self.open);
        let line =
            |outlet: &SinkWorker| SinkCounters { not_open: self.taken.without(outlet.offered), ..outlet.counters() };
        (self.taken, all.map(line).collect())
    }
}

impl SinkWorker {
    /// Starts the thread of a sink, with a queue of so many batches.
    fn new(mut sink: Box<dyn Sink + Send>, affinity: CpuAffinity, batches: usize) -> io::Result<Self> {
        let (queue, to_do) = sync_channel::<Arc<Batch>>(batches);
        let state = Arc::new(Mutex::new(State::new(sink.counters().clone())));
        let shared = state.clone();
        let work = move || {
            affinity.apply();
            for batch in to_do {
                lock(&shared).moved = Instant::now();
                let result = sink.write(&batch.flows);
                lock(&shared).publish(sink.counters(), result, records(&batch.flows));
            }
            lock(&shared).moved = Instant::now();
            let result = sink.finish();
            let mut state = lock(&shared);
            state.publish(sink.counters(), result, RecordTotals::default());
            state.finished = true;
        };
        let thread = thread::Builder::new().name("weir-export".into()).spawn(work)?;
        let (offered, lost) = (RecordTotals::default(), RecordTotals::default());
        Ok(Self { queue: Some(queue), offered, lost, state, thread: Some(thread) })
    }

    fn offer(&self, batch: &Arc<Batch>) -> Offer {
        let Some(queue) = &self.queue else { return Offer::Refused };
        match queue.try_send(batch.clone()) {
            Ok(()) => Offer::Taken,
            Err(TrySendError::Full(_)) => Offer::Full(queue.clone()),
            Err(TrySendError::Disconnected(_)) => Offer::Refused,
        }
    }

    /// What the sink says of itself, and what it did not get.
    fn counters(&self) -> SinkCounters {
        let state = lock(&self.state);
        let (mut line, mut lost) = (state.line.clone(), self.lost);
        let given = self.offered.without(lost);
        if state.given_up {
            lost.merge(given.without(line.total()));
        } else if state.finished {
            // What it was given and does not tell of is missing, and is not to be hidden.
            line.waiting = given.without(state.taken);
        } else {
            line.waiting = given.without(line.total());
        }
        if lost.flows > 0 {
            line.lose(ExportLossReason::ExporterBehind, lost);
        }
        line
    }
}

impl State {
    fn new(line: SinkCounters) -> Self {
        let (taken, moved) = (RecordTotals::default(), Instant::now());
        Self { line, taken, moved, busy_ns: 0, finished: false, ended: false, given_up: false, error: None }
    }

    fn publish(&mut self, line: &SinkCounters, result: Result<(), Error>, taken: RecordTotals) {
        (self.moved, self.busy_ns) = (Instant::now(), busy_ns());
        if self.given_up {
            return;
        }
        self.taken.merge(taken);
        self.line.clone_from(line);
        // The error with which a sink ended is kept; later ones say nothing new.
        if let Err(error) = result
            && !std::mem::replace(&mut self.ended, true)
        {
            self.error = Some(error);
        }
    }

    /// Whether it is not waited for any more, as it has taken nothing for too long since a moment.
    fn is_given_up(&mut self, since: Instant) -> bool {
        if !self.given_up && !self.finished && self.moved.max(since).elapsed() > GIVE_UP {
            self.given_up = true;
            let why = format!("took nothing for {} s, and is not waited for any longer", GIVE_UP.as_secs());
            let error = io::Error::new(io::ErrorKind::TimedOut, why);
            self.error.get_or_insert(Error::Io { sink: self.line.sink.clone(), error });
        }
        self.given_up
    }
}

/// What is locked here is whole after every line that could panic, so a poisoned lock says nothing that the panic itself does not.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records as the ledger counts them.
pub(crate) fn records(batch: &[FlowRecord]) -> RecordTotals {
    let mut records = RecordTotals::default();
    batch.iter().for_each(|flow| records.add(flow.packets(), flow.frame_bytes()));
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A sink that sleeps, fails or panics at some batch.
    struct Odd {
        line: SinkCounters,
        batches: u32,
        at: u32,
        does: Does,
    }

    #[derive(PartialEq)]
    enum Does {
        Sleep,
        Fail,
        Panic,
        Hang(Gate),
    }

    /// What hangs goes on when it is open.
    #[derive(Clone, Default)]
    struct Gate(Arc<AtomicBool>);

    impl PartialEq for Gate {
        fn eq(&self, other: &Self) -> bool {
            Arc::ptr_eq(&self.0, &other.0)
        }
    }

    fn odd(at: u32, does: Does) -> Box<dyn Sink + Send> {
        Box::new(Odd { line: SinkCounters { sink: "odd".into(), ..SinkCounters::default() }, batches: 0, at, does })
    }

    impl Sink for Odd {
        fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
            self.batches += 1;
            let sick = self.batches >= self.at;
            if sick && self.does == Does::Panic {
                panic!("a sink that panics");
            } else if sick && self.does == Does::Fail {
                self.line.lose(ExportLossReason::WriteFailed, records(flows));
                return Err(Error::Io { sink: "odd".into(), error: io::ErrorKind::StorageFull.into() });
            } else if self.does == Does::Sleep {
                thread::sleep(Duration::from_millis(1));
            } else if let Does::Hang(gate) = &self.does {
                while !gate.0.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            self.line.exported.merge(records(flows));
            Ok(())
        }

        fn finish(&mut self) -> Result<(), Error> {
            Ok(())
        }

        fn counters(&self) -> &SinkCounters {
            &self.line
        }
    }

    fn batch(flows: usize) -> Vec<FlowRecord> {
        let mut flow = FlowRecord::default();
        (flow.forward.packets, flow.forward.frame_bytes) = (2, 100);
        vec![flow; flows]
    }

    #[test]
    fn a_slow_sink_is_waited_for_and_the_account_balances_at_any_moment() {
        let mut exporter =
            Exporter::new(vec![odd(1, Does::Sleep)], CpuAffinity::default(), BackPressure::Block).unwrap();
        let mut handle = exporter.handle();
        let mut account = Account::default();
        for sent in 1..100_u64 {
            account.sent.merge(records(&batch(3)));
            handle.write(batch(3)).unwrap();
            let ledger = exporter.ledger([account.clone()]);
            let line = &ledger.sinks[0];
            assert_eq!(line.exported.flows + line.waiting.flows, 3 * sent);
            assert_eq!(line.exported.packets + line.waiting.packets, 6 * sent);
            assert!(line.waiting.flows <= 3 * (BATCHES as u64 + 2), "{} records wait", line.waiting.flows);
        }
        drop(handle);
        exporter.finish();
        let ledger = exporter.ledger([account]);
        assert_eq!((ledger.sinks[0].exported.flows, ledger.sinks[0].waiting), (297, RecordTotals::default()));
        assert_eq!(ledger.live, RecordTotals::default());
    }

    #[test]
    fn a_pipeline_that_does_not_wait_is_told_when_no_sink_has_room() {
        let mut exporter =
            Exporter::new(vec![odd(1, Does::Sleep)], CpuAffinity::default(), BackPressure::Drop).unwrap();
        let mut handle = exporter.handle();
        let mut account = Account::default();
        for _ in 0..2 * BATCHES_LIVE {
            match handle.write(batch(3)) {
                Ok(empty) => {
                    assert!(empty.is_empty());
                    account.sent.merge(records(&batch(3)));
                }
                Err(empty) => {
                    assert!(empty.is_empty());
                    account.lost.merge(records(&batch(3)));
                }
            }
        }
        drop(handle);
        exporter.finish();
        let line = &exporter.ledger([account]).sinks[0];
        let lost = line.lost[ExportLossReason::ExporterBehind.key()];
        assert!(lost.flows > 0);
        let given = 6 * BATCHES_LIVE as u64;
        assert_eq!((line.total().flows, line.total().packets), (given, 2 * given));
    }

    #[test]
    fn a_sink_that_hangs_holds_up_no_other_and_loses_alone() {
        let gate = Gate::default();
        let sinks = vec![odd(1, Does::Hang(gate.clone())), odd(u32::MAX, Does::Fail)];
        let mut exporter = Exporter::new(sinks, CpuAffinity::default(), BackPressure::Drop).unwrap();
        let mut handle = exporter.handle();
        let mut account = Account::default();
        for sent in 1..2 * BATCHES_LIVE as u64 {
            handle.write(batch(3)).unwrap();
            account.sent.merge(records(&batch(3)));
            // Whoever does not hang has every batch, and both lines add up.
            loop {
                let ledger = exporter.ledger([account.clone()]);
                assert!(ledger.sinks.iter().all(|line| line.total().flows == 3 * sent), "{:?}", ledger.sinks);
                assert_eq!((ledger.live.flows, ledger.sinks[0].exported.flows), (0, 0));
                if ledger.sinks[1].exported.flows == 3 * sent {
                    break;
                }
                thread::yield_now();
            }
        }
        // Others take their place while it hangs, and it is waited for at the end if it goes on.
        exporter.replace_sinks(vec![SinkChange::Open(odd(u32::MAX, Does::Fail))]).unwrap();
        handle.wait();
        handle.write(batch(3)).unwrap();
        account.sent.merge(records(&batch(3)));
        gate.0.store(true, Ordering::Relaxed);
        drop(handle);
        exporter.finish();
        let lines = exporter.ledger([account]).sinks;
        let given = 3 * (2 * BATCHES_LIVE as u64 - 1);
        let lost = lines[0].lost[ExportLossReason::ExporterBehind.key()].flows;
        assert!(lost > 0 && lost < given, "{lost} of {given}");
        assert_eq!(lines[0].exported.flows, given - lost);
        assert_eq!((lines[1].exported.flows, lines[2].exported.flows), (given, 3));
        assert!(lines.iter().all(|line| line.total().flows == given + 3 && line.waiting.flows == 0), "{lines:?}");
    }

    #[test]
    fn sinks_that_are_replaced_keep_their_line_and_the_account_balances() {
        let mut exporter =
            Exporter::new(vec![odd(u32::MAX, Does::Fail)], CpuAffinity::default(), BackPressure::Block).unwrap();
        let mut handle = exporter.handle();
        let mut account = Account::default();
        for round in 0..3_u32 {
            for _ in 0..=round {
                account.sent.merge(records(&batch(2)));
                handle.write(batch(2)).unwrap();
            }
            if round < 2 {
                exporter.replace_sinks(vec![SinkChange::Open(odd(u32::MAX, Does::Fail))]).unwrap();
            }
        }
        drop(handle);
        exporter.finish();
        let sinks = exporter.ledger([account]).sinks;
        let told: Vec<_> = sinks
            .iter()
            .map(|line| [line.exported, line.not_open, line.total()].map(|records| records.flows))
            .collect();
        assert_eq!(told, [[2, 10, 12], [4, 8, 12], [6, 6, 12]]);
    }

    #[test]
    fn sinks_that_are_kept_go_on_beside_those_that_come_and_go() {
        let named = |name: &str| {
            let line = SinkCounters { sink: name.into(), ..SinkCounters::default() };
            Box::new(Odd { line, batches: 0, at: u32::MAX, does: Does::Fail }) as Box<dyn Sink + Send>
        };
        let mut exporter =
            Exporter::new(vec![named("a"), named("b")], CpuAffinity::default(), BackPressure::Block).unwrap();
        let (mut handle, mut account) = (exporter.handle(), Account::default());
        let mut write = |flows| {
            account.sent.merge(records(&batch(flows)));
            handle.write(batch(flows)).unwrap();
        };
        write(1);
        exporter.replace_sinks(vec![SinkChange::Open(named("c")), SinkChange::Keep(1)]).unwrap();
        write(10);
        exporter.replace_sinks(vec![SinkChange::Keep(1), SinkChange::Keep(0)]).unwrap();
        write(100);
        drop(handle);
        exporter.finish();
        let lines = exporter.ledger([account]).sinks;
        let told = lines.iter().map(|line| (line.sink.as_str(), line.exported.flows, line.not_open.flows));
        assert_eq!(told.collect::<Vec<_>>(), [("a", 1, 110), ("b", 111, 0), ("c", 110, 1)]);
    }

    #[test]
    fn batches_go_around() {
        let exporter = Exporter::new(vec![], CpuAffinity::default(), BackPressure::Block).unwrap();
        let mut handle = exporter.handle();
        let (mut batch, mut new) = (Vec::with_capacity(7), 0);
        for _ in 0..1000 {
            // One that was on its way before has more room.
            batch.reserve_exact(7);
            let empty = handle.write(batch).unwrap();
            new += u32::from(empty.capacity() == 7);
            batch = empty;
            batch.reserve_exact(9);
        }
        assert!(new < 2 * EMPTY as u32, "{new} of 1000 batches were new");
    }

    #[test]
    fn a_sink_that_fails_is_told_once_and_the_others_go_on() {
        let mut exporter = Exporter::new(
            vec![odd(3, Does::Fail), odd(u32::MAX, Does::Fail)],
            CpuAffinity::default(),
            BackPressure::Block,
        )
        .unwrap();
        let mut handle = exporter.handle();
        let sent = records(&batch(10));
        for _ in 0..10 {
            handle.write(batch(1)).unwrap();
        }
        drop(handle);
        exporter.finish();
        assert_eq!((exporter.take_errors().len(), exporter.take_errors().len()), (1, 0));
        assert!(!exporter.all_sinks_failed());
        let lines = exporter.ledger([Account { sent, ..Account::default() }]).sinks;
        assert_eq!(lines.iter().map(|line| line.exported.flows).collect::<Vec<_>>(), [2, 10]);
        assert_eq!(lines[0].lost.values().map(|lost| lost.flows).sum::<u64>(), 8);
        let mut alone = Exporter::new(vec![odd(1, Does::Fail)], CpuAffinity::default(), BackPressure::Block).unwrap();
        alone.handle().write(batch(1)).unwrap();
        alone.finish();
        assert!(alone.all_sinks_failed());
    }

    #[test]
    #[should_panic(expected = "a sink that panics")]
    fn a_sink_that_panics_is_neither_silent_nor_waited_for() {
        let mut exporter =
            Exporter::new(vec![odd(2, Does::Panic)], CpuAffinity::default(), BackPressure::Block).unwrap();
        let mut handle = exporter.handle();
        while handle.write(batch(1)).is_ok() {}
        exporter.finish();
    }
}
