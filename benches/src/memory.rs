//! Latency and bandwidth of the memory, and the rate that the meter's accesses to it permit.
//!
//! Latency is that of a pointer chase: the next address is in the line that was read last, and the
//! lines are in an order that no hardware prefetcher foresees. The *pattern* reads and writes the lines
//! that the meter needs for a packet of a known flow, and does nothing else: its rate is the floor of
//! the machine for a meter of this layout.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::hint::black_box;
use weir_bench::ceiling::{FlowLines, MeterLines};
use weir_bench::error::{CountMismatch, Error};
use weir_bench::mapped_array::{LINE_BYTES, Line, MappedArray, Pages};
use weir_bench::measure::{Bench, Fact, Group, Run, Work, timed};
use weir_bench::report::Table;

const ONE_CHAIN: &str = "1 chain";
/// Packets that the meter processes together.
const BURST: usize = 64;

/// Pointer chases through 16 KiB to 1 GiB, several at once, bandwidth, and the meter's pattern.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "latency: one chain of dependent reads, one per line of 64 octets. Chains: several at once. Bandwidth: one thread. \
                Pattern: the lines that the meter reads and writes for a packet of a random flow, prefetched for 64 packets at \
                a time as in the meter, without frames, decoder and keys";
    let mut table = Table::new("memory", "Memory latency and bandwidth", "access", load);
    table.logarithmic = false;
    table.item = "line";
    table.against = vec![ONE_CHAIN];
    let largest = bench.size(1 << 30, 1 << 20);
    let nodes = nodes();
    if nodes.len() < 2 {
        table.notes.push("one NUMA node: no remote memory to measure".into());
    }
    for kib in [16, 256, 1024, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20] {
        let bytes = kib << 10;
        if bytes > largest || !bench.fits(3 * bytes, &units(bytes), &mut table) {
            continue;
        }
        let mut group = Group::new(format!("latency, {}", units(bytes)), 0.0);
        for (series, pages) in [("2 MiB pages", Pages::Huge), ("4 KiB pages", Pages::Small)] {
            group = group.case(series, Chase::<1>::new(bench, Chain::new(bytes, pages)?));
        }
        if let [local, remote, ..] = &nodes[..] {
            for (series, node) in [("local node", local), ("remote node", remote)] {
                let chain = on_cpus(node, || Chain::new(bytes, Pages::Huge))?;
                group = group.case(series, OnCpus(*local, Chase::<1>::new(bench, chain)));
            }
        }
        group.measure(bench, &mut table, &mut (), |()| Ok(()))?;
    }
    if bench.fits(3 * largest, "chains and bandwidth", &mut table) {
        let chain = || Chain::new(largest, Pages::Huge);
        Group::new(format!("chains, {}", units(largest)), 0.0)
            .case(ONE_CHAIN, Chase::<1>::new(bench, chain()?))
            .case("4 chains", Chase::<4>::new(bench, chain()?))
            .case("16 chains", Chase::<16>::new(bench, chain()?))
            .case("64 chains", Chase::<64>::new(bench, chain()?))
            .measure(bench, &mut table, &mut (), |()| Ok(()))?;
        let mut arrays = [MappedArray::new(largest / LINE_BYTES)?, MappedArray::new(largest / LINE_BYTES)?];
        Group::new(format!("bandwidth, {}", units(largest)), 0.0)
            .case("read", Bandwidth(read))
            .case("write", Bandwidth(write))
            .case("copy", Bandwidth(copy))
            .measure(bench, &mut table, &mut arrays, |_| Ok(()))?;
    }
    for (flows, tcp) in
        [(131_072, false), (1 << 20, false), (10_000_000, false), (100_000, true), (300_000, true), (1 << 20, true)]
    {
        let flows = bench.size(flows, flows / 1000);
        let row = format!("pattern, {flows} {} flows", if tcp { "TCP" } else { "UDP" });
        if bench.fits(flows * (192 + 448 * usize::from(tcp) + 16), &row, &mut table) {
            Group::new(row, 0.0)
                .case("64 packets at a time", Pattern::new(flows, tcp, bench.size(2 << 20, 64 * BURST))?)
                .measure(bench, &mut table, &mut (), |()| Ok(()))?;
        }
    }
    Ok(table)
}

fn units(bytes: usize) -> String {
    match bytes {
        ..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// The CPUs of each NUMA node on which this thread may run.
fn nodes() -> Vec<CpuSet> {
    let Ok(permitted) = sched_getaffinity(None) else { return vec![] };
    let lists =
        (0..64).filter_map(|node| fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist")).ok());
    let cpus = |list: String| {
        let mut cpus = CpuSet::new();
        for range in list.trim().split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (Ok(first), Ok(last)) = (first.parse(), last.parse::<usize>()) else { continue };
            (first..=last).filter(|&cpu| cpu < CpuSet::MAX_CPU && permitted.is_set(cpu)).for_each(|cpu| cpus.set(cpu));
        }
        cpus
    };
    lists.map(cpus).filter(|cpus| cpus.count() > 0).collect()
}

/// Runs `work` on some CPUs. What it touches first is memory of their node.
fn on_cpus<T>(cpus: &CpuSet, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let before = sched_getaffinity(None).map_err(|error| Error::Io("sched_getaffinity", error.into()))?;
    let set = |cpus| sched_setaffinity(None, cpus).map_err(|error| Error::Io("sched_setaffinity", error.into()));
    set(cpus)?;
    let result = work();
    set(&before)?;
    result
}

/// A case that runs on some CPUs.
struct OnCpus<W>(CpuSet, W);

impl<L, W: Work<L>> Work<L> for OnCpus<W> {
    fn run(&mut self, load: &mut L) -> Result<Run, Error> {
        on_cpus(&self.0, || self.1.run(load))
    }
}

/// Lines of which each holds the index of another one. All of them are one cycle.
struct Chain(MappedArray<Line>);

impl Chain {
    fn new(bytes: usize, pages: Pages) -> Result<Self, Error> {
        // A power of two, so that a linear congruential generator passes through all lines.
        let mut lines = MappedArray::<Line>::with_pages((bytes / LINE_BYTES).next_power_of_two(), pages)?;
        let mask = lines.len() as u64 - 1;
        for (index, line) in lines.iter_mut().enumerate() {
            let next = (index as u64).wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            line.0[0] = next & mask;
        }
        Ok(Self(lines))
    }
}

/// `CHAINS` chases through one chain, from different places. Each waits for its own last read only.
struct Chase<const CHAINS: usize> {
    chain: Chain,
    reads: usize,
    at: [usize; CHAINS],
}

impl<const CHAINS: usize> Chase<CHAINS> {
    fn new(bench: &Bench<'_>, chain: Chain) -> Self {
        let mask = chain.0.len() - 1;
        let at = std::array::from_fn(|chase| chase.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask);
        Self { chain, reads: bench.size(1 << 20, 1 << 12), at }
    }
}

impl<const CHAINS: usize, L> Work<L> for Chase<CHAINS> {
    fn run(&mut self, _: &mut L) -> Result<Run, Error> {
        let (lines, mut at) = (&self.chain.0[..], self.at);
        let ((), seconds) = timed(|| {
            for _ in 0..self.reads / CHAINS {
                at.iter_mut().for_each(|at| *at = lines[*at].0[0] as usize);
            }
        });
        self.at = black_box(at);
        Ok(Run::new(self.reads as u64, seconds))
    }
}

type Arrays = [MappedArray<Line>; 2];

/// Passes over large arrays, and returns the time, s.
struct Bandwidth(fn(&mut Arrays) -> f64);

impl Work<Arrays> for Bandwidth {
    fn run(&mut self, arrays: &mut Arrays) -> Result<Run, Error> {
        let (lines, seconds) = (arrays[0].len(), self.0(arrays));
        let facts = vec![("GB/s", (lines * LINE_BYTES) as f64 / seconds / 1e9)];
        Ok(Run { facts, ..Run::new(lines as u64, seconds) })
    }
}

fn read([from, _]: &mut Arrays) -> f64 {
    let words: &[u64] = bytemuck::cast_slice(from);
    let (sum, seconds) = timed(|| words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
    black_box(sum);
    seconds
}

fn write([to, _]: &mut Arrays) -> f64 {
    let octet = black_box(1);
    timed(|| bytemuck::cast_slice_mut::<_, u8>(to).fill(octet)).1
}

fn copy([from, to]: &mut Arrays) -> f64 {
    timed(|| to.copy_from_slice(from)).1
}

/// Packets of random flows.
struct Pattern {
    lines: MeterLines,
    flows: usize,
    tcp: bool,
    packets: usize,
    random: u64,
}

impl Pattern {
    fn new(flows: usize, tcp: bool, packets: usize) -> Result<Self, Error> {
        Ok(Self { lines: MeterLines::new(flows, tcp)?, flows, tcp, packets, random: 0x1234_5678_9abc_def1 })
    }

    fn enter<const TCP: bool>(&mut self) {
        let Self { lines, random, .. } = self;
        let mut burst = [FlowLines::default(); BURST];
        for _ in 0..self.packets / BURST {
            for flow in &mut burst {
                *random ^= *random << 13;
                *random ^= *random >> 7;
                *random ^= *random << 17;
                let slot = ((u128::from(*random) * self.flows as u128) >> 64) as usize;
                *flow = lines.prefetch_bucket(slot, (*random & 1) as usize, TCP);
            }
            lines.enter(&mut burst);
        }
    }
}

impl Work<()> for Pattern {
    fn run(&mut self, (): &mut ()) -> Result<Run, Error> {
        let tcp = self.tcp;
        let ((), seconds) = timed(|| if tcp { self.enter::<true>() } else { self.enter::<false>() });
        let (packets, lines) = (self.packets as f64, if tcp { 5.0 } else { 3.0 });
        let facts =
            vec![("lines/packet", lines), ("Mpps", packets / seconds / 1e6), ("ns/packet", seconds * 1e9 / packets)];
        Ok(Run { facts, ..Run::new((packets * lines) as u64, seconds) })
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        // All rounds have the same number of packets.
        match self.lines.entered() % (self.packets as u64) {
            0 => Ok(vec![]),
            rest => Err(CountMismatch(format!("{rest} packets too many in lines"))),
        }
    }
}
