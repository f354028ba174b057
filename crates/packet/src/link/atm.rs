//! LLC-encapsulated ATM AAL5 frames (RFC 2684, before it RFC 1483; LINKTYPE_ATM_RFC1483): routed IP
//! after a SNAP header, or a bridged Ethernet frame after a SNAP header and two octets of padding.

use super::next_header::NextHeader;
use crate::frame_slice::FrameSlice;

/// LLC and SNAP headers of a bridged frame (section 5.2): organization 00-80-C2, then a protocol
/// identifier of which the first octet is 0.
const BRIDGED: [u8; 7] = [0xaa, 0xaa, 0x03, 0x00, 0x80, 0xc2, 0x00];
/// Octets of LLC and SNAP headers and padding of a bridged frame.
const BRIDGED_BYTES: u32 = 10;

/// Splits the headers of a bridged frame from the frame; any other frame is left to LLC. `None` if
/// the capture ends before the two can be distinguished.
pub(crate) fn split(frame: FrameSlice<'_>) -> Option<(NextHeader, FrameSlice<'_>)> {
    let may_be_bridged = frame.captured().iter().zip(BRIDGED).all(|(&octet, bridged)| octet == bridged);
    if !may_be_bridged || frame.wire_bytes() < BRIDGED_BYTES {
        return Some((NextHeader::Llc, frame));
    }
    let (header, rest) = frame.split::<{ BRIDGED_BYTES as usize }>()?;
    // Ethernet with and without its frame check sequence at the end.
    let next = if matches!(header[7], 1 | 7) { NextHeader::Ethernet } else { NextHeader::Other(0) };
    Some((next, rest))
}

#[cfg(test)]
mod tests {
    use crate::Network;
    use crate::tests::frames::*;
    use weir_ledger::RefusalReason;

    fn bridged(protocol: u8, payload: &[u8]) -> Vec<u8> {
        [&[0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, protocol, 0, 0], payload].concat()
    }

    fn routed(ethertype: u16, payload: &[u8]) -> Vec<u8> {
        [&[0xaa, 0xaa, 3, 0, 0, 0], &ethertype.to_be_bytes()[..], payload].concat()
    }

    #[test]
    fn routed_and_bridged_frames_lead_to_ip() {
        let ip = udp_in_v4(5, 6, b"x");
        for frame in [
            routed(0x0800, &ip),
            bridged(1, &[ethernet(0x0800, &ip), vec![0; 4]].concat()),
            bridged(7, &ethernet(0x8100, &vlan(9, 0x0800, &ip))),
            bridged(7, &ethernet(0x8864, &pppoe(&[0, 0x21], &ip))),
        ] {
            let (packet, anomalies) = decoded_as(100, &frame);
            assert!(anomalies.is_empty());
            assert_eq!((packet.network, packet.source_port, packet.ip_bytes), (Network::Ipv4, 5, 29));
        }
        let v6 = decoded_as(100, &routed(0x86dd, &udp_in_v6(5, 6, b"x"))).0;
        assert_eq!((v6.network, v6.source_port), (Network::Ipv6, 5));
    }

    #[test]
    fn other_payloads_are_not_ip() {
        let token_ring = decoded_as(100, &bridged(9, &[0; 40])).0;
        let spanning_tree = decoded_as(100, &bridged(14, &[0; 40])).0;
        let arp = decoded_as(100, &routed(0x0806, &[0; 28])).0;
        let osi = decoded_as(100, &[0xfe, 0xfe, 3, 0x83, 0, 0, 0, 0, 0, 0]).0;
        for (packet, ethertype) in [(token_ring, 0), (spanning_tree, 0), (arp, 0x0806), (osi, 0)] {
            assert_eq!((packet.network, packet.source_port), (Network::Layer2, ethertype));
        }
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        let ip = udp_in_v4(5, 6, b"x");
        for (frame, headers) in [(routed(0x0800, &ip), 8), (bridged(7, &ethernet(0x0800, &ip)), 24)] {
            for cut in 0..headers + 20 {
                let reason = if cut < headers { RefusalReason::LinkTruncated } else { RefusalReason::Ipv4Truncated };
                assert_eq!(refusal(100, &frame[..cut]), reason, "cut at {cut}");
            }
        }
    }
}
