//! Observes the running probe: prints its status in each interval, and logs what changes.

use super::overload;
use super::rate_limit::RateLimit;
use super::status::{Status, summary};
use crate::arguments::ProbeOptions;
use crate::outputs::log_sink_failure;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};
use weir_capture::{Device, SourceSpec};
use weir_control::Report;
use weir_ledger::{ClockCounters, Ledger};
use weir_probe::{GroupStatus, ThreadPanic};

/// Shortest time between two warnings about lost records, or about an imbalance.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// State between two intervals.
pub struct Monitor {
    probe: ProbeOptions,
    status: Status,
    /// The interfaces of all sources and whether they had a link.
    links: Vec<(Device, bool)>,
    next_update: Instant,
    /// Last known overload level of each pipeline.
    levels: Vec<u8>,
    lost_records: LostRecords,
    loss_limit: RateLimit,
    /// Steps of the system's clock at the last warning.
    clock: ClockCounters,
    clock_limit: RateLimit,
    imbalance_limit: RateLimit,
    /// The status of the last interval, for the HTTP interface; null before the first one.
    interval: Value,
    has_problems: bool,
    has_failed_sinks: bool,
}

/// Records that each sink had lost at the last warning that named it.
#[derive(Default)]
struct LostRecords(BTreeMap<String, u64>);

impl LostRecords {
    /// The sinks that have lost more records since, with all their records by reason. A sink that
    /// is listed twice has two entries in the ledger.
    fn more<'l>(&self, ledger: &'l Ledger) -> BTreeMap<&'l str, BTreeMap<&'static str, u64>> {
        let mut lost: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
        for sink in &ledger.sinks {
            let reasons = lost.entry(&sink.sink).or_default();
            sink.lost.iter().for_each(|(&reason, lost)| *reasons.entry(reason).or_default() += lost.flows);
        }
        lost.retain(|&sink, reasons| reasons.values().sum::<u64>() > self.0.get(sink).copied().unwrap_or(0));
        lost
    }
}

impl Monitor {
    /// To be called before the first packet is counted.
    pub fn new(probe: &ProbeOptions) -> Self {
        let now = Instant::now();
        Self {
            probe: probe.clone(),
            status: Status::new(now),
            links: links(&probe.inputs),
            next_update: now + Duration::from_nanos(probe.interval_ns),
            levels: Vec::new(),
            lost_records: LostRecords::default(),
            loss_limit: RateLimit::new(LOG_INTERVAL),
            clock: ClockCounters::default(),
            clock_limit: RateLimit::new(LOG_INTERVAL),
            imbalance_limit: RateLimit::new(LOG_INTERVAL),
            interval: Value::Null,
            has_problems: false,
            has_failed_sinks: false,
        }
    }

    /// Whether a source or sink has failed, or the ledger did not balance.
    pub fn has_problems(&self) -> bool {
        self.has_problems || self.has_failed_sinks
    }

    /// Whether a sink has failed. A sink whose reader has closed the pipe has not.
    pub fn has_failed_sinks(&self) -> bool {
        self.has_failed_sinks
    }

    /// At the end of an interval, prints the status, logs changes, and returns the totals in a few
    /// words.
    pub fn update(&mut self, running: &weir_probe::Probe) -> Option<String> {
        let now = Instant::now();
        if now < self.next_update {
            return None;
        }
        // The end of an interval is noticed a little late, which does not delay the next one.
        let interval = Duration::from_nanos(self.probe.interval_ns);
        let next = self.next_update + interval;
        self.next_update = if next > now { next } else { now + interval };
        let (ledger, pipelines) = self.reports(running);
        let interval = self.status.interval(now, &ledger, &pipelines, running.exporter().cpu_time_ns());
        if !self.probe.reporting.quiet {
            interval.print();
        }
        if self.probe.listen.is_some() {
            self.interval = interval.json();
        }
        Some(summary(&ledger))
    }

    /// Prints the totals since the start.
    pub fn print_totals(&mut self, running: &weir_probe::Probe) {
        let (ledger, pipelines) = self.reports(running);
        self.status.print_totals(&ledger, &pipelines);
    }

    /// What the HTTP interface answers from now on.
    pub fn report(&mut self, running: &weir_probe::Probe) -> Report {
        let (ledger, pipelines) = self.reports(running);
        let interfaces = self.links.iter().map(|(device, has_link)| (device.name.clone(), *has_link)).collect();
        Report { ledger, pipelines, interval: self.interval.clone(), interfaces, ..Report::default() }
    }

    /// The present ledger and the reports of the pipelines. Logs what has changed.
    fn reports(&mut self, running: &weir_probe::Probe) -> (Ledger, Vec<GroupStatus>) {
        let (ledger, pipelines) = running.status();
        pipelines.iter().for_each(|pipeline| self.log_source_errors(pipeline));
        self.log_link_changes();
        overload::log_changes(&mut self.levels, &pipelines, self.probe.shed, self.probe.sample);
        running.exporter().take_errors().iter().for_each(|error| self.log_sink_error(error));
        self.log_lost_records(&ledger);
        self.log_clock_steps(&ledger);
        // The counters of a pipeline that did not respond are old, so that sums may differ.
        if !pipelines.iter().any(|pipeline| pipeline.timed_out) {
            self.log_imbalances(&ledger);
        }
        (ledger, pipelines)
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
            self.has_failed_sinks = true;
            log_sink_failure(error);
        }
    }

    /// Logs panics. Returns whether there are any: the probe then has to end.
    pub fn log_panics(&mut self, panics: &[ThreadPanic]) -> bool {
        for ThreadPanic { thread, message } in panics {
            self.has_problems = true;
            error!(thread, error = message, "a thread panicked, so the probe ends; please report this");
        }
        !panics.is_empty()
    }

    /// Logs the threads that had not ended when the end of the run was over.
    pub fn log_abandoned_threads(&mut self, threads: &[String], timeout: &str) {
        if !threads.is_empty() {
            self.has_problems = true;
            let threads = threads.join(", ");
            error!(
                threads,
                "threads did not end in time (--drain-timeout {timeout}): the records in their flow caches are lost, \
                 and packets that they took since their last report are not counted"
            );
        }
    }

    /// Warns of sinks that have lost more records.
    fn log_lost_records(&mut self, ledger: &Ledger) {
        let lost = self.lost_records.more(ledger);
        if lost.is_empty() {
            return;
        }
        let Some(suppressed) = self.loss_limit.permit(Instant::now()) else { return };
        // The field is left out if it is 0.
        let suppressed = (suppressed > 0).then_some(suppressed);
        for (sink, reasons) in lost {
            let texts: Vec<_> = reasons.iter().map(|(reason, records)| format!("{records} {reason}")).collect();
            warn!(sink, lost = texts.join(", "), suppressed, "sink loses records");
            self.lost_records.0.insert(sink.into(), reasons.values().sum());
        }
    }

    /// Warns if the system's clock was set.
    fn log_clock_steps(&mut self, ledger: &Ledger) {
        if ledger.clock == self.clock || self.clock_limit.permit(Instant::now()).is_none() {
            return;
        }
        let ClockCounters { steps_forward, steps_backward, offset_ns } = ledger.clock;
        let seconds = (offset_ns - self.clock.offset_ns) as f64 / 1e9;
        self.clock = ledger.clock;
        warn!(
            seconds,
            steps_forward, steps_backward, "the system's clock was set; flows go on, records from now on have its time"
        );
    }

    /// Logs which interfaces lost their link or have it again. A source waits for an interface
    /// without a link, and itself reports an interface that is removed.
    fn log_link_changes(&mut self) {
        for (device, had_link) in &mut self.links {
            // With --wait, a source also waits for an interface that is removed.
            let has_link = device.has_link().or(self.probe.wait.then_some(false));
            let Some(has_link) = has_link.filter(|has_link| has_link != had_link) else {
                continue;
            };
            *had_link = has_link;
            let interface = &device.name;
            if has_link {
                info!(interface, "interface has a link again");
            } else {
                warn!(interface, "interface is down or has no link, waiting for it");
            }
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

/// The interfaces of live sources, and whether they have a link.
fn links(inputs: &[SourceSpec]) -> Vec<(Device, bool)> {
    let live = inputs.iter().filter_map(SourceSpec::live);
    let mut devices: Vec<Device> = live.flat_map(|live| live.devices().to_vec()).collect();
    devices.sort();
    devices.dedup();
    let link = |device: Device| device.has_link().map(|has_link| (device, has_link));
    devices.into_iter().filter_map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters};

    /// A ledger of sinks, each with the records that it has lost.
    fn ledger(sinks: &[(&str, u64)]) -> Ledger {
        let counters = |&(sink, flows): &(&str, u64)| {
            let mut counters = SinkCounters { sink: sink.into(), ..SinkCounters::default() };
            if flows > 0 {
                counters.add_lost(ExportLossReason::WriteFailed, RecordTotals { flows, ..RecordTotals::default() });
            }
            counters
        };
        Ledger { sinks: sinks.iter().map(counters).collect(), ..Ledger::default() }
    }

    #[test]
    fn only_sinks_that_have_lost_more_records_are_named() {
        let mut known = LostRecords::default();
        let mut named = |sinks: &[(&str, u64)]| {
            let ledger = ledger(sinks);
            let more = known.more(&ledger);
            let sums: Vec<(String, u64)> =
                more.iter().map(|(sink, reasons)| (sink.to_string(), reasons.values().sum())).collect();
            known.0.extend(sums.clone());
            sums
        };
        assert_eq!(named(&[("a", 0), ("b", 0)]), []);
        assert_eq!(named(&[("a", 3), ("b", 0)]), [("a".into(), 3)]);
        assert_eq!(named(&[("a", 3), ("b", 2)]), [("b".into(), 2)]);
        // `a` was closed and opened again.
        assert_eq!(named(&[("a", 3), ("b", 2), ("a", 0)]), []);
        assert_eq!(named(&[("a", 3), ("b", 2), ("a", 1)]), [("a".into(), 4)]);
    }
}
