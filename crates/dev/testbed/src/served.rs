//! Helpers for tests of the HTTP interface: a running probe that serves it, requests, answers.

use crate::namespace::{BOUND, Sender, ip, until};
use crate::running::{Running, wire};
use crate::{number, permit_all_users, request_and_response};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tempfile::TempDir;
use weir_packet::{DecodeOptions, Packet, decode};

pub const TOKEN: &str = "correct-horse-battery-staple";

/// A probe on interface `right` that serves HTTP on loopback.
pub struct Served {
    pub probe: Running,
    pub address: SocketAddr,
    pub sender: Sender,
}

/// An answer: status, headers, body.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Served {
    /// Starts it in a network namespace; `None` where that is not permitted.
    pub fn start(options: &[&str]) -> Option<Self> {
        Self::start_on("af_packet:right", options)
    }

    /// The same with settings of the source.
    pub fn start_on(source: &str, options: &[&str]) -> Option<Self> {
        let sender = wire()?;
        ip("link set lo up");
        ip("address add 192.0.2.1/32 dev lo");
        let listen = if options.contains(&"--listen") { &[][..] } else { &["--listen", "0"] };
        Some(Self::of(Running::probe(source, &[listen, options].concat()), sender))
    }

    /// A probe that was started with `--listen`.
    pub fn of(probe: Running, sender: Sender) -> Self {
        probe.wait_for("HTTP interface is ready");
        let err = probe.stderr();
        let address = err.split_once("address=").unwrap().1.split_whitespace().next().unwrap().parse().unwrap();
        Self { probe, address, sender }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        // Answers of megabytes take long beside load.
        stream.set_read_timeout(Some(3 * BOUND)).unwrap();
        stream
    }

    /// Sends octets on a connection of their own, and reads to its end.
    pub fn raw(&self, octets: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(octets);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub fn request(&self, method: &str, path: &str, headers: &str) -> Answer {
        let host = self.address;
        let text = self
            .raw(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n").as_bytes());
        Answer::parse(&text)
    }

    /// A request with the token and a body.
    pub fn change(&self, method: &str, path: &str, body: &str) -> Answer {
        let headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let host = self.address;
        let text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}");
        Answer::parse(&self.raw(text.as_bytes()))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, "")
    }

    /// Status of a change, with this token.
    pub fn reload(&self, token: &str) -> Answer {
        self.request("POST", "/reload", &format!("Authorization: Bearer {token}\r\n"))
    }

    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let mut answer = Answer { status: 503, head: String::new(), body: String::new() };
        // On a busy machine the probe may not have reported for some seconds.
        until("the probe reports", || {
            answer = self.get("/metrics");
            answer.status != 503
        });
        assert_eq!(answer.status, 200, "{}", answer.body);
        samples(&answer.body)
    }
}

impl Answer {
    pub fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_lowercase(), body: body.into() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }
}

/// The samples of a page by name and labels.
pub fn samples(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.into(), value.parse().unwrap()))
        .collect()
}

/// The sum of all series of a metric with this label, as in `reason="non_ip"`; with `""`, of all.
pub fn sum(samples: &BTreeMap<String, f64>, metric: &str, label: &str) -> u64 {
    let of_metric = samples.iter().filter(|(name, _)| name.split('{').next() == Some(metric) && name.contains(label));
    of_metric.map(|(_, value)| *value as u64).sum()
}

/// A file with a token, in a folder of its own.
pub fn token_file(token: &str, mode: u32) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, token).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    (folder, path)
}

/// A probe with rules that forward packets into a file.
pub struct Overridden {
    pub served: Served,
    /// The file with its token.
    pub token: PathBuf,
    /// The file with its rules.
    pub rules: PathBuf,
    output: PathBuf,
    _folders: [TempDir; 2],
}

impl Overridden {
    /// `None` where network namespaces are not permitted.
    pub fn start(rules: &str) -> Option<Self> {
        Self::start_with(rules, &[])
    }

    /// The same with further options.
    pub fn start_with(rules: &str, further: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        permit_all_users(folder.path());
        let [file, output] = ["rules.toml", "out.pcap"].map(|name| folder.path().join(name));
        fs::write(&file, format!("[egress.ids]\noutputs = 'pcap:{}'\n{rules}", output.display())).unwrap();
        let (token_folder, token) = token_file(TOKEN, 0o600);
        let options = ["--token-file", token.to_str().unwrap(), "--rules", file.to_str().unwrap()];
        let served = Served::start(&[&options[..], further].concat())?;
        Some(Self { served, token, rules: file, output, _folders: [folder, token_folder] })
    }

    /// Sends the request and the response of each client, and waits until they are metered.
    pub fn send(&mut self, clients: &[u16]) {
        let before = self.received();
        clients
            .iter()
            .flat_map(|&client| request_and_response(client))
            .for_each(|frame| self.served.sender.send(&frame));
        until("all packets are counted", || self.received() == before + 2 * clients.len() as u64);
    }

    pub fn received(&self) -> u64 {
        sum(&self.served.metrics(), "weir_packets_received_total", "")
    }

    /// Status and answer of a new override of a client's flow.
    pub fn add(&self, client: u16, rest: &str) -> (u16, Value) {
        let answer = self.served.change("POST", "/overrides", &format!("{{\"flow\":{},{rest}}}", flow(client)));
        (answer.status, answer.json())
    }

    pub fn list(&self) -> Vec<Value> {
        let answer = self.served.get("/overrides");
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["overrides"].as_array().unwrap().clone()
    }

    /// Ends the probe: packets per client at the consumer, and the counters of actions.
    pub fn stop(self) -> (BTreeMap<u16, u32>, Value) {
        let (err, _, ledger) = self.served.probe.stop(0);
        let octets = fs::read(&self.output).unwrap();
        let (mut at, mut clients) = (24, BTreeMap::new());
        while at < octets.len() {
            let length = u32::from_le_bytes(octets[at + 8..at + 12].try_into().unwrap()) as usize;
            let frame = &octets[at + 16..at + 16 + length];
            let mut packet = Packet::default();
            decode(1, frame, length as u32, DecodeOptions { decapsulate: false }, &mut packet).unwrap();
            *clients.entry(packet.source_port.max(packet.destination_port) - 1024).or_default() += 1;
            at += 16 + length;
        }
        let actions = ledger["actions"].clone();
        let all = ["forwarded", "dropped", "shunted", "held"].map(|key| number(&actions[key]["packets"]));
        let packets = &ledger["packets"];
        let refused: u64 = packets["refused"].as_object().unwrap().values().map(number).sum();
        let metered = number(&packets["metered"]) + number(&packets["dropped_cache_full"]);
        assert_eq!(all.iter().sum::<u64>(), refused + metered, "{err} {actions:#}");
        (clients, actions)
    }
}

/// The flow of a client in JSON, as the server would name it.
pub fn flow(client: u16) -> String {
    let [high, low] = client.to_be_bytes();
    let port = 1024 + client % 5000;
    format!(
        "{{\"src_ip\":\"10.1.0.1\",\"src_port\":53,\"dst_ip\":\"10.0.{high}.{low}\",\"dst_port\":{port},\"protocol\":\"udp\"}}"
    )
}
