//! The orders that a report can rank connections by.

use crate::connection::{Connection, duplicate_segments, octets, payload_bytes};
use crate::connection_table::{ListColumn, RESPONSE, RTT, SortedColumn, column_of_heading};
use std::cmp::Reverse;
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use weir_fields::{Column, ColumnKind, FieldValue, columns};
use weir_tcp::{SegmentClass, TcpReport};
use weir_text::most_similar;
use weir_text::units;
use weir_text::zone::Zone;

/// With fewer packets than this a share of retransmitted segments means little.
const MEANINGFUL_PACKETS: u64 = 20;

/// What connections are ranked by. The largest value comes first.
#[derive(Clone, Copy, Debug)]
pub struct SortOrder {
    name: &'static str,
    description: &'static str,
    /// Heading of what the lists show of it; empty without one.
    heading: &'static str,
    rank_by: RankBy,
    /// The last one comes first.
    reversed: bool,
}

#[derive(Clone, Copy, Debug)]
enum RankBy {
    /// A number of the connection. Connections without one come last.
    Number(fn(&Connection) -> Option<u64>),
    /// The share of retransmitted segments, then their number.
    RetransmittedShare,
    /// The time of the first packet, the earliest first.
    Start,
    /// The address of an endpoint, the lowest first.
    Endpoint(fn(&Connection) -> SocketAddr),
    /// What a column of the lists shows: of both sides, or of one.
    Column(&'static ListColumn, Option<usize>),
    /// A field of its record. Connections to which it does not apply come last.
    Field(&'static Column),
}

/// Why connections cannot be ranked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOrder {
    /// There is no order, no column and no numeric field of this name. The most similar name, if one
    /// is similar.
    #[error(
        "there is no such number of a connection{}; there are {}, the headings of the lists, and all numbers of weir \
         fields",
        .0.map_or(String::new(), |name| format!("; did you mean {name}?")),
        ORDERS.map(|order| order.name).join(", ")
    )]
    Unknown(Option<&'static str>),
    /// Neither `asc` nor `desc` follows the name.
    #[error("{0:?} is no direction; write NAME:asc for the smallest first, or NAME:desc")]
    Direction(String),
}

const ORDERS: [SortOrder; 21] = [
    order("retransmitted", "retrans", "share of retransmitted segments", RankBy::RetransmittedShare),
    number("retransmissions", "retr", "retransmitted segments", |connection| {
        Some(connection.sum(TcpReport::retransmitted_segments))
    }),
    number("retransmitted-bytes", "", "retransmitted octets", |connection| {
        Some(connection.sum(|report| report.retransmitted_bytes))
    }),
    number("duration", "time", "time from the first to the last packet", |connection| Some(connection.duration_ns())),
    number("packets", "packets", "packets", |connection| Some(connection.total_packets())),
    number("bytes", "payload", "payload octets", |connection| Some(connection.sum(payload_bytes))),
    number("missing", "missing", "octets missing from the capture, between octets that are in it", |connection| {
        Some(connection.sum(|report| report.missing_bytes))
    }),
    number("duplicates", "dups", "packets duplicated by the capture", |connection| {
        Some(connection.sum(duplicate_segments))
    }),
    number("out-of-order", "ooo", "out-of-order segments", |connection| {
        Some(connection.sum(|report| report.count(SegmentClass::OutOfOrder).segments))
    }),
    number("zero-window", "0-win", "zero-window announcements", |connection| {
        Some(connection.sum(|report| report.zero_windows))
    }),
    order("rtt", "rtt", "shortest round-trip time, both sides together", RankBy::Column(&RTT, None)),
    order("response", "←resp", "longest response time of the server", RankBy::Column(&RESPONSE, Some(1))),
    order("client-response", "resp→", "longest response time of the client", RankBy::Column(&RESPONSE, Some(0))),
    number("throughput", "bit/s", "throughput of the payload, both sides together", |connection| {
        [0, 1].into_iter().filter_map(|side| connection.throughput_bps(side)).reduce(u64::saturating_add)
    }),
    number("delay", "delay", "time of the largest delay: network, server or client", |connection| {
        let delays = connection.delays();
        Some(delays.network_ns.max(delays.server_ns).max(delays.client_ns))
    }),
    number("network-delay", "net %", "time of round trips, and of transfer with retransmissions", |connection| {
        Some(connection.delays().network_ns)
    }),
    number("server-delay", "srv %", "time of waiting for the server", |connection| Some(connection.delays().server_ns)),
    number("client-delay", "cli %", "time of waiting for the client", |connection| Some(connection.delays().client_ns)),
    order("start", "start", "time of the first packet, earliest first", RankBy::Start),
    order("client", "", "address of the client, lowest first", RankBy::Endpoint(|connection| connection.client)),
    order("server", "", "address of the server, lowest first", RankBy::Endpoint(|connection| connection.server)),
];

const fn order(name: &'static str, heading: &'static str, description: &'static str, rank_by: RankBy) -> SortOrder {
    SortOrder { name, description, heading, rank_by, reversed: false }
}

const fn number(
    name: &'static str,
    heading: &'static str,
    description: &'static str,
    number: fn(&Connection) -> Option<u64>,
) -> SortOrder {
    order(name, heading, description, RankBy::Number(number))
}

impl SortOrder {
    /// All orders that have a name of their own.
    pub fn all() -> impl Iterator<Item = Self> {
        ORDERS.into_iter()
    }

    /// The order of this name, or by the column with this heading, or by the field of this name. Behind
    /// the name, `:asc` puts the smallest first and `:desc` the largest.
    ///
    /// # Errors
    /// There is none of them, the field is no number, or the direction is another word.
    pub fn named(text: &str) -> Result<Self, InvalidOrder> {
        let (name, direction) = text.split_once(':').map_or((text, None), |(name, direction)| (name, Some(direction)));
        let order = Self::of_name(name)?;
        let reversed = match direction {
            None => false,
            Some("asc") => !order.has_lowest_first(),
            Some("desc") => order.has_lowest_first(),
            Some(other) => return Err(InvalidOrder::Direction(other.into())),
        };
        Ok(Self { reversed, ..order })
    }

    fn of_name(name: &str) -> Result<Self, InvalidOrder> {
        if let Some(order) = Self::all().find(|order| order.name == name) {
            return Ok(order);
        }
        if let Some((column, heading, side)) = column_of_heading(name) {
            let description = if column.meaning.is_empty() || side.is_some() { heading } else { column.meaning };
            return Ok(order(heading, heading, description, RankBy::Column(column, side)));
        }
        let fields = columns().iter().filter(|column| is_number(column));
        let fields = fields.map(|column| order(column.name, "", column.name, RankBy::Field(column)));
        let orders: Vec<Self> = Self::all().chain(fields).collect();
        orders
            .iter()
            .find(|order| order.name == name)
            .copied()
            .ok_or_else(|| InvalidOrder::Unknown(most_similar(name, orders.iter().map(|order| order.name))))
    }

    /// Whether the lowest comes first unless it is reversed.
    fn has_lowest_first(self) -> bool {
        match self.rank_by {
            RankBy::Start | RankBy::Endpoint(_) => true,
            RankBy::Column(column, _) => column.is_text,
            _ => false,
        }
    }

    /// The name without a direction.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// What it ranks by, for people.
    pub fn description(self) -> String {
        let direction = if self.has_lowest_first() { ", in reverse" } else { ", smallest first" };
        self.description.to_owned() + if self.reversed { direction } else { "" }
    }

    /// Connections of fewer packets are ranked last by default.
    pub fn default_min_packets(self) -> u64 {
        if matches!(self.rank_by, RankBy::RetransmittedShare) { MEANINGFUL_PACKETS } else { 1 }
    }

    /// Connections with a larger value come first.
    pub(crate) fn value(self, connection: &Connection) -> [u64; 3] {
        match self.numbers(connection) {
            None => [0; 3],
            Some([first, second]) if self.reversed => [1, !first, !second],
            Some([first, second]) => [1, first, second],
        }
    }

    fn numbers(self, connection: &Connection) -> Option<[u64; 2]> {
        match self.rank_by {
            RankBy::Number(number) => number(connection).map(|number| [number, 0]),
            RankBy::Start => Some([!connection.first_ns, 0]),
            RankBy::Endpoint(endpoint) => {
                let bits = !u128::from_be_bytes(octets(endpoint(connection)));
                Some([(bits >> 64) as u64, bits as u64])
            }
            RankBy::Column(column, side) => column.rank(connection, side).map(|number| [number, 0]),
            // The bits of a number that is not negative have the order of the number.
            RankBy::RetransmittedShare => {
                let segments = connection.sum(TcpReport::retransmitted_segments);
                Some([connection.retransmitted_share().to_bits(), segments])
            }
            RankBy::Field(column) => match column.read(&connection.to_flow_record()) {
                FieldValue::Unsigned(number) | FieldValue::Time(number) => Some([number, 0]),
                FieldValue::Float(number) => Some([number.max(0.0).to_bits(), 0]),
                _ => None,
            },
        }
    }

    /// What the lists show of it.
    pub(crate) fn sorted_column(self) -> SortedColumn {
        let column = column_of_heading(self.heading).map(|(column, _, side)| (column.heading, side));
        let cell = move |connection: &Connection| match self.rank_by {
            RankBy::Field(column) => match column.read(&connection.to_flow_record()) {
                FieldValue::Unsigned(ns) if column.unit == "ns" => units::span(ns),
                FieldValue::Float(ns) if column.unit == "ns" => units::span(ns as u64),
                FieldValue::Unsigned(number) => units::short(number),
                FieldValue::Float(number) => units::number(number),
                value => value.to_string(),
            },
            RankBy::Start => {
                let (day, time) = Zone::current().date_and_time(connection.first_ns);
                format!("{day} {time}")
            }
            RankBy::Number(number) => number(connection).map_or(String::new(), units::short),
            _ => String::new(),
        };
        let has_own = match self.rank_by {
            RankBy::Field(_) | RankBy::Start => true,
            RankBy::Number(_) => column.is_none(),
            _ => false,
        };
        SortedColumn { column, own: has_own.then(|| (self.name, Box::new(cell) as _)) }
    }
}

/// The name with its direction, as on the command line.
impl Display for SortOrder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let direction = if self.has_lowest_first() { ":desc" } else { ":asc" };
        write!(f, "{}{}", self.name, if self.reversed { direction } else { "" })
    }
}

fn is_number(column: &Column) -> bool {
    matches!(column.kind, ColumnKind::Integer | ColumnKind::Number | ColumnKind::Time)
}

/// Sorts connections by an order: those that never opened, those that were reset, those that are in a
/// group of failures, those of at least `min_packets`, then all others. Returns how many failed.
pub(crate) fn rank(connections: &mut [Connection], order: SortOrder, min_packets: u64) -> usize {
    let group = |connection: &Connection| match connection.failure() {
        Some(_) if connection.is_grouped => 2,
        Some(failure) if failure.is_before_opening() => 0,
        Some(_) => 1,
        None if connection.total_packets() >= min_packets => 3,
        None => 4,
    };
    // The endpoints decide last, so that the same capture always gives the same list.
    connections.sort_unstable_by_key(|c| (Reverse(c.total_packets()), c.first_ns, c.client, c.server, c.last_ns));
    connections.sort_by_cached_key(|c| (group(c), Reverse(order.value(c))));
    connections.partition_point(|connection| connection.failure().is_some())
}
