//! What a pipeline reports about itself, and how the reports of its two stages are combined.

use weir_flow::FlowRecord;
use weir_ledger::{Ledger, RecordTotals, TrafficCounters};

/// The counters of a pipeline, without what became of the records that it sent to the sinks.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Packets, octets and flows. Its `live` records are those not yet sent; it has no sinks.
    pub ledger: Ledger,
    /// Records sent to the exporter.
    pub sent: RecordTotals,
    /// Records dropped because the queues of all sinks were full.
    pub lost: RecordTotals,
    /// Records of transactions sent to the exporter. They are not among the others.
    pub sent_transactions: u64,
    /// Those dropped because the queues of all their sinks were full.
    pub lost_transactions: u64,
}

impl Account {
    /// Adds the counters of another pipeline or stage.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.ledger.merge(&other.ledger);
        self.merge_exports(other);
    }

    /// Adds the records that another pipeline exported.
    pub(crate) fn merge_exports(&mut self, other: &Self) {
        self.sent.merge(other.sent);
        self.lost.merge(other.lost);
        self.sent_transactions += other.sent_transactions;
        self.lost_transactions += other.lost_transactions;
    }

    /// The account of a pipeline whose meter has processed every packet that the reader decoded.
    pub(crate) fn combined(reader: &Ledger, meter: Account) -> Self {
        let mut ledger = reader.clone();
        // The reader counts all decoded packets as metered; the meter counts what it drops.
        ledger.packets.metered -= meter.ledger.packets.dropped_cache_full;
        ledger.bytes.metered -= meter.ledger.bytes.dropped_cache_full;
        ledger.merge(&meter.ledger);
        Self { ledger, ..meter }
    }

    /// The same if packets are in the queues between reader and meter: these do not count yet.
    pub(crate) fn combined_in_transit(reader: &Ledger, meter: Account) -> Self {
        // The reader may have reported before the meter, which has then processed more.
        Self::combined_as_processed(reader, meter, |counters, processed| {
            counters.received = (counters.received + processed).saturating_sub(counters.metered);
        })
    }

    /// The same after a panic of the reader or the meter. Packets in no record count as lost by
    /// Weir, and flow records that were not exported do not count.
    pub(crate) fn combined_after_panic(reader: &Ledger, mut meter: Account) -> Self {
        meter.ledger.live = RecordTotals::default();
        meter.ledger.flows_created = meter.sent.flows + meter.lost.flows;
        let exported = meter.sent_transactions + meter.lost_transactions;
        if let Some(transactions) = &mut meter.ledger.transactions {
            (transactions.begun, transactions.open) = (transactions.left_out + exported, 0);
        }
        Self::combined_with_losses(reader, meter)
    }

    /// The same if nothing comes from the queues between reader and meter any more. Packets in no
    /// record count as lost by Weir.
    pub(crate) fn combined_with_losses(reader: &Ledger, meter: Account) -> Self {
        // A reader that panics or is stuck has sent packets that it has not counted.
        Self::combined_as_processed(reader, meter, |counters, processed| {
            counters.received += processed.saturating_sub(counters.metered);
            counters.dropped_queue += counters.metered.saturating_sub(processed);
        })
    }

    /// What the meter has processed is metered. `settle` changes the other counters of the reader.
    fn combined_as_processed(reader: &Ledger, meter: Account, settle: fn(&mut TrafficCounters, u64)) -> Self {
        let mut reader = reader.clone();
        let [packets, bytes] = meter.processed();
        for (counters, processed) in [(&mut reader.packets, packets), (&mut reader.bytes, bytes)] {
            settle(counters, processed);
            counters.metered = processed;
        }
        Self::combined(&reader, meter)
    }

    /// For the sum of several meters, one of which hangs: its last report may be from before flows migrated
    /// to another meter, or came from one, so that their records are in both reports or in none. Afterwards
    /// each flow that was created is in one record. `decoded` are the packets and octets that the meters
    /// got, if the readers have ended: no more are in records.
    pub(crate) fn settle_migrations(&mut self, decoded: Option<[u64; 2]>) {
        let mut done = self.sent;
        done.merge(self.lost);
        let Ledger { packets, bytes, live, flows_created, .. } = &mut self.ledger;
        *flows_created = done.flows.max(*flows_created);
        live.flows = *flows_created - done.flows;
        if live.flows == 0 {
            *live = RecordTotals::default();
        } else if let Some([all_packets, all_bytes]) = decoded {
            live.packets = live.packets.min(all_packets.saturating_sub(done.packets + packets.dropped_cache_full));
            live.bytes = live.bytes.min(all_bytes.saturating_sub(done.bytes + bytes.dropped_cache_full));
        }
    }

    /// Counts records that the pipeline has sent since this report.
    pub(crate) fn add_sent(&mut self, records: RecordTotals) {
        let Ledger { packets, bytes, live, flows_created, .. } = &mut self.ledger;
        let new = records.saturating_sub(*live);
        *live = live.saturating_sub(records);
        *flows_created += new.flows;
        for (counters, new) in [(packets, new.packets), (bytes, new.bytes)] {
            counters.received += new;
            counters.metered += new;
        }
        self.sent.merge(records);
    }

    /// Packets and octets that a meter has processed.
    fn processed(&self) -> [u64; 2] {
        let Ledger { packets, bytes, live, .. } = &self.ledger;
        let sum = |field: fn(&RecordTotals) -> u64| [live, &self.sent, &self.lost].into_iter().map(field).sum::<u64>();
        [
            sum(|records| records.packets) + packets.dropped_cache_full,
            sum(|records| records.bytes) + bytes.dropped_cache_full,
        ]
    }
}

/// Counts records with their packets and octets.
pub(crate) fn totals(records: &[FlowRecord]) -> RecordTotals {
    let mut totals = RecordTotals::default();
    records.iter().for_each(|record| totals.add(record.packets(), record.frame_bytes()));
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(flows: u64, packets: u64) -> RecordTotals {
        RecordTotals { flows, packets, bytes: 100 * packets }
    }

    /// The account of two meters that got 100 packets of 10 flows, of which the first has reported nothing
    /// since it had 4 flows with 40 packets.
    fn settled(live: RecordTotals, sent: RecordTotals, flows_created: u64) -> (RecordTotals, u64) {
        let mut sum = Account { sent, ..Account::default() };
        (sum.ledger.live, sum.ledger.flows_created) = (live, flows_created);
        sum.settle_migrations(Some([100, 10_000]));
        (sum.ledger.live, sum.ledger.flows_created)
    }

    #[test]
    fn each_flow_that_was_created_is_in_one_record_after_migrations_that_were_not_reported() {
        // The second meter has sent 8 flows, 2 of which came from the first one.
        assert_eq!(settled(records(4, 40), records(8, 70), 10), (records(2, 30), 10));
        // All 4 came from it.
        assert_eq!(settled(records(4, 40), records(10, 100), 10), (records(0, 0), 10));
        // Besides, one came from it that it created after its report.
        assert_eq!(settled(records(4, 40), records(10, 100), 9), (records(0, 0), 10));
        // None came.
        assert_eq!(settled(records(4, 40), records(6, 60), 10), (records(4, 40), 10));
    }
}
