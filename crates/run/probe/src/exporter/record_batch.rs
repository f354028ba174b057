//! Records on their way from a pipeline to all sinks, and their enrichment in between.

use crate::account::totals;
use crate::settings::RecordEnricher;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::mpsc::SyncSender;
use weir_flow::FlowRecord;
use weir_ledger::RecordTotals;

/// Records on their way to several sinks. The last sink returns their memory to the pipeline.
pub(crate) struct RecordBatch {
    records: OnceLock<Vec<FlowRecord>>,
    /// Records that are not enriched yet, and how they will be.
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

    /// Enriches the records, unless another sink has done it or does it now: then waits for that one.
    pub fn enrich(&self) {
        self.records.get_or_init(|| {
            let Some((mut records, enrich)) = self.waiting.lock().take() else { return Vec::new() };
            enrich(&mut records);
            records
        });
    }

    /// The records; none before [`RecordBatch::enrich`].
    pub fn records(&self) -> &[FlowRecord] {
        self.records.get().map_or(&[], Vec::as_slice)
    }
}

impl Drop for RecordBatch {
    fn drop(&mut self) {
        let waiting = || self.waiting.lock().take().map(|(records, _)| records);
        let mut records = self.records.take().or_else(waiting).unwrap_or_default();
        records.clear();
        // Fails if the pipeline has ended or has enough empty batches.
        let _ = self.recycle.try_send(records);
    }
}
