//! Streams of frames from memory: memory of several kinds, and headers read or whole frames.

use super::threads::counts;
use crate::parallel::Parallel;
use std::hint::black_box;
use weir_bench::error::Error;
use weir_bench::frames::Frames;
use weir_bench::mapped_array::{MappedArray, Pages};
use weir_bench::measure::{Bench, Group, Run, Work};
use weir_bench::report::Table;

const MALLOC: &str = "malloc, headers";
/// Octets of a frame that count as its headers: a cache line.
const HEADERS: usize = 64;

/// 1 to as many streams as there are cores, each on a thread of its own.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "synth:mix, whole frames, one after the other in memory without gaps; a thread per stream reads them, and does \
                nothing else. Headers: the first 64 octets of each frame. Whole: all octets, as for inspection or a checksum";
    let mut table = Table::new("streams", "Streams from memory", "streams", load);
    table.clock = "wall clock until the last thread ends";
    table.against = vec![MALLOC];
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let packets = bench.size(200_000, 5000);
    for streams in counts(if bench.quick { 2 } else { cores }, cores) {
        if !bench.fits(streams * packets * 1600 * 5, &format!("{streams} streams"), &mut table) {
            continue;
        }
        let frames = Frames::new("mix,flows=10000", packets)?;
        let kind = |memory: &dyn Fn(usize) -> Result<Memory, Error>| {
            (0..streams).map(|_| Stream::new(&frames, memory)).collect::<Result<Vec<_>, Error>>()
        };
        let small = |octets| Ok(Memory::Mapped(MappedArray::with_pages(octets, Pages::Small)?));
        let huge = |octets| Ok(Memory::Mapped(MappedArray::new(octets)?));
        let mut group = Group::new(streams.to_string(), streams as f64)
            .case(MALLOC, Streams::headers(kind(&|octets| Ok(Memory::Malloc(vec![0; octets])))?))
            .case("mmap, headers", Streams::headers(kind(&small)?))
            .case("mmap, whole", Streams::whole(kind(&small)?))
            .case("2 MiB pages, headers", Streams::headers(kind(&huge)?));
        let mut locked = kind(&small)?;
        if locked.iter_mut().all(Stream::lock) {
            group = group.case("mmap, locked, headers", Streams::headers(locked));
        } else if streams == 1 {
            table.notes.push("the system permits no locked pages (ulimit -l)".into());
        }
        group.measure(bench, &mut table, &mut (), |()| Ok(()))?;
    }
    Ok(table)
}

enum Memory {
    Malloc(Vec<u8>),
    Mapped(MappedArray<u8>),
}

/// Frames in memory of one kind.
struct Stream {
    memory: Memory,
    lengths: Vec<u32>,
}

impl Stream {
    fn new(frames: &Frames, memory: &dyn Fn(usize) -> Result<Memory, Error>) -> Result<Self, Error> {
        let mut memory = memory(frames.wire_bytes as usize)?;
        let mut octets = match &mut memory {
            Memory::Malloc(octets) => &mut octets[..],
            Memory::Mapped(octets) => &mut octets[..],
        };
        let mut lengths = Vec::new();
        for frame in frames.iter() {
            let (to, behind) = octets.split_at_mut(frame.bytes.len());
            to.copy_from_slice(frame.bytes);
            lengths.push(frame.bytes.len() as u32);
            octets = behind;
        }
        Ok(Self { memory, lengths })
    }

    fn lock(&mut self) -> bool {
        match &mut self.memory {
            Memory::Malloc(_) => false,
            Memory::Mapped(octets) => octets.lock(),
        }
    }

    /// Reads up to `limit` octets of each frame, and returns their sum.
    fn read(&self, limit: usize) -> u64 {
        let mut octets = match &self.memory {
            Memory::Malloc(octets) => &octets[..],
            Memory::Mapped(octets) => &octets[..],
        };
        let mut sum = 0u64;
        for &length in &self.lengths {
            let (frame, behind) = octets.split_at(length as usize);
            octets = behind;
            let (words, _) = frame[..frame.len().min(limit)].as_chunks::<8>();
            sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
        }
        sum
    }
}

/// Reads up to `limit` octets of each frame of a stream.
struct Reader {
    stream: Stream,
    limit: usize,
}

impl Work<()> for Reader {
    fn run(&mut self, (): &mut ()) -> Result<Run, Error> {
        black_box(self.stream.read(self.limit));
        // The time is that of all threads.
        Ok(Run::new(self.stream.lengths.len() as u64, 0.0))
    }
}

/// The streams of a case, a thread each.
struct Streams(Parallel<Reader>);

impl Streams {
    fn headers(streams: Vec<Stream>) -> Self {
        Self::new(streams, HEADERS)
    }

    fn whole(streams: Vec<Stream>) -> Self {
        Self::new(streams, usize::MAX)
    }

    fn new(streams: Vec<Stream>, limit: usize) -> Self {
        Self(Parallel(streams.into_iter().map(|stream| Reader { stream, limit }).collect()))
    }
}

impl Work<()> for Streams {
    fn run(&mut self, (): &mut ()) -> Result<Run, Error> {
        let Parallel(readers) = &self.0;
        let octets: f64 =
            readers.iter().flat_map(|reader| &reader.stream.lengths).map(|&length| f64::from(length)).sum();
        let run = self.0.run(&mut vec![(); readers.len()])?;
        Ok(Run { facts: vec![("Gbit/s of frames", octets * 8e-9 / run.seconds)], ..run })
    }
}
