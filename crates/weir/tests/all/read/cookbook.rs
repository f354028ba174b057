//! docs/cookbook.md: every command prints what the page says, and the answers are those of tshark.
//!
//! `BLESS=1 cargo test -p weir --test all cookbook` writes the outputs into the page.

use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::{captures, is_installed};

const DAY: &str = "web.pcap tls.pcap ssh.pcap dns.pcap.gz";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cookbook.md")
}

/// The question (heading), the command and the output of each block of a page.
fn questions(text: &str) -> Vec<(String, String, String)> {
    let sections = text.split("\n## ").skip(1);
    let question = |section: &str| {
        let (heading, rest) = section.split_once('\n').unwrap();
        let block = rest.split("```text\n$ ").nth(1).unwrap_or_else(|| panic!("{heading} has no command"));
        let (command, output) = block.split_once('\n').unwrap();
        (heading.to_string(), command.to_string(), output.split("```").next().unwrap().to_string())
    };
    sections.map(question).collect()
}

/// The output of a command in the folder of the captures.
fn run(command: &str) -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-c", command])
        .env("PATH", path)
        .env("DAY", DAY)
        .current_dir(captures())
        .output()
        .unwrap();
    let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{command}: {}", text(output.stderr));
    text(output.stdout)
}

#[test]
fn every_command_prints_what_the_page_says() {
    let text = std::fs::read_to_string(page()).unwrap();
    let questions = questions(&text);
    assert!(questions.len() >= 20);
    if std::env::var_os("BLESS").is_some() {
        let blessed = questions.iter().fold(text.clone(), |text, (_, command, output)| {
            text.replace(&format!("$ {command}\n{output}```"), &format!("$ {command}\n{}```", run(command)))
        });
        std::fs::write(page(), blessed).unwrap();
        return;
    }
    for (question, command, output) in questions {
        assert_eq!(run(&command), output, "{question}\n$ {command}\n(BLESS=1 writes the page)");
    }
}

/// A packet as tshark reads it: the innermost addresses, and the outermost VLAN tags.
#[derive(Clone, Debug, Default)]
struct Packet {
    time_ns: u64,
    interface: u64,
    source: String,
    destination: String,
    ports: [u64; 2],
    protocol: String,
    bytes: u64,
    flags: u64,
    sequence: u64,
    acknowledgment: u64,
    payload: u64,
    icmp_type: Option<u64>,
    vlans: Vec<String>,
}

/// The IP packets of captures. With `innermost`, those inside of tunnels.
fn packets(captures_named: &str, innermost: bool) -> Vec<Packet> {
    const FIELDS: [&str; 23] = [
        "frame.time_epoch",
        "frame.interface_id",
        "ip.src",
        "ip.dst",
        "ipv6.src",
        "ipv6.dst",
        "tcp.srcport",
        "tcp.dstport",
        "udp.srcport",
        "udp.dstport",
        "ip.len",
        "ipv6.plen",
        "tcp.flags",
        "tcp.seq_raw",
        "tcp.len",
        "icmp.type",
        "icmpv6.type",
        "vlan.id",
        "ip.proto",
        "tcp.stream",
        "udp.stream",
        "ieee8021ad.id",
        "tcp.ack_raw",
    ];
    let mut all = Vec::new();
    for name in captures_named.split(' ') {
        let mut command = Command::new("tshark");
        command.args(["-n", "-r", name, "-T", "fields", "-E", "separator=/t"]);
        command.args(["-o", "ip.defragment:false", "-o", "ipv6.defragment:false"]);
        FIELDS.iter().for_each(|field| {
            command.args(["-e", field]);
        });
        let output = command.current_dir(captures()).output().unwrap();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            // ICMP errors quote the header of another packet behind their own.
            let value = |name: &str| {
                let all = fields[FIELDS.iter().position(|field| *field == name).unwrap()];
                let mut values = all.split(',').filter(|value| !value.is_empty());
                if innermost { values.next_back() } else { values.next() }
            };
            let number = |name| {
                value(name).map(|text| match text.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
                    None => text.parse::<u64>().unwrap(),
                })
            };
            let icmp_type = number("icmp.type").or(number("icmpv6.type"));
            let is_ipv6 = !fields[4].is_empty() && (innermost || fields[2].is_empty());
            let (source, destination) = if is_ipv6 { ("ipv6.src", "ipv6.dst") } else { ("ip.src", "ip.dst") };
            let Some(source) = value(source) else { continue };
            let (protocol, ports) = match icmp_type {
                Some(_) => (if number("icmp.type").is_some() { "icmp" } else { "icmp6" }, [None, None]),
                None if value("tcp.srcport").is_some() => ("tcp", [number("tcp.srcport"), number("tcp.dstport")]),
                None => ("udp", [number("udp.srcport"), number("udp.dstport")]),
            };
            let (seconds, fraction) = value("frame.time_epoch").unwrap().split_once('.').unwrap();
            // Only the first fragment of a datagram has ports.
            let is_of_previous =
                |packet: &&Packet| packet.source == source && Some(packet.destination.as_str()) == value(destination);
            let ports = match all.last().filter(is_of_previous) {
                Some(previous) if ports == [None, None] && protocol == "udp" => previous.ports.map(Some),
                _ => ports,
            };
            let vlans = format!("{},{}", fields[21], fields[17]);
            all.push(Packet {
                time_ns: format!("{seconds}{fraction}").parse().unwrap(),
                interface: number("frame.interface_id").unwrap_or_default(),
                source: source.into(),
                destination: value(destination).unwrap().into(),
                ports: ports.map(Option::unwrap_or_default),
                protocol: protocol.into(),
                bytes: if is_ipv6 { number("ipv6.plen").unwrap() + 40 } else { number("ip.len").unwrap() },
                flags: number("tcp.flags").unwrap_or_default(),
                sequence: number("tcp.seq_raw").unwrap_or_default(),
                acknowledgment: number("tcp.ack_raw").unwrap_or_default(),
                payload: number("tcp.len").unwrap_or_default(),
                icmp_type,
                vlans: vlans.split(',').filter(|id| !id.is_empty()).map(String::from).collect(),
            });
        }
    }
    all
}

/// A TCP or UDP flow of these packets: the first packet is one of the initiator.
#[derive(Clone, Debug, Default)]
struct Flow {
    first: Packet,
    last_ns: u64,
    bytes: [u64; 2],
    flags: [u64; 2],
    /// From the first packet to the first acknowledgment of the initiator.
    rtt_ns: u64,
    /// Segments with payload that begin where an earlier one began.
    repeated: u64,
    started: BTreeSet<(usize, u64)>,
    /// Segments with payload, SYN or FIN.
    segments: u64,
    /// Payload of each side that the other has not answered: sequence number of its end, and time.
    requests: [Option<(u64, u64)>; 2],
    /// Sum of the response times of the responder, ns, and their number.
    responses: [u64; 2],
}

fn flows(packets: &[Packet]) -> Vec<Flow> {
    let mut flows: BTreeMap<_, Flow> = BTreeMap::new();
    for packet in packets.iter().filter(|packet| packet.ports != [0, 0]) {
        let mut ends = [(packet.source.clone(), packet.ports[0]), (packet.destination.clone(), packet.ports[1])];
        ends.sort();
        let key = (packet.interface, packet.protocol.clone(), ends);
        let flow = flows.entry(key).or_insert_with(|| Flow { first: packet.clone(), ..Flow::default() });
        let side = usize::from((&packet.source, packet.ports[0]) != (&flow.first.source, flow.first.ports[0]));
        flow.bytes[side] += packet.bytes;
        flow.flags[side] |= packet.flags;
        flow.last_ns = flow.last_ns.max(packet.time_ns);
        if side == 0 && packet.flags & 0x12 == 0x10 && flow.rtt_ns == 0 && flow.flags[1] & 2 != 0 {
            flow.rtt_ns = packet.time_ns - flow.first.time_ns;
        }
        let is_new = packet.payload == 0 || flow.started.insert((side, packet.sequence));
        flow.repeated += u64::from(!is_new);
        flow.segments += u64::from(packet.payload > 0 || packet.flags & 3 != 0);
        if packet.payload > 0 {
            let is_answered =
                |&(end, _): &(u64, u64)| (packet.acknowledgment as u32).wrapping_sub(end as u32) < 1 << 30;
            if let Some((_, asked_ns)) = flow.requests[1 - side].take_if(|request| is_answered(request))
                && side == 1
            {
                flow.responses[0] += packet.time_ns - asked_ns;
                flow.responses[1] += 1;
            }
            flow.requests[side] = Some((packet.sequence + packet.payload, packet.time_ns));
        }
    }
    flows.into_values().collect()
}

/// The subnet of an address: /24 or /64.
fn subnet(address: &str) -> String {
    match address.parse().unwrap() {
        IpAddr::V4(address) => format!("{}/24", Ipv4Addr::from_bits(address.to_bits() >> 8 << 8)),
        IpAddr::V6(address) => format!("{}/64", Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// Rows of texts with a number.
type Answer = BTreeMap<Vec<String>, u64>;

fn add(answer: &mut Answer, key: &[&dyn ToString], number: u64) {
    *answer.entry(key.iter().map(|text| text.to_string()).collect()).or_default() += number;
}

/// The answer of Weir: the texts of fields with a number, without the row of others.
fn answer(command: &str, fields: &[&str], metric: &str) -> (Vec<(Vec<String>, u64)>, bool) {
    let json = match command.split_once(" | ") {
        Some((command, _)) => command.replace("-o csv:-", "-o json:-"),
        None => command.replace(" -q", " -q -o json:-"),
    };
    let rows: Vec<Value> = run(&json).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let is_others = |row: &&Value| row.get("other_groups").is_some_and(|others| *others != 0);
    let has_others = rows.iter().any(|row| is_others(&row));
    let shown = rows.iter().filter(|row| !is_others(row));
    let of_row = |row: &Value| (fields.iter().map(|field| text(&row[field])).collect(), row[metric].as_u64().unwrap());
    (shown.map(of_row).collect(), has_others)
}

/// Compares the sums of answers that say no with the number of those that tshark has.
fn compare_failures(command: &str) {
    let of_tshark = |filter: &str| -> usize {
        let count = |name: &str| {
            let output = Command::new("tshark").arg("-r").arg(captures().join(name)).args(["-Y", filter]).output();
            String::from_utf8(output.unwrap().stdout).unwrap().lines().count()
        };
        DAY.split(' ').map(count).sum()
    };
    for (field, filter) in [("dns_nxdomain", "dns.flags.rcode == 3"), ("http_4xx", "http.response.code >= 400")] {
        let rows = run(&command.replace(" -q", " -q -o json:-"));
        let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap());
        let failed = rows.map(|row| row[field].as_u64().unwrap_or(0)).sum::<u64>();
        assert!(failed > 0 && failed as usize == of_tshark(filter), "{field}");
    }
}

/// Compares the rows of Weir with all groups that tshark has. Rows of `--top` are those with the
/// largest numbers.
fn compare(question: &str, command: &str, fields: &[&str], metric: &str, expected: &Answer) {
    let (rows, has_others) = answer(command, fields, metric);
    assert!(!rows.is_empty(), "{question}");
    for (key, number) in &rows {
        assert_eq!(Some(number), expected.get(key), "{question}: {key:?} {metric}, of {expected:?}");
    }
    if has_others {
        let mut largest: Vec<u64> = expected.values().copied().collect();
        largest.sort_unstable_by(|one, other| other.cmp(one));
        assert_eq!(rows.iter().map(|row| row.1).collect::<Vec<_>>(), largest[..rows.len()], "{question}");
    } else {
        assert_eq!(rows.len(), expected.len(), "{question}: {rows:?} {expected:?}");
    }
}

/// Compares the flows of Weir with those of tshark, and the first row of the table with the largest.
fn compare_flows(question: &str, command: &str, metric: &str, flows: &[Flow], number: fn(&Flow) -> u64) {
    let fields = ["src_ip", "src_port", "dst_ip", "dst_port"];
    let mut expected = Answer::new();
    let key = |flow: &Flow| -> Vec<String> {
        let Packet { source, destination, ports, .. } = &flow.first;
        vec![source.clone(), ports[0].to_string(), destination.clone(), ports[1].to_string()]
    };
    flows.iter().for_each(|flow| *expected.entry(key(flow)).or_default() += number(flow));
    let mut found = Answer::new();
    let only_ports = command.replace(" -q", " -q --fields all -o 'json:-?where=tcp or udp'");
    let output = run(&only_ports);
    for row in output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let text = |field: &&str| row[field].as_str().map_or_else(|| row[field].to_string(), String::from);
        let number = metric.split('+').map(|metric| row[metric].as_u64().unwrap_or_default()).sum::<u64>();
        *found.entry(fields.iter().map(text).collect()).or_default() += number;
    }
    assert_eq!(found, expected, "{question}");
    let largest = flows.iter().map(number).max().unwrap();
    let table = run(command);
    let first = table.lines().nth(1).unwrap();
    let is_first = |flow: &Flow| {
        let texts = key(flow);
        texts.iter().all(|text| first.contains(text.as_str()))
    };
    let icmp_first = first.contains("icmp");
    assert!(icmp_first || flows.iter().any(|flow| number(flow) == largest && is_first(flow)), "{question}: {table}");
}

#[test]
fn the_answers_are_those_of_tshark() {
    if !is_installed("tshark") {
        return eprintln!("SKIPPED: tshark is not installed; THE ANSWERS OF THE COOKBOOK ARE NOT COMPARED");
    }
    let text = std::fs::read_to_string(page()).unwrap();
    let day = packets(DAY, false);
    let day_flows = flows(&day);
    let services =
        |keys: &dyn Fn(&Flow) -> Vec<String>, number: &dyn Fn(&Flow) -> u64, chosen: &dyn Fn(&Flow) -> bool| {
            let mut expected = Answer::new();
            let chosen = day_flows.iter().filter(|flow| chosen(flow));
            chosen.for_each(|flow| *expected.entry(keys(flow)).or_default() += number(flow));
            expected
        };
    let all_bytes = |flow: &Flow| flow.bytes[0] + flow.bytes[1];
    for (question, command, _) in questions(&text) {
        let question = question.as_str();
        let mut expected = Answer::new();
        match question {
            "Who are the top talkers?" => {
                for packet in &day {
                    add(&mut expected, &[&packet.source], packet.bytes);
                    add(&mut expected, &[&packet.destination], packet.bytes);
                }
                compare(question, &command, &["host"], "bytes", &expected);
            }
            "Which services carry the traffic?" => {
                for packet in &day {
                    let port = packet.ports[0].min(packet.ports[1]);
                    let port = if port == 0 { String::new() } else { port.to_string() };
                    add(&mut expected, &[&port, &packet.protocol], packet.bytes);
                }
                compare(question, &command, &["service_port", "protocol"], "bytes", &expected);
            }
            "Which client subnets have the most traffic?" => {
                for packet in &day {
                    let of_client = packet.ports[0] >= packet.ports[1];
                    let client = if of_client { &packet.source } else { &packet.destination };
                    add(&mut expected, &[&subnet(client)], packet.bytes);
                }
                compare(question, &command, &["client_ip"], "bytes", &expected);
            }
            "Which services does a subnet have?" => {
                let key = |flow: &Flow| vec![flow.first.destination.clone(), flow.first.ports[1].to_string()];
                let in_subnet = |flow: &Flow| flow.first.destination.starts_with("192.0.2.");
                let expected = services(&key, &all_bytes, &in_subnet);
                compare(question, &command, &["server_ip", "service_port"], "bytes", &expected);
            }
            "What is in the DNS traffic?" => {
                let dns: Vec<Flow> = day_flows.iter().filter(|flow| flow.first.ports[1] == 53).cloned().collect();
                compare_flows(question, &command, "bytes", &dns, |flow| flow.bytes[0] + flow.bytes[1]);
            }
            "Which flows last longest?" => {
                compare_flows(question, &command, "duration_ns", &day_flows, |flow| flow.last_ns - flow.first.time_ns);
            }
            "Which flows are the largest?" => {
                compare_flows(question, &command, "bytes", &day_flows, |flow| flow.bytes[0] + flow.bytes[1]);
            }
            "Which uploads are large?" => {
                let mut flows = flows(&packets("loss.pcapng", false));
                flows.retain(|flow| flow.bytes[0] > 100_000);
                compare_flows(question, &command, "fwd_bytes", &flows, |flow| flow.bytes[0]);
            }
            "Where are the most retransmissions?" | "Which server has the worst path?" => {
                // Where the sender is captured, a retransmission is a segment that was sent before.
                let at_sender = |flow: &&Flow| flow.first.interface == u64::from(flow.first.ports[1] != 7000);
                let flows = flows(&packets("loss.pcapng", false));
                let flows: Vec<Flow> = flows.iter().filter(at_sender).cloned().collect();
                let condition = "(interface = 1 and port 7000) or (interface = 2 and port 80)";
                let command = command.replace("--sort", &format!("--where '{condition}' --sort"));
                if question == "Which server has the worst path?" {
                    let server = |flow: &Flow| [flow.first.destination.clone(), flow.first.ports[1].to_string()];
                    let fields = ["server_ip", "service_port"];
                    let retransmitted = flows.iter().map(|flow| (server(flow).to_vec(), flow.repeated)).collect();
                    compare(question, &command, &fields, "retransmitted", &retransmitted);
                    let segments = flows.iter().map(|flow| (server(flow).to_vec(), flow.segments)).collect();
                    compare(question, &command, &fields, "segments", &segments);
                    let mut worst_first: Vec<&Flow> = flows.iter().collect();
                    worst_first.sort_by_key(|flow| Reverse(flow.repeated * 1_000_000 / flow.segments));
                    let rows = answer(&command, &fields, "flows").0;
                    let servers = rows.iter().map(|(server, _)| server.as_slice());
                    assert!(servers.eq(worst_first.iter().map(|flow| server(flow))), "{rows:?}");
                    continue;
                }
                let metric = "fwd_tcp_retransmitted_packets+rev_tcp_retransmitted_packets";
                compare_flows(question, &command, metric, &flows, |flow| flow.repeated);
            }
            "Which server is slowest?" => {
                let mut of_servers: BTreeMap<Vec<String>, [u64; 2]> = BTreeMap::new();
                for flow in day_flows.iter().filter(|flow| flow.responses[1] > 0) {
                    let server = vec![flow.first.destination.clone(), flow.first.ports[1].to_string()];
                    let sums = of_servers.entry(server).or_default();
                    *sums = [sums[0] + flow.responses[0], sums[1] + flow.responses[1]];
                }
                let expected = of_servers.into_iter().map(|(server, [ns, count])| (server, ns / count)).collect();
                compare(question, &command, &["server_ip", "service_port"], "response_mean_ns", &expected);
            }
            "Which questions and requests failed?" => compare_failures(&command),
            "When did each service run?" => {
                const EVERY_NS: u64 = 100_000_000;
                for flow in &day_flows {
                    let (first, last) = (flow.first.time_ns, flow.last_ns);
                    for interval in first / EVERY_NS..=last / EVERY_NS {
                        // Spread evenly over the time of the flow.
                        let from = (interval * EVERY_NS).max(first) - first;
                        let to = ((interval + 1) * EVERY_NS).min(last) - first;
                        let is_alone = first / EVERY_NS == last / EVERY_NS;
                        let until = |bytes: u64, ns: u64| bytes * ns / (last - first).max(1);
                        let part = |&bytes: &u64| if is_alone { bytes } else { until(bytes, to) - until(bytes, from) };
                        let start = interval * EVERY_NS % 60_000_000_000;
                        let time =
                            format!("2026-11-21T02:51:{:02}.{:09}Z", start / 1_000_000_000, start % 1_000_000_000);
                        add(&mut expected, &[&time, &flow.first.ports[1]], flow.bytes.iter().map(part).sum());
                    }
                }
                expected.retain(|_, bytes| *bytes > 0);
                let command = command.replace("--by", "--where 'tcp or udp' --by");
                compare(question, &command, &["interval_start", "service_port"], "bytes", &expected);
            }
            "Which connections have the longest round trip?" => {
                let metric = "fwd_tcp_handshake_rtt_ns+rev_tcp_handshake_rtt_ns";
                compare_flows(question, &command, metric, &day_flows, |flow| flow.rtt_ns);
            }
            "What is inside the tunnels?" => {
                for packet in packets("vxlan.pcap", true) {
                    add(&mut expected, &[&packet.protocol], packet.bytes);
                }
                compare(question, &command.replace("tunnel,", ""), &["protocol"], "bytes", &expected);
            }
            "Which connections failed?" | "Which were refused, and by whom?" => {
                let mut failed = flows(&packets("web.pcap traceroute.pcap", false));
                let refused = question != "Which connections failed?";
                failed.retain(|flow| flow.flags[0] & 2 != 0 && flow.flags[1] & 2 == 0);
                if refused {
                    failed.retain(|flow| flow.flags[1] & 4 != 0);
                    failed
                        .iter()
                        .for_each(|flow| add(&mut expected, &[&flow.first.destination, &flow.first.ports[1]], 1));
                    compare(question, &command, &["dst_ip", "dst_port"], "flows", &expected);
                } else {
                    compare_flows(question, &command, "bytes", &failed, |flow| flow.bytes[0] + flow.bytes[1]);
                }
            }
            "How much traffic is there per second?" | "Which second was the busiest?" => {
                for packet in &day {
                    let second = packet.time_ns / 1_000_000_000 % 60;
                    add(&mut expected, &[&format!("2026-11-21T02:51:{second:02}.000000000Z")], packet.bytes);
                }
                compare(question, &command, &["interval_start"], "bytes", &expected);
            }
            "Who are the peers of a host?" => {
                let of_host = day_flows.iter().filter(|flow| flow.first.source == "192.0.2.1");
                of_host.for_each(|flow| add(&mut expected, &[&flow.first.destination, &flow.first.ports[1]], 1));
                compare(question, &command, &["dst_ip", "dst_port"], "flows", &expected);
            }
            "Who may scan ports?" => {
                for flow in flows(&packets("traceroute.pcap", false)) {
                    add(&mut expected, &[&flow.first.source, &flow.first.destination], 1);
                }
                compare(question, &command, &["src_ip", "dst_ip"], "flows", &expected);
            }
            "How much is IPv6?" => {
                for packet in &day {
                    add(&mut expected, &[if packet.source.contains(':') { &"6" } else { &"4" }], packet.bytes);
                }
                compare(question, &command, &["ip_version"], "bytes", &expected);
            }
            "Which VLANs are used?" => {
                for packet in packets("vlan.pcap qinq.pcap", false) {
                    let vlan = |at: usize| packet.vlans.get(at).cloned().unwrap_or_default();
                    add(&mut expected, &[&vlan(0), &vlan(1)], packet.bytes);
                }
                compare(question, &command, &["vlan", "inner_vlan"], "bytes", &expected);
            }
            "Which ICMP errors occur?" => {
                for packet in packets("traceroute.pcap", false) {
                    let is_error = |icmp_type: &u64| match packet.protocol.as_str() {
                        "icmp" => [3, 5, 11, 12].contains(icmp_type),
                        _ => *icmp_type < 128,
                    };
                    if let Some(icmp_type) = packet.icmp_type.filter(is_error) {
                        add(&mut expected, &[&packet.protocol, &icmp_type], packet.bytes);
                    }
                }
                compare(question, &command, &["protocol", "icmp_type"], "bytes", &expected);
            }
            "How do I load it into another program?" => {
                let expected_of_ports = services(&|flow| vec![flow.first.destination.clone()], &all_bytes, &|_| true);
                let command = command.replace("--by", "--where 'tcp or udp' --by");
                compare(question, &command, &["server_ip"], "bytes", &expected_of_ports);
            }
            _ => panic!("the answer to {question:?} is not compared"),
        }
    }
}
