//! The report for programs: one JSON object, or a line of CSV per connection.

use crate::report::CaptureReport;
use crate::totals::quantile;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use weir_export::{append_tcp_csv, append_tcp_json, tcp_columns};
use weir_tcp::SegmentClass;

/// Everything as one object; its `list` has all connections in their order, with the fields of `docs/fields.md`.
pub fn json(report: &CaptureReport, out: &mut dyn Write) -> io::Result<()> {
    let (totals, packets) = (&report.totals, &report.counts.ledger.packets);
    let classes: Map<String, Value> = SegmentClass::ALL
        .into_iter()
        .map(|class| {
            let count = totals.of_class(class);
            (class.name().replace([' ', '-'], "_"), json!({"packets": count.segments, "bytes": count.bytes}))
        })
        .collect();
    let round_trip = |times: &[u64]| json!({"handshakes": times.len(), "median_ns": quantile(times, 50), "p95_ns": quantile(times, 95)});
    let [client, server] = &totals.round_trips;
    let mut head = json!({
        "sources": report.sources,
        "engine": report.engine,
        "packets": {
            "received": packets.received,
            "refused": packets.refused.total(),
            "filtered": report.counts.not_matching,
            "not_tcp": report.counts.not_tcp,
            "without_ports": report.counts.without_ports,
            "left_out": packets.dropped_table_full,
            "analysed": packets.metered,
        },
        "totals": {
            "connections": totals.connections,
            "packets": totals.packets,
            "payload_bytes": totals.payload_bytes,
            "unique_bytes": totals.unique_bytes,
            "retransmitted_bytes": totals.retransmitted_bytes,
            "retransmitted_segments": totals.retransmitted.iter().sum::<u64>(),
            "carrying_segments": totals.sequenced.iter().sum::<u64>(),
            "partial": totals.partial,
            "spurious": totals.spurious,
            "zero_windows": totals.zero_windows.iter().sum::<u64>(),
            "missing_bytes": totals.missing_bytes,
            "one_way_connections": totals.one_way,
            "degraded_connections": totals.any_degraded,
        },
        "classes": classes,
        "handshake_rtt": {"client": round_trip(client), "server": round_trip(server)},
        "sort": report.sort.name(),
        "min_packets": report.min_packets,
        "notes": report.warnings(),
    });
    if let Some(comparison) = &report.comparison {
        head["comparison"] = comparison.json();
    }
    let mut text = serde_json::to_vec_pretty(&head).expect("it has string keys and plain numbers only");
    // The list is written behind the rest, without a tree of it in memory.
    text.truncate(text.len() - "\n}".len());
    text.extend(b",\n  \"list\": [");
    for (at, connection) in report.connections.iter().enumerate() {
        text.extend(if at == 0 { &b"\n    "[..] } else { b",\n    " });
        append_tcp_json(&connection.flow(), &mut text);
        out.write_all(&text)?;
        text.clear();
    }
    text.extend(b"\n  ]\n}\n");
    out.write_all(&text)
}

/// All connections in their order, with a line of names above.
pub fn csv(report: &CaptureReport, out: &mut dyn Write) -> io::Result<()> {
    let mut text = tcp_columns().collect::<Vec<_>>().join(",").into_bytes();
    text.push(b'\n');
    for connection in &report.connections {
        append_tcp_csv(&connection.flow(), &mut text);
        out.write_all(&text)?;
        text.clear();
    }
    out.write_all(&text)
}
