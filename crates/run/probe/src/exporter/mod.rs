//! Exports records: every sink runs on a thread of its own and gets the batches of all pipelines.
//!
//! ```text
//! pipelines -> batch ─┬─> queue -> sink
//!           <- empty ─┴─> queue -> sink
//! ```
//! A sink gets the batches of each pipeline in order. Sinks share the memory of a batch, and the
//! pipeline reuses it. If a sink is slower than the pipelines, either these wait for it, or that
//! sink alone loses records; each lost record is counted. Sinks publish their counters after every
//! batch, so that the ledger balances at any moment.

pub(crate) mod export_handle;
mod record_batch;
mod sink_state;
mod sink_worker;

use crate::account::Account;
use crate::heartbeat::Pulse;
use crate::load_shedder::{ShedOrder, population};
use crate::record_output::MAX_BATCH;
use crate::settings::{BackPressure, RecordEnricher, RecordObserver, Settings};
use crate::thread::CpuAffinity;
pub use export_handle::ExportHandle;
use parking_lot::Mutex;
use sink_worker::{SinkWorker, SinkWorkers};
use std::io;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use weir_export::{Error, MeteringStatus, Sink};
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, Ledger, RecordTotals, Timing};

/// Batches in the queue of a sink that pipelines wait for: few, so that they stay in the CPU cache.
const QUEUE_BATCHES: usize = 8;
/// Batches in the queue of a sink that may lose records. A full batch has 128 to 256 records; the
/// queue holds about as many records as may end at once.
const QUEUE_BATCHES_LIVE: usize = 512;
/// Batches in the queue of a sink of transactions, at most.
const QUEUE_BATCHES_TRANSACTIONS: usize = 128;
/// Time between two checks whether a thread has finished.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Returns the deadline of the end of the run as soon as it is known.
pub(crate) type Deadline<'a> = &'a mut dyn FnMut() -> Option<Instant>;

/// The running sinks.
pub struct Exporter {
    sinks: Arc<Mutex<SinkWorkers>>,
    affinity: CpuAffinity,
    back_pressure: BackPressure,
    observer: Option<RecordObserver>,
    enricher: Option<RecordEnricher>,
    shed: ShedOrder,
    timing: Timing,
    /// The sinks of the records of transactions.
    transactions: Option<Box<Exporter>>,
}

/// One entry of the new list of sinks in [`Probe::reconfigure`](crate::Probe::reconfigure).
pub enum SinkChange {
    /// Keep the sink that has this index in the old list.
    Keep(usize),
    /// Add this sink.
    Open(Box<dyn Sink + Send>),
}

/// What a [`SinkChange`] has led to: the worker of a new sink, or an index in the old list.
pub(crate) type StartedSink = Result<SinkWorker, usize>;

impl Exporter {
    /// Batches in the queue of a sink, unless the settings say otherwise.
    pub fn queue_batches(back_pressure: BackPressure) -> usize {
        match back_pressure {
            BackPressure::Block => QUEUE_BATCHES,
            BackPressure::Drop => QUEUE_BATCHES_LIVE,
        }
    }

    /// Memory that this number of sinks can hold in their queues and in the batches that they write,
    /// bytes. Sinks share a batch, but slow ones may lag behind at different places.
    pub fn memory_bytes_for(sinks: usize, queue_batches: usize) -> usize {
        sinks * (queue_batches + 1) * MAX_BATCH * size_of::<FlowRecord>()
    }

    /// Starts a thread for each sink, with the length of queues, the observer, the enricher and the
    /// times of the settings. A panic of a sink is reported as its error.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn new(
        sinks: Vec<Box<dyn Sink + Send>>,
        affinity: CpuAffinity,
        back_pressure: BackPressure,
        settings: &Settings,
    ) -> io::Result<Self> {
        let Settings { queue_batches, observer, enricher, shed, timing, .. } = settings;
        let (observer, enricher, shed, timing) = (observer.clone(), enricher.clone(), *shed, *timing);
        let transactions = None;
        let exporter =
            Self { sinks: Arc::default(), affinity, back_pressure, observer, enricher, shed, timing, transactions };
        let changes = sinks.into_iter().map(SinkChange::Open).collect();
        exporter.replace_sinks(exporter.start_sinks(changes, *queue_batches)?);
        Ok(exporter)
    }

    /// Adds sinks for the records of transactions: call it before [`Exporter::handle`]. They have threads and
    /// queues of their own, and lose records for themselves.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn with_transactions(mut self, sinks: Vec<Box<dyn Sink + Send>>, settings: &Settings) -> io::Result<Self> {
        let queue_batches = Some(Self::transaction_batches(self.back_pressure));
        let enricher = settings.transaction_enricher.clone();
        let settings = Settings { observer: None, queue_batches, enricher, ..settings.clone() };
        let exporter = Self::new(sinks, self.affinity.clone(), self.back_pressure, &settings)?;
        self.transactions = Some(Box::new(exporter));
        Ok(self)
    }

    /// Batches in the queue of a sink of transactions.
    pub fn transaction_batches(back_pressure: BackPressure) -> usize {
        Self::queue_batches(back_pressure).min(QUEUE_BATCHES_TRANSACTIONS)
    }

    /// A handle for one more pipeline.
    pub fn handle(&self) -> ExportHandle {
        let (observer, enricher) = (self.observer.clone(), self.enricher.clone());
        let mut handle = ExportHandle::new(self.sinks.clone(), self.back_pressure, observer, enricher);
        handle.transactions = self.transactions.as_ref().map(|transactions| Box::new(transactions.handle()));
        handle
    }

    /// Starts the threads of new sinks, which get no records before [`Exporter::replace_sinks`].
    ///
    /// # Errors
    /// The system cannot start a thread. The sinks are then closed.
    pub(crate) fn start_sinks(
        &self,
        changes: Vec<SinkChange>,
        queue_batches: Option<usize>,
    ) -> io::Result<Vec<StartedSink>> {
        let queue_batches = queue_batches.unwrap_or(Self::queue_batches(self.back_pressure));
        let start = |change| match change {
            SinkChange::Keep(number) => Ok(Err(number)),
            SinkChange::Open(sink) => {
                SinkWorker::start(sink, self.affinity.clone(), queue_batches, self.timing).map(Ok)
            }
        };
        changes.into_iter().map(start).collect()
    }

    /// Replaces the open sinks by a new list. Old sinks that are not kept are finished after the
    /// records in their queues.
    pub(crate) fn replace_sinks(&self, started: Vec<StartedSink>) {
        let mut sinks = self.sinks.lock();
        let mut old: Vec<_> = std::mem::take(&mut sinks.open).into_iter().map(Some).collect();
        let received = sinks.received;
        let opened = |worker| SinkWorker { opened_at: received, ..worker };
        let new = |started: StartedSink| match started {
            Ok(worker) => Some(opened(worker)),
            Err(number) => old.get_mut(number)?.take(),
        };
        sinks.open = started.into_iter().filter_map(new).collect();
        sinks.pass_status();
        sinks.close(old.into_iter().flatten().collect());
    }

    /// Passes the status of the metering process to the sinks, which report it to collectors:
    /// what the accounts of all pipelines count, that 1 in `sampling_population` packets is metered
    /// without overload, and the numbers and names of interfaces.
    pub fn report_status<'a>(
        &self,
        accounts: impl IntoIterator<Item = &'a Account>,
        sampling_population: u32,
        interfaces: Vec<(u32, String)>,
    ) {
        let mut sum = Account::default();
        accounts.into_iter().for_each(|account| sum.merge(account));
        let Account { ledger, lost, .. } = sum;
        let mut sinks = self.sinks.lock();
        sinks.status = MeteringStatus {
            sampling_population: population(ledger.overload.level, self.shed, sampling_population.max(1)),
            ignored_packets: ledger.packets.ignored(),
            ignored_octets: ledger.bytes.ignored(),
            interfaces,
            lost_before_sink: lost,
        };
        sinks.pass_status();
    }

    /// Begins the end of the run: records that a sink has not accepted at `deadline` are lost. Later calls have
    /// an effect only with an earlier deadline.
    pub(crate) fn drain_until(&self, deadline: Instant) {
        self.sinks.lock().drain_until(deadline);
        self.transactions.iter().for_each(|transactions| transactions.drain_until(deadline));
    }

    /// A function for another thread: from then on nothing waits for a sink that accepts nothing, and others have the
    /// time `last_records` of the settings for what is left. What a sink has not accepted by then is lost
    /// (`drain_timeout`).
    pub fn end_soon(&self) -> impl Fn() + Send + 'static {
        let transactions = self.transactions.iter().map(|transactions| transactions.sinks.clone());
        let sinks: Vec<_> = [self.sinks.clone()].into_iter().chain(transactions).collect();
        let time = self.timing.last_records;
        move || sinks.iter().for_each(|sinks| sinks.lock().drain_until(Instant::now() + time))
    }

    /// The time after the deadline of [`Exporter::drain_until`] in which sinks take records, and end.
    pub(crate) fn grace(&self) -> Duration {
        let of_sinks = self.sinks.lock().open.iter().map(|sink| sink.state.lock().grace()).max();
        of_sinks.unwrap_or(self.timing.drain_grace)
    }

    /// Ends the export of a pipeline that was abandoned, from its last account. `sent` are the records
    /// that all pipelines have sent by their accounts. Records in its flow cache are lost.
    pub(crate) fn abandon(&self, account: &mut Account, sent: RecordTotals) {
        let mut sinks = self.sinks.lock();
        sinks.are_pipelines_abandoned = true;
        if let Some(transactions) = &self.transactions {
            transactions.sinks.lock().are_pipelines_abandoned = true;
        }
        account.add_sent(sinks.received.saturating_sub(sent));
        let rest = std::mem::take(&mut account.ledger.live);
        sinks.lose(rest);
        account.sent.merge(rest);
    }

    /// Finishes every sink. To be called after all pipelines have finished. After live traffic, a sink that accepts no
    /// records for 10 s is abandoned. One with a spool has to keep its records there then, also of captures. After
    /// [`Exporter::end_soon`], each that is still writing is abandoned.
    ///
    /// # Panics
    /// If a sink has panicked.
    pub fn finish(&mut self) {
        self.finish_until(None);
    }

    /// The same. `deadline` is called again and again; see [`Exporter::drain_until`].
    pub(crate) fn finish_until(&mut self, deadline: Option<Deadline<'_>>) {
        if let Some(panic) = self.join(deadline) {
            resume_unwind(panic);
        }
    }

    /// Waits for the threads of all sinks. Returns the panic of a sink.
    fn join(&mut self, mut deadline: Option<Deadline<'_>>) -> Option<Box<dyn std::any::Any + Send>> {
        let panic = self.join_own(&mut deadline);
        let others = self.transactions.as_mut().and_then(|transactions| transactions.join_own(&mut deadline));
        panic.or(others)
    }

    fn join_own(&mut self, deadline: &mut Option<Deadline<'_>>) -> Option<Box<dyn std::any::Any + Send>> {
        let since = Instant::now();
        let mut threads = Vec::new();
        for worker in self.sinks.lock().all_mut() {
            worker.queue = None;
            worker.state.lock().metering_ended = true;
            threads.extend(worker.thread.take().map(|thread| (thread, worker.state.clone())));
        }
        let may_time_out = self.back_pressure == BackPressure::Drop;
        let mut panic = None;
        for (thread, state) in threads {
            let is_abandoned = || {
                let mut state = state.lock();
                let may_time_out = may_time_out || state.keeps();
                state.check_deadline(since) || (may_time_out && state.check_timeout(since))
            };
            while !thread.is_finished() && !is_abandoned() {
                let known = deadline.as_mut().and_then(|deadline| deadline());
                known.into_iter().for_each(|deadline| self.drain_until(deadline));
                thread::sleep(CHECK_INTERVAL);
            }
            if !is_abandoned() {
                panic = thread.join().err().or(panic);
            }
        }
        panic
    }

    /// The ledger of the whole run, from the accounts of all pipelines. These must be stopped, or
    /// `accounts` must take their accounts when it is iterated: after those of the sinks, so that
    /// no record is counted as received before it is counted as sent.
    pub fn ledger(&self, accounts: impl IntoIterator<Item = Account>) -> Ledger {
        let sinks = self.sinks.lock();
        let (received, mut ledger) = (sinks.received, Ledger { sinks: sinks.counters(), ..Ledger::default() });
        drop(sinks);
        let transactions = self.transactions.as_ref().map(|transactions| {
            let sinks = transactions.sinks.lock();
            (sinks.received.flows, sinks.are_pipelines_abandoned, sinks.counters())
        });
        let mut sum = Account::default();
        for account in accounts {
            ledger.merge(&account.ledger);
            sum.merge_exports(&account);
        }
        ledger.live.merge(sum.sent.saturating_sub(received));
        if sum.lost.flows > 0 {
            ledger.sinks.iter_mut().for_each(|sink| sink.add_lost(ExportLossReason::ExporterBehind, sum.lost));
        }
        if let Some((received, is_abandoned, sinks)) = transactions {
            let counters = ledger.transactions.get_or_insert_default();
            let lost = sum.lost_transactions;
            counters.sinks = sinks;
            if is_abandoned {
                // Those of a pipeline that hangs are in no record. What it has sent since its last report is.
                (counters.begun, counters.open) = (counters.left_out + lost + received, 0);
            } else {
                counters.open += sum.sent_transactions.saturating_sub(received);
            }
            if lost > 0 {
                let lost = RecordTotals { flows: lost, ..RecordTotals::default() };
                counters.sinks.iter_mut().for_each(|sink| sink.add_lost(ExportLossReason::ExporterBehind, lost));
            }
        }
        ledger
    }

    /// CPU time of the thread of each open sink up to its last whole batch, ns.
    pub fn cpu_time_ns(&self) -> Vec<u64> {
        self.sinks.lock().open.iter().map(|worker| worker.state.lock().cpu_time_ns).collect()
    }

    /// Local and remote address of the datagrams of each open sink that sends some.
    pub(crate) fn udp_endpoints(&self) -> Vec<Option<[SocketAddr; 2]>> {
        self.sinks.lock().open.iter().map(|worker| worker.state.lock().endpoints).collect()
    }

    /// Confirms that the probe does not meter the datagrams of [`Exporter::udp_endpoints`].
    pub(crate) fn confirm_filtered(&self, endpoints: &[Option<[SocketAddr; 2]>]) {
        for (worker, &endpoints) in self.sinks.lock().open.iter().zip(endpoints) {
            worker.state.lock().filtered = endpoints;
        }
    }

    /// Number of sinks that were closed and still have records in their queues.
    pub fn closing_sinks(&self) -> usize {
        self.sinks.lock().closed.iter().filter(|worker| !worker.has_ended()).count()
    }

    /// Lets all open sinks open their files again that another program has moved or removed.
    pub fn reopen_files(&self) {
        self.sinks.lock().open.iter().for_each(|worker| worker.state.lock().must_reopen = true);
        self.transactions.iter().for_each(|transactions| transactions.reopen_files());
    }

    /// Whether there are sinks and all of them have failed.
    pub fn all_sinks_failed(&self) -> bool {
        let open = &self.sinks.lock().open;
        !open.is_empty() && open.iter().all(|worker| worker.state.lock().has_failed)
    }

    /// Calls a function with the pulses of all sink threads.
    pub(crate) fn check_pulses(&self, mut check: impl FnMut(&mut Pulse)) {
        for exporter in [self].into_iter().chain(self.transactions.as_deref()) {
            exporter.sinks.lock().all_mut().map(|worker| &mut worker.pulse).for_each(&mut check);
        }
    }

    /// Errors of failed sinks; each is returned once.
    pub fn take_errors(&self) -> Vec<Error> {
        let mut errors = Vec::new();
        for exporter in [self].into_iter().chain(self.transactions.as_deref()) {
            errors.extend(exporter.sinks.lock().all_mut().filter_map(|worker| worker.state.lock().error.take()));
        }
        errors
    }
}

impl Drop for Exporter {
    /// Waits for the threads of an exporter that was not finished.
    fn drop(&mut self) {
        self.join(None);
    }
}

#[cfg(test)]
mod tests;
