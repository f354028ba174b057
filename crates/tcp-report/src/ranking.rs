//! The order of connections in a report.

use crate::connection::{Connection, duplicates, payload, retransmitted};
use std::cmp::Reverse;
use weir_tcp::SegmentClass;

/// Packets that a connection has at least, so that a share of its segments means something.
const MEANINGFUL_PACKETS: u64 = 20;

/// What connections are ranked by. The largest value comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortOrder {
    /// Share of retransmitted segments.
    Retransmitted,
    /// Retransmitted octets.
    RetransmittedBytes,
    /// Packets.
    Packets,
    /// Octets of payload.
    Bytes,
    /// Octets that were never captured, between others that were.
    Missing,
    /// Duplicates that the capture made.
    Duplicates,
    /// Segments out of order.
    OutOfOrder,
    /// Zero windows.
    ZeroWindow,
    /// Round-trip time of the handshake.
    Rtt,
    /// Time of the first packet, earliest first.
    Start,
}

impl SortOrder {
    /// All orders.
    pub const ALL: [Self; 10] = [
        Self::Retransmitted,
        Self::RetransmittedBytes,
        Self::Packets,
        Self::Bytes,
        Self::Missing,
        Self::Duplicates,
        Self::OutOfOrder,
        Self::ZeroWindow,
        Self::Rtt,
        Self::Start,
    ];

    /// The name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Retransmitted => "retransmitted",
            Self::RetransmittedBytes => "retransmitted-bytes",
            Self::Packets => "packets",
            Self::Bytes => "bytes",
            Self::Missing => "missing",
            Self::Duplicates => "duplicates",
            Self::OutOfOrder => "out-of-order",
            Self::ZeroWindow => "zero-window",
            Self::Rtt => "rtt",
            Self::Start => "start",
        }
    }

    /// What it ranks by, in words.
    pub fn description(self) -> &'static str {
        match self {
            Self::Retransmitted => "share of retransmitted segments",
            Self::RetransmittedBytes => "retransmitted octets",
            Self::Packets => "packets",
            Self::Bytes => "payload octets",
            Self::Missing => "octets missing from the capture, between octets that are in it",
            Self::Duplicates => "duplicates made by the capture",
            Self::OutOfOrder => "out-of-order segments",
            Self::ZeroWindow => "zero-window announcements",
            Self::Rtt => "round-trip time of the handshake, both sides together",
            Self::Start => "time of the first packet, earliest first",
        }
    }

    /// Connections of fewer packets are ranked last, unless the user chooses another limit.
    pub fn default_min_packets(self) -> u64 {
        if self == Self::Retransmitted { MEANINGFUL_PACKETS } else { 1 }
    }
}

/// Puts connections in the order of the list.
pub fn sort(connections: &mut [Connection], sort: SortOrder, min_packets: u64) {
    let figure = |connection: &Connection| match sort {
        SortOrder::Retransmitted => connection.both(retransmitted),
        SortOrder::RetransmittedBytes => connection.both(|report| report.retransmitted_bytes),
        SortOrder::Packets => connection.all_packets(),
        SortOrder::Bytes => connection.both(payload),
        SortOrder::Missing => connection.both(|report| report.missing_bytes),
        SortOrder::Duplicates => connection.both(duplicates),
        SortOrder::OutOfOrder => connection.both(|report| report.count(SegmentClass::OutOfOrder).segments),
        SortOrder::ZeroWindow => connection.both(|report| report.zero_windows),
        SortOrder::Rtt => connection.round_trip_ns(),
        SortOrder::Start => u64::MAX - connection.first_ns,
    };
    // Not below 0: its bits have its order.
    let share = |connection: &Connection| match sort {
        SortOrder::Retransmitted => connection.retransmitted_share().to_bits(),
        _ => 0,
    };
    let is_small = |connection: &Connection| connection.all_packets() < min_packets;
    // What is left at last are the ends, so that the same capture gives the same list.
    connections.sort_unstable_by_key(|c| (Reverse(c.all_packets()), c.first_ns, c.client, c.server, c.last_ns));
    connections.sort_by_cached_key(|c| (is_small(c), Reverse(share(c)), Reverse(figure(c))));
}
