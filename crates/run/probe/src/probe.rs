//! The running probe: worker groups, which share nothing but the exporter.
//!
//! ```text
//! queue 0 -> worker group ─┐   ┌─> sink
//! queue 1 -> worker group ─┼───┼─> sink
//! ...                     ─┘   └─> ...
//! ```
//! The ledger of all groups balances at any moment: each thread reports between two bursts, and the
//! receiver of packets or records reports before the sender: first sinks, then meters, then
//! readers.

use crate::admission::SelfTrafficFilter;
use crate::control_mailbox::WorkerReport;
use crate::exporter::{CHECK_INTERVAL, Exporter, SinkChange};
use crate::flow_search::{FlowReply, FlowSearch, RunningSearch};
use crate::heartbeat::{Heartbeat, Pulse, ThreadPanic};
use crate::load_shedder::population;
use crate::settings::{BackPressure, Settings};
use crate::thread::CpuAffinity;
use crate::worker_group::{GroupContext, GroupStatus, RunningGroup, WorkerGroupSpec, WorkerThread};
use std::io;
use std::iter::{self, zip};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_capture::Source;
use weir_export::{Error, Sink};
use weir_ledger::{Ledger, RecordTotals};
use weir_rules::Rules;

/// How long to wait for the reports of threads. One that waits for packets needs 0.1 s.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// The same for the reports of threads that wait for a pipe or a sink, and may go on at any time.
const WAITING_REPLY_TIMEOUT: Duration = Duration::from_millis(50);

/// Running worker groups and sinks.
pub struct Probe {
    groups: Vec<RunningGroup>,
    exporter: Exporter,
    stop: Arc<AtomicBool>,
    settings: Settings,
    /// Without overload, 1 in this number of packets is metered.
    sampling_population: u32,
    /// Numbers and names of interfaces.
    interfaces: Vec<(u32, String)>,
    /// Those of threads of the caller.
    watched: Vec<Pulse>,
}

/// The result of a run.
#[derive(Default)]
pub struct FinalReport {
    /// The ledger of everything.
    pub ledger: Ledger,
    /// The last status of every worker group.
    pub groups: Vec<GroupStatus>,
    /// Errors of sinks that [`Exporter::take_errors`] has not returned.
    pub sink_errors: Vec<Error>,
    /// Panics that [`Probe::take_panics`] has not returned.
    pub panics: Vec<ThreadPanic>,
    /// Names of the threads that had not ended in time and were abandoned. The records in their flow
    /// caches are lost. What they took in since their last report is in no counter.
    pub stuck_threads: Vec<String>,
}

impl Probe {
    /// Starts the worker groups and the sinks. Each thread allocates its memory itself, on its NUMA
    /// node. `transactions` are the sinks of the records of transactions, if these are recorded.
    ///
    /// # Errors
    /// The system has too little memory or cannot start a thread.
    pub fn start(
        groups: Vec<WorkerGroupSpec>,
        settings: Settings,
        sinks: Vec<Box<dyn Sink + Send>>,
        transactions: Option<Vec<Box<dyn Sink + Send>>>,
        sink_affinity: CpuAffinity,
        back_pressure: BackPressure,
    ) -> io::Result<Self> {
        let self_traffic = SelfTrafficFilter::new(sinks.iter().filter_map(|sink| sink.udp_endpoints()));
        let settings = Settings { self_traffic, ..settings };
        let queues = groups.iter().flat_map(|group| &group.queues);
        let mut interfaces: Vec<_> = queues.flat_map(|queue| queue.source.interfaces()).collect();
        interfaces.sort();
        interfaces.dedup();
        let exporter = Exporter::new(sinks, sink_affinity, back_pressure, &settings)?;
        let exporter = match transactions {
            Some(sinks) => exporter.with_transactions(sinks, &settings)?,
            None => exporter,
        };
        let mut probe = Self {
            groups: Vec::new(),
            exporter,
            stop: Arc::default(),
            settings: settings.clone(),
            sampling_population: population(
                settings.overload.base_level(),
                settings.shed,
                settings.sampling_population,
            ),
            interfaces,
            watched: Vec::new(),
        };
        probe.report_status(&[]);
        for group in groups {
            let threads =
                |of: fn(&RunningGroup) -> &Vec<WorkerThread>| probe.groups.iter().map(|group| of(group).len()).sum();
            // If this fails, dropping the probe ends the groups that are already running.
            let running = RunningGroup::start(
                group,
                &GroupContext {
                    settings: &settings,
                    back_pressure,
                    stop: &probe.stop,
                    exporter: &probe.exporter,
                    first_numbers: [threads(|group| &group.readers), threads(|group| &group.meters)],
                },
            )?;
            probe.groups.push(running);
        }
        Ok(probe)
    }

    /// The current ledger, and the status of every worker group. Also passes them to the sinks, which
    /// report them to collectors. Waits until each thread has come
    /// to the end of a burst, at most 1 s.
    pub fn status(&self) -> (Ledger, Vec<GroupStatus>) {
        let mut groups = Vec::new();
        let accounts = iter::once_with(|| {
            groups = self.group_statuses();
            groups.iter().map(|group| group.account.clone()).collect::<Vec<_>>()
        });
        let ledger = self.exporter.ledger(accounts.flatten());
        self.report_status(&groups);
        (ledger, groups)
    }

    fn report_status(&self, groups: &[GroupStatus]) {
        let accounts = groups.iter().map(|group| &group.account);
        self.exporter.report_status(accounts, self.sampling_population, self.interfaces.clone());
    }

    fn group_statuses(&self) -> Vec<GroupStatus> {
        let deadline = Instant::now() + REPLY_TIMEOUT;
        // A flow on its way between two meters would be in no account. While the guards live, none migrates.
        let rebalancers = self.groups.iter().filter_map(|group| group.rebalancer.as_ref());
        let guards: Vec<_> =
            rebalancers.map(|rebalancer| rebalancer.group.migrating.try_lock_until(deadline)).collect();
        let meters = self.reports(|group| &group.meters, deadline);
        let readers = self.reports(|group| &group.readers, deadline);
        let reports = zip(readers, meters);
        let mut groups: Vec<_> =
            zip(&self.groups, reports).map(|(group, (readers, meters))| group.status(readers, meters, false)).collect();
        if guards.iter().any(Option::is_none) {
            groups.iter_mut().for_each(|group| group.timed_out = true);
        }
        groups
    }

    /// Reports of some threads of each group. All threads work on the request at the same time.
    fn reports(&self, threads: fn(&RunningGroup) -> &[WorkerThread], deadline: Instant) -> Vec<Vec<WorkerReport>> {
        let request = |group| threads(group).iter().map(|thread| thread.mailbox.request_report()).collect::<Vec<_>>();
        let requests: Vec<_> = self.groups.iter().map(request).collect();
        let reports = |(group, requests): (_, Vec<u64>)| {
            let report = |(thread, request): (&WorkerThread, _)| {
                let soon = Instant::now() + WAITING_REPLY_TIMEOUT;
                thread.mailbox.report(request, if thread.pulse.is_waiting() { deadline.min(soon) } else { deadline })
            };
            zip(threads(group), requests).map(report).collect()
        };
        zip(&self.groups, requests).map(reports).collect()
    }

    /// Searches among the current flows. Each thread that meters answers for itself, until the
    /// deadline of the search; one that ends before drops its `reply`.
    pub fn search_flows(&self, search: &FlowSearch, mut reply: impl FnMut() -> FlowReply) {
        for group in &self.groups {
            let meters = if group.meters.is_empty() { &group.readers } else { &group.meters };
            for worker in meters {
                worker.mailbox.request_search(RunningSearch::new(search, reply()));
            }
        }
    }

    /// The running sinks.
    pub fn exporter(&self) -> &Exporter {
        &self.exporter
    }

    /// Whether every source has ended.
    pub fn is_finished(&self) -> bool {
        self.groups.iter().flat_map(RunningGroup::threads).all(|worker| worker.thread.is_finished())
    }

    /// Changes timeouts, filter and, if given, the sinks. The change applies to all packets that
    /// arrive after the return.
    ///
    /// # Errors
    /// The system cannot start a thread for a sink. Nothing has changed then.
    pub fn reconfigure(&mut self, settings: Settings, sinks: Option<Vec<SinkChange>>) -> io::Result<()> {
        let old = self.exporter.udp_endpoints();
        let self_traffic = match &sinks {
            None => self.settings.self_traffic.clone(),
            Some(sinks) => SelfTrafficFilter::new(sinks.iter().filter_map(|change| match change {
                SinkChange::Keep(number) => old.get(*number).copied().flatten(),
                SinkChange::Open(sink) => sink.udp_endpoints(),
            })),
        };
        let queue_batches = settings.queue_batches;
        let started = sinks.map(|sinks| self.exporter.start_sinks(sinks, queue_batches)).transpose()?;
        // Before the new sinks send their first datagrams.
        self.apply(Settings { self_traffic, ..settings });
        started.into_iter().for_each(|started| self.exporter.replace_sinks(started));
        Ok(())
    }

    /// Stops metering the datagrams of sinks that have connected since the last call. Such a sink
    /// waits for this call.
    pub fn filter_new_connections(&mut self) {
        let endpoints = self.exporter.udp_endpoints();
        let self_traffic = SelfTrafficFilter::new(endpoints.iter().copied().flatten());
        if self_traffic != self.settings.self_traffic {
            self.apply(Settings { self_traffic, ..self.settings.clone() });
        }
        self.exporter.confirm_filtered(&endpoints);
    }

    /// Changes the rules of pipelines that forward packets. Their egresses are those of the old ones.
    pub fn set_rules(&mut self, rules: Arc<Rules>) {
        self.apply(Settings { rules: Some(rules), ..self.settings.clone() });
    }

    /// Passes settings to all threads, and waits until these use them.
    fn apply(&mut self, settings: Settings) {
        self.settings = settings.clone();
        let threads: Vec<_> = self.groups.iter().flat_map(RunningGroup::threads).collect();
        let requests: Vec<_> = threads.iter().map(|thread| thread.mailbox.request_settings(&settings)).collect();
        let deadline = Instant::now() + REPLY_TIMEOUT;
        for (thread, request) in threads.iter().zip(requests) {
            drop(thread.mailbox.wait_for_reply(request, deadline));
        }
    }

    /// Threads that have panicked. Each panic is returned once.
    pub fn take_panics(&mut self) -> Vec<ThreadPanic> {
        let mut panics = Vec::new();
        self.check_pulses(|pulse| panics.extend(pulse.take_panic()));
        panics
    }

    /// Names of the threads that have not advanced for this time and do not wait for a pipe or a
    /// sink, as far as calls of this function have noticed.
    pub fn stuck_threads(&mut self, time: Duration) -> Vec<String> {
        let mut stuck = Vec::new();
        self.check_pulses(|pulse| stuck.extend(pulse.is_stuck(time).then(|| pulse.name.clone())));
        stuck
    }

    /// Lets [`Probe::stuck_threads`] name one more thread, which has adopted this heartbeat.
    pub fn watch(&mut self, name: &str, heartbeat: Arc<Heartbeat>) {
        self.watched.push(Pulse::of(name.into(), heartbeat));
    }

    fn check_pulses(&mut self, mut check: impl FnMut(&mut Pulse)) {
        self.watched.iter_mut().for_each(&mut check);
        self.groups.iter_mut().flat_map(RunningGroup::pulses).for_each(&mut check);
        self.exporter.check_pulses(check);
    }

    /// Stops receiving, meters the packets that have arrived, ends every flow and finishes every
    /// sink. Threads that have panicked have done so as far as possible; the ledger has what they
    /// lost.
    pub fn finish(self) -> FinalReport {
        self.finish_until(|| None)
    }

    /// The same. Records that a sink has not accepted at a deadline are lost, and threads that have not
    /// ended 1 s after it are abandoned; 10 s after it, if a sink keeps records in a spool. `deadline` is called again and again until it returns one. In
    /// the time until then, limits of the rate of a sink rise as far as needed.
    pub fn finish_until(mut self, mut deadline: impl FnMut() -> Option<Instant>) -> FinalReport {
        let mut groups = std::mem::take(&mut self.groups);
        // The report of a thread that hangs from now on is that of the last packets.
        let threads = || groups.iter().flat_map(RunningGroup::threads);
        for worker in threads() {
            worker.mailbox.request_report();
        }
        loop {
            let deadline = deadline();
            deadline.into_iter().for_each(|deadline| self.exporter.drain_until(deadline));
            self.stop.store(true, Ordering::Relaxed);
            let is_over = deadline.is_some_and(|deadline| deadline.elapsed() > self.exporter.grace());
            if is_over || threads().all(|worker| worker.thread.is_finished()) {
                break;
            }
            thread::sleep(CHECK_INTERVAL);
        }
        let mut report = FinalReport::default();
        let mut abandoned = Vec::new();
        for (number, group) in groups.drain(..).enumerate() {
            let (status, panics, stuck) = group.end();
            report.groups.push(status);
            report.panics.extend(panics);
            abandoned.extend((!stuck.is_empty()).then_some(number));
            report.stuck_threads.extend(stuck);
        }
        for number in abandoned {
            let mut sent = RecordTotals::default();
            report.groups.iter().for_each(|group| sent.merge(group.account.sent));
            self.exporter.abandon(&mut report.groups[number].account, sent);
        }
        self.report_status(&report.groups);
        self.exporter.finish_until(Some(&mut deadline));
        report.ledger = self.exporter.ledger(report.groups.iter().map(|group| group.account.clone()));
        self.exporter.check_pulses(|pulse| report.panics.extend(pulse.take_panic()));
        report.sink_errors = self.exporter.take_errors();
        report
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for group in self.groups.drain(..) {
            for worker in group.readers.into_iter().chain(group.meters) {
                let _ = worker.thread.join();
            }
        }
    }
}
