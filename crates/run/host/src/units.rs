//! Default rates, and numbers with units as text.

/// Assumed packet rate of a core, in Mpps: half of what the meter reaches with an internet mix of
/// whole frames in memory (14.8 Mpps, docs/performance.md). The other half is for receiving, which
/// that benchmark does not include.
pub fn default_mpps_per_core() -> f64 {
    14.8 / 2.0
}

/// A packet rate in millions per second.
pub fn mega(packets_per_second: f64) -> String {
    format!("{:.2} M packets/s", packets_per_second / 1e6)
}

/// A size of memory in GiB.
pub fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

/// A bit rate in Mbit/s or Gbit/s.
pub fn bits(bits_per_second: f64) -> String {
    match bits_per_second {
        bits if bits >= 999.95e6 => format!("{} Gbit/s", short(bits / 1e9)),
        bits => format!("{} Mbit/s", short(bits / 1e6)),
    }
}

/// A count with its noun: `1 queue`, `4 queues`.
pub fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// One digit after the point, unless it is 0.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}
