//! What really happened to TCP, as a probe sees it.

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One direction of a TCP conversation of the load `lossy`, in numbers. Each segment that the probe sees is
        /// in exactly one class, the first that fits in this order: copy (switched or routed), RST, SYN (first or
        /// again), keep-alive, zero-window probe, acknowledgment alone, in order, retransmission, out of order,
        /// unseen. Always true: the classes add up to `segments`, and `payload_octets` less `copied_octets`,
        /// `keep_alive_octets` and `unique_octets` is `retransmitted_octets`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ExpectedTcp {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl ExpectedTcp {
            /// The names of all numbers, as columns.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// All numbers, in the order of their names.
            pub fn values(&self) -> [u64; Self::NAMES.len()] {
                [$(self.$name),*]
            }

            /// From all numbers, in the order of their names.
            pub fn from_values([$($name),*]: [u64; Self::NAMES.len()]) -> Self {
                Self { $($name),* }
            }

            /// All classes together: `segments`.
            pub fn classes(&self) -> u64 {
                let copies = self.switched_copies + self.routed_copies;
                let special = self.rst + self.syn + self.syn_again + self.keep_alives + self.window_probes + self.acks;
                copies + special + self.in_order + self.retransmissions + self.out_of_order + self.unseen
            }
        }
    };
}

counts! {
    /// Segments seen, copies included.
    segments,
    /// Octets behind their TCP headers, copies included.
    payload_octets,
    /// Class: the first SYN.
    syn,
    /// Class: a SYN again.
    syn_again,
    /// Segments with FIN, without copies. No class.
    fin,
    /// Class: segments with RST.
    rst,
    /// Class: the very same frame again, within 100 us and behind at most 2 others of its direction.
    switched_copies,
    /// Class: the same with a TTL lower by 1.
    routed_copies,
    /// Octets in both kinds of copies.
    copied_octets,
    /// Class: 0 or 1 octet just below the highest position seen.
    keep_alives,
    /// Octets in them.
    keep_alive_octets,
    /// Class: 1 octet at the highest position seen, when the other side's last window was 0.
    window_probes,
    /// Segments that announce a window of 0, without copies and RST. No class.
    zero_windows,
    /// Class: neither octets nor FIN.
    acks,
    /// Class: begins at or beyond the highest position seen, also when it opens a hole, and when its original was lost
    /// before the probe and nothing behind that was seen. An acknowledgment alone does not raise the highest position.
    in_order,
    /// Class: an octet or the FIN was seen before.
    retransmissions,
    /// Octets in them that were seen before.
    retransmitted_octets,
    /// Retransmissions of which everything had been acknowledged in a packet that was seen before. No class.
    spurious,
    /// Class: fills a hole, late by less than 1 ms.
    out_of_order,
    /// Class: fills a hole by a retransmission whose original was never seen, 10 ms or more after the hole.
    unseen,
    /// Octets of the stream seen at least once.
    unique_octets,
}
