//! `--filter`, beside tcpdump.

mod common;
use common::{Pcap, START, parts, small, tcp, udp, weir};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folder of the captures that ship with Weir.
fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures")
}

/// Packets, and their octets on the wire, that tcpdump keeps; `None` if it does not take the expression.
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

fn has_tcpdump() -> bool {
    let found = Command::new("tcpdump").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("SKIPPED: there is no tcpdump to compare with");
    }
    found
}

/// Exit code, standard error and ledger of a command with a filter.
fn ledger(command: &str, capture: &Path, expression: &str) -> (i32, String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("ledger.json");
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.arg(command).arg(capture).args(["-f", expression, "-q", "--stats"]).arg(&stats);
    let (code, _, err) = parts(&weir.stdin(Stdio::null()).output().unwrap());
    let ledger: Value = serde_json::from_slice(&std::fs::read(stats).unwrap_or_else(|_| panic!("{err}"))).unwrap();
    assert_eq!(ledger["balanced"], true, "{ledger}");
    (code, err, ledger)
}

fn number(ledger: &Value, side: &str, line: &str) -> u64 {
    ledger[side][line].as_u64().unwrap()
}

#[test]
fn it_keeps_what_tcpdump_keeps_of_every_capture() {
    if !has_tcpdump() {
        return;
    }
    const EXPRESSIONS: [&str; 16] = [
        "tcp",
        "udp",
        "icmp or icmp6",
        "ip6",
        "tcp port 80 or tcp port 443",
        "host 192.0.2.1",
        "net 192.0.2.0/24 and not tcp",
        "greater 200",
        "less 100",
        "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
        "ip[2:2] > 100",
        "ip[6:2] & 0x1fff != 0",
        "vlan",
        "vlan and tcp",
        "mpls and ip",
        "ether multicast or arp",
    ];
    let (mut compared, mut kept_some, mut filtered_some) = (0, 0, 0);
    for file in std::fs::read_dir(captures()).unwrap() {
        let path = file.unwrap().path();
        // tcpdump reads neither compressed captures nor those of several link types.
        if !matches!(path.extension().and_then(|end| end.to_str()), Some("pcap" | "pcapng")) {
            continue;
        }
        let Some(whole) = tcpdump(&path, "") else { continue };
        for expression in EXPRESSIONS {
            let Some((packets, octets)) = tcpdump(&path, expression) else { continue };
            let (_, err, ledger) = ledger("read", &path, expression);
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
fn tcp_analysis_takes_it_too_and_tells() {
    let folder = tempfile::tempdir().unwrap();
    let path = small().save(folder.path(), "small.pcap");
    let (code, err, ledger) = ledger("tcp", &path, "src host 192.0.2.10");
    assert_eq!((code, err.as_str()), (0, ""));
    // To the name server 1, pings 1, to the server 5: of 12 packets, 3 + 1 + 1 come from elsewhere.
    let packets = |line| number(&ledger, "packets", line);
    assert_eq!((packets("received"), packets("filtered"), packets("metered")), (12, 5 + 2, 5));
    let (code, out, err) = parts(&weir(["tcp".as_ref(), path.as_os_str(), "--filter".as_ref(), "tcp".as_ref()]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("12 received, 8 analysed, 4 filtered"), "{out}");
    // Explained are the same packets, with their numbers in the whole capture.
    let explained =
        ["tcp".as_ref(), path.as_os_str(), "-f".as_ref(), "tcp".as_ref(), "--explain".as_ref(), "#1".as_ref()];
    let (code, out, err) = parts(&weir(explained));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.lines().any(|line| line.trim_start().starts_with("3 ")), "{out}");
}

#[test]
fn the_summary_says_how_many_were_filtered() {
    let folder = tempfile::tempdir().unwrap();
    let path = small().save(folder.path(), "small.pcap");
    let (code, out, err) = parts(&weir(["read".as_ref(), path.as_os_str(), "-f".as_ref(), "udp".as_ref()]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("\npackets    12 received, 10 filtered, 2 metered\n"), "{out}");
}

#[test]
fn a_filter_that_does_not_compile_is_exit_code_1_before_any_output_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = small().save(folder.path(), "small.pcap");
    let output = folder.path().join("flows.csv");
    std::fs::write(&output, "precious").unwrap();
    let sink = format!("csv:{}", output.display());
    for command in [&["read", "-o", sink.as_str()][..], &["tcp", "--csv", output.to_str().unwrap()]] {
        let (code, out, err) = parts(&weir([command, &[path.to_str().unwrap(), "-f", "tcp prot 80"]].concat()));
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(err.contains("syntax error") && err.contains("tcp prot 80"), "{err}");
        assert_eq!(std::fs::read_to_string(&output).unwrap(), "precious");
    }
}

#[test]
fn frames_for_which_a_filter_means_nothing_are_filtered_and_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let frame = udp(([192, 0, 2, 1], 1), ([192, 0, 2, 2], 2), 10);
    let mut raw = Pcap::new().frame(START, 0, &frame[14..]).frame(START, 1, &frame[14..]);
    raw.0[20..24].copy_from_slice(&101_u32.to_le_bytes());
    let path = raw.save(folder.path(), "raw.pcap");
    let (code, err, ledger) = ledger("read", &path, "vlan 7");
    assert_eq!((code, number(&ledger, "packets", "filtered")), (2, 2));
    assert_eq!(err.matches("link type 101 (RAW)").count(), 1, "{err}");
}

#[test]
fn a_filter_is_judged_on_outer_headers_whatever_is_decapsulated() {
    let folder = tempfile::tempdir().unwrap();
    let inner = tcp(([10, 0, 0, 1], 1000), ([10, 0, 0, 2], 80), 0x10, 10);
    let outer = common::ipv4(4, [192, 0, 2, 1], [192, 0, 2, 2], &inner[14..]);
    let path = Pcap::new().frame(START, 0, &outer).save(folder.path(), "tunnel.pcap");
    for (expression, kept) in [("host 192.0.2.1", 1), ("host 10.0.0.1", 0), ("tcp", 0), ("ip proto 4", 1)] {
        let folder = tempfile::tempdir().unwrap();
        let stats = folder.path().join("ledger.json");
        let run = ["read", path.to_str().unwrap(), "--decap", "-qf", expression, "--stats", stats.to_str().unwrap()];
        assert_eq!(parts(&weir(run)).0, 0);
        let ledger: Value = serde_json::from_slice(&std::fs::read(stats).unwrap()).unwrap();
        assert_eq!(number(&ledger, "packets", "metered"), kept, "{expression}");
    }
}
