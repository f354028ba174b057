//! The report about TCP in captures: which connections retransmit, totals, and what happened in one
//! connection.
//!
//! In: TCP packets; [`PacketReader`] reads them from a source. Out: a [`CaptureReport`] from an
//! [`Analysis`]: connections in the order of a ranking, totals, histograms, and a comparison with
//! the rule of most tools. It can be written as text, HTML, SVG, JSON, CSV and Arrow, and
//! lists the segments of one connection ([`CaptureReport::explain`]). Time lines of connections
//! ([`CaptureReport::read_time_lines`]) and segments need another reading of the capture.
//! Invariants: packets received = refused + outside the times + not matching + not TCP + without
//! ports + left out + analysed, and the packets of all connections, also of those that are not
//! selected, are those analysed.
//! Memory grows with the connections, up to [`Limits`]; packets of connections beyond the limit are
//! left out and counted.
//! It opens no file and prints nothing.
//! Definitions: `docs/tcp.md`.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as weir_tcp_report;

mod arrow;
mod comparison;
mod connection;
mod connection_table;
mod counts;
mod delay;
mod endpoint_pairs;
mod explain;
mod failure;
mod failure_groups;
mod findings;
mod group_table;
mod groups;
mod histogram;
mod html;
mod json;
mod known_fields;
mod lookup;
mod memory;
mod named;
mod percent;
mod plots;
mod ranking;
mod reader;
mod report;
#[cfg(test)]
mod tests;
mod text;
mod time_line;
mod time_line_reader;
mod totals;
mod warnings;

pub use comparison::{Comparison, RuleCounts};
pub use connection::{Connection, duplicate_segments};
pub use delay::{Delay, Delays};
pub use explain::{ExplainError, Explained, FlowError, FlowPackets, InvalidTcpFlow, Pass};
pub use failure::Failure;
pub use failure_groups::{CommonSide, FailureGroup};
pub use findings::{Finding, FindingKind, MAX_FINDINGS};
pub use group_table::{GroupOrder, InvalidGroupOrder};
pub use groups::{EndNames, Group, GroupBy, GroupKey, NetworkNames};
pub use histogram::Histogram;
pub use known_fields::has_field;
pub use lookup::{LookupError, find_connection};
pub use memory::{Limits, MemoryError};
pub use ranking::{InvalidOrder, SortOrder};
pub use reader::{DatagramObserver, PacketConsumer, PacketCounts, PacketReader, PacketSelection};
pub use report::{Analysis, CaptureReport, Grouping, RecordTest, ReportOptions};
pub use time_line::TimeLines;
pub use totals::Totals;
pub use warnings::Warning;
