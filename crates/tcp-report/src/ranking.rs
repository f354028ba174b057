//! The orders that a report can rank connections by.

use crate::connection::{Connection, duplicate_segments, payload_bytes, retransmitted_segments};
use std::cmp::Reverse;
use weir_tcp::SegmentClass;

/// With fewer packets than this a share of retransmitted segments means little.
const MEANINGFUL_PACKETS: u64 = 20;

/// What connections are ranked by. The largest value comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortOrder {
    /// Share of retransmitted segments.
    Retransmitted,
    /// Retransmitted segments.
    Retransmissions,
    /// Retransmitted octets.
    RetransmittedBytes,
    /// Time from the first to the last packet.
    Duration,
    /// Packets.
    Packets,
    /// Payload octets.
    Bytes,
    /// Octets missing from the capture, between octets that are in it.
    Missing,
    /// Packets that the capture duplicated.
    Duplicates,
    /// Out-of-order segments.
    OutOfOrder,
    /// Zero-window announcements.
    ZeroWindow,
    /// Round-trip time of the handshake, both sides together.
    Rtt,
    /// Time of the first packet, earliest first.
    Start,
}

/// Each order with its name and its description, in the sequence of the type.
const ORDERS: [(SortOrder, &str, &str); 12] = [
    (SortOrder::Retransmitted, "retransmitted", "share of retransmitted segments"),
    (SortOrder::Retransmissions, "retransmissions", "retransmitted segments"),
    (SortOrder::RetransmittedBytes, "retransmitted-bytes", "retransmitted octets"),
    (SortOrder::Duration, "duration", "time from the first to the last packet"),
    (SortOrder::Packets, "packets", "packets"),
    (SortOrder::Bytes, "bytes", "payload octets"),
    (SortOrder::Missing, "missing", "octets missing from the capture, between octets that are in it"),
    (SortOrder::Duplicates, "duplicates", "packets duplicated by the capture"),
    (SortOrder::OutOfOrder, "out-of-order", "out-of-order segments"),
    (SortOrder::ZeroWindow, "zero-window", "zero-window announcements"),
    (SortOrder::Rtt, "rtt", "round-trip time of the handshake, both sides together"),
    (SortOrder::Start, "start", "time of the first packet, earliest first"),
];

impl SortOrder {
    /// All orders.
    pub fn all() -> impl Iterator<Item = Self> {
        ORDERS.iter().map(|&(order, ..)| order)
    }

    /// The name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        ORDERS[self as usize].1
    }

    /// What it ranks by, for people.
    pub fn description(self) -> &'static str {
        ORDERS[self as usize].2
    }

    /// Connections of fewer packets are ranked last by default.
    pub fn default_min_packets(self) -> u64 {
        if self == Self::Retransmitted { MEANINGFUL_PACKETS } else { 1 }
    }
}

/// Sorts connections by an order: those that never opened, those that were reset, those of at least
/// `min_packets`, then all others. Returns how many failed.
pub(crate) fn rank(connections: &mut [Connection], order: SortOrder, min_packets: u64) -> usize {
    let value = |connection: &Connection| match order {
        SortOrder::Retransmitted | SortOrder::Retransmissions => connection.sum(retransmitted_segments),
        SortOrder::RetransmittedBytes => connection.sum(|report| report.retransmitted_bytes),
        SortOrder::Duration => connection.duration_ns(),
        SortOrder::Packets => connection.total_packets(),
        SortOrder::Bytes => connection.sum(payload_bytes),
        SortOrder::Missing => connection.sum(|report| report.missing_bytes),
        SortOrder::Duplicates => connection.sum(duplicate_segments),
        SortOrder::OutOfOrder => connection.sum(|report| report.count(SegmentClass::OutOfOrder).segments),
        SortOrder::ZeroWindow => connection.sum(|report| report.zero_windows),
        SortOrder::Rtt => connection.handshake_rtt_ns(),
        SortOrder::Start => u64::MAX - connection.first_ns,
    };
    // The bits of a number that is not negative have the order of the number.
    let share = |connection: &Connection| match order {
        SortOrder::Retransmitted => connection.retransmitted_share().to_bits(),
        _ => 0,
    };
    let group = |connection: &Connection| match connection.failure() {
        Some(failure) if failure.is_before_opening() => 0,
        Some(_) => 1,
        None if connection.total_packets() >= min_packets => 2,
        None => 3,
    };
    // The endpoints decide last, so that the same capture always gives the same list.
    connections.sort_unstable_by_key(|c| (Reverse(c.total_packets()), c.first_ns, c.client, c.server, c.last_ns));
    connections.sort_by_cached_key(|c| (group(c), Reverse(share(c)), Reverse(value(c))));
    connections.partition_point(|connection| connection.failure().is_some())
}
