//! The expected TCP counters (ground truth) of the profile `lossy`, as the capture point captures
//! segments.

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one direction of a TCP conversation of the profile `lossy`. Each segment
        /// that is captured is in exactly one class, the first that fits in this order:
        /// duplicate (switched or routed), RST, SYN (first or retransmitted), keep-alive,
        /// zero-window probe, pure acknowledgment, in order, retransmission, out of order, unseen.
        /// Invariants: the classes add up to `segments`, and `payload_octets` minus
        /// `copied_octets`, `keep_alive_octets` and `unique_octets` is `retransmitted_octets`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ExpectedTcp {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl ExpectedTcp {
            /// Names of all counters, for column headers.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Returns all counters, in the order of [`Self::NAMES`].
            pub fn values(&self) -> [u64; Self::NAMES.len()] {
                [$(self.$name),*]
            }

            /// Creates it from all counters, in the order of [`Self::NAMES`].
            pub fn from_values([$($name),*]: [u64; Self::NAMES.len()]) -> Self {
                Self { $($name),* }
            }
        }
    };
}

counts! {
    /// Captured segments, including duplicates.
    segments,
    /// Octets after their TCP headers, including duplicates.
    payload_octets,
    /// Class: the first SYN.
    syn,
    /// Class: retransmitted SYN.
    syn_again,
    /// Segments with FIN, without duplicates. No class.
    fin,
    /// Class: segments with RST.
    rst,
    /// Class: the same frame again, within 100 us and after at most 2 others of its direction.
    switched_copies,
    /// Class: the same with a TTL lower by 1.
    routed_copies,
    /// Octets in both kinds of duplicates.
    copied_octets,
    /// Class: 0 or 1 octet just below the highest captured position.
    keep_alives,
    /// Octets in them.
    keep_alive_octets,
    /// Class: 1 octet at the highest captured position while the receiver's last window was 0.
    window_probes,
    /// Segments with a window of 0, without duplicates and RST. No class.
    zero_windows,
    /// Class: neither octets nor FIN.
    acks,
    /// Class: begins at or above the highest captured position, also when it leaves a gap, and when
    /// it is a retransmission whose original was lost before the capture point and nothing after it was
    /// captured. A pure acknowledgment does not advance the next position.
    in_order,
    /// Class: an octet or the FIN was captured before.
    retransmissions,
    /// Octets in them that were captured before.
    retransmitted_octets,
    /// Retransmissions that were completely acknowledged in a packet captured before. No class.
    spurious,
    /// Class: fills a gap, delayed by less than 1 ms.
    out_of_order,
    /// Class: fills a gap by a retransmission whose original was not captured, 10 ms or more after
    /// the gap.
    unseen,
    /// Octets of the stream captured at least once.
    unique_octets,
    /// Answers of this side: payload in order that acknowledges the whole request of the other side.
    answers,
    /// Time from the last payload of the request to the answer, ns: of the first answer.
    answer_first_ns,
    /// The longest.
    answer_max_ns,
    /// The sum.
    answer_sum_ns,
    /// Acknowledgments by this side of a timed segment of the other side: one after the other, and
    /// only if that side sent nothing but segments in order meanwhile.
    round_trips,
    /// Time from the timed segment to its acknowledgment, ns: the shortest.
    round_trip_min_ns,
    /// The longest.
    round_trip_max_ns,
    /// The sum.
    round_trip_sum_ns,
    /// Time that this side thought before its answers, ns, as far as they were captured. It is a
    /// part of `answer_sum_ns`.
    thought_ns,
}
