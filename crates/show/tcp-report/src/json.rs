//! The report for programs: one JSON object, or CSV with a line per connection.

use crate::arrow::REPORT_COLUMNS;
use crate::connection::Connection;
use crate::delay::Delay;
use crate::failure::Failure;
use crate::failure_groups::FailureGroup;
use crate::findings::Finding;
use crate::group_table;
use crate::percent::percentile;
use crate::report::{CaptureReport, Grouping};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use weir_export::{append_tcp_csv, append_tcp_json, tcp_columns};
use weir_tcp::{SegmentClass, TcpReport};

impl CaptureReport {
    /// Writes everything as one JSON object. Its `list` has all connections as ranked, with the
    /// fields of `docs/fields.md`, `failure` and delays. With a grouping it has `groups` instead.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text =
            serde_json::to_vec_pretty(&self.summary_json()).expect("it has string keys and plain numbers only");
        // The list is written connection by connection, so that it needs no memory as a whole.
        text.truncate(text.len() - "\n}".len());
        if let Some(Grouping { by, .. }) = self.options.grouping {
            text.extend(b",\n  \"groups\": [");
            for (index, group) in self.groups.iter().enumerate() {
                text.extend(if index == 0 { &b"\n    "[..] } else { b",\n    " });
                text.extend(group_table::json(group, by).to_string().into_bytes());
                out.write_all(&text)?;
                text.clear();
            }
            text.extend(b"\n  ]\n}\n");
            return out.write_all(&text);
        }
        text.extend(b",\n  \"list\": [");
        for (index, connection) in self.connections.iter().enumerate() {
            text.extend(if index == 0 { &b"\n    "[..] } else { b",\n    " });
            append_tcp_json(&connection.to_flow_record(), &mut text);
            // Before the brace at the end of the object.
            text.pop();
            for (name, value) in report_fields(connection) {
                text.extend(format!(",\"{name}\":{value}").into_bytes());
            }
            text.push(b'}');
            out.write_all(&text)?;
            text.clear();
        }
        text.extend(b"\n  ]\n}\n");
        out.write_all(&text)
    }

    /// Writes all connections as ranked, with the names of the columns in the first line; with a
    /// grouping, all groups.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(Grouping { by, .. }) = self.options.grouping {
            let names = group_table::csv_names(by).join(",");
            let lines = self.groups.iter().map(|group| group_table::csv_cells(group).join(","));
            let mut lines = std::iter::once(names).chain(lines);
            return lines.try_for_each(|line| writeln!(out, "{line}"));
        }
        let names = tcp_columns().iter().map(|column| column.name);
        let mut text = names.chain(REPORT_COLUMNS.map(|column| column.name)).collect::<Vec<_>>().join(",").into_bytes();
        text.push(b'\n');
        for connection in &self.connections {
            append_tcp_csv(&connection.to_flow_record(), &mut text);
            // Before the end of the line.
            text.pop();
            for (_, value) in report_fields(connection) {
                let cell = match value {
                    Value::Null => String::new(),
                    Value::String(word) => word,
                    number => number.to_string(),
                };
                text.extend(format!(",{cell}").into_bytes());
            }
            text.push(b'\n');
            out.write_all(&text)?;
            text.clear();
        }
        out.write_all(&text)
    }

    /// Threads and memory of the batch engine. Times are not in a report: those of the same capture are
    /// equal.
    fn engine_cost_json(&self) -> Value {
        let counters = &self.engine_counters;
        json!({
            // The engine starts none.
            "threads": 1,
            "memory_bytes": counters.memory_bytes,
            "segments": counters.entered,
            "batches": counters.batches,
        })
    }

    /// Everything but the list of connections.
    pub fn summary_json(&self) -> Value {
        let (totals, packets) = (&self.totals, &self.counts.ledger.packets);
        let class = |class| {
            let count = totals.count(class);
            (class_key(class), json!({"packets": count.segments, "bytes": count.bytes}))
        };
        let classes: Map<String, Value> = SegmentClass::ALL.into_iter().map(class).collect();
        let failures = Failure::all().map(Failure::key).zip(totals.failures);
        let delays = Delay::ALL.map(Delay::name).into_iter().zip(totals.delays);
        let rtt = |times: &[u64]| json!({"handshakes": times.len(), "median_ns": percentile(times, 50), "p95_ns": percentile(times, 95)});
        let [client, server] = &totals.handshake_rtts_ns;
        let (not_selected, packets_not_selected) = (self.not_selected[0], self.not_selected[1]);
        let mut object = json!({
            "sources": self.options.sources,
            "findings": self.findings.iter().map(Finding::json).collect::<Vec<_>>(),
            "engine": self.engine,
            "engine_cost": self.engine_cost_json(),
            "packets": {
                "received": packets.received,
                "refused": packets.refused.total(),
                "outside_times": self.counts.outside_times,
                "filtered": self.counts.not_matching,
                "not_tcp": self.counts.not_tcp,
                "without_ports": self.counts.without_ports,
                "left_out": self.left_out(),
                "analysed": packets.metered,
            },
            "totals": {
                "connections": totals.connections,
                "packets": totals.packets,
                "payload_bytes": totals.payload_bytes(),
                "unique_bytes": totals.sum(|side| side.unique_bytes),
                "retransmitted_bytes": totals.sum(|side| side.retransmitted_bytes),
                "retransmitted_segments": totals.sum(TcpReport::retransmitted_segments),
                "carrying_segments": totals.sum(TcpReport::sequenced_segments),
                "partial": totals.sum(|side| side.partial_retransmissions),
                "spurious": totals.sum(|side| side.spurious_retransmissions),
                "zero_windows": totals.sum(|side| side.zero_windows),
                "missing_bytes": totals.sum(|side| side.missing_bytes),
                "failed_connections": self.failed,
                "one_way_connections": totals.one_way,
                "degraded_connections": totals.any_degraded,
            },
            "not_selected": {"connections": not_selected, "packets": packets_not_selected},
            "failures": BTreeMap::from_iter(failures),
            "failure_groups": self.failure_groups.iter().map(FailureGroup::json).collect::<Vec<_>>(),
            "delays": BTreeMap::from_iter(delays),
            "classes": classes,
            "handshake_rtt": {"client": rtt(client), "server": rtt(server)},
            "by": self.options.grouping.map(|grouping| grouping.by.name()),
            "sort": self.options.grouping.map_or(self.options.sort.to_string(), |grouping| grouping.order.name()),
            "min_packets": self.options.min_packets,
            "notes": self.warnings().into_iter().map(|warning| warning.text).collect::<Vec<_>>(),
        });
        if let Some(comparison) = &self.comparison {
            object["comparison"] = comparison.json();
        }
        object
    }
}

fn report_fields(connection: &Connection) -> impl Iterator<Item = (&'static str, Value)> {
    let delay = connection.delay();
    let delays = connection.delays();
    let time = |ns: u64| if delay == Delay::Unknown { Value::Null } else { ns.into() };
    let values = [
        json!(connection.number),
        json!(connection.failure().map(Failure::key)),
        json!(delay.name()),
        time(delays.network_ns),
        time(delays.server_ns),
        time(delays.client_ns),
        time(delays.other_ns),
    ];
    REPORT_COLUMNS.into_iter().map(|column| column.name).zip(values)
}

fn class_key(class: SegmentClass) -> String {
    match class {
        SegmentClass::SynRetransmission => "syn_repeated".into(),
        SegmentClass::UnseenRetransmission => "retransmission_of_what_was_lost_before".into(),
        class => class.name().to_lowercase().replace([' ', '-'], "_"),
    }
}
