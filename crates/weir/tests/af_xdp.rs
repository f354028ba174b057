//! `weir probe` on an interface by AF_XDP: flows as from a file, an account to the packet, and nothing left behind.

mod common;
mod live;
#[path = "../../capture/tests/network/mod.rs"]
mod network;

use common::{Pcap, START, parts, weir};
use live::{Probe, flows, without_times};
use network::{LEFT, Sender, ip, network_of, until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the test into a network with four queues, alone: a process that another test starts would have a copy of what is open here
/// until it is on its way. `None`, with a loud reason, where that or AF_XDP is not permitted.
fn network() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !network_of(4, 1500) {
        return None;
    }
    let opened = weir_capture::open_live("af_xdp:right").map(drop).map_err(|error| error.to_string());
    opened.map_err(|error| eprintln!("SKIPPED: {error}")).ok().map(|()| alone)
}

/// Frames of captures that ship with Weir, and of synthetic conversations, as they were captured: TCP and UDP over IPv4. Which queue a
/// packet goes to is for the sending device to say here, by addresses and ports; but also by the flow label of IPv6 and the type of
/// ICMP, which are others in each direction, and by addresses alone where it is a fragment.
fn frames() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures");
    let mut frames = Vec::new();
    let captures = ["web.pcap", "dns.pcap.gz", "tls.pcap", "ssh.pcap"];
    let opened = captures.map(|name| weir_capture::open(&folder.join(name)).unwrap());
    let mix: Box<dyn weir_capture::Source> =
        Box::new(weir_trafficgen::TrafficGenerator::new("mix,flows=300,packets=10k").unwrap());
    for mut source in opened.into_iter().map(|source| source as Box<dyn weir_capture::Source>).chain([mix]) {
        while let Some(burst) = source.burst().unwrap() {
            let has_ports = |bytes: &[u8]| {
                let is_fragment = bytes[20] & 0x3f != 0 || bytes[21] != 0;
                bytes[12..14] == [8, 0] && matches!(bytes[23], 6 | 17) && !is_fragment
            };
            let chosen = burst.iter().filter(|frame| has_ports(frame.bytes));
            frames.extend(chosen.map(|frame| frame.bytes.to_vec()));
        }
    }
    frames
}

#[test]
fn live_flows_of_four_queues_are_those_of_the_same_packets_in_a_file_cut_or_not() {
    let Some(_alone) = network() else { return };
    let frames = frames();
    let folder = tempfile::tempdir().unwrap();
    let mut pcap = Pcap::new();
    for (number, frame) in frames.iter().enumerate() {
        pcap = pcap.frame(START, number as u32, frame);
    }
    let (capture, output) = (pcap.save(folder.path(), "sent.pcap"), folder.path().join("flows.json"));
    let json = format!("json:{}", output.display());
    let (code, _, told) = parts(&weir(["read", capture.to_str().unwrap(), "--layer2", "-q", "-o", &json]));
    assert_eq!(code, 0, "{told}");
    let expected = without_times(&flows(&output));
    assert!(expected.len() > 300, "{}", expected.len());

    for more in ["", ",attach=generic", ",snap=128", ",attach=generic,snap=128"] {
        let output = folder.path().join("live.json");
        let json = format!("json:{}", output.display());
        let probe = Probe::start(&format!("af_xdp:right{more}"), &["--layer2", "-o", &json]);
        let mut sender = Sender::new(LEFT);
        frames.iter().for_each(|frame| sender.send(frame));
        let (code, told, ledger) = probe.end();
        let flows = without_times(&flows(&output));
        assert_eq!(code, 0, "{more}: {told}");
        assert!(told.lines().next().unwrap().contains("do not reach this host's network stack"), "{told}");
        assert_eq!(ledger["packets"]["received"], frames.len(), "{more}: {ledger}");
        assert_eq!(ledger["bytes"]["received"], frames.iter().map(Vec::len).sum::<usize>(), "{more}");
        let without = |some: &[String], others: &[String]| -> Vec<String> {
            some.iter().filter(|line| !others.contains(line)).cloned().collect()
        };
        let (ours, theirs) = (without(&flows, &expected), without(&expected, &flows));
        assert!(flows == expected, "{more}: live, not in the file: {ours:#?}; in the file, not live: {theirs:#?}");
        assert!(!ip("link show dev right").contains("xdp"), "nothing is left at the interface");
    }
}

#[test]
fn weir_read_reads_one_queue_until_it_is_told_to_stop() {
    let Some(_alone) = network() else { return };
    let (code, _, told) = parts(&weir(["read", "-i", "af_xdp:right"]));
    assert_eq!(code, 1, "{told}");
    assert!(told.contains("use weir probe"), "{told}");

    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("ledger.json");
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["read", "-i", "af_xdp:right,queues=0", "-q", "--stats", stats.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = String::new();
    // It says what it does when it does it.
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    errors.read_line(&mut told).unwrap();
    assert!(told.contains("do not reach"), "{told}");
    let mut sender = Sender::new(LEFT);
    // Nobody knows before which queue a flow is on: of so many some are on it.
    let flows = (0..64).map(|port| common::udp(([192, 0, 2, 1], 1000 + port), ([192, 0, 2, 2], 53), 20));
    let sent = flows.map(|frame| sender.send(&frame)).count() as u64;
    // SAFETY: the process was started here, and nobody has waited for it yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let ledger: Value = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
    assert_eq!(ledger["balanced"], true, "{ledger}");
    let received = ledger["packets"]["received"].as_u64().unwrap();
    assert!(0 < received && received < sent, "{received} of {sent}");
}

#[test]
fn a_probe_that_is_killed_leaves_nothing_at_the_interface() {
    let Some(_alone) = network() else { return };
    let mut probe = Probe::start("af_xdp:right", &[]);
    assert!(ip("link show dev right").contains("xdp"));
    probe.signal(libc::SIGKILL);
    probe.child.wait().unwrap();
    until("the program goes", || !ip("link show dev right").contains("xdp"));
}
