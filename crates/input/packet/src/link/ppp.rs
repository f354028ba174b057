//! PPP: address and control fields of HDLC-like framing (RFC 1662 section 3.1), which may be
//! absent, and the protocol field (RFC 1661 section 2), which may be compressed to one octet
//! (section 6.5).

use super::next_header::NextHeader;
use crate::frame_slice::FrameSlice;

// Protocol numbers: RFC 1332, RFC 5072, RFC 3032 section 4.3.
const IPV4: u16 = 0x0021;
const IPV6: u16 = 0x0057;
const MPLS_UNICAST: u16 = 0x0281;
const MPLS_MULTICAST: u16 = 0x0283;

/// Skips address and control fields if they are present; `None` if the capture ends inside them.
#[inline]
pub(crate) fn skip_address_and_control(frame: FrameSlice<'_>) -> Option<FrameSlice<'_>> {
    match frame.captured() {
        [0xff, 0x03, ..] => frame.skip(2),
        [0xff] => None,
        _ => Some(frame),
    }
}

/// Splits the protocol field from the payload; `None` if the capture ends inside it. A frame of a
/// protocol that does not lead to IP has `ethertype`.
#[inline]
pub(crate) fn split(frame: FrameSlice<'_>, ethertype: u16) -> Option<(NextHeader, FrameSlice<'_>)> {
    let (protocol, rest) = split_protocol(frame)?;
    let next = match protocol {
        IPV4 => NextHeader::Ipv4,
        IPV6 => NextHeader::Ipv6,
        MPLS_UNICAST | MPLS_MULTICAST => NextHeader::Mpls,
        _ => NextHeader::Other(ethertype),
    };
    Some((next, rest))
}

/// The last octet of a protocol number is odd and all others are even, which distinguishes a field
/// of one octet from one of two.
#[inline]
fn split_protocol(frame: FrameSlice<'_>) -> Option<(u16, FrameSlice<'_>)> {
    let (&[first], rest) = frame.split()?;
    if first & 1 == 1 {
        return Some((first.into(), rest));
    }
    frame.split().map(|(&field, rest)| (u16::from_be_bytes(field), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;
    use crate::tests::frames::*;

    #[test]
    fn the_field_is_one_octet_if_the_first_is_odd() {
        let split = |bytes: &[u8]| {
            split_protocol(FrameSlice::new(bytes, 100)).map(|(protocol, rest)| (protocol, rest.captured().len()))
        };
        assert_eq!(split(&[0x21, 0x45]), Some((0x21, 1)));
        assert_eq!(split(&[0x00, 0x21]), Some((0x21, 0)));
        assert_eq!(split(&[0xc0, 0x21, 1]), Some((0xc021, 1)));
        assert_eq!((split(&[]), split(&[0]), split(&[0xc0])), (None, None, None));
    }

    #[test]
    fn frames_lead_to_ip_with_and_without_address_and_control() {
        let (v4, v6) = (udp_in_v4(5, 6, b"x"), udp_in_v6(5, 6, b"x"));
        for link in [9, 50] {
            for framing in [&[][..], &[0xff, 0x03]] {
                for (protocol, ip, network) in [
                    (&[0x00, 0x21][..], &v4, Network::Ipv4),
                    (&[0x21], &v4, Network::Ipv4),
                    (&[0x00, 0x57], &v6, Network::Ipv6),
                    (&[0x57], &v6, Network::Ipv6),
                ] {
                    assert_leads_to(network, link, &[framing, protocol, ip].concat());
                }
                for protocol in [0x81, 0x83] {
                    let frame = [framing, &[0x02, protocol], &mpls(&[17], &v4)].concat();
                    assert_eq!(assert_leads_to(Network::Ipv4, link, &frame).mpls_label, 17);
                }
            }
        }
    }

    #[test]
    fn control_protocols_have_no_ethertype() {
        for frame in [&[0xff, 0x03, 0xc0, 0x21, 1, 1, 0, 4][..], &[0xc0, 0x21, 1, 1, 0, 4], &[0xfd, 1, 2, 3]] {
            assert_eq!(assert_not_ip(9, frame, 0).source, [0; 16]);
        }
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        for header in [&[0xff, 0x03, 0x00, 0x21][..], &[0xff, 0x03, 0x21], &[0x00, 0x21], &[0x21]] {
            for link in [9, 50] {
                assert_truncation_is_refused(link, &[header, &udp_in_v4(5, 6, b"x")].concat(), header.len());
            }
        }
    }
}
