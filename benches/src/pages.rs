//! Memory of a table: from malloc, locked, in transparent huge pages, and in reserved huge pages.

use crate::keys::{KEY, bucket_of, numbered, shuffled};
use bytemuck::Zeroable;
use memmap2::{MmapMut, MmapOptions};
use weir_bench::error::{CountMismatch, Error};
use weir_bench::mapped_array::{LINE_BYTES, Line, MappedArray, Pages};
use weir_bench::measure::{Bench, Fact, Group, Run, Work, timed};
use weir_bench::report::Table;
use weir_flow::{KeyHasher, prefetch};
use weir_packet::Packet;

const MALLOC: &str = "malloc";
/// Packets whose lines are prefetched together.
const GROUP: usize = 64;
/// 2 MiB, as a power of two.
const HUGE_PAGE_BITS: u8 = 21;

/// One cache line of a flow is updated for each packet.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "packets of flows in random order, decoded before: hash, prefetch and update the cache line of the flow";
    let mut table = Table::new("pages", "Pages of a table's memory", "concurrent flows", load);
    table.against = vec![MALLOC];
    let flow_counts = if bench.quick { &[1024][..] } else { &[16_384, 131_072, 1 << 20, 1 << 22] };
    for &flows in flow_counts {
        let packets = bench.size((2 * flows).clamp(4 << 20, 8 << 20), 20_000);
        if !bench.fits(
            size_of::<Packet>() * (packets + flows) + 4 * LINE_BYTES * flows,
            &format!("{flows} flows"),
            &mut table,
        ) {
            continue;
        }
        let keys: Vec<Packet> = (0..flows as u64).map(numbered).collect();
        let mut load = shuffled(&keys, packets);
        let mut locked = MappedArray::with_pages(flows, Pages::Small)?;
        let mut cases = vec![(MALLOC, Memory::Allocated(vec![Line::zeroed(); flows]))];
        if locked.lock() {
            cases.push(("mlock", Memory::Mapped(locked)));
        } else {
            table.notes.push(format!("skipped: {flows} flows: the system does not permit to lock their memory"));
        }
        cases.push(("transparent huge pages", Memory::Mapped(MappedArray::with_pages(flows, Pages::Huge)?)));
        let bytes = (flows * LINE_BYTES).next_multiple_of(1 << HUGE_PAGE_BITS);
        match MmapOptions::new().len(bytes).huge(Some(HUGE_PAGE_BITS)).map_anon() {
            Ok(map) => cases.push(("reserved huge pages", Memory::Reserved(map))),
            Err(error) => table.notes.push(format!("skipped: {flows} flows in reserved huge pages: {error}")),
        }
        let group = Group::new(flows.to_string(), flows as f64);
        let group = cases.into_iter().fold(group, |group, (series, memory)| group.case(series, Counts::new(memory)));
        group.measure(bench, &mut table, &mut load, |_| Ok(()))?;
    }
    Ok(table)
}

enum Memory {
    Allocated(Vec<Line>),
    Mapped(MappedArray<Line>),
    Reserved(MmapMut),
}

impl Memory {
    fn lines(&mut self) -> &mut [Line] {
        match self {
            Self::Allocated(lines) => lines,
            Self::Mapped(lines) => lines,
            Self::Reserved(map) => bytemuck::cast_slice_mut(map),
        }
    }
}

/// A line per flow.
struct Counts {
    memory: Memory,
    hasher: KeyHasher,
    given: u64,
}

impl Counts {
    fn new(memory: Memory) -> Self {
        Self { memory, hasher: KeyHasher::new(None), given: 0 }
    }
}

impl Work<Vec<Packet>> for Counts {
    fn run(&mut self, packets: &mut Vec<Packet>) -> Result<Run, Error> {
        let lines = self.memory.lines();
        let ((), seconds) = timed(|| {
            for group in packets.chunks(GROUP) {
                let mut places = [0; GROUP];
                for (place, packet) in places.iter_mut().zip(group) {
                    *place = bucket_of(self.hasher.hash(packet, KEY), lines.len());
                    prefetch(&lines[*place]);
                }
                places[..group.len()].iter().for_each(|&place| lines[place].0[0] += 1);
            }
        });
        self.given += packets.len() as u64;
        Ok(Run::new(packets.len() as u64, seconds))
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        match self.memory.lines().iter().map(|line| line.0[0]).sum::<u64>() {
            counted if counted == self.given => Ok(vec![]),
            counted => Err(CountMismatch(format!("{} packets given, {counted} counted", self.given))),
        }
    }
}
