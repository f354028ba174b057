//! The handle through which a pipeline exports its records: batches to the queues of all sinks, and
//! empty batches back.

use crate::account::totals;
use crate::settings::BackPressure;
use crate::sink_worker::{Offer, RecordBatch, SinkState, SinkWorkers};
use crate::sync::lock;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use weir_flow::FlowRecord;

/// Empty batches that a pipeline gets back at most.
pub(crate) const EMPTY_BATCHES: usize = 16;
/// Time between two attempts to put a batch into a full queue.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Exports the records of one pipeline.
pub struct ExportHandle {
    sinks: Arc<Mutex<SinkWorkers>>,
    empty: Receiver<Vec<FlowRecord>>,
    recycle: SyncSender<Vec<FlowRecord>>,
    back_pressure: BackPressure,
    /// Since when the pipeline only writes its last records.
    draining_since: Option<Instant>,
}

impl ExportHandle {
    pub(crate) fn new(sinks: Arc<Mutex<SinkWorkers>>, back_pressure: BackPressure) -> Self {
        let (recycle, empty) = sync_channel(EMPTY_BATCHES);
        Self { sinks, empty, recycle, back_pressure, draining_since: None }
    }

    /// From now on waits for slow sinks: the pipeline reads no more packets.
    pub(crate) fn start_draining(&mut self) {
        self.draining_since = Some(Instant::now());
    }

    /// Exports a batch. Returns an empty one in its place: `Err` if no sink accepted the batch,
    /// which is then lost. Records that only some sinks accept count as lost for the others.
    pub(crate) fn write(&mut self, records: Vec<FlowRecord>) -> Result<Vec<FlowRecord>, Vec<FlowRecord>> {
        let capacity = records.capacity();
        let accepted = self.send_to_all(records);
        let empty = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(capacity));
        if accepted { Ok(empty) } else { Err(empty) }
    }

    fn send_to_all(&mut self, records: Vec<FlowRecord>) -> bool {
        let totals = totals(&records);
        let batch = Arc::new(RecordBatch { records, recycle: self.recycle.clone() });
        let mut sinks = lock(&self.sinks);
        let offers: Vec<_> = sinks.open.iter().map(|sink| sink.offer(&batch)).collect();
        let waits = self.back_pressure == BackPressure::Block || self.draining_since.is_some();
        let accepts = |offer: &Offer| matches!(offer, Offer::Accepted) || (waits && matches!(offer, Offer::Full(_)));
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
        for (offer, state) in offers.into_iter().zip(states) {
            if let Offer::Full(queue) = offer
                && waits
            {
                self.wait_and_send(&queue, &state, batch.clone());
            }
        }
        true
    }

    /// Waits until a batch fits into a queue. After live traffic, ends if the sink times out.
    fn wait_and_send(
        &self,
        queue: &SyncSender<Arc<RecordBatch>>,
        state: &Mutex<SinkState>,
        mut batch: Arc<RecordBatch>,
    ) {
        let Some(since) = self.draining_since.filter(|_| self.back_pressure == BackPressure::Drop) else {
            // Fails only if the sink has panicked, which `Exporter::finish` reports.
            let _ = queue.send(batch);
            return;
        };
        while let Err(TrySendError::Full(refused)) = queue.try_send(batch) {
            if lock(state).check_timeout(since) {
                return;
            }
            batch = refused;
            thread::sleep(RETRY_INTERVAL);
        }
    }
}
