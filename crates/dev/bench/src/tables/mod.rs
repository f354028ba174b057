//! The tables of `weir bench`: which cases are compared on which load.

mod dpi;
mod egress;
mod encode;
mod flood;
mod memory;
mod rates;
mod stages;
mod streams;
mod tcp;
mod threads;

use crate::error::Error;
use crate::measure::Bench;
use crate::report::Table;

type Measure = fn(&mut Bench<'_>) -> Result<Table, Error>;

/// Every table: its name, what it measures, and the function that measures it.
pub const TABLES: [(&str, &str, Measure); 12] = [
    ("table1", "CESNET's Table I: packet sizes and flow counts", rates::table1),
    ("flows", "concurrent flows, and new ones per second", rates::flows),
    ("mix", "internet mix, in Gbit/s per core", rates::mix),
    ("tcp", "cost of TCP analysis: traffic with and without losses, batches", tcp::table),
    ("dpi", "cost of packet inspection, and of flows that it never decides", dpi::table),
    ("egress", "cost of handing packets on, from memory and over interfaces (root)", egress::table),
    ("flood", "every packet a new flow; a full flow cache; colliding keys", flood::table),
    ("encode", "encoding of flow records, beside a copy of the same octets", encode::table),
    ("memory", "memory latency and bandwidth, and what they permit for the meter", memory::table),
    ("streams", "streams of frames from memory: malloc, mmap, locked pages; headers or all octets", streams::table),
    ("stages", "cost of each stage; instructions, cycles and energy where the machine tells them", stages::table),
    ("threads", "one pipeline per thread, up to four times as many as cores", threads::table),
];
