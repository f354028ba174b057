//! Syslog over UDP, TCP and TLS, read by a small parser of its own.

use super::certificates::{Authority, collect};
use super::tcp_export::{Collector, capture, exported, lost};
use serde_json::Value;
use std::fs;
use std::io;
use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use testbed::{is_installed, ledger_of, number};

/// A message: PRI, time, host, application, and the text.
#[derive(Debug)]
struct Message {
    pri: u32,
    time: String,
    host: String,
    text: String,
}

/// Parses a message (RFC 5424 section 6), with what Weir leaves out.
fn parse(octets: &[u8]) -> Message {
    let text = std::str::from_utf8(octets).unwrap();
    let (pri, rest) = text.strip_prefix('<').unwrap().split_once('>').unwrap();
    let mut fields = rest.splitn(8, ' ');
    let mut next = || fields.next().unwrap().to_owned();
    let [version, time, host, application, process, id, data, text] = std::array::from_fn(|_| next());
    assert_eq!([version, application, process, id, data], ["1", "weir", "-", "flow", "-"]);
    Message { pri: pri.parse().unwrap(), time, host, text }
}

/// Divides octets by their lengths (RFC 6587 section 3.4.1).
fn framed(mut octets: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while !octets.is_empty() {
        let space = octets.iter().position(|&octet| octet == b' ').unwrap();
        let length: usize = std::str::from_utf8(&octets[..space]).unwrap().parse().unwrap();
        let (message, rest) = octets[space + 1..].split_at(length);
        messages.push(parse(message));
        octets = rest;
    }
    messages
}

/// All datagrams that have arrived.
fn datagrams(socket: &UdpSocket) -> Vec<Vec<u8>> {
    socket.set_nonblocking(true).unwrap();
    let mut octets = vec![0; 1 << 16];
    let mut all = Vec::new();
    loop {
        match socket.recv(&mut octets) {
            Ok(length) => all.push(octets[..length].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Checks messages against the records of the same run.
fn check(messages: &[Message], records: &str, pri: u32) {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let texts: Vec<&str> = messages.iter().map(|message| message.text.as_str()).collect();
    assert_eq!(texts, records.lines().collect::<Vec<_>>());
    for message in messages {
        let record: Value = serde_json::from_str(&message.text).unwrap();
        let end = record["end_time"].as_str().unwrap();
        // Microseconds, the most that a message may have, of nanoseconds.
        assert_eq!(message.time, format!("{}Z", &end[..26]), "{end}");
        assert_eq!((message.pri, message.host.as_str()), (pri, host.trim_end()));
    }
}

#[test]
fn each_record_is_a_message() {
    if !is_installed("openssl") {
        return eprintln!("SKIPPED: openssl is not installed");
    }
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    authority.sign("server", "IP:127.0.0.1");
    let json = folder.path().join("flows.json");
    let (tcp, tcp_address) = Collector::tcp("127.0.0.1:0");
    let (tls, tls_address, closed) = collect("127.0.0.1:0", authority.server("server", None));
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sinks = [
        format!("syslog+udp://{}", udp.local_addr().unwrap()),
        format!("syslog+tcp://{tcp_address}?facility=daemon"),
        format!("syslog+tls://{tls_address}?ca={}&facility=local7", authority.path("ca.pem")),
        format!("json:{}", json.display()),
    ];
    let web = testbed::captures().join("web.pcap");
    let mut arguments = vec!["read", web.to_str().unwrap()];
    sinks.iter().for_each(|sink| arguments.extend(["-o", sink]));
    let (code, err, ledger) = ledger_of(&arguments);
    assert_eq!(code, 0, "{err}");
    let records = fs::read_to_string(json).unwrap();
    let [tcp, tls] = [tcp, tls].map(|collector| collector.stop().remove(0));
    let datagrams = datagrams(&udp);
    check(&datagrams.iter().map(|octets| parse(octets)).collect::<Vec<_>>(), &records, 8 * 16 + 6);
    check(&framed(&tcp), &records, 8 * 3 + 6);
    check(&framed(&tls), &records, 8 * 23 + 6);
    assert_eq!(closed.load(Ordering::Relaxed), 1);
    let octets: usize = datagrams.iter().map(Vec::len).sum();
    for (at, octets) in [octets, tcp.len(), tls.len()].into_iter().enumerate() {
        let sink = &ledger["sinks"][at];
        assert_eq!(
            (sink["exported"].clone(), number(&sink["octets"])),
            (ledger["sinks"][3]["exported"].clone(), octets as u64)
        );
    }
    assert_eq!(number(&ledger["sinks"][0]["messages"]), datagrams.len() as u64);
}

#[test]
fn a_record_that_is_too_long_for_a_datagram_is_lost_as_a_whole() {
    let (capture, udp) = (capture(5), UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = udp.local_addr().unwrap();
    let read = |settings: &str, options: &[&str]| {
        let sink = format!("syslog+udp://{address}{settings}");
        let (code, err, ledger) = ledger_of([&["read", capture.name(), "-o", &sink], options].concat());
        assert!(err.contains("too_long") == (code == 2), "{err}");
        (code, exported(&ledger), lost(&ledger, "too_long"), datagrams(&udp).len())
    };
    assert_eq!(read("?size=480&fields=all", &[]), (2, 0, 5, 0));
    assert_eq!(read("?size=480&fields=src_ip,dst_ip", &[]), (0, 5, 0, 5));
    // A datagram per direction.
    assert_eq!(read("?fields=all", &["--uniflow"]), (0, 5, 0, 10));
    assert_eq!(read("?size=480&fields=all", &["--uniflow"]), (2, 0, 5, 0));
}
