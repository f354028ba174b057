//! Options records that the binary sends, as tshark decodes them, agree with the ledger.

use serde_json::Value;
use std::collections::HashMap;
use std::io::Write;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testbed::{Nfcapd, Pcap, arp, command, free_port, ipv4, is_installed, number, read_flows, read_ledger, udp};

/// 2000 UDP flows, and after each ten of them an ARP frame and one of an unknown IP version.
fn capture() -> Pcap {
    let mut frames = Vec::new();
    for number in 0..2000_u16 {
        let [high, low] = number.to_be_bytes();
        frames.push(udp(([10, 0, high, low], 5000), ([10, 1, 0, 1], 53), 40));
        if number % 10 == 0 {
            let mut damaged = frames[0].clone();
            damaged[14] = 0x15;
            frames.extend([arp(), damaged]);
        }
    }
    Pcap::of(&frames)
}

/// Datagrams that a run sends to a port, as a capture.
fn datagrams_of(run: &mut Command, listener: &UdpSocket) -> Pcap {
    listener.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut child = run.spawn().unwrap();
    let (mut buffer, mut frames, mut ended) = ([0; 2000], Vec::new(), false);
    loop {
        match listener.recv(&mut buffer) {
            Ok(octets) => {
                let port = listener.local_addr().unwrap().port().to_be_bytes();
                let length = (8 + octets as u16).to_be_bytes();
                let datagram = [&port[..], &port, &length, &[0, 0], &buffer[..octets]].concat();
                frames.push(ipv4(17, [127, 0, 0, 1], [127, 0, 0, 1], &datagram));
            }
            Err(_) if ended => break,
            Err(_) => ended = child.try_wait().unwrap().is_some(),
        }
    }
    assert!(child.wait().unwrap().code().is_some());
    Pcap::of(&frames)
}

/// The last value of each field in the verbose text of tshark.
fn last_values(capture: &Path, port: u16) -> HashMap<String, String> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-V", "-O", "cflow", "-d", &format!("udp.port=={port},cflow"), "-r"]).arg(capture);
    let text = String::from_utf8(tshark.output().unwrap().stdout).unwrap();
    assert!(!text.contains("Malformed"), "{text}");
    let values = text.lines().filter_map(|line| line.trim().split_once(": "));
    values.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn assert_figures(values: &HashMap<String, String>, ledger: &Value, ipfix: bool) {
    let value = |name: &str| values.get(name).unwrap_or_else(|| panic!("{name} in {values:?}")).as_str();
    let count = |name: &str| value(name).parse::<u64>().unwrap();
    assert_eq!(count("Sampling interval"), 4);
    if ipfix {
        assert_eq!(value("Selector Algorithm"), "Random n-out-of-N Sampling (3)");
        assert_eq!((count("Sampling Size"), count("Sampling Population")), (1, 4));
    }
    let sink = &ledger["sinks"][0];
    // All but the message that has these figures.
    assert_eq!(count("PacketsExp") + 1, number(&sink["messages"]));
    assert_eq!(count("FlowsExp"), number(&sink["wire_records"]));
    assert!((1..400).contains(&(number(&sink["octets"]) - count("OctetsExp"))));
    for (name, key) in [("Ignored Packets", "packets"), ("Ignored Octets", "bytes")] {
        let (dropped, refused) = (&ledger[key]["dropped_cache_full"], &ledger[key]["refused"]["ip_version"]);
        assert!(number(dropped) > 0 && number(refused) > 0, "{ledger}");
        assert_eq!(count(name), number(dropped) + number(refused), "{name}");
    }
    for name in ["Not Sent Flows", "Not Sent Packets", "Not Sent Octets"] {
        assert_eq!(count(name), 0);
    }
}

#[test]
fn sampling_and_statistics_of_a_run_with_drops_agree_with_the_ledger() {
    if !is_installed("tshark") {
        return;
    }
    let capture = capture().saved();
    let stats = capture.beside("ledger.json");
    for sink in ["ipfix+udp", "ipfix+udp?template=full", "netflow9+udp", "netflow9+udp?template=full"] {
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (scheme, settings) = sink.split_once('?').unwrap_or((sink, ""));
        let output = format!("{scheme}://127.0.0.1:{port}?{settings}");
        let mut probe = command();
        probe.args(["probe", "-q", "--sample", "4", "--flows", "8", "--full", "drop", "-i"]);
        probe.arg(&capture).args(["-o", &output, "--stats"]).arg(&stats).stderr(std::process::Stdio::null());
        let datagrams = datagrams_of(&mut probe, &listener).save(capture.folder.path(), "export.pcap");
        let ledger = read_ledger(&stats);
        assert_figures(&last_values(&datagrams, port), &ledger, scheme == "ipfix+udp");
    }
}

#[test]
fn nfcapd_multiplies_the_counters_of_a_sampled_run() {
    if !is_installed("nfcapd") || !is_installed("nfdump") {
        return;
    }
    let capture = capture().saved();
    let stats = capture.beside("ledger.json");
    for scheme in ["ipfix+udp", "netflow9+udp"] {
        let port = free_port();
        let mut collector = Nfcapd::start(port);
        let bound = format!("0100007F:{port:04X} ");
        while !std::fs::read_to_string("/proc/net/udp").unwrap().contains(&bound) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut probe = command();
        probe
            .args(["probe", "-q", "--sample", "4", "-i"])
            .arg(&capture)
            .args(["-o", &format!("{scheme}://127.0.0.1:{port}")]);
        assert!(probe.arg("--stats").arg(&stats).output().unwrap().status.code().is_some());
        let metered = number(&read_ledger(&stats)["packets"]["metered"]);
        let summary = collector.dump(&["-I"]);
        let packets = format!("Packets: {}", 4 * metered);
        assert!(summary.lines().any(|line| line == packets), "{packets} by {scheme}: {summary}");
        assert!(summary.lines().any(|line| line == "Sequence failures: 0"), "{summary}");
    }
}

#[test]
fn an_ipfix_file_ends_with_the_statistics_of_the_run() {
    if !is_installed("tshark") {
        return;
    }
    let capture = capture().saved();
    let (stats, file) = (capture.beside("ledger.json"), capture.beside("flows.ipfix"));
    let mut probe = command();
    probe.args(["probe", "-q", "--sample", "4", "--flows", "8", "--full", "drop", "-i"]);
    probe.arg(&capture).arg("-o").arg(format!("ipfix:{}", file.display())).arg("--stats").arg(&stats);
    probe.output().unwrap();
    let ledger = read_ledger(&stats);
    assert_figures(&last_values(&file, 4739), &ledger, true);
}

/// A pcapng file with two named interfaces, one with control characters, and a packet from each.
fn two_interfaces() -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let mut block = kind.to_le_bytes().to_vec();
        let length = 12 + body.len().next_multiple_of(4) as u32;
        block.extend(length.to_le_bytes());
        block.extend(body);
        block.resize(length as usize - 4, 0);
        block.extend(length.to_le_bytes());
        block
    };
    let interface = |name: &[u8; 4]| block(1, &[&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 4, 0], &name[..]].concat());
    let packet = |interface: u32, frame: &[u8]| {
        let length = frame.len() as u32;
        let words = [interface, 0, 1_000_000, length, length].map(u32::to_le_bytes).concat();
        block(6, &[&words, frame].concat())
    };
    let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let first = udp(([10, 0, 0, 1], 5000), ([10, 1, 0, 1], 53), 40);
    let second = udp(([10, 0, 0, 2], 5000), ([10, 1, 0, 1], 53), 40);
    [block(0x0a0d_0d0a, &section), interface(b"lan0"), interface(b"w\x1b\x07n"), packet(0, &first), packet(1, &second)]
        .concat()
}

#[test]
fn all_formats_number_interfaces_from_1_and_the_names_follow() {
    if !is_installed("tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("two.pcapng");
    std::fs::write(&input, two_interfaces()).unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut read = command();
    read.args(["read", "-q"]).arg(&input);
    for format in ["json", "csv", "ipfix"] {
        read.arg("-o").arg(format!("{format}:{}", path(format).display()));
    }
    assert!(read.status().unwrap().success());
    let mut json: Vec<u64> = read_flows(&path("json")).iter().map(|flow| number(&flow["interface"])).collect();
    json.sort();
    assert_eq!(json, [1, 2]);
    let csv = std::fs::read_to_string(path("csv")).unwrap();
    let mut lines = csv.lines();
    let column = lines.next().unwrap().split(',').position(|name| name == "interface").unwrap();
    let mut csv: Vec<&str> = lines.map(|line| line.split(',').nth(column).unwrap()).collect();
    csv.sort();
    assert_eq!(csv, ["1", "2"]);
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-e", "cflow.inputint", "-e", "cflow.if_name", "-r"]).arg(path("ipfix"));
    let text = String::from_utf8(tshark.output().unwrap().stdout).unwrap();
    // Options records have messages of their own, the last of which ends the file.
    let (mut records, named): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.ends_with('\t'));
    assert_eq!(named.last(), Some(&"1,2\tlan0,w\u{fffd}\u{fffd}n"), "{text}");
    records.retain(|line| line.len() > 1);
    assert!(matches!(records[..], ["1,2\t" | "2,1\t"]), "{text}");
}

/// Ignored packets (RFC 7011 section 4.2) in a datagram of Weir.
fn ignored_packets(datagram: &[u8]) -> Option<u64> {
    let word = |at: usize| u16::from_be_bytes([datagram[at], datagram[at + 1]]);
    let netflow9 = word(0) == 9;
    let seconds = if netflow9 { &datagram[8..12] } else { &datagram[4..8] };
    assert!(u32::from_be_bytes(seconds.try_into().unwrap()) > 1_000_000_000, "the export time is set");
    let mut at = if netflow9 { 20 } else { 16 };
    while at < datagram.len() {
        if word(at) == 260 {
            return Some(u64::from_be_bytes(datagram[at + 8..at + 16].try_into().unwrap()));
        }
        at += usize::from(word(at + 2));
    }
    None
}

#[test]
fn a_run_without_flow_records_reports_its_ignored_packets() {
    let mut damaged = udp(([10, 0, 0, 1], 5000), ([10, 1, 0, 1], 53), 40);
    damaged[14] = 0x15;
    let capture = Pcap::of(&vec![damaged; 200]).saved();
    let octets = std::fs::read(capture.name()).unwrap();
    let frame = &octets[octets.len() - (octets.len() - 24) / 200..];
    for scheme in ["ipfix+udp", "netflow9+udp"] {
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        listener.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let sink = format!("{scheme}://{}", listener.local_addr().unwrap());
        let mut buffer = [0; 2000];
        let mut next = || {
            let octets = listener.recv(&mut buffer).expect("a datagram");
            ignored_packets(&buffer[..octets])
        };
        // While the probe is idle, and at the end.
        let mut probe = command();
        probe.args(["probe", "-q", "-i", "-", "--interval", "200ms", "-o", &sink]).stdin(Stdio::piped());
        let mut child = probe.stderr(Stdio::null()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(&octets).unwrap();
        let (started, mut frames) = (Instant::now(), 200);
        while next().unwrap_or(0) == 0 {
            assert!(started.elapsed() < Duration::from_secs(20), "{scheme}");
            // A pipeline publishes its counts between two reads of a pipe.
            input.write_all(frame).unwrap();
            frames += 1;
        }
        drop(input);
        while next() != Some(frames) {}
        assert!(child.wait().unwrap().code().is_some());
        listener.set_nonblocking(true).unwrap();
        while listener.recv(&mut [0; 2000]).is_ok() {}
        listener.set_nonblocking(false).unwrap();
        // Too short for anything but the end.
        assert!(command().args(["read", "-q", capture.name(), "-o", &sink]).output().unwrap().status.code().is_some());
        while next() != Some(200) {}
    }
}
