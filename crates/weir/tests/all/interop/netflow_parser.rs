//! The crate netflow_parser.

use super::export::{
    ALL_CASES, COMMON, Case, Export, IPFIX_BASIC, IPFIX_FULL, IPFIX_LIST, IPFIX_TWO_WAY, NETFLOW5, NETFLOW9_BASIC,
    NETFLOW9_FULL, PROFILES, REVERSE, Row, add_boot, fields_of_profile, number, row, split_icmp,
};
use ::netflow_parser::variable_versions::{ipfix, v9};
use ::netflow_parser::{AutoScopedParser, DataNumber, FieldValue, NetflowPacket};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Debug;

const IPFIX: &str = "src:SourceIpv4address|SourceIpv6address dst:DestinationIpv4address|DestinationIpv6address \
    src_port:SourceTransportPort dst_port:DestinationTransportPort protocol:ProtocolIdentifier \
    packets:PacketDeltaCount bytes:OctetDeltaCount l2_bytes:Layer2octetDeltaCount start_ms:FlowStartMilliseconds \
    end_ms:FlowEndMilliseconds tcp_flags:TcpControlBits \
    tos:IpClassOfService ttl_min:MinimumTtl ttl_max:MaximumTtl vlan:VlanId inner_vlan:Dot1qCustomerVlanId \
    mpls:MplsTopLabelStackSection icmp:IcmpTypeCodeIpv4|IcmpTypeCodeIpv6 interface:IngressInterface \
    end_reason:FlowEndReason ethertype:EthernetType src_mac:SourceMacaddress dst_mac:DestinationMacaddress \
    rev_packets:ReversePacketDeltaCount rev_bytes:ReverseOctetDeltaCount rev_l2_bytes:ReverseLayer2OctetDeltaCount \
    rev_tcp_flags:ReverseTcpControlBits rev_tos:ReverseIpClassOfService rev_ttl_min:ReverseMinimumTTL \
    rev_ttl_max:ReverseMaximumTTL rev_vlan:ReverseVlanId rev_mpls:ReverseMplsTopLabelStackSection \
    rev_icmp:ReverseIcmpTypeCodeIPv4|ReverseIcmpTypeCodeIPv6";
const NETFLOW9: &str = "src:Ipv4SrcAddr|Ipv6SrcAddr dst:Ipv4DstAddr|Ipv6DstAddr src_port:L4SrcPort dst_port:L4DstPort \
    protocol:Protocol packets:InPkts bytes:InBytes \
    start_ms:FirstSwitched|FlowStartMilliseconds end_ms:LastSwitched|FlowEndMilliseconds tcp_flags:TcpFlags tos:SrcTos ttl_min:MinTtl \
    ttl_max:MaxTtl vlan:SrcVlan inner_vlan:Dot1qCustomerVlanId mpls:MplsLabel1 icmp:IcmpType|IcmpTypeCodeIpv6 \
    interface:InputSnmp end_reason:FlowEndReason ethertype:EthernetType src_mac:InSrcMac dst_mac:InDstMac";
const NETFLOW5_RECORD: &str = "src:src_addr dst:dst_addr src_port:src_port dst_port:dst_port protocol:protocol_number \
    packets:d_pkts bytes:d_octets start_ms:first end_ms:last tcp_flags:tcp_flags tos:tos interface:input";
const BASIC: [&str; 10] = [
    "icmp_type",
    "icmp_code",
    "vlan",
    "interface",
    "end_reason",
    "ethertype",
    "src_mac",
    "dst_mac",
    "ttl_min",
    "ttl_max",
];
const FULL: [&str; 2] = ["inner_vlan", "mpls"];

/// What netflow_parser finds in an export.
#[derive(Default)]
struct Decoded {
    rows: Vec<Row>,
    /// For each domain the sequence number of the next message.
    next: BTreeMap<u32, u32>,
    /// Template sets.
    template_sets: usize,
}

impl Decoded {
    fn of(export: &Export) -> Self {
        let mut decoded = Self::default();
        let mut parser = AutoScopedParser::new();
        for datagram in &export.datagrams {
            let parsed = parser.parse_from_source("127.0.0.1:1024".parse().unwrap(), datagram);
            assert!(parsed.error.is_none() && parsed.packets.len() == 1, "{:?}", parsed.error);
            match &parsed.packets[0] {
                NetflowPacket::V5(message) => {
                    let header = &message.header;
                    decoded.count(header.engine_id.into(), header.flow_sequence, message.flowsets.len());
                    let records = message.flowsets.iter().map(|record| serde_json::to_value(record).unwrap());
                    decoded.add(records, NETFLOW5_RECORD, header.unix_secs, header.sys_up_time);
                }
                NetflowPacket::V9(message) => {
                    let header = &message.header;
                    decoded.count(header.source_id, header.sequence_number, 1);
                    for set in &message.flowsets {
                        match &set.body {
                            v9::FlowSetBody::Data(data) => {
                                let records = data.fields.iter().map(|fields| record(fields));
                                decoded.add(records, NETFLOW9, header.unix_secs, header.sys_up_time);
                            }
                            v9::FlowSetBody::Template(_) => decoded.template_sets += 1,
                            v9::FlowSetBody::OptionsTemplate(_) | v9::FlowSetBody::OptionsData(_) => {}
                            other => panic!("{other:?}"),
                        }
                    }
                }
                NetflowPacket::IPFix(message) => {
                    let mut data_records = 0;
                    for set in &message.flowsets {
                        match &set.body {
                            ipfix::FlowSetBody::Data(data) => {
                                data_records += data.fields.len();
                                decoded.add(data.fields.iter().map(|fields| record(fields)), IPFIX, 0, 0);
                            }
                            ipfix::FlowSetBody::OptionsData(data) => data_records += data.fields.len(),
                            ipfix::FlowSetBody::Template(_) | ipfix::FlowSetBody::Templates(_) => {
                                decoded.template_sets += 1;
                            }
                            ipfix::FlowSetBody::OptionsTemplate(_) | ipfix::FlowSetBody::OptionsTemplates(_) => {}
                            other => panic!("{other:?}"),
                        }
                    }
                    let header = &message.header;
                    decoded.count(header.observation_domain_id, header.sequence_number, data_records);
                }
                other => panic!("{other:?}"),
            }
        }
        decoded
    }

    /// Checks a sequence number, and adds what the message counts.
    fn count(&mut self, domain: u32, sequence: u32, counted: usize) {
        let next = self.next.entry(domain).or_default();
        assert_eq!(sequence, *next, "sequence number of domain {domain}");
        *next += counted as u32;
    }

    /// Adds records. Times of NetFlow count from boot, which is `uptime_ms` before `seconds`.
    fn add(&mut self, records: impl Iterator<Item = Value>, names: &'static str, seconds: u32, uptime_ms: u32) {
        let boot_ms = u64::from(seconds) * 1000 - u64::from(uptime_ms);
        self.rows.extend(records.map(|record| {
            let mut row = row(&record, names);
            // Absolute times do not fit into 32 bits.
            if number(&row, "start_ms") <= u32::MAX.into() {
                add_boot(&mut row, boot_ms);
            }
            split_icmp(&mut row);
            row
        }));
    }
}

/// A record as an object of the names that the parser gives to its fields.
fn record<F: Debug>(fields: &[(F, FieldValue)]) -> Value {
    let name = |field: &F| {
        let name = format!("{field:?}");
        // `IANA(OctetDeltaCount)`, but `InBytes` in NetFlow v9.
        name.split_once('(').map_or(&*name, |(_, inner)| inner.trim_end_matches(')')).to_owned()
    };
    fields.iter().map(|(field, value)| (name(field), plain(value))).collect()
}

fn plain(value: &FieldValue) -> Value {
    match value {
        FieldValue::Ip4Addr(address) => address.to_string().into(),
        FieldValue::Ip6Addr(address) => address.to_string().into(),
        FieldValue::MacAddr(octets) => octets.map(|octet| format!("{octet:02x}")).join(":").into(),
        FieldValue::TcpControlBits(bits, _) => u16::from(*bits).into(),
        FieldValue::FlowEndReason(reason) => u8::from(*reason).into(),
        // A label with its class and the bottom of stack bit: octets in IPFIX, a number in NetFlow v9.
        FieldValue::DataNumber(DataNumber::U24(label)) => (label >> 4).into(),
        FieldValue::Vec(octets) if octets.len() == 3 => {
            (octets.iter().fold(0u32, |all, &octet| all << 8 | u32::from(octet)) >> 4).into()
        }
        other => other.as_u64().or(other.as_u8().map(u64::from)).map_or(Value::Null, Value::from),
    }
}

fn compare(case: Case, more: &[&'static str], differences: &[(&'static str, &str)]) {
    let export = Export::of(case);
    let fields = [&COMMON[..], more].concat();
    export.compare("netflow_parser", &Decoded::of(&export).rows, &fields, differences);
}

#[test]
fn netflow_parser_decodes_every_netflow5_record() {
    compare(NETFLOW5, &["interface"], &[]);
}

#[test]
fn netflow_parser_decodes_every_netflow9_record() {
    let differences = ["ethertype", "inner_vlan"].map(|field| (field, "it has no name for this element in NetFlow v9"));
    let basic: Vec<_> = BASIC.into_iter().filter(|&field| field != "ethertype").collect();
    compare(NETFLOW9_BASIC, &basic, &differences[..1]);
    compare(NETFLOW9_FULL, &[&basic[..], &["mpls"]].concat(), &differences);
}

#[test]
fn netflow_parser_decodes_every_unidirectional_ipfix_record() {
    compare(IPFIX_BASIC, &[&BASIC[..], &["l2_bytes"]].concat(), &[]);
    compare(IPFIX_FULL, &[&BASIC[..], &FULL, &["l2_bytes"]].concat(), &[]);
    compare(IPFIX_LIST, &["interface"], &[]);
}

#[test]
fn netflow_parser_decodes_both_directions_of_every_bidirectional_ipfix_record() {
    compare(IPFIX_TWO_WAY, &[&BASIC[..], &FULL, &["l2_bytes"], &REVERSE].concat(), &[]);
}

#[test]
fn netflow_parser_decodes_every_record_of_every_profile() {
    for sink in PROFILES {
        let export = Export::of(Case { sink, uniflow: true });
        export.compare("netflow_parser", &Decoded::of(&export).rows, &fields_of_profile(sink), &[]);
    }
}

/// NetFlow v5 counts records, NetFlow v9 messages, IPFIX data records including those of options.
#[test]
fn sequence_numbers_have_no_gap_when_templates_are_retransmitted() {
    for case in ALL_CASES {
        let export = Export::of(case);
        let decoded = Decoded::of(&export);
        // Besides one set for each domain there are those of retransmitted templates.
        assert!(case == NETFLOW5 || decoded.template_sets > decoded.next.len(), "{case:?}");
    }
}
