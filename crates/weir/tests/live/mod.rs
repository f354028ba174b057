//! Helpers for tests on network interfaces: a running `weir probe`, traffic for it, and comparable
//! flow records.
#![allow(dead_code)]

use crate::common::{JsonOutput, Pcap, captures, command, read_ledger, request_and_response, signal, weir};
use crate::network::{Sender, ip, until};
use serde_json::Value;
use std::fs;
use std::process::{Child, Stdio};

/// A running `weir probe`. It is killed on drop.
pub struct Probe {
    pub child: Child,
    folder: tempfile::TempDir,
}

impl Probe {
    /// Starts `weir probe` on a source, and waits until it receives.
    pub fn start(source: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = command()
            .args(["probe", "-i", source, "--interval", "200ms"])
            .args(if options.contains(&"--flows") { &[][..] } else { &["--flows", "10k"] })
            .arg("--stats")
            .arg(folder.path().join("ledger.json"))
            .args(options)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.path().join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let mut probe = Self { child, folder };
        until("the probe prints its first statistics line", || {
            assert!(probe.child.try_wait().unwrap().is_none(), "the probe has exited: {}", probe.stderr());
            probe.stderr().contains("packets/s")
        });
        probe
    }

    /// Standard error so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap()
    }

    pub fn signal(&self, number: i32) {
        signal(&self.child, number);
    }

    /// First word of a line of `/proc/PID/status`.
    pub fn status(&self, name: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().into()
    }

    /// Stops the probe with SIGTERM: exit code, standard error and ledger, which balances.
    pub fn stop(mut self) -> (i32, String, Value) {
        self.signal(libc::SIGTERM);
        let code = self.child.wait().unwrap().code();
        let err = self.stderr();
        assert!(!err.contains("panicked") && !err.contains("NOT BALANCE"), "{err}");
        let ledger = read_ledger(&self.folder.path().join("ledger.json"));
        (code.unwrap_or_else(|| panic!("ended by a signal: {err}")), err, ledger)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request and its response for each of these clients.
pub fn send_requests(sender: &mut Sender, clients: std::ops::Range<u16>) {
    clients.flat_map(request_and_response).for_each(|frame| sender.send(&frame));
}

/// Adds a second veth pair to the namespace, from `left2` to `right2`.
pub fn add_second_wire() {
    ip("link add left2 mtu 65535 type veth peer name right2 mtu 65535");
    ["left2", "right2"].iter().for_each(|end| drop(ip(&format!("link set {end} arp off up"))));
    until("the second wire carries frames", || ip("link show dev right2").contains("state UP"));
}

/// Frames of a shipped capture, or of synthetic traffic (`synth:KIND,...`).
pub fn frames(name: &str) -> Vec<Vec<u8>> {
    let mut source: Box<dyn weir_capture::Source> = match name.strip_prefix("synth:") {
        Some(specification) => Box::new(weir_trafficgen::TrafficGenerator::new(specification).unwrap()),
        None => weir_capture::open(&captures().join(name)).unwrap(),
    };
    let mut frames = Vec::new();
    while let Some(burst) = source.burst().unwrap() {
        frames.extend(burst.iter().map(|frame| frame.bytes.to_vec()));
    }
    frames
}

/// Flow records of `weir read` for a capture of these frames, as [`without_times`] gives them.
pub fn flows_of_file(frames: &[Vec<u8>], options: &[&str]) -> Vec<String> {
    let output = JsonOutput::new();
    let capture = Pcap::of(frames).save(output.folder.path(), "sent.pcap");
    let fixed = ["read", capture.to_str().unwrap(), "-q", "-o", &output.sink];
    let (code, _, err) = weir(fixed.iter().chain(options));
    assert_eq!(code, 0, "{err}");
    without_times(&output.flows())
}

/// Fields of flow records that do not depend on timestamps, sorted.
pub fn without_times(flows: &[Value]) -> Vec<String> {
    const FIELDS: [&str; 19] = [
        "src_ip",
        "dst_ip",
        "src_port",
        "dst_port",
        "src_mac",
        "dst_mac",
        "ethertype",
        "protocol",
        "packets",
        "bytes",
        "l2_bytes",
        "tcp_flags",
        "ttl_min",
        "packet_size_max",
        "vlan_id",
        "inner_vlan_id",
        "mpls_label",
        "icmp_type",
        "tunnel_id",
    ];
    let mut lines: Vec<String> = flows
        .iter()
        .map(|flow| FIELDS.map(|field| format!("{field} {} {}", flow[field], flow[format!("rev_{field}")])).join(", "))
        .collect();
    lines.sort();
    lines
}
