//! The third state of a probe: its threads meter. The main thread observes them, and does what signals
//! and the HTTP interface request.

use super::control::{self, Bound, Requests};
use super::monitor::Monitor;
use super::opened::{Opened, Signals};
use super::reload::{Current, Reloader};
use super::service::{NotifyState, Watchdog, notify};
use super::{privileges, start};
use crate::anonymisation;
use crate::arguments::ProbeOptions;
use crate::console::stderr;
use crate::enrichment::Enricher;
use crate::error::Error;
use crate::memory::MemoryLock;
use crate::names::SharedNames;
use crate::outputs::{OpenOutputs, Outputs};
use crate::{stored_answers, summary};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::info;
use weir_control::{Control, ProbeParts, RecentFlows, Report};
use weir_ledger::Timing;
use weir_probe::Settings;

/// A probe that meters.
pub struct Running {
    pub options: ProbeOptions,
    pub timing: Timing,
    pub probe: weir_probe::Probe,
    pub is_live: bool,
    pub monitor: Monitor,
    pub reloader: Reloader,
    pub control: Option<Control>,
    /// The last flows that have ended, for the HTTP interface.
    pub recent: Option<Arc<RecentFlows>>,
    pub signals: Signals,
    pub watchdog: Option<Watchdog>,
    pub outputs: Outputs,
    pub open: OpenOutputs,
    /// When `--duration` is over.
    pub end: Option<Instant>,
    pub has_panicked: bool,
}

impl Running {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system provides too little memory, or cannot start a thread.
    pub fn start(opened: Opened) -> Result<Self, Error> {
        let Opened { options, outputs, mut open, groups, enricher, actions, bound, mut effective, .. } = opened;
        let record_enricher = enricher.as_ref().map(Enricher::record_enricher);
        let recent = control::recent(&options);
        let names = bound.as_ref().and_then(|bound| bound.names.clone());
        let keeping = |recent| control::keeping(recent, record_enricher.clone(), outputs.anonymiser.as_ref());
        let settings = Settings {
            observer: Some(match names.clone() {
                Some(names) => names.before(summary::observer(&open.summary)),
                None => summary::observer(&open.summary),
            }),
            interface_names: enricher.as_ref().and_then(Enricher::interface_names),
            enricher: recent.clone().map(keeping).or_else(|| record_enricher.clone()),
            transaction_enricher: record_enricher.clone(),
            ..opened.settings
        };
        let shown = anonymisation::enricher(record_enricher, outputs.anonymiser.as_ref());
        let packets = control::packets(&options, actions.as_ref());
        let control_affinity = control::affinity(&groups.placement.export);
        let monitor = Monitor::new(&options);
        let (enricher_of, actions_of) = (enricher.as_ref(), actions.as_ref());
        let started = start::start(&options, &settings, groups, &mut open, outputs.memory(), enricher_of, actions_of)?;
        effective.sink_memory = started.sink_memory;
        privileges::reset_priority();
        stderr::start_thread();
        let second_stop = opened.signals.second_stop.clone();
        opened.stop_signal.start_thread_with(&settings.timing, move || second_stop.store(true, Ordering::Relaxed));
        let reloader = Reloader::new(Current { configuration: effective, actions, enricher }, &settings);
        let mut running = Self {
            options,
            timing: settings.timing,
            end: None,
            has_panicked: false,
            probe: started.probe,
            is_live: started.is_live,
            monitor,
            reloader,
            control: None,
            recent,
            signals: opened.signals,
            watchdog: opened.watchdog,
            outputs,
            open,
        };
        let locked = opened.memory_lock.map_or(Ok(()), MemoryLock::lock);
        let serve = |Bound { server, doctor, .. }: Bound| {
            let recent = running.recent.clone();
            let names = names.as_ref().map(SharedNames::ask).unwrap_or_default();
            let parts = ProbeParts { enricher: shown, overrides: opened.overrides, recent, packets, names, doctor };
            let control = server.start(running.report(), control_affinity, parts, stored_answers::ask_store());
            let control = control.map_err(Error::Thread)?;
            running.probe.watch("weir-control", control.heartbeat());
            running.control = Some(control);
            Ok(())
        };
        match locked.and_then(|()| bound.map_or(Ok(()), serve)) {
            Ok(()) => Ok(running),
            Err(error) => {
                running.probe.finish();
                Err(error)
            }
        }
    }

    /// Meters until a signal, the end of all sources or of `--duration`, or a failure.
    pub fn meter(&mut self) {
        if let Some(control) = &self.control {
            info!(address = %control.address(), "HTTP interface is ready");
        }
        let started = Instant::now();
        self.end = self.options.duration_ns.map(|ns| started + Duration::from_nanos(ns));
        let mut requests = Requests::default();
        notify(NotifyState::Ready);
        while !self.must_end() {
            self.wait();
            self.reload(&mut requests);
            self.has_panicked = self.monitor.log_panics(&self.probe.take_panics());
            if !self.has_panicked {
                self.observe();
            }
        }
        notify(NotifyState::Stopping);
        drop(requests);
        if let Some(control) = self.control.take() {
            control.publish(Report { is_ending: true, ..self.report() });
            // Their clients get an answer at once.
            control.requests().for_each(drop);
            self.control = Some(control);
        }
    }

    fn must_end(&self) -> bool {
        self.has_panicked
            || self.signals.stop.load(Ordering::Relaxed)
            || self.probe.is_finished()
            || self.probe.exporter().all_sinks_failed()
            || self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// The one place where the main thread waits: until a client of the HTTP interface requests something, or
    /// it is time to look at signals and threads again.
    fn wait(&self) {
        std::thread::park_timeout(self.timing.probe_check);
    }

    /// Reloads if a signal or a client requests it, and answers requests.
    fn reload(&mut self, requests: &mut Requests) {
        let is_idle = self.reloader.is_idle();
        let over_http = self.control.as_ref().is_some_and(|control| requests.start(control, &self.probe, is_idle));
        let is_requested = self.signals.reload.swap(false, Ordering::Relaxed) || over_http;
        if let Some(result) = self.reloader.update(is_requested, &mut self.probe) {
            // The client that has asked for the reload gets no report from before it.
            self.publish(|_| true);
            requests.end(&result);
        }
    }

    /// Prints and publishes what is due.
    fn observe(&mut self) {
        self.probe.filter_new_connections();
        if let Some(status) = self.monitor.update(&self.probe) {
            notify(NotifyState::Status(&status));
        }
        self.publish(Control::wants_report);
        if self.signals.totals.swap(false, Ordering::Relaxed) {
            self.monitor.print_totals(&self.probe);
        }
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.keep_alive(&mut self.probe);
        }
    }

    /// Gives the HTTP interface a report if one is due.
    fn publish(&mut self, is_due: impl Fn(&Control) -> bool) {
        if let Some(control) = self.control.take_if(|control| is_due(control)) {
            control.publish(self.report());
            self.control = Some(control);
        }
    }

    /// What the HTTP interface answers from now on.
    fn report(&mut self) -> Report {
        let in_effect = self.reloader.in_effect();
        if let Some(recent) = &self.recent {
            recent.keep(in_effect.stores.is_empty());
        }
        Report { in_effect, ..self.monitor.report(&self.probe) }
    }
}
