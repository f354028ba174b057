//! The statements by which a server reads the messages of `kafka://BROKERS/TOPIC?format=json` into the table.
//!
//! A message is a flow, with the fields of the table. The name of the probe is in its header `weir.probe`. What cannot
//! be read goes to a table of its own, with the message.

use crate::column_type::{ColumnType, PROBE};
use crate::names::{TableName, quoted_name, quoted_text};
use std::fmt::Write;
use weir_fields::Column;

/// A topic of Kafka, and the brokers that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// `HOST:PORT,...`
    pub brokers: String,
    /// Its name.
    pub name: String,
}

/// The statements that make the table of Kafka, and the views that fill the tables of flows and of errors.
pub(crate) fn create_kafka(table: &TableName, columns: &[&'static Column], topic: &Topic) -> String {
    let [source, errors] = ["kafka", "kafka_errors"].map(|suffix| table.with_suffix(suffix));
    let definitions: Vec<_> = columns.iter().map(|column| definition(column)).collect();
    let of_probe = format!("_headers.value[indexOf(_headers.name, 'weir.{PROBE}')] AS {PROBE}");
    let values: Vec<_> = columns.iter().map(|column| value(column)).chain([of_probe]).collect();
    let mut text = format!(
        "\n-- Messages of kafka://{}/{}?format=json with the fields of the table, read by all servers that have this.\n\
         CREATE TABLE IF NOT EXISTS {}\n(\n{}\n)\nENGINE = Kafka\n\
         SETTINGS kafka_broker_list = {}, kafka_topic_list = {}, kafka_group_name = {},\n    \
         kafka_format = 'JSONEachRow', kafka_handle_error_mode = 'stream', date_time_input_format = 'best_effort';\n",
        topic.brokers,
        topic.name,
        source.quoted(),
        definitions.join(",\n"),
        quoted_text(&topic.brokers),
        quoted_text(&topic.name),
        quoted_text(&format!("weir/{table}")),
    );
    let _ = write!(
        text,
        "CREATE MATERIALIZED VIEW IF NOT EXISTS {} TO {} AS\nSELECT {}\nFROM {}\nWHERE _error = '';\n",
        source.with_suffix("view").quoted(),
        table.quoted(),
        values.join(",\n    "),
        source.quoted(),
    );
    let _ = write!(
        text,
        "\n-- Messages that cannot be read.\nCREATE TABLE IF NOT EXISTS {} (time DateTime('UTC'), error String, message \
         String)\nENGINE = MergeTree\nORDER BY time\nTTL time + INTERVAL 30 DAY;\n\
         CREATE MATERIALIZED VIEW IF NOT EXISTS {} TO {} AS\n\
         SELECT now('UTC') AS time, _error AS error, _raw_message AS message\nFROM {}\nWHERE _error != '';\n",
        errors.quoted(),
        errors.with_suffix("view").quoted(),
        errors.quoted(),
        source.quoted(),
    );
    text
}

/// A column of messages: lists are texts in them.
fn definition(column: &Column) -> String {
    let of_type = match ColumnType::of(column) {
        ColumnType::Words(_) | ColumnType::Texts => ColumnType::Text,
        other => other,
    };
    format!("    {} {of_type}", quoted_name(column.name))
}

/// What the table gets.
fn value(column: &Column) -> String {
    let name = quoted_name(column.name);
    let list =
        |separator: char| format!("arrayFilter(part -> part != '', splitByChar('{separator}', {name})) AS {name}");
    match ColumnType::of(column) {
        ColumnType::Words(separator) => list(char::from(separator)),
        ColumnType::Texts => list(','),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_fields::select_columns;

    #[test]
    fn lists_are_taken_apart_and_the_probe_is_that_of_the_header() {
        let columns = select_columns("start_time,approximate,cert_names,dst_port").unwrap();
        let topic = Topic { brokers: "a:9092,b:9092".into(), name: "it's".into() };
        let text = create_kafka(&"net.f".parse().unwrap(), &columns, &topic);
        for line in [
            "CREATE TABLE IF NOT EXISTS net.f_kafka",
            "    approximate String,",
            "    dst_port UInt16",
            "SETTINGS kafka_broker_list = 'a:9092,b:9092', kafka_topic_list = 'it\\'s', kafka_group_name = 'weir/net.f',",
            "CREATE MATERIALIZED VIEW IF NOT EXISTS net.f_kafka_view TO net.f AS",
            "SELECT start_time,",
            "    arrayFilter(part -> part != '', splitByChar(' ', approximate)) AS approximate,",
            "    arrayFilter(part -> part != '', splitByChar(',', cert_names)) AS cert_names,",
            "    _headers.value[indexOf(_headers.name, 'weir.probe')] AS probe",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
