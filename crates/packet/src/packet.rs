//! What the headers of one packet said.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_ledger::PacketAnomaly;

/// `Packet::vlan` of a frame without a tag.
pub const NO_VLAN: u16 = u16::MAX;
/// `Packet::mpls_label` of a frame without a label stack.
pub const NO_LABEL: u32 = u32::MAX;

/// What carries the addresses of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, bytemuck::NoUninit)]
#[repr(u8)]
pub enum Network {
    /// IPv4; addresses are kept IPv4-mapped (`::ffff:a.b.c.d`, RFC 4291 section 2.5.5.2).
    #[default]
    Ipv4 = 4,
    /// IPv6.
    Ipv6 = 6,
    /// No IP: addresses are MAC addresses in the last 6 octets, both ports hold the EtherType
    /// (0 for IEEE 802.3 frames without SNAP), `ip_bytes` is 0 and the protocol is 255.
    Layer2 = 2,
}

/// What carried the inner packet of a decapsulated one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, bytemuck::NoUninit)]
#[repr(u8)]
pub enum TunnelType {
    /// Not decapsulated.
    #[default]
    None = 0,
    /// GRE, version 0 (RFC 2784, 2890) or 1 (RFC 2637).
    Gre = 1,
    /// IPv4 in IPv4 (RFC 2003).
    Ipip = 2,
    /// IPv6 in IPv4 (RFC 4213).
    SixInFour = 3,
    /// IPv4 in IPv6 (RFC 2473).
    FourInSix = 4,
    /// IPv6 in IPv6 (RFC 2473).
    SixInSix = 5,
    /// VXLAN (RFC 7348).
    Vxlan = 6,
    /// Geneve (RFC 8926).
    Geneve = 7,
    /// GTP-U (3GPP TS 29.281).
    Gtpu = 8,
}

impl TunnelType {
    /// The value of the field `tunnel_type`.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::None => return None,
            Self::Gre => "gre",
            Self::Ipip => "ipip",
            Self::SixInFour => "6in4",
            Self::FourInSix => "4in6",
            Self::SixInSix => "6in6",
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
            Self::Gtpu => "gtpu",
        })
    }
}

/// Yes-or-no facts about a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::NoUninit)]
#[repr(transparent)]
pub struct Flags(pub u8);

impl Flags {
    /// First fragment of several (offset 0, more to come).
    pub const FRAGMENT_FIRST: u8 = 1;
    /// A later fragment (offset above 0): it has no ports of its own.
    pub const FRAGMENT_LATER: u8 = 2;
    /// `tunnel_id` holds an identifier (GRE key or call ID, VNI, TEID).
    pub const TUNNEL_ID: u8 = 4;
    /// `source_port` and `destination_port` were read from the packet (always for layer 2).
    pub const PORTS: u8 = 8;
    /// The whole fixed TCP header was read: sequence, acknowledgment, window and `control` are valid.
    pub const TCP: u8 = 16;
    /// Of a fragment: its first one was looked for already, or remembered if it is one, so that nobody looks again. A later one
    /// that was found is no longer flagged as a fragment: it has the ports of its flow. Never set by `decode`.
    pub const LOOKED_UP: u8 = 32;

    /// Whether all of `bits` are set.
    #[inline]
    pub const fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }
}

/// What was odd about a packet that is metered all the same: a set of [`PacketAnomaly`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnomalySet(u16);

impl AnomalySet {
    /// Adds a remark.
    #[inline]
    pub fn add(&mut self, noted: PacketAnomaly) {
        self.0 |= 1 << noted as u8;
    }

    /// Whether there is none (the common case).
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The remarks, in the order of the list.
    pub fn iter(self) -> impl Iterator<Item = PacketAnomaly> {
        PacketAnomaly::ALL.iter().copied().filter(move |&noted| self.0 & (1 << noted as u8) != 0)
    }
}

/// What the headers of one packet said: two cache lines. The first holds all that an ordinary
/// packet enters into a flow record; the second what TCP analysis, fragments and encapsulation need.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::NoUninit)]
pub struct Packet {
    /// Source address; see [`Network`] for its shape.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// Nanoseconds since 1970-01-01 UTC, by the capture. Set by the caller of `decode`.
    pub time_ns: u64,
    /// Octets of the IP packet by its own header: IPv4 total length, or 40 + IPv6 payload length.
    pub ip_bytes: u32,
    /// Octets of the frame on the wire.
    pub frame_bytes: u32,
    /// Source port (TCP, UDP, UDP-Lite, SCTP, DCCP); ICMP: the type; layer 2: the EtherType; else 0.
    pub source_port: u16,
    /// Destination port; ICMP: the type of the answer for requests and replies, else `0x100 | code`,
    /// so that an echo and its reply are one flow and nothing else is paired; layer 2: the EtherType.
    pub destination_port: u16,
    /// VLAN identifier of the outermost tag, or [`NO_VLAN`].
    pub vlan: u16,
    /// VLAN identifier of the second tag, or [`NO_VLAN`].
    pub inner_vlan: u16,
    /// IP protocol number, after the extension headers.
    pub protocol: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// What carries the addresses.
    pub network: Network,
    /// TCP control bits, 12 bits as on the wire (RFC 9293 section 3.1); 0 for all else. The 4 bits above are no part of
    /// them: see [`Packet::window_scale`].
    pub control: u16,
    /// Fragment, tunnel and port facts.
    pub flags: Flags,
    /// What the packet was inside of: the innermost tunnel that was entered.
    pub tunnel_type: TunnelType,

    /// TCP sequence number.
    pub sequence: u32,
    /// TCP acknowledgment number.
    pub acknowledgment: u32,
    /// Octets after the transport header by the IP length (TCP, UDP, SCTP, ICMP), else after the IP headers.
    pub payload_bytes: u32,
    /// Identification of the IPv4 packet, 16 bits, or of the IPv6 fragment header (0 without). In a segment with SYN that
    /// is no fragment the upper half is no part of it: see [`Packet::maximum_segment_size`].
    pub identification: u32,
    /// The top MPLS label of the outermost stack, or [`NO_LABEL`].
    pub mpls_label: u32,
    /// Number of the interface that saw the frame. Set by the caller of `decode`.
    pub interface: u32,
    /// GRE key or call ID, VXLAN or Geneve network identifier, GTP-U tunnel endpoint identifier.
    pub tunnel_id: u32,
    /// TCP window as on the wire, not scaled.
    pub window: u16,
    /// ICMP and ICMPv6: type and code. TCP: the checksum as on the wire. Else 0.
    pub icmp_or_checksum: [u8; 2],
    /// Source of the IP header that carried the innermost tunnel; shape as [`Network`] (IPv4-mapped).
    pub outer_source: [u8; 16],
    /// Destination of that header.
    pub outer_destination: [u8; 16],
}

const _: () = assert!(size_of::<Packet>() == 128);

impl Default for Packet {
    fn default() -> Self {
        Self {
            source: [0; 16],
            destination: [0; 16],
            time_ns: 0,
            ip_bytes: 0,
            frame_bytes: 0,
            source_port: 0,
            destination_port: 0,
            vlan: NO_VLAN,
            inner_vlan: NO_VLAN,
            control: 0,
            protocol: 0,
            ttl: 0,
            tos: 0,
            network: Network::Ipv4,
            flags: Flags(0),
            tunnel_type: TunnelType::None,
            sequence: 0,
            acknowledgment: 0,
            payload_bytes: 0,
            identification: 0,
            mpls_label: NO_LABEL,
            interface: 0,
            tunnel_id: 0,
            window: 0,
            icmp_or_checksum: [0; 2],
            outer_source: [0; 16],
            outer_destination: [0; 16],
        }
    }
}

impl Packet {
    /// The packet as it lies in memory.
    #[inline(always)]
    pub fn words(&self) -> &[u64; 16] {
        bytemuck::must_cast_ref(self)
    }

    /// TCP control bit FIN.
    pub const FIN: u16 = 0x01;
    /// TCP control bit SYN.
    pub const SYN: u16 = 0x02;
    /// TCP control bit RST.
    pub const RST: u16 = 0x04;
    /// TCP control bit ACK.
    pub const ACK: u16 = 0x10;
    /// All TCP control bits.
    pub const CONTROL: u16 = 0x0fff;

    /// ICMP or ICMPv6 type and code; zeros for all else.
    #[inline]
    pub fn icmp(&self) -> [u8; 2] {
        if self.flags.has(Flags::TCP) { [0; 2] } else { self.icmp_or_checksum }
    }

    /// Maximum segment size option of a segment with SYN (RFC 9293 section 3.7.1), octets. Not of a fragment.
    pub fn maximum_segment_size(&self) -> Option<u16> {
        let size = (self.identification >> 16) as u16;
        (self.has_options() && size > 0).then_some(size)
    }

    /// Window scale option of a segment with SYN (RFC 7323 section 2.2), shift in bits: at most 14. Not of a fragment.
    pub fn window_scale(&self) -> Option<u8> {
        let scale = (self.control >> 12) as u8;
        if self.has_options() { scale.checked_sub(1) } else { None }
    }

    /// Whether this is a segment of which options are kept.
    #[inline]
    pub(crate) fn has_options(&self) -> bool {
        let fragment = self.flags.0 & (Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER) != 0;
        self.control & Self::SYN != 0 && !fragment
    }

    /// Keeps options of a segment that has room for them.
    pub(crate) fn set_options(&mut self, maximum_segment: u16, window_scale: Option<u8>) {
        self.identification = self.identification & 0xffff | u32::from(maximum_segment) << 16;
        // RFC 7323 section 2.3: what is larger counts as 14.
        self.control |= window_scale.map_or(0, |scale| u16::from(scale.min(14)) + 1) << 12;
    }
}

/// The address in its own family; `None` for layer 2. An IPv6 packet may carry `::ffff:a.b.c.d`,
/// which stays IPv6.
pub fn ip_address(network: Network, octets: [u8; 16]) -> Option<IpAddr> {
    let [.., a, b, c, d] = octets;
    match network {
        Network::Ipv4 => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
        Network::Ipv6 => Some(IpAddr::V6(Ipv6Addr::from(octets))),
        Network::Layer2 => None,
    }
}

/// IPv4 octets in the shape of [`Packet::source`].
#[inline]
pub fn ipv4_mapped(octets: [u8; 4]) -> [u8; 16] {
    Ipv4Addr::from(octets).to_ipv6_mapped().octets()
}
