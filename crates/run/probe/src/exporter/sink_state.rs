//! What became of the records that a sink got, and the time that it has for the last ones.

use crate::thread::cpu_time_ns;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use weir_export::{Error, MeteringStatus, Sink, Watch};
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

/// What a sink had done after its last whole batch.
pub(crate) struct SinkState {
    pub(super) counters: SinkCounters,
    pub(super) written: RecordTotals,
    /// When the sink last began or ended a batch.
    pub(super) last_progress: Instant,
    /// Whether it has begun a batch and not ended it.
    pub(super) is_writing: bool,
    pub cpu_time_ns: u64,
    /// The sink was finished and holds no records back.
    pub(super) is_finished: bool,
    pub has_failed: bool,
    /// The sink has timed out or panicked. Records that it has not reported are lost, for this
    /// reason.
    pub(super) abandoned: Option<ExportLossReason>,
    /// See [`SinkWorkers::drain`].
    pub(super) drain: Option<Drain>,
    /// About how many records the sink gets until the end, once the end has begun.
    pub(super) expected_flows: u64,
    /// Offered records that the sink did not get because the end was over, or the other sinks would
    /// have waited too long.
    pub(super) late: RecordTotals,
    pub error: Option<Error>,
    /// Local and remote address of the datagrams of the sink.
    pub endpoints: Option<[SocketAddr; 2]>,
    /// Those that the probe does not meter.
    pub filtered: Option<[SocketAddr; 2]>,
    /// The latest status of the metering process, and whether it is new to the sink.
    pub status: (MeteringStatus, bool),
    /// The sink has to open its file again, if that was moved.
    pub must_reopen: bool,
    pub(super) watch: Watch,
    /// [`Watch::steps`] when it was last looked at.
    steps: u64,
    /// The probe meters nothing any more.
    pub metering_ended: bool,
    pub(super) timing: Timing,
}

impl SinkState {
    pub fn new(sink: &dyn Sink, timing: Timing) -> Self {
        Self {
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
            watch: Watch::default(),
            steps: 0,
            metering_ended: false,
            timing,
        }
    }

    pub(super) fn update(&mut self, counters: &SinkCounters, result: Result<(), Error>, written: RecordTotals) {
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

    /// Prepares the sink for a batch, or for its end. Returns false if it is too late for a batch. It is never for a
    /// sink that keeps records, which waits for nothing then.
    pub(super) fn prepare(&self, sink: &mut dyn Sink) -> bool {
        let Some(drain) = self.drain else { return true };
        sink.drain(self.expected_flows, drain.target);
        if drain.is_over() && self.watch.keeps() {
            self.watch.end();
        }
        !drain.is_over() || self.watch.keeps() && self.abandoned.is_none()
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

    /// Ends a sink that still writes after the deadline and after `since`, when it got its last records. Abandons it if
    /// it does not end soon. Returns whether it is abandoned.
    pub fn check_deadline(&mut self, since: Instant) -> bool {
        let end =
            self.drain.filter(|drain| !self.is_finished && drain.is_over()).map(|drain| drain.deadline.max(since));
        if let Some(end) = end {
            self.watch.end();
            if end.elapsed() > self.grace() {
                self.abandoned.get_or_insert(ExportLossReason::DrainTimeout);
            }
        }
        self.abandoned.is_some()
    }

    /// Whether the sink gets no more records, because the end of the run is over. One that keeps them gets them for the
    /// time that it has for its own end.
    pub fn is_closed(&mut self, drain: Drain) -> bool {
        drain.is_over() && (!self.watch.keeps() || self.check_deadline(drain.deadline))
    }

    /// Whether the sink keeps what its collector does not take.
    pub fn keeps(&self) -> bool {
        self.watch.keeps()
    }

    /// The time for a sink that was asked to end.
    pub fn grace(&self) -> Duration {
        if self.watch.is_saving() || self.watch.keeps() { self.timing.sink_save } else { self.timing.drain_grace }
    }

    /// Abandons the sink after a panic of its thread.
    pub(super) fn fail_after_panic(&mut self) {
        (self.has_failed, self.abandoned) = (true, Some(ExportLossReason::InternalError));
        let error = io::Error::other("its thread panicked; its remaining records are lost");
        self.error.get_or_insert(Error::Io { sink: self.counters.sink.clone(), error });
    }

    /// Ends a sink without progress for the time that it has. Abandons it if it does not end soon. Returns whether it is
    /// abandoned.
    pub fn check_timeout(&mut self, since: Instant) -> bool {
        let steps = self.watch.steps();
        if std::mem::replace(&mut self.steps, steps) != steps {
            self.last_progress = Instant::now();
        }
        let without_progress = self.last_progress.max(since).elapsed();
        let over = without_progress.checked_sub(self.timing.sink_timeout).filter(|_| !self.is_finished);
        if over.is_some() {
            self.watch.end();
        }
        if self.abandoned.is_none() && over.is_some_and(|over| over > self.grace()) {
            self.abandoned = Some(ExportLossReason::ExporterBehind);
            let limit = self.timing.sink_timeout.as_secs_f64();
            let text = format!("accepted no records for {limit} s; its remaining records are lost");
            let error = io::Error::new(io::ErrorKind::TimedOut, text);
            self.error.get_or_insert(Error::Io { sink: self.counters.sink.clone(), error });
        }
        self.abandoned.is_some()
    }
}
