//! The stages of a pipeline: what each one adds to the cost of a packet.

use crate::hardware_counters::{HardwareCounters, energy_joules, facts};
use std::hint::black_box;
use weir_bench::ceiling::Null;
use weir_bench::error::{CountMismatch, Error};
use weir_bench::frames::Frames;
use weir_bench::load::{config, velan};
use weir_bench::measure::{Bench, Fact, Group, Run, Work, timed};
use weir_bench::meter::{Fused, Metering, decode};
use weir_bench::report::{PIPELINE, Table};
use weir_capture::MAX_BURST_FRAMES;
use weir_packet::Packet;

/// Stages of UDP traffic and of the internet mix. Each case has those of the case before.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "frames from memory: synth:velan with 131 072 flows, synth:mix with 100 000 conversations trimmed to 96 octets. Each \
                case has the stages of the one before and one more: the cost of a stage is the difference. Encoding runs on \
                another thread (table encode)";
    let mut table = Table::new("stages", "Stages of the pipeline", "load", load);
    table.logarithmic = false;
    table.against = vec![PIPELINE];
    if let Err(error) = HardwareCounters::open() {
        table
            .notes
            .push(format!("no instructions and cycles: this machine has no hardware counters for programs ({error})"));
    }
    if energy_joules().is_none() {
        table.notes.push("no energy: /sys/class/powercap has no package, or may not be read".into());
    }
    let (udp, mix) = (bench.size(131_072, 1000), bench.size(100_000, 1000));
    for (row, specification, flows) in
        [("UDP, 64 octets", velan(udp), udp), ("mix", format!("mix,flows={mix},snap=96"), 4 * mix)]
    {
        let packets = bench.size(4 << 20, 20_000);
        if !bench.fits(packets * 112 + flows * 800, row, &mut table) {
            continue;
        }
        let mut frames = Frames::continuing(&specification, packets)?;
        let without = Metering::without_tcp_analysis(config(flows))?;
        Group::new(row, 0.0)
            .case("read", Counted::new(Null))
            .case("+ decode", Counted::new(Decode(Box::new([Packet::default(); MAX_BURST_FRAMES]))))
            .case("+ meter without TCP analysis", Counted::new(without))
            .case("+ TCP analysis", Counted::new(Metering::new(config(flows))?))
            .case(PIPELINE, Counted::new(Fused::new(config(flows))?))
            .measure(bench, &mut table, &mut frames, Frames::next_round)?;
    }
    Ok(table)
}

/// Decodes and does nothing else.
struct Decode(Box<[Packet; MAX_BURST_FRAMES]>);

impl Work<Frames> for Decode {
    fn run(&mut self, frames: &mut Frames) -> Result<Run, Error> {
        let ((), seconds) = timed(|| {
            let mut at = 0;
            for frame in frames.iter() {
                decode(&frame, &mut self.0[at]);
                at = (at + 1) % MAX_BURST_FRAMES;
                if at == 0 {
                    black_box(&self.0);
                }
            }
        });
        Ok(Run::new(frames.packets, seconds))
    }
}

/// A case with instructions, cycles and energy.
struct Counted<W>(W, Option<HardwareCounters>);

impl<W> Counted<W> {
    fn new(work: W) -> Self {
        Self(work, HardwareCounters::open().ok())
    }
}

impl<W: Work<Frames>> Work<Frames> for Counted<W> {
    fn run(&mut self, frames: &mut Frames) -> Result<Run, Error> {
        let before = energy_joules();
        let (run, counts) = match &mut self.1 {
            Some(counters) => {
                let counted = counters.count(|| self.0.run(frames));
                let (run, counts) = counted.map_err(Error::io("hardware counters"))?;
                (run?, Some(counts))
            }
            None => (self.0.run(frames)?, None),
        };
        let joules = before.zip(energy_joules()).map(|(before, after)| after - before);
        Ok(Run { facts: facts(counts, joules, run.packets), ..run })
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        Box::new(self.0).finish().map(|_| vec![])
    }
}
