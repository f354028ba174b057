//! IEEE 802.2 logical link control: IP after its own service access point, or after a SNAP header,
//! which carries an EtherType (RFC 1042; IEEE 802.1H for bridge tunnels).

use super::next_header::NextHeader;
use crate::frame_slice::{FrameSlice, be16};

/// Both service access points of SNAP, unnumbered information, and an organization under which the
/// protocol is an EtherType: RFC 1042, and the bridge tunnel of IEEE 802.1H.
const SNAP: [[u8; 6]; 2] = [[0xaa, 0xaa, 0x03, 0, 0, 0], [0xaa, 0xaa, 0x03, 0, 0, 0xf8]];
/// Octets of the LLC and SNAP headers.
const SNAP_BYTES: usize = 8;
/// Both service access points of IP (assigned by IEEE), and unnumbered information.
const IP: [u8; 3] = [0x06, 0x06, 0x03];

/// Splits the LLC header, and the SNAP header if there is one, from the payload. Returns the header
/// that follows, `None` after any other service access point or organization (spanning tree,
/// NetBIOS). The result is `None` if the capture ends before the kind of header is known.
#[inline]
pub(crate) fn split(frame: FrameSlice<'_>) -> Option<(Option<NextHeader>, FrameSlice<'_>)> {
    if SNAP.iter().any(|snap| may_begin_with(frame, snap, SNAP_BYTES)) {
        let (header, rest) = frame.split::<SNAP_BYTES>()?;
        return Some((Some(NextHeader::of_ethertype(be16(header, 6))), rest));
    }
    if may_begin_with(frame, &IP, IP.len()) {
        return Some((Some(NextHeader::AnyIp), frame.skip(IP.len())?));
    }
    Some((None, frame))
}

/// Whether a frame can begin with a header of `header_bytes` octets that starts with `prefix`. One
/// captured octet that differs rules it out, however few octets were captured.
#[inline]
pub(super) fn may_begin_with(frame: FrameSlice<'_>, prefix: &[u8], header_bytes: usize) -> bool {
    frame.captured().iter().zip(prefix).all(|(octet, expected)| octet == expected)
        && frame.wire_bytes() as usize >= header_bytes
}

#[cfg(test)]
mod tests {
    use crate::Network;
    use crate::tests::frames::*;
    use weir_ledger::RefusalReason;

    /// `organization` is the last octet of its identifier.
    fn snap(organization: u8, ethertype: u16, payload: &[u8]) -> Vec<u8> {
        [&[0xaa, 0xaa, 3, 0, 0, organization], &ethertype.to_be_bytes()[..], payload].concat()
    }

    /// An IEEE 802.3 frame: the length is in place of the EtherType.
    fn ieee_802_3(payload: &[u8]) -> Vec<u8> {
        ethernet(payload.len() as u16, payload)
    }

    #[test]
    fn snap_and_the_access_point_of_ip_lead_to_ip() {
        let (v4, v6) = (udp_in_v4(5, 6, b"x"), udp_in_v6(5, 6, b"x"));
        for payload in [snap(0, 0x0800, &v4), snap(0xf8, 0x0800, &v4), [&[6, 6, 3], &v4[..]].concat()] {
            for mut frame in [ieee_802_3(&payload), ethernet(0x8100, &vlan(3, payload.len() as u16, &payload))] {
                frame.resize(64, 0);
                assert_leads_to(Network::Ipv4, 1, &frame);
            }
        }
        for payload in [snap(0, 0x86dd, &v6), snap(0xf8, 0x86dd, &v6), [&[6, 6, 3], &v6[..]].concat()] {
            assert_leads_to(Network::Ipv6, 1, &ieee_802_3(&payload));
        }
    }

    #[test]
    fn snap_with_another_ethertype_is_not_ip() {
        for organization in [0, 0xf8] {
            assert_not_ip(1, &ieee_802_3(&snap(organization, 0x0806, &[0; 28])), 0x0806);
        }
    }

    #[test]
    fn frames_without_an_ethertype_have_ethertype_0() {
        let spanning_tree = [0x42, 0x42, 3, 0, 0, 0, 0, 0];
        let cisco_discovery = [0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0];
        let low_ethertype = [0xaa, 0xaa, 3, 0, 0, 0, 0, 4];
        let other_control = [6, 6, 0xbf, 0x45];
        let mixed_access_points = [6, 0x42, 3, 0x45];
        let payloads: [&[u8]; 7] =
            [&spanning_tree, &cisco_discovery, &low_ethertype, &other_control, &mixed_access_points, &[0x42], &[]];
        for payload in payloads {
            assert_not_ip(1, &ethernet(38, payload), 0);
        }
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        let ip = udp_in_v4(5, 6, b"x");
        for organization in [0, 0xf8] {
            assert_truncation_is_refused(1, &ieee_802_3(&snap(organization, 0x0800, &ip)), 22);
        }
        // Without an EtherType, the first octet of IP must be captured too, for its version.
        let frame = ieee_802_3(&[&[6, 6, 3], &ip[..]].concat());
        for cut in 0..17 + 20 {
            let reason = if cut < 18 { RefusalReason::LinkTruncated } else { RefusalReason::Ipv4Truncated };
            assert_eq!(refusal(1, &frame[..cut]), reason, "cut at {cut}");
        }
    }
}
