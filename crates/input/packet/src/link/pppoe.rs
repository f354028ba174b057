//! PPPoE sessions (RFC 2516 section 4): version and type, code, session identifier, length, then
//! PPP.

use super::next_header::{NextHeader, PPPOE_SESSION};
use crate::frame_slice::FrameSlice;

/// Version 1 and type 1, and the code of session data.
const SESSION_DATA: [u8; 2] = [0x11, 0];

/// Splits the header from its payload; `None` if the capture ends inside it.
#[inline]
pub(crate) fn split(frame: FrameSlice<'_>) -> Option<(NextHeader, FrameSlice<'_>)> {
    let (&[version_and_type, code, ..], rest) = frame.split::<6>()?;
    let is_session_data = [version_and_type, code] == SESSION_DATA;
    let next = if is_session_data { NextHeader::Ppp(PPPOE_SESSION) } else { NextHeader::Other(PPPOE_SESSION) };
    Some((next, rest))
}

#[cfg(test)]
mod tests {
    use crate::tests::frames::*;
    use crate::{NO_LABEL, Network};

    fn session(protocol: &[u8], payload: &[u8]) -> Vec<u8> {
        ethernet(0x8864, &pppoe(protocol, payload))
    }

    #[test]
    fn a_session_leads_to_ip_with_and_without_protocol_compression() {
        for protocol in [&[0x00, 0x21][..], &[0x21]] {
            assert_leads_to(Network::Ipv4, 1, &session(protocol, &udp_in_v4(5, 6, b"x")));
        }
        for protocol in [&[0x00, 0x57][..], &[0x57]] {
            assert_leads_to(Network::Ipv6, 1, &session(protocol, &udp_in_v6(5, 6, b"x")));
        }
    }

    #[test]
    fn a_session_may_carry_a_label_stack() {
        for protocol in [&[0x02, 0x81], &[0x02, 0x83]] {
            let frame = session(protocol, &mpls(&[17], &udp_in_v4(5, 6, b"x")));
            assert_eq!(assert_leads_to(Network::Ipv4, 1, &frame).mpls_label, 17);
        }
    }

    #[test]
    fn other_protocols_and_impossible_headers_are_not_ip() {
        let lcp = session(&[0xc0, 0x21], &[1, 1, 0, 4]);
        let compressed = session(&[0xfd], &[1, 1, 0, 4]);
        let mut version = session(&[0x21], &udp_in_v4(5, 6, b"x"));
        version[14] = 0x21;
        for frame in [lcp, compressed, version] {
            assert_eq!(assert_not_ip(1, &frame, 0x8864).mpls_label, NO_LABEL);
        }
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        assert_truncation_is_refused(1, &session(&[0, 0x21], &udp_in_v4(5, 6, b"x")), 22);
    }
}
