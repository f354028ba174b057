//! The probe at work: a pipeline per queue, each on a thread of its own; they share nothing but the exporter.
//!
//! ```text
//! queue 0 -> thread: source, decoder, meter ─┐
//! queue 1 -> thread: source, decoder, meter ─┼─> exporter's thread -> sinks
//! ...                                        ─┘
//! ```
//! Per burst a pipeline looks whether it is asked something: one load of memory that nobody writes meanwhile. It answers with its
//! account, taken between two bursts, so that the sum of all accounts balances at any moment.

use crate::exporter::{Account, Behind, Exporter};
use crate::own::Own;
use crate::pipeline::{Pipeline, Settings};
use crate::place::Place;
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_capture::Source;
use weir_export::{Error, Sink};
use weir_ledger::Ledger;

/// How long a pipeline is waited for when it is asked; one that waits for packets answers within a tenth of it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Errors of a source that are kept to be told; what comes on top is counted.
const ERRORS: usize = 20;

/// A queue, and where it is to be worked on.
pub struct Queue {
    /// As people know it: `af_packet:eth0@1`.
    pub name: String,
    /// Its packets.
    pub source: Box<dyn Source + Send>,
    /// Where its thread runs.
    pub place: Place,
}

/// Pipelines at work.
pub struct Probe {
    workers: Vec<Worker>,
    exporter: Exporter,
    stop: Arc<AtomicBool>,
}

/// What a pipeline says of itself.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Its name, see [`Queue::name`].
    pub name: String,
    /// What it has done, the last that is known of it.
    pub account: Account,
    /// Processor time that its thread took, ns.
    pub busy_ns: u64,
    /// It did not answer in time: what stands here is what it said before.
    pub silent: bool,
    /// Its source has ended, or its thread has.
    pub ended: bool,
    /// What its source said since it was asked last, the first of it.
    pub errors: Vec<String>,
    /// More that it said.
    pub more_errors: u64,
}

/// What all of it came to.
pub struct End {
    /// The account of everything.
    pub ledger: Ledger,
    /// What every pipeline said last.
    pub answers: Vec<Answer>,
    /// Errors with which sinks ended, that were not told before.
    pub errors: Vec<Error>,
}

/// A thread, and what it shares with those who ask.
struct Worker {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// Counts questions.
    asked: AtomicU64,
    told: Mutex<Told>,
    answered: Condvar,
}

#[derive(Default)]
struct Told {
    /// The question that was answered last.
    number: u64,
    answer: Answer,
    /// What is to be taken over.
    change: Option<Settings>,
}

impl Probe {
    /// Starts a pipeline per queue and the exporter. Each takes its memory on its own thread, where that runs.
    ///
    /// # Errors
    /// The system has not that much memory, or starts no thread.
    pub fn start(
        queues: Vec<Queue>,
        settings: Settings,
        sinks: Vec<Box<dyn Sink + Send>>,
        export: Place,
        behind: Behind,
    ) -> io::Result<Self> {
        let settings = without_own(settings, &sinks);
        let exporter = Exporter::new(sinks, export)?;
        let mut probe = Self { workers: Vec::new(), exporter, stop: Arc::default() };
        for Queue { name, source, place } in queues {
            match probe.begin(name, source, place, settings.clone(), behind) {
                Ok(worker) => probe.workers.push(worker),
                Err(error) => {
                    probe.end();
                    return Err(error);
                }
            }
        }
        Ok(probe)
    }

    fn begin(
        &self,
        name: String,
        source: Box<dyn Source + Send>,
        place: Place,
        settings: Settings,
        behind: Behind,
    ) -> io::Result<Worker> {
        let entrance = self.exporter.entrance(behind);
        let shared = Arc::new(Shared::default());
        lock(&shared).answer.name.clone_from(&name);
        let (theirs, stop) = (shared.clone(), self.stop.clone());
        let (ready, begun) = sync_channel(1);
        let work = move || {
            place.take();
            let pipeline = match Pipeline::new(settings, entrance) {
                Ok(pipeline) => pipeline,
                Err(error) => return ready.send(Err(error)).unwrap_or(()),
            };
            let _ = ready.send(Ok(()));
            run(source, pipeline, &theirs, &stop);
        };
        let number = self.workers.len();
        let thread = thread::Builder::new().name(format!("weir-{number}")).spawn(work)?;
        match begun.recv() {
            Ok(Ok(())) => Ok(Worker { shared, thread }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("a pipeline did not begin")),
        }
    }

    /// What all pipelines say of themselves, and the account of everything at this moment. Waits for each of them
    /// to come to the end of a burst.
    pub fn ask(&self) -> (Ledger, Vec<Answer>) {
        let mut answers = Vec::with_capacity(self.workers.len());
        let ask_all = || {
            let numbers: Vec<_> = self.workers.iter().map(|worker| worker.shared.ask()).collect();
            let deadline = Instant::now() + PATIENCE;
            answers.extend(self.workers.iter().zip(numbers).map(|(worker, number)| worker.answer(number, deadline)));
            answers.iter().map(|answer: &Answer| answer.account.clone()).collect::<Vec<_>>()
        };
        let ledger = self.exporter.ledger_of(ask_all);
        (ledger, answers)
    }

    /// Whether every source has come to its end.
    pub fn has_ended(&self) -> bool {
        self.workers.iter().all(|worker| worker.thread.is_finished())
    }

    /// Whether every sink has ended early, and there is one.
    pub fn abandoned(&self) -> bool {
        self.exporter.abandoned()
    }

    /// Errors with which sinks ended, each told once.
    pub fn sink_errors(&self) -> Vec<Error> {
        self.exporter.errors()
    }

    /// Other timeouts, another filter and other sinks from now on: whatever comes when this has returned.
    pub fn change(&self, settings: Settings, sinks: Vec<Box<dyn Sink + Send>>) {
        let settings = without_own(settings, &sinks);
        let tell = |worker: &Worker| {
            lock(&worker.shared).change = Some(settings.clone());
            worker.shared.ask()
        };
        let numbers: Vec<_> = self.workers.iter().map(tell).collect();
        let deadline = Instant::now() + PATIENCE;
        for (worker, number) in self.workers.iter().zip(numbers) {
            drop(worker.wait(number, deadline));
        }
        self.exporter.replace(sinks);
    }

    /// Takes in nothing more, meters what has come, ends every flow and finishes every sink.
    pub fn finish(mut self) -> End {
        let workers = self.end();
        let mut answers = Vec::new();
        for worker in workers {
            // A panic in a pipeline goes on here.
            worker.thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            answers.push(lock(&worker.shared).answer.clone());
        }
        self.exporter.finish();
        let ledger = self.exporter.ledger(answers.iter().map(|answer| answer.account.clone()));
        End { ledger, answers, errors: self.exporter.errors() }
    }

    fn end(&mut self) -> Vec<Worker> {
        self.stop.store(true, Ordering::Relaxed);
        std::mem::take(&mut self.workers)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        for worker in self.end() {
            let _ = worker.thread.join();
        }
    }
}

impl Shared {
    /// Asks, and gives the question's number.
    fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Worker {
    /// The answer to a question, or what was said before.
    fn answer(&self, number: u64, deadline: Instant) -> Answer {
        let mut told = self.wait(number, deadline);
        let answer = Answer { silent: told.number < number && !told.answer.ended, ..told.answer.clone() };
        told.answer.errors.clear();
        told.answer.more_errors = 0;
        answer
    }

    /// Waits for the answer to a question, for some time.
    fn wait(&self, number: u64, deadline: Instant) -> MutexGuard<'_, Told> {
        let mut told = lock(&self.shared);
        while told.number < number && !told.answer.ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            told = self.shared.answered.wait_timeout(told, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        told
    }
}

/// A pipeline's thread, to the end of its source.
fn run(mut source: Box<dyn Source + Send>, mut pipeline: Pipeline, shared: &Shared, stop: &AtomicBool) {
    let (mut answered, mut stopped) = (0, false);
    loop {
        match pipeline.step(&mut *source) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => shared.say(error.to_string()),
        }
        let asked = shared.asked.load(Ordering::Relaxed);
        if asked != answered {
            answered = asked;
            pipeline.look(&mut *source);
            shared.tell(asked, &mut pipeline);
        }
        if stop.load(Ordering::Relaxed) && !stopped {
            // The rest of a capture would go on coming.
            if source.now_ns().is_none() {
                break;
            }
            source.stop();
            stopped = true;
        }
    }
    let account = pipeline.finish();
    let mut told = lock(shared);
    told.answer.account = account;
    told.answer.busy_ns = busy_ns();
    told.answer.ended = true;
    shared.answered.notify_all();
}

impl Shared {
    fn say(&self, error: String) {
        let answer = &mut lock(self).answer;
        if answer.errors.len() < ERRORS {
            answer.errors.push(error);
        } else {
            answer.more_errors += 1;
        }
    }

    fn tell(&self, number: u64, pipeline: &mut Pipeline) {
        let mut told = lock(self);
        if let Some(settings) = told.change.take() {
            pipeline.change(settings);
        }
        told.answer.errors.extend(pipeline.filter_errors().iter().map(ToString::to_string));
        told.answer.account = pipeline.account();
        told.answer.busy_ns = busy_ns();
        told.number = number;
        self.answered.notify_all();
    }
}

/// Settings by which what the sinks send is not metered.
fn without_own(settings: Settings, sinks: &[Box<dyn Sink + Send>]) -> Settings {
    Settings { own: Own::new(sinks.iter().filter_map(|sink| sink.datagrams())), ..settings }
}

/// Processor time of this thread, ns.
fn busy_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What is told is whole after every line that could panic.
fn lock(shared: &Shared) -> MutexGuard<'_, Told> {
    shared.told.lock().unwrap_or_else(PoisonError::into_inner)
}
