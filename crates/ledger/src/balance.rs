//! The balance itself: lines for packets and bytes, records per sink, and the check.

use crate::{ExportLossReason, PacketAnomaly, ReasonCounters, RefusalReason};
use serde::Serialize;
use std::collections::BTreeMap;

/// One side of the balance: packets, or octets on the wire (layer 2, without preamble and FCS unless captured).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TrafficCounters {
    /// Everything the source handed over or says it lost.
    pub received: u64,
    /// Lost by the network card.
    #[serde(rename = "dropped_card")]
    pub dropped_nic: u64,
    /// Lost by the kernel.
    pub dropped_kernel: u64,
    /// Lost between our own stages.
    pub dropped_ring: u64,
    /// Not metered because the flow table was full (policy `drop`).
    pub dropped_table_full: u64,
    /// Refused by the decoder, by reason.
    pub refused: ReasonCounters<RefusalReason, { RefusalReason::ALL.len() }>,
    /// Left out by a filter.
    pub filtered: u64,
    /// Left out by sampling, under overload or as it was asked for.
    pub sampled_out: u64,
    /// Entered into a flow record.
    pub metered: u64,
}

impl TrafficCounters {
    fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.dropped_nic += other.dropped_nic;
        self.dropped_kernel += other.dropped_kernel;
        self.dropped_ring += other.dropped_ring;
        self.dropped_table_full += other.dropped_table_full;
        self.refused.merge(&other.refused);
        self.filtered += other.filtered;
        self.sampled_out += other.sampled_out;
        self.metered += other.metered;
    }

    fn accounted(&self) -> u64 {
        self.dropped_nic
            + self.dropped_kernel
            + self.dropped_ring
            + self.dropped_table_full
            + self.refused.total()
            + self.filtered
            + self.sampled_out
            + self.metered
    }
}

/// What was given up under overload (docs/overload.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Overload {
    /// The level of now, of several pipelines the highest; 0 while nothing is given up.
    pub level: u8,
    /// Since when, ns since 1970 UTC; 0: from the beginning.
    pub since_ns: u64,
    /// The highest level there was.
    pub highest: u8,
    /// Steps up and down.
    pub steps: u64,
    /// Records without TCP analysis of all of their packets, as far as they were handed on.
    pub unanalysed_flows: u64,
    /// Records during whose life packets were sampled.
    pub sampled_flows: u64,
}

impl Overload {
    fn merge(&mut self, other: Self) {
        // The highest level, and since when the last one stands there.
        (self.level, self.since_ns) = (self.level, self.since_ns).max((other.level, other.since_ns));
        self.highest = self.highest.max(other.highest);
        self.steps += other.steps;
        self.unanalysed_flows += other.unanalysed_flows;
        self.sampled_flows += other.sampled_flows;
    }
}

/// Flow records of one fate, with the packets and wire octets they carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordTotals {
    /// Flow records (a bidirectional record counts once).
    pub flows: u64,
    /// Packets in those records, both directions.
    pub packets: u64,
    /// Layer-2 octets in those records, both directions.
    pub bytes: u64,
}

impl RecordTotals {
    /// Counts one record.
    pub fn add(&mut self, packets: u64, bytes: u64) {
        self.flows += 1;
        self.packets += packets;
        self.bytes += bytes;
    }

    /// Adds many records.
    pub fn merge(&mut self, other: RecordTotals) {
        self.flows += other.flows;
        self.packets += other.packets;
        self.bytes += other.bytes;
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Those that are left without others, which are among them (else none).
    #[must_use]
    pub fn without(self, others: RecordTotals) -> RecordTotals {
        RecordTotals {
            flows: self.flows.saturating_sub(others.flows),
            packets: self.packets.saturating_sub(others.packets),
            bytes: self.bytes.saturating_sub(others.bytes),
        }
    }
}

/// What one sink did with the records it was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SinkCounters {
    /// The sink as the user wrote it.
    pub sink: String,
    /// Handed to the operating system without an error (UDP promises no more).
    pub exported: RecordTotals,
    /// Kept on disk for later.
    pub spooled: RecordTotals,
    /// Handed to others before this sink was opened or after it was closed, while the program ran.
    #[serde(skip_serializing_if = "RecordTotals::is_none")]
    pub not_open: RecordTotals,
    /// On their way to this sink, or held back by it until it is finished, as a table does: only while the program runs.
    #[serde(skip_serializing_if = "RecordTotals::is_none")]
    pub waiting: RecordTotals,
    /// Not delivered, by reason.
    pub lost: BTreeMap<&'static str, RecordTotals>,
    /// Exported records that the format could not carry as they are, by what was changed.
    pub altered: BTreeMap<&'static str, u64>,
    /// Records as the format counts them: two for a bidirectional flow in a unidirectional format.
    pub wire_records: u64,
    /// Messages or datagrams written (0 for formats without messages).
    pub messages: u64,
    /// Octets written.
    pub octets: u64,
}

impl SinkCounters {
    /// Counts one record as lost.
    pub fn lose(&mut self, reason: ExportLossReason, records: RecordTotals) {
        self.lost.entry(reason.key()).or_default().merge(records);
    }

    /// Exported, spooled, lost, waiting, and what came while it was not open, together.
    pub fn total(&self) -> RecordTotals {
        let mut all = self.exported;
        all.merge(self.spooled);
        all.merge(self.not_open);
        all.merge(self.waiting);
        self.lost.values().for_each(|&lost| all.merge(lost));
        all
    }
}

/// The whole account of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Packets by fate.
    pub packets: TrafficCounters,
    /// Octets on the wire by fate.
    pub bytes: TrafficCounters,
    /// Non-IP frames by EtherType (0: IEEE 802.3 without SNAP).
    pub ethertypes: BTreeMap<u16, u64>,
    /// Metered packets with something odd about them.
    pub anomalies: ReasonCounters<PacketAnomaly, { PacketAnomaly::ALL.len() }>,
    /// Flow records opened by the meter.
    pub created: u64,
    /// Flow records still in the table, with their packets and octets.
    pub live: RecordTotals,
    /// What was given up under overload.
    pub overload: Overload,
    /// One line per sink.
    pub sinks: Vec<SinkCounters>,
}

/// One equation of the ledger that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// The equation in words.
    pub equation: String,
    /// Its left side.
    pub left: u64,
    /// Its right side.
    pub right: u64,
}

impl Ledger {
    /// Adds what another pipeline has counted, which has the same sinks.
    pub fn merge(&mut self, other: &Self) {
        self.packets.merge(&other.packets);
        self.bytes.merge(&other.bytes);
        for (&ethertype, &frames) in &other.ethertypes {
            *self.ethertypes.entry(ethertype).or_default() += frames;
        }
        self.anomalies.merge(&other.anomalies);
        self.created += other.created;
        self.live.merge(other.live);
        self.overload.merge(other.overload);
    }

    /// The equations that do not hold; empty when the ledger balances.
    pub fn check(&self) -> Vec<Imbalance> {
        let mut wrong = Vec::new();
        let mut equal = |equation: String, left: u64, right: u64| {
            if left != right {
                wrong.push(Imbalance { equation, left, right });
            }
        };
        for (what, line) in [("packets", &self.packets), ("bytes", &self.bytes)] {
            equal(
                format!("{what} received = dropped + refused + filtered + sampled out + metered"),
                line.received,
                line.accounted(),
            );
        }
        let non_ip: u64 = self.ethertypes.values().sum();
        equal("non-IP frames = sum over EtherTypes".into(), self.packets.refused.get(RefusalReason::NonIp), non_ip);
        for sink in &self.sinks {
            let mut all = sink.total();
            all.merge(self.live);
            let name = &sink.sink;
            equal(
                format!(
                    "{name}: flows created = exported + spooled + lost + live + waiting + those while it was not open"
                ),
                self.created,
                all.flows,
            );
            equal(format!("{name}: packets metered = in records"), self.packets.metered, all.packets);
            equal(format!("{name}: bytes metered = in records"), self.bytes.metered, all.bytes);
        }
        wrong
    }

    /// Whether every equation holds.
    pub fn balanced(&self) -> bool {
        self.check().is_empty()
    }

    /// The ledger as the JSON object of `--stats`; keys as in `docs/metering.md`.
    pub fn json(&self) -> impl Serialize + '_ {
        #[derive(Serialize)]
        struct Flows<'a> {
            created: u64,
            exported: u64,
            spooled: u64,
            lost: BTreeMap<&'a str, u64>,
            live: u64,
        }
        #[derive(Serialize)]
        struct Json<'a> {
            packets: &'a TrafficCounters,
            bytes: &'a TrafficCounters,
            flows: Flows<'a>,
            noted: &'a ReasonCounters<PacketAnomaly, { PacketAnomaly::ALL.len() }>,
            ethertypes: BTreeMap<String, u64>,
            overload: Overload,
            sinks: &'a [SinkCounters],
            balanced: bool,
        }
        // The headline is the sink that delivered least; each sink has its own line below.
        let worst = self.sinks.iter().min_by_key(|sink| sink.exported.flows + sink.not_open.flows);
        Json {
            packets: &self.packets,
            bytes: &self.bytes,
            flows: Flows {
                created: self.created,
                exported: worst.map_or(0, |sink| sink.exported.flows),
                spooled: worst.map_or(0, |sink| sink.spooled.flows),
                lost: worst.map_or_else(BTreeMap::new, |sink| sink.lost.iter().map(|(&k, r)| (k, r.flows)).collect()),
                live: self.live.flows,
            },
            noted: &self.anomalies,
            ethertypes: self.ethertypes.iter().map(|(k, &n)| (format!("0x{k:04x}"), n)).collect(),
            overload: self.overload,
            sinks: &self.sinks,
            balanced: self.balanced(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_ledger_balances() {
        assert!(Ledger::default().balanced());
    }

    #[test]
    fn a_missing_packet_is_named_with_both_sides() {
        let mut ledger = Ledger::default();
        ledger.packets.received = 3;
        ledger.packets.metered = 1;
        ledger.packets.refused.count(RefusalReason::IpVersion);
        let wrong = ledger.check();
        assert_eq!(wrong.len(), 1);
        assert_eq!((wrong[0].left, wrong[0].right), (3, 2));
    }

    #[test]
    fn reasons_appear_in_json_only_when_counted() {
        let mut ledger = Ledger::default();
        ledger.packets.received = 1;
        ledger.bytes.received = 60;
        ledger.packets.refused.count(RefusalReason::NonIp);
        ledger.bytes.refused.add(RefusalReason::NonIp, 60);
        ledger.ethertypes.insert(0x0806, 1);
        let json = serde_json::to_value(ledger.json()).unwrap();
        assert_eq!(json["packets"]["refused"], serde_json::json!({"non_ip": 1}));
        assert_eq!(json["ethertypes"]["0x0806"], 1);
        assert_eq!(json["balanced"], true);
    }
}
