//! Flow records in a piece of output, counted in the ledger when the outcome of the output is
//! known.

use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters};

/// Flow records that a piece of output completes, and their number as the format counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingRecords {
    pub flows: RecordTotals,
    pub wire_records: u64,
}

impl PendingRecords {
    /// One flow, written as `wire_records` records.
    pub fn of_flow(flow: &FlowRecord, wire_records: u64) -> Self {
        Self { flows: totals(flow), wire_records }
    }

    pub fn merge(&mut self, other: Self) {
        self.flows.merge(other.flows);
        self.wire_records += other.wire_records;
    }

    /// The operating system accepted the output.
    pub fn count_exported(self, counters: &mut SinkCounters) {
        counters.exported.merge(self.flows);
        counters.wire_records += self.wire_records;
    }

    /// The output is lost.
    pub fn count_lost(self, reason: ExportLossReason, counters: &mut SinkCounters) {
        if self.flows != RecordTotals::default() {
            counters.add_lost(reason, self.flows);
        }
    }

    /// The output was counted as exported and is now known to be lost.
    pub fn revoke_exported(self, reason: ExportLossReason, counters: &mut SinkCounters) {
        counters.exported.flows -= self.flows.flows;
        counters.exported.packets -= self.flows.packets;
        counters.exported.bytes -= self.flows.bytes;
        counters.wire_records -= self.wire_records;
        self.count_lost(reason, counters);
    }
}

pub(crate) fn totals(flow: &FlowRecord) -> RecordTotals {
    let mut totals = RecordTotals::default();
    totals.add(flow.packets(), flow.frame_bytes());
    totals
}
