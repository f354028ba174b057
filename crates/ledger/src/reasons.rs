//! The one list of reasons. A reason is one byte: an index of a counter, a key in the JSON ledger
//! and a line in the documentation.

use serde::ser::{Serialize, SerializeMap, Serializer};

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[doc = $sentence:literal])+ $variant:ident = $key:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[doc = $sentence])+ $variant,)+ }

        impl $name {
            /// Every reason, in the order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The key in the JSON ledger.
            pub const fn key(self) -> &'static str {
                match self { $(Self::$variant => $key,)+ }
            }

            /// One sentence for people.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$variant => concat!($($sentence),+).trim_ascii(),)+ }
            }
        }

        impl From<$name> for usize {
            fn from(reason: $name) -> usize { reason as usize }
        }
    };
}

reasons! {
    /// Why a frame became no packet of any flow.
    RefusalReason {
        /// A frame without an IP packet (ARP, LLDP, ...); counted per EtherType, metered with `--layer2`.
        NonIp = "non_ip",
        /// A link type that Weir does not decode.
        LinkType = "link_type",
        /// The capture ends inside the link-layer header, a VLAN tag or the PPPoE header.
        LinkTruncated = "link_truncated",
        /// The capture ends inside the MPLS label stack.
        MplsTruncated = "mpls_truncated",
        /// More headers between link and IP, or more labels in a stack, than the decoder's bound of 16.
        TooManyHeaders = "too_many_headers",
        /// What should be IP has another version number.
        IpVersion = "ip_version",
        /// The capture ends inside the fixed IPv4 header.
        Ipv4Truncated = "ipv4_truncated",
        /// IPv4 header length below 5 words.
        Ipv4HeaderLength = "ipv4_header_length",
        /// IPv4 total length shorter than its own header.
        Ipv4TotalLength = "ipv4_total_length",
        /// The capture ends inside the fixed IPv6 header.
        Ipv6Truncated = "ipv6_truncated",
    }
}

reasons! {
    /// What was odd about a packet that was metered all the same.
    PacketAnomaly {
        /// The IP header gives no length (0, as segmentation offload does): it was taken from the frame.
        LengthFromFrame = "length_from_frame",
        /// The IP header claims more octets than the frame had on the wire; the header is believed.
        LengthBeyondFrame = "length_beyond_frame",
        /// The capture ends before the ports: they count as 0.
        PortsNotCaptured = "ports_not_captured",
        /// The IP packet itself ends inside the transport header, or that header is impossible: ports that are not there count as 0.
        TransportMalformed = "transport_malformed",
        /// An IPv4 option or IPv6 extension header is cut or impossible: the packet is metered without ports.
        ExtensionMalformed = "extension_malformed",
        /// Encapsulation deeper than the bound: metered at the last level entered.
        TunnelTooDeep = "tunnel_too_deep",
        /// A tunnel header is cut or impossible: metered on the outer addresses.
        TunnelMalformed = "tunnel_malformed",
        /// A later fragment whose first fragment was not seen: ports count as 0.
        FragmentUnattributed = "fragment_unattributed",
        /// The packet is older than the newest by more than 1 s: time went back.
        ClockWentBack = "clock_went_back",
        /// The capture gives no time for it, or one outside 1970-2554: the time of the packet before, or the nearest possible one, was taken.
        TimeClamped = "time_assumed",
        /// The table was full: summed per prefix and port into an overflow record.
        Overflow = "overflow",
        /// Under overload: of a new flow, and summed per prefix and port into an overflow record.
        Aggregated = "aggregated",
        /// The table was full: its new flow took the place of one that was still open, whose record ended early.
        Evicted = "flow_evicted",
    }
}

reasons! {
    /// Why a flow record did not reach a sink.
    ExportLossReason {
        /// NetFlow v5 carries IPv4 only.
        NotIpv4 = "not_ipv4",
        /// The format cannot carry a layer-2 flow.
        NotIp = "not_ip",
        /// The collector's host refused the datagram (ICMP port unreachable).
        CollectorRefused = "collector_refused",
        /// The operating system did not take the datagram or the file's bytes.
        WriteFailed = "write_failed",
        /// The reader of our output went away.
        Closed = "output_closed",
        /// The sinks were slower than the records came, and live traffic does not wait.
        ExporterBehind = "exporter_behind",
    }
}

/// One counter per reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonCounters<R, const N: usize> {
    counts: [u64; N],
    reason: std::marker::PhantomData<R>,
}

impl<R, const N: usize> Default for ReasonCounters<R, N> {
    fn default() -> Self {
        Self { counts: [0; N], reason: std::marker::PhantomData }
    }
}

impl<R: Copy + Into<usize>, const N: usize> ReasonCounters<R, N> {
    /// Counts one.
    #[inline]
    pub fn count(&mut self, reason: R) {
        self.add(reason, 1);
    }

    /// Counts `n`.
    #[inline]
    pub fn add(&mut self, reason: R, n: u64) {
        self.counts[reason.into()] += n;
    }

    /// The count of one reason.
    pub fn get(&self, reason: R) -> u64 {
        self.counts[reason.into()]
    }

    /// The sum over all reasons.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds another tally, reason by reason.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
    }
}

macro_rules! reason_counters {
    ($($reason:ident),+) => {$(
        impl ReasonCounters<$reason, { $reason::ALL.len() }> {
            /// The reasons that were counted at least once, with their counts.
            pub fn nonzero(&self) -> impl Iterator<Item = ($reason, u64)> + '_ {
                $reason::ALL.iter().map(|&reason| (reason, self.get(reason))).filter(|&(_, n)| n > 0)
            }
        }

        impl Serialize for ReasonCounters<$reason, { $reason::ALL.len() }> {
            /// A map from key to count, only of what was counted.
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                for (reason, n) in self.nonzero() {
                    map.serialize_entry(reason.key(), &n)?;
                }
                map.end()
            }
        }
    )+};
}
reason_counters!(RefusalReason, PacketAnomaly, ExportLossReason);
