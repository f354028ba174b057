//! Counts of the questions and answers of DNS and HTTP/1 in a flow.

use super::payload_readers::{connection, datagram, read};
use std::path::Path;
use std::process::Command;
use testbed::{
    Pcap, capture_files, captures, captures_of_applications, ipv4, is_installed, metered, number, success, weir,
};

const DNS_COUNTS: [&str; 6] =
    ["dns_queries", "dns_answers", "dns_nxdomain", "dns_servfail", "dns_refused", "dns_unanswered"];
const HTTP_COUNTS: [&str; 6] = ["http_requests", "http_1xx", "http_2xx", "http_3xx", "http_4xx", "http_5xx"];

/// A question of DNS for an address of `a.example`, or its answer with this code.
fn dns(id: u16, code: Option<u8>) -> Vec<u8> {
    let flags = code.map_or(0x0100, |code| 0x8180 | u16::from(code));
    let header = [id, flags, 1, 0, 0, 0].map(u16::to_be_bytes).concat();
    [&header[..], b"\x01a\x07example\0\0\x01\0\x01"].concat()
}

/// The datagram in the other direction.
fn answer(port: u16, payload: &[u8]) -> Vec<u8> {
    let words = [53, port, 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
    ipv4(17, [198, 51, 100, 7], [192, 0, 2, 1], &[&words, payload].concat())
}

#[test]
fn every_question_of_a_socket_counts() {
    let mut frames = Vec::new();
    for id in 0..20 {
        frames.push(datagram([4000, 53], &dns(id, None)));
        if id < 18 {
            frames.push(answer(4000, &dns(id, Some(if id % 2 == 0 { 0 } else { 3 }))));
        }
    }
    // Retransmitted, and answered once; then other codes.
    frames.extend([19, 19].map(|id| datagram([4000, 53], &dns(id, None))));
    for (id, code) in [(19, 2), (30, 5), (31, 2)] {
        frames.push(answer(4000, &dns(id, Some(code))));
    }
    assert_eq!(read(&frames, &[], DNS_COUNTS), ["22", "21", "9", "2", "1", "1"]);
    assert_eq!(read(&frames, &["--dpi-transactions", "off"], DNS_COUNTS), [""; 6]);
    assert_eq!(read(&frames, &[], ["dns_rcode", "application_notes"]), ["0", ""]);
}

#[test]
fn forgotten_questions_are_not_said_to_be_unanswered() {
    let counts = ["dns_queries", "dns_answers", "dns_unanswered", "dns_forgotten", "dns_other_errors"];
    let question = |id| datagram([4000, 53], &dns(id, None));
    // 20 at once, of which 16 are known; all are answered, the last with NotImp.
    let mut frames: Vec<Vec<u8>> = (0..20).map(question).collect();
    frames.extend((0..20).map(|id| answer(4000, &dns(id, Some(if id == 19 { 4 } else { 0 })))));
    assert_eq!(read(&frames, &[], counts), ["20", "20", "0", "4", "1"]);
    assert_eq!(read(&frames, &[], ["application_notes"]), ["limit"]);
    frames.push(question(77));
    assert_eq!(read(&frames, &[], counts), ["21", "20", "1", "4", "1"]);
    let capture = Pcap::of(&frames).saved();
    let sink = "csv:-?fields=dns_queries,dns_answers,dns_unanswered,dns_forgotten";
    let records = success(["read", capture.name(), "-q", "--transactions", sink]);
    let of = |row: &str| records.lines().filter(|line| *line == row).count();
    assert_eq!([of("1,0,0,1"), of("1,0,1,0"), of("1,1,0,0")], [4, 1, 16], "{records}");
    // Failures of the flow are those of all its questions, whatever their names.
    let by_name = ["--by", "dns_name", "--sort", "dns_failed"];
    let (code, rows, warning) = weir([&["read", capture.name(), "-q", "-o", "json:-"][..], &by_name].concat());
    assert!(code == 0 && rows.contains("\"dns_failed\":2}"), "{rows}");
    assert!(warning.contains("a flow has the dns_name of its first question"), "{warning}");
    let table = success([&["read", capture.name()][..], &by_name].concat());
    assert!(table.contains("--where 'dns_queries = 1' leaves such flows out"), "{table}");
}

#[test]
fn times_are_those_from_each_question_to_its_answer() {
    let at = |capture: Pcap, us, frame: &[u8]| capture.frame(1, us, frame);
    let mut capture = at(Pcap::new(), 0, &datagram([4000, 53], &dns(1, None)));
    capture = at(capture, 100, &datagram([4000, 53], &dns(2, None)));
    capture = at(capture, 150, &datagram([4000, 53], &dns(1, None)));
    capture = at(capture, 400, &answer(4000, &dns(2, Some(0))));
    let capture = at(capture, 900, &answer(4000, &dns(1, Some(0)))).saved();
    let (_, _, records, _) =
        metered(&["read", capture.name(), "-q", "--fields", "dns_response_mean_ns,dns_response_max_ns"]);
    assert_eq!(number(&records[0]["dns_response_mean_ns"]), 600_000);
    assert_eq!(number(&records[0]["dns_response_max_ns"]), 900_000);
}

#[test]
fn every_response_of_a_kept_alive_connection_counts() {
    let request: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let good: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    let bad: &[u8] = b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let mut segments = vec![(true, request), (false, good)];
    for _ in 0..9 {
        segments.extend([(true, request), (false, &bad[..20]), (false, &bad[20..])]);
    }
    segments
        .extend([(true, &b"GET /x HTTP/1.1\r\n\r\n"[..]), (false, b"HTTP/1.1 404 Not\r\nContent-Length: 0\r\n\r\n")]);
    let frames = connection(5000, &segments);
    assert_eq!(read(&frames, &[], HTTP_COUNTS), ["11", "0", "1", "0", "1", "9"]);
    assert_eq!(read(&frames, &[], ["http_status", "dns_queries", "application_notes"]), ["200", "", ""]);
    let capture = Pcap::of(&frames).saved();
    let found = success(["read", capture.name(), "-q", "--where", "http_5xx > 0", "-o", "json:-"]);
    assert_eq!(found.lines().count(), 1);
    let (_, _, records, _) =
        metered(&["read", capture.name(), "-q", "--dpi-packets", "2", "--fields", &HTTP_COUNTS.join(",")]);
    assert_eq!(number(&records[0]["http_5xx"]), 9, "the limit of packets is one of recognition");
}

#[test]
fn a_condition_on_the_first_answer_says_that_there_are_others() {
    let answers: [&[u8]; 2] =
        [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"];
    let request: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let exchange = |at: usize| [(true, request), (false, answers[at])];
    let several = connection(5000, &[exchange(0), exchange(1)].concat());
    let capture = Pcap::of(&several).saved();
    let summary = |capture: &str, condition: &str| weir(["read", capture, "--where", condition, "-o", "csv:-"]).2;
    let note =
        "http_status is that of the first answer of a flow, and 1 flow has several; http_4xx and http_5xx count all";
    let text = summary(capture.name(), "http_status >= 400");
    assert!(text.contains("0 of 1 flow") && text.contains(note), "{text}");
    // Stored flows: the ones that are not selected are not read.
    let store = capture.beside("store");
    success(["read", "-q", capture.name(), "-o", &format!("parquet:{}", store.display())]);
    let text = summary(store.to_str().unwrap(), "http_status >= 400");
    assert!(text.contains("http_status is that of the first answer of a flow; http_4xx"), "{text}");
    let text = summary(capture.name(), "http_4xx > 0");
    assert!(!text.contains("first answer"), "{text}");
    let single = Pcap::of(&connection(5000, &exchange(1))).saved();
    let text = summary(single.name(), "http_status >= 400");
    assert!(!text.contains("first answer"), "{text}");
    let mut frames = Vec::new();
    for (id, code) in [(1, 0), (2, 3)] {
        frames.extend([datagram([4000, 53], &dns(id, None)), answer(4000, &dns(id, Some(code)))]);
    }
    let text = summary(Pcap::of(&frames).saved().name(), "dns_rcode = NXDOMAIN");
    assert!(text.contains("dns_rcode is that of the first answer of a flow, and 1 flow has several"), "{text}");
}

#[test]
fn records_of_a_flow_add_up() {
    let mut capture = Pcap::new();
    for id in 0..50_u16 {
        capture = capture.frame(u32::from(id), 0, &datagram([4000, 53], &dns(id, None)));
        if id % 10 != 9 {
            capture = capture.frame(u32::from(id), 500, &answer(4000, &dns(id, Some(3))));
        }
    }
    let capture = capture.saved();
    let (_, _, records, _) =
        metered(&["read", capture.name(), "-q", "--active", "10s", "--fields", &DNS_COUNTS.join(",")]);
    assert!(records.len() > 3, "{records:#?}");
    let sum = |field| records.iter().map(|record| number(&record[field])).sum::<u64>();
    assert_eq!(DNS_COUNTS.map(sum), [50, 45, 45, 0, 0, 5]);
}

#[test]
fn answers_in_fragments_have_their_code() {
    let capture = testbed::captures().join("dns.pcap.gz");
    let capture = capture.to_str().unwrap();
    let unanswered = ["read", capture, "-q", "--where", "dns_name and not dns_rcode", "-o", "json:-"];
    assert_eq!(success(unanswered), "");
    assert_eq!(success(["read", capture, "-q", "--where", "dns_unanswered > 0", "-o", "json:-"]), "");
}

/// The values of fields in all messages, by tshark.
fn values_of_tshark<const N: usize>(capture: &Path, fields: [&str; N]) -> [Vec<u64>; N] {
    let output = Command::new("tshark")
        .arg("-r")
        .arg(capture)
        .args(["-o", "http.desegment_body:FALSE"])
        .args(["-Y", &fields.join(" or "), "-T", "fields"])
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output();
    let text = String::from_utf8(output.expect("tshark runs").stdout).unwrap();
    let mut values = [const { Vec::new() }; N];
    for line in text.lines() {
        for (of_field, column) in values.iter_mut().zip(line.split('\t')) {
            of_field.extend(column.split(',').filter_map(|value| value.parse::<u64>().ok()));
        }
    }
    values
}

/// Counts that differ from those of tshark, with both: a connection on two interfaces is two flows here
/// and one stream there; a truncated header of DNS is no DNS; the question in a packet that ICMP quotes does
/// not count; LLMNR over TCP is not known to tshark.
const DIFFERENCES: [(&str, &str, u64, u64); 11] = [
    ("interfaces.pcapng", "http_requests", 4, 2),
    ("interfaces.pcapng", "http_2xx", 4, 2),
    ("loss.pcapng", "http_requests", 4, 2),
    ("loss.pcapng", "http_2xx", 4, 2),
    ("snapped-56.pcap", "dns_queries", 0, 1),
    ("snapped-56.pcap", "dns_answers", 0, 1),
    ("snapped-64.pcap", "dns_queries", 0, 1),
    ("snapped-64.pcap", "dns_answers", 0, 1),
    ("traceroute.pcap", "dns_queries", 1, 2),
    ("applications", "dns_queries", 8, 7),
    ("applications", "dns_answers", 8, 7),
];

#[test]
fn counts_equal_those_of_tshark() {
    if !is_installed("tshark") {
        return println!("SKIPPED: tshark is not installed");
    }
    let (mut messages, mut differences) = (0, Vec::new());
    // One run of tshark for the small captures.
    let folder = tempfile::tempdir().unwrap();
    let merged = folder.path().join("applications");
    let merge = Command::new("mergecap").arg("-w").arg(&merged).args(captures_of_applications()).status();
    assert!(merge.expect("mergecap comes with tshark").success());
    for capture in capture_files().into_iter().chain([merged]) {
        let fields = [&DNS_COUNTS[..], &HTTP_COUNTS].concat().join(",");
        let (_, _, records, _) = metered(&["read", capture.to_str().unwrap(), "-q", "--decap", "--fields", &fields]);
        let sum = |field: &str| -> u64 { records.iter().filter_map(|record| record[field].as_u64()).sum() };
        let fields = ["dns.flags.response", "dns.flags.rcode", "http.response.code", "http.request"];
        let [is_response, codes, statuses, requests] = values_of_tshark(&capture, fields);
        let of_class = |class: u64| statuses.iter().filter(|&&status| status / 100 == class).count() as u64;
        let of_code = |code: u64| codes.iter().filter(|&&known| known == code).count() as u64;
        let answers = is_response.iter().sum::<u64>();
        let theirs = [
            ("dns_queries", is_response.len() as u64 - answers),
            ("dns_answers", answers),
            ("dns_nxdomain", of_code(3)),
            ("dns_servfail", of_code(2)),
            ("dns_refused", of_code(5)),
            ("http_requests", requests.len() as u64),
            ("http_1xx", of_class(1)),
            ("http_2xx", of_class(2)),
            ("http_3xx", of_class(3)),
            ("http_4xx", of_class(4)),
            ("http_5xx", of_class(5)),
        ];
        for (field, count) in theirs {
            if sum(field) != count {
                differences.push((capture.file_name().unwrap().to_str().unwrap().to_owned(), field, sum(field), count));
            }
            messages += count;
        }
    }
    differences.sort();
    let mut expected =
        DIFFERENCES.map(|(capture, field, here, there)| (capture.to_owned(), field, here, there)).to_vec();
    expected.sort();
    assert_eq!(differences, expected);
    assert!(messages > 200, "{messages}");
}

#[test]
fn tables_print_the_words_of_response_codes_and_json_their_numbers() {
    let capture = captures().join("dns.pcap.gz");
    let of = |options: &[&str]| {
        let read = [&["read", capture.to_str().unwrap(), "-q", "--where", "dns_rcode = NXDOMAIN"], options].concat();
        success(read)
    };
    let table = of(&["--fields", "dns_name,dns_rcode"]);
    assert_eq!(table.matches(" NXDomain\n").count(), 2, "{table}");
    assert!(of(&["--by", "dns_rcode"]).contains("NXDomain "));
    assert!(of(&["--by", "dns_rcode", "-o", "json:-"]).contains("\"dns_rcode\":3,"));
    assert!(of(&["--fields", "dns_rcode", "-o", "json:-"]).starts_with("{\"dns_rcode\":3}\n"));
}

#[test]
fn flows_of_one_direction_have_no_unanswered_questions() {
    let frames: Vec<Vec<u8>> =
        (0..3).flat_map(|id| [datagram([4000, 53], &dns(id, None)), answer(4000, &dns(id, Some(0)))]).collect();
    let capture = Pcap::of(&frames).saved();
    for (option, expected) in [(&[][..], vec![[3, 3, 0]]), (&["--uniflow-key"], vec![[0, 3, 0], [3, 0, 0]])] {
        let (_, _, records, _) = metered(&[&["read", capture.name(), "-q"], option].concat());
        let of = |record: &serde_json::Value| {
            ["dns_queries", "dns_answers", "dns_unanswered"].map(|field| record[field].as_u64().unwrap())
        };
        let mut counts: Vec<[u64; 3]> = records.iter().map(of).collect();
        counts.sort_unstable();
        assert_eq!(counts, expected, "{option:?}");
    }
}
