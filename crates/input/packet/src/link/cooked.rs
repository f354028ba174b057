//! Linux cooked captures (LINKTYPE_LINUX_SLL and LINKTYPE_LINUX_SLL2 of the tcpdump.org registry).
//!
//! Version 1: packet type, ARP hardware type, address length (2 octets each), address (8), protocol
//! (2). Version 2: protocol, reserved (2 each), interface (4), hardware type (2), packet type,
//! address length (1 each), address (8).

use super::link_headers::LinkHeaders;
use super::next_header::NextHeader;
use crate::frame_slice::{FrameSlice, array, be16};

/// Protocol number of IEEE 802.2 frames (`ETH_P_802_2` of Linux). It is not an EtherType.
const LLC: u16 = 0x0004;

/// Splits a header of version 1 from its payload; `None` if the capture ends inside it.
#[inline]
pub(crate) fn split_v1<'a>(frame: FrameSlice<'a>, headers: &mut LinkHeaders) -> Option<(NextHeader, FrameSlice<'a>)> {
    let (header, rest) = frame.split::<16>()?;
    set_source(be16(header, 4), array(header, 6), headers);
    Some((next_header(be16(header, 14)), rest))
}

/// Splits a header of version 2 from its payload; `None` if the capture ends inside it.
#[inline]
pub(crate) fn split_v2<'a>(frame: FrameSlice<'a>, headers: &mut LinkHeaders) -> Option<(NextHeader, FrameSlice<'a>)> {
    let (header, rest) = frame.split::<20>()?;
    set_source(header[11].into(), array(header, 12), headers);
    Some((next_header(be16(header, 0)), rest))
}

/// An address of another length than 6 octets is not a MAC address.
#[inline]
fn set_source(address_bytes: u16, address: [u8; 6], headers: &mut LinkHeaders) {
    if address_bytes == 6 {
        headers.source = address;
    }
}

#[inline]
fn next_header(protocol: u16) -> NextHeader {
    if protocol == LLC { NextHeader::Llc } else { NextHeader::of_ethertype(protocol) }
}

#[cfg(test)]
mod tests {
    use crate::Network;
    use crate::tests::frames::*;

    fn v1(protocol: u16, address_bytes: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0, 0, 0, 1, 0, address_bytes, 2, 0, 0, 0, 0, 9, 0xff, 0xff];
        frame.extend(protocol.to_be_bytes());
        frame.extend(payload);
        frame
    }

    fn v2(protocol: u16, address_bytes: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = protocol.to_be_bytes().to_vec();
        frame.extend([0, 0, 0, 0, 0, 3, 0, 1, 0, address_bytes, 2, 0, 0, 0, 0, 9, 0xff, 0xff]);
        frame.extend(payload);
        frame
    }

    /// Frames of both versions with their link types.
    fn both(protocol: u16, payload: &[u8]) -> [(u16, Vec<u8>); 2] {
        [(113, v1(protocol, 6, payload)), (276, v2(protocol, 6, payload))]
    }

    #[test]
    fn both_versions_lead_to_ip() {
        for (link, frame) in both(0x0800, &udp_in_v4(5, 6, b"x")) {
            assert_leads_to(Network::Ipv4, link, &frame);
        }
    }

    #[test]
    fn pppoe_sessions_lead_to_ip() {
        for (link, frame) in both(0x8864, &pppoe(&[0, 0x21], &udp_in_v4(5, 6, b"x"))) {
            assert_leads_to(Network::Ipv4, link, &frame);
            assert_truncation_is_refused(link, &frame, frame.len() - 29);
        }
    }

    #[test]
    fn only_an_address_of_six_octets_is_a_mac_address() {
        for (link, frame) in both(0x0806, &[]) {
            let packet = assert_not_ip(link, &frame, 0x0806);
            assert_eq!(packet.source, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 9]);
            assert_eq!(packet.destination, [0; 16]);
        }
        for (link, frame) in [(113, v1(0x0806, 8, &[])), (276, v2(0x0806, 4, &[]))] {
            assert_eq!(decoded_as(link, &frame).0.source, [0; 16]);
        }
    }

    #[test]
    fn linux_protocol_numbers_are_not_ethertypes() {
        assert_not_ip(113, &v1(0x000c, 0, &[1; 16]), 0);
        let snap = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &udp_in_v4(5, 6, b"x")[..]].concat();
        assert_leads_to(Network::Ipv4, 276, &v2(0x0004, 6, &snap));
    }
}
