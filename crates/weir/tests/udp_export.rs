//! Export over UDP on paths with a small MTU, and to collectors that cannot be reached yet.

mod common;
mod live;
#[path = "../../capture/tests/network/mod.rs"]
mod network;

use common::{Pcap, ledger_of, number, request_and_response};
use live::{Running, send_requests};
use network::{RIGHT, Sender, ip, network, until};
use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

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
                // Options template and type information.
                1 | 3 | 256 if version == 10 => {}
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
        let received = Arc::new(Mutex::new(Received::default()));
        let (address, shared) = (socket.local_addr().unwrap().to_string(), received.clone());
        thread::spawn(move || {
            let mut datagram = [0; 65_535];
            while let Ok(octets) = socket.recv(&mut datagram) {
                shared.lock().unwrap().add(&datagram[..octets]);
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
        assert_eq!(records, if scheme == "ipfix+udp" { 500 } else { 1000 }, "{case}");
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
    collector.wait_for_records(500);
    assert!(collector.received().longest <= 1240);
}

#[test]
fn a_path_mtu_that_falls_during_the_run_loses_nothing() {
    if !network() {
        return;
    }
    ip("link set lo up");
    let mut sender = Sender::new(network::LEFT);
    let collector = Collector::start("127.0.0.1:0");
    let sink = format!("ipfix+udp://{}", collector.address);
    let probe = Running::probe(&format!("af_packet:{RIGHT}"), &["-o", &sink, "--idle", "100ms"]);
    for (mtu, records, longest) in [(65_536, 300, 1420), (1280, 600, 1252), (600, 900, 1232)] {
        ip(&format!("link set lo mtu {mtu}"));
        let templates = collector.received().templates;
        collector.received.lock().unwrap().longest = 0;
        // The first message may be of the old length: it is sent in fragments.
        send_requests(&mut sender, 0..150);
        collector.wait_for_records(records - 150);
        thread::sleep(Duration::from_millis(10));
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
