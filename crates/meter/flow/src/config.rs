//! Settings of a meter. Records depend on neither the secret nor `prefetch_packets`.

use weir_dpi::InspectionSettings;

/// Fields of the flow key beyond network, addresses, ports and protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyOptions {
    /// Both VLAN identifiers.
    pub vlan: bool,
    /// The interface.
    pub interface: bool,
    /// The tunnel's type and identifier.
    pub tunnel: bool,
    /// Unidirectional flows: each direction has its own record.
    pub unidirectional: bool,
}

impl KeyOptions {
    /// Addresses, ports and protocol; both directions in one record.
    pub(crate) const DEFAULT: Self = Self { vlan: false, interface: false, tunnel: false, unidirectional: false };

    /// Whether the key has fields beyond addresses, ports and protocol.
    #[inline(always)]
    pub(crate) fn has_extension(self) -> bool {
        self.vlan || self.interface || self.tunnel
    }
}

/// What happens to a packet of a new flow when the flow cache is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheFullPolicy {
    /// Add it to an overflow record.
    #[default]
    Overflow,
    /// End the flow that has been idle for longest among the next 16 slots.
    EvictOldestIdle,
    /// Drop it and count it.
    Drop,
}

/// Settings of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Slots in the flow cache, at least 1.
    pub flows: u32,
    /// Idle timeout, ns.
    pub idle_timeout_ns: u64,
    /// Active timeout, ns.
    pub active_timeout_ns: u64,
    /// The flow key.
    pub key: KeyOptions,
    /// Records have the MAC addresses of their packets: see [`Packet::set_mac_addresses`]. All
    /// packets take the slow path then.
    ///
    /// [`Packet::set_mac_addresses`]: weir_packet::Packet::set_mac_addresses
    pub mac_addresses: bool,
    /// What a full flow cache does with new flows.
    pub cache_full_policy: CacheFullPolicy,
    /// Secret of the key hash; `None` takes one from the operating system.
    pub secret: Option<u64>,
    /// Packets whose memory is prefetched together, 1 to 64; 1 prefetches nothing.
    pub prefetch_packets: usize,
    /// Inspection of payload; `None` inspects nothing.
    pub inspection: Option<InspectionSettings>,
    /// With inspection: nDPI inspects the same packets. Needs the cargo feature `ndpi`.
    pub second_opinion: bool,
    /// Flows have marks for a [`PacketFollower`](crate::PacketFollower).
    pub marks: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            flows: 1 << 20,
            idle_timeout_ns: 120_000_000_000,
            active_timeout_ns: 300_000_000_000,
            key: KeyOptions::default(),
            mac_addresses: false,
            cache_full_policy: CacheFullPolicy::Overflow,
            secret: None,
            prefetch_packets: 64,
            inspection: None,
            second_opinion: false,
            marks: false,
        }
    }
}

/// What a meter does beyond counting packets in records. Whatever is off, every packet is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// TCP analysis. A record with a TCP packet that was not analysed is
    /// [`crate::Approximate::UNANALYSED`] and has no TCP fields but its control bits.
    pub tcp_analysis: bool,
    /// Records for small new flows. If false, the first 8 packets of a new flow are added to
    /// overflow records by prefix and port ([`crate::Approximate::AGGREGATED`]); flows that have a
    /// record keep it.
    pub small_flows: bool,
    /// Inspection of payload, if it is configured.
    pub inspection: bool,
    /// Fingerprints of flows that are inspected: JA3, JA4, JA3S, HASSH.
    pub fingerprints: bool,
}

impl Detail {
    /// Everything.
    pub const ALL: Self = Self { tcp_analysis: true, small_flows: true, inspection: true, fingerprints: true };
}
