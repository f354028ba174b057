//! The mover: looks now and then how much each meter of a mesh has to do, and moves flows from those that have more to those that
//! have less.
//!
//! It has a thread of its own, which sleeps nearly always. The steps of a move stand in `mesh/mod.rs`.

use crate::balance::{ENOUGH, Table, even, imbalance, loads, moves};
use crate::mesh::{Gift, Gone, Mesh, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_flow::{BUCKETS, BucketSet};

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(100);
/// It looks at as many packets as make [`ENOUGH`] per meter, but at no more than come in this time.
const SPAN: Duration = Duration::from_secs(1);
/// How often it looks whether a step is done.
const NAP: Duration = Duration::from_micros(200);
/// How long it waits for readers to hurry before it gives up: one that waits for a pipe comes to no end of a burst.
const HURRY: Duration = Duration::from_millis(500);
/// Flows that are moved at once, about, and parts: few, as those who take them wait meanwhile.
const FLOWS: u64 = 20_000;
const AT_ONCE: usize = 256;

/// What moves have come to.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Parts moved.
    parts: AtomicU64,
    /// By how much the busiest meter had more than its share when it was looked at last, in thousandths.
    imbalance: AtomicU64,
}

/// The thread.
pub(crate) struct Mover {
    end: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    moves: Arc<Moves>,
    /// Held while flows are on their way from one meter to another.
    on_the_way: Arc<Mutex<()>>,
}

impl Moves {
    /// Parts moved, and by how much the busiest meter had more than its share when it was looked at last, in thousandths.
    pub fn so_far(&self) -> [u64; 2] {
        [&self.parts, &self.imbalance].map(|number| number.load(Ordering::Relaxed))
    }
}

impl Mover {
    /// Starts it.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn new(mesh: Arc<Mesh>) -> io::Result<Self> {
        let (end, ended) = sync_channel(1);
        let (moves, on_the_way) = (Arc::<Moves>::default(), Arc::<Mutex<()>>::default());
        let table = even(mesh.meters());
        let (since, before) = (Instant::now(), mesh.packets());
        let mut work = Work {
            mesh,
            moves: moves.clone(),
            on_the_way: on_the_way.clone(),
            table,
            switch: 0,
            begun: 0,
            before,
            since,
        };
        let thread = thread::Builder::new().name("weir-balance".into()).spawn(move || {
            while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                if work.look().is_err() {
                    // A meter has gone, and the others follow.
                    break;
                }
            }
        })?;
        Ok(Self { end: Some(end), thread: Some(thread), moves, on_the_way })
    }

    /// What moves have come to.
    pub fn moves(&self) -> &Moves {
        &self.moves
    }

    /// Waits until no flow is on its way between meters, and sees to it that none is while the guard lives; no longer than to some time.
    pub fn pause(&self, deadline: Instant) -> Option<MutexGuard<'_, ()>> {
        loop {
            match self.on_the_way.try_lock() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
                Err(TryLockError::WouldBlock) => thread::sleep(NAP),
            }
        }
    }
}

impl Drop for Mover {
    /// Ends it, after the move that it is in.
    fn drop(&mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread knows.
struct Work {
    mesh: Arc<Mesh>,
    moves: Arc<Moves>,
    on_the_way: Arc<Mutex<()>>,
    table: Table,
    /// The last switch, and the last one that was begun.
    switch: u64,
    begun: u64,
    /// Packets per part when it looked last, and when that was.
    before: [u64; BUCKETS],
    since: Instant,
}

impl Work {
    /// Looks who has more to do than others, and moves some of it.
    fn look(&mut self) -> Result<(), Gone> {
        let (packets, meters) = (self.mesh.packets(), self.mesh.meters());
        let new: [u64; BUCKETS] = std::array::from_fn(|part| packets[part] - self.before[part]);
        let sum = new.iter().sum::<u64>();
        if sum < ENOUGH * meters as u64 && self.since.elapsed() < SPAN {
            return Ok(());
        }
        (self.before, self.since) = (packets, Instant::now());
        self.moves.imbalance.store(imbalance(&loads(&new, &self.table, meters)), Ordering::Relaxed);
        // By chance alone a few packets are uneven.
        if sum * 10 < ENOUGH * meters as u64 {
            return Ok(());
        }
        let per_part = (self.mesh.flows() / BUCKETS as u64).max(1);
        let most = ((FLOWS / per_part) as usize).clamp(1, AT_ONCE);
        let moves = moves(&new, &self.table, meters, most);
        if moves.is_empty() { Ok(()) } else { self.make(&moves) }
    }

    /// Moves parts to other meters.
    fn make(&mut self, moves: &[(u16, u8)]) -> Result<(), Gone> {
        self.begun += 1;
        let plan = Plan::new(moves, &self.table, self.begun);
        let ready = self.prepare(&plan);
        if !matches!(ready, Ok(true)) {
            for meter in plan.meters() {
                // Whoever has gone has nothing to forget.
                let _ = self.mesh.give(meter, Task::Forget);
            }
            self.mesh.order(&self.table, self.switch, false);
            return ready.map(drop);
        }
        let on_the_way = self.on_the_way.lock().unwrap_or_else(PoisonError::into_inner);
        self.mesh.order(&plan.table, plan.switch, true);
        (self.table, self.switch) = (plan.table, plan.switch);
        for meter in plan.meters() {
            while !self.mesh.is_done(meter, plan.switch)? {
                thread::sleep(NAP);
            }
        }
        drop(on_the_way);
        self.mesh.order(&self.table, self.switch, false);
        self.moves.parts.fetch_add(moves.len() as u64, Ordering::Relaxed);
        // What came meanwhile was counted by the old table.
        (self.before, self.since) = (self.mesh.packets(), Instant::now());
        Ok(())
    }

    /// Gets everybody ready for a switch. Whether that came to be.
    fn prepare(&self, plan: &Plan) -> Result<bool, Gone> {
        let Plan { switch, table, .. } = *plan;
        for (&meter, gives) in &plan.givers {
            self.mesh.give(meter.into(), Task::Give(Box::new(Gift { switch, parts: gives.parts, table })))?;
        }
        self.wait_until_ready(plan.givers.keys(), switch)?;
        for &meter in &plan.takers {
            let from = plan.givers.values().filter(|gives| gives.to.contains(&meter)).count();
            self.mesh.give(meter.into(), Task::Take { switch, from })?;
        }
        self.wait_until_ready(plan.takers.iter(), switch)?;
        let (order, began) = (self.mesh.order(&self.table, self.switch, true), Instant::now());
        while !self.mesh.is_taken(order) {
            if began.elapsed() >= HURRY {
                return Ok(false);
            }
            thread::sleep(NAP);
        }
        Ok(true)
    }

    fn wait_until_ready<'a>(&self, meters: impl Iterator<Item = &'a u8>, switch: u64) -> Result<(), Gone> {
        for &meter in meters {
            while !self.mesh.is_ready(meter.into(), switch)? {
                thread::sleep(NAP);
            }
        }
        Ok(())
    }
}

/// A move: who gives what to whom.
struct Plan {
    switch: u64,
    /// Who takes each part afterwards.
    table: Table,
    givers: BTreeMap<u8, Gives>,
    takers: BTreeSet<u8>,
}

#[derive(Default)]
struct Gives {
    parts: BucketSet,
    to: BTreeSet<u8>,
}

impl Plan {
    fn new(moves: &[(u16, u8)], before: &Table, switch: u64) -> Self {
        let (mut table, mut givers) = (*before, BTreeMap::<u8, Gives>::new());
        for &(part, to) in moves {
            let giver = std::mem::replace(&mut table[usize::from(part)], to);
            let gives = givers.entry(giver).or_default();
            gives.parts.insert(part);
            gives.to.insert(to);
        }
        Self { switch, table, givers, takers: moves.iter().map(|&(_, to)| to).collect() }
    }

    /// All whom it concerns; nobody gives and takes.
    fn meters(&self) -> impl Iterator<Item = usize> {
        self.givers.keys().chain(&self.takers).map(|&meter| usize::from(meter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::CpuAffinity;
    use crate::desk::Desk;
    use crate::exporter::{BackPressure, Exporter};
    use crate::looks::Histories;
    use crate::mesh::mesh;
    use crate::metering::Metering;
    use crate::pipeline::Pipeline;
    use crate::reader::Reader;
    use crate::settings::Settings;
    use crate::work::{self, Stop};
    use weir_capture::Input;
    use weir_export::Sink;
    use weir_flow::FlowRecord;
    use weir_ledger::SinkCounters;
    use weir_trafficgen::TrafficGenerator;

    /// Keeps every record.
    struct Kept(SinkCounters, Arc<Mutex<Vec<FlowRecord>>>);

    impl Sink for Kept {
        fn write(&mut self, flows: &[FlowRecord]) -> Result<(), weir_export::Error> {
            self.0.exported.merge(crate::exporter::records(flows));
            self.1.lock().unwrap().extend_from_slice(flows);
            Ok(())
        }

        fn finish(&mut self) -> Result<(), weir_export::Error> {
            Ok(())
        }

        fn counters(&self) -> &SinkCounters {
            &self.0
        }
    }

    fn settings() -> Settings {
        let meter = weir_flow::Config {
            secret: Some(1),
            flows: 1 << 17,
            idle_timeout_ns: 50_000_000,
            active_timeout_ns: 200_000_000,
            ..Default::default()
        };
        Settings { meter, ..Settings::default() }
    }

    fn exporter() -> (Exporter, Arc<Mutex<Vec<FlowRecord>>>) {
        let flows = Arc::<Mutex<Vec<FlowRecord>>>::default();
        let kept = Kept(SinkCounters { sink: "kept".into(), ..SinkCounters::default() }, flows.clone());
        (Exporter::new(vec![Box::new(kept)], CpuAffinity::default(), BackPressure::Block).unwrap(), flows)
    }

    fn told(flows: &Mutex<Vec<FlowRecord>>) -> Vec<String> {
        let mut told: Vec<_> = flows.lock().unwrap().iter().map(|flow| format!("{flow:?}")).collect();
        told.sort();
        told
    }

    fn of_one_meter(mut source: Input<'_>) -> Vec<String> {
        let (mut exporter, flows) = exporter();
        let mut pipeline = Pipeline::new(settings(), exporter.handle()).unwrap();
        while pipeline.process_burst(&mut source).unwrap() {}
        pipeline.finish();
        exporter.finish();
        told(&flows)
    }

    /// The same by several meters, between which parts are moved at random all the time. Parts moved, and records.
    fn of_several(sources: Vec<Input<'static>>, meters: usize) -> (u64, Vec<String>) {
        let (mut exporter, flows) = exporter();
        let settings = settings();
        let (mesh, outs, ins) =
            mesh(sources.len(), meters, BackPressure::Block, weir_capture::POLL_TIMEOUT, (1, settings.meter.key))
                .unwrap();
        let mut work = Work {
            before: mesh.packets(),
            mesh: mesh.clone(),
            moves: Arc::default(),
            on_the_way: Arc::default(),
            table: even(meters),
            switch: 0,
            begun: 0,
            since: Instant::now(),
        };
        let mut random = 7_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) as usize % below
        };
        thread::scope(|scope| {
            for (from, listeners) in ins {
                let metering = Metering::new(&settings, exporter.handle(), Histories::from(listeners)).unwrap();
                scope.spawn(move || work::meter(metering, from, false, &Desk::default()));
            }
            for (source, out) in sources.into_iter().zip(outs) {
                let (reader, stop) = (Reader::new(&settings), Stop::new(Arc::default()));
                scope.spawn(move || work::read(source, reader, out, &Desk::default(), stop));
            }
            loop {
                let takes = next(meters) as u8;
                let parts: BTreeSet<u16> = (0..=next(40)).map(|_| next(BUCKETS) as u16).collect();
                let given = |part: &u16| work.table[usize::from(*part)] != takes;
                let moves: Vec<_> = parts.into_iter().filter(given).map(|part| (part, takes)).collect();
                if !moves.is_empty() && work.make(&moves).is_err() {
                    break;
                }
            }
        });
        exporter.finish();
        assert!(exporter.take_errors().is_empty());
        (work.moves.so_far()[0], told(&flows))
    }

    #[test]
    fn flows_that_are_moved_all_the_time_are_those_of_one_meter() {
        for specification in ["mix,flows=3000,packets=400k", "lossy,flows=200,packets=200k"] {
            let generator =
                || TrafficGenerator::new(specification).unwrap_or_else(|error| panic!("{specification}: {error}"));
            let source = || Input::File(Box::new(generator()));
            let expected = of_one_meter(source());
            for meters in [2, 3, 5] {
                let (moved, told) = of_several(vec![source()], meters);
                assert!(moved > 50, "{moved} parts were moved");
                assert_eq!(told.len(), expected.len(), "{specification}, {meters} meters, {moved} parts moved");
                assert!(told == expected, "{specification}, {meters} meters, {moved} parts moved");
            }
        }
    }
}
