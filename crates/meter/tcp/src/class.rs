//! The classes of segments, and their counters.

/// What a segment was. Each packet is of exactly one class: the first whose rule applies, in the
/// order of the table in `docs/tcp.md` section 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SegmentClass {
    /// No whole TCP header: a later fragment, or cut by the capture.
    Unread = 0,
    /// Duplicate made between sender and capture point: the same packet with the same TTL.
    Duplicate = 1,
    /// Duplicate with another TTL: captured before and behind a router.
    RoutedDuplicate = 2,
    /// RST.
    Reset = 3,
    /// SYN with a new sequence number.
    Syn = 4,
    /// SYN with the known sequence number.
    SynRetransmission = 5,
    /// Payload or FIN more than 2^30 octets away from the known positions, or before the SYN.
    OutOfWindow = 6,
    /// At most one octet, at the position before the next.
    KeepAlive = 7,
    /// One octet sent into a closed window.
    ZeroWindowProbe = 8,
    /// No payload, no SYN, no FIN.
    Acknowledgment = 9,
    /// Acknowledgment that repeats the one before while the other side has data outstanding.
    DuplicateAcknowledgment = 10,
    /// Payload or FIN at or beyond the next position.
    InOrder = 11,
    /// Payload or FIN of which at least one position was seen before.
    Retransmission = 12,
    /// Payload or FIN that fills a hole soon after the hole opened.
    OutOfOrder = 13,
    /// Payload or FIN that fills a hole later: the original was lost before the capture point.
    UnseenRetransmission = 14,
}

impl SegmentClass {
    /// Number of classes.
    pub const COUNT: usize = Self::ALL.len();

    /// All classes in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::Unread,
        Self::Duplicate,
        Self::RoutedDuplicate,
        Self::Reset,
        Self::Syn,
        Self::SynRetransmission,
        Self::OutOfWindow,
        Self::KeepAlive,
        Self::ZeroWindowProbe,
        Self::Acknowledgment,
        Self::DuplicateAcknowledgment,
        Self::InOrder,
        Self::Retransmission,
        Self::OutOfOrder,
        Self::UnseenRetransmission,
    ];

    /// Name for texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Duplicate => "duplicate",
            Self::RoutedDuplicate => "routed duplicate",
            Self::Reset => "reset",
            Self::Syn => "SYN",
            Self::SynRetransmission => "SYN retransmission",
            Self::OutOfWindow => "out of window",
            Self::KeepAlive => "keep-alive",
            Self::ZeroWindowProbe => "zero-window probe",
            Self::Acknowledgment => "acknowledgment",
            Self::DuplicateAcknowledgment => "duplicate acknowledgment",
            Self::InOrder => "in order",
            Self::Retransmission => "retransmission",
            Self::OutOfOrder => "out of order",
            Self::UnseenRetransmission => "unseen retransmission",
        }
    }
}

/// Segments, and octets of their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C)]
pub struct SegmentCount {
    /// Segments.
    pub segments: u64,
    /// Payload octets by the IP length.
    pub bytes: u64,
}
