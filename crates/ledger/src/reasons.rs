//! All reasons for which a frame, a packet or a flow record is counted separately. A reason is one
//! byte: the index of a counter, with a key in the JSON ledger and a sentence for people.

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

            /// Describes the reason in one sentence.
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
    /// Why the decoder refused a frame, so that it is in no flow record.
    RefusalReason {
        /// The frame carries no IP packet (ARP, LLDP, ...). It is counted per EtherType; `--layer2`
        /// meters it.
        NonIp = "non_ip",
        /// Weir does not decode this link type.
        LinkType = "link_type",
        /// The capture ends inside a link-layer header (Ethernet, VLAN tag, PPPoE, LLC, ...).
        LinkTruncated = "link_truncated",
        /// A link-layer header is impossible: an NFLOG attribute is shorter than its own header, or
        /// ends beyond the frame.
        LinkMalformed = "link_malformed",
        /// The capture ends inside the MPLS label stack.
        MplsTruncated = "mpls_truncated",
        /// More than 16 headers precede IP, or a label stack has more than 16 labels.
        TooManyHeaders = "too_many_headers",
        /// The version number in the IP header is wrong.
        IpVersion = "ip_version",
        /// The capture ends inside the fixed IPv4 header.
        Ipv4Truncated = "ipv4_truncated",
        /// The IPv4 header length is below 20 octets.
        Ipv4HeaderLength = "ipv4_header_length",
        /// The IPv4 total length is shorter than the header.
        Ipv4TotalLength = "ipv4_total_length",
        /// The capture ends inside the fixed IPv6 header.
        Ipv6Truncated = "ipv6_truncated",
        /// The record in a file of packet records has values that no packet has: the file is damaged.
        RecordMalformed = "record_malformed",
    }
}

reasons! {
    /// What is unusual about a packet that is metered.
    PacketAnomaly {
        /// The IP header has length 0, as segmentation offload leaves it: the length is taken from
        /// the frame.
        LengthFromFrame = "length_from_frame",
        /// The length in the IP header is longer than the frame on the wire: the length in the
        /// header counts, up to 65535 octets, else that of the frame.
        LengthBeyondFrame = "length_beyond_frame",
        /// The capture ends before the ports: both ports are 0.
        PortsNotCaptured = "ports_not_captured",
        /// The IP packet ends inside the transport header, or that header is impossible: a missing
        /// port is 0.
        TransportMalformed = "transport_malformed",
        /// The IPv4 options or an IPv6 extension header are truncated or impossible: the packet has
        /// no ports.
        ExtensionMalformed = "extension_malformed",
        /// More than 8 nested tunnels: the packet of the eighth tunnel is metered.
        TunnelTooDeep = "tunnel_too_deep",
        /// A tunnel header is truncated or impossible: the outer packet is metered.
        TunnelMalformed = "tunnel_malformed",
        /// The first fragment of this later fragment was not captured: both ports are 0.
        FragmentUnattributed = "fragment_unattributed",
        /// The capture time is more than 1 s earlier than the latest one: the clock went back.
        ClockWentBack = "clock_went_back",
        /// The capture gives no time, or one outside 1970-2554: the time of the previous packet, or
        /// the nearest possible time, is used.
        TimeAssumed = "time_assumed",
        /// The flow cache was full: the packet is counted in an overflow record per prefix and
        /// port.
        Overflow = "overflow",
        /// The packet belongs to a new flow under overload: it is counted in an overflow record per
        /// prefix and port.
        Aggregated = "aggregated",
        /// The packet began a flow when the flow cache was full: the record of another active flow
        /// was ended early.
        Evicted = "flow_evicted",
    }
}

reasons! {
    /// Why a flow record was not exported by a sink.
    ExportLossReason {
        /// NetFlow v5 supports IPv4 only.
        NotIpv4 = "not_ipv4",
        /// The format does not support layer-2 flows.
        NotIp = "not_ip",
        /// The host of the collector refused the datagram (ICMP port unreachable), or a broker of Kafka the message.
        CollectorRefused = "collector_refused",
        /// The collector could not be reached: its name has no address, there is no route, or it refuses or ends
        /// connections.
        CollectorUnreachable = "collector_unreachable",
        /// Too many records waited for the connection to the collector (`?buffer=`).
        BufferFull = "buffer_full",
        /// The record needs more than the longest datagram (`?size=`).
        TooLong = "too_long",
        /// The spool had reached its limit (`spool=`): its oldest records were dropped.
        SpoolFull = "spool_full",
        /// A file of the spool was damaged or missing when it was read.
        SpoolDamaged = "spool_damaged",
        /// Files of the spool were damaged or missing, with those that say what was delivered: these records were
        /// delivered or lost. The newest ones may be lost without being counted.
        SpoolUnknown = "spool_unknown",
        /// The operating system rejected the write to the socket or file.
        WriteFailed = "write_failed",
        /// The reader of the output closed it.
        OutputClosed = "output_closed",
        /// The sink was slower than the meter, and live traffic does not wait.
        ExporterBehind = "exporter_behind",
        /// The sink had not accepted the record when the time for the end of the run was over
        /// (`--drain-timeout`), or when a second signal came.
        DrainTimeout = "drain_timeout",
        /// The thread of the sink panicked, because of an error in Weir.
        InternalError = "internal_error",
    }
}

reasons! {
    /// Why a packet was not sent by an output.
    OutputDropReason {
        /// The consumer was slower than the traffic, and the queue was full.
        QueueFull = "queue_full",
        /// The interface refused the packet: it has no link, or no room.
        InterfaceRefused = "interface_refused",
        /// The packet is longer than the interface can send.
        TooLong = "too_long",
        /// The output has no place for packets of this link type.
        LinkType = "link_type",
        /// The reader of the output closed it.
        Closed = "closed",
        /// The operating system rejected the write: the disk is full, or a device failed.
        WriteFailed = "write_failed",
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
    /// Adds 1 to the counter of a reason.
    #[inline]
    pub fn count(&mut self, reason: R) {
        self.add(reason, 1);
    }

    /// Adds `n` to the counter of a reason.
    #[inline]
    pub fn add(&mut self, reason: R, n: u64) {
        self.counts[reason.into()] += n;
    }

    /// The counter of one reason.
    pub fn get(&self, reason: R) -> u64 {
        self.counts[reason.into()]
    }

    /// The sum over all reasons.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds other counters, reason by reason.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
    }
}

macro_rules! reason_counters {
    ($($reason:ident),+) => {$(
        impl ReasonCounters<$reason, { $reason::ALL.len() }> {
            /// The reasons with counters above 0.
            pub fn nonzero(&self) -> impl Iterator<Item = ($reason, u64)> + '_ {
                $reason::ALL.iter().map(|&reason| (reason, self.get(reason))).filter(|&(_, n)| n > 0)
            }
        }

        impl Serialize for ReasonCounters<$reason, { $reason::ALL.len() }> {
            /// A map from key to counter, without the counters that are 0.
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
