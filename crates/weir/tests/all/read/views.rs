//! Views through the binary: `--where`, `--by`, `--every`, `--sort`. Their sums equal the ledger.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use testbed::{
    Pcap, START, assert_usage_errors, capture_files, captures, captures_of_applications, command, failure, ledger_of,
    number, read_flows, small, success, tcp, weir,
};

fn capture(name: &str) -> String {
    captures().join(name).to_str().unwrap().into()
}

/// The rows of a view.
fn rows(arguments: &[&str]) -> Vec<Value> {
    let out = success([arguments, &["-o", "json:-", "-q"]].concat());
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sum(rows: &[Value], name: &str) -> u64 {
    rows.iter().map(|row| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"))).sum()
}

#[test]
fn a_sink_gets_the_records_that_match_and_the_ledger_counts_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let [all, web] = ["all.json", "web.json"].map(|name| folder.path().join(name));
    let spec = format!("json:{}?where=tcp && (dst port 80) and bytes > 1k", web.display());
    let all_spec = format!("{}?where=any", all.display());
    let capture = small().saved();
    let (code, err, ledger) = ledger_of(["read", capture.name(), "-o", &spec, "-o", &all_spec, "-v"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!((read_flows(&all).len(), read_flows(&web).len()), (3, 1));
    assert_eq!(read_flows(&web)[0]["dst_port"], 80);
    let [of_web, of_all] = [0, 1].map(|sink| &ledger["sinks"][sink]);
    assert_eq!((&of_web["exported"]["flows"], &of_web["filtered"]["flows"]), (&1.into(), &2.into()), "{ledger}");
    assert_eq!(of_web["sink"], spec.as_str());
    assert_eq!((of_all.get("filtered"), &ledger["balanced"]), (None, &true.into()));
    assert!(err.contains("  + filtered (where, balance)") && err.contains("the ledger balances"), "{err}");
    assert!(err.contains(&format!("selected   1 of 3 flows for {spec}: 8 packets, ")), "{err}");
}

#[test]
fn where_applies_to_all_sinks_and_packets_are_metered_nevertheless() {
    let capture = small().saved();
    let (code, err, ledger) =
        ledger_of(["read", capture.name(), "--where", "udp or icmp", "-o", "csv:-", "-o", "table:/dev/null"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(ledger["packets"]["metered"], 12);
    for sink in ledger["sinks"].as_array().unwrap() {
        assert_eq!((&sink["exported"]["flows"], &sink["filtered"]["flows"]), (&2.into(), &1.into()), "{ledger}");
    }
    let out = success(["read", capture.name(), "--where", "port 12345"]);
    assert!(out.contains("selected   0 of 3 flows: 0 packets, 0 bytes on the wire"), "{out}");
}

#[test]
fn the_rate_of_an_interval_that_traffic_does_not_fill_is_marked() {
    // Packets in a second of one minute, and at the end of another.
    let frame = &testbed::request_and_response(7)[0];
    let capture = || Pcap::new().frame(1_200_000_010, 0, frame).frame(1_200_000_011, 0, frame);
    let one = success(["read", capture().saved().name(), "--every", "1m", "-q"]);
    assert!(one.lines().nth(1).unwrap().contains(" *") && !one.lines().nth(2).unwrap().contains('*'), "{one}");
    let note = "* rates of whole intervals: the packets begin 10.0s after the start of the first one and end 49.0s before the \
                end of the last one\n";
    assert!(one.contains(note), "{one}");
    let two = capture().frame(1_200_000_119, 999_000, &testbed::request_and_response(8)[0]).saved();
    let two = success(["read", two.name(), "--every", "1m", "-q"]);
    assert!(two.lines().nth(1).unwrap().contains(" *") && !two.lines().nth(2).unwrap().contains('*'), "{two}");
    assert!(
        two.contains("* rates of whole intervals: the packets begin 10.0s after the start of the first one\n"),
        "{two}"
    );
}

#[test]
fn an_invalid_expression_is_marked_and_no_file_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows.csv");
    let capture = small().saved();
    let err = failure(1, ["read", capture.name(), "--where", "src net 10.0.0.0/8 and byts > 1M"]);
    let marked = "there is no field \"byts\"; did you mean bytes?\n  src net 10.0.0.0/8 and byts > 1M\n                         ^^^^\n";
    assert!(err.contains(marked), "{err}");
    let spec = format!("csv:{}?where=port 10.0.0.0/8", file.display());
    let err =
        failure(1, ["read", capture.name(), "-o", &format!("csv:{}/other.csv", folder.path().display()), "-o", &spec]);
    assert!(err.contains("where: port is a port, not an address: it has no prefix"), "{err}");
    assert!(err.contains("        ^^^^^^^^^^") && fs::read_dir(folder.path()).unwrap().count() == 0, "{err}");
}

#[test]
fn words_of_fields_are_checked_and_a_long_expression_is_not_repeated() {
    let capture = capture("web.pcap");
    let err = failure(1, ["read", &capture, "--where", "tcp and end_reason = foo"]);
    let marked = "end_reason has no value \"foo\"; there are idle, active, end, forced, resources\n  \
                  tcp and end_reason = foo\n                       ^^^\n";
    assert!(err.contains(marked), "{err}");
    let records = |expression: &str| {
        let out = success(["read", &capture, "--where", expression, "-o", "csv:-", "-q"]);
        out.lines().count() - 1
    };
    let ordered = records("fwd_tcp_flags = SAPF");
    assert_eq!((ordered, records("fwd_tcp_flags = PFAS")), (3, 3));
    for (expression, problem, mark) in [
        ("flags SYN", "TCP flags are letters; for \"SYN\" write S, as in flags S", "^^^"),
        ("flags = syn", "write S, as in flags S", "^^^"),
        ("flags = 'SYN|ACK'", "write SA, as in flags SA", "^^^^^^^^^"),
        ("fwd_tcp_flags contains tcp-syn", "write S, as in flags S", "^^^^^^^"),
        ("flags ECE", "write E, as in flags E", "^^^"),
        ("flags Q", "'Q' is not a TCP flag", "^"),
    ] {
        let err = failure(1, ["read", &capture, "--where", expression]);
        assert!(err.contains(problem) && err.contains(&format!(" {mark}\n")), "{expression}: {err}");
    }
    assert_eq!(records("application = HTTP"), records("app = HTTP"));
    let long = format!("{}byts > 1", "host 10.0.0.1 or ".repeat(3000));
    let err = failure(1, ["read", &capture, "--where", &long]);
    assert!(err.contains("did you mean bytes?") && err.contains("^^^^") && err.len() < 600, "{} bytes", err.len());
}

#[test]
fn sums_of_every_view_of_every_capture_equal_the_ledger() {
    for path in capture_files() {
        let name = path.to_str().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let view = folder.path().join("view.json");
        let sink = format!("json:{}", view.display());
        success(["read", name, "--layer2", "-o", &sink, "-q"]);
        let ip_bytes = sum(&read_flows(&view), "bytes");
        for options in [
            &["--by", "src_ip,dst_port"][..],
            &["--by", "protocol", "--top", "1"],
            &["--by", "dst_ip/24,service_port", "--groups", "2"],
            &["--every", "10ms"],
            &["--every", "1ms", "--by", "protocol"],
            &["--every", "1s", "--by", "server_ip", "--top", "2"],
            &["--every", "1ms", "--by", "protocol", "--groups", "3"],
            &["--every", "1ms", "--groups", "1"],
        ] {
            let _ = fs::remove_file(&view);
            let arguments = [&["read", name, "--layer2", "-o", &sink, "-q"], options].concat();
            let (_, err, ledger) = ledger_of(arguments);
            let rows = read_flows(&view);
            let found = ["flows", "packets", "l2_bytes"].map(|name| sum(&rows, name));
            let expected = [&ledger["flows"]["created"], &ledger["packets"]["metered"], &ledger["bytes"]["metered"]];
            assert_eq!(found.map(Value::from), expected.map(Clone::clone), "{name} {options:?}: {err}");
            assert_eq!(sum(&rows, "bytes"), ip_bytes, "{name} {options:?}: {err}");
            assert_eq!(ledger["balanced"], true, "{name} {options:?}: {err}");
        }
    }
}

/// Sums that are those of fields of records.
const FIELDS_OF_SUMS: [(&str, &[&str]); 13] = [
    ("dns_queries", &["dns_queries"]),
    ("dns_answers", &["dns_answers"]),
    ("dns_nxdomain", &["dns_nxdomain"]),
    ("dns_servfail", &["dns_servfail"]),
    ("dns_refused", &["dns_refused"]),
    ("dns_other_errors", &["dns_other_errors"]),
    ("dns_unanswered", &["dns_unanswered"]),
    ("dns_forgotten", &["dns_forgotten"]),
    ("dns_failed", &["dns_nxdomain", "dns_servfail", "dns_refused", "dns_other_errors", "dns_unanswered"]),
    ("http_requests", &["http_requests"]),
    ("http_errors", &["http_4xx", "http_5xx"]),
    ("http_5xx", &["http_5xx"]),
    ("retransmitted_unseen", &["fwd_tcp_retransmitted_unseen", "rev_tcp_retransmitted_unseen"]),
];
/// Of them and of others, all that say how connections fail and lose.
const FAILURES: [&str; 6] =
    ["no_answer", "refused", "half_open", "reset_by_client", "reset_by_server", "reset_by_both"];
const LOSSES: [&str; 4] = [
    "client_retransmitted_unseen",
    "client_retransmitted_seen",
    "server_retransmitted_unseen",
    "server_retransmitted_seen",
];

#[test]
fn sums_that_are_asked_for_are_those_of_the_fields_of_records() {
    let asked: Vec<&str> = FIELDS_OF_SUMS.iter().map(|(name, _)| *name).chain(FAILURES).chain(LOSSES).collect();
    let asked = [asked.join(","), "failed".into()].join(",");
    let mut seen = BTreeMap::new();
    for path in capture_files().into_iter().chain(captures_of_applications()) {
        let name = path.to_str().unwrap();
        let flows = rows(&["read", name, "--fields", "all"]);
        let of_flows = |fields: &[&str]| -> u64 {
            flows.iter().flat_map(|flow| fields.iter().filter_map(|field| flow[*field].as_u64())).sum()
        };
        for view in [
            &["--by", "server_ip,service_port", "--top", "2"][..],
            &["--by", "dns_name", "--groups", "1"],
            &["--by", "http_host", "--every", "10ms"],
        ] {
            let rows = rows(&[&["read", name, "--log-level", "error", "--sum", &asked][..], view].concat());
            for (of, fields) in FIELDS_OF_SUMS {
                assert_eq!(sum(&rows, of), of_flows(fields), "{name} {view:?} {of}");
                *seen.entry(of).or_insert(0) += sum(&rows, of);
            }
            for failure in FAILURES {
                let failed = flows.iter().filter(|flow| flow["tcp_failure"] == failure).count() as u64;
                assert_eq!(sum(&rows, failure), failed, "{name} {view:?} {failure}");
                *seen.entry(failure).or_insert(0) += failed;
            }
            let of_all = |names: &[&str]| names.iter().map(|of| sum(&rows, of)).sum::<u64>();
            assert_eq!(sum(&rows, "failed"), of_all(&FAILURES), "{name} {view:?}");
            assert_eq!(sum(&rows, "retransmitted"), of_all(&LOSSES), "{name} {view:?}");
            assert_eq!(sum(&rows, "retransmitted_unseen"), of_all(&[LOSSES[0], LOSSES[2]]), "{name} {view:?}");
        }
    }
    let of_captures = ["dns_failed", "dns_nxdomain", "http_errors", "no_answer", "refused", "half_open"];
    assert!(of_captures.iter().all(|of| seen[of] > 0) && seen["retransmitted_unseen"] > 0, "{seen:?}");
}

/// A segment of a connection to 198.51.100.20:80 from this port: the frames of a capture, at these microseconds.
fn segment(
    capture: Pcap,
    at_us: u32,
    port: u16,
    from_server: bool,
    control: u8,
    [sequence, acknowledged, payload]: [u32; 3],
) -> Pcap {
    let (client, server) = (([192, 0, 2, 10], port), ([198, 51, 100, 20], 80));
    let (from, to) = if from_server { (server, client) } else { (client, server) };
    let mut frame = tcp(from, to, control, payload as usize);
    frame[38..42].copy_from_slice(&sequence.to_be_bytes());
    frame[42..46].copy_from_slice(&acknowledged.to_be_bytes());
    capture.frame(START + at_us / 1_000_000, at_us % 1_000_000, &frame)
}

/// A connection whose SYN begins at these microseconds: a round trip of 2 ms to the server and of 1 ms to the client, and
/// an answer after 3 ms. With `lost_us` the first SYN with ACK is lost, and the next one comes this much later.
fn answered(capture: Pcap, port: u16, lost_us: u32) -> Pcap {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let capture = segment(capture, 0, port, false, SYN, [100, 0, 0]);
    let capture = if lost_us > 0 { segment(capture, 300_000, port, false, SYN, [100, 0, 0]) } else { capture };
    let steps = [
        (2_000, true, SYN | ACK, [500, 101, 0]),
        (3_000, false, ACK, [101, 501, 0]),
        (4_000, false, ACK, [101, 501, 50]),
        (7_000, true, ACK, [501, 151, 50]),
    ];
    let add = |capture, (at_us, from_server, control, numbers)| {
        segment(capture, lost_us + at_us, port, from_server, control, numbers)
    };
    steps.into_iter().fold(capture, add)
}

#[test]
fn handshakes_with_a_repeated_syn_are_no_round_trips() {
    const SUMS: &str = "server_rtt_count,server_rtt_mean_ns,server_rtt_max_ns,client_rtt_mean_ns,server_time_mean_ns";
    let capture = answered(answered(Pcap::new(), 4000, 0), 4001, 800_000).saved();
    let view = ["--by", "server_ip", "--sum", SUMS];
    let read = rows(&[&["read", capture.name()][..], &view].concat());
    let store = capture.beside("store");
    success(["read", "-q", capture.name(), "-o", &format!("parquet:{}", store.display())]);
    let stored = rows(&[&["read", store.to_str().unwrap()][..], &view].concat());
    for row in [&read[0], &stored[0]] {
        let of = |name: &str| number(&row[name]);
        assert_eq!((of("flows"), of("server_rtt_count"), of("rtt_max_ns")), (2, 1, 3_000_000), "{row}");
        assert_eq!((of("server_rtt_mean_ns"), of("server_rtt_max_ns")), (2_000_000, 2_000_000), "{row}");
        assert_eq!((of("rtt_mean_ns"), of("client_rtt_mean_ns")), (3_000_000, 1_000_000), "{row}");
        assert_eq!((of("response_mean_ns"), of("server_time_mean_ns")), (3_000_000, 1_000_000), "{row}");
    }
    // The field of the flow is what was measured.
    let flows = rows(&["read", capture.name(), "--fields", "rtt", "--where", "rtt > 500ms"]);
    assert_eq!(flows.len(), 1, "{flows:?}");
    // Later records of a connection do not have its handshake once more.
    let long = segment(answered(Pcap::new(), 4000, 0), 5_000_000, 4000, false, 16, [151, 551, 50]).saved();
    let row = &rows(&[&["read", long.name(), "--active", "1s"][..], &view].concat())[0];
    assert_eq!((number(&row["flows"]), number(&row["server_rtt_count"])), (2, 1), "{row}");
    // Where no round trip is known, nothing is.
    let lost = answered(Pcap::new(), 4001, 800_000).saved();
    let row = &rows(&[&["read", lost.name()][..], &view].concat())[0];
    assert!(row["server_time_mean_ns"].is_null() && row["rtt_mean_ns"].is_null(), "{row}");
}

#[test]
fn sums_are_columns_only_if_they_are_asked_for() {
    let dns = capture("dns.pcap.gz");
    let table = |options: &[&str]| success([&["read", &dns, "-q", "--by", "dns_name"], options].concat());
    assert!(!table(&[]).contains("dns_nxdomain"));
    let sorted = table(&["--sort", "nxdomain", "--top", "1"]);
    assert!(sorted.lines().next().unwrap().contains(" dns_nxdomain"), "{sorted}");
    assert!(sorted.lines().nth(1).unwrap().starts_with("not-there.example "), "{sorted}");
    assert!(sorted.contains("by dns_nxdomain;"), "{sorted}");
    let by_field = success(["read", &dns, "-q", "--by", "dns_nxdomain", "--sort", "nxdomain", "-o", "csv:-"]);
    assert_eq!(by_field.lines().next().unwrap().matches("dns_nxdomain").count(), 1, "{by_field}");
    let asked =
        rows(&["read", &dns, "--by", "protocol", "--sum", "dns_unanswered,server_rtt_mean_ns", "--sort", "dns_failed"]);
    assert_eq!((&asked[0]["dns_failed"], &asked[0]["dns_unanswered"]), (&2.into(), &0.into()), "{asked:?}");
    assert!(rows(&["read", &dns, "--by", "protocol"])[0].get("dns_failed").is_none());
    let line = success(["read", &dns, "-q", "--every", "1s", "--sum", "dns_queries"]);
    assert!(line.lines().next().unwrap().contains(" dns_queries"), "{line}");
    let times = rows(&[
        "read",
        &capture("web.pcap"),
        "--by",
        "service_port",
        "--where",
        "tcp",
        "--sum",
        "client_rtt_mean_ns,server_rtt_mean_ns,server_rtt_count",
    ]);
    let [client, server, mean] =
        ["client_rtt_mean_ns", "server_rtt_mean_ns", "rtt_mean_ns"].map(|of| times[0][of].as_u64().unwrap());
    assert!(client + server <= mean && client + server + 2 > mean, "{times:?}");
    assert_eq!(times[0]["server_rtt_count"], times[0]["flows"], "{times:?}");
    assert_usage_errors(&[
        (&["read", &dns, "--sum", "dns_failed"], "--sum adds up"),
        (
            &["read", &dns, "--by", "host", "--sum", "dns_faild"],
            "there is no sum \"dns_faild\"; did you mean dns_failed?",
        ),
        (&["read", &dns, "--by", "dns_nxdomain", "--sum", "dns_nxdomain"], "two columns with the name dns_nxdomain"),
        (&["read", &dns, "--by", "host", "--sort", "nxdomian"], "a view has no number \"nxdomian\""),
    ]);
    let (_, _, err) = weir(["read", &dns, "--dpi", "off", "--by", "host", "--sort", "http_errors", "-o", "csv:-"]);
    assert!(err.contains("--sum: no record has http_4xx without --dpi light"), "{err}");
}

#[test]
fn traffic_within_a_group_was_sent_and_received_there_and_counts_once() {
    let pcap = concat!(env!("CARGO_MANIFEST_DIR"), "/../meter/dpi/testdata/redis-cli.pcap");
    for field in ["host", "host/24", "host/0"] {
        for every in [&[][..], &["--every", "1ms"]] {
            let rows = rows(&[&["read", pcap, "--by", field][..], every].concat());
            for name in ["bytes", "sent_bytes", "received_bytes"] {
                assert_eq!(sum(&rows, name), 568, "{field} {name}: {rows:?}");
            }
            assert_eq!(sum(&rows, "sent_packets"), sum(&rows, "packets"), "{field}: {rows:?}");
        }
    }
    // All hosts are one group.
    let web = capture("web.pcap");
    let flows = rows(&["read", &web, "--where", "ip4"]);
    let all = rows(&["read", &web, "--where", "ip4", "--by", "host/0"]);
    for name in ["bytes", "sent_bytes", "received_bytes"] {
        assert_eq!(sum(&all, name), sum(&flows, "bytes"), "{name}: {all:?}");
    }
}

#[test]
fn a_table_has_its_rest_and_its_total() {
    let out = success(["read", &capture("web.pcap"), "--by", "host", "--top", "2", "-q"]);
    let expected = "\
host       flows packets  bytes     %   sent received             first (UTC)         last retr%    rtt response
192.0.2.1      3      77 56.0kB  70.5  2244B   53.8kB 2026-11-21 02:51:17.914 02:51:17.940  0.00 74.0µs   86.2µs
192.0.2.2      3      77 56.0kB  70.5 53.8kB    2244B 2026-11-21 02:51:17.914 02:51:17.940  0.00 74.0µs   86.2µs
others (6)    10      86 46.9kB       23.5kB   23.5kB 2026-11-21 02:51:17.845 02:51:18.289  0.00 32.0µs   87.0µs
total          8     120 79.5kB 100.0                 2026-11-21 02:51:17.845 02:51:18.289  0.00 60.0µs   86.3µs
";
    assert!(out.starts_with(expected), "\n{out}");
    assert!(out.contains("2 of 8 groups (--top 0 for all), by bytes; "), "{out}");
    assert!(out.contains("each flow is in the groups of both of its sides; the total counts it once\n"), "{out}");
    let out = success(["read", &capture("web.pcap"), "--by", "host", "--groups", "2", "-q"]);
    let rest = "159kB of groups that did not fit are in \"others (no memory)\" (--groups 2)\n";
    assert!(out.contains(rest), "{out}");
    // A group takes memory for each interval in which it has traffic.
    let pairs = &["read", &capture("web.pcap"), "--by", "protocol", "--every", "50ms", "--groups", "5"];
    let (out, csv) = (success([&pairs[..], &["-q"]].concat()), weir([&pairs[..], &["-o", "csv:-"]].concat()));
    let text = "of pairs of a group and an interval that did not fit are in \"others (no memory)\" (--groups 5)";
    assert!(out.contains(text), "{out}");
    let warning = "pairs of a group and an interval that did not fit are summed up as others (--groups 5)";
    assert!(csv.2.contains(warning), "{}", csv.2);
}

#[test]
fn a_time_line_lists_intervals_without_traffic_and_says_what_is_spread() {
    let out = success(["read", &capture("web.pcap"), "--every", "50ms", "-q"]);
    let times: Vec<&str> = out.lines().skip(1).map_while(|line| line.trim().split(' ').next()).collect();
    assert_eq!(times[..3], ["02:51:17.800", "02:51:17.850", "02:51:17.900"], "{out}");
    assert!(out.contains("1 of 8 flows span several intervals: their packets and bytes are spread evenly"), "{out}");
    let out = success(["read", &capture("web.pcap"), "--every", "50ms", "--by", "host", "--top", "1", "-q"]);
    assert!(out.contains("bytes per 50.0ms") && out.contains('█'), "{out}");
    let period = "the bars are from 2026-11-21 02:51:17.800 to 02:51:18.300 UTC (500ms), a letter for each 50.0ms\n";
    assert!(out.contains(period), "{out}");
}

#[test]
fn rows_and_flows_are_sorted_by_any_number() {
    let ports = |sort: &str| {
        let rows = rows(&["read", &capture("web.pcap"), "--by", "dst_port", "--sort", sort, "--where", "tcp"]);
        rows.iter().map(|row| row["dst_port"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((ports("bytes"), ports("bytes:asc")), (vec![80, 81], vec![81, 80]));
    assert_eq!((ports("dst_port"), ports("dst_port:asc")), (vec![81, 80], vec![80, 81]));
    let flows = |sort: &str| success(["read", &capture("web.pcap"), "--sort", sort, "--top", "1", "-q"]);
    let longest = flows("duration");
    assert!(
        longest.contains("192ms icmp6 143/0") && longest.contains("1 of 8 flows (--top 0 for all), by duration;"),
        "{longest}"
    );
    assert!(flows("rtt").contains(" rtt\n") && flows("rtt").contains(" 84.0µs\n"), "{}", flows("rtt"));
    assert!(flows("bytes:asc").contains("icmp6 13"), "{}", flows("bytes:asc"));
    // Headings of the tables.
    for heading in ["start", "duration", "pkts→", "←pkts", "bytes→", "←bytes"] {
        assert!(flows(heading).contains("1 of 8 flows (--top 0 for all), by "), "{heading}");
    }
    for heading in ["flows", "packets", "bytes", "%", "bytes→", "←bytes", "first", "last", "retr%", "rtt", "response"]
    {
        assert_eq!(ports(heading).len(), 2, "{heading}");
    }
    assert_eq!(ports("sent"), ports("bytes→"));
}

#[test]
fn csv_has_a_header_and_a_row_per_group() {
    let out = success(["read", &capture("web.pcap"), "--by", "service_port,protocol", "-o", "csv:-", "-q"]);
    let lines: Vec<&str> = out.lines().collect();
    assert!(
        lines[0].starts_with("service_port,protocol,other_groups,flows,packets,bytes,l2_bytes,fwd_packets,"),
        "{out}"
    );
    assert!(
        lines[1].starts_with("80,tcp,0,3,113,79032,80614,52,61,3721,75311,2026-11-21T02:51:17.914998000Z,"),
        "{out}"
    );
    assert!(lines[2].starts_with(",icmp6,0,4,5,372,") && lines.len() == 4, "{out}");
    assert!(lines.iter().all(|line| line.split(',').count() == lines[0].split(',').count()), "{out}");
    // A view without records has its header.
    let out = success(["read", &capture("web.pcap"), "--by", "host", "--where", "port 9", "-o", "csv:-", "-q"]);
    assert!(out.starts_with("host,other_groups,") && out.lines().count() == 1, "{out}");
}

#[test]
fn the_view_is_printed_if_all_outputs_are_for_records() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows.ipfix");
    let out = success(["read", &capture("web.pcap"), "--by", "host", "-o", &format!("ipfix:{}", file.display()), "-q"]);
    assert!(out.starts_with("host ") && fs::metadata(&file).unwrap().len() > 1000, "{out}");
}

#[test]
fn a_probe_shows_the_view_at_its_end_and_reads_the_options_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("probe.toml");
    let text =
        format!("input = [\"{}\"]\nby = [\"service_port\"]\nwhere = \"tcp\"\nquiet = true\n", capture("web.pcap"));
    fs::write(&config, &text).unwrap();
    let config = config.to_str().unwrap();
    let out = success(["probe", "--config", config]);
    assert!(out.starts_with("service_port flows") && out.contains("\n          80     3"), "{out}");
    fs::write(config, text.replace("tcp", "tcp and byts > 1")).unwrap();
    let err = failure(1, ["probe", "--config", config]);
    let marked = "weir:   tcp and byts > 1\nweir:           ^^^^\n";
    assert!(err.contains("line 3: where: ") && err.contains("did you mean bytes?"), "{err}");
    assert!(err.ends_with(marked), "{err}");
    // Only the surroundings of the place are shown.
    let hosts = "host 10.0.0.1 or ".repeat(3000);
    fs::write(config, text.replace("where = \"tcp", &format!("where = \"{hosts}byts > 1"))).unwrap();
    let err = failure(1, ["probe", "--config", config]);
    assert!(err.ends_with("^^^^\n") && err.len() < 600, "{} bytes: {err}", err.len());
    let err = failure(1, ["probe", "-i", "synth:mix,packets=10", "--by", "host", "-o", "csv:flows.csv", "--check"]);
    assert!(err.contains("csv:flows.csv: with --by or --every this file would have the view"), "{err}");
    let err = failure(1, ["probe", "-i", "synth:mix,packets=10", "-o", "json:-?where=port x", "--check"]);
    assert!(err.contains("where: \"x\" is not a number"), "{err}");
}

#[test]
fn invalid_views_are_usage_errors() {
    let capture = capture("web.pcap");
    let read = |options: &[&'static str]| [&["read", capture.as_str()], options].concat();
    for (options, reason) in [
        (&["--every", "0"][..], "must be at least 1ms: rates of shorter intervals mean nothing"),
        (&["--every", "1ns"], "must be at least 1ms"),
        (&["--every", "999us"], "must be at least 1ms"),
        (&["--every", "10"], ""),
        (&["--every", "1500us"], ""),
        (&["--every", "1000000ns"], ""),
        (&["--every", "1d"], ""),
        (&["--every=-5s"], "not a duration; write for example 500ms, 120s or 5m"),
        (&["--every", "soon"], "'soon' is not a unit of time; use ns, us, ms, s, m, h or d"),
        (&["--every", "0.1ns"], "must be at least 1ms"),
        (&["--by", "hosts"], "there is no field \"hosts\"; did you mean host?"),
        (&["--by", "dst_port/24"], "dst_port is not an address: it has no prefix"),
        (&["--by", "src_ip/24,src_ip/16"], "--by: the view would have two columns with the name src_ip"),
        (&["--by", "host,packets"], "--by: the view would have two columns with the name packets"),
        (&["--by", "src_ip/40"], "\"40\" is not a prefix length"),
        (
            &["--by", "proto", "--sort", "byts"],
            "--sort: a view has no number \"byts\"; did you mean bytes?; use flows,",
        ),
        (&["--by", "proto", "--sort", "protocl"], "--sort: a view has no number \"protocl\"; did you mean protocol?"),
        (&["--by", "host", "--sort", "fast"], "--sort: a view has no number \"fast\"; use flows, packets"),
        (
            &["--sort", "fast"],
            "--sort: there is no field \"fast\" (weir fields lists all); common are bytes, packets, ",
        ),
        (&["--sort", "fwd_ttl"], "--sort: there is no field \"fwd_ttl\"; did you mean"),
        (&["--sort", "src_ip"], "--sort: src_ip is no number"),
        (&["--sort", "bytes:up"], "\"up\" is no direction; write NAME:asc"),
        (&["--groups", "0", "--by", "host"], "must be from 1"),
        (&["--groups", "5"], "--groups limits the groups of --by and the intervals of --every; add one of these"),
        (&["--where", ""], "the expression is empty"),
    ] {
        if reason.is_empty() {
            assert_eq!(weir(read(options)).0, 0, "{options:?}");
        } else {
            assert_usage_errors(&[(&read(options), reason)]);
        }
    }
}

/// Fields that a view sums up.
const SUMMED: [&str; 7] = ["packets", "bytes", "l2_bytes", "fwd_packets", "rev_packets", "fwd_bytes", "rev_bytes"];

/// A group: flows, the sums of [`SUMMED`], the earliest and the latest time.
type Sums = (u64, [u64; 7], String, String);

#[test]
fn groups_of_many_records_equal_those_of_a_sort_of_all_records() {
    for (input, by) in [
        ("synth:mix,flows=60k,packets=400k,seed=11", "src_ip,dst_port"),
        ("synth:mix,flows=60k,packets=400k,seed=12", "dst_ip,protocol,end_reason"),
        ("synth:velan,flows=150k,packets=400k,seed=13", "src_ip,src_port,dst_ip,dst_port"),
    ] {
        let keys = by.split(',').count();
        let arguments = ["read", input, "--idle", "500ms", "-q", "-o", "csv:-"];
        let fields = format!("{by},{},start_time,end_time", SUMMED.join(","));
        let records = success([&arguments[..], &["--fields", &fields]].concat());
        let mut records: Vec<Vec<&str>> = records.lines().skip(1).map(|line| line.split(',').collect()).collect();
        records.sort_unstable();
        let mut expected: Vec<(Vec<&str>, Sums)> = Vec::new();
        for record in &records {
            let (key, values) = record.split_at(keys);
            let (start, end) = (values[7], values[8]);
            if expected.last().is_none_or(|(last, _)| last != key) {
                expected.push((key.to_vec(), (0, [0; 7], start.into(), end.into())));
            }
            let (_, (flows, sums, first, last)) = expected.last_mut().unwrap();
            *flows += 1;
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value.parse::<u64>().unwrap());
            *first = start.min(first).into();
            *last = end.max(last).into();
        }
        let view = success([&arguments[..], &["--by", by]].concat());
        let mut lines = view.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let header = lines.next().unwrap();
        let at = |name: &str| header.iter().position(|&column| column == name).unwrap();
        let columns = SUMMED.map(at);
        let mut rows: Vec<(Vec<&str>, Sums)> = lines
            .map(|row| {
                let number = |column: usize| row[column].parse::<u64>().unwrap();
                let times = ["first_time", "last_time"].map(|name| row[at(name)].to_owned());
                let [first, last] = times;
                (row[..keys].to_vec(), (number(at("flows")), columns.map(number), first, last))
            })
            .collect();
        let bytes: Vec<u64> = rows.iter().map(|(_, sums)| sums.1[1]).collect();
        assert!(bytes.is_sorted_by(|one, other| one >= other), "{by}: not sorted by bytes");
        rows.sort_unstable();
        assert!(records.len() > 20_000 && rows.len() > 20, "{by}: {} records, {} groups", records.len(), rows.len());
        assert_eq!(rows.len(), expected.len(), "{input} --by {by}");
        let wrong = rows.iter().zip(&expected).find(|(row, expected)| row != expected);
        assert_eq!(wrong, None, "{input} --by {by}");
        let table = success(["read", input, "--idle", "500ms", "--by", by, "-q"]);
        let groups = format!("of {} groups", rows.len());
        assert!(table.contains(&groups) && table.contains("B of memory; "), "{table}");
    }
}

#[test]
fn an_expression_may_have_several_lines_and_its_error_has_the_place() {
    let web = capture("web.pcap");
    let lines = |expression: &str| success(["read", &web, "-q", "-o", "json:-", "--where", expression]);
    assert_eq!(lines("tcp and\n\tport 80\r\n"), lines("tcp and port 80"));
    let err = failure(1, ["read", &web, "--where", "tcp and\n\tbyts > 1"]);
    let marked = "there is no field \"byts\"; did you mean bytes?\n  tcp and  byts > 1\n           ^^^^\n";
    assert!(err.contains(marked), "{err}");
    let err = failure(1, ["read", &web, "-o", "json:-?where=tcp and\nbyts > 1"]);
    assert!(err.contains("did you mean bytes?\nweir:   tcp and byts > 1\nweir:           ^^^^\n"), "{err}");
}

#[test]
fn words_of_tcpdump_and_nfdump_select_or_name_the_word_to_use() {
    let capture = testbed::Pcap::of(&[testbed::arp()]).saved();
    let count = |expression: &str| {
        success(["read", capture.name(), "--layer2", "-q", "-o", "csv:-", "--where", expression]).lines().count() - 1
    };
    let flow = &testbed::metered(&["read", capture.name(), "--layer2", "--fields", "layer2"]).2[0];
    let mac = |name: &str| flow[name].as_str().unwrap();
    assert_eq!(count(&format!("ether src {} and ether dst {}", mac("src_mac"), mac("dst_mac"))), 1);
    assert_eq!(count(&format!("ether dst {}", mac("src_mac"))), 0);
    assert_eq!(count(&format!("ether host {}", mac("dst_mac"))), 1);
    let web = self::capture("web.pcap");
    let read = |expression: &str| success(["read", &web, "-q", "-o", "csv:-", "--where", expression]);
    assert_eq!(read("dst port eq 80 and bytes gt 1k"), read("dst port 80 and bytes > 1k"));
    for (expression, reason) in [
        (
            "greater 100",
            "greater is about the length of a packet, which a flow does not have; select packets with -f 'greater N'",
        ),
        ("less 100", "or flows with bytes <= N (octets of all packets) or bpp <= N (octets per packet)"),
        ("sni endswith x", "an operator (= != in starts-with ends-with contains), as in sni ends-with .example"),
    ] {
        assert_usage_errors(&[(&["read", &web, "--where", expression], reason)]);
    }
}

#[test]
fn views_and_tables_are_compressed_by_the_ending_of_the_file() {
    let capture = small().saved();
    let view = ["read", capture.name(), "--by", "src_ip"];
    let decompress = [("gz", testbed::gunzip as fn(&[u8]) -> Vec<u8>), ("zst", testbed::unzstd)];
    for (scheme, (ending, decompress)) in
        ["csv", "json", "table"].into_iter().flat_map(|scheme| decompress.map(|of| (scheme, of)))
    {
        let arguments = |sink: &str| [&view[..], &["-q", "-o", sink]].concat().join(" ");
        let plain = success(arguments(&format!("{scheme}:-")).split(' '));
        let path = capture.beside(&format!("view.{scheme}.{ending}"));
        // Also without the scheme, if the ending says it.
        let to_file = match scheme {
            "table" => format!("table:{}", path.display()),
            _ => path.display().to_string(),
        };
        let (code, err, ledger) = ledger_of(arguments(&to_file).split(' '));
        assert_eq!(code, 0, "{err}");
        let file = fs::read(&path).unwrap();
        assert_eq!(decompress(&file), plain.as_bytes(), "{to_file}");
        assert_eq!(ledger["sinks"][0]["octets"], file.len(), "{ledger}");
        let output = command().args(arguments(&format!("{scheme}:-.{ending}")).split(' ')).output().unwrap();
        assert_eq!(decompress(&output.stdout), plain.as_bytes(), "{scheme}:-.{ending}");
        // The summary is not mixed with it, and there are no colours.
        let mut summary = command();
        summary.args(view).args(["-o", &format!("{scheme}:-.{ending}")]).env("CLICOLOR_FORCE", "1");
        let output = summary.output().unwrap();
        assert_eq!(decompress(&output.stdout), plain.as_bytes(), "{scheme}:-.{ending}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("received"), "{scheme}:-.{ending}");
    }
}

#[test]
fn a_field_that_no_record_has_without_an_option_is_named() {
    let web = capture("web.pcap");
    let warnings = |options: &[&str]| {
        let (code, _, err) = weir([&["read", &web, "-q"], options].concat());
        assert_eq!(code, 0, "{err}");
        err
    };
    for (options, warning) in [
        (&["--where", "src_mac = 02:00:00:00:00:01"][..], "--where: no record has src_mac without --mac-addresses"),
        (&["--where", "tcp and ether host 02:00:00:00:00:01"], "--where: no record has mac without --mac-addresses"),
        (&["--where", "sni ends-with x or port 80", "--dpi", "off"], "--where: no record has sni without --dpi light"),
        (&["--where", "ndpi_category = Web"], "--where: no record has ndpi_category without --dpi full"),
        (&["--where", "http_path = /"], "--where: no record has http_path without --dpi-fields"),
        (&["-o", "csv:-?where=not src_country = DE"], "-o csv:-: where: no record has src_country without --geo"),
        (&["--where", "src as 5"], "--where: no record has as without --geo"),
        (&["--where", "dst_site = Bonn"], "--where: no record has dst_site without --networks"),
        (&["--where", "tags = bad"], "--where: no record has tags without --tags"),
        (&["--where", "tunnel gre"], "--where: no record has tunnel without --decap"),
        (&["--where", "ethertype = 0x806"], "--where: no record has ethertype without --layer2"),
        (&["--by", "application", "--dpi", "off"], "--by: no record has application without --dpi light"),
    ] {
        assert_eq!(warnings(options), format!("weir: warning: {warning}\n"), "{options:?}");
    }
    for options in [
        &["--where", "src_mac = 02:00:00:00:00:01", "--mac-addresses"][..],
        &["--where", "mac 02:00:00:00:00:01", "--layer2"],
        &["--where", "sni = x and http_path = /", "--dpi-fields"],
        &["--where", "tunnel gre", "--decap"],
        &["--by", "host", "--where", "bytes > 1 and vlan 5"],
    ] {
        assert_eq!(warnings(options), "", "{options:?}");
    }
    let check = ["probe", "-i", "synth:mix,packets=9", "--check", "-o", "json:-?where=dst_as = 5"];
    let (code, _, err) = weir(check);
    assert_eq!(code, 0, "{err}");
    assert!(err.ends_with("-o json:-: where: no record has dst_as without --geo\n"), "{err}");
}

/// Groups of `--by` with the numbers of different values in their records.
fn different(records: &[Value], by: &str, of: &str) -> BTreeMap<String, u64> {
    let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for record in records {
        groups
            .entry(record[by].to_string())
            .or_default()
            .extend((!record[of].is_null()).then(|| record[of].to_string()));
    }
    groups.into_iter().map(|(group, values)| (group, values.len() as u64)).collect()
}

#[test]
fn different_values_of_each_group_are_counted() {
    const TRAFFIC: [&str; 4] = ["read", "-q", "-i", "synth:apps,flows=800,packets=40k,seed=5"];
    let json = |options: &[&str]| -> Vec<Value> {
        let text = success(TRAFFIC.iter().chain(&["-o", "json:-"]).chain(options));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let records = json(&["--fields", "src_ip,dst_ip,dst_port,service_port,server_ip,client_ip,sni"]);
    for (by, count, name, of) in [
        ("src_ip", "hosts", "hosts", "dst_ip"),
        ("src_ip", "ports", "ports", "dst_port"),
        ("dst_ip", "hosts", "hosts", "src_ip"),
        ("server_ip", "hosts", "hosts", "client_ip"),
        ("client_ip", "hosts", "hosts", "server_ip"),
        ("service_port", "hosts", "hosts", "dst_ip"),
        ("src_ip", "sni", "distinct_sni", "sni"),
    ] {
        let mut exact = 0;
        let expected = different(&records, by, of);
        let error = format!("{name}_error");
        for row in json(&["--by", by, "--count", count]) {
            let (number, right) = (number(&row[name]), expected[&row[by].to_string()]);
            if row[&error] == 0.0 {
                exact += 1;
                assert_eq!(number, right, "{by} {count} {row}");
            } else {
                assert!(right > 512 && number.abs_diff(right) < right / 10, "{by} {count} {row} {right}");
            }
        }
        assert!(exact > 0, "{by} {count}");
    }
}

#[test]
fn a_scan_is_the_group_with_the_most_hosts() {
    // A scanner of 3000 hosts, and one of 40 ports of a host.
    let hosts =
        (0..3000_u16).map(|host| tcp(([192, 0, 2, 1], 40_000), ([10, 1, (host >> 8) as u8, host as u8], 445), 2, 0));
    let ports = (1..=40).map(|port| tcp(([192, 0, 2, 2], 40_000), ([10, 2, 0, 1], port), 2, 0));
    let capture = Pcap::of(&hosts.chain(ports).collect::<Vec<_>>()).saved();
    let options = ["read", "-q", capture.name(), "--by", "src_ip", "--count", "hosts,ports", "--sort", "hosts"];
    let csv = success(options.iter().chain(&["-o", "csv:-"]));
    let names: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let values: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let value = |row: usize, name: &str| values[row][names.iter().position(|known| *known == name).unwrap()];
    assert_eq!([value(0, "src_ip"), value(1, "src_ip")], ["192.0.2.1", "192.0.2.2"]);
    let estimate: u64 = value(0, "hosts").parse().unwrap();
    assert!(estimate.abs_diff(3000) < 300 && value(0, "hosts_error") == "0.01625", "{csv}");
    assert_eq!(["hosts", "hosts_error", "ports", "ports_error"].map(|name| value(1, name)), ["1", "0.0", "40", "0.0"]);
    let table = success(options.iter().chain(&["--top", "1"]));
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[1].starts_with("192.0.2.1 ") && lines[1].contains(" ~"), "{table}");
    assert!(
        lines[3].starts_with("total ") && table.contains("~ is an estimate with a standard error of 1.6 %"),
        "{table}"
    );
    // Both sides of a flow: each has the other as a host.
    let sides = rows(&["read", capture.name(), "--by", "host", "--count", "hosts"]);
    let scanned = sides.iter().find(|row| row["host"] == "10.2.0.1").unwrap();
    assert_eq!(number(&scanned["hosts"]), 1);
    assert_usage_errors(&[
        (&["read", capture.name(), "--count", "hosts"], "--by <FIELD>"),
        (&["read", capture.name(), "--by", "host", "--every", "1s", "--count", "hosts"], "cannot be used with"),
        (&["read", capture.name(), "--by", "host", "--count", "hots"], "there is no field \"hots\""),
        (&["read", capture.name(), "--by", "host", "--count", "ports,ports"], "two columns with the name ports"),
        (&["read", capture.name(), "--by", "host", "--sort", "hosts"], "or a field of --by or --count"),
    ]);
}
