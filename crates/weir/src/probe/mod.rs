//! `weir probe`: meters live traffic, with pipelines for each receive queue, until a signal.
//!
//! Order of a run: options and configuration file (`config`), validation (`check`), `--autotune`,
//! socket of the HTTP interface (`control`), sources and sinks (`start`), privileges, sandbox, metering
//! (`monitor`, `reload`), final report.

mod autotune;
mod check;
mod config;
mod control;
mod monitor;
mod overload;
mod placement;
pub mod privileges;
mod rate_limit;
mod reload;
mod service;
mod start;
mod status;

pub use config::without_invalid_values;

use crate::actions::{Actions, RulesReloader};
use crate::arguments::{Logging, ProbeOptions, Reporting, StatusFormat};
use crate::console::log::{self, Prefix};
use crate::console::{Deadline, print, stderr};
use crate::enrichment::{Enricher, EnrichmentReloader};
use crate::error::Error;
use crate::memory::{MemoryLock, SinkMemory};
use crate::outputs::Outputs;
use crate::run_status::RunStatus;
use crate::sandbox::{Restrictions, Sandbox};
use crate::settings::probe_settings;
use crate::signals::{StopSignal, signal_flag};
use crate::{input, missing_options, summary};
use control::Requests;
use monitor::Monitor;
use reload::{Effective, Reloader};
use service::{NotifyState, Watchdog, notify};
use start::Running;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};
use weir_capture::PacketFilter;
use weir_control::{InEffect, Report, Server};
use weir_export::FileMode;
use weir_ledger::{ExportLossReason, Ledger, SinkCounters};
use weir_probe::Settings;
use weir_text::units;

/// Least time for summary and ledger at the end.
const REPORT_TIME: Duration = Duration::from_secs(1);

/// Opens sources and sinks, drops privileges, meters, and reports. `invalid` are the errors of options
/// that `arguments` do not have for that reason, with `--check`.
pub fn run(given: &ProbeOptions, arguments: Vec<OsString>, invalid: Vec<Error>) -> Result<RunStatus, Error> {
    let config::Merged { arguments: merged, text, invalid: of_file } =
        config::merge(given, &arguments).inspect_err(|_| {
            if let Some(log_format) = config::log_format(given, &arguments) {
                log::init(Logging { log_level: None, log_format }, given.reporting.quiet, Prefix::Time);
            }
        })?;
    let (probe, logging) = config::parse(&merged)?;
    log::init(logging, probe.reporting.quiet, Prefix::Time);
    let mut problems = Vec::from_iter(invalid.into_iter().chain(of_file));
    if !probe.check {
        Error::of(std::mem::take(&mut problems))?;
    }
    if probe.print_config {
        return Ok(print(config::to_file(&merged)?.as_bytes()));
    }
    let inputs: Vec<&OsStr> = probe.inputs.iter().map(OsString::as_os_str).collect();
    let mut note = |error| problems.push(error);
    let owner = privileges::changes_to(&probe.user).map_err(&mut note).ok().flatten();
    let metering = probe_settings(&probe).map_err(note).ok();
    let outputs = Outputs { owner, ..reload::outputs(&probe) };
    problems.extend(check::options(&probe, &inputs, &outputs));
    let is_valid = problems.is_empty();
    if probe.check {
        problems.extend(check::surroundings(&probe, &outputs));
    }
    let Some(settings) = metering.filter(|_| is_valid) else {
        return Error::of(problems).map(|()| RunStatus::Problems);
    };
    missing_options::warn_of_inspection(&probe.metering, probe.inspects());
    missing_options::warn(&outputs.sinks, &probe.sinks, &probe.metering, probe.inspects(), &probe.enrichment);
    if probe.check {
        let printed = print(check::describe(&probe, logging, &outputs, &settings).as_bytes());
        return Error::of(problems).map(|()| printed);
    }

    if probe.metering.inspects() && !probe.inspects() {
        info!("applications are not recognised: only --layout fused inspects payload");
    }
    let enricher = Enricher::load(&probe.enrichment)?;
    if probe.status == StatusFormat::Json {
        log::use_json_events(!probe.reporting.quiet);
    }
    let stop_signal = StopSignal::register()?;
    let stop = stop_signal.flag();
    stderr::use_queue(log::lost_lines);
    let reload = signal_flag(signal_hook::consts::SIGHUP)?;
    let totals = signal_flag(signal_hook::consts::SIGUSR1)?;
    let mut effective = Effective {
        arguments,
        started_with: merged,
        text,
        options: probe.clone(),
        sandbox: None,
        sink_memory: SinkMemory::default(),
    };
    let probe = match probe.autotune_ns {
        Some(_) => autotune::tune(&probe, &settings, &stop)?,
        None => probe,
    };
    let server = control::bind(&probe)?;
    let mut groups = start::open_worker_groups(&probe, &stop)?;
    let mut actions = probe.rules.as_deref().map(Actions::load).transpose()?;
    let overrides = actions.as_mut().filter(|_| server.is_some()).map(Actions::permit_overrides);
    if let Some(actions) = &actions {
        actions.prepare_folders(&probe.user, outputs.owner)?;
        groups.add_actions(actions, &probe)?;
    }
    outputs.sinks.iter().try_for_each(|sink| check::check_rotated(sink, &probe, &outputs))?;
    let mut open = outputs.open(&probe.sinks, settings.meter.key, FileMode::Append, &stop)?;
    let mut watchdog = Watchdog::from_environment(settings.timing.thread_stuck);
    privileges::raise_priority();
    let memory_lock = probe.lock_memory.then(MemoryLock::prepare).transpose()?;
    privileges::drop_to(&probe.user)?;
    let placement = &groups.placement;
    if !(placement.threads.is_empty() || placement.reason.is_empty()) {
        let [cores, export_cores] = [&placement.threads, &placement.export].map(|cores| placement::list(cores));
        info!(cores, export_cores, reason = placement.reason, "cores assigned");
    }
    let control_affinity = control::affinity(&placement.export);
    effective.sandbox = (!probe.hardening.no_sandbox).then(|| {
        if probe.config.is_some() {
            // A reload may name the first filter. The sandbox forbids to load libpcap then.
            let _ = PacketFilter::new("ip");
        }
        let inputs: Vec<&OsStr> = probe.inputs.iter().map(OsString::as_os_str).collect();
        let tables = enricher.iter().flat_map(Enricher::paths);
        let pipes: Vec<PathBuf> = actions.iter().flat_map(Actions::writable_paths).collect();
        let sends_by_dpdk = actions.as_ref().is_some_and(Actions::use_dpdk);
        let restrictions = Restrictions::of(&inputs, sends_by_dpdk, server.is_some());
        let read_again: Vec<&Path> =
            probe.config.as_deref().into_iter().chain(probe.rules.as_deref()).chain(tables).collect();
        Arc::new(Sandbox::enter(&outputs.sink_targets(), &pipes, &read_again, restrictions))
    });
    enricher.iter().for_each(Enricher::check_readable);
    let observer = Some(summary::observer(&open.summary));
    let interface_names = enricher.as_ref().and_then(Enricher::interface_names);
    let record_enricher = enricher.as_ref().map(Enricher::record_enricher);
    let control_enricher = record_enricher.clone();
    let settings = Settings { observer, interface_names, enricher: record_enricher, ..settings };
    let mut monitor = Monitor::new(&probe);
    let (mut running, sink_memory) = start::start(
        &probe,
        &settings,
        groups,
        std::mem::take(&mut open.sinks),
        outputs.view_memory,
        enricher.as_ref(),
        actions.as_ref(),
    )?;
    effective.sink_memory = sink_memory;
    privileges::reset_priority();
    stderr::start_thread();
    stop_signal.start_thread();
    if let Some(memory_lock) = memory_lock
        && let Err(error) = memory_lock.lock()
    {
        running.probe.finish();
        return Err(error);
    }

    let mut reloader = Reloader::new(effective, &settings);
    let mut rules_reloader = RulesReloader::new(&probe, actions);
    let mut enrichment_reloader = EnrichmentReloader::new(enricher);
    let report = |monitor: &mut Monitor<'_>, probe: &_, reloaders: (&Reloader, &RulesReloader, &EnrichmentReloader)| {
        let (configuration, rules, lists) = reloaders;
        let timeouts = configuration.timeouts();
        let in_effect = InEffect { rules: rules.in_effect(), lists: lists.lists(), timeouts };
        Report { in_effect, ..monitor.report(probe) }
    };
    let start = |server: Server| {
        let first = report(&mut monitor, &running.probe, (&reloader, &rules_reloader, &enrichment_reloader));
        server.start(first, control_affinity, control_enricher, overrides)
    };
    let control = match server.map(start).transpose() {
        Ok(control) => control,
        Err(error) => {
            running.probe.finish();
            return Err(Error::Thread(error));
        }
    };
    if let Some(control) = &control {
        info!(address = %control.address(), "HTTP interface is ready");
    }
    let mut requests = Requests::default();
    let started = Instant::now();
    notify(NotifyState::Ready);
    let mut has_panicked = false;
    let is_over = || probe.duration_ns.is_some_and(|ns| started.elapsed() >= Duration::from_nanos(ns));
    while !(stop.load(Ordering::Relaxed) || running.probe.is_finished() || running.probe.exporter().all_sinks_failed())
    {
        if is_over() {
            break;
        }
        std::thread::sleep(settings.timing.probe_check);
        let is_idle = reloader.is_idle() && enrichment_reloader.is_idle();
        let over_http = control.as_ref().is_some_and(|control| requests.start(control, &running.probe, is_idle));
        let reload_requested = reload.swap(false, Ordering::Relaxed) || over_http;
        let lists = enrichment_reloader.update(reload_requested);
        let configuration = reloader.update(reload_requested, &mut running.probe);
        if reload_requested {
            rules_reloader.reload(&mut running.probe);
        }
        if let Some(control) = control.as_ref().filter(|_| configuration.is_some() || lists.is_some()) {
            // The client that has asked for the reload gets no report from before it.
            let reloaders = (&reloader, &rules_reloader, &enrichment_reloader);
            control.publish(report(&mut monitor, &running.probe, reloaders));
        }
        requests.end(configuration, rules_reloader.add_to(lists));
        has_panicked = monitor.log_panics(&running.probe.take_panics());
        if has_panicked {
            break;
        }
        running.probe.filter_new_connections();
        if let Some(status) = monitor.update(&running.probe) {
            notify(NotifyState::Status(&status));
        }
        if let Some(control) = control.as_ref().filter(|control| control.wants_report()) {
            let reloaders = (&reloader, &rules_reloader, &enrichment_reloader);
            control.publish(report(&mut monitor, &running.probe, reloaders));
        }
        if totals.swap(false, Ordering::Relaxed) {
            monitor.print_totals(&running.probe);
        }
        watchdog.iter_mut().for_each(|watchdog| watchdog.keep_alive(&mut running.probe));
    }
    notify(NotifyState::Stopping);
    drop(requests);
    if let Some(control) = &control {
        let reloaders = (&reloader, &rules_reloader, &enrichment_reloader);
        control.publish(Report { is_ending: true, ..report(&mut monitor, &running.probe, reloaders) });
        // Their clients get an answer at once.
        control.requests().for_each(drop);
    }
    let no_sink_left = running.probe.exporter().all_sinks_failed();
    // A signal is the regular end of live traffic, and an interruption of everything else.
    let is_interrupted = stop.load(Ordering::Relaxed) && !running.is_live;
    if is_interrupted {
        input::log_interrupted();
    }
    let is_stopped = || has_panicked || is_over() || stop.load(Ordering::Relaxed);
    let mut deadline = None;
    let mut deadline = || {
        if is_stopped() {
            deadline.get_or_insert_with(|| Instant::now() + Duration::from_nanos(probe.drain_timeout_ns));
        }
        deadline
    };
    let ledger = finish(running, &mut monitor, &probe, &mut deadline);
    // Sinks may have used all of the time.
    let earliest = Instant::now() + REPORT_TIME;
    let mut deadline = || deadline().map(|deadline| deadline.max(earliest));
    if no_sink_left && monitor.has_failed_sinks() {
        error!("all outputs have failed");
    }
    let status = RunStatus::from_problems(monitor.has_problems() || is_interrupted);
    // Totals that were requested while the last records were exported are those of the end.
    let verbose = probe.reporting.verbose || totals.load(Ordering::Relaxed);
    let reporting = Reporting { verbose, ..probe.reporting.clone() };
    let status = outputs.report(&ledger, open, &reporting, status, Some(&mut deadline));
    stderr::flush(&mut deadline);
    Ok(status)
}

/// Stops receiving, ends and exports all flows, and waits for the sinks until the deadline. The end
/// of a capture alone sets none.
fn finish(running: Running, monitor: &mut Monitor<'_>, probe: &ProbeOptions, deadline: Deadline<'_>) -> Ledger {
    const LOG_AFTER: Duration = Duration::from_secs(3);
    let (finished, wait) = mpsc::channel::<()>();
    let timeout = units::span(probe.drain_timeout_ns);
    let limit = match (deadline().is_some(), running.is_live) {
        (true, _) => format!(", at most {timeout}"),
        (false, true) => {
            let limit = probe.timing().sink_timeout.as_secs_f64();
            format!("; a sink that accepts nothing for {limit} s is abandoned")
        }
        (false, false) => format!("; a signal limits this to {timeout}"),
    };
    // Without this thread, for example at the limit of `ulimit -u`, there is no reminder.
    let reminder = std::thread::Builder::new().spawn(move || {
        if wait.recv_timeout(LOG_AFTER) == Err(RecvTimeoutError::Timeout) {
            warn!(
                "waiting for the sinks to accept the last records{limit}; another signal ends the probe and loses them"
            );
        }
    });
    let report = running.probe.finish_until(deadline);
    drop(finished);
    let _ = reminder.map(JoinHandle::join);
    monitor.log_panics(&report.panics);
    report.sink_errors.iter().for_each(|error| monitor.log_sink_error(error));
    report.groups.iter().for_each(|pipeline| monitor.log_source_errors(pipeline));
    monitor.log_abandoned_threads(&report.stuck_threads, &timeout);
    log_late_records(&report.ledger, &timeout);
    report.ledger
}

/// Says which sinks did not accept all records in the time of `--drain-timeout`.
fn log_late_records(ledger: &Ledger, timeout: &str) {
    let late = |sink: &SinkCounters| {
        let lost = sink.lost.get(ExportLossReason::DrainTimeout.key())?;
        Some(format!("{} of {}", lost.flows, sink.sink))
    };
    let lost: Vec<_> = ledger.sinks.iter().filter_map(late).collect();
    if !lost.is_empty() {
        let lost = lost.join(", ");
        warn!(lost, "records that sinks did not accept in time (--drain-timeout {timeout}) are lost");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_capture::{Burst, Input, Progress, Source};
    use weir_probe::{BackPressure, CpuAffinity, ReceiveQueue, WorkerGroupSpec};

    struct Panicking;

    impl Source for Panicking {
        fn fill<'a>(&'a mut self, _: &mut Burst<'a>) -> Result<bool, weir_capture::Error> {
            panic!("a bug")
        }

        fn progress(&self) -> Progress {
            Progress::default()
        }
    }

    #[test]
    fn a_probe_with_a_thread_that_panicked_ends_with_problems_and_a_ledger() {
        let arguments: Vec<OsString> = ["weir", "probe", "-i", "panicking"].map(OsString::from).into();
        let (options, _) = config::parse(&arguments).unwrap();
        let queues = vec![ReceiveQueue {
            source: Input::File(Box::new(Panicking)),
            affinity: CpuAffinity::default(),
            actions: None,
        }];
        let groups = vec![WorkerGroupSpec { name: "panicking".into(), queues, meters: vec![] }];
        let affinity = CpuAffinity::default();
        let probe =
            weir_probe::Probe::start(groups, Settings::default(), vec![], affinity, BackPressure::Drop).unwrap();
        let (mut running, mut monitor) = (Running { probe, is_live: true }, Monitor::new(&options));
        while !monitor.log_panics(&running.probe.take_panics()) {
            std::thread::yield_now();
        }
        assert_eq!(finish(running, &mut monitor, &options, &mut || Some(Instant::now())).check(), []);
        assert!(monitor.has_problems());
    }
}
