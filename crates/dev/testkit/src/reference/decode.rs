//! Sections 1 to 3: from a frame to what its headers say.
//!
//! Every read is an `Option`; an enclosing IP packet cuts the bytes that the inner headers may use.

use crate::RawFrame;
use std::collections::BTreeSet;
use weir_ledger::{PacketAnomaly, RefusalReason};
use weir_packet::{Flags, Network, Packet, TunnelType, ipv4_mapped};

const VLAN: [u16; 5] = [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300];
const MPLS: [u16; 2] = [0x8847, 0x8848];
const PPPOE: u16 = 0x8864;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ETHERNET: u16 = 0x6558;
const PPP: u16 = 0x880b;
/// Lower values where an EtherType can stand are IEEE 802.3 lengths.
const LOWEST_ETHERTYPE: u16 = 0x0600;
const MOST_HEADERS: usize = 16;
const MOST_TUNNELS: usize = 8;

type AnomalySet = BTreeSet<PacketAnomaly>;

/// Captured octets of a frame up to `end`, where it ended on the wire. Inside a tunnel, `end` is that of the IP packet
/// around it.
#[derive(Clone, Copy)]
struct Octets<'a> {
    bytes: &'a [u8],
    end: usize,
}

impl<'a> Octets<'a> {
    fn new(bytes: &'a [u8], end: usize) -> Self {
        Self { bytes: &bytes[..bytes.len().min(end)], end }
    }
}

fn slice(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(length)?)
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    slice(bytes, at, 2).map(|b| u16::from(b[0]) << 8 | u16::from(b[1]))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(be16(bytes, at)?) << 16 | u32::from(be16(bytes, at + 2)?))
}

/// Decodes a frame: its packet and its anomalies.
///
/// # Errors
/// The reason for refusing it.
pub fn decode(frame: &RawFrame, decapsulate: bool) -> Result<(Packet, Vec<PacketAnomaly>), RefusalReason> {
    decode_frame(frame, decapsulate).map(|(packet, anomalies, _)| (packet, anomalies))
}

/// The same with the MAC addresses of the frame, for which a packet from a tunnel over IPv6 has no room.
///
/// # Errors
/// As [`decode`].
pub fn decode_with_mac_addresses(
    frame: &RawFrame,
    decapsulate: bool,
) -> Result<(Packet, Vec<PacketAnomaly>), RefusalReason> {
    decode_frame(frame, decapsulate).map(|(mut packet, anomalies, [source, destination])| {
        if packet.network != Network::Layer2 {
            packet.set_mac_addresses(source, destination);
        }
        (packet, anomalies)
    })
}

/// A packet, its anomalies, and source and destination address of its frame.
type Decoded = (Packet, Vec<PacketAnomaly>, [[u8; 6]; 2]);

fn decode_frame(frame: &RawFrame, decapsulate: bool) -> Result<Decoded, RefusalReason> {
    let bytes = &frame.bytes[..frame.bytes.len().min(frame.wire_bytes as usize)];
    let mut outside = Outside::default();
    let (start, at, frame_end) = link(frame.link_type, bytes, frame.wire_bytes as usize, &mut outside)?;
    let mut octets = Octets::new(bytes, frame_end);
    let mut packet = Packet {
        time_ns: frame.time_ns,
        interface: frame.interface,
        frame_bytes: frame.wire_bytes,
        ..Packet::default()
    };
    let found = walk(octets, start, at, &mut outside)?;
    let tag = |number: usize| outside.vlans.get(number).copied().unwrap_or(weir_packet::NO_VLAN);
    (packet.vlan, packet.inner_vlan) = (tag(0), tag(1));
    packet.mpls_label = outside.label.unwrap_or(weir_packet::NO_LABEL);

    let mut anomalies = AnomalySet::new();
    let mut inside = match found {
        Found::Ip(version, at) => ip(octets, at, version, &mut packet, &mut anomalies)?,
        Found::Other(ethertype) => {
            packet.network = Network::Layer2;
            packet.source[10..].copy_from_slice(&outside.macs[0]);
            packet.destination[10..].copy_from_slice(&outside.macs[1]);
            (packet.source_port, packet.destination_port) = (ethertype, ethertype);
            packet.protocol = 255;
            packet.flags = Flags(Flags::PORTS);
            return Ok((packet, vec![], outside.macs));
        }
    };
    for depth in 0.. {
        if !decapsulate {
            break;
        }
        // Inner headers can use no more than the IP packet around them has, and that no more than the frame.
        octets = Octets::new(octets.bytes, octets.end.min(inside.end));
        let problem = match enter(octets, &packet, &inside) {
            Ok(None) => break,
            Ok(Some((inner_packet, inner_inside, inner_anomalies))) if depth < MOST_TUNNELS => {
                (packet, inside) = (inner_packet, inner_inside);
                anomalies.extend(inner_anomalies);
                continue;
            }
            Ok(Some(_)) => PacketAnomaly::TunnelTooDeep,
            Err(MalformedTunnel) => PacketAnomaly::TunnelMalformed,
        };
        anomalies.insert(problem);
        break;
    }
    Ok((packet, anomalies.into_iter().collect(), outside.macs))
}

// ---- From the link to IP ----

/// What the headers before the outermost IP header said.
#[derive(Default)]
struct Outside {
    vlans: Vec<u16>,
    label: Option<u32>,
    /// Source and destination.
    macs: [[u8; 6]; 2],
}

/// What comes next on the way to IP.
#[derive(Clone, Copy)]
enum Next {
    Ethernet,
    EtherType(u16),
    /// An EtherType, or the length of IEEE 802.3, which LLC follows.
    TypeOrLength(u16),
    Llc,
    /// PPP, and the EtherType that it stands under if it leads nowhere.
    Ppp(u16),
    /// IPv4 or IPv6 by the first nibble.
    Nibble,
    /// Nothing that leads to IP, under this EtherType.
    Nothing(u16),
}

/// Where the way led.
enum Found {
    Ip(u8, usize),
    Other(u16),
}

/// The first header of a frame that has `wire_bytes` octets on the wire, where it begins, and where the frame ends.
fn link(
    link: u16,
    bytes: &[u8],
    wire_bytes: usize,
    outside: &mut Outside,
) -> Result<(Next, usize, usize), RefusalReason> {
    let mac = |at| slice(bytes, at, 6).map(|b| b.try_into().expect("six octets"));
    let cut = RefusalReason::LinkTruncated;
    if link == 239 {
        return nflog(bytes, wire_bytes);
    }
    let (next, at) = match link {
        1 => (Next::Ethernet, 0),
        12 | 14 | 101 => (Next::Nibble, 0),
        228 => (Next::EtherType(IPV4), 0),
        229 => (Next::EtherType(IPV6), 0),
        113 => {
            let header = slice(bytes, 0, 16).ok_or(cut)?;
            if be16(header, 4) == Some(6) {
                outside.macs[0] = mac(6).ok_or(cut)?;
            }
            (cooked(be16(header, 14).ok_or(cut)?), 16)
        }
        276 => {
            let header = slice(bytes, 0, 20).ok_or(cut)?;
            if header[11] == 6 {
                outside.macs[0] = mac(12).ok_or(cut)?;
            }
            (cooked(be16(header, 0).ok_or(cut)?), 20)
        }
        0 | 108 => {
            let family = be32(bytes, 0).ok_or(cut)?;
            let is = |number: u32| family == number || family == number.swap_bytes();
            let ethertype = if is(2) {
                IPV4
            } else if [10, 24, 28, 30].into_iter().any(is) {
                IPV6
            } else {
                0
            };
            (Next::EtherType(ethertype), 4)
        }
        104 => cisco_hdlc(bytes)?,
        50 if matches!(bytes.first(), Some(0x0f | 0x8f)) => cisco_hdlc(bytes)?,
        9 | 50 => match bytes {
            [0xff] => return Err(cut),
            [0xff, 3, ..] => (Next::Ppp(0), 2),
            _ => (Next::Ppp(0), 0),
        },
        100 => {
            let bridged = [0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0];
            if !begins_with(bytes, &bridged) || wire_bytes < 10 {
                (Next::Llc, 0)
            } else {
                match slice(bytes, 0, 10).ok_or(cut)?[7] {
                    1 | 7 => (Next::Ethernet, 10),
                    _ => (Next::Nothing(0), 10),
                }
            }
        }
        _ => return Err(RefusalReason::LinkType),
    };
    Ok((next, at, wire_bytes))
}

fn cisco_hdlc(bytes: &[u8]) -> Result<(Next, usize), RefusalReason> {
    let header = slice(bytes, 0, 4).ok_or(RefusalReason::LinkTruncated)?;
    let ethertype = be16(header, 2).ok_or(RefusalReason::LinkTruncated)?;
    // CDP, spanning tree, SLARP and OSI have numbers that are not EtherTypes.
    let possible =
        matches!(header[0], 0x0f | 0x8f) && header[1] == 0 && ![0x2000, 0x4242, 0x8035, 0xfefe].contains(&ethertype);
    Ok((if possible { Next::EtherType(ethertype) } else { Next::Nothing(0) }, 4))
}

/// The attributes of a frame that netfilter logged, up to the one with the packet, whose length ends the frame.
fn nflog(bytes: &[u8], wire_bytes: usize) -> Result<(Next, usize, usize), RefusalReason> {
    let cut = RefusalReason::LinkTruncated;
    let header = slice(bytes, 0, 4).ok_or(cut)?;
    let nothing = Ok((Next::Nothing(0), 4, wire_bytes));
    let ethertype = match header[..2] {
        [2, 0] => IPV4,
        [10, 0] => IPV6,
        _ => return nothing,
    };
    let mut at = 4;
    let mut swapped = None;
    for _ in 0..32 {
        if at + 4 > wire_bytes {
            return nothing;
        }
        let [mut length, mut kind] = [be16(bytes, at).ok_or(cut)?, be16(bytes, at + 2).ok_or(cut)?];
        // Types are small numbers; two flags are in their upper bits.
        if *swapped.get_or_insert(kind.swap_bytes() & 0x3fff <= 0xff) {
            (length, kind) = (length.swap_bytes(), kind.swap_bytes());
        }
        let length = usize::from(length);
        if length < 4 || at + length > wire_bytes {
            return Err(RefusalReason::LinkMalformed);
        }
        if kind & 0x3fff == 9 {
            return Ok((Next::EtherType(ethertype), at + 4, at + length));
        }
        at += length.div_ceil(4) * 4;
        if at > wire_bytes {
            return nothing;
        }
        slice(bytes, 0, at).ok_or(cut)?;
    }
    Err(RefusalReason::TooManyHeaders)
}

/// Whether captured bytes do not differ from a beginning, as far as both go.
fn begins_with(bytes: &[u8], beginning: &[u8]) -> bool {
    bytes.iter().zip(beginning).all(|(one, other)| one == other)
}

/// Linux has a protocol number of its own for IEEE 802.2.
fn cooked(protocol: u16) -> Next {
    if protocol == 4 { Next::Llc } else { Next::EtherType(protocol) }
}

/// Follows headers to IP or to something else.
fn walk(octets: Octets<'_>, mut next: Next, mut at: usize, outside: &mut Outside) -> Result<Found, RefusalReason> {
    let bytes = octets.bytes;
    let cut = RefusalReason::LinkTruncated;
    let mut headers = 0;
    loop {
        if headers > MOST_HEADERS {
            return Err(RefusalReason::TooManyHeaders);
        }
        next = match next {
            Next::Ethernet => {
                let header = slice(bytes, at, 14).ok_or(cut)?;
                at += 14;
                // The addresses of a frame in a frame are those of the inner one.
                outside.macs = [6, 0].map(|at| header[at..at + 6].try_into().expect("six octets"));
                Next::TypeOrLength(be16(header, 12).ok_or(cut)?)
            }
            Next::TypeOrLength(length) if length < LOWEST_ETHERTYPE => Next::Llc,
            Next::TypeOrLength(ethertype) => Next::EtherType(ethertype),
            Next::Nibble => match bytes.get(at).map(|octet| octet >> 4) {
                Some(version @ (4 | 6)) => return Ok(Found::Ip(version, at)),
                Some(_) => return Err(RefusalReason::IpVersion),
                None => return Err(cut),
            },
            Next::EtherType(IPV4) => return Ok(Found::Ip(4, at)),
            Next::EtherType(IPV6) => return Ok(Found::Ip(6, at)),
            Next::EtherType(ethertype) if VLAN.contains(&ethertype) => {
                headers += 1;
                outside.vlans.push(be16(bytes, at).ok_or(cut)? & 0x0fff);
                let inner = be16(bytes, at + 2).ok_or(cut)?;
                at += 4;
                Next::TypeOrLength(inner)
            }
            Next::EtherType(ethertype) if MPLS.contains(&ethertype) => {
                headers += 1;
                let (label, bottom) = labels(bytes, at)?;
                outside.label.get_or_insert(label);
                at = bottom;
                match bytes.get(at).ok_or(RefusalReason::MplsTruncated)? >> 4 {
                    4 => Next::EtherType(IPV4),
                    6 => Next::EtherType(IPV6),
                    0 => {
                        slice(bytes, at, 4).ok_or(cut)?;
                        at += 4;
                        Next::Ethernet
                    }
                    _ => Next::Ethernet,
                }
            }
            Next::EtherType(PPPOE) => {
                headers += 1;
                let header = slice(bytes, at, 6).ok_or(cut)?;
                at += 6;
                // Version 1, type 1, session data.
                if header[..2] == [0x11, 0] { Next::Ppp(PPPOE) } else { Next::Nothing(PPPOE) }
            }
            Next::Llc => llc(octets, &mut at, &mut headers)?,
            Next::EtherType(length) if length < LOWEST_ETHERTYPE => Next::Nothing(0),
            Next::EtherType(ethertype) => Next::Nothing(ethertype),
            Next::Nothing(ethertype) => return Ok(Found::Other(ethertype)),
            Next::Ppp(ethertype) => ppp(bytes, &mut at, ethertype)?,
        };
    }
}

/// What follows a header of IEEE 802.2.
fn llc(octets: Octets<'_>, at: &mut usize, headers: &mut usize) -> Result<Next, RefusalReason> {
    let Octets { bytes, end } = octets;
    let captured = bytes.get(*at..).unwrap_or_default();
    // RFC 1042, or the bridge tunnel of IEEE 802.1H.
    let snap = [0, 0xf8].iter().any(|&last| begins_with(captured, &[0xaa, 0xaa, 3, 0, 0, last]));
    if snap && end >= *at + 8 {
        *headers += 1;
        *at += 8;
        return Ok(Next::EtherType(be16(bytes, *at - 2).ok_or(RefusalReason::LinkTruncated)?));
    }
    if begins_with(captured, &[6, 6, 3]) && end >= *at + 3 {
        *headers += 1;
        slice(bytes, *at, 3).ok_or(RefusalReason::LinkTruncated)?;
        *at += 3;
        return Ok(Next::Nibble);
    }
    Ok(Next::Nothing(0))
}

/// What follows the protocol number of PPP, which stands in frames of this EtherType.
fn ppp(bytes: &[u8], at: &mut usize, ethertype: u16) -> Result<Next, RefusalReason> {
    let first = *bytes.get(*at).ok_or(RefusalReason::LinkTruncated)?;
    // An odd first octet is a whole, compressed protocol number.
    let protocol = if first & 1 == 1 {
        *at += 1;
        u16::from(first)
    } else {
        *at += 2;
        be16(bytes, *at - 2).ok_or(RefusalReason::LinkTruncated)?
    };
    Ok(match protocol {
        0x0021 => Next::EtherType(IPV4),
        0x0057 => Next::EtherType(IPV6),
        0x0281 => Next::EtherType(MPLS[0]),
        0x0283 => Next::EtherType(MPLS[1]),
        _ => Next::Nothing(ethertype),
    })
}

/// The top label of a stack, and where the stack ends.
fn labels(bytes: &[u8], at: usize) -> Result<(u32, usize), RefusalReason> {
    let mut top = None;
    for number in 0..MOST_HEADERS {
        let entry = be32(bytes, at + 4 * number).ok_or(RefusalReason::MplsTruncated)?;
        let top = *top.get_or_insert(entry >> 12);
        if entry & 0x100 != 0 {
            return Ok((top, at + 4 * number + 4));
        }
    }
    Err(RefusalReason::TooManyHeaders)
}

// ---- IP and transport ----

/// Where things are in one IP packet.
#[derive(Clone, Copy)]
struct Inside {
    /// Start of what the IP headers carry.
    payload: usize,
    /// End of the IP packet by its own header, counted in the frame.
    end: usize,
    /// Whether the chain of headers was walked to its end.
    whole: bool,
}

fn ip(
    octets: Octets<'_>,
    at: usize,
    version: u8,
    packet: &mut Packet,
    anomalies: &mut AnomalySet,
) -> Result<Inside, RefusalReason> {
    let inside = match version {
        4 => ipv4(octets, at, packet, anomalies)?,
        _ => ipv6(octets, at, packet, anomalies)?,
    };
    if at + packet.ip_bytes as usize > octets.end {
        anomalies.insert(PacketAnomaly::LengthBeyondFrame);
    }
    packet.payload_bytes = inside.end.saturating_sub(inside.payload) as u32;
    if inside.whole && !packet.flags.has(Flags::FRAGMENT_LATER) {
        transport(octets.bytes, &inside, packet, anomalies);
    }
    Ok(inside)
}

fn ipv4(octets: Octets<'_>, at: usize, packet: &mut Packet, found: &mut AnomalySet) -> Result<Inside, RefusalReason> {
    let Octets { bytes, end: frame_end } = octets;
    let cut = RefusalReason::Ipv4Truncated;
    let header = slice(bytes, at, 20).ok_or(cut)?;
    if header[0] >> 4 != 4 {
        return Err(RefusalReason::IpVersion);
    }
    let header_bytes = u32::from(header[0] & 15) * 4;
    if header_bytes < 20 {
        return Err(RefusalReason::Ipv4HeaderLength);
    }
    packet.ip_bytes = u32::from(be16(header, 2).ok_or(cut)?);
    if packet.ip_bytes == 0 {
        packet.ip_bytes = (frame_end - at) as u32;
        found.insert(PacketAnomaly::LengthFromFrame);
    }
    if packet.ip_bytes < header_bytes {
        return Err(RefusalReason::Ipv4TotalLength);
    }
    packet.network = Network::Ipv4;
    packet.tos = header[1];
    packet.ttl = header[8];
    packet.protocol = header[9];
    packet.identification = u32::from(be16(header, 4).ok_or(cut)?);
    packet.source = ipv4_mapped(header[12..16].try_into().expect("four octets"));
    packet.destination = ipv4_mapped(header[16..20].try_into().expect("four octets"));
    let fragment = be16(header, 6).ok_or(cut)?;
    if fragment & 0x1fff != 0 {
        packet.flags.0 |= Flags::FRAGMENT_LATER;
    } else if fragment & 0x2000 != 0 {
        packet.flags.0 |= Flags::FRAGMENT_FIRST;
    }
    let payload = at + header_bytes as usize;
    let whole = payload <= bytes.len();
    if !whole {
        found.insert(PacketAnomaly::ExtensionMalformed);
    }
    Ok(Inside { payload, end: at + packet.ip_bytes as usize, whole })
}

fn ipv6(octets: Octets<'_>, at: usize, packet: &mut Packet, found: &mut AnomalySet) -> Result<Inside, RefusalReason> {
    let Octets { bytes, end: frame_end } = octets;
    let cut = RefusalReason::Ipv6Truncated;
    let header = slice(bytes, at, 40).ok_or(cut)?;
    if header[0] >> 4 != 6 {
        return Err(RefusalReason::IpVersion);
    }
    packet.network = Network::Ipv6;
    packet.tos = (header[0] << 4) | (header[1] >> 4);
    packet.ttl = header[7];
    packet.source = header[8..24].try_into().expect("sixteen octets");
    packet.destination = header[24..40].try_into().expect("sixteen octets");
    let after = (frame_end - at - 40) as u32;
    let stated = |length: u32, found: &mut AnomalySet| {
        let beyond = length > after;
        if beyond {
            found.insert(PacketAnomaly::LengthBeyondFrame);
        }
        if beyond && u64::from(length) + 40 > 65_535 { after } else { length }
    };
    packet.ip_bytes = 40
        + match u32::from(be16(header, 4).ok_or(cut)?) {
            0 => match jumbo(bytes, at + 40, header[6]) {
                Some(length) => stated(length, found),
                None if after > 0 => {
                    found.insert(PacketAnomaly::LengthFromFrame);
                    after
                }
                None => 0,
            },
            length => stated(length, found),
        };
    let end = at + packet.ip_bytes as usize;
    let reach = bytes.len().min(end);
    let (next, at, whole) = extensions(&bytes[..reach], header[6], at + 40, packet, found);
    packet.protocol = next;
    Ok(Inside { payload: at, end, whole })
}

/// Follows extension headers. Returns the protocol behind them, where it begins, and whether all are
/// whole.
fn extensions(
    bytes: &[u8],
    mut next: u8,
    mut at: usize,
    packet: &mut Packet,
    found: &mut AnomalySet,
) -> (u8, usize, bool) {
    let mut whole = true;
    for walked in 0.. {
        if ![0, 43, 44, 51, 60, 135, 139, 140].contains(&next) {
            break;
        }
        let header = slice(bytes, at, 8).filter(|_| walked < MOST_HEADERS);
        let length = header.map(|header| match next {
            44 => 8,
            // Without its fixed part of three words it is none.
            51 if header[1] == 0 => usize::MAX / 2,
            51 => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        });
        let (Some(header), Some(length)) = (header, length.filter(|length| at + length <= bytes.len())) else {
            found.insert(PacketAnomaly::ExtensionMalformed);
            whole = false;
            break;
        };
        if next == 44 {
            packet.identification = be32(header, 4).expect("eight octets");
            let offset = be16(header, 2).expect("eight octets");
            next = header[0];
            at += 8;
            if offset & 0xfff8 != 0 {
                // A later fragment of a first fragment is a later fragment.
                packet.flags = Flags(packet.flags.0 & !Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER);
                break;
            } else if offset & 1 == 1 {
                packet.flags.0 |= Flags::FRAGMENT_FIRST;
            }
        } else {
            next = header[0];
            at += length;
        }
    }
    (next, at, whole)
}

/// The length in a jumbo payload option, if the first header is hop-by-hop and has one.
fn jumbo(bytes: &[u8], at: usize, next: u8) -> Option<u32> {
    if next != 0 {
        return None;
    }
    let length = (usize::from(*bytes.get(at + 1)?) + 1) * 8;
    let options = slice(bytes, at, length)?;
    let mut at = 2;
    loop {
        match *options.get(at)? {
            0 => at += 1,
            0xc2 => return be32(options, at + 2).filter(|_| options[at + 1] == 4),
            _ => at += 2 + usize::from(*options.get(at + 1)?),
        }
    }
}

fn transport(bytes: &[u8], inside: &Inside, packet: &mut Packet, anomalies: &mut AnomalySet) {
    let at = inside.payload;
    let by_length = inside.end.saturating_sub(at);
    let icmp = matches!((packet.network, packet.protocol), (Network::Ipv4, 1) | (Network::Ipv6, 58));
    let ports = matches!(packet.protocol, 6 | 17 | 33 | 132 | 136);
    if !icmp && !ports {
        return;
    }
    if packet.protocol == 6 {
        packet.payload_bytes = by_length.saturating_sub(20) as u32;
    }
    let needed = if icmp { 2 } else { 4 };
    if by_length < needed {
        anomalies.insert(PacketAnomaly::TransportMalformed);
        return;
    }
    let Some(first) = slice(bytes, at, needed) else {
        anomalies.insert(PacketAnomaly::PortsNotCaptured);
        return;
    };
    packet.flags.0 |= Flags::PORTS;
    if icmp {
        packet.icmp_or_checksum = [first[0], first[1]];
        packet.source_port = u16::from(first[0]);
        packet.destination_port = counterpart(packet.protocol, first[0]).unwrap_or(0x100 | u16::from(first[1]));
        return;
    }
    packet.source_port = be16(first, 0).expect("four octets");
    packet.destination_port = be16(first, 2).expect("four octets");
    let fixed = match packet.protocol {
        6 => 20,
        17 | 136 => 8,
        _ => 12,
    };
    if by_length < fixed {
        anomalies.insert(PacketAnomaly::TransportMalformed);
        return;
    }
    if packet.protocol != 6 {
        return;
    }
    let Some(tcp) = slice(bytes, at, 20) else { return };
    packet.flags.0 |= Flags::TCP;
    packet.sequence = be32(tcp, 4).expect("twenty octets");
    packet.acknowledgment = be32(tcp, 8).expect("twenty octets");
    packet.control = be16(tcp, 12).expect("twenty octets") & 0x0fff;
    packet.window = be16(tcp, 14).expect("twenty octets");
    packet.icmp_or_checksum = [tcp[16], tcp[17]];
    let header_bytes = usize::from(tcp[12] >> 4) * 4;
    if header_bytes < 20 || header_bytes > by_length {
        anomalies.insert(PacketAnomaly::TransportMalformed);
    }
    packet.payload_bytes = by_length.saturating_sub(header_bytes.max(20)) as u32;
    let fragment = packet.flags.0 & (Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER) != 0;
    if packet.control & Packet::SYN != 0 && !fragment && (20..=by_length).contains(&header_bytes) {
        let end = (at + header_bytes).min(bytes.len()).min(inside.end);
        let (size, scale) = syn_options(&bytes[at + 20..end]);
        packet.identification = packet.identification & 0xffff | u32::from(size) << 16;
        packet.control |= scale << 12;
    }
}

/// Maximum segment size, or 0; window scale, at most 14, plus 1, or 0.
fn syn_options(options: &[u8]) -> (u16, u16) {
    let (mut sizes, mut scales) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < options.len() && options[at] != 0 {
        if options[at] == 1 {
            at += 1;
            continue;
        }
        let Some(length) = options.get(at + 1).map(|&length| usize::from(length)) else { break };
        if length < 2 || at + length > options.len() {
            break;
        }
        match options[at] {
            2 if length == 4 => sizes.push(u16::from(options[at + 2]) << 8 | u16::from(options[at + 3])),
            3 if length == 3 => scales.push(u16::from(options[at + 2].min(14)) + 1),
            _ => {}
        }
        at += length;
    }
    (sizes.first().copied().unwrap_or(0), scales.first().copied().unwrap_or(0))
}

/// The type that answers an ICMP type, or that it answers.
fn counterpart(protocol: u8, kind: u8) -> Option<u16> {
    let pairs: &[(u8, u8)] = match protocol {
        1 => &[(8, 0), (13, 14), (15, 16), (17, 18), (10, 9)],
        _ => &[(128, 129), (133, 134), (135, 136), (130, 131), (139, 140), (144, 145)],
    };
    pairs.iter().find_map(|&(one, other)| match kind {
        _ if kind == one => Some(u16::from(other)),
        _ if kind == other => Some(u16::from(one)),
        _ => None,
    })
}

// ---- Tunnels ----

struct MalformedTunnel;

/// What a tunnel header said: type, identifier, what follows, where.
struct Header {
    kind: TunnelType,
    id: Option<u32>,
    next: Next,
    at: usize,
}

/// What is in a tunnel.
type Inner = (Packet, Inside, AnomalySet);

/// `None`: a tunnel that carries no IP.
type HeaderResult = Result<Option<Header>, MalformedTunnel>;

/// Tries to go one tunnel deeper; `None` without a tunnel that carries IP. `octets` end where the IP packet around ends.
fn enter(octets: Octets<'_>, outer: &Packet, inside: &Inside) -> Result<Option<Inner>, MalformedTunnel> {
    let bytes = octets.bytes;
    if !inside.whole || outer.flags.has(Flags::FRAGMENT_LATER) {
        return Ok(None);
    }
    let at = inside.payload;
    let ip_in_ip = |kind, ethertype| Ok(Some(Header { kind, id: None, next: Next::EtherType(ethertype), at }));
    let header = match (outer.protocol, outer.network) {
        (4, Network::Ipv4) => ip_in_ip(TunnelType::Ipip, IPV4),
        (4, _) => ip_in_ip(TunnelType::FourInSix, IPV4),
        (41, Network::Ipv4) => ip_in_ip(TunnelType::SixInFour, IPV6),
        (41, _) => ip_in_ip(TunnelType::SixInSix, IPV6),
        (47, _) => gre(bytes, at),
        (17, _) if outer.flags.has(Flags::PORTS) => match outer.destination_port {
            4789 => vxlan(bytes, at + 8),
            6081 => geneve(bytes, at + 8),
            2152 => gtpu(bytes, at + 8),
            _ => Ok(None),
        },
        _ => Ok(None),
    };
    let Some(header) = header? else { return Ok(None) };
    let (version, at) = match walk(octets, header.next, header.at, &mut Outside::default()) {
        Ok(Found::Ip(version, at)) => (version, at),
        Ok(Found::Other(_)) => return Ok(None),
        Err(_) => return Err(MalformedTunnel),
    };
    let mut inner = Packet {
        time_ns: outer.time_ns,
        interface: outer.interface,
        frame_bytes: outer.frame_bytes,
        vlan: outer.vlan,
        inner_vlan: outer.inner_vlan,
        mpls_label: outer.mpls_label,
        tunnel_type: header.kind,
        tunnel_id: header.id.unwrap_or(0),
        flags: Flags(if header.id.is_some() { Flags::TUNNEL_ID } else { 0 }),
        outer_source: outer.source,
        outer_destination: outer.destination,
        ..Packet::default()
    };
    let mut anomalies = AnomalySet::new();
    let inside = ip(octets, at, version, &mut inner, &mut anomalies).map_err(|_| MalformedTunnel)?;
    Ok(Some((inner, inside, anomalies)))
}

fn gre(bytes: &[u8], mut at: usize) -> HeaderResult {
    let flags = be16(bytes, at).ok_or(MalformedTunnel)?;
    let protocol = be16(bytes, at + 2).ok_or(MalformedTunnel)?;
    at += 4;
    let mut id = None;
    let [checksum, routing, key, sequence, acknowledgment] =
        [0x8000, 0x4000, 0x2000, 0x1000, 0x0080].map(|bit| flags & bit != 0);
    let field_bytes = |present: bool| if present { 4 } else { 0 };
    match flags & 7 {
        0 => {
            if routing {
                return Err(MalformedTunnel);
            }
            at += field_bytes(checksum);
            if key {
                id = Some(be32(bytes, at).ok_or(MalformedTunnel)?);
                at += 4;
            }
            at += field_bytes(sequence);
        }
        1 => {
            if checksum || routing || !key || protocol != PPP {
                return Err(MalformedTunnel);
            }
            id = Some(u32::from(be16(bytes, at + 2).ok_or(MalformedTunnel)?));
            at += 4 + field_bytes(sequence) + field_bytes(acknowledgment);
            if !sequence {
                // Only packets with a payload are numbered: this one acknowledges others.
                slice(bytes, 0, at).ok_or(MalformedTunnel)?;
                return Ok(None);
            }
        }
        _ => return Err(MalformedTunnel),
    }
    slice(bytes, 0, at).ok_or(MalformedTunnel)?;
    let next = match protocol {
        PPP => {
            if slice(bytes, at, 2) == Some(&[0xff, 3]) {
                at += 2;
            }
            Next::Ppp(PPP)
        }
        ETHERNET => Next::Ethernet,
        IPV4 | IPV6 => Next::EtherType(protocol),
        _ if MPLS.contains(&protocol) || VLAN.contains(&protocol) => Next::EtherType(protocol),
        _ => return Ok(None),
    };
    Ok(Some(Header { kind: TunnelType::Gre, id, next, at }))
}

fn vxlan(bytes: &[u8], at: usize) -> HeaderResult {
    let header = slice(bytes, at, 8).ok_or(MalformedTunnel)?;
    if header[0] & 8 == 0 {
        return Err(MalformedTunnel);
    }
    let id = Some(be32(header, 4).ok_or(MalformedTunnel)? >> 8);
    Ok(Some(Header { kind: TunnelType::Vxlan, id, next: Next::Ethernet, at: at + 8 }))
}

fn geneve(bytes: &[u8], at: usize) -> HeaderResult {
    let header = slice(bytes, at, 8).ok_or(MalformedTunnel)?;
    if header[0] >> 6 != 0 {
        return Err(MalformedTunnel);
    }
    let length = 8 + usize::from(header[0] & 0x3f) * 4;
    slice(bytes, at, length).ok_or(MalformedTunnel)?;
    let next = match be16(header, 2) {
        Some(ETHERNET) => Next::Ethernet,
        Some(ethertype @ (IPV4 | IPV6)) => Next::EtherType(ethertype),
        _ => return Ok(None),
    };
    let id = Some(be32(header, 4).ok_or(MalformedTunnel)? >> 8);
    Ok(Some(Header { kind: TunnelType::Geneve, id, next, at: at + length }))
}

fn gtpu(bytes: &[u8], at: usize) -> HeaderResult {
    let header = slice(bytes, at, 8).ok_or(MalformedTunnel)?;
    // Version 1 and protocol type GTP.
    if header[0] >> 4 != 0b0011 {
        return Err(MalformedTunnel);
    }
    if header[1] != 255 {
        return Ok(None);
    }
    let id = Some(be32(header, 4).ok_or(MalformedTunnel)?);
    let mut end = at + 8;
    if header[0] & 7 != 0 {
        let optional = slice(bytes, end, 4).ok_or(MalformedTunnel)?;
        end += 4;
        let mut next = if header[0] & 4 != 0 { optional[3] } else { 0 };
        while next != 0 {
            let length = usize::from(*bytes.get(end).ok_or(MalformedTunnel)?) * 4;
            if length == 0 {
                return Err(MalformedTunnel);
            }
            next = *slice(bytes, end, length).and_then(<[u8]>::last).ok_or(MalformedTunnel)?;
            end += length;
        }
    }
    let next = match bytes.get(end).ok_or(MalformedTunnel)? >> 4 {
        4 => Next::EtherType(IPV4),
        6 => Next::EtherType(IPV6),
        _ => return Ok(None),
    };
    Ok(Some(Header { kind: TunnelType::Gtpu, id, next, at: end }))
}
