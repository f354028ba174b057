//! The stress load of most tables, and what it takes.

use weir_flow::Config;

/// Capture time between packets of 64 octets is that of so many a second: about what a core meters when a million flows
/// begin every second, so that a second of the load takes about one.
pub const RATE: u64 = 20_000_000;

/// A stress load: 64-octet frames of flows in random order, in both directions.
pub fn velan(flows: usize) -> String {
    format!("velan,flows={flows},size=64,directions=2,rate={RATE}")
}

/// What [`velan`] is, in words.
pub const VELAN: &str = "UDP over IPv4 in 64-octet frames (60 without FCS) from memory, flows in random order, both \
                     directions, packet times spaced at 20 Mpps";

/// A table with room for so many flows and a little more.
pub fn config(flows: usize) -> Config {
    Config { flows: room(flows) as u32, ..Config::default() }
}

pub fn room(flows: usize) -> usize {
    flows + flows / 8 + 64
}

/// Octets that a load of so many 64-octet frames takes, with the meter and the roofline of so many flows.
pub fn needed(packets: usize, flows: usize) -> usize {
    76 * packets + 256 * room(flows) + 64 * flows
}
