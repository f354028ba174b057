//! Basic templates of IPFIX and NetFlow v9, the default over UDP.

use super::open;
use crate::tests::flows::{flow, within_uptime};
use crate::tests::{expected, parsed_records, send, sum};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};
use testbed::decode::{Decoder, Record, Value};
use weir_export::{ExportOptions, Sink};
use weir_flow::FlowRecord;
use weir_packet::Network;
use weir_tcp::TcpReport;

const COMMON: [&str; 16] = [
    "flowStartMilliseconds",
    "flowEndMilliseconds",
    "protocolIdentifier",
    "packetDeltaCount",
    "octetDeltaCount",
    "layer2OctetDeltaCount",
    "tcpControlBits",
    "ipClassOfService",
    "minimumTTL",
    "maximumTTL",
    "vlanId",
    "ingressInterface",
    "flowEndReason",
    "samplingInterval",
    "flowStartSysUpTime",
    "flowEndSysUpTime",
];
const IPV4: [&str; 2] = ["sourceIPv4Address", "destinationIPv4Address"];
const IPV6: [&str; 2] = ["sourceIPv6Address", "destinationIPv6Address"];
const PORTS: [&str; 2] = ["sourceTransportPort", "destinationTransportPort"];
const LAYER2: [&str; 3] = ["sourceMacAddress", "destinationMacAddress", "ethernetType"];

/// The elements of a basic template.
fn elements(flow: &FlowRecord, netflow9: bool) -> HashSet<&'static str> {
    let of_network: &[&str] = match flow.network {
        Network::Ipv4 => &IPV4,
        Network::Ipv6 => &IPV6,
        Network::Layer2 => &LAYER2,
    };
    let of_protocol: &[&str] = match (flow.is_icmp(), flow.network) {
        (false, _) => &PORTS,
        (true, Network::Ipv4) => &["icmpTypeCodeIPv4"],
        // NetFlow v9 has number 32 for both.
        (true, _) if netflow9 => &["icmpTypeCodeIPv4", "icmpTypeCodeIPv6"],
        (true, _) => &["icmpTypeCodeIPv6"],
    };
    let in_format =
        |name: &&str| if netflow9 { *name != "layer2OctetDeltaCount" } else { !name.ends_with("SysUpTime") };
    COMMON.into_iter().filter(in_format).chain([of_network, of_protocol].concat()).collect()
}

/// The basic records of a flow: the full unidirectional ones with these elements, 0 where an element
/// does not apply. The two SysUptime elements are left out.
pub fn basic(flow: &FlowRecord, netflow9: bool) -> Vec<Record> {
    let mut records = if netflow9 { expected::netflow9(flow) } else { expected::ipfix(flow, true) };
    for record in &mut records {
        let full = std::mem::take(record);
        for name in elements(flow, netflow9).into_iter().filter(|name| !name.ends_with("SysUpTime")) {
            let zero = if name.ends_with("IPv6Address") {
                Value::Ip(IpAddr::V6(Ipv6Addr::UNSPECIFIED))
            } else {
                Value::Unsigned(0)
            };
            let value = match full.get(name) {
                Some(Value::Unsigned(bits)) if name == "tcpControlBits" => Value::Unsigned(bits & 0xff),
                other => other.cloned().unwrap_or(zero),
            };
            record.insert(name.into(), value);
        }
        // Those of IP flows are in the record if they are known.
        for name in ["sourceMacAddress", "destinationMacAddress"] {
            record.extend(full.get(name).map(|value| (name.into(), value.clone())));
        }
        let rate = flow.sampling.map_or(1, |[_, max]| max);
        record.insert("samplingInterval".into(), Value::Unsigned(rate.into()));
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn records_have_the_elements_of_their_network_only(
        mut flows in prop::collection::vec(flow(), 1..60),
        netflow9: bool,
    ) {
        flows.iter_mut().for_each(within_uptime);
        let scheme = if netflow9 { "netflow9+udp" } else { "ipfix+udp" };
        let (counters, datagrams) = send(scheme, "", &ExportOptions::default(), &flows);
        let mut decoder = Decoder::new();
        let mut records: Vec<Record> = datagrams.iter().flat_map(|datagram| decoder.message(datagram)).collect();
        for record in &mut records {
            for name in ["flowStartSysUpTime", "flowEndSysUpTime"] {
                prop_assert_eq!(record.remove(name).is_some(), netflow9);
            }
        }
        let expected: Vec<Record> = flows.iter().flat_map(|flow| basic(flow, netflow9)).collect();
        prop_assert_eq!(&records, &expected);
        // Five and, for IP with ports and with ICMP, one for each combination of known MAC addresses.
        prop_assert!(decoder.templates_seen <= 5 + 12, "{} templates", decoder.templates_seen);
        prop_assert_eq!(decoder.types_seen, 0);
        prop_assert_eq!(counters.exported, sum(&flows));
        prop_assert_eq!(parsed_records(&datagrams), counters.wire_records);
    }
}

#[test]
fn the_first_message_is_short_and_has_all_templates() {
    for scheme in ["ipfix+udp", "netflow9+udp"] {
        let (_, datagrams) = send(scheme, "", &ExportOptions::default(), &[crate::tests::flows::plain(1, 1)]);
        let mut decoder = Decoder::new();
        assert!(decoder.message(&datagrams[0]).is_empty() && decoder.options.is_empty());
        assert_eq!(decoder.templates_seen, 5, "{scheme}");
        assert!(datagrams[0].len() < 600, "{} octets", datagrams[0].len());
        let records: usize = datagrams[1..].iter().map(|datagram| decoder.message(datagram).len()).sum();
        assert_eq!((records, decoder.templates_seen), (1, 5));
    }
}

/// Flows that need more full templates than a sink adds.
pub fn flows_of_many_shapes() -> Vec<FlowRecord> {
    let mut runner = TestRunner::deterministic();
    let mut flows: Vec<FlowRecord> =
        (0..4000).map(|_| flow().new_tree(&mut runner).expect("a flow").current()).collect();
    flows.iter_mut().for_each(within_uptime);
    flows
}

#[test]
fn flows_beyond_the_limit_of_full_templates_are_basic_records() {
    let flows = flows_of_many_shapes();
    let (counters, datagrams) = send("ipfix+udp", "?template=full&rate=0", &ExportOptions::default(), &flows);
    let mut decoder = Decoder::new();
    let records: Vec<Record> = datagrams.iter().flat_map(|datagram| decoder.message(datagram)).collect();
    assert_eq!(records.len() as u64, counters.wire_records);
    assert_eq!(counters.exported, sum(&flows));
    let full = records.iter().filter(|record| record.contains_key("biflowDirection")).count();
    let basic = records.len() - full;
    assert!(full > 256 && basic > 256, "{full} full, {basic} basic records");
    let altered = counters.altered["basic_template"];
    assert!(altered as usize <= basic && 2 * altered as usize >= basic, "{altered} flows have {basic} basic records");
    assert!(decoder.templates.len() <= 1 + 257 + 5 + 12, "{} templates", decoder.templates.len());
}

#[test]
fn templates_are_few_octets_after_a_template_storm() {
    let storm = flows_of_many_shapes();
    let quiet: Vec<FlowRecord> = (0..20_000).map(|number| crate::tests::flows::plain(number, 1)).collect();
    let flows = [storm.as_slice(), &quiet].concat();
    let started = Instant::now();
    let (_, datagrams) = send("ipfix+udp", "?template=full&rate=0", &ExportOptions::default(), &flows);
    let seconds = started.elapsed().as_secs() as usize;
    let mut decoder = Decoder::new();
    let (mut records, mut octets, mut templates) = (0, 0, 0);
    for datagram in &datagrams {
        let before = decoder.templates_seen;
        records += decoder.message(datagram).len();
        if records > storm.len() * 2 {
            octets += datagram.len();
            templates += decoder.templates_seen - before;
        }
    }
    let sets = templates / decoder.templates.len().max(1);
    // In the first minute all templates are also retransmitted every second.
    assert!(octets > 1_000_000 && sets <= 2 + seconds, "{templates} templates in {octets} octets and {seconds} s");
}

#[test]
fn templates_of_a_storm_expire_after_two_refresh_intervals() {
    let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
    listener.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let address = listener.local_addr().unwrap();
    let settings = "template=full&rate=0&refresh=1";
    let mut sink = open(&format!("ipfix+udp://{address}?{settings}"), &ExportOptions::default()).unwrap();
    let mut decoder = Decoder::new();
    let mut buffer = [0; 2000];
    let mut received = 0;
    let mut write = |sink: &mut dyn Sink, flows: &[FlowRecord]| {
        let (mut records, templates) = (Vec::new(), decoder.templates_seen);
        for batch in flows.chunks(30) {
            sink.write(batch).unwrap();
            while received < sink.counters().messages {
                let octets = listener.recv(&mut buffer).unwrap();
                records.extend(decoder.message(&buffer[..octets]));
                received += 1;
            }
        }
        (records, decoder.templates_seen - templates, decoder.templates.keys().max().copied())
    };
    let mut quiet = crate::tests::flows::answered(1, 3);
    (quiet.protocol, quiet.tcp) = (6, Some([TcpReport::EMPTY; 2]));
    let is_full = |records: &[Record]| records.iter().all(|record| record.contains_key("biflowDirection"));

    let started = Instant::now();
    let (_, _, last_id) = write(&mut *sink, &flows_of_many_shapes());
    let (records, ..) = write(&mut *sink, std::slice::from_ref(&quiet));
    // On a slow machine the first templates have expired meanwhile.
    let is_slow = started.elapsed() > Duration::from_secs(1);
    assert!(is_slow || !is_full(&records), "the storm has taken all templates");
    let mut last = Default::default();
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(1010));
        last = write(&mut *sink, std::slice::from_ref(&quiet));
    }
    let (records, templates, id) = last;
    assert!(records.len() == 1 && is_full(&records), "{records:?}");
    assert!(id > last_id, "{id:?} after {last_id:?}");
    assert!(templates < 10, "{templates} templates are retransmitted");
}
