//! Cisco HDLC (RFC 1547 section 4.3.1): address, control, protocol. A protocol is an EtherType or a
//! number of Cisco's own, which another protocol may have as its EtherType.

use super::next_header::{NO_ETHERTYPE, NextHeader};
use crate::frame_slice::FrameSlice;

/// Addresses of unicast and multicast frames.
const ADDRESSES: [u8; 2] = [0x0f, 0x8f];
/// Numbers of Cisco's own: CDP, spanning tree, SLARP (keep-alives; RARP on Ethernet), OSI.
const CISCO_PROTOCOLS: [u16; 4] = [0x2000, 0x4242, 0x8035, 0xfefe];

/// Whether a frame of LINKTYPE_PPP_HDLC is Cisco HDLC: its first octet is one of the two addresses.
#[inline]
pub(crate) fn has_address(frame: FrameSlice<'_>) -> bool {
    frame.captured().first().is_some_and(|address| ADDRESSES.contains(address))
}

/// Splits the header from the payload; `None` if the capture ends inside it. A frame with another
/// address or control field is not IP.
#[inline]
pub(crate) fn split(frame: FrameSlice<'_>) -> Option<(NextHeader, FrameSlice<'_>)> {
    let (&[address, control, a, b], rest) = frame.split()?;
    let protocol = u16::from_be_bytes([a, b]);
    let is_ethertype = ADDRESSES.contains(&address) && control == 0 && !CISCO_PROTOCOLS.contains(&protocol);
    Some((NextHeader::of_ethertype(if is_ethertype { protocol } else { NO_ETHERTYPE }), rest))
}

#[cfg(test)]
mod tests {
    use crate::Network;
    use crate::tests::frames::*;

    fn frame(address: u8, protocol: u16, payload: &[u8]) -> Vec<u8> {
        [&[address, 0], &protocol.to_be_bytes()[..], payload].concat()
    }

    #[test]
    fn both_addresses_lead_to_ip_and_labels() {
        let (v4, v6) = (udp_in_v4(5, 6, b"x"), udp_in_v6(5, 6, b"x"));
        for (link, address) in [(104, 0x0f), (104, 0x8f), (50, 0x0f), (50, 0x8f)] {
            assert_leads_to(Network::Ipv4, link, &frame(address, 0x0800, &v4));
            assert_leads_to(Network::Ipv6, link, &frame(address, 0x86dd, &v6));
            let labelled = frame(address, 0x8847, &mpls(&[17], &v4));
            assert_eq!(assert_leads_to(Network::Ipv4, link, &labelled).mpls_label, 17);
        }
    }

    #[test]
    fn other_ethertypes_are_kept_and_the_numbers_of_cisco_are_none() {
        for (protocol, ethertype) in [(0x0806, 0x0806), (0x8035, 0), (0x2000, 0), (0x4242, 0), (0xfefe, 0)] {
            assert_eq!(assert_not_ip(104, &frame(0x8f, protocol, &[0; 14]), ethertype).source, [0; 16]);
        }
    }

    #[test]
    fn another_address_or_control_field_is_not_ip() {
        let mut control = frame(0x0f, 0x0800, &udp_in_v4(5, 6, b"x"));
        control[1] = 3;
        for frame in [control, frame(0xff, 0x0800, &udp_in_v4(5, 6, b"x"))] {
            assert_not_ip(104, &frame, 0);
        }
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        for link in [50, 104] {
            assert_truncation_is_refused(link, &frame(0x0f, 0x0800, &udp_in_v4(5, 6, b"x")), 4);
        }
    }
}
