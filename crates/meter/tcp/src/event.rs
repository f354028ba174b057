//! The decisions about one segment, for programs that explain them.

use std::ops::Range;

/// A decision about one segment. Ranges are of positions: sequence numbers continued to 64 bits.
///
/// Events of one segment come in the order of the decisions.
/// [`crate::Connection::classify_observed`] reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmentEvent {
    /// The segment is a duplicate. Its original has this TTL and is the `age`th last remembered
    /// segment of the side, from 0. All segments are remembered, except duplicates, those out of
    /// window, and packets without a whole TCP header.
    Duplicate {
        /// Remembered segments between the original and the duplicate.
        age: usize,
        /// TTL of the original.
        original_ttl: u8,
    },
    /// The positions of the side start: after its SYN, or with its first payload or FIN.
    PositionsStarted {
        /// The lowest position.
        lowest: u64,
        /// Whether positions of this side were known before. They are discarded.
        restarted: bool,
    },
    /// A range of payload was seen before.
    Repeated(Range<u64>),
    /// A hole opens. There is one event per hole, also for holes below the known positions.
    HoleOpened(Range<u64>),
    /// A range of a hole is filled.
    HoleFilled(Range<u64>),
    /// The lowest hole is settled, because the side has more than [`crate::MAX_HOLES`].
    HoleSettled(Range<u64>),
    /// A retransmission of which everything had been acknowledged.
    SpuriousRetransmission,
    /// A retransmission that also brings positions not seen before.
    PartialRetransmission,
    /// The segment announces a window of 0.
    ZeroWindow,
    /// The segment answers the other side's SYN after this time.
    HandshakeAnswered {
        /// Time since that SYN.
        rtt_ns: u64,
    },
    /// The segment is the first of an answer to the other side's request.
    RequestAnswered {
        /// Time since the end of that request.
        response_ns: u64,
    },
    /// The segment acknowledges a timed segment of the other side.
    PayloadAcknowledged {
        /// Time since that segment.
        rtt_ns: u64,
    },
    /// The report of the side is not exact: one bit of [`crate::Degradation`].
    Degraded(u8),
}
