//! GRE: version 0 (RFC 2784) with checksum, key and sequence number (RFC 2890), and version 1 (RFC
//! 2637), which carries PPP and has the call ID in the lower half of its key.

use super::header::TunnelHeader;
use crate::frame_slice::{FrameSlice, be16, be32};
use crate::link::{self, NextHeader, skip_address_and_control};

/// Protocol number of GRE.
pub(super) const PROTOCOL: u8 = 47;

/// Flags in the first octet.
const CHECKSUM: u8 = 0x80;
const ROUTING: u8 = 0x40;
const KEY: u8 = 0x20;
const SEQUENCE: u8 = 0x10;
/// Flag in the second octet, version 1.
const ACKNOWLEDGMENT: u8 = 0x80;

/// Protocol type of PPP (RFC 2637).
const PPP: u16 = 0x880b;

/// Splits the header from its payload; `None` if the header is truncated, of another version, or
/// has source routes (removed by RFC 2784). The identifier is the key of version 0, or the call ID
/// of version 1.
#[inline]
pub(super) fn split(slice: FrameSlice<'_>) -> Option<TunnelHeader<'_>> {
    let (header, rest) = slice.split::<4>()?;
    let (bits, protocol) = (header[0], be16(header, 2));
    match header[1] & 0x07 {
        _ if bits & ROUTING != 0 => None,
        0 => split_version_0(bits, protocol, rest),
        // Version 1 has a key, no checksum, and only carries PPP.
        1 if bits & (CHECKSUM | KEY) == KEY && protocol == PPP => {
            split_version_1(bits, header[1] & ACKNOWLEDGMENT != 0, rest)
        }
        _ => None,
    }
}

#[inline]
fn split_version_0(bits: u8, protocol: u16, mut rest: FrameSlice<'_>) -> Option<TunnelHeader<'_>> {
    let mut identifier = None;
    if bits & CHECKSUM != 0 {
        rest = rest.skip(4)?;
    }
    if bits & KEY != 0 {
        let (key, after) = rest.split::<4>()?;
        identifier = Some(be32(key, 0));
        rest = after;
    }
    if bits & SEQUENCE != 0 {
        rest = rest.skip(4)?;
    }
    let next = match protocol {
        link::ETHERNET_BRIDGING => NextHeader::Ethernet,
        PPP => {
            rest = skip_address_and_control(rest).unwrap_or(rest);
            NextHeader::Ppp(PPP)
        }
        link::IPV4 | link::IPV6 => NextHeader::of_ethertype(protocol),
        other if link::is_vlan(other) || link::is_mpls(other) => NextHeader::of_ethertype(other),
        other => NextHeader::Other(other),
    };
    Some(TunnelHeader { identifier, next, payload: rest })
}

#[inline]
fn split_version_1(bits: u8, acknowledged: bool, rest: FrameSlice<'_>) -> Option<TunnelHeader<'_>> {
    // The upper half of the key is the payload length.
    let (key, rest) = rest.split::<4>()?;
    let numbered = bits & SEQUENCE != 0;
    let rest = rest.skip(4 * (usize::from(numbered) + usize::from(acknowledged)))?;
    // Only packets with a payload have a sequence number; others only acknowledge (section 4.1).
    let next = if numbered { NextHeader::Ppp(PPP) } else { NextHeader::Other(PPP) };
    let payload = skip_address_and_control(rest).unwrap_or(rest);
    Some(TunnelHeader { identifier: Some(be16(key, 2).into()), next, payload })
}

#[cfg(test)]
mod tests {
    use super::PROTOCOL;
    use crate::tests::frames::*;
    use crate::{Flags, Network, TunnelType};

    /// GRE in IPv4, with `header` up to the payload.
    fn gre(header: &[u8], payload: &[u8]) -> Vec<u8> {
        ipv4_from([192, 0, 2, 1], [192, 0, 2, 2], PROTOCOL, &[header, payload].concat())
    }

    #[test]
    fn optional_fields_are_skipped_and_the_key_is_stored() {
        for (header, key) in [
            (&[0x00, 0, 8, 0][..], None),
            (&[0x80, 0, 8, 0, 1, 2, 3, 4], None),
            (&[0x20, 0, 8, 0, 1, 2, 3, 4], Some(0x0102_0304)),
            (&[0x10, 0, 8, 0, 9, 9, 9, 9], None),
            (&[0xb0, 0, 8, 0, 8, 8, 8, 8, 1, 2, 3, 4, 9, 9, 9, 9], Some(0x0102_0304)),
            (&[0x20, 0, 8, 0, 0, 0, 0, 0], Some(0)),
        ] {
            let packet = without_anomalies(decapsulated(228, &gre(header, &udp_in_v4(5, 6, b"x"))));
            assert_eq!((packet.tunnel_type, packet.source_port, packet.ip_bytes), (TunnelType::Gre, 5, 29));
            assert_eq!(packet.flags.has(Flags::TUNNEL_ID).then_some(packet.tunnel_id), key);
            assert_outer_v4(&packet);
        }
    }

    #[test]
    fn every_documented_payload_is_decapsulated() {
        let v4 = udp_in_v4(5, 6, b"x");
        for (protocol, payload) in [
            (0x86dd, udp_in_v6(5, 6, b"x")),
            (0x880b, [&[0x00, 0x21][..], &v4].concat()),
            (0x880b, [&[0x21][..], &v4].concat()),
            (0x880b, [&[0xff, 0x03, 0x00, 0x21][..], &v4].concat()),
            (0x880b, [&[0x02, 0x81][..], &mpls(&[1], &v4)].concat()),
            (0x8847, mpls(&[1, 2], &v4)),
            (0x8848, mpls(&[1, 2], &v4)),
            (0x6558, ethernet(0x0800, &v4)),
            (0x6558, ethernet(0x88a8, &vlan(1, 0x8100, &vlan(2, 0x0800, &v4)))),
            (0x8100, vlan(1, 0x0800, &v4)),
            (0x88a8, vlan(1, 0x8100, &vlan(2, 0x0800, &v4))),
        ] {
            let [a, b] = u16::to_be_bytes(protocol);
            let frame = ethernet(0x8100, &vlan(77, 0x0800, &gre(&[0, 0, a, b], &payload)));
            let packet = without_anomalies(decapsulated(1, &frame));
            assert_eq!((packet.tunnel_type, packet.source_port), (TunnelType::Gre, 5), "protocol {protocol:#x}");
            // VLAN tags and labels are those of the outer frame.
            assert_eq!((packet.vlan, packet.inner_vlan), (77, crate::NO_VLAN));
            assert_eq!(packet.mpls_label, crate::NO_LABEL);
        }
    }

    #[test]
    fn version_1_carries_ppp_and_is_identified_by_its_call() {
        let ppp = [&[0xff, 0x03, 0x21], &udp_in_v4(5, 6, b"x")[..]].concat();
        for header in [
            &[0x30, 0x01, 0x88, 0x0b, 0, 32, 0x12, 0x34, 0, 0, 0, 1][..],
            &[0x30, 0x81, 0x88, 0x0b, 0, 32, 0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 2],
        ] {
            let packet = without_anomalies(decapsulated(228, &gre(header, &ppp)));
            assert_eq!((packet.tunnel_type, packet.tunnel_id, packet.source_port), (TunnelType::Gre, 0x1234, 5));
        }
    }

    #[test]
    fn a_payload_without_ip_is_not_an_anomaly() {
        for packet in [
            // A bare acknowledgment, and a PPP control protocol.
            gre(&[0x20, 0x81, 0x88, 0x0b, 0, 0, 0x12, 0x34, 0, 0, 0, 2], &[]),
            gre(&[0, 0, 0x88, 0x0b], &[0xff, 0x03, 0xc0, 0x21, 1, 1, 0, 4]),
            // ARP in Ethernet, ERSPAN, keepalive.
            gre(&[0, 0, 0x65, 0x58], &ethernet(0x0806, &[0; 28])),
            gre(&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1], &[0; 60]),
            gre(&[0, 0, 0, 0], &[]),
        ] {
            assert_not_decapsulated(228, &packet, &[]);
        }
    }

    #[test]
    fn impossible_headers_are_not_decapsulated() {
        let v4 = udp_in_v4(5, 6, b"x");
        for header in [
            // Source routes; versions 2 and 7.
            &[0x40, 0, 8, 0, 0, 0, 0, 0][..],
            &[0, 2, 8, 0],
            &[0, 7, 8, 0],
            // Version 1 without a key, with a checksum, with another protocol.
            &[0x10, 1, 0x88, 0x0b, 0, 0, 0, 1],
            &[0xb0, 1, 0x88, 0x0b, 0, 0, 0, 1, 0, 30, 0, 1, 0, 0, 0, 1],
            &[0x30, 1, 8, 0, 0, 30, 0, 1, 0, 0, 0, 1],
        ] {
            assert_malformed(228, &gre(header, &v4));
        }
    }

    #[test]
    fn a_truncated_header_is_not_decapsulated() {
        let inner = udp_in_v4(5, 6, b"x");
        for header in [
            &[0xb0, 0, 8, 0, 8, 8, 8, 8, 1, 2, 3, 4, 9, 9, 9, 9][..],
            &[0x30, 0x81, 0x88, 0x0b, 0, 30, 0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 2, 0x21],
        ] {
            let packet = gre(header, &inner);
            assert_decapsulated_from(228, &packet, 20..20 + header.len() + 20);
            assert_eq!(decapsulated(228, &packet).0.network, Network::Ipv4);
        }
    }
}
