//! PPP: address and control fields of HDLC-like framing (RFC 1662 section 3.1), which may be
//! absent, and the protocol field (RFC 1661 section 2), which may be compressed to one octet
//! (section 6.5).

use super::next_header::NextHeader;
use crate::frame_slice::FrameSlice;

/// Skips address and control fields if they are present; `None` if the capture ends inside them.
#[inline]
pub(crate) fn skip_address_and_control(frame: FrameSlice<'_>) -> Option<FrameSlice<'_>> {
    match frame.captured() {
        [0xff, 0x03, ..] => frame.skip(2),
        [0xff] => None,
        _ => Some(frame),
    }
}

/// A whole protocol field. The last octet of a protocol number is odd and all others are even,
/// which distinguishes a field of one octet from one of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ppp(u16);

impl Ppp {
    /// Splits the field from the payload; `None` if the capture ends inside it.
    #[inline]
    pub fn split(frame: FrameSlice<'_>) -> Option<(Self, FrameSlice<'_>)> {
        let (&[first], rest) = frame.split()?;
        if first & 1 == 1 {
            return Some((Self(first.into()), rest));
        }
        frame.split().map(|(&field, rest)| (Self(u16::from_be_bytes(field)), rest))
    }

    /// The header that follows: IPv4 (RFC 1332), IPv6 (RFC 5072), MPLS unicast or multicast (RFC
    /// 3032 section 4.3). A frame of another protocol has `ethertype`.
    #[inline]
    pub fn next(self, ethertype: u16) -> NextHeader {
        match self.0 {
            0x0021 => NextHeader::Ipv4,
            0x0057 => NextHeader::Ipv6,
            0x0281 | 0x0283 => NextHeader::Mpls,
            _ => NextHeader::Other(ethertype),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;
    use crate::tests::frames::*;
    use weir_ledger::RefusalReason;

    fn split(bytes: &[u8]) -> Option<(u16, usize)> {
        Ppp::split(FrameSlice::new(bytes, 100)).map(|(ppp, rest)| (ppp.0, rest.captured().len()))
    }

    #[test]
    fn the_field_is_one_octet_if_the_first_is_odd() {
        assert_eq!(split(&[0x21, 0x45]), Some((0x21, 1)));
        assert_eq!(split(&[0x00, 0x21]), Some((0x21, 0)));
        assert_eq!(split(&[0xc0, 0x21, 1]), Some((0xc021, 1)));
    }

    #[test]
    fn a_truncated_field_is_none() {
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
                    let packet = decoded_as(link, &[framing, protocol, ip].concat()).0;
                    assert_eq!((packet.network, packet.source_port, packet.payload_bytes), (network, 5, 1));
                    assert_eq!(packet.ip_bytes as usize, ip.len());
                }
                for protocol in [0x81, 0x83] {
                    let packet = decoded_as(link, &[framing, &[0x02, protocol], &mpls(&[17], &v4)].concat()).0;
                    assert_eq!((packet.mpls_label, packet.source_port), (17, 5));
                }
            }
        }
    }

    #[test]
    fn control_protocols_are_not_ip() {
        for frame in [&[0xff, 0x03, 0xc0, 0x21, 1, 1, 0, 4][..], &[0xc0, 0x21, 1, 1, 0, 4], &[0xfd, 1, 2, 3]] {
            let packet = decoded_as(9, frame).0;
            assert_eq!((packet.network, packet.source_port, packet.source), (Network::Layer2, 0x880b, [0; 16]));
        }
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        let ip = udp_in_v4(5, 6, b"x");
        for header in [&[0xff, 0x03, 0x00, 0x21][..], &[0xff, 0x03, 0x21], &[0x00, 0x21], &[0x21]] {
            let frame = [header, &ip].concat();
            for link in [9, 50] {
                for cut in 0..header.len() + 20 {
                    let in_header = cut < header.len();
                    let reason = if in_header { RefusalReason::LinkTruncated } else { RefusalReason::Ipv4Truncated };
                    assert_eq!(refusal(link, &frame[..cut]), reason, "{header:?} cut at {cut}");
                }
            }
        }
    }
}
