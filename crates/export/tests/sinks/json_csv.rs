//! JSON and CSV.

use crate::flows::{answered, flow, plain};
use crate::{expected, export, sum, uniflow};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use weir_export::ExportOptions;
use weir_flow::{Approximate, Direction, FlowRecord};
use weir_packet::{NO_LABEL, NO_VLAN, Network, TunnelType};

fn file(format: &str, options: &ExportOptions, flows: &[FlowRecord]) -> (weir_ledger::SinkCounters, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows");
    let counters = export(&format!("{format}:{}", path.display()), options, flows);
    (counters, std::fs::read_to_string(path).unwrap())
}

fn objects(text: &str) -> Vec<Map<String, Value>> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

/// The expected JSON object without times and community_id.
fn expected(flow: &FlowRecord) -> Map<String, Value> {
    let mut map = Map::new();
    let ip = flow.network != Network::Layer2;
    let ports = ip && [6, 17, 33, 132, 136].contains(&flow.protocol);
    let mut put = |name: &str, value: Option<Value>| {
        map.insert(name.into(), value.unwrap_or(Value::Null));
    };
    put("duration_ns", Some(json!(flow.end_ns() - flow.start_ns())));
    put("src_ip", flow.source_ip().map(|address| json!(address.to_string())));
    put("dst_ip", flow.destination_ip().map(|address| json!(address.to_string())));
    put("src_port", ports.then(|| json!(flow.source_port)));
    put("dst_port", ports.then(|| json!(flow.destination_port)));
    put("protocol", ip.then(|| json!(flow.protocol)));
    put("interface", Some(json!(flow.interface)));
    put("queue_lost", Some(json!(flow.queue_lost)));
    put("sampling_min", flow.sampling.map(|[least, _]| json!(least)));
    put("sampling_max", flow.sampling.map(|[_, most]| json!(most)));
    put("end_reason", Some(json!(["idle", "active", "end", "forced", "resources"][flow.end_reason as usize - 1])));
    let words: Vec<&str> = flow.approximate.names().collect();
    put("approximate", (!words.is_empty()).then(|| json!(words.join(" "))));
    put("ethertype", (!ip).then(|| json!(flow.source_port)));
    let mac = |address: [u8; 16]| {
        let octets: Vec<String> = address[10..].iter().map(|octet| format!("{octet:02x}")).collect();
        json!(octets.join(":"))
    };
    put("src_mac", (!ip).then(|| mac(flow.source)));
    put("dst_mac", (!ip).then(|| mac(flow.destination)));
    for (reverse, prefix) in ["", "rev_"].into_iter().enumerate() {
        let d = [&flow.forward, &flow.reverse][reverse];
        side(flow, d, prefix, &mut map);
        let Some(t) = flow.tcp.map(|reports| reports[reverse]) else { continue };
        let some = d.packets > 0;
        let mut put = |name: &str, value: Option<Value>| {
            map.insert(format!("{prefix}{name}"), value.filter(|_| some).unwrap_or(Value::Null));
        };
        for field in expected::tcp_always(&t).into_iter().chain(expected::tcp_with_anomalies(&t)) {
            put(field.name, field.value.map(|value| json!(value)));
        }
        put("tcp_mss", t.maximum_segment_size.filter(|_| t.syn_window.is_some()).map(|value| json!(value)));
        put("tcp_window_scale", t.window_scale.filter(|_| t.syn_window.is_some()).map(|value| json!(value)));
        let words: Vec<&str> = t.degradation.names().collect();
        put("tcp_degraded", (!words.is_empty()).then(|| json!(words.join(" "))));
    }
    map
}

fn side(flow: &FlowRecord, d: &Direction, prefix: &str, map: &mut Map<String, Value>) {
    let some = d.packets > 0;
    let ip = some && flow.network != Network::Layer2;
    let mut put = |name: &str, applies: bool, value: Value| {
        map.insert(format!("{prefix}{name}"), if applies { value } else { Value::Null });
    };
    put("packets", true, json!(d.packets));
    put("bytes", true, json!(d.bytes));
    put("l2_bytes", true, json!(d.frame_bytes));
    put("tcp_flags", ip && flow.protocol == 6, json!(d.tcp_flags));
    put("tos", ip, json!(d.tos));
    put("ttl_min", ip, json!(d.ttl_min));
    put("ttl_max", ip, json!(d.ttl_max));
    put("packet_size_min", ip, json!(d.size_min));
    put("packet_size_max", ip, json!(d.size_max));
    put("packet_size_mean", ip, json!(d.size_mean()));
    put("packet_size_std", ip, json!(d.size_std()));
    put("iat_min_ns", d.packets > 1, json!(d.iat_min_ns));
    put("iat_max_ns", d.packets > 1, json!(d.iat_max_ns));
    put("iat_mean_ns", d.packets > 1, json!(d.iat_mean_ns()));
    put("iat_std_ns", d.packets > 1, json!(d.iat_std_ns()));
    put("vlan_id", some && d.vlan != NO_VLAN, json!(d.vlan));
    put("inner_vlan_id", some && d.inner_vlan != NO_VLAN, json!(d.inner_vlan));
    put("mpls_label", some && d.mpls_label != NO_LABEL, json!(d.mpls_label));
    let tunnel = some && d.tunnel_type != TunnelType::None;
    put("tunnel_type", tunnel, json!(d.tunnel_type.name()));
    put("tunnel_id", tunnel, json!(d.tunnel_id));
    let (source, destination) = expected::outer(d);
    put("outer_src_ip", tunnel, json!(source.to_string()));
    put("outer_dst_ip", tunnel, json!(destination.to_string()));
    let icmp = matches!((flow.network, flow.protocol), (Network::Ipv4, 1) | (Network::Ipv6, 58))
        && (flow.source_port, flow.destination_port) != (0, 0)
        && flow.approximate.0 & Approximate::OVERFLOW == 0;
    put("icmp_type", some && icmp, json!(d.icmp[0]));
    put("icmp_code", some && icmp, json!(d.icmp[1]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn json_has_the_values_that_apply_and_null_for_others(flows in prop::collection::vec(flow(), 1..40)) {
        let (counters, text) = file("json", &ExportOptions::default(), &flows);
        let objects = objects(&text);
        prop_assert_eq!(objects.len(), flows.len());
        for (mut object, flow) in objects.into_iter().zip(&flows) {
            for name in ["start", "end"] {
                let time = object.remove(name).unwrap();
                prop_assert_eq!(time.as_str().unwrap().len(), "2026-11-20T12:00:00.123456789Z".len());
            }
            let id = object.remove("community_id").unwrap();
            let none = flow.network == Network::Layer2 || flow.approximate.0 & Approximate::OVERFLOW != 0;
            prop_assert_eq!(id.is_null(), none);
            prop_assert!(none || id.as_str().unwrap().len() == 30);
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
        let mut rows = csv.lines().map(|row| row.split(',').collect::<Vec<_>>());
        let names = rows.next().expect("a header line");
        let rows: Vec<_> = rows.collect();
        let objects = objects(&json);
        prop_assert_eq!(rows.len(), objects.len());
        prop_assert_eq!(counters.wire_records, rows.len() as u64);
        for (row, object) in rows.iter().zip(&objects) {
            prop_assert_eq!(row.len(), names.len());
            let of_tcp = |name: &str| name.contains("tcp_") && !name.ends_with("tcp_flags");
            let absent = if object.contains_key("tcp_syn_count") { 0 } else { names.iter().filter(|name| of_tcp(name)).count() };
            prop_assert_eq!(object.len() + absent, names.len());
            for (name, cell) in names.iter().zip(row) {
                let same = match object.get(*name).unwrap_or(&Value::Null) {
                    Value::Null => cell.is_empty(),
                    Value::String(text) => text == cell,
                    number => serde_json::from_str::<Value>(cell).unwrap() == *number,
                };
                prop_assert!(same, "{name}: {cell} and {:?}", object.get(*name));
            }
        }
    }
}

#[test]
fn a_json_record_has_this_text() {
    let (_, text) = file("json", &ExportOptions::default(), &[answered(0x0a00_0001, 2)]);
    let start = r#"{"start":"2023-11-16T20:49:32.161000000Z","end":"2023-11-16T20:49:32.166000000Z","duration_ns":5000000,"src_ip":"10.0.0.1","dst_ip":"192.0.2.1","src_port":1,"dst_port":53,"protocol":17,"packets":2,"bytes":200,"l2_bytes":228,"tcp_flags":null,"tos":0,"ttl_min":64,"ttl_max":64,"packet_size_min":100,"packet_size_max":100,"packet_size_mean":100.0,"packet_size_std":0.0,"#;
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains(r#""community_id":"1:"#));
    assert!(text.ends_with("}\n"));
}

#[test]
fn field_names_are_stable() {
    const OF_THE_FLOW: &str = "\
        start end duration_ns src_ip dst_ip src_port dst_port protocol interface queue_lost \
        sampling_min sampling_max end_reason community_id approximate ethertype src_mac dst_mac";
    const OF_EACH_DIRECTION: &str = "\
        packets bytes l2_bytes tcp_flags tos ttl_min ttl_max packet_size_min packet_size_max \
        packet_size_mean packet_size_std iat_min_ns iat_max_ns iat_mean_ns iat_std_ns vlan_id \
        inner_vlan_id mpls_label tunnel_type tunnel_id outer_src_ip outer_dst_ip icmp_type \
        icmp_code tcp_syn_count tcp_syn_bytes tcp_syn_retransmitted tcp_syn_retransmitted_bytes \
        tcp_fin_count tcp_rst_count tcp_rst_bytes tcp_payload_bytes tcp_unique_bytes \
        tcp_in_order_packets tcp_in_order_bytes tcp_acknowledgments tcp_duplicate_acks \
        tcp_retransmitted_packets tcp_retransmitted_bytes tcp_retransmitted_payload_bytes \
        tcp_retransmitted_partial tcp_retransmitted_spurious tcp_retransmitted_unseen \
        tcp_retransmitted_unseen_bytes tcp_out_of_order tcp_out_of_order_bytes tcp_duplicates \
        tcp_routed_duplicates tcp_duplicate_bytes tcp_routed_duplicate_bytes tcp_keepalives \
        tcp_keepalive_bytes tcp_zero_window_probes tcp_zero_window_probe_bytes tcp_zero_window \
        tcp_out_of_window tcp_out_of_window_bytes tcp_unread tcp_missing_bytes tcp_largest_hole \
        tcp_handshake_rtt_ns tcp_syn_window tcp_mss tcp_window_scale tcp_size_by_sequence \
        tcp_duration_by_sequence_ns tcp_degraded";
    let (_, csv) = file("csv", &ExportOptions::default(), &[]);
    let names: Vec<&str> = csv.trim_end().split(',').collect();
    for name in OF_THE_FLOW.split(' ') {
        assert!(names.contains(&name) && !names.contains(&format!("rev_{name}").as_str()), "{name}");
    }
    for name in OF_EACH_DIRECTION.split(' ') {
        assert!(names.contains(&name) && names.contains(&format!("rev_{name}").as_str()), "{name}");
    }
    assert_eq!(names.len(), 18 + 2 * (24 + 43));
}

#[test]
fn uniflow_writes_each_direction_with_its_own_times() {
    let mut flow = answered(1, 2);
    flow.reverse.first_ns += 1000;
    let (counters, text) = file("json", &uniflow(), &[flow, plain(2, 1)]);
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
