//! Two threads: gain over one, and stages split between them.
//!
//! The time of a run is the CPU time of its busier thread, including waiting for the other; it leaves
//! out the time that other processes take. The wall-clock rate stands beside it.

use crate::ceiling::Roofline;
use crate::error::{CountMismatch, Error};
use crate::frames::{FrameIter, Frames};
use crate::load::{VELAN, capacity, config, velan};
use crate::measure::{Bench, Fact, Group, Run, Work, timed};
use crate::meter::{Metering, decode};
use crate::report::{ROOFLINE, Table};
use std::thread::ScopedJoinHandle;
use std::time::Instant;
use weir_packet::Packet;

const FUSED: &str = "fused, one core";
/// Batches in flight between two stages.
const BATCHES: usize = 64;

/// The whole load, and two loads of half its flows and packets each.
struct Loads {
    whole: Frames,
    halves: [Frames; 2],
}

impl Loads {
    fn new(flows: usize, packets: usize) -> Result<Self, Error> {
        let half = |seed| Frames::new(&format!("{},seed={seed}", velan(flows / 2)), packets / 2);
        Ok(Self { whole: Frames::new(&velan(flows), packets)?, halves: [half(2)?, half(3)?] })
    }

    fn next_round(&mut self) -> Result<(), Error> {
        self.whole.next_round()?;
        self.halves.iter_mut().try_for_each(Frames::next_round)
    }
}

/// Runs threads; `work` returns the CPU time of each, s.
fn run_threads(packets: u64, work: impl FnOnce() -> Vec<f64>) -> Run {
    let start = Instant::now();
    let busiest = work().into_iter().fold(0.0, f64::max);
    let wall_clock_mpps = packets as f64 / start.elapsed().as_secs_f64() / 1e6;
    Run { facts: vec![("Mpps by wall clock", wall_clock_mpps)], ..Run::new(packets, busiest) }
}

/// Waits for a thread and returns its result.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().expect("a thread that measures does not panic")
}

/// One meter per thread, each with half of the load (`split`) or all of it.
struct Threads {
    meterings: Vec<Metering>,
    split: bool,
}

impl Threads {
    fn new(threads: usize, flows: usize, split: bool) -> Result<Self, Error> {
        let flows = if split { flows / 2 } else { flows };
        let meterings = (0..threads).map(|_| Metering::new(config(flows))).collect::<Result<_, _>>()?;
        Ok(Self { meterings, split })
    }
}

impl Work<Loads> for Threads {
    fn run(&mut self, loads: &mut Loads) -> Result<Run, Error> {
        let frames = |thread: usize| if self.split { &loads.halves[thread] } else { &loads.whole };
        let packets = (0..self.meterings.len()).map(|thread| frames(thread).packets).sum();
        let run = run_threads(packets, || {
            std::thread::scope(|scope| {
                let mut threads = Vec::new();
                for (thread, metering) in self.meterings.iter_mut().enumerate() {
                    let walk = frames(thread).iter();
                    threads.push(scope.spawn(move || timed(|| metering.frames(walk)).1));
                }
                threads.into_iter().map(join).collect()
            })
        });
        for metering in &self.meterings {
            metering.check().map_err(|mismatch| mismatch.in_case("a round"))?;
        }
        Ok(run)
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        self.meterings.into_iter().try_for_each(|metering| metering.close().map(|_| ()))?;
        Ok(vec![])
    }
}

/// Compares fused on one core, two fused pipelines on two cores, and decoder and meter split over two
/// cores with a ring of batches between them.
pub fn layout(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = format!(
        "{VELAN}. Halves: each of two pipelines meters half of the flows and packets; twice: each meters all of them; \
         split N: one thread decodes, the other meters, in batches of N packets"
    );
    let mut table = Table::new("layout", "Layouts on two cores", "concurrent flows", load);
    table.clock = "CPU time of the busier thread (waiting included)";
    table.against = vec![FUSED];
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        table.notes.push("only one core: the two threads share it".into());
    }
    for flows in [16_384, 131_072, 1 << 20].map(|flows| bench.size(flows, flows >> 8)) {
        let packets = bench.size(8 << 20, 20_000);
        let mut loads = Loads::new(flows, packets)?;
        let mut group = Group::new(flows.to_string(), flows as f64)
            .case(ROOFLINE, WholeLoad(Roofline::new(capacity(flows))?))
            .case(FUSED, Threads::new(1, flows, false)?)
            .case("two fused, halves", Threads::new(2, flows, true)?)
            .case("two fused, twice", Threads::new(2, flows, false)?);
        for batch in [16, 64, 256, 1024] {
            group = group.case(format!("split {batch}"), Split { metering: Metering::new(config(flows))?, batch });
        }
        group.measure(bench, &mut table, &mut loads, Loads::next_round)?;
    }
    Ok(table)
}

/// The roofline on the whole load.
struct WholeLoad(Roofline);

impl Work<Loads> for WholeLoad {
    fn run(&mut self, loads: &mut Loads) -> Result<Run, Error> {
        self.0.run(&mut loads.whole)
    }
}

/// A decoding thread and a metering thread.
struct Split {
    metering: Metering,
    batch: usize,
}

/// A buffer of packets and the number of packets in it; 0 marks the end.
struct Batch(Vec<Packet>, usize);

impl Work<Loads> for Split {
    fn run(&mut self, loads: &mut Loads) -> Result<Run, Error> {
        let (mut full_in, mut full_out) = rtrb::RingBuffer::new(BATCHES);
        let (mut empty_in, mut empty_out) = rtrb::RingBuffer::new(BATCHES);
        for _ in 0..BATCHES {
            // The ring holds all batches, so `push` cannot fail.
            let _ = empty_in.push(Batch(vec![Packet::default(); self.batch], 0));
        }
        let (metering, walk) = (&mut self.metering, loads.whole.iter());
        let run = run_threads(loads.whole.packets, || {
            std::thread::scope(|scope| {
                let second = scope.spawn(move || timed(|| meter_from(metering, &mut full_out, &mut empty_in)).1);
                let (_, first_seconds) = timed(|| decode_into(walk, &mut empty_out, &mut full_in));
                vec![first_seconds, join(second)]
            })
        });
        self.metering.check().map_err(|mismatch| mismatch.in_case("a round"))?;
        Ok(run)
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        self.metering.close()
    }
}

/// First stage: fills batches with decoded packets; an empty batch marks the end.
fn decode_into(mut walk: FrameIter<'_>, empty: &mut rtrb::Consumer<Batch>, full: &mut rtrb::Producer<Batch>) {
    loop {
        let mut batch = poll(|| empty.pop().ok());
        batch.1 = 0;
        while let Some(packet) = batch.0.get_mut(batch.1)
            && let Some(frame) = walk.next()
        {
            batch.1 += usize::from(decode(&frame, packet));
        }
        let ended = batch.1 == 0;
        // The ring holds all batches, so `push` cannot fail.
        let _ = full.push(batch);
        if ended {
            return;
        }
    }
}

/// Second stage: meters batches up to the empty one.
fn meter_from(metering: &mut Metering, full: &mut rtrb::Consumer<Batch>, empty: &mut rtrb::Producer<Batch>) {
    loop {
        let batch = poll(|| full.pop().ok());
        metering.packets(&batch.0[..batch.1]);
        let ended = batch.1 == 0;
        let _ = empty.push(batch);
        if ended {
            return;
        }
    }
}

/// Polls until there is a value; yields the core when that takes long.
fn poll<T>(mut next: impl FnMut() -> Option<T>) -> T {
    loop {
        for _ in 0..256 {
            if let Some(answer) = next() {
                return answer;
            }
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}
