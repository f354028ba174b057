//! The binary at work on the wire, and the flows that it wrote.
#![allow(dead_code)]

use crate::network::until;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The binary at work.
pub struct Probe {
    pub child: Child,
    folder: tempfile::TempDir,
}

impl Probe {
    /// Starts it on the wire, and waits until it takes in all that comes.
    pub fn start(source: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["probe", "-i", source, "--interval", "200ms"])
            .args(if more.contains(&"--flows") { &[][..] } else { &["--flows", "10k"] })
            .arg("--stats")
            .arg(folder.path().join("ledger.json"))
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.path().join("told")).unwrap())
            .spawn()
            .unwrap();
        let mut probe = Self { child, folder };
        until("the probe is at work", || {
            assert!(probe.child.try_wait().unwrap().is_none(), "it ended by itself: {}", probe.told());
            probe.told().contains("packets/s")
        });
        probe
    }

    /// What it said on standard error so far.
    pub fn told(&self) -> String {
        fs::read_to_string(self.folder.path().join("told")).unwrap()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the process was started here, and nobody has waited for it yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// What the system says of it: the first word behind a name.
    pub fn status(&self, name: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().into()
    }

    /// Ends it: exit code, what it said, its ledger, which balances.
    pub fn end(mut self) -> (i32, String, Value) {
        self.signal(libc::SIGTERM);
        let code = self.child.wait().unwrap().code();
        let told = self.told();
        assert!(!told.contains("panicked") && !told.contains("NOT BALANCE"), "{told}");
        let ledger = fs::read(self.folder.path().join("ledger.json")).unwrap();
        let ledger: Value = serde_json::from_slice(&ledger).unwrap();
        assert_eq!(ledger["balanced"], true, "{ledger}");
        (code.unwrap_or_else(|| panic!("ended by a signal: {told}")), told, ledger)
    }
}

impl Drop for Probe {
    /// It does not outlive a test that failed.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Objects in a file, one a line; the last may be on its way.
pub fn flows(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What of a flow does not depend on when its packets came.
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
