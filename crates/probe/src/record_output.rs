//! Collects the records of one meter and exports them in batches.

use crate::account::totals;
use crate::export_handle::ExportHandle;
use crate::record_annotator::RecordAnnotator;
use std::time::{Duration, Instant};
use weir_flow::FlowRecord;
use weir_ledger::RecordTotals;

/// Records of a batch.
pub(crate) const BATCH: usize = 128;
/// Records that wait for loss snapshots of their readers, at most about.
const MAX_WAITING: usize = 64 * BATCH;
/// While the pipeline is idle, records are exported after this time even if the batch is not full.
/// Together with the time until the end of a flow is noticed this is below a second.
const EXPORT_INTERVAL: Duration = Duration::from_millis(250);

/// Records on their way from a meter to the exporter.
pub(crate) struct RecordOutput {
    /// The meter appends records here.
    pub records: Vec<FlowRecord>,
    /// The latest end of a flow among the first `measured` records, ns.
    end_ns: u64,
    measured: usize,
    /// When records were exported last.
    exported: Instant,
    is_overdue: bool,
    handle: ExportHandle,
    /// Records that at least one sink accepted.
    pub sent: RecordTotals,
    /// Records that no sink accepted.
    pub lost: RecordTotals,
}

impl RecordOutput {
    pub fn new(handle: ExportHandle) -> Self {
        Self {
            records: Vec::with_capacity(2 * BATCH),
            measured: 0,
            end_ns: 0,
            exported: Instant::now(),
            is_overdue: false,
            handle,
            sent: RecordTotals::default(),
            lost: RecordTotals::default(),
        }
    }

    /// Whether records should be exported: a batch is full, or they have waited too long.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.records.len() >= BATCH || self.is_overdue
    }

    /// Checks whether records have waited too long. For idle pipelines.
    pub fn check_overdue(&mut self, now: Instant) {
        self.is_overdue = now - self.exported >= EXPORT_INTERVAL;
    }

    /// Returns whether the number of waiting records has reached its limit, so that they must be
    /// exported now.
    pub fn limit_reached(&self) -> bool {
        self.records.len() >= MAX_WAITING
    }

    /// The latest end of a flow of all records, ns.
    pub fn latest_end_ns(&mut self) -> u64 {
        let new = &self.records[self.measured..];
        self.end_ns = new.iter().map(FlowRecord::end_ns).fold(self.end_ns, u64::max);
        self.measured = self.records.len();
        self.end_ns
    }

    /// From now on waits for slow sinks: there are no more packets.
    pub fn start_draining(&mut self) {
        self.handle.start_draining();
    }

    /// Annotates and exports all records.
    pub fn export(&mut self, annotator: &mut RecordAnnotator) {
        if !self.records.is_empty() {
            annotator.annotate(&mut self.records);
            let batch = std::mem::take(&mut self.records);
            let totals = totals(&batch);
            let (counters, empty) = match self.handle.write(batch) {
                Ok(empty) => (&mut self.sent, empty),
                Err(empty) => (&mut self.lost, empty),
            };
            counters.merge(totals);
            self.records = empty;
        }
        (self.measured, self.end_ns) = (0, 0);
        (self.exported, self.is_overdue) = (Instant::now(), false);
    }
}
