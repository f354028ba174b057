//! Exporters: write flow records in the formats that collectors and people read.
//!
//! Input: batches of [`weir_flow::FlowRecord`]. Output: IPFIX, NetFlow v9 and v5, JSON, CSV, rows of
//! ClickHouse, messages of Kafka.
//! Invariant: every record that a sink receives is counted in its
//! [`SinkCounters`](weir_ledger::SinkCounters) as exported, or as lost with a reason.
//! Not done here: metering, timeouts, queues between threads.
//!
//! The catalogue of fields (crate `fields`) is the source of all formats.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as weir_export;

mod clickhouse;
mod compression;
mod connection;
mod element;
mod element_selection;
mod failover;
mod file_output;
mod host;
mod ipfix_file;
mod json_csv;
mod json_stream;
mod kafka;
mod kafka_options;
mod kinds;
mod message;
mod netflow5;
mod options_records;
mod path_mtu;
mod pending_records;
mod private_file;
mod profile;
mod protobuf;
mod record_encoder;
mod rotation;
mod sink;
mod sink_spec;
mod socket;
mod spooled;
mod stream;
mod syslog;
mod template;
#[cfg(test)]
mod tests;
mod tls;
mod udp;
mod unidirectional;
mod uptime;
mod waiting;
mod watch;

pub use clickhouse::TableReport;
pub use compression::Compression;
pub use failover::FailoverSink;
pub use file_output::{OutputFile, UnusedFile, check_file, open_file};
pub use json_csv::{
    append_csv_text, append_json_record, append_json_text, append_tcp_csv, append_tcp_json, tcp_columns,
};
pub use kafka_options::{InvalidKafkaOption, UnusableOptions};
pub use kinds::{ClickHouseTable, SINK_KINDS, SinkKind, SinkSetting, ViewFormat};
pub use options_records::MeteringStatus;
pub use sink::{Attempts, Error, ExportOptions, FileMode, Intake, InvalidSink, InvalidSpec, Owner, Sink, UnusableFile};
pub use sink_spec::{SinkSpec, without_secrets};
pub use watch::Watch;
pub use weir_spool::lock_of as lock_of_spool;
