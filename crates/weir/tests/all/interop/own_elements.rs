//! Weir's own elements in IPFIX, with `template=full` and in a list of all fields: tshark and the
//! crate netflow_parser read the values that JSON has.

use super::export::{Row, assert_same, receive, send_to_test, write_capture};
use super::{PORT, TEMPLATES_OF_ANY_SIZE, tshark_text};
use ::netflow_parser::variable_versions::ipfix;
use ::netflow_parser::variable_versions::ipfix::lookup::IPFixField;
use ::netflow_parser::{AutoScopedParser, FieldValue, NetflowPacket};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use testbed::is_installed;

const ENTERPRISE: &str = "32473/";
const REVERSE_BIT: u16 = 0x4000;
/// Answers, retransmissions, and UDP. Each has an observation domain of its own.
const INPUTS: [(&str, u32); 2] =
    [("synth:lossy,flows=40,packets=8k,loss=3%,think=20ms", 1), ("synth:mix,flows=200,packets=4k,ipv6=30%,rst=20%", 2)];

/// A field of docs/fields.md: the name of its column, its type, and its element.
struct Field {
    column: &'static str,
    kind: &'static str,
    number: u16,
}

/// The columns that have an element of Weir. Words are numbers in IPFIX; addresses have two
/// elements, of which no record here has one.
fn fields() -> Vec<Field> {
    let page: &'static str = include_str!("../../../../../docs/fields.md");
    let mut fields = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        // The module `applications` has those.
        if cells.get(3).is_some_and(|profiles| ["applications", "places"].contains(profiles)) {
            continue;
        }
        let Some((_, rest)) = cells.get(5).and_then(|cell| cell.split_once(ENTERPRISE)) else { continue };
        let number: u16 = rest.split(')').next().unwrap().parse().unwrap();
        for column in cells[0].split('`').skip(1).step_by(2) {
            let reverse = if column.starts_with("rev_") { REVERSE_BIT } else { 0 };
            fields.push(Field { column, kind: cells[1], number: number | reverse });
        }
    }
    // Without sampling, the column has 1, and a record has no element.
    fields.retain(|field| ["integer", "number", "text"].contains(&field.kind) && field.column != "sampling_min");
    fields
}

/// A value as JSON has it.
fn text(kind: &str, octets: &[u8]) -> String {
    let number = octets.iter().fold(0, |number: u64, &octet| number << 8 | u64::from(octet));
    match kind {
        "number" => f64::from_bits(number).to_string(),
        "text" => String::from_utf8(octets.to_vec()).unwrap(),
        _ => number.to_string(),
    }
}

/// Packets and addresses distinguish records; a value that does not apply is 0.
fn row(fields: &[Field], value: impl Fn(&Field) -> Option<String>) -> Row {
    fields.iter().map(|field| (field.column, value(field).unwrap_or_else(|| "0".into()))).collect()
}

fn of_json(fields: &[Field], record: &Value) -> Row {
    row(fields, |field| match &record[field.column] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        // JSON has 3.0 where Rust prints 3.
        number => Some(if field.kind == "number" { number.as_f64()?.to_string() } else { number.to_string() }),
    })
}

/// The records of the export: of each the octets of Weir's elements by their numbers.
fn parsed(datagrams: &[Vec<u8>]) -> Vec<BTreeMap<u16, Vec<u8>>> {
    let mut parser = AutoScopedParser::new();
    let mut records = Vec::new();
    for datagram in datagrams {
        let parsed = parser.parse_from_source("127.0.0.1:1024".parse().unwrap(), datagram);
        assert!(parsed.error.is_none(), "{:?}", parsed.error);
        let [NetflowPacket::IPFix(message)] = &parsed.packets[..] else { panic!("{:?}", parsed.packets) };
        for set in &message.flowsets {
            let ipfix::FlowSetBody::Data(data) = &set.body else { continue };
            records.extend(data.fields.iter().map(|fields| {
                let own = fields.iter().filter_map(|(field, value)| match (field, value) {
                    (IPFixField::Enterprise { enterprise_number: 32473, field_number }, FieldValue::Vec(octets)) => {
                        Some((*field_number, octets.clone()))
                    }
                    _ => None,
                });
                own.collect()
            }));
        }
    }
    records
}

/// The records of JSON, and the datagrams.
fn exported(sink: &str) -> (Vec<Value>, Vec<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let sending = || {
        let of = |(input, domain)| send_to_test(Path::new(input), domain, sink, port, folder.path(), &[]).records;
        INPUTS.map(of).concat()
    };
    receive(&socket, sending)
}

#[test]
fn netflow_parser_reads_every_own_element_of_a_list_of_all_fields() {
    let fields = fields();
    assert!(fields.len() > 100, "{} fields", fields.len());
    let (json, datagrams) = exported("ipfix+udp?template=full&fields=all");
    let own: Vec<Row> = json.iter().map(|record| of_json(&fields, record)).collect();
    let theirs: Vec<Row> = parsed(&datagrams)
        .iter()
        .map(|record| row(&fields, |field| record.get(&field.number).map(|octets| text(field.kind, octets))))
        .collect();
    let columns: Vec<&'static str> = fields.iter().map(|field| field.column).collect();
    assert_same("a list of all fields to netflow_parser", &columns, &own, &theirs);
    // The traffic has a value in nearly every column, so that the comparison says something.
    let empty: Vec<_> = columns.iter().filter(|column| own.iter().all(|row| row[**column] == "0")).collect();
    assert!(empty.len() < 40, "{empty:?}");
}

/// Elements that only lists have: they are marked in docs/fields.md.
const LISTED: [&str; 9] = [
    "duration_ns",
    "community_id",
    "tcp_throughput_bits_per_second",
    "tcp_response_count",
    "tcp_response_first_ns",
    "tcp_response_max_ns",
    "tcp_rtt_count",
    "tcp_rtt_min_ns",
    "tcp_rtt_max_ns",
];

/// The columns of [`LISTED`].
fn listed() -> Vec<Field> {
    let mut fields = fields();
    fields.retain(|field| LISTED.contains(&field.column.trim_start_matches("fwd_").trim_start_matches("rev_")));
    assert_eq!(fields.len(), 2 * LISTED.len() - 2);
    fields
}

#[test]
fn full_templates_leave_out_what_the_page_says() {
    let (_, datagrams) = exported("ipfix+udp?template=full");
    let records = parsed(&datagrams);
    assert!(records.iter().any(|record| !record.is_empty()));
    let found = listed().into_iter().find(|field| records.iter().any(|record| record.contains_key(&field.number)));
    assert_eq!(found.map(|field| field.column), None);
}

#[test]
fn tshark_reads_the_elements_that_only_lists_have() {
    if !is_installed("tshark") {
        return;
    }
    let fields = listed();
    let (json, datagrams) = exported(&format!("ipfix+udp?template=full&fields=src_ip,src_mac,*{}", LISTED.join(",*")));
    let own: Vec<Row> = json.iter().map(|record| of_json(&fields, record)).collect();
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("export.pcap");
    write_capture(&datagrams, PORT, &capture);
    let shown = tshark_text(&capture, PORT, &TEMPLATES_OF_ANY_SIZE);
    for Field { column, kind, number } in fields {
        // tshark shows elements of other enterprises as octets, of long ones the first.
        let name = format!(" Type {number}: Value (hex bytes): ");
        let hex = shown.lines().filter_map(|line| Some(line.split_once(&name)?.1));
        let octets = |text: &str| -> Vec<u8> {
            text.split_whitespace().map_while(|octet| u8::from_str_radix(octet, 16).ok()).collect()
        };
        let shorten = |value: &str| value.chars().take(20).collect::<String>();
        let mut theirs: Vec<String> = hex.map(|line| shorten(&text(kind, &octets(line)))).collect();
        let mut expected: Vec<String> = own.iter().map(|row| shorten(&row[column])).collect();
        theirs.retain(|value| value != "0");
        expected.retain(|value| value != "0");
        theirs.sort();
        expected.sort();
        assert!(theirs == expected && !theirs.is_empty(), "{column}: {} of {}", theirs.len(), expected.len());
    }
}
