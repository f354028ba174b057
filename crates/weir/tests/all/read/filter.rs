//! `--filter`: the same packets as tcpdump, the counters, and errors.

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use testbed::{Pcap, START, captures, failure, is_installed, ledger_of, small, success, tcp, udp};

/// Packets that tcpdump selects and their octets on the wire; `None` if it rejects the expression.
fn tcpdump(capture: &Path, expression: &str) -> Option<(u64, u64)> {
    let output = Command::new("tcpdump").arg("-r").arg(capture).args(["-w", "-", expression]).output().unwrap();
    if !output.status.success() {
        return None;
    }
    let mut source = weir_capture::from_bytes(Path::new("tcpdump"), output.stdout).unwrap();
    let (mut packets, mut octets) = (0, 0);
    while let Some(burst) = source.burst().unwrap() {
        packets += burst.len() as u64;
        octets += burst.iter().map(|frame| u64::from(frame.wire_bytes)).sum::<u64>();
    }
    Some((packets, octets))
}

/// Exit code, standard error and ledger of a command with a filter.
fn ledger(command: &str, capture: &str, expression: &str) -> (i32, String, Value) {
    ledger_of([command, capture, "-f", expression, "-q"])
}

fn number(ledger: &Value, side: &str, line: &str) -> u64 {
    ledger[side][line].as_u64().unwrap()
}

#[test]
fn filters_select_the_same_packets_as_tcpdump() {
    if !is_installed("tcpdump") {
        return;
    }
    const EXPRESSIONS: &str = "tcp; udp; icmp or icmp6; ip6; tcp port 80 or tcp port 443; host 192.0.2.1; \
                               net 192.0.2.0/24 and not tcp; greater 200; less 100; \
                               tcp[tcpflags] & (tcp-syn|tcp-fin) != 0; ip[2:2] > 100; ip[6:2] & 0x1fff != 0; vlan; \
                               vlan and tcp; mpls and ip; ether multicast or arp";
    let (mut compared, mut kept_some, mut filtered_some) = (0, 0, 0);
    for file in std::fs::read_dir(captures()).unwrap() {
        let path = file.unwrap().path();
        // tcpdump reads neither compressed captures nor those of several link types.
        if !matches!(path.extension().and_then(|end| end.to_str()), Some("pcap" | "pcapng")) {
            continue;
        }
        let Some(whole) = tcpdump(&path, "") else { continue };
        for expression in EXPRESSIONS.split("; ") {
            let Some((packets, octets)) = tcpdump(&path, expression) else { continue };
            let (_, err, ledger) = ledger("read", path.to_str().unwrap(), expression);
            let kept = |side| number(&ledger, side, "received") - number(&ledger, side, "filtered");
            let case = format!("{}, {expression}: {err}", path.display());
            assert_eq!((number(&ledger, "packets", "received"), number(&ledger, "bytes", "received")), whole, "{case}");
            assert_eq!((kept("packets"), kept("bytes")), (packets, octets), "{case}");
            compared += 1;
            kept_some += u32::from(packets > 0);
            filtered_some += u32::from(packets < whole.0);
        }
    }
    assert!(compared > 300 && kept_some > 100 && filtered_some > 100, "{compared} {kept_some} {filtered_some}");
}

#[test]
fn weir_tcp_applies_the_filter_and_counts_filtered_packets() {
    let capture = small().saved();
    let (code, err, ledger) = ledger("tcp", capture.name(), "src host 192.0.2.10");
    assert_eq!((code, err.as_str()), (0, ""));
    // The client sends 1 packet to the name server, 1 ping and 5 packets to the server.
    let packets = |line| number(&ledger, "packets", line);
    assert_eq!((packets("received"), packets("filtered"), packets("metered")), (12, 5 + 2, 5));
    let out = success(["tcp", capture.name(), "--filter", "tcp"]);
    assert!(out.contains("12 received, 8 analysed, 4 filtered"), "{out}");
    // Packet numbers are those of the whole capture.
    let out = success(["tcp", capture.name(), "-f", "tcp", "--explain", "#1"]);
    assert!(out.lines().any(|line| line.trim_start().starts_with("3 ")), "{out}");
}

#[test]
fn the_summary_shows_the_number_of_filtered_packets() {
    let out = success(["read", small().saved().name(), "-f", "udp"]);
    assert!(out.contains("\npackets    12 received, 10 filtered, 2 metered\n"), "{out}");
}

#[test]
fn a_filter_with_a_syntax_error_has_exit_code_1_and_opens_no_output() {
    let capture = small().saved();
    let output = capture.beside("flows.csv");
    std::fs::write(&output, "precious").unwrap();
    let sink = format!("csv:{}", output.display());
    for command in [&["read", "-o", sink.as_str()][..], &["tcp", "--csv", output.to_str().unwrap()]] {
        let err = failure(1, [command, &[capture.name(), "-f", "tcp prot 80"]].concat());
        assert!(err.contains("syntax error") && err.contains("tcp prot 80"), "{err}");
        assert_eq!(std::fs::read_to_string(&output).unwrap(), "precious");
    }
}

#[test]
fn frames_of_a_link_type_without_the_filtered_field_are_filtered_with_a_warning() {
    let frame = udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 10);
    let mut raw = Pcap::new().frame(START, 0, &frame[14..]).frame(START, 1, &frame[14..]);
    raw.0[20..24].copy_from_slice(&101_u32.to_le_bytes());
    let (code, err, ledger) = ledger("read", raw.saved().name(), "vlan 7");
    assert_eq!((code, number(&ledger, "packets", "filtered")), (2, 2));
    assert_eq!(err.matches("link type 101 RAW").count(), 1, "{err}");
}

#[test]
fn filters_apply_to_outer_headers_with_decapsulation() {
    let inner = tcp(([10, 0, 0, 1], 1000), ([10, 0, 0, 2], 80), 0x10, 10);
    let outer = testbed::ipv4(4, [192, 0, 2, 1], [192, 0, 2, 2], &inner[14..]);
    let capture = Pcap::new().frame(START, 0, &outer).saved();
    for (expression, kept) in [("host 192.0.2.1", 1), ("host 10.0.0.1", 0), ("tcp", 0), ("ip proto 4", 1)] {
        let (code, _, ledger) = ledger_of(["read", capture.name(), "--decap", "-qf", expression]);
        assert_eq!((code, number(&ledger, "packets", "metered")), (0, kept), "{expression}");
    }
}
