//! The page of `/metrics`: the ledger, pipeline by pipeline and sink by sink, in the text format of
//! Prometheus.
//!
//! Names and labels are stable; docs/control.md lists them. Every reason has a series from the start
//! on, with the value 0: a series that appears late would hide its first increase. Sums over the
//! pipelines equal the ledger.

use crate::report::Report;
use rustix::param::{clock_ticks_per_second, page_size};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_dpi::printable;
use weir_ledger::{
    ActionCounters, ExportLossReason, Ledger, MemberCounters, OutputCounters, OutputDropReason, PacketAnomaly,
    RecordTotals, RecorderCounters, RefusalReason, RuleCounters, SinkCounters, TrafficCounters, TransactionCounters,
};
use weir_probe::GroupStatus;

/// Text format 0.0.4.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Name, help, and the value in what has it.
type Figure<T> = (&'static str, &'static str, fn(&T) -> u64);

/// Lost records by reason, in what a sink counts.
type Losses = fn(&SinkCounters) -> &BTreeMap<&'static str, RecordTotals>;

const OF_PIPELINES: &[Figure<GroupStatus>] = &[
    (
        "weir_pipeline_up",
        "1 if the pipeline receives and responds, 0 if its source has ended or it does not respond",
        |pipeline| u64::from(!pipeline.finished && !pipeline.timed_out),
    ),
    ("weir_flows_active", "Flow records that are open, or have ended and await export", |of| {
        of.account.ledger.live.flows
    }),
    ("weir_overload_level", "Level of the load shedder; 0 without overload (weir help overload)", |of| {
        of.account.ledger.overload.level.into()
    }),
    ("weir_flows_created_total", "Flow records that the meter created", |of| of.account.ledger.flows_created),
    ("weir_overload_level_changes_total", "Changes of the overload level, up and down", |of| {
        of.account.ledger.overload.level_changes
    }),
    ("weir_flows_uninspected_total", "Flow records without an application because of overload", |of| {
        of.account.ledger.overload.uninspected_flows
    }),
    ("weir_flows_unfingerprinted_total", "Flow records without fingerprints because of overload", |of| {
        of.account.ledger.overload.unfingerprinted_flows
    }),
    (
        "weir_flows_unanalysed_total",
        "Exported flow records of which not all packets had TCP analysis, because of overload",
        |of| of.account.ledger.overload.unanalysed_flows,
    ),
    ("weir_flows_sampled_total", "Flow records of which packets were sampled", |of| {
        of.account.ledger.overload.sampled_flows
    }),
    ("weir_flows_inspected_total", "Flows with payload that was inspected", |of| of.account.ledger.inspection.flows),
    ("weir_flows_recognised_total", "Flows whose application was recognised", |of| {
        of.account.ledger.inspection.recognised
    }),
    ("weir_inspection_evicted_total", "Flows evicted from inspection because too many were undecided", |of| {
        of.account.ledger.inspection.evicted
    }),
    (
        "weir_inspection_work_limited_total",
        "Packets of which a part was not inspected because that takes too long",
        |of| of.account.ledger.inspection.work_limited,
    ),
    ("weir_buckets_moved_total", "Buckets moved between the meters of --layout spread", |pipeline| {
        pipeline.balance.map_or(0, |balance| balance.moved_buckets)
    }),
];

const OF_OUTPUTS: &[Figure<OutputCounters>] = &[
    ("weir_output_packets_sent_total", "Packets that the output accepted", |output| output.sent.packets),
    ("weir_output_bytes_sent_total", "Their octets, after cutting", |output| output.sent.octets),
];

const OF_RECORDERS: &[Figure<RecorderCounters>] = &[
    ("weir_recorder_files_total", "Capture files that were begun", |of| of.files),
    ("weir_recorder_files_removed_total", "Oldest capture files that were removed", |of| of.files_removed),
    ("weir_recorder_bytes_removed_total", "Octets of these files and their indexes", |of| of.octets_removed),
    ("weir_recorder_stopped", "1 if nothing is recorded, because a write failed", |of| of.is_stopped.into()),
];

const OF_SINKS: &[Figure<SinkCounters>] = &[
    (
        "weir_records_exported_total",
        "Flow records that the operating system accepted; over UDP this does not mean delivered",
        |sink| sink.exported.flows,
    ),
    ("weir_records_filtered_total", "Flow records that the expression of the sink did not select", |of| {
        of.filtered.flows
    }),
    ("weir_records_not_open_total", "Flow records that ended while the sink was not open", |of| of.not_open.flows),
    ("weir_records_spooled", "Flow records of this run that wait on disk", |of| of.spooled.flows),
    ("weir_records_earlier_spooled", "Flow records of earlier runs that wait on disk", |of| of.earlier.spooled.flows),
    ("weir_records_earlier_delivered_total", "Flow records of earlier runs delivered from the spool", |of| {
        of.earlier.delivered.flows
    }),
    ("weir_spool_bytes", "Octets of the spool on the disk", |of| of.spool_octets),
    ("weir_sink_records_written_total", "Records as the format counts them", |of| of.wire_records),
    ("weir_sink_messages_total", "Messages or datagrams written", |of| of.messages),
    ("weir_sink_bytes_total", "Octets written", |of| of.octets),
];

const OF_TRAFFIC: &[Figure<TrafficCounters>] = &[
    ("received", "that the source delivered or reported as lost", |counters| counters.received),
    ("metered", "in flow records", |counters| counters.metered),
    ("filtered", "that the filter rejected", |counters| counters.filtered),
    ("sampled_out", "that sampling did not select", |counters| counters.sampled_out),
];

/// Of one sink of transactions.
const OF_TRANSACTION_SINKS: &[Figure<SinkCounters>] = &[
    ("weir_transactions_exported_total", "Transactions that the operating system accepted", |sink| sink.exported.flows),
    ("weir_transactions_filtered_total", "Transactions that the expression of the sink did not select", |sink| {
        sink.filtered.flows
    }),
];

/// A page under construction.
#[derive(Default)]
struct Page(String);

/// The samples of one metric.
struct Metric<'a> {
    page: &'a mut String,
    name: &'a str,
}

impl Page {
    /// A counter if its name ends with `_total`, else a gauge. `help` has no line feed and no
    /// backslash.
    fn metric<'a>(&'a mut self, name: &'a str, help: &str) -> Metric<'a> {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Metric { page: &mut self.0, name }
    }

    /// A metric per figure, with a sample per item, whose name is in the label.
    fn add_all<T>(&mut self, label: &str, items: &[(String, &T)], figures: &[Figure<T>]) {
        for (name, help, value) in figures {
            let mut metric = self.metric(name, help);
            items.iter().for_each(|(item, of)| metric.add(&[(label, item)], value(of)));
        }
    }
}

impl Metric<'_> {
    fn add(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.page.push_str(self.name);
        for (number, (label, value)) in labels.iter().enumerate() {
            let line = |line| printable(line).replace('\\', r"\\").replace('"', "\\\"");
            let value = value.split('\n').map(line).collect::<Vec<_>>().join(r"\n");
            let _ = write!(self.page, "{}{label}=\"{value}\"", if number == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.page, "{}{value}", if labels.is_empty() { " " } else { "} " });
    }
}

/// The metrics of a report, of a probe that was started at this time.
pub fn page(report: &Report, started: SystemTime) -> String {
    let mut page = Page::default();
    page.metric("weir_build_info", "Version of Weir; the value is always 1")
        .add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    add_process(&mut page, started);
    let pipelines = named(report.pipelines.iter().map(|pipeline| (pipeline.name.as_str(), pipeline)));
    let mut metric = page.metric("weir_interface_up", "1 if the interface is up and has a link");
    report.interfaces.iter().for_each(|(interface, is_up)| metric.add(&[("interface", interface)], u8::from(*is_up)));
    add_pipelines(&mut page, &pipelines);
    for (what, field) in
        [("packets", (|ledger| &ledger.packets) as fn(&Ledger) -> &TrafficCounters), ("bytes", |ledger| &ledger.bytes)]
    {
        add_traffic(&mut page, &pipelines, what, field);
    }
    add_clock(&mut page, &report.ledger);
    add_actions(&mut page, report.ledger.actions.as_ref());
    // Sinks were asked before pipelines: what these have sent since is on its way.
    let open: u64 = report.pipelines.iter().map(|pipeline| pipeline.account.ledger.live.flows).sum();
    let on_the_way = report.ledger.live.flows.saturating_sub(open);
    add_sinks(&mut page, &named(report.ledger.sinks.iter().map(|sink| (sink.sink.as_str(), sink))), on_the_way);
    add_transactions(&mut page, report.ledger.transactions.as_ref());
    page.0
}

/// The records of transactions. Without `--transactions` these metrics have no series.
fn add_transactions(page: &mut Page, transactions: Option<&TransactionCounters>) {
    let of_all: [Figure<TransactionCounters>; 3] = [
        (
            "weir_transactions_begun_total",
            "Questions of DNS and requests of HTTP/1 that were recorded or left out",
            |of| of.begun,
        ),
        ("weir_transactions_left_out_total", "Transactions left out because their memory was full", |of| of.left_out),
        ("weir_transactions_open", "Transactions that are open, or on the way to their sinks", |of| of.open),
    ];
    for (name, help, value) in of_all {
        let mut metric = page.metric(name, help);
        transactions.iter().for_each(|of| metric.add(&[], value(of)));
    }
    let sinks = transactions.iter().flat_map(|of| &of.sinks).map(|sink| (sink.sink.as_str(), sink));
    let sinks = named(sinks);
    page.add_all("sink", &sinks, OF_TRANSACTION_SINKS);
    let mut metric = page.metric("weir_transactions_lost_total", "Transactions that were not delivered, by reason");
    for (sink, counters) in &sinks {
        for reason in ExportLossReason::ALL.iter().map(|reason| reason.key()) {
            metric.add(&[("sink", sink), ("reason", reason)], counters.lost.get(reason).map_or(0, |lost| lost.flows));
        }
    }
}

/// Names of series must differ: the second of the same name is `NAME#2`.
fn named<'a, T>(all: impl Iterator<Item = (&'a str, &'a T)>) -> Vec<(String, &'a T)> {
    let mut times = BTreeMap::<&str, u32>::new();
    let name = |(name, of): (&'a str, &'a T)| {
        let times = times.entry(name).or_default();
        *times += 1;
        (if *times == 1 { name.to_owned() } else { format!("{name}#{times}") }, of)
    };
    all.map(name).collect()
}

/// Metrics of the process that have the same names in most exporters. The sandbox permits to read
/// these files.
fn add_process(page: &mut Page, started: SystemTime) {
    let seconds = started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    page.metric("process_start_time_seconds", "Start of the process, Unix time").add(&[], seconds);
    // The second field is the program's name in parentheses; user and system time are fields 14 and 15.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let times = fields.get(11..13).map(|times| times.iter().filter_map(|time| time.parse::<u64>().ok()).sum::<u64>());
    if let Some(ticks) = times {
        let seconds = ticks as f64 / clock_ticks_per_second() as f64;
        page.metric("process_cpu_seconds_total", "CPU time of all threads").add(&[], seconds);
    }
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let sizes = pages.split_whitespace().filter_map(|pages| pages.parse::<u64>().ok());
    for ((name, help), pages) in [
        ("process_virtual_memory_bytes", "Virtual memory"),
        ("process_resident_memory_bytes", "Memory in use: ring buffers, flow caches and the program"),
    ]
    .into_iter()
    .zip(sizes)
    {
        page.metric(name, help).add(&[], pages * page_size() as u64);
    }
}

fn add_pipelines(page: &mut Page, pipelines: &[(String, &GroupStatus)]) {
    page.add_all("pipeline", pipelines, OF_PIPELINES);
    let help = "CPU time of each thread: first those that read, then those that meter";
    let mut metric = page.metric("weir_thread_cpu_seconds_total", help);
    for (pipeline, of) in pipelines {
        for (number, &ns) in of.cpu_time_ns.iter().enumerate() {
            metric.add(&[("pipeline", pipeline), ("thread", &number.to_string())], ns as f64 / 1e9);
        }
    }
    let mut metric = page.metric("weir_packets_anomalous_total", "Metered packets with something unusual, by anomaly");
    for (pipeline, of) in pipelines {
        for &anomaly in PacketAnomaly::ALL {
            let count = of.account.ledger.anomalies.get(anomaly);
            metric.add(&[("pipeline", pipeline), ("anomaly", anomaly.key())], count);
        }
    }
}

/// Outcomes of packets or of their octets. Their sum is `received`.
fn add_traffic(
    page: &mut Page,
    pipelines: &[(String, &GroupStatus)],
    what: &str,
    counters: fn(&Ledger) -> &TrafficCounters,
) {
    let unit = if what == "bytes" { "Octets on the wire of packets" } else { "Packets" };
    let of_pipelines = || pipelines.iter().map(|(name, status)| (name.as_str(), counters(&status.account.ledger)));
    for (outcome, help, value) in OF_TRAFFIC {
        let name = format!("weir_{what}_{outcome}_total");
        let mut metric = page.metric(&name, &format!("{unit} {help}"));
        of_pipelines().for_each(|(pipeline, counters)| metric.add(&[("pipeline", pipeline)], value(counters)));
    }
    let name = format!("weir_{what}_dropped_total");
    let mut metric = page.metric(&name, &format!("{unit} that were lost, by place"));
    for (pipeline, counters) in of_pipelines() {
        for (place, count) in [
            ("nic", counters.dropped_nic),
            ("kernel", counters.dropped_kernel),
            ("queue", counters.dropped_queue),
            ("flow_cache", counters.dropped_cache_full),
        ] {
            metric.add(&[("pipeline", pipeline), ("place", place)], count);
        }
    }
    let name = format!("weir_{what}_refused_total");
    let mut metric = page.metric(&name, &format!("{unit} that the decoder refused, by reason"));
    for (pipeline, counters) in of_pipelines() {
        for &reason in RefusalReason::ALL {
            metric.add(&[("pipeline", pipeline), ("reason", reason.key())], counters.refused.get(reason));
        }
    }
}

fn add_clock(page: &mut Page, ledger: &Ledger) {
    let mut metric = page.metric("weir_clock_steps_total", "Steps of the system's clock");
    metric.add(&[("direction", "forward")], ledger.clock.steps_forward);
    metric.add(&[("direction", "backward")], ledger.clock.steps_backward);
}

/// What rules did with packets. Without rules these metrics have no series.
fn add_actions(page: &mut Page, actions: Option<&ActionCounters>) {
    let mut metric = page.metric("weir_action_packets_total", "Packets that rules decided about, by action");
    if let Some(actions) = actions {
        for (action, packets) in
            [("forwarded", actions.forwarded), ("dropped", actions.dropped), ("shunted", actions.shunted)]
        {
            metric.add(&[("action", action)], packets.packets);
        }
    }
    let mut metric = page.metric("weir_action_packets_held", "Packets held back until the application is known");
    actions.iter().for_each(|actions| metric.add(&[], actions.held.packets));
    let help = "Flows that were decided without their application";
    let mut metric = page.metric("weir_flows_decided_early_total", help);
    if let Some(actions) = actions {
        metric.add(&[("cause", "application_unknown")], actions.decided_late);
        metric.add(&[("cause", "memory_full")], actions.decided_full);
        metric.add(&[("cause", "not_inspected")], actions.decided_uninspected);
    }
    let of_rules: [Figure<RuleCounters>; 2] = [
        ("weir_rule_packets_matched_total", "Packets that the rule matched", |rule| rule.matched.packets),
        ("weir_rule_packets_forwarded_total", "Those of them that were forwarded", |rule| rule.forwarded.packets),
    ];
    for (name, help, value) in of_rules {
        let mut metric = page.metric(name, help);
        for rule in actions.iter().flat_map(|actions| &actions.rules) {
            metric.add(&[("level", rule.level), ("rule", &rule.rule)], value(rule));
        }
    }
    let outputs: Vec<_> =
        actions.iter().flat_map(|actions| &actions.outputs).map(|of| (of.output.clone(), of)).collect();
    page.add_all("output", &outputs, OF_OUTPUTS);
    let mut metric = page.metric("weir_output_packets_dropped_total", "Packets that the output lost, by reason");
    for (output, of) in &outputs {
        for reason in OutputDropReason::ALL.iter().map(|reason| reason.key()) {
            let dropped = of.dropped.get(reason).map_or(0, |dropped| dropped.packets);
            metric.add(&[("output", output), ("reason", reason)], dropped);
        }
    }
    page.add_all(
        "output",
        &outputs,
        &[("weir_output_packets_waiting", "Packets in the queue of the output", |output| output.waiting.packets)],
    );
    let recorders = outputs.iter().filter_map(|(output, of)| Some((output.clone(), of.recorder.as_ref()?)));
    page.add_all("output", &recorders.collect::<Vec<_>>(), OF_RECORDERS);
}

/// The sinks of `failover:`. Without one these metrics have no series.
fn add_members(page: &mut Page, sinks: &[(String, &SinkCounters)]) {
    let figures: [Figure<MemberCounters>; 3] = [
        ("weir_failover_active", "1 for the sink that gets the records now", |of| of.is_active.into()),
        ("weir_failover_takeovers_total", "How often records began to go to this sink", |of| of.takeovers),
        ("weir_failover_records_exported_total", "Flow records that this sink has sent", |of| of.exported.flows),
    ];
    for (name, help, value) in figures {
        let mut metric = page.metric(name, help);
        for (sink, counters) in sinks {
            for member in &counters.members {
                metric.add(&[("sink", sink), ("member", &member.sink)], value(member));
            }
        }
    }
}

fn add_sinks(page: &mut Page, sinks: &[(String, &SinkCounters)], on_the_way: u64) {
    page.add_all("sink", sinks, OF_SINKS);
    add_members(page, sinks);
    let losses: [(&str, &str, Losses); 2] = [
        ("weir_records_lost_total", "Flow records that were not delivered, by reason", |of| &of.lost),
        (
            "weir_records_earlier_lost_total",
            "Flow records of earlier runs in the spool that were not delivered, by reason",
            |of| &of.earlier.lost,
        ),
    ];
    for (name, help, lost) in losses {
        let mut metric = page.metric(name, help);
        for (sink, counters) in sinks {
            for reason in ExportLossReason::ALL.iter().map(|reason| reason.key()) {
                let flows = lost(counters).get(reason).map_or(0, |lost| lost.flows);
                metric.add(&[("sink", sink), ("reason", reason)], flows);
            }
        }
    }
    let help = "Age of the oldest segment with records that wait: none of them is older; 0 if none wait";
    let mut metric = page.metric("weir_spool_oldest_age_seconds", help);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    for (sink, counters) in sinks {
        metric.add(&[("sink", sink)], counters.spool_oldest.map_or(0.0, |begun| (now - begun as f64).max(0.0)));
    }
    let mut metric =
        page.metric("weir_records_waiting", "Flow records in the queue of the sink, or on their way there");
    let waiting = |counters: &SinkCounters| counters.waiting.flows + on_the_way;
    sinks.iter().for_each(|(sink, counters)| metric.add(&[("sink", sink)], waiting(counters)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let pipeline = |name: &str, packets| {
            let mut pipeline = GroupStatus { name: name.into(), ..GroupStatus::default() };
            pipeline.account.ledger.packets.received = packets;
            pipeline.account.ledger.packets.refused.add(RefusalReason::NonIp, 2);
            pipeline.account.ledger.live.flows = 1;
            pipeline
        };
        let mut sink = SinkCounters { sink: "csv:a \"b\" \\\n\x1b".into(), ..SinkCounters::default() };
        sink.waiting.flows = 2;
        // Of 5 flows that the ledger calls live, 3 have left their pipeline.
        let mut ledger = Ledger { sinks: vec![sink.clone(), sink], ..Ledger::default() };
        ledger.live.flows = 5;
        let of_transactions = SinkCounters { sink: "json:t".into(), ..SinkCounters::default() };
        ledger.transactions =
            Some(TransactionCounters { begun: 9, open: 2, left_out: 3, sinks: vec![of_transactions] });
        Report { ledger, pipelines: vec![pipeline("synth:mix", 7), pipeline("synth:mix", 8)], ..Report::default() }
    }

    #[test]
    fn series_differ_and_their_labels_are_escaped() {
        let page = page(&report(), SystemTime::now());
        for line in [
            r#"weir_packets_received_total{pipeline="synth:mix"} 7"#,
            r#"weir_packets_received_total{pipeline="synth:mix#2"} 8"#,
            r#"weir_packets_refused_total{pipeline="synth:mix",reason="non_ip"} 2"#,
            r#"weir_packets_dropped_total{pipeline="synth:mix",place="kernel"} 0"#,
            r#"weir_records_exported_total{sink="csv:a \"b\" \\\n\\x1b"} 0"#,
            r#"weir_records_waiting{sink="csv:a \"b\" \\\n\\x1b"} 5"#,
            "# TYPE weir_records_exported_total counter",
            "weir_transactions_begun_total 9",
            "weir_transactions_left_out_total 3",
            "weir_transactions_open 2",
            r#"weir_transactions_exported_total{sink="json:t"} 0"#,
            r#"weir_transactions_lost_total{sink="json:t",reason="exporter_behind"} 0"#,
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        let mut series: Vec<&str> =
            page.lines().filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name).collect();
        let all = series.len();
        series.sort_unstable();
        series.dedup();
        assert_eq!(series.len(), all);
    }
}
