//! The orders that a report can rank connections by.

use crate::connection::{Connection, duplicate_segments, payload_bytes};
use crate::connection_table::{ListColumn, column_of_heading};
use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};
use weir_export::{Column, ColumnKind, FieldValue, columns};
use weir_tcp::{SegmentClass, TcpReport};

/// With fewer packets than this a share of retransmitted segments means little.
const MEANINGFUL_PACKETS: u64 = 20;

/// What connections are ranked by. The largest value comes first.
#[derive(Clone, Copy, Debug)]
pub struct SortOrder {
    name: &'static str,
    description: &'static str,
    rank_by: RankBy,
}

#[derive(Clone, Copy, Debug)]
enum RankBy {
    /// A number of the connection.
    Number(fn(&Connection) -> u64),
    /// The share of retransmitted segments, then their number.
    RetransmittedShare,
    /// The address of an endpoint, the lowest first.
    Endpoint(fn(&Connection) -> SocketAddr),
    /// What a column of the lists shows: of both sides, or of one.
    Column(&'static ListColumn, Option<usize>),
    /// A field of its record. Connections to which it does not apply come last.
    Field(&'static Column),
}

/// There is no order, no column and no numeric field of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no such number of a connection{}; there are {}, the headings of the lists, and all numbers of weir fields",
    similar.map_or(String::new(), |name| format!("; did you mean {name}?")),
    ORDERS.map(SortOrder::name).join(", ")
)]
pub struct UnknownOrder {
    /// The most similar name, if one is similar.
    pub similar: Option<&'static str>,
}

const ORDERS: [SortOrder; 21] = [
    SortOrder {
        name: "retransmitted",
        description: "share of retransmitted segments",
        rank_by: RankBy::RetransmittedShare,
    },
    order("retransmissions", "retransmitted segments", |connection| connection.sum(TcpReport::retransmitted_segments)),
    order("retransmitted-bytes", "retransmitted octets", |connection| {
        connection.sum(|report| report.retransmitted_bytes)
    }),
    order("duration", "time from the first to the last packet", Connection::duration_ns),
    order("packets", "packets", Connection::total_packets),
    order("bytes", "payload octets", |connection| connection.sum(payload_bytes)),
    order("missing", "octets missing from the capture, between octets that are in it", |connection| {
        connection.sum(|report| report.missing_bytes)
    }),
    order("duplicates", "packets duplicated by the capture", |connection| connection.sum(duplicate_segments)),
    order("out-of-order", "out-of-order segments", |connection| {
        connection.sum(|report| report.count(SegmentClass::OutOfOrder).segments)
    }),
    order("zero-window", "zero-window announcements", |connection| connection.sum(|report| report.zero_windows)),
    order("rtt", "shortest round-trip time, both sides together", |connection| {
        [0, 1].into_iter().filter_map(|side| connection.rtt_ns(side)).sum()
    }),
    order("response", "longest response time of the server", |connection| connection.report(1).responses.max_ns),
    order("client-response", "longest response time of the client", |connection| connection.report(0).responses.max_ns),
    order("throughput", "throughput of the payload, both sides together", |connection| {
        [0, 1].into_iter().filter_map(|side| connection.throughput_bps(side)).fold(0, u64::saturating_add)
    }),
    order("delay", "time of the largest delay: network, server or client", |connection| {
        let delays = connection.delays();
        delays.network_ns.max(delays.server_ns).max(delays.client_ns)
    }),
    order("network-delay", "time of round trips, and of transfer with retransmissions", |connection| {
        connection.delays().network_ns
    }),
    order("server-delay", "time of waiting for the server", |connection| connection.delays().server_ns),
    order("client-delay", "time of waiting for the client", |connection| connection.delays().client_ns),
    order("start", "time of the first packet, earliest first", |connection| u64::MAX - connection.first_ns),
    SortOrder {
        name: "client",
        description: "address of the client, lowest first",
        rank_by: RankBy::Endpoint(|connection| connection.client),
    },
    SortOrder {
        name: "server",
        description: "address of the server, lowest first",
        rank_by: RankBy::Endpoint(|connection| connection.server),
    },
];

const fn order(name: &'static str, description: &'static str, number: fn(&Connection) -> u64) -> SortOrder {
    SortOrder { name, description, rank_by: RankBy::Number(number) }
}

impl SortOrder {
    /// All orders that have a name of their own.
    pub fn all() -> impl Iterator<Item = Self> {
        ORDERS.into_iter()
    }

    /// The order of this name, or by the column with this heading, or by the field of this name.
    ///
    /// # Errors
    /// There is none of them, or the field is no number.
    pub fn named(name: &str) -> Result<Self, UnknownOrder> {
        if let Some(order) = Self::all().find(|order| order.name == name) {
            return Ok(order);
        }
        if let Some((column, heading, side)) = column_of_heading(name) {
            let description = if column.meaning.is_empty() || side.is_some() { heading } else { column.meaning };
            return Ok(Self { name: heading, description, rank_by: RankBy::Column(column, side) });
        }
        let fields = columns().iter().filter(|column| is_number(column)).map(|column| SortOrder {
            name: column.name,
            description: column.name,
            rank_by: RankBy::Field(column),
        });
        let orders: Vec<Self> = Self::all().chain(fields).collect();
        orders.iter().find(|order| order.name == name).copied().ok_or_else(|| {
            let similarity = |similar: &str| (strsim::jaro_winkler(similar, name) * 1000.0) as u32;
            let most = orders.iter().max_by_key(|order| similarity(order.name));
            UnknownOrder { similar: most.map(|order| order.name).filter(|name| similarity(name) > 800) }
        })
    }

    /// The name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// What it ranks by, for people.
    pub fn description(self) -> &'static str {
        self.description
    }

    /// Connections of fewer packets are ranked last by default.
    pub fn default_min_packets(self) -> u64 {
        if matches!(self.rank_by, RankBy::RetransmittedShare) { MEANINGFUL_PACKETS } else { 1 }
    }

    /// Connections with a larger value come first.
    fn value(self, connection: &Connection) -> [u64; 3] {
        match self.rank_by {
            RankBy::Number(number) => [1, number(connection), 0],
            RankBy::Endpoint(endpoint) => {
                let address = match endpoint(connection).ip() {
                    IpAddr::V4(address) => address.to_ipv6_mapped(),
                    IpAddr::V6(address) => address,
                };
                let bits = !address.to_bits();
                [1, (bits >> 64) as u64, bits as u64]
            }
            RankBy::Column(column, side) => column.rank(connection, side).map_or([0; 3], |number| [1, number, 0]),
            // The bits of a number that is not negative have the order of the number.
            RankBy::RetransmittedShare => {
                [connection.retransmitted_share().to_bits(), connection.sum(TcpReport::retransmitted_segments), 0]
            }
            RankBy::Field(column) => match column.read(&connection.to_flow_record()) {
                FieldValue::Unsigned(number) | FieldValue::Time(number) => [1, number, 0],
                FieldValue::Float(number) => [1, number.max(0.0).to_bits(), 0],
                _ => [0; 3],
            },
        }
    }
}

fn is_number(column: &Column) -> bool {
    matches!(column.kind, ColumnKind::Integer | ColumnKind::Number | ColumnKind::Time)
}

/// Sorts connections by an order: those that never opened, those that were reset, those of at least
/// `min_packets`, then all others. Returns how many failed.
pub(crate) fn rank(connections: &mut [Connection], order: SortOrder, min_packets: u64) -> usize {
    let group = |connection: &Connection| match connection.failure() {
        Some(failure) if failure.is_before_opening() => 0,
        Some(_) => 1,
        None if connection.total_packets() >= min_packets => 2,
        None => 3,
    };
    // The endpoints decide last, so that the same capture always gives the same list.
    connections.sort_unstable_by_key(|c| (Reverse(c.total_packets()), c.first_ns, c.client, c.server, c.last_ns));
    connections.sort_by_cached_key(|c| (group(c), Reverse(order.value(c))));
    connections.partition_point(|connection| connection.failure().is_some())
}
