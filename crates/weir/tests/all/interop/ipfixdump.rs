//! `ipfixDump` of libfixbuf. It reads files, so it gets the datagrams one after the other.

use super::export::{
    COMMON, Case, Export, IPFIX_BASIC, IPFIX_FULL, IPFIX_LIST, IPFIX_TWO_WAY, PROFILES, REVERSE, Row,
    fields_of_profile, milliseconds, number, row, split_icmp,
};
use serde_json::{Map, Value};
use std::process::Command;
use testbed::is_installed;

const NAMES: &str = "src:sourceIPv4Address|sourceIPv6Address dst:destinationIPv4Address|destinationIPv6Address \
    src_port:sourceTransportPort dst_port:destinationTransportPort protocol:protocolIdentifier \
    packets:packetDeltaCount bytes:octetDeltaCount l2_bytes:layer2OctetDeltaCount start_ms:flowStartMilliseconds \
    end_ms:flowEndMilliseconds start_time:flowStartNanoseconds tcp_flags:tcpControlBits tos:ipClassOfService \
    ttl_min:minimumTTL ttl_max:maximumTTL vlan:vlanId inner_vlan:dot1qCustomerVlanId mpls:mplsTopLabelStackSection \
    icmp:icmpTypeCodeIPv4|icmpTypeCodeIPv6 interface:ingressInterface end_reason:flowEndReason \
    ethertype:ethernetType src_mac:sourceMacAddress dst_mac:destinationMacAddress rev_packets:reversePacketDeltaCount \
    rev_bytes:reverseOctetDeltaCount rev_l2_bytes:reverseLayer2OctetDeltaCount rev_tcp_flags:reverseTcpControlBits \
    rev_tos:reverseIpClassOfService rev_ttl_min:reverseMinimumTTL rev_ttl_max:reverseMaximumTTL \
    rev_vlan:reverseVlanId rev_mpls:reverseMplsTopLabelStackSection \
    rev_icmp:reverseIcmpTypeCodeIPv4|reverseIcmpTypeCodeIPv6";
const BASIC: [&str; 11] = [
    "l2_bytes",
    "ttl_min",
    "ttl_max",
    "vlan",
    "icmp_type",
    "icmp_code",
    "interface",
    "end_reason",
    "ethertype",
    "src_mac",
    "dst_mac",
];
const FULL: [&str; 2] = ["inner_vlan", "mpls"];

/// The flow records in the output, whose lines are `(NUMBER) NAME : VALUE`.
fn parse(text: &str) -> Vec<Row> {
    let mut records: Vec<Map<String, Value>> = Vec::new();
    for line in text.lines() {
        if line.starts_with("--- data record") {
            records.push(Map::new());
        }
        let field = line.strip_prefix("\t(").and_then(|line| line.split_once(')')?.1.split_once(" : "));
        if let (Some((name, value)), Some(record)) = (field, records.last_mut()) {
            record.insert(name.trim().to_owned(), value.into());
        }
    }
    records.retain(|record| record.contains_key("packetDeltaCount"));
    let parsed = |record| {
        let mut row = row(&Value::Object(record), NAMES);
        for time in ["start_ms", "end_ms"] {
            if row[time] != "0" {
                row.insert(time, milliseconds(&row[time].replace(' ', "T")));
            }
        }
        // It writes every group of an IPv6 address with four digits.
        for address in ["src", "dst"] {
            let parsed = row[address].parse::<std::net::IpAddr>();
            row.entry(address).and_modify(|text| *text = parsed.map_or(text.clone(), |address| address.to_string()));
        }
        // It prints octets as a little-endian number. The last four bits are class and bottom of stack.
        for label in ["mpls", "rev_mpls"] {
            let [first, second, third, ..] = number(&row, label).to_le_bytes();
            row.insert(label, (u32::from_be_bytes([0, first, second, third]) >> 4).to_string());
        }
        split_icmp(&mut row);
        row
    };
    records.into_iter().map(parsed).collect()
}

fn compare(case: Case, fields: &[&'static str], differences: &[(&'static str, &str)]) {
    if !is_installed("ipfixDump") {
        return;
    }
    let export = Export::of(case);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("export.ipfix");
    std::fs::write(&file, export.datagrams.concat()).unwrap();
    let output = Command::new("ipfixDump").arg("--in").arg(&file).args(["--data", "--rfc5610"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    // It knows no element of ntop. The names of ours are in the type information records.
    let unknown: Vec<&str> = text.lines().filter(|line| line.contains("(32473/") && line.contains("_alien")).collect();
    assert!(unknown.is_empty(), "{:?}: no name: {:?}", case, unknown.first());
    export.compare("ipfixDump", &parse(&text), fields, differences);
}

#[test]
fn ipfixdump_decodes_every_unidirectional_ipfix_record() {
    let basic = [&COMMON[..], &BASIC].concat();
    compare(IPFIX_BASIC, &basic, &[]);
    let without_fraction = [("start_time", "it prints nanoseconds without their fraction")];
    compare(IPFIX_FULL, &[&basic[..], &FULL].concat(), &without_fraction);
    compare(IPFIX_LIST, &[&COMMON[..], &["interface"]].concat(), &[]);
}

#[test]
fn ipfixdump_decodes_both_directions_of_every_bidirectional_ipfix_record() {
    compare(IPFIX_TWO_WAY, &[&COMMON[..], &BASIC, &FULL, &REVERSE].concat(), &[]);
}

#[test]
fn ipfixdump_decodes_every_record_of_every_profile() {
    for sink in PROFILES.into_iter().filter(|sink| sink.starts_with("ipfix")) {
        compare(Case { sink, uniflow: true }, &fields_of_profile(sink), &[]);
    }
}
