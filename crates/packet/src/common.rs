//! The common path: Ethernet, at most one VLAN tag, IPv4 without options or IPv6 without extension headers, TCP or UDP.
//!
//! ```text
//! compare what was captured with one length; behind that all headers lie at constant places
//! decline what is unusual in any way: a cut, a fragment, a length that does not fit, a port that may be a tunnel's
//! write each field of the packet once
//! ```
//! Budget: 60 instructions for UDP over IPv4, where the general decoder takes 330.
//! Always true: what [`read`] accepts it reads as the general decoder does, which is the definition and has no remark
//! about such a frame.

use crate::link::{IPV4, IPV6};
use crate::transport::{TCP, UDP, read_options};
use crate::{DecodeOptions, Flags, NO_LABEL, NO_VLAN, Network, Packet, TunnelType, ipv4_mapped, tunnel};

/// EtherType of a customer's VLAN tag.
const TAG: u16 = 0x8100;
/// EtherType, and the octet behind it: version 4, five words of header.
const IPV4_PLAIN: u32 = (IPV4 as u32) << 16 | 0x4500;
/// Octets of headers without options.
const IPV4_BYTES: u32 = 20;
const IPV6_BYTES: u32 = 40;
const TCP_BYTES: u32 = 20;
const UDP_BYTES: u32 = 8;

/// What is known of a frame before its IP header.
#[derive(Clone, Copy)]
struct Frame {
    bytes: u32,
    /// Octets before the IP header.
    link_bytes: u32,
    vlan: u16,
    decapsulate: bool,
}

/// An IP header that is accepted.
#[derive(Clone, Copy)]
enum Ip<'a> {
    V4(&'a [u8; 20]),
    V6(&'a [u8; 40]),
}

/// Reads an Ethernet frame as [`crate::decode`] does, or declines: `false`, and the packet is as it was.
#[inline]
pub(crate) fn read(bytes: &[u8], frame_bytes: u32, options: DecodeOptions, packet: &mut Packet) -> bool {
    // Up to the end of TCP in IPv4. What is shorter was cut, or not padded.
    let Some(head) = bytes.first_chunk::<54>() else { return false };
    let untagged = Frame { bytes: frame_bytes, link_bytes: 14, vlan: NO_VLAN, decapsulate: options.decapsulate };
    if word(head, 12) & 0xffff_ff00 == IPV4_PLAIN {
        return ipv4(untagged, &bytes[14..], packet);
    }
    match half(head, 12) {
        IPV6 => ipv6(untagged, &bytes[14..], packet),
        TAG => {
            let tagged = Frame { link_bytes: 18, vlan: half(head, 14) & 0x0fff, ..untagged };
            if word(head, 16) & 0xffff_ff00 == IPV4_PLAIN {
                return ipv4(tagged, &bytes[18..], packet);
            }
            half(head, 16) == IPV6 && ipv6(tagged, &bytes[18..], packet)
        }
        _ => false,
    }
}

/// The caller has seen to the first octet.
#[inline(always)]
fn ipv4(frame: Frame, bytes: &[u8], packet: &mut Packet) -> bool {
    if bytes.len() < 40 {
        return false;
    }
    let Some((header, rest)) = bytes.split_first_chunk() else { return false };
    let ip_bytes = word(header, 2) >> 16;
    if ip_bytes + frame.link_bytes > frame.bytes {
        return false;
    }
    // The protocol, if it is no fragment: neither "more fragments" nor an offset; the lifetime lies between.
    const PLAIN_UDP: u32 = UDP as u32;
    const PLAIN_TCP: u32 = TCP as u32;
    match word(header, 6) & 0x3fff_00ff {
        PLAIN_UDP if ip_bytes >= IPV4_BYTES + UDP_BYTES => {
            udp(frame, Ip::V4(header), ip_bytes - IPV4_BYTES, rest, packet)
        }
        PLAIN_TCP if ip_bytes >= IPV4_BYTES + TCP_BYTES => {
            tcp(frame, Ip::V4(header), ip_bytes - IPV4_BYTES, rest, packet)
        }
        _ => false,
    }
}

#[inline(always)]
fn ipv6(frame: Frame, bytes: &[u8], packet: &mut Packet) -> bool {
    let Some((header, rest)) = bytes.split_first_chunk() else { return false };
    let rest_bytes = u32::from(half(header, 4));
    if header[0] >> 4 != 6 || IPV6_BYTES + rest_bytes + frame.link_bytes > frame.bytes {
        return false;
    }
    match header[6] {
        UDP if rest_bytes >= UDP_BYTES => udp(frame, Ip::V6(header), rest_bytes, rest, packet),
        TCP if rest_bytes >= TCP_BYTES => tcp(frame, Ip::V6(header), rest_bytes, rest, packet),
        _ => false,
    }
}

/// `rest_bytes`, and of those captured `bytes`, follow the IP header.
#[inline(always)]
fn udp(frame: Frame, ip: Ip<'_>, rest_bytes: u32, bytes: &[u8], packet: &mut Packet) -> bool {
    let Some(header) = bytes.first_chunk::<4>() else { return false };
    if frame.decapsulate && tunnel::PORTS.contains(&half(header, 2)) {
        return false;
    }
    describe(frame, ip, rest_bytes, header, packet);
    packet.control = 0;
    packet.protocol = UDP;
    packet.flags = Flags(Flags::PORTS);
    packet.sequence = 0;
    packet.acknowledgment = 0;
    packet.payload_bytes = rest_bytes - UDP_BYTES;
    true
}

#[inline(always)]
fn tcp(frame: Frame, ip: Ip<'_>, rest_bytes: u32, bytes: &[u8], packet: &mut Packet) -> bool {
    let Some(header) = bytes.first_chunk::<20>() else { return false };
    let header_bytes = u32::from(header[12] >> 4) * 4;
    if header_bytes < TCP_BYTES || header_bytes > rest_bytes {
        return false;
    }
    describe(frame, ip, rest_bytes, header, packet);
    packet.control = half(header, 12) & 0x0fff;
    packet.protocol = TCP;
    packet.flags = Flags(Flags::PORTS | Flags::TCP);
    packet.sequence = word(header, 4);
    packet.acknowledgment = word(header, 8);
    packet.payload_bytes = rest_bytes - header_bytes;
    packet.window = half(header, 14);
    packet.icmp_or_checksum = part(header, 16);
    if packet.control & Packet::SYN != 0 {
        let options = &bytes[TCP_BYTES as usize..];
        read_options(options.get(..(header_bytes - TCP_BYTES) as usize).unwrap_or(options), packet);
    }
    true
}

/// Writes what is the same for both transport headers, of which `ports` is the beginning.
#[inline(always)]
fn describe<const N: usize>(frame: Frame, ip: Ip<'_>, rest_bytes: u32, ports: &[u8; N], packet: &mut Packet) {
    match ip {
        Ip::V4(header) => {
            packet.source = ipv4_mapped(part(header, 12));
            packet.destination = ipv4_mapped(part(header, 16));
            packet.ip_bytes = IPV4_BYTES + rest_bytes;
            packet.ttl = header[8];
            packet.tos = header[1];
            packet.network = Network::Ipv4;
            packet.identification = word(header, 2) & 0xffff;
        }
        Ip::V6(header) => {
            packet.source = part(header, 8);
            packet.destination = part(header, 24);
            packet.ip_bytes = IPV6_BYTES + rest_bytes;
            packet.ttl = header[7];
            packet.tos = header[0] << 4 | header[1] >> 4;
            packet.network = Network::Ipv6;
            packet.identification = 0;
        }
    }
    packet.frame_bytes = frame.bytes;
    // As one word, so that both are one store.
    let ports = word(ports, 0).rotate_left(16);
    packet.source_port = ports as u16;
    packet.destination_port = (ports >> 16) as u16;
    packet.vlan = frame.vlan;
    packet.inner_vlan = NO_VLAN;
    packet.tunnel_type = TunnelType::None;
    packet.mpls_label = NO_LABEL;
    packet.tunnel_id = 0;
    packet.window = 0;
    packet.icmp_or_checksum = [0; 2];
    packet.outer_source = [0; 16];
    packet.outer_destination = [0; 16];
}

/// `M` octets from a constant place on.
#[inline(always)]
fn part<const N: usize, const M: usize>(octets: &[u8; N], at: usize) -> [u8; M] {
    *octets[at..].first_chunk().expect("the place is a constant within the array")
}

#[inline(always)]
fn half<const N: usize>(octets: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes(part(octets, at))
}

#[inline(always)]
fn word<const N: usize>(octets: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes(part(octets, at))
}
