//! GRE: version 0 (RFC 2784) with checksum, key and sequence number (RFC 2890), and version 1 (RFC 2637),
//! which carries PPP and names the call in half of its key.

use super::Malformed;
use crate::link::{self, Next};
use crate::octets::Octets;

/// Protocol number.
pub(super) const PROTOCOL: u8 = 47;

/// Bits of the first octet.
const CHECKSUM: u8 = 0x80;
const ROUTING: u8 = 0x40;
const KEY: u8 = 0x20;
const SEQUENCE: u8 = 0x10;
/// Bit of the second octet, in version 1.
const ACKNOWLEDGMENT: u8 = 0x80;

/// Protocol types besides EtherTypes.
const ETHERNET: u16 = 0x6558;
const PPP: u16 = 0x880b;

/// Address and control of HDLC, which PPP may begin with (RFC 1662 section 3.1).
const ADDRESS_AND_CONTROL: &[u8] = &[0xff, 0x03];

/// A whole GRE header of either version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gre {
    identifier: Option<u32>,
    next: Next,
}

impl Gre {
    /// Splits the header from what follows.
    ///
    /// # Errors
    /// It is cut, or of another version, or has source routes (which RFC 2784 took away).
    #[inline]
    pub fn split(octets: Octets<'_>) -> Result<(Self, Octets<'_>), Malformed> {
        let (&[bits, version, a, b], rest) = octets.split().ok_or(Malformed)?;
        let protocol = u16::from_be_bytes([a, b]);
        match version & 0x07 {
            _ if bits & ROUTING != 0 => Err(Malformed),
            0 => Self::split_version_0(bits, protocol, rest).ok_or(Malformed),
            // Version 1 has no checksum, always a key, and no other protocol.
            1 if bits & (CHECKSUM | KEY) == KEY && protocol == PPP => {
                let acknowledged = version & ACKNOWLEDGMENT != 0;
                Self::split_version_1(bits, acknowledged, rest).ok_or(Malformed)
            }
            _ => Err(Malformed),
        }
    }

    #[inline]
    fn split_version_0(bits: u8, protocol: u16, mut rest: Octets<'_>) -> Option<(Self, Octets<'_>)> {
        let mut identifier = None;
        if bits & CHECKSUM != 0 {
            rest = rest.skip(4)?;
        }
        if bits & KEY != 0 {
            let (&key, behind) = rest.split()?;
            identifier = Some(u32::from_be_bytes(key));
            rest = behind;
        }
        if bits & SEQUENCE != 0 {
            rest = rest.skip(4)?;
        }
        let next = match protocol {
            ETHERNET => Next::Ethernet,
            PPP => {
                rest = without_address_and_control(rest);
                Next::Ppp
            }
            link::IPV4 | link::IPV6 => Next::of_ethertype(protocol),
            other if link::is_vlan(other) || link::MPLS.contains(&other) => Next::of_ethertype(other),
            other => Next::Other(other),
        };
        Some((Self { identifier, next }, rest))
    }

    #[inline]
    fn split_version_1(bits: u8, acknowledged: bool, rest: Octets<'_>) -> Option<(Self, Octets<'_>)> {
        // The other half of the key is the length of the payload.
        let (&[_, _, a, b], rest) = rest.split()?;
        let call = u16::from_be_bytes([a, b]);
        let numbered = bits & SEQUENCE != 0;
        let rest = rest.skip(4 * (usize::from(numbered) + usize::from(acknowledged)))?;
        // Only packets with a payload are numbered; others acknowledge (section 4.1).
        let next = if numbered { Next::Ppp } else { Next::Other(PPP) };
        Some((Self { identifier: Some(call.into()), next }, without_address_and_control(rest)))
    }

    /// The key of version 0, the call of version 1.
    #[inline]
    pub fn identifier(self) -> Option<u32> {
        self.identifier
    }

    /// What follows.
    #[inline]
    pub fn next(self) -> Next {
        self.next
    }
}

/// The protocol field of PPP, behind address and control if they are there.
#[inline]
fn without_address_and_control(octets: Octets<'_>) -> Octets<'_> {
    if octets.captured().starts_with(ADDRESS_AND_CONTROL) {
        octets.skip(ADDRESS_AND_CONTROL.len()).unwrap_or(octets)
    } else {
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::PROTOCOL;
    use crate::tests::build::*;
    use crate::{Flags, Network, TunnelType};

    /// GRE in IPv4, with `header` up to the payload.
    fn gre(header: &[u8], payload: &[u8]) -> Vec<u8> {
        ipv4_from([192, 0, 2, 1], [192, 0, 2, 2], PROTOCOL, &[header, payload].concat())
    }

    #[test]
    fn optional_fields_are_passed_and_the_key_is_kept() {
        for (header, key) in [
            (&[0x00, 0, 8, 0][..], None),
            (&[0x80, 0, 8, 0, 1, 2, 3, 4], None),
            (&[0x20, 0, 8, 0, 1, 2, 3, 4], Some(0x0102_0304)),
            (&[0x10, 0, 8, 0, 9, 9, 9, 9], None),
            (&[0xb0, 0, 8, 0, 8, 8, 8, 8, 1, 2, 3, 4, 9, 9, 9, 9], Some(0x0102_0304)),
            (&[0x20, 0, 8, 0, 0, 0, 0, 0], Some(0)),
        ] {
            let (packet, notes) = entered(228, &gre(header, &udp_in_v4(5, 6, b"x")));
            assert!(notes.is_empty());
            assert_eq!((packet.tunnel_type, packet.source_port, packet.ip_bytes), (TunnelType::Gre, 5, 29));
            assert_eq!(packet.flags.has(Flags::TUNNEL_ID).then_some(packet.tunnel_id), key);
            assert_outer_v4(&packet);
        }
    }

    #[test]
    fn every_payload_of_the_list_is_entered() {
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
            let (packet, notes) = entered(1, &frame);
            assert!(notes.is_empty());
            assert_eq!((packet.tunnel_type, packet.source_port), (TunnelType::Gre, 5), "protocol {protocol:#x}");
            // Tags and labels are those of the outer frame.
            assert_eq!((packet.vlan, packet.inner_vlan), (77, crate::NO_VLAN));
            assert_eq!(packet.mpls_label, crate::NO_LABEL);
        }
    }

    #[test]
    fn version_1_carries_ppp_and_is_named_by_its_call() {
        let ppp = [&[0xff, 0x03, 0x21], &udp_in_v4(5, 6, b"x")[..]].concat();
        for header in [
            &[0x30, 0x01, 0x88, 0x0b, 0, 32, 0x12, 0x34, 0, 0, 0, 1][..],
            &[0x30, 0x81, 0x88, 0x0b, 0, 32, 0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 2],
        ] {
            let (packet, notes) = entered(228, &gre(header, &ppp));
            assert!(notes.is_empty());
            assert_eq!((packet.tunnel_type, packet.tunnel_id, packet.source_port), (TunnelType::Gre, 0x1234, 5));
        }
    }

    #[test]
    fn what_does_not_lead_to_ip_is_no_fault() {
        for packet in [
            // An acknowledgment alone, and PPP of something else.
            gre(&[0x20, 0x81, 0x88, 0x0b, 0, 0, 0x12, 0x34, 0, 0, 0, 2], &[]),
            gre(&[0, 0, 0x88, 0x0b], &[0xff, 0x03, 0xc0, 0x21, 1, 1, 0, 4]),
            // ARP in Ethernet, ERSPAN, keepalive.
            gre(&[0, 0, 0x65, 0x58], &ethernet(0x0806, &[0; 28])),
            gre(&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1], &[0; 60]),
            gre(&[0, 0, 0, 0], &[]),
        ] {
            assert_not_entered(228, &packet, &[]);
        }
    }

    #[test]
    fn impossible_headers_are_not_entered() {
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
    fn a_header_cut_anywhere_is_not_entered() {
        let inner = udp_in_v4(5, 6, b"x");
        for header in [
            &[0xb0, 0, 8, 0, 8, 8, 8, 8, 1, 2, 3, 4, 9, 9, 9, 9][..],
            &[0x30, 0x81, 0x88, 0x0b, 0, 30, 0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 2, 0x21],
        ] {
            let packet = gre(header, &inner);
            assert_entered_from(228, &packet, 20..20 + header.len() + 20);
            assert_eq!(entered(228, &packet).0.network, Network::Ipv4);
        }
    }
}
