//! The table of `--by`: its columns, its order, and its forms for people and programs.
//!
//! In: [`Group`]s. Out: columns of text, a JSON object and a line of CSV per group.

use crate::counts::nonzero;
use crate::failure::Failure;
use crate::groups::{Group, GroupBy};
use crate::percent::percent;
use serde_json::{Map, Value};
use std::cmp::Reverse;
use weir_text::columns::Column;
use weir_text::{most_similar, units};

/// How a number is written for people.
#[derive(Clone, Copy, Debug)]
enum Form {
    Count,
    Octets,
    Time,
    /// A number of 0 to 10^9, which programs get as 0 to 1.
    Share,
}

/// A number of a group.
#[derive(Debug)]
pub struct GroupColumn {
    /// The name in JSON and CSV, and for `--sort`.
    pub name: &'static str,
    /// The heading in text; empty if it is for programs only.
    heading: &'static str,
    /// What it is, if the heading does not say it.
    meaning: &'static str,
    form: Form,
    number: fn(&Group) -> Option<u64>,
}

const fn column(
    name: &'static str,
    heading: &'static str,
    meaning: &'static str,
    form: Form,
    number: fn(&Group) -> Option<u64>,
) -> GroupColumn {
    GroupColumn { name, heading, meaning, form, number }
}

/// A number for programs only.
const fn hidden(name: &'static str, number: fn(&Group) -> Option<u64>) -> GroupColumn {
    column(name, "", "", Form::Count, number)
}

const COLUMNS: [GroupColumn; 31] = [
    column("connections", "conns", "connections", Form::Count, |g| Some(g.connections)),
    column("peers", "peers", "different addresses of the other side", Form::Count, |g| Some(g.peers)),
    column("failed", "failed", "connections that failed", Form::Count, |g| Some(g.failed())),
    hidden("no_answer", |g| Some(g.failures[Failure::NoAnswer as usize])),
    hidden("refused", |g| Some(g.failures[Failure::Refused as usize])),
    hidden("half_open", |g| Some(g.failures[Failure::HalfOpen as usize])),
    hidden("reset_by_client", |g| Some(g.failures[Failure::ResetByClient as usize])),
    hidden("reset_by_server", |g| Some(g.failures[Failure::ResetByServer as usize])),
    hidden("reset_by_both", |g| Some(g.failures[Failure::ResetByBoth as usize])),
    hidden("fwd_handshakes", |g| Some(g.handshakes[0])),
    hidden("rev_handshakes", |g| Some(g.handshakes[1])),
    column("fwd_handshake_median_ns", "rtt→", RTT, Form::Time, |g| g.handshake_median_ns[0]),
    column("rev_handshake_median_ns", "←rtt", RTT, Form::Time, |g| g.handshake_median_ns[1]),
    column("answers", "answers", "answers of servers", Form::Count, |g| Some(g.answers)),
    column("response_median_ns", "resp", "median of their mean response times", Form::Time, |g| g.response_median_ns),
    column("server_median_ns", "resp-rtt", "the same, each less the round trip to the server", Form::Time, |g| {
        g.server_median_ns
    }),
    column("response_max_ns", "longest", "longest response time", Form::Time, |g| g.response_max_ns),
    column("fwd_payload_bytes", "payload→", "", Form::Octets, |g| Some(g.payload_bytes[0])),
    column("rev_payload_bytes", "←payload", "", Form::Octets, |g| Some(g.payload_bytes[1])),
    hidden("segments", |g| Some(g.segments.iter().sum())),
    hidden("retransmitted", |g| Some(g.retransmitted.iter().sum())),
    column("retransmitted_share", "retrans", SHARE, Form::Share, |g| Some((g.retransmitted_share() * 1e9) as u64)),
    hidden("fwd_lost_before", |g| Some(g.lost_before[0])),
    hidden("fwd_lost_behind", |g| Some(g.lost_behind[0])),
    hidden("rev_lost_before", |g| Some(g.lost_before[1])),
    hidden("rev_lost_behind", |g| Some(g.lost_behind[1])),
    hidden("lost", |g| Some(g.lost().iter().sum())),
    column("lost_client_side", "lost→", LOST, Form::Count, |g| Some(g.lost()[0])),
    column("lost_server_side", "←lost", LOST, Form::Count, |g| Some(g.lost()[1])),
    hidden("fwd_zero_windows", |g| Some(g.zero_windows[0])),
    hidden("rev_zero_windows", |g| Some(g.zero_windows[1])),
];

const RTT: &str = "median round trip of the handshake between the capture point and this side";
const SHARE: &str = "retransmitted share of the segments with payload, SYN or FIN";
const LOST: &str = "segments lost between the capture point and this side, of both directions";

impl GroupColumn {
    fn text(&self, group: &Group) -> String {
        match (self.form, (self.number)(group)) {
            (_, None) => String::new(),
            (Form::Count, Some(0)) => String::new(),
            (Form::Count, Some(number)) => units::short(number),
            (Form::Octets, Some(number)) => units::short(number) + "B",
            (Form::Time, Some(ns)) => units::span(ns),
            (Form::Share, Some(_)) => percent(group.retransmitted.iter().sum(), group.segments.iter().sum()),
        }
    }

    fn value(&self, group: &Group) -> Value {
        match (self.form, (self.number)(group)) {
            (_, None) => Value::Null,
            (Form::Share, Some(_)) => group.retransmitted_share().into(),
            (_, Some(number)) => number.into(),
        }
    }
}

/// What groups are sorted by. The largest number comes first.
#[derive(Clone, Copy, Debug)]
pub struct GroupOrder {
    column: &'static GroupColumn,
    ascending: bool,
}

impl Default for GroupOrder {
    fn default() -> Self {
        Self { column: &COLUMNS[0], ascending: false }
    }
}

/// Why groups cannot be sorted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no such number of a group{}; there are {}, and the headings of the table",
    .0.map_or(String::new(), |name| format!("; did you mean {name}?")),
    COLUMNS.map(|column| column.name).join(", ")
)]
pub struct InvalidGroupOrder(Option<&'static str>);

impl GroupOrder {
    /// The order by the column of this name or heading; the name may end with `:asc` or `:desc`.
    /// `rtt`, `response` and `handshake` are those of the server's side.
    ///
    /// # Errors
    /// There is none.
    pub fn named(text: &str) -> Result<Self, InvalidGroupOrder> {
        let (name, ascending) = match text.rsplit_once(':') {
            Some((name, "asc")) => (name, true),
            Some((name, "desc")) => (name, false),
            _ => (text, false),
        };
        let name = match name {
            "rtt" | "handshake" => "rev_handshake_median_ns",
            "response" => "response_median_ns",
            name => name,
        };
        let is_named = |column: &&GroupColumn| column.name == name || column.heading == name && !name.is_empty();
        let column = COLUMNS_IN_MEMORY.iter().find(is_named);
        let names = || COLUMNS_IN_MEMORY.iter().map(|column| column.name);
        let column = column.ok_or_else(|| InvalidGroupOrder(most_similar(name, names())))?;
        Ok(Self { column, ascending })
    }

    /// The name with its direction.
    pub fn name(self) -> String {
        self.column.name.to_owned() + if self.ascending { ":asc" } else { "" }
    }

    /// Sorts groups; those without a number come last.
    pub(crate) fn sort(self, groups: &mut [Group]) {
        groups.sort_by_cached_key(|group| {
            let number = (self.column.number)(group);
            (
                number.is_none(),
                Reverse(number.map(|number| if self.ascending { !number } else { number })),
                group.key.clone(),
            )
        });
    }
}

static COLUMNS_IN_MEMORY: [GroupColumn; COLUMNS.len()] = COLUMNS;

/// Names of the columns in CSV.
pub(crate) fn csv_names(by: GroupBy) -> Vec<&'static str> {
    [by.name()].into_iter().chain(COLUMNS_IN_MEMORY.iter().map(|column| column.name)).collect()
}

/// The cells of CSV.
pub(crate) fn csv_cells(group: &Group) -> Vec<String> {
    let cell = |column: &GroupColumn| match column.value(group) {
        Value::Null => String::new(),
        number => number.to_string(),
    };
    [group.key.to_string()].into_iter().chain(COLUMNS_IN_MEMORY.iter().map(cell)).collect()
}

/// A group as a JSON object.
pub(crate) fn json(group: &Group, by: GroupBy) -> Value {
    let mut object = Map::from_iter([(by.name().to_owned(), group.key.to_string().into())]);
    object.extend(COLUMNS_IN_MEMORY.iter().map(|column| (column.name.to_owned(), column.value(group))));
    object.into()
}

/// The columns of text that have content. The first one is the key.
pub(crate) fn text_columns(groups: &[Group], by: GroupBy, order: GroupOrder) -> Vec<Column> {
    let key = Column::new(by.name(), false, groups.iter().map(|group| group.key.to_string()));
    let shown =
        COLUMNS_IN_MEMORY.iter().filter(|column| !column.heading.is_empty() || column.name == order.column.name);
    let mut columns = vec![key];
    for (rank, column) in (1..).zip(shown) {
        let heading = if column.heading.is_empty() { column.name } else { column.heading };
        let is_sorted_by = column.name == order.column.name;
        let text = Column::new(heading, true, groups.iter().map(|group| column.text(group)));
        columns.push(text.optional(if is_sorted_by || column.name == "connections" { 0 } else { rank }));
        if column.name == "failed" {
            let reasons = |group: &Group| nonzero(Failure::all().map(Failure::name).zip(group.failures));
            columns.push(Column::new("failures", false, groups.iter().map(reasons)).optional(COLUMNS.len() as u16));
        }
    }
    columns.retain(Column::has_content);
    columns
}

/// What the headings mean.
pub(crate) fn legend(columns: &[Column]) -> String {
    let is_shown = |column: &&GroupColumn| columns.iter().any(|shown| shown.heading == column.heading);
    let explained = COLUMNS_IN_MEMORY.iter().filter(|column| !column.meaning.is_empty()).filter(is_shown);
    let mut meanings: Vec<String> = Vec::new();
    for column in explained {
        let heading = column.heading.trim_matches(['→', '←']);
        let meaning = format!("{heading}: {}", column.meaning);
        if !meanings.contains(&meaning) {
            meanings.push(meaning);
        }
    }
    format!("→: of the client; ←: of the server; {}; k, M and G are decimal", meanings.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_found_by_name_heading_and_short_name() {
        for (text, name) in [
            ("connections", "connections"),
            ("←rtt", "rev_handshake_median_ns"),
            ("rtt:asc", "rev_handshake_median_ns:asc"),
            ("response:desc", "response_median_ns"),
            ("no_answer", "no_answer"),
        ] {
            assert_eq!(GroupOrder::named(text).unwrap().name(), name);
        }
        assert!(GroupOrder::named("").is_err());
        let error = GroupOrder::named("conections").unwrap_err().to_string();
        assert!(error.contains("did you mean connections?"), "{error}");
    }
}
