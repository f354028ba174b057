//! The report of `weir tcp`: failed connections, orders, and the HTML page, also in a browser.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use testbed::{Pcap, START, SavedCapture, arguments, assert_usage_errors, success, weir_with_input};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A segment between a port of the client and port 80 of the server.
fn segment(from_client: bool, port: u16, numbers: [u32; 2], control: u8, payload: usize) -> Vec<u8> {
    let (client, server) = (([192, 0, 2, 10], port), ([198, 51, 100, 20], 80));
    let (from, to) = if from_client { (client, server) } else { (server, client) };
    let mut frame = testbed::tcp(from, to, control, payload);
    frame[38..46].copy_from_slice(&numbers.map(u32::to_be_bytes).concat());
    frame
}

/// The segments of a whole connection with 100 octets of payload in each direction, up to the
/// acknowledgment of the answer.
fn exchange(port: u16) -> Vec<Vec<u8>> {
    vec![
        segment(true, port, [1000, 0], SYN, 0),
        segment(false, port, [5000, 1001], SYN | ACK, 0),
        segment(true, port, [1001, 5001], ACK, 0),
        segment(true, port, [1001, 5001], ACK, 100),
        segment(false, port, [5001, 1101], ACK, 100),
        segment(true, port, [1101, 5101], ACK, 0),
    ]
}

fn syn(port: u16) -> Vec<u8> {
    segment(true, port, [1000, 0], SYN, 0)
}

/// Port of the client, failure, frames.
type Case = (u16, Option<&'static str>, Vec<Vec<u8>>);

/// A connection for each way to fail, and some that do not fail.
fn failures() -> Vec<Case> {
    let followed = |port, more: &[Vec<u8>]| [&exchange(port), more].concat();
    let fin = |from_client, port| {
        let numbers = if from_client { [1101, 5101] } else { [5101, 1101] };
        segment(from_client, port, numbers, FIN | ACK, 0)
    };
    let rst = |from_client, port| {
        let numbers = if from_client { [1101, 5101] } else { [5101, 1101] };
        segment(from_client, port, numbers, RST, 0)
    };
    let syn_ack = |port| segment(false, port, [5000, 1001], SYN | ACK, 0);
    let client_rst = |port| segment(true, port, [1001, 5001], RST | ACK, 0);
    let server_rst = |port| segment(false, port, [0, 1001], RST | ACK, 0);
    vec![
        (1, Some("no_answer"), vec![syn(1)]),
        (2, Some("no_answer"), vec![syn(2), syn(2), syn(2)]),
        (3, Some("no_answer"), vec![syn(3), segment(true, 3, [1001, 0], RST, 0)]),
        (4, Some("refused"), vec![syn(4), server_rst(4)]),
        (5, Some("half_open"), vec![syn(5), syn_ack(5), syn_ack(5)]),
        (6, Some("half_open"), vec![syn(6), syn_ack(6), client_rst(6)]),
        (7, Some("half_open"), vec![syn(7), syn_ack(7), segment(false, 7, [5001, 0], RST, 0)]),
        (8, Some("reset_by_client"), followed(8, &[rst(true, 8)])),
        (9, Some("reset_by_server"), followed(9, &[fin(true, 9), rst(false, 9)])),
        (10, Some("reset_by_both"), followed(10, &[rst(false, 10), rst(true, 10)])),
        // Closed by both sides: a RST after that is no failure.
        (11, None, followed(11, &[fin(true, 11), fin(false, 11), rst(true, 11)])),
        (12, None, followed(12, &[])),
        // One direction is not in the capture.
        (13, None, vec![syn(13), segment(true, 13, [1001, 5001], ACK, 100)]),
        (14, None, vec![syn_ack(14), segment(false, 14, [5001, 1001], ACK, 0)]),
        (15, Some("reset_by_server"), vec![rst(false, 15)]),
        // A handshake without payload.
        (16, None, exchange(16)[..3].to_vec()),
    ]
}

/// A capture of frames, a millisecond apart.
fn capture(frames: impl Iterator<Item = Vec<u8>>) -> SavedCapture {
    let add = |pcap: Pcap, (at, frame): (u32, Vec<u8>)| pcap.frame(START + at / 1000, at % 1000 * 1000, &frame);
    (0..).zip(frames).fold(Pcap::new(), add).saved()
}

fn failed_capture() -> SavedCapture {
    capture(failures().into_iter().flat_map(|(.., frames)| frames))
}

fn report_of(capture: &SavedCapture, more: &[&str]) -> Value {
    serde_json::from_str(&success([&["tcp", capture.name(), "--json", "-"], more].concat())).unwrap()
}

/// The port of the client, whichever side it is by the report.
fn port(connection: &Value) -> u16 {
    let ports = ["src_port", "dst_port"].map(|name| connection[name].as_u64().unwrap() as u16);
    if ports[0] == 80 { ports[1] } else { ports[0] }
}

#[test]
fn every_way_to_fail_is_recognised_and_comes_before_what_works() {
    let capture = failed_capture();
    for sort in ["retransmitted", "packets", "start", "duration"] {
        let report = report_of(&capture, &["--sort", sort]);
        let list = report["list"].as_array().unwrap();
        assert_eq!(list.len(), failures().len());
        for (expected_port, failure, _) in failures() {
            let connection = list.iter().find(|connection| port(connection) == expected_port).unwrap();
            // The client of a connection without SYN is the sender of the first packet.
            let expected = if expected_port == 15 { Some("reset_by_client") } else { failure };
            assert_eq!(connection["failure"].as_str(), expected, "{connection}");
        }
        let rank = |connection: &Value| match connection["failure"].as_str() {
            Some("no_answer" | "refused" | "half_open") => 0,
            Some(_) => 1,
            None => 2,
        };
        assert!(list.iter().map(rank).is_sorted(), "{sort}");
        let counts = ["no_answer", "refused", "half_open", "reset_by_client", "reset_by_server", "reset_by_both"]
            .map(|name| report["failures"][name].as_u64().unwrap());
        assert_eq!(counts, [3, 1, 3, 2, 1, 1]);
        assert_eq!(report["totals"]["failed_connections"], 11);
    }
}

#[test]
fn csv_has_the_failures_of_json() {
    let capture = failed_capture();
    let report = report_of(&capture, &[]);
    let csv = success(["tcp", capture.name(), "--csv", "-"]);
    let mut lines = csv.lines();
    let at = lines.next().unwrap().split(',').position(|name| name == "failure").unwrap();
    for (line, connection) in lines.zip(report["list"].as_array().unwrap()) {
        assert_eq!(line.split(',').nth(at).unwrap(), connection["failure"].as_str().unwrap_or(""));
    }
}

#[test]
fn reports_and_ledgers_are_compressed_by_the_ending_of_the_name() {
    let capture = failed_capture();
    for (option, ending) in [("--csv", "csv"), ("--json", "json"), ("--html", "html")] {
        let report = |compression: &str| {
            let path = capture.beside(&format!("report.{ending}{compression}"));
            let written = ["tcp", capture.name(), "-q", option, path.to_str().unwrap()];
            assert_eq!(testbed::weir(written), (0, String::new(), String::new()));
            std::fs::read(&path).unwrap()
        };
        let plain = report("");
        assert!(testbed::gunzip(&report(".gz")) == plain && testbed::unzstd(&report(".zst")) == plain, "{option}");
    }
    let stats = capture.beside("stats.json.gz");
    success(["tcp", capture.name(), "-q", "--stats", stats.to_str().unwrap()]);
    let ledger: Value = serde_json::from_slice(&testbed::gunzip(&std::fs::read(stats).unwrap())).unwrap();
    assert!(ledger["packets"].is_object() || ledger["sources"].is_array(), "{ledger}");
}

#[test]
fn failed_connections_are_a_list_of_their_own() {
    let capture = failed_capture();
    let page = capture.beside("page.html");
    let out = success(arguments!["tcp", capture, "--top", "4", "--html", page]);
    let expected =
        "failed        3 no answer, 1 refused, 3 half-open, 2 reset by client, 1 reset by server, 1 reset by both\n";
    assert!(out.contains(expected), "{out}");
    let at = |text: &str| out.find(text).unwrap_or_else(|| panic!("{text}: {out}"));
    assert!(at("4 of 11 failed connections, by") < at("4 of 5 connections, by"), "{out}");
    // Numbers continue, so that --explain knows one connection by each.
    let numbers = |heading: &str| -> Vec<usize> {
        let rows = out.lines().skip_while(|line| !line.contains("client → server") || !line.contains(heading));
        let rows = rows.skip(1).take(4);
        rows.map(|row| row.split_whitespace().next().unwrap().parse().unwrap()).collect()
    };
    let all = [numbers(" failure "), numbers(" retrans ")].concat();
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 8, "{out}");
    for sort in ["start", "bytes", "response", "retransmitted"] {
        let list = success(["tcp", capture.name(), "--sort", sort, "--top", "1"]);
        let rows = list.lines().filter(|line| line.contains(" → ") && !line.contains("client → server"));
        for row in rows {
            let cells: Vec<&str> = row.split_whitespace().collect();
            let explained = success(["tcp", capture.name(), "--explain", &format!("#{}", cells[0])]);
            let expected = format!("#{}  {} → {}, from ", cells[0], cells[1], cells[3]);
            assert!(explained.starts_with(&expected), "{expected}: {explained}");
        }
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.find("<h2>Failed connections</h2>").unwrap() < page.find("<h2>Connections</h2>").unwrap());
    // One more failed connection is that of a finding.
    assert_eq!(page.matches("<tr><td class=\"l\" data-v=").count(), 9);
    let searched = " The last row is one more, which \u{201c}Found\u{201d} is about. Search and sorting are of these 5, not of all 11.";
    assert!(page.contains(searched), "{page}");
    let all = capture.beside("all.html");
    success(arguments!["tcp", capture, "--top", "0", "-q", "--html", all]);
    assert!(!std::fs::read_to_string(all).unwrap().contains("Search and sorting are of these"));
}

#[test]
fn connections_are_sorted_by_every_order_and_an_unknown_one_is_refused_with_a_near_match() {
    let help = success(["tcp", "--help"]);
    let capture = capture((20..30).flat_map(exchange));
    let orders = help.split("--sort <PROPERTY>").nth(1).unwrap().lines().skip_while(|line| !line.contains("- "));
    let orders: Vec<&str> = orders
        .take_while(|line| line.trim_start().starts_with("- "))
        .map(|line| line.trim_start()[2..].split(':').next().unwrap())
        .collect();
    assert!(orders.len() >= 12, "{orders:?}");
    for order in orders {
        assert_eq!(report_of(&capture, &["--sort", order])["sort"], order);
    }
    // The headings of both lists, as text, in HTML, and without arrow and %.
    let capture = failed_capture();
    let text = success(["tcp", capture.name()]);
    let headings = text.lines().filter(|line| line.trim_start().starts_with("# "));
    let headings = headings.flat_map(|line| line.split("  ").flat_map(|part| part.split(' ')));
    let mut headings: Vec<&str> = headings.filter(|part| !["", "#", "→", "not", "exact", "%"].contains(part)).collect();
    headings.extend(["not exact", "net %", "srv %", "payload", "pkts", "resp", "0-win", "ooo", "dups", "unseen"]);
    assert!(headings.len() > 25 && headings.contains(&"client") && headings.contains(&"←payload"), "{headings:?}");
    for heading in headings {
        let report = report_of(&capture, &["--sort", heading]);
        let sort = report["sort"].as_str().unwrap();
        assert!(sort.starts_with(heading) || ["packets"].contains(&sort), "{heading}: {sort}");
    }
    assert_usage_errors(&[
        (
            &["tcp", "-", "--sort", "colour"],
            "; there are retransmitted, retransmissions, retransmitted-bytes, duration,",
        ),
        (&["tcp", "-", "--sort", "retransmited"], "did you mean retransmitted?"),
        (&["tcp", "-", "--sort", "durration"], "did you mean duration?"),
        (&["tcp", "-", "--sort", "fwd_packet"], "did you mean fwd_packets?"),
        (&["tcp", "-", "--sort", "protocol"], "no such number"),
        (&["tcp", "-", "--sort", "rtt:up"], "\"up\" is no direction; write NAME:asc for the smallest first"),
    ]);
}

#[test]
fn the_longest_connection_is_the_first_by_duration() {
    let mut pcap = Pcap::new();
    for (port, milliseconds) in [(1, 20), (2, 900), (3, 100)] {
        pcap = pcap.frame(START, 0, &segment(true, port, [1, 1], ACK, 10)).frame(
            START,
            milliseconds * 1000,
            &segment(true, port, [11, 1], ACK, 10),
        );
    }
    let capture = pcap.saved();
    let ports = |order: &str| -> Vec<u16> {
        report_of(&capture, &["--sort", order])["list"].as_array().unwrap().iter().map(port).collect()
    };
    assert_eq!(ports("duration"), [2, 3, 1]);
    // By fields of docs/fields.md.
    assert_eq!(ports("duration_ns"), [2, 3, 1]);
    assert_eq!(ports("src_port"), [3, 2, 1]);
    for name in ["duration", "duration_ns", "time"] {
        assert_eq!((ports(&format!("{name}:asc")), ports(&format!("{name}:desc"))), (vec![1, 3, 2], vec![2, 3, 1]));
    }
    // The usual order of these begins with the lowest.
    for name in ["start", "client"] {
        assert_eq!((ports(name), ports(&format!("{name}:asc"))), (vec![1, 2, 3], vec![1, 2, 3]), "{name}");
    }
    assert_eq!(ports("start:desc"), [1, 2, 3], "all start at the same time");
    // Connections without an answer come last in both directions.
    assert_eq!(ports("response:asc"), ports("response"));
    let report = report_of(&capture, &["--sort", "duration:asc"]);
    assert_eq!((&report["sort"], &report["list"][0]["duration_ns"]), (&"duration:asc".into(), &20_000_000.into()));
    let text = success(["tcp", capture.name(), "--sort", "duration:asc"]);
    assert!(text.contains("\n3 connections, by time from the first to the last packet, smallest first\n"), "{text}");
    let text = success(["tcp", capture.name(), "--sort", "src_port"]);
    assert!(text.contains("\n3 connections, by src_port\n"), "{text}");
}

#[test]
fn a_heading_sorts_by_what_its_column_shows() {
    let report = |capture: &SavedCapture, order: &str| -> Vec<u64> {
        let payload =
            |connection: &Value, side: &str| connection[format!("{side}_tcp_payload_bytes")].as_u64().unwrap();
        let of = |connection: &Value| match order {
            "payload→" => payload(connection, "fwd"),
            "←payload" => payload(connection, "rev"),
            "payload" => payload(connection, "fwd") + payload(connection, "rev"),
            "time" => connection["duration_ns"].as_u64().unwrap(),
            "delay" => {
                let delay = |name: &str| connection[format!("{name}_delay_ns")].as_u64().unwrap_or(0);
                delay("network").max(delay("server")).max(delay("client"))
            }
            _ => unreachable!(),
        };
        let report = report_of(capture, &["--sort", order]);
        let list = report["list"].as_array().unwrap();
        list.iter().filter(|connection| connection["failure"].is_null()).map(of).collect()
    };
    let saved = Pcap(std::fs::read(testbed::captures().join("web.pcap")).unwrap()).saved();
    for order in ["payload→", "←payload", "payload", "time", "delay"] {
        let numbers = report(&saved, order);
        assert!(numbers.len() == 3 && numbers.is_sorted_by(|a, b| a >= b) && numbers[0] > 0, "{order}: {numbers:?}");
    }
    let out = success(["tcp", saved.name(), "--sort", "client"]);
    assert!(out.find(" 192.0.2.1:38704 ") < out.find("[2001:db8::1]:39846"), "{out}");
}

#[test]
fn starts_have_the_day_if_the_capture_has_several() {
    let capture = |days: [u32; 2]| {
        let syn = |port| segment(true, port, [1, 0], SYN, 0);
        let pcap = Pcap::new().frame(START + 86_400 * days[0], 0, &syn(3));
        pcap.frame(START + 86_400 * days[1] + 5, 0, &syn(4)).saved()
    };
    let (one, two) = (capture([0, 0]), capture([0, 1]));
    for (capture, time) in [(one, " 12:00:00.000 "), (two, " 2026-11-20 12:00:00.000 ")] {
        let page = capture.beside("page.html");
        let out = success(arguments!["tcp", capture, "--html", page]);
        assert!(out.contains(&format!(" no answer{time}")), "{out}");
        assert!(std::fs::read_to_string(page).unwrap().contains(&format!(">{}</td>", time.trim())), "{out}");
    }
}

/// Milliseconds since the start, and a frame.
type Timed = (u32, Vec<u8>);

/// A handshake of 12 ms: 10 ms between capture point and server, 2 ms between it and the client.
fn handshake(port: u16, start_ms: u32) -> Vec<Timed> {
    let frames = exchange(port);
    [0, 10, 12].into_iter().zip(frames).map(|(ms, frame)| (start_ms + ms, frame)).collect()
}

/// A request of 100 octets at this time, as the number of the request says.
fn request(port: u16, ms: u32, number: u32) -> Timed {
    (ms, segment(true, port, [1001 + 100 * number, 5001 + 100 * number], ACK, 100))
}

/// The answer of 100 octets to a request, and the acknowledgment by the client 2 ms later.
fn answer(port: u16, ms: u32, number: u32) -> Vec<Timed> {
    vec![
        (ms, segment(false, port, [5001 + 100 * number, 1101 + 100 * number], ACK, 100)),
        (ms + 2, segment(true, port, [1101 + 100 * number, 5101 + 100 * number], ACK, 0)),
    ]
}

#[test]
fn each_part_of_the_time_of_a_connection_is_exact() {
    let window = |ms, port, window: u16, acknowledgment| {
        let mut frame = segment(true, port, [1101, acknowledgment], ACK, 0);
        frame[48..50].copy_from_slice(&window.to_be_bytes());
        (ms, frame)
    };
    let close = |port, ms| (ms, segment(true, port, [1101, 5101], FIN | ACK, 0));
    // Port, word, network, server, client and other time in ms, frames.
    let cases: Vec<(u16, &str, [u64; 4], Vec<Timed>)> = vec![
        // The server sleeps three seconds. The round trip of 10 ms is no part of them.
        (1, "server", [22, 3000, 0, 2], [handshake(1, 0), vec![request(1, 12, 0)], answer(1, 3022, 0)].concat()),
        // The client waits five seconds before its next request.
        (
            2,
            "client",
            [34, 0, 5000, 2],
            [handshake(2, 0), vec![request(2, 12, 0)], answer(2, 22, 0), vec![request(2, 5024, 1)], answer(2, 5034, 1)]
                .concat(),
        ),
        // The server greets after three seconds.
        (
            3,
            "server",
            [12, 3000, 0, 2],
            [
                handshake(3, 0),
                vec![(3012, segment(false, 3, [5001, 1001], ACK, 100)), (3014, segment(true, 3, [1001, 5101], ACK, 0))],
            ]
            .concat(),
        ),
        // The request is lost behind the capture point, twice.
        (
            4,
            "network",
            [622, 0, 0, 2],
            [handshake(4, 0), vec![request(4, 12, 0), request(4, 212, 0), request(4, 612, 0)], answer(4, 622, 0)]
                .concat(),
        ),
        // The SYN is lost.
        (
            5,
            "network",
            [1022, 0, 0, 2],
            [vec![(0, syn(5))], handshake(5, 1000), vec![request(5, 1012, 0)], answer(5, 1022, 0)].concat(),
        ),
        // A connection that is kept open for a minute.
        (
            6,
            "ok",
            [22, 0, 0, 60_002],
            [handshake(6, 0), vec![request(6, 12, 0)], answer(6, 22, 0), vec![close(6, 60_024)]].concat(),
        ),
        // The client reads too slowly.
        (
            7,
            "client",
            [22, 0, 2012, 2],
            [
                handshake(7, 0),
                vec![
                    request(7, 12, 0),
                    answer(7, 22, 0)[0].clone(),
                    window(24, 7, 0, 5101),
                    window(2024, 7, 500, 5101),
                ],
                vec![(2034, segment(false, 7, [5101, 1101], ACK, 100)), window(2036, 7, 500, 5201)],
            ]
            .concat(),
        ),
        // Transfer without retransmissions.
        (
            8,
            "ok",
            [22, 0, 0, 902],
            [
                handshake(8, 0),
                vec![request(8, 12, 0)],
                (0..10).map(|n| (22 + 100 * n, segment(false, 8, [5001 + 100 * n, 1101], ACK, 100))).collect(),
                vec![(924, segment(true, 8, [1101, 6001], ACK, 0))],
            ]
            .concat(),
        ),
        // Without its answer nothing is known.
        (9, "unknown", [0; 4], vec![(0, syn(9))]),
        (10, "unknown", [0; 4], vec![(0, syn(10)), (1, segment(true, 10, [1001, 5001], ACK, 100))]),
    ];
    let mut frames: Vec<Timed> = cases.iter().flat_map(|(.., frames)| frames.clone()).collect();
    frames.sort_by_key(|&(ms, _)| ms);
    let add = |pcap: Pcap, (ms, frame): (u32, Vec<u8>)| pcap.frame(START + ms / 1000, ms % 1000 * 1000, &frame);
    let capture = frames.into_iter().fold(Pcap::new(), add).saved();
    let report = report_of(&capture, &[]);
    let list = report["list"].as_array().unwrap();
    for (expected_port, word, parts_ms, _) in &cases {
        let connection = list.iter().find(|connection| port(connection) == *expected_port).unwrap();
        let parts = ["network_delay_ns", "server_delay_ns", "client_delay_ns", "other_delay_ns"]
            .map(|name| connection[name].as_u64().unwrap_or(0));
        assert_eq!(
            (connection["delay"].as_str(), parts),
            (Some(*word), parts_ms.map(|ms| ms * 1_000_000)),
            "{connection}"
        );
        assert_eq!(connection["server_delay_ns"].is_null(), *word == "unknown");
    }
    let counts = ["network", "server", "client", "ok", "unknown"].map(|name| report["delays"][name].as_u64().unwrap());
    assert_eq!(counts, [2, 2, 2, 2, 2]);
    let sorted = report_of(&capture, &["--sort", "client-delay"]);
    let mut sorted = sorted["list"].as_array().unwrap().iter().filter(|connection| connection["failure"].is_null());
    assert_eq!(sorted.next().map(port), Some(2));
    let text = success(["tcp", capture.name(), "--sort", "response", "--min-packets", "1"]);
    assert!(text.contains("\ndelay         2 network, 2 server, 2 client, 2 ok, 2 unknown\n"), "{text}");
    let first = text.lines().skip_while(|line| !line.contains(" retrans ")).nth(1).unwrap();
    assert!(first.contains("192.0.2.10:1 ") && first.contains(" server ") && first.contains(" 3.01s "), "{text}");
}

#[test]
fn delays_of_generated_traffic_equal_those_of_its_ground_truth() {
    for (specification, least_servers) in [
        ("lossy,flows=50,packets=10k,think=3s,loss=2%,seed=1", 100),
        ("lossy,flows=50,packets=10k,think=1s,loss=5%,reorder=3%,duplicate=3%,zerowindow=20%,rst=20%,seed=2", 50),
    ] {
        let capture = Pcap::new().saved();
        let truth = capture.beside("truth.csv");
        success(arguments!["synth", specification, "-q", "--overwrite", "-o", capture, "--truth", truth]);
        let truth = std::fs::read_to_string(truth).unwrap();
        let names: Vec<&str> = truth.lines().next().unwrap().split(',').collect();
        let rows: Vec<BTreeMap<&str, &str>> =
            truth.lines().skip(1).map(|line| names.iter().copied().zip(line.split(',')).collect()).collect();
        let report = report_of(&capture, &[]);
        let mut compared = 0;
        for connection in report["list"].as_array().unwrap() {
            let text = |name: &str| connection[name].to_string().replace('"', "");
            let endpoints = ["src_ip", "src_port", "dst_ip", "dst_port"];
            let row = rows.iter().find(|row| endpoints.iter().all(|name| row[name] == text(name))).unwrap();
            let of = |name: &str| connection[name].as_u64();
            let parts = ["network_delay_ns", "server_delay_ns", "client_delay_ns", "other_delay_ns"].map(of);
            let Some(sum) = parts.into_iter().sum::<Option<u64>>() else { continue };
            assert_eq!(Some(sum), of("duration_ns"), "{connection}");
            // Response times less round trips. The wait before the first payload is of one side. The
            // side whose window was closed has the time of transfer, too.
            let mut waits = 0;
            for (side, part) in [("fwd", "client_delay_ns"), ("rev", "server_delay_ns")] {
                let number = |name: &str| row[&*format!("{side}_tcp_{name}")].parse::<u64>().unwrap_or(0);
                let of_payload = (number("round_trips") > 0).then(|| number("round_trip_min_ns"));
                let rtt = of(&format!("{side}_tcp_handshake_rtt_ns")).into_iter().chain(of_payload).min().unwrap_or(0);
                let sum = number("answer_sum_ns");
                let expected = sum - sum.min(number("answers") * rtt);
                let found = of(part).unwrap();
                if number("zero_windows") == 0 {
                    waits += u64::from(found != expected);
                }
                assert!(found >= expected, "{part}: {found}, {expected}, {connection}");
            }
            assert!(waits < 2, "{connection}");
            compared += 1;
        }
        assert!(compared > 100, "{compared}");
        assert!(report["delays"]["server"].as_u64().unwrap() > least_servers, "{}", report["delays"]);
    }
}

/// The page about a capture of generated traffic, with long addresses and every column.
fn large_page(folder: &Path) -> std::path::PathBuf {
    // With its folder, the name has whole tags.
    let strange = folder.join("<script>document.title=1<").join(format!("script>{}.pcap", "&\"'long-name".repeat(12)));
    std::fs::create_dir(strange.parent().unwrap()).unwrap();
    let network = "loss=6%,reorder=5%,duplicate=3%,routed=30%,zerowindow=20%,rst=20%,ipv6=60%,keepalive=20%";
    success(arguments!["synth", format!("lossy,flows=100,packets=30k,{network},seed=3"), "-q", "-o", strange]);
    let page = folder.join("page.html");
    assert_eq!(success(arguments!["tcp", strange, "--compare", "-q", "--html", page]), "");
    page
}

#[test]
fn the_page_has_lists_and_time_lines_and_no_advice_for_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(large_page(folder.path())).unwrap();
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let page = roxmltree::Document::parse_with_options(&text, options).unwrap();
    let named = |name: &'static str| page.descendants().filter(move |node| node.has_tag_name(name));
    // One script, whatever the name of the capture is; and nothing that refers to another place.
    assert_eq!(named("script").count(), 1);
    for node in page.descendants() {
        for attribute in node.attributes() {
            assert!(
                !["src", "style"].contains(&attribute.name()) && !attribute.name().starts_with("on"),
                "{attribute:?}"
            );
            assert!(attribute.name() != "href" || attribute.value().starts_with("#t"), "{attribute:?}");
        }
    }
    let lists: Vec<_> = named("table").filter(|table| table.attribute("class") == Some("list")).collect();
    assert_eq!(lists.len(), 2);
    for list in lists {
        let columns = list.descendants().filter(|node| node.has_tag_name("th")).count();
        let rows: Vec<_> = list.descendants().filter(|node| node.has_tag_name("tr")).skip(1).collect();
        // Those of the findings follow.
        assert!((20..=20 + 12).contains(&rows.len()));
        for row in rows {
            assert_eq!(row.children().filter(|node| node.has_tag_name("td")).count(), columns);
        }
    }
    // Each link has its time line, and each time line a plot.
    let links: Vec<&str> = named("a").map(|link| &link.attribute("href").unwrap()[1..]).collect();
    let lines: Vec<&str> = named("details").map(|details| details.attribute("id").unwrap()).collect();
    assert!(links.len() >= 40 && links == lines, "{links:?} {lines:?}");
    let plots = named("details").filter(|details| details.descendants().any(|node| node.has_tag_name("svg")));
    assert_eq!(plots.count(), links.len());
    let body =
        named("body").next().unwrap().descendants().filter(|node| !node.parent().unwrap().has_tag_name("script"));
    let body: String = body.filter_map(|node| node.text()).collect();
    assert!(!body.contains(" --") && !body.contains("(--"), "{body}");
}

#[test]
fn a_time_line_belongs_to_one_of_several_connections_between_the_same_endpoints() {
    // The second connection is the only one with payload, and the third one with the same packets
    // is later.
    let open = |at: u32, payload| {
        let isn = 1000 + 1_000_000 * at;
        [
            segment(true, 7, [isn, 0], SYN, 0),
            segment(false, 7, [isn + 7, isn + 1], SYN | ACK, 0),
            segment(true, 7, [isn + 1, isn + 8], ACK, payload),
            segment(false, 7, [isn + 8, isn + 1], RST, 0),
        ]
    };
    let capture = capture([open(0, 0), open(1, 77), open(2, 0)].into_iter().flatten());
    let page = capture.beside("page.html");
    success(arguments!["tcp", capture, "-q", "--sort", "bytes", "--html", page]);
    let page = std::fs::read_to_string(page).unwrap();
    let lines = page.split("<details").skip(1).map(|rest| rest.split("</details>").next().unwrap());
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].contains("client: 77 octets") && !lines[1].contains("octet") && !lines[2].contains("octet"));
    for line in lines {
        assert!(line.contains("client: 1 SYN") && line.contains("server: 1 SYN") && line.contains("server: 1 RST"));
    }
}

#[test]
fn a_time_line_shows_how_long_a_side_waited_for_a_response() {
    let frames = [handshake(1, 0), vec![request(1, 12, 0)], answer(1, 3022, 0)].concat();
    let add = |pcap: Pcap, (ms, frame): (u32, Vec<u8>)| pcap.frame(START + ms / 1000, ms % 1000 * 1000, &frame);
    let capture = frames.into_iter().fold(Pcap::new(), add).saved();
    let page = capture.beside("page.html");
    success(arguments!["tcp", capture, "-q", "--html", page]);
    let page = std::fs::read_to_string(page).unwrap();
    let marks = page.matches("server: response pending").count();
    // From 12 ms to 3.022 s, in intervals of 2^25 ns.
    assert_eq!(marks, 1 + 3_022_000_000 / (1 << 25));
    assert!(page.contains(": server</summary>") && !page.contains("client: response pending"), "{page}");
}

#[test]
fn a_page_about_a_pipe_has_no_time_lines_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let frames: Vec<Vec<u8>> = exchange(1);
    let (code, _, err) = weir_with_input(arguments!["tcp", "-", "-q", "--html", page], &Pcap::of(&frames).0);
    assert_eq!((code, &*err), (0, ""));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("a pipe is read once") && !page.contains("<details"), "{page}");
}

/// Runs a script on a page in a browser of this width, and returns what it makes of
/// `document.title`. `None` without a browser.
fn in_browser(page: &Path, width: u32, script: &str) -> Option<String> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let browser = std::env::split_paths(&paths).map(|folder| folder.join("chromium")).find(|path| path.is_file());
    let Some(browser) = browser else {
        eprintln!("SKIPPED: chromium is not installed (apt-get install chromium)");
        return None;
    };
    let text = std::fs::read_to_string(page).unwrap();
    let tested = page.with_file_name("tested.html");
    std::fs::write(&tested, text.replace("</body>", &format!("<script>{script}</script></body>"))).unwrap();
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},800"))
        .arg(format!("file://{}", tested.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
    Some(title.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr))).to_string())
}

#[test]
fn in_a_browser_nothing_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let page = large_page(folder.path());
    // An element is cut off if its content is wider than the element, or if it ends outside of the
    // page; a text of a plot, if it ends outside of the plot.
    let script = r#"
        for (const details of document.querySelectorAll("details")) details.open = true;
        const cut = [];
        // On a narrow screen these scroll; letters of 12 px in plots are not made much smaller.
        const scrolls = (element) => innerWidth !== 1280 ? element.closest(".wide, figure, details") : null;
        const width = document.documentElement.clientWidth;
        for (const element of document.body.querySelectorAll("*")) {
            const box = element.getBoundingClientRect();
            const plot = element.closest("svg");
            if (element === plot) {
                if (plot.getBoundingClientRect().width / 900 * 12 < 9.9) cut.push("small letters");
            }
            if (scrolls(element) !== null) continue;
            if (plot === null) {
                const wide = element.clientWidth > 0 && element.scrollWidth > element.clientWidth;
                if (wide || box.right > width + 0.5) cut.push(element.tagName + " " + element.textContent.slice(0, 40));
            } else if (element.tagName !== "title") {
                const area = plot.getBoundingClientRect();
                if (element !== plot && (box.left < area.left - 1 || box.right > area.right + 1))
                    cut.push("plot " + element.tagName + " " + element.textContent.slice(0, 40));
            }
        }
        const page = document.documentElement;
        document.title = [page.scrollWidth, page.clientWidth, cut.length, cut.slice(0, 9).join("; ")].join(" | ");
    "#;
    let odd_page = odd_page(folder.path());
    for width in [1280, 1024, 500] {
        for page in [&page, &odd_page] {
            let Some(title) = in_browser(page, width, script) else { return };
            assert_eq!(title, format!("{width} | {width} | 0 | "), "{}", page.display());
        }
    }
}

/// A page about one connection with the longest addresses, random segments, and every mark.
fn odd_page(folder: &Path) -> std::path::PathBuf {
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let mut pcap = Pcap::new();
    for at in 0..2000 {
        let (numbers, payload) = ([random() << 1, random() << 1], random() as usize % 1400);
        let segment = segment(at % 2 == 0, 50_000, numbers, [SYN, ACK, ACK, ACK, FIN | ACK][at as usize % 5], payload);
        let addresses = [[0xfd, 0xa1], [0xfd, 0xb2]].map(|[first, second]| [first, second].repeat(8));
        let addresses = if at % 2 == 0 { addresses.concat() } else { [&addresses[1][..], &addresses[0]].concat() };
        let mut frame = segment[..12].to_vec();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((20 + payload as u16).to_be_bytes());
        frame.extend([6, 64]);
        frame.extend(addresses);
        frame.extend(&segment[34..]);
        // Some are truncated.
        let captured = if at % 100 == 99 { 60 } else { frame.len() };
        pcap = pcap.record(START + at, 0, &frame[..captured], frame.len() as u32);
    }
    let capture = pcap.save(folder, "odd.pcap");
    let page = folder.join("odd.html");
    assert_eq!(success(arguments!["tcp", capture, "-q", "--html", page]), "");
    page
}

#[test]
fn in_a_browser_lists_are_sorted_and_searched() {
    let folder = tempfile::tempdir().unwrap();
    let page = large_page(folder.path());
    let script = r#"
        const table = document.querySelectorAll("table.list")[1];
        const names = Array.from(table.tHead.rows[0].cells).map((cell) => cell.textContent);
        const rows = () => Array.from(table.tBodies[0].rows);
        const column = (at) => rows().map((row) => row.cells[at].dataset.v).filter((v) => v !== undefined).map(Number);
        const sorted = (values, sign) => values.every((v, i) => i === 0 || sign * (v - values[i - 1]) >= 0);
        const results = [];
        names.forEach((name, at) => {
            if (column(at).length === 0 || at === 0) return;
            const button = table.tHead.rows[0].cells[at].firstChild;
            button.click();
            const down = sorted(column(at), -1);
            button.click();
            results.push(down && sorted(column(at), 1));
        });
        table.tHead.rows[0].cells[0].firstChild.click();
        const ranked = sorted(column(0), 1);
        const wanted = rows()[3].cells[1].firstChild.textContent;
        const box = table.parentNode.previousSibling.querySelector("input");
        box.value = wanted.toUpperCase();
        box.dispatchEvent(new Event("input"));
        const shown = rows().filter((row) => !row.hidden);
        const found = shown.length > 0 && shown.length < rows().length && shown.every((row) => row.textContent.includes(wanted));
        location.hash = rows()[0].cells[0].firstChild.getAttribute("href");
        open();
        const line = document.querySelector("details[open]");
        document.title = [results.length > 7, results.every(Boolean), ranked, found, line !== null].join(" ");
    "#;
    let Some(title) = in_browser(&page, 1280, script) else { return };
    assert_eq!(title, "true true true true true");
}
