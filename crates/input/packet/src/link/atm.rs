//! LLC-encapsulated ATM AAL5 frames (RFC 2684, before it RFC 1483; LINKTYPE_ATM_RFC1483): routed IP
//! after a SNAP header, or a bridged Ethernet frame after a SNAP header and two octets of padding.

use super::llc::may_begin_with;
use super::next_header::{NO_ETHERTYPE, NextHeader};
use crate::frame_slice::FrameSlice;

/// LLC and SNAP headers of a bridged frame (section 5.2): organization 00-80-C2, then a protocol
/// identifier of which the first octet is 0.
const BRIDGED: [u8; 7] = [0xaa, 0xaa, 0x03, 0x00, 0x80, 0xc2, 0x00];
/// Octets of LLC and SNAP headers and padding of a bridged frame.
const BRIDGED_BYTES: usize = 10;
/// Protocol identifiers of Ethernet, with and without its frame check sequence at the end.
const ETHERNET: [u8; 2] = [1, 7];

/// Splits the headers of a bridged frame from the frame; any other frame is left to LLC. `None` if
/// the capture ends before the two can be distinguished.
pub(crate) fn split(frame: FrameSlice<'_>) -> Option<(NextHeader, FrameSlice<'_>)> {
    if !may_begin_with(frame, &BRIDGED, BRIDGED_BYTES) {
        return Some((NextHeader::Llc, frame));
    }
    let (header, rest) = frame.split::<BRIDGED_BYTES>()?;
    let is_ethernet = ETHERNET.contains(&header[7]);
    Some((if is_ethernet { NextHeader::Ethernet } else { NextHeader::Other(NO_ETHERTYPE) }, rest))
}

#[cfg(test)]
mod tests {
    use crate::Network;
    use crate::tests::frames::*;

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
            assert_leads_to(Network::Ipv4, 100, &frame);
        }
        assert_leads_to(Network::Ipv6, 100, &routed(0x86dd, &udp_in_v6(5, 6, b"x")));
    }

    #[test]
    fn other_payloads_are_not_ip() {
        let (token_ring, spanning_tree) = (bridged(9, &[0; 40]), bridged(14, &[0; 40]));
        let osi = [0xfe, 0xfe, 3, 0x83, 0, 0, 0, 0, 0, 0];
        for frame in [&token_ring[..], &spanning_tree, &osi] {
            assert_not_ip(100, frame, 0);
        }
        assert_not_ip(100, &routed(0x0806, &[0; 28]), 0x0806);
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        let ip = udp_in_v4(5, 6, b"x");
        assert_truncation_is_refused(100, &routed(0x0800, &ip), 8);
        assert_truncation_is_refused(100, &bridged(7, &ethernet(0x0800, &ip)), 24);
    }
}
