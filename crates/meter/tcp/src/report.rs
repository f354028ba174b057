//! The result of the analysis for one direction and one flow record.

use crate::class::{SegmentClass, SegmentCount};
use crate::times::{ResponseTimes, RoundTripTimes};

/// Reasons why an analysis is not exact: a set of bits. 0 means exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Degradation(pub u8);

impl Degradation {
    /// More than [`crate::MAX_HOLES`] holes were open at a time: the lowest counts as seen.
    pub const HOLES: u8 = 1;
    /// The original of a duplicate was one of the oldest remembered segments: others may be missed.
    pub const DUPLICATES: u8 = 2;
    /// Sequence numbers jumped: the known positions were replaced.
    pub const JUMP: u8 = 4;
    /// A SYN with another sequence number came before the connection had ended.
    pub const REUSED: u8 = 8;
    /// Packets without a whole TCP header (later fragments, or cut by the capture), or first
    /// fragments, whose rest is not read.
    pub const UNREAD: u8 = 16;
    /// The anomaly pool was full: segments of some classes count as acknowledgments.
    pub const POOL_FULL: u8 = 32;

    /// All bits with their names, as in the field `tcp_degraded`.
    pub const NAMES: [(u8, &'static str); 6] = [
        (Self::HOLES, "holes"),
        (Self::DUPLICATES, "duplicates"),
        (Self::JUMP, "jump"),
        (Self::REUSED, "reused"),
        (Self::UNREAD, "unread"),
        (Self::POOL_FULL, "room"),
    ];

    /// Whether a bit is set.
    pub fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    /// The names of the bits that are set, as in the field `tcp_degraded`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(bit, _)| self.has(*bit)).map(|(_, name)| name)
    }
}

/// Result for one direction and one flow record. Counters belong to the record; the handshake,
/// sizes by sequence number and open holes belong to the connection so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpReport {
    /// By number of [`SegmentClass`]. The segments add up to the packets of the direction.
    pub classes: [SegmentCount; SegmentClass::COUNT],
    /// Octets that had been seen before; those of duplicates and keep-alives do not count.
    pub retransmitted_bytes: u64,
    /// Octets seen for the first time: what this record added to the union of all ranges.
    pub unique_bytes: u64,
    /// Retransmissions that also had octets or a FIN not seen before.
    pub partial_retransmissions: u64,
    /// Retransmissions of which everything had been acknowledged.
    pub spurious_retransmissions: u64,
    /// Segments with FIN, without duplicates.
    pub fins: u64,
    /// Segments that announced a window of 0, without duplicates and RST.
    pub zero_windows: u64,
    /// Size of the largest hole that opened.
    pub largest_hole_bytes: u64,
    /// Octets never seen: in holes open at the end of the record, or settled or discarded in it.
    pub missing_bytes: u64,
    /// Why the report is not exact.
    pub degradation: Degradation,
    /// Window of the last SYN that started positions, not scaled.
    pub syn_window: Option<u16>,
    /// Maximum segment size option of that SYN, octets.
    pub maximum_segment_size: Option<u16>,
    /// Window scale option of that SYN, bits.
    pub window_scale: Option<u8>,
    /// Time from the other side's SYN to this side's answer, at the capture point.
    pub handshake_rtt_ns: Option<u64>,
    /// Octets between SYN and FIN by sequence number; `None` without both, or with several of one.
    pub size_by_sequence_bytes: Option<u64>,
    /// Time from the first SYN to the first FIN; `None` under the same conditions.
    pub duration_by_sequence_ns: Option<u64>,
    /// Times from the end of the other side's requests to this side's answers.
    pub responses: ResponseTimes,
    /// Times from the other side's payload to this side's acknowledgment.
    pub round_trips: RoundTripTimes,
}

impl TcpReport {
    /// Report of a direction without packets.
    pub const EMPTY: Self = Self {
        classes: [SegmentCount { segments: 0, bytes: 0 }; SegmentClass::COUNT],
        retransmitted_bytes: 0,
        unique_bytes: 0,
        partial_retransmissions: 0,
        spurious_retransmissions: 0,
        fins: 0,
        zero_windows: 0,
        largest_hole_bytes: 0,
        missing_bytes: 0,
        degradation: Degradation(0),
        syn_window: None,
        maximum_segment_size: None,
        window_scale: None,
        handshake_rtt_ns: None,
        size_by_sequence_bytes: None,
        duration_by_sequence_ns: None,
        responses: bytemuck::zeroed(),
        round_trips: bytemuck::zeroed(),
    };

    /// Adds the counters of another direction or record. Fields of the connection stay.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.classes.iter_mut().zip(&other.classes) {
            sum.segments += count.segments;
            sum.bytes += count.bytes;
        }
        self.retransmitted_bytes += other.retransmitted_bytes;
        self.unique_bytes += other.unique_bytes;
        self.partial_retransmissions += other.partial_retransmissions;
        self.spurious_retransmissions += other.spurious_retransmissions;
        self.fins += other.fins;
        self.zero_windows += other.zero_windows;
        self.largest_hole_bytes = self.largest_hole_bytes.max(other.largest_hole_bytes);
        self.missing_bytes += other.missing_bytes;
        self.degradation.0 |= other.degradation.0;
        self.responses.add(&other.responses);
        self.round_trips.add(&other.round_trips);
    }

    /// Segments and octets of a class.
    #[inline]
    pub fn count(&self, class: SegmentClass) -> SegmentCount {
        self.classes[class as usize]
    }

    /// Segments of all classes: the packets of the direction.
    #[inline]
    pub fn segments(&self) -> u64 {
        self.classes.iter().map(|count| count.segments).sum()
    }

    /// Segments with SYN, without duplicates.
    #[inline]
    pub fn syns(&self) -> u64 {
        self.count(SegmentClass::Syn).segments + self.count(SegmentClass::SynRetransmission).segments
    }

    /// Segments of some classes.
    #[inline]
    pub fn segments_of(&self, classes: &[SegmentClass]) -> u64 {
        classes.iter().map(|&class| self.count(class).segments).sum()
    }

    /// Retransmitted segments, also those whose original was lost before the capture point.
    /// Duplicates do not count.
    #[inline]
    pub fn retransmitted_segments(&self) -> u64 {
        use SegmentClass::{Retransmission, SynRetransmission, UnseenRetransmission};
        self.segments_of(&[Retransmission, UnseenRetransmission, SynRetransmission])
    }

    /// Segments that occupy sequence numbers: with payload, SYN or FIN. Duplicates, keep-alives and
    /// RST do not count.
    #[inline]
    pub fn sequenced_segments(&self) -> u64 {
        use SegmentClass::{InOrder, OutOfOrder, OutOfWindow, Syn, ZeroWindowProbe};
        self.segments_of(&[Syn, InOrder, OutOfOrder, ZeroWindowProbe, OutOfWindow]) + self.retransmitted_segments()
    }

    /// Whether the direction had anything but SYN and RST without payload, segments in order
    /// without holes, and acknowledgments.
    #[inline]
    pub fn has_anomalies(&self) -> bool {
        const NORMAL: [SegmentClass; 4] =
            [SegmentClass::Syn, SegmentClass::Reset, SegmentClass::InOrder, SegmentClass::Acknowledgment];
        self.segments_of(&NORMAL) != self.segments()
            || self.count(SegmentClass::Syn).bytes > 0
            || self.count(SegmentClass::Reset).bytes > 0
            || self.zero_windows > 0
            || self.largest_hole_bytes > 0
            || self.missing_bytes > 0
            || self.degradation.0 != 0
    }
}
