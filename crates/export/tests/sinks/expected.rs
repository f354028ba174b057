//! The expected data records of a flow record, computed independently of the encoder.

use crate::decode::{Record, Value};
use std::net::IpAddr;
use weir_flow::{Approximate, Direction, FlowRecord};
use weir_packet::{NO_LABEL, NO_VLAN, Network, TunnelType, ip_address};
use weir_tcp::{SegmentClass, TcpReport};

/// The two directions of a flow as unidirectional flows.
pub fn unidirectional(flow: &FlowRecord) -> Vec<FlowRecord> {
    let none = Direction::default();
    let there = FlowRecord { reverse: none, ..*flow };
    let back = FlowRecord {
        source: flow.destination,
        destination: flow.source,
        source_port: flow.destination_port,
        destination_port: flow.source_port,
        forward: flow.reverse,
        reverse: none,
        tcp: flow.tcp.map(|[there, back]| [back, there]),
        ..*flow
    };
    match (flow.forward.packets, flow.reverse.packets) {
        (_, 0) => vec![there],
        (0, _) => vec![back],
        _ => vec![there, back],
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
        let back = flow.forward.packets == 0 && flow.reverse.packets > 0 || both && at == 1;
        for name in ["samplingInterval", "samplingAlgorithm"] {
            record.remove(name);
        }
        record.insert("biflowDirection".into(), Value::Unsigned(if back { 2 } else { 1 }));
    }
    records
}

/// The records of a flow in NetFlow v9: unidirectional, without the elements of IPFIX only. The
/// caller checks the two SysUptime elements.
pub fn netflow9(flow: &FlowRecord) -> Vec<Record> {
    let keep = |name: &str| {
        let own = "packetSize interArrival tunnel outer approximate queueLost samplingPopulation \
                   samplingSize selectorAlgorithm tcpU tcpS tcpF tcpR tcpP tcpI tcpA tcpD tcpO tcpK \
                   tcpZ tcpM tcpL tcpH ntop";
        let ipfix_only = ["flowStartNanoseconds", "flowEndNanoseconds", "layer2OctetDeltaCount", "layer2SegmentId"];
        !own.split(' ').any(|prefix| name.starts_with(prefix)) && !ipfix_only.contains(&name)
    };
    unidirectional(flow).iter().map(|part| record(part).into_iter().filter(|(name, _)| keep(name)).collect()).collect()
}

fn record(flow: &FlowRecord) -> Record {
    let mut record = Record::new();
    let mut put = |name: &str, value: Value| assert_eq!(record.insert(name.into(), value), None);
    let number = |n: u64| Value::Unsigned(n);
    let (start, end) = (flow.start_ns(), flow.end_ns());
    put("flowStartMilliseconds", number(start / 1_000_000));
    put("flowEndMilliseconds", number(end / 1_000_000));
    put("flowStartNanoseconds", number(ntp(start)));
    put("flowEndNanoseconds", number(ntp(end)));
    put("ingressInterface", number(flow.interface.into()));
    put("flowEndReason", number(flow.end_reason as u64));
    if let Some([least, most]) = flow.sampling {
        put("samplingPopulationMinimum", number(least.into()));
        put("samplingPopulation", number(most.into()));
        put("samplingSize", number(1));
        put("selectorAlgorithm", number(3));
        put("samplingInterval", number(most.into()));
        put("samplingAlgorithm", number(2));
    }
    if flow.queue_lost != 0 {
        put("queueLostPackets", number(flow.queue_lost));
    }
    if flow.approximate.0 != 0 {
        put("approximateRecord", number(flow.approximate.0.into()));
    }
    let (source, destination) = (flow.source, flow.destination);
    match (flow.network, flow.source_ip(), flow.destination_ip()) {
        (Network::Ipv4, Some(source), Some(destination)) => {
            put("sourceIPv4Address", Value::Ip(source));
            put("destinationIPv4Address", Value::Ip(destination));
        }
        (Network::Ipv6, Some(source), Some(destination)) => {
            put("sourceIPv6Address", Value::Ip(source));
            put("destinationIPv6Address", Value::Ip(destination));
        }
        _ => {
            put("sourceMacAddress", Value::Octets(source[10..].into()));
            put("destinationMacAddress", Value::Octets(destination[10..].into()));
            put("ethernetType", number(flow.source_port.into()));
        }
    }
    if flow.network != Network::Layer2 {
        put("protocolIdentifier", number(flow.protocol.into()));
        if [6, 17, 33, 132, 136].contains(&flow.protocol) {
            put("sourceTransportPort", number(flow.source_port.into()));
            put("destinationTransportPort", number(flow.destination_port.into()));
        }
    }
    side(flow, &flow.forward, false, &mut record);
    if flow.reverse.packets > 0 {
        side(flow, &flow.reverse, true, &mut record);
    }
    for (reverse, direction) in [&flow.forward, &flow.reverse].into_iter().enumerate() {
        if let Some(reports) = &flow.tcp
            && direction.packets > 0
        {
            tcp_side(&reports[reverse], direction, reverse == 1, &mut record);
        }
    }
    record
}

/// A TCP field.
pub struct Tcp {
    /// Name in JSON.
    pub name: &'static str,
    /// Name of the element in IPFIX.
    pub element: &'static str,
    pub value: Option<u64>,
}

/// TCP fields that are always in a record, except values that [`follows`] gives.
pub fn tcp_always(t: &TcpReport) -> Vec<Tcp> {
    let field = |name, element, value| Tcp { name, element, value };
    let segments = |class| Some(t.classes[class as usize].segments);
    vec![
        field("tcp_syn_count", "tcpSynTotalCount", Some(t.syns())),
        field("tcp_fin_count", "tcpFinTotalCount", Some(t.fins)),
        field("tcp_rst_count", "tcpRstTotalCount", segments(SegmentClass::Reset)),
        field("tcp_payload_bytes", "tcpPayloadOctets", Some(t.classes.iter().map(|count| count.bytes).sum())),
        field("tcp_unique_bytes", "tcpUniqueOctets", Some(t.unique_bytes)),
        field("tcp_in_order_packets", "tcpInOrderPackets", segments(SegmentClass::InOrder)),
        field("tcp_acknowledgments", "tcpAcknowledgments", segments(SegmentClass::Acknowledgment)),
        field("tcp_handshake_rtt_ns", "tcpHandshakeRoundTrip", t.handshake_rtt_ns),
        field("tcp_syn_window", "tcpSynWindow", t.syn_window.map(u64::from)),
        field("tcp_size_by_sequence", "tcpSizeBySequence", t.size_by_sequence_bytes),
        field("tcp_duration_by_sequence_ns", "tcpDurationBySequence", t.duration_by_sequence_ns),
    ]
}

/// TCP fields that IPFIX only has with TCP anomalies.
pub fn tcp_with_anomalies(t: &TcpReport) -> Vec<Tcp> {
    use SegmentClass::UnseenRetransmission;
    let count = |name, element, value| Tcp { name, element, value: Some(value) };
    let segments = |class| t.classes[class as usize].segments;
    let bytes = |class| t.classes[class as usize].bytes;
    let copied = bytes(SegmentClass::Duplicate) + bytes(SegmentClass::RoutedDuplicate);
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
        count("tcp_duplicate_bytes", "tcpDuplicateOctets", copied),
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
fn follows(element: &str, t: &TcpReport, d: &Direction) -> Option<u64> {
    let payload = t.classes.iter().map(|count| count.bytes).sum();
    let bit = |bit| u64::from(d.tcp_flags & bit != 0);
    match element {
        "tcpSynTotalCount" => Some(bit(2)),
        "tcpFinTotalCount" => Some(bit(1)),
        "tcpUniqueOctets" => Some(payload),
        "tcpAcknowledgments" => {
            let others = t.syns() + t.count(SegmentClass::Reset).segments + t.count(SegmentClass::InOrder).segments;
            Some(d.packets.wrapping_sub(others))
        }
        "tcpSizeBySequence" => t.duration_by_sequence_ns.map(|_| payload),
        _ => None,
    }
}

fn tcp_side(t: &TcpReport, d: &Direction, reverse: bool, record: &mut Record) {
    let mut put = |name: &str, value: u64| {
        let iana = name.ends_with("TotalCount");
        let (first, rest) = name.split_at(1);
        let name = match (reverse, iana) {
            (false, _) => name.into(),
            (true, true) => format!("reverse {name}"),
            (true, false) => format!("reverse{}{rest}", first.to_uppercase()),
        };
        assert_eq!(record.insert(name, Value::Unsigned(value)), None);
    };
    let usual = [SegmentClass::Syn, SegmentClass::Reset, SegmentClass::InOrder, SegmentClass::Acknowledgment];
    let trouble =
        SegmentClass::ALL.iter().any(|class| !usual.contains(class) && t.classes[*class as usize].segments > 0)
            || t.count(SegmentClass::Syn).bytes + t.count(SegmentClass::Reset).bytes > 0
            || t.zero_windows + t.largest_hole_bytes + t.missing_bytes + u64::from(t.degradation.0) > 0;
    let with_anomalies = if trouble { tcp_with_anomalies(t) } else { Vec::new() };
    for Tcp { element, value, .. } in tcp_always(t).iter().chain(&with_anomalies) {
        if let Some(value) = *value
            && (trouble || follows(element, t, d) != Some(value))
        {
            put(element, value);
        }
    }
    if trouble {
        put("tcpDegraded", t.degradation.0.into());
    } else {
        record.remove(if reverse { "reversePacketSizeMean" } else { "packetSizeMean" });
    }
    let mut ntop = |there: u16, back: u16, value: u64| {
        let number = if reverse { back } else { there };
        record.insert(format!("ntop {number}"), Value::Unsigned(value));
    };
    let most = u64::from(u32::MAX);
    if trouble {
        ntop(109, 110, t.classes[SegmentClass::Retransmission as usize].segments.min(most));
        ntop(111, 112, t.classes[SegmentClass::OutOfOrder as usize].segments.min(most));
    }
    if t.syn_window.is_some() {
        ntop(417, 421, t.maximum_segment_size.map_or(0, u64::from));
        ntop(418, 422, t.window_scale.map_or(0, u64::from));
    }
}

fn side(flow: &FlowRecord, d: &Direction, reverse: bool, record: &mut Record) {
    let mut iana = |name: &str, n: u64| {
        record.insert(format!("{}{name}", if reverse { "reverse " } else { "" }), Value::Unsigned(n));
    };
    iana("packetDeltaCount", d.packets);
    iana("octetDeltaCount", d.bytes);
    iana("layer2OctetDeltaCount", d.frame_bytes);
    if d.packets == 0 {
        return;
    }
    if flow.network != Network::Layer2 {
        if flow.protocol == 6 {
            iana("tcpControlBits", d.tcp_flags.into());
        }
        iana("ipClassOfService", d.tos.into());
        iana("minimumTTL", d.ttl_min.into());
        iana("maximumTTL", d.ttl_max.into());
        iana("minimumIpTotalLength", d.size_min.into());
        iana("maximumIpTotalLength", d.size_max.into());
    }
    if d.vlan != NO_VLAN {
        iana("vlanId", d.vlan.into());
        iana("dot1qVlanId", d.vlan.into());
    }
    if d.inner_vlan != NO_VLAN {
        iana("dot1qCustomerVlanId", d.inner_vlan.into());
    }
    let overflow = flow.approximate.0 & Approximate::OVERFLOW != 0;
    let (version, protocol) = if flow.network == Network::Ipv4 { ("IPv4", 1) } else { ("IPv6", 58) };
    let known = (flow.source_port, flow.destination_port) != (0, 0);
    if flow.network != Network::Layer2 && flow.protocol == protocol && !overflow && known {
        let [icmp_type, code] = d.icmp;
        iana(&format!("icmpType{version}"), icmp_type.into());
        iana(&format!("icmpCode{version}"), code.into());
        iana(&format!("icmpTypeCode{version}"), u64::from(icmp_type) * 256 + u64::from(code));
    }
    if let (TunnelType::Vxlan, Some(id)) = (d.tunnel_type, d.tunnel_id) {
        iana("layer2SegmentId", 1 << 56 | u64::from(id));
    }
    if d.mpls_label != NO_LABEL {
        let [_, octets @ ..] = (d.mpls_label << 4).to_be_bytes();
        let name = if reverse { "reverse mplsTopLabelStackSection" } else { "mplsTopLabelStackSection" };
        record.insert(name.into(), Value::Octets(octets.into()));
    }
    let mut own = |name: &str, value: Value| {
        let (first, rest) = name.split_at(1);
        let name = if reverse { format!("reverse{}{rest}", first.to_uppercase()) } else { name.into() };
        record.insert(name, value);
    };
    if flow.network != Network::Layer2 {
        own("packetSizeMean", Value::Float(d.size_mean()));
        own("packetSizeStandardDeviation", Value::Float(d.size_std()));
    }
    if let (Some(mean), Some(deviation)) = (d.iat_mean_ns(), d.iat_std_ns()) {
        own("interArrivalTimeMinimum", Value::Unsigned(d.iat_min_ns));
        own("interArrivalTimeMaximum", Value::Unsigned(d.iat_max_ns));
        own("interArrivalTimeMean", Value::Float(mean));
        own("interArrivalTimeStandardDeviation", Value::Float(deviation));
    }
    if d.tunnel_type != TunnelType::None {
        own("tunnelType", Value::Unsigned(d.tunnel_type as u64));
        if let Some(id) = d.tunnel_id {
            own("tunnelIdentifier", Value::Unsigned(id.into()));
        }
        let (source, destination) = outer(d);
        let version = if source.is_ipv4() { "IPv4" } else { "IPv6" };
        own(&format!("outerSource{version}Address"), Value::Ip(source));
        own(&format!("outerDestination{version}Address"), Value::Ip(destination));
    }
}

/// The outer addresses. In these tests both have the same family, and no IPv6 address is
/// IPv4-mapped.
pub fn outer(d: &Direction) -> (IpAddr, IpAddr) {
    let four = d.outer_source.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    let network = if four { Network::Ipv4 } else { Network::Ipv6 };
    (ip_address(network, d.outer_source).unwrap(), ip_address(network, d.outer_destination).unwrap())
}

fn ntp(ns: u64) -> u64 {
    let seconds = (ns / 1_000_000_000 + 2_208_988_800) % (1 << 32);
    seconds * 1_000_000_000 + ns % 1_000_000_000
}
