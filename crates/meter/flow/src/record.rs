//! Bidirectional flow records.

use crate::key::tunnel_id;
use crate::places::Places;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use weir_dpi::{Findings, Note};
use weir_packet::{NO_LABEL, NO_VLAN, Network, Packet, TunnelType, ip_address};
use weir_tcp::TcpReport;

/// Why a record ended; the numbers of IPFIX `flowEndReason` (element 136).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum EndReason {
    /// No packet for the idle timeout.
    Idle = 1,
    /// The record reached the active timeout; the flow may go on in another record.
    Active = 2,
    /// TCP: FIN from both endpoints, or RST.
    EndOfFlow = 3,
    /// The input ended, or the probe was stopped.
    Forced = 4,
    /// The flow cache was full.
    LackOfResources = 5,
}

impl EndReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Active, Self::EndOfFlow, Self::Forced, Self::LackOfResources];

    /// The value of the field `end_reason`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Active => "active",
            Self::EndOfFlow => "end",
            Self::Forced => "forced",
            Self::LackOfResources => "resources",
        }
    }
}

/// In which ways a record is not exact: a set of bits, 0 for an exact one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Approximate(pub u16);

impl Approximate {
    /// An overflow record: the sum of flows by prefix and port, because the cache was full.
    pub const OVERFLOW: u16 = 1;
    /// Packets of one direction had different VLAN identifiers; the first is given.
    pub const MIXED_VLAN: u16 = 2;
    /// Packets of one direction had different MPLS labels; the first is given.
    pub const MIXED_MPLS: u16 = 4;
    /// Packets of one direction came through different tunnels; the first is given.
    pub const MIXED_TUNNEL: u16 = 8;
    /// Packets came in on different interfaces; the first is given.
    pub const MIXED_INTERFACE: u16 = 16;
    /// Some packets are fragments whose first fragment was not seen.
    pub const FRAGMENTS: u16 = 32;
    /// TCP analysis missed packets: the record has no TCP fields but the control bits.
    pub const UNANALYSED: u16 = 64;
    /// Packets were sampled while the record was open, see [`FlowRecord::sampling`].
    pub const SAMPLED: u16 = 128;
    /// With [`Approximate::OVERFLOW`]: a sum of small new flows under overload. Without: the record
    /// began under overload, and its first packets may be in such a sum.
    pub const AGGREGATED: u16 = 256;
    /// The system's clock was set while the record was open: its times are those of the clock after
    /// the step, without a jump.
    pub const CLOCK_SET: u16 = 512;
    /// Packets of one direction had different MAC addresses; those of the first are given.
    pub const MIXED_MAC: u16 = 1024;
    /// Payload was not inspected when the flow began: its application may be one that is recognised.
    pub const UNINSPECTED: u16 = 2048;

    /// All bits with their names, as exported.
    pub const NAMES: [(u16, &'static str); 12] = [
        (Self::OVERFLOW, "overflow"),
        (Self::MIXED_VLAN, "mixed_vlan"),
        (Self::MIXED_MPLS, "mixed_mpls"),
        (Self::MIXED_TUNNEL, "mixed_tunnel"),
        (Self::MIXED_INTERFACE, "mixed_interface"),
        (Self::FRAGMENTS, "fragments"),
        (Self::UNANALYSED, "unanalysed"),
        (Self::SAMPLED, "sampled"),
        (Self::AGGREGATED, "aggregated"),
        (Self::CLOCK_SET, "clock_set"),
        (Self::MIXED_MAC, "mixed_mac"),
        (Self::UNINSPECTED, "uninspected"),
    ];

    /// Whether a bit is set.
    pub fn has(self, bit: u16) -> bool {
        self.0 & bit != 0
    }

    /// Names of the bits that are set, as exported.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(bit, _)| self.0 & bit != 0).map(|(_, name)| name)
    }
}

/// One direction of a flow record. Without packets the other fields are meaningless.
// Aligned as u64: the meter keeps tens of thousands, and as u128 each would take 16 bytes more.
#[repr(Rust, packed(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direction {
    /// Packets.
    pub packets: u64,
    /// Octets by the IP headers.
    pub bytes: u64,
    /// Octets of the frames on the wire.
    pub frame_bytes: u64,
    /// Earliest packet, nanoseconds since 1970 UTC.
    pub first_ns: u64,
    /// Latest packet.
    pub last_ns: u64,
    /// Smallest IP packet, octets.
    pub size_min: u32,
    /// Largest IP packet, octets.
    pub size_max: u32,
    /// Sum of squared packet sizes, octets², exact.
    pub size_squares: u128,
    /// Shortest inter-arrival time, ns: the time by which a packet extends the span from the
    /// earliest to the latest packet of this direction and record; 0 within the span. Meaningless
    /// below 2 packets.
    pub iat_min_ns: u64,
    /// Longest inter-arrival time, ns.
    pub iat_max_ns: u64,
    /// Sum of squared inter-arrival times, ns², exact.
    pub iat_squares: u128,
    /// Top MPLS label of the first packet, or `NO_LABEL`.
    pub mpls_label: u32,
    /// Tunnel identifier of the first packet, if it had one.
    pub tunnel_id: Option<u32>,
    /// Outermost VLAN identifier of the first packet, or `NO_VLAN`.
    pub vlan: u16,
    /// Second VLAN identifier, or `NO_VLAN`.
    pub inner_vlan: u16,
    /// TCP control bits of all packets together.
    pub tcp_flags: u16,
    /// Smallest TTL or hop limit.
    pub ttl_min: u8,
    /// Largest TTL or hop limit.
    pub ttl_max: u8,
    /// Type of service or traffic class of the first packet.
    pub tos: u8,
    /// ICMP type and code of the first packet.
    pub icmp: [u8; 2],
    /// The tunnel of the first packet.
    pub tunnel_type: TunnelType,
    /// Outer source address of the first packet.
    pub outer_source: [u8; 16],
    /// Outer destination address of the first packet.
    pub outer_destination: [u8; 16],
    /// Source MAC address of the first packet, on request ([`crate::Config::mac_addresses`]); 0 if
    /// its link type has none.
    pub source_mac: [u8; 6],
    /// Destination MAC address of the first packet.
    pub destination_mac: [u8; 6],
}

impl Default for Direction {
    fn default() -> Self {
        Self::NONE
    }
}

impl Direction {
    /// No packets.
    pub(crate) const NONE: Self = Self {
        packets: 0,
        bytes: 0,
        frame_bytes: 0,
        first_ns: 0,
        last_ns: 0,
        size_min: 0,
        size_max: 0,
        size_squares: 0,
        iat_min_ns: 0,
        iat_max_ns: 0,
        iat_squares: 0,
        mpls_label: NO_LABEL,
        tunnel_id: None,
        vlan: NO_VLAN,
        inner_vlan: NO_VLAN,
        tcp_flags: 0,
        ttl_min: 0,
        ttl_max: 0,
        tos: 0,
        icmp: [0; 2],
        tunnel_type: TunnelType::None,
        outer_source: [0; 16],
        outer_destination: [0; 16],
        source_mac: [0; 6],
        destination_mac: [0; 6],
    };

    /// Outer source and destination address, in the address family of the tunnel type, or of the addresses
    /// themselves; `None` without a tunnel.
    #[inline]
    pub fn outer_ips(&self) -> Option<(IpAddr, IpAddr)> {
        let (source, destination) = (Ipv6Addr::from(self.outer_source), Ipv6Addr::from(self.outer_destination));
        match self.tunnel_type {
            TunnelType::None => None,
            TunnelType::FourInSix | TunnelType::SixInSix => Some((source.into(), destination.into())),
            _ => Some(match (source.to_ipv4_mapped(), destination.to_ipv4_mapped()) {
                (Some(source), Some(destination)) => (source.into(), destination.into()),
                _ => (source.into(), destination.into()),
            }),
        }
    }

    /// Mean IP packet size, octets.
    #[inline]
    pub fn size_mean(&self) -> f64 {
        self.bytes as f64 / self.packets as f64
    }

    /// Population standard deviation of IP packet sizes, octets.
    #[inline]
    pub fn size_std(&self) -> f64 {
        deviation(self.packets, self.bytes, self.size_squares)
    }

    /// Number of inter-arrival times: packets less one.
    #[inline]
    pub fn iat_count(&self) -> u64 {
        self.packets.saturating_sub(1)
    }

    /// Sum of inter-arrival times, ns: the time from the earliest to the latest packet.
    #[inline]
    pub fn iat_sum_ns(&self) -> u64 {
        self.last_ns - self.first_ns
    }

    /// Mean inter-arrival time, ns; `None` below 2 packets.
    #[inline]
    pub fn iat_mean_ns(&self) -> Option<f64> {
        (self.iat_count() > 0).then(|| self.iat_sum_ns() as f64 / self.iat_count() as f64)
    }

    /// Population standard deviation of inter-arrival times, ns; `None` below 2 packets.
    #[inline]
    pub fn iat_std_ns(&self) -> Option<f64> {
        (self.iat_count() > 0).then(|| deviation(self.iat_count(), self.iat_sum_ns(), self.iat_squares))
    }
}

/// Adds a packet to a direction (`docs/metering.md` section 6).
pub(crate) fn add(direction: &mut Direction, packet: &Packet) {
    let d = direction;
    if d.packets == 0 {
        *d = start(packet);
    } else {
        let iat_ns = packet.time_ns.saturating_sub(d.last_ns) + d.first_ns.saturating_sub(packet.time_ns);
        d.iat_min_ns = if d.packets == 1 { iat_ns } else { d.iat_min_ns.min(iat_ns) };
        d.iat_max_ns = d.iat_max_ns.max(iat_ns);
        // These times add up to less than 2^64, so their squares add up to less than 2^128.
        d.iat_squares += u128::from(iat_ns) * u128::from(iat_ns);
        d.first_ns = d.first_ns.min(packet.time_ns);
        d.last_ns = d.last_ns.max(packet.time_ns);
        d.size_min = d.size_min.min(packet.ip_bytes);
        d.ttl_min = d.ttl_min.min(packet.ttl);
    }
    d.packets += 1;
    d.bytes += u64::from(packet.ip_bytes);
    d.frame_bytes += u64::from(packet.frame_bytes);
    d.size_max = d.size_max.max(packet.ip_bytes);
    d.size_squares += u128::from(packet.ip_bytes) * u128::from(packet.ip_bytes);
    d.ttl_max = d.ttl_max.max(packet.ttl);
    d.tcp_flags |= packet.control & Packet::CONTROL;
}

/// A direction with the values of its first packet that later ones do not change, and without its
/// counts.
// Not a part of `add`, which is then short enough to be a part of its callers.
#[inline(never)]
fn start(packet: &Packet) -> Direction {
    let [outer_source, outer_destination] = packet.outer_addresses();
    let [source_mac, destination_mac] = packet.mac_addresses();
    Direction {
        first_ns: packet.time_ns,
        last_ns: packet.time_ns,
        size_min: packet.ip_bytes,
        ttl_min: packet.ttl,
        tos: packet.tos,
        icmp: packet.icmp(),
        vlan: packet.vlan,
        inner_vlan: packet.inner_vlan,
        mpls_label: packet.mpls_label,
        tunnel_type: packet.tunnel_type,
        tunnel_id: tunnel_id(packet),
        outer_source,
        outer_destination,
        source_mac,
        destination_mac,
        ..Direction::default()
    }
}

/// Bits of [`Approximate`] for what differs between a packet and the first one of its direction.
pub(crate) fn mixed(direction: &Direction, packet: &Packet) -> u16 {
    let d = direction;
    if d.packets == 0 {
        return 0;
    }
    let mut bits = 0;
    if (d.vlan, d.inner_vlan) != (packet.vlan, packet.inner_vlan) {
        bits |= Approximate::MIXED_VLAN;
    }
    if d.mpls_label != packet.mpls_label {
        bits |= Approximate::MIXED_MPLS;
    }
    if (d.tunnel_type, d.tunnel_id) != (packet.tunnel_type, tunnel_id(packet))
        || [d.outer_source, d.outer_destination] != packet.outer_addresses()
    {
        bits |= Approximate::MIXED_TUNNEL;
    }
    if [d.source_mac, d.destination_mac] != packet.mac_addresses() {
        bits |= Approximate::MIXED_MAC;
    }
    bits
}

/// Population standard deviation from a count, a sum and a sum of squares.
fn deviation(n: u64, sum: u64, squares: u128) -> f64 {
    let (n_wide, sum_wide) = (u128::from(n), u128::from(sum));
    let spread = match n_wide.checked_mul(squares) {
        Some(all) => all.saturating_sub(sum_wide * sum_wide) as f64,
        None => (n as f64 * squares as f64 - sum as f64 * sum as f64).max(0.0),
    };
    spread.sqrt() / n as f64
}

/// A bidirectional flow record. `source` is the initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// Initiator's address; layout as [`Packet::source`].
    pub source: [u8; 16],
    /// Responder's address.
    pub destination: [u8; 16],
    /// Initiator's port as in [`Packet::source_port`].
    pub source_port: u16,
    /// Responder's port as in [`Packet::destination_port`].
    pub destination_port: u16,
    /// IP protocol; 255 for layer 2.
    pub protocol: u8,
    /// Network layer, which determines the layout of the addresses.
    pub network: Network,
    /// Why the record ended.
    pub end_reason: EndReason,
    /// In which ways it is not exact.
    pub approximate: Approximate,
    /// Interface of the first packet.
    pub interface: u32,
    /// From initiator to responder. Without packets only in a later record of a flow.
    pub forward: Direction,
    /// From responder to initiator.
    pub reverse: Direction,
    /// TCP analysis of both directions, that of [`FlowRecord::forward`] first; `None` for other
    /// protocols, overflow records and records that are not analysed.
    pub tcp: Option<[TcpReport; 2]>,
    /// Packets lost by its receive queue between its first and its last packet: an upper bound of
    /// those missing in this record. The meter leaves it at 0; the probe sets it.
    pub queue_lost: u64,
    /// Smallest and largest sampling population while the record was open: a population of N means
    /// that one packet in N was metered. `None` without sampling. The probe sets it.
    pub sampling: Option<[u32; 2]>,
    /// What inspection of the payload found; `None` if it found nothing.
    pub findings: Option<Arc<Findings>>,
    /// What tables, databases and lists say about its addresses and names. Enrichment sets it before
    /// sinks get the record.
    pub places: Option<Arc<Places>>,
}

impl FlowRecord {
    /// A record without packets.
    pub(crate) const NONE: Self = Self {
        source: [0; 16],
        destination: [0; 16],
        source_port: 0,
        destination_port: 0,
        protocol: 0,
        network: Network::Ipv4,
        end_reason: EndReason::Forced,
        approximate: Approximate(0),
        interface: 0,
        forward: Direction::NONE,
        reverse: Direction::NONE,
        tcp: None,
        queue_lost: 0,
        sampling: None,
        findings: None,
        places: None,
    };
    /// A TCP record without packets.
    pub(crate) const OF_TCP: Self = Self { tcp: Some([TcpReport::EMPTY; 2]), ..Self::NONE };

    /// Whether overload left out a fingerprint.
    pub fn lacks_fingerprints(&self) -> bool {
        self.findings.as_ref().is_some_and(|findings| findings.notes().has(Note::Unfingerprinted))
    }

    /// Earliest packet of either direction, ns since 1970 UTC.
    #[inline]
    pub fn start_ns(&self) -> u64 {
        self.over_directions(|d| d.first_ns, u64::min)
    }

    /// Latest packet of either direction.
    #[inline]
    pub fn end_ns(&self) -> u64 {
        self.over_directions(|d| d.last_ns, u64::max)
    }

    #[inline]
    fn over_directions(&self, field: impl Fn(&Direction) -> u64, choose: fn(u64, u64) -> u64) -> u64 {
        match (self.forward.packets, self.reverse.packets) {
            (_, 0) => field(&self.forward),
            (0, _) => field(&self.reverse),
            _ => choose(field(&self.forward), field(&self.reverse)),
        }
    }

    /// Packets of both directions.
    #[inline]
    pub fn packets(&self) -> u64 {
        self.forward.packets + self.reverse.packets
    }

    /// IP octets of both directions.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.forward.bytes + self.reverse.bytes
    }

    /// Layer-2 octets of both directions.
    pub fn frame_bytes(&self) -> u64 {
        self.forward.frame_bytes + self.reverse.frame_bytes
    }

    /// Initiator's IP address; `None` for layer 2.
    #[inline]
    pub fn source_ip(&self) -> Option<IpAddr> {
        ip_address(self.network, self.source)
    }

    /// Responder's IP address; `None` for layer 2.
    #[inline]
    pub fn destination_ip(&self) -> Option<IpAddr> {
        ip_address(self.network, self.destination)
    }

    /// Whether the ports are ports (TCP, UDP, DCCP, SCTP, UDP-Lite).
    #[inline]
    pub fn has_ports(&self) -> bool {
        self.network != Network::Layer2 && matches!(self.protocol, 6 | 17 | 33 | 132 | 136)
    }

    /// Whether this is ICMP over IPv4 or ICMPv6 over IPv6.
    #[inline]
    pub fn is_icmp(&self) -> bool {
        matches!((self.network, self.protocol), (Network::Ipv4, 1) | (Network::Ipv6, 58))
    }

    /// MAC addresses of the source and the destination. IP: those of the first packet of the source
    /// or, if it sent none in this record, of the destination; `None` if they are unknown or 0.
    #[inline]
    pub fn mac_addresses(&self) -> [Option<[u8; 6]>; 2] {
        if self.network == Network::Layer2 {
            return [self.source, self.destination].map(|[.., a, b, c, d, e, f]| Some([a, b, c, d, e, f]));
        }
        let addresses = if self.forward.packets > 0 {
            [self.forward.source_mac, self.forward.destination_mac]
        } else {
            [self.reverse.destination_mac, self.reverse.source_mac]
        };
        addresses.map(|address| Some(address).filter(|address| *address != [0; 6]))
    }

    /// EtherType of a layer-2 flow.
    #[inline]
    pub fn ethertype(&self) -> Option<u16> {
        (self.network == Network::Layer2).then_some(self.source_port)
    }
}

impl Default for FlowRecord {
    fn default() -> Self {
        Self::NONE
    }
}
