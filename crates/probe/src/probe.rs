//! The probe at work: a pipeline per queue on one thread or two; pipelines share nothing but the exporter.
//!
//! ```text
//! queue 0 -> pipeline ─┐
//! queue 1 -> pipeline ─┼─> exporter's thread -> sinks
//! ...                 ─┘
//! ```
//! Always true: the account of everything balances at any moment. Each pipeline gives its own between two bursts, and who takes
//! something over is asked before who handed it over: sinks, then meters, then readers.

use crate::account::Account;
use crate::desk::{Desk, Report};
use crate::exporter::{Behind, Exporter};
use crate::looks::{self, Histories};
use crate::metering::Metering;
use crate::own::Own;
use crate::pipeline::Pipeline;
use crate::place::Place;
use crate::reader::Reader;
use crate::settings::Settings;
use crate::work::{self, Stop};
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_capture::Source;
use weir_export::{Error, Sink};
use weir_ledger::Ledger;

/// How long a thread is waited for when it is asked; one that waits for packets answers within a tenth of it.
const PATIENCE: Duration = Duration::from_secs(1);

/// A queue, and where it is to be worked on.
pub struct Queue {
    /// As people know it: `af_packet:eth0@1`.
    pub name: String,
    /// Its packets.
    pub source: Box<dyn Source + Send>,
    /// Where its thread runs.
    pub place: Place,
    /// Where a second thread runs, which meters what the first one reads (split); none: the first does both (fused).
    pub meter: Option<Place>,
}

/// Pipelines at work.
pub struct Probe {
    workers: Vec<Worker>,
    exporter: Exporter,
    stop: Arc<AtomicBool>,
    /// What the sinks send.
    own: Own,
}

/// What a pipeline says of itself.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Its name, see [`Queue::name`].
    pub name: String,
    /// What it has done, the last that is known of it.
    pub account: Account,
    /// Processor time that each of its threads took, ns.
    pub busy_ns: Vec<u64>,
    /// It did not answer in time, as one does that waits for a pipe: what stands here is what it said before, and the account of
    /// everything need not balance.
    pub silent: bool,
    /// Its source has ended, and everything of it is handed over.
    pub ended: bool,
    /// What went wrong since it was asked last, the first of it.
    pub errors: Vec<String>,
    /// More that went wrong.
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

/// A pipeline: its threads, in the order of the packets' way, and their desks.
struct Worker {
    name: String,
    desks: Vec<Arc<Desk>>,
    threads: Vec<JoinHandle<()>>,
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
        let own = own(&sinks);
        let settings = Settings { own: own.clone(), ..settings };
        let exporter = Exporter::new(sinks, export, behind)?;
        let mut probe = Self { workers: Vec::new(), exporter, stop: Arc::default(), own };
        for queue in queues {
            // What was started before ends with the probe.
            let worker = probe.begin(queue, settings.clone(), behind)?;
            probe.workers.push(worker);
        }
        Ok(probe)
    }

    fn begin(&self, queue: Queue, settings: Settings, behind: Behind) -> io::Result<Worker> {
        let Queue { name, source, place, meter } = queue;
        let entrance = self.exporter.entrance();
        let mut worker = Worker { name, desks: Vec::new(), threads: Vec::new() };
        let stop = Stop::new(self.stop.clone());
        let number = self.workers.len();
        let Some(meter) = meter else {
            worker.add(format!("weir-{number}"), place, move || {
                let pipeline = Pipeline::new(settings, entrance)?;
                Ok(move |desk: &Desk| work::fused(source, pipeline, desk, stop))
            })?;
            return Ok(worker);
        };
        let (teller, listener) = looks::looks();
        let (out, from) = work::queue(behind, teller);
        let reader = Reader::new(&settings);
        worker.add(format!("weir-meter-{number}"), meter, move || {
            let metering = Metering::new(&settings, entrance, Histories::from(vec![listener]))?;
            Ok(move |desk: &Desk| work::meter(metering, from, desk))
        })?;
        worker.add(format!("weir-read-{number}"), place, move || {
            Ok(move |desk: &Desk| work::read(source, reader, out, desk, stop))
        })?;
        worker.desks.reverse();
        worker.threads.reverse();
        Ok(worker)
    }

    /// What all pipelines say of themselves, and the account of everything at this moment. Waits for each of them
    /// to come to the end of a burst.
    pub fn ask(&self) -> (Ledger, Vec<Answer>) {
        let mut answers = Vec::new();
        let ledger = self.exporter.ledger_of(|| {
            answers = self.answers();
            answers.iter().map(|answer| answer.account.clone()).collect::<Vec<_>>()
        });
        (ledger, answers)
    }

    fn answers(&self) -> Vec<Answer> {
        let deadline = Instant::now() + PATIENCE;
        let ask = |desk: fn(&Worker) -> &Desk| {
            let numbers: Vec<_> = self.workers.iter().map(|worker| desk(worker).ask()).collect();
            let asked = self.workers.iter().zip(numbers);
            asked.map(|(worker, number)| take(desk(worker), number, deadline)).collect::<Vec<_>>()
        };
        let last = ask(|worker| worker.desks.last().expect("a pipeline has a thread"));
        let first = ask(|worker| worker.desks.first().expect("a pipeline has a thread"));
        let both = self.workers.iter().zip(first).zip(last);
        both.map(|((worker, first), last)| worker.answer(first, last)).collect()
    }

    /// Whether every source has come to its end.
    pub fn has_ended(&self) -> bool {
        self.workers.iter().flat_map(|worker| &worker.threads).all(JoinHandle::is_finished)
    }

    /// Whether every sink has ended early, and there is one.
    pub fn abandoned(&self) -> bool {
        self.exporter.abandoned()
    }

    /// Errors with which sinks ended, each told once.
    pub fn sink_errors(&self) -> Vec<Error> {
        self.exporter.errors()
    }

    /// Other timeouts, another filter and other sinks, if there are others, from now on: whatever comes when this has returned.
    pub fn change(&mut self, settings: Settings, sinks: Option<Vec<Box<dyn Sink + Send>>>) {
        if let Some(sinks) = &sinks {
            self.own = own(sinks);
        }
        let settings = Settings { own: self.own.clone(), ..settings };
        let desks: Vec<_> = self.workers.iter().flat_map(|worker| &worker.desks).collect();
        let numbers: Vec<_> = desks.iter().map(|desk| desk.order(&settings)).collect();
        let deadline = Instant::now() + PATIENCE;
        for (desk, number) in desks.iter().zip(numbers) {
            drop(desk.wait(number, deadline));
        }
        if let Some(sinks) = sinks {
            self.exporter.replace(sinks);
        }
    }

    /// Takes in nothing more, meters what has come, ends every flow and finishes every sink.
    pub fn finish(mut self) -> End {
        let mut answers = Vec::new();
        for worker in self.end() {
            for thread in worker.threads {
                // A panic in a pipeline goes on here.
                thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
            let report =
                |desk: Option<&Arc<Desk>>| (desk.expect("a pipeline has a thread").lock().take(), State::Ended);
            let (first, last) = (report(worker.desks.first()), report(worker.desks.last()));
            answers.push(Worker { threads: Vec::new(), ..worker }.answer(first, last));
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
        for thread in self.end().into_iter().flat_map(|worker| worker.threads) {
            let _ = thread.join();
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

impl Worker {
    /// Starts a thread, which makes itself ready in its place before this returns.
    fn add<W: FnOnce(&Desk) + 'static>(
        &mut self,
        name: String,
        place: Place,
        prepare: impl FnOnce() -> io::Result<W> + Send + 'static,
    ) -> io::Result<()> {
        let desk = Arc::new(Desk::default());
        self.desks.push(desk.clone());
        let (ready, begun) = sync_channel(1);
        let thread = thread::Builder::new().name(name).spawn(move || {
            place.take();
            match prepare() {
                Ok(work) => {
                    let _ = ready.send(Ok(()));
                    work(&desk);
                }
                Err(error) => ready.send(Err(error)).unwrap_or(()),
            }
        })?;
        self.threads.push(thread);
        begun.recv().unwrap_or_else(|_| Err(io::Error::other("a pipeline did not begin")))
    }

    /// The answer of a pipeline from those of its first and its last thread, which may be one.
    fn answer(&self, (first, of_first): (Report, State), (last, of_last): (Report, State)) -> Answer {
        let one = self.desks.len() == 1;
        let (account, busy_ns) = if one {
            (first.account, vec![first.busy_ns])
        } else {
            (Account::of_halves(&first.account.ledger, last.account), vec![first.busy_ns, last.busy_ns])
        };
        let is = |state| of_first == state || of_last == state;
        Answer {
            name: self.name.clone(),
            account,
            busy_ns,
            silent: is(State::Silent),
            ended: of_first == State::Ended && of_last == State::Ended,
            errors: first.errors.into_iter().chain(last.errors).collect(),
            more_errors: first.more_errors + last.more_errors,
        }
    }
}

/// What sinks send.
fn own(sinks: &[Box<dyn Sink + Send>]) -> Own {
    Own::new(sinks.iter().filter_map(|sink| sink.datagrams()))
}
