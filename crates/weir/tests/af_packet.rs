//! `weir read` on an interface: flows as from a file, an account to the packet, and an end when it is told to.

mod common;
mod live;
#[path = "../../capture/tests/network/mod.rs"]
mod network;

use common::{Pcap, START, arp, parts, tcp, udp, weir};
use live::{Probe, flows, without_times};
use network::{LEFT, RIGHT, Sender, ip, is_captured, network, until};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The binary while it reads from the wire.
struct Reading {
    child: Child,
    folder: tempfile::TempDir,
}

impl Reading {
    /// Starts it, and waits until it takes in all that comes.
    fn start(source: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["read", "-i", source, "-v", "--layer2", "-o"])
            .arg(format!("json:{}", path("flows.json").display()))
            .arg("--stats")
            .arg(path("ledger.json"))
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reading = Self { child, folder };
        until("weir listens", || {
            assert!(reading.child.try_wait().unwrap().is_none(), "weir ended by itself");
            is_captured(RIGHT)
        });
        reading
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the process was started here, and nobody has waited for it yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    fn flows(&self) -> Vec<Value> {
        flows(&self.folder.path().join("flows.json"))
    }

    /// Waits for the end: exit code, what it said, flows, ledger.
    fn end(self) -> (i32, String, Vec<Value>, Value) {
        let flows = self.folder.path().join("flows.json");
        let ledger = self.folder.path().join("ledger.json");
        let (code, _, told) = parts(&self.child.wait_with_output().unwrap());
        let ledger: Value = serde_json::from_slice(&std::fs::read(ledger).unwrap()).unwrap();
        assert_eq!(ledger["balanced"], true, "{ledger}");
        (code, told, crate::flows(&flows), ledger)
    }
}

/// Frames of a capture that ships with Weir, or of synthetic traffic, as they were captured.
fn frames(name: &str) -> Vec<Vec<u8>> {
    let mut source = match name.strip_prefix("synth:") {
        Some(load) => Box::new(weir_trafficgen::TrafficGenerator::new(load).unwrap()),
        None => {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures");
            weir_capture::open(&folder.join(name)).unwrap()
        }
    };
    let mut frames = Vec::new();
    while let Some(burst) = source.burst().unwrap() {
        frames.extend(burst.iter().map(|frame| frame.bytes.to_vec()));
    }
    frames
}

fn saved(frames: &[Vec<u8>], folder: &Path) -> PathBuf {
    let mut pcap = Pcap::new();
    for (number, frame) in frames.iter().enumerate() {
        pcap = pcap.frame(START, number as u32, frame);
    }
    pcap.save(folder, "sent.pcap")
}

#[test]
fn live_flows_are_those_of_the_same_packets_in_a_file() {
    if !network() {
        return;
    }
    let names = ["web.pcap", "dns.pcap.gz", "ping.pcap.zst", "qinq.pcap", "mpls.pcap", "vxlan.pcap", "layer2.pcap"];
    for (number, name) in names.into_iter().chain(["synth:mix,flows=300,packets=10k"]).enumerate() {
        let frames = frames(name);
        let reading = Reading::start("af_packet:right", &["--decap"]);
        let mut sender = Sender::new(LEFT);
        frames.iter().for_each(|frame| sender.send(frame));
        reading.signal([libc::SIGINT, libc::SIGTERM][number % 2]);
        let (code, told, live, ledger) = reading.end();
        assert_eq!(code, 0, "{name}: {told}");
        assert!(!told.contains("interrupted"), "{told}");
        assert_eq!(ledger["packets"]["received"], frames.len(), "{name}: {ledger}");
        let octets: usize = frames.iter().map(Vec::len).sum();
        assert_eq!(ledger["bytes"]["received"], octets, "{name}");

        let folder = tempfile::tempdir().unwrap();
        let (capture, output) = (saved(&frames, folder.path()), folder.path().join("flows.json"));
        let json = format!("json:{}", output.display());
        let (code, _, told) =
            parts(&weir(["read", capture.to_str().unwrap(), "--layer2", "--decap", "-q", "-o", &json]));
        assert_eq!(code, 0, "{told}");
        assert_eq!(without_times(&live), without_times(&flows(&output)), "{name}");
    }
}

#[test]
fn flows_of_four_queues_are_those_of_the_same_packets_in_a_file() {
    if !network() {
        return;
    }
    // Fragments, tags, labels, tunnels, errors of ICMP, IPv6; and conversations enough for each queue.
    let names = [
        "web.pcap",
        "dns.pcap.gz",
        "tls.pcap",
        "ssh.pcap",
        "sctp.pcap",
        "ping.pcap.zst",
        "traceroute.pcap",
        "vlan.pcap",
        "qinq.pcap",
        "mpls.pcap",
        "vxlan.pcap",
        "gre.pcap",
        "4in6.pcap",
        "layer2.pcap",
        "synth:mix,flows=300,packets=10k",
    ];
    let frames: Vec<Vec<u8>> = names.into_iter().flat_map(frames).collect();
    let folder = tempfile::tempdir().unwrap();
    let (capture, output) = (saved(&frames, folder.path()), folder.path().join("flows.json"));
    let json = format!("json:{}", output.display());
    let (code, _, told) = parts(&weir(["read", capture.to_str().unwrap(), "--layer2", "-q", "-o", &json]));
    assert_eq!(code, 0, "{told}");
    let expected = without_times(&flows(&output));
    assert!(expected.len() > 300, "{}", expected.len());
    for layout in ["fused", "split"] {
        let probe = Probe::start("af_packet:right,queues=4", &["--layer2", "--layout", layout, "-o", &json]);
        let mut sender = Sender::new(LEFT);
        frames.iter().for_each(|frame| sender.send(frame));
        let (code, told, ledger) = probe.end();
        assert_eq!(code, 0, "{told}");
        assert_eq!(ledger["packets"]["received"], frames.len(), "{layout}: {ledger}");
        assert_eq!(ledger["bytes"]["received"], frames.iter().map(Vec::len).sum::<usize>(), "{layout}: {ledger}");
        let live = without_times(&flows(&output));
        let new: Vec<_> = live.iter().filter(|line| !expected.contains(line)).collect();
        assert!(live == expected, "{layout}: {} live, {} in the file; live only: {new:#?}", live.len(), expected.len());
    }
}

#[test]
fn what_was_lost_while_the_reader_was_away_is_in_the_ledger_to_the_packet() {
    if !network() {
        return;
    }
    const SENT: u64 = 5000;
    let reading = Reading::start("af_packet:right,block=4KiB,blocks=8", &[]);
    let mut sender = Sender::new(LEFT);
    let question = udp(([192, 0, 2, 1], 4000), ([192, 0, 2, 2], 53), 30);
    sender.send(&question);
    reading.signal(libc::SIGSTOP);
    (1..SENT).for_each(|_| sender.send(&question));
    reading.signal(libc::SIGCONT);
    reading.signal(libc::SIGINT);
    let (code, told, flows, ledger) = reading.end();
    assert_eq!(code, 2, "{told}");
    let count = |key: &str| ledger["packets"][key].as_u64().unwrap();
    assert!(count("dropped_kernel") > SENT / 2, "{ledger}");
    assert_eq!(count("received"), SENT, "{ledger}");
    assert_eq!(count("metered") + count("dropped_kernel"), SENT, "{ledger}");
    assert_eq!(flows.iter().map(|flow| flow["packets"].as_u64().unwrap()).sum::<u64>(), count("metered"));
    assert!(told.contains("dropped"), "{told}");
}

#[test]
fn a_flow_on_a_quiet_link_shows_when_it_has_ended_and_not_when_the_next_packet_comes() {
    if !network() {
        return;
    }
    let mut reading = Reading::start("af_packet:right", &["--idle", "500ms"]);
    let mut sender = Sender::new(LEFT);
    let (client, server) = (([192, 0, 2, 1], 4000), ([192, 0, 2, 2], 80));
    for (number, frames) in [
        vec![udp(client, server, 30), udp(server, client, 90)],
        vec![tcp(client, server, 0x02, 0), tcp(server, client, 0x12, 0), tcp(server, client, 0x14, 0)],
        vec![arp()],
    ]
    .into_iter()
    .enumerate()
    {
        frames.iter().for_each(|frame| sender.send(frame));
        until("the flow shows", || reading.flows().len() > number);
        assert!(reading.child.try_wait().unwrap().is_none(), "it shows while weir goes on");
    }
    reading.signal(libc::SIGTERM);
    let (code, told, flows, ledger) = reading.end();
    assert_eq!((code, flows.len()), (0, 3), "{told}");
    assert_eq!(ledger["packets"]["received"], 6);
}

#[test]
fn an_interface_that_is_removed_ends_the_run_with_its_flows_kept_and_its_trouble_told() {
    if !network() {
        return;
    }
    let reading = Reading::start("af_packet:right", &[]);
    let mut sender = Sender::new(LEFT);
    sender.send(&udp(([192, 0, 2, 1], 4000), ([192, 0, 2, 2], 53), 30));
    ip("link delete right");
    let (code, told, flows, ledger) = reading.end();
    assert_eq!((code, flows.len()), (2, 1), "{told}");
    assert!(told.contains("af_packet:right: the interface was removed"), "{told}");
    assert!(!told.contains("copy it again"), "{told}");
    assert_eq!(ledger["packets"]["metered"], 1);
}

#[test]
fn several_queues_are_refused_as_one_thread_reads() {
    if !network() {
        return;
    }
    let (code, _, told) = parts(&weir(["read", "-i", "af_packet:right,queues=2"]));
    assert_eq!(code, 1);
    assert!(told.contains("leave out queues=N"), "{told}");
}
