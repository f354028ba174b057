//! The Python package netflow, which `scripts/bootstrap test` installs.

use super::export::{
    COMMON, Case, Export, IPFIX_BASIC, IPFIX_LIST, NETFLOW5, NETFLOW9_BASIC, NETFLOW9_FULL, Row, add_boot, number, row,
    split_icmp, write_capture,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::is_installed;

const NETFLOW5_RECORD: &str = "src:IPV4_SRC_ADDR dst:IPV4_DST_ADDR src_port:SRC_PORT dst_port:DST_PORT protocol:PROTO \
    packets:IN_PACKETS bytes:IN_OCTETS start_ms:FIRST_SWITCHED end_ms:LAST_SWITCHED tcp_flags:TCP_FLAGS tos:TOS \
    interface:INPUT boot_ms:boot_ms";
const NETFLOW9: &str = "src:IPV4_SRC_ADDR|IPV6_SRC_ADDR dst:IPV4_DST_ADDR|IPV6_DST_ADDR src_port:L4_SRC_PORT \
    dst_port:L4_DST_PORT protocol:PROTOCOL packets:IN_PKTS bytes:IN_BYTES start_ms:FIRST_SWITCHED \
    end_ms:LAST_SWITCHED tcp_flags:TCP_FLAGS tos:SRC_TOS ttl_min:MIN_TTL ttl_max:MAX_TTL vlan:SRC_VLAN \
    mpls:MPLS_LABEL_1 icmp:ICMP_TYPE interface:INPUT_SNMP src_mac:IN_SRC_MAC dst_mac:IN_DST_MAC boot_ms:boot_ms";
const IPFIX: &str = "src:sourceIPv4Address|sourceIPv6Address dst:destinationIPv4Address|destinationIPv6Address \
    src_port:sourceTransportPort dst_port:destinationTransportPort protocol:protocolIdentifier \
    packets:packetDeltaCount bytes:octetDeltaCount l2_bytes:layer2OctetDeltaCount start_ms:flowStartMilliseconds \
    end_ms:flowEndMilliseconds tcp_flags:tcpControlBits tos:ipClassOfService ttl_min:minimumTTL ttl_max:maximumTTL \
    vlan:vlanId icmp:icmpTypeCodeIPv4|icmpTypeCodeIPv6 interface:ingressInterface end_reason:flowEndReason \
    ethertype:ethernetType src_mac:sourceMacAddress dst_mac:destinationMacAddress";
const WITH_TEMPLATES: [&str; 6] = ["interface", "vlan", "ttl_min", "ttl_max", "src_mac", "dst_mac"];

/// The folder with the package. Prints that the test is skipped if it is not installed.
fn package() -> Option<PathBuf> {
    // Beside the folder of temporary files of tests, in the target folder.
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python");
    if !is_installed("python3") {
        return None;
    }
    if !package.join("netflow").is_dir() {
        eprintln!("SKIPPED: the Python package netflow is not in {} (make test installs it)", package.display());
        return None;
    }
    Some(package)
}

fn decode(export: &Export, package: &Path, names: &'static str) -> Vec<Row> {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("export.pcap");
    write_capture(&export.datagrams, 2055, &capture);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/interop/python_netflow.py");
    let output = Command::new("python3").arg(script).arg(&capture).env("PYTHONPATH", package).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let decoded = |line: &[u8]| {
        let record: Value = serde_json::from_slice(line).expect("a line is an object");
        let mut row = row(&record, names);
        split_icmp(&mut row);
        if row.contains_key("boot_ms") {
            let boot_ms = number(&row, "boot_ms");
            add_boot(&mut row, boot_ms);
        }
        if row.contains_key("mpls") {
            // A label with its class and the bottom of stack bit.
            row.insert("mpls", (number(&row, "mpls") >> 4).to_string());
        }
        for mac in ["src_mac", "dst_mac"] {
            if row.get(mac).is_some_and(|number| number != "0") {
                let octets = number(&row, mac).to_be_bytes();
                let octets: Vec<String> = octets[2..].iter().map(|octet| format!("{octet:02x}")).collect();
                row.insert(mac, octets.join(":"));
            }
        }
        row
    };
    let mut rows: Vec<Row> =
        output.stdout.split(|&octet| octet == b'\n').filter(|line| !line.is_empty()).map(decoded).collect();
    // In IPFIX it takes options records for flows.
    rows.retain(|row| row["packets"] != "0");
    rows
}

fn compare(case: Case, names: &'static str, more: &[&'static str], differences: &[(&'static str, &str)]) {
    if let Some(package) = package() {
        let export = Export::of(case);
        let rows = decode(&export, &package, names);
        export.compare("python netflow", &rows, &[&COMMON[..], more].concat(), differences);
    }
}

#[test]
fn python_netflow_decodes_every_netflow5_record() {
    compare(NETFLOW5, NETFLOW5_RECORD, &["interface"], &[]);
}

#[test]
fn python_netflow_decodes_every_netflow9_record() {
    let basic = [&WITH_TEMPLATES[..], &["icmp_type", "icmp_code"]].concat();
    compare(NETFLOW9_BASIC, NETFLOW9, &basic, &[]);
    compare(NETFLOW9_FULL, NETFLOW9, &[&basic[..], &["mpls"]].concat(), &[]);
}

/// It reads no full template: it raises an exception for elements of other enterprises.
#[test]
fn python_netflow_decodes_every_basic_ipfix_record() {
    let more = ["l2_bytes", "end_reason", "ethertype", "icmp_type", "icmp_code"];
    compare(IPFIX_BASIC, IPFIX, &[&WITH_TEMPLATES[..], &more].concat(), &[]);
    compare(IPFIX_LIST, IPFIX, &["interface"], &[]);
}
