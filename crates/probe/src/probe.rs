//! The probe at work: pipelines of one thread or several; they share nothing but the exporter.
//!
//! ```text
//! queue 0 -> pipeline ─┐   ┌─> sink
//! queue 1 -> pipeline ─┼───┼─> sink
//! ...                 ─┘   └─> ...
//! ```
//! Always true: the account of everything balances at any moment. Each pipeline gives its own between two bursts, and who takes
//! something over is asked before who handed it over: sinks, then meters, then readers.

use crate::account::Account;
use crate::affinity::CpuAffinity;
use crate::desk::{Desk, Report};
use crate::exporter::{BackPressure, Exporter, SinkChange};
use crate::looks::Histories;
use crate::mesh::mesh;
use crate::metering::Metering;
use crate::mover::Mover;
use crate::pipeline::Pipeline;
use crate::reader::Reader;
use crate::self_traffic::SelfTrafficFilter;
use crate::settings::Settings;
use crate::work::{self, Stop};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::iter::zip;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_capture::{Input, POLL_TIMEOUT};
use weir_export::{Error, Sink};
use weir_ledger::Ledger;

/// How long a thread is waited for when it is asked; one that waits for packets answers within a tenth of it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Queues that are worked on together, and where.
pub struct WorkerGroup {
    /// As people know it: `af_packet:eth0@1`.
    pub name: String,
    /// A thread for each reads it.
    pub queues: Vec<ReceiveQueue>,
    /// Where threads run that meter what those read. A flow is metered by one of them, whichever queue its packets come from, and
    /// moves to another if they are loaded unevenly. None: each thread that reads meters, too (fused).
    pub meters: Vec<CpuAffinity>,
}

/// A queue, and where it is read.
pub struct ReceiveQueue {
    /// Its packets.
    pub source: Input<'static>,
    /// Where its thread runs.
    pub affinity: CpuAffinity,
}

/// Pipelines at work.
pub struct Probe {
    workers: Vec<Worker>,
    exporter: Exporter,
    stop: Arc<AtomicBool>,
    /// Between whom each sink sends, if it does, and all of it.
    datagrams: Vec<Option<[SocketAddr; 2]>>,
    own: SelfTrafficFilter,
}

/// What a pipeline says of itself.
#[derive(Clone, Debug, Default)]
pub struct PipelineStatus {
    /// Its name, see [`WorkerGroup::name`].
    pub name: String,
    /// What it has done, the last that is known of it.
    pub account: Account,
    /// Processor time that each of its threads took, ns: those that read, then those that meter.
    pub cpu_time_ns: Vec<u64>,
    /// How even the load of several meters is.
    pub balance: Option<LoadBalance>,
    /// It did not answer in time, as one does that waits for a pipe: what stands here is what it said before, and the account of
    /// everything need not balance.
    pub timed_out: bool,
    /// Its source has ended, and everything of it is handed over.
    pub finished: bool,
    /// What went wrong since it was asked last, the first of it.
    pub errors: Vec<String>,
    /// More that went wrong.
    pub more_errors: u64,
}

/// How even the load of the meters of a pipeline is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadBalance {
    /// By how much the busiest meter had more packets than its share when that was looked at last, in thousandths of the share.
    pub imbalance_permille: u64,
    /// Parts of all flows (512 in all) that were moved_buckets from one meter to another so far.
    pub moved_buckets: u64,
}

/// What all of it came to.
pub struct FinalReport {
    /// The account of everything.
    pub ledger: Ledger,
    /// What every pipeline said last.
    pub pipelines: Vec<PipelineStatus>,
    /// Errors with which sinks ended, that were not told before.
    pub sink_errors: Vec<Error>,
}

/// A pipeline: its threads.
#[derive(Default)]
struct Worker {
    name: String,
    readers: Vec<Thread>,
    /// None if the readers meter.
    meters: Vec<Thread>,
    /// With several meters.
    mover: Option<Mover>,
}

/// A thread, and its desk.
struct Thread {
    desk: Arc<Desk>,
    thread: JoinHandle<()>,
}

impl Probe {
    /// Starts the pipelines and the exporter. Each thread takes its memory where it runs.
    ///
    /// # Errors
    /// The system has not that much memory, or starts no thread.
    pub fn start(
        teams: Vec<WorkerGroup>,
        settings: Settings,
        sinks: Vec<Box<dyn Sink + Send>>,
        export: CpuAffinity,
        behind: BackPressure,
    ) -> io::Result<Self> {
        let datagrams: Vec<_> = sinks.iter().map(|sink| sink.udp_endpoints()).collect();
        let own = SelfTrafficFilter::new(datagrams.iter().copied().flatten());
        let settings = Settings { self_traffic: own.clone(), ..settings };
        let exporter = Exporter::new(sinks, export, behind)?;
        let mut probe = Self { workers: Vec::new(), exporter, stop: Arc::default(), datagrams, own };
        for team in teams {
            // What was started before ends with the probe.
            let worker = probe.begin(team, settings.clone(), behind)?;
            probe.workers.push(worker);
        }
        Ok(probe)
    }

    fn begin(&self, team: WorkerGroup, settings: Settings, behind: BackPressure) -> io::Result<Worker> {
        let WorkerGroup { name, queues, meters } = team;
        let mut worker = Worker { name, ..Worker::default() };
        let stop = || Stop::new(self.stop.clone());
        let numbers = self.workers.iter().map(|worker| worker.readers.len()).sum::<usize>()..;
        let patience = if settings.busy_poll { Duration::ZERO } else { POLL_TIMEOUT };
        if meters.is_empty() {
            for (number, ReceiveQueue { mut source, affinity }) in zip(numbers, queues) {
                source.live().into_iter().for_each(|live| live.set_poll_timeout(patience));
                let (settings, handle, stop) = (settings.clone(), self.exporter.handle(), stop());
                worker.readers.push(Thread::start(format!("weir-{number}"), affinity, move || {
                    let pipeline = Pipeline::new(settings, handle)?;
                    Ok(move |desk: &Desk| work::fused(source, pipeline, desk, stop))
                })?);
            }
            return Ok(worker);
        }
        // Meters that give flows to each other have one secret.
        let secret = settings.meter.secret.unwrap_or_else(|| RandomState::new().hash_one(0));
        let settings = Settings { meter: weir_flow::Config { secret: Some(secret), ..settings.meter }, ..settings };
        let (mesh, outs, ins) = mesh(queues.len(), meters.len(), behind, patience, (secret, settings.meter.key))?;
        let of_meters = self.workers.iter().map(|worker| worker.meters.len()).sum::<usize>()..;
        for ((number, affinity), (from, listeners)) in zip(zip(of_meters, meters), ins) {
            let (settings, handle) = (settings.clone(), self.exporter.handle());
            worker.meters.push(Thread::start(format!("weir-meter-{number}"), affinity, move || {
                let metering = Metering::new(&settings, handle, Histories::from(listeners))?;
                Ok(move |desk: &Desk| work::meter(metering, from, settings.busy_poll, desk))
            })?);
        }
        for ((number, ReceiveQueue { mut source, affinity }), out) in zip(zip(numbers, queues), outs) {
            source.live().into_iter().for_each(|live| live.set_poll_timeout(patience));
            let (reader, stop) = (Reader::new(&settings), stop());
            worker.readers.push(Thread::start(format!("weir-read-{number}"), affinity, move || {
                Ok(move |desk: &Desk| work::read(source, reader, out, desk, stop))
            })?);
        }
        worker.mover = (mesh.meters() > 1).then(|| Mover::new(mesh)).transpose()?;
        Ok(worker)
    }

    /// What all pipelines say of themselves, and the account of everything at this moment. Waits for each of them
    /// to come to the end of a burst.
    pub fn status(&self) -> (Ledger, Vec<PipelineStatus>) {
        let mut answers = Vec::new();
        let ledger = self.exporter.ledger_of(|| {
            answers = self.answers();
            answers.iter().map(|answer| answer.account.clone()).collect::<Vec<_>>()
        });
        (ledger, answers)
    }

    fn answers(&self) -> Vec<PipelineStatus> {
        let deadline = Instant::now() + PATIENCE;
        // A flow on its way between two meters would be in no account.
        let guards: Vec<_> =
            self.workers.iter().flat_map(|worker| &worker.mover).map(|mover| mover.pause(deadline)).collect();
        let ask = |threads: fn(&Worker) -> &[Thread]| {
            let ask = |worker| threads(worker).iter().map(|thread| thread.desk.ask()).collect::<Vec<_>>();
            let numbers: Vec<_> = self.workers.iter().map(ask).collect();
            let take = |(worker, numbers): (_, Vec<u64>)| {
                let asked = zip(threads(worker), numbers);
                asked.map(|(thread, number)| take(&thread.desk, number, deadline)).collect::<Vec<_>>()
            };
            zip(&self.workers, numbers).map(take).collect::<Vec<_>>()
        };
        let meters = ask(|worker| &worker.meters);
        let readers = ask(|worker| &worker.readers);
        let both = zip(zip(&self.workers, readers), meters);
        let mut answers: Vec<_> = both.map(|((worker, readers), meters)| worker.answer(readers, meters)).collect();
        if guards.iter().any(Option::is_none) {
            answers.iter_mut().for_each(|answer| answer.timed_out = true);
        }
        answers
    }

    /// Processor time that the thread of each sink took up to its last whole batch, ns: of those that are open.
    pub fn sink_cpu_time_ns(&self) -> Vec<u64> {
        self.exporter.busy_ns()
    }

    /// Whether every source has come to its end.
    pub fn is_finished(&self) -> bool {
        self.workers.iter().flat_map(Worker::threads).all(|thread| thread.thread.is_finished())
    }

    /// Whether every sink has ended early, and there is one.
    pub fn all_sinks_failed(&self) -> bool {
        self.exporter.all_sinks_failed()
    }

    /// Errors with which sinks ended, each told once.
    pub fn take_sink_errors(&self) -> Vec<Error> {
        self.exporter.take_errors()
    }

    /// Other timeouts, another filter and other sinks, if there are others, from now on: whatever comes when this has returned.
    ///
    /// # Errors
    /// The system starts no thread for the sinks, which stay as they were.
    pub fn reconfigure(&mut self, settings: Settings, sinks: Option<Vec<SinkChange>>) -> io::Result<()> {
        if let Some(sinks) = &sinks {
            let datagrams = |change: &SinkChange| match change {
                SinkChange::Keep(number) => self.datagrams.get(*number).copied().flatten(),
                SinkChange::Open(sink) => sink.udp_endpoints(),
            };
            self.datagrams = sinks.iter().map(datagrams).collect();
            self.own = SelfTrafficFilter::new(self.datagrams.iter().copied().flatten());
        }
        let settings = Settings { self_traffic: self.own.clone(), ..settings };
        let threads: Vec<_> = self.workers.iter().flat_map(Worker::threads).collect();
        let numbers: Vec<_> = threads.iter().map(|thread| thread.desk.order(&settings)).collect();
        let deadline = Instant::now() + PATIENCE;
        for (thread, number) in threads.iter().zip(numbers) {
            drop(thread.desk.wait(number, deadline));
        }
        sinks.map_or(Ok(()), |sinks| self.exporter.replace_sinks(sinks))
    }

    /// Takes in nothing more, meters what has come, ends every flow and finishes every sink.
    pub fn finish(mut self) -> FinalReport {
        let mut answers = Vec::new();
        for mut worker in self.end() {
            let report = |thread: Thread| {
                // A panic in a pipeline goes on here.
                thread.thread.join().unwrap_or_else(|panic| resume_unwind(panic));
                (thread.desk.lock().take(), State::Ended)
            };
            let readers = std::mem::take(&mut worker.readers).into_iter().map(report).collect();
            let meters = std::mem::take(&mut worker.meters).into_iter().map(report).collect();
            answers.push(worker.answer(readers, meters));
        }
        self.exporter.finish();
        let ledger = self.exporter.ledger(answers.iter().map(|answer| answer.account.clone()));
        FinalReport { ledger, pipelines: answers, sink_errors: self.exporter.take_errors() }
    }

    fn end(&mut self) -> Vec<Worker> {
        self.stop.store(true, Ordering::Relaxed);
        std::mem::take(&mut self.workers)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        for worker in self.end() {
            for thread in worker.readers.into_iter().chain(worker.meters) {
                let _ = thread.thread.join();
            }
        }
    }
}

/// How an answer is to be taken.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Answered,
    Silent,
    Ended,
}

/// The answer of a thread to a question, or what it said before.
fn take(desk: &Desk, number: u64, deadline: Instant) -> (Report, State) {
    let mut told = desk.wait(number, deadline);
    let state = match (told.ended, told.number < number) {
        (true, _) => State::Ended,
        (false, true) => State::Silent,
        (false, false) => State::Answered,
    };
    (told.take(), state)
}

impl Thread {
    /// Starts a thread, which makes itself ready in its affinity before this returns.
    fn start<W: FnOnce(&Desk) + 'static>(
        name: String,
        affinity: CpuAffinity,
        prepare: impl FnOnce() -> io::Result<W> + Send + 'static,
    ) -> io::Result<Self> {
        let desk = Arc::new(Desk::default());
        let of_thread = desk.clone();
        let (ready, begun) = sync_channel(1);
        let thread = thread::Builder::new().name(name).spawn(move || {
            affinity.apply();
            match prepare() {
                Ok(work) => {
                    let _ = ready.send(Ok(()));
                    work(&of_thread);
                }
                Err(error) => ready.send(Err(error)).unwrap_or(()),
            }
        })?;
        begun.recv().unwrap_or_else(|_| Err(io::Error::other("a pipeline did not begin")))?;
        Ok(Self { desk, thread })
    }
}

impl Worker {
    fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.readers.iter().chain(&self.meters)
    }

    /// The answer of a pipeline from those of its threads.
    fn answer(&self, readers: Vec<(Report, State)>, meters: Vec<(Report, State)>) -> PipelineStatus {
        let sum = |reports: &[(Report, State)]| {
            let mut sum = Account::default();
            reports.iter().for_each(|(report, _)| sum.merge(&report.account));
            sum
        };
        let account =
            if meters.is_empty() { sum(&readers) } else { Account::of_halves(&sum(&readers).ledger, sum(&meters)) };
        let all = || readers.iter().chain(&meters);
        let balance = self.mover.as_ref().map(|mover| {
            let [moved_buckets, imbalance_permille] = mover.moves().so_far();
            LoadBalance { imbalance_permille, moved_buckets }
        });
        PipelineStatus {
            name: self.name.clone(),
            account,
            cpu_time_ns: all().map(|(report, _)| report.busy_ns).collect(),
            balance,
            timed_out: all().any(|(_, state)| *state == State::Silent),
            finished: all().all(|(_, state)| *state == State::Ended),
            errors: all().flat_map(|(report, _)| report.errors.iter().cloned()).collect(),
            more_errors: all().map(|(report, _)| report.more_errors).sum(),
        }
    }
}
