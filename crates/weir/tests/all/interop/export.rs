//! What Weir sends for every shipped capture and for generated traffic, and the values that a
//! collector must read from it: those of Weir's JSON records of the same run.
//!
//! [`Export`] is received by the test itself and handed to collectors as a file, so that a slow
//! collector loses no datagram.

use serde_json::Value;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use testbed::{capture_files, command, is_root, read_flows, read_ledger};

/// A flow record of a collector or of Weir: field names and values as text.
pub type Row = BTreeMap<&'static str, String>;

/// Fields that every collector knows in every format.
pub const COMMON: [&str; 11] =
    ["src", "dst", "src_port", "dst_port", "protocol", "packets", "bytes", "start_ms", "end_ms", "tcp_flags", "tos"];

/// Fields of the reverse direction.
pub const REVERSE: [&str; 11] = [
    "rev_packets",
    "rev_bytes",
    "rev_l2_bytes",
    "rev_tcp_flags",
    "rev_tos",
    "rev_ttl_min",
    "rev_ttl_max",
    "rev_vlan",
    "rev_mpls",
    "rev_icmp_type",
    "rev_icmp_code",
];

/// A sink and options of the binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// Scheme and settings.
    pub sink: &'static str,
    /// One record per direction.
    pub uniflow: bool,
}

pub const NETFLOW5: Case = Case { sink: "netflow5+udp", uniflow: true };
pub const NETFLOW9_BASIC: Case = Case { sink: "netflow9+udp", uniflow: true };
pub const NETFLOW9_FULL: Case = Case { sink: "netflow9+udp?template=full", uniflow: true };
pub const IPFIX_BASIC: Case = Case { sink: "ipfix+udp", uniflow: true };
pub const IPFIX_FULL: Case = Case { sink: "ipfix+udp?template=full", uniflow: true };
/// Bidirectional records.
pub const IPFIX_TWO_WAY: Case = Case { sink: "ipfix+udp?template=full", uniflow: false };
/// A list of elements.
pub const IPFIX_LIST: Case = Case {
    sink: "ipfix+udp?fields=flowStartMilliseconds,flowEndMilliseconds,sourceIPv4Address,destinationIPv4Address,\
           sourceIPv6Address,destinationIPv6Address,sourceTransportPort,destinationTransportPort,protocolIdentifier,\
           packetDeltaCount,octetDeltaCount,tcpControlBits,ipClassOfService,ingressInterface",
    uniflow: true,
};
pub const ALL_CASES: [Case; 7] =
    [NETFLOW5, NETFLOW9_BASIC, NETFLOW9_FULL, IPFIX_BASIC, IPFIX_FULL, IPFIX_TWO_WAY, IPFIX_LIST];

/// Every profile for a collector in both formats.
pub const PROFILES: [&str; 14] = [
    "ipfix+udp?template=nfdump",
    "ipfix+udp?template=pmacct",
    "ipfix+udp?template=goflow2",
    "ipfix+udp?template=akvorado",
    "ipfix+udp?template=ntopng",
    "ipfix+udp?template=logstash",
    "ipfix+udp?template=ipfixcol2",
    "netflow9+udp?template=nfdump",
    "netflow9+udp?template=pmacct",
    "netflow9+udp?template=goflow2",
    "netflow9+udp?template=akvorado",
    "netflow9+udp?template=ntopng",
    "netflow9+udp?template=logstash",
    "netflow9+udp?template=ipfixcol2",
];

/// Long enough that templates are retransmitted between data records.
const GENERATED: &str = "synth:mix,flows=1000,packets=20k,ipv6=30%,rst=20%,seed=5";
/// Datagrams per second: also the receive buffer of a user without privileges holds those of 0.2 s.
const RATE: u32 = 500;

/// The datagrams of one case. Each input has an observation domain of its own.
pub struct Export {
    pub case: Case,
    /// Payloads, in order.
    pub datagrams: Vec<Vec<u8>>,
    /// The records that the datagrams must hold.
    pub own: Vec<Row>,
}

/// Fields that records of a profile have, with times in ms.
pub fn fields_of_profile(sink: &str) -> Vec<&'static str> {
    let mut fields = COMMON.to_vec();
    if sink == "ipfix+udp?template=goflow2" {
        // Nanoseconds only.
        fields.retain(|field| !field.ends_with("_ms"));
    } else if sink.contains("akvorado") {
        fields.retain(|&field| field != "end_ms");
    }
    [&fields[..], &["vlan", "interface"]].concat()
}

static EXPORTS: LazyLock<BTreeMap<Case, Arc<Export>>> =
    LazyLock::new(|| [true, false].into_iter().flat_map(Export::record).collect());

impl Export {
    /// The binary reads each input once with the sinks of all cases.
    pub fn of(case: Case) -> Arc<Self> {
        EXPORTS[&case].clone()
    }

    /// Records all cases with one record per direction, or all others.
    fn record(uniflow: bool) -> Vec<(Case, Arc<Self>)> {
        let cases = ALL_CASES.into_iter().chain(PROFILES.map(|sink| Case { sink, uniflow: true }));
        let cases: Vec<Case> = cases.filter(|case| case.uniflow == uniflow).collect();
        let sockets: Vec<UdpSocket> = cases.iter().map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
        let sinks: Vec<(&str, u16)> =
            cases.iter().zip(&sockets).map(|(case, socket)| (case.sink, port(socket))).collect();
        let (sent, datagrams) = std::thread::scope(|scope| {
            // Dropped at the end, also after a panic.
            let (ends, waits): (Vec<Sender<()>>, Vec<Receiver<()>>) = cases.iter().map(|_| channel()).unzip();
            let receivers: Vec<_> = sockets
                .iter()
                .zip(waits)
                .map(|(socket, wait)| scope.spawn(move || receive(socket, move || _ = wait.recv()).1))
                .collect();
            let sent = send_captures(&sinks, uniflow);
            drop(ends);
            (sent, receivers.into_iter().map(|receiver| receiver.join().unwrap()).collect::<Vec<_>>())
        });
        let rows = rows(&sent.records);
        let export =
            |((case, datagrams), bytes): ((Case, _), _)| (case, Arc::new(Self::new(case, datagrams, &rows, bytes)));
        cases.into_iter().zip(datagrams).zip(sent.exported_bytes).map(export).collect()
    }

    fn new(case: Case, datagrams: Vec<Vec<u8>>, rows: &[Row], exported_bytes: u64) -> Self {
        let mut own = rows.to_vec();
        if case == NETFLOW5 {
            own.retain(is_ipv4);
            // The type and code of ICMP are in the destination port.
            for row in own.iter_mut().filter(|row| row["protocol"] == "1") {
                let both = number(row, "icmp_type") * 256 + number(row, "icmp_code");
                row.insert("dst_port", both.to_string());
            }
        }
        let bytes: u64 = own.iter().flat_map(|row| ["l2_bytes", "rev_l2_bytes"].map(|field| number(row, field))).sum();
        assert_eq!(bytes, exported_bytes, "{case:?}: octets of the records and of the ledger");
        assert!(own.len() > 1000, "{case:?}: {} records", own.len());
        Self { case, datagrams, own }
    }

    /// Asserts that a collector read the records in these fields. `differences` are the fields in
    /// which it must differ, each with the reason.
    pub fn compare(
        &self,
        collector: &str,
        theirs: &[Row],
        fields: &[&'static str],
        differences: &[(&'static str, &str)],
    ) {
        let what = format!("{:?} to {collector}", self.case);
        assert_same(&what, fields, &self.own, theirs);
        for (field, reason) in differences {
            let with = [fields, &[*field]].concat();
            let equal = pick(&with, &self.own) == pick(&with, theirs);
            assert!(!equal, "{what}: {field} is equal now; remove this difference: {reason}");
        }
    }
}

/// What runs of the binary sent.
pub struct Sent {
    pub records: Vec<Value>,
    /// Octets on the wire that each sink exported, by the ledger.
    exported_bytes: Vec<u64>,
}

/// Sends every shipped capture and generated traffic to all sinks, which the test receives itself.
fn send_captures(sinks: &[(&str, u16)], uniflow: bool) -> Sent {
    let folder = tempfile::tempdir().unwrap();
    let options: &[&str] = if uniflow { &["--layer2", "--uniflow"] } else { &["--layer2"] };
    let mut all = Sent { records: Vec::new(), exported_bytes: vec![0; sinks.len()] };
    for (input, domain) in capture_files().into_iter().chain([PathBuf::from(GENERATED)]).zip(1..) {
        let sent = send_at(test_rate(), &input, domain, sinks, folder.path(), options);
        all.records.extend(sent.records);
        all.exported_bytes.iter_mut().zip(sent.exported_bytes).for_each(|(all, bytes)| *all += bytes);
    }
    all
}

/// Receive queue in bytes and drops of the UDP socket bound to a port of loopback, if the file has it.
fn socket(port: u16) -> Option<(u64, u64)> {
    let table = std::fs::read_to_string("/proc/net/udp").expect("Linux has this file");
    let line = table.lines().find(|line| line.contains(&format!("0100007F:{port:04X} ")))?;
    let columns: Vec<&str> = line.split_whitespace().collect();
    let (_, waiting) = columns[4].split_once(':')?;
    Some((u64::from_str_radix(waiting, 16).ok()?, columns.last()?.parse().ok()?))
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "timeout: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a collector has received every datagram that was sent to it.
pub fn wait_until_received(port: u16) {
    let mut dropped = None;
    wait_until("the collector has received everything", || {
        // While other sockets come and go, the kernel can leave this one out of the file.
        let Some((waiting, drops)) = socket(port) else { return false };
        dropped = Some(drops);
        waiting == 0
    });
    assert_eq!(dropped, Some(0), "datagrams dropped by the kernel");
}

/// Waits until a collector listens.
pub fn wait_until_listening(port: u16) {
    wait_until("the collector listens", || socket(port).is_some());
}

/// Runs the binary on every capture with a sink on `port`, and returns its records as JSON.
pub fn send_all(sink: &str, port: u16, folder: &Path, options: &[&str]) -> Vec<Value> {
    wait_until_listening(port);
    let captures = capture_files();
    let each = captures.iter().zip(1..).map(|(capture, domain)| send(capture, domain, sink, port, folder, options));
    each.flat_map(|sent| sent.records).collect()
}

/// Runs the binary with a sink on `port`, at a rate that every collector can follow.
pub fn send(input: &Path, domain: u32, sink: &str, port: u16, folder: &Path, options: &[&str]) -> Sent {
    send_at(RATE, input, domain, &[(sink, port)], folder, options)
}

/// The same for a test that receives itself.
pub fn send_to_test(input: &Path, domain: u32, sink: &str, port: u16, folder: &Path, options: &[&str]) -> Sent {
    send_at(test_rate(), input, domain, &[(sink, port)], folder, options)
}

/// Datagrams per second to a test: [`receive`] gives root a large buffer.
fn test_rate() -> u32 {
    if is_root() { 20 * RATE } else { RATE }
}

fn send_at(rate: u32, input: &Path, domain: u32, sinks: &[(&str, u16)], folder: &Path, options: &[&str]) -> Sent {
    let [json, stats] = ["own.json", "ledger.json"].map(|name| folder.join(name));
    let mut command = command();
    command.args(["read", input.to_str().unwrap(), "-q", "--overwrite", "--domain", &domain.to_string()]);
    command.args(["-o", &format!("json:{}?fields=all", json.display())]).arg("--stats").arg(&stats);
    for (sink, port) in sinks {
        let (scheme, settings) = sink.split_once('?').unwrap_or((sink, ""));
        let settings = if settings.is_empty() { String::new() } else { format!("&{settings}") };
        command.args(["-o", &format!("{scheme}://127.0.0.1:{port}?rate={rate}{settings}")]);
    }
    let output = command.args(options).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
    sinks.iter().for_each(|&(_, port)| wait_until_received(port));
    let ledger = read_ledger(&stats);
    let exported = |at| ledger["sinks"][at]["exported"]["bytes"].as_u64().expect("the ledger has it");
    Sent { records: read_flows(&json), exported_bytes: (1..=sinks.len()).map(exported).collect() }
}

/// Receives the datagrams that `sending` causes.
pub fn receive<T: Send>(socket: &UdpSocket, sending: impl FnOnce() -> T + Send) -> (T, Vec<Vec<u8>>) {
    const END: &[u8] = b"no datagram of a flow";
    // The kernel delivers over loopback before it returns to the sender, or soon after on a busy machine.
    const DELIVERY: Duration = Duration::from_millis(100);
    // Only root may exceed the limit of the system (net.core.rmem_max).
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, 8 << 20);
    let address = socket.local_addr().unwrap();
    let mut datagrams = Vec::new();
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            // Also if it panics, the receiver ends.
            let sent = std::panic::catch_unwind(std::panic::AssertUnwindSafe(sending));
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(END, address).unwrap();
            sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let mut datagram = [0; 65_536];
        socket.set_read_timeout(None).unwrap();
        loop {
            match socket.recv(&mut datagram) {
                Ok(length) if datagram[..length] == *END => socket.set_read_timeout(Some(DELIVERY)).unwrap(),
                Ok(length) => datagrams.push(datagram[..length].to_vec()),
                Err(_) => break,
            }
        }
        sender.join().unwrap()
    });
    (sent, datagrams)
}

/// Writes datagrams to a capture (pcap, raw IPv4) from and to a port of loopback.
pub fn write_capture(datagrams: &[Vec<u8>], port: u16, to: &Path) {
    let mut bytes = Vec::from(0xa1b2_c3d4u32.to_le_bytes());
    bytes.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 101, 0, 0, 0]);
    for datagram in datagrams {
        let udp = (8 + datagram.len()) as u16;
        let ip = (20 + udp).to_be_bytes();
        bytes.extend([0; 8]);
        bytes.extend(u32::from(20 + udp).to_le_bytes().repeat(2));
        bytes.extend([0x45, 0, ip[0], ip[1], 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        bytes.extend([port.to_be_bytes(), port.to_be_bytes(), udp.to_be_bytes(), [0, 0]].concat());
        bytes.extend(datagram);
    }
    std::fs::write(to, bytes).unwrap();
}

/// Milliseconds since 1970 of `2026-11-20T12:00:00.123456789Z`. nfdump leaves out the Z.
pub fn milliseconds(text: &str) -> String {
    let time: jiff::Timestamp = format!("{}Z", text.trim_end_matches('Z')).parse().unwrap();
    time.as_millisecond().to_string()
}

/// Fields of a record as text. `names` has pairs `OURS:THEIRS`, where `THEIRS` may be several names
/// with `|` between them, of which the first present one counts. An absent field is 0.
pub fn row(record: &Value, names: &'static str) -> Row {
    let field = |pair: &'static str| {
        let (ours, theirs) = pair.split_once(':').expect("a pair of names");
        let text = match theirs.split('|').find_map(|name| record.get(name)) {
            None | Some(Value::Null) => "0".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        (ours, text)
    };
    names.split_whitespace().map(field).collect()
}

/// Splits `icmp`, which is type * 256 + code, into `icmp_type` and `icmp_code`.
pub fn split_icmp(row: &mut Row) {
    for (both, kind, code) in [("icmp", "icmp_type", "icmp_code"), ("rev_icmp", "rev_icmp_type", "rev_icmp_code")] {
        if row.contains_key(both) {
            row.insert(kind, (number(row, both) / 256).to_string());
            row.insert(code, (number(row, both) % 256).to_string());
        }
    }
}

/// Adds the time of boot, in ms since 1970, to times of NetFlow.
pub fn add_boot(row: &mut Row, boot_ms: u64) {
    for time in ["start_ms", "end_ms"] {
        row.insert(time, (boot_ms + number(row, time)).to_string());
    }
}

pub fn number(row: &Row, field: &str) -> u64 {
    row[field].parse().unwrap_or_else(|_| panic!("{field} of {row:?}"))
}

pub fn is_ipv4(row: &Row) -> bool {
    row["src"].parse::<std::net::Ipv4Addr>().is_ok()
}

/// Records of Weir with the field names that those of collectors get, too.
pub fn rows(records: &[Value]) -> Vec<Row> {
    let own = |record: &Value| {
        let mut row = row(
            record,
            "src:src_ip dst:dst_ip src_port:src_port dst_port:dst_port protocol:protocol_number packets:fwd_packets \
             bytes:fwd_bytes l2_bytes:fwd_l2_bytes tcp_flags:fwd_tcp_flags_number tos:fwd_tos ttl_min:fwd_ttl_min \
             ttl_max:fwd_ttl_max vlan:fwd_vlan_id inner_vlan:fwd_inner_vlan_id mpls:fwd_mpls_label \
             icmp_type:fwd_icmp_type icmp_code:fwd_icmp_code interface:interface ethertype:ethertype src_mac:src_mac \
             dst_mac:dst_mac syn:fwd_tcp_syn_count fin:fwd_tcp_fin_count rst:fwd_tcp_rst_count \
             retransmitted:fwd_tcp_retransmitted_packets out_of_order:fwd_tcp_out_of_order rev_packets:rev_packets \
             rev_bytes:rev_bytes rev_l2_bytes:rev_l2_bytes rev_tcp_flags:rev_tcp_flags_number rev_tos:rev_tos \
             rev_ttl_min:rev_ttl_min rev_ttl_max:rev_ttl_max rev_vlan:rev_vlan_id rev_mpls:rev_mpls_label \
             sampling:sampling_max rev_icmp_type:rev_icmp_type rev_icmp_code:rev_icmp_code",
        );
        for (ms, ns, time) in [("start_ms", "start_ns", "start_time"), ("end_ms", "end_ns", "end_time")] {
            let text = record[time].as_str().unwrap();
            let instant: jiff::Timestamp = text.parse().unwrap();
            row.insert(ms, instant.as_millisecond().to_string());
            row.insert(ns, instant.as_nanosecond().to_string());
            row.insert(time, text[11..29].to_owned());
        }
        let reason = ["", "idle", "active", "end", "forced", "resources"];
        let number = reason.iter().position(|&word| record["end_reason"] == word).unwrap_or(0);
        row.insert("end_reason", number.to_string());
        row
    };
    records.iter().map(own).collect()
}

/// Records of Weir with addresses: some collectors do not store those of layer 2.
pub fn rows_of_ip(records: &[Value]) -> Vec<Row> {
    let mut rows = rows(records);
    rows.retain(|row| row["src"] != "0");
    rows
}

/// The fields of each row, sorted.
fn pick(fields: &[&'static str], rows: &[Row]) -> Vec<Vec<String>> {
    let pick = |row: &Row| fields.iter().map(|&f| format!("{f}={}", row.get(f).map_or("", |v| v))).collect();
    let mut picked: Vec<Vec<String>> = rows.iter().map(pick).collect();
    picked.sort();
    picked
}

/// Asserts that both lists hold the same records in these fields.
pub fn assert_same(what: &str, fields: &[&'static str], own: &[Row], theirs: &[Row]) {
    let (own, theirs) = (pick(fields, own), pick(fields, theirs));
    let missing: Vec<_> = own.iter().filter(|row| theirs.binary_search(row).is_err()).take(3).collect();
    let extra: Vec<_> = theirs.iter().filter(|row| own.binary_search(row).is_err()).take(3).collect();
    assert!(
        own == theirs,
        "{what}: {} ours, {} theirs\nonly ours: {missing:#?}\nonly theirs: {extra:#?}",
        own.len(),
        theirs.len()
    );
}
