//! The stress load of most tables with its memory requirements, and loads of decoded packets.

use crate::error::{CountMismatch, Error};
use crate::frames::Frames;
use crate::measure::{Bench, Fact, OwnLoad, Run, Work};
use weir_flow::Config;
use weir_packet::Packet;

/// Packets per second by capture time: about the rate of one core when a million new flows begin every
/// second, so that a second of the load takes about a second.
pub const RATE: u64 = 20_000_000;

/// Specification of the stress load: 64-octet frames, flows in random order, both directions.
pub fn velan(flows: usize) -> String {
    format!("velan,flows={flows},size=64,directions=2,rate={RATE}")
}

/// Description of [`velan`] for reports.
pub const VELAN: &str = "UDP over IPv4 in 64-octet frames (60 without FCS) from memory, flows in random order, both \
                     directions, packet times spaced at 20 Mpps";

/// Configuration of a meter for `flows` flows and a margin.
pub fn config(flows: usize) -> Config {
    Config { flows: capacity(flows) as u32, ..Config::default() }
}

/// Capacity of the flow cache for `flows` flows: an eighth more.
pub fn capacity(flows: usize) -> usize {
    flows + flows / 8 + 64
}

/// Memory for a load of `packets` 64-octet frames, with the meter and the roofline for `flows` flows,
/// bytes.
pub fn required_bytes(packets: usize, flows: usize) -> usize {
    76 * packets + 256 * capacity(flows) + 64 * flows
}

/// Packets that were decoded before. Each round repeats them at later times.
pub struct DecodedPackets {
    /// The packets, in their order.
    pub packets: Vec<Packet>,
    /// Capture time that they span, including the gap to the next round, ns.
    pub span_ns: u64,
}

impl DecodedPackets {
    /// Returns a case that has these packets as its own load.
    pub fn case<W>(self, work: W) -> OwnLoad<Self, W> {
        OwnLoad { load: self, work, next: Self::next_round }
    }

    /// Advances the times to the next round.
    pub fn next_round(&mut self) -> Result<(), Error> {
        self.packets.iter_mut().for_each(|packet| packet.time_ns += self.span_ns);
        Ok(())
    }
}

impl AsRef<[Packet]> for DecodedPackets {
    fn as_ref(&self) -> &[Packet] {
        &self.packets
    }
}

/// Runs cases for a time of capture, so that slots are reused and the system has provided their memory.
pub fn warm_up(
    bench: &Bench<'_>,
    frames: &mut Frames,
    time_ns: u64,
    cases: &mut [&mut dyn Work<Frames>],
) -> Result<(), Error> {
    let until = frames.time_ns(0) + time_ns;
    while !bench.quick && frames.time_ns(0) < until {
        cases.iter_mut().try_for_each(|case| case.run(frames).map(drop))?;
        frames.next_round()?;
    }
    Ok(())
}

/// A case with frames of its own.
pub fn own_frames<W>(load: Frames, work: W) -> OwnLoad<Frames, W> {
    OwnLoad { load, work, next: Frames::next_round }
}

/// A case with facts that a function adds to each run.
pub struct WithFacts<W, F>(pub W, pub F);

impl<W: Work<Frames>, F: Fn(&Frames, &mut Run)> Work<Frames> for WithFacts<W, F> {
    fn run(&mut self, frames: &mut Frames) -> Result<Run, Error> {
        let mut run = self.0.run(frames)?;
        self.1(frames, &mut run);
        Ok(run)
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        Box::new(self.0).finish()
    }
}
