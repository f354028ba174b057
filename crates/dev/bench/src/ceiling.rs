//! Ceilings: frames only touched; the one-line roofline; the same behind Weir's decoder and hash; all
//! lines of the meter behind them.

use crate::error::{CountMismatch, Error};
use crate::frames::Frames;
use crate::mapped_array::{Line, MappedArray};
use crate::measure::{Fact, Run, Work, timed};
use crate::meter::decode_bursts;
use std::hint::black_box;
use weir_capture::{Frame, MAX_BURST_FRAMES};
use weir_flow::{KeyHasher, prefetch};
use weir_packet::{Flags, Packet};

/// Touches every frame and does nothing else.
pub struct Null;

impl Work<Frames> for Null {
    fn run(&mut self, frames: &mut Frames) -> Result<Run, Error> {
        let touched =
            || frames.iter().map(|frame| u64::from(frame.bytes[0]) + u64::from(frame.wire_bytes)).sum::<u64>();
        let (sum, seconds) = timed(touched);
        black_box(sum);
        Ok(Run::new(frames.packets, seconds))
    }
}

/// The least a meter can do: decodes TCP or UDP over IP in place up to the ports; hashes with a keyed
/// 64 by 64 bit multiplication; prefetches and updates one cache line per flow.
/// Compares no key and expires nothing.
pub struct Roofline(Lines);

/// The meter's decoder and hash, then one line as in [`Roofline`]. The difference to the meter is its
/// flow cache.
pub struct Decoded {
    lines: Lines,
    hash: KeyHasher,
    packets: Box<[Packet; MAX_BURST_FRAMES]>,
}

/// The meter's decoder and hash, then the lines that the meter needs for the packet.
pub struct DecodedAll {
    lines: MeterLines,
    flows: usize,
    hash: KeyHasher,
    packets: Box<[Packet; MAX_BURST_FRAMES]>,
    given: u64,
}

/// Flows per index bucket of the meter.
const FLOWS_PER_BUCKET: f64 = 6.5;

/// The lines of a meter: index buckets; slots with a key state and the counters of each direction;
/// TCP connections with a line per direction and the times. They are read and written as by the
/// meter, which does more with them.
pub struct MeterLines {
    buckets: MappedArray<Line>,
    slots: MappedArray<[Line; 3]>,
    connections: MappedArray<[Line; 7]>,
}

/// Where the lines of a packet are.
#[derive(Clone, Copy, Default)]
pub struct FlowLines {
    bucket: usize,
    slot: usize,
    direction: usize,
    tcp: bool,
}

impl MeterLines {
    /// For this number of flows, with TCP connections or without.
    pub fn new(flows: usize, tcp: bool) -> Result<Self, Error> {
        Ok(Self {
            buckets: MappedArray::new((flows as f64 / FLOWS_PER_BUCKET) as usize + 1)?,
            slots: MappedArray::new(flows)?,
            connections: MappedArray::new(if tcp { flows } else { 1 })?,
        })
    }

    /// Prefetches the index bucket of a flow.
    #[inline(always)]
    pub fn prefetch_bucket(&self, slot: usize, direction: usize, tcp: bool) -> FlowLines {
        // A flow is always in the same bucket.
        let bucket = below((slot as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15), self.buckets.len());
        prefetch(&self.buckets[bucket]);
        FlowLines { bucket, slot, direction, tcp }
    }

    /// Reads the buckets of a burst, then reads and writes the lines of its flows: three for a packet,
    /// five with TCP.
    #[inline(always)]
    pub fn enter(&mut self, burst: &mut [FlowLines]) {
        let (buckets, slots, connections) = (&self.buckets[..], &mut self.slots[..], &mut self.connections[..]);
        for FlowLines { bucket, slot, direction, tcp } in &mut *burst {
            // The bucket has the number of the slot. All are 0 here, but they have to be read.
            *slot += buckets[*bucket].0[0] as usize;
            prefetch(&slots[*slot][0]);
            prefetch(&slots[*slot][1 + *direction]);
            if *tcp {
                prefetch(&connections[*slot][*direction]);
                prefetch(&connections[*slot][6]);
            }
        }
        for &mut FlowLines { slot, direction, tcp, .. } in burst {
            slots[slot][0].0[0] += 1;
            slots[slot][1 + direction].0[0] += 1;
            if tcp {
                connections[slot][direction].0[0] += 1;
                connections[slot][6].0[0] += 1;
            }
        }
    }

    /// Number of entered packets.
    pub fn entered(&self) -> u64 {
        self.slots.iter().map(|lines| lines[0].0[0]).sum()
    }
}

/// A number below `limit`, from one of 64 random bits.
#[inline(always)]
fn below(random: u64, limit: usize) -> usize {
    ((u128::from(random) * limit as u128) >> 64) as usize
}

struct Lines {
    /// One line is the whole state of a flow here.
    lines: MappedArray<Line>,
    /// Line, length and time of the packets of a burst.
    burst: [(usize, u32, u64); MAX_BURST_FRAMES],
    /// Packets entered in all rounds.
    given: u64,
}

impl Roofline {
    /// For this number of flows.
    pub fn new(flows: usize) -> Result<Self, Error> {
        Lines::new(flows).map(Self)
    }
}

impl Decoded {
    /// For this number of flows.
    pub fn new(flows: usize) -> Result<Self, Error> {
        let packets = Box::new([Packet::default(); MAX_BURST_FRAMES]);
        Ok(Self { lines: Lines::new(flows)?, hash: KeyHasher::new(None), packets })
    }
}

impl DecodedAll {
    /// For this number of flows.
    pub fn new(flows: usize) -> Result<Self, Error> {
        let packets = Box::new([Packet::default(); MAX_BURST_FRAMES]);
        Ok(Self { lines: MeterLines::new(flows, true)?, flows, hash: KeyHasher::new(None), packets, given: 0 })
    }

    fn enter(&mut self, frames: &Frames) {
        let Self { lines, flows, hash, packets, given } = self;
        let mut burst = [FlowLines::default(); MAX_BURST_FRAMES];
        decode_bursts(frames.iter(), packets, |decoded| {
            for (flow, packet) in burst.iter_mut().zip(decoded) {
                let slot = below(hash.hash(packet, Default::default()), *flows);
                let direction = usize::from(packet.source > packet.destination);
                *flow = lines.prefetch_bucket(slot, direction, packet.flags.has(Flags::TCP));
            }
            lines.enter(&mut burst[..decoded.len()]);
            *given += decoded.len() as u64;
        });
    }
}

impl Work<Frames> for DecodedAll {
    fn run(&mut self, frames: &mut Frames) -> Result<Run, Error> {
        let ((), seconds) = timed(|| self.enter(frames));
        Ok(Run::new(frames.packets, seconds))
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        match (self.given, self.lines.entered()) {
            (given, entered) if given == entered => Ok(vec![]),
            (given, entered) => Err(CountMismatch(format!("{given} packets in, {entered} in lines"))),
        }
    }
}

impl Work<Frames> for Roofline {
    fn run(&mut self, frames: &mut Frames) -> Result<Run, Error> {
        let mut walk = frames.iter();
        let hashed = |frame: Frame<'_>| (hash(frame.bytes), frame.wire_bytes, frame.time_ns);
        self.0.run(frames.packets, |lines| while lines.enter(walk.by_ref().take(MAX_BURST_FRAMES).map(hashed)) {})
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        self.0.check()
    }
}

impl Work<Frames> for Decoded {
    fn run(&mut self, frames: &mut Frames) -> Result<Run, Error> {
        let Self { lines, hash, packets } = self;
        let hashed = |packet: &Packet| (hash.hash(packet, Default::default()), packet.frame_bytes, packet.time_ns);
        // As in the meter: decode a burst, then hash it, then enter it.
        lines.run(frames.packets, |lines| {
            decode_bursts(frames.iter(), packets, |burst| _ = lines.enter(burst.iter().map(hashed)));
        })
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        self.lines.check()
    }
}

impl Lines {
    fn new(flows: usize) -> Result<Self, Error> {
        Ok(Self { lines: MappedArray::new(flows)?, burst: [(0, 0, 0); MAX_BURST_FRAMES], given: 0 })
    }

    #[inline(always)]
    fn run(&mut self, packets: u64, work: impl FnOnce(&mut Self)) -> Result<Run, Error> {
        self.given += packets;
        let ((), seconds) = timed(|| work(self));
        Ok(Run::new(packets, seconds))
    }

    /// Enters a burst: hash, length and time of each packet. Returns whether it has any.
    #[inline(always)]
    fn enter(&mut self, packets: impl Iterator<Item = (u64, u32, u64)>) -> bool {
        let Self { lines, burst, .. } = self;
        let (lines, mut filled) = (&mut lines[..], 0);
        for (place, (hash, wire_bytes, time_ns)) in burst.iter_mut().zip(packets) {
            let line = (((hash >> 32) * lines.len() as u64) >> 32) as usize;
            prefetch(&lines[line]);
            *place = (line, wire_bytes, time_ns);
            filled += 1;
        }
        for &(line, wire_bytes, time_ns) in &burst[..filled] {
            let Line(words) = &mut lines[line];
            words[0] += 1;
            words[1] += u64::from(wire_bytes);
            words[2] = time_ns;
        }
        filled > 0
    }

    /// Checks that every packet is in a line.
    fn check(&self) -> Result<Vec<Fact>, CountMismatch> {
        let found: u64 = self.lines.iter().map(|line| line.0[0]).sum();
        // A uniform hash uses 63 % of as many lines as flows.
        let used = self.lines.iter().filter(|line| line.0[0] > 0).count();
        let used = 100.0 * used as f64 / self.lines.len() as f64;
        if found == self.given {
            Ok(vec![("% of lines used", used)])
        } else {
            Err(CountMismatch(format!("{} packets in, {found} in lines", self.given)))
        }
    }
}

/// Decodes a TCP or UDP packet in place and hashes its addresses and ports; returns 0 for anything
/// else. Both directions have the same hash.
#[inline(always)]
fn hash(bytes: &[u8]) -> u64 {
    const SECRET: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];
    let Some(head) = bytes.first_chunk::<42>() else { return 0 };
    let port = |head: &[u8], at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let (from, to) = match [head[12], head[13]] {
        [0x08, 0x00] => {
            let length = usize::from(u16::from_be_bytes([head[16], head[17]]));
            let fragment = u16::from_be_bytes([head[20], head[21]]) & 0x3fff;
            if head[14] != 0x45 || fragment != 0 || !matches!(head[23], 6 | 17) || length < 28 {
                return 0;
            }
            let word = |at: usize| u64::from(u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
            (word(26) << 16 | port(head, 34), word(30) << 16 | port(head, 36))
        }
        [0x86, 0xdd] => {
            let Some(head) = bytes.first_chunk::<62>() else { return 0 };
            let length = usize::from(u16::from_be_bytes([head[18], head[19]]));
            if head[14] >> 4 != 6 || !matches!(head[20], 6 | 17) || length < 8 {
                return 0;
            }
            let eight = |at: usize| u64::from_le_bytes(std::array::from_fn(|octet| head[at + octet]));
            (
                eight(22) ^ eight(30).rotate_left(16) ^ port(head, 54),
                eight(38) ^ eight(46).rotate_left(16) ^ port(head, 56),
            )
        }
        _ => return 0,
    };
    let product = u128::from(from.min(to) ^ SECRET[0]) * u128::from(from.max(to) ^ SECRET[1]);
    product as u64 ^ (product >> 64) as u64
}
