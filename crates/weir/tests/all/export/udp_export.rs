//! Export over UDP on paths with a small MTU, and to collectors that cannot be reached yet.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;
use testbed::namespace::{BOUND, LEFT, RIGHT, Sender, ip, network, received_frames, until};
use testbed::running::{Running, send_requests};
use testbed::{
    Pcap, assert_usage_errors, failure, ledger_of, number, permit_all_users, read_flows, request_and_response,
};

/// What a collector has received.
#[derive(Clone, Default)]
struct Received {
    /// Length of the longest datagram, octets.
    longest: usize,
    records: u64,
    templates: u64,
    /// Records without a template.
    undecoded: u64,
    record_octets: HashMap<u16, usize>,
    /// Source address of the last datagram.
    source: Option<IpAddr>,
}

impl Received {
    fn add(&mut self, datagram: &[u8]) {
        self.longest = self.longest.max(datagram.len());
        let version = word(datagram, 0);
        if version == 5 {
            self.records += u64::from(word(datagram, 2));
            return;
        }
        let (header, template_set) = if version == 10 { (16, 2) } else { (20, 0) };
        assert!(version == 9 || usize::from(word(datagram, 2)) == datagram.len());
        let mut sets = &datagram[header..];
        while !sets.is_empty() {
            let (set, rest) = sets.split_at(usize::from(word(sets, 2)));
            sets = rest;
            match word(set, 0) {
                id if id == template_set => self.add_templates(&set[4..]),
                // Options templates and options records.
                1 | 3 | 256..272 => {}
                id => match self.record_octets.get(&id) {
                    Some(octets) => self.records += ((set.len() - 4) / octets) as u64,
                    None => self.undecoded += 1,
                },
            }
        }
    }

    fn add_templates(&mut self, mut set: &[u8]) {
        // Up to three octets of padding follow the last template.
        while set.len() > 3 {
            let (id, fields) = (word(set, 0), word(set, 2));
            set = &set[4..];
            let mut octets = 0;
            for _ in 0..fields {
                octets += usize::from(word(set, 2));
                set = &set[if word(set, 0) >> 15 == 1 { 8 } else { 4 }..];
            }
            self.record_octets.insert(id, octets);
            self.templates += 1;
        }
    }
}

fn word(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

/// A collector that receives until the end of the test.
struct Collector {
    address: String,
    received: Arc<Mutex<Received>>,
}

impl Collector {
    fn start(address: &str) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        // On a busy machine the thread below may not run for a while. Only root may exceed the limit of the system.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20);
        let received = Arc::new(Mutex::new(Received::default()));
        let (address, shared) = (socket.local_addr().unwrap().to_string(), received.clone());
        thread::spawn(move || {
            let mut datagram = [0; 65_535];
            while let Ok((octets, source)) = socket.recv_from(&mut datagram) {
                let mut received = shared.lock().unwrap();
                received.source = Some(source.ip());
                received.add(&datagram[..octets]);
            }
        });
        Self { address, received }
    }

    fn received(&self) -> Received {
        self.received.lock().unwrap().clone()
    }

    fn wait_for_records(&self, records: u64) {
        until("the collector has all records", || self.received().records >= records);
    }
}

#[test]
fn all_records_arrive_over_a_path_with_a_small_mtu() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let frames: Vec<_> = (0..500).flat_map(request_and_response).collect();
    let capture = Pcap::of(&frames).saved();
    for (scheme, host, mtu, longest, fragments) in [
        ("ipfix+udp", "127.0.0.1:0", 1280, 1252, false),
        ("ipfix+udp", "127.0.0.1:0", 600, 1232, true),
        ("netflow9+udp", "127.0.0.1:0", 1280, 1252, false),
        ("netflow9+udp", "127.0.0.1:0", 600, 1232, true),
        ("netflow5+udp", "127.0.0.1:0", 1280, 1252, false),
        ("netflow5+udp", "127.0.0.1:0", 600, 572, false),
        ("ipfix+udp", "[::1]:0", 1280, 1232, false),
    ] {
        ip(&format!("link set lo mtu {mtu}"));
        if host.starts_with('[') && std::fs::write("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "0").is_err() {
            eprintln!("SKIPPED: this kernel has no IPv6");
            continue;
        }
        let collector = Collector::start(host);
        let sink = format!("{scheme}://{}", collector.address);
        let (code, err, ledger) = ledger_of(["read", capture.name(), "-o", &sink]);
        let case = format!("{scheme}, {host}, MTU {mtu}: {err}");
        assert_eq!(code, 0, "{case}");
        let records = number(&ledger["sinks"][0]["wire_records"]);
        assert_eq!(records, 1000, "{case}");
        collector.wait_for_records(records);
        let received = collector.received();
        assert_eq!((received.records, received.undecoded), (records, 0), "{case}");
        assert!(received.longest <= longest && received.longest + 200 > longest, "{}: {case}", received.longest);
        let event = format!(
            "path MTU is too small for the datagrams, their UDP payload is limited sink={sink} path_mtu={mtu} limit={longest} fragments={fragments}"
        );
        assert_eq!(err.matches("path MTU").count(), 1, "{case}");
        assert!(err.contains(&event), "{event}: {case}");
    }
}

#[test]
fn a_limit_that_fits_the_path_is_not_lowered() {
    if !network() {
        return;
    }
    ip("link set lo up mtu 1280");
    let collector = Collector::start("127.0.0.1:0");
    let sink = format!("ipfix+udp://{}?mtu=1240", collector.address);
    let frames: Vec<_> = (0..500).flat_map(request_and_response).collect();
    let (code, err, _) = ledger_of(["read", Pcap::of(&frames).saved().name(), "-o", &sink]);
    assert_eq!((code, err.contains("path MTU")), (0, false), "{err}");
    collector.wait_for_records(1000);
    assert!(collector.received().longest <= 1240);
}

#[test]
fn a_path_mtu_that_falls_during_the_run_loses_nothing() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let collector = Collector::start("127.0.0.1:0");
    let sink = format!("ipfix+udp://{}", collector.address);
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &["-o", &sink, "--idle", "100ms"]);
    for (mtu, records, longest) in [(65_536, 600, 1420), (1280, 1200, 1252), (600, 1800, 1232)] {
        ip(&format!("link set lo mtu {mtu}"));
        // A path MTU that has fallen needs templates again.
        let templates = if mtu == 65_536 { 0 } else { collector.received().templates };
        collector.received.lock().unwrap().longest = 0;
        // The first message may be of the old length: it is sent in fragments.
        send_requests(&mut sender, 0..150);
        collector.wait_for_records(records - 300);
        collector.received.lock().unwrap().longest = 0;
        send_requests(&mut sender, 0..150);
        collector.wait_for_records(records);
        let received = collector.received();
        assert!(received.longest <= longest, "MTU {mtu}: {}", received.longest);
        assert!(received.templates > templates, "MTU {mtu}");
    }
    let (err, _, ledger) = probe.stop(0);
    assert_eq!(ledger["sinks"][0]["exported"]["flows"], 900, "{ledger}");
    assert_eq!(collector.received().undecoded, 0);
    assert_eq!(err.matches("path MTU is too small").count(), 2, "{err}");
    for event in ["path_mtu=1280 limit=1252 fragments=false", "path_mtu=600 limit=1232 fragments=true"] {
        assert!(err.contains(event), "{err}");
    }
}

/// Sinks look often whether they need another connection, and the ledger can be had at any time.
const OPTIONS: [&str; 6] =
    ["--idle", "100ms", "--status", "json", "--timing", "sink_retry=50ms,sink_tick=50ms,sink_filter=60s"];

/// Waits until the sinks have this number of connections to an address, all of them from this one, if it is
/// given.
fn wait_for_connections(number: usize, local: Option<&str>, remote: &str) {
    // As the kernel prints it: the octets of the address in the order of the machine.
    let address = |text: &str| format!("{:08X}:", u32::from_ne_bytes(text.parse::<Ipv4Addr>().unwrap().octets()));
    let (local, remote) = (local.map_or(String::new(), address), address(remote));
    until(&format!("there are {number} connections from {local} to {remote}"), || {
        let sockets = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
        let ends = |line: &str| line.split_whitespace().skip(1).take(2).map(String::from).collect::<Vec<_>>();
        let connections: Vec<_> =
            sockets.lines().skip(1).map(ends).filter(|ends| ends[1].starts_with(&remote)).collect();
        connections.len() == number && connections.iter().all(|ends| ends[0].starts_with(&local))
    });
}

/// Waits until the first sink has exported or lost this number of flows.
fn wait_for_first_sink(probe: &Running, flows: u64) {
    until("the first sink has its records", || {
        let sink = &probe.ledger()["sinks"][0];
        let lost = sink["lost"].as_object().unwrap().values().map(|lost| number(&lost["flows"])).sum::<u64>();
        number(&sink["exported"]["flows"]) + lost >= flows
    });
}

const UNREACHABLE: &str = "collector cannot be reached";
const REACHABLE: &str = "collector can be reached";

/// Starts `weir probe` where `replacement` is bound over a file of `/etc`.
fn probe_with_file(replacement: &Path, file: &str, options: &[&str]) -> Running {
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    command.args(["-m", "sh", "-c", script, "sh"]).arg(replacement).arg(file).arg(env!("CARGO_BIN_EXE_weir"));
    let source = format!("af_packet:{RIGHT}");
    let fixed = ["probe", "-i", &source, "--interval", "200ms", "--flows", "10k"];
    let probe = Running::start_in(command, &[&fixed, options].concat());
    probe.wait_for("packets_per_second");
    probe
}

/// Sends 50 flows that are lost, makes the collector reachable, and sends 50 that arrive.
fn assert_recovery(probe: Running, flows: &Path, sender: &mut Sender, collector: &dyn Fn() -> Collector) {
    probe.wait_for(UNREACHABLE);
    send_requests(sender, 0..50);
    until("the other sink has all records", || read_flows(flows).len() == 50);
    wait_for_first_sink(&probe, 50);
    let collector = collector();
    probe.wait_for(REACHABLE);
    send_requests(sender, 0..50);
    collector.wait_for_records(100);
    assert_eq!(collector.received().undecoded, 0);
    let [lost, found] = [UNREACHABLE, REACHABLE].map(|event| probe.times(event));
    let (err, _, ledger) = probe.stop(2);
    assert_eq!((lost, found), (1, 1), "{err}");
    let sink = &ledger["sinks"][0];
    assert_eq!(sink["lost"]["collector_unreachable"]["flows"], 50, "{ledger}");
    assert_eq!(sink["exported"]["flows"], 50, "{ledger}");
}

#[test]
fn a_collector_without_a_route_is_tried_again() {
    if !network() {
        return;
    }
    let mut sender = Sender::new(LEFT);
    for (number, scheme) in (1..).zip(["ipfix+udp", "netflow9+udp"]) {
        let address = format!("192.0.2.{number}");
        let sink = format!("{scheme}://{address}:4739");
        let read = failure(1, ["read", "synth:mix", "-o", &sink]);
        assert!(read.contains("Network is unreachable"), "{read}");
        let folder = tempfile::tempdir().unwrap();
        let flows = folder.path().join("flows.json");
        let sinks = ["-o", &sink, "-o", &format!("json:{}", flows.display())];
        let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&sinks[..], &OPTIONS].concat());
        let start_collector = || {
            ip("link set lo up");
            ip(&format!("addr add {address}/32 dev lo"));
            Collector::start(&format!("{address}:4739"))
        };
        assert_recovery(probe, &flows, &mut sender, &start_collector);
    }
}

#[test]
fn a_collector_whose_name_is_unknown_is_tried_again() {
    if !network() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    std::fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
    permit_all_users(folder.path());
    ip("link set lo up");
    let mut sender = Sender::new(LEFT);
    let flows = folder.path().join("flows.json");
    let json = format!("json:{}", flows.display());
    let sinks = ["-o", "ipfix+udp://collector.test:4739", "-o", &json];
    let probe = probe_with_file(&hosts, "/etc/hosts", &[&sinks[..], &OPTIONS].concat());
    let start_collector = || {
        let collector = Collector::start("127.0.0.1:4739");
        std::fs::write(&hosts, "127.0.0.1 localhost collector.test\n").unwrap();
        collector
    };
    assert_recovery(probe, &flows, &mut sender, &start_collector);
}

#[test]
fn a_name_server_that_does_not_answer_delays_nothing_else() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let _name_server = UdpSocket::bind("127.0.0.1:53").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [resolver, config, flows] = ["resolv.conf", "probe.toml", "flows.json"].map(|name| folder.path().join(name));
    std::fs::write(&resolver, "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n").unwrap();
    permit_all_users(folder.path());
    let json = format!("json:{}", flows.display());
    let write = |name: &str| {
        let text = format!("output = [\"{json}\", \"ipfix+udp://{name}.test:4739\"]\nidle = \"100ms\"\n");
        std::fs::write(&config, text).unwrap();
    };
    write("first");
    let mut sender = Sender::new(LEFT);
    // A name is looked up for 150 s, which is longer than any of the waits below.
    let timing = "config_settled=50ms,sink_timeout=500ms";
    let options = ["--config", config.to_str().unwrap(), "--status", "json", "--timing", timing];
    let probe = probe_with_file(&resolver, "/etc/resolv.conf", &options);
    send_requests(&mut sender, 0..50);
    until("the other sink has all records", || read_flows(&flows).len() == 50);
    write("second");
    probe.signal(libc::SIGHUP);
    probe.wait_for("configuration reloaded");
    send_requests(&mut sender, 0..50);
    until("the other sink has all records", || read_flows(&flows).len() == 100);
    let stopped = Instant::now();
    let (err, _, ledger) = probe.stop(2);
    assert!(stopped.elapsed() < BOUND, "{:?}: {err}", stopped.elapsed());
    assert_eq!(ledger["sinks"].as_array().unwrap().len(), 3, "{ledger}");
}

#[test]
fn datagrams_of_a_late_connection_are_not_metered() {
    if !network() {
        return;
    }
    let mut sender = Sender::new(LEFT);
    let sink = "ipfix+udp://192.0.2.9:4739";
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&["-o", sink][..], &OPTIONS].concat());
    probe.wait_for(UNREACHABLE);
    // The route leads to the interface that the probe meters.
    ip("addr add 192.0.2.1/24 dev left");
    probe.wait_for(REACHABLE);
    send_requests(&mut sender, 0..50);
    until("the probe has all packets, datagrams of the sink among them", || {
        let frames = received_frames(RIGHT);
        let ledger = probe.ledger();
        let exported = number(&ledger["sinks"][0]["exported"]["flows"]);
        exported == 50 && frames > 100 && number(&ledger["packets"]["received"]) >= frames
    });
    let (err, _, ledger) = probe.stop(0);
    assert_eq!(ledger["sinks"][0]["exported"]["flows"], 50, "{err}");
    assert!(number(&ledger["packets"]["filtered"]) > 0, "{ledger}");
    assert_eq!(ledger["packets"]["metered"], 100, "{ledger}");
}

#[test]
fn fragments_of_exported_datagrams_are_not_metered() {
    if !network() {
        return;
    }
    ip("link set lo up mtu 600");
    let collector = Collector::start("127.0.0.1:0");
    let sink = format!("ipfix+udp://{}?template=full", collector.address);
    let probe = Running::probe("af_packet:lo", &["-o", &sink, "--idle", "200ms", "--status", "json"]);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..10 {
        client.send_to(b"request", server.local_addr().unwrap()).unwrap();
    }
    collector.wait_for_records(1);
    until("the probe has all packets, the fragments among them", || {
        let frames = received_frames("lo");
        number(&probe.ledger()["packets"]["received"]) >= frames
    });
    let (_, _, ledger) = probe.stop(0);
    let packets = &ledger["packets"];
    assert!(collector.received().longest > 600, "no datagram was sent in fragments");
    assert_eq!(packets["metered"], 10, "{ledger}");
    assert_eq!(number(&packets["received"]), 10 + number(&packets["filtered"]), "{ledger}");
    assert_eq!(ledger["flows"]["created"], 1, "{ledger}");
}

#[test]
fn collectors_that_can_never_be_reached_are_refused_at_start() {
    assert_usage_errors(&[
        (&["probe", "-i", "synth:mix", "-o", "ipfix+udp://two words:4739"], "is neither a host name nor an address"),
        (&["probe", "-i", "synth:mix", "-o", "ipfix+udp://192.0.2.300"], "is neither a host name nor an address"),
        (&["probe", "-i", "synth:mix", "-o", "ipfix+udp://collector.test:0"], "the port must be a number"),
        (&["probe", "-i", "synth:mix", "-o", "ipfix+udp://"], "the host is missing"),
        (&["probe", "-i", "synth:mix", "-o", "ipfix+udp://255.255.255.255"], "name the address of one collector"),
        (&["probe", "-i", "synth:mix", "-o", "ipfix+udp://[fe80::1]"], "fe80::1 needs a scope (an interface)"),
        (&["probe", "-i", "synth:mix", "-o", "ipfix+udp://[ff02::1]:4739"], "ff02::1 needs a scope (an interface)"),
        (&["probe", "-i", "synth:mix", "-o", "ipfix+udp://[fe80::1%lo]"], "fe80::1%lo needs a scope (an interface)"),
    ]);
}

#[test]
fn a_route_that_is_lost_during_the_run_is_logged_and_so_is_its_return() {
    if !network() {
        return;
    }
    let mut sender = Sender::new(LEFT);
    ip("addr add 192.0.2.1/24 dev left");
    let folder = tempfile::tempdir().unwrap();
    let flows = folder.path().join("flows.json");
    let sinks = ["-o", "netflow5+udp://192.0.2.9:4739", "-o", &format!("json:{}", flows.display())];
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&sinks[..], &OPTIONS].concat());
    for (round, command) in
        ["addr show", "addr del 192.0.2.1/24 dev left", "addr add 192.0.2.1/24 dev left"].into_iter().enumerate()
    {
        ip(command);
        if round == 2 {
            wait_for_connections(1, None, "192.0.2.9");
        }
        send_requests(&mut sender, 0..50);
        until("the other sink has all records", || read_flows(&flows).len() == 50 * (round + 1));
        wait_for_first_sink(&probe, 50 * (round as u64 + 1));
        assert_eq!([UNREACHABLE, REACHABLE].map(|event| probe.times(event)), [[0, 0], [1, 0], [1, 1]][round]);
    }
    let (_, _, ledger) = probe.stop(2);
    let sink = &ledger["sinks"][0];
    assert_eq!(sink["lost"]["collector_unreachable"]["flows"], 50, "{ledger}");
    assert_eq!(sink["exported"]["flows"], 100, "{ledger}");
}

/// Replaces the route to an address of this host: `blackhole`, or `local` and `dev lo src ADDRESS`.
fn set_route(kind: &str, address: &str, rest: &str) {
    ip(format!("route replace {kind} {address}/32 table local {rest}").trim_end());
}

#[test]
fn export_goes_on_when_the_address_of_the_host_or_the_route_changes() {
    if !network() {
        return;
    }
    let (mut sender, address) = (Sender::new(LEFT), "192.0.2.9");
    ip("link set lo up");
    for address in ["192.0.2.9", "192.0.2.1", "192.0.2.2"] {
        ip(&format!("addr add {address}/32 dev lo"));
    }
    let route_from = |source: &str| set_route("local", address, &format!("dev lo src {source}"));
    route_from("192.0.2.1");
    let sinks = ["ipfix+udp", "netflow9+udp", "netflow5+udp"].map(|scheme| {
        let collector = Collector::start(&format!("{address}:0"));
        (format!("{scheme}://{}", collector.address), collector)
    });
    let outputs: Vec<&str> = sinks.iter().flat_map(|(sink, _)| ["-o", sink]).collect();
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&outputs[..], &OPTIONS].concat());
    let assert_records = |records: u64, source: &str| {
        for (sink, collector) in &sinks {
            collector.wait_for_records(records);
            let received = collector.received();
            assert_eq!((received.records, received.undecoded), (records, 0), "{sink}");
            assert_eq!(received.source, Some(source.parse().unwrap()), "{sink}");
        }
    };
    send_requests(&mut sender, 0..50);
    assert_records(100, "192.0.2.1");
    // Both addresses exist.
    route_from("192.0.2.2");
    wait_for_connections(3, Some("192.0.2.2"), address);
    send_requests(&mut sender, 0..50);
    assert_records(200, "192.0.2.2");
    // The address of the sockets does not exist any more.
    ip("addr del 192.0.2.2/32 dev lo");
    route_from("192.0.2.1");
    wait_for_connections(3, Some("192.0.2.1"), address);
    send_requests(&mut sender, 0..50);
    assert_records(300, "192.0.2.1");
    probe.stop(0);
}

#[test]
fn a_route_that_discards_datagrams_is_tried_again() {
    if !network() {
        return;
    }
    let mut sender = Sender::new(LEFT);
    ip("link set lo up");
    for (number, kind, cause) in [
        (1, "blackhole", "a blackhole route"),
        (2, "prohibit", "a prohibit route"),
        (3, "unreachable", "No route to host"),
        (4, "throw", "Network is unreachable"),
    ] {
        let address = format!("192.0.2.{number}");
        ip(&format!("addr add {address}/32 dev lo"));
        let collector = Collector::start(&format!("{address}:0"));
        let sink = format!("ipfix+udp://{}", collector.address);
        set_route(kind, &address, "");
        let read = failure(1, ["read", "synth:mix", "-o", &sink]);
        assert!(read.contains(cause), "{read}");
        let folder = tempfile::tempdir().unwrap();
        let flows = folder.path().join("flows.json");
        let sinks = ["-o", &sink, "-o", &format!("json:{}", flows.display())];
        let probe = Running::probe(&format!("af_packet:{RIGHT}"), &[&sinks[..], &OPTIONS].concat());
        for round in 0..4 {
            if round % 2 == 0 {
                set_route(kind, &address, "");
            } else {
                set_route("local", &address, "dev lo");
                wait_for_connections(1, None, &address);
            }
            send_requests(&mut sender, 0..50);
            until("the other sink has all records", || read_flows(&flows).len() == 50 * (round + 1));
            wait_for_first_sink(&probe, 50 * (round as u64 + 1));
        }
        collector.wait_for_records(200);
        let (err, _, ledger) = probe.stop(2);
        assert!(err.contains(&format!("{UNREACHABLE}, trying again")) && err.contains(cause), "{kind}: {err}");
        assert_eq!(err.matches(REACHABLE).count(), err.matches(UNREACHABLE).count(), "{kind}: {err}");
        let sink = &ledger["sinks"][0];
        assert_eq!(sink["lost"]["collector_unreachable"]["flows"], 100, "{kind}: {ledger}");
        assert_eq!(sink["exported"]["flows"], 100, "{kind}: {ledger}");
    }
}
