//! Export over TCP and Unix sockets: to a collector that closes its connection, is away, or reads nothing.

use super::certificates::{Authority, silent};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use testbed::decode::{Decoder, Record};
use testbed::namespace::{BOUND, LEFT, RIGHT, Sender, ip, network, until};
use testbed::running::{Running, send_requests};
use testbed::{
    Background, Pcap, SavedCapture, command, failure, is_installed, ledger_of, number, permit_all_users, read_flows,
    read_ledger, request_and_response, signal,
};

/// Octets of each connection, in order.
pub type Sessions = Vec<Vec<u8>>;

/// A listening socket that does not block: the next connection.
pub type Accept = Box<dyn FnMut() -> Option<Box<dyn Read + Send>> + Send>;

/// A collector that reads all connections until it is stopped.
pub struct Collector {
    sessions: Arc<Mutex<Sessions>>,
    must_stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Collector {
    pub fn start(mut accept: Accept) -> Self {
        let (sessions, must_stop) = (Arc::new(Mutex::new(Sessions::new())), Arc::new(AtomicBool::new(false)));
        let (shared, stop) = (sessions.clone(), must_stop.clone());
        let thread = thread::spawn(move || {
            // A connection is closed when its other end has closed it.
            let mut streams = Vec::new();
            let mut octets = vec![0; 1 << 16];
            while !stop.load(Ordering::Relaxed) {
                if let Some(stream) = accept() {
                    streams.push(Some(stream));
                    shared.lock().unwrap().push(Vec::new());
                }
                for (at, slot) in streams.iter_mut().enumerate() {
                    match slot.as_mut().map(|stream| stream.read(&mut octets)) {
                        Some(Ok(0)) => *slot = None,
                        Some(Ok(length)) => shared.lock().unwrap()[at].extend(&octets[..length]),
                        _ => {}
                    }
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self { sessions, must_stop, thread }
    }

    pub fn tcp(address: &str) -> (Self, String) {
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let accept = move || {
            let (stream, _) = listener.accept().ok()?;
            stream.set_nonblocking(true).unwrap();
            Some(Box::new(stream) as Box<dyn Read + Send>)
        };
        (Self::start(Box::new(accept)), address)
    }

    pub fn unix(path: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self::start(Box::new(move || {
            let (stream, _) = listener.accept().ok()?;
            stream.set_nonblocking(true).unwrap();
            Some(Box::new(stream) as Box<dyn Read + Send>)
        }))
    }

    pub fn sessions(&self) -> Sessions {
        self.sessions.lock().unwrap().clone()
    }

    /// Closes all sockets.
    pub fn stop(self) -> Sessions {
        self.must_stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        std::mem::take(&mut self.sessions.lock().unwrap())
    }
}

/// The records of a session of IPFIX, whose sequence numbers begin at 0. The last message may be incomplete.
pub fn decoded(session: &[u8]) -> (Vec<Record>, Decoder) {
    let (mut decoder, mut records, mut rest) = (Decoder::new(), Vec::new(), session);
    let mut sequences = HashMap::new();
    while rest.len() >= 4 && rest.len() >= usize::from(u16::from_be_bytes([rest[2], rest[3]])) {
        let (message, after) = rest.split_at(usize::from(u16::from_be_bytes([rest[2], rest[3]])));
        records.extend(decoder.message(message));
        let header = decoder.messages.last().unwrap();
        let sequence = sequences.entry(header.domain).or_insert(0);
        assert_eq!(header.sequence, *sequence);
        *sequence += header.data_records;
        rest = after;
    }
    (records, decoder)
}

pub fn lines(session: &[u8]) -> Vec<Value> {
    let text = String::from_utf8(session.to_vec()).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Number of flow records of a session.
pub fn count(scheme: &str, session: &[u8]) -> usize {
    if scheme.starts_with("ipfix") { decoded(session).0.len() } else { lines(session).len() }
}

/// An address at which no program listens.
pub fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

pub fn capture(flows: u16) -> SavedCapture {
    Pcap::of(&(0..flows).flat_map(request_and_response).collect::<Vec<_>>()).saved()
}

pub fn lost(ledger: &Value, reason: &str) -> u64 {
    number(&ledger["sinks"][0]["lost"][reason]["flows"])
}

pub fn exported(ledger: &Value) -> u64 {
    number(&ledger["sinks"][0]["exported"]["flows"])
}

pub const OPTIONS: [&str; 6] = [
    "--idle",
    "100ms",
    "--status",
    "json",
    "--timing",
    "sink_reconnect=20ms,sink_reconnect_max=50ms,sink_tick=20ms,sink_retry=20ms",
];
pub const LOST: &str = "connection to the collector is lost";
pub const AGAIN: &str = "connected to the collector again";
pub const UNREACHABLE: &str = "collector cannot be reached";

/// Waits until the sinks after the first have this number of records, which the first has too then.
pub fn wait_for_file(flows: &Path, number: usize) {
    until("the other sink has all records", || read_flows(flows).len() == number);
}

#[test]
fn collectors_get_the_records_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let large = capture(5000);
    for source in [testbed::captures().join("web.pcap"), large.name().into()] {
        for file in ["flows.ipfix", "flows.json", "socket"] {
            let _ = fs::remove_file(path(file));
        }
        let (ipfix, ipfix_address) = Collector::tcp("127.0.0.1:0");
        let (json, json_address) = Collector::tcp("127.0.0.1:0");
        let unix = Collector::unix(&path("socket"));
        let sinks = [
            format!("ipfix+tcp://{ipfix_address}?template=full"),
            format!("json+tcp://{json_address}"),
            format!("json+unix:{}?fields=all", path("socket").display()),
            format!("ipfix:{}", path("flows.ipfix").display()),
            format!("json:{}", path("flows.json").display()),
        ];
        let mut arguments = vec!["read", source.to_str().unwrap()];
        sinks.iter().for_each(|sink| arguments.extend(["-o", sink]));
        let (code, err, ledger) = ledger_of(&arguments);
        assert_eq!(code, 0, "{err}");
        // The sinks have waited until the collectors closed the connections.
        let [ipfix, json, unix] = [ipfix, json, unix].map(Collector::stop);
        assert_eq!([ipfix.len(), json.len(), unix.len()], [1, 1, 1]);
        let of_file = Decoder::new().file(&fs::read(path("flows.ipfix")).unwrap());
        let (records, decoder) = decoded(&ipfix[0]);
        assert!(records == of_file && !records.is_empty());
        assert_eq!(fs::read_to_string(path("flows.json")).unwrap().as_bytes(), json[0]);
        assert_eq!(lines(&unix[0]).len(), lines(&json[0]).len());
        let of_sink = |at: usize, name: &str| ledger["sinks"][at][name].clone();
        assert_eq!(number(&of_sink(0, "messages")), decoder.messages.len() as u64);
        for (at, session) in [&ipfix[0], &json[0], &unix[0]].into_iter().enumerate() {
            assert_eq!(number(&of_sink(at, "octets")), session.len() as u64);
            assert_eq!(of_sink(at, "exported"), of_sink(3, "exported"));
        }
        assert_eq!([0, 1].map(|at| of_sink(at, "wire_records")), [3, 4].map(|at| of_sink(at, "wire_records")));
    }
}

#[test]
fn a_collector_that_comes_back_gets_templates_and_what_has_waited() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    for scheme in ["ipfix+tcp", "json+tcp"] {
        let folder = tempfile::tempdir().unwrap();
        let flows = folder.path().join("flows.json");
        let (collector, address) = Collector::tcp("127.0.0.1:0");
        let (sink, json) = (format!("{scheme}://{address}"), format!("json:{}", flows.display()));
        let sinks = ["-o", sink.as_str(), "-o", &json];
        let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&sinks[..], &OPTIONS].concat());
        send_requests(&mut sender, 0..50);
        wait_for_file(&flows, 50);
        until("the collector has the first records", || {
            collector.sessions().first().is_some_and(|session| count(scheme, session) >= 50 * records(scheme))
        });
        let first = collector.stop();
        probe.wait_for(LOST);
        send_requests(&mut sender, 50..100);
        wait_for_file(&flows, 100);
        until("they wait", || number(&probe.ledger()["sinks"][0]["waiting"]["flows"]) == 50);
        let made = unix_seconds();
        until("a second is over", || unix_seconds() > made);
        let back = unix_seconds();
        let (collector, _) = Collector::tcp(&address);
        probe.wait_for(AGAIN);
        send_requests(&mut sender, 100..150);
        wait_for_file(&flows, 150);
        let times = [LOST, AGAIN].map(|event| probe.times(event));
        let (err, _, ledger) = probe.stop(0);
        assert_eq!(times, [1, 1], "{err}");
        assert!(err.contains("late=50 lost=0"), "{err}");
        let second = collector.stop();
        assert_eq!((first.len(), second.len()), (1, 1));
        assert_eq!(
            [&first[0], &second[0]].map(|session| count(scheme, session)),
            [50 * records(scheme), 100 * records(scheme)]
        );
        assert_eq!(exported(&ledger), 150, "{ledger}");
        if scheme == "ipfix+tcp" {
            let (_, decoder) = decoded(&second[0]);
            // The first set has templates (RFC 7011 section 3.3.2).
            assert!(decoder.templates_seen > 0 && second[0][16..18] == [0, 2]);
            // Messages have the time at which they are sent (section 3.1), not that at which they were made.
            let times: Vec<u32> = decoder.messages.iter().map(|message| message.seconds).collect();
            assert!(times.is_sorted() && times.iter().all(|&time| time >= back), "{times:?} {back}");
        }
    }
}

/// The time in seconds since 1970.
pub fn unix_seconds() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as u32
}

#[test]
fn each_attempt_to_connect_resolves_the_name() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let folder = tempfile::tempdir().unwrap();
    let (flows, hosts) = (folder.path().join("flows.json"), folder.path().join("hosts"));
    fs::write(&hosts, "127.0.0.1 collector.example\n").unwrap();
    permit_all_users(&hosts);
    let (collector, address) = Collector::tcp("127.0.0.1:0");
    let port = address.rsplit_once(':').unwrap().1.to_owned();
    // The mount is of this process and its children.
    let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let mut probe = Command::new("unshare");
    probe.args(["--mount", "sh", "-c", script]).arg(&hosts).arg(command().get_program());
    let (sink, json) = (format!("json+tcp://collector.example:{port}"), format!("json:{}", flows.display()));
    let source = format!("af_packet:{RIGHT}");
    let arguments = ["probe", "-i", &source, "--interval", "200ms", "--flows", "10k", "-o", &sink, "-o", &json];
    let probe = Running::start_in(probe, &[&arguments[..], &OPTIONS].concat());
    probe.wait_for("packets_per_second");
    send_requests(&mut sender, 0..50);
    until("the collector has the first records", || lines(&collector.sessions().concat()).len() == 50);
    fs::write(&hosts, "\n").unwrap();
    collector.stop();
    probe.wait_for("the name of the collector cannot be resolved any longer");
    send_requests(&mut sender, 50..100);
    wait_for_file(&flows, 100);
    let (collector, _) = Collector::tcp(&format!("127.0.0.2:{port}"));
    fs::write(&hosts, "127.0.0.2 collector.example\n").unwrap();
    probe.wait_for(AGAIN);
    let (err, _, ledger) = probe.stop(0);
    assert!(err.contains("the name of the collector has other addresses now") && err.contains("127.0.0.2"), "{err}");
    assert_eq!((exported(&ledger), lines(&collector.stop().concat()).len()), (100, 50), "{err}");
}

/// Records of a flow in both directions.
pub fn records(scheme: &str) -> usize {
    if scheme.starts_with("ipfix") { 2 } else { 1 }
}

#[test]
fn read_ends_at_once_and_a_probe_waits_without_a_listener() {
    let address = free_address();
    for sink in [format!("ipfix+tcp://{address}"), format!("json+tcp://{address}")] {
        let err = failure(1, ["read", capture(1).name(), "-o", &sink]);
        assert!(
            err.contains(&format!("{sink}: Connection refused")) && err.contains("no collector listens there"),
            "{err}"
        );
    }
    let err = failure(1, ["read", capture(1).name(), "-o", "json+unix:/nowhere/socket"]);
    assert!(err.contains("json+unix:/nowhere/socket: No such file"), "{err}");
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let folder = tempfile::tempdir().unwrap();
    let flows = folder.path().join("flows.json");
    let (sink, json) = (format!("ipfix+tcp://{address}"), format!("json:{}", flows.display()));
    let sinks = ["-o", sink.as_str(), "-o", &json];
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&sinks[..], &OPTIONS].concat());
    probe.wait_for(UNREACHABLE);
    send_requests(&mut sender, 0..50);
    wait_for_file(&flows, 50);
    let (collector, _) = Collector::tcp(&address);
    probe.wait_for(AGAIN);
    let (err, _, ledger) = probe.stop(0);
    let sessions = collector.stop();
    assert_eq!((exported(&ledger), count("ipfix+tcp", &sessions[0])), (50, 100), "{err}");
}

#[test]
fn the_oldest_records_are_lost_beyond_the_buffer() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let folder = tempfile::tempdir().unwrap();
    let (address, flows) = (free_address(), folder.path().join("flows.json"));
    let (sink, json) = (format!("json+tcp://{address}?buffer=64KiB"), format!("json:{}", flows.display()));
    let sinks = ["-o", sink.as_str(), "-o", &json];
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&sinks[..], &OPTIONS].concat());
    send_requests(&mut sender, 0..500);
    wait_for_file(&flows, 500);
    until("some are lost, and the others wait", || {
        let ledger = probe.ledger();
        let waiting = number(&ledger["sinks"][0]["waiting"]["flows"]);
        waiting > 0 && waiting + lost(&ledger, "buffer_full") == 500 && waiting < 250
    });
    let (collector, _) = Collector::tcp(&address);
    probe.wait_for(AGAIN);
    let (err, _, ledger) = probe.stop(2);
    let received = lines(&collector.stop()[0]);
    let lost = lost(&ledger, "buffer_full") as usize;
    assert!(lost > 250 && err.contains(&format!(" lost={lost}\n")), "{err}");
    assert_eq!(received, read_flows(&flows)[lost..], "the newest are there");
    assert_eq!(exported(&ledger) as usize + lost, 500);
}

#[test]
fn a_collector_that_never_reads_delays_the_end_by_no_more_than_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let (capture, folder) = (capture(20_000), tempfile::tempdir().unwrap());
    let tls = is_installed("openssl").then(|| {
        let authority = Authority::new();
        authority.sign("server", "IP:127.0.0.1");
        let (collector, address) = silent(authority.server("server", None));
        (authority, collector, address)
    });
    let tcp =
        ["ipfix+tcp", "json+tcp"].map(|scheme| format!("{scheme}://{}?fields=all", listener.local_addr().unwrap()));
    let of_tls = |(authority, _, address): &(Authority, Collector, String)| {
        ["ipfix+tls", "json+tls"]
            .map(|scheme| format!("{scheme}://{address}?fields=all&ca={}", authority.path("ca.pem")))
    };
    for sink in tcp.into_iter().chain(tls.iter().flat_map(of_tls)) {
        let [log, stats] = ["log", "ledger"].map(|name| folder.path().join(name));
        let mut command = command();
        command.args(["probe", "-i", capture.name(), "-o", &sink, "--drain-timeout", "3s", "--timing", "sink_dead=1h"]);
        command.arg("--stats").arg(&stats).stderr(fs::File::create(&log).unwrap());
        let mut probe = Background(command.spawn().unwrap());
        let log = || fs::read_to_string(&log).unwrap();
        until("the probe waits", || log().contains("waiting for the sinks"));
        let started = Instant::now();
        signal(&probe.0, libc::SIGTERM);
        assert_eq!(probe.0.wait().unwrap().code(), Some(2), "{}", log());
        assert!(started.elapsed() < Duration::from_secs(3) + BOUND, "{}", log());
        let ledger = read_ledger(&stats);
        let reasons = ledger["sinks"][0]["lost"].as_object().unwrap();
        let lost: u64 = reasons.values().map(|lost| number(&lost["flows"])).sum();
        assert!(lost > 0 && exported(&ledger) > 0 && !log().contains(LOST), "{} {ledger}", log());
        assert_eq!(lost + exported(&ledger), 20_000, "{ledger}");
        assert!(reasons.keys().all(|reason| ["drain_timeout", "buffer_full"].contains(&reason.as_str())), "{ledger}");
    }
}

#[test]
fn retry_limits_the_time_between_attempts() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let address = free_address();
    let sink = format!("json+tcp://{address}?retry=1s");
    let times = ["--idle", "100ms", "--timing", "sink_reconnect=10m,sink_reconnect_max=10m,sink_tick=20ms"];
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&["-o", &sink][..], &times].concat());
    send_requests(&mut sender, 0..50);
    probe.wait_for(UNREACHABLE);
    let (collector, _) = Collector::tcp(&address);
    probe.wait_for(AGAIN);
    until("the records have arrived", || collector.sessions().iter().any(|session| lines(session).len() == 50));
    probe.stop(0);
    collector.stop();
}

#[test]
fn without_traffic_attempts_come_when_they_are_due() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let address = free_address();
    let failover = format!("failover:json+tcp://{address},json+tcp://{}", free_address());
    let times = "sink_reconnect=20ms,sink_reconnect_max=50ms,sink_tick=1h";
    for sink in [format!("json+tcp://{address}"), format!("ipfix+tcp://{address}"), failover] {
        let arguments = ["-o", &sink, "--where", "packets > 0", "--idle", "100ms", "--timing", times];
        let probe = Running::probe(&format!("af_packet:{RIGHT}"), &arguments);
        send_requests(&mut sender, 0..50);
        probe.wait_for(UNREACHABLE);
        let (collector, _) = Collector::tcp(&address);
        // Nothing else wakes the thread of the sink.
        until("what has waited arrives", || collector.sessions().iter().any(|session| session.len() > 2000));
        probe.stop(0);
        collector.stop();
    }
}

#[test]
fn at_the_end_an_attempt_comes_at_once() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let address = free_address();
    let times = "sink_reconnect=10m,sink_reconnect_max=10m";
    for sink in [format!("json+tcp://{address}"), format!("ipfix+tcp://{address}")] {
        let arguments =
            ["-o", &sink, "--idle", "100ms", "--status", "json", "--drain-timeout", "10m", "--timing", times];
        let probe = Running::probe(&format!("af_packet:{RIGHT}"), &arguments);
        send_requests(&mut sender, 0..50);
        probe.wait_for(UNREACHABLE);
        until("the records have ended", || number(&probe.ledger()["sinks"][0]["waiting"]["flows"]) == 50);
        let (collector, _) = Collector::tcp(&address);
        let (err, _, ledger) = probe.stop(0);
        assert_eq!(exported(&ledger), 50, "{err}");
        collector.stop();
    }
}

#[test]
fn a_connection_that_reaches_itself_is_refused() {
    if !network() {
        return;
    }
    ip("link set lo up");
    // The only port that a connection can have.
    if fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40000").is_err() {
        return eprintln!("SKIPPED: the range of ports cannot be set");
    }
    let err = failure(1, ["read", capture(1).name(), "-o", "json+tcp://127.0.0.1:40000"]);
    assert!(err.contains("the connection reached itself (connection refused)"), "{err}");
}
