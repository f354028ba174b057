//! The tables: what is compared with what, on which load.

mod hashes;
mod inside;
mod rates;
mod threads;

use crate::Error;
use crate::harness::Bench;
use crate::report::Table;
use weir_flow::Config;

/// Series that stand in many tables.
pub const NULL: &str = "null consumer";
pub const ROOFLINE: &str = "roofline";
pub const DECODED: &str = "decoder + one line";
pub const PIPELINE: &str = "weir";

type Measure = fn(&mut Bench<'_>) -> Result<Table, Error>;

/// Every table: its name, what it answers, and what measures it.
pub const TABLES: [(&str, &str, Measure); 12] = [
    ("table1", "CESNET's Table I: packet sizes and flow counts", rates::table1),
    ("flows", "concurrent flows, and new ones per second", rates::flows),
    ("mix", "internet mix, in Gbit/s per core", rates::mix),
    ("table", "the flow table beside others, bucket sizes, collisions", inside::table),
    ("hash", "the keyed hash beside the hash of network cards", hashes::hash),
    ("prefetch", "packets whose memory is fetched together", inside::prefetch),
    ("pages", "pages of the table's memory", inside::pages),
    ("shared", "one counter shared by two cores", threads::shared),
    ("layout", "one core, two cores, stages split over two cores", threads::layout),
    ("features", "what each group of fields costs", inside::features),
    ("flood", "every packet a new flow; a full table; colliding keys", hashes::flood),
    ("ablate", "everything on, then each off", inside::ablate),
];

/// Capture time between packets of 64 octets is that of so many a second, unless a table says otherwise.
const RATE: u64 = 10_000_000;

/// A stress load: 64-octet frames of flows in random order, in both directions.
fn velan(flows: usize) -> String {
    format!("velan,flows={flows},size=64,directions=2,rate={RATE}")
}

/// What [`velan`] is, in words.
const VELAN: &str = "UDP over IPv4 in 64-octet frames (60 without FCS) from memory, flows in random order, both \
                     directions, packet times spaced at 10 Mpps";

/// A table with room for so many flows and a little more.
fn config(flows: usize) -> Config {
    Config { flows: room(flows) as u32, ..Config::default() }
}

fn room(flows: usize) -> usize {
    flows + flows / 8 + 64
}

/// Octets that a load of so many 64-octet frames takes, with the meter and the roofline of so many flows.
fn needed(packets: usize, flows: usize) -> usize {
    76 * packets + 256 * room(flows) + 64 * flows
}
