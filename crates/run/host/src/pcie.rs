//! Capacity of PCI Express links.
//!
//! Transfer rate, number of lanes and line code give the bit rate. Frames get less of it: each
//! write of at most 256 octets has an overhead of 24 octets, and the NIC writes a descriptor per
//! frame. A link of 8 GT/s and 8 lanes has 63.0 Gbit/s, which carry 52 Gbit/s of frames of 512
//! octets. CESNET measured "slightly more than 50" (Velan and Pus, 2015).

use serde::Serialize;

/// Data octets of one write: the usual maximum payload size of servers.
const MAX_PAYLOAD: u32 = 256;
/// Octets around each write: framing 4, header with a 64-bit address 16, CRC 4 (PCI Express Base
/// Specification).
const WRITE_OVERHEAD: u32 = 24;
/// Octets of the receive descriptor that a NIC writes per frame; 16 to 64 depending on the NIC.
const DESCRIPTOR: u32 = 32;
/// Octets of the frame check sequence, which is not written to memory.
const FCS: u32 = 4;

/// Speed and width of a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PcieLink {
    /// GT/s: 10^9 transfers per second and lane.
    pub gigatransfers: f64,
    /// Number of lanes.
    pub lanes: u32,
}

impl PcieLink {
    /// Parses the notation of the kernel, `8.0 GT/s PCIe` and `16`; `None` if there is no link.
    pub fn parse(speed: &str, width: &str) -> Option<Self> {
        let gigatransfers: f64 = speed.split_whitespace().next()?.parse().ok()?;
        let lanes = width.trim().parse().ok()?;
        ((1.0..1000.0).contains(&gigatransfers) && (1..=32).contains(&lanes)).then_some(Self { gigatransfers, lanes })
    }

    /// Data bits per second in one direction. The line code is 8b/10b up to 5 GT/s, 128b/130b from
    /// 8 GT/s, and 242B/256B at 64 GT/s.
    pub fn bits_per_second(&self) -> f64 {
        let code_rate = match self.gigatransfers {
            speed if speed < 6.0 => 8.0 / 10.0,
            speed if speed < 50.0 => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        self.gigatransfers * 1e9 * f64::from(self.lanes) * code_rate
    }

    /// Frames per second that reach memory, for frames of one size (octets with FCS).
    pub fn frames_per_second(&self, frame_octets: u32) -> f64 {
        self.bits_per_second() / (f64::from(bus_octets(frame_octets)) * 8.0)
    }
}

impl std::fmt::Display for PcieLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PCIe {:?} GT/s x{}", self.gigatransfers, self.lanes)
    }
}

/// Octets on the bus for a received frame of some octets (with FCS).
pub fn bus_octets(frame_octets: u32) -> u32 {
    let data = frame_octets.saturating_sub(FCS);
    let writes = data.div_ceil(MAX_PAYLOAD);
    data.saturating_add(writes.saturating_mul(WRITE_OVERHEAD)).saturating_add(DESCRIPTOR + WRITE_OVERHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(gigatransfers: f64, lanes: u32) -> PcieLink {
        PcieLink { gigatransfers, lanes }
    }

    /// Values from a table in "Towards 100 Gbit flow-based network monitoring".
    #[test]
    fn generation_3_has_7_87_gbit_per_second_per_lane() {
        for (lanes, gigabit) in [(1, 7.87), (4, 31.5), (8, 63.0), (16, 126.0)] {
            let gbits = link(8.0, lanes).bits_per_second() / 1e9;
            assert!((gbits - gigabit).abs() < 0.1, "x{lanes}: {gbits}");
        }
        assert_eq!(link(16.0, 8).bits_per_second(), link(8.0, 16).bits_per_second());
        assert_eq!(link(5.0, 8).bits_per_second(), 32e9);
    }

    #[test]
    fn eight_lanes_of_generation_3_carry_slightly_more_than_50_gbit_per_second() {
        for frame in [512, 700, 1024, 1518] {
            let gigabit = link(8.0, 8).frames_per_second(frame) * f64::from(frame) * 8.0 / 1e9;
            assert!((50.0..57.0).contains(&gigabit), "{frame}: {gigabit}");
        }
    }

    #[test]
    fn only_sixteen_lanes_of_generation_3_carry_100_gbit_per_second() {
        let needed = crate::ethernet::line_rate(100_000_000_000, 700);
        assert!(link(8.0, 16).frames_per_second(700) > needed && link(16.0, 8).frames_per_second(700) > needed);
        assert!(link(8.0, 8).frames_per_second(700) < needed);
        // Two ports need more than 16 lanes of generation 3.
        assert!(
            link(8.0, 16).frames_per_second(700) < 2.0 * needed && link(16.0, 16).frames_per_second(700) > 2.0 * needed
        );
    }

    #[test]
    fn links_are_parsed_in_the_notation_of_the_kernel() {
        assert_eq!(PcieLink::parse("8.0 GT/s PCIe\n", "16\n"), Some(link(8.0, 16)));
        assert_eq!(PcieLink::parse("2.5 GT/s", "1"), Some(link(2.5, 1)));
        for (speed, width) in [
            ("Unknown", "0"),
            ("", ""),
            ("8.0 GT/s PCIe", "0"),
            ("NaN GT/s", "8"),
            ("-8.0", "8"),
            ("inf", "8"),
            ("8.0", "255"),
        ] {
            assert_eq!(PcieLink::parse(speed, width), None, "{speed} {width}");
        }
        assert_eq!(link(8.0, 16).to_string(), "PCIe 8.0 GT/s x16");
    }
}
