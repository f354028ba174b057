//! Answers of a probe, in the form of its interface.

use crate::Topic;
use serde_json::{Value, json};

/// Of `/status`.
pub fn status() -> Value {
    json!({
        "interval": {
            "packets_per_second": 2_075_916.4, "bits_per_second": 12_266_931_521.3, "active_flows": 12395,
            "ended_flows_per_second": 55781.9, "interval_seconds": 1.02, "lost_records": 0, "dropped_nic_packets": 0,
            "dropped_kernel_packets": 17, "dropped_queue_packets": 0, "dropped_cache_full_packets": 0,
            "pipelines": [{"thread_load_percent": [71.9, 85.2]}]
        },
        "ledger": {
            "packets": {"dropped_nic": 0, "dropped_kernel": 12017, "dropped_queue": 0, "dropped_cache_full": 0},
            "overload": {"level": 2, "highest": 3},
            "sinks": [
                {"sink": "json:/dev/null"},
                {"sink": "ipfix+tcp://192.0.2.1:4739", "waiting": {"flows": 259}, "spooled": {"flows": 120_000}}
            ]
        },
        "pipelines_without_response": []
    })
}

fn group(names: Value, number: u64) -> Value {
    let mut row = json!({
        "other_groups": 0, "flows": number, "packets": number * 1000, "bytes": number * 1_500_000,
        "fwd_bytes": number * 100_000, "rev_bytes": number * 1_400_000, "sent_bytes": number * 100_000,
        "received_bytes": number * 1_400_000, "first_time": "2026-11-21T02:51:17.914998000Z",
        "last_time": "2026-11-21T02:51:18.040263000Z", "retransmitted_share": 0.0123, "rtt_mean_ns": 74000,
        "response_mean_ns": null
    });
    row.as_object_mut().unwrap().extend(names.as_object().unwrap().clone());
    row
}

/// Of a question about groups; the octets have grown by this.
pub fn groups(grown: u64) -> Value {
    let names = |number: u64| {
        let address =
            if number == 5 { "2001:db8:1111:2222:3333:4444:5555:6666".to_owned() } else { format!("192.0.2.{number}") };
        let application = match number {
            4 => Value::Null,
            number => json!(format!("app{number}")),
        };
        json!({"host": address, "src_ip": address, "dst_ip": "2001:db8::1", "server_ip": address,
            "service_port": if number == 3 { json!(null) } else { json!(number * 100) }, "application": application})
    };
    let mut rows: Vec<Value> = (1..=5).rev().map(|number| group(names(number), number)).collect();
    for row in &mut rows {
        row["bytes"] = json!(row["bytes"].as_u64().unwrap() + grown * row["flows"].as_u64().unwrap());
    }
    let none = json!({"host": null, "src_ip": null, "dst_ip": null, "server_ip": null, "service_port": null,
        "application": null, "other_groups": 12});
    rows.push(group(none, 1));
    json!({"matching": 16, "searched": 20, "complete": true, "problems": [], "groups": rows})
}

fn flow(number: u64, fields: Value) -> Value {
    let mut row = json!({
        "start_time": format!("2026-11-21T02:51:{:02}.914998000Z", number), "duration_ns": 1_280_000 * number,
        "src_ip": "192.0.2.1", "src_port": 38700 + number, "dst_ip": "198.51.100.2", "dst_port": 443, "protocol": "tcp",
        "packets": 39 * number, "bytes": 32410 * number, "fwd_packets": 14, "rev_packets": 25, "fwd_bytes": 1071,
        "rev_bytes": 31339, "fwd_tcp_flags": "SAPF", "rev_tcp_flags": "SAPF", "retransmitted_share": 0.0,
        "rtt": 74000, "application": "tls", "sni": null, "community_id": format!("1:{number:028}"),
        "dns_rcode": null, "tls_alert": null
    });
    row.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    row
}

/// Of a question about flows.
pub fn flows(grown: u64) -> Value {
    let rows: Vec<Value> = vec![
        flow(3, json!({"sni": "www.example"})),
        flow(
            2,
            json!({"src_ip": "2001:db8::1", "dst_ip": "2001:db8:1111:2222:3333:4444:5555:6666", "application": null,
                "bytes": 64820 + grown}),
        ),
        flow(
            1,
            json!({"protocol": "icmp", "src_port": 0, "dst_port": 0, "fwd_tcp_flags": null,
            "rev_tcp_flags": null, "rtt": null, "retransmitted_share": null}),
        ),
    ];
    json!({"matching": 3, "searched": 3, "complete": true, "flows": rows})
}

/// Current flows that failed.
pub fn failures() -> Value {
    let dns = |fields: Value| {
        let mut row = flow(
            30,
            json!({"protocol": "udp", "dst_port": 53, "application": "dns", "fwd_tcp_flags": null,
            "rev_tcp_flags": null, "dns_name": "nx.example"}),
        );
        row.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        row
    };
    let rows = vec![
        flow(40, json!({"fwd_tcp_flags": "S", "rev_tcp_flags": "", "rev_packets": 0, "application": null})),
        dns(json!({"dns_rcode": 3, "dns_nxdomain": 4, "dns_unanswered": 2})),
        dns(json!({"dns_rcode": 2, "start_time": "2026-11-21T02:51:29.000000000Z"})),
        dns(json!({"dns_rcode": 1, "start_time": "2026-11-21T02:51:28.000000000Z"})),
        flow(20, json!({"http_status": 503, "application": "http", "http_host": "www.example"})),
        flow(19, json!({"http_status": 200, "http_4xx": 2, "application": "http"})),
    ];
    json!({"matching": 6, "searched": 6, "complete": true, "flows": rows})
}

/// Flows that failed and have ended.
pub fn ended_failures() -> Value {
    let rows = vec![
        flow(45, json!({"fwd_tcp_flags": "S", "rev_tcp_flags": "AR"})),
        flow(35, json!({"fwd_tcp_flags": "SR", "rev_tcp_flags": "SA"})),
        flow(34, json!({"fwd_tcp_flags": "SAPR", "rev_tcp_flags": "SAP"})),
        flow(33, json!({"fwd_tcp_flags": "SAP", "rev_tcp_flags": "SAPR"})),
        flow(32, json!({"fwd_tcp_flags": "SAPF", "rev_tcp_flags": "SAP", "tls_alert": "fatal handshake_failure"})),
    ];
    json!({"matching": 5, "read": 9, "complete": true, "problems": [], "flows": rows})
}

/// Sums by source of flows that never opened.
pub fn sources() -> Value {
    let source = |address: &str, [flows, hosts, ports]: [u64; 3]| {
        let counts = json!({"src_ip": address, "flows": flows, "hosts": hosts, "hosts_error": u64::from(hosts > 512),
            "ports": ports, "ports_error": 0, "no_answer": flows - 2, "refused": 2, "half_open": 0});
        group(counts, 1)
    };
    let rows =
        [source("192.0.2.99", [6402, 1023, 22]), source("192.0.2.98", [40, 1, 20]), source("192.0.2.7", [9, 3, 1])];
    json!({"matching": 6451, "read": 9000, "complete": true, "problems": [], "groups": rows})
}

/// What a probe answers; octets have grown by this.
pub fn of_probe(grown: u64) -> impl Fn(Topic, &str) -> Option<(u16, Value)> {
    move |topic, path| {
        let body = match topic {
            Topic::About => return None,
            Topic::Status => status(),
            Topic::Ended => ended_failures(),
            Topic::Scans => json!({"groups": []}),
            Topic::Rows if path.contains("by=") => groups(grown),
            Topic::Rows if path.contains("http_status%20%3E%3D") => failures(),
            Topic::Rows => flows(grown),
            Topic::Detail => json!({"matching": 1, "searched": 9, "complete": true, "flows": [flow(3, json!({
                "sni": "www.example", "ja4": "t13d1516h2_8daaf6152771_02713d6af862"}))]}),
            Topic::Meanings => json!({"fields": [
                {"name": "sni", "unit": "", "meaning": "Server name that the client asked for in TLS."},
                {"name": "duration_ns", "unit": "ns", "meaning": "Time from `start_time` to `end_time`."}]}),
        };
        Some((200, body))
    }
}

/// An expression that is refused.
pub fn refused(text: &str, before: usize, length: usize) -> (u16, Value) {
    let place = json!({"text": text, "before": before, "length": length});
    (400, json!({"error": "where: there is no field \"byts\"; did you mean bytes?", "place": place}))
}
