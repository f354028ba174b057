//! The order of the rows of a view, and of the records of a table: `bytes`, `duration:asc`.

use crate::count_field::CountField;
use crate::error::nearest;
use crate::group_field::GroupField;
use crate::sums::Sums;
use std::ops::RangeInclusive;
use std::str::FromStr;
use weir_fields::{
    Amount, Bounds, Column, Field, FieldValue, Kind, SumField, column, field, name_of_heading, near_names,
};
use weir_flow::FlowRecord;
use weir_text::most_similar;

/// By what rows are sorted, as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Name of a number.
    pub name: String,
    /// The smallest is the first; otherwise the largest.
    pub ascending: bool,
}

/// Why rows cannot be sorted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOrder {
    /// Neither `asc` nor `desc` follows the name.
    #[error("{0:?} is no direction; write NAME:asc for the smallest first, or NAME:desc")]
    Direction(String),
    /// There is no such field.
    #[error(
        "there is no field {name:?}{}; common are bytes, packets, duration, start_time, retransmitted, rtt and response",
        nearest(.near)
    )]
    Unknown {
        /// The name as the user wrote it.
        name: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// The stored flows do not have what the number is computed from.
    #[error("{0} is not known of the stored flows")]
    NotStored(&'static str),
    /// A field that is no number.
    #[error("{0} is no number: it cannot be sorted")]
    NoNumber(String),
    /// A view has no such number.
    #[error(
        "a view has no number {name:?}{}; use {}, a sum of --sum, or a field of --by or --count",
        .near.as_ref().map_or(String::new(), |near| format!("; did you mean {near}?")),
        Metric::ALL.map(Metric::name).join(", ")
    )]
    UnknownMetric {
        /// The name as the user wrote it.
        name: String,
        /// The most similar name.
        near: Option<String>,
    },
}

impl FromStr for Order {
    type Err = InvalidOrder;

    fn from_str(text: &str) -> Result<Self, InvalidOrder> {
        let (name, ascending) = match text.split_once(':') {
            None => (text, false),
            Some((name, "asc")) => (name, true),
            Some((name, "desc")) => (name, false),
            Some((_, direction)) => return Err(InvalidOrder::Direction(direction.into())),
        };
        let name = name.trim().to_ascii_lowercase();
        let name = column(&name).map_or(name, |column| column.name.into());
        Ok(Self { name, ascending })
    }
}

/// A number by which flow records are sorted.
#[derive(Clone, Copy, Debug)]
pub struct RecordOrder {
    field: Field,
    ascending: bool,
}

impl RecordOrder {
    /// Finds the field of an order.
    ///
    /// # Errors
    /// There is no such field, or it is no number.
    pub fn new(order: &Order) -> Result<Self, InvalidOrder> {
        let name = name_of_heading(&order.name);
        let field = field(name).ok_or_else(|| InvalidOrder::Unknown { name: name.into(), near: near_names(name) })?;
        if !field.kind.is_ordered() {
            return Err(InvalidOrder::NoNumber(name.into()));
        }
        Ok(Self { field, ascending: order.ascending })
    }

    /// The record that starts latest is the first.
    pub fn newest() -> Self {
        Self { field: field("start_time").expect("the field exists"), ascending: false }
    }

    /// Name of the field.
    pub fn name(&self) -> &'static str {
        self.field.name
    }

    /// Whether the field is a number of ns.
    pub fn is_time_span(&self) -> bool {
        self.field.kind.is_time_span()
    }

    /// Whether the field is a number of octets.
    pub fn is_octets(&self) -> bool {
        self.field.kind == Kind::Octets
    }

    /// The value in a record; the larger one of a field of both sides.
    pub fn value<'a>(&self, flow: &'a FlowRecord) -> FieldValue<'a> {
        let [one, other] = self.field.values(flow);
        if number(&other) > number(&one) { other } else { one }
    }

    /// The rank of a record: the largest is the first. Records without a value are the last.
    pub fn rank(&self, flow: &FlowRecord) -> (bool, u64) {
        rank(number(&self.value(flow)), self.ascending)
    }

    /// The largest rank that one of many records may have; `None` if it is not known.
    pub fn first_rank(&self, bounds: &dyn Bounds) -> Option<(bool, u64)> {
        let columns = self.field.bounded_by();
        let numbers: Option<Vec<_>> = columns.into_iter().map(|column| bounds.numbers(column)).collect();
        let ranks = numbers?.into_iter().filter(|numbers| !numbers.is_empty());
        // Of a field of both sides, the larger value counts.
        let rank = |numbers: RangeInclusive<u64>| if self.ascending { !numbers.start() } else { *numbers.end() };
        ranks.map(|numbers| (true, rank(numbers))).max()
    }

    /// Whether the smallest is the first.
    pub fn is_ascending(&self) -> bool {
        self.ascending
    }
}

/// A number as bits that have its order: no number is negative.
fn number(value: &FieldValue<'_>) -> Option<u64> {
    match *value {
        FieldValue::Unsigned(number) | FieldValue::Implied(number) | FieldValue::Time(number) => Some(number),
        FieldValue::Float(number) => Some(number.to_bits()),
        _ => None,
    }
}

pub(crate) fn rank(number: Option<u64>, ascending: bool) -> (bool, u64) {
    match number {
        Some(number) => (true, if ascending { !number } else { number }),
        None => (false, 0),
    }
}

/// A number of each row of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Records.
    Flows,
    /// Packets of both directions.
    Packets,
    /// IP octets of both directions.
    Bytes,
    /// Octets on the wire of both directions.
    L2Bytes,
    /// Packets of the initiator; in a group of a side, packets sent.
    FwdPackets,
    /// Packets of the responder; in a group of a side, packets received.
    RevPackets,
    /// IP octets of the initiator; in a group of a side, octets sent.
    FwdBytes,
    /// IP octets of the responder; in a group of a side, octets received.
    RevBytes,
    /// Earliest packet.
    FirstTime,
    /// Latest packet.
    LastTime,
    /// Time from the earliest to the latest packet, ns.
    Duration,
    /// TCP segments with payload, SYN or FIN.
    Segments,
    /// Of these, retransmitted.
    Retransmitted,
    /// Retransmitted segments per segment.
    RetransmittedShare,
    /// Mean initial round trip of TCP connections, ns.
    RttMean,
    /// Longest initial round trip of TCP connections, ns.
    RttMax,
    /// Mean response time of TCP servers, ns.
    ResponseMean,
    /// Longest response time of TCP servers, ns.
    ResponseMax,
    /// Octets of records that are spread over several intervals.
    SpreadBytes,
}

impl Metric {
    /// All numbers in the order of the columns.
    pub const ALL: [Self; 19] = [
        Self::Flows,
        Self::Packets,
        Self::Bytes,
        Self::L2Bytes,
        Self::FwdPackets,
        Self::RevPackets,
        Self::FwdBytes,
        Self::RevBytes,
        Self::FirstTime,
        Self::LastTime,
        Self::Duration,
        Self::Segments,
        Self::Retransmitted,
        Self::RetransmittedShare,
        Self::RttMean,
        Self::RttMax,
        Self::ResponseMean,
        Self::ResponseMax,
        Self::SpreadBytes,
    ];

    /// Name of the column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flows => "flows",
            Self::Packets => "packets",
            Self::Bytes => "bytes",
            Self::L2Bytes => "l2_bytes",
            Self::FwdPackets => "fwd_packets",
            Self::RevPackets => "rev_packets",
            Self::FwdBytes => "fwd_bytes",
            Self::RevBytes => "rev_bytes",
            Self::FirstTime => "first_time",
            Self::LastTime => "last_time",
            Self::Duration => "duration_ns",
            Self::Segments => "segments",
            Self::Retransmitted => "retransmitted",
            Self::RetransmittedShare => "retransmitted_share",
            Self::RttMean => "rtt_mean_ns",
            Self::RttMax => "rtt_max_ns",
            Self::ResponseMean => "response_mean_ns",
            Self::ResponseMax => "response_max_ns",
            Self::SpreadBytes => "spread_bytes",
        }
    }

    /// Name of the column in a view of a side: what the side sent and received.
    pub const fn name_of_side(self) -> &'static str {
        match self {
            Self::FwdPackets => "sent_packets",
            Self::RevPackets => "received_packets",
            Self::FwdBytes => "sent_bytes",
            Self::RevBytes => "received_bytes",
            other => other.name(),
        }
    }

    /// The number of a name; some have a short one, or that of their heading in the table.
    pub fn of_name(name: &str) -> Option<Self> {
        let short = match name {
            "duration" => Some(Self::Duration),
            "first" | "first (utc)" | "start_time" => Some(Self::FirstTime),
            "last" | "end_time" => Some(Self::LastTime),
            "rtt" => Some(Self::RttMean),
            "response" => Some(Self::ResponseMean),
            "retransmission" | "retr%" => Some(Self::RetransmittedShare),
            "%" => Some(Self::Bytes),
            "bytes→" | "sent" => Some(Self::FwdBytes),
            "←bytes" | "received" => Some(Self::RevBytes),
            "pkts→" => Some(Self::FwdPackets),
            "←pkts" => Some(Self::RevPackets),
            "rtt max" => Some(Self::RttMax),
            "on the wire" => Some(Self::L2Bytes),
            _ => None,
        };
        let found = || Self::ALL.into_iter().find(|metric| [metric.name(), metric.name_of_side()].contains(&name));
        short.or_else(found)
    }

    /// The fields of TCP analysis that it is computed from.
    pub(crate) const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Segments | Self::RetransmittedShare => &["retransmitted_share"],
            Self::Retransmitted => &["retransmitted"],
            Self::RttMean | Self::RttMax => &[
                "rtt",
                "fwd_tcp_syn_count",
                "rev_tcp_syn_count",
                "fwd_tcp_syn_retransmitted",
                "rev_tcp_syn_retransmitted",
            ],
            Self::ResponseMean | Self::ResponseMax => &["response"],
            _ => &[],
        }
    }

    /// The fields of every record of a flow that it is computed from; transactions do not have them.
    const fn counters(self) -> &'static [&'static str] {
        match self {
            Self::Packets | Self::FwdPackets | Self::RevPackets => &["packets"],
            Self::Bytes | Self::FwdBytes | Self::RevBytes => &["bytes"],
            Self::L2Bytes => &["l2_bytes"],
            _ => &[],
        }
    }

    /// The numbers that are not known if records have only these fields.
    pub fn unknown(known: &[&'static Column]) -> Vec<Self> {
        let is_known = |name: &&str| known.iter().any(|column| column.name == *name);
        let are_known = |metric: &Self| metric.fields().iter().chain(metric.counters()).all(is_known);
        Self::ALL.into_iter().filter(|metric| !are_known(metric)).collect()
    }

    /// The number of a row.
    pub fn value(self, sums: &Sums) -> FieldValue<'static> {
        let optional = |number: Option<u64>| number.map_or(FieldValue::NotApplicable, FieldValue::Unsigned);
        match self {
            Self::Flows => FieldValue::Unsigned(sums.flows),
            Self::Packets => FieldValue::Unsigned(sums.all_packets()),
            Self::Bytes => FieldValue::Unsigned(sums.all_bytes()),
            Self::L2Bytes => FieldValue::Unsigned(sums.l2_bytes),
            Self::FwdPackets => FieldValue::Unsigned(sums.packets[0]),
            Self::RevPackets => FieldValue::Unsigned(sums.packets[1]),
            Self::FwdBytes => FieldValue::Unsigned(sums.bytes[0]),
            Self::RevBytes => FieldValue::Unsigned(sums.bytes[1]),
            Self::FirstTime if sums.first_ns == u64::MAX => FieldValue::NotApplicable,
            Self::FirstTime => FieldValue::Time(sums.first_ns),
            Self::LastTime if sums.first_ns == u64::MAX => FieldValue::NotApplicable,
            Self::LastTime => FieldValue::Time(sums.last_ns),
            Self::Duration => FieldValue::Unsigned(sums.duration_ns()),
            Self::Segments => FieldValue::Unsigned(sums.segments),
            Self::Retransmitted => FieldValue::Unsigned(sums.retransmitted),
            Self::RetransmittedShare => sums.retransmitted_share().map_or(FieldValue::NotApplicable, FieldValue::Float),
            Self::RttMean => optional(sums.rtt_mean_ns()),
            Self::RttMax => optional((sums.rtts > 0).then_some(sums.rtt_max_ns)),
            Self::ResponseMean => optional(sums.response_mean_ns()),
            Self::ResponseMax => optional((sums.responses > 0).then_some(sums.response_max_ns)),
            Self::SpreadBytes => FieldValue::Unsigned(sums.spread_bytes),
        }
    }
}

/// By what the rows of a view are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    Metric(Metric, bool),
    /// A field of the groups.
    Key(usize, bool),
    /// A number of different values.
    Count(usize, bool),
    /// A sum that is asked for.
    Sum(usize, SumField, bool),
}

impl RowOrder {
    /// The order, and the sums that are asked for: also that of the order.
    pub fn new(
        order: Option<&Order>,
        fields: &[GroupField],
        counts: &[CountField],
        sums: &mut Vec<SumField>,
    ) -> Result<Self, InvalidOrder> {
        let Some(Order { name, ascending }) = order else { return Ok(Self::Metric(Metric::Bytes, false)) };
        // A sum may be named by its short name, and a field has the name of the sum.
        let whole = match SumField::of_name(name) {
            Some(sum) => sum.name(),
            None => name.as_str(),
        };
        if let Some(at) = counts.iter().position(|count| count.name() == whole) {
            return Ok(Self::Count(at, *ascending));
        }
        if let Some(at) = fields.iter().position(|field| field.name() == whole || field.to_string() == *name) {
            return Ok(Self::Key(at, *ascending));
        }
        let unknown = || {
            let metrics = Metric::ALL.iter().flat_map(|metric| [metric.name(), metric.name_of_side()]);
            let near = most_similar(name, metrics.chain(fields.iter().map(GroupField::name)).chain(SumField::names()));
            InvalidOrder::UnknownMetric { name: name.clone(), near: near.map(Into::into) }
        };
        if let Some(metric) = Metric::of_name(name) {
            return Ok(Self::Metric(metric, *ascending));
        }
        let field = SumField::of_name(name).ok_or_else(unknown)?;
        let at = sums.iter().position(|of| *of == field).unwrap_or_else(|| {
            sums.push(field);
            sums.len() - 1
        });
        Ok(Self::Sum(at, field, *ascending))
    }

    pub fn rank(self, sums: &Sums, amounts: &[Amount]) -> (bool, u64) {
        match self {
            Self::Sum(at, field, ascending) => rank(number(&field.value(amounts[at])), ascending),
            Self::Metric(metric, ascending) => rank(number(&metric.value(sums)), ascending),
            Self::Key(..) | Self::Count(..) => (true, 0),
        }
    }
}
