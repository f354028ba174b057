//! The status of the running probe: a line or a JSON object per interval, and its totals on request.
//!
//! Figures of an interval are differences of counters, rates are divided by the monotonic time
//! between the two reports. A pipeline that does not respond has no figures: its next ones are those
//! of the whole time since its last report, and its rates are divided by that time.

use super::overload::level_text;
use crate::console::{self, log, style};
use crate::ledger_text;
use serde_json::{Value, json};
use std::iter::zip;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tracing::Level;
use weir_ledger::Ledger;
use weir_probe::{GroupStatus, LoadBalance};
use weir_text::columns::{self, Column};
use weir_text::units;
use weir_text::zone::Zone;

/// A status line names loads from this one on, percent.
const HIGH_LOAD_PERCENT: f64 = 80.0;

/// Computes the status of an interval from the reports at its ends.
pub struct Status {
    /// Start of the interval.
    start: Instant,
    pipelines: Vec<LastReport>,
    lost_records: u64,
    /// CPU time of the export threads.
    export_ns: Vec<u64>,
}

/// The last report of a pipeline.
#[derive(Clone)]
struct LastReport {
    requested: Instant,
    counters: Counters,
    cpu_ns: Vec<u64>,
    /// Load of each thread in the interval before it, percent.
    thread_loads: Vec<f64>,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    packets: u64,
    bytes: u64,
    ended_flows: u64,
    /// Packets: by NIC, kernel and Weir, and because the flow cache was full.
    dropped: [u64; 4],
}

/// Figures of an interval, of a pipeline or of all.
#[derive(Clone, Default)]
struct Figures {
    seconds: f64,
    counters: Counters,
    packets_per_second: f64,
    bits_per_second: f64,
    ended_flows_per_second: f64,
}

/// The status of an interval.
pub struct Interval<'a> {
    all: Figures,
    lost_records: u64,
    sink_loads: Vec<f64>,
    ledger: &'a Ledger,
    pipelines: Vec<(&'a GroupStatus, Figures, Vec<f64>)>,
}

impl Status {
    /// The first interval begins at `start`, when all counters are 0.
    pub fn new(start: Instant) -> Self {
        Self { start, pipelines: Vec::new(), lost_records: 0, export_ns: Vec::new() }
    }

    /// The status of the interval that ends at `now`, when the reports were requested.
    pub fn interval<'a>(
        &mut self,
        now: Instant,
        ledger: &'a Ledger,
        pipelines: &'a [GroupStatus],
        export_ns: Vec<u64>,
    ) -> Interval<'a> {
        let seconds = (now - self.start).as_secs_f64();
        let first = LastReport {
            requested: self.start,
            counters: Counters::default(),
            cpu_ns: Vec::new(),
            thread_loads: Vec::new(),
        };
        self.pipelines.resize(pipelines.len(), first);
        let of_pipelines = zip(&mut self.pipelines, pipelines).map(|(last, pipeline)| {
            let (figures, loads) = last.update(now, pipeline);
            (pipeline, figures, loads)
        });
        let of_pipelines: Vec<_> = of_pipelines.collect();
        let mut all = Figures { seconds, ..Figures::default() };
        of_pipelines.iter().for_each(|(_, figures, _)| all.add(figures));
        let lost = ledger.sinks.iter().flat_map(|sink| sink.lost.values()).map(|lost| lost.flows).sum::<u64>();
        let interval = Interval {
            all,
            lost_records: lost.saturating_sub(self.lost_records),
            sink_loads: loads(&export_ns, &self.export_ns, seconds),
            ledger,
            pipelines: of_pipelines,
        };
        (self.start, self.lost_records, self.export_ns) = (now, lost, export_ns);
        interval
    }

    /// Prints the totals since the start. Text also has a table of the pipelines.
    pub fn print_totals(&self, ledger: &Ledger, pipelines: &[GroupStatus]) {
        let silent = pipelines.iter().filter(|pipeline| pipeline.timed_out).map(|pipeline| pipeline.name.as_str());
        let silent: Vec<_> = silent.collect();
        if log::is_json() {
            let fields = json!({ "pipelines_without_response": silent, "ledger": ledger.json() });
            return log::json_line(Level::INFO, "ledger", &fields);
        }
        let (date, time) = now();
        let mut text = format!("{date} {time} {}: totals since the start\n", Zone::current().name());
        text += &self.table(pipelines);
        text += &ledger_text::counters(ledger, console::error_columns());
        text += &match silent.join(", ") {
            names if names.is_empty() => ledger_text::balance(ledger),
            names => format!("no response from {names}: its counters are older, so the ledger may not balance now\n"),
        };
        console::eprint_styled(&text, style::ledger);
    }

    /// Counters, level and state of each pipeline, with its loads in the last interval.
    fn table(&self, pipelines: &[GroupStatus]) -> String {
        let figures = |heading: &str, figure: fn(&Ledger) -> u64| {
            let figure = |pipeline: &GroupStatus| figure(&pipeline.account.ledger).to_string();
            Column::new(heading, true, pipelines.iter().map(figure))
        };
        let load =
            |number: usize| self.pipelines.get(number).map(|last| loads_text(&last.thread_loads)).unwrap_or_default();
        let state = |pipeline: &GroupStatus| {
            let mut parts = vec![match state(pipeline) {
                "no_response" => "no response: waiting for a pipe, or blocked".into(),
                state => state.to_string(),
            }];
            let overload = &pipeline.account.ledger.overload;
            if overload.level > 0 {
                parts.push(level_text(overload));
            }
            if let Some(LoadBalance { imbalance_permille, moved_buckets }) = pipeline.balance {
                let percent = imbalance_permille as f64 / 10.0;
                parts.push(format!("busiest meter {percent:.1} % above its share, {moved_buckets} buckets moved"));
            }
            parts.join(", ")
        };
        let columns = [
            Column::new("pipeline", false, pipelines.iter().map(|pipeline| pipeline.name.clone())),
            figures("received", |ledger| ledger.packets.received),
            figures("drop NIC", |ledger| ledger.packets.dropped_nic),
            figures("kernel", |ledger| ledger.packets.dropped_kernel),
            figures("queue", |ledger| ledger.packets.dropped_queue),
            figures("cache", |ledger| ledger.packets.dropped_cache_full),
            figures("active", |ledger| ledger.live.flows),
            Column::new("load", true, (0..pipelines.len()).map(load)),
            Column::new("state", false, pipelines.iter().map(state)),
        ];
        columns::lines(&columns, 1, None)
    }
}

/// The totals since the start in a few words.
pub fn summary(ledger: &Ledger) -> String {
    let packets = &ledger.packets;
    let dropped = packets.dropped_nic + packets.dropped_kernel + packets.dropped_queue + packets.dropped_cache_full;
    let lost = ledger.sinks.iter().flat_map(|sink| sink.lost.values()).map(|lost| lost.flows).sum::<u64>();
    let (received, active) = (packets.received, ledger.live.flows);
    format!("{received} packets received, {dropped} of them dropped; {active} flows active, {lost} records lost")
}

impl LastReport {
    /// Figures and thread loads since the last report. None of a pipeline that does not respond.
    fn update(&mut self, now: Instant, pipeline: &GroupStatus) -> (Figures, Vec<f64>) {
        if pipeline.timed_out {
            return Default::default();
        }
        let counters = Counters::of(pipeline);
        let seconds = (now - self.requested).as_secs_f64();
        let thread_loads = loads(&pipeline.cpu_time_ns, &self.cpu_ns, seconds);
        let figures = Figures::new(counters.since(&self.counters), seconds);
        *self =
            Self { requested: now, counters, cpu_ns: pipeline.cpu_time_ns.clone(), thread_loads: thread_loads.clone() };
        (figures, thread_loads)
    }
}

impl Counters {
    fn of(pipeline: &GroupStatus) -> Self {
        let account = &pipeline.account;
        let packets = &account.ledger.packets;
        Self {
            packets: packets.received,
            bytes: account.ledger.bytes.received,
            ended_flows: account.sent.flows + account.lost.flows,
            dropped: [packets.dropped_nic, packets.dropped_kernel, packets.dropped_queue, packets.dropped_cache_full],
        }
    }

    fn since(&self, last: &Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(last.packets),
            bytes: self.bytes.saturating_sub(last.bytes),
            ended_flows: self.ended_flows.saturating_sub(last.ended_flows),
            dropped: std::array::from_fn(|at| self.dropped[at].saturating_sub(last.dropped[at])),
        }
    }
}

impl Figures {
    fn new(counters: Counters, seconds: f64) -> Self {
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Self {
            seconds,
            counters,
            packets_per_second: rate(counters.packets),
            bits_per_second: 8.0 * rate(counters.bytes),
            ended_flows_per_second: rate(counters.ended_flows),
        }
    }

    /// Adds counters and rates of a pipeline.
    fn add(&mut self, other: &Self) {
        self.counters.packets += other.counters.packets;
        self.counters.bytes += other.counters.bytes;
        self.counters.ended_flows += other.counters.ended_flows;
        zip(&mut self.counters.dropped, other.counters.dropped).for_each(|(sum, dropped)| *sum += dropped);
        self.packets_per_second += other.packets_per_second;
        self.bits_per_second += other.bits_per_second;
        self.ended_flows_per_second += other.ended_flows_per_second;
    }

    fn json(&self) -> Value {
        let [nic, kernel, queue, cache_full] = self.counters.dropped;
        json!({
            "interval_seconds": self.seconds,
            "packets_per_second": self.packets_per_second,
            "bits_per_second": self.bits_per_second,
            "ended_flows_per_second": self.ended_flows_per_second,
            "received_packets": self.counters.packets,
            "received_bytes": self.counters.bytes,
            "ended_flows": self.counters.ended_flows,
            "dropped_nic_packets": nic,
            "dropped_kernel_packets": kernel,
            "dropped_queue_packets": queue,
            "dropped_cache_full_packets": cache_full,
        })
    }
}

impl Interval<'_> {
    pub fn print(&self) {
        if log::is_json() {
            log::json_event(Level::INFO, "status", &self.json());
        } else {
            console::eprint_styled(&format!("{} {}\n", now().1, self.line()), style::status);
        }
    }

    /// `1.20 Mpackets/s 7.21 Gbit/s active=12.0k ended=310/s lost=0 drop=0`
    fn line(&self) -> String {
        let Figures { counters, packets_per_second, bits_per_second, ended_flows_per_second: ended, .. } = &self.all;
        let mut line = format!(
            "{:>15} {:>11} active={} ended={}/s lost={} drop={}",
            units::rate(*packets_per_second, "packets/s"),
            units::rate(*bits_per_second, "bit/s"),
            units::short(self.ledger.live.flows),
            if *ended < 100.0 { units::number(*ended) } else { units::short(ended.round() as u64) },
            self.lost_records,
            counters.dropped.iter().sum::<u64>(),
        );
        let thread_loads = self.pipelines.iter().flat_map(|(_, _, loads)| loads);
        for (name, load) in [("load", highest(thread_loads)), ("sink_load", highest(&self.sink_loads))]
            .into_iter()
            .filter(|(_, load)| *load >= HIGH_LOAD_PERCENT)
        {
            line += &format!(" {name}={load:.0}%");
        }
        let silent = self.pipelines.iter().filter(|(pipeline, ..)| pipeline.timed_out).count();
        for (name, number) in [("level", usize::from(self.ledger.overload.level)), ("silent", silent)] {
            if number > 0 {
                line += &format!(" {name}={number}");
            }
        }
        line
    }

    pub fn json(&self) -> Value {
        let pipelines = self.pipelines.iter().map(|(pipeline, figures, thread_loads)| {
            let mut object = figures.json();
            object["pipeline"] = pipeline.name.clone().into();
            object["state"] = state(pipeline).into();
            object["active_flows"] = pipeline.account.ledger.live.flows.into();
            object["overload_level"] = pipeline.account.ledger.overload.level.into();
            object["thread_load_percent"] = thread_loads.clone().into();
            if let Some(balance) = pipeline.balance {
                object["busiest_meter_above_share_percent"] = (balance.imbalance_permille as f64 / 10.0).into();
                object["moved_buckets"] = balance.moved_buckets.into();
            }
            object
        });
        let mut object = self.all.json();
        object["active_flows"] = self.ledger.live.flows.into();
        object["lost_records"] = self.lost_records.into();
        object["dropped_packets"] = self.all.counters.dropped.iter().sum::<u64>().into();
        object["overload_level"] = self.ledger.overload.level.into();
        object["sink_load_percent"] = self.sink_loads.clone().into();
        object["pipelines"] = pipelines.collect();
        object
    }
}

/// `running`, `ended` or `no_response`.
fn state(pipeline: &GroupStatus) -> &'static str {
    match (pipeline.finished, pipeline.timed_out) {
        (true, _) => "ended",
        (_, true) => "no_response",
        _ => "running",
    }
}

/// Load of each thread in percent with one decimal, from its CPU time. After a reload other export
/// threads may be at the same index. They start at 0.
fn loads(cpu_ns: &[u64], last: &[u64], seconds: f64) -> Vec<f64> {
    let last = last.iter().copied().chain(std::iter::repeat(0));
    zip(cpu_ns, last).map(|(now, last)| (1e-6 * now.saturating_sub(last) as f64 / seconds).round() / 10.0).collect()
}

/// `43 % and 2 %`
fn loads_text(loads: &[f64]) -> String {
    loads.iter().map(|load| format!("{load:.0} %")).collect::<Vec<_>>().join(" and ")
}

fn highest<'a>(loads: impl IntoIterator<Item = &'a f64>) -> f64 {
    loads.into_iter().fold(0.0, |highest, load| load.max(highest))
}

/// Date and time of day.
fn now() -> (String, String) {
    Zone::current()
        .date_and_second(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A pipeline that has received this number of packets.
    fn pipeline(packets: u64, timed_out: bool) -> GroupStatus {
        let mut status = GroupStatus { name: "-".into(), timed_out, ..GroupStatus::default() };
        (status.account.ledger.packets.received, status.account.ledger.bytes.received) = (packets, 100 * packets);
        status
    }

    #[test]
    fn rates_of_a_pipeline_that_was_silent_are_those_of_the_time_since_its_last_report() {
        let start = Instant::now();
        let mut status = Status::new(start);
        let mut rates = |second, reports: [(u64, bool); 2]| {
            let pipelines = reports.map(|(packets, timed_out)| pipeline(packets, timed_out));
            let ledger = Ledger::default();
            let interval = status.interval(start + Duration::from_secs(second), &ledger, &pipelines, vec![]);
            let packets = interval.pipelines.iter().map(|(_, figures, _)| figures.counters.packets).collect::<Vec<_>>();
            assert_eq!(interval.all.counters.packets, packets.iter().sum::<u64>());
            (packets, interval.all.packets_per_second, interval.all.bits_per_second)
        };
        assert_eq!(rates(2, [(20, false), (40, false)]), (vec![20, 40], 30.0, 24_000.0));
        assert_eq!(rates(3, [(20, true), (50, false)]), (vec![0, 10], 10.0, 8000.0));
        assert_eq!(rates(4, [(20, true), (50, false)]), (vec![0, 0], 0.0, 0.0));
        assert_eq!(rates(6, [(60, false), (50, false)]), (vec![40, 0], 10.0, 8000.0));
    }

    #[test]
    fn the_line_of_a_busy_probe_fits_into_80_columns() {
        let start = Instant::now();
        let mut ledger = Ledger::default();
        ledger.live.flows = 12_345_678;
        let mut status = pipeline(12_345_678, false);
        (status.account.ledger.bytes.received, status.account.sent.flows) = (9_876_543_210, 98_765);
        let pipelines = [status];
        let line = Status::new(start).interval(start + Duration::from_secs(1), &ledger, &pipelines, vec![]).line();
        assert_eq!(line, "12.3 Mpackets/s 79.0 Gbit/s active=12.3M ended=98.8k/s lost=0 drop=0");
        assert!("12:00:00 ".len() + line.len() <= 80);
    }
}
