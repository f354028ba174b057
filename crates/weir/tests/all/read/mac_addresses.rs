//! MAC addresses of IP flows (`--mac-addresses`), compared with the octets of captures.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use testbed::{Pcap, arguments, captures, metered, read_flows, success, udp};

/// The frames of a pcap file in little-endian byte order.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let (mut rest, mut frames) = (&bytes[24..], Vec::new());
    while let Some((header, data)) = rest.split_first_chunk::<16>() {
        let (frame, more) = data.split_at(u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize);
        frames.push(frame.to_vec());
        rest = more;
    }
    frames
}

fn text(mac: &[u8]) -> String {
    mac.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
}

/// Source and destination MAC address of a frame.
fn macs(frame: &[u8]) -> [String; 2] {
    [text(&frame[6..12]), text(&frame[..6])]
}

/// Addresses, protocol and ports of an unfragmented packet of TCP or UDP over IPv4 without options,
/// or over IPv6 without extension headers, with at most one VLAN tag.
fn direction(frame: &[u8]) -> Option<String> {
    let ip = if frame[12..14] == [0x81, 0] { &frame[16..] } else { &frame[12..] };
    let (ethertype, ip) = ip.split_at(2);
    let (protocol, addresses, ports) = match ethertype {
        [8, 0] if ip[0] == 0x45 && ip[6] & 0x3f == 0 => {
            let [source, destination] =
                [12, 16].map(|at| std::net::IpAddr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap()));
            (ip[9], [source, destination], &ip[20..24])
        }
        [0x86, 0xdd] => {
            let [source, destination] =
                [8, 24].map(|at| std::net::IpAddr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap()));
            (ip[6], [source, destination], &ip[40..44])
        }
        _ => return None,
    };
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    let [source, destination] = addresses;
    matches!(protocol, 6 | 17).then(|| format!("{protocol} {source} {} {destination} {}", port(0), port(2)))
}

fn direction_of(flow: &Value) -> String {
    let [protocol, source_port, destination_port] = ["protocol_number", "src_port", "dst_port"].map(|name| &flow[name]);
    let [source, destination] = ["src_ip", "dst_ip"].map(|name| flow[name].as_str().unwrap());
    format!("{protocol} {source} {source_port} {destination} {destination_port}")
}

fn is_mixed(flow: &Value) -> bool {
    flow["approximate"].as_str().is_some_and(|words| words.split(' ').any(|word| word == "mixed_mac"))
}

#[test]
fn they_are_those_of_the_first_frame_of_each_direction() {
    for name in ["web.pcap", "vlan.pcap"] {
        let path = captures().join(name);
        let mut expected: BTreeMap<String, ([String; 2], bool)> = BTreeMap::new();
        for frame in frames(&path) {
            let Some(direction) = direction(&frame) else { continue };
            let (first, mixed) = expected.entry(direction).or_insert_with(|| (macs(&frame), false));
            *mixed |= *first != macs(&frame);
        }
        assert!(expected.len() > 4, "{name}");
        let read = ["read", path.to_str().unwrap(), "--mac-addresses"];
        let (_, _, flows, _) = metered(&[&read[..], &["--uniflow-key"]].concat());
        let mut compared = BTreeSet::new();
        for flow in &flows {
            let Some((macs, mixed)) = expected.get(&direction_of(flow)) else { continue };
            assert_eq!((&flow["src_mac"], &flow["dst_mac"]), (&json!(macs[0]), &json!(macs[1])), "{flow}");
            assert_eq!(is_mixed(flow), *mixed, "{flow}");
            compared.insert(direction_of(flow));
        }
        assert_eq!(compared.len(), expected.len(), "{name}: each direction has a record");
        // A bidirectional flow has those of its source.
        let (_, _, flows, _) = metered(&read);
        for flow in flows.iter().filter(|flow| expected.contains_key(&direction_of(flow))) {
            let (macs, _) = &expected[&direction_of(flow)];
            assert_eq!((&flow["src_mac"], &flow["dst_mac"]), (&json!(macs[0]), &json!(macs[1])), "{flow}");
        }
        let without =
            success(["read", path.to_str().unwrap(), "-q", "-o", "json:-?fields=src_mac,dst_mac,approximate"]);
        let lines: BTreeSet<&str> = without.lines().collect();
        assert_eq!(lines.into_iter().collect::<Vec<_>>(), [r#"{"src_mac":null,"dst_mac":null,"approximate":null}"#]);
    }
}

#[test]
fn a_tunnelled_packet_has_those_of_the_frame_outside_the_tunnel() {
    let path = captures().join("vxlan.pcap");
    let outer: BTreeSet<[String; 2]> = frames(&path).iter().map(|frame| macs(frame)).collect();
    let (_, _, flows, _) = metered(&["read", path.to_str().unwrap(), "--decap", "--mac-addresses"]);
    let of_flow = |flow: &Value| ["src_mac", "dst_mac"].map(|name| flow[name].as_str().unwrap_or_default().to_owned());
    assert!(flows.len() > 3 && flows.iter().all(|flow| outer.contains(&of_flow(flow))), "{flows:?}");
}

/// A host whose packets move to another router, and the answers that come from there.
fn moved() -> Pcap {
    let (client, server) = (([192, 0, 2, 10], 50_000), ([192, 0, 2, 53], 53));
    let mut frames = vec![udp(client, server, 40), udp(server, client, 400), udp(client, server, 41)];
    frames[1][..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frames[2][5] = 9;
    let (other, third) = (udp(([192, 0, 2, 11], 50_000), server, 40), udp(([192, 0, 2, 11], 50_000), server, 41));
    frames.extend([other, third]);
    Pcap::of(&frames)
}

#[test]
fn a_flow_whose_mac_addresses_change_is_flagged_in_every_format() {
    let capture = moved().saved();
    let [ipfix, csv] = ["flows.ipfix", "flows.csv"].map(|name| capture.beside(name));
    let sinks = [&ipfix, &csv].map(|path| path.display().to_string());
    success(arguments!["read", capture, "-q", "--mac-addresses", "-o", sinks[0], "-o", sinks[1]]);
    let text = std::fs::read_to_string(&csv).unwrap();
    let header: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    assert_eq!(header[27..], ["src_mac", "dst_mac"], "the default has the two columns");
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let row = |source: &str| {
        let line = text.lines().find(|line| line.contains(source)).unwrap();
        let values: Vec<&str> = line.split(',').collect();
        ["src_mac", "dst_mac", "approximate"].map(|name| values[column(name)].to_owned())
    };
    assert_eq!(row("192.0.2.10"), ["02:00:00:00:00:01", "02:00:00:00:00:02", "mixed_mac"]);
    assert_eq!(row("192.0.2.11"), ["02:00:00:00:00:01", "02:00:00:00:00:02", ""]);

    let records = testbed::decode::Decoder::new().file(&std::fs::read(&ipfix).unwrap());
    let octets = |last| Some(testbed::decode::Value::Octets(vec![2, 0, 0, 0, 0, last]));
    for record in &records {
        assert_eq!(record.get("sourceMacAddress").cloned(), octets(1), "{record:?}");
        assert_eq!(record.get("destinationMacAddress").cloned(), octets(2), "{record:?}");
    }
    let flags: BTreeSet<_> = records
        .iter()
        .map(|record| record.get("approximateRecord").cloned())
        .map(|flags| flags == Some(testbed::decode::Value::Unsigned(1024)))
        .collect();
    assert_eq!((records.len(), flags.len()), (2, 2), "one of two is flagged");
}

#[test]
fn views_select_and_sum_up_by_them() {
    let capture = moved().saved();
    let name = capture.name();
    let count = |expression: &str| {
        let options = ["--mac-addresses", "--where", expression, "-o", "csv:-"];
        success([&["read", name, "-q"], &options[..]].concat()).lines().count() - 1
    };
    assert_eq!(count("src mac 02:00:00:00:00:01"), 2);
    assert_eq!(count("src mac 02:00:00:00:00:02"), 0);
    assert_eq!(count("dst_mac = 02:00:00:00:00:02 and approximate = mixed_mac"), 1);
    let view = success(["read", name, "-q", "--mac-addresses", "--by", "src_mac", "-o", "csv:-"]);
    assert!(view.lines().count() == 2 && view.contains("02:00:00:00:00:01"), "{view}");
}

#[test]
fn a_probe_records_them_by_its_configuration_file_in_every_layout() {
    let expected = |name: &str| {
        let (_, _, flows, _) = metered(&["read", captures().join(name).to_str().unwrap(), "--mac-addresses"]);
        let of = |flow: &Value| format!("{} {} {}", direction_of(flow), flow["src_mac"], flow["dst_mac"]);
        flows.iter().map(of).collect::<BTreeSet<_>>()
    };
    for layout in ["fused", "split", "spread"] {
        let folder = tempfile::tempdir().unwrap();
        let [config, flows] = ["probe.toml", "flows.json"].map(|name| folder.path().join(name));
        let web = captures().join("web.pcap");
        let lines = [
            format!("input = [{:?}]", web.display().to_string()),
            format!("output = [{:?}]", flows.display().to_string()),
            format!("layout = {layout:?}"),
            "mac-addresses = true".into(),
        ];
        std::fs::write(&config, lines.join("\n")).unwrap();
        success(arguments!["probe", "-q", "--config", config]);
        let of = |flow: &Value| format!("{} {} {}", direction_of(flow), flow["src_mac"], flow["dst_mac"]);
        let recorded: BTreeSet<String> = read_flows(&flows).iter().map(of).collect();
        assert_eq!(recorded, expected("web.pcap"), "{layout}");
    }
}

#[test]
fn raw_ip_has_none_and_a_cooked_capture_those_of_senders() {
    for (name, is_cooked) in [("raw-ip.pcap", false), ("cooked-v1.pcap", true)] {
        let (_, _, flows, _) = metered(&["read", captures().join(name).to_str().unwrap(), "--mac-addresses"]);
        assert!(!flows.is_empty(), "{name}");
        for flow in &flows {
            // Loopback frames have the address 0.
            let has_source = is_cooked && !flow["src_ip"].as_str().unwrap().starts_with("127.");
            let [source, destination, ip] = ["src_mac", "dst_mac", "src_ip"].map(|name| &flow[name]);
            assert_eq!((source.is_string(), destination), (has_source, &Value::Null), "{name}: {ip}");
        }
    }
}

#[test]
fn the_memory_of_the_flow_cache_is_larger() {
    let memory = |options: &[&str]| {
        let log = ["read", "-q", "--log-level", "debug", "-i", "synth:mix,flows=10,packets=100", "-o", "csv:/dev/null"];
        let (_, _, err) = testbed::weir([&log[..], options].concat());
        let figure = err.lines().find_map(|line| line.split_once("max_memory=")).map(|(_, text)| text.to_owned());
        figure.unwrap_or_else(|| panic!("{err}"))
    };
    assert_ne!(memory(&["--flows", "10M"]), memory(&["--flows", "10M", "--mac-addresses"]));
}
