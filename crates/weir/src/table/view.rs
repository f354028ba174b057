//! Writes a view (`--by`, `--every`) as a table for people, as CSV or as JSON.
//!
//! The rows that are not shown are summed up in a row of their own, and the last row of a table has
//! the sums of all records, so that nothing is missing.

use super::render::wrapped;
use crate::names::HostNames;
use std::ops::Range;
use tracing::{info, warn};
use weir_export::ViewFormat;
use weir_fields::{Amount, FieldValue, SumField};
use weir_flow::FlowRecord;
use weir_query::{CountField, DistinctCount, GroupField, Metric, Row, Series, Sums, View};
use weir_text::columns::{Column, fit, lines};
use weir_text::units;
use weir_text::zone::Zone;

/// Groups in a table if `--top` is not given.
const DEFAULT_TOP: usize = 20;
/// Characters of a sparkline, at most.
const SPARKLINE_COLUMNS: u64 = 40;
/// Characters of the bars of a time line.
const BAR_COLUMNS: usize = 30;
/// Intervals without records that a time line lists one by one.
const MAX_GAP: u64 = 60;
/// An interval is partial if packets leave out more of it than this part: one in a hundred.
const LEAST_PART: u64 = 100;

/// A view and how it is written.
pub struct ViewTable {
    pub view: View,
    pub format: ViewFormat,
    /// `--top`; 0 for all.
    pub top: Option<usize>,
}

/// Writes a number of a row.
type Cell = fn(&Sums) -> String;

/// Texts of a key, and sums.
type Shown = (Vec<String>, Row);

/// Start, figures and rate of an interval; or what stands for several intervals.
type TimeLineRow = (String, Option<Row>, String);

impl ViewTable {
    pub fn add(&mut self, flows: &[FlowRecord]) {
        self.view.add(flows);
    }

    /// The text and the number of its rows.
    pub fn text(&self, names: Option<&HostNames>, terminal_columns: Option<usize>) -> (Vec<u8>, u64) {
        if self.format != ViewFormat::Table {
            self.log();
            return self.machine_text();
        }
        if self.view.total().flows == 0 {
            return (super::NO_FLOWS.into(), 0);
        }
        let (mut columns, key_columns, rows) = match (self.view.settings().every_ns, self.fields().is_empty()) {
            (Some(every_ns), true) => self.time_line(every_ns),
            (Some(every_ns), false) => self.series(every_ns, names),
            (None, _) => self.groups(names),
        };
        let left_out = fit(&mut columns, terminal_columns);
        let prose = wrapped(&(self.footer(rows) + &left_out), terminal_columns);
        let text = lines(&columns, key_columns, terminal_columns) + &prose;
        (text.into_bytes(), rows as u64)
    }

    /// Whether it is a time line in the order of time.
    pub fn is_by_time(&self) -> bool {
        let settings = self.view.settings();
        let is_time_line = settings.every_ns.is_some() && settings.fields.is_empty();
        is_time_line && settings.order.is_none() && self.top.is_none()
    }

    /// Most rows of groups that the table shows.
    pub fn shown_rows(&self) -> usize {
        limit(self.top.unwrap_or(if self.fields().is_empty() { 0 } else { DEFAULT_TOP }))
    }

    fn fields(&self) -> &[GroupField] {
        &self.view.settings().fields
    }

    fn key(&self, values: &[FieldValue]) -> Vec<String> {
        self.fields().iter().zip(values).map(|(field, value)| key_text(field, value)).collect()
    }

    /// Groups in the order of the view.
    fn groups(&self, names: Option<&HostNames>) -> (Vec<Column>, usize, usize) {
        let (rows, hidden) = self.view.first_rows(limit(self.top.unwrap_or(DEFAULT_TOP)));
        let shown = rows.len();
        let mut listed: Vec<Shown> = rows.iter().map(|row| (self.key(&row.key), row.clone())).collect();
        self.add_rest(&mut listed, self.view.groups() - shown, hidden);
        let mut columns = self.columns(&listed, shown);
        let keys = rows.iter().map(|row| &row.key[..]).collect::<Vec<_>>();
        self.add_names(&mut columns, &keys, listed.len(), names);
        columns.extend(self.counts(&rows, listed.len()));
        columns.extend(self.details(&listed));
        let sorted = match self.view.order_metric() {
            Some(Metric::FwdBytes) => "bytes→ sent",
            Some(Metric::RevBytes) => "←bytes received",
            Some(Metric::FirstTime) => "first",
            Some(Metric::LastTime) => "last",
            Some(Metric::RetransmittedShare) => "retr%",
            Some(Metric::RttMean) => "rtt",
            Some(Metric::ResponseMean) => "response",
            _ => "",
        };
        let is_sorted = |column: &&mut Column| sorted.split(' ').any(|heading| heading == column.heading);
        columns.iter_mut().filter(is_sorted).for_each(Column::require);
        (columns, self.fields().len(), shown)
    }

    /// Groups with a sparkline of their octets over time.
    fn series(&self, every_ns: u64, names: Option<&HostNames>) -> (Vec<Column>, usize, usize) {
        let series = self.view.series();
        let shown = series.len().min(limit(self.top.unwrap_or(DEFAULT_TOP)));
        let row =
            |group: &Series| Row { sums: group.sums, amounts: group.amounts.clone(), ..self.view.empty_row(None) };
        let mut listed: Vec<Shown> = series[..shown].iter().map(|group| (self.key(&group.key), row(group))).collect();
        let mut hidden = self.view.empty_row(None);
        series[shown..].iter().for_each(|group| self.view.merge_row(&mut hidden, &row(group)));
        self.add_rest(&mut listed, series.len() - shown, hidden);
        let total = self.view.total();
        let zone = Zone::current();
        let [first_ns, last_ns] = [total.first_ns, total.last_ns].map(|ns| zone.interval(ns, every_ns).start);
        let intervals_per_letter = self.intervals_per_letter(every_ns);
        let letter = |start_ns: u64| (zone.intervals(first_ns..start_ns, every_ns) / intervals_per_letter) as usize;
        let letters = letter(last_ns) + 1;
        let line = |group: &Series| {
            let mut bytes = vec![0; letters];
            group.intervals.iter().for_each(|&(start_ns, n)| bytes[letter(start_ns).min(letters - 1)] += n);
            sparkline(&bytes)
        };
        let heading = format!("bytes per {}", units::span(every_ns.saturating_mul(intervals_per_letter)));
        let rest = vec![String::new(); listed.len() - shown];
        let mut columns = self.columns(&listed, shown);
        let keys = series[..shown].iter().map(|group| &group.key[..]).collect::<Vec<_>>();
        self.add_names(&mut columns, &keys, listed.len(), names);
        columns.extend(self.asked(listed.iter().map(|(_, row)| Some(row))));
        let lines = Column::new(heading, false, series[..shown].iter().map(line).chain(rest)).optional(1);
        columns.extend(self.is_known(Metric::Bytes).then_some(lines));
        (columns, self.fields().len(), shown)
    }

    /// Intervals that a letter of a sparkline stands for.
    fn intervals_per_letter(&self, every_ns: u64) -> u64 {
        let (zone, total) = (Zone::current(), self.view.total());
        let first_ns = zone.interval(total.first_ns, every_ns).start;
        zone.intervals(first_ns..total.last_ns.saturating_add(1), every_ns).div_ceil(SPARKLINE_COLUMNS).max(1)
    }

    /// A row per interval, in order of time unless the user wants another order.
    fn time_line(&self, every_ns: u64) -> (Vec<Column>, usize, usize) {
        let mut rows = self.view.rows();
        let sorted = self.view.settings().order.is_some() || self.top.is_some();
        if sorted {
            rows.sort_by_key(|row| std::cmp::Reverse(self.view.rank(row)));
        }
        let shown = rows.len().min(limit(self.top.unwrap_or(0)));
        let largest = rows.iter().map(|row| row.sums.all_bytes()).max().unwrap_or_default();
        let (days, mut lines) = self.intervals(&rows[..shown], every_ns, !sorted);
        let bar_of = |row: &Option<Row>| row.as_ref().map_or_else(String::new, |of| bar(of.sums.all_bytes(), largest));
        let bars: Vec<String> = lines.iter().map(|(_, row, _)| bar_of(row)).collect();
        if shown < rows.len() {
            let mut rest = self.view.empty_row(None);
            rows[shown..].iter().for_each(|row| self.view.merge_row(&mut rest, row));
            lines.push((format!("others ({})", rows.len() - shown), Some(rest), String::new()));
        }
        if let Some(others) = self.view.others_row() {
            lines.push(("others (no memory)".into(), Some(others), String::new()));
        }
        let intervals = bars.len();
        lines.push(("total".into(), Some(self.view.total_row()), String::new()));
        let zone = Zone::current().name();
        let heading = match days.first() {
            Some(day) if days.iter().all(|other| other == day) => format!("{day} {zone}"),
            _ => format!("start ({zone})"),
        };
        let mut columns = vec![Column::new(heading, true, lines.iter().map(|(time, ..)| time.clone()))];
        let mut figure = |metric: Metric, heading: &str, figure: Cell| {
            let cell = |row: &Option<Row>| row.as_ref().map_or_else(String::new, |row| figure(&row.sums));
            let cells = lines.iter().map(|(_, row, _)| cell(row));
            columns.extend(self.is_known(metric).then(|| Column::new(heading, true, cells)));
        };
        figure(Metric::Flows, "flows", |sums| units::short(sums.flows));
        figure(Metric::Packets, "packets", |sums| units::short(sums.all_packets()));
        figure(Metric::Bytes, "bytes", |sums| octets(sums.all_bytes()));
        let has_bytes = self.is_known(Metric::Bytes);
        let rates = Column::new("rate", true, lines.iter().map(|(.., rate)| rate.clone())).optional(1);
        columns.extend(has_bytes.then_some(rates));
        columns.extend(self.asked(lines.iter().map(|(_, row, _)| row.as_ref())));
        let bars = bars.into_iter().chain(vec![String::new(); lines.len() - intervals]);
        columns.extend(has_bytes.then(|| Column::new("", false, bars).named("bars").optional(2)));
        (columns, 1, shown)
    }

    /// The days of intervals, and their lines; in order of time, lines of those without records, too.
    fn intervals(&self, rows: &[Row], every_ns: u64, by_time: bool) -> (Vec<String>, Vec<TimeLineRow>) {
        let zone = Zone::current();
        let days: Vec<String> = rows.iter().map(|row| zone.date_and_time(start(row)).0).collect();
        let same_day = days.windows(2).all(|days| days[0] == days[1]);
        let line = |start_ns: u64, row: Row| {
            let time = match zone.date_and_time(start_ns) {
                (_, time) if same_day => time,
                (day, time) => format!("{day} {time}"),
            };
            // Where the clocks change, intervals are longer or shorter.
            let Range { start, end } = zone.interval(start_ns, every_ns);
            let rate = units::rate(8.0 * row.sums.all_bytes() as f64 / ((end - start) as f64 / 1e9), "bit/s");
            let mark = if self.is_partial(&(start..end)) { "*" } else { "" };
            let rate = format!("{mark}{rate}");
            (time, Some(row), rate)
        };
        let (mut lines, mut next_ns) = (Vec::new(), None);
        for row in rows {
            let gap = next_ns.filter(|_| by_time).map_or(0, |next| zone.intervals(next..start(row), every_ns));
            if gap > MAX_GAP {
                lines.push((format!("{gap} without traffic"), None, String::new()));
            } else if let Some(mut next) = next_ns.filter(|_| by_time) {
                while next < start(row) {
                    lines.push(line(next, self.view.empty_row(None)));
                    next = zone.interval(next, every_ns).end;
                }
            }
            lines.push(line(start(row), row.clone()));
            next_ns = Some(zone.interval(start(row), every_ns).end).filter(|&end| end < u64::MAX);
        }
        (days, lines)
    }

    /// Whether the packets of an interval leave out a part of it, because it is the first or the last one.
    fn is_partial(&self, interval: &Range<u64>) -> bool {
        let (total, length) = (self.view.total(), interval.end - interval.start);
        let [before, behind] =
            [total.first_ns.saturating_sub(interval.start), interval.end.saturating_sub(total.last_ns)];
        before.saturating_add(behind) > length / LEAST_PART
    }

    /// What the mark at the rates of the first and of the last interval means, if one has it.
    fn partial_intervals(&self, every_ns: u64) -> Option<String> {
        let (zone, total) = (Zone::current(), self.view.total());
        let [first, last] = [total.first_ns, total.last_ns].map(|ns| zone.interval(ns, every_ns));
        let parts = [
            (&first, "begin", total.first_ns - first.start, "after the start of the first one"),
            (&last, "end", last.end - total.last_ns, "before the end of the last one"),
        ];
        // At least one of two parts is half of what they are together.
        let is_long = |interval: &Range<u64>, ns: u64| ns > (interval.end - interval.start) / LEAST_PART / 2;
        let parts =
            parts.into_iter().filter(|(interval, _, ns, _)| self.is_partial(interval) && is_long(interval, *ns));
        let parts: Vec<String> =
            parts.map(|(_, verb, ns, place)| format!("{verb} {} {place}", units::span(ns))).collect();
        (!parts.is_empty()).then(|| format!("* rates of whole intervals: the packets {}\n", parts.join(" and ")))
    }

    /// The rows below the groups: those that are not shown, those without memory, and the total.
    fn add_rest(&self, listed: &mut Vec<Shown>, hidden: usize, sums_of_hidden: Row) {
        let mut row = |name: String, row| {
            let mut key = vec![String::new(); self.fields().len()];
            key[0] = name;
            listed.push((key, row));
        };
        if hidden > 0 {
            row(format!("others ({hidden})"), sums_of_hidden);
        }
        if let Some(others) = self.view.others_row() {
            row("others (no memory)".into(), others);
        }
        row("total".into(), self.view.total_row());
    }

    /// The columns of every table of groups.
    fn columns(&self, listed: &[Shown], shown: usize) -> Vec<Column> {
        let mut columns: Vec<Column> = self
            .fields()
            .iter()
            .enumerate()
            .map(|(at, field)| {
                Column::new(field.name(), field.is_number(), listed.iter().map(|(key, _)| key[at].clone()))
            })
            .collect();
        let total = self.view.total().all_bytes();
        // The sums of others count a flow of two sides twice.
        let has_share = |at: usize| !self.view.has_sides() || at < shown || at == listed.len() - 1;
        let share = |(at, (_, row)): (usize, &Shown)| match total {
            total if total > 0 && has_share(at) => format!("{:.1}", 100.0 * row.sums.all_bytes() as f64 / total as f64),
            _ => String::new(),
        };
        let (one, other) = if self.view.has_sides() { ("sent", "received") } else { ("bytes→", "←bytes") };
        let cells = |cell: &dyn Fn(&Sums) -> String| listed.iter().map(|(_, row)| cell(&row.sums)).collect::<Vec<_>>();
        let mut column = |metric: Metric, heading: &str, rank: u16, cells: Vec<String>| {
            if self.is_known(metric) {
                columns.push(Column::new(heading, true, cells.into_iter()).optional(rank));
            }
        };
        column(Metric::Flows, "flows", 0, cells(&|sums| units::short(sums.flows)));
        column(Metric::Packets, "packets", 0, cells(&|sums| units::short(sums.all_packets())));
        column(Metric::Bytes, "bytes", 0, cells(&|sums| octets(sums.all_bytes())));
        column(Metric::Bytes, "%", 3, listed.iter().enumerate().map(share).collect());
        // The total has no sides.
        let of_side = |side: usize| {
            let all = listed.len() - 1;
            let text = |(at, (_, row)): (usize, &Shown)| {
                if at == all && self.view.has_sides() { String::new() } else { octets(row.sums.bytes[side]) }
            };
            listed.iter().enumerate().map(text).collect::<Vec<_>>()
        };
        column(Metric::FwdBytes, one, 4, of_side(0));
        column(Metric::RevBytes, other, 4, of_side(1));
        columns
    }

    fn is_known(&self, metric: Metric) -> bool {
        !self.view.settings().unknown.contains(&metric)
    }

    /// Adds columns behind the keys: names of the hosts of addresses, and of the services of ports.
    fn add_names(&self, columns: &mut Vec<Column>, keys: &[&[FieldValue]], listed: usize, names: Option<&HostNames>) {
        let Some(names) = names else { return };
        let protocol_at = self.fields().iter().position(GroupField::is_protocol);
        let name = |field: &GroupField, key: &[FieldValue], at: usize| match key[at] {
            FieldValue::Ip(address) if !field.has_prefix() => names.of(address),
            FieldValue::Unsigned(port) if field.is_port() => {
                let protocol = protocol_at.map(|at| key_text(&self.fields()[at], &key[at]));
                weir_sql::port_name(u16::try_from(port).ok()?, protocol.as_deref()).map(String::from)
            }
            _ => None,
        };
        let rest = vec![String::new(); listed - keys.len()];
        let of_field = |(at, field): (usize, &GroupField)| {
            let cells = keys.iter().map(|key| name(field, key, at).unwrap_or_default()).chain(rest.clone());
            Column::new(format!("{} name", field.name()), false, cells).optional(1)
        };
        let columns_of_names = self.fields().iter().enumerate().map(of_field).filter(Column::has_content);
        let columns_of_names: Vec<Column> = columns_of_names.collect();
        let behind_keys = self.fields().len();
        columns.splice(behind_keys..behind_keys, columns_of_names);
    }

    /// The numbers of different values: of the groups, and of all records in the last row.
    fn counts(&self, rows: &[Row], listed: usize) -> Vec<Column> {
        let total = self.view.total_counts();
        let text = |count: &DistinctCount| {
            let estimated = if count.error > 0.0 { "~" } else { "" };
            format!("{estimated}{}", units::short(count.number))
        };
        let column = |(at, count): (usize, &CountField)| {
            let of_rows = rows.iter().map(|row| text(&row.counts[at]));
            let rest = vec![String::new(); listed - rows.len() - 1];
            Column::new(count.name(), true, of_rows.chain(rest).chain([text(&total[at])]))
        };
        self.view.settings().counts.iter().enumerate().map(column).collect()
    }

    /// Times and TCP figures, if there are some, and the number by which the rows are sorted.
    fn details(&self, listed: &[Shown]) -> Vec<Column> {
        let column =
            |heading: &str, cell: Cell| Column::new(heading, true, listed.iter().map(|(_, row)| cell(&row.sums)));
        let mut columns = vec![
            column(&format!("first ({})", Zone::current().name()), |sums| first_and_last(sums)[0].clone()).optional(5),
            column("last", |sums| first_and_last(sums)[1].clone()).optional(5),
        ];
        let of_tcp = [
            self.is_known(Metric::RetransmittedShare).then(|| {
                column("retr%", |sums| {
                    sums.retransmitted_share().map_or_else(String::new, |share| format!("{:.2}", 100.0 * share))
                })
            }),
            self.is_known(Metric::RttMean)
                .then(|| column("rtt", |sums| sums.rtt_mean_ns().map_or_else(String::new, units::span))),
            self.is_known(Metric::ResponseMean)
                .then(|| column("response", |sums| sums.response_mean_ns().map_or_else(String::new, units::span))),
        ];
        columns.extend(of_tcp.into_iter().flatten().filter(Column::has_content).map(|column| column.optional(2)));
        let extra: Option<(&str, Cell)> = match self.view.order_metric() {
            Some(Metric::L2Bytes) => Some(("on the wire", |sums| octets(sums.l2_bytes))),
            Some(Metric::Duration) => Some(("duration", |sums| units::span(sums.duration_ns()))),
            Some(Metric::Segments) => Some(("segments", |sums| units::short(sums.segments))),
            Some(Metric::Retransmitted) => Some(("retransmitted", |sums| units::short(sums.retransmitted))),
            Some(Metric::RttMax) => {
                Some(("rtt max", |sums| if sums.rtts > 0 { units::span(sums.rtt_max_ns) } else { String::new() }))
            }
            Some(Metric::FwdPackets) => Some(("pkts→", |sums| units::short(sums.packets[0]))),
            Some(Metric::RevPackets) => Some(("←pkts", |sums| units::short(sums.packets[1]))),
            _ => None,
        };
        columns.extend(extra.map(|(heading, cell)| column(heading, cell)));
        columns.extend(self.asked(listed.iter().map(|(_, row)| Some(row))));
        columns
    }

    /// The sums that are asked for; nothing where a line has no figures.
    fn asked<'a>(&self, rows: impl Iterator<Item = Option<&'a Row>> + Clone) -> Vec<Column> {
        let text = |sum: SumField, amount: Amount| match self.view.asked_number(sum, amount) {
            FieldValue::Unsigned(ns) if sum.is_time_span() => units::span(ns),
            FieldValue::Unsigned(number) => units::short(number),
            _ => String::new(),
        };
        let column = |(at, sum): (usize, &SumField)| {
            let cells = rows.clone().map(|row| row.map_or_else(String::new, |row| text(*sum, row.amounts[at])));
            Column::new(sum.name(), true, cells)
        };
        self.view.settings().sums.iter().enumerate().map(column).collect()
    }

    /// What the rows are, and what is not exact.
    fn footer(&self, shown: usize) -> String {
        let view = &self.view;
        let (noun, every_ns) = match view.settings().every_ns {
            Some(every_ns) if self.fields().is_empty() => ("interval", Some(every_ns)),
            other => ("group", other),
        };
        let all = if every_ns.is_some() && noun == "group" { view.series().len() } else { view.groups() };
        let count = if shown < all {
            format!("{shown} of {} (--top 0 for all)", units::count(all as u64, noun))
        } else {
            units::count(all as u64, noun)
        };
        let order = if noun == "interval" && view.settings().order.is_none() && self.top.is_none() {
            "time"
        } else {
            view.order_name()
        };
        let memory = units::quantity(view.memory_bytes() as u64, "B");
        let mut text = format!("{count}, by {order}; {memory} of memory; k, M and G are decimal\n");
        if let Some(every_ns) = every_ns.filter(|_| noun == "group") {
            let total = view.total();
            let [first, last] = [total.first_ns, total.last_ns].map(|ns| Zone::current().interval(ns, every_ns));
            let period = Zone::current().period(first.start, last.end);
            let letter = units::span(every_ns.saturating_mul(self.intervals_per_letter(every_ns)));
            text += &format!("the bars are from {period}, a letter for each {letter}\n");
        }
        let errors = view.total_counts().into_iter().map(|count| count.error);
        let error = errors.fold(0.0, f64::max);
        if error > 0.0 {
            text += &format!(
                "~ is an estimate with a standard error of {:.1} %; fewer are counted exactly\n",
                100.0 * error
            );
        }
        if view.has_sides() {
            text += "each flow is in the groups of both of its sides; the total counts it once\n";
        }
        if let Some(others) = view.others() {
            let (bytes, groups) = (octets(others.all_bytes()), view.settings().groups);
            let what = self.limited();
            text += &format!("{bytes} of {what} that did not fit are in \"others (no memory)\" (--groups {groups})\n");
        }
        text += &every_ns
            .filter(|_| noun == "interval" && self.is_known(Metric::Bytes))
            .and_then(|ns| self.partial_intervals(ns))
            .unwrap_or_default();
        text += &self.of_first_alone().map_or_else(String::new, |sentence| format!("{sentence}\n"));
        let (spread, uncut) = (view.spread_flows(), view.long_flows());
        if spread > 0 {
            text += &format!(
                "{spread} of {} span several intervals: their packets and bytes are spread evenly over their time\n",
                units::count(view.total().flows, "flow")
            );
        }
        if uncut > 0 {
            text += &format!(
                "{} too many intervals and count at the start: choose a longer --every or a shorter --active\n",
                if uncut == 1 { "1 flow spans".into() } else { format!("{uncut} flows span") }
            );
        }
        text
    }

    /// That sums of a flow with several questions or requests are in the group of the first one.
    fn of_first_alone(&self) -> Option<String> {
        let (field, number) = self.view.settings().of_first_alone()?;
        Some(format!(
            "a flow has the {field} of its first question or request, and its sums count all of them, also those of others: \
             --where '{number} = 1' leaves such flows out; records of --transactions have each by itself"
        ))
    }

    /// What `--groups` limits the number of.
    fn limited(&self) -> &'static str {
        match (self.view.settings().every_ns, self.fields().is_empty()) {
            (None, _) => "groups",
            (Some(_), true) => "intervals",
            (Some(_), false) => "pairs of a group and an interval",
        }
    }

    /// Says in the log what a table says in its last lines.
    fn log(&self) {
        let view = &self.view;
        let memory = units::quantity(view.memory_bytes() as u64, "B");
        info!(groups = view.groups(), memory, "view written");
        self.of_first_alone().into_iter().for_each(|sentence| warn!("{sentence}"));
        if let Some(others) = view.others() {
            let (bytes, groups) = (others.all_bytes(), view.settings().groups);
            warn!(bytes, "{} that did not fit are summed up as others (--groups {groups})", self.limited());
        }
    }

    /// The text as CSV or JSON, and the number of its rows.
    fn machine_text(&self) -> (Vec<u8>, u64) {
        let mut out = Vec::new();
        let rows = self.view.append_rows(self.format, limit(self.top.unwrap_or(0)), &mut out);
        (out, rows)
    }
}

fn limit(top: usize) -> usize {
    if top == 0 { usize::MAX } else { top }
}

fn start(row: &Row) -> u64 {
    row.start_ns.unwrap_or_default()
}

fn key_text(field: &GroupField, value: &FieldValue) -> String {
    if let Some(word) = field.word(value) {
        return word.into();
    }
    let mut text = Vec::new();
    field.append_text(value, &mut text);
    match String::from_utf8(text) {
        Ok(text) if !text.is_empty() => text,
        // Only layer-2 flows are without.
        _ if field.is_protocol() => "no IP".into(),
        _ => "-".into(),
    }
}

fn octets(n: u64) -> String {
    units::short(n) + "B"
}

/// The time of the first packet with its date, and that of the last, with its date if it is another day.
fn first_and_last(sums: &Sums) -> [String; 2] {
    if sums.first_ns == u64::MAX {
        return [const { String::new() }; 2];
    }
    let [(day, first), (last_day, last)] = [sums.first_ns, sums.last_ns].map(|ns| Zone::current().date_and_time(ns));
    let last = if last_day == day { last } else { format!("{last_day} {last}") };
    [format!("{day} {first}"), last]
}

/// A letter for each amount, relative to the largest; a blank for 0.
fn sparkline(amounts: &[u64]) -> String {
    const LETTERS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = amounts.iter().copied().max().unwrap_or_default().max(1);
    let letter = |&amount: &u64| match amount {
        0 => ' ',
        _ => LETTERS[(u128::from(amount) * 8).div_ceil(largest.into()) as usize - 1],
    };
    amounts.iter().map(letter).collect()
}

/// A bar with a length relative to the largest amount.
fn bar(amount: u64, largest: u64) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (u128::from(amount) * 8 * BAR_COLUMNS as u128).div_ceil(largest.max(1).into()) as usize;
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::render::tests::udp;
    use weir_query::ViewSettings;

    #[test]
    fn narrow_terminal_loses_columns_of_views() {
        for (by, every_ns, left_out) in [
            ("server_ip,service_port", None, "last, first (UTC)"),
            ("server_ip", Some(1_000_000_000), "bytes per "),
            ("", Some(1_000_000_000), "bars"),
        ] {
            let fields = by.split(',').filter(|name| !name.is_empty()).map(|name| name.parse().unwrap()).collect();
            let settings = ViewSettings { fields, every_ns, groups: 10, ..ViewSettings::default() };
            let mut view = ViewTable { view: View::new(settings).unwrap(), format: ViewFormat::Table, top: None };
            view.add(&[udp(100), udp(99)]);
            let [wide, narrow] = [None, Some(50)].map(|columns| String::from_utf8(view.text(None, columns).0).unwrap());
            let rows = |text: &str| text.lines().take_while(|line| !line.contains("by ")).count();
            assert_eq!(rows(&narrow), rows(&wide), "{narrow}");
            assert!(narrow.contains("left out to fit the terminal: ") && narrow.contains(left_out), "{narrow}");
            let rows = narrow.lines().take_while(|line| !line.contains("by "));
            assert!(rows.inspect(|row| assert!(row.chars().count() <= 50, "{narrow}")).count() >= 3, "{narrow}");
        }
    }

    #[test]
    fn sparklines_and_bars_are_relative_to_the_largest_amount() {
        assert_eq!(sparkline(&[0, 1, 4, 8]), " ▁▄█");
        assert_eq!(sparkline(&[0, 0]), "  ");
        assert_eq!(sparkline(&[u64::MAX]), "█");
        assert_eq!((bar(0, 10), bar(10, 10), bar(1, 0)), (String::new(), "█".repeat(30), "█".repeat(30)));
        assert_eq!(bar(1, 1000), "▏");
    }
}
