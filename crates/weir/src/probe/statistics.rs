//! Statistics of each interval, one line per pipeline: packets, flow records, drops, load.
//!
//! Rates and ended flows are those of the interval. Drops and lost records count from the start.

use super::overload;
use crate::console::{self, log};
use serde_json::json;
use std::fmt::Write;
use tracing::Level;
use weir_ledger::Ledger;
use weir_probe::GroupStatus;
use weir_text::units;

/// Computes the statistics of an interval from the counters at its ends.
#[derive(Default)]
pub struct Statistics {
    /// Counters at the end of the last interval.
    last: Vec<Counters>,
    /// CPU time of the export threads at the end of the last interval.
    last_export_ns: Vec<u64>,
}

#[derive(Clone, Default)]
struct Counters {
    packets: u64,
    bytes: u64,
    ended_flows: u64,
    cpu_ns: Vec<u64>,
}

struct Line<'a> {
    name: &'a str,
    interval: Counters,
    ledger: &'a Ledger,
    lost_records: u64,
    /// `None` in the sum line.
    pipeline: Option<&'a GroupStatus>,
    /// Load of each reading and metering thread, in percent.
    thread_loads: Vec<f64>,
    /// Load of each export thread, in percent; only in the last line.
    sink_loads: Vec<f64>,
}

impl Statistics {
    /// Prints the lines of an interval that ends at `now_ns` and is `seconds` long. The last line has the
    /// load of the export threads; it is the sum if there are several pipelines.
    pub fn print(
        &mut self,
        now_ns: u64,
        seconds: f64,
        ledger: &Ledger,
        pipelines: &[GroupStatus],
        export_ns: Vec<u64>,
    ) {
        let lines = self.lines(seconds, ledger, pipelines, export_ns);
        if log::is_json() {
            lines.iter().for_each(|line| line.log(seconds));
            return;
        }
        let (_, time) = units::utc(now_ns);
        let width = pipelines.iter().map(|pipeline| pipeline.name.len()).max().unwrap_or(0).max(3);
        let mut text = String::new();
        lines.iter().for_each(|line| line.write(&mut text, &time[..8], width, seconds));
        console::eprint(&text);
    }

    fn lines<'a>(
        &mut self,
        seconds: f64,
        ledger: &'a Ledger,
        pipelines: &'a [GroupStatus],
        export_ns: Vec<u64>,
    ) -> Vec<Line<'a>> {
        // After a reload other export threads may be at the same index. They start at 0.
        self.last_export_ns.resize(export_ns.len(), 0);
        let interval_ns = export_ns.iter().zip(&self.last_export_ns).map(|(now, last)| now.saturating_sub(*last));
        let sink_loads = loads(interval_ns, seconds);
        self.last_export_ns = export_ns;
        self.last.resize(pipelines.len(), Counters::default());
        let (mut lines, mut sum) = (Vec::new(), Counters::default());
        for (pipeline, last) in pipelines.iter().zip(&mut self.last) {
            let account = &pipeline.account;
            let now = Counters {
                packets: account.ledger.packets.received,
                bytes: account.ledger.bytes.received,
                ended_flows: account.sent.flows + account.lost.flows,
                cpu_ns: pipeline.cpu_time_ns.clone(),
            };
            let interval = now.since(last);
            *last = now;
            sum.add(&interval);
            lines.push(Line {
                name: &pipeline.name,
                ledger: &account.ledger,
                lost_records: account.lost.flows,
                pipeline: Some(pipeline),
                thread_loads: loads(interval.cpu_ns.iter().copied(), seconds),
                sink_loads: Vec::new(),
                interval,
            });
        }
        if pipelines.len() > 1 {
            let lost_records = lines.iter().map(|line| line.lost_records).sum();
            let (thread_loads, sink_loads) = (Vec::new(), Vec::new());
            lines.push(Line {
                name: "all",
                interval: sum,
                ledger,
                lost_records,
                pipeline: None,
                thread_loads,
                sink_loads,
            });
        }
        lines.last_mut().into_iter().for_each(|line| line.sink_loads.clone_from(&sink_loads));
        lines
    }
}

pub fn status(ledger: &Ledger) -> String {
    let packets = &ledger.packets;
    let dropped = packets.dropped_nic + packets.dropped_kernel + packets.dropped_queue + packets.dropped_cache_full;
    let lost = ledger.sinks.iter().flat_map(|sink| sink.lost.values()).map(|lost| lost.flows).sum::<u64>();
    let (received, active) = (packets.received, ledger.live.flows);
    format!("{received} packets received, {dropped} of them dropped; {active} flows active, {lost} records lost")
}

/// Load of each thread in percent with one decimal, from its CPU time.
fn loads(cpu_ns: impl Iterator<Item = u64>, seconds: f64) -> Vec<f64> {
    cpu_ns.map(|ns| (1000.0 * ns as f64 / 1e9 / seconds).round() / 10.0).collect()
}

/// `43 % and 2 %`
fn loads_text(loads: &[f64]) -> String {
    loads.iter().map(|load| format!("{load:.0} %")).collect::<Vec<_>>().join(" and ")
}

impl Counters {
    fn since(&self, last: &Self) -> Self {
        let last_cpu_ns = |thread: usize| last.cpu_ns.get(thread).copied().unwrap_or(0);
        let cpu_ns = self.cpu_ns.iter().enumerate();
        Self {
            packets: self.packets.saturating_sub(last.packets),
            bytes: self.bytes.saturating_sub(last.bytes),
            ended_flows: self.ended_flows.saturating_sub(last.ended_flows),
            cpu_ns: cpu_ns.map(|(thread, ns)| ns.saturating_sub(last_cpu_ns(thread))).collect(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.ended_flows += other.ended_flows;
    }
}

impl Line<'_> {
    /// `12:00:00 af_packet:eth0@0  1.20 Mpackets/s  7.21 Gbit/s | flows 12034 active 310 ended 0 lost | drops 0 NIC 0 kernel 0 queue 0 cache | load 43 %, sinks 2 %`
    fn write(&self, text: &mut String, time: &str, width: usize, seconds: f64) {
        let packets = units::rate(self.interval.packets as f64 / seconds, "packets/s");
        let bits = units::rate(8.0 * self.interval.bytes as f64 / seconds, "bit/s");
        let counters = &self.ledger.packets;
        let _ = write!(
            text,
            "{time} {:width$} {packets:>15} {bits:>12} | flows {} active {} ended {} lost | drops {} NIC {} kernel {} \
             queue {} cache",
            self.name,
            self.ledger.live.flows,
            self.interval.ended_flows,
            self.lost_records,
            counters.dropped_nic,
            counters.dropped_kernel,
            counters.dropped_queue,
            counters.dropped_cache_full,
        );
        if self.ledger.overload.level > 0 {
            let _ = write!(text, " | {}", overload::level_text(&self.ledger.overload));
        }
        let mut parts = Vec::new();
        match self.state() {
            Some("ended") => parts.push("ended".into()),
            Some("no_response") => parts.push("no response: waiting for a pipe, or blocked".into()),
            Some(_) => parts.push(format!("load {}", loads_text(&self.thread_loads))),
            None => {}
        }
        if let Some((percent, moved)) = self.balance() {
            parts.push(format!("busiest meter {percent:.1} % above its share, {moved} buckets moved"));
        }
        if !self.sink_loads.is_empty() {
            parts.push(format!("sinks {}", loads_text(&self.sink_loads)));
        }
        let _ = writeln!(text, " | {}", parts.join(", "));
    }

    fn log(&self, seconds: f64) {
        let counters = &self.ledger.packets;
        let mut fields = json!({
            "pipeline": self.name,
            "packets_per_second": self.interval.packets as f64 / seconds,
            "bits_per_second": 8.0 * self.interval.bytes as f64 / seconds,
            "active_flows": self.ledger.live.flows,
            "ended_flows": self.interval.ended_flows,
            "lost_records": self.lost_records,
            "dropped_nic": counters.dropped_nic,
            "dropped_kernel": counters.dropped_kernel,
            "dropped_queue": counters.dropped_queue,
            "dropped_cache_full": counters.dropped_cache_full,
            "overload_level": self.ledger.overload.level,
        });
        if let Some(state) = self.state() {
            fields["state"] = state.into();
            fields["thread_load_percent"] = self.thread_loads.clone().into();
        }
        if !self.sink_loads.is_empty() {
            fields["sink_load_percent"] = self.sink_loads.clone().into();
        }
        if let Some((percent, moved)) = self.balance() {
            fields["busiest_meter_above_share_percent"] = percent.into();
            fields["moved_buckets"] = moved.into();
        }
        log::json_event(Level::INFO, "statistics", &fields);
    }

    /// `running`, `ended` or `no_response`; `None` in the sum line.
    fn state(&self) -> Option<&'static str> {
        self.pipeline.map(|pipeline| match (pipeline.finished, pipeline.timed_out) {
            (true, _) => "ended",
            (_, true) => "no_response",
            _ => "running",
        })
    }

    /// By how many percent the busiest meter is above its share, and the number of moved buckets.
    fn balance(&self) -> Option<(f64, u64)> {
        let balance = self.pipeline.filter(|pipeline| !pipeline.finished)?.balance?;
        Some((balance.imbalance_permille as f64 / 10.0, balance.moved_buckets))
    }
}
