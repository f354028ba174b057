//! The decoded packet: header fields in two cache lines, and the types of its fields.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_ledger::PacketAnomaly;

/// `Packet::vlan` of a frame without a tag.
pub const NO_VLAN: u16 = u16::MAX;
/// `Packet::mpls_label` of a frame without a label stack.
pub const NO_LABEL: u32 = u32::MAX;

/// `Packet::protocol` of a packet without IP.
pub(crate) const NO_PROTOCOL: u8 = 255;

/// The network layer of a packet, which determines the layout of its addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, bytemuck::NoUninit)]
#[repr(u8)]
pub enum Network {
    /// IPv4. Addresses are stored IPv4-mapped (`::ffff:a.b.c.d`, RFC 4291 section 2.5.5.2).
    #[default]
    Ipv4 = 4,
    /// IPv6.
    Ipv6 = 6,
    /// No IP. Addresses are MAC addresses in the last 6 octets, both ports hold the EtherType (0 if
    /// the frame has none), `ip_bytes` is 0 and `protocol` is 255.
    Layer2 = 2,
}

/// The innermost tunnel that a packet was decapsulated from.
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
    /// All types, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::Gre,
        Self::Ipip,
        Self::SixInFour,
        Self::FourInSix,
        Self::SixInSix,
        Self::Vxlan,
        Self::Geneve,
        Self::Gtpu,
    ];

    /// The value of the flow record field `tunnel_type`; `None` without a tunnel.
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

/// Boolean properties of a packet, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::NoUninit)]
#[repr(transparent)]
pub struct Flags(pub u8);

impl Flags {
    /// First fragment (offset 0, more fragments follow).
    pub const FRAGMENT_FIRST: u8 = 1;
    /// Later fragment (offset above 0). It has no transport header.
    pub const FRAGMENT_LATER: u8 = 2;
    /// `tunnel_id` holds an identifier (GRE key or call ID, VNI, TEID).
    pub const TUNNEL_ID: u8 = 4;
    /// `source_port` and `destination_port` were read from the packet. Always set for layer 2.
    pub const PORTS: u8 = 8;
    /// The fixed TCP header was read: `sequence`, `acknowledgment`, `window` and `control` are
    /// valid.
    pub const TCP: u8 = 16;
    /// The fragment cache was already searched for this fragment (or has stored it, if it is a
    /// first fragment), so it is not searched again. If the first fragment of a later one was
    /// found, `FRAGMENT_LATER` is cleared instead, and the ports are set. Never set by `decode`.
    pub const LOOKED_UP: u8 = 32;
    /// The MAC addresses of the frame are in `outer_source` and `outer_destination`: see
    /// [`Packet::mac_addresses`].
    pub const MAC_ADDRESSES: u8 = 64;

    /// The flags of a packet with this fragment offset and "more fragments" bit.
    #[inline]
    pub(crate) fn of_fragment(offset: u16, more: bool) -> Self {
        Self(match (offset, more) {
            (0, false) => 0,
            (0, true) => Self::FRAGMENT_FIRST,
            _ => Self::FRAGMENT_LATER,
        })
    }

    /// Whether all of `bits` are set.
    #[inline]
    pub const fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }
}

/// Anomalies of one packet that is metered despite them: a set of [`PacketAnomaly`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnomalySet(u16);

impl AnomalySet {
    /// Adds an anomaly.
    #[inline]
    pub fn add(&mut self, anomaly: PacketAnomaly) {
        self.0 |= 1 << anomaly as u8;
    }

    /// Whether the set is empty, as for most packets.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The anomalies, in the order of [`PacketAnomaly::ALL`].
    pub fn iter(self) -> impl Iterator<Item = PacketAnomaly> {
        PacketAnomaly::ALL.iter().copied().filter(move |&anomaly| self.0 & (1 << anomaly as u8) != 0)
    }
}

/// Header fields of one packet, in two cache lines. The first line holds what the flow cache needs
/// for every packet; the second holds what TCP analysis, fragments and encapsulation need.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::NoUninit)]
pub struct Packet {
    /// Source address in the layout that [`Network`] describes.
    pub source: [u8; 16],
    /// Destination address, in the same layout.
    pub destination: [u8; 16],
    /// Capture time, ns since 1970-01-01 UTC. Set by the caller of `decode`.
    pub time_ns: u64,
    /// Length of the IP packet by its own header, octets: IPv4 total length, or 40 + IPv6 payload
    /// length.
    pub ip_bytes: u32,
    /// Length of the frame on the wire, octets.
    pub frame_bytes: u32,
    /// Source port (TCP, UDP, UDP-Lite, SCTP, DCCP). ICMP: the type. Layer 2: the EtherType.
    /// Otherwise 0.
    pub source_port: u16,
    /// Destination port. ICMP: the type of the opposite direction for requests and replies,
    /// otherwise `0x100 | code`, so that a request and its reply are one flow and other messages
    /// are not paired. Layer 2: the EtherType.
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
    /// Network layer: layout of the addresses.
    pub network: Network,
    /// TCP control bits, 12 bits as on the wire (RFC 9293 section 3.1); 0 for other protocols. The
    /// upper 4 bits hold the window scale option: see [`Packet::window_scale`].
    pub control: u16,
    /// Fragment, tunnel, port and TCP properties.
    pub flags: Flags,
    /// The innermost tunnel that the packet was decapsulated from.
    pub tunnel_type: TunnelType,

    /// TCP sequence number.
    pub sequence: u32,
    /// TCP acknowledgment number.
    pub acknowledgment: u32,
    /// Octets after the transport header by the IP length (TCP, UDP, SCTP, ICMP); for other
    /// protocols octets after the IP headers.
    pub payload_bytes: u32,
    /// Identification of the IPv4 packet (16 bits) or of the IPv6 fragment header (0 without one).
    /// In a SYN segment that is not a fragment the upper 16 bits hold the maximum segment size
    /// option: see [`Packet::maximum_segment_size`].
    pub identification: u32,
    /// The top MPLS label of the outermost stack, or [`NO_LABEL`].
    pub mpls_label: u32,
    /// Number of the interface that captured the frame. Set by the caller of `decode`.
    pub interface: u32,
    /// GRE key or call ID, VXLAN or Geneve network identifier, GTP-U tunnel endpoint identifier.
    /// Valid if [`Flags::TUNNEL_ID`] is set.
    pub tunnel_id: u32,
    /// TCP window as on the wire, not scaled.
    pub window: u16,
    /// ICMP and ICMPv6: type and code. TCP: the checksum as on the wire. Otherwise 0.
    pub icmp_or_checksum: [u8; 2],
    /// Source address of the IP header that carried the innermost tunnel; IPv4 is IPv4-mapped. With
    /// [`Flags::MAC_ADDRESSES`] its first 6 octets, which are 0, hold the source MAC address:
    /// [`Packet::outer_addresses`] returns it without.
    pub outer_source: [u8; 16],
    /// Destination address of that header, and destination MAC address.
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
    /// The packet as 16 machine words, in memory order.
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

    /// Source and destination address of the IP header that carried the innermost tunnel.
    #[inline]
    pub fn outer_addresses(&self) -> [[u8; 16]; 2] {
        let mut addresses = [self.outer_source, self.outer_destination];
        if self.flags.has(Flags::MAC_ADDRESSES) {
            addresses.iter_mut().for_each(|address| address[..6].fill(0));
        }
        addresses
    }

    /// Source and destination MAC address of the frame of an IP packet; 0 if the link type has none,
    /// and without [`Packet::set_mac_addresses`].
    #[inline]
    pub fn mac_addresses(&self) -> [[u8; 6]; 2] {
        let first = |[a, b, c, d, e, f, ..]: [u8; 16]| [a, b, c, d, e, f];
        if self.flags.has(Flags::MAC_ADDRESSES) {
            [first(self.outer_source), first(self.outer_destination)]
        } else {
            [[0; 6]; 2]
        }
    }

    /// Stores the MAC addresses of the frame of an IP packet. A packet from a tunnel over IPv6 has no
    /// room for them and stays without.
    pub fn set_mac_addresses(&mut self, source: [u8; 6], destination: [u8; 6]) {
        if self.outer_source[..6] == [0; 6] && self.outer_destination[..6] == [0; 6] {
            self.outer_source[..6].copy_from_slice(&source);
            self.outer_destination[..6].copy_from_slice(&destination);
            self.flags.0 |= Flags::MAC_ADDRESSES;
        }
    }

    /// ICMP or ICMPv6 type and code; zeros for TCP.
    #[inline]
    pub fn icmp(&self) -> [u8; 2] {
        if self.flags.has(Flags::TCP) { [0; 2] } else { self.icmp_or_checksum }
    }

    /// Maximum segment size option of a SYN segment (RFC 9293 section 3.7.1), octets. `None` for
    /// fragments.
    pub fn maximum_segment_size(&self) -> Option<u16> {
        let size = (self.identification >> 16) as u16;
        (self.has_options() && size > 0).then_some(size)
    }

    /// Window scale option of a SYN segment (RFC 7323 section 2.2), shift in bits, at most 14.
    /// `None` for fragments.
    pub fn window_scale(&self) -> Option<u8> {
        let scale = (self.control >> 12) as u8;
        if self.has_options() { scale.checked_sub(1) } else { None }
    }

    /// Whether TCP options are stored for this packet: a SYN segment that is not a fragment.
    #[inline]
    pub(crate) fn has_options(&self) -> bool {
        let fragment = self.flags.0 & (Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER) != 0;
        self.control & Self::SYN != 0 && !fragment
    }

    /// Stores the options. [`Self::has_options`] must hold.
    pub(crate) fn set_options(&mut self, maximum_segment: u16, window_scale: Option<u8>) {
        self.identification = self.identification & 0xffff | u32::from(maximum_segment) << 16;
        // RFC 7323 section 2.3: a larger shift is taken as 14.
        self.control |= window_scale.map_or(0, |scale| u16::from(scale.min(14)) + 1) << 12;
    }
}

/// Converts an address of a [`Packet`] to its own family; `None` for layer 2. An IPv6 packet may
/// carry `::ffff:a.b.c.d`, which stays IPv6.
pub fn ip_address(network: Network, octets: [u8; 16]) -> Option<IpAddr> {
    let [.., a, b, c, d] = octets;
    match network {
        Network::Ipv4 => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
        Network::Ipv6 => Some(IpAddr::V6(Ipv6Addr::from(octets))),
        Network::Layer2 => None,
    }
}

/// Converts an IP address to the layout of [`Packet::source`].
pub fn address_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => ipv4_mapped(address.octets()),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Converts an IPv4 address to the layout of [`Packet::source`].
#[inline]
pub fn ipv4_mapped(octets: [u8; 4]) -> [u8; 16] {
    Ipv4Addr::from(octets).to_ipv6_mapped().octets()
}
