//! The ledger of a run: its counters, the equations that must hold, and its JSON form.

use crate::counters::{
    ActionCounters, ClockCounters, InspectionCounters, OverloadCounters, RecordTotals, SinkCounters, TrafficCounters,
    TransactionCounters, is_default,
};
use crate::reasons::{PacketAnomaly, ReasonCounters, RefusalReason};
use serde::Serialize;
use std::collections::BTreeMap;

/// The ledger of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Packets by outcome.
    pub packets: TrafficCounters,
    /// Octets on the wire by outcome.
    pub bytes: TrafficCounters,
    /// Frames refused as [`RefusalReason::NonIp`], by EtherType; 0 for frames without an EtherType.
    pub ethertypes: BTreeMap<u16, u64>,
    /// Frames refused as [`RefusalReason::LinkType`], by link type.
    pub link_types: BTreeMap<u16, u64>,
    /// Metered packets with an anomaly, by anomaly.
    pub anomalies: ReasonCounters<PacketAnomaly, { PacketAnomaly::ALL.len() }>,
    /// Flow records created by the meter.
    pub flows_created: u64,
    /// Flow records that are open, or have ended and await export (key `live`).
    pub live: RecordTotals,
    /// Load shedding.
    pub overload: OverloadCounters,
    /// Inspection of payload.
    pub inspection: InspectionCounters,
    /// Records of transactions; `None` without `--transactions`.
    pub transactions: Option<TransactionCounters>,
    /// Steps of the system's clock.
    pub clock: ClockCounters,
    /// What rules did with packets; `None` without rules.
    pub actions: Option<ActionCounters>,
    /// Flow records by outcome, one entry per sink.
    pub sinks: Vec<SinkCounters>,
}

/// An equation of the ledger that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imbalance {
    /// The equation in words.
    pub equation: String,
    /// Value of the left side.
    pub left: u64,
    /// Value of the right side.
    pub right: u64,
}

impl Ledger {
    /// Counts a frame that the decoder refused: `frame_bytes` octets on the wire, of this link
    /// type.
    pub fn count_refused(&mut self, reason: RefusalReason, link_type: u16, frame_bytes: u32) {
        if reason == RefusalReason::LinkType {
            *self.link_types.entry(link_type).or_default() += 1;
        }
        self.packets.refused.count(reason);
        self.bytes.refused.add(reason, frame_bytes.into());
    }

    /// Adds the counters of another pipeline that exports to the same sinks. The sinks are not
    /// added.
    pub fn merge(&mut self, other: &Self) {
        self.packets.merge(&other.packets);
        self.bytes.merge(&other.bytes);
        merge_map(&mut self.ethertypes, &other.ethertypes);
        merge_map(&mut self.link_types, &other.link_types);
        self.anomalies.merge(&other.anomalies);
        self.flows_created += other.flows_created;
        self.live.merge(other.live);
        self.overload.merge(other.overload);
        self.inspection.merge(other.inspection);
        if let Some(theirs) = &other.transactions {
            self.transactions.get_or_insert_default().merge(theirs);
        }
        self.clock.merge(other.clock);
        if let Some(theirs) = &other.actions {
            self.actions.get_or_insert_default().merge(theirs);
        }
    }

    /// The equations that do not hold; empty when the ledger balances.
    pub fn check(&self) -> Vec<Imbalance> {
        let mut wrong = Vec::new();
        let mut equal = |equation: String, left: u64, right: u64| {
            if left != right {
                wrong.push(Imbalance { equation, left, right });
            }
        };
        for (what, counters) in [("packets", &self.packets), ("bytes", &self.bytes)] {
            equal(
                format!("{what} received = dropped + refused + filtered + sampled out + metered"),
                counters.received,
                counters.outcomes(),
            );
        }
        let non_ip: u64 = self.ethertypes.values().sum();
        equal("non-IP frames = sum over EtherTypes".into(), self.packets.refused.get(RefusalReason::NonIp), non_ip);
        let unknown: u64 = self.link_types.values().sum();
        let refused = self.packets.refused.get(RefusalReason::LinkType);
        equal("frames of unsupported link types = sum over link types".into(), refused, unknown);
        if let Some(actions) = &self.actions {
            for (what, counters, total) in
                [("packets", &self.packets, actions.total().packets), ("bytes", &self.bytes, actions.total().octets)]
            {
                equal(
                    format!("{what} of rules: forwarded + dropped + shunted + held = refused + metered + cache full"),
                    total,
                    counters.refused.total() + counters.metered + counters.dropped_cache_full,
                );
            }
        }
        if let Some(transactions) = &self.transactions {
            for sink in &transactions.sinks {
                equal(
                    format!(
                        "{}: transactions begun = exported + filtered + lost + waiting + left out + open",
                        sink.sink
                    ),
                    transactions.begun,
                    sink.total().flows + transactions.left_out + transactions.open,
                );
            }
        }
        for sink in &self.sinks {
            let mut all = sink.total();
            all.merge(self.live);
            let name = &sink.sink;
            equal(
                format!("{name}: flows created = exported + filtered + lost + live + waiting + spooled + not open"),
                self.flows_created,
                all.flows,
            );
            equal(format!("{name}: packets metered = in records"), self.packets.metered, all.packets);
            equal(format!("{name}: bytes metered = in records"), self.bytes.metered, all.bytes);
            let (found, outcomes) = (sink.earlier.found, sink.earlier.outcomes());
            for (what, found, outcomes) in [
                ("flows", found.flows, outcomes.flows),
                ("packets", found.packets, outcomes.packets),
                ("bytes", found.bytes, outcomes.bytes),
            ] {
                equal(format!("{name}: {what} found in the spool = delivered + spooled + lost"), found, outcomes);
            }
            if !sink.members.is_empty() {
                let of_members = sink.members.iter().map(|member| member.exported.flows).sum();
                equal(format!("{name}: flows exported = sum over its sinks"), sink.exported.flows, of_members);
            }
        }
        wrong
    }

    /// Whether every equation holds.
    pub fn balanced(&self) -> bool {
        self.check().is_empty()
    }

    /// The ledger as the JSON object of `--stats`. `docs/metering.md` defines the keys.
    pub fn json(&self) -> impl Serialize + '_ {
        #[derive(Serialize)]
        struct Flows<'a> {
            created: u64,
            exported: u64,
            #[serde(skip_serializing_if = "is_default")]
            filtered: u64,
            lost: BTreeMap<&'a str, u64>,
            live: u64,
        }
        #[derive(Serialize)]
        struct Json<'a> {
            packets: &'a TrafficCounters,
            bytes: &'a TrafficCounters,
            flows: Flows<'a>,
            anomalies: &'a ReasonCounters<PacketAnomaly, { PacketAnomaly::ALL.len() }>,
            ethertypes: BTreeMap<String, u64>,
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            link_types: &'a BTreeMap<u16, u64>,
            overload: OverloadCounters,
            #[serde(skip_serializing_if = "is_default")]
            inspection: InspectionCounters,
            #[serde(skip_serializing_if = "Option::is_none")]
            transactions: &'a Option<TransactionCounters>,
            #[serde(skip_serializing_if = "is_default")]
            clock: ClockCounters,
            #[serde(skip_serializing_if = "Option::is_none")]
            actions: &'a Option<ActionCounters>,
            sinks: &'a [SinkCounters],
            balanced: bool,
        }
        // `flows` has the counters of the sink that misses the most records; `sinks` has all sinks.
        let worst = self
            .sinks
            .iter()
            .min_by_key(|sink| sink.exported.flows + sink.spooled.flows + sink.filtered.flows + sink.not_open.flows);
        Json {
            packets: &self.packets,
            bytes: &self.bytes,
            flows: Flows {
                created: self.flows_created,
                exported: worst.map_or(0, |sink| sink.exported.flows),
                filtered: worst.map_or(0, |sink| sink.filtered.flows),
                lost: worst.map_or_else(BTreeMap::new, |sink| sink.lost.iter().map(|(&k, r)| (k, r.flows)).collect()),
                live: self.live.flows,
            },
            anomalies: &self.anomalies,
            ethertypes: self.ethertypes.iter().map(|(k, &n)| (format!("0x{k:04x}"), n)).collect(),
            link_types: &self.link_types,
            overload: self.overload,
            inspection: self.inspection,
            transactions: &self.transactions,
            clock: self.clock,
            actions: &self.actions,
            sinks: &self.sinks,
            balanced: self.balanced(),
        }
    }
}

fn merge_map(counts: &mut BTreeMap<u16, u64>, other: &BTreeMap<u16, u64>) {
    for (&number, &frames) in other {
        *counts.entry(number).or_default() += frames;
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
    fn a_missing_packet_is_reported_with_both_sides() {
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
        ledger.count_refused(RefusalReason::NonIp, 1, 60);
        ledger.ethertypes.insert(0x0806, 1);
        let json = serde_json::to_value(ledger.json()).unwrap();
        assert_eq!(json["packets"]["refused"], serde_json::json!({"non_ip": 1}));
        assert_eq!(json["ethertypes"]["0x0806"], 1);
        assert_eq!((&json["balanced"], json.get("link_types")), (&true.into(), None));
    }

    #[test]
    fn records_that_a_sink_filters_are_accounted_for() {
        let (selected, others) =
            (RecordTotals { flows: 1, packets: 2, bytes: 3 }, RecordTotals { flows: 4, packets: 5, bytes: 6 });
        let sink = SinkCounters { exported: selected, filtered: others, ..SinkCounters::default() };
        let mut ledger = Ledger { flows_created: 5, sinks: vec![sink], ..Ledger::default() };
        (ledger.packets.received, ledger.packets.metered) = (7, 7);
        (ledger.bytes.received, ledger.bytes.metered) = (9, 9);
        let json = serde_json::to_value(ledger.json()).unwrap();
        assert_eq!(
            json["flows"],
            serde_json::json!({"created": 5, "exported": 1, "filtered": 4, "lost": {}, "live": 0})
        );
        assert_eq!((&json["sinks"][0]["filtered"]["flows"], &json["balanced"]), (&4.into(), &true.into()));
        ledger.sinks[0].filtered.flows = 3;
        assert_eq!(ledger.check().len(), 1);
    }

    #[test]
    fn unsupported_link_types_are_counted_by_number_and_merged() {
        let mut ledger = Ledger::default();
        (ledger.packets.received, ledger.bytes.received) = (2, 150);
        ledger.count_refused(RefusalReason::LinkType, 127, 50);
        ledger.count_refused(RefusalReason::LinkType, 105, 100);
        let other = ledger.clone();
        ledger.merge(&other);
        let json = serde_json::to_value(ledger.json()).unwrap();
        assert_eq!(json["link_types"], serde_json::json!({"127": 2, "105": 2}));
        assert_eq!((&json["bytes"]["refused"]["link_type"], &json["balanced"]), (&300.into(), &true.into()));
        ledger.link_types.clear();
        assert_eq!(ledger.check().len(), 1);
    }
}
