//! Profiles of collectors, and lists of elements.

use super::open;
use crate::tests::basic::{basic, flows_of_many_shapes};
use crate::tests::flows::{answered, flow, plain, within_uptime};
use crate::tests::{expected, parsed_records, send, sum};
use proptest::prelude::*;
use std::path::Path;
use testbed::decode::{Decoder, Record, Value};
use weir_export::ExportOptions;
use weir_flow::FlowRecord;
use weir_packet::{Network, TunnelType};
use weir_tcp::SegmentClass;

/// A row of the table in docs/collectors.md: the elements that differ from basic or full templates.
struct Profile {
    name: String,
    is_basic: bool,
    added: Vec<String>,
    left_out: Vec<String>,
}

fn profiles() -> Vec<Profile> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/collectors.md");
    let page = std::fs::read_to_string(path).expect("the page exists");
    let rows = page.lines().skip_while(|line| !line.starts_with("| Profile |")).skip(2);
    let profile = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let list = |cell: &str| cell.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Profile {
            name: cells[1].trim_matches('`').into(),
            is_basic: cells[2] == "basic",
            added: list(cells[3]),
            left_out: list(cells[4]),
        }
    };
    let profiles: Vec<Profile> = rows.take_while(|line| line.starts_with('|')).map(profile).collect();
    assert_eq!(profiles.len(), 7);
    profiles
}

/// The value of an added element, and its name in the decoder, if it applies to a record. `full` is
/// the full record.
fn added(name: &str, flow: &FlowRecord, full: &Record) -> Option<(String, Value)> {
    let count = |read: fn(&weir_tcp::TcpReport) -> u64| flow.tcp.map(|[report, _]| Value::Unsigned(read(&report)));
    let short = |number: u64| Value::Unsigned(number.min(u64::from(u32::MAX)));
    let of = |class: SegmentClass| flow.tcp.map(|[report, _]| short(report.count(class).segments));
    let (name, value) = match name {
        "tcpSynTotalCount" => (name, count(|report| report.syns())),
        "tcpFinTotalCount" => (name, count(|report| report.fins)),
        "tcpRstTotalCount" => (name, count(|report| report.count(SegmentClass::Reset).segments)),
        "RETRANSMITTED_IN_PKTS" => ("ntop 109", of(SegmentClass::Retransmission)),
        "OOORDER_IN_PKTS" => ("ntop 111", of(SegmentClass::OutOfOrder)),
        _ => (name, full.get(name).cloned()),
    };
    Some((name.into(), value?))
}

/// The records of a flow with a profile.
fn records(profile: &Profile, flow: &FlowRecord, netflow9: bool) -> Vec<Record> {
    let full = if netflow9 { expected::netflow9(flow) } else { expected::ipfix(flow, profile.is_basic) };
    if !profile.is_basic {
        assert!(profile.added.is_empty() && profile.left_out.is_empty());
        return full;
    }
    let mut records = basic(flow, netflow9);
    for ((record, full), part) in records.iter_mut().zip(full).zip(expected::unidirectional(flow)) {
        record.retain(|name, _| !profile.left_out.contains(name));
        let only_ipfix = |name: &str| name.starts_with("tcp") || name.ends_with("_PKTS");
        let names = profile.added.iter().filter(|name| !(netflow9 && only_ipfix(name)));
        record.extend(names.filter_map(|name| added(name, &part, &full)));
    }
    records
}

/// Decodes datagrams. The two SysUptime elements are left out.
fn decode(datagrams: &[Vec<u8>], decoder: &mut Decoder) -> Vec<Record> {
    let mut records: Vec<Record> = datagrams.iter().flat_map(|datagram| decoder.message(datagram)).collect();
    records.iter_mut().for_each(|record| record.retain(|name, _| !name.ends_with("SysUpTime")));
    records
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn records_have_the_elements_that_the_page_promises(
        mut flows in prop::collection::vec(flow(), 1..60),
        netflow9: bool,
    ) {
        flows.iter_mut().for_each(within_uptime);
        let scheme = if netflow9 { "netflow9+udp" } else { "ipfix+udp" };
        for profile in profiles() {
            let settings = format!("?template={}", profile.name);
            let (counters, datagrams) = send(scheme, &settings, &ExportOptions::default(), &flows);
            let mut decoder = Decoder::new();
            let decoded = decode(&datagrams, &mut decoder);
            let mut expected: Vec<Record> =
                flows.iter().flat_map(|flow| records(&profile, flow, netflow9)).collect();
            expected.iter_mut().for_each(|record| record.retain(|name, _| !name.ends_with("SysUpTime")));
            prop_assert_eq!(decoded, expected, "{}", profile.name);
            prop_assert_eq!(counters.exported, sum(&flows));
            prop_assert_eq!(decoder.types_seen > 0, !profile.is_basic && !netflow9);
            if profile.is_basic {
                prop_assert_eq!(parsed_records(&datagrams), counters.wire_records);
            }
        }
    }

    #[test]
    fn a_list_gives_records_with_these_elements_only(
        mut flows in prop::collection::vec(flow(), 1..60),
        two_way: bool,
    ) {
        flows.iter_mut().for_each(within_uptime);
        let names = "flowStartMilliseconds,sourceIPv4Address,sourceIPv6Address,octetDeltaCount,tcpControlBits,\
                     tcpPayloadOctets,layer2OctetDeltaCount,icmpTypeCodeIPv4";
        let settings = format!("?template={}&fields={names}", if two_way { "full" } else { "basic" });
        let (counters, datagrams) = send("ipfix+udp", &settings, &ExportOptions::default(), &flows);
        let mut decoder = Decoder::new();
        let decoded = decode(&datagrams, &mut decoder);
        let listed = |name: &str| {
            let name = name.trim_start_matches("reverse ");
            names.split(',').any(|listed| listed == name) || name == "reverseTcpPayloadOctets"
        };
        // The list has no key of layer-2 flows that would say whose direction is which.
        let is_uniflow = |flow: &FlowRecord| !two_way || flow.network == Network::Layer2;
        let all = flows.iter().flat_map(|flow| expected::ipfix(flow, is_uniflow(flow)));
        let expected: Vec<Record> = all.map(|mut record| {
            record.retain(|name, _| listed(name));
            record
        }).collect();
        prop_assert_eq!(decoded, expected);
        prop_assert_eq!(counters.exported, sum(&flows));
        prop_assert!(counters.altered.is_empty());
        // Type information of one element, and with two directions of its reverse element.
        prop_assert_eq!(decoder.types_seen % if two_way { 2 } else { 1 }, 0);
    }
}

#[test]
fn a_list_in_netflow9_has_one_record_per_direction() {
    let flows = [answered(1, 3), plain(2, 4)];
    let settings = "?template=full&fields=octetDeltaCount,sourceIPv4Address,flowStartSysUpTime,flowEndMilliseconds";
    let (counters, datagrams) = send("netflow9+udp", settings, &ExportOptions::default(), &flows);
    let mut decoder = Decoder::new();
    let records: Vec<Record> = datagrams.iter().flat_map(|datagram| decoder.message(datagram)).collect();
    assert_eq!((records.len(), counters.wire_records, decoder.templates.len()), (3, 3, 1));
    let octets: Vec<&Value> = records.iter().map(|record| &record["octetDeltaCount"]).collect();
    assert_eq!(octets, [&Value::Unsigned(300), &Value::Unsigned(300), &Value::Unsigned(400)]);
    for record in &records {
        let names: Vec<&str> = record.keys().map(String::as_str).collect();
        assert_eq!(names, ["flowEndMilliseconds", "flowStartSysUpTime", "octetDeltaCount", "sourceIPv4Address"]);
    }
}

#[test]
fn a_record_that_padding_could_hide_is_a_basic_record() {
    let flows = [plain(1, 3), answered(2, 4)];
    for (fields, is_basic) in [("icmpTypeIPv4", true), ("minimumTTL,vlanId", true), ("packetDeltaCount", false)] {
        for scheme in ["ipfix+udp", "netflow9+udp"] {
            let settings = format!("?template=full&fields={fields}");
            let (counters, datagrams) = send(scheme, &settings, &ExportOptions::default(), &flows);
            let mut decoder = Decoder::new();
            let records: Vec<Record> = datagrams.iter().flat_map(|datagram| decoder.message(datagram)).collect();
            assert_eq!(records.len() as u64, counters.wire_records);
            assert_eq!(counters.exported, sum(&flows));
            assert_eq!(counters.altered.get("basic_template"), is_basic.then_some(&2), "{scheme} {fields}");
            assert!(records.iter().all(|record| record.contains_key("packetDeltaCount")));
            assert!(records.iter().all(|record| record.contains_key("flowEndReason") == is_basic));
        }
    }
}

#[test]
fn templates_of_profiles_and_lists_are_bounded() {
    let flows = flows_of_many_shapes();
    let list = "fields=octetDeltaCount,sourceIPv4Address,sourceTransportPort,tcpControlBits,vlanId,minimumTTL,\
                interArrivalTimeMean,tcpHandshakeRoundTrip,tcpSynWindow,mplsTopLabelStackSection,tunnelType,\
                tunnelIdentifier,tcpSizeBySequence,TCP_WIN_MSS_IN,samplingPopulation,approximateRecord";
    // Basic templates: five, and those of IP with each combination of known MAC addresses.
    let basic = 5 + 12;
    for (settings, most) in
        [("template=nfdump", basic * 8), (list, 256 + basic), (&format!("template=full&{list}"), 256 + basic)]
    {
        let (counters, datagrams) =
            send("ipfix+udp", &format!("?rate=0&{settings}"), &ExportOptions::default(), &flows);
        let mut decoder = Decoder::new();
        let records = decode(&datagrams, &mut decoder);
        assert_eq!(records.len() as u64, counters.wire_records);
        assert_eq!(counters.exported, sum(&flows));
        assert!(decoder.templates.len() <= most, "{settings}: {} templates", decoder.templates.len());
    }
}

#[test]
fn elements_of_the_other_format_are_refused() {
    for (sink, expected) in [
        (
            "netflow9+udp://127.0.0.1:9?fields=packetDeltaCount,packetSizeMean",
            "NetFlow v9 has no element packetSizeMean",
        ),
        ("ipfix+udp://127.0.0.1:9?fields=flowStartSysUpTime", "IPFIX has no element flowStartSysUpTime"),
        ("netflow5+udp://127.0.0.1:9?fields=packetDeltaCount", "NetFlow v5 has no templates"),
    ] {
        let error = open(sink, &ExportOptions::default()).err().expect("the sink is invalid").to_string();
        assert!(error.starts_with(&format!("{sink}: {expected}")), "{error}");
    }
}

/// A list of all fields makes records and templates that the smallest message does not hold.
#[test]
fn records_of_a_list_of_all_fields_are_within_the_smallest_message() {
    let is_two_way = |flow: &FlowRecord| flow.tcp.is_some() && flow.forward.packets > 0 && flow.reverse.packets > 0;
    let mut flows: Vec<FlowRecord> = flows_of_many_shapes().into_iter().filter(is_two_way).collect();
    for flow in &mut flows {
        for direction in [&mut flow.forward, &mut flow.reverse] {
            (direction.vlan, direction.inner_vlan, direction.mpls_label) = (1, 2, 3);
            (direction.tunnel_type, direction.tunnel_id) = (TunnelType::SixInSix, Some(4));
            (direction.outer_source, direction.outer_destination) = ([0xfd; 16], [0xfe; 16]);
        }
    }
    let (mut split, mut altered) = (0, 0);
    for flows in flows.chunks(100) {
        let settings = "?mtu=1232&rate=0&template=full&fields=all";
        let (counters, datagrams) = send("ipfix+udp", settings, &ExportOptions::default(), flows);
        assert!(datagrams.iter().all(|datagram| datagram.len() <= 1232));
        let mut decoder = Decoder::new();
        let records = decode(&datagrams, &mut decoder);
        assert_eq!((records.len() as u64, counters.exported), (counters.wire_records, sum(flows)));
        altered += counters.altered.get("basic_template").copied().unwrap_or(0);
        split += records.len() - flows.len();
    }
    assert!(altered > 0 && split as u64 >= altered, "{split} flows in two records, {altered} of them basic");
}
