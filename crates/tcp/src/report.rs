//! What a direction of a connection told: the classes of its segments, and what was found besides.

/// What a segment was. Each is of one class: the first that applies, in this order (`docs/tcp.md` section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SegmentClass {
    /// No whole TCP header: a later fragment, or cut by the capture.
    Unread = 0,
    /// A copy made on the way to the probe: the same packet with the same TTL.
    Duplicate = 1,
    /// The same packet with another TTL: seen before and behind a router.
    RoutedDuplicate = 2,
    /// RST.
    Reset = 3,
    /// SYN that begins a direction.
    Syn = 4,
    /// The same SYN again.
    SynRetransmission = 5,
    /// Payload or FIN more than 2^30 away from what is known.
    OutOfWindow = 6,
    /// At most one octet, the one before the next.
    KeepAlive = 7,
    /// One new octet into a closed window.
    ZeroWindowProbe = 8,
    /// No payload, no SYN, no FIN.
    Acknowledgment = 9,
    /// One that repeats an acknowledgment while more is on the way.
    DuplicateAcknowledgment = 10,
    /// Payload or FIN at or beyond the highest octet seen.
    InOrder = 11,
    /// At least one octet, or the FIN, was seen before.
    Retransmission = 12,
    /// Fills a hole soon after it opened.
    OutOfOrder = 13,
    /// Fills a hole later: the original was lost before the probe.
    UnseenRetransmission = 14,
}

impl SegmentClass {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// In the order of their numbers.
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

    /// A word for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Duplicate => "duplicate",
            Self::RoutedDuplicate => "routed duplicate",
            Self::Reset => "reset",
            Self::Syn => "syn",
            Self::SynRetransmission => "syn repeated",
            Self::OutOfWindow => "out of window",
            Self::KeepAlive => "keep-alive",
            Self::ZeroWindowProbe => "zero-window probe",
            Self::Acknowledgment => "acknowledgment",
            Self::DuplicateAcknowledgment => "duplicate acknowledgment",
            Self::InOrder => "in order",
            Self::Retransmission => "retransmission",
            Self::OutOfOrder => "out of order",
            Self::UnseenRetransmission => "retransmission of what was lost before",
        }
    }
}

/// Segments, and octets of their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C)]
pub struct SegmentCount {
    /// Segments.
    pub segments: u64,
    /// Octets of payload by the IP length.
    pub bytes: u64,
}

/// In which way an analysis is not exact: a set of bits, 0 for an exact one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Degradation(pub u8);

impl Degradation {
    /// More than [`crate::MAX_HOLES`] holes at a time: the lowest was taken as seen.
    pub const HOLES: u8 = 1;
    /// A copy was found at the fourth of four places, or beyond the 32nd of 64, so that others may have been forgotten.
    pub const DUPLICATES: u8 = 2;
    /// Sequence numbers jumped: what was known was given up for what came.
    pub const JUMP: u8 = 4;
    /// A SYN with another sequence number in a connection that had not ended.
    pub const REUSED: u8 = 8;
    /// Packets without a whole TCP header: later fragments, or cut by the capture; or first fragments, of which the rest is
    /// not read.
    pub const UNREAD: u8 = 16;
    /// There was no room for what is out of the ordinary: segments of some classes were not told from others.
    pub const POOL_FULL: u8 = 32;

    const NAMES: [(u8, &'static str); 6] = [
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

    /// The words for the bits that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(bit, _)| self.0 & bit != 0).map(|(_, name)| name)
    }
}

/// What one direction told in one record. Counts are of the record; the handshake, sizes by sequence numbers and
/// holes that are open are of the connection so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpReport {
    /// By number of [`SegmentClass`]. They add up to the packets of the direction.
    pub classes: [SegmentCount; SegmentClass::COUNT],
    /// Octets that had been seen before, of segments that are no copies and no keep-alives.
    pub retransmitted_bytes: u64,
    /// Octets seen for the first time: of the union of all ranges, what this record added.
    pub unique_bytes: u64,
    /// Retransmissions with octets or a FIN not seen before, too.
    pub partial_retransmissions: u64,
    /// Retransmissions of nothing but what had been acknowledged.
    pub spurious_retransmissions: u64,
    /// Segments with FIN, copies left out.
    pub fins: u64,
    /// Segments that announced a window of 0, copies and RST left out.
    pub zero_windows: u64,
    /// Largest hole that opened, octets.
    pub largest_hole_bytes: u64,
    /// Octets in holes that are open at the end of the record, or were settled: never seen so far.
    pub missing_bytes: u64,
    /// In which way it is not exact.
    pub degradation: Degradation,
    /// What its first SYN announced: the window, not scaled.
    pub syn_window: Option<u16>,
    /// Its maximum segment size option, octets.
    pub maximum_segment_size: Option<u16>,
    /// Its window scale option, bits.
    pub window_scale: Option<u8>,
    /// How long the sender took to answer the other side's SYN, seen from the probe, ns.
    pub handshake_rtt_ns: Option<u64>,
    /// Octets between SYN and FIN by their sequence numbers; `None` without both, or with several of one.
    pub size_by_sequence_bytes: Option<u64>,
    /// Time from the first SYN to the first FIN, ns; `None` as above.
    pub duration_by_sequence_ns: Option<u64>,
}

impl TcpReport {
    /// Of nothing.
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
    };

    /// Segments and octets of a class.
    pub fn count(&self, class: SegmentClass) -> SegmentCount {
        self.classes[class as usize]
    }

    /// Segments of all classes: the packets of the direction.
    pub fn segments(&self) -> u64 {
        self.classes.iter().map(|count| count.segments).sum()
    }

    /// Whether anything happened beyond SYN and RST without payload, octets in order, acknowledgments and FIN.
    pub fn has_anomalies(&self) -> bool {
        const USUAL: [SegmentClass; 4] =
            [SegmentClass::Syn, SegmentClass::Reset, SegmentClass::InOrder, SegmentClass::Acknowledgment];
        let usual: u64 = USUAL.iter().map(|&class| self.count(class).segments).sum();
        usual != self.segments()
            || self.count(SegmentClass::Syn).bytes > 0
            || self.count(SegmentClass::Reset).bytes > 0
            || self.zero_windows > 0
            || self.largest_hole_bytes > 0
            || self.missing_bytes > 0
            || self.degradation.0 != 0
    }

    /// Segments with SYN, copies left out.
    pub fn syns(&self) -> u64 {
        self.count(SegmentClass::Syn).segments + self.count(SegmentClass::SynRetransmission).segments
    }
}
