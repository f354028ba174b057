//! `weir read` of the messages that Weir sends, in a file one after the other.

use super::export::{
    COMMON, Case, Export, IPFIX_BASIC, IPFIX_FULL, IPFIX_LIST, IPFIX_TWO_WAY, PROFILES, REVERSE, Row, assert_same,
    fields_of_profile, rows,
};
use serde_json::{Value, json};
use testbed::weir;

const BASIC: [&str; 9] =
    ["l2_bytes", "ttl_min", "ttl_max", "vlan", "icmp_type", "icmp_code", "interface", "end_reason", "sampling"];
const FULL: [&str; 11] = [
    "inner_vlan",
    "mpls",
    "ethertype",
    "src_mac",
    "dst_mac",
    "syn",
    "fin",
    "rst",
    "retransmitted",
    "start_ns",
    "end_ns",
];

/// The exit code, and the records that Weir reads. Fields that are not known are 0 here.
fn read(export: &Export) -> (i32, Vec<Row>) {
    let folder = tempfile::tempdir().unwrap();
    let [file, json] = ["export.ipfix", "flows.json"].map(|name| folder.path().join(name));
    std::fs::write(&file, export.datagrams.concat()).unwrap();
    let sink = format!("json:{}", json.display());
    let (code, _, err) = weir(["read", "-q", file.to_str().unwrap(), "--fields", "all", "-o", &sink]);
    assert!(matches!(code, 0 | 2), "{:?}: {err}", export.case);
    let text = std::fs::read_to_string(json).unwrap();
    let record = |line: &str| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        let fields = record.as_object_mut().unwrap();
        fields.entry("end_reason").or_insert(json!(""));
        record
    };
    (code, rows(&text.lines().map(record).collect::<Vec<_>>()))
}

fn compare(case: Case, fields: &[&'static str]) {
    let export = Export::of(case);
    let (code, read) = read(&export);
    assert_eq!(code, 0, "{case:?}");
    export.compare("weir read", &read, fields, &[]);
}

#[test]
fn unidirectional_records_have_the_values_that_were_sent() {
    compare(IPFIX_BASIC, &[&COMMON[..], &BASIC].concat());
    compare(IPFIX_FULL, &[&COMMON[..], &BASIC, &FULL].concat());
    // The list has no MAC addresses, so that records of layer 2 are no flows.
    let export = Export::of(IPFIX_LIST);
    let own: Vec<Row> = export.own.iter().filter(|row| row["src"] != "0").cloned().collect();
    let (code, read) = read(&export);
    assert_eq!((code, own.len() < export.own.len()), (2, true));
    assert_same("a list of elements to weir read", &[&COMMON[..], &["interface"]].concat(), &own, &read);
}

#[test]
fn bidirectional_records_have_the_values_that_were_sent() {
    compare(IPFIX_TWO_WAY, &[&COMMON[..], &BASIC, &FULL, &REVERSE].concat());
}

#[test]
fn records_of_profiles_have_the_values_that_were_sent() {
    // Records for Akvorado have no end, so that they are no flows.
    let has_times = |sink: &&str| sink.starts_with("ipfix") && !sink.contains("akvorado");
    for sink in PROFILES.into_iter().filter(has_times) {
        compare(Case { sink, uniflow: true }, &fields_of_profile(sink));
    }
}
