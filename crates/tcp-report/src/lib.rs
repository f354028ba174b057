//! The report about TCP in captures: which connections retransmit, what they add up to, and what happened in one of them.
//!
//! In: packets of TCP ([`PacketReader`] reads them from a source). Out: a [`CaptureReport`]: connections in the order
//! of a ranking, totals, histograms, a comparison with the usual rule; written as text, HTML, SVG, JSON or CSV.
//! [`explain`] writes one connection segment by segment.
//! Invariant: packets received = refused + not matching + not TCP + without ports + left out + analysed, and the
//! connections have the packets that were analysed.
//! Memory grows with the connections, up to a limit ([`Limits`]): packets of those that begin later are left out, and counted.
//! It opens no file and prints nothing.
//! Definitions: `docs/tcp.md`.
#![forbid(unsafe_code)]

mod client;
mod comparison;
mod connection;
mod connection_table;
mod explain;
mod histogram;
mod html;
mod json;
mod lookup;
mod memory;
mod plots;
mod ranking;
mod reader;
mod report;
mod text;
mod totals;

pub use comparison::{Comparison, Verdicts};
pub use connection::Connection;
pub use explain::{ExplainError, Pass, explain};
pub use html::html;
pub use json::{csv, json};
pub use lookup::{LookupError, find};
pub use memory::{Limits, MemoryError, free_bytes};
pub use plots::plots;
pub use ranking::SortOrder;
pub use reader::{PacketConsumer, PacketCounts, PacketReader};
pub use report::{Analysis, CaptureReport, ReportOptions};
pub use text::text;
pub use totals::Totals;
