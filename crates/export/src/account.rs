//! What a piece of output carries, entered into the ledger when its fate is known.

use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters};

/// Flow records that a piece of output completes, and records as the format counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    pub flows: RecordTotals,
    pub wire_records: u64,
}

impl Carried {
    /// One flow, written as so many records.
    pub fn one(flow: &FlowRecord, wire_records: u64) -> Self {
        Self { flows: records(flow), wire_records }
    }

    pub fn merge(&mut self, other: Self) {
        self.flows.merge(other.flows);
        self.wire_records += other.wire_records;
    }

    /// The operating system took it.
    pub fn exported(self, line: &mut SinkCounters) {
        line.exported.merge(self.flows);
        line.wire_records += self.wire_records;
    }

    /// It will not arrive.
    pub fn lost(self, reason: ExportLossReason, line: &mut SinkCounters) {
        if self.flows != RecordTotals::default() {
            line.add_lost(reason, self.flows);
        }
    }

    /// It was counted as exported, and then turned out to be lost.
    pub fn take_back(self, reason: ExportLossReason, line: &mut SinkCounters) {
        line.exported.flows -= self.flows.flows;
        line.exported.packets -= self.flows.packets;
        line.exported.bytes -= self.flows.bytes;
        line.wire_records -= self.wire_records;
        self.lost(reason, line);
    }
}

/// A flow as the ledger counts it.
pub(crate) fn records(flow: &FlowRecord) -> RecordTotals {
    let mut records = RecordTotals::default();
    records.add(flow.packets(), flow.frame_bytes());
    records
}
