//! The statements that make the table.

use crate::column_type::{ColumnType, PROBE};
use crate::kafka::{Topic, create_kafka};
use crate::names::{MissingField, TableName, WINDOW, quoted_name, quoted_text};
use crate::views::create_views;
use weir_fields::{Column, ColumnKind};

/// The time by which the table is sorted and partitioned.
const TIME: &str = "start_time";
/// What sorts the rows of five minutes. Never before the time: a page over time would read everything.
const SORTED_BY: [&str; 4] = ["src_ip", "dst_ip", "dst_port", TIME];

/// A table to make.
#[derive(Clone, Debug)]
pub struct TableSettings {
    /// Its name.
    pub name: TableName,
    /// Its columns.
    pub columns: Vec<&'static Column>,
    /// Rows are removed this long after their start, seconds.
    pub ttl_seconds: Option<u64>,
    /// With the views.
    pub with_views: bool,
    /// With tables that read a topic of Kafka.
    pub topic: Option<Topic>,
}

/// The statements that make a database, a table and its views, if they do not exist.
///
/// # Errors
/// The columns lack one that the table or a view needs.
pub fn create_table(settings: &TableSettings) -> Result<String, MissingField> {
    let TableSettings { name, columns, ttl_seconds, with_views, topic } = settings;
    let has = |name: &str| columns.iter().any(|column| column.name == name);
    if !has(TIME) {
        return Err(MissingField { needed_by: "the table".into(), field: TIME });
    }
    let mut lines: Vec<String> = columns.iter().map(|column| definition(column)).collect();
    lines.push(format!("    {PROBE} {} COMMENT 'The probe that wrote the row.' CODEC(ZSTD(1))", ColumnType::Word));
    // An address in the destination is found without reading all rows of the time.
    lines.extend(has("dst_ip").then(|| "    INDEX dst_ip_filter dst_ip TYPE bloom_filter(0.01) GRANULARITY 1".into()));
    let sorted_by: Vec<_> = SORTED_BY.into_iter().filter(|name| has(name)).collect();
    let ttl = ttl_seconds.map_or(String::new(), |seconds| format!("TTL {}\n", ttl(seconds)));
    let drops_parts = if ttl_seconds.is_some() { ", ttl_only_drop_parts = 1" } else { "" };
    let mut text = format!(
        "CREATE DATABASE IF NOT EXISTS {};\n\n\
         CREATE TABLE IF NOT EXISTS {}\n(\n{}\n)\n\
         ENGINE = MergeTree\n\
         PARTITION BY toYYYYMMDD({TIME})\n\
         ORDER BY (toStartOfFiveMinutes({TIME}), {})\n{ttl}\
         SETTINGS {WINDOW}{drops_parts};\n",
        quoted_name(&name.database),
        name.quoted(),
        lines.join(",\n"),
        sorted_by.join(", "),
    );
    if *with_views {
        text += &create_views(name, columns)?;
    }
    if let Some(topic) = topic {
        text += &create_kafka(name, columns, topic);
    }
    Ok(text)
}

fn definition(column: &Column) -> String {
    let codec = match column.kind {
        ColumnKind::Time => "Delta(8), ZSTD(1)",
        _ => "ZSTD(1)",
    };
    let unit = if column.unit.is_empty() { String::new() } else { format!(" [{}]", column.unit) };
    let comment = quoted_text(&format!("{}{unit}", column.description));
    format!("    {} {} COMMENT {comment} CODEC({codec})", quoted_name(column.name), ColumnType::of(column))
}

fn ttl(seconds: u64) -> String {
    let (number, unit) = match seconds {
        seconds if seconds.is_multiple_of(86_400) => (seconds / 86_400, "DAY"),
        seconds if seconds.is_multiple_of(3600) => (seconds / 3600, "HOUR"),
        seconds => (seconds, "SECOND"),
    };
    format!("toDateTime({TIME}) + INTERVAL {number} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_fields::select_columns;

    fn settings(fields: &str) -> TableSettings {
        let columns = select_columns(fields).unwrap();
        TableSettings {
            name: "weir.flows".parse().unwrap(),
            columns,
            ttl_seconds: None,
            with_views: false,
            topic: None,
        }
    }

    #[test]
    fn time_comes_first_in_the_key() {
        let text =
            create_table(&TableSettings { ttl_seconds: Some(30 * 86_400), ..settings("dst_ip,start_time,fwd_bytes") });
        let text = text.unwrap();
        for line in [
            "CREATE DATABASE IF NOT EXISTS weir;",
            "ORDER BY (toStartOfFiveMinutes(start_time), dst_ip, start_time)",
            "TTL toDateTime(start_time) + INTERVAL 30 DAY",
            "SETTINGS non_replicated_deduplication_window = 1000, ttl_only_drop_parts = 1;",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.contains("    fwd_bytes UInt64 COMMENT 'Sum of the IP packet lengths, headers included; 0 in layer-2 flows. [octets]' CODEC(ZSTD(1)),"));
        assert_eq!(ttl(5400), "toDateTime(start_time) + INTERVAL 5400 SECOND");
    }

    #[test]
    fn a_field_that_is_needed_is_named() {
        let missing = |settings| create_table(&settings).unwrap_err().to_string();
        assert_eq!(missing(settings("src_ip")), "the table needs the field start_time; add it to --fields");
        let views = TableSettings { with_views: true, ..settings("start_time,protocol,fwd_packets") };
        assert_eq!(missing(views), "the view flows_minutes needs the field rev_packets; add it to --fields");
        let all = TableSettings { with_views: true, ..settings("store") };
        let text = create_table(&all).unwrap();
        assert_eq!(text.matches("CREATE MATERIALIZED VIEW").count(), 4);
    }
}
