//! A worker group: the threads that read and meter some receive queues, and what they report.

use crate::account::Account;
use crate::control_mailbox::{ControlMailbox, PipelineError, WorkerReport};
use crate::exporter::Exporter;
use crate::heartbeat::{Pulse, ThreadPanic};
use crate::loss_channel::LossHistories;
use crate::metering_stage::MeteringStage;
use crate::migration::{RebalancerThread, connect};
use crate::packet_actions::PacketActions;
use crate::pipeline::Pipeline;
use crate::reading_stage::ReadingStage;
use crate::settings::{BackPressure, Settings};
use crate::thread::CpuAffinity;
use crate::worker::{self, StopSignal};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::iter::zip;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_capture::{Input, POLL_TIMEOUT};

/// Specification of a worker group: receive queues that are processed together, and the CPU
/// affinity of each thread.
pub struct WorkerGroupSpec {
    /// The name in messages: `af_packet:eth0@1`.
    pub name: String,
    /// A thread for each queue reads it.
    pub queues: Vec<ReceiveQueue>,
    /// CPU affinity of each metering thread. Each flow is processed by one of them, whichever queue
    /// its packets arrive on, and flows migrate if the load is uneven. Empty: each reading thread
    /// meters its own packets (fused).
    pub meters: Vec<CpuAffinity>,
}

/// A receive queue and the CPU affinity of the thread that reads it.
pub struct ReceiveQueue {
    /// The source of its packets.
    pub source: Input<'static>,
    /// Where its thread runs.
    pub affinity: CpuAffinity,
    /// What it does with packets beyond metering. Only if the thread meters.
    pub actions: Option<PacketActions>,
}

/// What a worker group reports.
#[derive(Debug, Default)]
pub struct GroupStatus {
    /// See [`WorkerGroupSpec::name`].
    pub name: String,
    /// The newest account that is known.
    pub account: Account,
    /// CPU time of each thread, ns: first those that read, then those that meter.
    pub cpu_time_ns: Vec<u64>,
    /// `None` with fewer than two meters.
    pub balance: Option<LoadBalance>,
    /// A thread did not answer in time, for example because it waits for a pipe. The account is
    /// then an earlier one, and the ledger of the run need not balance.
    pub timed_out: bool,
    /// The source has ended, and all records were exported.
    pub finished: bool,
    /// The first errors since the previous status.
    pub errors: Vec<PipelineError>,
    /// Number of further errors.
    pub more_errors: u64,
}

/// How even the load of the meters of a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadBalance {
    /// By how much the busiest meter exceeded the mean load at the last measurement, in
    /// thousandths.
    pub imbalance_permille: u64,
    /// Buckets (of 512) moved between meters so far.
    pub moved_buckets: u64,
}

/// What the threads of a group need to start.
pub(crate) struct GroupContext<'a> {
    pub settings: &'a Settings,
    pub back_pressure: BackPressure,
    pub stop: &'a Arc<AtomicBool>,
    pub exporter: &'a Exporter,
    /// Numbers of its first reading thread and of its first metering thread, for their names.
    pub first_numbers: [usize; 2],
}

#[derive(Default)]
pub(crate) struct RunningGroup {
    name: String,
    pub readers: Vec<WorkerThread>,
    /// Empty if the readers meter.
    pub meters: Vec<WorkerThread>,
    /// With several meters.
    pub rebalancer: Option<RebalancerThread>,
}

pub(crate) struct WorkerThread {
    pub pulse: Pulse,
    pub mailbox: Arc<ControlMailbox>,
    pub thread: JoinHandle<()>,
}

impl RunningGroup {
    pub fn start(group: WorkerGroupSpec, context: &GroupContext<'_>) -> io::Result<Self> {
        let WorkerGroupSpec { name, mut queues, meters } = group;
        let poll_timeout = if context.settings.busy_poll { Duration::ZERO } else { POLL_TIMEOUT };
        for live in queues.iter_mut().filter_map(|queue| queue.source.live()) {
            live.set_poll_timeout(poll_timeout);
        }
        let running = Self { name, ..Self::default() };
        if meters.is_empty() {
            running.start_fused(queues, context)
        } else {
            running.start_separate_threads(queues, meters, poll_timeout, context)
        }
    }

    fn start_fused(mut self, queues: Vec<ReceiveQueue>, context: &GroupContext<'_>) -> io::Result<Self> {
        let [first_number, _] = context.first_numbers;
        for (number, ReceiveQueue { source, affinity, actions }) in zip(first_number.., queues) {
            let (settings, handle) = (context.settings.clone(), context.exporter.handle());
            let stop = StopSignal::new(context.stop.clone());
            self.readers.push(WorkerThread::start(format!("weir-{number}"), affinity, move || {
                let pipeline = Pipeline::new(settings, handle, actions)?;
                Ok(move |mailbox: &ControlMailbox| worker::run_fused(source, pipeline, mailbox, stop))
            })?);
        }
        Ok(self)
    }

    fn start_separate_threads(
        mut self,
        queues: Vec<ReceiveQueue>,
        meters: Vec<CpuAffinity>,
        poll_timeout: Duration,
        context: &GroupContext<'_>,
    ) -> io::Result<Self> {
        if queues.iter().any(|queue| queue.actions.is_some()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "packets are forwarded by Layout::Fused only"));
        }
        // Flows can migrate only between meters with the same secret.
        let meter = context.settings.meter;
        let secret = meter.secret.unwrap_or_else(|| RandomState::new().hash_one(0));
        let meter = weir_flow::Config { secret: Some(secret), ..meter };
        let settings = Settings { meter, ..context.settings.clone() };
        let keys = (secret, meter.key);
        let connections = connect(queues.len(), meters.len(), context.back_pressure, poll_timeout, keys)?;
        let [first_reader, first_meter] = context.first_numbers;
        for ((number, affinity), (input, receivers)) in zip(zip(first_meter.., meters), connections.inputs) {
            let (settings, handle) = (settings.clone(), context.exporter.handle());
            self.meters.push(WorkerThread::start(format!("weir-meter-{number}"), affinity, move || {
                let metering = MeteringStage::new(&settings, handle, LossHistories::from_receivers(receivers))?;
                Ok(move |mailbox: &ControlMailbox| worker::run_meter(metering, input, settings.busy_poll, mailbox))
            })?);
        }
        for ((number, queue), dispatcher) in zip(zip(first_reader.., queues), connections.dispatchers) {
            let ReceiveQueue { source, affinity, .. } = queue;
            let (reader, stop) = (ReadingStage::new(&settings), StopSignal::new(context.stop.clone()));
            self.readers.push(WorkerThread::start(format!("weir-read-{number}"), affinity, move || {
                Ok(move |mailbox: &ControlMailbox| worker::run_reader(source, reader, dispatcher, mailbox, stop))
            })?);
        }
        let group = connections.group;
        self.rebalancer = (group.meters.len() > 1).then(|| RebalancerThread::start(group)).transpose()?;
        Ok(self)
    }

    pub fn threads(&self) -> impl Iterator<Item = &WorkerThread> {
        self.readers.iter().chain(&self.meters)
    }

    /// The pulses of all threads.
    pub fn pulses(&mut self) -> impl Iterator<Item = &mut Pulse> {
        let workers = self.readers.iter_mut().chain(&mut self.meters).map(|worker| &mut worker.pulse);
        workers.chain(self.rebalancer.as_mut().map(|rebalancer| &mut rebalancer.pulse))
    }

    /// The final status, the panics that were not taken, and the names of the threads that have not
    /// ended. These are abandoned: their last report counts.
    pub fn end(mut self) -> (GroupStatus, Vec<ThreadPanic>, Vec<String>) {
        let (mut panics, mut stuck) = (Vec::new(), Vec::new());
        let mut end = |mut worker: WorkerThread| {
            if worker.thread.is_finished() {
                worker.thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            } else {
                stuck.push(worker.pulse.name.clone());
            }
            panics.extend(worker.pulse.take_panic());
            WorkerReport { has_panicked: worker.pulse.has_panicked(), ..worker.mailbox.report(0, Instant::now()) }
        };
        let readers = std::mem::take(&mut self.readers).into_iter().map(&mut end).collect();
        let meters = std::mem::take(&mut self.meters).into_iter().map(&mut end).collect();
        panics.extend(self.rebalancer.as_mut().and_then(|rebalancer| rebalancer.pulse.take_panic()));
        let status = self.status(readers, meters, !stuck.is_empty());
        if !stuck.is_empty() {
            // It may wait for a thread that is stuck.
            std::mem::forget(self.rebalancer.take());
        }
        (status, panics, stuck)
    }

    /// The status of the group, from the reports of its threads. If threads are abandoned, what is in
    /// the queues between them is lost.
    pub fn status(
        &self,
        mut readers: Vec<WorkerReport>,
        mut meters: Vec<WorkerReport>,
        is_abandoned: bool,
    ) -> GroupStatus {
        let sum = |reports: &[WorkerReport]| {
            let mut sum = Account::default();
            reports.iter().for_each(|report| sum.merge(&report.account));
            sum
        };
        let account = if meters.is_empty() {
            sum(&readers)
        } else if readers.iter().chain(&meters).any(|report| report.has_panicked) {
            Account::combined_after_panic(&sum(&readers).ledger, sum(&meters))
        } else if is_abandoned {
            let (reader, mut meter) = (sum(&readers).ledger, sum(&meters));
            if meters.len() > 1 {
                let have_ended = readers.iter().all(|report| report.is_finished);
                meter.settle_migrations(have_ended.then_some([reader.packets.metered, reader.bytes.metered]));
            }
            Account::combined_with_losses(&reader, meter)
        } else {
            Account::combined_in_transit(&sum(&readers).ledger, sum(&meters))
        };
        let balance = self.rebalancer.as_ref().map(|RebalancerThread { group, .. }| LoadBalance {
            imbalance_permille: group.imbalance_permille.load(Ordering::Relaxed),
            moved_buckets: group.moved_buckets.load(Ordering::Relaxed),
        });
        readers.append(&mut meters);
        GroupStatus {
            name: self.name.clone(),
            account,
            cpu_time_ns: readers.iter().map(|report| report.cpu_time_ns).collect(),
            balance,
            timed_out: readers.iter().any(|report| report.timed_out),
            finished: readers.iter().all(|report| report.is_finished),
            more_errors: readers.iter().map(|report| report.more_errors).sum(),
            errors: readers.into_iter().flat_map(|report| report.errors).collect(),
        }
    }
}

impl WorkerThread {
    /// Starts a thread. Returns after the thread has applied its affinity and run `prepare` there,
    /// so that its memory is on its NUMA node.
    fn start<R: FnOnce(&ControlMailbox) + 'static>(
        name: String,
        affinity: CpuAffinity,
        prepare: impl FnOnce() -> io::Result<R> + Send + 'static,
    ) -> io::Result<Self> {
        let mailbox = Arc::new(ControlMailbox::default());
        let of_thread = mailbox.clone();
        let pulse = Pulse::new(name.clone());
        let heartbeat = pulse.heartbeat.clone();
        let (ready, started) = sync_channel(1);
        let thread = thread::Builder::new().name(name).spawn(move || {
            affinity.apply();
            match prepare() {
                Ok(run) => {
                    let _ = ready.send(Ok(()));
                    heartbeat.adopt(|| run(&of_thread));
                }
                Err(error) => ready.send(Err(error)).unwrap_or(()),
            }
        })?;
        started.recv().unwrap_or_else(|_| Err(io::Error::other("a worker thread did not start")))?;
        Ok(Self { pulse, mailbox, thread })
    }
}
