//! What a pipeline knows of itself.

use weir_ledger::{Ledger, RecordTotals};

/// Everything but what became of the records that it sent.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Without sinks. Records live are those that were not sent.
    pub ledger: Ledger,
    /// Records handed to the exporter.
    pub sent: RecordTotals,
    /// Records that no sink had room for.
    pub lost: RecordTotals,
}

impl Account {
    /// Adds another one's.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.ledger.merge(&other.ledger);
        self.sent.merge(other.sent);
        self.lost.merge(other.lost);
    }

    /// The account of both halves, of which the second took in all packets that the first made.
    pub(crate) fn of(reader: &Ledger, metering: Account) -> Self {
        let mut ledger = reader.clone();
        // The meter is the one to know what it had no room for.
        ledger.packets.metered -= metering.ledger.packets.dropped_table_full;
        ledger.bytes.metered -= metering.ledger.bytes.dropped_table_full;
        ledger.merge(&metering.ledger);
        Self { ledger, ..metering }
    }

    /// The same if the second half is behind: what is on its way between them does not count yet.
    pub(crate) fn of_halves(reader: &Ledger, metering: Account) -> Self {
        let mut reader = reader.clone();
        let [packets, octets] = metering.taken_in();
        for (line, taken_in) in [(&mut reader.packets, packets), (&mut reader.bytes, octets)] {
            // The first half may have been asked before: then the second knows of more.
            line.received = (line.received + taken_in).saturating_sub(line.metered);
            line.metered = taken_in;
        }
        Self::of(&reader, metering)
    }

    /// Packets and octets on the wire that a meter took in.
    fn taken_in(&self) -> [u64; 2] {
        let Ledger { packets, bytes, live, .. } = &self.ledger;
        let of =
            |records: fn(&RecordTotals) -> u64| [live, &self.sent, &self.lost].into_iter().map(records).sum::<u64>();
        [
            of(|records| records.packets) + packets.dropped_table_full,
            of(|records| records.bytes) + bytes.dropped_table_full,
        ]
    }
}
