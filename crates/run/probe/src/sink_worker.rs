//! The worker thread of one sink, its queue of record batches, and the counters of what became of
//! the records.

use crate::account::totals;
use crate::heartbeat::{Pulse, beat, catch_panic, while_waiting};
use crate::settings::RecordEnricher;
use crate::sync::lock;
use crate::thread::{CpuAffinity, cpu_time_ns};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_export::{Error, MeteringStatus, Sink};
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters, Timing};

/// Share of the time for the end of a run in which rate-limited sinks should be done.
const DRAIN_TARGET: f64 = 0.8;

/// The time in which sinks get the last records of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    /// Rate-limited sinks should be done by then. From then on no sink waits long for a slower one.
    pub target: Instant,
    /// Records that a sink does not have by then are lost.
    pub deadline: Instant,
}

impl Drain {
    pub fn until(deadline: Instant) -> Self {
        let now = Instant::now();
        let target = now + deadline.saturating_duration_since(now).mul_f64(DRAIN_TARGET);
        Self { target, deadline }
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }
}

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

/// What a sink had done after its last whole batch.
pub(crate) struct SinkState {
    counters: SinkCounters,
    written: RecordTotals,
    /// When the sink last began or ended a batch.
    last_progress: Instant,
    /// Whether it has begun a batch and not ended it.
    is_writing: bool,
    pub cpu_time_ns: u64,
    /// The sink was finished and holds no records back.
    is_finished: bool,
    pub has_failed: bool,
    /// The sink has timed out or panicked. Records that it has not reported are lost, for this
    /// reason.
    abandoned: Option<ExportLossReason>,
    /// See [`SinkWorkers::drain`].
    drain: Option<Drain>,
    /// About how many records the sink gets until the end, once the end has begun.
    expected_flows: u64,
    /// Offered records that the sink did not get because the end was over, or the other sinks would
    /// have waited too long.
    late: RecordTotals,
    pub error: Option<Error>,
    /// Local and remote address of the datagrams of the sink.
    pub endpoints: Option<[SocketAddr; 2]>,
    /// Those that the probe does not meter.
    pub filtered: Option<[SocketAddr; 2]>,
    /// The latest status of the metering process, and whether it is new to the sink.
    pub status: (MeteringStatus, bool),
    /// The sink has to open its file again, if that was moved.
    pub must_reopen: bool,
    /// The probe meters nothing any more.
    pub metering_ended: bool,
    timing: Timing,
}

/// Records on their way to several sinks. The last sink returns their memory to the pipeline.
pub(crate) struct RecordBatch {
    records: OnceLock<Vec<FlowRecord>>,
    /// Records that no sink has asked for, and what is to be done with them first.
    waiting: Mutex<Option<(Vec<FlowRecord>, RecordEnricher)>>,
    pub totals: RecordTotals,
    recycle: SyncSender<Vec<FlowRecord>>,
}

impl RecordBatch {
    pub fn new(
        records: Vec<FlowRecord>,
        enricher: Option<RecordEnricher>,
        recycle: SyncSender<Vec<FlowRecord>>,
    ) -> Self {
        let totals = totals(&records);
        let (records, waiting) = match enricher {
            None => (OnceLock::from(records), None),
            Some(enricher) => (OnceLock::new(), Some((records, enricher))),
        };
        Self { records, waiting: Mutex::new(waiting), totals, recycle }
    }

    /// The records. The first call enriches them; others wait for it.
    fn records(&self) -> &[FlowRecord] {
        self.records.get_or_init(|| {
            let Some((mut records, RecordEnricher(enrich))) = lock(&self.waiting).take() else { return Vec::new() };
            enrich(&mut records);
            records
        })
    }
}

pub(crate) enum Offer {
    Accepted,
    /// The queue is full, and may have free slots later.
    Full(Sender<Arc<RecordBatch>>),
    /// The thread of the sink has panicked.
    Closed,
}

impl SinkWorkers {
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut SinkWorker> {
        self.closed.iter_mut().chain(&mut self.open)
    }

    /// Counts records that no sink gets because the end of the run is over.
    pub fn lose(&mut self, records: RecordTotals) {
        self.received.merge(records);
        for sink in &mut self.open {
            sink.offered.merge(records);
            lock(&sink.state).lose(records);
        }
    }

    /// Passes the latest status to the open sinks.
    pub fn pass_status(&self) {
        for worker in &self.open {
            let mut status = self.status.clone();
            status.lost_before_sink.merge(worker.lost);
            lock(&worker.state).status = (status, true);
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
        let state = SinkState {
            counters: sink.counters().clone(),
            written: RecordTotals::default(),
            last_progress: Instant::now(),
            is_writing: false,
            cpu_time_ns: 0,
            is_finished: false,
            has_failed: false,
            abandoned: None,
            drain: None,
            expected_flows: 0,
            late: RecordTotals::default(),
            error: None,
            endpoints: sink.udp_endpoints(),
            filtered: sink.udp_endpoints(),
            status: Default::default(),
            must_reopen: false,
            metering_ended: false,
            timing,
        };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        let run = move || {
            while let Some(batch) = next_batch(&batches, &mut *sink, &shared, &timing) {
                pass_status(&mut *sink, &shared);
                let totals = batch.totals;
                if !lock(&shared).prepare(&mut *sink) {
                    lock(&shared).lose(totals);
                    continue;
                }
                let records = batch.records();
                let result = while_waiting(|| sink.write(records));
                lock(&shared).update(sink.counters(), result, totals);
            }
            // The sink has all of its records: the losses are complete.
            lock(&shared).status.1 = true;
            pass_status(&mut *sink, &shared);
            let result = while_waiting(|| sink.finish());
            let mut state = lock(&shared);
            state.update(sink.counters(), result, RecordTotals::default());
            state.is_finished = true;
        };
        const NAME: &str = "weir-export";
        let pulse = Pulse::new(format!("{NAME} of {}", lock(&state).counters.sink));
        let (heartbeat, of_thread) = (pulse.heartbeat(), state.clone());
        let thread = thread::Builder::new().name(NAME.into()).spawn(move || {
            affinity.apply();
            heartbeat.adopt(|| {
                if catch_panic(run).is_none() {
                    lock(&of_thread).fail_after_panic();
                }
            });
        })?;
        let (offered, lost) = (RecordTotals::default(), RecordTotals::default());
        let (opened_at, closed_at) = (RecordTotals::default(), None);
        Ok(Self { queue: Some(queue), offered, lost, opened_at, closed_at, state, thread: Some(thread), pulse })
    }

    /// Whether the thread has ended without an error that has to be reported.
    pub fn has_ended(&self) -> bool {
        let state = lock(&self.state);
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
        let state = lock(&self.state);
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
        if std::mem::take(&mut lock(state).must_reopen) {
            while_waiting(|| sink.reopen());
        }
        match batches.recv_timeout(timing.sink_tick) {
            Ok(batch) => {
                connect(sink, state, timing.sink_filter);
                return Some(batch);
            }
            Err(RecvTimeoutError::Timeout) => {
                pass_status(sink, state);
                while_waiting(|| sink.tick());
                lock(state).update(sink.counters(), Ok(()), RecordTotals::default());
            }
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// Connects the sink. Returns when the probe does not meter its datagrams, or after the timeout: metering
/// them would cause more datagrams.
fn connect(sink: &mut dyn Sink, state: &Mutex<SinkState>, timeout: Duration) {
    if !while_waiting(|| sink.connect()) {
        return;
    }
    let endpoints = sink.udp_endpoints();
    lock(state).endpoints = endpoints;
    let since = Instant::now();
    let must_wait = || {
        let state = lock(state);
        state.filtered != endpoints && !state.metering_ended
    };
    while must_wait() && since.elapsed() < timeout {
        beat();
        thread::sleep(Duration::from_millis(1));
    }
}

/// Notes that the sink begins to work, and passes a new status to it.
fn pass_status(sink: &mut dyn Sink, state: &Mutex<SinkState>) {
    let mut state = lock(state);
    (state.last_progress, state.is_writing) = (Instant::now(), true);
    if std::mem::take(&mut state.status.1) {
        let mut status = state.status.0.clone();
        status.lost_before_sink.merge(state.late);
        drop(state);
        sink.set_metering_status(&status);
    }
}

impl SinkState {
    fn update(&mut self, counters: &SinkCounters, result: Result<(), Error>, written: RecordTotals) {
        (self.last_progress, self.is_writing, self.cpu_time_ns) = (Instant::now(), false, cpu_time_ns());
        if self.abandoned.is_some() {
            return;
        }
        self.written.merge(written);
        self.expected_flows = self.expected_flows.saturating_sub(written.flows);
        self.counters.clone_from(counters);
        // Only the first error is kept; those after it are its consequences.
        if let Err(error) = result
            && !std::mem::replace(&mut self.has_failed, true)
        {
            self.error = Some(error);
        }
    }

    /// Begins the end of the run. The sink is to get `flows` records that it was offered before.
    pub fn start_drain(&mut self, drain: Drain, offered: RecordTotals) {
        self.drain = Some(drain);
        self.expected_flows += offered.saturating_sub(self.written).flows;
    }

    /// Announces records that a pipeline will send at its end.
    pub fn expect(&mut self, flows: u64) {
        self.expected_flows += flows;
    }

    /// Prepares the sink for a batch. Returns false if it is too late for that.
    fn prepare(&self, sink: &mut dyn Sink) -> bool {
        let Some(drain) = self.drain else { return true };
        sink.drain(self.expected_flows, drain.target);
        !drain.is_over()
    }

    /// Whether a pipeline that has waited since this time waits on until the sink accepts this number
    /// of records, while other sinks wait for more.
    pub fn is_worth_waiting(&self, drain: Drain, since: Instant, flows: u64) -> bool {
        // A sink that sends datagrams never hangs. It sleeps so that it is done at the target.
        if self.endpoints.is_some() {
            return true;
        }
        let is_stalled = self.is_writing && self.last_progress.elapsed() > self.timing.sink_stall;
        // After the target, the records have a share of half of the time left.
        let share = flows as f64 / self.expected_flows.max(flows) as f64 / 2.0;
        let left = drain.deadline.saturating_duration_since(Instant::now());
        !is_stalled && (Instant::now() < drain.target || since.elapsed() < left.mul_f64(share))
    }

    /// Counts records that the sink does not get because the end of the run is over, or would come too
    /// late for other sinks.
    pub fn lose(&mut self, records: RecordTotals) {
        self.late.merge(records);
        self.expected_flows = self.expected_flows.saturating_sub(records.flows);
    }

    /// Abandons a sink that still writes after the deadline and after `since`, when it got its last
    /// records. Returns whether it is abandoned.
    pub fn check_deadline(&mut self, since: Instant) -> bool {
        let is_over = |drain: Drain| drain.deadline.max(since).elapsed() > self.timing.drain_grace;
        if !self.is_finished && self.drain.is_some_and(is_over) {
            self.abandoned.get_or_insert(ExportLossReason::DrainTimeout);
        }
        self.abandoned.is_some()
    }

    /// Abandons the sink after a panic of its thread.
    fn fail_after_panic(&mut self) {
        (self.has_failed, self.abandoned) = (true, Some(ExportLossReason::InternalError));
        let error = io::Error::other("its thread panicked; its remaining records are lost");
        self.error.get_or_insert(Error::Io { sink: self.counters.sink.clone(), error });
    }

    /// Abandons a sink without progress for the time that it has. Returns whether it is abandoned.
    pub fn check_timeout(&mut self, since: Instant) -> bool {
        let is_stuck = || self.last_progress.max(since).elapsed() > self.timing.sink_timeout;
        if self.abandoned.is_none() && !self.is_finished && is_stuck() {
            self.abandoned = Some(ExportLossReason::ExporterBehind);
            let limit = self.timing.sink_timeout.as_secs_f64();
            let text = format!("accepted no records for {limit} s; its remaining records are lost");
            let error = io::Error::new(io::ErrorKind::TimedOut, text);
            self.error.get_or_insert(Error::Io { sink: self.counters.sink.clone(), error });
        }
        self.abandoned.is_some()
    }
}

impl Drop for RecordBatch {
    fn drop(&mut self) {
        let waiting = || lock(&self.waiting).take().map(|(records, _)| records);
        let mut records = self.records.take().or_else(waiting).unwrap_or_default();
        records.clear();
        // Fails if the pipeline has ended or has enough empty batches.
        let _ = self.recycle.try_send(records);
    }
}
