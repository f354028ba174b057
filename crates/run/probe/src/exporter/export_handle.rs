//! The handle through which a pipeline exports its records: batches to the queues of all sinks, and
//! empty batches back.

use super::record_batch::RecordBatch;
use super::sink_state::{Drain, SinkState};
use super::sink_worker::{Offer, SinkWorkers};
use crate::heartbeat::{beat, while_waiting};
use crate::settings::{BackPressure, RecordEnricher, RecordObserver};
use crossbeam_channel::{SendTimeoutError, Sender};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use weir_flow::FlowRecord;
use weir_ledger::RecordTotals;

/// Empty batches that a pipeline gets back at most.
pub(crate) const EMPTY_BATCHES: usize = 16;
/// Time between two attempts to put a batch into all full queues.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// A queue that was full, and the state of its sink.
type FullQueue = (Sender<Arc<RecordBatch>>, Arc<Mutex<SinkState>>);

/// Exports the records of one pipeline.
pub struct ExportHandle {
    sinks: Arc<Mutex<SinkWorkers>>,
    empty: Receiver<Vec<FlowRecord>>,
    recycle: SyncSender<Vec<FlowRecord>>,
    back_pressure: BackPressure,
    observer: Option<RecordObserver>,
    enricher: Option<RecordEnricher>,
    /// That of the records of transactions.
    pub(crate) transactions: Option<Box<ExportHandle>>,
    /// Since when the pipeline only writes its last records.
    draining_since: Option<Instant>,
}

impl ExportHandle {
    pub(super) fn new(
        sinks: Arc<Mutex<SinkWorkers>>,
        back_pressure: BackPressure,
        observer: Option<RecordObserver>,
        enricher: Option<RecordEnricher>,
    ) -> Self {
        let (recycle, empty) = sync_channel(EMPTY_BATCHES);
        Self { sinks, empty, recycle, back_pressure, observer, enricher, transactions: None, draining_since: None }
    }

    /// From now on waits for slow sinks: the pipeline reads no more packets, and has about this number
    /// of records.
    pub(crate) fn start_draining(&mut self, flows: u64) {
        self.draining_since = Some(Instant::now());
        self.sinks.lock().open.iter().for_each(|sink| sink.state.lock().expected_flows += flows);
    }

    /// Whether the sinks get no more records, because the end of the run is over.
    pub(crate) fn is_closed(&self) -> bool {
        let sinks = self.sinks.lock();
        let is_closed = |drain| sinks.open.iter().all(|sink| sink.state.lock().is_closed(drain));
        sinks.drain.is_some_and(|drain| drain.is_over() && is_closed(drain))
    }

    /// Whether most of the time for the end of the run is over.
    pub(crate) fn is_late(&self) -> bool {
        self.sinks.lock().drain.is_some_and(|drain| Instant::now() >= drain.target)
    }

    /// Counts records that no sink gets because the end of the run is over.
    pub(crate) fn lose(&self, records: RecordTotals) {
        let mut sinks = self.sinks.lock();
        if !sinks.are_pipelines_abandoned {
            sinks.lose(records);
        }
    }

    /// Exports a batch. Returns an empty one in its place: `Err` if no sink accepted the batch,
    /// which is then lost. Records that only some sinks accept count as lost for the others.
    pub(crate) fn write(&mut self, records: Vec<FlowRecord>) -> Result<Vec<FlowRecord>, Vec<FlowRecord>> {
        beat();
        if let Some(observe) = &self.observer {
            observe(&records);
        }
        let capacity = records.capacity();
        let accepted = self.send_to_all(records);
        let empty = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(capacity));
        if accepted { Ok(empty) } else { Err(empty) }
    }

    /// Counts records that the sinks have otherwise.
    pub(crate) fn count(&self, records: RecordTotals) {
        let mut sinks = self.sinks.lock();
        sinks.received.merge(records);
        for sink in &mut sinks.open {
            sink.offered.merge(records);
            sink.state.lock().written.merge(records);
        }
    }

    fn send_to_all(&mut self, records: Vec<FlowRecord>) -> bool {
        let batch = Arc::new(RecordBatch::new(records, self.enricher.clone(), self.recycle.clone()));
        let totals = batch.totals;
        let mut sinks = self.sinks.lock();
        if sinks.are_pipelines_abandoned {
            return true;
        }
        let offers: Vec<_> = sinks.open.iter().map(|sink| sink.offer(&batch)).collect();
        let waits = self.back_pressure == BackPressure::Block || self.draining_since.is_some();
        // A sink that has panicked gets the records, too, and loses them for its own reason.
        let accepts = |offer: &Offer| waits || !matches!(offer, Offer::Full(_));
        if !offers.is_empty() && !offers.iter().any(accepts) {
            return false;
        }
        sinks.received.merge(totals);
        for (sink, offer) in sinks.open.iter_mut().zip(&offers) {
            sink.offered.merge(totals);
            if !accepts(offer) {
                sink.lost.merge(totals);
            }
        }
        let states: Vec<_> = sinks.open.iter().map(|sink| sink.state.clone()).collect();
        // Unlock before waiting, so that the ledger can be read meanwhile.
        drop(sinks);
        if waits {
            let is_accepted = offers.iter().any(|offer| matches!(offer, Offer::Accepted));
            let full = |(offer, state)| if let Offer::Full(queue) = offer { Some((queue, state)) } else { None };
            let full = offers.into_iter().zip(states).filter_map(full).collect();
            while_waiting(|| self.wait_and_send(full, is_accepted, &batch));
        }
        true
    }

    /// Waits until a batch fits into each of these queues. After live traffic, does not wait for a
    /// sink that times out. At the end of the run the batch is lost for sinks that do not accept it in
    /// time, and, if a sink has accepted it, for those not worth waiting for.
    fn wait_and_send(&self, mut queues: Vec<FullQueue>, mut is_accepted: bool, batch: &Arc<RecordBatch>) {
        let live_since = self.draining_since.filter(|_| self.back_pressure == BackPressure::Drop);
        let (since, records) = (Instant::now(), batch.totals);
        while !queues.is_empty() {
            let drain = self.sinks.lock().drain;
            let mut timeout = RETRY_INTERVAL;
            queues.retain(|(queue, state)| {
                let is_late = |drain: Drain| {
                    let mut state = state.lock();
                    let keeps = drain.is_over() && !state.is_closed(drain);
                    !keeps && (drain.is_over() || is_accepted && !state.is_worth_waiting(drain, since, records.flows))
                };
                if drain.is_some_and(is_late) {
                    state.lock().lose(records);
                    return false;
                }
                // Only for the first queue, so that the others are tried meanwhile.
                let sent = queue.send_timeout(batch.clone(), std::mem::take(&mut timeout));
                is_accepted |= sent.is_ok();
                // Disconnected: the sink has panicked, which `Exporter::finish` reports.
                let is_full = matches!(sent, Err(SendTimeoutError::Timeout(_)));
                is_full && !live_since.is_some_and(|since| state.lock().check_timeout(since))
            });
        }
    }
}
