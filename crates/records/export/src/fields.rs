//! The list of fields: name, description, how the value is read from a flow record, and the
//! information elements.
//!
//! The columns of JSON and CSV (`columns.rs`), the templates of IPFIX and NetFlow v9, and
//! docs/fields.md follow from [`FIELDS`]. Only this file decides whether a field applies to a flow.
//! If not, its value is [`FieldValue::NotApplicable`]: null in JSON, empty in CSV, and not in the
//! template. A count that does not apply is 0 in JSON and CSV, so that its column is one of
//! integers.

use crate::column::{Column, ColumnKind};
use crate::community_id::community_id;
use crate::element::{DataType, Element, Semantics, Units};
use crate::field_value::FieldValue;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use weir_dpi::{Application, Confidence, Fact, Findings, Notes};
use weir_flow::{Approximate, Direction, FlowRecord, NamedNetwork, Place, Places};
use weir_packet::{NO_LABEL, NO_VLAN, Network, Packet, TunnelType};
use weir_tcp::{SegmentClass, TcpReport};

use DataType::{
    DateTimeMilliseconds, DateTimeNanoseconds, Float64, Ipv4Address, Ipv6Address, MacAddress, OctetArray, Unsigned8,
    Unsigned16, Unsigned32, Unsigned64,
};

/// A flow record of which one direction is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectionView<'a> {
    pub flow: &'a FlowRecord,
    /// The direction that is written.
    pub direction: &'a Direction,
    /// TCP analysis of that direction.
    pub tcp: Option<&'a TcpReport>,
    /// The record is the reverse direction of a bidirectional flow: its source is the responder.
    pub from_responder: bool,
}

impl<'a> DirectionView<'a> {
    /// Selects the forward or the reverse direction of a flow record.
    #[inline(always)]
    pub fn new(flow: &'a FlowRecord, reverse: bool, from_responder: bool) -> Self {
        let direction = if reverse { &flow.reverse } else { &flow.forward };
        let tcp = flow.tcp.as_ref().map(|reports| &reports[usize::from(reverse)]).filter(|_| direction.packets > 0);
        Self { flow, direction, tcp, from_responder }
    }

    /// The same for a column. The TCP counters of a direction without packets are 0.
    pub fn of_column(flow: &'a FlowRecord, reverse: bool) -> Self {
        let record = Self::new(flow, reverse, false);
        let none = flow.tcp.is_some().then_some(&TcpReport::EMPTY);
        Self { tcp: record.tcp.or(none), ..record }
    }
}

/// A field of flow records.
pub(crate) struct Field {
    /// The name without the prefix of a direction.
    pub name: &'static str,
    /// The column of the whole flow, or those of the forward and the reverse direction.
    pub columns: &'static [Column],
    pub elements: &'static [Element],
}

impl Field {
    /// Whether each direction has the field.
    pub const fn is_of_direction(&self) -> bool {
        self.columns.len() == 2
    }
}

/// The number of elements in a list of fields, or in the reverse direction.
pub(crate) const fn count_elements(list: &[Field], reverse: bool) -> usize {
    let (mut elements, mut at) = (0, 0);
    while at < list.len() {
        elements += if !reverse || list[at].is_of_direction() { list[at].elements.len() } else { 0 };
        at += 1;
    }
    elements
}

/// A field as a type: its elements are constants where it is visited.
pub(crate) trait StaticField {
    const ELEMENTS: &'static [Element];
}

/// Receives the fields of a record one after the other.
pub(crate) trait Visitor {
    /// Receives the next field, the number of elements of the fields before it, and a function that
    /// reads its value.
    fn visit<'a, F: StaticField>(&mut self, elements_before: usize, value: impl FnOnce() -> FieldValue<'a>);
}

/// Defines a list of fields and a function that visits them. A field belongs to the `flow`, to
/// `each` direction, to `tcp`, which is TCP analysis of each direction, or to `dpi`, which is
/// inspection of payload. `or N`: where the field
/// does not apply, its column has the number N. The function visits all fields, or those of the
/// reverse direction, without a loop, so that the properties of each field are constants.
macro_rules! fields {
    (@is_of_direction flow) => { false };
    (@is_of_direction dpi) => { false };
    (@is_of_direction each) => { true };
    (@is_of_direction tcp) => { true };
    (@none) => { None };
    (@none $none:literal) => { Some($none) };
    (@column $prefix:literal $name:literal, $kind:ident, $unit:literal, $description:literal, $none:expr, $of_tcp:literal, $of_application:literal, $reverse:literal, $read:expr) => {
        Column {
            name: concat!($prefix, $name),
            json_key: concat!(",\"", $prefix, $name, "\":"),
            kind: ColumnKind::$kind,
            unit: $unit,
            description: $description,
            of_tcp: $of_tcp,
            of_application: $of_application,
            none: $none,
            read: |flow| read(&DirectionView::of_column(flow, $reverse), $read),
        }
    };
    (@columns flow $name:literal, $kind:ident, $unit:literal, $description:literal, $none:expr, $read:expr) => {
        &[fields!(@column "" $name, $kind, $unit, $description, $none, false, false, false, $read)]
    };
    (@columns dpi $name:literal, $kind:ident, $unit:literal, $description:literal, $none:expr, $read:expr) => {
        &[fields!(@column "" $name, $kind, $unit, $description, $none, false, true, false, $read)]
    };
    (@columns each $name:literal, $kind:ident, $unit:literal, $description:literal, $none:expr, $read:expr) => {
        &[
            fields!(@column "fwd_" $name, $kind, $unit, $description, $none, false, false, false, $read),
            fields!(@column "rev_" $name, $kind, $unit, $description, $none, false, false, true, $read),
        ]
    };
    (@columns tcp $name:literal, $kind:ident, $unit:literal, $description:literal, $none:expr, $read:expr) => {
        &[
            fields!(@column "fwd_" $name, $kind, $unit, $description, $none, true, false, false, $read),
            fields!(@column "rev_" $name, $kind, $unit, $description, $none, true, false, true, $read),
        ]
    };
    ($(#[$about:meta])* $list:ident, $visit:ident:
        $($of:ident $name:literal, $kind:ident $(or $none:literal)?, $unit:literal, $description:literal, [$($element:expr),* $(,)?], $read:expr;)+) => {
        $(#[$about])*
        pub(crate) const $list: &[Field] = &[$(Field {
            name: $name,
            columns: fields!(@columns $of $name, $kind, $unit, $description, fields!(@none $($none)?), $read),
            elements: &[$($element),*],
        },)+];

        #[inline(always)]
        pub(crate) fn $visit<const REVERSE: bool>(record: &DirectionView<'_>, visitor: &mut impl Visitor) {
            let mut elements_before = 0;
            $(
                if !REVERSE || fields!(@is_of_direction $of) {
                    struct This;
                    impl StaticField for This {
                        const ELEMENTS: &'static [Element] = &[$($element),*];
                    }
                    visitor.visit::<This>(elements_before, || read(record, $read));
                    elements_before += This::ELEMENTS.len();
                }
            )+
            debug_assert_eq!(elements_before, count_elements($list, REVERSE));
        }
    };
}

/// A quantity that only Weir has an element for.
const fn quantity(number: u16, name: &'static str, data_type: DataType, units: Units) -> Element {
    Element::weir(number, name, data_type, Semantics::Quantity, units)
}

/// The same: packets, only sent with TCP anomalies.
const fn anomaly_packets(number: u16, name: &'static str) -> Element {
    quantity(number, name, Unsigned64, Units::Packets).with_anomalies_only()
}

/// The same: octets, only sent with TCP anomalies.
const fn anomaly_octets(number: u16, name: &'static str) -> Element {
    quantity(number, name, Unsigned64, Units::Octets).with_anomalies_only()
}

/// A text of any length, which only Weir has an element for.
const fn text_element(number: u16, name: &'static str) -> Element {
    Element::weir(number, name, DataType::String, Semantics::Default, Units::None).only_listed()
}

/// A text of any length of the whole flow, for which ntop has an element.
const fn ntop_text(number: u16, name: &'static str) -> Element {
    Element::ntop(number, number, name, DataType::String).only_listed()
}

#[inline(always)]
fn read<'a>(record: &DirectionView<'a>, field: impl FnOnce(&DirectionView<'a>) -> FieldValue<'a>) -> FieldValue<'a> {
    field(record)
}

#[rustfmt::skip]
fields! {
    /// All fields in the order of the columns.
    FIELDS, visit_fields:
    flow "start_time", Time, "", "Time of the earliest packet of both directions, in UTC with ns resolution.",
        [Element::iana(22, "flowStartSysUpTime", Unsigned32).only_netflow9().basic(),
         Element::common(152, "flowStartMilliseconds", DateTimeMilliseconds).basic(),
         Element::iana(156, "flowStartNanoseconds", DateTimeNanoseconds)],
        |r| FieldValue::Time(r.flow.start_ns());
    flow "end_time", Time, "", "Time of the latest packet of both directions, in UTC with ns resolution.",
        [Element::iana(21, "flowEndSysUpTime", Unsigned32).only_netflow9().basic(),
         Element::common(153, "flowEndMilliseconds", DateTimeMilliseconds).basic(),
         Element::iana(157, "flowEndNanoseconds", DateTimeNanoseconds)],
        |r| FieldValue::Time(r.flow.end_ns());
    flow "duration_ns", Integer, "ns", "Time from `start_time` to `end_time`.",
        [quantity(63, "flowDurationNanoseconds", Unsigned64, Units::Nanoseconds).only_listed()],
        |r| FieldValue::Unsigned(r.flow.end_ns().saturating_sub(r.flow.start_ns()));
    flow "src_ip", Address, "", "Source address: the address of the initiator, the sender of the SYN or, without a SYN, of the first packet.",
        [Element::common(8, "sourceIPv4Address", Ipv4Address).basic(), Element::common(27, "sourceIPv6Address", Ipv6Address).basic()],
        |r| optional(r.flow.source_ip(), FieldValue::Ip);
    flow "src_port", Integer or 0, "", "Source port (TCP, UDP, UDP-Lite, SCTP, DCCP); 0 for other protocols.",
        [Element::common(7, "sourceTransportPort", Unsigned16).basic()], |r| when(r.flow.has_ports(), r.flow.source_port);
    flow "dst_ip", Address, "", "Destination address: the address of the responder.",
        [Element::common(12, "destinationIPv4Address", Ipv4Address).basic(),
         Element::common(28, "destinationIPv6Address", Ipv6Address).basic()],
        |r| optional(r.flow.destination_ip(), FieldValue::Ip);
    flow "dst_port", Integer or 0, "", "Destination port (TCP, UDP, UDP-Lite, SCTP, DCCP); 0 for other protocols.",
        [Element::common(11, "destinationTransportPort", Unsigned16).basic()],
        |r| when(r.flow.has_ports(), r.flow.destination_port);
    flow "protocol", Word, "", "IP protocol, after IPv6 extension headers: its name (tcp, udp, icmp, icmp6 and others), or else its number.",
        [], |r| if is_ip(r) { FieldValue::Protocol(r.flow.protocol) } else { FieldValue::NotApplicable };
    flow "protocol_number", Integer, "", "IP protocol number, after IPv6 extension headers.",
        [Element::common(4, "protocolIdentifier", Unsigned8).basic()], |r| when(is_ip(r), r.flow.protocol);
    flow "packets", Integer, "packets", "Number of packets of both directions together.",
        [], |r| FieldValue::Unsigned(r.flow.packets());
    flow "bytes", Integer, "octets", "Sum of the IP packet lengths of both directions, headers included; 0 in layer-2 flows.",
        [], |r| FieldValue::Unsigned(r.flow.bytes());
    flow "l2_bytes", Integer, "octets", "Sum of the frame lengths on the wire of both directions.",
        [], |r| FieldValue::Unsigned(r.flow.frame_bytes());
    each "packets", Integer, "packets", "Number of packets.",
        [Element::common(2, "packetDeltaCount", Unsigned64).basic()], |r| FieldValue::Unsigned(r.direction.packets);
    each "bytes", Integer, "octets", "Sum of the IP packet lengths, headers included; 0 in layer-2 flows.",
        [Element::common(1, "octetDeltaCount", Unsigned64).basic()], |r| FieldValue::Unsigned(r.direction.bytes);
    each "l2_bytes", Integer, "octets", "Sum of the frame lengths on the wire.",
        [Element::iana(352, "layer2OctetDeltaCount", Unsigned64).basic()], |r| FieldValue::Unsigned(r.direction.frame_bytes);
    each "tcp_flags", TcpFlags, "", "TCP control bits of all packets together, a letter for each: SYN, ACK, PSH, FIN, RST, URG, ECE, CWR, N for AE (formerly NS), X, Y and Z for reserved bits.",
        [], |r| of_packets(r, is_ip(r) && r.flow.protocol == 6, |d| FieldValue::TcpFlags(d.tcp_flags));
    each "tcp_flags_number", Integer or 0, "", "TCP control bits: bitwise OR over all packets, 12 bits as in the TCP header; 0 for other protocols.",
        // In one octet if they fit (RFC 9565 section 3): nfacctd 1.7.7 does not read the two-octet
        // form.
        [Element::common(6, "tcpControlBits", Unsigned16).in_octets(1).basic(),
         Element::common(6, "tcpControlBits", Unsigned16).only_if_longer_than(1)],
        |r| number(r, is_ip(r) && r.flow.protocol == 6, |d| d.tcp_flags);
    flow "end_reason", Word, "", "Flow end reason: idle (idle timeout), active (active timeout), end (FIN or RST), forced (end of the input or of the run), resources (flow cache full, or overflow record); 1 to 5 in IPFIX.",
        [Element::common(136, "flowEndReason", Unsigned8).basic()],
        |r| FieldValue::Code(r.flow.end_reason as u8, r.flow.end_reason.name());
    flow "interface", Integer, "", "Interface that captured the first packet: its number in the capture file, from 1 on; the interface index of the system (`ip link`); or the DPDK port number plus 1.",
        [Element::common(10, "ingressInterface", Unsigned32).basic()], |r| FieldValue::Unsigned(r.flow.interface.into());
    flow "queue_lost", Integer, "packets", "Upper bound of the packets missing in the record: the packets of all flows that the receive queue of the record lost during its lifetime (metering.md section 7). IPFIX omits it if it is 0.",
        [quantity(52, "queueLostPackets", Unsigned64, Units::Packets).not_zero()],
        |r| FieldValue::Unsigned(r.flow.queue_lost);
    flow "udp_response_ns", Integer, "ns", "UDP: time from the first packet of the initiator to the first packet of the responder in this record.",
        [quantity(56, "udpResponseTime", Unsigned64, Units::Nanoseconds)], |r| optional(udp_response_ns(r.flow), FieldValue::Unsigned);
    flow "sampling_min", Integer or 1, "packets", "Smallest N of the sampling during the lifetime of the record: 1 in N packets was metered (overload.md). 1 without sampling.",
        [quantity(53, "samplingPopulationMinimum", Unsigned32, Units::Packets)],
        |r| optional(r.flow.sampling, |[min, _]| FieldValue::Unsigned(min.into()));
    flow "sampling_max", Integer or 1, "packets", "Largest N of the sampling during the lifetime of the record. The estimated number of packets is between `packets` * `sampling_min` and `packets` * `sampling_max`.",
        [Element::iana(310, "samplingPopulation", Unsigned32)],
        |r| optional(r.flow.sampling, |[_, max]| FieldValue::Unsigned(max.into()));
    flow "approximate", Words, "", "Reasons why the record is not exact, separated by spaces: overflow, mixed_vlan, mixed_mpls, mixed_tunnel, mixed_interface, fragments, unanalysed, sampled, aggregated (overload.md), clock_set (metering.md), mixed_mac, uninspected (overload.md); bits 1 to 2048 in IPFIX.",
        [Element::weir(13, "approximateRecord", Unsigned16, Semantics::Flags, Units::None)],
        |r| if r.flow.approximate.0 == 0 { FieldValue::NotApplicable } else { FieldValue::Approximate(r.flow.approximate) };
    flow "community_id", Text, "", "Community ID, version 1 with seed 0. Does not apply to overflow records.",
        [Element::weir(65, "communityId", DataType::String, Semantics::Default, Units::None)
            .in_octets(crate::community_id::LENGTH as u16).only_listed()],
        |r| optional(community_id(r.flow), FieldValue::CommunityId);
    flow "interface_name", Text, "", "Name of `interface`, if the source knows it; with --interface-names (enrichment.md).",
        [Element::iana(82, "interfaceName", DataType::String).only_listed()],
        |r| of_places(r.flow, |places| places.interface.as_deref());
    flow "src_network", Text, "", "Name of the network of the source in the table of `--networks` (enrichment.md).",
        [text_element(95, "sourceNetworkName")], |r| network(r.flow, SOURCE, |n| &n.name);
    flow "dst_network", Text, "", "Name of the network of the destination.",
        [text_element(96, "destinationNetworkName")], |r| network(r.flow, DESTINATION, |n| &n.name);
    flow "src_site", Text, "", "Site of the network of the source: where it is.",
        [text_element(97, "sourceNetworkSite")], |r| network(r.flow, SOURCE, |n| &n.site);
    flow "dst_site", Text, "", "Site of the network of the destination.",
        [text_element(98, "destinationNetworkSite")], |r| network(r.flow, DESTINATION, |n| &n.site);
    flow "src_role", Text, "", "Role of the network of the source in the same table, such as servers or guests.",
        [text_element(99, "sourceNetworkRole")], |r| network(r.flow, SOURCE, |n| &n.role);
    flow "dst_role", Text, "", "Role of the network of the destination.",
        [text_element(100, "destinationNetworkRole")], |r| network(r.flow, DESTINATION, |n| &n.role);
    flow "src_local", Integer, "", "1 if the source is in a local network of the table of `--networks`, 0 if it is not.",
        [Element::weir(90, "sourceIsLocal", Unsigned8, Semantics::Default, Units::None)], |r| local(r.flow, SOURCE);
    flow "dst_local", Integer, "", "1 if the destination is in a local network of the table, 0 if it is not.",
        [Element::weir(91, "destinationIsLocal", Unsigned8, Semantics::Default, Units::None)], |r| local(r.flow, DESTINATION);
    flow "src_country", CaselessText, "", "Country of the source in the databases of `--geo`: two letters (ISO 3166-1).",
        [Element::weir(92, "sourceCountryCode", DataType::String, Semantics::Default, Units::None).in_octets(2)],
        |r| geo(r.flow, SOURCE, |place| place.country().map(text));
    flow "dst_country", CaselessText, "", "Country of the destination.",
        [Element::weir(93, "destinationCountryCode", DataType::String, Semantics::Default, Units::None).in_octets(2)],
        |r| geo(r.flow, DESTINATION, |place| place.country().map(text));
    flow "src_as", Integer, "", "Number of the autonomous system of the source in the databases of `--geo`.",
        [Element::common(16, "bgpSourceAsNumber", Unsigned32)], |r| geo(r.flow, SOURCE, system_number);
    flow "dst_as", Integer, "", "Number of the autonomous system of the destination.",
        [Element::common(17, "bgpDestinationAsNumber", Unsigned32)], |r| geo(r.flow, DESTINATION, system_number);
    flow "src_as_org", Text, "", "Organization of the autonomous system of the source.",
        [text_element(101, "sourceAsOrganization")], |r| geo(r.flow, SOURCE, organization);
    flow "dst_as_org", Text, "", "Organization of the autonomous system of the destination.",
        [text_element(102, "destinationAsOrganization")], |r| geo(r.flow, DESTINATION, organization);
    flow "tags", Names, "", "Lists of `--tags` that have the source, the destination, or a name or fingerprint of the flow, separated by spaces.",
        [text_element(103, "flowTags")], |r| of_places(r.flow, |places| places.tags.as_deref());
    flow "src_tags", Names, "", "Lists that have the source.",
        [text_element(104, "sourceTags")], |r| of_places(r.flow, |places| places.source.tags.as_deref());
    flow "dst_tags", Names, "", "Lists that have the destination.",
        [text_element(105, "destinationTags")], |r| of_places(r.flow, |places| places.destination.tags.as_deref());
    flow "ethertype", Integer or 0, "", "EtherType of a layer-2 flow; 0 for frames without an EtherType, and for IP flows.",
        [Element::common(256, "ethernetType", Unsigned16).only_for(Network::Layer2).basic()],
        // The other port is 0 in an overflow record, which aggregates flows by one port.
        |r| when(!is_ip(r), r.flow.source_port.max(r.flow.destination_port));
    flow "src_mac", Mac, "", "MAC address of the source of a layer-2 flow. IP flows, with `--mac-addresses`: that of the first frame that the source sent in this record or, if there is none, received; of a tunnelled packet the frame outside the tunnel (metering.md section 6).",
        [Element::common(56, "sourceMacAddress", MacAddress).basic_for(Network::Layer2)],
        |r| optional(r.flow.mac_addresses()[0], FieldValue::Mac);
    flow "dst_mac", Mac, "", "MAC address of the destination in the same frame as `src_mac`.",
        [Element::common(80, "destinationMacAddress", MacAddress).basic_for(Network::Layer2)],
        |r| optional(r.flow.mac_addresses()[1], FieldValue::Mac);
    each "tos", Integer, "", "Type of service or traffic class of the first packet.",
        [Element::common(5, "ipClassOfService", Unsigned8).basic()], |r| number(r, is_ip(r), |d| d.tos);
    each "ttl_min", Integer, "hops", "Smallest TTL or hop limit.",
        [Element::common(52, "minimumTTL", Unsigned8).basic()], |r| number(r, is_ip(r), |d| d.ttl_min);
    each "ttl_max", Integer, "hops", "Largest TTL or hop limit.",
        [Element::common(53, "maximumTTL", Unsigned8).basic()], |r| number(r, is_ip(r), |d| d.ttl_max);
    each "packet_size_min", Integer, "octets", "Length of the shortest IP packet.",
        [Element::common(25, "minimumIpTotalLength", Unsigned64).in_octets(4)], |r| number(r, is_ip(r), |d| d.size_min);
    each "packet_size_max", Integer, "octets", "Length of the longest IP packet.",
        [Element::common(26, "maximumIpTotalLength", Unsigned64).in_octets(4)], |r| number(r, is_ip(r), |d| d.size_max);
    each "packet_size_mean", Number, "octets", "Mean length of the IP packets.",
        [quantity(1, "packetSizeMean", Float64, Units::Octets).with_anomalies_only()],
        |r| of_packets(r, is_ip(r), |d| FieldValue::Float(d.size_mean()));
    each "packet_size_std", Number, "octets", "Population standard deviation of the lengths of the IP packets.",
        [quantity(2, "packetSizeStandardDeviation", Float64, Units::Octets)],
        |r| of_packets(r, is_ip(r), |d| FieldValue::Float(d.size_std()));
    each "iat_min_ns", Integer, "ns", "Shortest inter-arrival time between consecutive packets of the direction. A direction with fewer than 2 packets has none (null in JSON, empty in CSV).",
        [quantity(3, "interArrivalTimeMinimum", Unsigned64, Units::Nanoseconds)],
        |r| number(r, r.direction.iat_count() > 0, |d| d.iat_min_ns);
    each "iat_max_ns", Integer, "ns", "Longest inter-arrival time between consecutive packets of the direction.",
        [quantity(4, "interArrivalTimeMaximum", Unsigned64, Units::Nanoseconds)],
        |r| number(r, r.direction.iat_count() > 0, |d| d.iat_max_ns);
    each "iat_mean_ns", Number, "ns", "Mean inter-arrival time of the packets of the direction.",
        [quantity(5, "interArrivalTimeMean", Float64, Units::Nanoseconds)],
        |r| optional(r.direction.iat_mean_ns(), FieldValue::Float);
    each "iat_std_ns", Number, "ns", "Population standard deviation of the inter-arrival times of the direction.",
        [quantity(6, "interArrivalTimeStandardDeviation", Float64, Units::Nanoseconds)],
        |r| optional(r.direction.iat_std_ns(), FieldValue::Float);
    each "vlan_id", Integer, "", "VLAN identifier of the outermost tag of the first packet.",
        [Element::common(58, "vlanId", Unsigned16).basic(), Element::common(243, "dot1qVlanId", Unsigned16)],
        |r| number(r, r.direction.vlan != NO_VLAN, |d| d.vlan);
    each "inner_vlan_id", Integer, "", "VLAN identifier of the second tag of the first packet.",
        [Element::common(245, "dot1qCustomerVlanId", Unsigned16)],
        |r| number(r, r.direction.inner_vlan != NO_VLAN, |d| d.inner_vlan);
    each "mpls_label", Integer, "", "Top label of the outermost MPLS label stack of the first packet.",
        [Element::common(70, "mplsTopLabelStackSection", OctetArray).in_octets(3)],
        |r| number(r, r.direction.mpls_label != NO_LABEL, |d| d.mpls_label);
    each "tunnel_type", Word, "", "Type of the innermost tunnel of the first packet, with `--decap`: gre, ipip, 6in4, 4in6, 6in6, vxlan, geneve, gtpu (1 to 8 in IPFIX).",
        [Element::weir(7, "tunnelType", Unsigned8, Semantics::Identifier, Units::None)],
        |r| of_packets(r, true, |d| optional(d.tunnel_type.name(), |name| FieldValue::Code(d.tunnel_type as u8, name)));
    each "tunnel_id", Integer, "", "Identifier of the tunnel in `tunnel_type`: GRE key or call ID, VXLAN or Geneve network identifier, or GTP-U tunnel endpoint identifier.",
        [Element::weir(8, "tunnelIdentifier", Unsigned32, Semantics::Identifier, Units::None)],
        |r| of_packets(r, true, |d| optional(d.tunnel_id, |id| FieldValue::Unsigned(id.into())));
    each "outer_src_ip", Address, "", "Source address of the IP header that encapsulates the tunnel in `tunnel_type`.",
        [Element::weir(9, "outerSourceIPv4Address", Ipv4Address, Semantics::Default, Units::None),
         Element::weir(10, "outerSourceIPv6Address", Ipv6Address, Semantics::Default, Units::None)],
        |r| of_packets(r, true, |d| optional(outer(d), |(source, _)| FieldValue::Ip(source)));
    each "outer_dst_ip", Address, "", "Destination address of the IP header that encapsulates the tunnel in `tunnel_type`.",
        [Element::weir(11, "outerDestinationIPv4Address", Ipv4Address, Semantics::Default, Units::None),
         Element::weir(12, "outerDestinationIPv6Address", Ipv6Address, Semantics::Default, Units::None)],
        |r| of_packets(r, true, |d| optional(outer(d), |(_, destination)| FieldValue::Ip(destination)));
    each "icmp_type", Integer, "", "ICMP or ICMPv6 type of the first packet.",
        [Element::common(176, "icmpTypeIPv4", Unsigned8).only_for(Network::Ipv4),
         Element::common(178, "icmpTypeIPv6", Unsigned8).only_for(Network::Ipv6)],
        |r| number(r, has_icmp(r), |d| d.icmp[0]);
    each "icmp_code", Integer, "", "ICMP or ICMPv6 code of the first packet.",
        [Element::common(177, "icmpCodeIPv4", Unsigned8).only_for(Network::Ipv4),
         Element::common(179, "icmpCodeIPv6", Unsigned8).only_for(Network::Ipv6)],
        |r| number(r, has_icmp(r), |d| d.icmp[1]);
    tcp "tcp_syn_count", Integer, "packets", "Segments with SYN, including retransmitted segments, without duplicates. tcp.md defines all TCP fields.",
        [Element::iana(218, "tcpSynTotalCount", Unsigned64)],
        |r| implied(r, TcpReport::syns, |d, _| has_bit(d, Packet::SYN));
    tcp "tcp_syn_bytes", Integer, "octets", "Payload of segments with SYN, without retransmitted segments.",
        [anomaly_octets(44, "tcpSynOctets")], |r| segment_bytes(r, SegmentClass::Syn);
    tcp "tcp_syn_retransmitted", Integer, "packets", "Retransmitted segments with SYN: the sequence number is that of the previous SYN.",
        [anomaly_packets(14, "tcpSynRetransmitted")], |r| segments(r, SegmentClass::SynRetransmission);
    tcp "tcp_syn_retransmitted_bytes", Integer, "octets", "Payload of retransmitted segments with SYN.",
        [anomaly_octets(45, "tcpSynRetransmittedOctets")], |r| segment_bytes(r, SegmentClass::SynRetransmission);
    tcp "tcp_fin_count", Integer, "packets", "Segments with FIN, without duplicates, out-of-window segments and segments with RST.",
        [Element::iana(219, "tcpFinTotalCount", Unsigned64)],
        |r| implied(r, |t| t.fins, |d, _| has_bit(d, Packet::FIN));
    tcp "tcp_rst_count", Integer, "packets", "Segments with RST, without duplicates.",
        [Element::iana(220, "tcpRstTotalCount", Unsigned64)], |r| segments(r, SegmentClass::Reset);
    tcp "tcp_rst_bytes", Integer, "octets", "Payload of segments with RST.",
        [anomaly_octets(46, "tcpRstOctets")], |r| segment_bytes(r, SegmentClass::Reset);
    tcp "tcp_payload_bytes", Integer, "octets", "Payload of all segments, calculated from the IP length; duplicates are included.",
        [quantity(15, "tcpPayloadOctets", Unsigned64, Units::Octets)], |r| tcp_count(r, payload);
    tcp "tcp_unique_bytes", Integer, "octets", "Payload octets seen for the first time.",
        [quantity(16, "tcpUniqueOctets", Unsigned64, Units::Octets)],
        |r| implied(r, |t| t.unique_bytes, |_, t| payload(t));
    tcp "tcp_in_order_packets", Integer, "packets", "In-order segments: segments with payload or FIN that begin at or after the end of the octets seen.",
        [quantity(17, "tcpInOrderPackets", Unsigned64, Units::Packets)], |r| segments(r, SegmentClass::InOrder);
    tcp "tcp_in_order_bytes", Integer, "octets", "Payload of in-order segments.",
        [anomaly_octets(18, "tcpInOrderOctets")], |r| segment_bytes(r, SegmentClass::InOrder);
    tcp "tcp_acknowledgments", Integer, "packets", "Segments without payload, SYN, FIN or RST that are neither keep-alives nor duplicate acknowledgments.",
        [quantity(19, "tcpAcknowledgments", Unsigned64, Units::Packets)],
        |r| implied(r, |t| t.count(SegmentClass::Acknowledgment).segments, other_packets);
    tcp "tcp_duplicate_acks", Integer, "packets", "Duplicate acknowledgments: they repeat the acknowledgment number although the other side has sent more octets.",
        [anomaly_packets(20, "tcpDuplicateAcknowledgments")], |r| segments(r, SegmentClass::DuplicateAcknowledgment);
    tcp "tcp_retransmitted_packets", Integer, "packets", "Retransmitted segments: at least one octet or the FIN was seen before. Duplicates, keep-alives and SYN are counted separately.",
        [Element::ntop(109, 110, "RETRANSMITTED_IN_PKTS", Unsigned32).with_anomalies_only(),
         anomaly_packets(21, "tcpRetransmittedPackets")],
        |r| segments(r, SegmentClass::Retransmission);
    tcp "tcp_retransmitted_bytes", Integer, "octets", "Payload octets that were seen before. Octets of duplicates, keep-alives, out-of-window segments and segments with RST are not counted.",
        [anomaly_octets(22, "tcpRetransmittedOctets")], |r| tcp_count(r, |t| t.retransmitted_bytes);
    tcp "tcp_retransmitted_payload_bytes", Integer, "octets", "Whole payload of retransmitted segments, including octets not seen before.",
        [anomaly_octets(47, "tcpRetransmittedPayloadOctets")], |r| segment_bytes(r, SegmentClass::Retransmission);
    tcp "tcp_retransmitted_partial", Integer, "packets", "Retransmitted segments that also have octets not seen before.",
        [anomaly_packets(23, "tcpRetransmittedPartial")], |r| tcp_count(r, |t| t.partial_retransmissions);
    tcp "tcp_retransmitted_spurious", Integer, "packets", "Retransmitted segments of which all octets were acknowledged before.",
        [anomaly_packets(24, "tcpRetransmittedSpurious")], |r| tcp_count(r, |t| t.spurious_retransmissions);
    tcp "tcp_retransmitted_unseen", Integer, "packets", "Retransmitted segments whose original was lost before the capture point: they fill a hole later than out-of-order segments do.",
        [anomaly_packets(25, "tcpRetransmittedUnseenPackets")], |r| segments(r, SegmentClass::UnseenRetransmission);
    tcp "tcp_retransmitted_unseen_bytes", Integer, "octets", "Payload of retransmitted segments whose original was lost before the capture point.",
        [anomaly_octets(26, "tcpRetransmittedUnseenOctets")], |r| segment_bytes(r, SegmentClass::UnseenRetransmission);
    tcp "tcp_out_of_order", Integer, "packets", "Out-of-order segments: they fill a hole within the round-trip time of the handshake; if that time is unknown, within 3 ms.",
        [Element::ntop(111, 112, "OOORDER_IN_PKTS", Unsigned32).with_anomalies_only(),
         anomaly_packets(27, "tcpOutOfOrderPackets")],
        |r| segments(r, SegmentClass::OutOfOrder);
    tcp "tcp_out_of_order_bytes", Integer, "octets", "Payload of out-of-order segments.",
        [anomaly_octets(28, "tcpOutOfOrderOctets")], |r| segment_bytes(r, SegmentClass::OutOfOrder);
    tcp "tcp_duplicates", Integer, "packets", "Duplicates: packets captured twice, with the same TTL. They are also counted in `packets` and `bytes`.",
        [anomaly_packets(29, "tcpDuplicatePackets")], |r| segments(r, SegmentClass::Duplicate);
    tcp "tcp_routed_duplicates", Integer, "packets", "Routed duplicates: packets captured twice, before and after a router, with different TTLs.",
        [anomaly_packets(30, "tcpRoutedDuplicatePackets")], |r| segments(r, SegmentClass::RoutedDuplicate);
    tcp "tcp_duplicate_bytes", Integer, "octets", "Payload of all duplicates, including routed duplicates.",
        [anomaly_octets(31, "tcpDuplicateOctets")],
        |r| tcp_count(r, |t| t.count(SegmentClass::Duplicate).bytes + t.count(SegmentClass::RoutedDuplicate).bytes);
    tcp "tcp_routed_duplicate_bytes", Integer, "octets", "Payload of routed duplicates.",
        [anomaly_octets(48, "tcpRoutedDuplicateOctets")], |r| segment_bytes(r, SegmentClass::RoutedDuplicate);
    tcp "tcp_keepalives", Integer, "packets", "Keep-alives: segments with 0 or 1 octet of payload at the position of the last octet sent.",
        [anomaly_packets(32, "tcpKeepAlives")], |r| segments(r, SegmentClass::KeepAlive);
    tcp "tcp_keepalive_bytes", Integer, "octets", "Payload of keep-alives.",
        [anomaly_octets(49, "tcpKeepAliveOctets")], |r| segment_bytes(r, SegmentClass::KeepAlive);
    tcp "tcp_zero_window_probes", Integer, "packets", "Zero-window probes: segments with 1 octet of payload while the other side announces a window of 0.",
        [anomaly_packets(33, "tcpZeroWindowProbes")], |r| segments(r, SegmentClass::ZeroWindowProbe);
    tcp "tcp_zero_window_probe_bytes", Integer, "octets", "Payload of zero-window probes.",
        [anomaly_octets(50, "tcpZeroWindowProbeOctets")], |r| segment_bytes(r, SegmentClass::ZeroWindowProbe);
    tcp "tcp_zero_window", Integer, "packets", "Segments that announce a window of 0, without duplicates, out-of-window segments and segments with RST.",
        [anomaly_packets(34, "tcpZeroWindowAnnouncements")], |r| tcp_count(r, |t| t.zero_windows);
    tcp "tcp_out_of_window", Integer, "packets", "Out-of-window segments: 2^30 octets or more away from the octets seen, or before the SYN.",
        [anomaly_packets(35, "tcpOutOfWindowPackets")], |r| segments(r, SegmentClass::OutOfWindow);
    tcp "tcp_out_of_window_bytes", Integer, "octets", "Payload of out-of-window segments.",
        [anomaly_octets(51, "tcpOutOfWindowOctets")], |r| segment_bytes(r, SegmentClass::OutOfWindow);
    tcp "tcp_unread", Integer, "packets", "Packets without a whole TCP header: later fragments, and packets that the capture truncated.",
        [anomaly_packets(36, "tcpUnreadPackets")], |r| segments(r, SegmentClass::Unread);
    tcp "tcp_missing_bytes", Integer, "octets", "Missing octets: octets in holes between octets that were seen, which no segment has filled by the end of the record.",
        [anomaly_octets(37, "tcpMissingOctets")], |r| tcp_count(r, |t| t.missing_bytes);
    tcp "tcp_largest_hole", Integer, "octets", "Largest hole: the most octets that one segment skipped.",
        [anomaly_octets(38, "tcpLargestHole")], |r| tcp_count(r, |t| t.largest_hole_bytes);
    tcp "tcp_handshake_rtt_ns", Integer, "ns", "Time from the SYN of the other side to the first acknowledgment of this side. For the responder it is the round-trip time between capture point and responder; for the initiator, between capture point and initiator.",
        [quantity(39, "tcpHandshakeRoundTrip", Unsigned64, Units::Nanoseconds)],
        |r| tcp_value(r, |t| t.handshake_rtt_ns);
    tcp "tcp_response_count", Integer, "", "Answers of this side: payload that acknowledges all that the other side sent before. tcp.md section 6 defines response times, round trips and throughput.",
        [quantity(57, "tcpResponseCount", Unsigned64, Units::None).only_listed()], |r| tcp_count(r, |t| t.responses.count);
    tcp "tcp_response_first_ns", Integer, "ns", "Response time of the first answer of this side: time from the last octet of the request of the other side to the first octet of the answer.",
        [quantity(58, "tcpResponseTimeFirst", Unsigned64, Units::Nanoseconds).only_listed()],
        |r| tcp_value(r, |t| (t.responses.count > 0).then_some(t.responses.first_ns));
    tcp "tcp_response_mean_ns", Number, "ns", "Mean response time of this side.",
        [quantity(54, "tcpResponseTimeMean", Float64, Units::Nanoseconds)],
        |r| optional(r.tcp.and_then(|t| t.responses.mean_ns()), FieldValue::Float);
    tcp "tcp_response_max_ns", Integer, "ns", "Longest response time of this side.",
        [quantity(59, "tcpResponseTimeMaximum", Unsigned64, Units::Nanoseconds).only_listed()],
        |r| tcp_value(r, |t| (t.responses.count > 0).then_some(t.responses.max_ns));
    tcp "tcp_rtt_count", Integer, "", "Round trips between capture point and this side: segments of the other side that were timed, and that this side acknowledged.",
        [quantity(60, "tcpRoundTripCount", Unsigned64, Units::None).only_listed()], |r| tcp_count(r, |t| t.round_trips.count);
    tcp "tcp_rtt_min_ns", Integer, "ns", "Shortest round-trip time: from payload of the other side to its acknowledgment by this side.",
        [quantity(61, "tcpRoundTripTimeMinimum", Unsigned64, Units::Nanoseconds).only_listed()],
        |r| tcp_value(r, |t| (t.round_trips.count > 0).then_some(t.round_trips.min_ns));
    tcp "tcp_rtt_mean_ns", Number, "ns", "Mean round-trip time of payload.",
        [quantity(55, "tcpRoundTripTimeMean", Float64, Units::Nanoseconds)],
        |r| optional(r.tcp.and_then(|t| t.round_trips.mean_ns()), FieldValue::Float);
    tcp "tcp_rtt_max_ns", Integer, "ns", "Longest round-trip time of payload.",
        [quantity(62, "tcpRoundTripTimeMaximum", Unsigned64, Units::Nanoseconds).only_listed()],
        |r| tcp_value(r, |t| (t.round_trips.count > 0).then_some(t.round_trips.max_ns));
    tcp "tcp_throughput_bits_per_second", Integer, "bit/s", "Throughput of the payload: `tcp_unique_bytes` * 8 / `duration_ns`, rounded down. Does not apply to a record of 0 ns.",
        [quantity(64, "tcpThroughput", Unsigned64, Units::None).only_listed()], throughput;
    tcp "tcp_syn_window", Integer, "octets", "Window of the SYN, not scaled.",
        [quantity(40, "tcpSynWindow", Unsigned16, Units::Octets)], |r| tcp_value(r, |t| t.syn_window);
    tcp "tcp_mss", Integer, "octets", "Maximum segment size option of the SYN.",
        [Element::ntop(417, 421, "TCP_WIN_MSS_IN", Unsigned16)], |r| syn_option(r, |t| t.maximum_segment_size);
    tcp "tcp_window_scale", Integer, "bits", "Window scale option of the SYN: a shift in bits.",
        [Element::ntop(418, 422, "TCP_WIN_SCALE_IN", Unsigned8)], |r| syn_option(r, |t| t.window_scale);
    tcp "tcp_size_by_sequence", Integer, "octets", "Octets from SYN to FIN by sequence numbers. Only for directions with exactly one SYN and one FIN; retransmitted SYN and FIN do not count.",
        [quantity(41, "tcpSizeBySequence", Unsigned64, Units::Octets)], size_by_sequence;
    tcp "tcp_duration_by_sequence_ns", Integer, "ns", "Time between the SYN and the FIN of `tcp_size_by_sequence`.",
        [quantity(42, "tcpDurationBySequence", Unsigned64, Units::Nanoseconds)],
        |r| tcp_value(r, |t| t.duration_by_sequence_ns);
    tcp "tcp_degraded", Words, "", "Reasons why the TCP analysis is not exact, separated by spaces: holes, duplicates, jump, reused, unread, room (bits 1 to 32 in IPFIX). The word room stands for too little memory: segments with payload may then be counted as acknowledgments, without their payload.",
        [Element::weir(43, "tcpDegraded", Unsigned8, Semantics::Flags, Units::None).with_anomalies_only()],
        |r| optional(r.tcp, |t| if t.degradation.0 == 0 { FieldValue::NoValue } else { FieldValue::Degraded(t.degradation) });
    dpi "application", Word, "", "Application protocol that inspection of the payload recognised (docs/applications.md). In IPFIX and NetFlow v9, applicationId is the octet 6 (user-defined, RFC 6759) and the number of the application in 3 octets.",
        [Element::common(95, "applicationId", OctetArray).only_basic(), Element::iana(96, "applicationName", DataType::String).only_listed()], |r| optional(application(r), |(application, _)| FieldValue::Code(application as u8, application.name()));
    dpi "application_by", Word, "", "How the application is known: message, pattern, announced or port, from the most to the least certain; 1 to 4 in IPFIX.",
        [Element::weir(66, "applicationConfidence", Unsigned8, Semantics::Identifier, Units::None).only_listed()], |r| optional(application(r), |(_, by)| FieldValue::Code(by as u8, by.name()));
    dpi "application_notes", Words, "", "Limits of inspection that were met, separated by spaces: gap (octets are missing), conflict (a retransmission with other octets; the first ones were used), cut (a fact did not fit), limit (of packets, octets or memory); bits 1, 2, 4 and 8 in IPFIX.",
        [Element::weir(67, "applicationNotes", Unsigned8, Semantics::Flags, Units::None).only_listed()], notes;
    dpi "sni", HostName, "", "Server name that the client asked for in TLS, DTLS or QUIC; with ECH that of the outer ClientHello.",
        [ntop_text(188, "TLS_SERVER_NAME")], |r| fact_text(r, Fact::ServerName);
    dpi "alpn_offered", Text, "", "Application protocols that the client offered (ALPN), separated by commas.",
        [text_element(68, "tlsAlpnOffered")], |r| fact_text(r, Fact::AlpnOffered);
    dpi "alpn", Text, "", "Application protocol that the server selected (ALPN). TLS 1.3 encrypts it.",
        [text_element(69, "tlsAlpnSelected")], |r| fact_text(r, Fact::AlpnSelected);
    dpi "tls_version", CaselessText, "", "Version of TLS, SSL or DTLS: tls1.3, tls1.2, tls1.1, tls1.0, ssl3.0, dtls1.2, or else the number as in the message.",
        [text_element(70, "tlsVersion")], tls_version;
    dpi "tls_cipher", Integer, "", "Number of the cipher suite that the server selected (IANA TLS Cipher Suites).",
        [Element::weir(71, "tlsCipherSuite", Unsigned16, Semantics::Identifier, Units::None).only_listed()], |r| fact_number(r, Fact::TlsCipher);
    dpi "tls_ech", Integer, "", "1: the ClientHello has the extension encrypted_client_hello, which clients also send without a use for it.",
        [Element::weir(72, "tlsEncryptedClientHello", Unsigned8, Semantics::Default, Units::None).only_listed()], |r| fact_number(r, Fact::TlsEch);
    dpi "tls_alert", CaselessText, "", "Alert that the server sent before its ServerHello, or instead of it, to refuse the ClientHello: level and description, as fatal handshake_failure (IANA TLS Alerts; a number if it has no name).",
        [text_element(110, "tlsAlert")], tls_alert;
    dpi "ja3", CaselessText, "", "JA3, a fingerprint of the TLS client: MD5, hexadecimal.",
        [text_element(73, "ja3")], |r| fingerprint(r, weir_dpi::ja3);
    dpi "ja3s", CaselessText, "", "JA3S, a fingerprint of the TLS server: MD5, hexadecimal.",
        [text_element(74, "ja3s")], |r| fingerprint(r, weir_dpi::ja3s);
    dpi "ja4", CaselessText, "", "JA4, a fingerprint of the TLS or QUIC client.",
        [text_element(75, "ja4")], |r| fingerprint(r, weir_dpi::ja4);
    dpi "cert_subject", CaselessText, "", "Subject of the certificate of the server (RFC 4514). TLS 1.3 encrypts it.",
        [text_element(76, "tlsCertificateSubject")], |r| fact_text(r, Fact::CertificateSubject);
    dpi "cert_issuer", CaselessText, "", "Issuer of that certificate.",
        [text_element(77, "tlsCertificateIssuer")], |r| fact_text(r, Fact::CertificateIssuer);
    dpi "cert_not_before", Time, "", "Begin of its validity.",
        [Element::weir(78, "tlsCertificateNotBefore", DateTimeMilliseconds, Semantics::Default, Units::None).only_listed()], |r| time(r, Fact::CertificateNotBefore);
    dpi "cert_not_after", Time, "", "End of its validity.",
        [Element::weir(79, "tlsCertificateNotAfter", DateTimeMilliseconds, Semantics::Default, Units::None).only_listed()], |r| time(r, Fact::CertificateNotAfter);
    dpi "cert_names", HostName, "", "Names and addresses in that certificate, separated by commas.",
        [text_element(80, "tlsCertificateNames")], |r| fact_text(r, Fact::CertificateNames);
    dpi "quic_version", Integer, "", "Version of QUIC as in the message: 1, or 1798521807 for version 2.",
        [Element::weir(81, "quicVersion", Unsigned32, Semantics::Identifier, Units::None).only_listed()], |r| fact_number(r, Fact::QuicVersion);
    dpi "dns_name", HostName, "", "Name that the first question of DNS, mDNS or LLMNR asks for.",
        [ntop_text(205, "DNS_QUERY")], |r| fact_text(r, Fact::DnsName);
    dpi "dns_type", Integer, "", "Type of that question (IANA DNS Parameters): 1 is A, 28 is AAAA.",
        [Element::weir(82, "dnsQueryType", Unsigned16, Semantics::Identifier, Units::None).only_listed()], |r| fact_number(r, Fact::DnsType);
    dpi "dns_rcode", Integer, "", "Response code of the first answer to it: 0 is no error, 3 is NXDOMAIN.",
        [Element::weir(83, "dnsResponseCode", Unsigned16, Semantics::Identifier, Units::None).only_listed()], |r| fact_number(r, Fact::DnsRcode);
    dpi "dns_answers", CaselessText, "", "Records of that answer, separated by commas.",
        [text_element(84, "dnsAnswers")], |r| fact_text(r, Fact::DnsAnswers);
    dpi "dns_response_ns", Integer, "ns", "Time from the first question to the first answer to it, over UDP.",
        [quantity(85, "dnsResponseTime", Unsigned64, Units::Nanoseconds).only_listed()], |r| fact_number(r, Fact::DnsResponseNs);
    dpi "dst_dns_name", HostName, "", "Name that DNS taught: an earlier response of DNS gave the client the address of the server for this name. Not verified, and other names may have the same address.",
        [text_element(106, "destinationDnsName")], |r| fact_text(r, Fact::LearnedName);
    dpi "http_host", HostName, "", "Host of the first request.",
        [Element::iana(460, "httpRequestHost", DataType::String).only_listed()], |r| fact_text(r, Fact::HttpHost);
    dpi "http_method", Text, "", "Method of the first request.",
        [Element::iana(459, "httpRequestMethod", DataType::String).only_listed()], |r| fact_text(r, Fact::HttpMethod);
    dpi "http_path", Text, "", "Path of the first request; only with --dpi-fields.",
        [Element::iana(461, "httpRequestTarget", DataType::String).only_listed()], |r| fact_text(r, Fact::HttpPath);
    dpi "http_user_agent", Text, "", "User agent of the first request; only with --dpi-fields.",
        [Element::iana(468, "httpUserAgent", DataType::String).only_listed()], |r| fact_text(r, Fact::HttpUserAgent);
    dpi "http_status", Integer, "", "Status of the first final response.",
        [Element::iana(457, "httpStatusCode", Unsigned16).only_listed()], |r| fact_number(r, Fact::HttpStatus);
    dpi "http_content_type", CaselessText, "", "Content type of that response.",
        [Element::iana(469, "httpContentType", DataType::String).only_listed()], |r| fact_text(r, Fact::HttpContentType);
    dpi "ssh_client", Text, "", "Identification of the SSH client.",
        [text_element(86, "sshClientSoftware")], |r| fact_text(r, Fact::SshClient);
    dpi "ssh_server", Text, "", "Identification of the SSH server.",
        [text_element(87, "sshServerSoftware")], |r| fact_text(r, Fact::SshServer);
    dpi "hassh", CaselessText, "", "HASSH, a fingerprint of the SSH client: MD5, hexadecimal.",
        [text_element(88, "hassh")], |r| fact_text(r, Fact::Hassh);
    dpi "hassh_server", CaselessText, "", "HASSH of the SSH server.",
        [text_element(89, "hasshServer")], |r| fact_text(r, Fact::HasshServer);
    dpi "user_name", Text, "", "Account, caller or client that the first message names; only with --dpi-fields.",
        [Element::iana(371, "userName", DataType::String).only_listed()], |r| fact_text(r, Fact::User);
    dpi "server_software", Text, "", "Software that the server names in its greeting.",
        [text_element(94, "serverSoftware")], |r| fact_text(r, Fact::ServerSoftware);
    dpi "ndpi_protocol", CaselessText, "", "Protocol that nDPI recognised, after a dot the service within it: TLS.Google; only with --dpi full.",
        [ntop_text(119, "L7_PROTO_NAME")], |r| fact_text(r, Fact::NdpiProtocol);
    dpi "ndpi_category", CaselessText, "", "Category of that protocol: Web, Network.",
        [text_element(107, "ndpiCategory")], |r| fact_text(r, Fact::NdpiCategory);
    dpi "ndpi_confidence", CaselessText, "", "How nDPI knows the protocol: DPI, Match by IP.",
        [text_element(108, "ndpiConfidence")], |r| fact_text(r, Fact::NdpiConfidence);
    dpi "ndpi_risks", CaselessText, "", "Risks that nDPI sees, separated by commas.",
        [text_element(109, "ndpiRisks")], |r| fact_text(r, Fact::NdpiRisks);
}

#[rustfmt::skip]
fields! {
    /// Fields of templates only: the fields above in other encodings that collectors expect.
    TEMPLATE_FIELDS, visit_template_fields:
    each "icmp_type, icmp_code", Integer, "", "ICMP type * 256 + code.",
        // NetFlow v9 has number 32 for both (RFC 3954 section 8); nfdump 1.7.1 does not read 139.
        [Element::common(32, "icmpTypeCodeIPv4", Unsigned16).only_for(Network::Ipv4).basic(),
         Element::iana(32, "icmpTypeCodeIPv4", Unsigned16).only_netflow9().only_for(Network::Ipv6).basic(),
         Element::common(139, "icmpTypeCodeIPv6", Unsigned16).only_for(Network::Ipv6).basic()],
        type_and_code;
    each "tunnel_id", Integer, "", "VXLAN network identifier, with the octet 1 (VXLAN) before it.",
        [Element::iana(351, "layer2SegmentId", Unsigned64)],
        |r| of_packets(r, r.direction.tunnel_type == TunnelType::Vxlan,
            |d| optional(d.tunnel_id, |id| FieldValue::Unsigned(1 << 56 | u64::from(id))));
    flow "sampling_max", Integer, "", "Sampling algorithm: 2 (random).",
        [Element::iana(35, "samplingAlgorithm", Unsigned8).only_netflow9()],
        |r| optional(r.flow.sampling, |_| FieldValue::Unsigned(2));
    flow "sampling_max", Integer, "packets", "1 in N packets was metered; 1 without sampling. In IPFIX not in full templates. Some collectors ignore records without a rate.",
        [Element::iana(34, "samplingInterval", Unsigned32).only_basic(),
         Element::iana(34, "samplingInterval", Unsigned32).only_netflow9().basic()],
        |r| FieldValue::Unsigned(r.flow.sampling.map_or(1, |[_, max]| max.into()));
    flow "sampling_max", Integer, "", "Selector algorithm: 3 (random n-out-of-N sampling, RFC 5475 section 5.2.1).",
        [Element::iana(304, "selectorAlgorithm", Unsigned16)],
        |r| optional(r.flow.sampling, |_| FieldValue::Unsigned(3));
    flow "sampling_max", Integer, "packets", "Packets selected of each N packets: 1.",
        [Element::iana(309, "samplingSize", Unsigned32)], |r| optional(r.flow.sampling, |_| FieldValue::Unsigned(1));
    flow "src_ip", Integer, "", "1: the source is the initiator. 2: the source is the responder of a bidirectional flow.",
        [Element::iana(239, "biflowDirection", Unsigned8)],
        |r| FieldValue::Unsigned(if r.from_responder { 2 } else { 1 });
}

fn application(record: &DirectionView<'_>) -> Option<(Application, Confidence)> {
    record.flow.findings.as_ref()?.application()
}

fn notes<'a>(record: &DirectionView<'a>) -> FieldValue<'a> {
    optional(record.flow.findings.as_ref().filter(|findings| findings.notes() != Notes::default()), |findings| {
        FieldValue::Notes(findings.notes())
    })
}

fn fact_text<'a>(record: &DirectionView<'a>, fact: Fact) -> FieldValue<'a> {
    fact_or_none(record, fact, |findings| findings.text(fact).map(text))
}

/// A text that follows from a fact. No value if flows of this application may have one, so that
/// they have the same template.
fn fact_or_none<'a>(
    record: &DirectionView<'a>,
    fact: Fact,
    read: impl FnOnce(&'a Findings) -> Option<FieldValue<'a>>,
) -> FieldValue<'a> {
    let Some(findings) = record.flow.findings.as_deref() else { return FieldValue::NotApplicable };
    let none = match findings.application() {
        Some((application, _)) if may_have(application, fact) => FieldValue::NoValue,
        _ => FieldValue::NotApplicable,
    };
    read(findings).unwrap_or(none)
}

/// Whether the payload of an application may have a fact that is a text.
fn may_have(application: Application, fact: Fact) -> bool {
    if fact == Fact::LearnedName {
        return true;
    }
    use Application::{Dns, Dtls, Ftp, Http, Http2, Imap, Llmnr, Mdns, Mysql, Pop3, Quic, Smtp, Ssh, Tls};
    match application {
        Tls | Dtls => (Fact::ServerName..=Fact::CertificateNames).contains(&fact),
        Quic => (Fact::ServerName..=Fact::TlsAlert).contains(&fact),
        Dns | Mdns | Llmnr => (Fact::DnsName..=Fact::DnsAnswers).contains(&fact),
        Http | Http2 => (Fact::HttpHost..=Fact::HttpContentType).contains(&fact),
        Ssh => (Fact::SshClient..=Fact::HasshServer).contains(&fact),
        Smtp | Imap | Pop3 | Ftp | Mysql => [Fact::User, Fact::ServerSoftware].contains(&fact),
        _ => fact == Fact::User,
    }
}

fn fact_number(record: &DirectionView<'_>, fact: Fact) -> FieldValue<'static> {
    let number = record.flow.findings.as_ref().and_then(|findings| findings.number(fact));
    optional(number, FieldValue::Unsigned)
}

/// A time within the years that ns since 1970 can tell.
fn time(record: &DirectionView<'_>, fact: Fact) -> FieldValue<'static> {
    let seconds = record.flow.findings.as_ref().and_then(|findings| findings.number(fact));
    optional(seconds.and_then(|seconds| seconds.checked_mul(1_000_000_000)), FieldValue::Time)
}

fn fingerprint<'a, const N: usize>(record: &DirectionView<'a>, of: fn(&Findings) -> Option<[u8; N]>) -> FieldValue<'a> {
    let read = |findings| String::from_utf8(of(findings)?.into()).ok().map(|text| FieldValue::Text(text.into()));
    fact_or_none(record, Fact::ServerName, read)
}

fn tls_version<'a>(record: &DirectionView<'a>) -> FieldValue<'a> {
    let name = |version| match version {
        0x0300 => "ssl3.0".into(),
        0x0301 => "tls1.0".into(),
        0x0302 => "tls1.1".into(),
        0x0303 => "tls1.2".into(),
        0x0304 => "tls1.3".into(),
        0xfeff => "dtls1.0".into(),
        0xfefd => "dtls1.2".into(),
        0xfefc => "dtls1.3".into(),
        other => format!("{other:#06x}").into(),
    };
    fact_or_none(record, Fact::TlsVersion, |findings| {
        findings.number(Fact::TlsVersion).map(|version| FieldValue::Text(name(version)))
    })
}

fn tls_alert<'a>(record: &DirectionView<'a>) -> FieldValue<'a> {
    fact_or_none(record, Fact::TlsAlert, |findings| {
        let alert = findings.number(Fact::TlsAlert)?;
        let (level, description) = (alert >> 8, alert & 0xff);
        let name = |name: Option<&'static str>, number: u64| name.map_or_else(|| number.to_string(), String::from);
        let level = name(["warning", "fatal"].get((level as usize).wrapping_sub(1)).copied(), level);
        Some(FieldValue::Text(format!("{level} {}", name(alert_name(description), description)).into()))
    })
}

/// Name of the description of an alert (IANA TLS Alerts).
fn alert_name(description: u64) -> Option<&'static str> {
    Some(match description {
        0 => "close_notify",
        10 => "unexpected_message",
        20 => "bad_record_mac",
        21 => "decryption_failed",
        22 => "record_overflow",
        30 => "decompression_failure",
        40 => "handshake_failure",
        41 => "no_certificate",
        42 => "bad_certificate",
        43 => "unsupported_certificate",
        44 => "certificate_revoked",
        45 => "certificate_expired",
        46 => "certificate_unknown",
        47 => "illegal_parameter",
        48 => "unknown_ca",
        49 => "access_denied",
        50 => "decode_error",
        51 => "decrypt_error",
        52 => "too_many_cids_requested",
        60 => "export_restriction",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        86 => "inappropriate_fallback",
        90 => "user_canceled",
        100 => "no_renegotiation",
        109 => "missing_extension",
        110 => "unsupported_extension",
        111 => "certificate_unobtainable",
        112 => "unrecognized_name",
        113 => "bad_certificate_status_response",
        114 => "bad_certificate_hash_value",
        115 => "unknown_psk_identity",
        116 => "certificate_required",
        117 => "general_error",
        120 => "no_application_protocol",
        121 => "ech_required",
        _ => return None,
    })
}

/// The directions of a flow with packets, and at least one; true if it is the reverse direction.
pub(crate) fn directions(flow: &FlowRecord) -> impl Iterator<Item = (&Direction, bool)> {
    let has_reverse = flow.reverse.packets > 0;
    let has_forward = flow.forward.packets > 0 || !has_reverse;
    let forward = has_forward.then_some((&flow.forward, false));
    forward.into_iter().chain(has_reverse.then_some((&flow.reverse, true)))
}

/// Splits a flow into unidirectional flows, one for each of its [`directions`].
pub(crate) fn unidirectional(flow: &FlowRecord) -> impl Iterator<Item = (FlowRecord, bool)> {
    directions(flow).map(|(&direction, is_reverse)| {
        let mut part = FlowRecord { forward: direction, reverse: Direction::default(), ..flow.clone() };
        if is_reverse {
            std::mem::swap(&mut part.source, &mut part.destination);
            std::mem::swap(&mut part.source_port, &mut part.destination_port);
            part.tcp.iter_mut().for_each(|reports| reports.reverse());
            part.places = flow.places.as_ref().map(|places| Arc::new(places.reversed()));
        }
        (part, is_reverse)
    })
}

/// The endpoints of a flow.
const SOURCE: bool = false;
const DESTINATION: bool = true;

fn place(flow: &FlowRecord, endpoint: bool) -> Option<&Place> {
    let places = flow.places.as_ref()?;
    Some(if endpoint == DESTINATION { &places.destination } else { &places.source })
}

/// A text of the table of networks; no value if there is none.
fn network(flow: &FlowRecord, endpoint: bool, read: fn(&NamedNetwork) -> &str) -> FieldValue<'_> {
    let Some(place) = place(flow, endpoint) else { return FieldValue::NotApplicable };
    let name = place.network.as_ref().map(|network| read(network)).filter(|text| !text.is_empty());
    name.map_or(FieldValue::NoValue, text)
}

fn local(flow: &FlowRecord, endpoint: bool) -> FieldValue<'static> {
    optional(place(flow, endpoint).and_then(|place| place.is_local), |local| FieldValue::Unsigned(local.into()))
}

/// A value of a database; no value if databases have none.
fn geo<'a>(
    flow: &'a FlowRecord,
    endpoint: bool,
    read: impl FnOnce(&'a Place) -> Option<FieldValue<'a>>,
) -> FieldValue<'a> {
    match &flow.places {
        Some(places) if places.has_geo => place(flow, endpoint).and_then(read).unwrap_or(FieldValue::NoValue),
        _ => FieldValue::NotApplicable,
    }
}

fn system_number(place: &Place) -> Option<FieldValue<'_>> {
    place.autonomous_system.as_ref().map(|system| FieldValue::Unsigned(system.number.into()))
}

fn organization(place: &Place) -> Option<FieldValue<'_>> {
    place.autonomous_system.as_ref()?.organization.as_deref().map(text)
}

/// A text that enrichment added to a flow; no value if it added none.
fn of_places<'a>(flow: &'a FlowRecord, read: impl FnOnce(&'a Places) -> Option<&'a str>) -> FieldValue<'a> {
    let Some(places) = flow.places.as_deref() else { return FieldValue::NotApplicable };
    read(places).map_or(FieldValue::NoValue, text)
}

fn text(text: &str) -> FieldValue<'_> {
    FieldValue::Text(text.into())
}

fn is_ip(record: &DirectionView<'_>) -> bool {
    record.flow.network != Network::Layer2
}

/// Whether type and code are known. An overflow record sums many types; if the packet had no type
/// and code, both ports are 0 (docs/metering.md section 2).
fn has_icmp(record: &DirectionView<'_>) -> bool {
    let flow = record.flow;
    flow.is_icmp()
        && !flow.approximate.has(Approximate::OVERFLOW)
        && (flow.source_port, flow.destination_port) != (0, 0)
}

/// ICMP type * 256 + code.
pub(crate) fn type_and_code<'a>(record: &DirectionView<'a>) -> FieldValue<'a> {
    number(record, has_icmp(record), |direction| u16::from_be_bytes(direction.icmp))
}

/// A counter of TCP analysis.
fn tcp_count(record: &DirectionView<'_>, read: impl FnOnce(&TcpReport) -> u64) -> FieldValue<'static> {
    optional(record.tcp, |report| FieldValue::Unsigned(read(report)))
}

/// Segments of one class.
fn segments(record: &DirectionView<'_>, class: SegmentClass) -> FieldValue<'static> {
    tcp_count(record, |report| report.count(class).segments)
}

/// Payload octets of one class.
fn segment_bytes(record: &DirectionView<'_>, class: SegmentClass) -> FieldValue<'static> {
    tcp_count(record, |report| report.count(class).bytes)
}

/// A counter of TCP analysis that equals `usual`, computed from other fields, in nearly every
/// direction without anomalies. docs/fields.md has the rules.
fn implied(
    record: &DirectionView<'_>,
    read: impl FnOnce(&TcpReport) -> u64,
    usual: impl FnOnce(&Direction, &TcpReport) -> u64,
) -> FieldValue<'static> {
    let Some(report) = record.tcp else { return FieldValue::NotApplicable };
    let count = read(report);
    if count == usual(record.direction, report) { FieldValue::Implied(count) } else { FieldValue::Unsigned(count) }
}

/// 1 if a TCP control bit was seen, otherwise 0.
fn has_bit(direction: &Direction, bit: u16) -> u64 {
    u64::from(direction.tcp_flags & bit != 0)
}

/// Payload octets of all segments, duplicates included.
fn payload(report: &TcpReport) -> u64 {
    report.classes.iter().map(|count| count.bytes).sum()
}

/// Packets that are neither SYN nor RST nor in order.
fn other_packets(direction: &Direction, report: &TcpReport) -> u64 {
    let others =
        report.syns() + report.count(SegmentClass::Reset).segments + report.count(SegmentClass::InOrder).segments;
    direction.packets.wrapping_sub(others)
}

/// The size by sequence numbers. It equals the payload if the whole connection is in one record.
fn size_by_sequence<'a>(record: &DirectionView<'a>) -> FieldValue<'a> {
    match record.tcp {
        Some(TcpReport { size_by_sequence_bytes: Some(_), duration_by_sequence_ns: Some(_), .. }) => {
            implied(record, |t| t.size_by_sequence_bytes.unwrap_or_default(), |_, t| payload(t))
        }
        _ => tcp_value(record, |t| t.size_by_sequence_bytes),
    }
}

/// Octets of payload seen for the first time, per second of the record.
fn throughput<'a>(record: &DirectionView<'a>) -> FieldValue<'a> {
    let duration_ns = record.flow.end_ns().saturating_sub(record.flow.start_ns());
    tcp_value(record, |t| {
        let bits_per_second = (u128::from(t.unique_bytes) * 8 * 1_000_000_000).checked_div(duration_ns.into())?;
        u64::try_from(bits_per_second).ok()
    })
}

/// Time from the first packet of the initiator to that of the responder.
fn udp_response_ns(flow: &FlowRecord) -> Option<u64> {
    const UDP: u8 = 17;
    let is_udp = flow.protocol == UDP && flow.network != Network::Layer2;
    let answers = flow.forward.packets > 0 && flow.reverse.packets > 0 && !flow.approximate.has(Approximate::OVERFLOW);
    if is_udp && answers { flow.reverse.first_ns.checked_sub(flow.forward.first_ns) } else { None }
}

/// An optional value of TCP analysis.
fn tcp_value<T: Into<u64>>(
    record: &DirectionView<'_>,
    read: impl FnOnce(&TcpReport) -> Option<T>,
) -> FieldValue<'static> {
    optional(record.tcp.and_then(read), |number| FieldValue::Unsigned(number.into()))
}

/// An option of the SYN: no value if the SYN has no such option; does not apply if no SYN was seen.
fn syn_option<T: Into<u64>>(
    record: &DirectionView<'_>,
    read: impl FnOnce(&TcpReport) -> Option<T>,
) -> FieldValue<'static> {
    match record.tcp {
        Some(report) if report.syn_window.is_some() => {
            read(report).map_or(FieldValue::NoValue, |number| FieldValue::Unsigned(number.into()))
        }
        _ => FieldValue::NotApplicable,
    }
}

fn when(applies: bool, number: impl Into<u64>) -> FieldValue<'static> {
    if applies { FieldValue::Unsigned(number.into()) } else { FieldValue::NotApplicable }
}

/// A value that only applies if it is present.
fn optional<T>(value: Option<T>, convert: impl FnOnce(T) -> FieldValue<'static>) -> FieldValue<'static> {
    value.map_or(FieldValue::NotApplicable, convert)
}

/// A number that only applies if the direction has packets.
fn number<T: Into<u64>>(
    record: &DirectionView<'_>,
    applies: bool,
    read: impl FnOnce(&Direction) -> T,
) -> FieldValue<'static> {
    of_packets(record, applies, |direction| FieldValue::Unsigned(read(direction).into()))
}

/// A value that only applies if the direction has packets.
fn of_packets(
    record: &DirectionView<'_>,
    applies: bool,
    read: impl FnOnce(&Direction) -> FieldValue<'static>,
) -> FieldValue<'static> {
    if applies && record.direction.packets > 0 { read(record.direction) } else { FieldValue::NotApplicable }
}

/// Both outer addresses, in the address family of the tunnel type, or of the addresses themselves.
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
