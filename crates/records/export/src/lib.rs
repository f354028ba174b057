//! Exporters: write flow records in the formats that collectors and people read.
//!
//! Input: batches of [`weir_flow::FlowRecord`]. Output: IPFIX, NetFlow v9 and v5, JSON, CSV.
//! Invariant: every record that a sink receives is counted in its
//! [`SinkCounters`](weir_ledger::SinkCounters) as exported, or as lost with a reason.
//! Not done here: metering, timeouts, queues between threads.
//!
//! The list of fields (`fields.rs`) is the source of all formats and of the tables in
//! `docs/fields.md`.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as weir_export;

mod column;
mod columns;
mod community_id;
mod compression;
mod element;
mod element_selection;
mod field_value;
mod fields;
mod fields_page;
mod file_output;
mod file_settings;
mod ipfix_file;
mod json_csv;
mod netflow5;
mod open;
mod options_records;
mod path_mtu;
mod pending_records;
mod profile;
mod record_encoder;
mod rotation;
mod sink;
mod template;
#[cfg(test)]
mod tests;
mod udp;
mod uptime;

pub use column::{Column, ColumnKind};
pub use columns::{InvalidFields, UnknownColumn, column, columns, default_columns, select_columns};
pub use community_id::{community_id, community_id_has_ports};
pub use compression::Compression;
pub use field_value::{FieldValue, protocol_name};
pub use fields_page::profiles;
pub use file_output::{OutputFile, UnusedFile, check_file, open_file};
pub use file_settings::{is_standard_output, path_of_file};
pub use json_csv::{
    append_csv_text, append_json_record, append_json_text, append_tcp_csv, append_tcp_json, tcp_columns,
};
pub use open::{check, check_output, check_path, columns_of_file, full_name, is_rotated, open, resolve};
pub use options_records::MeteringStatus;
pub use sink::{Attempts, Error, ExportOptions, FileMode, InvalidSink, Owner, Sink, UnusableFile};
