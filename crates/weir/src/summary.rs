//! What a run came to, in words: the summary for everybody, and the ledger line by line.

use crate::{protocols, units};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use weir_export::{Error, Sink};
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, Ledger, RecordTotals, RefusalReason, SinkCounters, TrafficCounters};
use weir_packet::Network;
use weir_tcp::SegmentClass;

/// What the records of a run add up to.
#[derive(Clone, Debug)]
pub struct Totals {
    flows: u64,
    bytes: u64,
    frame_bytes: u64,
    first_ns: u64,
    last_ns: u64,
    /// Octets on the wire by IP protocol, and of layer-2 flows behind them.
    by_protocol: [u64; LAYER2 + 1],
    /// Of TCP: segments with payload, SYN or FIN; those sent again; those of them lost before the capture; copies; packets
    /// that were not read.
    tcp: [u64; 5],
}

const LAYER2: usize = 256;

impl Default for Totals {
    fn default() -> Self {
        Self {
            flows: 0,
            bytes: 0,
            frame_bytes: 0,
            first_ns: u64::MAX,
            last_ns: 0,
            by_protocol: [0; LAYER2 + 1],
            tcp: [0; 5],
        }
    }
}

impl Totals {
    fn add(&mut self, flow: &FlowRecord) {
        self.flows += 1;
        self.bytes += flow.forward.bytes + flow.reverse.bytes;
        self.frame_bytes += flow.frame_bytes();
        self.first_ns = self.first_ns.min(flow.start_ns());
        self.last_ns = self.last_ns.max(flow.end_ns());
        let protocol = if flow.network == Network::Layer2 { LAYER2 } else { usize::from(flow.protocol) };
        self.by_protocol[protocol] += flow.frame_bytes();
        for report in flow.tcp.iter().flatten() {
            let of = |classes: &[SegmentClass]| classes.iter().map(|&class| report.count(class).segments).sum::<u64>();
            let again = of(&[
                SegmentClass::Retransmission,
                SegmentClass::UnseenRetransmission,
                SegmentClass::SynRetransmission,
            ]);
            let first = of(&[
                SegmentClass::Syn,
                SegmentClass::ZeroWindowProbe,
                SegmentClass::OutOfWindow,
                SegmentClass::InOrder,
                SegmentClass::OutOfOrder,
            ]);
            let copies = of(&[SegmentClass::Duplicate, SegmentClass::RoutedDuplicate]);
            let [unseen, unread] = [SegmentClass::UnseenRetransmission, SegmentClass::Unread].map(|class| of(&[class]));
            let told = [first + again, again, unseen, copies, unread];
            self.tcp.iter_mut().zip(told).for_each(|(sum, told)| *sum += told);
        }
    }

    fn span_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}

/// A sink that adds up what passes through to another.
pub struct Observed {
    pub sink: Box<dyn Sink + Send>,
    /// Locked once per batch.
    pub totals: Arc<Mutex<Totals>>,
}

impl Sink for Observed {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        flows.iter().for_each(|flow| totals.add(flow));
        drop(totals);
        self.sink.write(flows)
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.sink.finish()
    }

    fn counters(&self) -> &SinkCounters {
        self.sink.counters()
    }

    fn udp_endpoints(&self) -> Option<[SocketAddr; 2]> {
        self.sink.udp_endpoints()
    }
}

/// Whether the run is one that "finished, but": packets refused as malformed or dropped, or records that were
/// not delivered for another reason than that the reader had enough.
pub fn flawed(ledger: &Ledger) -> bool {
    let packets = &ledger.packets;
    packets.refused.total() > packets.refused.get(RefusalReason::NonIp)
        || packets.dropped_nic + packets.dropped_kernel + packets.dropped_ring + packets.dropped_table_full > 0
        || ledger
            .sinks
            .iter()
            .any(|sink| sink.lost.keys().any(|&reason| reason != ExportLossReason::OutputClosed.key()))
        || !ledger.balanced()
}

/// What TCP went through, if anything (docs/tcp.md section 8).
fn tcp(totals: &Totals) -> Option<String> {
    let [segments, again, unseen, copies, unread] = totals.tcp;
    let mut told = Vec::new();
    if again > 0 {
        let share = 100.0 * again as f64 / segments as f64;
        let lost = if unseen > 0 { format!(", {unseen} of them lost before the capture") } else { String::new() };
        told.push(format!("{again} of {segments} segments ({share:.2} %) sent again{lost}"));
    }
    if copies > 0 {
        told.push(format!(
            "{} made by the capture",
            if copies == 1 { "1 copy".into() } else { format!("{copies} copies") }
        ));
    }
    if unread > 0 {
        told.push(format!(
            "{} without a whole header, not analysed",
            if unread == 1 { "1 packet".into() } else { format!("{unread} packets") }
        ));
    }
    (!told.is_empty()).then(|| told.join("; "))
}

/// The summary: one fact a line.
pub fn summary(ledger: &Ledger, totals: &Totals) -> String {
    let mut text = String::new();
    let mut fact = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<10} {value}");
    };
    let TrafficCounters { received, filtered, metered, .. } = ledger.packets;
    let filtered = if filtered > 0 { format!(", {filtered} filtered") } else { String::new() };
    fact("packets", format!("{received} received{filtered}, {metered} metered"));
    if totals.flows > 0 {
        let human = |octets: u64| match octets {
            0..10_000 => String::new(),
            _ => format!(" ({})", units::quantity(octets, "B")),
        };
        let (ip, wire) = (totals.bytes, totals.frame_bytes);
        fact("bytes", format!("{ip}{} in IP packets, {wire}{} on the wire", human(ip), human(wire)));
        let of_all = match ledger.flows_created {
            all if all > totals.flows => {
                format!(" of {all}: what the first output took; the ledger has all of it (-v)")
            }
            _ => String::new(),
        };
        fact("flows", format!("{}{of_all}", totals.flows));
        fact("span", units::period(totals.first_ns, totals.last_ns));
        if let Some(rate) = rate(totals, metered) {
            fact("mean rate", rate);
        }
        fact("protocols", shares(totals));
        if let Some(told) = tcp(totals) {
            fact("tcp", told);
        }
    }
    for (reason, packets) in ledger.packets.refused.nonzero() {
        let of_which = match reason {
            RefusalReason::NonIp => format!(" ({})", most_frequent(&ledger.ethertypes, protocols::ethertype)),
            RefusalReason::LinkType => format!(" ({})", most_frequent(&ledger.link_types, link_type)),
            _ => String::new(),
        };
        fact("refused", format!("{}{of_which}: {}", units::count(packets, "packet"), reason.sentence()));
    }
    for (count, what) in dropped(&ledger.packets) {
        fact("dropped", format!("{} {what}", units::count(count, "packet")));
    }
    for (noted, packets) in ledger.anomalies.nonzero() {
        fact("noted", format!("{}: {}", units::count(packets, "packet"), noted.sentence()));
    }
    for sink in &ledger.sinks {
        for (what, &flows) in &sink.altered {
            // The one thing so far that a format changes.
            debug_assert_eq!(*what, "time_beyond_format");
            let sentence = "the format's 32 bits cannot tell their times (a span above 49.7 days, or after 2106)";
            fact("altered", format!("{} for {}: {sentence}", units::count(flows, "flow"), sink.sink));
        }
        for (&reason, records) in &sink.lost {
            fact(
                "lost",
                format!("{} for {}: {}", units::count(records.flows, "flow"), sink.sink, lost_sentence(reason)),
            );
        }
    }
    text
}

/// Bits and packets per second, if time passed at all.
fn rate(totals: &Totals, packets: u64) -> Option<String> {
    let seconds = totals.span_ns() as f64 / 1e9;
    let rate = |n: f64, unit: &str| units::rate(n / seconds, unit);
    (seconds > 0.0).then(|| {
        let bits = rate(8.0 * totals.frame_bytes as f64, "bit/s");
        format!("{bits} on the wire, {}", rate(packets as f64, "packets/s"))
    })
}

/// The protocols with the most octets on the wire, and their shares.
fn shares(totals: &Totals) -> String {
    const NAMED: usize = 5;
    let mut protocols: Vec<(usize, u64)> =
        totals.by_protocol.iter().copied().enumerate().filter(|&(_, octets)| octets > 0).collect();
    protocols.sort_by_key(|&(protocol, octets)| (std::cmp::Reverse(octets), protocol));
    let percent = |octets: u64| 100.0 * octets as f64 / totals.frame_bytes as f64;
    let mut shares: Vec<String> = Vec::new();
    for &(protocol, octets) in protocols.iter().take(NAMED) {
        let name = u8::try_from(protocol).map_or_else(|_| "layer 2".into(), protocols::ip_protocol);
        shares.push(format!("{name} {:.1} %", percent(octets)));
    }
    let others: u64 = protocols.iter().skip(NAMED).map(|&(_, octets)| octets).sum();
    if others > 0 {
        shares.push(format!("others {:.1} %", percent(others)));
    }
    shares.join(", ") + " of the bytes on the wire"
}

/// The EtherTypes or link types of refused frames with their counts, the most frequent first.
fn most_frequent(counts: &BTreeMap<u16, u64>, name: fn(u16) -> String) -> String {
    const NAMED: usize = 6;
    let mut types: Vec<(u16, u64)> = counts.iter().map(|(&number, &frames)| (number, frames)).collect();
    types.sort_by_key(|&(number, frames)| (std::cmp::Reverse(frames), number));
    let mut named: Vec<String> =
        types.iter().take(NAMED).map(|&(number, frames)| format!("{} {frames}", name(number))).collect();
    if types.len() > NAMED {
        named.push(format!("{} more types", types.len() - NAMED));
    }
    named.join(", ")
}

/// `link type 127 (IEEE802_11_RADIOTAP)`
fn link_type(number: u16) -> String {
    let name = weir_packet::link_type_name(number).map_or_else(String::new, |name| format!(" ({name})"));
    format!("link type {number}{name}")
}

fn dropped(line: &TrafficCounters) -> impl Iterator<Item = (u64, &'static str)> {
    [
        (line.dropped_nic, "by the network card"),
        (line.dropped_kernel, "by the kernel"),
        (line.dropped_ring, "between our own stages"),
        (line.dropped_table_full, "because the flow table was full (see --flows and --full)"),
    ]
    .into_iter()
    .filter(|&(count, _)| count > 0)
}

fn lost_sentence(key: &str) -> &'static str {
    ExportLossReason::ALL.iter().find(|lost| lost.key() == key).map_or("", |lost| lost.sentence())
}

/// The ledger in words: every line that is not 0, and whether it balances.
pub fn ledger_in_words(ledger: &Ledger) -> String {
    let mut text = format!("{:<32} {:>20} {:>20}\n", "ledger", "packets", "bytes on the wire");
    let mut line = |name: &str, packets: u64, bytes: u64| {
        let _ = writeln!(text, "{name:<32} {packets:>20} {bytes:>20}");
    };
    let (packets, bytes) = (&ledger.packets, &ledger.bytes);
    line("received", packets.received, bytes.received);
    for (name, figure) in [
        ("dropped by the card", (|line| line.dropped_nic) as fn(&TrafficCounters) -> u64),
        ("dropped by the kernel", |line| line.dropped_kernel),
        ("dropped between stages", |line| line.dropped_ring),
        ("dropped, table full", |line| line.dropped_table_full),
        ("filtered", |line| line.filtered),
        ("sampled out", |line| line.sampled_out),
    ] {
        if figure(packets) > 0 {
            line(&format!("- {name}"), figure(packets), figure(bytes));
        }
    }
    for (reason, count) in packets.refused.nonzero() {
        line(&format!("- refused, {}", reason.key()), count, bytes.refused.get(reason));
    }
    line("= metered", packets.metered, bytes.metered);
    for (&number, frames) in &ledger.link_types {
        let _ = writeln!(text, "{:<32} {frames:>20}", format!("  refused, {}", link_type(number)));
    }
    for (noted, count) in ledger.anomalies.nonzero() {
        let _ = writeln!(text, "{:<32} {count:>20}", format!("  of these noted, {}", noted.key()));
    }
    let overload = &ledger.overload;
    if overload.highest > 0 {
        let steps = format!("on level {}, at most {}, {} steps", overload.level, overload.highest, overload.steps);
        let _ = writeln!(text, "{:<32} {steps}", "overload (docs/overload.md)");
    }
    for (name, flows) in [
        ("  records without TCP analysis", overload.unanalysed_flows),
        ("  records that were sampled", overload.sampled_flows),
    ] {
        if flows > 0 {
            let _ = writeln!(text, "{name:<32} {flows:>20}");
        }
    }
    let _ = writeln!(text, "{:<32} {:>20} {:>20} {:>20}", "records", "flows", "packets", "bytes on the wire");
    let mut line = |name: &str, records: RecordTotals| {
        let RecordTotals { flows, packets, bytes } = records;
        let _ = writeln!(text, "{name:<32} {flows:>20} {packets:>20} {bytes:>20}");
    };
    line("created", RecordTotals { flows: ledger.flows_created, packets: packets.metered, bytes: bytes.metered });
    if ledger.live.flows > 0 {
        line("- live", ledger.live);
    }
    for sink in &ledger.sinks {
        line(&format!("= {}, exported", sink.sink), sink.exported);
        if sink.spooled.flows > 0 {
            line("  + spooled", sink.spooled);
        }
        if sink.waiting.flows > 0 {
            line("  + on their way", sink.waiting);
        }
        if sink.not_open.flows > 0 {
            line("  + while it was not open", sink.not_open);
        }
        for (reason, &records) in &sink.lost {
            line(&format!("  + lost, {reason}"), records);
        }
        for (what, &flows) in &sink.altered {
            line(&format!("  of the exported, {what}"), RecordTotals { flows, ..RecordTotals::default() });
        }
    }
    match ledger.check().as_slice() {
        [] => text += "the ledger balances\n",
        wrong => {
            for imbalance in wrong {
                let (equation, left, right) = (&imbalance.equation, imbalance.left, imbalance.right);
                let _ = writeln!(
                    text,
                    "THE LEDGER DOES NOT BALANCE: {equation}: {left} is not {right}; please report this"
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ledger::PacketAnomaly;

    #[test]
    fn frames_without_ip_are_no_flaw_and_malformed_ones_are() {
        let mut ledger = Ledger::default();
        ledger.packets.received = 1;
        ledger.packets.refused.count(RefusalReason::NonIp);
        ledger.ethertypes.insert(0x0806, 1);
        assert!(!flawed(&ledger));
        ledger.packets.received = 2;
        ledger.packets.refused.count(RefusalReason::Ipv4Truncated);
        assert!(flawed(&ledger));
    }

    #[test]
    fn records_that_the_reader_did_not_want_are_no_flaw() {
        let mut ledger = Ledger { flows_created: 1, ..Ledger::default() };
        let mut sink = SinkCounters::default();
        sink.add_lost(ExportLossReason::OutputClosed, RecordTotals { flows: 1, packets: 0, bytes: 0 });
        ledger.sinks.push(sink);
        assert!(!flawed(&ledger));
        ledger.flows_created = 2;
        ledger.sinks[0].add_lost(ExportLossReason::WriteFailed, RecordTotals { flows: 1, packets: 0, bytes: 0 });
        assert!(flawed(&ledger));
    }

    #[test]
    fn an_imbalance_is_a_flaw_and_is_told_with_both_sides() {
        let mut ledger = Ledger::default();
        ledger.packets.received = 3;
        assert!(flawed(&ledger));
        assert!(ledger_in_words(&ledger).contains("3 is not 0"));
    }

    #[test]
    fn the_summary_gives_the_reason_of_everything_that_was_not_metered() {
        let mut ledger = Ledger::default();
        ledger.packets.received = 10;
        ledger.packets.metered = 3;
        ledger.packets.dropped_table_full = 2;
        ledger.packets.refused.add(RefusalReason::NonIp, 3);
        ledger.packets.refused.count(RefusalReason::IpVersion);
        ledger.count_refused(RefusalReason::LinkType, 127, 60);
        ledger.ethertypes.extend([(0x0806, 2), (0x88cc, 1)]);
        ledger.anomalies.count(PacketAnomaly::TimeClamped);
        let text = summary(&ledger, &Totals::default());
        for part in [
            "10 received, 3 metered",
            "3 packets (arp 2, lldp 1): The frame",
            "1 packet (link type 127 (IEEE802_11_RADIOTAP) 1): Weir does not",
            RefusalReason::IpVersion.sentence(),
            "table was full",
            "gives no time",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_mean_rate_needs_time() {
        let mut totals = Totals { first_ns: 5, last_ns: 5, frame_bytes: u64::MAX, ..Totals::default() };
        assert_eq!(rate(&totals, 1), None);
        totals.last_ns = 6;
        assert!(rate(&totals, u64::MAX).is_some());
        totals.last_ns = 2_000_000_005;
        totals.frame_bytes = 2500;
        assert_eq!(rate(&totals, 20_000).as_deref(), Some("10.0 kbit/s on the wire, 10.0 kpackets/s"));
        assert_eq!(rate(&totals, 1).as_deref(), Some("10.0 kbit/s on the wire, 0.50 packets/s"));
    }
}
