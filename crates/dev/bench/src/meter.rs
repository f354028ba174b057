//! Meters as cases: the whole pipeline as `weir read` runs it, and decoder and meter without it.

use crate::error::{CountMismatch, Error};
use crate::frames::Frames;
use crate::measure::{Fact, Run, Work, timed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use weir_capture::{Frame, Input, MAX_BURST_FRAMES, Source};
use weir_export::Sink;
use weir_flow::{Config, Detail, FlowRecord, Meter};
use weir_ledger::{InspectionCounters, Ledger, RecordTotals, SinkCounters};
use weir_packet::{Network, Packet};
use weir_probe::{BackPressure, CpuAffinity, Exporter, PacketActions, Pipeline, Settings};

/// Records that are counted together.
const BATCH: usize = 128;

fn no_memory(config: Config, error: std::io::Error) -> Error {
    Error::Memory(Meter::memory_bytes_for(&config), error)
}

/// One pipeline from frames to records, which are counted and discarded.
pub struct Fused {
    pipeline: Pipeline,
    exporter: Exporter,
    /// Packets and octets of all rounds.
    given: [u64; 2],
    created: u64,
    /// Counters of inspection before this round.
    inspection: InspectionCounters,
}

impl Fused {
    /// A pipeline with this meter.
    pub fn new(meter: Config) -> Result<Self, Error> {
        Self::with_actions(meter, None)
    }

    /// The same with what is done with packets.
    pub fn with_actions(meter: Config, actions: Option<PacketActions>) -> Result<Self, Error> {
        let settings = Settings { meter, ..Settings::default() };
        let failed = |error| no_memory(meter, error);
        let exporter = Exporter::new(
            vec![Box::new(CountingSink::default())],
            CpuAffinity::default(),
            BackPressure::Block,
            &settings,
        )
        .map_err(failed)?;
        let pipeline = Pipeline::new(settings, exporter.handle(), actions).map_err(failed)?;
        Ok(Self { pipeline, exporter, given: [0; 2], created: 0, inspection: InspectionCounters::default() })
    }

    /// Checks that all packets and octets are in the ledger.
    fn check(given: [u64; 2], ledger: &Ledger) -> Result<(), CountMismatch> {
        CountMismatch::check(ledger)?;
        let received = [ledger.packets.received, ledger.bytes.received];
        if received != given {
            return Err(CountMismatch(format!("packets and octets: {given:?} given, {received:?} received")));
        }
        Ok(())
    }

    /// Processes all frames of a source. Returns the time that this took, s.
    pub fn process(&mut self, source: impl Source + Send) -> Result<f64, Error> {
        let mut source = Input::File(Box::new(source));
        let (result, seconds) = timed(|| {
            while self.pipeline.process_burst(&mut source)? {}
            Ok::<_, weir_capture::Error>(())
        });
        result?;
        Ok(seconds)
    }

    /// Notes packets and octets that the pipeline got.
    pub fn add_given(&mut self, read: [u64; 2]) {
        self.given[0] += read[0];
        self.given[1] += read[1];
    }

    /// Checks the counters after a round. All that the pipeline got has to be noted before.
    pub fn check_round(&mut self) -> Result<Ledger, Error> {
        let ledger = self.exporter.ledger([self.pipeline.account()]);
        Self::check(self.given, &ledger).map_err(|mismatch| mismatch.in_case("a round"))?;
        Ok(ledger)
    }

    /// Checks the counters after a round, in which the pipeline got these frames and perhaps others.
    /// `seconds` is the time that these frames took. All that it got has to be noted before.
    pub fn finish_round(&mut self, frames: &Frames, seconds: f64) -> Result<Run, Error> {
        let ledger = self.check_round()?;
        let created = ledger.flows_created - std::mem::replace(&mut self.created, ledger.flows_created);
        let mut facts = vec![
            ("records live", ledger.live.flows as f64),
            ("new records/s of capture", created as f64 * 1e9 / frames.span_ns as f64),
            ("new records/s of run time", created as f64 / seconds),
        ];
        let before = std::mem::replace(&mut self.inspection, ledger.inspection);
        if ledger.inspection.flows > 0 {
            let per_1000 = |now: u64, before: u64| (now - before) as f64 * 1e3 / frames.packets as f64;
            facts.extend([
                ("inspected/1000 packets", per_1000(ledger.inspection.flows, before.flows)),
                ("recognised/1000 packets", per_1000(ledger.inspection.recognised, before.recognised)),
                ("evicted/1000 packets", per_1000(ledger.inspection.evicted, before.evicted)),
            ]);
        }
        Ok(Run { facts, ..Run::new(frames.packets, seconds) })
    }
}

impl Work<Frames> for Fused {
    fn run(&mut self, frames: &mut Frames) -> Result<Run, Error> {
        self.add_given([frames.packets, frames.wire_bytes]);
        let seconds = self.process(frames.iter())?;
        self.finish_round(frames, seconds)
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        let Self { mut pipeline, mut exporter, given, .. } = *self;
        let account = pipeline.finish();
        exporter.finish();
        let ledger = exporter.ledger([account]);
        Self::check(given, &ledger)?;
        if ledger.live.flows != 0 {
            return Err(CountMismatch(format!("{} records left after the end", ledger.live.flows)));
        }
        Ok(vec![])
    }
}

/// Sink that counts records and discards them.
#[derive(Default)]
pub struct CountingSink {
    counters: SinkCounters,
    /// When it last received records.
    pub last_write: Arc<Mutex<Option<Instant>>>,
}

impl Sink for CountingSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), weir_export::Error> {
        *self.last_write.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        flows.iter().for_each(|flow| self.counters.exported.add(flow.packets(), flow.frame_bytes()));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), weir_export::Error> {
        Ok(())
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }
}

/// Decoder and meter, and their balance.
pub struct Metering {
    meter: Meter,
    out: Vec<FlowRecord>,
    /// Frames of all rounds.
    received: u64,
    /// Packets and octets that the meter received.
    given: RecordTotals,
    /// Records that have ended.
    ended: RecordTotals,
}

impl Metering {
    /// A meter with this configuration.
    pub fn new(config: Config) -> Result<Self, Error> {
        Ok(Self {
            meter: Meter::new(config).map_err(|error| no_memory(config, error))?,
            out: Vec::with_capacity(2 * BATCH),
            received: 0,
            given: RecordTotals::default(),
            ended: RecordTotals::default(),
        })
    }

    /// The same without TCP analysis.
    pub fn without_tcp_analysis(config: Config) -> Result<Self, Error> {
        let mut metering = Self::new(config)?;
        metering.meter.set_detail(Detail { tcp_analysis: false, ..Detail::ALL });
        Ok(metering)
    }

    #[inline(always)]
    fn process(&mut self, burst: &[Packet]) {
        self.given.packets += burst.len() as u64;
        self.given.bytes += burst.iter().map(|packet| u64::from(packet.frame_bytes)).sum::<u64>();
        self.meter.process(burst, &mut self.out);
        if self.out.len() >= BATCH {
            self.discard_records();
        }
    }

    /// Counts the records that have ended, and discards them.
    fn discard_records(&mut self) {
        self.out.drain(..).for_each(|flow| self.ended.add(flow.packets(), flow.frame_bytes()));
    }

    /// Checks that every packet is in a record, or was dropped and counted.
    fn check(&self) -> Result<(), CountMismatch> {
        let counters = self.meter.counters();
        let mut records = self.meter.open_records();
        records.merge(self.ended);
        self.out.iter().for_each(|flow| records.add(flow.packets(), flow.frame_bytes()));
        let found = [records.packets + counters.dropped_packets, records.bytes + counters.dropped_bytes];
        if found != [self.given.packets, self.given.bytes] {
            return Err(CountMismatch(format!(
                "packets and octets: {:?} given, {found:?} found",
                [self.given.packets, self.given.bytes]
            )));
        }
        if self.given.packets != self.received {
            return Err(CountMismatch(format!("{} frames, {} packets", self.received, self.given.packets)));
        }
        Ok(())
    }

    fn round(&mut self, packets: u64, work: impl FnOnce(&mut Self)) -> Result<Run, Error> {
        self.received += packets;
        let ((), seconds) = timed(|| work(self));
        self.check().map_err(|mismatch| mismatch.in_case("a round"))?;
        let facts = vec![("records live", self.meter.open_records().flows as f64)];
        Ok(Run { facts, ..Run::new(packets, seconds) })
    }

    /// Figures of the flow cache; ends all records and checks their totals.
    fn close(mut self) -> Result<Vec<Fact>, CountMismatch> {
        let facts = vec![
            ("longest search", self.meter.longest_chain() as f64),
            ("flow cache MiB", self.meter.memory_bytes()[0] as f64 / f64::from(1 << 20)),
        ];
        while self.meter.drain_up_to(BATCH, &mut self.out) {
            self.discard_records();
        }
        self.discard_records();
        self.check()?;
        let left = self.meter.open_records().flows;
        if left == 0 { Ok(facts) } else { Err(CountMismatch(format!("{left} records left after the end"))) }
    }
}

/// Decodes a frame. Returns false if it has no IP packet.
#[inline(always)]
pub fn decode(frame: &Frame<'_>, packet: &mut Packet) -> bool {
    packet.time_ns = frame.time_ns;
    packet.interface = frame.interface;
    let notes = weir_packet::decode(frame.link_type, frame.bytes, frame.wire_bytes, Default::default(), packet);
    notes.is_ok() && packet.network != Network::Layer2
}

/// Decodes frames and hands their packets on in bursts. Leaves out frames without an IP packet.
#[inline(always)]
pub fn decode_bursts<'a>(
    frames: impl Iterator<Item = Frame<'a>>,
    packets: &mut [Packet; MAX_BURST_FRAMES],
    mut process: impl FnMut(&[Packet]),
) {
    let mut filled = 0;
    for frame in frames {
        filled += usize::from(decode(&frame, &mut packets[filled]));
        if filled == MAX_BURST_FRAMES {
            process(packets);
            filled = 0;
        }
    }
    process(&packets[..filled]);
}

impl Work<Frames> for Metering {
    fn run(&mut self, frames: &mut Frames) -> Result<Run, Error> {
        let mut packets = [Packet::default(); MAX_BURST_FRAMES];
        let meter = |metering: &mut Self| decode_bursts(frames.iter(), &mut packets, |burst| metering.process(burst));
        self.round(frames.packets, meter)
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        self.close()
    }
}

/// The meter alone: what a NIC that delivers parsed headers would leave to the CPU.
impl<L: AsRef<[Packet]>> Work<L> for Metering {
    fn run(&mut self, load: &mut L) -> Result<Run, Error> {
        let packets = load.as_ref();
        let bursts = packets.chunks(MAX_BURST_FRAMES);
        self.round(packets.len() as u64, |metering| bursts.for_each(|burst| metering.process(burst)))
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        self.close()
    }
}
