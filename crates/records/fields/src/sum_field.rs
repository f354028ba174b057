//! What a view adds up beside the sums that every view has, if it is asked for: `dns_nxdomain`, `http_errors`.
//!
//! A sum is computed from the columns of a record alone, so that it is the same from records and from columns of a
//! store. Columns of sums that are not asked for are not read.

use crate::column::{Column, ColumnKind};
use crate::field::{handshake_round_trips, server_times, serves_source};
use crate::selection::column;
use crate::stored_figures::Figures;
use crate::tcp_failure::TcpFailure;
use crate::value::FieldValue;
use std::fmt;
use std::str::FromStr;
use weir_flow::FlowRecord;
use weir_text::most_similar;

/// A sum.
#[derive(Clone, Copy)]
pub struct SumField(&'static Definition);

struct Definition {
    name: &'static str,
    /// Another name, or "".
    short: &'static str,
    how: How,
    of: Of,
}

/// How the values of records become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Their sum.
    Sum,
    /// The number of records that have one.
    Count,
    /// Their mean, ns.
    Mean,
    /// The longest, ns.
    Longest,
}

/// The value of a record.
enum Of {
    /// The sum of columns.
    Columns(&'static [&'static str]),
    /// The sum of entries of a direction: what the client sent, or the server.
    Side(Side, &'static [&'static str]),
    /// The round trip of the handshake between the capture point and a side.
    RoundTrip(Side),
    /// The answers of the server, without the round trip to it.
    ServerTime,
    /// 1 if the connection failed, in this way or in any.
    Failure(Option<TcpFailure>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// What of a stored value a sum depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// The value.
    Value,
    /// Of an address, only whether there is one, and the version of IP.
    Version,
    /// Of a port, only whether a client gets such a one.
    Ephemeral,
    /// Of a number, only whether it is 0.
    IsZero,
}

/// A sum of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Records that have a value; of a mean of answers, the answers.
    pub records: u64,
    /// The sum of their values, or the longest.
    pub number: u64,
}

const fn sum(name: &'static str, short: &'static str, columns: &'static [&'static str]) -> Definition {
    Definition { name, short, how: How::Sum, of: Of::Columns(columns) }
}

const fn time(name: &'static str, how: How, of: Of) -> Definition {
    Definition { name, short: "", how, of }
}

const fn failures(name: &'static str, failure: Option<TcpFailure>) -> Definition {
    Definition { name, short: "", how: How::Sum, of: Of::Failure(failure) }
}

const fn side(name: &'static str, side: Side, entries: &'static [&'static str]) -> Definition {
    Definition { name, short: "", how: How::Sum, of: Of::Side(side, entries) }
}

const UNSEEN: &[&str] = &["tcp_retransmitted_unseen"];
const SEEN: &[&str] = &["tcp_retransmitted_packets", "tcp_syn_retransmitted"];
const HANDSHAKE: &[&str] = &["tcp_handshake_rtt_ns", "tcp_syn_count", "tcp_syn_retransmitted"];
const RESPONSES: &[&str] = &["tcp_response_count", "tcp_response_mean_ns", "tcp_rtt_min_ns"];
const DNS_ERRORS: &[&str] = &["dns_nxdomain", "dns_servfail", "dns_refused", "dns_other_errors", "dns_unanswered"];

/// All sums, in the order of docs/views.md.
static DEFINITIONS: [Definition; 36] = [
    sum("dns_queries", "", &["dns_queries"]),
    sum("dns_answers", "", &["dns_answers"]),
    sum("dns_failed", "", DNS_ERRORS),
    sum("dns_nxdomain", "nxdomain", &["dns_nxdomain"]),
    sum("dns_servfail", "servfail", &["dns_servfail"]),
    sum("dns_refused", "", &["dns_refused"]),
    sum("dns_other_errors", "", &["dns_other_errors"]),
    sum("dns_unanswered", "unanswered", &["dns_unanswered"]),
    sum("dns_forgotten", "", &["dns_forgotten"]),
    time("dns_response_mean_ns", How::Mean, Of::Columns(&["dns_response_mean_ns"])),
    time("dns_response_max_ns", How::Longest, Of::Columns(&["dns_response_max_ns"])),
    sum("http_requests", "", &["http_requests"]),
    sum("http_errors", "", &["http_4xx", "http_5xx"]),
    sum("http_4xx", "", &["http_4xx"]),
    sum("http_5xx", "", &["http_5xx"]),
    time("http_response_mean_ns", How::Mean, Of::Columns(&["http_response_mean_ns"])),
    time("http_response_max_ns", How::Longest, Of::Columns(&["http_response_max_ns"])),
    sum("retransmitted_unseen", "", &["fwd_tcp_retransmitted_unseen", "rev_tcp_retransmitted_unseen"]),
    side("client_retransmitted_unseen", Side::Client, UNSEEN),
    side("client_retransmitted_seen", Side::Client, SEEN),
    side("server_retransmitted_unseen", Side::Server, UNSEEN),
    side("server_retransmitted_seen", Side::Server, SEEN),
    time("client_rtt_count", How::Count, Of::RoundTrip(Side::Client)),
    time("client_rtt_mean_ns", How::Mean, Of::RoundTrip(Side::Client)),
    time("client_rtt_max_ns", How::Longest, Of::RoundTrip(Side::Client)),
    time("server_rtt_count", How::Count, Of::RoundTrip(Side::Server)),
    time("server_rtt_mean_ns", How::Mean, Of::RoundTrip(Side::Server)),
    time("server_rtt_max_ns", How::Longest, Of::RoundTrip(Side::Server)),
    time("server_time_mean_ns", How::Mean, Of::ServerTime),
    failures("failed", None),
    failures("no_answer", Some(TcpFailure::NoAnswer)),
    failures("refused", Some(TcpFailure::Refused)),
    failures("half_open", Some(TcpFailure::HalfOpen)),
    failures("reset_by_client", Some(TcpFailure::ResetByClient)),
    failures("reset_by_server", Some(TcpFailure::ResetByServer)),
    failures("reset_by_both", Some(TcpFailure::ResetByBoth)),
];

/// Columns that a side is known by, and whether a direction has packets.
const SIDES: [&str; 6] = ["src_port", "dst_port", "fwd_tcp_flags", "rev_tcp_flags", "fwd_packets", "rev_packets"];

fn did_you_mean(near: &Option<&'static str>) -> String {
    near.map_or(String::new(), |near| format!("; did you mean {near}?"))
}

fn all_names() -> String {
    SumField::names().collect::<Vec<_>>().join(", ")
}

/// There is no such sum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no sum {name:?}{}; there are {}", did_you_mean(.near), all_names())]
pub struct InvalidSumField {
    /// The name as the user wrote it.
    name: String,
    /// The most similar name.
    near: Option<&'static str>,
}

impl FromStr for SumField {
    type Err = InvalidSumField;

    fn from_str(text: &str) -> Result<Self, InvalidSumField> {
        let name = text.trim().to_ascii_lowercase();
        Self::of_name(&name)
            .ok_or_else(|| InvalidSumField { near: most_similar(&name, Self::names()), name: name.clone() })
    }
}

/// Names are unique.
impl PartialEq for SumField {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for SumField {}

impl fmt::Debug for SumField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl SumField {
    /// All sums.
    pub fn all() -> impl Iterator<Item = Self> {
        DEFINITIONS.iter().map(Self)
    }

    /// The sum of a name, or of a short one.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::all().find(|of| of.name() == name || !of.0.short.is_empty() && of.0.short == name)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::all().map(Self::name)
    }

    /// Name of the column.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Whether it is a number of nanoseconds.
    pub fn is_time_span(self) -> bool {
        matches!(self.0.how, How::Mean | How::Longest)
    }

    /// The columns that it is computed from.
    pub fn columns(self) -> Vec<&'static Column> {
        let of_both = |entry: &&str| [format!("fwd_{entry}"), format!("rev_{entry}")];
        let of_sides = |entries: &[&str]| -> Vec<String> {
            SIDES.iter().map(|name| (*name).into()).chain(entries.iter().flat_map(of_both)).collect()
        };
        let names: Vec<String> = match &self.0.of {
            // Without packets a direction has no TCP analysis.
            Of::Columns(names) if names.iter().any(|name| name.starts_with("fwd_")) => {
                names.iter().chain(&SIDES[4..]).map(|name| (*name).into()).collect()
            }
            Of::Columns(names) => names.iter().map(|name| (*name).into()).collect(),
            Of::Side(_, entries) => of_sides(entries),
            Of::RoundTrip(_) => of_sides(HANDSHAKE),
            Of::ServerTime => [of_sides(HANDSHAKE), RESPONSES.iter().flat_map(of_both).collect()].concat(),
            Of::Failure(_) => SIDES[2..].iter().map(|name| (*name).into()).collect(),
        };
        names.iter().map(|name| column(name).expect("the catalogue has the columns of sums")).collect()
    }

    /// What of a stored column a sum depends on, if it is computed from these columns; `None` if on nothing.
    pub fn grain(column: &'static Column, sources: &[&'static Column]) -> Option<Grain> {
        match column.name {
            _ if !sources.contains(&column) && !Figures::always_decides(column) => None,
            "src_port" | "dst_port" => Some(Grain::Ephemeral),
            "fwd_packets" | "rev_packets" => Some(Grain::IsZero),
            _ if column.kind == ColumnKind::Address => Some(Grain::Version),
            _ => Some(Grain::Value),
        }
    }

    /// Whether records that have only these fields have it.
    pub fn is_known(self, known: &[&'static Column]) -> bool {
        self.columns().iter().all(|column| known.contains(column))
    }

    /// Adds another amount.
    pub fn merge(self, into: &mut Amount, other: Amount) {
        into.records += other.records;
        into.number = match self.0.how {
            How::Longest => into.number.max(other.number),
            How::Sum | How::Count | How::Mean => into.number.saturating_add(other.number),
        };
    }

    /// The number of a row.
    pub fn value(self, amount: Amount) -> FieldValue<'static> {
        match self.0.how {
            How::Sum => FieldValue::Unsigned(amount.number),
            How::Count => FieldValue::Unsigned(amount.records),
            How::Mean => {
                amount.number.checked_div(amount.records).map_or(FieldValue::NotApplicable, FieldValue::Unsigned)
            }
            How::Longest if amount.records == 0 => FieldValue::NotApplicable,
            How::Longest => FieldValue::Unsigned(amount.number),
        }
    }
}

/// Reads the value of a sum from records.
#[derive(Clone)]
pub struct SumReader {
    of: SumField,
    /// The columns that are added up: of a record, or if it is of a side of each direction.
    columns: [Vec<&'static Column>; 2],
}

impl SumReader {
    /// A reader of a sum.
    pub fn new(of: SumField) -> Self {
        let find = |name: &str| column(name).expect("the catalogue has the columns of sums");
        let columns = match &of.0.of {
            Of::Columns(names) => [names.iter().map(|name| find(name)).collect(), Vec::new()],
            Of::Side(_, entries) => ["fwd", "rev"]
                .map(|direction| entries.iter().map(|entry| find(&format!("{direction}_{entry}"))).collect()),
            Of::RoundTrip(_) | Of::ServerTime | Of::Failure(_) => Default::default(),
        };
        Self { of, columns }
    }

    /// The amount of a record.
    pub fn amount(&self, flow: &FlowRecord) -> Amount {
        let columns = match self.of.0.of {
            Of::Columns(_) => &self.columns[0],
            Of::Side(side, _) => &self.columns[place_of(side, flow)],
            Of::RoundTrip(side) => {
                let rtt_ns = handshake_round_trips(flow)[place_of(side, flow)];
                return rtt_ns.map_or(Amount::default(), |number| Amount { records: 1, number });
            }
            Of::ServerTime => {
                let times = server_times(flow);
                return times.map_or(Amount::default(), |[records, number]| Amount { records, number });
            }
            Of::Failure(wanted) => {
                let failure = TcpFailure::of(flow);
                let is_wanted = failure.is_some() && (wanted.is_none() || wanted == failure);
                return Amount { records: is_wanted.into(), number: is_wanted.into() };
            }
        };
        let mut amount = Amount::default();
        for column in columns {
            if let FieldValue::Unsigned(number) = column.read(flow) {
                amount = Amount { records: 1, number: amount.number.saturating_add(number) };
            }
        }
        amount
    }
}

/// The place of a side among source and destination.
fn place_of(side: Side, flow: &FlowRecord) -> usize {
    usize::from((side == Side::Server) != serves_source(flow))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sum_has_columns_and_a_name_of_its_own() {
        let mut names: Vec<&str> = Vec::new();
        for of in SumField::all() {
            assert!(!of.columns().is_empty(), "{of:?}");
            names.extend([of.name(), of.0.short].into_iter().filter(|name| !name.is_empty()));
            assert_eq!(of.name().parse::<SumField>(), Ok(of));
        }
        names.sort_unstable();
        assert!(names.is_sorted_by(|one, other| one < other), "{names:?}");
        let error = "dns_nxdomains".parse::<SumField>().unwrap_err().to_string();
        assert!(error.starts_with("there is no sum \"dns_nxdomains\"; did you mean dns_nxdomain"), "{error}");
    }
}
