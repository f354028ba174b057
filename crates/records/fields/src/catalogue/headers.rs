//! Fields of packet headers, and of the lengths and times of packets.

use super::reading::{has_icmp, is_ip, number, of_packets, optional, when};
use crate::column::Anonymisation::{Address, Keep, Mac};
use crate::column::Known::AtFirst;
use crate::column::Profile::{Layer2, Store};
use crate::column::Requirement::{Decapsulation, Layer2Flows, MacAddresses};
use crate::column::{Origin, Properties};
use crate::element::DataType::{
    Float64, Ipv4Address, Ipv6Address, MacAddress, OctetArray, Unsigned8, Unsigned16, Unsigned32, Unsigned64,
};
use crate::element::{Element, Semantics, Units, quantity};
use crate::entry::fields;
use crate::restore::set;
use crate::value::FieldValue;
use crate::words::Words;
use weir_packet::{NO_LABEL, NO_VLAN, Network};

const COMMON: Properties = Properties::of(Origin::Meter);

#[rustfmt::skip]
fields! {
    COMMON;
    flow "ethertype", Integer or 0, "", "EtherType of a layer-2 flow; 0 for frames without an EtherType, and for IP flows.",
        [Element::common(256, "ethernetType", Unsigned16).only_for(Network::Layer2).basic()],
        // The other port is 0 in an overflow record, which aggregates flows by one port.
        |r| when(!is_ip(r), r.flow.source_port.max(r.flow.destination_port)) => |r, v| r.set_ethertype(v), profiles: &[Layer2], known: AtFirst, needs: Some(Layer2Flows);
    flow "src_mac", Mac, "", "MAC address of the source of a layer-2 flow. IP flows, with `--mac-addresses`: that of the first frame that the source sent in this record or, if there is none, received; of a tunnelled packet the frame outside the tunnel (`weir help metering`, section 6).",
        [Element::common(56, "sourceMacAddress", MacAddress).basic_for(Network::Layer2)],
        |r| optional(r.flow.mac_addresses()[0], FieldValue::Mac) => |r, v| r.set_mac(v, 0), profiles: &[Layer2], known: AtFirst, needs: Some(MacAddresses), anonymisation: Some(Mac);
    flow "dst_mac", Mac, "", "MAC address of the destination in the same frame as `src_mac`.",
        [Element::common(80, "destinationMacAddress", MacAddress).basic_for(Network::Layer2)],
        |r| optional(r.flow.mac_addresses()[1], FieldValue::Mac) => |r, v| r.set_mac(v, 1), profiles: &[Layer2], known: AtFirst, needs: Some(MacAddresses), anonymisation: Some(Mac);
    each "tos", Integer, "", "Type of service or traffic class of the first packet.",
        [Element::common(5, "ipClassOfService", Unsigned8).basic()], |r| number(r, is_ip(r), |d| d.tos) => |r, v| set(&mut r.direction().tos, v);
    each "ttl_min", Integer, "hops", "Smallest TTL or hop limit.",
        [Element::common(52, "minimumTTL", Unsigned8).basic()], |r| number(r, is_ip(r), |d| d.ttl_min) => |r, v| set(&mut r.direction().ttl_min, v);
    each "ttl_max", Integer, "hops", "Largest TTL or hop limit.",
        [Element::common(53, "maximumTTL", Unsigned8).basic()], |r| number(r, is_ip(r), |d| d.ttl_max) => |r, v| set(&mut r.direction().ttl_max, v);
    each "packet_size_min", Integer, "octets", "Length of the shortest IP packet.",
        [Element::common(25, "minimumIpTotalLength", Unsigned64).in_octets(4)], |r| number(r, is_ip(r), |d| d.size_min) => |r, v| set(&mut r.direction().size_min, v);
    each "packet_size_max", Integer, "octets", "Length of the longest IP packet.",
        [Element::common(26, "maximumIpTotalLength", Unsigned64).in_octets(4)], |r| number(r, is_ip(r), |d| d.size_max) => |r, v| set(&mut r.direction().size_max, v);
    each "packet_size_mean", Number, "octets", "Mean length of the IP packets.",
        [quantity(1, "packetSizeMean", Float64, Units::Octets).with_anomalies_only()],
        |r| of_packets(r, is_ip(r), |d| FieldValue::Float(d.size_mean())), restored_from: &["bytes", "packets"];
    each "packet_size_std", Number, "octets", "Population standard deviation of the lengths of the IP packets.",
        [quantity(2, "packetSizeStandardDeviation", Float64, Units::Octets)],
        |r| of_packets(r, is_ip(r), |d| FieldValue::Float(d.size_std()));
    each "iat_min_ns", Integer, "ns", "Shortest inter-arrival time between consecutive packets of the direction. A direction with fewer than 2 packets has none (null in JSON, empty in CSV).",
        [quantity(3, "interArrivalTimeMinimum", Unsigned64, Units::Nanoseconds)],
        |r| number(r, r.direction.iat_count() > 0, |d| d.iat_min_ns) => |r, v| set(&mut r.direction().iat_min_ns, v);
    each "iat_max_ns", Integer, "ns", "Longest inter-arrival time between consecutive packets of the direction.",
        [quantity(4, "interArrivalTimeMaximum", Unsigned64, Units::Nanoseconds)],
        |r| number(r, r.direction.iat_count() > 0, |d| d.iat_max_ns) => |r, v| set(&mut r.direction().iat_max_ns, v);
    each "iat_mean_ns", Number, "ns", "Mean inter-arrival time of the packets of the direction.",
        [quantity(5, "interArrivalTimeMean", Float64, Units::Nanoseconds)],
        |r| optional(r.direction.iat_mean_ns(), FieldValue::Float);
    each "iat_std_ns", Number, "ns", "Population standard deviation of the inter-arrival times of the direction.",
        [quantity(6, "interArrivalTimeStandardDeviation", Float64, Units::Nanoseconds)],
        |r| optional(r.direction.iat_std_ns(), FieldValue::Float);
    each "vlan_id", Integer, "", "VLAN identifier of the outermost tag of the first packet.",
        [Element::common(58, "vlanId", Unsigned16).basic(), Element::common(243, "dot1qVlanId", Unsigned16)],
        |r| number(r, r.direction.vlan != NO_VLAN, |d| d.vlan) => |r, v| set(&mut r.direction().vlan, v), known: AtFirst, profiles: &[Store];
    each "inner_vlan_id", Integer, "", "VLAN identifier of the second tag of the first packet.",
        [Element::common(245, "dot1qCustomerVlanId", Unsigned16)],
        |r| number(r, r.direction.inner_vlan != NO_VLAN, |d| d.inner_vlan) => |r, v| set(&mut r.direction().inner_vlan, v), known: AtFirst;
    each "mpls_label", Integer, "", "Top label of the outermost MPLS label stack of the first packet.",
        [Element::common(70, "mplsTopLabelStackSection", OctetArray).in_octets(3)],
        |r| number(r, r.direction.mpls_label != NO_LABEL, |d| d.mpls_label) => |r, v| set(&mut r.direction().mpls_label, v), known: AtFirst, anonymisation: Some(Keep);
    each "tunnel_type", Word, "", "Type of the innermost tunnel of the first packet, with `--decap`: gre, ipip, 6in4, 4in6, 6in6, vxlan, geneve, gtpu (1 to 8 in IPFIX).",
        [Element::weir(7, "tunnelType", Unsigned8, Semantics::Identifier, Units::None)],
        |r| of_packets(r, true, |d| optional(d.tunnel_type.name(), |name| FieldValue::Code(d.tunnel_type as u8, name))), known: AtFirst, needs: Some(Decapsulation), words: Some(Words::TunnelType);
    each "tunnel_id", Integer, "", "Identifier of the tunnel in `tunnel_type`: GRE key or call ID, VXLAN or Geneve network identifier, or GTP-U tunnel endpoint identifier.",
        [Element::weir(8, "tunnelIdentifier", Unsigned32, Semantics::Identifier, Units::None)],
        |r| of_packets(r, true, |d| optional(d.tunnel_id, |id| FieldValue::Unsigned(id.into()))), known: AtFirst, needs: Some(Decapsulation);
    each "outer_src_ip", Address, "", "Source address of the IP header that encapsulates the tunnel in `tunnel_type`.",
        [Element::weir(9, "outerSourceIPv4Address", Ipv4Address, Semantics::Default, Units::None),
         Element::weir(10, "outerSourceIPv6Address", Ipv6Address, Semantics::Default, Units::None)],
        |r| of_packets(r, true, |d| optional(d.outer_ips(), |(source, _)| FieldValue::Ip(source))), known: AtFirst, needs: Some(Decapsulation), anonymisation: Some(Address);
    each "outer_dst_ip", Address, "", "Destination address of the IP header that encapsulates the tunnel in `tunnel_type`.",
        [Element::weir(11, "outerDestinationIPv4Address", Ipv4Address, Semantics::Default, Units::None),
         Element::weir(12, "outerDestinationIPv6Address", Ipv6Address, Semantics::Default, Units::None)],
        |r| of_packets(r, true, |d| optional(d.outer_ips(), |(_, destination)| FieldValue::Ip(destination))), known: AtFirst, needs: Some(Decapsulation), anonymisation: Some(Address);
    each "icmp_type", Integer, "", "ICMP or ICMPv6 type of the first packet.",
        [Element::common(176, "icmpTypeIPv4", Unsigned8).only_for(Network::Ipv4),
         Element::common(178, "icmpTypeIPv6", Unsigned8).only_for(Network::Ipv6)],
        |r| number(r, has_icmp(r), |d| d.icmp[0]) => |r, v| r.set_icmp_type(v), known: AtFirst, profiles: &[Store];
    each "icmp_code", Integer, "", "ICMP or ICMPv6 code of the first packet.",
        [Element::common(177, "icmpCodeIPv4", Unsigned8).only_for(Network::Ipv4),
         Element::common(179, "icmpCodeIPv6", Unsigned8).only_for(Network::Ipv6)],
        |r| number(r, has_icmp(r), |d| d.icmp[1]) => |r, v| r.set_icmp_code(v), known: AtFirst, profiles: &[Store], restored_from: &["icmp_type"];
}
