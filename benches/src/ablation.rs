//! What each idea of the meter is worth: prefetch, batches, counters of its own, groups of features,
//! switched off one after another.

use crate::parallel::Parallel;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_bench::error::{CountMismatch, Error};
use weir_bench::frames::Frames;
use weir_bench::load::{DecodedPackets, config, required_bytes, velan};
use weir_bench::measure::{Bench, Fact, Group, Run, Work, timed};
use weir_bench::meter::decode;
use weir_bench::report::{PIPELINE, Table};
use weir_capture::MAX_BURST_FRAMES;
use weir_flow::{Config, Detail, FlowRecord, Meter};
use weir_packet::Packet;

/// The meter as it is, then without each.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "packets decoded before: synth:velan in random order by number of flows, and synth:mix (TCP); two \
                meters, a thread each, for the shared counter";
    let mut table = Table::new("ablation", "The meter, and one idea less at a time", "load", load);
    (table.logarithmic, table.clock, table.against) = (false, "wall clock", vec![PIPELINE]);
    let counts = if bench.quick { &[1024][..] } else { &[16_384, 131_072, 1 << 20, 1 << 22] };
    let mut loads: Vec<_> = counts.iter().map(|&flows| (velan(flows), flows, 1)).collect();
    let flows = bench.size(100_000, 1000);
    loads.push((format!("mix,flows={flows},snap=96"), 4 * flows, 1));
    loads.push((velan(flows), flows, 2));
    for (specification, flows, threads) in loads {
        let packets = bench.size((2 * flows).clamp(4 << 20, 8 << 20), 20_000);
        let profile = specification.split(',').next().unwrap_or_default();
        let row = format!("{profile}, {flows} flows, {threads} threads");
        if !bench.fits(threads * (3 * required_bytes(packets, flows)), &row, &mut table) {
            continue;
        }
        let mut packets: Vec<_> = (0..threads).map(|_| decoded(&specification, packets)).collect::<Result<_, _>>()?;
        let usual = config(flows);
        let case = |config, change: &dyn Fn(&mut Metering)| {
            let meters = (0..threads).map(|_| {
                let mut metering = Metering::new(config)?;
                change(&mut metering);
                Ok(metering)
            });
            meters.collect::<Result<Vec<_>, Error>>().map(Parallel)
        };
        let counter = Arc::new(AtomicU64::new(0));
        let without_tcp = Detail { tcp_analysis: false, ..Detail::ALL };
        Group::new(row, 0.0)
            .case(PIPELINE, case(usual, &|_| ())?)
            .case("no prefetch", case(Config { prefetch_packets: 1, ..usual }, &|_| ())?)
            .case("batches of 8", case(usual, &|metering| metering.batch = 8)?)
            .case("no batches", case(usual, &|metering| metering.batch = 1)?)
            .case("shared counter", case(usual, &|metering| metering.shared = Some(counter.clone()))?)
            .case("no TCP analysis", case(usual, &|metering| metering.meter.set_detail(without_tcp))?)
            .measure(bench, &mut table, &mut packets, |loads| {
                loads.iter_mut().try_for_each(DecodedPackets::next_round)
            })?;
    }
    Ok(table)
}

fn decoded(specification: &str, packets: usize) -> Result<DecodedPackets, Error> {
    let frames = Frames::new(specification, packets)?;
    let decoded = |frame| {
        let mut packet = Packet::default();
        decode(&frame, &mut packet).then_some(packet)
    };
    Ok(DecodedPackets { packets: frames.iter().filter_map(decoded).collect(), span_ns: frames.span_ns })
}

/// A meter, and what is different.
struct Metering {
    meter: Meter,
    /// Packets that it gets at once.
    batch: usize,
    /// A counter of all threads that each packet increments.
    shared: Option<Arc<AtomicU64>>,
    records: Vec<FlowRecord>,
    /// Packets of all rounds, and those of records that have ended.
    given: u64,
    ended: u64,
}

impl Metering {
    fn new(config: Config) -> Result<Self, Error> {
        let meter = Meter::new(config).map_err(|error| Error::Memory(Meter::memory_bytes_for(&config), error))?;
        Ok(Self { meter, batch: MAX_BURST_FRAMES, shared: None, records: Vec::new(), given: 0, ended: 0 })
    }
}

impl Work<DecodedPackets> for Metering {
    fn run(&mut self, load: &mut DecodedPackets) -> Result<Run, Error> {
        let ((), seconds) = timed(|| {
            for batch in load.packets.chunks(self.batch) {
                if let Some(counter) = &self.shared {
                    batch.iter().for_each(|_| _ = counter.fetch_add(1, Ordering::Relaxed));
                }
                self.meter.process(batch, &mut self.records);
                self.ended += self.records.drain(..).map(|record| record.packets()).sum::<u64>();
            }
        });
        self.given += load.packets.len() as u64;
        Ok(Run::new(load.packets.len() as u64, seconds))
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        let found = self.meter.open_records().packets + self.ended + self.meter.counters().dropped_packets;
        match found == self.given {
            true => Ok(vec![]),
            false => Err(CountMismatch(format!("{} packets given, {found} found", self.given))),
        }
    }
}
