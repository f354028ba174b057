//! The report for the terminal.

use crate::connection_table::{ConnectionTable, ENDPOINT_COLUMNS};
use crate::counts::nonzero;
use crate::delay::Delay;
use crate::failure::Failure;
use crate::failure_groups::{CommonSide, FEWEST, FailureGroup};
use crate::group_table::{legend, text_columns};
use crate::groups::Group;
use crate::histogram::Histogram;
use crate::percent::{percent, percentile};
use crate::report::{CaptureReport, Grouping, Part};
use crate::totals::Totals;
use std::fmt::Write as _;
use std::io::{self, Write};
use weir_ledger::RefusalReason;
use weir_tcp::{Degradation, SegmentClass, TcpReport};
use weir_text::columns::{Column, fit, lines, rows};
use weir_text::zone::Zone;
use weir_text::{paragraph, units};

/// Least and greatest number of columns that prose is wrapped at.
const PROSE_COLUMNS: [usize; 2] = [40, 120];

impl CaptureReport {
    /// Writes the report as text. Its tables are folded at `terminal_columns`, if given.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write_text(&self, terminal_columns: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
        let mut text = String::new();
        let columns = terminal_columns.map(|columns| columns.clamp(PROSE_COLUMNS[0], PROSE_COLUMNS[1]));
        for (number, (mut sentence, advice)) in self.found().into_iter().enumerate() {
            let name = if number == 0 { "found" } else { "" };
            sentence += &advice.map_or(String::new(), |advice| format!(" ({advice})"));
            text += &paragraph(&format!("{name:<13} "), &sentence, columns);
        }
        for (name, value) in self.facts() {
            text += &paragraph(&format!("{name:<13} "), &value, columns);
        }
        if self.totals.connections == 0 {
            return out.write_all(text.as_bytes());
        }
        if let Some(grouping) = self.options.grouping {
            text += &format!("\n{}", self.groups_text(grouping, terminal_columns, columns));
        } else {
            text += &self.failure_groups_text(terminal_columns, columns);
            self.write_lists(&mut text, terminal_columns, columns, out)?;
        }
        let histograms = [self.retransmission_histogram(), self.rtt_histogram()];
        for histogram in histograms.into_iter().flatten().filter(Histogram::is_meaningful) {
            text += &format!("\n{}", histogram.text());
        }
        if let Some(comparison) = &self.comparison {
            text += &format!("\n{}", comparison.text(columns.or(Some(PROSE_COLUMNS[1]))));
        }
        let warnings: String =
            self.warnings().iter().map(|warning| paragraph("note: ", &warning.to_string(), columns)).collect();
        if !warnings.is_empty() {
            text += &format!("\n{warnings}");
        }
        out.write_all(text.as_bytes())
    }

    /// Writes the lists of connections, and the segments by class between them.
    fn write_lists(
        &self,
        text: &mut String,
        terminal_columns: Option<usize>,
        prose_columns: Option<usize>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let sorted = self.options.sort.sorted_column();
        for part in Part::ALL {
            let listed = self.listed(part);
            if part == Part::Others {
                let classes = class_columns(&self.totals);
                *text += &format!("\n{}", lines(&classes, classes.len(), None));
            }
            if listed.is_empty() {
                continue;
            }
            text.push('\n');
            let table = ConnectionTable::new(&self.connections, listed, &[], part.columns());
            let table = table.with_names(self.options.end_names.as_ref());
            let mut left_out = String::new();
            for (number, mut columns) in table.text_chunks(&sorted).enumerate() {
                left_out = fit(&mut columns, terminal_columns);
                let rows = rows(&columns, ENDPOINT_COLUMNS, terminal_columns);
                // Only the first chunk has headings.
                text.extend(rows.into_iter().skip(usize::from(number > 0)));
                out.write_all(text.as_bytes())?;
                text.clear();
            }
            *text += &paragraph("", &(self.list_description(part) + &self.list_advice(part)), prose_columns);
            if !left_out.is_empty() {
                *text += &paragraph("", &left_out, prose_columns);
            }
            let legend = format!("→: of the client; ←: of the server; {}", table.legend());
            *text += &paragraph("", &legend, prose_columns.or(Some(PROSE_COLUMNS[1])));
        }
        Ok(())
    }

    /// The groups of failures; empty if there are none.
    fn failure_groups_text(&self, terminal_columns: Option<usize>, prose_columns: Option<usize>) -> String {
        if self.failure_groups.is_empty() {
            return String::new();
        }
        let mut columns = self.failure_group_columns();
        let left_out = fit(&mut columns, terminal_columns);
        let mut text = format!("\n{}", rows(&columns, 3, terminal_columns).concat());
        text +=
            &paragraph("", &format!("{} (--failed all lists each)", self.failure_groups_description()), prose_columns);
        if left_out.is_empty() { text } else { text + &paragraph("", &left_out, prose_columns) }
    }

    /// The table of the groups of failures.
    pub(crate) fn failure_group_columns(&self) -> Vec<Column> {
        let listed = &self.failure_groups[..self.limited(self.failure_groups.len())];
        let column =
            |heading, right, cell: fn(&FailureGroup) -> String| Column::new(heading, right, listed.iter().map(cell));
        let is_scan = |group: &FailureGroup| matches!(group.common, CommonSide::Source(_));
        let ends = |from: bool| {
            listed
                .iter()
                .map(move |group| if is_scan(group) == from { group.common_text() } else { group.others_text() })
        };
        vec![
            Column::new("from", true, ends(true)),
            Column::new("→", true, listed.iter().map(|_| "→".into())),
            Column::new("to", false, ends(false)),
            column("failed", true, |group| units::short(group.connections)).optional(1),
            column("failures", false, FailureGroup::failures_text).optional(2),
            column("opened", true, |group| units::short(group.opened)).optional(4),
            column("examples", false, FailureGroup::examples_text).optional(3),
        ]
    }

    /// How many groups of failures there are.
    pub(crate) fn failure_groups_description(&self) -> String {
        let (all, failed) = (self.failure_groups.len(), (self.failed - self.ungrouped) as u64);
        let listed = self.limited(all);
        let of = if listed < all { format!("{listed} of ") } else { String::new() };
        format!(
            "{of}{} of {} that never opened: one source with {FEWEST} targets or more, or one target with {FEWEST} sources \
             or more; opened: other connections of that source or target",
            units::count(all as u64, "group"),
            units::count(failed, "connection")
        )
    }

    /// The table of `--by`.
    fn groups_text(&self, grouping: Grouping, terminal_columns: Option<usize>, prose_columns: Option<usize>) -> String {
        let listed = self.limited(self.groups.len());
        let mut columns = text_columns(&self.groups[..listed], grouping.by, grouping.order);
        if let Some(names) = &self.options.end_names {
            let name = |group: &Group| group.key.end().map_or_else(String::new, |(address, port)| names(address, port));
            let column = Column::new("name", false, self.groups[..listed].iter().map(name)).optional(1);
            if column.has_content() {
                columns.insert(1, column);
            }
        }
        let left_out = fit(&mut columns, terminal_columns);
        let mut text = rows(&columns, 1, terminal_columns).concat();
        let advice = if listed < self.groups.len() { " (--top 0 for all)" } else { "" };
        text += &paragraph("", &(self.groups_description(grouping) + advice), prose_columns);
        if !left_out.is_empty() {
            text += &paragraph("", &left_out, prose_columns);
        }
        text + &paragraph("", &legend(&columns), prose_columns.or(Some(PROSE_COLUMNS[1])))
    }

    /// How many groups are listed, and in which order.
    pub(crate) fn groups_description(&self, grouping: Grouping) -> String {
        let all = units::count(self.groups.len() as u64, grouping.by.name());
        let listed = self.limited(self.groups.len());
        let of = if listed < self.groups.len() { format!("{listed} of ") } else { String::new() };
        format!("{of}{all}, by {}", grouping.order.name())
    }

    /// The sentences of the findings with their advice, or one that says that there are none. Empty
    /// without connections.
    pub(crate) fn found(&self) -> Vec<(String, Option<&'static str>)> {
        match (self.totals.connections, self.findings.is_empty()) {
            (0, _) => Vec::new(),
            (n, true) => vec![(format!("nothing unusual in {}", units::count(n, "connection")), None)],
            (_, false) => self.findings.iter().map(|finding| (finding.text.clone(), finding.advice)).collect(),
        }
    }

    /// The totals by name, for people.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let totals = &self.totals;
        let mut facts = vec![("packets", self.packet_counts())];
        for (anomaly, packets) in self.counts.ledger.anomalies.nonzero() {
            facts.push(("anomaly", format!("{}: {}", units::count(packets, "packet"), anomaly.sentence())));
        }
        if totals.connections == 0 {
            if let [connections @ 1..=u64::MAX, _] = self.not_selected {
                facts.push(("selected", format!("none of {}", units::count(connections, "connection"))));
            }
            return facts;
        }
        facts.push(("connections", connection_count(totals)));
        if let [connections @ 1..=u64::MAX, packets] = self.not_selected {
            let (all, packets) = (totals.connections + connections, units::count(packets, "packet"));
            let others = format!("the other {connections} with {packets} are in no figure below");
            facts
                .push(("selected", format!("{} of {}: {others}", totals.connections, units::count(all, "connection"))));
        }
        if self.failed > 0 {
            facts.push(("failed", nonzero(Failure::all().map(Failure::name).zip(totals.failures))));
        }
        let octets = totals.payload_bytes();
        let rounded = if octets < 10_000 { String::new() } else { format!(" ({})", units::quantity(octets, "B")) };
        facts.push((
            "payload",
            format!("{octets}{rounded} octets, {} of them unique", totals.sum(|side| side.unique_bytes)),
        ));
        facts.push(("span", Zone::current().period(totals.first_ns, totals.last_ns)));
        facts.push(("retransmitted", retransmissions(totals)));
        facts.push(("delay", nonzero(Delay::ALL.map(Delay::name).into_iter().zip(totals.delays))));
        let [client, server] = &totals.handshake_rtts_ns;
        for (name, times) in [("server side", server), ("client side", client)] {
            if let (Some(median), Some(high)) = (percentile(times, 50), percentile(times, 95)) {
                let (median, high) = (units::span(median), units::span(high));
                let handshakes = units::count(times.len() as u64, "handshake");
                let text = format!("round-trip time: median {median}, 95th percentile {high} ({handshakes})");
                facts.push((name, text));
            }
        }
        let [clients, servers] = totals.sides.each_ref().map(|side| side.zero_windows);
        if clients + servers > 0 {
            let why = "the application there reads too slowly";
            facts.push(("zero windows", format!("{clients} announced by clients, {servers} by servers: {why}")));
        }
        facts
    }

    fn packet_counts(&self) -> String {
        let packets = &self.counts.ledger.packets;
        let mut text = format!("{} received, {} analysed", packets.received, packets.metered);
        // The ledger is printed, with the reasons, if packets were refused for another reason.
        let only_non_ip = packets.refused.total() == packets.refused.get(RefusalReason::NonIp);
        for (count, what) in [
            (self.counts.outside_times, "of other times"),
            (self.counts.not_matching, "filtered"),
            (self.counts.not_tcp, "not TCP"),
            (self.counts.without_ports, "TCP without ports"),
            (packets.refused.total(), if only_non_ip { "not IP" } else { "refused by the decoder" }),
            (self.left_out(), "left out (see the notes)"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        text
    }

    /// How many connections of a part are listed, and in which order.
    pub(crate) fn list_description(&self, part: Part) -> String {
        let (all, listed, what) = self.list_counts(part);
        let mut text = match all - listed {
            0 => units::count(all, what),
            _ => format!("{listed} of {}", units::count(all, what)),
        };
        let _ = write!(text, ", by {}", self.options.sort.description());
        if part == Part::Others && self.options.min_packets > 1 {
            let _ = write!(text, "; those of fewer than {} packets come last", self.options.min_packets);
        }
        text
    }

    /// The options that change the list.
    fn list_advice(&self, part: Part) -> String {
        let (all, listed, _) = self.list_counts(part);
        let top = (all > listed).then_some("--top 0 for all");
        let min_packets = (part == Part::Others && self.options.min_packets > 1).then_some("--min-packets");
        let options: Vec<&str> = top.into_iter().chain(min_packets).collect();
        if options.is_empty() { String::new() } else { format!(" ({})", options.join(", ")) }
    }

    /// Connections of a part, those listed, and what they are.
    pub(crate) fn list_counts(&self, part: Part) -> (u64, u64, &'static str) {
        let (all, what) = match part {
            Part::Failed => (self.ungrouped as u64, "failed connection"),
            Part::Others => (self.totals.connections - self.failed as u64, "connection"),
        };
        (all, self.listed(part).len() as u64, what)
    }
}

fn connection_count(totals: &Totals) -> String {
    let text = totals.connections.to_string();
    match totals.with_degradation(Degradation::POOL_FULL) {
        0 => text,
        n => format!(
            "{text}, {n} of them marked \"room\": the anomaly pool was full, and figures are too low (see the notes)"
        ),
    }
}

fn retransmissions(totals: &Totals) -> String {
    let [clients, servers] = totals.sides.each_ref().map(TcpReport::retransmitted_segments);
    let [of_clients, of_servers] = totals.sides.each_ref().map(TcpReport::sequenced_segments);
    let (all, of_all) = (clients + servers, of_clients + of_servers);
    let text = format!("{} of {}", percent(all, of_all), units::count(of_all, "segment"));
    if all == 0 {
        return text;
    }
    format!(
        "{text}: {clients} by clients ({}), {servers} by servers ({}); {} lost before the capture point, {} spurious",
        percent(clients, of_clients),
        percent(servers, of_servers),
        totals.count(SegmentClass::UnseenRetransmission).segments,
        totals.sum(|side| side.spurious_retransmissions)
    )
}

/// The table of segments by class, both sides together; the last row is the sum.
pub(crate) fn class_columns(totals: &Totals) -> [Column; 5] {
    let classes = || SegmentClass::ALL.into_iter().filter(|&class| totals.count(class).segments > 0);
    let (packets, octets) = (totals.packets, totals.payload_bytes());
    let column = |heading: &str, cell: &dyn Fn(SegmentClass) -> String, sum: String| {
        Column::new(heading, true, classes().map(cell).chain([sum]))
    };
    [
        Column::new("class", false, classes().map(|class| class.name().into()).chain(["all".into()])),
        column("packets", &|class| totals.count(class).segments.to_string(), packets.to_string()),
        column("share", &|class| percent(totals.count(class).segments, packets), String::new()),
        column("payload octets", &|class| totals.count(class).bytes.to_string(), octets.to_string()),
        column("share", &|class| percent(totals.count(class).bytes, octets), String::new()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_count_mentions_missing_memory() {
        let mut totals = Totals { connections: 7, ..Totals::default() };
        assert_eq!(connection_count(&totals), "7");
        totals.degraded[Degradation::POOL_FULL.trailing_zeros() as usize] = 2;
        assert!(connection_count(&totals).starts_with("7, 2 of them marked \"room\": the anomaly pool was full"));
    }
}
