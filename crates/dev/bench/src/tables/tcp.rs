//! The cost of TCP analysis: the meter with and without it, and the batch engine.

use crate::ceiling::{Decoded, DecodedAll, Null};
use crate::error::{CountMismatch, Error};
use crate::frames::Frames;
use crate::load::{RATE, config, warm_up};
use crate::measure::{Bench, Fact, Group, OwnLoad, Run, Work, timed};
use crate::meter::Metering;
use crate::report::{DECODED, DECODED_ALL, NULL, PIPELINE, Table};
use weir_flow::Config;
use weir_packet::{Flags, Packet, ipv4_mapped};
use weir_tcp_batch::{Backend, DeviceError, Engine, EngineOptions};

const WITHOUT: &str = "no TCP analysis";

/// Frames of realistic traffic, decoded and metered; segments of many connections in random order,
/// decoded before.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "Frames: synth:mix and synth:lossy trimmed to 96 octets, decoder and meter, idle timeout 2 s. Segments: decoded before, \
                connections in random order, two thirds of the packets or more carry 1448 octets, the others acknowledge them, \
                spaced at 20 Mpps";
    let mut table = Table::new("tcp", "TCP analysis", "load", load);
    table.logarithmic = false;
    table.against = vec![WITHOUT, DECODED, DECODED_ALL];
    let flows = bench.size(100_000, 1000);
    let clean = "loss=0,reorder=0,duplicate=0,spurious=0,keepalive=0,zerowindow=0";
    for (row, specification) in [
        ("frames: mix", format!("mix,flows={flows},snap=96")),
        ("frames: TCP without loss", format!("lossy,flows={flows},snap=96,{clean}")),
        ("frames: TCP, 1 % lost, 0.5 % reordered, 0.5 % copied", format!("lossy,flows={flows},snap=96")),
        ("frames: TCP, 5 % lost", format!("lossy,flows={flows},snap=96,{clean},loss=5%").replace("loss=0,", "")),
    ] {
        frames(bench, &mut table, row, &specification, flows)?;
    }
    let counts = if bench.quick { &[1024][..] } else { &[16_384, 131_072, 1 << 20, 1 << 22] };
    for &flows in counts {
        segments(bench, &mut table, flows)?;
    }
    table.notes.push(
        "the seed's algorithm on one core of a Xeon X5650 (2010): 1.1 Mpps (Roquero et al., 2015), as published; not \
         measured here"
            .into(),
    );
    Ok(table)
}

fn frames(bench: &mut Bench<'_>, table: &mut Table, row: &str, load: &str, flows: usize) -> Result<(), Error> {
    let packets = bench.size(3_000_000, 20_000);
    if !bench.fits(packets * 112 + 8 * flows * 768 * 2, row, table) {
        return Ok(());
    }
    let mut frames = Frames::continuing(load, packets)?;
    // A short idle timeout reuses slots soon, so that the system provides their memory before the
    // measured rounds.
    let config = Config { idle_timeout_ns: 2_000_000_000, ..config(8 * flows) };
    let (mut without, mut with) = (Metering::without_tcp_analysis(config)?, Metering::new(config)?);
    warm_up(bench, &mut frames, 15_000_000_000, &mut [&mut without, &mut with])?;
    let group = Group::new(row, 0.0)
        .case(NULL, Null)
        .case(DECODED, Decoded::new(flows)?)
        .case(DECODED_ALL, DecodedAll::new(flows)?)
        .case(WITHOUT, without)
        .case(PIPELINE, with);
    group.measure(bench, table, &mut frames, Frames::next_round)
}

fn segments(bench: &mut Bench<'_>, table: &mut Table, flows: usize) -> Result<(), Error> {
    let packets = bench.size((2 * flows).clamp(4 << 20, 8 << 20), 20_000);
    let row = format!("segments: {flows} connections");
    if !bench.fits(6 * packets * size_of::<Packet>() + 8 * flows * 600, &row, table) {
        return Ok(());
    }
    let config = Config { idle_timeout_ns: u64::MAX / 4, active_timeout_ns: u64::MAX / 4, ..config(flows) };
    let with = |kind| Ok::<_, Error>(Segments::new(flows, packets, kind).case(Metering::new(config)?));
    let batches = |backend| {
        let engine = Engine::open(EngineOptions { backend, ..EngineOptions::default() })?;
        Ok::<_, DeviceError>(Segments::new(flows, packets, Kind::Lost).case(Batches { engine, given: 0 }))
    };
    let mut group = Group::new(row, 0.0)
        .case(WITHOUT, Segments::new(flows, packets, Kind::Clean).case(Metering::without_tcp_analysis(config)?))
        .case("in order", with(Kind::Clean)?)
        .case("1 % lost", with(Kind::Lost)?)
        .case("each overlaps the last", with(Kind::Overlapping)?)
        .case("each opens a hole", with(Kind::Holes)?)
        .case("batch engine on the CPU, 1 % lost", batches(Backend::Cpu).expect("the CPU engine always opens"));
    if let Ok(on_gpu) = batches(Backend::Gpu) {
        group = group.case("batch engine on the GPU, 1 % lost", on_gpu);
    }
    group.measure(bench, table, &mut (), |()| Ok(()))
}

/// Faults of the segments.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Clean,
    /// One segment in a hundred is lost, before or after the probe, and retransmitted by the next
    /// packet of its connection.
    Lost,
    /// Each overlaps the last one by ten octets.
    Overlapping,
    /// Each leaves a hole of ten octets, which is never filled.
    Holes,
}

/// A generator of segments of many connections.
struct Segments {
    kind: Kind,
    /// Per connection: the next sequence number, one to retransmit, and the last acknowledgment.
    next: Vec<(u32, Option<u32>, u32)>,
    packets: Vec<Packet>,
    random: u64,
    time_ns: u64,
}

impl Segments {
    fn new(flows: usize, packets: usize, kind: Kind) -> Self {
        let packets = vec![Packet::default(); packets];
        let next = vec![(1, None, 1); flows];
        let mut segments = Self { kind, next, packets, random: 0x1234_5678_9abc_def1, time_ns: 0 };
        segments.refill();
        segments
    }

    fn case<W>(self, work: W) -> OwnLoad<Self, W> {
        let next = |segments: &mut Self| {
            segments.refill();
            Ok(())
        };
        OwnLoad { load: self, work, next }
    }

    fn refill(&mut self) {
        for packet in &mut self.packets {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let flow = ((u128::from(self.random) * self.next.len() as u128) >> 64) as usize;
            let (next, again, acknowledged) = &mut self.next[flow];
            let chance = (self.random >> 7) % 300;
            self.time_ns += 1_000_000_000 / RATE;
            let number = (flow as u32).to_be_bytes();
            let client = (ipv4_mapped([10, number[1], number[2], number[3]]), 40_000);
            let server = (ipv4_mapped([192, 0, 2, number[0]]), 443);
            // No acknowledgment is sent twice.
            let brings = chance >= 100 || acknowledged == next;
            let (from, to) = if brings { (server, client) } else { (client, server) };
            *packet = Packet {
                source: from.0,
                destination: to.0,
                source_port: from.1,
                destination_port: to.1,
                time_ns: self.time_ns,
                ip_bytes: if brings { 1500 } else { 52 },
                frame_bytes: if brings { 1514 } else { 66 },
                protocol: 6,
                ttl: 64,
                control: Packet::ACK,
                flags: Flags(Flags::PORTS | Flags::TCP),
                sequence: 1,
                acknowledgment: if brings { 1 } else { *next },
                identification: (self.random >> 20) as u32 & 0xffff,
                window: 1000,
                ..Packet::default()
            };
            if !brings {
                *acknowledged = *next;
                continue;
            }
            packet.payload_bytes = 1448;
            if self.kind == Kind::Holes {
                *next = next.wrapping_add(10);
            }
            if let Some(lost) = again.take() {
                packet.sequence = lost;
                continue;
            }
            let lost = self.kind == Kind::Lost && (100..102).contains(&chance);
            if lost {
                *again = Some(*next);
                if chance == 101 {
                    *next = next.wrapping_add(1448);
                }
            }
            packet.sequence = next.wrapping_sub(if self.kind == Kind::Overlapping { 10 } else { 0 });
            *next = packet.sequence.wrapping_add(1448);
        }
    }
}

impl AsRef<[Packet]> for Segments {
    fn as_ref(&self) -> &[Packet] {
        &self.packets
    }
}

struct Batches {
    engine: Engine,
    given: u64,
}

impl<L: AsRef<[Packet]>> Work<L> for Batches {
    fn run(&mut self, load: &mut L) -> Result<Run, Error> {
        let (packets, mut done) = (load.as_ref(), Vec::new());
        let ((), seconds) = timed(|| self.engine.enter(packets, &mut done));
        self.given += packets.len() as u64;
        Ok(Run::new(packets.len() as u64, seconds))
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        let mut done = Vec::new();
        let counters = self.engine.finish(&mut done);
        let found: u64 = done.iter().flat_map(|done| &done.reports).map(|report| report.report().segments()).sum();
        if found == self.given {
            // Of all rounds, in the order of the engine's stages.
            const STAGES: [&str; 6] = ["pack ns", "hash ns", "sort ns", "gather ns", "classify ns", "device ns"];
            let times = counters.times.stages().map(|(_, time)| time.as_nanos() as f64 / self.given as f64);
            let mut facts: Vec<Fact> = STAGES.into_iter().zip(times).filter(|(_, ns)| *ns > 0.0).collect();
            facts.push(("engine MiB", counters.memory_bytes as f64 / f64::from(1 << 20)));
            Ok(facts)
        } else {
            Err(CountMismatch(format!("{} packets given, {found} analysed", self.given)))
        }
    }
}
