//! The summary of a run: one fact per line.

use crate::protocols;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use weir_fields::{FIRST_ANSWERS, FirstAnswer};
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, Ledger, RecordTotals, RefusalReason, SinkCounters, TrafficCounters};
use weir_packet::Network;
use weir_probe::RecordObserver;
use weir_query::{Expression, StoredTotals, Sums};
use weir_tcp::{SegmentClass, TcpReport};
use weir_tcp_report::duplicate_segments;
use weir_text::units;
use weir_text::zone::Zone;

#[derive(Clone, Debug, Default)]
pub struct TrafficSummary {
    flows: u64,
    ip_bytes: u64,
    frame_bytes: u64,
    first_ns: u64,
    last_ns: u64,
    /// Bytes on the wire by IP protocol; `None` are frames without IP.
    protocol_bytes: BTreeMap<Option<u8>, u64>,
    tcp: TcpSummary,
    /// Packets are from files of packet records.
    pub without_payload: bool,
    /// Flows were stored: there are no packets.
    pub is_stored: bool,
    /// The stored records are transactions, whose packets and octets are not known.
    pub of_transactions: bool,
    /// Stored flows that `--where` or the time leaves out.
    pub not_selected: u64,
    /// Fields of conditions that are those of the first answer of a flow.
    of_first_answers: Vec<OfFirstAnswer>,
}

/// Sums over the TCP analysis of all records (docs/tcp.md section 9).
#[derive(Clone, Copy, Debug, Default)]
struct TcpSummary {
    /// Segments with payload, SYN or FIN.
    segments: u64,
    retransmitted: u64,
    /// Of the retransmitted segments, those lost before the capture point.
    lost_before_capture: u64,
    /// Duplicates that the capture made.
    duplicates: u64,
    /// Packets without a whole TCP header.
    unread: u64,
}

/// A field of a condition that is that of the first answer of a flow.
#[derive(Clone, Copy, Debug)]
struct OfFirstAnswer {
    field: &'static FirstAnswer,
    /// Flows with several answers.
    flows: u64,
}

impl OfFirstAnswer {
    /// What a condition does not find. Of stored flows it is not known how many have several answers.
    fn text(&self, is_stored: bool) -> Option<String> {
        let others = match (is_stored, self.flows) {
            (true, _) => String::new(),
            (false, 0) => return None,
            (false, 1) => ", and 1 flow has several".into(),
            (false, flows) => format!(", and {flows} flows have several"),
        };
        Some(format!("{} is that of the first answer of a flow{others}; {} count all", self.field.name, self.field.all))
    }
}

impl TrafficSummary {
    /// No records yet, which conditions select.
    pub fn of_conditions<'a>(conditions: impl Iterator<Item = &'a Expression>) -> Self {
        let names: Vec<_> = conditions.flat_map(Expression::fields).collect();
        let fields = FIRST_ANSWERS.iter().filter(|field| names.contains(&field.name));
        let of_first_answers = fields.map(|field| OfFirstAnswer { field, flows: 0 }).collect();
        Self { of_first_answers, ..Self::default() }
    }

    fn add(&mut self, flow: &FlowRecord) {
        self.first_ns = if self.flows == 0 { flow.start_ns() } else { self.first_ns.min(flow.start_ns()) };
        self.flows += 1;
        self.ip_bytes += flow.forward.bytes + flow.reverse.bytes;
        self.frame_bytes += flow.frame_bytes();
        self.last_ns = self.last_ns.max(flow.end_ns());
        let protocol = (flow.network != Network::Layer2).then_some(flow.protocol);
        *self.protocol_bytes.entry(protocol).or_default() += flow.frame_bytes();
        flow.tcp.iter().flatten().for_each(|report| self.tcp.add(report));
        self.of_first_answers.iter_mut().for_each(|of| of.flows += u64::from(of.field.has_several(flow)));
    }

    /// Adds stored flows that were summed up without records: all that a view has, and the rest.
    pub fn add_sums(&mut self, sums: &Sums, totals: &StoredTotals) {
        if sums.flows == 0 {
            return;
        }
        self.first_ns = if self.flows == 0 { sums.first_ns } else { self.first_ns.min(sums.first_ns) };
        self.flows += sums.flows;
        self.ip_bytes += sums.all_bytes();
        self.frame_bytes += sums.l2_bytes;
        self.last_ns = self.last_ns.max(sums.last_ns);
        for (protocol, bytes) in &totals.protocol_bytes {
            *self.protocol_bytes.entry(*protocol).or_default() += bytes;
        }
        self.tcp.segments += sums.segments;
        self.tcp.retransmitted += sums.retransmitted;
        self.tcp.lost_before_capture += totals.lost_before_capture;
    }

    fn duration_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}

impl TcpSummary {
    fn add(&mut self, report: &TcpReport) {
        self.segments += report.sequenced_segments();
        self.retransmitted += report.retransmitted_segments();
        self.lost_before_capture += report.count(SegmentClass::UnseenRetransmission).segments;
        self.duplicates += duplicate_segments(report);
        self.unread += report.count(SegmentClass::Unread).segments;
    }

    /// `None` if there is nothing to report.
    fn text(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.retransmitted > 0 {
            let share = 100.0 * self.retransmitted as f64 / self.segments as f64;
            let mut part = format!("{} of {} segments ({share:.2} %) retransmitted", self.retransmitted, self.segments);
            if self.lost_before_capture > 0 {
                let _ = write!(part, ", {} of them lost before the capture point", self.lost_before_capture);
            }
            parts.push(part);
        }
        if self.duplicates > 0 {
            parts.push(format!("{} made by the capture", units::count(self.duplicates, "duplicate")));
        }
        if self.unread > 0 {
            parts.push(format!("{} without a whole TCP header, not analysed", units::count(self.unread, "packet")));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Sums up the records of all pipelines in a summary, which is locked once per batch.
pub fn observer(summary: &Arc<Mutex<TrafficSummary>>) -> RecordObserver {
    let summary = summary.clone();
    Arc::new(move |flows| {
        let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
        flows.iter().for_each(|flow| summary.add(flow));
    })
}

/// The facts as text, wrapped at the width of the terminal.
pub fn text(ledger: &Ledger, summary: &TrafficSummary, terminal_columns: Option<usize>) -> String {
    let mut text = String::new();
    let mut fact = |name: &str, value: String| {
        text += &weir_text::paragraph(&format!("{name:<10} "), &value, terminal_columns);
    };
    if summary.of_transactions {
        fact("records", units::count(summary.flows, "transaction") + &of_those_read(summary));
        if summary.flows > 0 {
            fact("span", Zone::current().period(summary.first_ns, summary.last_ns));
        }
    } else {
        packets_and_flows(ledger, summary, &mut fact);
    }
    for sink in ledger.sinks.iter().filter(|sink| sink.filtered.flows > 0) {
        let all = sink.total().saturating_sub(sink.not_open);
        let RecordTotals { flows, packets, bytes } = all.saturating_sub(sink.filtered);
        let of = |n, thing| units::count(n, thing);
        let sizes = format!(": {}, {} on the wire", of(packets, "packet"), of(bytes, "byte"));
        let (noun, sizes) = if summary.of_transactions { ("transaction", "") } else { ("flow", sizes.as_str()) };
        fact("selected", format!("{flows} of {}{}{sizes}", of(all.flows, noun), for_sink(&sink.sink)));
    }
    let of_first_answers = summary.of_first_answers.iter().filter(|_| !summary.of_transactions);
    for text in of_first_answers.filter_map(|of| of.text(summary.is_stored)) {
        fact("note", text);
    }
    for (reason, packets) in ledger.packets.refused.nonzero() {
        let which = match reason {
            RefusalReason::NonIp => format!(" ({})", most_frequent(&ledger.ethertypes, protocols::ethertype)),
            RefusalReason::LinkType => format!(" ({})", most_frequent(&ledger.link_types, protocols::link_type)),
            _ => String::new(),
        };
        fact("refused", format!("{}{which}: {}", units::count(packets, "packet"), reason.sentence()));
    }
    for (count, place) in dropped(&ledger.packets) {
        fact("dropped", format!("{} {place}", units::count(count, "packet")));
    }
    for (anomaly, packets) in ledger.anomalies.nonzero() {
        fact("anomaly", format!("{}: {}", units::count(packets, "packet"), anomaly.sentence()));
    }
    for (name, value) in ledger.sinks.iter().flat_map(altered_and_lost) {
        fact(name, value);
    }
    text
}

/// Of how many stored records these are selected, if not all are.
fn of_those_read(summary: &TrafficSummary) -> String {
    match summary.not_selected {
        0 => String::new(),
        others => format!(" of {} in the files that were read", summary.flows + others),
    }
}

fn packets_and_flows(ledger: &Ledger, summary: &TrafficSummary, mut fact: impl FnMut(&str, String)) {
    let TrafficCounters { received, filtered, metered, .. } = ledger.packets;
    let filtered = if filtered > 0 { format!(", {filtered} filtered") } else { String::new() };
    let packets = if summary.is_stored {
        format!("{received} in stored flows")
    } else {
        format!("{received} received{filtered}, {metered} metered")
    };
    fact("packets", packets);
    if summary.without_payload {
        fact("payload", "none in files of packet records: their flows have no applications".into());
    }
    if summary.flows > 0 {
        let scaled = |bytes: u64| match bytes {
            0..10_000 => String::new(),
            _ => format!(" ({})", units::quantity(bytes, "B")),
        };
        let (ip, wire) = (summary.ip_bytes, summary.frame_bytes);
        fact("bytes", format!("{ip}{} in IP packets, {wire}{} on the wire", scaled(ip), scaled(wire)));
        let part = if summary.not_selected > 0 {
            of_those_read(summary)
        } else if ledger.flows_created > summary.flows {
            format!(" of {}: the others had not ended when the time for the end was over", ledger.flows_created)
        } else {
            String::new()
        };
        fact("flows", format!("{}{part}", summary.flows));
        fact("span", Zone::current().period(summary.first_ns, summary.last_ns));
        let steps = ledger.clock.steps_forward + ledger.clock.steps_backward;
        if steps > 0 {
            let count = units::count(steps, "time");
            fact("clock", format!("set {count} during the run: the span includes this, so there is no mean rate"));
        } else if let Some(rate) = mean_rate(summary, metered) {
            fact("mean rate", rate);
        }
        if let Some(shares) = protocol_shares(summary) {
            fact("protocols", shares);
        }
        if let Some(text) = summary.tcp.text() {
            fact("tcp", text);
        }
    }
}

/// The flows that a sink has altered, and lost.
fn altered_and_lost(sink: &SinkCounters) -> impl Iterator<Item = (&'static str, String)> {
    let of = |flows, sentence| format!("{} for {}: {sentence}", units::count(flows, "flow"), sink.sink);
    let altered = sink.altered.iter().map(move |(key, &flows)| ("altered", of(flows, altered_sentence(key))));
    let lost = sink.lost.iter().map(move |(&reason, records)| ("lost", of(records.flows, loss_sentence(reason))));
    altered.chain(lost)
}

/// Why the format does not have what the records have.
fn altered_sentence(key: &'static str) -> &'static str {
    match key {
        "time_beyond_format" => {
            "the 32-bit times of the format cannot express their times (longer than 49.7 days, or after 2106)"
        }
        "number_beyond_format" => "a number above 2^63 - 1 is stored as 2^63 - 1",
        "cut_text" => "with shorter texts: the records did not fit into a message",
        "basic_template" => "written as basic records: the sink has no template for their elements",
        key => key,
    }
}

/// Bits and packets per second; `None` if all packets have the same time.
fn mean_rate(summary: &TrafficSummary, packets: u64) -> Option<String> {
    let seconds = summary.duration_ns() as f64 / 1e9;
    let rate = |n: f64, unit: &str| units::rate(n / seconds, unit);
    (seconds > 0.0).then(|| {
        let bits = rate(8.0 * summary.frame_bytes as f64, "bit/s");
        format!("{bits} on the wire, {}", rate(packets as f64, "packets/s"))
    })
}

/// `None` if there are no octets, as in transactions.
fn protocol_shares(summary: &TrafficSummary) -> Option<String> {
    const LISTED: usize = 5;
    let mut protocols: Vec<_> = summary.protocol_bytes.iter().map(|(&protocol, &bytes)| (protocol, bytes)).collect();
    protocols.sort_by_key(|&(protocol, bytes)| (Reverse(bytes), protocol.is_none(), protocol));
    let percent = |bytes: u64| 100.0 * bytes as f64 / summary.frame_bytes as f64;
    let mut shares: Vec<String> = Vec::new();
    for &(protocol, bytes) in protocols.iter().take(LISTED) {
        let name = protocol.map_or_else(|| "layer 2".into(), protocols::ip_protocol);
        shares.push(format!("{name} {:.1} %", percent(bytes)));
    }
    let others: u64 = protocols.iter().skip(LISTED).map(|&(_, bytes)| bytes).sum();
    if others > 0 {
        shares.push(format!("others {:.1} %", percent(others)));
    }
    (summary.frame_bytes > 0).then(|| shares.join(", ") + " of the bytes on the wire")
}

/// EtherTypes or link types of refused frames with their counts, most frequent first.
fn most_frequent(counts: &BTreeMap<u16, u64>, name: fn(u16) -> String) -> String {
    const LISTED: usize = 6;
    let mut types: Vec<(u16, u64)> = counts.iter().map(|(&number, &frames)| (number, frames)).collect();
    types.sort_by_key(|&(number, frames)| (Reverse(frames), number));
    let mut listed: Vec<String> =
        types.iter().take(LISTED).map(|&(number, frames)| format!("{}: {frames}", name(number))).collect();
    if types.len() > LISTED {
        listed.push(format!("{} more types", types.len() - LISTED));
    }
    listed.join(", ")
}

fn dropped(packets: &TrafficCounters) -> impl Iterator<Item = (u64, &'static str)> {
    [
        (packets.dropped_nic, "by the NIC"),
        (packets.dropped_kernel, "by the kernel"),
        (packets.dropped_queue, "by Weir"),
        (packets.dropped_cache_full, "because the flow cache was full (see --flows and --full)"),
    ]
    .into_iter()
    .filter(|&(count, _)| count > 0)
}

fn loss_sentence(key: &str) -> &'static str {
    ExportLossReason::ALL.iter().find(|reason| reason.key() == key).map_or("", |reason| reason.sentence())
}

/// The sink that records were selected for, unless it is the table that the user sees.
fn for_sink(name: &str) -> String {
    if name == "table:-" { String::new() } else { format!(" for {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ledger::PacketAnomaly;

    #[test]
    fn summary_lists_why_packets_were_not_metered() {
        let mut ledger = Ledger::default();
        ledger.packets.received = 10;
        ledger.packets.metered = 3;
        ledger.packets.dropped_cache_full = 2;
        ledger.packets.refused.add(RefusalReason::NonIp, 3);
        ledger.packets.refused.count(RefusalReason::IpVersion);
        ledger.count_refused(RefusalReason::LinkType, 127, 60);
        ledger.ethertypes.extend([(0x0806, 2), (0x88cc, 1)]);
        ledger.anomalies.count(PacketAnomaly::TimeAssumed);
        let text = super::text(&ledger, &TrafficSummary::default(), None);
        for part in [
            "10 received, 3 metered",
            "3 packets (arp: 2, lldp: 1): The frame",
            "1 packet (link type 127 IEEE802_11_RADIOTAP: 1): Weir does not",
            RefusalReason::IpVersion.sentence(),
            "flow cache was full",
            "gives no time",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_run_in_which_the_clock_was_set_has_no_mean_rate() {
        let summary = TrafficSummary { flows: 1, frame_bytes: 1, last_ns: 3_617_000_000_000, ..Default::default() };
        let mut ledger = Ledger::default();
        assert!(super::text(&ledger, &summary, None).contains("mean rate "));
        ledger.clock.steps_forward = 1;
        let text = super::text(&ledger, &summary, None);
        assert!(!text.contains("mean rate  ") && text.contains("clock      set 1 time during the run"), "{text}");
    }

    #[test]
    fn mean_rate_needs_a_duration() {
        let mut summary =
            TrafficSummary { first_ns: 5, last_ns: 5, frame_bytes: u64::MAX, ..TrafficSummary::default() };
        assert_eq!(mean_rate(&summary, 1), None);
        summary.last_ns = 6;
        assert!(mean_rate(&summary, u64::MAX).is_some());
        summary.last_ns = 2_000_000_005;
        summary.frame_bytes = 2500;
        assert_eq!(mean_rate(&summary, 20_000).as_deref(), Some("10.0 kbit/s on the wire, 10.0 kpackets/s"));
        assert_eq!(mean_rate(&summary, 1).as_deref(), Some("10.0 kbit/s on the wire, 0.50 packets/s"));
    }
}
