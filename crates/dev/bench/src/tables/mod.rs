//! The tables of `weir bench`: which cases are compared on which load.

mod dpi;
mod encode;
mod flood;
mod rates;
mod receivers;
mod tcp;

use crate::error::Error;
use crate::measure::Bench;
use crate::report::Table;

/// Measures a table.
pub type Measure = fn(&mut Bench<'_>) -> Result<Table, Error>;

/// A table: its name, what it measures, and the function that measures it.
pub type NamedTable = (&'static str, &'static str, Measure);

/// The tables that help to size a machine. Those about single parts of Weir are in `benches/`.
pub const TABLES: [NamedTable; 6] = [
    ("flows", "concurrent flows, and new ones per second", rates::flows),
    ("mix", "internet mix, in Gbit/s per core", rates::mix),
    ("tcp", "cost of TCP analysis: traffic with and without losses, batches", tcp::table),
    ("dpi", "cost of packet inspection, and of flows that it never decides", dpi::table),
    ("flood", "every packet a new flow; a full flow cache; colliding keys", flood::table),
    ("encode", "records per second of each sink, and end to end", encode::table),
];
