//! `weir tcp`: counts compared with the ground truth of generated traffic and with `weir read`,
//! outputs, exit codes.

use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use testbed::{
    Pcap, SMALL_PACKETS, START, SavedCapture, arguments, assert_usage_errors, failure, ipv4, ledger_of, read_ledger,
    small, success, text_of, weir, weir_with_input,
};

/// Runs `weir tcp` on a capture with more arguments.
fn tcp(capture: &SavedCapture, more: &[&str]) -> (i32, String, String) {
    weir([&["tcp", capture.name()], more].concat())
}

/// Runs `weir tcp`, which succeeds and logs nothing: standard output.
fn printed(capture: &SavedCapture, more: &[&str]) -> String {
    success([&["tcp", capture.name()], more].concat())
}

fn json_of(capture: &SavedCapture, more: &[&str]) -> Value {
    serde_json::from_str(&printed(capture, &[&["--json", "-", "--engine", "cpu"], more].concat())).unwrap()
}

/// A capture of `synth:lossy`, and the ground truth: its flows by column.
fn lossy(specification: &str) -> (SavedCapture, Vec<BTreeMap<String, String>>) {
    let capture = Pcap::new().saved();
    let truth = capture.beside("truth.csv");
    success(arguments![
        "synth",
        format!("lossy,{specification}"),
        "-q",
        "--overwrite",
        "-o",
        capture,
        "--truth",
        truth
    ]);
    let text = std::fs::read_to_string(truth).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| names.iter().map(|name| name.to_string()).zip(line.split(',').map(String::from)).collect();
    (capture, lines.map(row).collect())
}

fn count(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("{name}: {object}"))
}

/// Columns of the ground truth, and the fields that must have the same sum.
const EQUAL_FIELDS: [(&str, &[&str]); 19] = [
    ("payload_octets", &["payload_bytes"]),
    ("syn_again", &["syn_retransmitted"]),
    ("fin", &["fin_count"]),
    ("rst", &["rst_count"]),
    ("switched_copies", &["duplicates"]),
    ("routed_copies", &["routed_duplicates"]),
    ("copied_octets", &["duplicate_bytes"]),
    ("keep_alives", &["keepalives"]),
    ("window_probes", &["zero_window_probes"]),
    ("zero_windows", &["zero_window"]),
    ("acks", &["acknowledgments", "duplicate_acks"]),
    ("in_order", &["in_order_packets"]),
    ("retransmissions", &["retransmitted_packets"]),
    ("retransmitted_octets", &["retransmitted_bytes"]),
    ("spurious", &["retransmitted_spurious"]),
    ("out_of_order", &["out_of_order"]),
    ("unseen", &["retransmitted_unseen"]),
    ("unique_octets", &["unique_bytes"]),
    ("segments", &[]),
];

#[test]
fn totals_and_connections_equal_the_ground_truth() {
    for specification in [
        "flows=200,new=100,packets=30k,seed=1",
        "flows=100,packets=30k,loss=8%,reorder=5%,duplicate=3%,routed=30%,spurious=2%,seed=2",
        "flows=50,packets=30k,keepalive=20%,zerowindow=20%,rst=30%,noid=50%,ipv6=60%,seed=3",
    ] {
        let (capture, truth) = lossy(specification);
        let report = json_of(&capture, &[]);
        let mut connections = BTreeMap::new();
        for connection in report["list"].as_array().unwrap() {
            let name = ["src_ip", "dst_ip", "src_port", "dst_port"]
                .map(|name| connection[name].as_str().map_or_else(|| connection[name].to_string(), String::from));
            assert!(connections.insert(name.join(" "), connection).is_none(), "{name:?} twice");
        }
        assert_eq!(connections.len(), truth.len());
        let mut sums = BTreeMap::new();
        for row in &truth {
            let name = ["src_ip", "dst_ip", "src_port", "dst_port"].map(|name| &row[name][..]).join(" ");
            let connection = connections[&name];
            for direction in ["fwd_", "rev_"] {
                let packets: u64 = row[&format!("{direction}packets")].parse().unwrap();
                assert_eq!(count(connection, &format!("{direction}packets")), packets, "{name}");
                for (column, fields) in EQUAL_FIELDS {
                    let expected: u64 = row[&format!("{direction}tcp_{column}")].parse().unwrap();
                    *sums.entry(column).or_insert(0) += expected;
                    if packets > 0 && !fields.is_empty() {
                        let found: u64 =
                            fields.iter().map(|field| count(connection, &format!("{direction}tcp_{field}"))).sum();
                        assert_eq!(found, expected, "{specification}: {direction}{column} of {name}");
                    }
                }
            }
        }
        let totals = &report["totals"];
        assert_eq!(count(totals, "packets"), sums["segments"]);
        assert_eq!(count(totals, "unique_bytes"), sums["unique_octets"]);
        assert_eq!(count(totals, "retransmitted_bytes"), sums["retransmitted_octets"]);
        assert_eq!(
            count(totals, "retransmitted_segments"),
            sums["retransmissions"] + sums["unseen"] + sums["syn_again"]
        );
        let classes = report["classes"].as_object().unwrap();
        let of = |class: &str| count(&classes[class], "packets");
        assert_eq!(of("retransmission"), sums["retransmissions"]);
        assert_eq!(of("retransmission_of_what_was_lost_before"), sums["unseen"]);
        assert_eq!(of("duplicate") + of("routed_duplicate"), sums["switched_copies"] + sums["routed_copies"]);
        assert_eq!(classes.values().map(|class| count(class, "packets")).sum::<u64>(), sums["segments"]);
    }
}

#[test]
fn fields_equal_those_of_weir_read() {
    let (capture, _) = lossy("flows=80,packets=30k,loss=5%,reorder=2%,duplicate=2%,rst=20%,seed=9");
    let whole = ["--idle", "9999h", "--active", "9999h", "-q", "-o", "json:-?fields=all"];
    let records = success([&["read", capture.name()], &whole[..]].concat());
    let name = |flow: &Value| format!("{} {} {}", flow["src_ip"], flow["src_port"], flow["start_time"]);
    let records: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let records: BTreeMap<String, &Value> = records.iter().map(|flow| (name(flow), flow)).collect();
    let report = json_of(&capture, &[]);
    let list = report["list"].as_array().unwrap();
    let of_report = |field: &str| matches!(field, "number" | "failure" | "delay") || field.ends_with("_delay_ns");
    assert_eq!(list.len(), records.len());
    for connection in list {
        let record = records[&name(connection)];
        for (field, value) in connection.as_object().unwrap().iter().filter(|(field, _)| !of_report(field)) {
            assert_eq!(value, &record[field], "{field} of {}", name(connection));
        }
    }
}

#[test]
fn csv_and_json_have_the_same_values() {
    let (capture, _) = lossy("flows=20,packets=5k,seed=5");
    let csv = printed(&capture, &["--csv", "-"]);
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    for connection in json_of(&capture, &[])["list"].as_array().unwrap() {
        let cells: Vec<&str> = lines.next().unwrap().split(',').collect();
        assert_eq!(cells.len(), names.len());
        for (name, cell) in names.iter().zip(cells) {
            let value = &connection[name];
            match value {
                Value::Null => assert_eq!(cell, "", "{name}"),
                Value::String(text) => assert_eq!(cell, text, "{name}"),
                // The parser of JSON rounds decimals.
                number => assert_eq!(serde_json::from_str::<Value>(cell).unwrap(), *number, "{name}"),
            }
        }
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn the_text_report_of_a_small_capture_is_complete() {
    let out = printed(&anomalies().saved(), &["--engine", "cpu", "--min-packets", "1"]);
    assert_eq!(out, TEXT_REPORT, "\n{out}");
}

/// A TCP segment with these sequence and acknowledgment numbers.
fn segment(from_client: bool, identification: u16, numbers: [u32; 2], control: u8, payload: usize) -> Vec<u8> {
    let (client, server) = (([192, 0, 2, 10], 40_000_u16), ([198, 51, 100, 20], 80_u16));
    let (from, to) = if from_client { (client, server) } else { (server, client) };
    let mut frame = testbed::tcp(from, to, control, payload);
    frame[38..46].copy_from_slice(&numbers.map(u32::to_be_bytes).concat());
    frame[18..20].copy_from_slice(&identification.to_be_bytes());
    frame
}

/// A connection with a duplicate, a retransmission whose original is not captured, and one with
/// additional octets.
fn anomalies() -> Pcap {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    const FIN: u8 = 17;
    Pcap::new()
        .frame(START, 0, &segment(true, 1, [1000, 0], SYN, 0))
        .frame(START, 20_000, &segment(false, 1, [5000, 1001], SYN | ACK, 0))
        .frame(START, 21_000, &segment(true, 2, [1001, 5001], ACK, 0))
        .frame(START, 22_000, &segment(true, 3, [1001, 5001], ACK, 100))
        .frame(START, 42_000, &segment(false, 2, [5001, 1101], ACK, 1000))
        .frame(START, 42_010, &segment(false, 2, [5001, 1101], ACK, 1000))
        .frame(START, 42_100, &segment(false, 4, [7001, 1101], ACK, 1000))
        .frame(START, 43_000, &segment(true, 4, [1101, 6001], ACK, 0))
        .frame(START, 142_000, &segment(false, 5, [6001, 1101], ACK, 1000))
        .frame(START, 342_000, &segment(false, 6, [7001, 1101], ACK, 1500))
        .frame(START, 343_000, &segment(true, 5, [1101, 8501], FIN, 0))
        .frame(START, 363_000, &segment(false, 7, [8501, 1102], FIN, 0))
        .frame(START, 364_000, &segment(true, 6, [1102, 8502], ACK, 0))
}

const TEXT_REPORT: &str = "\
found         7.69 % of the packets are duplicates that the capture made (1 of 13)
packets       13 received, 13 analysed
connections   1
payload       5600 octets, 3600 of them unique
span          2026-11-20 12:00:00.000 to 12:00:00.364 UTC (364ms)
retransmitted 22.2 % of 9 segments: 0 by clients (0 %), 2 by servers (33.3 %); 1 lost before the capture point, 0 spurious
delay         1 network
server side   round-trip time: median 20.0ms, 95th percentile 20.0ms (1 handshake)
client side   round-trip time: median 1.00ms, 95th percentile 1.00ms (1 handshake)

class                 packets  share payload octets  share
duplicate                   1 7.69 %           1000 17.9 %
SYN                         2 15.4 %              0    0 %
acknowledgment              3 23.1 %              0    0 %
in order                    5 38.5 %           2100 37.5 %
retransmission              1 7.69 %           1500 26.8 %
unseen retransmission       1 7.69 %           1000 17.9 %
all                        13                  5600

#           client → server           retrans  time delay   net % srv % cli %  ←resp   rtt→   ←rtt pkts→ ←pkts payload→ ←payload bit/s→ ←bit/s ←retr unseen dups
1 192.0.2.10:40000 → 198.51.100.20:80  22.2 % 364ms network    94          <1 20.0ms 1.00ms 20.0ms     6     7     100B    5500B   2197  76.9k     2      1    1
1 connection, by share of retransmitted segments
→: of the client; ←: of the server; retrans: retransmitted share of the segments with payload, SYN or FIN; time: from
the first to the last packet; delay: where most of the time went; net %: round trips, and transfer with retransmissions,
in % of the time; srv %: waiting for the server; cli %: waiting for the client; resp: longest response time; rtt:
shortest round-trip time between the capture point and this side; bit/s: throughput of the payload; retr: retransmitted
segments; unseen: retransmitted segments whose original was lost before the capture point; dups: duplicated by the
capture; k, M and G are decimal

note: duplicated by the capture: 1 packet (7.69 % of all), with 1000 B of payload; all counts of packets and octets include them, and so do sizes and rates of other tools
";
const SEGMENT_LIST: &str = "\
#1  192.0.2.10:40000 → 198.51.100.20:80, from 2026-11-20 12:00:00.000 UTC
frame: number in the capture, from 1; octets: first:end, relative to the SYN of their side, or to the octet before its
first segment; window: not scaled; →: from the client

   frame       seconds                   octets        ack window flags length     id ttl  class: details
       1      0.000000  →                   0:0             65535 S          0 0x0001  64  SYN
       2      0.020000  ←                   0:0          1  65535 SA         0 0x0001  64  SYN: round-trip time on the server side 20.0ms
       3      0.021000  →                   1:1          1  65535 A          0 0x0002  64  acknowledgment: round-trip time on the client side 1.00ms
       4      0.022000  →                 1:101          1  65535 A        100 0x0003  64  in order
       5      0.042000  ←                1:1001        101  65535 A       1000 0x0002  64  in order: acknowledges after 20.0ms; answers after 20.0ms
       6      0.042010  ←                1:1001        101  65535 A       1000 0x0002  64  duplicate: of frame 5
       7      0.042100  ←             2001:3001        101  65535 A       1000 0x0004  64  in order: opens hole 1001:2001, 1000 octets
       8      0.043000  →               101:101       1001  65535 A          0 0x0004  64  acknowledgment: acknowledges after 1.00ms
       9      0.142000  ←             1001:2001        101  65535 A       1000 0x0005  64  unseen retransmission: fills 1000 octets, none missing now
      10      0.342000  ←             2001:3501        101  65535 A       1500 0x0006  64  retransmission: repeats 2001:3001, 1000 octets; 500 octets new
      11      0.343000  →               101:101       3501  65535 AF         0 0x0005  64  in order
      12      0.363000  ←             3501:3501        102  65535 AF         0 0x0007  64  in order
      13      0.364000  →               102:102       3502  65535 A          0 0x0006  64  acknowledgment

client: 1 SYN, 3 acknowledgment, 2 in order; 100 octets, 0 of them retransmitted, 0 missing
server: 1 duplicate, 1 SYN, 3 in order, 1 retransmission, 1 unseen retransmission; 4500 octets, 1000 of them retransmitted, 0 missing
the batch engine reports the same
";

#[test]
fn a_connection_is_explained_segment_by_segment() {
    let capture = anomalies().saved();
    let keys = ["#1", "192.0.2.10:40000-198.51.100.20:80", "198.51.100.20:80-192.0.2.10:40000", ":40000", "192.0.2.10"];
    let (_, _, flows, _) = testbed::metered(&["read", capture.name(), "-q"]);
    let arrow = "192.0.2.10:40000 → 198.51.100.20:80";
    for key in keys.into_iter().chain(["1", arrow, flows[0]["community_id"].as_str().unwrap()]) {
        let out = printed(&capture, &["--explain", key]);
        assert_eq!(out, SEGMENT_LIST, "{key}:\n{out}");
    }
}

#[test]
fn a_syn_with_payload_counts_itself() {
    let capture = Pcap::new()
        .frame(START, 0, &segment(true, 1, [1000, 0], 2, 100))
        .frame(START, 1, &segment(true, 2, [1101, 0], 16, 10))
        .saved();
    let out = printed(&capture, &["--explain", "#1"]);
    let octets: Vec<&str> = out.lines().filter(|line| line.contains("  → ")).collect();
    // tshark says the same of its tcp.seq and tcp.nxtseq.
    assert!(octets[0].contains(" 0:101 ") && octets[1].contains(" 101:111 "), "{out}");
}

#[test]
fn packet_anomalies_are_part_of_the_totals() {
    // A TCP header that claims to be longer than the packet, and a packet that ends within the
    // ports.
    let mut odd = segment(true, 2, [1000, 0], 16, 0);
    odd[14 + 20 + 12] = 0xf0;
    let capture = Pcap::new()
        .frame(START, 0, &segment(true, 1, [1000, 0], 16, 0))
        .frame(START, 1, &odd)
        .frame(START, 2, &ipv4(6, [192, 0, 2, 10], [198, 51, 100, 20], &[0; 3]))
        .saved();
    let out = printed(&capture, &["--top", "0.002k"]);
    assert!(out.contains("\nanomaly       1 packet: The IP packet ends inside the transport header"), "{out}");
    assert!(out.contains("1 packet of TCP without ports: later fragments, captured too short, or an IP length"));
}

#[test]
fn segment_lists_add_up_to_the_report() {
    let (capture, _) = lossy("flows=20,new=10,packets=4k,loss=8%,reorder=5%,duplicate=4%,routed=40%,seed=8");
    let report = json_of(&capture, &[]);
    for connection in report["list"].as_array().unwrap().iter().take(30) {
        let out = printed(&capture, &["--explain", &format!("#{}", connection["number"])]);
        assert!(out.ends_with("\nthe batch engine reports the same\n"), "{out}");
        let lines: Vec<&str> =
            out.lines().filter(|line| line.contains(" → ") || line.contains(" ← ")).skip(1).collect();
        assert_eq!(lines.len() as u64, count(connection, "packets"));
        let retransmitted: u64 = ["fwd_", "rev_"]
            .map(|direction| connection[format!("{direction}tcp_retransmitted_packets")].as_u64().unwrap_or(0))
            .iter()
            .sum();
        let is_retransmission = |line: &&&str| line.contains("  retransmission");
        assert_eq!(lines.iter().filter(is_retransmission).count() as u64, retransmitted, "{out}");
        // Frames are in the order of the capture, and every duplicate names an earlier one.
        let frames: Vec<u64> =
            lines.iter().map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect();
        assert!(frames.is_sorted());
        for (line, frame) in lines.iter().zip(&frames).filter(|(line, _)| line.contains("duplicate: ")) {
            let original = line.split("of frame ").nth(1).expect(line).split(',').next().unwrap();
            assert!(original.parse::<u64>().unwrap() < *frame, "{line}");
        }
    }
}

/// Starts `weir`, calls `until`, which waits for a condition, then sends SIGINT and waits for the
/// end.
#[cfg(target_os = "linux")]
fn interrupted(arguments: &[&OsStr], until: impl FnOnce(&mut Child) -> Vec<u8>) -> (i32, String, String) {
    let mut command = testbed::command();
    let mut weir = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = until(&mut weir);
    testbed::signal(&weir, libc::SIGINT);
    let mut output = weir.wait_with_output().unwrap();
    printed.append(&mut output.stdout);
    output.stdout = printed;
    text_of(&output)
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_run_explains_no_connection() {
    // Enough packets that the run does not end before the signal, however slow the test is.
    let arguments = ["tcp", "synth:lossy,flows=100,packets=4G", "--engine", "cpu", "--explain", "#1"].map(OsStr::new);
    let (code, out, err) = interrupted(&arguments, |weir| {
        testbed::wait_for_handler_of_sigint(weir);
        Vec::new()
    });
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert_eq!(
        err,
        "weir: warning: interrupted: the rest of the input was not read\n\
         weir: error: --explain #1: nothing is explained, because the input was not read to its end\n"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_segment_list_is_not_compared() {
    let mut capture = Pcap::new();
    for number in 0..20_000 {
        capture = capture.frame(START, 0, &segment(true, 1, [1000 + number, 0], 16, 1));
    }
    let capture = capture.saved();
    let arguments = arguments!["tcp", capture, "--explain", "#1"];
    // The list is larger than a pipe, and the rest of it is read after the signal only.
    let (code, out, err) = interrupted(&arguments, |weir| {
        let mut begin = vec![0; 100];
        weir.stdout.as_mut().unwrap().read_exact(&mut begin).unwrap();
        begin
    });
    assert_eq!(
        (code, err.as_str()),
        (2, "weir: error: --explain #1: interrupted: the list of segments is incomplete\n")
    );
    assert!(out.ends_with("\ninterrupted: the list is incomplete and not compared with the batch engine\n"), "{out}");
}

#[test]
fn a_key_of_several_connections_or_none_is_refused() {
    let (capture, _) = lossy("flows=20,packets=4k,seed=5");
    for (key, reason) in [
        (":443", "choose one"),
        (":443", "'#20'"),
        (":65999", "no connection"),
        ("#0", "the list has"),
        ("#99999", "the list has"),
        ("#x", "number"),
    ] {
        assert_usage_errors(&[(&["tcp", capture.name(), "--explain", key], reason)]);
    }
    let (code, _, err) = weir_with_input(["tcp", "-", "--explain", "#1"], &anomalies().0);
    assert_eq!(code, 1);
    assert!(err.contains("more than once"), "{err}");
}

#[test]
fn connections_between_the_same_endpoints_are_explained_one_by_one() {
    let mut pcap = Pcap::new();
    for at in 0..3 {
        let (syn, isn) = (2, 1000 + 1_000_000 * at);
        pcap = pcap
            .frame(START + at, 0, &segment(true, 1, [isn, 0], syn, 0))
            .frame(START + at, 10, &segment(false, 1, [isn + 7, isn + 1], syn | 16, 0))
            .frame(START + at, 20, &segment(true, 2, [isn + 1, isn + 8], 16, 10 + at as usize))
            .frame(START + at, 30, &segment(false, 2, [isn + 8, isn + 1], 4, 0));
    }
    let capture = pcap.saved();
    assert_usage_errors(&[(&["tcp", capture.name(), "--explain", ":80"], "3 connections")]);
    for (at, (time, length)) in [("00.000", 10), ("01.000", 11), ("02.000", 12)].into_iter().enumerate() {
        let out = printed(&capture, &["--sort", "start", "--explain", &format!("#{}", at + 1)]);
        assert!(out.contains(&format!("12:00:{time}")) && out.contains(&format!(" 1:{} ", 1 + length)), "{out}");
        assert!(out.contains(&format!("\n{:>8} ", 4 * at + 1)), "{out}");
    }
}

#[test]
fn the_usual_rule_misses_retransmissions_with_other_boundaries() {
    let (capture, truth) = lossy("flows=100,packets=30k,loss=5%,before=0%,recut=100%,noid=0%,ipv6=0%,seed=7");
    let report = json_of(&capture, &["--compare"]);
    let (retransmissions, copies) = (&report["comparison"]["retransmissions"], &report["comparison"]["copies"]);
    let sum = |name: &str| -> u64 {
        truth
            .iter()
            .flat_map(|row| ["fwd_", "rev_"].map(|side| row[&format!("{side}tcp_{name}")].parse::<u64>().unwrap()))
            .sum()
    };
    // Some retransmissions are a FIN without payload.
    assert!((1..=sum("retransmissions")).contains(&count(retransmissions, "weir")), "{report}");
    assert!(count(retransmissions, "missed") > 0, "{report}");
    let found = |of: &Value| count(of, "rule") + count(of, "missed") + count(of, "mistaken");
    assert!(found(retransmissions) >= count(retransmissions, "weir"));
    // With IP identifications no duplicate is mistaken.
    assert_eq!((count(copies, "missed"), count(copies, "mistaken")), (0, 0), "{report}");
    let text = printed(&capture, &["--compare"]);
    assert!(text.contains("that rule") && text.contains("mistaken"), "{text}");
}

#[test]
fn the_page_is_well_formed_and_loads_nothing() {
    let (capture, _) = lossy("flows=50,packets=10k,loss=5%,duplicate=2%,seed=5");
    let strange = capture.beside("<b>&\"x\"'.pcap");
    std::fs::rename(&capture.path, &strange).unwrap();
    let (page, plots) = (capture.beside("report.html"), capture.beside("plots"));
    assert_eq!(success(arguments!["tcp", strange, "--compare", "-q", "--html", page, "--svg", plots]), "");
    let text = std::fs::read_to_string(page).unwrap();
    for reference in ["http:", "https:", "src=", "href=\"h", "@import", "url("] {
        assert!(!text.contains(reference), "{reference}");
    }
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let page = roxmltree::Document::parse_with_options(&text, options).unwrap();
    let count = |name: &str| page.descendants().filter(|node| node.has_tag_name(name)).count();
    // Three plots, and the time lines.
    assert_eq!((count("svg"), count("h1"), count("b")), (3 + count("details"), 1, 0));
    assert!(count("tr") > 30 && count("circle") > 10);
    assert!(page.descendants().any(|node| node.text().is_some_and(|text| text.contains("<b>&\"x\"'.pcap"))));
    let mut plotted = 0;
    for entry in std::fs::read_dir(plots).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let plot = roxmltree::Document::parse(&text).unwrap();
        assert_eq!(plot.root_element().tag_name().namespace(), Some("http://www.w3.org/2000/svg"));
        plotted += 1;
    }
    assert_eq!(plotted, 3);
}

#[test]
fn the_ledger_balances() {
    let capture = small().frame(START + 2, 0, &testbed::arp()).saved();
    let out = printed(&capture, &["--engine", "cpu"]);
    assert!(out.contains("13 received, 8 analysed, 4 not TCP, 1 not IP\n"), "{out}");
    let damaged = small().frame(START + 2, 0, &ipv4(6, [1; 4], [2; 4], &[])[..20]).saved();
    let (code, out, err) = weir(arguments!["tcp", damaged, "-v"]);
    assert_eq!(code, 0);
    assert!(
        out.contains("8 analysed, 4 not TCP, 1 refused by the decoder\n") && err.contains("- refused, ipv4_truncated"),
        "{out}{err}"
    );
    let (code, err, ledger) = ledger_of(["tcp", capture.name(), "-v", "--engine", "cpu"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("the ledger balances") && err.contains("CPU"), "{err}");
    let packets = ["received", "filtered", "metered"].map(|name| count(&ledger["packets"], name));
    assert_eq!(packets, [SMALL_PACKETS + 1, 4, 8]);
}

#[test]
fn the_memory_of_the_engine_is_reported_and_the_time_of_its_stages_logged() {
    let capture = small().saved();
    let report = json_of(&capture, &[]);
    let cost = &report["engine_cost"];
    assert_eq!(
        (cost["threads"].as_u64(), cost["segments"].as_u64(), cost["batches"].as_u64()),
        (Some(1), Some(8), Some(1))
    );
    // The table has 576 bytes per connection.
    assert!(cost["memory_bytes"].as_u64().unwrap() > 576, "{cost}");
    let (_, _, err) = weir(arguments!["tcp", capture, "-v", "--engine", "cpu"]);
    let (_, times) = err.split_once("analysis finished").unwrap_or_else(|| panic!("{err}"));
    for stage in ["pack", "hash", "sort", "gather", "classify"] {
        assert!(times.contains(&format!("stage {stage} ns_per_segment=")), "{stage}: {err}");
    }
    assert!(!times.contains("stage device "), "{err}");
}

#[test]
fn input_can_be_a_pipe_or_several_files() {
    let capture = anomalies().saved();
    let options = ["--engine", "cpu", "--min-packets", "1"];
    let from_file = printed(&capture, &options);
    let (code, from_pipe, err) = weir_with_input(["tcp", "-", "--engine", "cpu", "--min-packets", "1"], &anomalies().0);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(from_file, from_pipe);
    // With the same capture twice every packet has a duplicate.
    let report = json_of(&capture, &[capture.name()]);
    assert_eq!(count(&report["classes"]["duplicate"], "packets"), 1 + 13, "{report}");
}

#[test]
fn without_a_gpu_engine_gpu_fails_and_engine_auto_continues() {
    let capture = anomalies().saved();
    let (code, out, err) = tcp(&capture, &["--engine", "gpu", "--json", "-"]);
    if code == 0 {
        eprintln!("there is a GPU; its report must be the same");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["list"], json_of(&capture, &[])["list"]);
        return;
    }
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("--engine gpu") && err.contains("no GPU can be used"), "{err}");
    let (code, _, err) = tcp(&capture, &["--engine", "auto"]);
    assert!(code == 0 && err.contains("no GPU is used: ") && err.lines().count() == 1, "{err}");
    for quiet in [&[][..], &["--engine", "cpu"], &["--engine", "auto", "--quiet"]] {
        printed(&capture, quiet);
    }
    let (_, _, err) = tcp(&capture, &["-v"]);
    assert!(err.contains("no GPU is used"), "{err}");
}

#[test]
fn usage_errors_have_exit_code_1() {
    assert_usage_errors(&[
        (&["tcp"], "nothing to read"),
        (&["tcp", "-", "-"], "only once"),
        (&["tcp", "-", "--sort", "colour"], "no such number"),
        (&["tcp", "-", "--engine", "abacus"], "gpu"),
        (&["tcp", "-", "--explain", "#1", "--json", "-"], "--json"),
        (&["tcp", "-", "--json", "-", "--csv", "-"], "mixed"),
        (&["tcp", "-", "--top", "5x"], "use k, M or G"),
        (&["tcp", "/nonexistent.pcap"], "is the name right"),
        (&["tcp", "synth:lossy,packets=10", "--html", "/nonexistent/x.html"], "directory"),
        (&["tcp", "synth:lossy,packets=10", "--connections", "2G"], "of memory, and"),
        (&["tcp", "-", "--colour"], "--colour"),
    ]);
}

#[test]
fn packets_of_connections_beyond_the_limit_are_left_out_and_counted() {
    let server = ([192, 0, 2, 2], 80);
    let client = |port| ([192, 0, 2, 1], port);
    // Three pairs of ports; the first pair opens a second connection, the fourth one.
    let segments = [(1, 0x02), (2, 0x02), (3, 0x02), (1, 0x10), (3, 0x10), (1, 0x04), (1, 0x02), (1, 0x10), (2, 0x10)];
    let capture = (0..).zip(segments).fold(Pcap::new(), |capture, (at, (port, control))| {
        capture.frame(START, at, &testbed::tcp(client(port), server, control, 0))
    });
    let capture = capture.saved();
    for (limit, code, connections, left_out) in [("2", 2, 2, 4), ("3", 2, 3, 2), ("4", 0, 4, 0)] {
        let stats = capture.beside("ledger.json");
        let more = ["--connections", limit, "--json", "-", "--overwrite", "--stats", stats.to_str().unwrap()];
        let (found, out, err) = tcp(&capture, &more);
        assert_eq!(found, code, "{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        let packets = &report["packets"];
        assert_eq!((count(packets, "left_out"), count(packets, "analysed")), (left_out, 9 - left_out));
        assert_eq!(count(&report["totals"], "connections"), connections);
        assert_eq!(count(&report["totals"], "packets"), 9 - left_out);
        let warned = err.contains(&format!("{left_out} packets of TCP left out")) && err.contains("--connections");
        assert_eq!(warned, left_out > 0, "{err}");
        assert_eq!(read_ledger(&stats)["packets"]["dropped_cache_full"], left_out);
    }
    let (code, out, _) = tcp(&capture, &["--connections", "2"]);
    assert!(code == 2 && out.contains("5 analysed, 4 left out") && out.contains("split the capture"), "{out}");
}

/// A capture of SYNs, each from another address.
fn flood(packets: u32) -> SavedCapture {
    let mut capture = Pcap::new();
    for number in 0..packets {
        let [_, high, middle, low] = number.to_be_bytes();
        capture = capture.frame(START, 0, &testbed::tcp(([10, high, middle, low], 1), ([192, 0, 2, 2], 80), 2, 0));
    }
    capture.saved()
}

#[test]
fn a_long_list_has_one_heading_and_every_connection_once() {
    const PACKETS: usize = 2345;
    let capture = flood(PACKETS as u32);
    let page = capture.beside("page.html");
    let out = printed(&capture, &["--top", "0", "--failed", "all", "--html", page.to_str().unwrap()]);
    let rows: Vec<&str> = out.lines().filter(|line| line.contains(":1 → 192.0.2.2:80 ")).collect();
    assert_eq!(rows.len(), PACKETS);
    let heading: Vec<&str> = out.lines().filter(|line| line.contains("client → server")).collect();
    let [heading] = heading[..] else { panic!("{heading:?}") };
    for (row, rank) in rows.iter().zip(1..) {
        assert_eq!(row.split_whitespace().next(), Some(&*format!("{rank}")));
        assert_eq!(row.find('→'), heading.find('→'), "{heading}\n{row}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<tr><td class=\"l\" data-v=").count(), PACKETS);
    assert_eq!(page.matches("<th class=\"l\">client, server</th>").count(), 1);
    for rank in [1, 1000, 1001, 2000, 2001, PACKETS] {
        assert!(page.contains(&format!("<tr><td class=\"l\" data-v=\"{rank}\">")));
    }
}

/// The program measures its free memory, so that no allocation fails.
#[cfg(target_os = "linux")]
#[test]
fn with_little_memory_connections_are_left_out() {
    const PACKETS: u32 = 200_000;
    let capture = flood(PACKETS);
    // Text and page are written in chunks, so that they need little memory.
    let script =
        "ulimit -v 200000; exec \"$0\" tcp \"$1\" --engine cpu --top 0 --failed \"$4\" --html \"$2\" --json \"$3\"";
    let run = |failed: &str| {
        let [page, json] = ["html", "json"].map(|ending| capture.beside(&format!("{failed}.{ending}")));
        let weir = Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_weir")])
            .args([&capture.path, &page, &json])
            .arg(failed)
            .output()
            .unwrap();
        (text_of(&weir), page, json)
    };
    let ((code, out, _), _, json) = run("grouped");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!((code, &report["failure_groups"][0]["connections"]), (2, &report["totals"]["connections"]), "{out}");
    let ((code, out, err), page, json) = run("all");
    assert!(code == 2 && err.contains("packets of TCP left out"), "{code}: {err}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let [analysed, left_out] = ["analysed", "left_out"].map(|name| count(&report["packets"], name));
    assert!(analysed > 10_000, "{analysed}");
    assert_eq!(analysed + left_out, u64::from(PACKETS));
    assert_eq!(report["list"].as_array().map(Vec::len), Some(analysed as usize));
    assert_eq!(out.lines().filter(|line| line.contains(":1 → 192.0.2.2:80 ")).count(), analysed as usize);
    assert_eq!(
        std::fs::read_to_string(page).unwrap().matches("<tr><td class=\"l\" data-v=").count(),
        analysed as usize
    );
}

#[test]
fn damaged_input_has_exit_code_2_and_a_report_of_what_was_read() {
    let whole = anomalies().0;
    let capture = Pcap(whole[..whole.len() - 5].to_vec()).saved();
    let (code, out, err) = tcp(&capture, &[]);
    assert_eq!(code, 2);
    assert!(err.contains("12 packets before it were read") && err.contains("copy it again"), "{err}");
    assert!(out.contains("12 analysed"), "{out}");
    let err = failure(2, ["tcp", anomalies().saved().name(), "-q", "--csv", "/dev/full"]);
    assert!(err.contains("No space left"), "{err}");
}

#[test]
fn random_segments_cause_no_failure_and_no_mismatch() {
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    // Segments with random numbers, lengths and control bits, some of them cut or with one octet
    // changed.
    let mut pcap = Pcap::new();
    for _ in 0..3000 {
        let payload = if random() % 3 == 0 { 0 } else { random() as usize % 1400 };
        let numbers = [0, 1].map(|_| if random() % 2 == 0 { random() << 1 } else { random() % 5000 });
        let mut frame = segment(random() % 2 == 0, random() as u16 % 9, numbers, random() as u8 & 0x17, payload);
        if random() % 8 == 0 {
            let at = random() as usize % frame.len().min(60);
            frame[at] = random() as u8;
        }
        let captured = if random() % 16 == 0 { random() as usize % frame.len() } else { frame.len() };
        let seconds = if random() % 50 == 0 { random() << 1 } else { START + random() % 3 };
        pcap = pcap.record(seconds, random() % 1_000_000, &frame[..captured], frame.len() as u32);
    }
    let capture = pcap.saved();
    let [page, plots] = ["page.html", "plots"].map(|name| capture.beside(name));
    let (_, out, _) = weir(arguments!["tcp", capture, "--compare", "--html", page, "--svg", plots]);
    assert!(out.contains("received"), "{out}");
    for more in [["--by", "network"], ["--by", "server"], ["--where", "bytes > 2k and not port 1"]] {
        let stats = capture.beside("ledger.json");
        let options = ["--json", "-", "--overwrite", "--stats", stats.to_str().unwrap()];
        let (_, out, _) = tcp(&capture, &[&more[..], &options].concat());
        assert!(serde_json::from_str::<Value>(&out).is_ok(), "{out}");
        assert_eq!(read_ledger(&stats)["balanced"], true, "{more:?}");
    }
    for rank in 1..6 {
        let (code, out, err) = tcp(&capture, &["--explain", &format!("#{rank}")]);
        assert!(code != 0 && code != 1 || out.ends_with("the batch engine reports the same\n"), "{code}: {err}{out}");
        assert!(!out.contains("please report"), "{out}");
    }
}
