//! Helpers for tests on network interfaces: a running `weir`, traffic for it, and comparable
//! flow records.

use crate::namespace::{BOUND, LEFT, RIGHT, Sender, ip, is_captured, network, until};
use crate::{
    Background, JsonOutput, Pcap, captures, command, metered, permit_all_users, read_ledger, request_and_response,
    signal,
};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Takes the test into a network namespace: a sender of frames that arrive at interface `right`.
/// Prints the reason and returns `None` where that is not permitted.
pub fn wire() -> Option<Sender> {
    network().then(|| Sender::new(LEFT))
}

/// A running `weir` on a live source. It is killed on drop.
pub struct Running {
    pub process: Background,
    output: JsonOutput,
}

impl Running {
    /// Starts `weir probe` on a source, and waits until it receives. The default sink is JSON.
    pub fn probe(source: &str, options: &[&str]) -> Self {
        let flows = if options.contains(&"--flows") { &[][..] } else { &["--flows", "10k"] };
        let running = Self::start(&[&["probe", "-i", source, "--interval", "200ms"], flows, options].concat());
        running.wait_for(if options.contains(&"json") { "packets_per_second" } else { "packets/s" });
        running
    }

    /// Starts `weir read` on a source, and waits until it receives.
    pub fn read(source: &str, options: &[&str]) -> Self {
        let running = Self::start(&[&["read", "-i", source, "-v", "--layer2"], options].concat());
        until("weir receives", || {
            assert_ne!(running.status("State:"), "Z", "weir has exited: {}", running.stderr());
            is_captured(RIGHT)
        });
        running
    }

    fn start(arguments: &[&str]) -> Self {
        Self::start_in(command(), arguments)
    }

    /// Starts `weir` through a command that ends with its name.
    pub fn start_in(mut command: Command, arguments: &[&str]) -> Self {
        let output = JsonOutput::new();
        // The command may start it as another user.
        permit_all_users(output.folder.path());
        let has_sinks = arguments.contains(&"-o") || arguments.contains(&"--config");
        let child = command
            .args(arguments)
            .args(if has_sinks { vec![] } else { vec!["-o", &output.sink] })
            .arg("--stats")
            .arg(output.folder.path().join("ledger.json"))
            .stdout(Stdio::piped())
            .stderr(fs::File::create(output.folder.path().join("stderr")).unwrap())
            .spawn()
            .unwrap();
        Self { process: Background(child), output }
    }

    /// Standard error so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.output.folder.path().join("stderr")).unwrap()
    }

    /// Waits until standard error has a text.
    pub fn wait_for(&self, text: &str) {
        self.wait_for_another(text, 0);
    }

    /// Waits until standard error has a text more often than this.
    pub fn wait_for_another(&self, text: &str, times: usize) {
        let started = Instant::now();
        loop {
            let (has_exited, err) = (self.status("State:") == "Z", self.stderr());
            if err.matches(text).count() > times {
                return;
            }
            assert!(!has_exited, "weir has exited before {text:?}: {err}");
            assert!(started.elapsed() < BOUND, "no {text:?}: {err}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it has received this number of packets, by its status (`--status json`). What it does with
    /// a packet is done then.
    pub fn wait_for_packets(&self, number: u64) {
        until(&format!("{number} packets are received"), || {
            sum(&statuses(&self.stderr()), "received_packets") >= number
        });
    }

    /// The ledger at present, which it prints on a signal (`--status json`).
    pub fn ledger(&self) -> Value {
        let ledgers = || events(&self.stderr(), "ledger");
        let before = ledgers().len();
        self.signal(libc::SIGUSR1);
        until("the ledger is printed", || ledgers().len() > before);
        ledgers().pop().unwrap()["ledger"].take()
    }

    /// Whether it has a file open.
    pub fn has_open(&self, path: &Path) -> bool {
        let open = fs::read_dir(format!("/proc/{}/fd", self.process.0.id())).unwrap().flatten();
        open.into_iter().any(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|target| target == path))
    }

    /// How often standard error has a text.
    pub fn times(&self, text: &str) -> usize {
        self.stderr().matches(text).count()
    }

    /// Flow records of the JSON sink so far.
    pub fn flows(&self) -> Vec<Value> {
        self.output.flows()
    }

    pub fn signal(&self, number: i32) {
        signal(&self.process.0, number);
    }

    /// First word of a line of `/proc/PID/status`.
    pub fn status(&self, name: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().into()
    }

    /// Stops with SIGTERM and asserts the exit code: standard error, flow records and ledger.
    pub fn stop(self, expected: i32) -> (String, Vec<Value>, Value) {
        self.signal(libc::SIGTERM);
        let (code, err, flows, ledger) = self.wait();
        assert_eq!(code, expected, "{err}");
        (err, flows, ledger)
    }

    /// Waits for the end: exit code, standard error, flow records, and the ledger, which balances.
    pub fn wait(mut self) -> (i32, String, Vec<Value>, Value) {
        let code = self.process.0.wait().unwrap().code();
        let err = self.stderr();
        assert!(!err.contains("panicked") && !err.contains("NOT BALANCE"), "{err}");
        let ledger = read_ledger(&self.output.folder.path().join("ledger.json"));
        (code.unwrap_or_else(|| panic!("ended by a signal: {err}")), err, self.flows(), ledger)
    }
}

impl Drop for Running {
    /// The end of standard error says what a test that fails has waited for.
    fn drop(&mut self) {
        const LINES: usize = 40;
        if std::thread::panicking() {
            let err = fs::read_to_string(self.output.folder.path().join("stderr")).unwrap_or_default();
            let lines: Vec<_> = err.lines().collect();
            eprintln!("weir:\n{}", lines[lines.len().saturating_sub(LINES)..].join("\n"));
        }
    }
}

/// The objects that `weir probe --status json` has printed with this message.
pub fn events(err: &str, message: &str) -> Vec<Value> {
    let events = err.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["message"] == message).collect()
}

/// The status of each interval.
pub fn statuses(err: &str) -> Vec<Value> {
    events(err, "status")
}

/// The sum of a counter over all intervals.
pub fn sum(statuses: &[Value], name: &str) -> u64 {
    statuses.iter().map(|status| status[name].as_u64().unwrap()).sum()
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
    let capture = Pcap::of(frames).saved();
    let (code, err, flows, _) = metered(&[&["read", capture.name(), "-q"], options].concat());
    assert_eq!(code, 0, "{err}");
    without_times(&flows)
}

/// Fields of flow records that do not depend on timestamps, sorted.
pub fn without_times(flows: &[Value]) -> Vec<String> {
    const FIELDS: &str = "src_ip dst_ip src_port dst_port src_mac dst_mac ethertype protocol packets bytes l2_bytes";
    const OF_EACH: &str = "packets bytes l2_bytes tcp_flags ttl_min packet_size_max vlan_id inner_vlan_id mpls_label \
                           icmp_type tunnel_id";
    let names: Vec<String> = FIELDS
        .split(' ')
        .map(String::from)
        .chain(OF_EACH.split(' ').flat_map(|name| ["fwd_", "rev_"].map(|prefix| format!("{prefix}{name}"))))
        .collect();
    let mut lines: Vec<String> = flows
        .iter()
        .map(|flow| names.iter().map(|name| format!("{name} {}", flow[name])).collect::<Vec<_>>().join(", "))
        .collect();
    lines.sort();
    lines
}
