//! The ledger as text for people, and whether it shows problems.

use crate::protocols::link_type;
use std::fmt::Write;
use weir_ledger::{ExportLossReason, Ledger, OverloadCounters, RecordTotals, RefusalReason, TrafficCounters};

/// Whether packets were malformed or dropped, or records were not delivered to an open output.
pub fn has_problems(ledger: &Ledger) -> bool {
    let packets = &ledger.packets;
    packets.refused.total() > packets.refused.get(RefusalReason::NonIp)
        || packets.dropped_nic + packets.dropped_kernel + packets.dropped_queue + packets.dropped_cache_full > 0
        || ledger
            .sinks
            .iter()
            .any(|sink| sink.lost.keys().any(|&reason| reason != ExportLossReason::OutputClosed.key()))
        || !ledger.balanced()
}

/// The ledger as text: every counter that is not 0, and whether the ledger balances.
pub fn text(ledger: &Ledger) -> String {
    let mut text = format!("{:<32} {:>20} {:>20}\n", "ledger", "packets", "bytes on the wire");
    let mut line = |name: &str, packets: u64, bytes: u64| {
        let _ = writeln!(text, "{name:<32} {packets:>20} {bytes:>20}");
    };
    let (packets, bytes) = (&ledger.packets, &ledger.bytes);
    line("received", packets.received, bytes.received);
    for (name, counter) in [
        ("dropped by the NIC", (|line| line.dropped_nic) as fn(&TrafficCounters) -> u64),
        ("dropped by the kernel", |line| line.dropped_kernel),
        ("dropped by Weir", |line| line.dropped_queue),
        ("dropped, flow cache full", |line| line.dropped_cache_full),
        ("filtered", |line| line.filtered),
        ("sampled out", |line| line.sampled_out),
    ] {
        if counter(packets) > 0 {
            line(&format!("- {name}"), counter(packets), counter(bytes));
        }
    }
    for (reason, count) in packets.refused.nonzero() {
        line(&format!("- refused, {}", reason.key()), count, bytes.refused.get(reason));
    }
    line("= metered", packets.metered, bytes.metered);
    for (&number, frames) in &ledger.link_types {
        let _ = writeln!(text, "{:<32} {frames:>20}", format!("  refused, {}", link_type(number)));
    }
    for (anomaly, count) in ledger.anomalies.nonzero() {
        let _ = writeln!(text, "{:<32} {count:>20}", format!("  anomaly, {}", anomaly.key()));
    }
    let OverloadCounters { level, highest, level_changes, unanalysed_flows, sampled_flows, .. } = ledger.overload;
    if highest > 0 {
        let levels = format!("level {level}, highest {highest}, {level_changes} changes");
        let _ = writeln!(text, "{:<32} {levels}", "overload (docs/overload.md)");
    }
    for (name, flows) in [("  records without TCP analysis", unanalysed_flows), ("  sampled records", sampled_flows)] {
        if flows > 0 {
            let _ = writeln!(text, "{name:<32} {flows:>20}");
        }
    }
    let _ = writeln!(text, "{:<32} {:>20} {:>20} {:>20}", "records", "flows", "packets", "bytes on the wire");
    let mut line = |name: &str, records: RecordTotals| {
        let RecordTotals { flows, packets, bytes } = records;
        let _ = writeln!(text, "{name:<32} {flows:>20} {packets:>20} {bytes:>20}");
    };
    line("created", RecordTotals { flows: ledger.flows_created, packets: packets.metered, bytes: bytes.metered });
    if ledger.live.flows > 0 {
        line("- live", ledger.live);
    }
    for sink in &ledger.sinks {
        line(&format!("= {}, exported", sink.sink), sink.exported);
        if sink.waiting.flows > 0 {
            line("  + waiting", sink.waiting);
        }
        if sink.not_open.flows > 0 {
            line("  + while the sink was not open", sink.not_open);
        }
        for (reason, &records) in &sink.lost {
            line(&format!("  + lost, {reason}"), records);
        }
        for (what, &flows) in &sink.altered {
            line(&format!("  of the exported, {what}"), RecordTotals { flows, ..RecordTotals::default() });
        }
    }
    match ledger.check().as_slice() {
        [] => text += "the ledger balances\n",
        imbalances => {
            for imbalance in imbalances {
                let (equation, left, right) = (&imbalance.equation, imbalance.left, imbalance.right);
                let _ = writeln!(
                    text,
                    "THE LEDGER DOES NOT BALANCE: {equation}: {left} is not {right}; please report this"
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ledger::SinkCounters;

    #[test]
    fn malformed_frames_are_a_problem_and_frames_without_ip_are_not() {
        let mut ledger = Ledger::default();
        ledger.packets.received = 1;
        ledger.packets.refused.count(RefusalReason::NonIp);
        ledger.ethertypes.insert(0x0806, 1);
        assert!(!has_problems(&ledger));
        ledger.packets.received = 2;
        ledger.packets.refused.count(RefusalReason::Ipv4Truncated);
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
        assert!(text(&ledger).contains("3 is not 0"));
    }
}
