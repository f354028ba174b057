//! Exporters: flow records out, in the formats that collectors and people read.
//!
//! In: batches of [`weir_flow::Flow`]. Out: IPFIX, NetFlow v9 and v5, JSON, CSV.
//! Always true: every record given to a sink is in its [`SinkLine`](weir_ledger::SinkLine) as
//! exported or as lost with a reason. It keeps no flow and decides no timeout.
#![forbid(unsafe_code)]

mod sink;

pub use sink::{Error, ExportOptions, Sink, open};
