//! The tables of `weir bench`: which cases are compared on which load.

mod dpi;
mod egress;
mod flood;
mod rates;
mod tcp;

use crate::error::Error;
use crate::measure::Bench;
use crate::report::Table;

type Measure = fn(&mut Bench<'_>) -> Result<Table, Error>;

/// Every table: its name, what it measures, and the function that measures it.
pub const TABLES: [(&str, &str, Measure); 7] = [
    ("table1", "CESNET's Table I: packet sizes and flow counts", rates::table1),
    ("flows", "concurrent flows, and new ones per second", rates::flows),
    ("mix", "internet mix, in Gbit/s per core", rates::mix),
    ("tcp", "cost of TCP analysis: traffic with and without losses, batches", tcp::table),
    ("dpi", "cost of packet inspection, and of flows that it never decides", dpi::table),
    ("egress", "cost of handing packets on, from memory and over interfaces (root)", egress::table),
    ("flood", "every packet a new flow; a full flow cache; colliding keys", flood::table),
];
