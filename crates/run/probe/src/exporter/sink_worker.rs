//! The worker thread of one sink, and its queue of record batches.
//!
//! For each batch: pass the status of the metering process, enrich the records, write them, count them.

use super::record_batch::RecordBatch;
use super::sink_state::{Drain, SinkState};
use crate::heartbeat::{Pulse, beat, catch_panic, while_waiting};
use crate::thread::CpuAffinity;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_export::{MeteringStatus, Sink};
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters, Timing};

/// The workers of all sinks that were ever open. Locked once per batch.
#[derive(Default)]
pub(crate) struct SinkWorkers {
    pub open: Vec<SinkWorker>,
    /// Workers whose thread may still run, or whose error was not taken.
    pub closed: Vec<SinkWorker>,
    /// The sinks of closed workers that have ended.
    ended: Vec<SinkSum>,
    /// Records that pipelines have sent.
    pub received: RecordTotals,
    /// Since the end of the run was requested.
    pub drain: Option<Drain>,
    /// Pipelines that had not ended were abandoned. Records that they still send are counted already.
    pub are_pipelines_abandoned: bool,
    /// The latest status of the metering process.
    pub status: MeteringStatus,
}

/// The queue to one sink, its thread, and the records that it was offered while it was open.
pub(crate) struct SinkWorker {
    /// `None` after the last batch.
    pub queue: Option<Sender<Arc<RecordBatch>>>,
    pub offered: RecordTotals,
    /// Offered records that did not fit into the queue.
    pub lost: RecordTotals,
    /// [`SinkWorkers::received`] when the sink was opened and, if it was, closed.
    pub opened_at: RecordTotals,
    pub closed_at: Option<RecordTotals>,
    pub state: Arc<Mutex<SinkState>>,
    pub thread: Option<JoinHandle<()>>,
    pub pulse: Pulse,
}

/// A sink that was open once, or again and again: with each reload that rotates its file, say.
#[derive(Clone)]
struct SinkSum {
    counters: SinkCounters,
    offered: RecordTotals,
    /// [`SinkWorkers::received`] from the first opening to the last closing, flows.
    open: Range<u64>,
}

pub(crate) enum Offer {
    Accepted,
    /// The queue is full, and may have free slots later.
    Full(Sender<Arc<RecordBatch>>),
    /// The thread of the sink has panicked.
    Closed,
}

impl SinkWorkers {
    /// See [`Exporter::drain_until`](super::Exporter::drain_until).
    pub fn drain_until(&mut self, deadline: Instant) {
        let is_begun = self.drain.is_some();
        if self.drain.is_none_or(|drain| deadline < drain.deadline) {
            let drain = Drain::until(deadline);
            self.drain = Some(drain);
            for worker in self.all_mut() {
                let offered =
                    if is_begun { RecordTotals::default() } else { worker.offered.saturating_sub(worker.lost) };
                worker.state.lock().start_drain(drain, offered);
            }
        }
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut SinkWorker> {
        self.closed.iter_mut().chain(&mut self.open)
    }

    /// Counts records that no sink gets because the end of the run is over.
    pub fn lose(&mut self, records: RecordTotals) {
        self.received.merge(records);
        for sink in &mut self.open {
            sink.offered.merge(records);
            sink.state.lock().lose(records);
        }
    }

    /// Passes the latest status to the open sinks.
    pub fn pass_status(&self) {
        for worker in &self.open {
            let mut status = self.status.clone();
            status.lost_before_sink.merge(worker.lost);
            worker.state.lock().status = (status, true);
        }
    }

    /// Closes sinks, and forgets the workers of those that have ended.
    pub fn close(&mut self, mut workers: Vec<SinkWorker>) {
        for worker in &mut workers {
            (worker.queue, worker.closed_at) = (None, Some(self.received));
        }
        self.closed.append(&mut workers);
        for worker in std::mem::take(&mut self.closed) {
            if worker.has_ended() {
                add(&mut self.ended, &worker, self.received);
                // The memory of a thread is free after it was joined.
                drop(worker.thread.map(JoinHandle::join));
            } else {
                self.closed.push(worker);
            }
        }
    }

    /// The counters of every sink that was ever open.
    pub fn counters(&self) -> Vec<SinkCounters> {
        let mut sums = self.ended.clone();
        self.closed.iter().chain(&self.open).for_each(|worker| add(&mut sums, worker, self.received));
        let counters =
            |sum: SinkSum| SinkCounters { not_open: self.received.saturating_sub(sum.offered), ..sum.counters };
        sums.into_iter().map(counters).collect()
    }
}

/// Adds a worker to the sum of its sink, or as another sink if both were open at a time.
fn add(sums: &mut Vec<SinkSum>, worker: &SinkWorker, received: RecordTotals) {
    let counters = worker.counters();
    let open = worker.opened_at.flows..worker.closed_at.unwrap_or(received).flows;
    let is_same = |sum: &&mut SinkSum| {
        sum.counters.sink == counters.sink && (sum.open.end <= open.start || open.end <= sum.open.start)
    };
    if let Some(sum) = sums.iter_mut().find(is_same) {
        // What was on the disk at its end is what it found when it was opened again.
        (sum.counters.spool_octets, sum.counters.spool_oldest) = (0, None);
        sum.counters.merge(counters);
        sum.offered.merge(worker.offered);
        sum.open = sum.open.start.min(open.start)..sum.open.end.max(open.end);
    } else {
        sums.push(SinkSum { counters, offered: worker.offered, open });
    }
}

impl SinkWorker {
    pub fn start(
        mut sink: Box<dyn Sink + Send>,
        affinity: CpuAffinity,
        queue_batches: usize,
        timing: Timing,
    ) -> io::Result<Self> {
        let (queue, batches) = bounded::<Arc<RecordBatch>>(queue_batches);
        let state = Arc::new(Mutex::new(SinkState::new(&*sink, timing)));
        sink.watch(&state.lock().watch);
        let shared = state.clone();
        let run = move || {
            while let Some(batch) = next_batch(&batches, &mut *sink, &shared, &timing) {
                pass_status(&mut *sink, &shared);
                let totals = batch.totals;
                if !shared.lock().prepare(&mut *sink) {
                    shared.lock().lose(totals);
                    continue;
                }
                batch.enrich();
                let result = while_waiting(|| sink.write(batch.records()));
                shared.lock().update(sink.counters(), result, totals);
            }
            // The sink has all of its records: the losses are complete.
            shared.lock().status.1 = true;
            pass_status(&mut *sink, &shared);
            shared.lock().prepare(&mut *sink);
            let result = while_waiting(|| sink.finish());
            let mut state = shared.lock();
            state.update(sink.counters(), result, RecordTotals::default());
            state.is_finished = true;
        };
        const NAME: &str = "weir-export";
        let pulse = Pulse::new(format!("{NAME} of {}", state.lock().counters.sink));
        let (heartbeat, of_thread) = (pulse.heartbeat.clone(), state.clone());
        let thread = thread::Builder::new().name(NAME.into()).spawn(move || {
            affinity.apply();
            heartbeat.adopt(|| {
                if catch_panic(run).is_none() {
                    of_thread.lock().fail_after_panic();
                }
            });
        })?;
        let (offered, lost) = (RecordTotals::default(), RecordTotals::default());
        let (opened_at, closed_at) = (RecordTotals::default(), None);
        Ok(Self { queue: Some(queue), offered, lost, opened_at, closed_at, state, thread: Some(thread), pulse })
    }

    /// Whether the thread has ended without an error that has to be reported.
    pub fn has_ended(&self) -> bool {
        let state = self.state.lock();
        state.is_finished && state.error.is_none() && self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub fn offer(&self, batch: &Arc<RecordBatch>) -> Offer {
        let Some(queue) = &self.queue else { return Offer::Closed };
        match queue.try_send(batch.clone()) {
            Ok(()) => Offer::Accepted,
            Err(TrySendError::Full(_)) => Offer::Full(queue.clone()),
            Err(TrySendError::Disconnected(_)) => Offer::Closed,
        }
    }

    /// The counters of the sink, with the records that it did not get.
    fn counters(&self) -> SinkCounters {
        let state = self.state.lock();
        let mut counters = state.counters.clone();
        let queued = self.offered.saturating_sub(self.lost).saturating_sub(state.late);
        let mut lost =
            vec![(ExportLossReason::ExporterBehind, self.lost), (ExportLossReason::DrainTimeout, state.late)];
        if let Some(reason) = state.abandoned {
            lost.push((reason, queued.saturating_sub(counters.total())));
        } else if state.is_finished {
            // Records that the sink has received and does not report must unbalance the ledger.
            counters.waiting = queued.saturating_sub(state.written);
        } else {
            counters.waiting = queued.saturating_sub(counters.total());
        }
        for (reason, lost) in lost.into_iter().filter(|(_, lost)| lost.flows > 0) {
            counters.add_lost(reason, lost);
        }
        counters
    }
}

/// The next batch; `None` after the last one. Connects the sink meanwhile and before each batch,
/// opens its file again if requested, and lets it do what is due.
fn next_batch(
    batches: &Receiver<Arc<RecordBatch>>,
    sink: &mut dyn Sink,
    state: &Mutex<SinkState>,
    timing: &Timing,
) -> Option<Arc<RecordBatch>> {
    loop {
        beat();
        connect(sink, state, timing.sink_filter);
        if std::mem::take(&mut state.lock().must_reopen) {
            while_waiting(|| sink.reopen());
        }
        match batches.recv_timeout(wait_of(sink, timing)) {
            Ok(batch) => {
                connect(sink, state, timing.sink_filter);
                return Some(batch);
            }
            Err(RecvTimeoutError::Timeout) => {
                pass_status(sink, state);
                while_waiting(|| sink.tick());
                state.lock().update(sink.counters(), Ok(()), RecordTotals::default());
            }
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// How long the sink may do nothing without a batch. A sink whose time has passed is not called again and again.
fn wait_of(sink: &dyn Sink, timing: &Timing) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(1);
    let due = sink.wakes_at().map_or(timing.sink_tick, |at| at.saturating_duration_since(Instant::now()));
    due.max(SHORTEST).min(timing.sink_tick)
}

/// Connects the sink. Returns when the probe does not meter its datagrams, or after the timeout: metering
/// them would cause more datagrams.
fn connect(sink: &mut dyn Sink, state: &Mutex<SinkState>, timeout: Duration) {
    if !while_waiting(|| sink.connect()) {
        return;
    }
    let endpoints = sink.udp_endpoints();
    state.lock().endpoints = endpoints;
    let since = Instant::now();
    let must_wait = || {
        let state = state.lock();
        state.filtered != endpoints && !state.metering_ended
    };
    while must_wait() && since.elapsed() < timeout {
        beat();
        thread::sleep(Duration::from_millis(1));
    }
}

/// Notes that the sink begins to work, and passes a new status to it.
fn pass_status(sink: &mut dyn Sink, state: &Mutex<SinkState>) {
    let mut state = state.lock();
    (state.last_progress, state.is_writing) = (Instant::now(), true);
    if std::mem::take(&mut state.status.1) {
        let mut status = state.status.0.clone();
        status.lost_before_sink.merge(state.late);
        drop(state);
        sink.set_metering_status(&status);
    }
}
