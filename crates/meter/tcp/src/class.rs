//! The classes of segments, and their counters.

/// Defines the classes with their names.
macro_rules! classes {
    ($($(#[$description:meta])+ $class:ident = $number:literal $name:literal;)+) => {
        /// What a segment was. Each packet is of exactly one class: the first whose rule applies, in
        /// the order of the table in `docs/tcp.md` section 3.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum SegmentClass {
            $($(#[$description])+ $class = $number,)+
        }

        impl SegmentClass {
            /// All classes in the order of their numbers.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$class,)+];

            /// Number of classes.
            pub const COUNT: usize = [$($number,)+].len();

            /// Name for texts.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$class => $name,)+ }
            }
        }
    };
}

classes! {
    /// No whole TCP header: a later fragment, or cut by the capture.
    Unread = 0 "unread";
    /// Duplicate made between sender and capture point: the same packet with the same TTL.
    Duplicate = 1 "duplicate";
    /// Duplicate with another TTL: captured before and behind a router.
    RoutedDuplicate = 2 "routed duplicate";
    /// RST.
    Reset = 3 "reset";
    /// SYN with a new sequence number.
    Syn = 4 "SYN";
    /// SYN with the known sequence number.
    SynRetransmission = 5 "SYN retransmission";
    /// Payload or FIN more than 2^30 octets away from the known positions, or before the SYN.
    OutOfWindow = 6 "out of window";
    /// At most one octet, at the position before the next.
    KeepAlive = 7 "keep-alive";
    /// One octet sent into a closed window.
    ZeroWindowProbe = 8 "zero-window probe";
    /// No payload, no SYN, no FIN.
    Acknowledgment = 9 "acknowledgment";
    /// Acknowledgment that repeats the one before while the other side has data outstanding.
    DuplicateAcknowledgment = 10 "duplicate acknowledgment";
    /// Payload or FIN at or beyond the next position.
    InOrder = 11 "in order";
    /// Payload or FIN of which at least one position was seen before.
    Retransmission = 12 "retransmission";
    /// Payload or FIN that fills a hole, with an older IP identification or soon after the hole opened.
    OutOfOrder = 13 "out of order";
    /// Payload or FIN that fills a hole, with a newer IP identification or later: the original was lost
    /// before the capture point.
    UnseenRetransmission = 14 "unseen retransmission";
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
