//! The rows of a view for programs: as CSV or JSON.
//!
//! Output: a line for each group, in the order of the view. Groups that are not wanted are summed up in a row, with
//! intervals in a row of each interval; `other_groups` says how many they are. It is 0 for a group, and has no value for
//! those without memory.

use crate::group_field::GroupField;
use crate::order::Metric;
use crate::view::{Row, Series, View};
use std::io::Write;
use weir_export::{ViewFormat, append_csv_text, append_json_text};
use weir_fields::FieldValue;

impl View {
    /// Appends the first rows, and those that sum up others. Returns their number.
    pub fn append_rows(&self, format: ViewFormat, most: usize, out: &mut Vec<u8>) -> u64 {
        let names = self.column_names();
        if format == ViewFormat::Csv {
            out.extend(names.join(",").as_bytes());
            out.push(b'\n');
        }
        let mut rows = 0;
        self.for_each_wanted_row(most, |row, other_groups| {
            rows += 1;
            self.append_row(row, other_groups, Line { format, names: names.iter(), is_first: true, out });
        });
        rows
    }

    fn column_names(&self) -> Vec<String> {
        let settings = self.settings();
        let metric_name = |metric: Metric| if self.has_sides() { metric.name_of_side() } else { metric.name() };
        let start = settings.every_ns.map(|_| "interval_start");
        let fields = settings.fields.iter().map(GroupField::name);
        let names = start.into_iter().chain(fields).chain(["other_groups"]).chain(Metric::ALL.map(metric_name));
        let names = names.chain(settings.sums.iter().map(|sum| sum.name()));
        let counts = settings.counts.iter().flat_map(|count| [count.name().into(), format!("{}_error", count.name())]);
        names.map(String::from).chain(counts).collect()
    }

    fn append_row<'n>(
        &self,
        row: &Row,
        other_groups: Option<u64>,
        mut line: Line<'_, impl Iterator<Item = &'n String>>,
    ) {
        let number = |number: Option<u64>| number.map_or(FieldValue::NotApplicable, FieldValue::Unsigned);
        if self.settings().every_ns.is_some() {
            line.add_value(&row.start_ns.map_or(FieldValue::NotApplicable, FieldValue::Time));
        }
        for (at, field) in self.settings().fields.iter().enumerate() {
            let value = row.key.get(at).unwrap_or(&FieldValue::NotApplicable);
            line.add(value, |value, out| field.append_text(value, out));
        }
        line.add_value(&number(other_groups));
        for metric in Metric::ALL {
            line.add_value(&self.number(metric, &row.sums));
        }
        for (sum, amount) in self.settings().sums.iter().zip(&row.amounts) {
            line.add_value(&self.asked_number(*sum, *amount));
        }
        for at in 0..self.settings().counts.len() {
            let count = row.counts.get(at);
            line.add_value(&number(count.map(|count| count.number)));
            line.add_value(&count.map_or(FieldValue::NotApplicable, |count| FieldValue::Float(count.error)));
        }
        line.end();
    }

    /// The first rows, and those that sum up others, each with the number of groups that it sums up: 0 for a group,
    /// unknown for the groups without memory.
    fn for_each_wanted_row(&self, most: usize, mut use_row: impl FnMut(&Row, Option<u64>)) {
        let has_series = self.settings().every_ns.is_some() && !self.settings().fields.is_empty();
        let groups_of_rest = self.groups_of_rest();
        let kept: Option<Vec<Series>> = (has_series && most < usize::MAX && groups_of_rest.is_none()).then(|| {
            let mut series = self.series();
            series.truncate(most);
            series
        });
        let mut hidden: Option<(Row, u64)> = None;
        let mut rows = 0..;
        self.for_each_row(|row| {
            let at = rows.next().expect("rows fit into memory");
            if let Some((others, groups)) = hidden.take_if(|(hidden, _)| hidden.start_ns != row.start_ns) {
                use_row(&others, Some(groups));
            }
            let is_kept = match (&kept, groups_of_rest) {
                (_, Some(groups)) => return use_row(&row, Some(if row.key.is_empty() { groups } else { 0 })),
                (Some(kept), None) => kept.iter().any(|kept| kept.key == row.key),
                (None, None) => at < most,
            };
            if is_kept {
                use_row(&row, Some(0));
            } else {
                let start_ns = row.start_ns.filter(|_| kept.is_some());
                let (others, groups) = hidden.get_or_insert_with(|| (self.empty_row(start_ns), 0));
                self.merge_row(others, &row);
                *groups += 1;
            }
        });
        if let Some((others, groups)) = hidden {
            use_row(&others, Some(groups));
        }
        if let Some(others) = self.others_row() {
            use_row(&others, None);
        }
    }
}

/// A line of CSV or JSON.
struct Line<'a, N> {
    format: ViewFormat,
    names: N,
    is_first: bool,
    out: &'a mut Vec<u8>,
}

impl<'n, N: Iterator<Item = &'n String>> Line<'_, N> {
    fn add(&mut self, value: &FieldValue, append: impl FnOnce(&FieldValue, &mut Vec<u8>)) {
        let name = self.names.next().expect("each value has a name");
        let is_first = std::mem::replace(&mut self.is_first, false);
        let mut text = Vec::new();
        append(value, &mut text);
        let text = String::from_utf8(text).expect("texts of fields are UTF-8");
        if self.format == ViewFormat::Csv {
            self.out.extend((!is_first).then_some(b','));
            return append_csv_text(&text, self.out);
        }
        write!(self.out, "{}\"{name}\":", if is_first { '{' } else { ',' }).expect("memory takes every octet");
        match value {
            FieldValue::NotApplicable | FieldValue::NoValue => self.out.extend(b"null"),
            FieldValue::Unsigned(_) | FieldValue::Implied(_) | FieldValue::Float(_) => self.out.extend(text.as_bytes()),
            _ => append_json_text(&text, self.out),
        }
    }

    fn add_value(&mut self, value: &FieldValue) {
        self.add(value, |value, out| value.append_text(out));
    }

    fn end(self) {
        self.out.extend(if self.format == ViewFormat::Json { &b"}\n"[..] } else { b"\n" });
    }
}
