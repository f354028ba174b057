//! What the records of a flow must say, written down once more and plainly.

use crate::decode::{Record, Value};
use std::net::IpAddr;
use weir_flow::{Approximate, Direction, Flow};
use weir_packet::{NO_LABEL, NO_VLAN, Network, TunnelType, address};

/// The two ways of a flow as one-way flows.
pub fn one_way(flow: &Flow) -> Vec<Flow> {
    let none = Direction::default();
    let there = Flow { reverse: none, ..*flow };
    let back = Flow {
        source: flow.destination,
        destination: flow.source,
        source_port: flow.destination_port,
        destination_port: flow.source_port,
        forward: flow.reverse,
        reverse: none,
        ..*flow
    };
    match (flow.forward.packets, flow.reverse.packets) {
        (_, 0) => vec![there],
        (0, _) => vec![back],
        _ => vec![there, back],
    }
}

/// The records of a flow in IPFIX.
pub fn ipfix(flow: &Flow, uniflow: bool) -> Vec<Record> {
    let mut records: Vec<Record> = if !uniflow && flow.forward.packets > 0 && flow.reverse.packets > 0 {
        vec![record(flow)]
    } else {
        one_way(flow).iter().map(record).collect()
    };
    let both = records.len() == 2;
    for (at, record) in records.iter_mut().enumerate() {
        let back = flow.forward.packets == 0 && flow.reverse.packets > 0 || both && at == 1;
        record.insert("biflowDirection".into(), Value::Unsigned(if back { 2 } else { 1 }));
    }
    records
}

/// The records of a flow in NetFlow v9: one-way, and without what only IPFIX has. The two times of uptime are for the caller.
pub fn netflow9(flow: &Flow) -> Vec<Record> {
    let keep = |name: &str| {
        let own = ["packetSize", "interArrival", "tunnel", "outer", "approximate"];
        let ipfix_only = ["flowStartNanoseconds", "flowEndNanoseconds", "layer2OctetDeltaCount", "layer2SegmentId"];
        !own.iter().any(|prefix| name.starts_with(prefix)) && !ipfix_only.contains(&name)
    };
    one_way(flow).iter().map(|part| record(part).into_iter().filter(|(name, _)| keep(name)).collect()).collect()
}

fn record(flow: &Flow) -> Record {
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
    record
}

fn side(flow: &Flow, d: &Direction, reverse: bool, record: &mut Record) {
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

/// The outer addresses; the flows of these tests have both in one family, and none that looks like the other.
pub fn outer(d: &Direction) -> (IpAddr, IpAddr) {
    let four = d.outer_source.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    let network = if four { Network::Ipv4 } else { Network::Ipv6 };
    (address(network, d.outer_source).unwrap(), address(network, d.outer_destination).unwrap())
}

fn ntp(ns: u64) -> u64 {
    let seconds = (ns / 1_000_000_000 + 2_208_988_800) % (1 << 32);
    seconds * 1_000_000_000 + ns % 1_000_000_000
}
