//! The ledger as text for people, and whether it shows problems.

use crate::protocols::link_type;
use std::fmt::Display;
use weir_ledger::{
    ActionCounters, ClockCounters, EarlierCounters, ExportLossReason, Imbalance, InspectionCounters, Ledger,
    OutputDropReason, OverloadCounters, PacketTotals, RecordTotals, RefusalReason, RuleCounters, SinkCounters,
    TrafficCounters, TransactionCounters,
};

/// Whether packets were dropped or could not be read because of their link type, or records were not
/// delivered to an open output. Malformed packets are traffic, and counted.
pub fn has_problems(ledger: &Ledger) -> bool {
    let packets = &ledger.packets;
    packets.refused.get(RefusalReason::LinkType) > 0
        || packets.dropped_nic + packets.dropped_kernel + packets.dropped_queue + packets.dropped_cache_full > 0
        || ledger.transactions.as_ref().is_some_and(|transactions| transactions.left_out > 0)
        || ledger.sinks.iter().chain(ledger.transactions.iter().flat_map(|of| &of.sinks)).any(|sink| {
            !sink.earlier.lost.is_empty()
                || sink.lost.keys().any(|&reason| reason != ExportLossReason::OutputClosed.key())
        })
        || ledger.actions.as_ref().is_some_and(has_lost_packets)
        || !ledger.balanced()
}

/// Whether an output has dropped packets, other than because its reader closed it.
fn has_lost_packets(actions: &ActionCounters) -> bool {
    let mut reasons = actions.outputs.iter().flat_map(|output| output.dropped.keys());
    reasons.any(|&reason| reason != OutputDropReason::Closed.key())
}

/// The ledger as text: its counters, and whether it balances.
pub fn text(ledger: &Ledger, terminal_columns: Option<usize>) -> String {
    counters(ledger, terminal_columns) + &balance(ledger)
}

/// Every counter that is not 0.
pub fn counters(ledger: &Ledger, terminal_columns: Option<usize>) -> String {
    let mut rows = Rows::default();
    rows.add("ledger", &["packets", "bytes on the wire"]);
    let (packets, bytes) = (&ledger.packets, &ledger.bytes);
    rows.add("received", &[packets.received, bytes.received]);
    for (name, counter) in [
        ("dropped by the NIC", (|line| line.dropped_nic) as fn(&TrafficCounters) -> u64),
        ("dropped by the kernel", |line| line.dropped_kernel),
        ("dropped by Weir", |line| line.dropped_queue),
        ("dropped, flow cache full", |line| line.dropped_cache_full),
        ("filtered", |line| line.filtered),
        ("sampled out", |line| line.sampled_out),
    ] {
        if counter(packets) > 0 {
            rows.add(format!("- {name}"), &[counter(packets), counter(bytes)]);
        }
    }
    for (reason, count) in packets.refused.nonzero() {
        rows.add(format!("- refused, {}", reason.key()), &[count, bytes.refused.get(reason)]);
    }
    rows.add("= metered", &[packets.metered, bytes.metered]);
    for (&number, &frames) in &ledger.link_types {
        rows.add(format!("  refused, {}", link_type(number)), &[frames]);
    }
    for (anomaly, count) in ledger.anomalies.nonzero() {
        rows.add(format!("  anomaly, {}", anomaly.key()), &[count]);
    }
    let OverloadCounters { level, highest, level_changes, .. } = ledger.overload;
    if highest > 0 {
        let levels = format!("level {level}, highest {highest}, {level_changes} changes");
        rows.add_text("overload (weir help overload)", levels);
    }
    for (name, flows) in [
        ("  records without inspection", ledger.overload.uninspected_flows),
        ("  records without fingerprints", ledger.overload.unfingerprinted_flows),
        ("  records without TCP analysis", ledger.overload.unanalysed_flows),
        ("  sampled records", ledger.overload.sampled_flows),
    ] {
        if flows > 0 {
            rows.add(name, &[flows]);
        }
    }
    add_inspection(&mut rows, ledger.inspection);
    ledger.transactions.iter().for_each(|transactions| add_transactions(&mut rows, transactions));
    let ClockCounters { steps_forward, steps_backward, offset_ns } = ledger.clock;
    if steps_forward + steps_backward > 0 {
        let seconds = offset_ns as f64 / 1e9;
        let steps = format!("{steps_forward} forward, {steps_backward} back, {seconds:+.3} s in total");
        rows.add_text("steps of the system's clock", steps);
    }
    if let Some(actions) = &ledger.actions {
        add_actions(&mut rows, actions);
    }
    rows.add("records", &["flows", "packets", "bytes on the wire"]);
    let totals = |RecordTotals { flows, packets, bytes }: RecordTotals| [flows, packets, bytes];
    rows.add("created", &[ledger.flows_created, packets.metered, bytes.metered]);
    if ledger.live.flows > 0 {
        rows.add("- live", &totals(ledger.live));
    }
    ledger.sinks.iter().for_each(|sink| add_sink(&mut rows, sink));
    rows.text(terminal_columns)
}

/// Adds what a sink did with records.
fn add_sink(rows: &mut Rows, sink: &SinkCounters) {
    let totals = |RecordTotals { flows, packets, bytes }: RecordTotals| [flows, packets, bytes];
    rows.add(format!("= {}, exported", sink.sink), &totals(sink.exported));
    if sink.filtered.flows > 0 {
        rows.add("  + filtered (where, balance)", &totals(sink.filtered));
    }
    if sink.waiting.flows > 0 {
        rows.add("  + waiting", &totals(sink.waiting));
    }
    if sink.spooled.flows > 0 {
        rows.add("  + spooled, waiting on disk", &totals(sink.spooled));
    }
    if sink.not_open.flows > 0 {
        rows.add("  + while the sink was not open", &totals(sink.not_open));
    }
    for (reason, &records) in &sink.lost {
        rows.add(format!("  + lost, {reason}"), &totals(records));
    }
    for (what, &flows) in &sink.altered {
        rows.add(format!("  of the exported, {what}"), &[flows]);
    }
    for member in &sink.members {
        let now = if member.is_active { ", active" } else { "" };
        rows.add(format!("  of these {}{now}, exported", member.sink), &totals(member.exported));
        let lost = member.lost.iter().map(|(reason, &records)| (format!("lost, {reason}"), records));
        for (what, records) in lost.chain([("spooled".into(), member.spooled)]).filter(|(_, of)| of.flows > 0) {
            rows.add(format!("    + {what}"), &totals(records));
        }
    }
    add_earlier(rows, &sink.earlier);
}

/// Adds what became of the records that earlier runs have left in a spool.
fn add_earlier(rows: &mut Rows, earlier: &EarlierCounters) {
    if *earlier == EarlierCounters::default() {
        return;
    }
    let totals = |RecordTotals { flows, packets, bytes }: RecordTotals| [flows, packets, bytes];
    rows.add("  earlier runs, found in the spool", &totals(earlier.found));
    rows.add("  = delivered", &totals(earlier.delivered));
    if earlier.spooled.flows > 0 {
        rows.add("    + spooled, waiting on disk", &totals(earlier.spooled));
    }
    for (reason, &records) in &earlier.lost {
        rows.add(format!("    + lost, {reason}"), &totals(records));
    }
}

/// Adds what inspection left out.
fn add_inspection(rows: &mut Rows, inspection: InspectionCounters) {
    let InspectionCounters { evicted, facts_left_out, transactions_left_out, work_limited, .. } = inspection;
    for (name, count) in [
        ("inspection evicted, too many undecided flows", evicted),
        ("facts left out, too little memory", facts_left_out),
        ("messages not counted, too many such flows", transactions_left_out),
        ("packets not inspected to their end, too much work", work_limited),
    ] {
        if count > 0 {
            rows.add(name, &[count]);
        }
    }
}

/// Transactions, and what became of their records.
fn add_transactions(rows: &mut Rows, transactions: &TransactionCounters) {
    let TransactionCounters { begun, open, left_out, sinks } = transactions;
    rows.add("transactions begun", &[*begun]);
    for (name, count) in [("open", open), ("left out, too little memory", left_out)] {
        if *count > 0 {
            rows.add(format!("- {name}"), &[*count]);
        }
    }
    for sink in sinks {
        rows.add(format!("= {}, exported", sink.sink), &[sink.exported.flows]);
        let lost = sink.lost.iter().map(|(reason, records)| (format!("lost, {reason}"), records.flows));
        let others = [("filtered (where)", sink.filtered), ("waiting", sink.waiting), ("spooled", sink.spooled)];
        let others = others.into_iter().map(|(what, records)| (what.into(), records.flows));
        for (what, count) in others.chain(lost).filter(|(_, count)| *count > 0) {
            rows.add(format!("  + {what}"), &[count]);
        }
    }
}

/// What rules did with packets, and what became of those that were forwarded.
fn add_actions(rows: &mut Rows, actions: &ActionCounters) {
    let totals = |PacketTotals { packets, octets }: PacketTotals| [packets, octets];
    rows.add("rules (weir help rules)", &["packets", "bytes on the wire"]);
    for (name, packets) in [
        ("- dropped by rules", actions.dropped),
        ("- shunted", actions.shunted),
        ("- held until the application", actions.held),
    ] {
        if packets.packets > 0 {
            rows.add(name, &totals(packets));
        }
    }
    rows.add("= forwarded", &totals(actions.forwarded));
    for (name, count) in [
        ("  cut", actions.cut),
        ("  flows decided late", actions.decided_late),
        ("  flows decided, no memory", actions.decided_full),
        ("  flows decided uninspected", actions.decided_uninspected),
    ] {
        if count > 0 {
            rows.add(name, &[count]);
        }
    }
    for RuleCounters { level, rule, matched, .. } in actions.rules.iter().filter(|rule| rule.matched.packets > 0) {
        rows.add(format!("  {level}: {rule}"), &totals(*matched));
    }
    if !actions.outputs.is_empty() {
        rows.add("outputs", &["packets", "bytes, cut"]);
    }
    for output in &actions.outputs {
        rows.add(format!("= {}, sent", output.output), &totals(output.sent));
        if output.waiting.packets > 0 {
            rows.add("  + waiting", &totals(output.waiting));
        }
        for (reason, &packets) in &output.dropped {
            rows.add(format!("  + dropped, {reason}"), &totals(packets));
        }
        if let Some(recorder) = &output.recorder {
            rows.add("  files begun", &[recorder.files]);
            rows.add("  oldest files removed", &[recorder.files_removed]);
        }
    }
}

/// Whether the ledger balances: one line, or one for each equation that does not hold.
pub fn balance(ledger: &Ledger) -> String {
    let imbalances = ledger.check();
    if imbalances.is_empty() {
        return "the ledger balances\n".into();
    }
    let line = |Imbalance { equation, left, right }: Imbalance| {
        format!("THE LEDGER DOES NOT BALANCE: {equation}: {left} is not {right}; please report this\n")
    };
    imbalances.into_iter().map(line).collect()
}

/// Rows of labels and figures. The figures stand behind the longest label that leaves room for them. A
/// longer one has a line of its own.
#[derive(Default)]
struct Rows(Vec<(String, Vec<String>)>);

impl Rows {
    fn add(&mut self, label: impl Into<String>, figures: &[impl Display]) {
        // Names of rules and outputs can have any character.
        self.0.push((weir_dpi::printable(&label.into()), figures.iter().map(ToString::to_string).collect()));
    }

    /// Adds a text instead of figures.
    fn add_text(&mut self, label: &str, text: String) {
        self.0.push((weir_dpi::printable(&format!("{label:<MIN_LABEL_COLUMNS$} {text}")), Vec::new()));
    }

    fn text(&self, terminal_columns: Option<usize>) -> String {
        let mut widths = [MIN_FIGURE_COLUMNS; 3];
        for (_, figures) in &self.0 {
            widths.iter_mut().zip(figures).for_each(|(width, figure)| *width = figure.len().max(*width));
        }
        let room =
            terminal_columns.map_or(usize::MAX, |columns| columns.saturating_sub(widths.map(|w| w + 1).iter().sum()));
        let labels = self.0.iter().map(|(label, _)| label.chars().count()).filter(|&length| length <= room);
        let columns = labels.fold(MIN_LABEL_COLUMNS, usize::max);
        let mut text = String::new();
        for (label, figures) in &self.0 {
            let figures: String =
                figures.iter().zip(widths).map(|(figure, width)| format!(" {figure:>width$}")).collect();
            let is_long = label.chars().count() > columns && !figures.is_empty();
            text += &if is_long {
                format!("{label}\n{:columns$}{figures}\n", "")
            } else {
                format!("{label:<columns$}{figures}\n")
            };
        }
        text
    }
}

const MIN_LABEL_COLUMNS: usize = 31;
const MIN_FIGURE_COLUMNS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ledger::SinkCounters;

    #[test]
    fn an_unknown_link_type_is_a_problem_and_malformed_frames_and_those_without_ip_are_not() {
        let mut ledger = Ledger::default();
        ledger.packets.received = 1;
        ledger.packets.refused.count(RefusalReason::NonIp);
        ledger.ethertypes.insert(0x0806, 1);
        assert!(!has_problems(&ledger));
        ledger.packets.received = 2;
        ledger.packets.refused.count(RefusalReason::Ipv4Truncated);
        assert!(!has_problems(&ledger));
        ledger.packets.received = 3;
        ledger.count_refused(RefusalReason::LinkType, 127, 60);
        assert!(has_problems(&ledger));
    }

    #[test]
    fn records_are_a_problem_unless_the_reader_closed_the_pipe() {
        let mut ledger = Ledger { flows_created: 1, ..Ledger::default() };
        let mut sink = SinkCounters::default();
        sink.add_lost(ExportLossReason::OutputClosed, RecordTotals { flows: 1, packets: 0, bytes: 0 });
        ledger.sinks.push(sink);
        assert!(!has_problems(&ledger));
        ledger.flows_created = 2;
        ledger.sinks[0].add_lost(ExportLossReason::WriteFailed, RecordTotals { flows: 1, packets: 0, bytes: 0 });
        assert!(has_problems(&ledger));
    }

    #[test]
    fn imbalance_is_a_problem_and_is_printed_with_both_sides() {
        let mut ledger = Ledger::default();
        ledger.packets.received = 3;
        assert!(has_problems(&ledger));
        assert!(text(&ledger, None).contains("3 is not 0"));
    }
}
