//! Observes the running probe: prints the statistics of each interval, and logs what changes.

use super::links::LinkMonitor;
use super::overload;
use super::statistics::{Statistics, status};
use crate::arguments::ProbeOptions;
use crate::console::RateLimit;
use crate::read::log_sink_failure;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{error, warn};
use weir_ledger::Ledger;
use weir_probe::GroupStatus;

/// Shortest time between two warnings about lost records, or about an imbalance.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// State between two intervals.
pub struct Monitor<'a> {
    probe: &'a ProbeOptions,
    statistics: Statistics,
    links: LinkMonitor,
    last_update: Instant,
    /// Last known overload level of each pipeline.
    levels: Vec<u8>,
    /// Records that sinks had lost at the last warning.
    lost_records: u64,
    loss_limit: RateLimit,
    imbalance_limit: RateLimit,
    has_problems: bool,
}

impl<'a> Monitor<'a> {
    pub fn new(probe: &'a ProbeOptions) -> Self {
        Self {
            probe,
            statistics: Statistics::default(),
            links: LinkMonitor::new(&probe.inputs),
            last_update: Instant::now(),
            levels: Vec::new(),
            lost_records: 0,
            loss_limit: RateLimit::new(LOG_INTERVAL),
            imbalance_limit: RateLimit::new(LOG_INTERVAL),
            has_problems: false,
        }
    }

    /// Whether a source or sink has failed, or the ledger did not balance.
    pub fn has_problems(&self) -> bool {
        self.has_problems
    }

    /// At the end of an interval, prints statistics, logs changes, and returns a status line.
    pub fn update(&mut self, running: &weir_probe::Probe) -> Option<String> {
        let elapsed = self.last_update.elapsed();
        if elapsed < Duration::from_nanos(self.probe.interval) {
            return None;
        }
        self.last_update = Instant::now();
        let (ledger, pipelines) = running.status();
        pipelines.iter().for_each(|pipeline| self.log_source_errors(pipeline));
        self.links.log_changes();
        overload::log_changes(&mut self.levels, &pipelines, self.probe.sample);
        running.exporter().take_errors().iter().for_each(|error| self.log_sink_error(error));
        self.log_lost_records(&ledger);
        // The counters of a pipeline that did not respond are old, so that sums may differ.
        if !pipelines.iter().any(|pipeline| pipeline.timed_out) {
            self.log_imbalances(&ledger);
        }
        if !self.probe.quiet {
            let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
            self.statistics.print(now_ns, elapsed.as_secs_f64(), &ledger, &pipelines, running.exporter().cpu_time_ns());
        }
        Some(status(&ledger))
    }

    pub fn log_source_errors(&mut self, pipeline: &GroupStatus) {
        let name = pipeline.name.as_str();
        for error in &pipeline.errors {
            self.has_problems = true;
            error!(pipeline = name, %error, "source failed");
        }
        if pipeline.more_errors > 0 {
            error!(pipeline = name, suppressed = pipeline.more_errors, "more source errors");
        }
    }

    /// Logs the error of a sink. A closed pipe is no error.
    pub fn log_sink_error(&mut self, error: &weir_export::Error) {
        if !error.is_closed_pipe() {
            self.has_problems = true;
            log_sink_failure(error);
        }
    }

    /// Warns if sinks have lost more records.
    fn log_lost_records(&mut self, ledger: &Ledger) {
        let lost = ledger.sinks.iter().flat_map(|sink| sink.lost.values()).map(|lost| lost.flows).sum();
        if lost <= self.lost_records {
            return;
        }
        let Some(suppressed) = self.loss_limit.permit(Instant::now()) else { return };
        self.lost_records = lost;
        // The field is left out if it is 0.
        let suppressed = (suppressed > 0).then_some(suppressed);
        for sink in ledger.sinks.iter().filter(|sink| !sink.lost.is_empty()) {
            let reasons: Vec<_> = sink.lost.iter().map(|(reason, lost)| format!("{} {reason}", lost.flows)).collect();
            let (sink, lost) = (sink.sink.as_str(), reasons.join(", "));
            warn!(sink, lost, suppressed, "sink loses records");
        }
    }

    fn log_imbalances(&mut self, ledger: &Ledger) {
        let imbalances = ledger.check();
        if imbalances.is_empty() {
            return;
        }
        self.has_problems = true;
        let Some(suppressed) = self.imbalance_limit.permit(Instant::now()) else { return };
        for imbalance in imbalances {
            let (equation, left, right) = (imbalance.equation.to_string(), imbalance.left, imbalance.right);
            error!(equation, left, right, suppressed, "THE LEDGER DOES NOT BALANCE, please report this");
        }
    }
}
