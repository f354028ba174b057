//! JSON and CSV.

use crate::tests::flows::{answered, flow, plain};
use crate::tests::{expected, export_file, sum};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use weir_export::ExportOptions;
use weir_flow::{Approximate, AutonomousSystem, FlowRecord};
use weir_packet::{NO_LABEL, Network};
use weir_tcp::TcpReport;

fn file(format: &str, options: &ExportOptions, flows: &[FlowRecord]) -> (weir_ledger::SinkCounters, String) {
    let (counters, octets) = export_file(format, options, flows);
    (counters, String::from_utf8(octets).unwrap())
}

fn objects(text: &str) -> Vec<Map<String, Value>> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

/// The expected JSON object without times and community_id.
fn expected(flow: &FlowRecord) -> Map<String, Value> {
    let mut map = Map::new();
    let ip = flow.network != Network::Layer2;
    let ports = ip && [6, 17, 33, 132, 136].contains(&flow.protocol);
    let mut insert = |name: &str, value: Option<Value>| {
        map.insert(name.into(), value.unwrap_or(Value::Null));
    };
    insert("duration_ns", Some(json!(flow.end_ns() - flow.start_ns())));
    insert("src_ip", flow.source_ip().map(|address| json!(address.to_string())));
    insert("dst_ip", flow.destination_ip().map(|address| json!(address.to_string())));
    insert("src_port", Some(json!(if ports { flow.source_port } else { 0 })));
    insert("dst_port", Some(json!(if ports { flow.destination_port } else { 0 })));
    insert("protocol", ip.then(|| protocol(flow.protocol)));
    insert("protocol_number", ip.then(|| json!(flow.protocol)));
    let [a, b] = [&flow.forward, &flow.reverse];
    insert("packets", Some(json!(a.packets + b.packets)));
    insert("bytes", Some(json!(a.bytes + b.bytes)));
    insert("l2_bytes", Some(json!(a.frame_bytes + b.frame_bytes)));
    insert("interface", Some(json!(flow.interface)));
    insert("queue_lost", Some(json!(flow.queue_lost)));
    let [min, max] = flow.sampling.unwrap_or([1, 1]);
    insert("sampling_min", Some(json!(min)));
    insert("sampling_max", Some(json!(max)));
    let answers = a.packets > 0 && b.packets > 0 && flow.approximate.0 & Approximate::OVERFLOW == 0;
    let response = b.first_ns.checked_sub(a.first_ns).filter(|_| ip && flow.protocol == 17 && answers);
    insert("udp_response_ns", response.map(|ns| json!(ns)));
    insert("end_reason", Some(json!(["idle", "active", "end", "forced", "resources"][flow.end_reason as usize - 1])));
    insert("approximate", words(flow.approximate.names()));
    insert("ethertype", Some(json!(if ip { 0 } else { flow.source_port })));
    for (name, mac) in ["src_mac", "dst_mac"].into_iter().zip(expected::macs(flow)) {
        let text = |mac: [u8; 6]| mac.map(|octet| format!("{octet:02x}")).join(":");
        insert(name, mac.map(|mac| json!(text(mac))));
    }
    let places = flow.places.as_deref().cloned().unwrap_or_default();
    for (side, place) in [("src", places.source), ("dst", places.destination)] {
        let mut insert = |name: &str, value: Option<Value>| insert(&format!("{side}_{name}"), value);
        let text = |text: &str| (!text.is_empty()).then(|| json!(text));
        let network = place.network.as_deref().cloned().unwrap_or_default();
        insert("network", text(&network.name));
        insert("site", text(&network.site));
        insert("role", text(&network.role));
        insert("local", place.is_local.map(|is_local| json!(u8::from(is_local))));
        insert("country", place.country().map(|country| json!(country)));
        insert("as", place.autonomous_system.as_ref().map(|system| json!(system.number)));
        let organization = |system: &Arc<AutonomousSystem>| system.organization.as_ref().map(|text| json!(text));
        insert("as_org", place.autonomous_system.as_ref().and_then(organization));
        insert("tags", place.tags.map(|tags| json!(tags)));
    }
    insert("tags", places.tags.map(|tags| json!(tags)));
    insert("interface_name", places.interface.map(|name| json!(*name)));
    for (reverse, prefix) in ["fwd_", "rev_"].into_iter().enumerate() {
        let direction = [&flow.forward, &flow.reverse][reverse];
        let some = direction.packets > 0;
        let insert = |map: &mut Map<_, _>, name: &str, value: Option<Value>| {
            map.insert(format!("{prefix}{name}"), value.filter(|_| some).unwrap_or(Value::Null));
        };
        insert(&mut map, "mpls_label", (direction.mpls_label != NO_LABEL).then(|| json!(direction.mpls_label)));
        insert(&mut map, "tunnel_type", direction.tunnel_type.name().map(|name| json!(name)));
        let t = flow.tcp.map(|reports| if some { reports[reverse] } else { TcpReport::EMPTY });
        let fields = |t: &TcpReport| expected::tcp_always(t).into_iter().chain(expected::tcp_with_anomalies(t));
        for field in fields(&TcpReport::EMPTY) {
            insert(&mut map, field.name, None);
        }
        let times = ["count", "first_ns", "max_ns"].map(|name| format!("tcp_response_{name}"));
        let trips = ["count", "min_ns", "max_ns"].map(|name| format!("tcp_rtt_{name}"));
        for name in times.iter().chain(&trips).map(|name| &name[..]).chain(["tcp_throughput_bits_per_second"]) {
            insert(&mut map, name, None);
        }
        for name in ["tcp_mss", "tcp_window_scale", "tcp_degraded"] {
            insert(&mut map, name, None);
        }
        if let Some(t) = t {
            for field in fields(&t) {
                map.insert(format!("{prefix}{}", field.name), field.value.map_or(Value::Null, text_value));
            }
            let [mss, scale] = [t.maximum_segment_size, t.window_scale.map(u16::from)];
            insert(&mut map, "tcp_mss", mss.filter(|_| t.syn_window.is_some()).map(|value| json!(value)));
            insert(&mut map, "tcp_window_scale", scale.filter(|_| t.syn_window.is_some()).map(|value| json!(value)));
            insert(&mut map, "tcp_degraded", words(t.degradation.names()));
            let (responses, trips) = (t.responses, t.round_trips);
            map.insert(format!("{prefix}tcp_response_count"), json!(responses.count));
            map.insert(format!("{prefix}tcp_rtt_count"), json!(trips.count));
            insert(&mut map, "tcp_response_first_ns", (responses.count > 0).then(|| json!(responses.first_ns)));
            insert(&mut map, "tcp_response_max_ns", (responses.count > 0).then(|| json!(responses.max_ns)));
            insert(&mut map, "tcp_rtt_min_ns", (trips.count > 0).then(|| json!(trips.min_ns)));
            insert(&mut map, "tcp_rtt_max_ns", (trips.count > 0).then(|| json!(trips.max_ns)));
            let bits = u128::from(t.unique_bytes) * 8_000_000_000;
            let rate =
                bits.checked_div(u128::from(flow.end_ns() - flow.start_ns())).and_then(|rate| u64::try_from(rate).ok());
            map.insert(format!("{prefix}tcp_throughput_bits_per_second"), rate.map_or(Value::Null, |rate| json!(rate)));
        }
        for field in expected::direction_fields(flow, direction) {
            map.insert(format!("{prefix}{}", field.name), field.value.map_or(Value::Null, text_value));
        }
        // In JSON and CSV, the control bits are 0 if they do not apply, and there is a text.
        let bits = direction.tcp_flags;
        let of_tcp = some && ip && flow.protocol == 6;
        let text: String = "SAPFRUECNXYZ"
            .chars()
            .zip(FLAG_BITS)
            .filter(|(_, bit)| bits & bit != 0)
            .map(|(letter, _)| letter)
            .collect();
        map.insert(format!("{prefix}tcp_flags"), if of_tcp { json!(text) } else { Value::Null });
        map.insert(format!("{prefix}tcp_flags_number"), json!(if of_tcp { bits } else { 0 }));
    }
    map
}

/// The bits of the letters SAPFRUECNXYZ in the TCP header.
const FLAG_BITS: [u16; 12] = [2, 16, 8, 1, 4, 32, 64, 128, 256, 512, 1024, 2048];

fn protocol(number: u8) -> Value {
    let name = weir_fields::protocol_name(number);
    json!(name.map_or_else(|| number.to_string(), String::from))
}

fn words(names: impl Iterator<Item = &'static str>) -> Option<Value> {
    let words: Vec<&str> = names.collect();
    (!words.is_empty()).then(|| json!(words.join(" ")))
}

fn text_value(value: testbed::decode::Value) -> Value {
    match value {
        testbed::decode::Value::Unsigned(number) => json!(number),
        testbed::decode::Value::Float(number) => json!(number),
        testbed::decode::Value::Ip(address) => json!(address.to_string()),
        testbed::decode::Value::Octets(_) | testbed::decode::Value::Text(_) => {
            unreachable!("no field of both formats has them")
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn json_has_the_values_that_apply_and_null_for_others(flows in prop::collection::vec(flow(), 1..40)) {
        let (counters, text) = file("json", &ExportOptions::default(), &flows);
        let objects = objects(&text);
        prop_assert_eq!(objects.len(), flows.len());
        for (mut object, flow) in objects.into_iter().zip(&flows) {
            for name in ["start_time", "end_time"] {
                let time = object.remove(name).unwrap();
                prop_assert_eq!(time.as_str().unwrap().len(), "2026-11-20T12:00:00.123456789Z".len());
            }
            let id = object.remove("community_id").unwrap();
            let none = flow.network == Network::Layer2 || flow.approximate.0 & Approximate::OVERFLOW != 0;
            prop_assert_eq!(id.is_null(), none);
            prop_assert!(none || id.as_str().unwrap().len() == 30);
            // Without findings there is no application.
            for column in weir_fields::columns().iter().filter(|column| column.is_of(weir_fields::Origin::Inspection)) {
                prop_assert_eq!(object.remove(column.name), Some(Value::Null));
            }
            // Tests of expressions show what is computed from other fields.
            object.retain(|name, _| weir_fields::column(name).unwrap().properties.computed_from.is_empty());
            prop_assert_eq!(object, expected(flow));
        }
        prop_assert_eq!(counters.exported, sum(&flows));
        prop_assert_eq!((counters.wire_records, counters.octets), (flows.len() as u64, text.len() as u64));
    }

    #[test]
    fn csv_and_json_have_the_same_values(flows in prop::collection::vec(flow(), 0..40), uniflow: bool) {
        let options = ExportOptions { uniflow, ..ExportOptions::default() };
        let (counters, csv) = file("csv", &options, &flows);
        let (_, json) = file("json", &options, &flows);
        let mut rows = csv::ReaderBuilder::new().has_headers(false).from_reader(csv.as_bytes());
        let mut rows = rows.records().map(|row| row.expect("a row of CSV"));
        let names = rows.next().expect("a header line");
        let rows: Vec<_> = rows.collect();
        let objects = objects(&json);
        prop_assert_eq!(rows.len(), objects.len());
        prop_assert_eq!(counters.wire_records, rows.len() as u64);
        for (row, object) in rows.iter().zip(&objects) {
            prop_assert_eq!(row.len(), names.len());
            prop_assert_eq!(object.len(), names.len());
            for (name, cell) in names.iter().zip(row) {
                let same = match object.get(name).unwrap_or(&Value::Null) {
                    Value::Null => cell.is_empty(),
                    Value::String(text) => text == cell,
                    number => serde_json::from_str::<Value>(cell).unwrap() == *number,
                };
                prop_assert!(same, "{name}: {cell} and {:?}", object.get(name));
            }
        }
    }
}

#[test]
fn a_json_record_has_this_text() {
    let (_, text) = file("json", &ExportOptions::default(), &[answered(0x0a00_0001, 2)]);
    let start = r#"{"start_time":"2023-11-16T20:49:32.161000000Z","end_time":"2023-11-16T20:49:32.166000000Z","duration_ns":5000000,"src_ip":"10.0.0.1","src_port":1,"dst_ip":"192.0.2.1","dst_port":53,"protocol":"udp","protocol_number":17,"ip_version":4,"packets":4,"bytes":400,"l2_bytes":456,"fwd_packets":2,"rev_packets":2,"fwd_bytes":200,"rev_bytes":200,"fwd_l2_bytes":228,"rev_l2_bytes":228,"fwd_tcp_flags":null,"rev_tcp_flags":null,"fwd_tcp_flags_number":0,"rev_tcp_flags_number":0,"end_reason":"forced","#;
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains(r#""community_id":"1:"#));
    assert!(text.ends_with("}\n"));
}

#[test]
fn uniflow_writes_each_direction_with_its_own_times() {
    let mut flow = answered(1, 2);
    flow.reverse.first_ns += 1000;
    let options = ExportOptions { uniflow: true, ..ExportOptions::default() };
    let (counters, text) = file("json", &options, &[flow, plain(2, 1)]);
    let objects = objects(&text);
    assert_eq!((objects.len(), counters.exported.flows, counters.wire_records), (3, 2, 3));
    assert_eq!(objects[0]["src_ip"], objects[1]["dst_ip"]);
    assert_eq!(objects[0]["src_port"], objects[1]["dst_port"]);
    assert_eq!(objects[1]["duration_ns"], 5_000_000 - 1000);
    assert_eq!(objects[1]["rev_packets"], 0);
    assert_eq!(objects[0]["community_id"], objects[1]["community_id"]);
}

#[test]
fn extreme_counters_are_exact_integers() {
    let mut flow = plain(1, 1);
    (flow.forward.packets, flow.forward.bytes, flow.forward.frame_bytes) = (u64::MAX, u64::MAX, u64::MAX);
    let (_, text) = file("json", &ExportOptions::default(), &[flow]);
    assert!(
        text.contains(r#""packets":18446744073709551615,"bytes":18446744073709551615,"l2_bytes":18446744073709551615"#)
    );
}
