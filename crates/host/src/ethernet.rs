//! How many frames a second Ethernet carries.

/// Preamble, start of frame and the gap behind it (IEEE 802.3), octets.
const AROUND: u64 = 20;

/// Frames a second at most, for frames of so many octets (with FCS) on a link of so many bits a second.
pub fn line_rate(link_bits: u64, frame_octets: u32) -> f64 {
    link_bits as f64 / ((u64::from(frame_octets) + AROUND) * 8) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_carries_so_many_frames_a_second() {
        for (frame, per_second) in
            [(64, 14_880_952), (128, 8_445_945), (256, 4_528_985), (512, 2_349_624), (1518, 812_743)]
        {
            assert_eq!(line_rate(10_000_000_000, frame) as u64, per_second, "{frame} octets");
        }
        assert_eq!(line_rate(100_000_000_000, 64) as u64, 148_809_523);
        assert_eq!(line_rate(100_000_000_000, 700) as u64, 17_361_111);
    }

    /// Velan and Pus (2015), Table I: per port of 10 Gbit/s, packets and bits of frames a second. They measured.
    #[test]
    fn the_published_table_comes_out_within_0_003_percent() {
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
