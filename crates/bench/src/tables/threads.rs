//! Two threads: what they gain beside one, what a shared counter costs them, and stages split between them.
//!
//! A run takes as long as its busier thread has CPU time, waiting for the other included: what others do on the same
//! cores meanwhile does not count. The rate by the wall clock is told beside it.

use crate::ceiling::Roofline;
use crate::error::Error;
use crate::frames::{Frames, Walk};
use crate::harness::{Bench, Group, Run, Work, timed};
use crate::load::{VELAN, config, room, velan};
use crate::meter::{Metering, decode};
use crate::report::{ROOFLINE, Table};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::ScopedJoinHandle;
use std::time::Instant;
use weir_packet::Packet;

const FUSED: &str = "fused, one core";
/// Batches on their way between two stages.
const BATCHES: usize = 64;

/// The whole load, and what is one half of its flows and packets and the other.
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

fn table_of(name: &'static str, title: &'static str, against: &'static str) -> Table {
    let mut table = Table::new(name, title, "concurrent flows", VELAN);
    table.clock = "CPU time of the busier thread (waiting is busy)";
    table.against = vec![against];
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        table.notes.push("only one core: two threads take turns".into());
    }
    table
}

/// Runs threads, each of which says how long it took.
fn threaded(packets: u64, work: impl FnOnce() -> Vec<f64>) -> Run {
    let start = Instant::now();
    let busiest = work().into_iter().fold(0.0, f64::max);
    let by_the_wall = packets as f64 / start.elapsed().as_secs_f64() / 1e6;
    Run { facts: vec![("Mpps by the wall clock", by_the_wall)], ..Run::new(packets, busiest) }
}

/// What a thread says at its end.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().expect("a thread that measures does not panic")
}

/// One meter per thread, each with frames of its own; `each` is called for every frame of a thread.
struct Threads<F> {
    meterings: Vec<Metering>,
    split: bool,
    each: F,
}

impl<F> Threads<F> {
    fn new(threads: usize, flows: usize, split: bool, each: F) -> Result<Self, Error> {
        let flows = if split { flows / 2 } else { flows };
        let meterings = (0..threads).map(|_| Metering::new(config(flows))).collect::<Result<_, _>>()?;
        Ok(Self { meterings, split, each })
    }
}

impl<F: Fn(usize) + Sync> Work<Loads> for Threads<F> {
    fn run(&mut self, loads: &mut Loads) -> Result<Run, Error> {
        let frames = |thread: usize| if self.split { &loads.halves[thread] } else { &loads.whole };
        let packets = (0..self.meterings.len()).map(|thread| frames(thread).packets).sum();
        let each = &self.each;
        let run = threaded(packets, || {
            std::thread::scope(|scope| {
                let mut threads = Vec::new();
                for (thread, metering) in self.meterings.iter_mut().enumerate() {
                    let walk = frames(thread).walk().inspect(move |_| each(thread));
                    threads.push(scope.spawn(move || timed(|| metering.frames(walk)).1));
                }
                threads.into_iter().map(joined).collect()
            })
        });
        for metering in &self.meterings {
            metering.check().map_err(|what| Error::LostCount { case: "a round".into(), what })?;
        }
        Ok(run)
    }

    fn finish(self: Box<Self>) -> Result<Vec<(&'static str, f64)>, String> {
        self.meterings.into_iter().try_for_each(|metering| metering.close().map(|_| ()))?;
        Ok(vec![])
    }
}

/// One shared counter that both of two cores count every packet in, beside counters of their own (NAPA-FP's ablation).
pub fn shared(bench: &mut Bench<'_>) -> Result<Table, Error> {
    const OWN: &str = "counters of their own";
    let mut table = table_of("shared", "A counter shared by two cores", OWN);
    table.load =
        format!("{VELAN}. Two pipelines on two threads, each with half of the flows and one more count per packet");
    for flows in [16_384, 131_072, 1 << 20].map(|flows| bench.size(flows, flows >> 8)) {
        let packets = bench.size(8 << 20, 20_000);
        let mut loads = Loads::new(flows, packets)?;
        let (one, own) = (AtomicU64::new(0), [Padded::default(), Padded::default()]);
        let group = Group::new(flows.to_string(), flows as f64)
            .case(ROOFLINE, Alone(Roofline::new(room(flows))?))
            .case(OWN, Threads::new(2, flows, true, |thread: usize| own[thread].bump())?)
            .case(
                "one shared counter",
                Threads::new(2, flows, true, |_| {
                    one.fetch_add(1, Relaxed);
                })?,
            );
        group.measure(bench, &mut table, &mut loads, Loads::next_round)?;
        let counted = own.iter().map(|own| own.0.load(Relaxed)).sum::<u64>();
        if counted != one.load(Relaxed) {
            let what = format!("{counted} packets counted apart, {} together", one.load(Relaxed));
            return Err(Error::LostCount { case: "shared".into(), what });
        }
    }
    Ok(table)
}

/// A counter that no other thread's data shares a line with.
#[derive(Default)]
#[repr(align(128))]
struct Padded(AtomicU64);

impl Padded {
    /// Only one thread writes it.
    fn bump(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }
}

/// Fused on one core; two fused pipelines on two; decoder and meter apart, joined by a ring of batches.
pub fn layout(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let mut table = table_of("layout", "Layouts on two cores", FUSED);
    table.load = format!(
        "{VELAN}. Halves: each of two pipelines has half of the flows and packets; twice: each has all of them; split \
         N: one thread decodes, the other meters, batches of N packets"
    );
    for flows in [16_384, 131_072, 1 << 20].map(|flows| bench.size(flows, flows >> 8)) {
        let packets = bench.size(8 << 20, 20_000);
        let mut loads = Loads::new(flows, packets)?;
        let mut group = Group::new(flows.to_string(), flows as f64)
            .case(ROOFLINE, Alone(Roofline::new(room(flows))?))
            .case(FUSED, Threads::new(1, flows, false, |_| ())?)
            .case("two fused, halves", Threads::new(2, flows, true, |_| ())?)
            .case("two fused, twice", Threads::new(2, flows, false, |_| ())?);
        for batch in [16, 64, 256, 1024] {
            group = group.case(format!("split {batch}"), Split { metering: Metering::new(config(flows))?, batch });
        }
        group.measure(bench, &mut table, &mut loads, Loads::next_round)?;
    }
    Ok(table)
}

/// The roofline on the whole load.
struct Alone(Roofline);

impl Work<Loads> for Alone {
    fn run(&mut self, loads: &mut Loads) -> Result<Run, Error> {
        self.0.run(&mut loads.whole)
    }
}

/// A decoding thread and a metering thread.
struct Split {
    metering: Metering,
    batch: usize,
}

/// Packets on their way, so many of them; 0 at the end.
struct Batch(Vec<Packet>, usize);

impl Work<Loads> for Split {
    fn run(&mut self, loads: &mut Loads) -> Result<Run, Error> {
        let (mut full_in, mut full_out) = rtrb::RingBuffer::new(BATCHES);
        let (mut empty_in, mut empty_out) = rtrb::RingBuffer::new(BATCHES);
        for _ in 0..BATCHES {
            // There is room for as many as there are.
            let _ = empty_in.push(Batch(vec![Packet::default(); self.batch], 0));
        }
        let (metering, walk) = (&mut self.metering, loads.whole.walk());
        let run = threaded(loads.whole.packets, || {
            std::thread::scope(|scope| {
                let second = scope.spawn(move || timed(|| meter_from(metering, &mut full_out, &mut empty_in)).1);
                let (_, first_seconds) = timed(|| decode_into(walk, &mut empty_out, &mut full_in));
                vec![first_seconds, joined(second)]
            })
        });
        self.metering.check().map_err(|what| Error::LostCount { case: "a round".into(), what })?;
        Ok(run)
    }

    fn finish(self: Box<Self>) -> Result<Vec<(&'static str, f64)>, String> {
        self.metering.close()
    }
}

/// The first stage: batches of decoded packets, and an empty one at the end.
fn decode_into(mut walk: Walk<'_>, empty: &mut rtrb::Consumer<Batch>, full: &mut rtrb::Producer<Batch>) {
    loop {
        let mut batch = wait(|| empty.pop().ok());
        batch.1 = 0;
        while let Some(packet) = batch.0.get_mut(batch.1)
            && let Some(frame) = walk.next()
        {
            batch.1 += usize::from(decode(&frame, packet));
        }
        let ended = batch.1 == 0;
        // There is room for as many as there are.
        let _ = full.push(batch);
        if ended {
            return;
        }
    }
}

/// The second stage, until there comes an empty batch.
fn meter_from(metering: &mut Metering, full: &mut rtrb::Consumer<Batch>, empty: &mut rtrb::Producer<Batch>) {
    loop {
        let batch = wait(|| full.pop().ok());
        metering.packets(&batch.0[..batch.1]);
        let ended = batch.1 == 0;
        let _ = empty.push(batch);
        if ended {
            return;
        }
    }
}

/// Asks until there is an answer; lets others run when it takes long.
fn wait<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    loop {
        for _ in 0..256 {
            if let Some(answer) = ask() {
                return answer;
            }
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
}
