//! Strategies that generate whole frames of every kind that the decoder reads, with their expected
//! fields.

use super::frames::*;
use super::tunnels::{KINDS, wrap};
use crate::{NO_LABEL, NO_VLAN, TunnelType};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(super) struct IpPacket {
    pub octets: Vec<u8>,
    /// Length of all its headers, octets. A capture of that length has every field.
    pub header_bytes: usize,
}

/// A frame without padding, and its link-layer fields.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub octets: Vec<u8>,
    /// Octets before the IP header.
    pub link_bytes: usize,
    pub vlan: u16,
    pub inner_vlan: u16,
    pub mpls_label: u32,
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..64)
}

/// A port that is not the port of a tunnel.
fn port() -> impl Strategy<Value = u16> {
    any::<u16>().prop_filter("port of a tunnel", |port| ![4789, 6081, 2152].contains(port))
}

/// Protocol number, octets, and the length of the header among them.
fn transport(icmp: u8) -> impl Strategy<Value = (u8, Vec<u8>, usize)> {
    let segment = (any::<u16>(), any::<u16>(), any::<[u8; 8]>(), 0u16..0x1000, any::<[u8; 6]>(), 0u8..=10, payload())
        .prop_map(|(source, destination, numbers, control, rest, option_words, payload)| {
            let mut octets = tcp(source, destination, control, &vec![1; usize::from(option_words) * 4]);
            octets[4..12].copy_from_slice(&numbers);
            octets[12] += option_words << 4;
            octets[14..20].copy_from_slice(&rest);
            let header_bytes = octets.len();
            octets.extend(payload);
            (6, octets, header_bytes)
        });
    let datagram = (port(), port(), payload())
        .prop_map(|(source, destination, payload)| (17, udp(source, destination, &payload), 8));
    let message =
        (any::<[u8; 8]>(), payload()).prop_map(move |(header, payload)| (icmp, [&header, &payload[..]].concat(), 8));
    let ports = (prop::sample::select(vec![33, 132, 136]), any::<[u8; 16]>(), payload())
        .prop_map(|(protocol, header, payload)| (protocol, [&header, &payload[..]].concat(), 16));
    let other = (prop::sample::select(vec![2, 50, 59, 89, 255]), payload())
        .prop_map(|(protocol, payload)| (protocol, payload, 0));
    prop_oneof![4 => segment, 4 => datagram, 2 => message, 2 => ports, 1 => other]
}

fn ipv4_packet() -> impl Strategy<Value = IpPacket> {
    // Mostly whole, else a fragment.
    let fragment = prop_oneof![3 => Just(0), 1 => any::<u16>()];
    (transport(1), any::<[u8; 8]>(), any::<(u8, u8, u16)>(), fragment, 0u8..=10).prop_map(
        |((protocol, payload, transport_bytes), addresses, (tos, ttl, identification), fragment, option_words)| {
            let options = vec![1; usize::from(option_words) * 4];
            let mut octets = ipv4(protocol, &[&options, &payload[..]].concat());
            octets[0] += option_words;
            octets[1] = tos;
            octets[4..6].copy_from_slice(&identification.to_be_bytes());
            octets[6..8].copy_from_slice(&fragment.to_be_bytes());
            octets[8] = ttl;
            octets[12..20].copy_from_slice(&addresses);
            IpPacket { octets, header_bytes: 20 + options.len() + transport_bytes }
        },
    )
}

/// Protocol number of an extension header, and its octets; the next header field is still 0.
fn extension() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let padded = (prop::sample::select(vec![43, 60, 135, 139, 140]), 0u8..4).prop_map(|(protocol, words)| {
        (protocol, [&[0, words, 1, 4 + words * 8][..], &vec![0; 4 + usize::from(words) * 8]].concat())
    });
    let authentication =
        (1u8..5).prop_map(|words| (51, [&[0, words][..], &vec![0xaa; (usize::from(words) + 2) * 4 - 2]].concat()));
    let fragment = (any::<[u8; 4]>(), prop_oneof![Just(0), Just(1), any::<u16>()])
        .prop_map(|(identification, field)| (44, [&[0, 0][..], &field.to_be_bytes(), &identification].concat()));
    prop_oneof![padded, authentication, fragment]
}

fn ipv6_packet() -> impl Strategy<Value = IpPacket> {
    let chain = prop_oneof![2 => Just(Vec::new()), 1 => vec(extension(), 1..6)];
    (transport(58), chain, any::<bool>(), any::<([u8; 16], [u8; 16])>(), any::<(u32, u8)>()).prop_map(
        |((protocol, payload, transport_bytes), mut chain, hop_by_hop, (source, destination), (first, hop_limit))| {
            if hop_by_hop && !chain.is_empty() {
                chain.insert(0, (0, vec![0, 0, 5, 2, 0, 0, 1, 0]));
            }
            let (mut next, mut rest) = (protocol, payload);
            let mut header_bytes = 40 + transport_bytes;
            for (protocol, mut extension) in chain.into_iter().rev() {
                extension[0] = next;
                header_bytes += extension.len();
                rest = [extension, rest].concat();
                next = protocol;
            }
            let mut octets = ipv6(next, &rest);
            octets[..4].copy_from_slice(&(0x6000_0000 | first & 0x0fff_ffff).to_be_bytes());
            octets[7] = hop_limit;
            octets[8..24].copy_from_slice(&source);
            octets[24..40].copy_from_slice(&destination);
            IpPacket { octets, header_bytes }
        },
    )
}

/// An IP packet without a tunnel.
pub(super) fn ip_packet() -> impl Strategy<Value = IpPacket> {
    prop_oneof![ipv4_packet(), ipv6_packet()]
}

/// Kinds of tunnels to wrap a packet in, innermost first.
pub(super) fn tunnels() -> impl Strategy<Value = Vec<TunnelType>> {
    vec(prop::sample::select(KINDS), 0..=8)
}

/// Wraps a packet in those of the tunnels that can carry it. Returns the innermost tunnel as well.
pub(super) fn tunnelled(packet: &IpPacket, kinds: &[TunnelType]) -> (IpPacket, Option<TunnelType>) {
    let mut innermost = None;
    let mut octets = packet.octets.clone();
    for &kind in kinds {
        if let Some(outer) = wrap(kind, &octets) {
            octets = outer;
            innermost.get_or_insert(kind);
        }
    }
    let header_bytes = packet.header_bytes + octets.len() - packet.octets.len();
    (IpPacket { octets, header_bytes }, innermost)
}

/// A header between the link layer and IP.
#[derive(Clone, Debug)]
pub(super) enum Header {
    Vlan { tag: u16, ethertype: u16 },
    Mpls { labels: Vec<u32>, control_word: bool },
    Pppoe { compressed: bool },
    Snap,
}

/// Headers between the link layer and IP, innermost first.
pub(super) fn headers() -> impl Strategy<Value = Vec<Header>> {
    let tag = (any::<u16>(), prop::sample::select(vec![0x8100, 0x88a8, 0x9100, 0x9200, 0x9300]))
        .prop_map(|(tag, ethertype)| Header::Vlan { tag, ethertype });
    let stack = (vec(0u32..1 << 20, 1..=16), any::<bool>())
        .prop_map(|(labels, control_word)| Header::Mpls { labels, control_word });
    let session = any::<bool>().prop_map(|compressed| Header::Pppoe { compressed });
    vec(prop_oneof![3 => tag, 2 => stack, 1 => session, 1 => Just(Header::Snap)], 0..6)
}

/// Puts an IP packet into a frame of a link type, behind those of the headers that the link type
/// can carry.
pub(super) fn framed(link: u16, headers: &[Header], packet: &[u8]) -> Frame {
    let mut ethertype = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
    let is_ip = |ethertype: u16| matches!(ethertype, 0x0800 | 0x86dd);
    let mut octets = packet.to_vec();
    let (mut tags, mut label) = (Vec::new(), NO_LABEL);
    // Other link types are followed by IP.
    let headers = if matches!(link, 1 | 100 | 104 | 113 | 276) { headers } else { &[] };
    for header in headers {
        match header {
            Header::Vlan { tag, ethertype: announced } => {
                octets = vlan(*tag, ethertype, &octets);
                ethertype = *announced;
                tags.insert(0, tag & 0x0fff);
            }
            Header::Mpls { labels, control_word } => {
                if !is_ip(ethertype) {
                    octets = ethernet(ethertype, &octets);
                    if *control_word {
                        octets = [&[0; 4], &octets[..]].concat();
                    } else {
                        octets[0] = 0x8e;
                    }
                }
                octets = mpls(labels, &octets);
                ethertype = 0x8847;
                label = labels[0];
            }
            Header::Pppoe { compressed } => {
                let (protocol, short): (&[u8], &[u8]) = match ethertype {
                    0x0800 => (&[0, 0x21], &[0x21]),
                    0x86dd => (&[0, 0x57], &[0x57]),
                    0x8847 => (&[2, 0x81], &[2, 0x81]),
                    _ => continue,
                };
                octets = pppoe(if *compressed { short } else { protocol }, &octets);
                ethertype = 0x8864;
            }
            // Cisco HDLC has no length in place of the EtherType.
            Header::Snap if ethertype >= 0x0600 && link != 104 => {
                let [a, b] = ethertype.to_be_bytes();
                octets = [&[0xaa, 0xaa, 3, 0, 0, 0, a, b], &octets[..]].concat();
                ethertype = octets.len().min(1500) as u16;
            }
            Header::Snap => {}
        }
    }
    let [a, b] = ethertype.to_be_bytes();
    // Cooked frames have a Linux protocol number in place of a length.
    let [c, d] = if ethertype < 0x0600 { [0, 4] } else { [a, b] };
    let is_v4 = packet[0] >> 4 == 4;
    octets = match link {
        1 => ethernet(ethertype, &octets),
        113 => [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, c, d], &octets[..]].concat(),
        276 => [&[c, d, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0], &octets[..]].concat(),
        0 => [&[if is_v4 { 2 } else { 30 }, 0, 0, 0], &octets[..]].concat(),
        9 => [&[if is_v4 { 0x21 } else { 0x57 }], &octets[..]].concat(),
        50 => [&[0xff, 0x03, 0x00, if is_v4 { 0x21 } else { 0x57 }], &octets[..]].concat(),
        100 if ethertype < 0x0600 => octets,
        100 => [&[0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 7, 0, 0], &ethernet(ethertype, &octets)[..]].concat(),
        104 => [&[0x0f, 0, a, b], &octets[..]].concat(),
        239 => {
            let [low, high] = (octets.len() as u16 + 4).to_le_bytes();
            let family = if is_v4 { 2 } else { 10 };
            [&[family, 0, 0, 1, 8, 0, 1, 0, 8, 0, 1, 0, low, high, 9, 0], &octets[..]].concat()
        }
        _ => octets,
    };
    let mut tags = tags.into_iter();
    let mut tag = || tags.next().unwrap_or(NO_VLAN);
    let (vlan, inner_vlan) = (tag(), tag());
    Frame { link_bytes: octets.len() - packet.len(), octets, vlan, inner_vlan, mpls_label: label }
}

/// A link type that can carry either version of IP.
pub(super) fn link() -> impl Strategy<Value = u16> {
    prop_oneof![4 => Just(1), 1 => prop::sample::select(vec![0, 9, 12, 14, 50, 100, 101, 104, 113, 239, 276])]
}
