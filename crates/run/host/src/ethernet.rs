//! Frame rates of Ethernet links, and the frame sizes that plans assume.

/// Octets around each frame: preamble, start frame delimiter and interpacket gap (IEEE 802.3).
const FRAME_OVERHEAD: u64 = 20;
/// Octets of an average internet frame, as in NAPA-FP and docs/performance.md.
pub const AVERAGE_FRAME: u32 = 700;
/// Octets of the smallest frame.
pub const SMALLEST_FRAME: u32 = 64;

/// The line rate in frames per second, for frames of one size (octets with FCS).
pub fn line_rate(link_bits_per_second: u64, frame_octets: u32) -> f64 {
    link_bits_per_second as f64 / ((u64::from(frame_octets) + FRAME_OVERHEAD) * 8) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rates_match_the_standard() {
        for (frame, per_second) in
            [(64, 14_880_952), (128, 8_445_945), (256, 4_528_985), (512, 2_349_624), (1518, 812_743)]
        {
            assert_eq!(line_rate(10_000_000_000, frame) as u64, per_second, "{frame} octets");
        }
        assert_eq!(line_rate(100_000_000_000, 64) as u64, 148_809_523);
        assert_eq!(line_rate(100_000_000_000, 700) as u64, 17_361_111);
    }

    /// Velan and Pus (2015), Table I: packets and bits per second, measured on a 10 Gbit/s port.
    #[test]
    fn line_rates_match_the_published_measurement_within_0_003_percent() {
        for (frame, packets, bits) in [
            (64, 14_880_545, 7_618_839_040_f64),
            (128, 8_445_715, 8_648_411_900.0),
            (256, 4_528_861, 9_275_108_100.0),
            (512, 2_349_560, 9_623_786_500.0),
        ] {
            let rate = line_rate(10_000_000_000, frame);
            assert!((rate / f64::from(packets) - 1.0).abs() < 3e-5, "{frame}: {rate}");
            assert!((rate * f64::from(frame) * 8.0 / bits - 1.0).abs() < 3e-5, "{frame}: {rate}");
        }
    }
}
