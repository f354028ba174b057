//! What a pipeline knows of itself.

use weir_ledger::{Ledger, Records};

/// Everything but what became of the records that it sent.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Without sinks. Records live are those that were not sent.
    pub ledger: Ledger,
    /// Records handed to the exporter.
    pub sent: Records,
    /// Records that the exporter had no room for.
    pub lost: Records,
}

impl Account {
    /// The account of both halves, of which the second took in all packets that the first made.
    pub(crate) fn of(reader: &Ledger, metering: Account) -> Self {
        let mut ledger = reader.clone();
        // The meter is the one to know what it had no room for.
        ledger.packets.metered -= metering.ledger.packets.dropped_table_full;
        ledger.bytes.metered -= metering.ledger.bytes.dropped_table_full;
        ledger.merge(&metering.ledger);
        Self { ledger, ..metering }
    }

    /// Packets and octets on the wire that a meter took in.
    pub(crate) fn taken_in(&self) -> [u64; 2] {
        let (live, dropped) =
            (self.ledger.live, [self.ledger.packets.dropped_table_full, self.ledger.bytes.dropped_table_full]);
        [
            live.packets + self.sent.packets + self.lost.packets + dropped[0],
            live.bytes + self.sent.bytes + self.lost.bytes + dropped[1],
        ]
    }
}
