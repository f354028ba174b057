//! Fields of the whole record, and the counters of each direction.

use super::reading::{is_ip, number, of_packets, optional, when};
use crate::column::Anonymisation::{Address, Derived};
use crate::column::Known::AtFirst;
use crate::column::Profile::{Basic, Connection, Store};
use crate::column::{Origin, Properties};
use crate::community_id::{LENGTH, community_id};
use crate::element::DataType::{
    DateTimeMilliseconds, DateTimeNanoseconds, Ipv4Address, Ipv6Address, Unsigned8, Unsigned16, Unsigned32, Unsigned64,
};
use crate::element::{DataType, Element, Semantics, Units, quantity};
use crate::entry::fields;
use crate::field::{client_ip, ip_version, per_second, server_ip, service_port};
use crate::restore::{assign, set, word, words};
use crate::value::FieldValue;
use crate::words::Words;
use weir_flow::{Approximate, EndReason, FlowRecord};
use weir_packet::Network;

const COMMON: Properties = Properties::of(Origin::Meter);

#[rustfmt::skip]
fields! {
    COMMON;
    flow "start_time", Time, "", "Time of the earliest packet of both directions, in UTC with ns resolution.",
        [Element::iana(22, "flowStartSysUpTime", Unsigned32).only_netflow9().basic(),
         Element::common(152, "flowStartMilliseconds", DateTimeMilliseconds).basic(),
         Element::iana(156, "flowStartNanoseconds", DateTimeNanoseconds)],
        |r| FieldValue::Time(r.flow.start_ns()) => |r, v| r.set_start(v), profiles: &[Basic, Connection, Store];
    flow "end_time", Time, "", "Time of the latest packet of both directions, in UTC with ns resolution.",
        [Element::iana(21, "flowEndSysUpTime", Unsigned32).only_netflow9().basic(),
         Element::common(153, "flowEndMilliseconds", DateTimeMilliseconds).basic(),
         Element::iana(157, "flowEndNanoseconds", DateTimeNanoseconds)],
        |r| FieldValue::Time(r.flow.end_ns()) => |r, v| r.set_end(v), profiles: &[Basic, Connection, Store];
    flow "duration_ns", Integer, "ns", "Time from `start_time` to `end_time`.",
        [quantity(63, "flowDurationNanoseconds", Unsigned64, Units::Nanoseconds).only_listed()],
        |r| FieldValue::Unsigned(r.flow.end_ns().saturating_sub(r.flow.start_ns())), profiles: &[Basic, Connection, Store], restored_from: &["start_time", "end_time"];
    flow "src_ip", Address, "", "Source address: the address of the initiator, the sender of the SYN or, without a SYN, of the first packet.",
        [Element::common(8, "sourceIPv4Address", Ipv4Address).basic(), Element::common(27, "sourceIPv6Address", Ipv6Address).basic()],
        |r| optional(r.flow.source_ip(), FieldValue::Ip) => |r, v| r.set_address(v, |flow| &mut flow.source), profiles: &[Basic, Connection, Store], known: AtFirst, anonymisation: Some(Address);
    flow "src_port", Integer or 0, "", "Source port (TCP, UDP, UDP-Lite, SCTP, DCCP); 0 for other protocols.",
        [Element::common(7, "sourceTransportPort", Unsigned16).basic()], |r| when(r.flow.has_ports(), r.flow.source_port) => |r, v| set(&mut r.flow.source_port, v), profiles: &[Basic, Connection, Store], known: AtFirst;
    flow "dst_ip", Address, "", "Destination address: the address of the responder.",
        [Element::common(12, "destinationIPv4Address", Ipv4Address).basic(),
         Element::common(28, "destinationIPv6Address", Ipv6Address).basic()],
        |r| optional(r.flow.destination_ip(), FieldValue::Ip) => |r, v| r.set_address(v, |flow| &mut flow.destination), profiles: &[Basic, Connection, Store], known: AtFirst, anonymisation: Some(Address);
    flow "dst_port", Integer or 0, "", "Destination port (TCP, UDP, UDP-Lite, SCTP, DCCP); 0 for other protocols.",
        [Element::common(11, "destinationTransportPort", Unsigned16).basic()],
        |r| when(r.flow.has_ports(), r.flow.destination_port) => |r, v| set(&mut r.flow.destination_port, v), profiles: &[Basic, Connection, Store], known: AtFirst;
    flow "protocol", Word, "", "IP protocol, after IPv6 extension headers: its name (tcp, udp, icmp, icmp6 and others), or else its number.",
        [], |r| if is_ip(r) { FieldValue::Protocol(r.flow.protocol) } else { FieldValue::NotApplicable } => |r, v| r.set_protocol(v), profiles: &[Basic, Store], known: AtFirst;
    flow "protocol_number", Integer, "", "IP protocol number, after IPv6 extension headers.",
        [Element::common(4, "protocolIdentifier", Unsigned8).basic()], |r| when(is_ip(r), r.flow.protocol), profiles: &[Basic], known: AtFirst, restored_from: &["protocol"];
    flow "ip_version", Integer, "", "4 or 6. Does not apply to layer-2 flows.",
        [], |r| ip_version(r.flow), known: AtFirst, computed_from: &["src_ip"], restored_from: &["src_ip"];
    flow "packets", Integer, "packets", "Number of packets of both directions together.",
        [], |r| FieldValue::Unsigned(r.flow.packets()), profiles: &[Basic, Connection], restored_from: &["fwd_packets", "rev_packets"];
    flow "bytes", Integer, "octets", "Sum of the IP packet lengths of both directions, headers included; 0 in layer-2 flows.",
        [], |r| FieldValue::Unsigned(r.flow.bytes()), profiles: &[Basic], restored_from: &["fwd_bytes", "rev_bytes"];
    flow "l2_bytes", Integer, "octets", "Sum of the frame lengths on the wire of both directions.",
        [], |r| FieldValue::Unsigned(r.flow.frame_bytes()), profiles: &[Basic], restored_from: &["fwd_l2_bytes", "rev_l2_bytes"];
    each "packets", Integer, "packets", "Number of packets.",
        [Element::common(2, "packetDeltaCount", Unsigned64).basic()], |r| FieldValue::Unsigned(r.direction.packets) => |r, v| set(&mut r.direction().packets, v), profiles: &[Basic, Connection, Store];
    each "bytes", Integer, "octets", "Sum of the IP packet lengths, headers included; 0 in layer-2 flows.",
        [Element::common(1, "octetDeltaCount", Unsigned64).basic()], |r| FieldValue::Unsigned(r.direction.bytes) => |r, v| set(&mut r.direction().bytes, v), profiles: &[Basic, Store];
    each "l2_bytes", Integer, "octets", "Sum of the frame lengths on the wire.",
        [Element::iana(352, "layer2OctetDeltaCount", Unsigned64).basic()], |r| FieldValue::Unsigned(r.direction.frame_bytes) => |r, v| set(&mut r.direction().frame_bytes, v), profiles: &[Basic, Store];
    each "tcp_flags", TcpFlags, "", "TCP control bits of all packets together, a letter for each: SYN, ACK, PSH, FIN, RST, URG, ECE, CWR, N for AE (formerly NS), X, Y and Z for reserved bits.",
        [], |r| of_packets(r, is_ip(r) && r.flow.protocol == 6, |d| FieldValue::TcpFlags(d.tcp_flags)) => |r, v| r.set_tcp_flags(v), profiles: &[Basic, Store];
    each "tcp_flags_number", Integer or 0, "", "TCP control bits: bitwise OR over all packets, 12 bits as in the TCP header; 0 for other protocols.",
        // In one octet if they fit (RFC 9565 section 3): nfacctd 1.7.7 does not read the two-octet
        // form.
        [Element::common(6, "tcpControlBits", Unsigned16).in_octets(1).basic(),
         Element::common(6, "tcpControlBits", Unsigned16).only_if_longer_than(1)],
        |r| number(r, is_ip(r) && r.flow.protocol == 6, |d| d.tcp_flags), restored_from: &["tcp_flags"];
    flow "end_reason", Word, "", "Flow end reason: idle (idle timeout), active (active timeout), end (FIN or RST), forced (end of the input or of the run), resources (flow cache full, or overflow record); 1 to 5 in IPFIX.",
        [Element::common(136, "flowEndReason", Unsigned8).basic()],
        |r| FieldValue::Code(r.flow.end_reason as u8, r.flow.end_reason.name()) => |r, v| assign(&mut r.flow.end_reason, word(v, &EndReason::ALL, EndReason::name, |one| one as u8)), profiles: &[Basic, Store], words: Some(Words::EndReason);
    flow "interface", Integer, "", "Interface that captured the first packet: its number in the capture file, from 1 on; the interface index of the system (`ip link`); or the DPDK port number plus 1.",
        [Element::common(10, "ingressInterface", Unsigned32).basic()], |r| FieldValue::Unsigned(r.flow.interface.into()) => |r, v| set(&mut r.flow.interface, v), profiles: &[Basic, Store], known: AtFirst;
    flow "queue_lost", Integer, "packets", "Upper bound of the packets missing in the record: the packets of all flows that the receive queue of the record lost during its lifetime (`weir help metering`, section 7). IPFIX omits it if it is 0.",
        [quantity(52, "queueLostPackets", Unsigned64, Units::Packets).not_zero()],
        |r| FieldValue::Unsigned(r.flow.queue_lost) => |r, v| set(&mut r.flow.queue_lost, v), profiles: &[Basic, Store];
    flow "udp_response_ns", Integer, "ns", "UDP: time from the first packet of the initiator to the first packet of the responder in this record.",
        [quantity(56, "udpResponseTime", Unsigned64, Units::Nanoseconds)], |r| optional(udp_response_ns(r.flow), FieldValue::Unsigned) => |r, v| r.set_udp_response(v), profiles: &[Store];
    flow "sampling_min", Integer or 1, "packets", "Smallest N of the sampling during the lifetime of the record: 1 in N packets was metered (weir help overload). 1 without sampling.",
        [quantity(53, "samplingPopulationMinimum", Unsigned32, Units::Packets)],
        |r| optional(r.flow.sampling, |[min, _]| FieldValue::Unsigned(min.into())) => |r, v| r.set_sampling_min(v);
    flow "sampling_max", Integer or 1, "packets", "Largest N of the sampling during the lifetime of the record. The estimated number of packets is between `packets` * `sampling_min` and `packets` * `sampling_max`.",
        [Element::iana(310, "samplingPopulation", Unsigned32)],
        |r| optional(r.flow.sampling, |[_, max]| FieldValue::Unsigned(max.into())) => |r, v| r.set_sampling(v), profiles: &[Basic, Store];
    flow "approximate", Words, "", "Reasons why the record is not exact, separated by spaces: overflow, mixed_vlan, mixed_mpls, mixed_tunnel, mixed_interface, fragments, unanalysed, sampled, aggregated (weir help overload), clock_set (weir help metering), mixed_mac, uninspected (weir help overload); bits 1 to 2048 in IPFIX.",
        [Element::weir(13, "approximateRecord", Unsigned16, Semantics::Flags, Units::None)],
        |r| if r.flow.approximate.0 == 0 { FieldValue::NotApplicable } else { FieldValue::Approximate(r.flow.approximate) } => |r, v| assign(&mut r.flow.approximate.0, words(v, &Approximate::NAMES)), profiles: &[Basic, Store], words: Some(Words::Approximate);
    flow "community_id", Text, "", "Community ID, version 1 with seed 0. Does not apply to overflow records.",
        [Element::weir(65, "communityId", DataType::String, Semantics::Default, Units::None)
            .in_octets(LENGTH as u16).only_listed()],
        |r| optional(community_id(r.flow), FieldValue::CommunityId), profiles: &[Basic, Connection], known: AtFirst, restored_from: &["src_ip", "dst_ip", "src_port", "dst_port", "protocol", "approximate", "fwd_icmp_code", "rev_icmp_code"], anonymisation: Some(Derived);
    flow "server_ip", Address, "", "Address of the side that `service_port` belongs to; without ports, `dst_ip`.",
        [], |r| server_ip(r.flow), known: AtFirst, computed_from: &["src_ip", "dst_ip"], restored_from: &["src_ip", "dst_ip", "service_port"], anonymisation: Some(Derived);
    flow "client_ip", Address, "", "Address of the other side.", [], |r| client_ip(r.flow), known: AtFirst, computed_from: &["src_ip", "dst_ip"], restored_from: &["src_ip", "dst_ip", "service_port"], anonymisation: Some(Derived);
    flow "service_port", Integer, "", "Port of the service: `dst_port`; `src_port` if no SYN was seen, `src_port` is below 32768 and `dst_port` is not. Does not apply to protocols without ports.",
        [], |r| service_port(r.flow), known: AtFirst, computed_from: &["src_port", "dst_port"], restored_from: &["src_port", "dst_port", "protocol", "fwd_tcp_flags", "rev_tcp_flags"];
    flow "bps", Number, "bit/s", "Bits of IP packets of both directions, per second of duration.", [], |r| per_second(r.flow, 8.0 * r.flow.bytes() as f64), computed_from: &["bytes", "duration_ns"], restored_from: &["bytes", "duration_ns"];
    flow "pps", Number, "packets/s", "Packets of both directions, per second of duration.", [], |r| per_second(r.flow, r.flow.packets() as f64), computed_from: &["packets", "duration_ns"], restored_from: &["packets", "duration_ns"];
    flow "bpp", Number, "octets", "Octets of IP packets per packet.", [], |r| FieldValue::Float(r.flow.bytes() as f64 / r.flow.packets().max(1) as f64), computed_from: &["bytes", "packets"], restored_from: &["bytes", "packets"];
}

/// Time from the first packet of the initiator to that of the responder.
#[inline]
fn udp_response_ns(flow: &FlowRecord) -> Option<u64> {
    const UDP: u8 = 17;
    let is_udp = flow.protocol == UDP && flow.network != Network::Layer2;
    let answers = flow.forward.packets > 0 && flow.reverse.packets > 0 && !flow.approximate.has(Approximate::OVERFLOW);
    if is_udp && answers { flow.reverse.first_ns.checked_sub(flow.forward.first_ns) } else { None }
}
