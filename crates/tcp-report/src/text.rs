//! The report for the terminal.

use crate::connection_table::{List, WHO};
use crate::histogram::{self, Histogram};
use crate::report::CaptureReport;
use crate::totals::{Totals, percent, quantile};
use std::fmt::Write as _;
use std::io::{self, Write};
use weir_tcp::SegmentClass;
use weir_text::columns::{Column, lines, rows};
use weir_text::units;

/// What the headings of the list mean.
pub const LEGEND: &str = "\
retrans: share of segments with payload, SYN or FIN; retr: their number; unseen: of these, lost before the capture; \
ooo: out of order; copies: made by the capture; 0-win: closed windows; →: of the client; k, M and G are decimal";

/// All of it. The list is written some connections at a time.
pub fn text(report: &CaptureReport, terminal_columns: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let mut text = facts(report);
    if report.totals.connections == 0 {
        return out.write_all(text.as_bytes());
    }
    text.push('\n');
    text += &classes(&report.totals);
    text.push('\n');
    let list = List::of(report.listed());
    for (at, columns) in list.pieces().enumerate() {
        let rows = rows(&columns, WHO, terminal_columns);
        // The headings are those of the first piece.
        text.extend(rows.into_iter().skip(usize::from(at > 0)));
        out.write_all(text.as_bytes())?;
        text.clear();
    }
    text += &below(report, terminal_columns);
    let round_trips = histogram::round_trips(&report.totals);
    let histograms = histogram::retransmitted(&report.connections, report.min_packets).into_iter().chain(round_trips);
    for histogram in histograms.filter(Histogram::is_one) {
        text.push('\n');
        text += &histogram.text();
    }
    if let Some(comparison) = &report.comparison {
        text.push('\n');
        text += &comparison.text();
    }
    let warnings = report.warnings();
    if !warnings.is_empty() {
        text.push('\n');
        for warning in warnings {
            text += &wrapped("note:", &warning, terminal_columns);
        }
    }
    out.write_all(text.as_bytes())
}

/// A text behind its name, broken between words for the terminal.
fn wrapped(name: &str, text: &str, terminal_columns: Option<usize>) -> String {
    let (mut line, mut at) = (String::from(name), name.len());
    for word in text.split([' ', '\n']) {
        let width = word.chars().count() + 1;
        if terminal_columns.is_some_and(|limit| at + width > limit.clamp(40, 120)) {
            line = line + "\n" + &" ".repeat(name.len());
            at = name.len();
        }
        if at > 0 {
            line.push(' ');
        }
        line += word;
        at += width;
    }
    line.push('\n');
    line
}

/// One fact a line, as in the summary of `weir read`.
pub fn facts(report: &CaptureReport) -> String {
    let mut text = String::new();
    for (name, value) in fact_lines(report) {
        let _ = writeln!(text, "{name:<13} {value}");
    }
    text
}

/// The facts by name.
pub fn fact_lines(report: &CaptureReport) -> Vec<(&'static str, String)> {
    let (totals, intake) = (&report.totals, &report.counts);
    let packets = &intake.ledger.packets;
    let mut lines = Vec::new();
    let mut counted = format!("{} received, {} analysed", packets.received, packets.metered);
    for (count, what) in [
        (intake.not_matching, "filtered"),
        (intake.not_tcp, "not TCP"),
        (intake.without_ports, "TCP without ports"),
        (packets.refused.total(), "refused (-v says why)"),
        (packets.dropped_table_full, "left out (see the notes)"),
    ] {
        if count > 0 {
            let _ = write!(counted, ", {count} {what}");
        }
    }
    lines.push(("packets", counted));
    for (noted, packets) in intake.ledger.anomalies.nonzero() {
        lines.push(("noted", format!("{}: {}", units::count(packets, "packet"), noted.sentence())));
    }
    if totals.connections == 0 {
        return lines;
    }
    let mut connections = totals.connections.to_string();
    if totals.without_room() > 0 {
        let _ = write!(
            connections,
            ", {} of them marked room: the figures below are too low (see the notes)",
            totals.without_room()
        );
    }
    lines.push(("connections", connections));
    let octets = totals.payload_bytes;
    let human = if octets < 10_000 { String::new() } else { format!(" ({})", units::quantity(octets, "B")) };
    lines.push(("payload", format!("{octets}{human} octets, {} of them seen for the first time", totals.unique_bytes)));
    lines.push(("span", units::period(totals.first_ns, totals.last_ns)));
    let ([from_clients, from_servers], [of_clients, of_servers]) = (totals.retransmitted, totals.sequenced);
    let (all, whole) = (from_clients + from_servers, of_clients + of_servers);
    let mut again = format!("{} of {}", percent(all, whole), units::count(whole, "segment"));
    if all > 0 {
        let _ = write!(
            again,
            ": {} of the clients' ({from_clients}), {} of the servers' ({from_servers})",
            percent(from_clients, of_clients),
            percent(from_servers, of_servers)
        );
    }
    lines.push(("retransmitted", again));
    let unseen = totals.of_class(SegmentClass::UnseenRetransmission).segments;
    if all > 0 {
        let _ = write!(
            lines.last_mut().expect("it was pushed").1,
            "; {unseen} lost before the capture, {} needless",
            totals.spurious
        );
    }
    let [client, server] = &totals.round_trips;
    for (name, times) in [("server side", server), ("client side", client)] {
        if let (Some(median), Some(high)) = (quantile(times, 50), quantile(times, 95)) {
            let (median, high) = (units::span(median), units::span(high));
            let handshakes = units::count(times.len() as u64, "handshake");
            lines.push((name, format!("round trip {median} median, 95 % within {high} ({handshakes})")));
        }
    }
    let [clients, servers] = totals.zero_windows;
    if clients + servers > 0 {
        lines.push((
            "zero windows",
            format!("{clients} announced by clients, {servers} by servers: the program there read too slowly"),
        ));
    }
    lines
}

/// Classes that occurred, both directions together.
fn classes(totals: &Totals) -> String {
    let some: Vec<SegmentClass> =
        SegmentClass::ALL.into_iter().filter(|&class| totals.of_class(class).segments > 0).collect();
    let column = |heading: &str, to_the_right, cell: &dyn Fn(SegmentClass) -> String, sum: String| {
        Column::new(heading, to_the_right, some.iter().map(|&class| cell(class)).chain([sum]))
    };
    let (packets, octets) = (totals.packets, totals.payload_bytes);
    let columns = [
        column("class", false, &|class| class.name().into(), "all".into()),
        column("packets", true, &|class| totals.of_class(class).segments.to_string(), packets.to_string()),
        column("share", true, &|class| percent(totals.of_class(class).segments, packets), String::new()),
        column("octets of payload", true, &|class| totals.of_class(class).bytes.to_string(), octets.to_string()),
        column("share", true, &|class| percent(totals.of_class(class).bytes, octets), String::new()),
    ];
    lines(&columns, columns.len(), None)
}

/// What stands below the list.
fn below(report: &CaptureReport, terminal_columns: Option<usize>) -> String {
    let (all, listed) = (report.totals.connections, report.listed().len() as u64);
    let mut text = match all - listed {
        0 => units::count(all, "connection"),
        _ => format!("{listed} of {all} connections (--top 0 for all)"),
    };
    let _ = write!(text, ", by {}", report.sort.description());
    if report.min_packets > 1 {
        let _ = write!(text, "; those of fewer than {} packets come last (--min-packets)", report.min_packets);
    }
    text.push('\n');
    text += &wrapped("", LEGEND, terminal_columns.or(Some(120)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranking::SortOrder;
    use weir_tcp::Degradation;

    #[test]
    fn the_totals_say_at_once_that_memory_was_missing() {
        let facts = |without_room| {
            let mut totals = Totals { connections: 7, ..Totals::default() };
            totals.degraded[Degradation::POOL_FULL.trailing_zeros() as usize] = without_room;
            facts(&CaptureReport {
                sources: Vec::new(),
                engine: String::new(),
                engine_counters: Default::default(),
                counts: Default::default(),
                totals,
                connections: Vec::new(),
                comparison: None,
                sort: SortOrder::Packets,
                min_packets: 0,
                top: 0,
            })
        };
        assert!(facts(0).contains("\nconnections   7\n"));
        let text = facts(2);
        assert!(text.contains("\nconnections   7, 2 of them marked room: the figures below are too low"), "{text}");
    }
}
