//! Figures that are assumed, and how figures are written.

/// Mpps of a core if nothing better is known: half of what the meter does with an internet mix from memory, whole frames (14.8,
/// docs/performance.md): the other half is for receiving, which is not in that figure.
pub fn default_mpps_per_core() -> f64 {
    14.8 / 2.0
}

/// Packets a second, in millions.
pub fn mega(per_second: f64) -> String {
    format!("{:.2} M packets/s", per_second / 1e6)
}

/// Octets of memory.
pub fn gib(octets: u64) -> String {
    format!("{:.1} GiB", octets as f64 / f64::from(1 << 30))
}

/// Bits a second.
pub fn bits(per_second: f64) -> String {
    match per_second {
        bits if bits >= 999.95e6 => format!("{} Gbit/s", short(bits / 1e9)),
        bits => format!("{} Mbit/s", short(bits / 1e6)),
    }
}

/// One digit behind the point, unless it is 0.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}
