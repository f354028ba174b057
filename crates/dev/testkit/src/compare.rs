//! Compares decoder and meter with the reference: records as multisets, differences by field.

use crate::{RawFrame, real, reference};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use weir_flow::{Config, Direction, FlowRecord};
use weir_ledger::RecordTotals;
use weir_packet::{NO_LABEL, NO_VLAN, Network, Packet};
use weir_probe::Settings;

/// A record as names and values, without values that have no meaning (those of a direction without
/// packets, inter-arrival times of one packet).
type Fields = BTreeMap<String, String>;

/// Checks that both lists hold the same records, in any order.
///
/// # Errors
/// The pair of records that differs in the fewest fields, and those fields.
pub fn flows(ours: &[FlowRecord], theirs: &[FlowRecord]) -> Result<(), String> {
    // Most records are equal in all values. The names and values of the others are compared.
    let mut unmatched: Vec<&FlowRecord> = theirs.iter().collect();
    let mut matches = |flow: &FlowRecord| {
        let at = unmatched.iter().position(|&their| their == flow);
        at.map(|at| unmatched.swap_remove(at)).is_some()
    };
    let mut balance: HashMap<Fields, i64> = HashMap::new();
    ours.iter().filter(|flow| !matches(flow)).for_each(|flow| *balance.entry(fields(flow)).or_default() += 1);
    unmatched.iter().for_each(|flow| *balance.entry(fields(flow)).or_default() -= 1);
    balance.retain(|_, count| *count != 0);
    if balance.is_empty() {
        return Ok(());
    }
    let mut left: Vec<(&Fields, i64)> = balance.iter().map(|(fields, &count)| (fields, count)).collect();
    left.sort();
    let mut nearest: Option<(Vec<&String>, &Fields, &Fields)> = None;
    // Enough of each side; all pairs of a long list would take minutes.
    for &(our, _) in left.iter().filter(|(_, count)| *count > 0).take(100) {
        for &(their, _) in left.iter().filter(|(_, count)| *count < 0).take(100) {
            let names = different_names(our, their);
            if nearest.as_ref().is_none_or(|(fewest, _, _)| names.len() < fewest.len()) {
                nearest = Some((names, our, their));
            }
        }
    }
    let mut text = format!("{} records against {}", ours.len(), theirs.len());
    match nearest {
        Some((names, our, their)) => {
            text += &format!("; the most similar pair: {}\n", title(our));
            for name in names {
                let show = |side: &Fields| side.get(name).cloned().unwrap_or("nothing".into());
                text += &format!("  {name}: {} against {}\n", show(our), show(their));
            }
        }
        None => {
            let (fields, count) = left[0];
            let side = if count > 0 { "the first" } else { "the second" };
            text += &format!("; only in {side} list: {}\n", title(fields));
            fields.iter().for_each(|(name, value)| text += &format!("  {name}: {value}\n"));
        }
    }
    Err(text)
}

/// Decodes a frame by the decoder and by the reference, and compares packets and anomalies, or the
/// reasons for refusing it.
///
/// # Errors
/// The frame, and the lines of the debug form that differ.
pub fn decoders(frame: &RawFrame, decapsulate: bool) -> Result<(), String> {
    // Only of TCP does anything depend on the payload, and only of TCP is it compared.
    let comparable = |(packet, anomalies): (Packet, Vec<_>)| {
        let payload_bytes = if packet.protocol == 6 { packet.payload_bytes } else { 0 };
        (Packet { payload_bytes, ..packet }, anomalies)
    };
    let ours = real::decode_with_mac_addresses(frame, decapsulate).map(comparable);
    let theirs = reference::decode_with_mac_addresses(frame, decapsulate).map(comparable);
    if ours == theirs {
        return Ok(());
    }
    let (one, other) = (format!("{ours:#?}"), format!("{theirs:#?}"));
    let only = |lines: &str, in_other: &str| {
        let absent = lines.lines().filter(|line| !in_other.lines().any(|other| other == *line));
        absent.map(|line| format!("  {}\n", line.trim())).collect::<String>()
    };
    let (ours, theirs) = (only(&one, &other), only(&other, &one));
    Err(format!("decapsulate {decapsulate}, {frame:?}\nonly here:\n{ours}only by the reference:\n{theirs}"))
}

/// Meters packets by the meter and by the reference, `burst` at a time, and compares records and
/// counters.
///
/// # Errors
/// The first difference.
pub fn meters(packets: &[Packet], burst: usize, config: Config) -> Result<(), String> {
    let (ours, meter) = real::meter_packets(packets, burst, config);
    let theirs = reference::meter_packets(packets, burst, config);
    flows(&ours, &theirs.flows)?;
    let counters = meter.counters();
    same("records created", counters.created, theirs.flows.len() as u64)?;
    same("packets dropped", counters.dropped_packets, theirs.dropped_packets)?;
    same("octets dropped", counters.dropped_bytes, theirs.dropped_bytes)?;
    same("anomalies", counters.anomalies.nonzero().collect(), theirs.anomalies)?;
    same("open records", meter.open_records(), RecordTotals::default())?;
    let all: u64 = ours.iter().map(FlowRecord::packets).sum();
    same("packets in records or dropped", all + counters.dropped_packets, packets.len() as u64)
}

/// Runs frames through the pipeline and the reference, `burst` of them at a time, and compares records and ledger.
///
/// # Errors
/// The first difference, or an equation of the ledger that does not hold.
pub fn pipelines(frames: &[RawFrame], burst: usize, settings: Settings) -> Result<(), String> {
    let theirs = reference::meter(frames, burst, &settings);
    let real::Outcome { flows: ours, ledger, .. } = real::meter(frames, burst, settings);
    same("equations that do not hold", ledger.check(), vec![])?;
    flows(&ours, &theirs.flows)?;
    let (packets, bytes) = (&ledger.packets, &ledger.bytes);
    same("refused", packets.refused.nonzero().collect(), theirs.refused)?;
    let refused_bytes = theirs.refused_bytes.into_iter().filter(|&(_, bytes)| bytes > 0).collect::<BTreeMap<_, _>>();
    same("octets refused", bytes.refused.nonzero().collect(), refused_bytes)?;
    same("anomalies", ledger.anomalies.nonzero().collect(), theirs.anomalies)?;
    same("EtherTypes", ledger.ethertypes, theirs.ethertypes)?;
    same("link types", ledger.link_types, theirs.link_types)?;
    same("dropped", packets.dropped_cache_full, theirs.dropped_packets)?;
    same("octets dropped", bytes.dropped_cache_full, theirs.dropped_bytes)?;
    same("received", packets.received, frames.len() as u64)?;
    same("octets received", bytes.received, frames.iter().map(|frame| u64::from(frame.wire_bytes)).sum())?;
    same("metered", packets.metered, theirs.flows.iter().map(FlowRecord::packets).sum())?;
    same("records", ledger.flows_created, theirs.flows.len() as u64)
}

/// Checks that two values are equal.
///
/// # Errors
/// `what`, and both values.
pub fn same<T: PartialEq + Debug>(what: &str, real: T, reference: T) -> Result<(), String> {
    if real == reference { Ok(()) } else { Err(format!("{what}: {real:?} against {reference:?} by the reference")) }
}

fn different_names<'a>(one: &'a Fields, other: &'a Fields) -> Vec<&'a String> {
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    names.into_iter().filter(|&name| one.get(name) != other.get(name)).collect()
}

fn title(fields: &Fields) -> String {
    format!("protocol {}, {} to {}", fields["protocol"], fields["source"], fields["destination"])
}

fn address(network: Network, octets: [u8; 16]) -> String {
    match weir_packet::ip_address(network, octets) {
        Some(ip) => ip.to_string(),
        None => octets[10..].iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":"),
    }
}

fn fields(flow: &FlowRecord) -> Fields {
    let mut fields = Fields::new();
    let mut add = |name: &str, value: String| drop(fields.insert(name.into(), value));
    add("network", format!("{:?}", flow.network));
    add("protocol", flow.protocol.to_string());
    add("source", format!("{} port {}", address(flow.network, flow.source), flow.source_port));
    add("destination", format!("{} port {}", address(flow.network, flow.destination), flow.destination_port));
    // The text above hides the form of an address, so compare all octets too.
    add("source octets", format!("{:02x?}", flow.source));
    add("destination octets", format!("{:02x?}", flow.destination));
    add("end reason", flow.end_reason.name().to_string());
    add("approximate", flow.approximate.names().collect::<Vec<_>>().join(" "));
    add("interface", flow.interface.to_string());
    if let Some(reports) = &flow.tcp {
        for (name, report) in ["forward", "reverse"].into_iter().zip(reports) {
            add(&format!("{name} tcp"), format!("{report:?}"));
        }
    }
    for (name, direction) in [("forward", &flow.forward), ("reverse", &flow.reverse)] {
        for (field, value) in direction_fields(direction) {
            add(&format!("{name} {field}"), value);
        }
    }
    fields
}

fn direction_fields(d: &Direction) -> Vec<(&'static str, String)> {
    let mut fields = vec![("packets", d.packets.to_string())];
    if d.packets == 0 {
        return fields;
    }
    let or_none = |absent: bool, value: String| if absent { "none".to_string() } else { value };
    fields.extend([
        ("bytes", d.bytes.to_string()),
        ("frame bytes", d.frame_bytes.to_string()),
        ("first", d.first_ns.to_string()),
        ("last", d.last_ns.to_string()),
        ("smallest", d.size_min.to_string()),
        ("largest", d.size_max.to_string()),
        ("squared sizes", { d.size_squares }.to_string()),
        ("label", or_none(d.mpls_label == NO_LABEL, d.mpls_label.to_string())),
        ("vlan", or_none(d.vlan == NO_VLAN, d.vlan.to_string())),
        ("inner vlan", or_none(d.inner_vlan == NO_VLAN, d.inner_vlan.to_string())),
        ("tcp flags", format!("{:#05x}", d.tcp_flags)),
        ("smallest ttl", d.ttl_min.to_string()),
        ("largest ttl", d.ttl_max.to_string()),
        ("tos", d.tos.to_string()),
        ("icmp", format!("{:?}", d.icmp)),
        ("tunnel", format!("{} {:?}", d.tunnel_type.name().unwrap_or("none"), d.tunnel_id)),
        ("outer addresses", format!("{:02x?} {:02x?}", d.outer_source, d.outer_destination)),
        ("mac addresses", format!("{:02x?} {:02x?}", d.source_mac, d.destination_mac)),
    ]);
    if d.iat_count() > 0 {
        fields.extend([
            ("shortest inter-arrival time", d.iat_min_ns.to_string()),
            ("longest inter-arrival time", d.iat_max_ns.to_string()),
            ("squared inter-arrival times", { d.iat_squares }.to_string()),
        ]);
    }
    fields
}
