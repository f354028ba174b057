//! The sums of a group of records.

use weir_fields::{RowFigures, server_responses, summed_rtt_ns};
use weir_flow::FlowRecord;

/// Sums over records. Of the two directions, the first is that of the initiator; in a group of a
/// side (a host), what this side sent and what it received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Number of records.
    pub flows: u64,
    /// Packets of both directions.
    pub packets: [u64; 2],
    /// IP octets of both directions.
    pub bytes: [u64; 2],
    /// Packets between two sides of one group: they are in both values of `packets`.
    pub inner_packets: u64,
    /// IP octets of these packets.
    pub inner_bytes: u64,
    /// Octets on the wire, both directions together.
    pub l2_bytes: u64,
    /// Earliest packet, ns since 1970 UTC; `u64::MAX` without records.
    pub first_ns: u64,
    /// Latest packet.
    pub last_ns: u64,
    /// TCP segments with payload, SYN or FIN.
    pub segments: u64,
    /// Of these, retransmitted.
    pub retransmitted: u64,
    /// TCP connections with a known initial round trip, of one SYN of each side.
    pub rtts: u64,
    /// Sum of these round trips, ns.
    pub rtt_sum_ns: u64,
    /// Longest of these round trips, ns.
    pub rtt_max_ns: u64,
    /// Answers of TCP servers with a known response time.
    pub responses: u64,
    /// Sum of these response times, ns.
    pub response_sum_ns: u64,
    /// Longest of these response times, ns.
    pub response_max_ns: u64,
    /// IP octets of both directions of records that span several intervals: they are spread evenly
    /// over the time of the record.
    pub spread_bytes: u64,
}

impl Default for Sums {
    fn default() -> Self {
        Self::NONE
    }
}

impl Sums {
    pub(crate) const NONE: Self = Self {
        flows: 0,
        packets: [0; 2],
        bytes: [0; 2],
        inner_packets: 0,
        inner_bytes: 0,
        l2_bytes: 0,
        first_ns: u64::MAX,
        last_ns: 0,
        segments: 0,
        retransmitted: 0,
        rtts: 0,
        rtt_sum_ns: 0,
        rtt_max_ns: 0,
        responses: 0,
        response_sum_ns: 0,
        response_max_ns: 0,
        spread_bytes: 0,
    };

    /// The figures of one record.
    pub(crate) fn of(flow: &FlowRecord) -> Self {
        let mut sums = Self {
            flows: 1,
            packets: [flow.forward.packets, flow.reverse.packets],
            bytes: [flow.forward.bytes, flow.reverse.bytes],
            l2_bytes: flow.frame_bytes(),
            first_ns: flow.start_ns(),
            last_ns: flow.end_ns(),
            ..Self::NONE
        };
        for report in flow.tcp.iter().flatten() {
            sums.segments += report.sequenced_segments();
            sums.retransmitted += report.retransmitted_segments();
        }
        if let Some(rtt_ns) = summed_rtt_ns(flow) {
            (sums.rtts, sums.rtt_sum_ns, sums.rtt_max_ns) = (1, rtt_ns, rtt_ns);
        }
        if let Some(times) = server_responses(flow) {
            (sums.responses, sums.response_sum_ns, sums.response_max_ns) = (times.count, times.sum_ns, times.max_ns);
        }
        sums
    }

    /// The figures of one stored row.
    #[inline]
    pub(crate) fn of_stored(row: &RowFigures) -> Self {
        Self {
            flows: 1,
            packets: row.packets,
            bytes: row.bytes,
            l2_bytes: row.l2_bytes,
            first_ns: row.first_ns,
            last_ns: row.last_ns,
            segments: row.segments,
            retransmitted: row.retransmitted,
            rtts: u64::from(row.rtt_ns.is_some()),
            rtt_sum_ns: row.rtt_ns.unwrap_or_default(),
            rtt_max_ns: row.rtt_ns.unwrap_or_default(),
            responses: row.responses,
            response_sum_ns: row.response_sum_ns,
            response_max_ns: row.response_max_ns,
            ..Self::NONE
        }
    }

    /// The same from the other side.
    pub(crate) fn of_other_side(self) -> Self {
        let swapped = |[one, other]: [u64; 2]| [other, one];
        Self { packets: swapped(self.packets), bytes: swapped(self.bytes), ..self }
    }

    /// The figures in the group of both sides: all that one sends the other receives.
    pub(crate) fn of_both_sides(self) -> Self {
        let (packets, bytes) = (self.all_packets(), self.all_bytes());
        Self { packets: [packets; 2], bytes: [bytes; 2], inner_packets: packets, inner_bytes: bytes, ..self }
    }

    /// The part of the figures in a part of the time of one record, from `from_ns` to `to_ns` of its
    /// time. The parts of consecutive times add up to the whole. The record itself and its times
    /// count at its start.
    pub(crate) fn part(self, from_ns: u64, to_ns: u64) -> Self {
        let length = self.last_ns - self.first_ns;
        let until = |amount: u64, ns: u64| match amount.checked_mul(ns) {
            // Several times as fast.
            Some(product) => product / length.max(1),
            None => (u128::from(amount) * u128::from(ns) / u128::from(length.max(1))) as u64,
        };
        let part = |amount: u64| if amount == 0 { 0 } else { until(amount, to_ns) - until(amount, from_ns) };
        let both = |amounts: [u64; 2]| amounts.map(part);
        let bytes = both(self.bytes);
        let starts = if from_ns == 0 { self } else { Self::NONE };
        Self {
            flows: starts.flows,
            packets: both(self.packets),
            bytes,
            inner_packets: 0,
            inner_bytes: 0,
            l2_bytes: part(self.l2_bytes),
            first_ns: self.first_ns + from_ns,
            last_ns: self.first_ns + to_ns,
            segments: part(self.segments),
            retransmitted: part(self.retransmitted),
            rtts: starts.rtts,
            rtt_sum_ns: starts.rtt_sum_ns,
            rtt_max_ns: starts.rtt_max_ns,
            responses: starts.responses,
            response_sum_ns: starts.response_sum_ns,
            response_max_ns: starts.response_max_ns,
            spread_bytes: bytes[0] + bytes[1],
        }
    }

    /// Whether the sums of a part of a record change no other sums.
    pub(crate) fn is_nothing(&self) -> bool {
        Self { first_ns: u64::MAX, last_ns: 0, ..*self } == Self::NONE
    }

    /// Adds other sums.
    pub fn merge(&mut self, other: &Self) {
        self.flows += other.flows;
        for side in 0..2 {
            self.packets[side] += other.packets[side];
            self.bytes[side] += other.bytes[side];
        }
        self.inner_packets += other.inner_packets;
        self.inner_bytes += other.inner_bytes;
        self.l2_bytes += other.l2_bytes;
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.segments += other.segments;
        self.retransmitted += other.retransmitted;
        self.rtts += other.rtts;
        self.rtt_sum_ns = self.rtt_sum_ns.saturating_add(other.rtt_sum_ns);
        self.rtt_max_ns = self.rtt_max_ns.max(other.rtt_max_ns);
        self.responses += other.responses;
        self.response_sum_ns = self.response_sum_ns.saturating_add(other.response_sum_ns);
        self.response_max_ns = self.response_max_ns.max(other.response_max_ns);
        self.spread_bytes += other.spread_bytes;
    }

    /// Packets of both directions together.
    pub fn all_packets(&self) -> u64 {
        self.packets[0] + self.packets[1] - self.inner_packets
    }

    /// IP octets of both directions together.
    pub fn all_bytes(&self) -> u64 {
        self.bytes[0] + self.bytes[1] - self.inner_bytes
    }

    /// Time from the earliest to the latest packet, ns.
    pub fn duration_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }

    /// Retransmitted segments per segment; `None` without segments.
    pub fn retransmitted_share(&self) -> Option<f64> {
        (self.segments > 0).then(|| self.retransmitted as f64 / self.segments as f64)
    }

    /// Mean initial round trip, ns; `None` if none is known.
    pub fn rtt_mean_ns(&self) -> Option<u64> {
        self.rtt_sum_ns.checked_div(self.rtts)
    }

    /// Mean response time, ns; `None` if none is known.
    pub fn response_mean_ns(&self) -> Option<u64> {
        self.response_sum_ns.checked_div(self.responses)
    }
}
