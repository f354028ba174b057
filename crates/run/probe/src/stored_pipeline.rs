//! Exports records that were metered before, as a pipeline exports those of its meter.

use crate::account::{Account, totals};
use crate::exporter::export_handle::ExportHandle;
use crate::record_output::BATCH;
use weir_flow::FlowRecord;
use weir_ledger::RecordTotals;

/// Exports stored records. Their packets and octets count as received and metered.
pub struct StoredPipeline {
    handle: ExportHandle,
    batch: Vec<FlowRecord>,
    account: Account,
}

impl StoredPipeline {
    /// Records of a batch.
    pub const BATCH: usize = BATCH;

    /// A pipeline to the sinks of this handle.
    pub fn new(handle: ExportHandle) -> Self {
        Self { handle, batch: Vec::with_capacity(BATCH), account: Account::default() }
    }

    /// Exports the records that a function appends to an empty batch: up to [`Self::BATCH`]. Returns what it returns.
    pub fn export<T>(&mut self, read: impl FnOnce(&mut Vec<FlowRecord>) -> T) -> T {
        let result = read(&mut self.batch);
        if self.batch.is_empty() {
            return result;
        }
        let records = totals(&self.batch);
        self.account.add_sent(records);
        self.batch = self.handle.write(std::mem::take(&mut self.batch)).unwrap_or_else(|empty| {
            self.account.sent = self.account.sent.saturating_sub(records);
            self.account.lost.merge(records);
            empty
        });
        result
    }

    /// Counts records that were not made: the sinks have their sums.
    pub fn count(&mut self, records: RecordTotals) {
        self.account.add_sent(records);
        self.handle.count(records);
    }

    /// The account so far.
    pub fn account(&self) -> &Account {
        &self.account
    }
}
