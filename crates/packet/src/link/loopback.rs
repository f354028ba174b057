//! BSD loopback (LINKTYPE_NULL and LINKTYPE_LOOP of the tcpdump.org registry): an address family of
//! four octets.
//!
//! LINKTYPE_NULL has it in the byte order of the capturing host, LINKTYPE_LOOP in network byte
//! order. Writers confuse the two, and no family is another one with its octets reversed, so both
//! are read in either byte order.

use super::next_header::NextHeader;
use crate::frame_slice::FrameSlice;

/// A whole loopback header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loopback<'a>(&'a [u8; 4]);

impl<'a> Loopback<'a> {
    /// Splits the header from its payload; `None` if the capture ends inside it.
    #[inline]
    pub fn split(frame: FrameSlice<'a>) -> Option<(Self, FrameSlice<'a>)> {
        frame.split().map(|(header, rest)| (Self(header), rest))
    }

    /// The header that follows. Address families of the BSDs, Darwin and Linux are known.
    #[inline]
    pub fn next(self) -> NextHeader {
        let ([0, 0, 0, family] | [family, 0, 0, 0]) = *self.0 else { return NextHeader::Other(0) };
        match family {
            2 => NextHeader::Ipv4,
            10 | 24 | 28 | 30 => NextHeader::Ipv6,
            _ => NextHeader::Other(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::frames::*;
    use crate::{Network, Packet};
    use weir_ledger::RefusalReason;

    fn decode(link: u16, family: [u8; 4], payload: &[u8]) -> Packet {
        decoded_as(link, &[&family, payload].concat()).0
    }

    #[test]
    fn families_are_read_in_either_byte_order() {
        for link in [0, 108] {
            for family in [[2, 0, 0, 0], [0, 0, 0, 2]] {
                assert_eq!(decode(link, family, &udp_in_v4(5, 6, b"x")).network, Network::Ipv4);
            }
            for family in [10, 24, 28, 30] {
                for family in [[family, 0, 0, 0], [0, 0, 0, family]] {
                    assert_eq!(decode(link, family, &udp_in_v6(5, 6, b"x")).network, Network::Ipv6);
                }
            }
        }
    }

    #[test]
    fn other_families_are_not_ip() {
        for family in [[0; 4], [7, 0, 0, 0], [2, 0, 0, 2], [0, 2, 0, 0]] {
            let packet = decode(0, family, &udp_in_v4(5, 6, b"x"));
            assert_eq!((packet.network, packet.source_port, packet.source), (Network::Layer2, 0, [0; 16]));
        }
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        for cut in 0..4 {
            assert_eq!(refusal(108, &[0, 0, 0, 2][..cut]), RefusalReason::LinkTruncated);
        }
    }
}
