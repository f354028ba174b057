//! What a plan does not decide, but shows: cores by packet size, losses with fewer cores, how long
//! the receive ring holds, from which frame size on a slot carries the link, and when a GPU pays.
//!
//! All of it is calculated from the demand. Assumptions: the packets are spread evenly over the
//! queues; each core meters at its rate and never faster; nothing but the named part is a limit.

use crate::ethernet::line_rate;
use crate::pcie::{PcieLink, bus_octets};
use serde::Serialize;

/// Frame sizes of the table, octets with FCS.
const FRAME_SIZES: [u32; 6] = [64, 128, 256, 512, 1024, 1518];
/// Receive rings, in descriptors.
const RINGS: [u32; 6] = [256, 512, 1024, 2048, 4096, 8192];
/// A pause of a core in which it takes no packets: another thread runs for a tick of a kernel with
/// 1000 Hz.
pub const PAUSE_MS: u32 = 1;
/// Octets that a NIC transfers of each frame: all; two lengths of trimming; parsed headers.
const TRANSFERRED: [(&str, u32); 4] =
    [("whole", u32::MAX), ("trimmed to 128", 128), ("trimmed to 64", 64), ("parsed headers, 32", 32)];
/// Time of the batch engine per segment on a CPU core, and the part of it that packs segments, which
/// remains with a GPU, ns (docs/performance.md: 131 072 connections, 1 % lost, 13.7 Mpps, 22 % of it
/// for packing).
const ENGINE_NS: f64 = 73.0;
const PACK_NS: f64 = 16.0;
/// Octets of a packed IPv4 segment, which are copied to the GPU.
const SEGMENT_OCTETS: f64 = 32.0;
/// Assumed rate of copies to the GPU, octets per second: half of a PCIe slot of generation 4 with 16
/// lanes.
const COPY_OCTETS_PER_SECOND: f64 = 15e9;
/// Assumed rate of the kernels, segments per second. No kernel has run on a GPU yet.
const KERNEL_SEGMENTS_PER_SECOND: f64 = 1e9;

/// What a plan shows beside its decisions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Capacity {
    /// By frame size, at line rate.
    pub sizes: Vec<SizeNeed>,
    /// Losses with fewer pipelines than needed.
    pub pipelines: Vec<PipelineLoss>,
    /// Receive rings of each queue.
    pub rings: Vec<Ring>,
    /// What the slot of the NIC carries; empty if the slot is unknown.
    pub trimming: Vec<Trimming>,
    /// The batch engine of TCP analysis with a GPU.
    pub gpu: GpuCost,
}

/// What the link needs if all frames have one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SizeNeed {
    /// Octets with FCS.
    pub frame_octets: u32,
    /// Line rate of all ports together.
    pub packets_per_second: f64,
    /// Pipelines, a core each if fused; the exporters need one more.
    pub pipelines: usize,
}

/// Losses of a number of pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PipelineLoss {
    /// Pipelines.
    pub pipelines: usize,
    /// Packets lost, of all: 0 to 1.
    pub lost_share: f64,
}

/// A receive ring of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ring {
    /// Descriptors; one packet each.
    pub descriptors: u32,
    /// For how long it takes packets while the core is away.
    pub holds_ns: f64,
    /// Packets lost in a pause of 1 ms.
    pub lost_in_pause: f64,
    /// Time until the ring is empty again after the pause; `None` if the core is too slow for that.
    pub recovers_in_ns: Option<f64>,
}

/// From which frame size on the slot carries the line rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trimming {
    /// What is transferred of each frame.
    pub transferred: &'static str,
    /// From this size on, octets with FCS; `None` if from no size up to 1518.
    pub line_rate_from_octets: Option<u32>,
    /// Share of the line rate with 64-octet frames, and with those of the demand.
    pub line_rate_share: [f64; 2],
}

/// The cost of TCP analysis in the batch engine, without and with a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GpuCost {
    /// Cores for the demanded rate without a GPU, if all packets are TCP.
    pub cpu_cores: f64,
    /// Cores that pack segments for a GPU.
    pub packing_cores: f64,
    /// Use of the GPU: 1 is all of it. More than 1: several are needed.
    pub gpu_use: f64,
    /// Rate from which on a GPU saves one core.
    pub saves_a_core_from_packets_per_second: f64,
}

impl Capacity {
    /// Calculates everything for a link of `ports`, whose bit rate is that of all together.
    pub fn new(link: Link, packets_per_second: f64, frame_octets: u32, core_rate: f64, queues: usize) -> Self {
        let mut sizes: Vec<u32> = FRAME_SIZES.into_iter().chain([frame_octets]).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let size_need = |frame_octets| {
            let packets_per_second = line_rate(link.bits_per_second, frame_octets);
            let pipelines = pipelines(packets_per_second, core_rate, link.ports);
            SizeNeed { frame_octets, packets_per_second, pipelines }
        };
        let needed = pipelines(packets_per_second, core_rate, link.ports);
        // A power of two each, up to what is needed.
        let mut fewer: Vec<usize> = (0..20).map(|power| 1 << power).take_while(|count| *count < needed).collect();
        fewer.push(needed);
        let loss = |pipelines: usize| PipelineLoss {
            pipelines,
            lost_share: (1.0 - pipelines as f64 * core_rate / packets_per_second).max(0.0),
        };
        let per_queue = packets_per_second / queues.max(1) as f64;
        let trimming = |slot: PcieLink| {
            TRANSFERRED.map(|(transferred, octets)| Trimming::new(transferred, octets, slot, link, frame_octets))
        };
        Self {
            sizes: sizes.into_iter().map(size_need).collect(),
            pipelines: fewer.into_iter().map(loss).collect(),
            rings: RINGS.map(|descriptors| Ring::new(descriptors, per_queue, core_rate)).to_vec(),
            trimming: link.slot.map(trimming).into_iter().flatten().collect(),
            gpu: GpuCost::new(packets_per_second),
        }
    }
}

/// A link of one or several ports.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Bit rate of all ports together.
    pub bits_per_second: u64,
    /// Ports.
    pub ports: u32,
    /// The slot of the NIC, if it is known.
    pub slot: Option<PcieLink>,
}

/// Pipelines for a packet rate. Each port has pipelines of its own.
pub fn pipelines(packets_per_second: f64, core_rate: f64, ports: u32) -> usize {
    let per_port = (packets_per_second / f64::from(ports) / core_rate).ceil().clamp(1.0, 1e6);
    per_port as usize * ports as usize
}

impl Ring {
    fn new(descriptors: u32, per_queue: f64, core_rate: f64) -> Self {
        let (held, in_pause) = (f64::from(descriptors), per_queue * f64::from(PAUSE_MS) / 1e3);
        let spare = core_rate - per_queue;
        Self {
            descriptors,
            holds_ns: held / per_queue * 1e9,
            lost_in_pause: (in_pause - held).max(0.0),
            recovers_in_ns: (spare > 0.0).then(|| in_pause.min(held) / spare * 1e9),
        }
    }
}

impl Trimming {
    fn new(transferred: &'static str, octets: u32, slot: PcieLink, link: Link, frame_octets: u32) -> Self {
        // The frame check sequence is not transferred, and not part of a frame's trimmed length.
        let share = |frame: u32| {
            let on_bus = f64::from(bus_octets(frame.min(octets.saturating_add(4)))) * 8.0;
            slot.bits_per_second() / on_bus / line_rate(link.bits_per_second, frame)
        };
        let too_large = (64..=1518).rev().find(|&frame| share(frame) < 1.0);
        let line_rate_from_octets = match too_large {
            None => Some(64),
            Some(1518) => None,
            Some(frame) => Some(frame + 1),
        };
        Self {
            transferred,
            line_rate_from_octets,
            line_rate_share: [64, frame_octets].map(|frame| share(frame).min(1.0)),
        }
    }
}

impl GpuCost {
    fn new(packets_per_second: f64) -> Self {
        let card = (COPY_OCTETS_PER_SECOND / SEGMENT_OCTETS).min(KERNEL_SEGMENTS_PER_SECOND);
        Self {
            cpu_cores: packets_per_second * ENGINE_NS / 1e9,
            packing_cores: packets_per_second * PACK_NS / 1e9,
            gpu_use: packets_per_second / card,
            saves_a_core_from_packets_per_second: 1e9 / (ENGINE_NS - PACK_NS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(gigabits: u64, ports: u32, frame_octets: u32) -> Capacity {
        let slot = PcieLink::parse("8.0 GT/s PCIe", "8");
        let link = Link { bits_per_second: gigabits * 1_000_000_000, ports, slot };
        let rate = line_rate(link.bits_per_second, frame_octets);
        Capacity::new(link, rate, frame_octets, 7.4e6, 4)
    }

    /// Velan and Pus (2015), section V: two ports of 40 Gbit/s on 8 lanes of generation 3. Trimmed to 64
    /// octets, frames of 128 octets have "almost" line rate, and those of 256 octets have it; parsed headers
    /// have it from 128 octets on; whole frames have it with no size.
    #[test]
    fn trimming_has_the_published_thresholds() {
        let [whole, _, trimmed, parsed] = capacity(80, 2, 128).trimming[..] else { panic!("four ways of transfer") };
        assert_eq!(whole.line_rate_from_octets, None);
        assert!((129..=256).contains(&trimmed.line_rate_from_octets.unwrap()), "{trimmed:?}");
        assert!((0.75..1.0).contains(&trimmed.line_rate_share[1]), "{trimmed:?}");
        assert!(parsed.line_rate_from_octets.unwrap() <= 128, "{parsed:?}");
    }

    #[test]
    fn each_port_has_pipelines_of_its_own() {
        // 17.36 M packets/s are 2.3 cores.
        assert_eq!(pipelines(17.36e6, 7.4e6, 1), 3);
        assert_eq!(pipelines(17.36e6, 7.4e6, 2), 4);
        assert_eq!(pipelines(17.36e6, 7.4e6, 10), 10);
        assert_eq!(pipelines(0.0, 7.4e6, 4), 4);
    }

    #[test]
    fn smaller_frames_need_more_cores_and_no_core_is_lossless_before_enough_are_there() {
        let capacity = capacity(100, 1, 700);
        assert!(capacity.sizes.is_sorted_by(|a, b| a.frame_octets < b.frame_octets && a.pipelines >= b.pipelines));
        assert_eq!(capacity.sizes.first().map(|need| need.pipelines), Some(21));
        let losses: Vec<f64> = capacity.pipelines.iter().map(|loss| (loss.lost_share * 100.0).round()).collect();
        assert_eq!(losses, [57.0, 15.0, 0.0]);
    }

    #[test]
    fn a_ring_loses_what_arrives_in_a_pause_and_does_not_fit() {
        // 4.34 M packets/s per queue: 4340 in 1 ms.
        let rings = capacity(100, 1, 700).rings;
        let lost: Vec<u32> = rings.iter().map(|ring| ring.lost_in_pause.round() as u32).collect();
        assert_eq!(lost, [4084, 3828, 3316, 2292, 244, 0]);
        assert!(rings.iter().all(|ring| ring.recovers_in_ns.is_some()));
        assert!(Ring::new(1024, 8e6, 7.4e6).recovers_in_ns.is_none());
    }

    #[test]
    fn a_gpu_saves_what_is_not_packing() {
        let gpu = GpuCost::new(100e6);
        assert!(gpu.packing_cores < gpu.cpu_cores && gpu.gpu_use < 1.0, "{gpu:?}");
        let from = gpu.saves_a_core_from_packets_per_second;
        let at = GpuCost::new(from);
        assert!((at.cpu_cores - at.packing_cores - 1.0).abs() < 1e-9, "{at:?}");
    }
}
