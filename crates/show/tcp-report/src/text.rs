//! The report for the terminal.

use crate::connection_table::{ConnectionTable, ENDPOINT_COLUMNS};
use crate::delay::Delay;
use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::percent::{percent, percentile};
use crate::report::{CaptureReport, Part};
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
        for (name, value) in self.facts() {
            text += &paragraph(&format!("{name:<13} "), &value, columns);
        }
        if self.totals.connections == 0 {
            return out.write_all(text.as_bytes());
        }
        let sorted = self.options.sort.sorted_column();
        for part in Part::ALL {
            let listed = self.listed(part);
            if part == Part::Others {
                let classes = class_columns(&self.totals);
                text += &format!("\n{}", lines(&classes, classes.len(), None));
            }
            if listed.is_empty() {
                continue;
            }
            text.push('\n');
            let table = ConnectionTable::new(&self.connections, listed, part.columns());
            let mut left_out = String::new();
            for (number, mut columns) in table.text_chunks(&sorted).enumerate() {
                left_out = fit(&mut columns, terminal_columns);
                let rows = rows(&columns, ENDPOINT_COLUMNS, terminal_columns);
                // Only the first chunk has headings.
                text.extend(rows.into_iter().skip(usize::from(number > 0)));
                out.write_all(text.as_bytes())?;
                text.clear();
            }
            text += &paragraph("", &(self.list_description(part) + &self.list_advice(part)), columns);
            if !left_out.is_empty() {
                text += &paragraph("", &left_out, columns);
            }
            let legend = format!("→: of the client; ←: of the server; {}", table.legend());
            text += &paragraph("", &legend, columns.or(Some(PROSE_COLUMNS[1])));
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

    /// The totals by name, for people.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let totals = &self.totals;
        let mut facts = vec![("packets", self.packet_counts())];
        for (anomaly, packets) in self.counts.ledger.anomalies.nonzero() {
            facts.push(("anomaly", format!("{}: {}", units::count(packets, "packet"), anomaly.sentence())));
        }
        if totals.connections == 0 {
            return facts;
        }
        facts.push(("connections", connection_count(totals)));
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
            (self.counts.not_matching, "filtered"),
            (self.counts.not_tcp, "not TCP"),
            (self.counts.without_ports, "TCP without ports"),
            (packets.refused.total(), if only_non_ip { "refused (not IP)" } else { "refused" }),
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
        let failed = self.failed as u64;
        let (all, what) = match part {
            Part::Failed => (failed, "failed connection"),
            Part::Others => (self.totals.connections - failed, "connection"),
        };
        (all, self.listed(part).len() as u64, what)
    }
}

/// All counts but 0, each with its name.
fn nonzero<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> String {
    let texts = counts.filter(|&(_, count)| count > 0).map(|(name, count)| format!("{count} {name}"));
    texts.collect::<Vec<_>>().join(", ")
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
