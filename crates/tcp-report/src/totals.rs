//! Sums over all connections of a run.

use crate::connection::{Connection, duplicate_segments, payload_bytes, retransmitted_segments, sequenced_segments};
use weir_tcp::{SegmentClass, SegmentCount};

/// Sums over all connections. In pairs the clients' value comes first.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Connections.
    pub connections: u64,
    /// Packets of connections.
    pub packets: u64,
    /// Payload octets, duplicates included.
    pub payload_bytes: u64,
    /// Both sides together, by number of [`SegmentClass`].
    pub classes: [SegmentCount; SegmentClass::COUNT],
    /// Retransmitted segments.
    pub retransmitted: [u64; 2],
    /// Segments that occupy sequence numbers: with payload, SYN or FIN.
    pub sequenced: [u64; 2],
    /// Packets that the capture duplicated.
    pub duplicates: u64,
    /// Payload octets of these.
    pub duplicate_bytes: u64,
    /// Payload octets seen for the first time.
    pub unique_bytes: u64,
    /// Payload octets seen before.
    pub retransmitted_bytes: u64,
    /// Retransmissions that also bring new octets.
    pub partial_retransmissions: u64,
    /// Retransmissions of which everything was acknowledged before.
    pub spurious_retransmissions: u64,
    /// Segments that announce a window of 0.
    pub zero_windows: [u64; 2],
    /// Payload octets missing from the capture, between octets that are in it.
    pub missing_bytes: u64,
    /// Connections with missing octets.
    pub with_missing: u64,
    /// Connections that the capture has one direction of.
    pub one_way: u64,
    /// Connections without a SYN in the capture.
    pub without_syn: u64,
    /// Connections by bit of [`Degradation`].
    pub degraded: [u64; 8],
    /// Connections with any of these bits.
    pub any_degraded: u64,
    /// Time of the first packet, ns since 1970-01-01 UTC.
    pub first_ns: u64,
    /// Time of the last packet, ns since 1970-01-01 UTC.
    pub last_ns: u64,
    /// Round-trip times of handshakes, ns, ascending: on the client side of the capture point, and
    /// on the server side.
    pub handshake_rtts_ns: [Vec<u64>; 2],
}

impl Totals {
    /// Adds up connections.
    pub fn new(connections: &[Connection]) -> Self {
        let mut totals = Self { first_ns: u64::MAX, ..Self::default() };
        connections.iter().for_each(|connection| totals.add(connection));
        totals.handshake_rtts_ns.iter_mut().for_each(|times| times.sort_unstable());
        totals
    }

    fn add(&mut self, connection: &Connection) {
        self.connections += 1;
        self.packets += connection.total_packets();
        self.first_ns = self.first_ns.min(connection.first_ns);
        self.last_ns = self.last_ns.max(connection.last_ns);
        let reports = connection.reports();
        let missing: u64 = reports.iter().map(|report| report.missing_bytes).sum();
        self.missing_bytes += missing;
        self.with_missing += u64::from(missing > 0);
        self.one_way += u64::from(connection.is_one_way());
        self.without_syn += u64::from(reports.iter().all(|report| report.syn_window.is_none()));
        let degradation = reports.iter().fold(0, |bits, report| bits | report.degradation.0);
        self.any_degraded += u64::from(degradation != 0);
        for (bit, count) in self.degraded.iter_mut().enumerate() {
            *count += u64::from(degradation >> bit & 1);
        }
        for (side, report) in reports.iter().enumerate() {
            for (sum, count) in self.classes.iter_mut().zip(&report.classes) {
                sum.segments += count.segments;
                sum.bytes += count.bytes;
            }
            self.payload_bytes += payload_bytes(report);
            self.retransmitted[side] += retransmitted_segments(report);
            self.sequenced[side] += sequenced_segments(report);
            self.duplicates += duplicate_segments(report);
            self.duplicate_bytes +=
                report.count(SegmentClass::Duplicate).bytes + report.count(SegmentClass::RoutedDuplicate).bytes;
            self.unique_bytes += report.unique_bytes;
            self.retransmitted_bytes += report.retransmitted_bytes;
            self.partial_retransmissions += report.partial_retransmissions;
            self.spurious_retransmissions += report.spurious_retransmissions;
            self.zero_windows[side] += report.zero_windows;
            self.handshake_rtts_ns[side].extend(report.handshake_rtt_ns);
        }
    }

    /// Segments and payload octets of a class.
    pub fn count(&self, class: SegmentClass) -> SegmentCount {
        self.classes[class as usize]
    }

    /// Connections with a bit of [`Degradation`].
    pub fn with_degradation(&self, bit: u8) -> u64 {
        self.degraded[bit.trailing_zeros() as usize]
    }
}
