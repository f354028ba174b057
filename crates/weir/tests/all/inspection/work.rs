//! Payload that would take too long to inspect: what is left out is counted and noted, and the other flows are
//! inspected as ever.

use super::payload_readers::{connection, datagram, read};
use serde_json::Value;
use std::collections::BTreeMap;
use testbed::{Pcap, capture_files, captures_of_applications, ledger_of, metered, number, weir};

/// A datagram of small QUIC Initials whose versions alternate, so that each needs other keys.
fn alternating_versions() -> Vec<u8> {
    let initial = |start: &[u8; 5]| [&start[..], &[1, 9, 0, 0, 20], &[7; 20]].concat();
    [initial(b"\xc0\0\0\0\x01"), initial(b"\xd0\x6b\x33\x43\xcf")].concat().repeat(24)
}

/// A question of DNS for `a.example`.
fn question() -> Vec<u8> {
    [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x01a\x07example\0\0\x01\0\x01"].concat()
}

#[test]
fn datagrams_that_need_many_keys_are_counted_and_do_not_hinder_others() {
    let mut frames = Vec::new();
    for port in 1..=50 {
        frames.push(datagram([port, 443], &alternating_versions()));
        frames.push(datagram([1000 + port, 53], &question()));
    }
    let capture = Pcap::of(&frames).saved();
    let list = "src_port,application,quic_version,dns_name,application_notes";
    let mut of_all: Vec<BTreeMap<u64, Value>> = Vec::new();
    for threads in ["1", "4"] {
        let arguments = ["read", capture.name(), "-q", "--threads", threads, "--fields", list];
        let (code, err, records, ledger) = metered(&arguments);
        assert_eq!((code, err.as_str(), records.len()), (0, "", 100));
        assert_eq!(ledger["inspection"]["work_limited"], 50);
        for record in &records {
            let fields = ["application", "dns_name", "application_notes"].map(|field| record[field].as_str());
            let is_hostile = number(&record["src_port"]) <= 50;
            let expected =
                if is_hostile { [Some("quic"), None, Some("limit")] } else { [Some("dns"), Some("a.example"), None] };
            assert_eq!(fields.map(|text| text.filter(|text| !text.is_empty())), expected, "{record}");
        }
        of_all.push(records.into_iter().map(|record| (number(&record["src_port"]), record)).collect());
    }
    assert_eq!(of_all[0], of_all[1]);
    let (_, _, text) = weir(["read", capture.name(), "-v", "-o", "csv:/dev/null"]);
    assert!(text.contains("packets not inspected to their end"), "{text}");
}

/// Cuts a payload of the client into segments.
fn segments(octets: usize, payload: &[u8]) -> Vec<Vec<u8>> {
    let segments: Vec<(bool, &[u8])> = payload.chunks(octets).map(|octets| (true, octets)).collect();
    connection(5000, &segments)
}

#[test]
fn many_short_lines_are_read_in_segments_and_not_at_once() {
    let head = [&b"GET / HTTP/1.1\r\n"[..], &b"a:\n".repeat(2600), b"Host: a.example\r\n\r\n"].concat();
    let fields = ["application", "http_host", "application_notes"];
    let options = ["--dpi-transactions", "off"];
    assert_eq!(read(&segments(600, &head), &options, fields), ["http", "a.example", ""]);
    assert_eq!(read(&segments(8000, &head), &options, fields), ["http", "", "limit"]);
    // To count messages, fewer lines of a segment are read.
    assert_eq!(read(&segments(600, &head), &[], fields), ["http", "a.example", "gap"]);
    let frames = segments(600, &head);
    let (_, _, ledger) = ledger_of(["read", Pcap::of(&frames).saved().name(), "-q", "-o", "csv:/dev/null"]);
    assert_eq!(ledger["inspection"]["work_limited"], 1);
}

#[test]
fn references_to_a_field_of_http2_are_limited() {
    let frame = |kind: u8, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, 4, 0, 0, 0, u8::from(kind == 1)], payload].concat()
    };
    for (references, expected) in [(100, ["http2", "a", ""]), (2000, ["http2", "", "limit"])] {
        let block = [&b"\x40\x01x\x01y"[..], &vec![0xbe; references], b"\x01\x01a"].concat();
        let client = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, b"")[..], &frame(1, &block)].concat();
        let fields = ["application", "http_host", "application_notes"];
        assert_eq!(read(&segments(700, &client), &[], fields), expected, "{references}");
    }
}

#[test]
fn no_capture_reaches_the_limits_of_work() {
    for path in captures_of_applications().iter().chain(&capture_files()) {
        let (_, _, ledger) = ledger_of(["read", path.to_str().unwrap(), "-q", "-o", "csv:/dev/null"]);
        assert_eq!(number(&ledger["inspection"]["work_limited"]), 0, "{}", path.display());
    }
}
