//! `weir tcp`: findings in sentences, sums by server, client and network, groups of failures, and
//! selected connections, of a capture in which all of it is known.

use serde_json::{Value, json};
use testbed::{Pcap, START, SavedCapture, assert_usage_errors, failure, success};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Address and port.
type End = ([u8; 4], u16);

/// The segments of a capture, in any order.
#[derive(Default)]
struct Segments {
    frames: Vec<(u32, Vec<u8>)>,
    identification: u16,
}

/// A connection while its segments are made: its ends, the next numbers of both, and the time in µs.
struct Talk {
    ends: [End; 2],
    next: [u32; 2],
    us: u32,
}

impl Segments {
    /// Adds a segment of the client (0) or the server (1) with this sequence number.
    fn add(&mut self, talk: &Talk, side: usize, sequence: u32, control: u8, payload: usize, window: u16) {
        let mut frame = testbed::tcp(talk.ends[side], talk.ends[1 - side], control, payload);
        // Identification 0 is none.
        self.identification = self.identification.wrapping_add(1).max(1);
        frame[18..20].copy_from_slice(&self.identification.to_be_bytes());
        frame[38..42].copy_from_slice(&sequence.to_be_bytes());
        frame[42..46].copy_from_slice(&talk.next[1 - side].to_be_bytes());
        frame[48..50].copy_from_slice(&window.to_be_bytes());
        self.frames.push((talk.us, frame));
    }

    /// Sends payload after a time.
    fn send(&mut self, talk: &mut Talk, side: usize, after_us: u32, payload: usize) {
        talk.us += after_us;
        self.add(talk, side, talk.next[side], ACK, payload, 65_535);
        talk.next[side] += payload as u32;
    }

    /// A handshake of which the server's side takes `path_us`, and the client's side 100 µs.
    fn open(&mut self, client: End, server: End, us: u32, path_us: u32) -> Talk {
        let mut talk = Talk { ends: [client, server], next: [1000, 0], us };
        self.add(&talk, 0, 1000, SYN, 0, 65_535);
        talk.next = [1001, 5000];
        talk.us += path_us;
        self.add(&talk, 1, 5000, SYN | ACK, 0, 65_535);
        talk.next[1] = 5001;
        self.send(&mut talk, 0, 100, 0);
        talk
    }

    /// A request of 100 octets, its answer of 1000, and FIN of both sides.
    fn exchange(&mut self, client: End, server: End, us: u32, path_us: u32, answer_us: u32) {
        let mut talk = self.open(client, server, us, path_us);
        self.send(&mut talk, 0, 10, 100);
        self.send(&mut talk, 1, answer_us, 1000);
        talk.us += 100;
        for side in [0, 1] {
            self.add(&talk, side, talk.next[side], FIN | ACK, 0, 65_535);
            talk.next[side] += 1;
        }
        self.send(&mut talk, 0, 1, 0);
    }

    /// A SYN, and a RST of the server if it refuses.
    fn attempt(&mut self, client: End, server: End, us: u32, refuses: bool) {
        let mut talk = Talk { ends: [client, server], next: [1000, 0], us };
        self.add(&talk, 0, 1000, SYN, 0, 65_535);
        talk.next[0] = 1001;
        if refuses {
            self.add(&talk, 1, 0, RST | ACK, 0, 0);
        }
    }

    fn saved(mut self) -> SavedCapture {
        self.frames.sort_by_key(|&(us, _)| us);
        let add = |pcap: Pcap, (us, frame): (u32, Vec<u8>)| pcap.frame(START + us / 1_000_000, us % 1_000_000, &frame);
        self.frames.into_iter().fold(Pcap::new(), add).saved()
    }
}

const SLOW: End = ([10, 2, 0, 90], 8080);
const WEB: End = ([10, 2, 0, 10], 80);
const DEAD: End = ([10, 2, 0, 99], 25);
const RESETTING: End = ([10, 2, 0, 98], 22);
const FAR: End = ([10, 2, 3, 70], 443);
const LOSSY: End = ([10, 2, 0, 60], 80);

fn client(last: u8, port: u16) -> End {
    ([10, 1, 0, last], port)
}

/// 51 refused ports of 10.2.0.5 and 10.2.0.6, 10 that do not answer, and two that are open.
fn scan(segments: &mut Segments) {
    for number in 0..61 {
        let target = ([10, 2, 0, 5 + (number % 2) as u8], 1000 + number);
        segments.attempt(client(66, 50_000 + number), target, 1000 * u32::from(number), number < 51);
    }
    for port in [2000, 2001] {
        segments.exchange(client(66, 51_000 + port), ([10, 2, 0, 5], port), 200_000, 200, 1000);
    }
}

/// A transfer of 1000 segments from the server. Of each 50 one was lost before the capture point, of
/// each 40 one behind it. The client closes its window six times.
fn losses(segments: &mut Segments) {
    let mut talk = segments.open(client(13, 42_000), LOSSY, 3_000_000, 200);
    let mut late = Vec::new();
    for number in 0..1000 {
        if number % 50 == 25 {
            late.push(talk.next[1]);
            talk.next[1] += 1000;
            continue;
        }
        let sequence = talk.next[1];
        segments.send(&mut talk, 1, 100, 1000);
        if number % 40 == 20 {
            talk.us += 30_000;
            segments.add(&talk, 1, sequence, ACK, 1000, 65_535);
        }
        if number % 50 == 40 {
            talk.us += 30_000;
            late.drain(..).for_each(|sequence| segments.add(&talk, 1, sequence, ACK, 1000, 65_535));
        }
    }
    for window in [0, 0, 0, 0, 0, 0, 65_535] {
        talk.us += 1000;
        segments.add(&talk, 0, talk.next[0], ACK, 0, window);
    }
}

/// Servers and hosts with one problem each.
fn troubled() -> SavedCapture {
    let mut segments = Segments::default();
    for number in 0..12 {
        segments.exchange(client(13, 40_000 + number), SLOW, 100_000 * u32::from(number), 200, 904_000);
        segments.exchange(client(14, 40_000 + number), WEB, 100_000 * u32::from(number), 200, 1000);
    }
    for number in 0..4 {
        segments.attempt(client(13 + (number % 2) as u8, 41_000 + number), DEAD, 1000, false);
        segments.exchange(client(14, 43_000 + number), FAR, 2_000_000, 80_000, 81_000);
    }
    for number in 0..5 {
        let mut talk = segments.open(client(14, 44_000 + number), RESETTING, 2_500_000, 200);
        segments.send(&mut talk, 0, 10, 20);
        let (sequence, control) = (talk.next[1], if number < 3 { RST } else { ACK });
        segments.add(&talk, 1, sequence, control, 0, 65_535);
    }
    scan(&mut segments);
    losses(&mut segments);
    segments.saved()
}

/// The sentences that a report begins with.
fn found(out: &str) -> Vec<&str> {
    let lines = out.lines().take_while(|line| !line.starts_with("packets"));
    lines.map(|line| line.strip_prefix("found").unwrap_or(line).trim()).collect()
}

fn report_of(capture: &SavedCapture, more: &[&str]) -> Value {
    serde_json::from_str(&success([&["tcp", capture.name(), "--json", "-"], more].concat())).unwrap()
}

const FOUND: [&str; 8] = [
    "10.2.0.99:25: 4 of 4 connections did not open: 4 no answer",
    "10.2.0.98:22 reset 3 of 5 connections",
    "10.2.0.90:8080 answers slowly: median 904ms (12 answers in 12 connections); a round trip to it takes 200µs",
    "20 segments from 10.2.0.60:80 were lost before the capture point, 1.95 % of the 1026 captured ones",
    "25 of 1062 segments to 10.1.0.13 were lost behind the capture point, or their acknowledgments were (2.35 %)",
    "10.1.0.13 closed its window 6 times (15 connections): the application there reads too slowly",
    "10.1.0.66 tried 61 ports of 2 hosts of 10.2.0.0/24: 51 refused, 10 no answer; 2 opened",
    "a round trip between the capture point and 10.2.3.70:443 takes 80.0ms (median of 4 handshakes)",
];

#[test]
fn a_report_begins_with_what_is_unusual() {
    let capture = troubled();
    let page = capture.beside("page.html");
    let out = success(["tcp", capture.name(), "--html", page.to_str().unwrap()]);
    assert_eq!(found(&out), FOUND, "{out}");
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<li>").count(), FOUND.len());
    FOUND.iter().for_each(|sentence| assert!(page.contains(&format!("<li>{sentence}</li>")), "{sentence}"));
    // The list of two has the connections that the sentences are about, and each its time line.
    let short = capture.beside("short.html");
    success(["tcp", capture.name(), "-q", "--top", "2", "--html", short.to_str().unwrap()]);
    let short = std::fs::read_to_string(short).unwrap();
    let list = short.split("<h2>Connections</h2>").nth(1).unwrap().split("</table>").next().unwrap();
    for server in ["10.2.0.90:8080", "10.2.0.60:80", "10.2.3.70:443"] {
        assert_eq!(list.matches(&format!("<br/>{server}</td>")).count(), 1, "{server}: {list}");
    }
    let rows = list.matches("<tr><td").count();
    assert!(short.contains(&format!("Search and sorting are of these {rows}, not of all ")), "{rows}");
    assert_eq!(list.matches("href=\"#t").count(), rows);
    let findings = &report_of(&capture, &[])["findings"];
    let texts: Vec<&str> = findings.as_array().unwrap().iter().map(|of| of["text"].as_str().unwrap()).collect();
    assert_eq!(texts, FOUND);
    let slow = json!({
        "kind": "slow_server", "server": "10.2.0.90:8080", "response_median_ns": 904_000_000, "server_median_ns": 903_800_000,
        "answers": 12, "connections": 12, "path_median_ns": 200_000, "text": FOUND[2],
    });
    assert_eq!(findings[2], slow);
    assert_eq!((&findings[3]["lost"], &findings[3]["role"]), (&json!(20), &json!("server")));
}

#[test]
fn without_findings_the_report_says_of_how_many_connections() {
    let mut segments = Segments::default();
    for number in 0..19 {
        segments.exchange(client(14, 40_000 + number), WEB, 100_000 * u32::from(number), 200, 1000);
        // One target less than a scan has.
        segments.attempt(client(66, 50_000 + number), ([10, 2, 0, 5], 1000 + number), 1000, true);
    }
    let capture = segments.saved();
    assert_eq!(found(&success(["tcp", capture.name()])), ["nothing unusual in 38 connections"]);
    let report = report_of(&capture, &[]);
    assert_eq!((&report["findings"], &report["failure_groups"]), (&json!([]), &json!([])));
}

#[test]
fn a_capture_that_has_each_packet_twice_says_so() {
    let mut segments = Segments::default();
    (0..3).for_each(|number| segments.exchange(client(14, 40_000 + number), WEB, 0, 200, 1000));
    segments.frames.extend(segments.frames.clone());
    let count = segments.frames.len();
    let sentence = format!("every packet is in the capture twice ({} of {count} are duplicates)", count / 2);
    assert_eq!(found(&success(["tcp", segments.saved().name()])), [sentence]);
}

#[test]
fn others_of_a_kind_are_counted() {
    let mut segments = Segments::default();
    for host in 0..5 {
        for number in 0..3 {
            segments.exchange(
                client(14, 40_000 + number),
                ([10, 2, 0, host], 80),
                0,
                200,
                300_000 + 1000 * u32::from(host),
            );
        }
    }
    let capture = segments.saved();
    let out = success(["tcp", capture.name()]);
    let expected = [
        "10.2.0.4:80 answers slowly: median 304ms (3 answers in 3 connections); a round trip to it takes 200µs",
        "10.2.0.3:80 answers slowly: median 303ms (3 answers in 3 connections); a round trip to it takes 200µs",
        "10.2.0.2:80 answers slowly: median 302ms (3 answers in 3 connections); a round trip to it takes 200µs; and 2 more \
         servers (--by server)",
    ];
    assert_eq!(found(&out), expected);
    assert_eq!(report_of(&capture, &[])["findings"][2]["others"], 2);
}

#[test]
fn a_scan_is_one_line_of_the_failures_and_all_on_request() {
    let capture = troubled();
    let rows = |out: &str, text: &str| out.lines().filter(|line| line.contains(text)).count();
    let out = success(["tcp", capture.name(), "--top", "0"]);
    let line = out.lines().find(|line| line.starts_with("10.1.0.66 → ")).unwrap_or_else(|| panic!("{out}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[2..13].join(" "), "61 ports of 2 hosts of 10.2.0.0/24 61 51 refused, 10", "{line}");
    assert!(line.contains(" 10 no answer      2 #"), "{line}");
    assert!(out.contains("1 group of 61 connections that never opened: one source with 20 targets or more"), "{out}");
    // The other failures have their lines.
    assert_eq!((rows(&out, " → 10.2.0.99:25 "), rows(&out, " reset by server ")), (4, 3), "{out}");
    assert!(out.contains("\n7 failed connections, by ") && rows(&out, "10.1.0.66:5000") == 0, "{out}");
    // The numbers of the examples are those of --explain.
    let group = &report_of(&capture, &[])["failure_groups"][0];
    let expected = json!({"source": "10.1.0.66", "connections": 61, "others": 61, "hosts": 2, "ports": 61, "port": null,
        "network": "10.2.0.0/24", "opened": 2, "refused": 51, "no_answer": 10, "examples": group["examples"]});
    assert_eq!(*group, expected);
    for number in group["examples"].as_array().unwrap() {
        let explained = success(["tcp", capture.name(), "--explain", &format!("#{number}")]);
        assert!(explained.contains(" 10.1.0.66:500"), "{explained}");
    }
    let all = success(["tcp", capture.name(), "--top", "0", "--failed", "all"]);
    assert!(all.contains("\n68 failed connections, by ") && !all.contains("that never opened: one source"), "{all}");
    assert_eq!(rows(&all, " refused "), 51);
    let list = |failed| report_of(&capture, &["--failed", failed])["list"].as_array().unwrap().len();
    assert_eq!((list("grouped"), list("all")), (101, 101));
}

#[test]
fn many_sources_of_one_target_are_one_line() {
    let mut segments = Segments::default();
    (0..30).for_each(|number| segments.attempt(client(100 + number, 1), WEB, 1000 * u32::from(number), false));
    let out = success(["tcp", segments.saved().name()]);
    assert_eq!(
        found(&out),
        ["10.2.0.10:80: 30 of 30", "30 hosts of 10.1.0.0/24 tried 10.2.0.10:80: 30 no answer"][1..]
    );
    assert!(out.contains("30 hosts of 10.1.0.0/24 → 10.2.0.10:80     30 30 no answer      0 #1, #2, #3"), "{out}");
}

#[test]
fn sums_by_server_client_and_network_are_exact() {
    let capture = troubled();
    let report = report_of(&capture, &["--by", "server"]);
    assert!(report["list"].is_null() && report["by"] == "server" && report["sort"] == "connections");
    let groups = report["groups"].as_array().unwrap();
    let of = |name: &str| groups.iter().find(|group| group["server"] == name).unwrap_or_else(|| panic!("{name}"));
    let slow = of("10.2.0.90:8080");
    for (field, value) in [
        ("connections", 12),
        ("peers", 1),
        ("failed", 0),
        ("fwd_handshakes", 12),
        ("fwd_handshake_median_ns", 100_000),
        ("rev_handshake_median_ns", 200_000),
        ("answers", 12),
        ("response_median_ns", 904_000_000),
        ("server_median_ns", 903_800_000),
        ("response_max_ns", 904_000_000),
        ("fwd_payload_bytes", 1200),
        ("rev_payload_bytes", 12_000),
        ("segments", 12 * 6),
        ("retransmitted", 0),
    ] {
        assert_eq!(slow[field], value, "{field}");
    }
    let lossy = of("10.2.0.60:80");
    for (field, value) in [
        ("rev_lost_before", 20),
        ("rev_lost_behind", 25),
        ("fwd_lost_before", 0),
        ("lost_server_side", 20),
        ("lost_client_side", 25),
        ("fwd_zero_windows", 6),
    ] {
        assert_eq!(lossy[field], value, "{field}");
    }
    assert_eq!((&of("10.2.0.99:25")["no_answer"], &of("10.2.0.98:22")["reset_by_server"]), (&json!(4), &json!(3)));
    let sum = |groups: &[Value], field: &str| groups.iter().map(|group| group[field].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum(groups, "connections"), report["totals"]["connections"]);
    assert_eq!(sum(groups, "failed"), report["totals"]["failed_connections"]);
    for by in ["client", "network"] {
        let report = report_of(&capture, &["--by", by, "--sort", "connections:asc"]);
        let groups = report["groups"].as_array().unwrap();
        let connections = report["totals"]["connections"].as_u64().unwrap();
        assert_eq!(sum(groups, "connections"), connections * if by == "network" { 2 } else { 1 }, "{by}");
        let names: Vec<&str> = groups.iter().map(|group| group[by].as_str().unwrap()).collect();
        let expected = if by == "client" {
            ["10.1.0.13", "10.1.0.14", "10.1.0.66"]
        } else {
            ["10.2.3.0/24", "10.2.0.0/24", "10.1.0.0/24"]
        };
        assert_eq!(names, expected);
    }
}

#[test]
fn skipped_sequence_numbers_are_not_taken_for_lost_payload() {
    // A segment whose number is far ahead, after 20 µs and after 100 s.
    for (after_us, is_impossible) in [(20, true), (100_000_000, false)] {
        let mut segments = Segments::default();
        let mut talk = segments.open(client(1, 40_000), WEB, 0, 200);
        segments.send(&mut talk, 1, 10, 1000);
        talk.next[1] += 870_000_000;
        segments.send(&mut talk, 1, after_us, 1000);
        let capture = segments.saved();
        let text = success(["tcp", capture.name()]);
        let of = |what: &str| {
            format!(
                "sequence numbers skip 870 MB of payload between captured octets (>99.9 %), in 1 connection: {what}"
            )
        };
        let what = match is_impossible {
            true => "not real, as their time is too short for them on any link",
            false => "not captured, or not real",
        };
        assert!(text.contains(&of(what)), "{text}");
        let finding = &report_of(&capture, &[])["findings"][0];
        assert_eq!(finding["missing_bytes"], 870_000_000);
        assert_eq!(finding["impossible_bytes"], if is_impossible { 870_000_000 } else { 0 });
    }
}

#[test]
fn networks_of_a_table_are_summed_up_by_name() {
    let capture = troubled();
    let table = capture.beside("networks.csv");
    let prefixes = "prefix,name\n10.2.0.0/25,data centre\n10.2.3.0/24,data centre\n10.1.0.0/16,\n";
    std::fs::write(&table, prefixes).unwrap();
    let table = table.to_str().unwrap();
    let of = |options: &[&str]| report_of(&capture, &[&["--by", "network"], options].concat());
    let (plain, named) = (of(&[]), of(&["--networks", table, "--sort", "connections:asc"]));
    let connections = &plain["totals"]["connections"];
    let rows: Vec<(&str, &Value)> = named["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| (group["network"].as_str().unwrap(), &group["connections"]))
        .collect();
    assert_eq!(rows, [("data centre", connections), ("10.1.0.0/24", connections)], "a prefix without a name has none");
    let text = success(["tcp", capture.name(), "--by", "network", "--networks", table]);
    assert!(text.contains("\ndata centre "), "{text}");
    let missing = failure(1, ["tcp", capture.name(), "--by", "network", "--networks", "/nonexistent"]);
    assert!(missing.contains("--networks /nonexistent"), "{missing}");
    let other = failure(1, ["tcp", capture.name(), "--by", "client", "--networks", table]);
    assert!(other.contains("sum up by network"), "{other}");
}

#[test]
fn groups_are_sorted_by_any_column_in_all_outputs() {
    let capture = troubled();
    let csv = success(["tcp", capture.name(), "--by", "server", "--sort", "response", "--csv", "-"]);
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == names.len()), "{csv}");
    assert_eq!((names[0], rows[0][0], rows[1][0]), ("server", "10.2.0.90:8080", "10.2.3.70:443"));
    let report = report_of(&capture, &["--by", "server", "--sort", "response"]);
    for (row, group) in rows.iter().zip(report["groups"].as_array().unwrap()) {
        for (name, cell) in names.iter().zip(row) {
            let value = &group[name];
            let text = value.as_str().map_or_else(|| value.to_string(), String::from);
            assert_eq!(*cell, if value.is_null() { "" } else { &text }, "{name}");
        }
    }
    let page = capture.beside("page.html");
    let out = success([
        "tcp",
        capture.name(),
        "--by",
        "server",
        "--sort",
        "lost:desc",
        "--top",
        "2",
        "--html",
        page.to_str().unwrap(),
    ]);
    assert!(out.contains("2 of 69 servers, by lost (--top 0 for all)"), "{out}");
    let rows: Vec<&str> = out.lines().skip_while(|line| !line.starts_with("server  ")).skip(1).take(2).collect();
    assert!(rows[0].starts_with("10.2.0.60:80 "), "{out}");
    assert!(!out.contains("client → server"), "{out}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<h2>By server</h2>") && page.contains("<td class=\"l\">10.2.0.60:80</td>"), "{page}");
}

#[test]
fn selected_connections_make_up_the_report_and_the_ledger_counts_the_others() {
    let capture = troubled();
    let stats = capture.beside("ledger.json");
    let more = ["--where", "host 10.2.0.90", "--stats", stats.to_str().unwrap()];
    let report = report_of(&capture, &more);
    assert_eq!((&report["totals"]["connections"], &report["totals"]["packets"]), (&json!(12), &json!(12 * 8)));
    let all = report_of(&capture, &[]);
    let [packets, others] =
        [&all["totals"]["packets"], &report["not_selected"]["packets"]].map(|n| n.as_u64().unwrap());
    assert_eq!((packets, &report["not_selected"]["connections"]), (others + 96, &json!(89)));
    let texts: Vec<&str> =
        report["findings"].as_array().unwrap().iter().map(|of| of["text"].as_str().unwrap()).collect();
    assert_eq!(texts, [FOUND[2]]);
    // Each packet has 14 octets of Ethernet and 40 of headers.
    let octets = 12 * (8 * 54 + 1100);
    let ledger = testbed::read_ledger(&stats);
    let sink = &ledger["sinks"][0];
    assert_eq!(sink["exported"], json!({"flows": 12, "packets": 96, "bytes": octets}));
    assert_eq!(sink["filtered"]["flows"], 89);
    assert_eq!(ledger["balanced"], true);
    let out = success(["tcp", capture.name(), "--where", "host 10.2.0.90"]);
    let line =
        format!("selected      12 of 101 connections: the other 89 with {others} packets are in no figure below\n");
    assert!(out.contains(&line), "{out}");
    // The numbers are those of all connections.
    let number = |report: &Value| {
        report["list"].as_array().unwrap().iter().find(|of| of["dst_ip"] == "10.2.0.90").unwrap()["number"].clone()
    };
    assert_eq!(number(&report), number(&all));
    let out = success(["tcp", capture.name(), "--where", "host 192.0.2.1"]);
    assert!(out.contains("\nselected      none of 101 connections\n"), "{out}");
}

#[test]
fn conditions_select_what_weir_read_selects() {
    let capture = troubled();
    for condition in [
        "bytes > 1k",
        "l2_bytes <= 1600 and dst port 80",
        "flags R",
        "dst flags S and duration > 500ms",
        "response > 100ms",
        "rtt > 50ms",
        "server_ip = 10.2.0.60 or fwd_tcp_flags = S",
        "retransmitted > 0",
        "src net 10.1.0.0/24 and not dst port 1000-1100",
        "tcp",
        "bpp > 300",
    ] {
        let whole = ["--idle", "9999h", "--active", "9999h", "-q", "-o", "json:-"];
        let flows = success([&["read", capture.name(), "--where", condition], &whole[..]].concat()).lines().count();
        let report = report_of(&capture, &["--where", condition]);
        assert_eq!(report["totals"]["connections"], flows, "{condition}");
        assert!(flows > 0, "{condition}");
    }
    for (condition, field) in
        [("sni = x", "sni"), ("vlan 7", "vlan"), ("end_reason = idle", "end_reason"), ("app = http", "application")]
    {
        let err = failure(1, ["tcp", capture.name(), "--where", condition]);
        let expected = format!("--where: weir tcp does not know {field} of a connection; weir read --where has it");
        assert!(err.contains(&expected), "{err}");
    }
}

#[test]
fn packets_of_other_times_are_left_out_and_counted() {
    let capture = troubled();
    let times = ["--from", "2026-11-20T12:00:03", "--to", "2026-11-20T12:00:04"];
    let report = report_of(&capture, &times);
    let packets = &report["packets"];
    let count = |name: &str| packets[name].as_u64().unwrap();
    assert_eq!(count("received"), count("analysed") + count("outside_times"));
    assert_eq!((&report["totals"]["connections"], &report["list"][0]["dst_ip"]), (&json!(1), &json!("10.2.0.60")));
    let explained = success([&["tcp", capture.name(), "--explain", ":42000"], &times[..]].concat());
    assert!(explained.ends_with("\nthe batch engine reports the same\n"), "{explained}");
    let out = success([&["tcp", capture.name()], &times[..]].concat());
    assert!(out.contains(&format!(" analysed, {} of other times\n", count("outside_times"))), "{out}");
}

#[test]
fn wrong_groups_and_orders_are_usage_errors() {
    assert_usage_errors(&[
        (&["tcp", "-", "--by", "host"], "[possible values: server, client, network]"),
        (&["tcp", "-", "--failed", "some"], "[possible values: grouped, all]"),
        (&["tcp", "-", "--by", "server", "--sort", "zero-window"], "there is no such number of a group"),
        (&["tcp", "-", "--sort", "peers"], "there is no such number of a connection"),
        (&["tcp", "-", "--by", "server", "--explain", "#1"], "--explain"),
        (&["tcp", "-", "--where", "byts > 1"], "did you mean bytes?"),
        (&["tcp", "-", "--from", "13:00", "--to", "12:00"], "--from is later than --to"),
    ]);
}
