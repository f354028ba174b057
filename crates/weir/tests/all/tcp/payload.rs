//! Payload octets of every TCP segment class: they add up in every record, and JSON, CSV and IPFIX
//! carry the same numbers.

use serde_json::Value;
use std::collections::BTreeMap;
use testbed::decode::{Decoder, Value as Element};
use testbed::{Pcap, START, capture_files, tcp, weir};

/// Fields of accepted payload: each octet is unique or retransmitted.
const ACCEPTED: [&str; 7] = [
    "syn_bytes",
    "syn_retransmitted_bytes",
    "zero_window_probe_bytes",
    "in_order_bytes",
    "retransmitted_payload_bytes",
    "out_of_order_bytes",
    "retransmitted_unseen_bytes",
];
/// Fields of all other payload.
const NOT_ACCEPTED: [&str; 4] = ["rst_bytes", "keepalive_bytes", "out_of_window_bytes", "duplicate_bytes"];

/// The records that `weir read` writes as JSON.
fn read(input: &str, options: &[&str]) -> Vec<Value> {
    let (code, out, err) = weir([&["read", input, "-q", "--fields", "all", "-o", "json:-"], options].concat());
    assert!(matches!(code, 0 | 2), "{input}: {err}");
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Asserts the equations of docs/tcp.md section 4 for both directions of a record, and adds its
/// fields to `sums`.
fn assert_octets_add_up(record: &Value, sums: &mut BTreeMap<&str, u64>) {
    for direction in ["fwd_", "rev_"] {
        let of = |name: &str| record[format!("{direction}tcp_{name}")].as_u64();
        let Some(payload) = of("payload_bytes") else { continue };
        let mut all = |names: &[&'static str]| -> u64 {
            let octets = |name: &&'static str| (*name, of(name).unwrap_or_else(|| panic!("{name}: {record}")));
            names
                .iter()
                .map(octets)
                .inspect(|&(name, octets)| *sums.entry(name).or_default() += octets)
                .map(|of| of.1)
                .sum()
        };
        let (accepted, not_accepted) = (all(&ACCEPTED), all(&NOT_ACCEPTED));
        assert_eq!(Some(accepted), of("unique_bytes").zip(of("retransmitted_bytes")).map(|(a, b)| a + b), "{record}");
        assert_eq!(accepted + not_accepted, payload, "{record}");
        assert!(of("routed_duplicate_bytes") <= of("duplicate_bytes"), "{record}");
    }
}

#[test]
fn payload_octets_of_all_classes_add_up_in_every_record() {
    let mut sums = BTreeMap::new();
    for seed in 1..4 {
        let network = "loss=6%,reorder=5%,duplicate=3%,routed=30%,spurious=2%,keepalive=20%,zerowindow=20%,rst=30%";
        // With active timeouts, so that connections have several records.
        let records = read(&format!("synth:lossy,flows=100,packets=30k,{network},seed={seed}"), &["--active", "1s"]);
        assert!(records.len() > 100, "{}", records.len());
        records.iter().for_each(|record| assert_octets_add_up(record, &mut sums));
    }
    let never =
        |name: &str| ["syn_bytes", "syn_retransmitted_bytes", "rst_bytes", "out_of_window_bytes"].contains(&name);
    assert!(sums.iter().all(|(name, &octets)| never(name) || octets > 0), "{sums:?}");
    for path in capture_files() {
        read(path.to_str().unwrap(), &[]).iter().for_each(|record| assert_octets_add_up(record, &mut sums));
    }
}

/// A segment between a port of the client and the server.
struct Segment {
    from_client: bool,
    port: u16,
    numbers: [u32; 2],
    control: u8,
    window: u16,
    payload: usize,
}

impl Segment {
    fn frame(&self, identification: u16, ttl: u8) -> Vec<u8> {
        let (client, server) = (([192, 0, 2, 10], self.port), ([198, 51, 100, 20], 80_u16));
        let (from, to) = if self.from_client { (client, server) } else { (server, client) };
        let mut frame = tcp(from, to, self.control, self.payload);
        frame[38..46].copy_from_slice(&self.numbers.map(u32::to_be_bytes).concat());
        frame[48..50].copy_from_slice(&self.window.to_be_bytes());
        frame[18..20].copy_from_slice(&identification.to_be_bytes());
        frame[22] = ttl;
        frame
    }
}

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Three connections: in the first, the client sends payload of every class except those that fill
/// holes; the second is a SYN and a RST with payload; the third is a SYN and a RST without.
fn every_class() -> Pcap {
    let client = |control, sequence, acknowledgment, payload| Segment {
        from_client: true,
        port: 40_000,
        numbers: [sequence, acknowledgment],
        control,
        window: 65_535,
        payload,
    };
    let server = |control, acknowledgment, window| Segment {
        from_client: false,
        numbers: [if control & SYN != 0 { 5000 } else { 5001 }, acknowledgment],
        window,
        ..client(control, 0, 0, 0)
    };
    let segments = [
        client(SYN, 1000, 0, 5),
        client(SYN, 1000, 0, 5),
        server(SYN | ACK, 1006, 65_535),
        client(ACK, 1006, 5001, 0),
        // The loop below copies this segment twice.
        client(ACK, 1006, 5001, 100),
        server(ACK, 1106, 0),
        // A zero-window probe of one octet; after the window opens, the same octet as a keep-alive.
        client(ACK, 1106, 5001, 1),
        server(ACK, 1107, 65_535),
        client(ACK, 1106, 5001, 1),
        // Out of window.
        client(ACK, 1107 + (1 << 30), 5001, 7),
        // 51 retransmitted octets and 20 new ones.
        client(ACK, 1056, 5001, 71),
        client(RST | ACK, 1127, 5001, 9),
    ];
    let mut pcap = Pcap::new();
    for (at, segment) in (0..).zip(&segments) {
        let time = at * 50_000;
        pcap = pcap.frame(START, time, &segment.frame(at as u16 + 1, 64));
        if segment.payload == 100 {
            pcap = pcap.frame(START, time + 10, &segment.frame(at as u16 + 1, 64));
            pcap = pcap.frame(START, time + 20, &segment.frame(at as u16 + 1, 63));
        }
    }
    for (port, payload) in [(40_001, [3, 4]), (40_002, [0, 0])] {
        let syn = Segment { port, ..client(SYN, 1000, 0, payload[0]) };
        let rst = Segment { port, payload: payload[1], ..server(RST | ACK, 1001, 0) };
        pcap = pcap.frame(START + 1, 0, &syn.frame(1, 64)).frame(START + 1, 1000, &rst.frame(1, 64));
    }
    pcap
}

/// Record fields and the IPFIX elements with the same value.
const FIELDS_AND_ELEMENTS: [(&str, &str); 10] = [
    ("syn_bytes", "SynOctets"),
    ("syn_retransmitted_bytes", "SynRetransmittedOctets"),
    ("rst_bytes", "RstOctets"),
    ("in_order_bytes", "InOrderOctets"),
    ("retransmitted_payload_bytes", "RetransmittedPayloadOctets"),
    ("duplicate_bytes", "DuplicateOctets"),
    ("routed_duplicate_bytes", "RoutedDuplicateOctets"),
    ("keepalive_bytes", "KeepAliveOctets"),
    ("zero_window_probe_bytes", "ZeroWindowProbeOctets"),
    ("out_of_window_bytes", "OutOfWindowOctets"),
];

#[test]
fn json_csv_and_ipfix_carry_the_payload_octets_of_every_class() {
    let capture = every_class().saved();
    let [csv, ipfix] = ["f.csv", "f.ipfix"].map(|name| capture.beside(name));
    let sinks = [format!("csv:{}", csv.display()), format!("ipfix:{}", ipfix.display())];
    let records = read(capture.name(), &["-o", &sinks[0], "-o", &sinks[1]]);
    let csv = std::fs::read_to_string(csv).unwrap();
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let rows: Vec<BTreeMap<&str, &str>> = lines.map(|cells| names.iter().copied().zip(cells).collect()).collect();
    let elements = Decoder::new().file(&std::fs::read(ipfix).unwrap());
    assert_eq!((records.len(), rows.len(), elements.len()), (3, 3, 3));
    // Of client and server, in the order of `FIELDS_AND_ELEMENTS`. IPFIX omits only zeros.
    let expected = |port: u64| match port {
        40_000 => [Some([5, 5, 9, 100, 71, 200, 100, 1, 1, 7]), Some([0; 10])],
        40_001 => [Some([3, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Some([0, 0, 4, 0, 0, 0, 0, 0, 0, 0])],
        _ => [None; 2],
    };
    for record in &records {
        assert_octets_add_up(record, &mut BTreeMap::new());
        let port = record["src_port"].as_u64().unwrap();
        let row = rows.iter().find(|row| row["src_port"] == port.to_string()).unwrap();
        let of_port = |record: &&testbed::decode::Record| record["sourceTransportPort"] == Element::Unsigned(port);
        let elements = elements.iter().find(of_port).unwrap();
        for ((field, element), expected) in ["fwd_", "rev_"].into_iter().zip(["tcp", "reverseTcp"]).zip(expected(port))
        {
            for (at, (name, rest)) in FIELDS_AND_ELEMENTS.into_iter().enumerate() {
                let octets = expected.map_or(0, |octets| octets[at]);
                let field = format!("{field}tcp_{name}");
                assert_eq!(record[&field], octets, "{field} of {port}");
                assert_eq!(row[field.as_str()], octets.to_string(), "{field} of {port}");
                let sent = expected.map(|_| Element::Unsigned(octets));
                assert_eq!(elements.get(&format!("{element}{rest}")), sent.as_ref(), "{field} of {port}");
            }
        }
    }
    let whole = records.iter().find(|record| record["src_port"] == 40_000).unwrap();
    assert_eq!((&whole["fwd_tcp_retransmitted_bytes"], &whole["fwd_tcp_unique_bytes"]), (&56.into(), &126.into()));
}
