//! Rules: which packets of a capture are forwarded, to which outputs, in which order, and how much
//! of them. docs/rules.md.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testbed::namespace::until;
use testbed::running::Running;
use testbed::{Background, Pcap, START, captures, command, failure, ledger_of, number, success, weir};
use weir_packet::{DecodeOptions, Packet};

/// A flow: protocol, and both endpoints in order.
type Flow = (u8, ([u8; 16], u16), ([u8; 16], u16));

/// The frames of a pcap file with nanosecond times: time, captured octets, octets on the wire.
fn frames(path: &Path) -> Vec<(u64, Vec<u8>, u32)> {
    let octets = std::fs::read(path).unwrap();
    let number = |at: usize| u32::from_le_bytes(octets[at..at + 4].try_into().unwrap());
    let (mut at, mut frames) = (24, Vec::new());
    while at < octets.len() {
        let captured = number(at + 8) as usize;
        let time = u64::from(number(at)) * 1_000_000_000 + u64::from(number(at + 4));
        frames.push((time, octets[at + 16..at + 16 + captured].to_vec(), number(at + 12)));
        at += 16 + captured;
    }
    frames
}

fn flow_of(frame: &[u8], wire: u32) -> Flow {
    let mut packet = Packet::default();
    weir_packet::decode(1, frame, wire, DecodeOptions { decapsulate: false }, &mut packet).expect("it is IP");
    let mut ends = [(packet.source, packet.source_port), (packet.destination, packet.destination_port)];
    ends.sort();
    (packet.protocol, ends[0], ends[1])
}

fn by_flow(frames: Vec<(u64, Vec<u8>, u32)>) -> BTreeMap<Flow, Vec<(u64, Vec<u8>, u32)>> {
    let mut flows: BTreeMap<Flow, Vec<_>> = BTreeMap::new();
    for frame in frames {
        flows.entry(flow_of(&frame.1, frame.2)).or_default().push(frame);
    }
    flows
}

struct Folder(tempfile::TempDir);

impl Folder {
    /// A folder with a capture of many applications, and a rules file.
    fn new(rules: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let capture = folder.path("apps.pcap");
        success(["synth", "apps,flows=200,packets=12k,seed=4", "-q", "-o", capture.to_str().unwrap()]);
        let rules = rules.replace("FOLDER", folder.0.path().to_str().unwrap());
        std::fs::write(folder.path("rules.toml"), rules).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Meters the capture with the rules, and returns the ledger.
    fn read(&self) -> serde_json::Value {
        let [capture, rules] = ["apps.pcap", "rules.toml"].map(|name| self.text(name));
        let (code, err, ledger) =
            ledger_of(["read", &capture, "-q", "-o", "csv:/dev/null", "--rules", &rules, "--no-sandbox"]);
        assert_eq!((code, &*err), (0, ""));
        assert_eq!(ledger["balanced"], true, "{ledger:#}");
        ledger
    }
}

/// The flows of each application, by `weir read` alone.
fn applications(folder: &Folder) -> BTreeMap<String, Option<String>> {
    let (_, _, records, _) =
        testbed::metered(&["read", &folder.text("apps.pcap"), "-q", "--fields", "community_id,application"]);
    let text = |value: &serde_json::Value| value.as_str().map(String::from);
    records.iter().map(|record| (text(&record["community_id"]).unwrap(), text(&record["application"]))).collect()
}

/// The Community ID of each flow of a capture.
fn community_ids(folder: &Folder) -> BTreeMap<Flow, String> {
    let fields = "community_id,src_ip,dst_ip,src_port,dst_port,protocol_number";
    let (_, _, records, _) = testbed::metered(&["read", &folder.text("apps.pcap"), "-q", "--fields", fields]);
    let address = |text: &serde_json::Value| match text.as_str().unwrap().parse().unwrap() {
        std::net::IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(address) => address.octets(),
    };
    let flow = |record: &serde_json::Value| {
        let port = |name: &str| record[name].as_u64().unwrap_or(0) as u16;
        let mut ends = [(address(&record["src_ip"]), port("src_port")), (address(&record["dst_ip"]), port("dst_port"))];
        ends.sort();
        (record["protocol_number"].as_u64().unwrap() as u8, ends[0], ends[1])
    };
    records.iter().map(|record| (flow(record), record["community_id"].as_str().unwrap().to_owned())).collect()
}

#[test]
fn each_flow_is_handed_on_by_its_application_from_its_first_packet_on_and_in_order() {
    let folder = Folder::new(
        r#"
[egress.ids]
outputs = ["pcap:FOLDER/ids1.pcap", "pcap:FOLDER/ids2.pcap"]
[egress.names]
outputs = ["pcap:FOLDER/names.pcap"]
[default]
to = "ids"
[hold]
ms = 60000
[[network]]
name = "banned"
where = "port 22"
action = "drop"
[[application]]
where = "application = tls"
shunt = 5
slice = "l4"
[[application]]
where = "application = dns"
to = ["ids", "names"]
[[application]]
where = "application = quic"
action = "drop"
"#,
    );
    let ledger = folder.read();
    let actions = &ledger["actions"];
    assert!(number(&actions["decided_late"]) == 0 && number(&actions["decided_full"]) == 0, "{actions:#}");
    let applications = applications(&folder);
    let ids = community_ids(&folder);
    let original = by_flow(frames(&folder.path("apps.pcap")));
    let outputs = ["ids1.pcap", "ids2.pcap", "names.pcap"].map(|name| by_flow(frames(&folder.path(name))));
    let (mut tls, mut dropped, mut others, mut cut) = (0, 0, 0, 0);
    for (flow, packets) in &original {
        let found: Vec<_> = outputs[..2].iter().filter_map(|output| output.get(flow)).collect();
        let application = applications[&ids[flow]].as_deref();
        let is_banned = flow.1.1 == 22 || flow.2.1 == 22;
        if is_banned || application == Some("quic") {
            assert!(found.is_empty(), "{flow:?}");
            dropped += 1;
            continue;
        }
        let [forwarded] = &found[..] else { panic!("{flow:?} is at {} consumers", found.len()) };
        if application == Some("tls") {
            assert_eq!(forwarded.len(), packets.len().min(5), "{flow:?}");
            for (sent, of_capture) in forwarded.iter().zip(packets) {
                assert!(of_capture.1.starts_with(&sent.1) && (sent.0, sent.2) == (of_capture.0, of_capture.2));
                // All headers, and nothing behind them.
                let header = |frame: &[u8]| {
                    let mut packet = Packet::default();
                    weir_packet::decode(1, frame, sent.2, DecodeOptions { decapsulate: false }, &mut packet).unwrap();
                    (packet.payload_bytes, packet.sequence, packet.control)
                };
                assert_eq!(header(&sent.1), header(&of_capture.1), "lengths inside stay as sent");
                let payload = header(&of_capture.1).0 as usize;
                assert!(sent.1.len() >= 54 && (payload == 0 || sent.1.len() == of_capture.1.len() - payload));
                cut += usize::from(sent.1.len() < of_capture.1.len());
            }
            tls += 1;
        } else {
            assert_eq!(*forwarded, packets, "{flow:?} {application:?}");
            others += 1;
        }
        assert_eq!(outputs[2].get(flow), (application == Some("dns")).then_some(packets), "{flow:?}");
    }
    assert!(tls > 20 && dropped > 10 && others > 20 && cut > 50, "{tls} {dropped} {others} {cut}");
    assert_eq!(number(&actions["cut"]), cut as u64);
    let sent = |name: &str| {
        let outputs = actions["outputs"].as_array().unwrap();
        number(
            &outputs.iter().find(|output| output["output"].as_str().unwrap().ends_with(name)).unwrap()["sent"]["packets"],
        )
    };
    for (name, output) in ["ids1.pcap", "ids2.pcap", "names.pcap"].iter().zip(&outputs) {
        assert_eq!(sent(name), output.values().map(Vec::len).sum::<usize>() as u64, "{name}");
    }
    assert_eq!(sent("ids1.pcap") + sent("ids2.pcap"), number(&actions["forwarded"]["packets"]));
}

/// A frame, and where its IP headers and its transport header end.
type Headers = (Vec<u8>, usize, usize);

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;

/// An Ethernet header with VLAN tags, then these octets.
fn ethernet(tags: usize, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    (0..tags).for_each(|tag| frame.extend([0x81, 0, 0, 10 + tag as u8]));
    [&frame[..], &ethertype.to_be_bytes(), payload].concat()
}

/// An IPv4 packet with `options` octets of options. `fragment` is the field of flags and offset.
fn ipv4(protocol: u8, fragment: u16, options: usize, payload: &[u8]) -> Vec<u8> {
    let header = IPV4 + options;
    let mut packet = vec![0x40 | (header / 4) as u8, 0];
    packet.extend(((header + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 7]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.resize(header, 1);
    [packet, payload.to_vec()].concat()
}

/// An IPv6 packet; `payload` begins with the header that `next` names.
fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    for host in [1, 2] {
        packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    [packet, payload.to_vec()].concat()
}

/// A TCP segment with 12 octets of options and a payload.
fn tcp_segment(payload: usize) -> Vec<u8> {
    let mut segment = vec![0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x80, 0x18, 4, 0, 0, 0, 0, 0];
    segment.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    segment.resize(32 + payload, b'x');
    segment
}

fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0x30, 0x39];
    datagram.extend(port.to_be_bytes());
    datagram.extend(((8 + payload.len()) as u16).to_be_bytes());
    datagram.extend([0, 0]);
    [datagram, payload.to_vec()].concat()
}

/// Frames with every kind of header before the payload; tunnels are looked into if `decap`.
fn frames_with_headers(decap: bool) -> Vec<Headers> {
    let (tcp, udp) = (tcp_segment(300), datagram(9999, &[b'x'; 300]));
    let inner = ethernet(0, 0x800, &ipv4(6, 0, 0, &tcp));
    let vxlan = [&[8, 0, 0, 0, 0, 0, 5, 0][..], &inner].concat();
    let gre = [&[0, 0, 8, 0][..], &ipv4(6, 0, 0, &tcp)].concat();
    // Hop-by-hop options, then destination options.
    let extensions = [&[60, 0, 1, 4, 0, 0, 0, 0][..], &[17, 0, 1, 4, 0, 0, 0, 0], &udp].concat();
    let first_fragment = [&[17, 0, 0, 1, 0, 0, 0, 9][..], &udp].concat();
    let later_fragment = [&[17, 0, 1, 0x58, 0, 0, 0, 9][..], &[b'x'; 300]].concat();
    let icmp = [&[8, 0, 0, 0, 0, 1, 0, 1][..], &[b'x'; 300]].concat();
    let frame = |octets: Vec<u8>, network: usize, transport: usize| (octets, network, network + transport);
    let mut frames = vec![
        frame(ethernet(0, 0x800, &ipv4(6, 0, 8, &tcp)), ETHERNET + IPV4 + 8, 32),
        frame(ethernet(2, 0x86dd, &ipv6(0, &extensions)), ETHERNET + 8 + IPV6 + 16, 8),
        frame(ethernet(1, 0x86dd, &ipv6(44, &first_fragment)), ETHERNET + 4 + IPV6 + 8, 8),
        frame(ethernet(0, 0x86dd, &ipv6(44, &later_fragment)), ETHERNET + IPV6 + 8, 0),
        frame(ethernet(0, 0x800, &ipv4(17, 0x2000, 0, &udp)), ETHERNET + IPV4, 8),
        frame(ethernet(0, 0x800, &ipv4(17, 0x20, 0, &[b'x'; 300])), ETHERNET + IPV4, 0),
        frame(ethernet(0, 0x800, &ipv4(1, 0, 0, &icmp)), ETHERNET + IPV4, 8),
        frame(ethernet(0, 0x8847, &[&[0, 1, 1, 64][..], &ipv4(17, 0, 0, &udp)].concat()), ETHERNET + 4 + IPV4, 8),
    ];
    frames.extend(if decap {
        [
            frame(ethernet(0, 0x800, &ipv4(47, 0, 0, &gre)), ETHERNET + IPV4 + 4 + IPV4, 32),
            frame(ethernet(0, 0x800, &ipv4(17, 0, 0, &datagram(4789, &vxlan))), 2 * (ETHERNET + IPV4) + 16, 32),
            frame(ethernet(0, 0x86dd, &ipv6(4, &ipv4(6, 0, 0, &tcp))), ETHERNET + IPV6 + IPV4, 32),
            frame(ethernet(1, 0x800, &ipv4(41, 0, 0, &ipv6(0, &extensions))), ETHERNET + 4 + IPV4 + IPV6 + 16, 8),
        ]
    } else {
        // The tunnel's own headers.
        [
            frame(ethernet(0, 0x800, &ipv4(47, 0, 0, &gre)), ETHERNET + IPV4, 8),
            frame(ethernet(0, 0x800, &ipv4(17, 0, 0, &datagram(4789, &vxlan))), ETHERNET + IPV4, 8),
            frame(ethernet(0, 0x86dd, &ipv6(4, &ipv4(6, 0, 0, &tcp))), ETHERNET + IPV6, 8),
            frame(ethernet(1, 0x800, &ipv4(41, 0, 0, &ipv6(0, &extensions))), ETHERNET + 4 + IPV4, 8),
        ]
    });
    frames
}

/// Forwards a capture through rules with this default. Returns what was forwarded.
fn handed_on(capture: &Path, default: &str, options: &[&str]) -> Vec<(u64, Vec<u8>, u32)> {
    let folder = tempfile::tempdir().unwrap();
    let [out, rules] = ["out.pcap", "rules.toml"].map(|name| folder.path().join(name));
    std::fs::write(&rules, format!("[egress.out]\noutputs = 'pcap:{}'\n[default]\n{default}\n", out.display()))
        .unwrap();
    let arguments =
        ["read", capture.to_str().unwrap(), "-q", "-o", "csv:/dev/null", "--rules", rules.to_str().unwrap()];
    let (code, err, ledger) = ledger_of([&arguments[..], options].concat());
    assert_eq!(code, 0, "{err}");
    assert_eq!(ledger["balanced"], true, "{ledger:#}");
    frames(&out)
}

#[test]
fn the_first_packets_of_each_flow_go_whole_and_later_ones_are_sliced() {
    let capture = captures().join("web.pcap");
    let whole = handed_on(&capture, "", &[]);
    let headers = handed_on(&capture, "slice = 'l4'", &[]);
    for after in [1, 5, 20, 1000] {
        let cut = handed_on(&capture, &format!("slice = 'l4'\nslice_after = {after}"), &[]);
        assert_eq!(cut.len(), whole.len());
        // Packets of both directions of a flow so far. Its flows differ in their ports.
        let mut packets: HashMap<Vec<u8>, usize> = HashMap::new();
        for (number, (_, found, _)) in cut.iter().enumerate() {
            let frame = &whole[number].1;
            let ip = if frame[12..14] == [8, 0] { &frame[26..] } else { &frame[22..] };
            let length = if frame[12..14] == [8, 0] { 4 } else { 16 };
            let (ends, is_tcp) =
                (&ip[..2 * length + 4], frame[23] == 6 && length == 4 || frame[20] == 6 && length == 16);
            let (one, other) = ends[..2 * length].split_at(length);
            let ports = if is_tcp { [&ends[2 * length..][..2], &ends[2 * length..][2..]] } else { [&[][..]; 2] };
            let [one, other] = [[one, ports[0]].concat(), [other, ports[1]].concat()];
            let key = [one.clone().min(other.clone()), one.max(other)].concat();
            let of_flow = packets.entry(key).or_default();
            *of_flow += 1;
            let expected = if *of_flow <= after { frame } else { &headers[number].1 };
            assert!(found == expected, "frame {number}, packet {of_flow} of its flow, after {after}");
        }
    }
}

#[test]
fn slices_end_behind_the_headers_of_tunnels_tags_extensions_and_fragments() {
    for (decap, options) in [(false, &[][..]), (true, &["--decap"])] {
        let expected = frames_with_headers(decap);
        let capture = Pcap::of(&expected.iter().map(|(frame, ..)| frame.clone()).collect::<Vec<_>>()).saved();
        for (slice, is_transport) in [("l3", false), ("l4", true)] {
            let cut = handed_on(capture.name().as_ref(), &format!("slice = '{slice}'"), options);
            assert_eq!(cut.len(), expected.len());
            for (number, ((_, found, wire), (whole, network, transport))) in cut.iter().zip(&expected).enumerate() {
                let end = if is_transport { *transport } else { *network };
                assert_eq!(found.len(), end, "frame {number}, {slice}, decap {decap}");
                assert!(*found == whole[..end] && *wire as usize == whole.len(), "frame {number}, {slice}");
            }
        }
        // All that is read of the headers is the same, and so are the lengths inside.
        let [whole, cut] = ["", "slice = 'l4'"].map(|default| handed_on(capture.name().as_ref(), default, options));
        for (number, (whole, cut)) in whole.iter().zip(&cut).enumerate() {
            let decoded = [whole, cut].map(|(_, frame, wire)| {
                let (mut packet, options) = (Packet::default(), DecodeOptions { decapsulate: decap });
                weir_packet::decode(1, frame, *wire, options, &mut packet)
                    .unwrap_or_else(|why| panic!("{number}: {why:?}"));
                format!("{packet:?}")
            });
            assert_eq!(decoded[0], decoded[1], "frame {number}, decap {decap}");
        }
    }
}

#[test]
fn tshark_reads_the_same_headers_in_slices() {
    if !testbed::is_installed("tshark") {
        return eprintln!("SKIPPED: tshark is not installed");
    }
    let fields = |capture: &Path| {
        let mut tshark = std::process::Command::new("tshark");
        tshark
            .args(["-n", "-o", "ip.defragment:false", "-o", "ipv6.defragment:false", "-T", "fields", "-r"])
            .arg(capture);
        let names = "frame.number frame.len eth.src vlan.id ip.len ip.id ip.frag_offset ip.proto ip.src ipv6.plen \
                     ipv6.nxt ipv6.src tcp.srcport tcp.hdr_len tcp.seq_raw udp.srcport udp.length gre.proto vxlan.vni mpls.label";
        for name in names.split_whitespace() {
            tshark.args(["-e", name]);
        }
        let output = tshark.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let made = Pcap::of(&frames_with_headers(true).into_iter().map(|(frame, ..)| frame).collect::<Vec<_>>());
    let made = made.save(folder.path(), "made.pcap");
    let shipped = ["vlan", "qinq", "mpls", "6in4", "4in6", "ipip", "gre", "vxlan", "geneve", "web", "sctp"];
    let shipped = shipped.map(|name| testbed::captures().join(name).with_extension("pcap"));
    for capture in shipped.into_iter().chain([made]) {
        let cut = folder.path().join("cut.pcap");
        let mut octets = Pcap::new().0;
        let mut are_cut = 0;
        for (time, frame, wire) in handed_on(&capture, "slice = 'l4'", &["--decap"]) {
            for word in [time / 1_000_000_000, time % 1_000_000_000 / 1000, frame.len() as u64, wire.into()] {
                octets.extend((word as u32).to_le_bytes());
            }
            octets.extend(&frame);
            are_cut += u32::from((frame.len() as u32) < wire);
        }
        std::fs::write(&cut, octets).unwrap();
        assert!(are_cut > 0, "{}", capture.display());
        assert_eq!(fields(&cut), fields(&capture), "{}", capture.display());
    }
}

#[test]
fn a_flow_with_its_fragments_reaches_one_consumer_in_its_order() {
    const FLOWS: u8 = 40;
    const CONSUMERS: usize = 3;
    let folder = tempfile::tempdir().unwrap();
    let datagram = datagram(2055, &[b'x'; 2000]);
    let between = |flow: u8, id: u8, mut packet: Vec<u8>| {
        // Both directions: the answers go the other way.
        let hosts = [[10, 1, 0, flow], [10, 2, 0, 99 - flow]];
        let [from, to] = if id.is_multiple_of(2) { hosts } else { [hosts[1], hosts[0]] };
        packet[12..16].copy_from_slice(&from);
        packet[16..20].copy_from_slice(&to);
        packet[4..6].copy_from_slice(&[flow, id]);
        ethernet(0, 0x800, &packet)
    };
    let mut sent = Vec::new();
    for id in 0..10 {
        for flow in 0..FLOWS {
            let parts = [
                ipv4(17, 0x2000, 0, &datagram[..800]),
                ipv4(17, 0x2000 | 100, 0, &datagram[800..1600]),
                ipv4(17, 200, 0, &datagram[1600..]),
                ipv4(6, 0, 0, &tcp_segment(10)),
            ];
            // Later fragments come before the first one, too.
            let order = if (flow + id).is_multiple_of(3) { [2, 1, 0, 3] } else { [0, 1, 2, 3] };
            sent.extend(order.map(|part: usize| between(flow, id, parts[part].clone())));
        }
    }
    let capture = Pcap::of(&sent).save(folder.path(), "fragments.pcap");
    let outputs: Vec<PathBuf> = (0..CONSUMERS).map(|number| folder.path().join(format!("{number}.pcap"))).collect();
    let names: Vec<String> = outputs.iter().map(|output| format!("pcap:{}", output.display())).collect();
    let rules = folder.path().join("rules.toml");
    std::fs::write(&rules, format!("[egress.ids]\noutputs = {names:?}\n")).unwrap();
    let arguments =
        ["read", capture.to_str().unwrap(), "-q", "-o", "csv:/dev/null", "--rules", rules.to_str().unwrap()];
    let (code, err, ledger) = ledger_of(arguments);
    assert_eq!(code, 0, "{err}");
    let pair = |frame: &[u8]| {
        let mut hosts = [&frame[26..30], &frame[30..34]].map(<[u8]>::to_vec);
        hosts.sort();
        hosts
    };
    let of_pair = |frames: &[Vec<u8>]| {
        let mut pairs: BTreeMap<_, Vec<Vec<u8>>> = BTreeMap::new();
        frames.iter().for_each(|frame| pairs.entry(pair(frame)).or_default().push(frame.clone()));
        pairs
    };
    let expected = of_pair(&sent);
    assert_eq!(expected.len(), usize::from(FLOWS));
    let (mut found, mut total) = (BTreeMap::new(), 0);
    for output in &outputs {
        let frames: Vec<Vec<u8>> = frames(output).into_iter().map(|(_, frame, _)| frame).collect();
        assert!(!frames.is_empty(), "{}", output.display());
        total += frames.len() as u64;
        for (pair, frames) in of_pair(&frames) {
            assert!(found.insert(pair.clone(), frames).is_none(), "{pair:?} is at two consumers");
        }
    }
    assert!(found == expected, "each consumer has all packets of its hosts in their order");
    assert_eq!(total, number(&ledger["actions"]["forwarded"]["packets"]));
}

#[test]
fn packets_that_wait_leave_in_order_if_time_or_memory_ends() {
    for (hold, counter) in [
        ("ms = 1", "decided_late"),
        ("octets = 20000\nms = 100000", "decided_full"),
        ("octets = 100", "decided_full"),
        ("octets = 0", "decided_full"),
    ] {
        let folder = Folder::new(&format!(
            "[egress.all]\noutputs = 'pcap:FOLDER/all.pcap'\n[hold]\n{hold}\n[[application]]\nwhere = 'application = mysql'\n\
             shunt = 1\n"
        ));
        let ledger = folder.read();
        assert!(number(&ledger["actions"][counter]) > 10, "{hold}: {:#}", ledger["actions"]);
        let (original, sent) = ("apps.pcap", "all.pcap");
        let [original, sent] = [original, sent].map(|name| by_flow(frames(&folder.path(name))));
        assert_eq!(original, sent, "{hold}");
    }
}

#[test]
fn flows_that_overload_leaves_uninspected_are_decided_at_once_and_counted() {
    let folder = Folder::new(
        "[egress.all]\noutputs = 'pcap:FOLDER/all.pcap'\n[[application]]\nwhere = 'application = tls'\nshunt = 1\n",
    );
    let [capture, rules] = ["apps.pcap", "rules.toml"].map(|name| folder.text(name));
    let actions = |level: &str| {
        let arguments = ["probe", "-i", &capture, "-q", "-o", "csv:/dev/null", "--rules", &rules, "--overload", level];
        let (code, err, ledger) = ledger_of([&arguments[..], &["--no-sandbox", "--flows", "10k"]].concat());
        assert_eq!((code, &*err), (0, ""));
        std::fs::remove_file(folder.path("all.pcap")).unwrap();
        let shunted = number(&ledger["actions"]["shunted"]["packets"]);
        (number(&ledger["actions"]["decided_uninspected"]), number(&ledger["flows"]["created"]), shunted)
    };
    let (uninspected, flows, shunted) = actions("0");
    assert!(uninspected == 0 && flows > 150 && shunted > 100, "{uninspected} {flows} {shunted}");
    assert_eq!(actions("1"), (flows, flows, 0));
}

#[test]
fn without_a_rule_for_applications_the_copy_is_the_capture() {
    let folder = Folder::new(
        "[egress.all]\noutputs = 'pcap:FOLDER/all.pcap'\n[egress.short]\noutputs = 'pcap:FOLDER/short.pcap'\n",
    );
    folder.read();
    let mode = std::fs::metadata(folder.path("all.pcap")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777 & !0o640, 0, "other users cannot read packets");
    let original = frames(&folder.path("apps.pcap"));
    assert!(original == frames(&folder.path("all.pcap")) && original == frames(&folder.path("short.pcap")));
}

#[test]
fn a_check_says_what_each_rule_would_do_and_sends_nothing() {
    let folder = Folder::new(
        "[egress.ids]\noutputs = 'pcap:FOLDER/ids.pcap'\n[[network]]\nname = 'web'\nwhere = 'port 443'\nshunt = 3\n[[network]]\n\
         name = 'rest'\naction = 'drop'\n",
    );
    let [capture, rules] = ["apps.pcap", "rules.toml"].map(|name| folder.text(name));
    let valid = success(["rules", "check", &rules]);
    assert!(valid.ends_with("rules.toml: valid, 2 rules, 1 output group\n"), "{valid}");
    let text = success(["rules", "check", &rules, "--with", &capture]);
    assert!(text.contains("network web") && text.contains("- shunted") && !folder.path("ids.pcap").exists(), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&success(["rules", "check", &rules, "--with", &capture, "--json"])).unwrap();
    let ledger = folder.read();
    for key in ["forwarded", "dropped", "shunted", "rules"] {
        assert_eq!(json[key], ledger["actions"][key], "{key}");
    }
    assert_eq!(json["outputs"][0]["sent"], ledger["actions"]["outputs"][0]["sent"]);
}

#[test]
fn every_problem_of_a_rules_file_is_told_with_its_line() {
    let folder = Folder::new("[egress.ids]\noutputs = ['pcp:x', 'pcap:FOLDER/y']\nbalance = 'miror'\n");
    let [capture, rules] = ["apps.pcap", "rules.toml"].map(|name| folder.text(name));
    let err = failure(1, ["rules", "check", &rules]);
    for part in ["rules.toml: line 2: pcp:x: not an output (did you mean pcap?)", "line 3: balance: 'miror'"] {
        assert!(err.replace("\n      ", " ").contains(part), "{err}");
    }
    std::fs::write(&rules, "[[network]]\nwhere = 'prot 22'\n[[networks]]\naction = 'drop'\n").unwrap();
    for arguments in
        [&["read", &capture, "--rules", &rules][..], &["probe", "-i", &capture, "--rules", &rules, "--check"]]
    {
        let (code, _, err) = weir(arguments);
        assert_eq!(code, 1, "{err}");
        for part in ["line 2: where:", "line 3: there is no 'networks' in a rules file (did you mean network?)"] {
            assert!(err.contains(part), "{err}");
        }
    }
    let missing = failure(1, ["rules", "check", "missing.toml"]);
    assert!(missing.contains("missing.toml: No such file"), "{missing}");
    assert!(missing.contains("; is the name right?"), "{missing}");
    let endless = failure(1, ["rules", "check", "/dev/zero"]);
    assert!(endless.contains("/dev/zero: this is not a regular file"), "{endless}");
    std::fs::write(&rules, "#".repeat((4 << 20) + 1)).unwrap();
    let long = failure(1, ["rules", "check", &rules]);
    assert!(long.contains("rules.toml: it has more than 4 MiB"), "{long}");
    std::fs::write(&rules, b"# one\n[default]\nto = '\xff'\n").unwrap();
    let err = failure(1, ["rules", "check", &rules]);
    assert!(err.contains("rules.toml: line 3: this is not UTF-8"), "{err}");
    std::fs::write(&rules, "[egress.a]\noutputs = 'pcap:a'\n[egress.b]\noutputs = 'pcap:b'\n[default]\nto = 'a'\n")
        .unwrap();
    let (code, _, err) = weir(["rules", "check", &rules]);
    assert!(code == 0 && err.replace("\n  ", " ").contains("line 3: no packet goes to 'b'"), "{err}");
    std::fs::write(&rules, "[[network]]\nwhere = 'net 10.0.0.0/8'\n[[network]]\nwhere = 'net 10.0.0.0/8'\n").unwrap();
    let err = failure(1, ["rules", "check", &rules]);
    assert!(err.contains("line 3: no packet reaches this rule: line 1 matches whatever it matches"), "{err}");
    std::fs::write(&rules, "[[application]]\nwhere = 'sni = x'\naction = 'drop'\n").unwrap();
    let err = failure(1, ["read", &capture, "--rules", &rules, "--dpi", "off"]);
    let expected = "--rules: line 1: 'sni = x' never matches: no flow has sni without --dpi light";
    assert!(err.replace("\n  ", " ").contains(expected), "{err}");
    std::fs::write(&rules, "").unwrap();
    let err = failure(1, ["probe", "-i", &capture, "--rules", &rules, "--layout", "split"]);
    assert!(err.contains("--rules needs --layout fused"), "{err}");
}

#[test]
fn a_check_ends_after_a_number_of_problems_and_does_not_wait_for_a_pipe() {
    let folder = Folder::new("[default]\naction = 'drop'\n");
    let rules = folder.text("rules.toml");
    let keys: String = (0..100_000).map(|number| format!("wrong_{number} = 1\n")).collect();
    let rule = "[[network]]\nwhere = 'prot 22'\n".repeat(5000);
    for text in [keys.clone(), format!("[default]\n{keys}"), rule] {
        std::fs::write(&rules, text).unwrap();
        let err = failure(1, ["rules", "check", &rules]);
        let problems = err.matches("rules.toml: line").count();
        assert!(problems == 100 && err.contains("the check ended with problem 100; there may be more"), "{err}");
    }
    let fifo = folder.path("rules.fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let err = failure(1, ["rules", "check", fifo.to_str().unwrap()]);
    assert!(err.contains("rules.fifo: this is not a regular file"), "{err}");
}

#[test]
fn a_check_reads_captures_in_a_sandbox() {
    let folder = Folder::new("[default]\naction = 'drop'\n");
    let mut check = command();
    check.args(["rules", "check", &folder.text("rules.toml"), "--with", "-"]);
    let mut check = Background(check.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    let status = format!("/proc/{}/status", check.0.id());
    let mut input = check.0.stdin.take().unwrap();
    // The capture is opened when its header is there.
    input.write_all(&testbed::small().0).unwrap();
    until("it is in the sandbox", || {
        let status = std::fs::read_to_string(&status).unwrap();
        status.contains("Seccomp:\t2\n") && status.contains("NoNewPrivs:\t1\n")
    });
    drop(input);
    assert_eq!(check.0.wait().unwrap().code(), Some(0));
}

#[test]
fn names_of_rules_and_files_do_not_act_on_a_terminal() {
    let folder = Folder::new("[[network]]\nname = \"a\\u001b[31m\\nb\\u202Ec\"\nwhere = 'port 443'\naction = 'drop'\n");
    let [capture, rules] = ["apps.pcap", "rules.toml"].map(|name| folder.text(name));
    let acts = |text: &str| text.contains(['\x1b', '\u{202e}']) || text.contains("\nb");
    let text = success(["rules", "check", &rules, "--with", &capture]);
    assert!(text.contains(r"a\x1b[31m\x0ab\xe2\x80\xaec") && !acts(&text), "{text}");
    // The ledger has the names of rules, too.
    let (code, _, err) = weir(["read", &capture, "-o", "csv:/dev/null", "-v", "--rules", &rules]);
    assert!(code == 0 && err.contains(r"a\x1b[31m\x0ab\xe2\x80\xaec"), "{err}");
    assert!(!err.contains(['\x1b', '\u{202e}']), "{err}");
    let name = folder.text("x\u{202e}y\x1b.toml");
    std::fs::write(&name, "[[network]]\nwhere = 'port 443'\naction = 'drop'\n").unwrap();
    let text = success(["rules", "check", &name]);
    assert!(text.contains(r"x\xe2\x80\xaey\x1b.toml: valid") && !acts(&text), "{text}");
    std::fs::write(&rules, "\"k\\u202e\\u001b\" = 1\n").unwrap();
    for arguments in [&["rules", "check", &rules][..], &["read", "a\u{202e}\x1b"], &["read", "--a\u{202e}\x1b"]] {
        let err = failure(1, arguments);
        assert!(err.contains(r"\xe2\x80\xae\x1b") && !acts(&err), "{err}");
    }
}

#[test]
fn a_rule_that_asks_for_what_no_flow_has_is_refused_and_the_option_named() {
    let folder = Folder::new("");
    let [capture, rules] = ["apps.pcap", "rules.toml"].map(|name| folder.text(name));
    let fields = [
        ("country = DE", "country", "--geo"),
        ("src as 64500", "as", "--geo"),
        ("dst_as_org = x", "dst_as_org", "--geo"),
        ("src_site = x", "src_site", "--networks"),
        ("src_network = x", "src_network", "--networks"),
        ("src_local = 1", "src_local", "--networks"),
        ("port 22 and not tags = bad", "tags", "--tags"),
        ("interface_name = eth0", "interface_name", "--interface-names"),
        ("mac 00:11:22:33:44:55", "mac", "--mac-addresses"),
        ("ethertype = 2054", "ethertype", "--layer2"),
        ("tunnel = gre", "tunnel", "--decap"),
    ];
    let text: String = fields.iter().map(|(text, ..)| format!("[[network]]\nwhere = '{text}'\nslice = 20\n")).collect();
    std::fs::write(&rules, text).unwrap();
    for command in [
        &["read", &capture, "--rules", &rules][..],
        &["probe", "-i", &capture, "--rules", &rules],
        &["probe", "-i", &capture, "--rules", &rules, "--check"],
        &["rules", "check", &rules, "--with", &capture],
    ] {
        let (code, _, err) = weir(command);
        assert_eq!(code, 1, "{command:?} {err}");
        for (at, (text, field, option)) in fields.iter().enumerate() {
            let line = 3 * at + 1;
            let expected =
                format!("--rules: line {line}: '{text}' never matches: no flow has {field} without {option}; add it");
            assert!(err.split_whitespace().collect::<Vec<_>>().join(" ").contains(&expected), "{expected}\n{err}");
        }
    }
    success(["rules", "check", &rules]);
    let list = folder.text("bad.txt");
    std::fs::write(&list, "192.0.2.1\n").unwrap();
    std::fs::write(&rules, "[[network]]\nwhere = 'tags = bda'\naction = 'drop'\n").unwrap();
    let err = failure(1, ["read", &capture, "--rules", &rules, "--tags", &format!("bad={list}")]);
    assert!(err.contains("line 1: 'tags = bda': no flow has the tag bda; --tags has bad"), "{err}");
}

/// The values of these fields of each flow of the capture, with this list.
fn tagged(folder: &Folder, fields: &str, list: &str) -> Vec<Vec<String>> {
    let capture = folder.text("apps.pcap");
    let out = success(["read", &capture, "-q", "-o", "csv:-", "--fields", fields, "--tags", &format!("bad={list}")]);
    out.lines().skip(1).map(|line| line.split(',').map(String::from).collect()).collect()
}

#[test]
fn lists_of_names_and_fingerprints_drop_whole_flows() {
    let rules =
        "[egress.all]\noutputs = 'pcap:/dev/null'\n[[application]]\nwhere = 'tags contains bad'\naction = 'drop'\n";
    let folder = Folder::new(rules);
    let (capture, rules, list) = (folder.text("apps.pcap"), folder.text("rules.toml"), folder.text("bad.txt"));
    std::fs::write(&list, "192.0.2.255\n").unwrap();
    for field in ["sni", "dns_name", "http_host", "ja3", "ja4"] {
        let values = tagged(&folder, field, &list);
        let value = values.iter().find(|value| !value[0].is_empty()).unwrap_or_else(|| panic!("no flow has {field}"));
        std::fs::write(folder.path("names.txt"), &value[0]).unwrap();
        let names = folder.text("names.txt");
        let packets: u64 = tagged(&folder, "tags,fwd_packets,rev_packets", &names)
            .iter()
            .filter(|flow| flow[0] == "bad")
            .map(|flow| flow[1..].iter().map(|packets| packets.parse().unwrap_or(0_u64)).sum::<u64>())
            .sum();
        let tags = format!("bad={names}");
        let (code, err, ledger) =
            ledger_of(["read", &capture, "-q", "-o", "csv:/dev/null", "--rules", &rules, "--tags", &tags]);
        assert_eq!((code, &*err), (0, ""));
        assert!(packets > 0);
        assert_eq!(number(&ledger["actions"]["dropped"]["packets"]), packets, "{field} {value:?}");
    }
}

#[test]
fn a_rule_that_misses_the_names_of_a_list_is_named() {
    let folder = Folder::new("");
    let (capture, rules) = (folder.text("apps.pcap"), folder.text("rules.toml"));
    let list = |name: &str, text: &str| {
        std::fs::write(folder.path(name), text).unwrap();
        format!("{name}={}", folder.text(name))
    };
    let tags =
        [list("names", "evil.example\n"), list("hosts", "192.0.2.1\n"), list("mixed", "192.0.2.1\nevil.example\n")];
    let tags = tags.iter().flat_map(|list| ["--tags", list]);
    let with_tags = |command: &[&'static str]| -> Vec<String> {
        command.iter().copied().chain(tags.clone()).map(String::from).collect()
    };
    let run = |command: &[String]| {
        let arguments = command.iter().map(|part| match part.as_str() {
            "RULES" => &*rules,
            "CAPTURE" => &*capture,
            other => other,
        });
        weir(arguments)
    };
    for (rule, advice) in [
        ("[[network]]\nwhere = 'tags contains names'", "move the rule to [[application]]"),
        ("[[source]]\nwhere = 'port 1 or tags contains names'", "move the rule to [[application]]"),
        ("[[application]]\nwhere = 'src_tags contains names'", "use tags in [[application]]"),
    ] {
        std::fs::write(&rules, format!("{rule}\naction = 'drop'\n")).unwrap();
        for command in [
            &["rules", "check", "RULES"][..],
            &["rules", "check", "RULES", "--with", "CAPTURE"],
            &["read", "CAPTURE", "-o", "csv:/dev/null", "--rules", "RULES"],
            &["probe", "-i", "CAPTURE", "-o", "csv:/dev/null", "--rules", "RULES"],
            &["probe", "--check", "-i", "CAPTURE", "-o", "csv:/dev/null", "--rules", "RULES"],
        ] {
            let (code, _, err) = run(&with_tags(command));
            assert_eq!(code, 1, "{command:?}: {err}");
            let err = err.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(err.contains("its list has only names and fingerprints") && err.contains(advice), "{err}");
        }
    }
    for (rule, warns) in [
        ("[[network]]\nwhere = 'tags contains mixed'", true),
        ("[[network]]\nwhere = 'tags contains hosts'", false),
        ("[[application]]\nwhere = 'tags contains mixed'", false),
        ("[[application]]\nwhere = 'tags contains names'", false),
    ] {
        std::fs::write(&rules, format!("{rule}\naction = 'drop'\n")).unwrap();
        let (code, _, err) = run(&with_tags(&["rules", "check", "RULES"]));
        assert_eq!((code, err.contains("matches only addresses of the list mixed")), (0, warns), "{rule}: {err}");
    }
    let names = format!("names={}", folder.text("names"));
    for (rule, error) in [
        ("[[network]]\nwhere = 'tags'", "no flow has tags then: its list has only names and fingerprints"),
        ("[[network]]\nwhere = 'not tags contains names'", "no flow has names then"),
        ("[[application]]\nwhere = 'tags contains other'", "no flow has the tag other; --tags has names"),
    ] {
        std::fs::write(&rules, format!("{rule}\naction = 'drop'\n")).unwrap();
        let err = failure(1, ["rules", "check", &rules, "--tags", &names]);
        assert!(err.split_whitespace().collect::<Vec<_>>().join(" ").contains(error), "{err}");
    }
    std::fs::write(&rules, "[[application]]\nwhere = 'tags contains names'\naction = 'drop'\n").unwrap();
    let (code, _, err) = run(&with_tags(&["read", "CAPTURE", "--dpi", "off", "--rules", "RULES"]));
    assert!(code == 1 && err.contains("leave out --dpi off"), "{err}");
}

#[test]
fn rules_are_loaded_again_without_losing_a_flow() {
    let folder = tempfile::tempdir().unwrap();
    testbed::permit_all_users(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    assert!(std::process::Command::new("mkfifo").arg(path("input")).status().unwrap().success());
    testbed::permit_all_users(Path::new(&path("input")));
    let mut input = std::fs::File::options().read(true).write(true).open(path("input")).unwrap();
    input.write_all(&Pcap::new().0).unwrap();
    let output = path("out.pcap");
    let egress = format!("[egress.all]\noutputs = 'pcap:{output}'\n");
    let write = |text: &str| std::fs::write(path("rules.toml"), text).unwrap();
    write(&egress);
    let [input_name, rules] = ["input", "rules.toml"].map(path);
    let arguments =
        ["probe", "-i", &input_name, "--rules", &rules, "--interval", "100ms", "--flows", "10k", "-o", "csv:/dev/null"];
    let running = Running::start_in(command(), &arguments);
    running.wait_for("packets/s");
    let mut send = |second: u32| {
        let frames = (0..5).flat_map(testbed::request_and_response);
        let pcap = frames.fold(Pcap(Vec::new()), |pcap, frame| pcap.frame(START + second, 0, &frame));
        input.write_all(&pcap.0).unwrap();
    };
    let written = || frames(Path::new(&output)).len();
    send(0);
    until("ten packets are forwarded", || Path::new(&output).exists() && written() == 10);
    write(&format!("{egress}[default]\naction = 'drop'\n"));
    running.signal(libc::SIGHUP);
    running.wait_for("configuration reloaded");
    send(1);
    for (text, message) in [
        ("[egress", "cannot reload the configuration, continuing with the old one"),
        (&*egress.replace("all]", "other]"), "outputs cannot change while the probe runs"),
        (&*format!("{egress}[[network]]\nwhere = 'country = DE'\n"), "no flow has country without --geo"),
    ] {
        write(text);
        running.signal(libc::SIGHUP);
        running.wait_for(message);
    }
    send(2);
    write(&egress);
    let times = running.times("configuration reloaded");
    running.signal(libc::SIGHUP);
    until("the rules are loaded", || running.times("configuration reloaded") > times);
    send(3);
    until("ten more packets are forwarded", || written() == 20);
    drop(input);
    let (code, err, _, ledger) = running.wait();
    assert_eq!(code, 0, "{err}");
    let actions = &ledger["actions"];
    assert_eq!(
        [number(&actions["forwarded"]["packets"]), number(&actions["dropped"]["packets"])],
        [20, 20],
        "{actions:#}"
    );
    assert!(ledger["balanced"] == true && number(&ledger["flows"]["created"]) == 5, "{ledger:#}");
}
