//! PPPoE sessions (RFC 2516 section 4): version and type, code, session identifier, length, then
//! PPP.

use super::next_header::{NextHeader, PPPOE_SESSION};
use crate::frame_slice::FrameSlice;

/// A whole PPPoE header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pppoe<'a>(&'a [u8; 6]);

impl<'a> Pppoe<'a> {
    /// Splits the header from its payload; `None` if the capture ends inside it.
    #[inline]
    pub fn split(frame: FrameSlice<'a>) -> Option<(Self, FrameSlice<'a>)> {
        frame.split().map(|(header, rest)| (Self(header), rest))
    }

    /// The header that follows: PPP if version and type are 1 and the code is that of session data.
    #[inline]
    pub fn next(self) -> NextHeader {
        let [version_and_type, code, ..] = *self.0;
        if version_and_type == 0x11 && code == 0 {
            NextHeader::Ppp(PPPOE_SESSION)
        } else {
            NextHeader::Other(PPPOE_SESSION)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::frames::*;
    use crate::{NO_LABEL, Network};
    use weir_ledger::RefusalReason;

    #[test]
    fn a_session_leads_to_ip_with_and_without_protocol_compression() {
        for protocol in [&[0x00, 0x21][..], &[0x21]] {
            let packet = decoded(&ethernet(0x8864, &pppoe(protocol, &udp_in_v4(5, 6, b"x")))).0;
            assert_eq!((packet.network, packet.source_port), (Network::Ipv4, 5));
        }
        for protocol in [&[0x00, 0x57][..], &[0x57]] {
            let packet = decoded(&ethernet(0x8864, &pppoe(protocol, &udp_in_v6(5, 6, b"x")))).0;
            assert_eq!((packet.network, packet.source_port), (Network::Ipv6, 5));
        }
    }

    #[test]
    fn a_session_may_carry_a_label_stack() {
        for protocol in [&[0x02, 0x81], &[0x02, 0x83]] {
            let frame = ethernet(0x8864, &pppoe(protocol, &mpls(&[17], &udp_in_v4(5, 6, b"x"))));
            let packet = decoded(&frame).0;
            assert_eq!((packet.mpls_label, packet.source_port), (17, 5));
        }
    }

    #[test]
    fn other_protocols_and_impossible_headers_are_not_ip() {
        let lcp = ethernet(0x8864, &pppoe(&[0xc0, 0x21], &[1, 1, 0, 4]));
        let compressed = ethernet(0x8864, &pppoe(&[0xfd], &[1, 1, 0, 4]));
        let mut version = ethernet(0x8864, &pppoe(&[0x21], &udp_in_v4(5, 6, b"x")));
        version[14] = 0x21;
        for frame in [lcp, compressed, version] {
            let packet = decoded(&frame).0;
            assert_eq!((packet.network, packet.source_port), (Network::Layer2, 0x8864));
            assert_eq!(packet.mpls_label, NO_LABEL);
        }
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        let frame = ethernet(0x8864, &pppoe(&[0, 0x21], &udp_in_v4(5, 6, b"x")));
        for cut in 14..22 {
            assert_eq!(refusal(1, &frame[..cut]), RefusalReason::LinkTruncated);
        }
        assert_eq!(refusal(1, &frame[..22]), RefusalReason::Ipv4Truncated);
    }
}
