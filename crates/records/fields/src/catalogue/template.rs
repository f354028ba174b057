//! Fields of templates only: fields of other files in encodings that collectors expect.

use super::reading::{of_packets, optional, type_and_code};
use crate::column::Profile::Basic;
use crate::column::{Origin, Properties};
use crate::element::DataType::{Unsigned8, Unsigned16, Unsigned32, Unsigned64};
use crate::element::Element;
use crate::entry::fields;
use crate::value::FieldValue;
use weir_packet::{Network, TunnelType};

const COMMON: Properties = Properties::of(Origin::Meter);

#[rustfmt::skip]
fields! {
    COMMON;
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
    each "tunnel_id", Integer, "", "GTP-U tunnel endpoint identifier.",
        [Element::iana(507, "gtpuTEid", Unsigned32)],
        |r| of_packets(r, r.direction.tunnel_type == TunnelType::Gtpu,
            |d| optional(d.tunnel_id, |id| FieldValue::Unsigned(id.into())));
    flow "sampling_max", Integer, "", "Sampling algorithm: 2 (random).",
        [Element::iana(35, "samplingAlgorithm", Unsigned8).only_netflow9()],
        |r| optional(r.flow.sampling, |_| FieldValue::Unsigned(2)), profiles: &[Basic];
    flow "sampling_max", Integer, "packets", "1 in N packets was metered; 1 without sampling. In IPFIX not in full templates. Some collectors ignore records without a rate.",
        [Element::iana(34, "samplingInterval", Unsigned32).only_basic(),
         Element::iana(34, "samplingInterval", Unsigned32).only_netflow9().basic()],
        |r| FieldValue::Unsigned(r.flow.sampling.map_or(1, |[_, max]| max.into())), profiles: &[Basic];
    flow "sampling_max", Integer, "", "Selector algorithm: 3 (random n-out-of-N sampling, RFC 5475 section 5.2.1).",
        [Element::iana(304, "selectorAlgorithm", Unsigned16)],
        |r| optional(r.flow.sampling, |_| FieldValue::Unsigned(3)), profiles: &[Basic];
    flow "sampling_max", Integer, "packets", "Packets selected of each N packets: 1.",
        [Element::iana(309, "samplingSize", Unsigned32)], |r| optional(r.flow.sampling, |_| FieldValue::Unsigned(1)), profiles: &[Basic];
    flow "src_ip", Integer, "", "1: the source is the initiator. 2: the source is the responder of a bidirectional flow.",
        [Element::iana(239, "biflowDirection", Unsigned8)],
        |r| FieldValue::Unsigned(if r.from_responder { 2 } else { 1 }), profiles: &[Basic];
}
