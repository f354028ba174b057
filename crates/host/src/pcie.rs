//! What a PCI Express link carries.
//!
//! Every generation says how many transfers a second a lane makes and how many of their bits are data. What reaches memory is less:
//! each write of at most 256 octets has 24 octets around it, and each frame has a descriptor that is written too.
//! A link of 8 GT/s and 8 lanes has 63.0 Gbit/s, and 52 of frames of 512 octets: "slightly more than 50" is what CESNET
//! measured (Velan and Pus, 2015).

use serde::Serialize;

/// Data octets of one write: the usual limit of servers (maximum payload size).
const WRITE_OCTETS: u32 = 256;
/// Around each write: framing 4, header with a 64-bit address 16, check 4 (PCI Express base specification).
const AROUND_WRITE: u32 = 24;
/// A descriptor that the NIC writes per frame; NICs have 16 to 64 octets.
const DESCRIPTOR: u32 = 32;
/// The check sequence does not reach memory.
const FCS: u32 = 4;

/// Speed and width of a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PcieLink {
    /// 10^9 transfers a second on each lane.
    pub gigatransfers: f64,
    /// Lanes.
    pub lanes: u32,
}

impl PcieLink {
    /// From what the kernel says: `8.0 GT/s PCIe` and `16`; `None` if that is no link.
    pub fn parse(speed: &str, width: &str) -> Option<Self> {
        let gigatransfers: f64 = speed.split_whitespace().next()?.parse().ok()?;
        let lanes = width.trim().parse().ok()?;
        ((1.0..1000.0).contains(&gigatransfers) && (1..=32).contains(&lanes)).then_some(Self { gigatransfers, lanes })
    }

    /// Bits of data a second in one direction: 8 of 10 bits up to 5 GT/s, 128 of 130 from 8, 242 of 256 at 64.
    pub fn bits(&self) -> f64 {
        let share = match self.gigatransfers {
            speed if speed < 6.0 => 8.0 / 10.0,
            speed if speed < 50.0 => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        self.gigatransfers * 1e9 * f64::from(self.lanes) * share
    }

    /// Frames of so many octets (with FCS) a second that reach memory.
    pub fn frames(&self, frame_octets: u32) -> f64 {
        self.bits() / (f64::from(bus_octets(frame_octets)) * 8.0)
    }
}

impl std::fmt::Display for PcieLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PCIe {:?} GT/s x{}", self.gigatransfers, self.lanes)
    }
}

/// Octets that a received frame of so many octets (with FCS) takes on the bus.
pub fn bus_octets(frame_octets: u32) -> u32 {
    let data = frame_octets.saturating_sub(FCS);
    let writes = data.div_ceil(WRITE_OCTETS);
    data.saturating_add(writes.saturating_mul(AROUND_WRITE)).saturating_add(DESCRIPTOR + AROUND_WRITE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(gigatransfers: f64, lanes: u32) -> PcieLink {
        PcieLink { gigatransfers, lanes }
    }

    /// The table of "Towards 100 Gbit flow-based network monitoring".
    #[test]
    fn generation_3_has_7_87_gigabit_a_lane() {
        for (lanes, gigabit) in [(1, 7.87), (4, 31.5), (8, 63.0), (16, 126.0)] {
            let bits = link(8.0, lanes).bits() / 1e9;
            assert!((bits - gigabit).abs() < 0.1, "x{lanes}: {bits}");
        }
        assert_eq!(link(16.0, 8).bits(), link(8.0, 16).bits());
        assert_eq!(link(5.0, 8).bits(), 32e9);
    }

    #[test]
    fn eight_lanes_of_generation_3_carry_slightly_more_than_50_gigabit() {
        for frame in [512, 700, 1024, 1518] {
            let gigabit = link(8.0, 8).frames(frame) * f64::from(frame) * 8.0 / 1e9;
            assert!((50.0..57.0).contains(&gigabit), "{frame}: {gigabit}");
        }
    }

    #[test]
    fn only_sixteen_lanes_of_generation_3_carry_100_gigabit() {
        let needed = crate::line_rate(100_000_000_000, 700);
        assert!(link(8.0, 16).frames(700) > needed && link(16.0, 8).frames(700) > needed);
        assert!(link(8.0, 8).frames(700) < needed);
        // Two ports of it do not fit.
        assert!(link(8.0, 16).frames(700) < 2.0 * needed && link(16.0, 16).frames(700) > 2.0 * needed);
    }

    #[test]
    fn a_link_is_read_as_the_kernel_writes_it() {
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
