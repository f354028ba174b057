//! The cost of handing packets on: actions of rules from memory into outputs that do nothing, and over
//! virtual interfaces beside a plain forwarder.

use std::sync::{Arc, Mutex, MutexGuard};
use weir_bench::error::{CountMismatch, Error};
use weir_bench::frames::Frames;
use weir_bench::live::{MIX, RECEIVING_END, Traffic, VethPair, veth_pair};
use weir_bench::load::{config, warm_up};
use weir_bench::measure::{Bench, Fact, Group, Run, Work, timed};
use weir_bench::meter::Fused;
use weir_bench::report::{PIPELINE, Table};
use weir_capture::{Burst, Frame, LiveSource, MAX_BURST_FRAMES, Progress, Source};
use weir_egress::{Balance, Egress, OutputSettings, OutputSpec, PacketOutput};
use weir_flow::Config;
use weir_ledger::OutputCounters;
use weir_probe::{CpuAffinity, PacketActions};
use weir_rules::Rules;

/// Receives and sends, and does nothing else.
const FORWARDER: &str = "plain forwarder";
/// The rules that are compared, as `[default]` of a rules file.
const RULES: [(&str, &str); 4] =
    [("drop all", "action = 'drop'"), ("shunt 10", "shunt = 10"), ("slice l4", "slice = 'l4'"), (ALL, "")];
const ALL: &str = "forward all";
const COPIED: &str = "forward all, one copy";
const IDLE_TIMEOUT_NS: u64 = 10_000_000_000;
/// Octets in which an output that copies stores frames, one after another: the size of a pipe's queue.
const COPY_OCTETS: usize = 16 << 20;

/// Ends of the pair through which packets are forwarded.
const OUTGOING: [&str; 2] = ["out", "far"];
/// Frames that are sent before they are received: fewer than the smallest ring holds.
const WAITING_FRAMES: u64 = 2048;
/// Bursts without frames after which those that are missing are lost. Each takes the poll timeout.
const MAX_EMPTY_BURSTS: u32 = 50;
const SCHEMES: [&str; 2] = ["af_packet", "af_xdp"];

/// The pipeline without rules, and with each action.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "synth:mix, whole frames, without packet inspection. From memory: outputs that only count, or copy each \
                frame once. Over interfaces: 2048 frames are sent into a veth pair, then received at its other end and \
                forwarded into another pair; the sending is not timed";
    let mut table = Table::new("egress", "Handing packets on", "load", load);
    table.logarithmic = false;
    table.against = vec![PIPELINE, FORWARDER];
    for (flows, packets) in if bench.quick { &[(300, 20_000)][..] } else { &[(10_000, 500_000), (100_000, 500_000)] } {
        from_memory(bench, &mut table, *flows, *packets)?;
    }
    if let Err(error) = over_interfaces(bench, &mut table) {
        if matches!(error, Error::LostCount { .. }) {
            return Err(error);
        }
        table.notes.push(format!("SKIPPED: over interfaces: {error}"));
    }
    Ok(table)
}

fn from_memory(bench: &mut Bench<'_>, table: &mut Table, flows: usize, packets: usize) -> Result<(), Error> {
    let row = format!("memory, {flows} flows");
    let config = Config { idle_timeout_ns: IDLE_TIMEOUT_NS, ..config(4 * flows) };
    if !bench.fits(1600 * packets + 6 * 256 * config.flows as usize, &row, table) {
        return Ok(());
    }
    (bench.say)(&format!("egress: {row}: warming up until flows end as fast as they begin"));
    let mut cases = vec![(PIPELINE, Fused::new(config)?)];
    for (series, rules) in RULES {
        cases.push((series, with_rules(config, rules, Box::new(Counting::default()))?));
    }
    let copying = Counting { copies: vec![0; COPY_OCTETS], ..Counting::default() };
    cases.push((COPIED, with_rules(config, "", Box::new(copying))?));
    let mut frames = Frames::continuing(&format!("mix,flows={flows}"), packets)?;
    let mut work: Vec<&mut dyn Work<Frames>> = cases.iter_mut().map(|(_, case)| case as _).collect();
    warm_up(bench, &mut frames, IDLE_TIMEOUT_NS + 2_000_000_000, &mut work)?;
    let group = cases.into_iter().fold(Group::new(row, 0.0), |group, (series, case)| group.case(series, case));
    group.measure(bench, table, &mut frames, Frames::next_round)
}

/// A pipeline with rules that has one output.
fn with_rules(config: Config, rules: &str, output: Box<dyn PacketOutput>) -> Result<Fused, Error> {
    let rules = format!("[egress.out]\noutputs = ['pcap:-']\n[default]\n{rules}\n");
    let rules = Rules::new(&rules).map_err(|invalid| Error::Consumer(format!("{invalid:?}")))?;
    let egress = Egress::new(vec![output], Balance::default(), 0);
    let actions = PacketActions::new(Arc::new(rules), vec![egress]);
    Fused::with_actions(config, Some(actions))
}

/// An output that counts frames, and copies them if it has memory for that.
#[derive(Default)]
struct Counting {
    counters: OutputCounters,
    copies: Vec<u8>,
    next: usize,
}

impl PacketOutput for Counting {
    fn send(&mut self, frames: &[Frame<'_>]) {
        for frame in frames {
            self.counters.sent.add(frame.bytes.len());
            if frame.bytes.len() <= self.copies.len() {
                let end = self.next + frame.bytes.len();
                let range = if end <= self.copies.len() { self.next..end } else { 0..frame.bytes.len() };
                self.next = range.end;
                self.copies[range].copy_from_slice(frame.bytes);
            }
        }
    }

    fn counters(&self) -> OutputCounters {
        self.counters.clone()
    }
}

/// For each kind of socket, the cases in turn on the same interfaces.
fn over_interfaces(bench: &mut Bench<'_>, table: &mut Table) -> Result<(), Error> {
    let veth = VethPair::create(CpuAffinity::default())?;
    veth_pair(OUTGOING)?;
    let mut link = Link { veth, traffic: Traffic::load(MIX)?, chunks: bench.size(100, 1) };
    for scheme in SCHEMES {
        let row = format!("veth, {scheme}");
        let output = match link.open(scheme) {
            Ok((_, output)) => Shared::new(output),
            Err(error) => {
                table.notes.push(format!("SKIPPED: {row}: {error}"));
                continue;
            }
        };
        let config = Config { idle_timeout_ns: 1_000_000_000, ..Config::default() };
        let case = |work| OverLink { scheme, output: output.clone(), work };
        let mut group = Group::new(row, 0.0)
            .case("null consumer", case(Consumer::Null))
            .case(FORWARDER, case(Consumer::Forwarder))
            .case(PIPELINE, case(Consumer::Pipeline(Box::new(Fused::new(config)?))));
        for (series, rules) in RULES {
            let fused = with_rules(config, rules, Box::new(output.clone()))?;
            group = group.case(series, case(Consumer::Pipeline(Box::new(fused))));
        }
        group.measure(bench, table, &mut link, |_| Ok(()))?;
    }
    Ok(())
}

/// Two pairs of interfaces: frames come from the first, and go to the second.
struct Link {
    veth: VethPair,
    traffic: Traffic,
    /// How often [`WAITING_FRAMES`] are sent in a round.
    chunks: usize,
}

type Opened = (Box<dyn LiveSource + Send>, Box<dyn PacketOutput>);

impl Link {
    fn open(&self, scheme: &str) -> Result<Opened, Error> {
        let output: OutputSpec = format!("{scheme}:{}", OUTGOING[0]).parse().map_err(output_error)?;
        let mut outputs = weir_egress::open(&output, &[], 1, &OutputSettings::default()).map_err(output_error)?;
        Ok((open_source(scheme)?, outputs.remove(0)))
    }

    /// Sends this many frames.
    fn send(&mut self, mut frames: u64) -> Result<(), Error> {
        while frames > 0 {
            let mut burst = [&[][..]; MAX_BURST_FRAMES];
            let count = self.traffic.burst(frames.min(MAX_BURST_FRAMES as u64) as usize, &mut burst);
            self.veth.send_all(&burst[..count])?;
            frames -= count as u64;
        }
        Ok(())
    }
}

fn output_error(error: weir_egress::Error) -> Error {
    Error::Consumer(error.to_string())
}

fn open_source(scheme: &str) -> Result<Box<dyn LiveSource + Send>, Error> {
    let name = format!("{scheme}:{RECEIVING_END}");
    let mut queues = name.parse::<weir_capture::LiveSpec>()?.open()?;
    queues.pop().filter(|_| queues.is_empty()).ok_or(Error::SeveralQueues(name))
}

/// An output that several cases use, one after another.
#[derive(Clone)]
struct Shared(Arc<Mutex<Box<dyn PacketOutput>>>);

impl Shared {
    fn new(output: Box<dyn PacketOutput>) -> Self {
        Self(Arc::new(Mutex::new(output)))
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn PacketOutput>> {
        self.0.lock().expect("no case panics")
    }
}

impl PacketOutput for Shared {
    fn send(&mut self, frames: &[Frame<'_>]) {
        self.lock().send(frames);
    }

    fn counters(&self) -> OutputCounters {
        self.lock().counters()
    }
}

/// What receives frames.
enum Consumer {
    Null,
    Forwarder,
    Pipeline(Box<Fused>),
}

struct OverLink {
    scheme: &'static str,
    output: Shared,
    work: Consumer,
}

impl Work<Link> for OverLink {
    fn run(&mut self, link: &mut Link) -> Result<Run, Error> {
        let mut source = open_source(self.scheme)?;
        let (before, far_before) = (self.output.counters(), weir_bench::live::received(OUTGOING[1])?);
        let (mut seconds, mut read) = (0.0, [0; 2]);
        for _ in 0..link.chunks {
            link.send(WAITING_FRAMES)?;
            let mut arrived = Arrived { source: &mut *source, left: WAITING_FRAMES, empty: 0, read: &mut read };
            seconds += match &mut self.work {
                Consumer::Pipeline(fused) => fused.process(arrived)?,
                Consumer::Null => timed(|| while let Ok(Some(_)) = arrived.burst() {}).1,
                Consumer::Forwarder => {
                    let forward = || {
                        while let Ok(Some(burst)) = arrived.burst() {
                            self.output.send(&burst);
                        }
                    };
                    timed(forward).1
                }
            };
        }
        if let Consumer::Pipeline(fused) = &mut self.work {
            fused.add_given(read);
            fused.check_round()?;
        }
        let packets = link.chunks as u64 * WAITING_FRAMES;
        let (after, far_after) = (self.output.counters(), weir_bench::live::received(OUTGOING[1])?);
        let handed_on = after.total().packets - before.total().packets;
        let counts = [read[0], handed_on, after.waiting.packets];
        if counts != [packets, far_after - far_before, 0] {
            let what = format!(
                "{packets} frames sent, {} read; {handed_on} forwarded, {} at the far end",
                read[0],
                far_after - far_before
            );
            return Err(CountMismatch(what).in_case(format!("egress, {}", self.scheme)));
        }
        let facts = vec![("forwarded/1000 packets", handed_on as f64 * 1e3 / packets as f64)];
        Ok(Run { facts, ..Run::new(packets, seconds) })
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        match self.work {
            Consumer::Pipeline(fused) => fused.finish(),
            Consumer::Null | Consumer::Forwarder => Ok(vec![]),
        }
    }
}

/// Frames that have arrived at a source, as a source that ends.
struct Arrived<'a> {
    source: &'a mut (dyn LiveSource + Send),
    left: u64,
    empty: u32,
    /// Frames that were read, and their octets on the wire.
    read: &'a mut [u64; 2],
}

impl Source for Arrived<'_> {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, weir_capture::Error> {
        if self.left == 0 || self.empty == MAX_EMPTY_BURSTS {
            return Ok(false);
        }
        let more = self.source.fill(burst)?;
        self.empty += u32::from(burst.is_empty());
        self.left = self.left.saturating_sub(burst.len() as u64);
        self.read[0] += burst.len() as u64;
        self.read[1] += burst.iter().map(|frame| u64::from(frame.wire_bytes)).sum::<u64>();
        Ok(more)
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }
}
