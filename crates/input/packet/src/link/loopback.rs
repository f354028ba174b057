//! BSD loopback (LINKTYPE_NULL and LINKTYPE_LOOP of the tcpdump.org registry): an address family of
//! four octets.
//!
//! LINKTYPE_NULL has it in the byte order of the capturing host, LINKTYPE_LOOP in network byte
//! order. Writers confuse the two, and no family is another one with its octets reversed, so both
//! are read in either byte order.

use super::next_header::{NO_ETHERTYPE, NextHeader};
use crate::frame_slice::FrameSlice;

/// `AF_INET` of every system.
const AF_INET: u8 = 2;
/// `AF_INET6` of Linux; of NetBSD and OpenBSD; of FreeBSD; of Darwin.
const AF_INET6: [u8; 4] = [10, 24, 28, 30];

/// Splits the header from its payload; `None` if the capture ends inside it.
#[inline]
pub(crate) fn split(frame: FrameSlice<'_>) -> Option<(NextHeader, FrameSlice<'_>)> {
    let (header, rest) = frame.split()?;
    let next = match *header {
        [0, 0, 0, AF_INET] | [AF_INET, 0, 0, 0] => NextHeader::Ipv4,
        [0, 0, 0, family] | [family, 0, 0, 0] if AF_INET6.contains(&family) => NextHeader::Ipv6,
        _ => NextHeader::Other(NO_ETHERTYPE),
    };
    Some((next, rest))
}

#[cfg(test)]
mod tests {
    use crate::Network;
    use crate::tests::frames::*;

    fn frame(family: [u8; 4], payload: &[u8]) -> Vec<u8> {
        [&family, payload].concat()
    }

    #[test]
    fn families_are_read_in_either_byte_order() {
        for link in [0, 108] {
            for family in [[2, 0, 0, 0], [0, 0, 0, 2]] {
                assert_leads_to(Network::Ipv4, link, &frame(family, &udp_in_v4(5, 6, b"x")));
            }
            for family in [10, 24, 28, 30] {
                for family in [[family, 0, 0, 0], [0, 0, 0, family]] {
                    assert_leads_to(Network::Ipv6, link, &frame(family, &udp_in_v6(5, 6, b"x")));
                }
            }
        }
    }

    #[test]
    fn other_families_are_not_ip() {
        for family in [[0; 4], [7, 0, 0, 0], [2, 0, 0, 2], [0, 2, 0, 0]] {
            assert_eq!(assert_not_ip(0, &frame(family, &udp_in_v4(5, 6, b"x")), 0).source, [0; 16]);
        }
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        assert_truncation_is_refused(108, &frame([0, 0, 0, 2], &udp_in_v4(5, 6, b"x")), 4);
    }
}
