//! Exporters: flow records out, in the formats that collectors and people read.
//!
//! In: batches of [`weir_flow::FlowRecord`]. Out: IPFIX, NetFlow v9 and v5, JSON, CSV.
//! Always true: every record given to a sink is in its [`SinkCounters`](weir_ledger::SinkLine) as
//! exported or as lost with a reason. It keeps no flow and decides no timeout.
//!
//! The list of fields (`fields`) is the source of all formats; `docs/fields.md` is written from it.
#![forbid(unsafe_code)]

mod account;
mod community_id;
mod element;
mod fields;
mod layout;
mod netflow5;
mod open;
mod output;
mod page;
mod sink;
mod tcp_text;
mod templated;
mod text;
mod udp;
mod uptime;
mod value;

pub use open::open;
pub use page::{fields_markdown, fields_text};
pub use sink::{Error, ExportOptions, Sink};
pub use tcp_text::{append_tcp_csv, append_tcp_json, tcp_columns};
