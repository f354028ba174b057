//! Materialised views: sums that the server makes of each block that is inserted, and the tables that they fill.

use crate::column_type::PROBE;
use crate::names::{MissingField, TableName, WINDOW};
use weir_fields::Column;

/// A table of sums.
struct View {
    /// What follows the name of the table.
    suffix: &'static str,
    /// What it has.
    sentence: &'static str,
    /// Columns that rows with the same values share, besides the probe.
    key: &'static [(&'static str, &'static str)],
    /// The sums.
    sums: &'static [&'static str],
    /// Fields of the flows that it reads.
    fields: &'static [&'static str],
    /// The query, with `{table}`.
    select: &'static str,
}

const VIEWS: [View; 4] = [
    View {
        suffix: "minutes",
        sentence: "Sums of each minute and protocol.",
        key: &[("time", "DateTime('UTC')"), ("protocol", "LowCardinality(String)")],
        sums: &["flows", "packets", "bytes"],
        fields: &["start_time", "protocol", "fwd_packets", "rev_packets", "fwd_bytes", "rev_bytes"],
        select: "SELECT toStartOfMinute(start_time) AS time, protocol, probe, count() AS flows,
       sum(fwd_packets + rev_packets) AS packets, sum(fwd_bytes + rev_bytes) AS bytes
FROM {table}
GROUP BY time, protocol, probe",
    },
    View {
        suffix: "hosts",
        sentence: "Sums of each five minutes and host, which sends or receives.",
        key: &[("time", "DateTime('UTC')"), ("host", "IPv6")],
        sums: &["flows", "sent_packets", "received_packets", "sent_bytes", "received_bytes"],
        fields: &["start_time", "src_ip", "dst_ip", "fwd_packets", "rev_packets", "fwd_bytes", "rev_bytes"],
        // A host that sends to itself sends and receives all, but has each flow once.
        select: "SELECT toStartOfFiveMinutes(start_time) AS time, side.1 AS host, probe, sum(side.2) AS flows,
       sum(side.3) AS sent_packets, sum(side.4) AS received_packets,
       sum(side.5) AS sent_bytes, sum(side.6) AS received_bytes
FROM {table}
ARRAY JOIN [(src_ip, 1, fwd_packets, rev_packets, fwd_bytes, rev_bytes),
            (dst_ip, if(src_ip = dst_ip, 0, 1), rev_packets, fwd_packets, rev_bytes, fwd_bytes)] AS side
GROUP BY time, host, probe",
    },
    View {
        suffix: "tcp",
        sentence: "TCP quality of each five minutes, server and port.",
        key: &[("time", "DateTime('UTC')"), ("server", "IPv6"), ("port", "UInt16")],
        sums: &["flows", "segments", "retransmitted", "missing_bytes", "zero_window", "failed"],
        fields: &[
            "start_time",
            "protocol",
            "dst_ip",
            "dst_port",
            "rev_packets",
            "fwd_tcp_syn_count",
            "rev_tcp_syn_count",
            "fwd_tcp_in_order_packets",
            "rev_tcp_in_order_packets",
            "fwd_tcp_out_of_order",
            "rev_tcp_out_of_order",
            "fwd_tcp_out_of_window",
            "rev_tcp_out_of_window",
            "fwd_tcp_zero_window_probes",
            "rev_tcp_zero_window_probes",
            "fwd_tcp_retransmitted_packets",
            "rev_tcp_retransmitted_packets",
            "fwd_tcp_retransmitted_unseen",
            "rev_tcp_retransmitted_unseen",
            "fwd_tcp_syn_retransmitted",
            "rev_tcp_syn_retransmitted",
            "fwd_tcp_missing_bytes",
            "rev_tcp_missing_bytes",
            "fwd_tcp_zero_window",
            "rev_tcp_zero_window",
        ],
        // Flows without TCP analysis have no counts, which sums leave out.
        select: "SELECT toStartOfFiveMinutes(start_time) AS time, dst_ip AS server, dst_port AS port, probe, count() AS flows,
       ifNull(sum(fwd_tcp_syn_count + rev_tcp_syn_count + fwd_tcp_in_order_packets + rev_tcp_in_order_packets
           + fwd_tcp_out_of_order + rev_tcp_out_of_order + fwd_tcp_out_of_window + rev_tcp_out_of_window
           + fwd_tcp_zero_window_probes + rev_tcp_zero_window_probes
           + fwd_tcp_retransmitted_packets + rev_tcp_retransmitted_packets
           + fwd_tcp_retransmitted_unseen + rev_tcp_retransmitted_unseen), 0) AS segments,
       ifNull(sum(fwd_tcp_syn_retransmitted + rev_tcp_syn_retransmitted
           + fwd_tcp_retransmitted_packets + rev_tcp_retransmitted_packets
           + fwd_tcp_retransmitted_unseen + rev_tcp_retransmitted_unseen), 0) AS retransmitted,
       ifNull(sum(fwd_tcp_missing_bytes + rev_tcp_missing_bytes), 0) AS missing_bytes,
       ifNull(sum(fwd_tcp_zero_window + rev_tcp_zero_window), 0) AS zero_window,
       countIf(fwd_tcp_syn_count > 0 AND rev_tcp_syn_count = 0) AS failed
FROM {table}
WHERE protocol = 'tcp'
GROUP BY time, server, port, probe",
    },
    View {
        suffix: "applications",
        sentence: "Sums of each five minutes and application.",
        key: &[("time", "DateTime('UTC')"), ("application", "LowCardinality(String)")],
        sums: &["flows", "packets", "bytes"],
        fields: &["start_time", "application", "fwd_packets", "rev_packets", "fwd_bytes", "rev_bytes"],
        select: "SELECT toStartOfFiveMinutes(start_time) AS time, application, probe, count() AS flows,
       sum(fwd_packets + rev_packets) AS packets, sum(fwd_bytes + rev_bytes) AS bytes
FROM {table}
GROUP BY time, application, probe",
    },
];

/// The statements that make all views of a table.
pub(crate) fn create_views(table: &TableName, columns: &[&'static Column]) -> Result<String, MissingField> {
    let views: Result<Vec<_>, _> = VIEWS.iter().map(|view| view.create(table, columns)).collect();
    Ok(views?.concat())
}

impl View {
    fn create(&self, table: &TableName, columns: &[&'static Column]) -> Result<String, MissingField> {
        let sums_table = table.with_suffix(self.suffix);
        if let Some(field) = self.fields.iter().find(|name| columns.iter().all(|column| column.name != **name)) {
            return Err(MissingField { needed_by: format!("the view {}", sums_table.table), field });
        }
        let key = || self.key.iter().copied().chain([(PROBE, "LowCardinality(String)")]);
        let columns_of_key = key().map(|(name, of_type)| format!("    {name} {of_type}"));
        let sums = self.sums.iter().map(|name| format!("    {name} UInt64"));
        let lines: Vec<_> = columns_of_key.chain(sums).collect();
        let names: Vec<_> = key().map(|(name, _)| name).collect();
        // Rows with the same key are summed up when parts are merged: a query sums again.
        Ok(format!(
            "\n-- {}\nCREATE TABLE IF NOT EXISTS {}\n(\n{}\n)\nENGINE = SummingMergeTree\n\
             PARTITION BY toYYYYMM(time)\nORDER BY ({})\nSETTINGS {WINDOW};\n\
             CREATE MATERIALIZED VIEW IF NOT EXISTS {} TO {} AS\n{};\n",
            self.sentence,
            sums_table.quoted(),
            lines.join(",\n"),
            names.join(", "),
            sums_table.with_suffix("view").quoted(),
            sums_table.quoted(),
            self.select.replace("{table}", &table.quoted()),
        ))
    }
}
