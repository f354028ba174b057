//! Every field once: its name, what it means, how it is read from a flow, and which element carries it.
//!
//! JSON keys, CSV columns, the templates of IPFIX and NetFlow v9, and docs/fields.md follow from [`FIELDS`]. Whether a
//! field applies to a flow is decided here alone: what does not is [`Value::Absent`], which is null in
//! JSON, empty in CSV and not in the template.

use crate::community_id;
use crate::element::{DataType, Element, Semantics, Units};
use crate::value::Value;
use std::net::{IpAddr, Ipv6Addr};
use weir_flow::{Approximate, Direction, FlowRecord};
use weir_packet::{NO_LABEL, NO_VLAN, Network, Packet, TunnelType};
use weir_tcp::{SegmentClass, TcpReport};

use DataType::{
    DateTimeMilliseconds, DateTimeNanoseconds, Float64, Ipv4Address, Ipv6Address, MacAddress, OctetArray, Unsigned8,
    Unsigned16, Unsigned32, Unsigned64,
};

/// One flow, or one of its directions, on its way out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub flow: &'a FlowRecord,
    /// The direction that is asked for.
    pub direction: &'a Direction,
    /// What it told by TCP.
    pub tcp: Option<&'a TcpReport>,
    /// The flow is the way back of a two-way flow, so that its source is the responder.
    pub from_responder: bool,
}

impl<'a> Record<'a> {
    /// A flow, asked for its forward direction or its reverse one.
    #[inline(always)]
    pub fn new(flow: &'a FlowRecord, reverse: bool, from_responder: bool) -> Self {
        let direction = if reverse { &flow.reverse } else { &flow.forward };
        let tcp = flow.tcp.as_ref().map(|reports| &reports[usize::from(reverse)]).filter(|_| direction.packets > 0);
        Self { flow, direction, tcp, from_responder }
    }
}

/// One field.
pub(crate) struct Field {
    pub name: &'static str,
    /// Its name for the opposite direction, if it has one there.
    pub reverse: Option<&'static str>,
    /// Type in JSON and CSV.
    pub kind: &'static str,
    pub unit: &'static str,
    pub sentence: &'static str,
    /// Of TCP alone: left out of the JSON of other flows.
    pub of_tcp: bool,
    pub elements: &'static [Element],
}

/// Whoever writes down the fields of a record.
pub(crate) trait Visitor {
    /// The next field, and how to read it.
    fn visit(&mut self, field: &'static Field, value: impl FnOnce() -> Value);
}

/// A list of fields, of the `flow`, of `each` direction, or of `tcp`, which is of each direction, too; and a function that visits all of them, or those of the reverse
/// direction, one after the other without a loop, so that what is known of a field takes no time.
macro_rules! fields {
    (@reverse flow $name:literal) => { None };
    (@reverse each $name:literal) => { Some(concat!("rev_", $name)) };
    (@reverse tcp $name:literal) => { Some(concat!("rev_", $name)) };
    (@of_tcp tcp) => { true };
    (@of_tcp $of:ident) => { false };
    ($(#[$about:meta])* $list:ident, $visit:ident:
        $($of:ident $name:literal, $kind:literal, $unit:literal, $sentence:literal, [$($element:expr),* $(,)?], $read:expr;)+) => {
        $(#[$about])*
        pub(crate) const $list: &[Field] = &[$(Field {
            name: $name,
            reverse: fields!(@reverse $of $name),
            kind: $kind,
            unit: $unit,
            sentence: $sentence,
            of_tcp: fields!(@of_tcp $of),
            elements: &[$($element),*],
        },)+];

        #[inline(always)]
        pub(crate) fn $visit<const REVERSE: bool>(record: &Record<'_>, visitor: &mut impl Visitor) {
            let mut list = $list;
            $(
                if let Some((field, rest)) = list.split_first() {
                    list = rest;
                    if !REVERSE || field.reverse.is_some() {
                        visitor.visit(field, || read(record, $read));
                    }
                }
            )+
            debug_assert!(list.is_empty());
        }
    };
}

#[inline(always)]
fn read(record: &Record<'_>, field: impl FnOnce(&Record<'_>) -> Value) -> Value {
    field(record)
}

#[rustfmt::skip]
fields! {
    /// Every field of JSON and CSV, in their order. Those of the opposite direction follow after the last.
    FIELDS, visit_fields:
    flow "start", "time", "", "Time of the earliest packet of either direction, UTC with nanoseconds.",
        [Element::iana(22, "flowStartSysUpTime", Unsigned32).only_netflow9(),
         Element::iana(152, "flowStartMilliseconds", DateTimeMilliseconds).also_netflow9(),
         Element::iana(156, "flowStartNanoseconds", DateTimeNanoseconds)],
        |r| Value::Time(r.flow.start_ns());
    flow "end", "time", "", "Time of the latest packet of either direction.",
        [Element::iana(21, "flowEndSysUpTime", Unsigned32).only_netflow9(),
         Element::iana(153, "flowEndMilliseconds", DateTimeMilliseconds).also_netflow9(),
         Element::iana(157, "flowEndNanoseconds", DateTimeNanoseconds)],
        |r| Value::Time(r.flow.end_ns());
    flow "duration_ns", "integer", "ns", "End less start.",
        [],
        |r| Value::Unsigned(r.flow.end_ns().saturating_sub(r.flow.start_ns()));
    flow "src_ip", "address", "", "Address of the initiator: the sender of the SYN, else of the first packet.",
        [Element::iana(8, "sourceIPv4Address", Ipv4Address).also_netflow9(),
         Element::iana(27, "sourceIPv6Address", Ipv6Address).also_netflow9()],
        |r| r.flow.source_ip().map_or(Value::Absent, Value::Ip);
    flow "dst_ip", "address", "", "Address of the responder.",
        [Element::iana(12, "destinationIPv4Address", Ipv4Address).also_netflow9(),
         Element::iana(28, "destinationIPv6Address", Ipv6Address).also_netflow9()],
        |r| r.flow.destination_ip().map_or(Value::Absent, Value::Ip);
    flow "src_port", "integer", "", "Port of the initiator (TCP, UDP, UDP-Lite, SCTP, DCCP).",
        [Element::iana(7, "sourceTransportPort", Unsigned16).also_netflow9()],
        |r| when(r.flow.has_ports(), r.flow.source_port);
    flow "dst_port", "integer", "", "Port of the responder.",
        [Element::iana(11, "destinationTransportPort", Unsigned16).also_netflow9()],
        |r| when(r.flow.has_ports(), r.flow.destination_port);
    flow "protocol", "integer", "", "IP protocol number, behind the extension headers.",
        [Element::iana(4, "protocolIdentifier", Unsigned8).also_netflow9()],
        |r| when(is_ip(r), r.flow.protocol);
    each "packets", "integer", "packets", "Packets.",
        [Element::iana(2, "packetDeltaCount", Unsigned64).also_netflow9()],
        |r| Value::Unsigned(r.direction.packets);
    each "bytes", "integer", "octets", "Octets by the IP headers, these included; 0 in layer-2 flows.",
        [Element::iana(1, "octetDeltaCount", Unsigned64).also_netflow9()],
        |r| Value::Unsigned(r.direction.bytes);
    each "l2_bytes", "integer", "octets", "Octets of the frames on the wire.",
        [Element::iana(352, "layer2OctetDeltaCount", Unsigned64)],
        |r| Value::Unsigned(r.direction.frame_bytes);
    each "tcp_flags", "integer", "", "TCP control bits of all packets together, 12 bits as on the wire.",
        // In one octet wherever that holds them (RFC 9565 section 3): nfacctd 1.7.7 reads no other form.
        [Element::iana(6, "tcpControlBits", Unsigned16).in_octets(1).also_netflow9(),
         Element::iana(6, "tcpControlBits", Unsigned16).beyond(1).also_netflow9()],
        |r| of_packets(r, is_ip(r) && r.flow.protocol == 6, |d| Value::Unsigned(d.tcp_flags.into()));
    each "tos", "integer", "", "Type of service or traffic class of the first packet.",
        [Element::iana(5, "ipClassOfService", Unsigned8).also_netflow9()],
        |r| of_packets(r, is_ip(r), |d| Value::Unsigned(d.tos.into()));
    each "ttl_min", "integer", "hops", "Smallest TTL or hop limit.",
        [Element::iana(52, "minimumTTL", Unsigned8).also_netflow9()],
        |r| of_packets(r, is_ip(r), |d| Value::Unsigned(d.ttl_min.into()));
    each "ttl_max", "integer", "hops", "Largest TTL or hop limit.",
        [Element::iana(53, "maximumTTL", Unsigned8).also_netflow9()],
        |r| of_packets(r, is_ip(r), |d| Value::Unsigned(d.ttl_max.into()));
    each "packet_size_min", "integer", "octets", "Smallest IP packet.",
        [Element::iana(25, "minimumIpTotalLength", Unsigned64).in_octets(4).also_netflow9()],
        |r| of_packets(r, is_ip(r), |d| Value::Unsigned(d.size_min.into()));
    each "packet_size_max", "integer", "octets", "Largest IP packet.",
        [Element::iana(26, "maximumIpTotalLength", Unsigned64).in_octets(4).also_netflow9()],
        |r| of_packets(r, is_ip(r), |d| Value::Unsigned(d.size_max.into()));
    each "packet_size_mean", "number", "octets", "Mean IP packet size.",
        [Element::own(1, "packetSizeMean", Float64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| of_packets(r, is_ip(r), |d| Value::Float(d.size_mean()));
    each "packet_size_std", "number", "octets", "Population standard deviation of IP packet sizes.",
        [Element::own(2, "packetSizeStandardDeviation", Float64, Semantics::Quantity, Units::Octets)],
        |r| of_packets(r, is_ip(r), |d| Value::Float(d.size_std()));
    each "iat_min_ns", "integer", "ns", "Shortest gap between consecutive packets of the direction; from 2 packets on.",
        [Element::own(3, "interArrivalTimeMinimum", Unsigned64, Semantics::Quantity, Units::Nanoseconds)],
        |r| of_packets(r, r.direction.gaps() > 0, |d| Value::Unsigned(d.iat_min_ns));
    each "iat_max_ns", "integer", "ns", "Longest gap.",
        [Element::own(4, "interArrivalTimeMaximum", Unsigned64, Semantics::Quantity, Units::Nanoseconds)],
        |r| of_packets(r, r.direction.gaps() > 0, |d| Value::Unsigned(d.iat_max_ns));
    each "iat_mean_ns", "number", "ns", "Mean gap.",
        [Element::own(5, "interArrivalTimeMean", Float64, Semantics::Quantity, Units::Nanoseconds)],
        |r| r.direction.iat_mean_ns().map_or(Value::Absent, Value::Float);
    each "iat_std_ns", "number", "ns", "Population standard deviation of gaps.",
        [Element::own(6, "interArrivalTimeStandardDeviation", Float64, Semantics::Quantity, Units::Nanoseconds)],
        |r| r.direction.iat_std_ns().map_or(Value::Absent, Value::Float);
    each "vlan_id", "integer", "", "VLAN identifier of the outermost tag of the first packet.",
        [Element::iana(58, "vlanId", Unsigned16).also_netflow9(),
         Element::iana(243, "dot1qVlanId", Unsigned16).also_netflow9()],
        |r| of_packets(r, r.direction.vlan != NO_VLAN, |d| Value::Unsigned(d.vlan.into()));
    each "inner_vlan_id", "integer", "", "VLAN identifier of the second tag of the first packet.",
        [Element::iana(245, "dot1qCustomerVlanId", Unsigned16).also_netflow9()],
        |r| of_packets(r, r.direction.inner_vlan != NO_VLAN, |d| Value::Unsigned(d.inner_vlan.into()));
    each "mpls_label", "integer", "", "Top label of the outermost MPLS stack of the first packet.",
        [Element::iana(70, "mplsTopLabelStackSection", OctetArray).also_netflow9()],
        |r| of_packets(r, r.direction.mpls_label != NO_LABEL, |d| Value::Unsigned(d.mpls_label.into()));
    each "tunnel_type", "word", "", "The innermost tunnel that the first packet was taken out of: gre, ipip, 6in4, 4in6, 6in6, vxlan, geneve, gtpu (with --decap; numbers 1 to 8 in IPFIX).",
        [Element::own(7, "tunnelType", Unsigned8, Semantics::Identifier, Units::None)],
        |r| of_packets(r, true, |d| d.tunnel_type.name().map_or(Value::Absent, |name| Value::Code(d.tunnel_type as u8, name)));
    each "tunnel_id", "integer", "", "GRE key or call ID, VXLAN or Geneve network identifier, GTP-U tunnel endpoint identifier.",
        [Element::own(8, "tunnelIdentifier", Unsigned32, Semantics::Identifier, Units::None)],
        |r| of_packets(r, true, |d| d.tunnel_id.map_or(Value::Absent, |id| Value::Unsigned(id.into())));
    each "outer_src_ip", "address", "", "Source of the IP header that carried the tunnel.",
        [Element::own(9, "outerSourceIPv4Address", Ipv4Address, Semantics::Default, Units::None),
         Element::own(10, "outerSourceIPv6Address", Ipv6Address, Semantics::Default, Units::None)],
        |r| of_packets(r, true, |d| outer(d).map_or(Value::Absent, |(source, _)| Value::Ip(source)));
    each "outer_dst_ip", "address", "", "Destination of that header.",
        [Element::own(11, "outerDestinationIPv4Address", Ipv4Address, Semantics::Default, Units::None),
         Element::own(12, "outerDestinationIPv6Address", Ipv6Address, Semantics::Default, Units::None)],
        |r| of_packets(r, true, |d| outer(d).map_or(Value::Absent, |(_, destination)| Value::Ip(destination)));
    each "icmp_type", "integer", "", "ICMP or ICMPv6 type of the first packet.",
        [Element::iana(176, "icmpTypeIPv4", Unsigned8).of(Network::Ipv4).also_netflow9(),
         Element::iana(178, "icmpTypeIPv6", Unsigned8).of(Network::Ipv6).also_netflow9()],
        |r| of_packets(r, knows_icmp(r), |d| Value::Unsigned(d.icmp[0].into()));
    each "icmp_code", "integer", "", "ICMP or ICMPv6 code of the first packet.",
        [Element::iana(177, "icmpCodeIPv4", Unsigned8).of(Network::Ipv4).also_netflow9(),
         Element::iana(179, "icmpCodeIPv6", Unsigned8).of(Network::Ipv6).also_netflow9()],
        |r| of_packets(r, knows_icmp(r), |d| Value::Unsigned(d.icmp[1].into()));
    tcp "tcp_syn_count", "integer", "packets", "Segments with SYN, copies left out. This and all fields of TCP are defined in tcp.md.",
        [Element::iana(218, "tcpSynTotalCount", Unsigned64)],
        |r| implied(r, TcpReport::syns, |d, _| has_bit(d, Packet::SYN));
    tcp "tcp_syn_bytes", "integer", "octets", "Payload of SYN, but for those again.",
        [Element::own(44, "tcpSynOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::Syn).bytes);
    tcp "tcp_syn_retransmitted", "integer", "packets", "SYN again, with the same sequence number.",
        [Element::own(14, "tcpSynRetransmitted", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::SynRetransmission).segments);
    tcp "tcp_syn_retransmitted_bytes", "integer", "octets", "Their payload.",
        [Element::own(45, "tcpSynRetransmittedOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::SynRetransmission).bytes);
    tcp "tcp_fin_count", "integer", "packets", "Segments with FIN that were taken, copies left out.",
        [Element::iana(219, "tcpFinTotalCount", Unsigned64)],
        |r| implied(r, |t| t.fins, |d, _| has_bit(d, Packet::FIN));
    tcp "tcp_rst_count", "integer", "packets", "Segments with RST, copies left out.",
        [Element::iana(220, "tcpRstTotalCount", Unsigned64)],
        |r| counted(r, |t| t.count(SegmentClass::Reset).segments);
    tcp "tcp_rst_bytes", "integer", "octets", "Their payload: often a reason in words.",
        [Element::own(46, "tcpRstOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::Reset).bytes);
    tcp "tcp_payload_bytes", "integer", "octets", "Octets of payload of all segments by the IP length, copies and all.",
        [Element::own(15, "tcpPayloadOctets", Unsigned64, Semantics::Quantity, Units::Octets)],
        |r| counted(r, payload);
    tcp "tcp_unique_bytes", "integer", "octets", "Octets of payload seen for the first time.",
        [Element::own(16, "tcpUniqueOctets", Unsigned64, Semantics::Quantity, Units::Octets)],
        |r| implied(r, |t| t.unique_bytes, |_, t| payload(t));
    tcp "tcp_in_order_packets", "integer", "packets", "Segments with payload or FIN at or beyond the highest octet seen.",
        [Element::own(17, "tcpInOrderPackets", Unsigned64, Semantics::Quantity, Units::Packets)],
        |r| counted(r, |t| t.count(SegmentClass::InOrder).segments);
    tcp "tcp_in_order_bytes", "integer", "octets", "Their payload.",
        [Element::own(18, "tcpInOrderOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::InOrder).bytes);
    tcp "tcp_acknowledgments", "integer", "packets", "Segments without payload, SYN, FIN and RST, but for keep-alives and duplicate acknowledgments.",
        [Element::own(19, "tcpAcknowledgments", Unsigned64, Semantics::Quantity, Units::Packets)],
        |r| implied(r, |t| t.count(SegmentClass::Acknowledgment).segments, other_packets);
    tcp "tcp_duplicate_acks", "integer", "packets", "Such segments that repeat an acknowledgment while more is on the way.",
        [Element::own(20, "tcpDuplicateAcknowledgments", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::DuplicateAcknowledgment).segments);
    tcp "tcp_retransmitted_packets", "integer", "packets", "Segments of which at least one octet, or the FIN, was seen before. Copies, keep-alives and SYN are counted elsewhere.",
        [Element::ntop(109, 110, "RETRANSMITTED_IN_PKTS", Unsigned32).of_trouble(),
         Element::own(21, "tcpRetransmittedPackets", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::Retransmission).segments);
    tcp "tcp_retransmitted_bytes", "integer", "octets", "Octets that were seen before, of all segments but copies and keep-alives.",
        [Element::own(22, "tcpRetransmittedOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.retransmitted_bytes);
    tcp "tcp_retransmitted_payload_bytes", "integer", "octets", "Whole payload of retransmitted segments, with octets not seen before.",
        [Element::own(47, "tcpRetransmittedPayloadOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::Retransmission).bytes);
    tcp "tcp_retransmitted_partial", "integer", "packets", "Retransmitted segments with octets not seen before, too.",
        [Element::own(23, "tcpRetransmittedPartial", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.partial_retransmissions);
    tcp "tcp_retransmitted_spurious", "integer", "packets", "Retransmitted segments of nothing but what had been acknowledged.",
        [Element::own(24, "tcpRetransmittedSpurious", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.spurious_retransmissions);
    tcp "tcp_retransmitted_unseen", "integer", "packets", "Segments that fill a hole later than reordering would: the original was lost before the probe.",
        [Element::own(25, "tcpRetransmittedUnseenPackets", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::UnseenRetransmission).segments);
    tcp "tcp_retransmitted_unseen_bytes", "integer", "octets", "Their payload.",
        [Element::own(26, "tcpRetransmittedUnseenOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::UnseenRetransmission).bytes);
    tcp "tcp_out_of_order", "integer", "packets", "Segments that fill a hole within a round trip of the handshake, or 3 ms if that is not known.",
        [Element::ntop(111, 112, "OOORDER_IN_PKTS", Unsigned32).of_trouble(),
         Element::own(27, "tcpOutOfOrderPackets", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::OutOfOrder).segments);
    tcp "tcp_out_of_order_bytes", "integer", "octets", "Their payload.",
        [Element::own(28, "tcpOutOfOrderOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::OutOfOrder).bytes);
    tcp "tcp_duplicates", "integer", "packets", "Copies of packets made on the way to the probe, with the same TTL. They are in `packets` and `bytes`, which they bias.",
        [Element::own(29, "tcpDuplicatePackets", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::Duplicate).segments);
    tcp "tcp_routed_duplicates", "integer", "packets", "Copies with another TTL: seen before and behind a router.",
        [Element::own(30, "tcpRoutedDuplicatePackets", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::RoutedDuplicate).segments);
    tcp "tcp_duplicate_bytes", "integer", "octets", "Payload of both kinds of copies together.",
        [Element::own(31, "tcpDuplicateOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::Duplicate).bytes + t.count(SegmentClass::RoutedDuplicate).bytes);
    tcp "tcp_routed_duplicate_bytes", "integer", "octets", "Payload of those with another TTL alone.",
        [Element::own(48, "tcpRoutedDuplicateOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::RoutedDuplicate).bytes);
    tcp "tcp_keepalives", "integer", "packets", "Segments of at most one octet, the last one again.",
        [Element::own(32, "tcpKeepAlives", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::KeepAlive).segments);
    tcp "tcp_keepalive_bytes", "integer", "octets", "Their payload.",
        [Element::own(49, "tcpKeepAliveOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::KeepAlive).bytes);
    tcp "tcp_zero_window_probes", "integer", "packets", "One new octet into a closed window.",
        [Element::own(33, "tcpZeroWindowProbes", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::ZeroWindowProbe).segments);
    tcp "tcp_zero_window_probe_bytes", "integer", "octets", "Their payload.",
        [Element::own(50, "tcpZeroWindowProbeOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::ZeroWindowProbe).bytes);
    tcp "tcp_zero_window", "integer", "packets", "Segments that announce a window of 0, copies and RST left out.",
        [Element::own(34, "tcpZeroWindowAnnouncements", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.zero_windows);
    tcp "tcp_out_of_window", "integer", "packets", "Segments that are 2^30 octets or more away from what was seen.",
        [Element::own(35, "tcpOutOfWindowPackets", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::OutOfWindow).segments);
    tcp "tcp_out_of_window_bytes", "integer", "octets", "Their payload.",
        [Element::own(51, "tcpOutOfWindowOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::OutOfWindow).bytes);
    tcp "tcp_unread", "integer", "packets", "Packets without a whole TCP header: later fragments, or cut by the capture.",
        [Element::own(36, "tcpUnreadPackets", Unsigned64, Semantics::Quantity, Units::Packets).of_trouble()],
        |r| counted(r, |t| t.count(SegmentClass::Unread).segments);
    tcp "tcp_missing_bytes", "integer", "octets", "Octets never seen between others that were, at the end of the record.",
        [Element::own(37, "tcpMissingOctets", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.missing_bytes);
    tcp "tcp_largest_hole", "integer", "octets", "The most octets that a segment left out.",
        [Element::own(38, "tcpLargestHole", Unsigned64, Semantics::Quantity, Units::Octets).of_trouble()],
        |r| counted(r, |t| t.largest_hole_bytes);
    tcp "tcp_handshake_rtt_ns", "integer", "ns", "Time from the other side's SYN to the answer of this side: of the responder the round trip behind the probe, of the initiator the one before it.",
        [Element::own(39, "tcpHandshakeRoundTrip", Unsigned64, Semantics::Quantity, Units::Nanoseconds)],
        |r| told(r, |t| t.handshake_rtt_ns);
    tcp "tcp_syn_window", "integer", "octets", "Window of the SYN, not scaled.",
        [Element::own(40, "tcpSynWindow", Unsigned16, Semantics::Quantity, Units::Octets)],
        |r| told(r, |t| t.syn_window);
    tcp "tcp_mss", "integer", "octets", "Maximum segment size that the SYN announced.",
        [Element::ntop(417, 421, "TCP_WIN_MSS_IN", Unsigned16)],
        |r| announced(r, |t| t.maximum_segment_size);
    tcp "tcp_window_scale", "integer", "bits", "Window scale that the SYN announced.",
        [Element::ntop(418, 422, "TCP_WIN_SCALE_IN", Unsigned8)],
        |r| announced(r, |t| t.window_scale);
    tcp "tcp_size_by_sequence", "integer", "octets", "Octets between SYN and FIN by their sequence numbers; only with exactly one of each, repeated ones not counted.",
        [Element::own(41, "tcpSizeBySequence", Unsigned64, Semantics::Quantity, Units::Octets)],
        size_by_sequence;
    tcp "tcp_duration_by_sequence_ns", "integer", "ns", "Time from that SYN to that FIN.",
        [Element::own(42, "tcpDurationBySequence", Unsigned64, Semantics::Quantity, Units::Nanoseconds)],
        |r| told(r, |t| t.duration_by_sequence_ns);
    tcp "tcp_degraded", "words", "", "In which way the analysis is not exact, words with a space between: holes, duplicates, jump, reused, unread, room (segments with payload may count as acknowledgments, and their payload not at all); bits 1 to 32 in IPFIX.",
        [Element::own(43, "tcpDegraded", Unsigned8, Semantics::Flags, Units::None).of_trouble()],
        |r| r.tcp.map_or(Value::Absent, |t| if t.degradation.0 == 0 { Value::Missing } else { Value::Degraded(t.degradation) });
    flow "interface", "integer", "", "Interface that saw the first packet: its number within the input, of live traffic the system's (ip link).",
        [Element::iana(10, "ingressInterface", Unsigned32).also_netflow9()],
        |r| Value::Unsigned(r.flow.interface.into());
    flow "queue_lost", "integer", "packets", "Packets that the record's queue may have lost during its life, of whatever flow: no more are missing in it (metering.md section 7). Not sent in IPFIX if 0.",
        [Element::own(52, "queueLostPackets", Unsigned64, Semantics::Quantity, Units::Packets).not_zero()],
        |r| Value::Unsigned(r.flow.queue_lost);
    flow "sampling_min", "integer", "packets", "While it lived one packet in so many was metered, or in more (overload.md); absent if all were.",
        [Element::own(53, "samplingPopulationMinimum", Unsigned32, Semantics::Quantity, Units::Packets)],
        |r| r.flow.sampling.map_or(Value::Absent, |[least, _]| Value::Unsigned(least.into()));
    flow "sampling_max", "integer", "packets", "The same, or in fewer. The number of packets was about `packets` times something between the two.",
        [Element::iana(34, "samplingInterval", Unsigned32).only_netflow9(),
         Element::iana(310, "samplingPopulation", Unsigned32)],
        |r| r.flow.sampling.map_or(Value::Absent, |[_, most]| Value::Unsigned(most.into()));
    flow "end_reason", "word", "", "Why the record ended: idle, active (timeouts), end (FIN or RST), forced (end of input), resources (full table); 1 to 5 in IPFIX.",
        [Element::iana(136, "flowEndReason", Unsigned8).also_netflow9()],
        |r| Value::Code(r.flow.end_reason as u8, r.flow.end_reason.name());
    flow "community_id", "text", "", "Community ID version 1 with seed 0; none for overflow records.",
        [],
        |r| community_id::of(r.flow).map_or(Value::Absent, Value::Text);
    flow "approximate", "words", "", "In which way the record is not exact, words with a space between: overflow, mixed_vlan, mixed_mpls, mixed_tunnel, mixed_interface, fragments, unanalysed, sampled, aggregated (overload.md); bits 1 to 256 in IPFIX.",
        [Element::own(13, "approximateRecord", Unsigned16, Semantics::Flags, Units::None)],
        |r| if r.flow.approximate.0 == 0 { Value::Absent } else { Value::Words(r.flow.approximate) };
    flow "ethertype", "integer", "", "EtherType of a layer-2 flow; 0 for IEEE 802.3 without SNAP.",
        [Element::iana(256, "ethernetType", Unsigned16).also_netflow9()],
        // An overflow record has it in one of the ports only.
        |r| when(!is_ip(r), r.flow.source_port.max(r.flow.destination_port));
    flow "src_mac", "mac", "", "Source MAC address of a layer-2 flow.",
        [Element::iana(56, "sourceMacAddress", MacAddress).also_netflow9()],
        |r| if is_ip(r) { Value::Absent } else { Value::Mac(mac(r.flow.source)) };
    flow "dst_mac", "mac", "", "Destination MAC address of a layer-2 flow.",
        [Element::iana(80, "destinationMacAddress", MacAddress).also_netflow9()],
        |r| if is_ip(r) { Value::Absent } else { Value::Mac(mac(r.flow.destination)) };
}

#[rustfmt::skip]
fields! {
    /// What only the templates have: other shapes of the fields above that collectors look for.
    EXTRA, visit_extra:
    each "icmp_type, icmp_code", "integer", "", "Type * 256 + code.",
        [Element::iana(32, "icmpTypeCodeIPv4", Unsigned16).of(Network::Ipv4).also_netflow9(),
         Element::iana(139, "icmpTypeCodeIPv6", Unsigned16).of(Network::Ipv6).also_netflow9()],
        type_and_code;
    each "tunnel_id", "integer", "", "VXLAN network identifier below the octet 1 for VXLAN.",
        [Element::iana(351, "layer2SegmentId", Unsigned64)],
        |r| of_packets(r, r.direction.tunnel_type == TunnelType::Vxlan,
            |d| d.tunnel_id.map_or(Value::Absent, |id| Value::Unsigned(1 << 56 | u64::from(id))));
    flow "sampling_max", "integer", "", "How packets were chosen: 2, at random.",
        [Element::iana(35, "samplingAlgorithm", Unsigned8).only_netflow9()],
        |r| r.flow.sampling.map_or(Value::Absent, |_| Value::Unsigned(2));
    flow "sampling_max", "integer", "", "How packets were chosen: 3, random n-out-of-N sampling (RFC 5475 section 5.2.1).",
        [Element::iana(304, "selectorAlgorithm", Unsigned16)],
        |r| r.flow.sampling.map_or(Value::Absent, |_| Value::Unsigned(3));
    flow "sampling_max", "integer", "packets", "Packets chosen of each so many: 1.",
        [Element::iana(309, "samplingSize", Unsigned32)],
        |r| r.flow.sampling.map_or(Value::Absent, |_| Value::Unsigned(1));
    flow "src_ip", "integer", "", "1: the source is the initiator; 2: the record is the way back of a two-way flow.",
        [Element::iana(239, "biflowDirection", Unsigned8)],
        |r| Value::Unsigned(if r.from_responder { 2 } else { 1 });
}

/// The names of all columns: fields, and those of the reverse direction behind them.
pub(crate) fn columns() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|field| field.name).chain(FIELDS.iter().filter_map(|field| field.reverse))
}

/// A flow as one-way flows, one per direction that has packets, and whether it is the way back. Never none.
pub(crate) fn one_way(flow: &FlowRecord) -> impl Iterator<Item = (FlowRecord, bool)> {
    let there = FlowRecord { reverse: Direction::default(), ..*flow };
    let back = FlowRecord {
        tcp: flow.tcp.map(|[forward, reverse]| [reverse, forward]),
        source: flow.destination,
        destination: flow.source,
        source_port: flow.destination_port,
        destination_port: flow.source_port,
        forward: flow.reverse,
        reverse: Direction::default(),
        ..*flow
    };
    let has_back = flow.reverse.packets > 0;
    let has_there = flow.forward.packets > 0 || !has_back;
    [(has_there, (there, false)), (has_back, (back, true))].into_iter().filter_map(|(has, part)| has.then_some(part))
}

fn is_ip(record: &Record<'_>) -> bool {
    record.flow.network != Network::Layer2
}

/// An overflow record sums many types; without type and code in the packet both ports are 0 (docs/metering.md section 2).
fn knows_icmp(record: &Record<'_>) -> bool {
    let flow = record.flow;
    flow.is_icmp()
        && !flow.approximate.has(Approximate::OVERFLOW)
        && (flow.source_port, flow.destination_port) != (0, 0)
}

/// ICMP type * 256 + code.
pub(crate) fn type_and_code(record: &Record<'_>) -> Value {
    of_packets(record, knows_icmp(record), |direction| Value::Unsigned(u16::from_be_bytes(direction.icmp).into()))
}

/// A count by TCP.
fn counted(record: &Record<'_>, read: impl FnOnce(&TcpReport) -> u64) -> Value {
    record.tcp.map_or(Value::Absent, |report| Value::Unsigned(read(report)))
}

/// A count by TCP, and what it is in nearly every direction without trouble, by other fields: docs/fields.md has the rules.
fn implied(
    record: &Record<'_>,
    read: impl FnOnce(&TcpReport) -> u64,
    usual: impl FnOnce(&Direction, &TcpReport) -> u64,
) -> Value {
    let Some(report) = record.tcp else { return Value::Absent };
    let count = read(report);
    if count == usual(record.direction, report) { Value::Implied(count) } else { Value::Unsigned(count) }
}

/// 1 if a control bit was seen.
fn has_bit(direction: &Direction, bit: u16) -> u64 {
    u64::from(direction.tcp_flags & bit != 0)
}

/// Octets of payload, of copies and all.
fn payload(report: &TcpReport) -> u64 {
    report.classes.iter().map(|count| count.bytes).sum()
}

/// Packets that are neither SYN nor RST nor in order.
fn other_packets(direction: &Direction, report: &TcpReport) -> u64 {
    let told =
        report.syns() + report.count(SegmentClass::Reset).segments + report.count(SegmentClass::InOrder).segments;
    direction.packets.wrapping_sub(told)
}

/// All of the payload, if it is known at all and the connection has one record.
fn size_by_sequence(record: &Record<'_>) -> Value {
    match record.tcp {
        Some(TcpReport { size_by_sequence_bytes: Some(_), duration_by_sequence_ns: Some(_), .. }) => {
            implied(record, |t| t.size_by_sequence_bytes.unwrap_or_default(), |_, t| payload(t))
        }
        _ => told(record, |t| t.size_by_sequence_bytes),
    }
}

/// What TCP may have told.
fn told<T: Into<u64>>(record: &Record<'_>, read: impl FnOnce(&TcpReport) -> Option<T>) -> Value {
    record.tcp.and_then(read).map_or(Value::Absent, |number| Value::Unsigned(number.into()))
}

/// What a SYN that was seen announced, or not.
fn announced<T: Into<u64>>(record: &Record<'_>, read: impl FnOnce(&TcpReport) -> Option<T>) -> Value {
    match record.tcp {
        Some(report) if report.syn_window.is_some() => {
            read(report).map_or(Value::Missing, |number| Value::Unsigned(number.into()))
        }
        _ => Value::Absent,
    }
}

fn when(applies: bool, number: impl Into<u64>) -> Value {
    if applies { Value::Unsigned(number.into()) } else { Value::Absent }
}

/// What means nothing without packets in the direction.
fn of_packets(record: &Record<'_>, applies: bool, read: impl FnOnce(&Direction) -> Value) -> Value {
    if applies && record.direction.packets > 0 { read(record.direction) } else { Value::Absent }
}

/// Both outer addresses, in the family that the tunnel's type says or the addresses themselves.
fn outer(direction: &Direction) -> Option<(IpAddr, IpAddr)> {
    let (source, destination) = (Ipv6Addr::from(direction.outer_source), Ipv6Addr::from(direction.outer_destination));
    match direction.tunnel_type {
        TunnelType::None => None,
        TunnelType::FourInSix | TunnelType::SixInSix => Some((source.into(), destination.into())),
        _ => Some(match (source.to_ipv4_mapped(), destination.to_ipv4_mapped()) {
            (Some(source), Some(destination)) => (source.into(), destination.into()),
            _ => (source.into(), destination.into()),
        }),
    }
}

fn mac(address: [u8; 16]) -> [u8; 6] {
    let [.., a, b, c, d, e, f] = address;
    [a, b, c, d, e, f]
}
