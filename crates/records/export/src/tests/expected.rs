//! The expected data records of a flow record, computed independently of the encoder.

use std::net::IpAddr;
use std::sync::Arc;
use testbed::decode::{Record, Value};
use weir_flow::{Approximate, Direction, FlowRecord, Places};
use weir_packet::{NO_LABEL, NO_VLAN, Network, TunnelType, ip_address};
use weir_tcp::{SegmentClass, TcpReport};

/// A field of one direction.
pub struct Field {
    /// Name in JSON.
    pub name: &'static str,
    /// Name of the element in IPFIX.
    element: &'static str,
    /// `None` if the field does not apply.
    pub value: Option<Value>,
}

/// The two directions of a flow as unidirectional flows.
pub fn unidirectional(flow: &FlowRecord) -> Vec<FlowRecord> {
    let none = Direction::default();
    let forward = FlowRecord { reverse: none, ..flow.clone() };
    let reverse = FlowRecord {
        source: flow.destination,
        destination: flow.source,
        source_port: flow.destination_port,
        destination_port: flow.source_port,
        forward: flow.reverse,
        reverse: none,
        tcp: flow.tcp.map(|[forward, reverse]| [reverse, forward]),
        places: flow.places.as_ref().map(|of| {
            let (source, destination) = (of.destination.clone(), of.source.clone());
            Arc::new(Places {
                source,
                destination,
                tags: of.tags.clone(),
                interface: of.interface.clone(),
                has_geo: of.has_geo,
            })
        }),
        ..flow.clone()
    };
    match (flow.forward.packets, flow.reverse.packets) {
        (_, 0) => vec![forward],
        (0, _) => vec![reverse],
        _ => vec![forward, reverse],
    }
}

/// The records of a flow in IPFIX.
pub fn ipfix(flow: &FlowRecord, uniflow: bool) -> Vec<Record> {
    let mut records: Vec<Record> = if !uniflow && flow.forward.packets > 0 && flow.reverse.packets > 0 {
        vec![record(flow)]
    } else {
        unidirectional(flow).iter().map(record).collect()
    };
    let both = records.len() == 2;
    for (at, record) in records.iter_mut().enumerate() {
        let from_responder = flow.forward.packets == 0 && flow.reverse.packets > 0 || both && at == 1;
        for name in ["samplingInterval", "samplingAlgorithm"] {
            record.remove(name);
        }
        record.insert("biflowDirection".into(), Value::Unsigned(if from_responder { 2 } else { 1 }));
    }
    records
}

/// Whether an element is Weir's own. Its reverse element has another name than that of IANA.
fn is_weir(element: &str) -> bool {
    let prefixes = [
        "packetSize",
        "interArrival",
        "tunnel",
        "outer",
        "approximate",
        "queueLost",
        "samplingPopulationM",
        "tcp",
        "udpResponse",
        "sourceIs",
        "sourceCountry",
        "destinationIs",
        "destinationCountry",
    ];
    prefixes.iter().any(|prefix| element.starts_with(prefix))
        && !element.ends_with("TotalCount")
        && element != "tcpControlBits"
}

/// The records of a flow in NetFlow v9: unidirectional, without the elements of IPFIX only. The
/// caller checks the two SysUptime elements.
pub fn netflow9(flow: &FlowRecord) -> Vec<Record> {
    let has = |name: &str| {
        let ipfix_only = [
            "flowStartNanoseconds",
            "flowEndNanoseconds",
            "layer2OctetDeltaCount",
            "gtpuTEid",
            "layer2SegmentId",
            "samplingPopulation",
            "samplingSize",
            "selectorAlgorithm",
        ];
        !is_weir(name) && !name.ends_with("TotalCount") && !name.starts_with("ntop") && !ipfix_only.contains(&name)
    };
    let netflow9 = |part: &FlowRecord| {
        let mut record: Record = record(part).into_iter().filter(|(name, _)| has(name)).collect();
        // Number 32 has type and code of ICMPv6 too.
        if let Some(value) = record.get("icmpTypeCodeIPv6").cloned() {
            record.insert("icmpTypeCodeIPv4".into(), value);
        }
        record
    };
    unidirectional(flow).iter().map(netflow9).collect()
}

/// The MAC addresses of source and destination.
pub fn macs(flow: &FlowRecord) -> [Option<[u8; 6]>; 2] {
    let d = if flow.forward.packets > 0 { &flow.forward } else { &flow.reverse };
    let [mut source, mut destination] = [Some(d.source_mac), Some(d.destination_mac)];
    if flow.forward.packets == 0 {
        (source, destination) = (destination, source);
    }
    if flow.network == Network::Layer2 {
        return [flow.source, flow.destination].map(|address| address[10..].try_into().ok());
    }
    [source, destination].map(|mac| mac.filter(|mac| *mac != [0; 6]))
}

fn record(flow: &FlowRecord) -> Record {
    let mut record = Record::new();
    let mut insert = |name: &str, value: Value| assert_eq!(record.insert(name.into(), value), None);
    let number = |n: u64| Value::Unsigned(n);
    let (start, end) = (flow.start_ns(), flow.end_ns());
    insert("flowStartMilliseconds", number(start / 1_000_000));
    insert("flowEndMilliseconds", number(end / 1_000_000));
    for (side, bgp, place) in flow.places.iter().flat_map(|places| {
        [("source", "bgpSource", &places.source), ("destination", "bgpDestination", &places.destination)]
    }) {
        if let Some(is_local) = place.is_local {
            insert(&format!("{side}IsLocal"), number(is_local.into()));
        }
        if flow.places.as_ref().is_some_and(|places| places.has_geo) {
            insert(&format!("{side}CountryCode"), Value::Text(place.country().unwrap_or_default().into()));
            let system = place.autonomous_system.as_ref().map_or(0, |system| system.number);
            insert(&format!("{bgp}AsNumber"), number(system.into()));
        }
    }
    insert("flowStartNanoseconds", number(ntp(start)));
    insert("flowEndNanoseconds", number(ntp(end)));
    insert("ingressInterface", number(flow.interface.into()));
    insert("flowEndReason", number(flow.end_reason as u64));
    insert("samplingInterval", number(flow.sampling.map_or(1, |[_, max]| max).into()));
    if let Some([min, max]) = flow.sampling {
        insert("samplingPopulationMinimum", number(min.into()));
        insert("samplingPopulation", number(max.into()));
        insert("samplingSize", number(1));
        insert("selectorAlgorithm", number(3));
        insert("samplingAlgorithm", number(2));
    }
    if flow.queue_lost != 0 {
        insert("queueLostPackets", number(flow.queue_lost));
    }
    let both = flow.forward.packets > 0 && flow.reverse.packets > 0;
    let is_overflow = flow.approximate.0 & Approximate::OVERFLOW != 0;
    if both && flow.protocol == 17 && flow.network != Network::Layer2 && !is_overflow {
        let (first, answer) = (flow.forward.first_ns, flow.reverse.first_ns);
        if answer >= first {
            insert("udpResponseTime", number(answer - first));
        }
    }
    if flow.approximate.0 != 0 {
        insert("approximateRecord", number(flow.approximate.0.into()));
    }
    match (flow.network, flow.source_ip(), flow.destination_ip()) {
        (Network::Ipv4, Some(source), Some(destination)) => {
            insert("sourceIPv4Address", Value::Ip(source));
            insert("destinationIPv4Address", Value::Ip(destination));
        }
        (Network::Ipv6, Some(source), Some(destination)) => {
            insert("sourceIPv6Address", Value::Ip(source));
            insert("destinationIPv6Address", Value::Ip(destination));
        }
        _ => insert("ethernetType", number(flow.source_port.into())),
    }
    for (name, mac) in ["sourceMacAddress", "destinationMacAddress"].into_iter().zip(macs(flow)) {
        if let Some(mac) = mac {
            insert(name, Value::Octets(mac.into()));
        }
    }
    if flow.network != Network::Layer2 {
        insert("protocolIdentifier", number(flow.protocol.into()));
        if [6, 17, 33, 132, 136].contains(&flow.protocol) {
            insert("sourceTransportPort", number(flow.source_port.into()));
            insert("destinationTransportPort", number(flow.destination_port.into()));
        }
    }
    for (reverse, direction) in [(false, &flow.forward), (true, &flow.reverse)] {
        if !reverse || direction.packets > 0 {
            insert_direction(flow, direction, reverse, &mut record);
        }
        if let Some(reports) = &flow.tcp
            && direction.packets > 0
        {
            insert_tcp(&reports[usize::from(reverse)], direction, reverse, &mut record);
        }
    }
    record
}

fn insert_element(element: &str, reverse: bool, value: Value, record: &mut Record) {
    let (first, rest) = element.split_at(1);
    let name = match (reverse, is_weir(element)) {
        (false, _) => element.into(),
        (true, false) => format!("reverse {element}"),
        (true, true) => format!("reverse{}{rest}", first.to_uppercase()),
    };
    assert_eq!(record.insert(name, value), None);
}

/// TCP fields that are always in a record, except values that [`implied`] gives.
pub fn tcp_always(t: &TcpReport) -> Vec<Field> {
    let field = |name, element, value: Option<u64>| Field { name, element, value: value.map(Value::Unsigned) };
    let segments = |class| Some(t.classes[class as usize].segments);
    let float = |name, element, sum: u64, count: u64| Field {
        name,
        element,
        value: (count > 0).then(|| Value::Float(sum as f64 / count as f64)),
    };
    vec![
        field("tcp_syn_count", "tcpSynTotalCount", Some(t.syns())),
        field("tcp_fin_count", "tcpFinTotalCount", Some(t.fins)),
        field("tcp_rst_count", "tcpRstTotalCount", segments(SegmentClass::Reset)),
        field("tcp_payload_bytes", "tcpPayloadOctets", Some(t.classes.iter().map(|count| count.bytes).sum())),
        field("tcp_unique_bytes", "tcpUniqueOctets", Some(t.unique_bytes)),
        field("tcp_in_order_packets", "tcpInOrderPackets", segments(SegmentClass::InOrder)),
        field("tcp_acknowledgments", "tcpAcknowledgments", segments(SegmentClass::Acknowledgment)),
        field("tcp_handshake_rtt_ns", "tcpHandshakeRoundTrip", t.handshake_rtt_ns),
        float("tcp_response_mean_ns", "tcpResponseTimeMean", t.responses.sum_ns, t.responses.count),
        float("tcp_rtt_mean_ns", "tcpRoundTripTimeMean", t.round_trips.sum_ns, t.round_trips.count),
        field("tcp_syn_window", "tcpSynWindow", t.syn_window.map(u64::from)),
        field("tcp_size_by_sequence", "tcpSizeBySequence", t.size_by_sequence_bytes),
        field("tcp_duration_by_sequence_ns", "tcpDurationBySequence", t.duration_by_sequence_ns),
    ]
}

/// TCP fields that IPFIX only has with TCP anomalies.
pub fn tcp_with_anomalies(t: &TcpReport) -> Vec<Field> {
    use SegmentClass::UnseenRetransmission;
    let count = |name, element, value| Field { name, element, value: Some(Value::Unsigned(value)) };
    let segments = |class| t.classes[class as usize].segments;
    let bytes = |class| t.classes[class as usize].bytes;
    let duplicates = bytes(SegmentClass::Duplicate) + bytes(SegmentClass::RoutedDuplicate);
    vec![
        count("tcp_syn_bytes", "tcpSynOctets", bytes(SegmentClass::Syn)),
        count("tcp_syn_retransmitted", "tcpSynRetransmitted", segments(SegmentClass::SynRetransmission)),
        count("tcp_syn_retransmitted_bytes", "tcpSynRetransmittedOctets", bytes(SegmentClass::SynRetransmission)),
        count("tcp_rst_bytes", "tcpRstOctets", bytes(SegmentClass::Reset)),
        count("tcp_in_order_bytes", "tcpInOrderOctets", bytes(SegmentClass::InOrder)),
        count("tcp_duplicate_acks", "tcpDuplicateAcknowledgments", segments(SegmentClass::DuplicateAcknowledgment)),
        count("tcp_retransmitted_packets", "tcpRetransmittedPackets", segments(SegmentClass::Retransmission)),
        count("tcp_retransmitted_bytes", "tcpRetransmittedOctets", t.retransmitted_bytes),
        count("tcp_retransmitted_payload_bytes", "tcpRetransmittedPayloadOctets", bytes(SegmentClass::Retransmission)),
        count("tcp_retransmitted_partial", "tcpRetransmittedPartial", t.partial_retransmissions),
        count("tcp_retransmitted_spurious", "tcpRetransmittedSpurious", t.spurious_retransmissions),
        count("tcp_retransmitted_unseen", "tcpRetransmittedUnseenPackets", segments(UnseenRetransmission)),
        count("tcp_retransmitted_unseen_bytes", "tcpRetransmittedUnseenOctets", bytes(UnseenRetransmission)),
        count("tcp_out_of_order", "tcpOutOfOrderPackets", segments(SegmentClass::OutOfOrder)),
        count("tcp_out_of_order_bytes", "tcpOutOfOrderOctets", bytes(SegmentClass::OutOfOrder)),
        count("tcp_duplicates", "tcpDuplicatePackets", segments(SegmentClass::Duplicate)),
        count("tcp_routed_duplicates", "tcpRoutedDuplicatePackets", segments(SegmentClass::RoutedDuplicate)),
        count("tcp_duplicate_bytes", "tcpDuplicateOctets", duplicates),
        count("tcp_routed_duplicate_bytes", "tcpRoutedDuplicateOctets", bytes(SegmentClass::RoutedDuplicate)),
        count("tcp_keepalives", "tcpKeepAlives", segments(SegmentClass::KeepAlive)),
        count("tcp_keepalive_bytes", "tcpKeepAliveOctets", bytes(SegmentClass::KeepAlive)),
        count("tcp_zero_window_probes", "tcpZeroWindowProbes", segments(SegmentClass::ZeroWindowProbe)),
        count("tcp_zero_window_probe_bytes", "tcpZeroWindowProbeOctets", bytes(SegmentClass::ZeroWindowProbe)),
        count("tcp_zero_window", "tcpZeroWindowAnnouncements", t.zero_windows),
        count("tcp_out_of_window", "tcpOutOfWindowPackets", segments(SegmentClass::OutOfWindow)),
        count("tcp_out_of_window_bytes", "tcpOutOfWindowOctets", bytes(SegmentClass::OutOfWindow)),
        count("tcp_unread", "tcpUnreadPackets", segments(SegmentClass::Unread)),
        count("tcp_missing_bytes", "tcpMissingOctets", t.missing_bytes),
        count("tcp_largest_hole", "tcpLargestHole", t.largest_hole_bytes),
    ]
}

/// The value of an element that is left out of a direction without TCP anomalies, by
/// docs/fields.md.
fn implied(element: &str, t: &TcpReport, d: &Direction) -> Option<Value> {
    let payload = t.classes.iter().map(|count| count.bytes).sum();
    let bit = |bit| u64::from(d.tcp_flags & bit != 0);
    let number = match element {
        "tcpSynTotalCount" => bit(2),
        "tcpFinTotalCount" => bit(1),
        "tcpUniqueOctets" => payload,
        "tcpAcknowledgments" => {
            let others = t.syns() + t.count(SegmentClass::Reset).segments + t.count(SegmentClass::InOrder).segments;
            d.packets.wrapping_sub(others)
        }
        "tcpSizeBySequence" => t.duration_by_sequence_ns.map(|_| payload)?,
        _ => return None,
    };
    Some(Value::Unsigned(number))
}

fn insert_tcp(t: &TcpReport, d: &Direction, reverse: bool, record: &mut Record) {
    let usual = [SegmentClass::Syn, SegmentClass::Reset, SegmentClass::InOrder, SegmentClass::Acknowledgment];
    let has_anomalies =
        SegmentClass::ALL.iter().any(|class| !usual.contains(class) && t.classes[*class as usize].segments > 0)
            || t.count(SegmentClass::Syn).bytes + t.count(SegmentClass::Reset).bytes > 0
            || t.zero_windows + t.largest_hole_bytes + t.missing_bytes + u64::from(t.degradation.0) > 0;
    let with_anomalies = if has_anomalies { tcp_with_anomalies(t) } else { Vec::new() };
    for Field { element, value, .. } in tcp_always(t).into_iter().chain(with_anomalies) {
        if let Some(value) = value
            && (has_anomalies || implied(element, t, d).as_ref() != Some(&value))
        {
            insert_element(element, reverse, value, record);
        }
    }
    if has_anomalies {
        insert_element("tcpDegraded", reverse, Value::Unsigned(t.degradation.0.into()), record);
    } else {
        record.remove(if reverse { "reversePacketSizeMean" } else { "packetSizeMean" });
    }
    let mut insert_ntop = |forward: u16, backward: u16, value: u64| {
        let number = if reverse { backward } else { forward };
        record.insert(format!("ntop {number}"), Value::Unsigned(value));
    };
    let max = u64::from(u32::MAX);
    if has_anomalies {
        insert_ntop(109, 110, t.classes[SegmentClass::Retransmission as usize].segments.min(max));
        insert_ntop(111, 112, t.classes[SegmentClass::OutOfOrder as usize].segments.min(max));
    }
    if t.syn_window.is_some() {
        insert_ntop(417, 421, t.maximum_segment_size.map_or(0, u64::from));
        insert_ntop(418, 422, t.window_scale.map_or(0, u64::from));
    }
}

/// Fields that JSON and IPFIX express alike.
pub fn direction_fields(flow: &FlowRecord, d: &Direction) -> Vec<Field> {
    let field = |name, element, applies: bool, value| Field { name, element, value: applies.then_some(value) };
    let number = |name, element, applies, n| field(name, element, applies, Value::Unsigned(n));
    let float = |name, element, applies, x: Option<f64>| field(name, element, applies, Value::Float(x.unwrap_or(0.0)));
    let some = d.packets > 0;
    let ip = some && flow.network != Network::Layer2;
    let ipv4 = flow.network == Network::Ipv4;
    let icmp = ip
        && flow.protocol == if ipv4 { 1 } else { 58 }
        && (flow.source_port, flow.destination_port) != (0, 0)
        && flow.approximate.0 & Approximate::OVERFLOW == 0;
    let [icmp_type, icmp_code] = if ipv4 { ["icmpTypeIPv4", "icmpCodeIPv4"] } else { ["icmpTypeIPv6", "icmpCodeIPv6"] };
    let tunnel = some && d.tunnel_type != TunnelType::None;
    let (source, destination) = outer(d);
    let [outer_source, outer_destination] = match source {
        IpAddr::V4(_) => ["outerSourceIPv4Address", "outerDestinationIPv4Address"],
        IpAddr::V6(_) => ["outerSourceIPv6Address", "outerDestinationIPv6Address"],
    };
    vec![
        number("packets", "packetDeltaCount", true, d.packets),
        number("bytes", "octetDeltaCount", true, d.bytes),
        number("l2_bytes", "layer2OctetDeltaCount", true, d.frame_bytes),
        number("tcp_flags", "tcpControlBits", ip && flow.protocol == 6, d.tcp_flags.into()),
        number("tos", "ipClassOfService", ip, d.tos.into()),
        number("ttl_min", "minimumTTL", ip, d.ttl_min.into()),
        number("ttl_max", "maximumTTL", ip, d.ttl_max.into()),
        number("packet_size_min", "minimumIpTotalLength", ip, d.size_min.into()),
        number("packet_size_max", "maximumIpTotalLength", ip, d.size_max.into()),
        float("packet_size_mean", "packetSizeMean", ip, Some(d.size_mean())),
        float("packet_size_std", "packetSizeStandardDeviation", ip, Some(d.size_std())),
        number("iat_min_ns", "interArrivalTimeMinimum", d.packets > 1, d.iat_min_ns),
        number("iat_max_ns", "interArrivalTimeMaximum", d.packets > 1, d.iat_max_ns),
        float("iat_mean_ns", "interArrivalTimeMean", d.packets > 1, d.iat_mean_ns()),
        float("iat_std_ns", "interArrivalTimeStandardDeviation", d.packets > 1, d.iat_std_ns()),
        number("vlan_id", "vlanId", some && d.vlan != NO_VLAN, d.vlan.into()),
        number("inner_vlan_id", "dot1qCustomerVlanId", some && d.inner_vlan != NO_VLAN, d.inner_vlan.into()),
        number("tunnel_id", "tunnelIdentifier", tunnel && d.tunnel_id.is_some(), d.tunnel_id.unwrap_or(0).into()),
        field("outer_src_ip", outer_source, tunnel, Value::Ip(source)),
        field("outer_dst_ip", outer_destination, tunnel, Value::Ip(destination)),
        number("icmp_type", icmp_type, icmp, d.icmp[0].into()),
        number("icmp_code", icmp_code, icmp, d.icmp[1].into()),
    ]
}

fn insert_direction(flow: &FlowRecord, d: &Direction, reverse: bool, record: &mut Record) {
    let mut insert = |element: &str, value: Value| insert_element(element, reverse, value, record);
    for Field { name, element, value } in direction_fields(flow, d) {
        let Some(value) = value else { continue };
        if name == "vlan_id" {
            insert("dot1qVlanId", value.clone());
        }
        if name == "icmp_type" {
            let element = if flow.network == Network::Ipv4 { "icmpTypeCodeIPv4" } else { "icmpTypeCodeIPv6" };
            insert(element, Value::Unsigned(u16::from_be_bytes(d.icmp).into()));
        }
        insert(element, value);
    }
    if d.packets == 0 {
        return;
    }
    if let (TunnelType::Vxlan, Some(id)) = (d.tunnel_type, d.tunnel_id) {
        insert("layer2SegmentId", Value::Unsigned(1 << 56 | u64::from(id)));
    }
    if let (TunnelType::Gtpu, Some(id)) = (d.tunnel_type, d.tunnel_id) {
        insert("gtpuTEid", Value::Unsigned(id.into()));
    }
    if d.mpls_label != NO_LABEL {
        let [_, octets @ ..] = (d.mpls_label << 4).to_be_bytes();
        insert("mplsTopLabelStackSection", Value::Octets(octets.into()));
    }
    if d.tunnel_type != TunnelType::None {
        insert("tunnelType", Value::Unsigned(d.tunnel_type as u64));
    }
}

/// The outer addresses. In these tests both have the same family, and no IPv6 address is
/// IPv4-mapped.
fn outer(d: &Direction) -> (IpAddr, IpAddr) {
    let four = d.outer_source.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    let network = if four { Network::Ipv4 } else { Network::Ipv6 };
    (ip_address(network, d.outer_source).unwrap(), ip_address(network, d.outer_destination).unwrap())
}

fn ntp(ns: u64) -> u64 {
    let seconds = (ns / 1_000_000_000 + 2_208_988_800) % (1 << 32);
    seconds * 1_000_000_000 + ns % 1_000_000_000
}
