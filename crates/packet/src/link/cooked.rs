//! Linux cooked captures (LINKTYPE_LINUX_SLL and LINKTYPE_LINUX_SLL2 of the tcpdump.org registry).
//!
//! Version 1: packet type, ARP hardware type, address length (2 octets each), address (8), protocol
//! (2). Version 2: protocol, reserved (2 each), interface (4), hardware type (2), packet type,
//! address length (1 each), address (8).

use super::next_header::NextHeader;
use crate::frame_slice::FrameSlice;

/// Protocol number of IEEE 802.2 frames (`ETH_P_802_2` of Linux). It is not an EtherType.
const LLC: u16 = 0x0004;

/// A whole cooked header of either version.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cooked<'a> {
    V1(&'a [u8; 16]),
    V2(&'a [u8; 20]),
}

impl<'a> Cooked<'a> {
    /// Splits a header of version 1 from its payload; `None` if the capture ends inside it.
    #[inline]
    pub fn split_v1(frame: FrameSlice<'a>) -> Option<(Self, FrameSlice<'a>)> {
        frame.split().map(|(header, rest)| (Self::V1(header), rest))
    }

    /// Splits a header of version 2 from its payload; `None` if the capture ends inside it.
    #[inline]
    pub fn split_v2(frame: FrameSlice<'a>) -> Option<(Self, FrameSlice<'a>)> {
        frame.split().map(|(header, rest)| (Self::V2(header), rest))
    }

    /// The source MAC address; 0 if the address has another length.
    #[inline]
    pub fn source(self) -> [u8; 6] {
        let (length, address) = match self {
            Self::V1(&[_, _, _, _, high, low, a, b, c, d, e, f, ..]) => ([high, low], [a, b, c, d, e, f]),
            Self::V2(&[_, _, _, _, _, _, _, _, _, _, _, low, a, b, c, d, e, f, ..]) => ([0, low], [a, b, c, d, e, f]),
        };
        if length == [0, 6] { address } else { [0; 6] }
    }

    /// The header that follows.
    #[inline]
    pub fn next(self) -> NextHeader {
        let protocol = match self {
            Self::V1(&[.., a, b]) | Self::V2(&[a, b, ..]) => u16::from_be_bytes([a, b]),
        };
        if protocol == LLC { NextHeader::Llc } else { NextHeader::of_ethertype(protocol) }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::frames::*;
    use crate::{Network, ipv4_mapped};
    use weir_ledger::RefusalReason;

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

    #[test]
    fn both_versions_lead_to_ip() {
        for (link, frame) in
            [(113, v1(0x0800, 6, &udp_in_v4(5, 6, b"x"))), (276, v2(0x0800, 6, &udp_in_v4(5, 6, b"x")))]
        {
            let (packet, anomalies) = decoded_as(link, &frame);
            assert!(anomalies.is_empty());
            assert_eq!((packet.source, packet.source_port, packet.ip_bytes), (ipv4_mapped([10, 0, 0, 1]), 5, 29));
        }
    }

    #[test]
    fn pppoe_sessions_lead_to_ip() {
        let session = pppoe(&[0, 0x21], &udp_in_v4(5, 6, b"x"));
        for (link, frame) in [(113, v1(0x8864, 6, &session)), (276, v2(0x8864, 6, &session))] {
            let packet = decoded_as(link, &frame).0;
            assert_eq!((packet.network, packet.source_port, packet.ip_bytes), (Network::Ipv4, 5, 29));
            for cut in frame.len() - session.len()..frame.len() - 29 {
                assert_eq!(refusal(link, &frame[..cut]), RefusalReason::LinkTruncated);
            }
        }
    }

    #[test]
    fn only_an_address_of_six_octets_is_a_mac_address() {
        for (link, frame) in [(113, v1(0x0806, 6, &[])), (276, v2(0x0806, 6, &[]))] {
            let packet = decoded_as(link, &frame).0;
            assert_eq!((packet.network, packet.source_port), (Network::Layer2, 0x0806));
            assert_eq!(packet.source, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 9]);
            assert_eq!(packet.destination, [0; 16]);
        }
        for (link, frame) in [(113, v1(0x0806, 8, &[])), (276, v2(0x0806, 4, &[]))] {
            assert_eq!(decoded_as(link, &frame).0.source, [0; 16]);
        }
    }

    #[test]
    fn linux_protocol_numbers_are_not_ethertypes() {
        assert_eq!(decoded_as(113, &v1(0x000c, 0, &[1; 16])).0.source_port, 0);
        let snap = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &udp_in_v4(5, 6, b"x")[..]].concat();
        assert_eq!(decoded_as(276, &v2(0x0004, 6, &snap)).0.source_port, 5);
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        for (link, frame) in [(113, v1(0x0806, 6, &[])), (276, v2(0x0806, 6, &[]))] {
            for cut in 0..frame.len() {
                assert_eq!(refusal(link, &frame[..cut]), RefusalReason::LinkTruncated);
            }
        }
    }
}
