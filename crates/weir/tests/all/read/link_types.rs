//! Captures of less common link types: `weir read` gives the addresses, ports and lengths that
//! tshark reads in the same file, and names a link type that it does not decode.

use serde_json::{Value, json};
use std::process::Command;
use testbed::{Pcap, START, SavedCapture, is_installed, ledger_of, success, udp, weir};

/// Source and destination address, ports, and length of the IP packet.
type Row = (String, String, u16, u16, u64);

const SOURCE: [u8; 4] = [192, 0, 2, 10];
const DESTINATION: [u8; 4] = [198, 51, 100, 20];

/// A capture of one link type, one packet every millisecond.
fn capture(link_type: u32, frames: &[Vec<u8>]) -> Pcap {
    let mut pcap = Pcap::new();
    pcap.0[20..24].copy_from_slice(&link_type.to_le_bytes());
    (0..).zip(frames).fold(pcap, |pcap, (number, frame)| pcap.frame(START, number * 1000, frame))
}

/// UDP over IPv4. Ports and length depend on `number`.
fn packet_v4(number: u16) -> Vec<u8> {
    // `udp` gives an Ethernet frame.
    udp((SOURCE, 1000 + number), (DESTINATION, 2000 + number), 10 + usize::from(number))[14..].to_vec()
}

/// UDP over IPv6. Ports and length depend on `number`.
fn packet_v6(number: u16) -> Vec<u8> {
    let payload = vec![0; 30 + usize::from(number)];
    let length = (8 + payload.len() as u16).to_be_bytes();
    let address = |last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let ports = [(1000 + number).to_be_bytes(), (2000 + number).to_be_bytes()].concat();
    let header = [&[0x60, 0, 0, 0, length[0], length[1], 17, 64][..], &address(1), &address(2)].concat();
    [&header[..], &ports, &length, &[0, 0], &payload].concat()
}

/// One frame per header: IPv4 packets behind the first list, IPv6 packets behind the second.
fn frames(headers_v4: &[&[u8]], headers_v6: &[&[u8]]) -> Vec<Vec<u8>> {
    let v4 = (0..).zip(headers_v4).map(|(number, header)| [*header, &packet_v4(number)].concat());
    let v6 = (20..).zip(headers_v6).map(|(number, header)| [*header, &packet_v6(number)].concat());
    v4.chain(v6).collect()
}

fn nflog(family: u8, packet: &[u8]) -> Vec<u8> {
    let attribute = |number: u16, value: &[u8]| {
        let mut octets = [&(4 + value.len() as u16).to_le_bytes(), &number.to_le_bytes(), value].concat();
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    };
    [vec![family, 0, 0, 5], attribute(1, &[8, 0, 1, 0]), attribute(10, b"input\0"), attribute(9, packet)].concat()
}

fn ieee_802_3(llc: &[u8], packet: &[u8]) -> Vec<u8> {
    let length = ((llc.len() + packet.len()) as u16).to_be_bytes();
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &length[..], llc, packet].concat()
}

fn cases() -> Vec<(u32, Vec<Vec<u8>>)> {
    let pppoe = |packet: Vec<u8>, protocol: [u8; 2]| {
        let length = (2 + packet.len() as u16).to_be_bytes();
        [&[0x11, 0, 0, 7][..], &length, &protocol, &packet].concat()
    };
    let cooked = [0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x88, 0x64];
    let cooked_2 = [0x88, 0x64, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
    let bridged = [0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 7, 0, 0, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    vec![
        (9, frames(&[&[0xff, 3, 0, 0x21], &[0, 0x21], &[0x21]], &[&[0xff, 3, 0, 0x57], &[0x57]])),
        (50, frames(&[&[0xff, 3, 0, 0x21], &[0x0f, 0, 8, 0]], &[&[0xff, 3, 0, 0x57], &[0x8f, 0, 0x86, 0xdd]])),
        (100, frames(&[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &bridged], &[&[0xaa, 0xaa, 3, 0, 0, 0, 0x86, 0xdd]])),
        (104, frames(&[&[0x0f, 0, 8, 0], &[0x8f, 0, 8, 0]], &[&[0x0f, 0, 0x86, 0xdd]])),
        (239, vec![nflog(2, &packet_v4(0)), nflog(2, &packet_v4(1)), nflog(10, &packet_v6(2))]),
        (
            113,
            vec![
                [&cooked, &pppoe(packet_v4(0), [0, 0x21])[..]].concat(),
                [&cooked, &pppoe(packet_v6(1), [0, 0x57])[..]].concat(),
            ],
        ),
        (276, vec![[&cooked_2, &pppoe(packet_v4(0), [0, 0x21])[..]].concat()]),
        (
            1,
            vec![
                ieee_802_3(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &packet_v4(0)),
                ieee_802_3(&[6, 6, 3], &packet_v4(1)),
                ieee_802_3(&[0xaa, 0xaa, 3, 0, 0, 0, 0x86, 0xdd], &packet_v6(2)),
                ieee_802_3(&[0xaa, 0xaa, 3, 0, 0, 0xf8, 8, 0], &packet_v4(3)),
                ieee_802_3(&[0xaa, 0xaa, 3, 0, 0, 0xf8, 0x86, 0xdd], &packet_v6(4)),
            ],
        ),
    ]
}

fn weir_rows(capture: &SavedCapture) -> Vec<Row> {
    let out = success(["read", capture.name(), "-q", "-o", "json:-"]);
    let row = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| record[name].as_str().unwrap().to_owned();
        let number = |name: &str| record[name].as_u64().unwrap();
        let ports = (number("src_port") as u16, number("dst_port") as u16);
        (text("src_ip"), text("dst_ip"), ports.0, ports.1, number("bytes"))
    };
    let mut rows: Vec<Row> = out.lines().map(row).collect();
    rows.sort();
    rows
}

fn tshark_rows(capture: &SavedCapture) -> Vec<Row> {
    const FIELDS: [&str; 8] =
        ["ip.src", "ipv6.src", "ip.dst", "ipv6.dst", "udp.srcport", "udp.dstport", "ip.len", "ipv6.plen"];
    let fields = FIELDS.iter().flat_map(|field| ["-e", field]);
    let output = Command::new("tshark").arg("-n").arg("-r").arg(capture).args(["-T", "fields"]).args(fields).output();
    let text = String::from_utf8(output.expect("tshark runs").stdout).unwrap();
    let row = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let ip_bytes = match columns[6] {
            "" => 40 + columns[7].parse::<u64>().unwrap(),
            length => length.parse().unwrap(),
        };
        let port = |at: usize| columns[at].parse().unwrap();
        let address = |at: usize| columns[at].to_owned() + columns[at + 1];
        (address(0), address(2), port(4), port(5), ip_bytes)
    };
    let mut rows: Vec<Row> = text.lines().map(row).collect();
    rows.sort();
    rows
}

#[test]
fn records_of_every_link_type_equal_the_fields_that_tshark_reads() {
    let tshark = is_installed("tshark");
    for (link_type, frames) in cases() {
        let capture = capture(link_type, &frames).saved();
        let rows = weir_rows(&capture);
        assert_eq!(rows.len(), frames.len(), "link type {link_type}: {rows:?}");
        if tshark {
            assert_eq!(rows, tshark_rows(&capture), "link type {link_type}");
        }
    }
}

#[test]
fn the_ledger_has_no_ethertype_for_control_frames_without_one() {
    let [slarp, osi, arp] = [&[0x8f, 0, 0x80, 0x35], &[0x0f, 0, 0xfe, 0xfe], &[0x0f, 0, 8, 6]]
        .map(|header: &[u8; 4]| [&header[..], &[0; 20]].concat());
    let lcp = vec![0xff, 3, 0xc0, 0x21, 1, 1, 0, 4];
    for (link_type, frames, ethertypes) in [
        (9, vec![lcp.clone()], json!({"0x0000": 1})),
        (50, vec![lcp, slarp.clone()], json!({"0x0000": 2})),
        (104, vec![slarp, osi, arp], json!({"0x0000": 2, "0x0806": 1})),
    ] {
        let capture = capture(link_type, &frames).saved();
        let (_, err, ledger) = ledger_of(["read", capture.name(), "-o", "table:/dev/null"]);
        assert_eq!(ledger["ethertypes"], ethertypes, "link type {link_type}");
        assert!(err.contains("(no EtherType: "), "{err}");
    }
}

#[test]
fn an_unsupported_link_type_is_named() {
    let (_, out, err) = weir(["read", capture(127, &[vec![0; 60], vec![0; 60]]).saved().name(), "-v"]);
    assert!((out + &err).contains("2 packets (link type 127 IEEE802_11_RADIOTAP: 2): Weir does not decode"), "{err}");
    // The figures of the ledger are aligned, although this label is long.
    let label = "  refused, link type 127 IEEE802_11_RADIOTAP";
    let line = |start| err.lines().find(|line: &&str| line.starts_with(start)).unwrap();
    let (received, refused) = (line("received"), line(label));
    assert!(refused.ends_with(" 2") && received.get(refused.len() - 2..).unwrap().starts_with(" 2 "), "{err}");
}
