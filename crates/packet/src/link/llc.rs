//! IEEE 802.2 logical link control: IP after its own service access point, or after a SNAP header,
//! which carries an EtherType (RFC 1042).

use super::next_header::NextHeader;
use crate::frame_slice::FrameSlice;

/// Both service access points of SNAP, unnumbered information, and the organization of EtherTypes.
const SNAP: [u8; 6] = [0xaa, 0xaa, 0x03, 0, 0, 0];
/// Octets of the LLC and SNAP headers.
const SNAP_BYTES: usize = 8;
/// Both service access points of IP (assigned by IEEE), and unnumbered information.
const IP: [u8; 3] = [0x06, 0x06, 0x03];

/// Splits the LLC header, and the SNAP header if there is one, from the payload. Returns the header
/// that follows, `None` after any other service access point or organization. The result is `None`
/// if the capture ends before the kind of header is known.
#[inline]
pub(crate) fn split(frame: FrameSlice<'_>) -> Option<(Option<NextHeader>, FrameSlice<'_>)> {
    if may_begin_with(frame, &SNAP, SNAP_BYTES) {
        let (&[.., a, b], rest) = frame.split::<SNAP_BYTES>()?;
        return Some((Some(NextHeader::of_ethertype(u16::from_be_bytes([a, b]))), rest));
    }
    if may_begin_with(frame, &IP, IP.len()) {
        return Some((Some(NextHeader::AnyIp), frame.skip(IP.len())?));
    }
    // Spanning tree, NetBIOS, other organizations.
    Some((None, frame))
}

/// Whether a frame can begin with a header of `header_bytes` octets that starts with `prefix`. One
/// captured octet that differs rules it out, however few octets were captured.
#[inline]
fn may_begin_with(frame: FrameSlice<'_>, prefix: &[u8], header_bytes: usize) -> bool {
    frame.captured().iter().zip(prefix).all(|(octet, expected)| octet == expected)
        && frame.wire_bytes() as usize >= header_bytes
}

#[cfg(test)]
mod tests {
    use crate::Network;
    use crate::tests::frames::*;
    use weir_ledger::RefusalReason;

    fn snap(ethertype: u16, payload: &[u8]) -> Vec<u8> {
        [&[0xaa, 0xaa, 3, 0, 0, 0], &ethertype.to_be_bytes()[..], payload].concat()
    }

    /// An IEEE 802.3 frame: the length is in place of the EtherType.
    fn ieee_802_3(payload: &[u8]) -> Vec<u8> {
        ethernet(payload.len() as u16, payload)
    }

    #[test]
    fn snap_and_the_access_point_of_ip_lead_to_ip() {
        let (v4, v6) = (udp_in_v4(5, 6, b"x"), udp_in_v6(5, 6, b"x"));
        for payload in [snap(0x0800, &v4), [&[6, 6, 3], &v4[..]].concat()] {
            for mut frame in [ieee_802_3(&payload), ethernet(0x8100, &vlan(3, payload.len() as u16, &payload))] {
                frame.resize(64, 0);
                let (packet, anomalies) = decoded(&frame);
                assert!(anomalies.is_empty());
                assert_eq!((packet.network, packet.source_port, packet.ip_bytes), (Network::Ipv4, 5, 29));
            }
        }
        assert_eq!(decoded(&ieee_802_3(&snap(0x86dd, &v6))).0.network, Network::Ipv6);
        assert_eq!(decoded(&ieee_802_3(&[&[6, 6, 3], &v6[..]].concat())).0.network, Network::Ipv6);
    }

    #[test]
    fn snap_with_another_ethertype_is_not_ip() {
        let arp = decoded(&ieee_802_3(&snap(0x0806, &[0; 28]))).0;
        assert_eq!((arp.network, arp.source_port), (Network::Layer2, 0x0806));
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
            let packet = decoded(&ethernet(38, payload)).0;
            assert_eq!((packet.network, packet.source_port), (Network::Layer2, 0), "{payload:?}");
        }
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        let ip = udp_in_v4(5, 6, b"x");
        for (frame, headers) in
            [(ieee_802_3(&snap(0x0800, &ip)), 22), (ieee_802_3(&[&[6, 6, 3], &ip[..]].concat()), 17)]
        {
            for cut in 0..headers + 20 {
                // Without an EtherType, the first octet of IP must be captured too, for its
                // version.
                let known = if headers == 22 { headers } else { headers + 1 };
                let reason = if cut < known { RefusalReason::LinkTruncated } else { RefusalReason::Ipv4Truncated };
                assert_eq!(refusal(1, &frame[..cut]), reason, "cut at {cut}");
            }
        }
    }
}
