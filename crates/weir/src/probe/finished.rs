//! The last state of a probe: all flows are exported, as far as the sinks accept them in time.

use super::monitor::Monitor;
use super::running::Running;
use crate::arguments::{ProbeOptions, Reporting};
use crate::console::{Deadline, stderr};
use crate::input;
use crate::outputs::{OpenOutputs, Outputs};
use crate::run_status::RunStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{error, warn};
use weir_ledger::{ExportLossReason, Ledger, SinkCounters};
use weir_text::units;

/// Least time for summary and ledger at the end.
const REPORT_TIME: Duration = Duration::from_secs(1);

/// A probe that has ended, before its report.
pub struct Finished {
    outputs: Outputs,
    open: OpenOutputs,
    reporting: Reporting,
    ledger: Ledger,
    status: RunStatus,
    limit: TimeLimit,
}

/// Until when outputs may take the last records, and the report.
struct TimeLimit {
    deadline: Option<Instant>,
    /// A thread has panicked.
    has_panicked: bool,
    /// When `--duration` is over.
    end: Option<Instant>,
    stop: Arc<AtomicBool>,
    second_stop: Arc<AtomicBool>,
    timeout: Duration,
}

impl TimeLimit {
    /// None before something limits the time. The end of a capture alone does not.
    fn deadline(&mut self) -> Option<Instant> {
        let is_over = self.end.is_some_and(|end| Instant::now() >= end);
        if self.has_panicked || is_over || self.stop.load(Ordering::Relaxed) {
            self.deadline.get_or_insert_with(|| Instant::now() + self.timeout);
        }
        if self.second_stop.load(Ordering::Relaxed) {
            self.deadline = self.deadline.map(|deadline| deadline.min(Instant::now()));
        }
        self.deadline
    }
}

impl Finished {
    /// Ends and exports all flows.
    pub fn new(running: Running) -> Self {
        let Running { options, probe, is_live, mut monitor, signals, outputs, open, end, has_panicked, .. } = running;
        let no_sink_left = probe.exporter().all_sinks_failed();
        // A signal is the regular end of live traffic, and an interruption of everything else.
        let is_interrupted = signals.stop.load(Ordering::Relaxed) && !is_live;
        if is_interrupted {
            input::log_interrupted();
        }
        let timeout = Duration::from_nanos(options.drain_timeout_ns);
        let (stop, second_stop) = (signals.stop, signals.second_stop);
        let mut limit = TimeLimit { deadline: None, has_panicked, end, stop, second_stop, timeout };
        let ledger = drain(probe, is_live, &mut monitor, &options, &mut || limit.deadline());
        if no_sink_left && monitor.has_failed_sinks() {
            error!("all outputs have failed");
        }
        let status = RunStatus::from_problems(monitor.has_problems() || is_interrupted);
        // Totals that were requested while the last records were exported are those of the end.
        let verbose = options.reporting.verbose || signals.totals.load(Ordering::Relaxed);
        let reporting = Reporting { verbose, ..options.reporting };
        Self { outputs, open, reporting, ledger, status, limit }
    }

    /// Prints summary and ledger.
    pub fn report(self) -> RunStatus {
        let Self { outputs, open, reporting, ledger, status, mut limit } = self;
        // Sinks may have used all of the time.
        let earliest = Instant::now() + REPORT_TIME;
        let mut deadline = || limit.deadline().map(|deadline| deadline.max(earliest));
        let status = outputs.report(&ledger, open, &reporting, status, Some(&mut deadline));
        stderr::flush(&mut deadline);
        status
    }
}

/// Stops receiving, ends and exports all flows, and waits for the sinks until the deadline. The end
/// of a capture alone sets none.
fn drain(
    probe: weir_probe::Probe,
    is_live: bool,
    monitor: &mut Monitor,
    options: &ProbeOptions,
    deadline: Deadline<'_>,
) -> Ledger {
    const LOG_AFTER: Duration = Duration::from_secs(3);
    let (finished, wait) = mpsc::channel::<()>();
    let timeout = units::span(options.drain_timeout_ns);
    let limit = match (deadline().is_some(), is_live) {
        (true, _) => format!(", at most {timeout}"),
        (false, true) => {
            let limit = options.timing().sink_timeout.as_secs_f64();
            format!("; a sink that accepts nothing for {limit} s is abandoned")
        }
        (false, false) => format!("; a signal limits this to {timeout}"),
    };
    // Without this thread, for example at the limit of `ulimit -u`, there is no reminder.
    let reminder = std::thread::Builder::new().spawn(move || {
        if wait.recv_timeout(LOG_AFTER) == Err(RecvTimeoutError::Timeout) {
            warn!("waiting for the sinks to accept the last records{limit}");
        }
    });
    let report = probe.finish_until(deadline);
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
        warn!(
            lost,
            "records that sinks did not accept in time (--drain-timeout {timeout}, or another signal) are lost"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::config;
    use super::*;
    use std::ffi::OsString;
    use weir_capture::{Burst, Input, Progress, Source};
    use weir_probe::{BackPressure, CpuAffinity, ReceiveQueue, Settings, WorkerGroupSpec};

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
        let mut probe =
            weir_probe::Probe::start(groups, Settings::default(), vec![], None, affinity, BackPressure::Drop).unwrap();
        let mut monitor = Monitor::new(&options);
        while !monitor.log_panics(&probe.take_panics()) {
            std::thread::yield_now();
        }
        let ledger = drain(probe, true, &mut monitor, &options, &mut || Some(Instant::now()));
        assert_eq!(ledger.check(), []);
        assert!(monitor.has_problems());
    }
}
