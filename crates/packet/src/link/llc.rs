//! IEEE 802.2 logical link control, and the SNAP header that brings an EtherType back (RFC 1042).

use super::Next;
use crate::octets::Octets;

/// Both service access points of SNAP, unnumbered information, and the organization of EtherTypes.
const SNAP: [u8; 6] = [0xaa, 0xaa, 0x03, 0, 0, 0];
const SNAP_BYTES: u32 = 8;

/// What follows an IEEE 802.3 length.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Llc<'a> {
    /// A whole SNAP header with an EtherType.
    Snap(Snap<'a>),
    /// Anything else: spanning tree, NetBIOS, other organizations.
    Other,
}

/// A whole SNAP header, with the LLC header before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snap<'a>(&'a [u8; 8]);

impl<'a> Llc<'a> {
    /// Splits the header from what follows; `None` if the capture ends before it can be told what it is.
    #[inline]
    pub fn split(octets: Octets<'a>) -> Option<(Self, Octets<'a>)> {
        // A difference tells that it is not SNAP however few octets were captured.
        let differs = octets.captured().iter().zip(SNAP).any(|(&octet, snap)| octet != snap);
        if differs || octets.wire() < SNAP_BYTES {
            return Some((Self::Other, octets));
        }
        octets.split().map(|(header, rest)| (Self::Snap(Snap(header)), rest))
    }
}

impl Snap<'_> {
    /// What follows.
    #[inline]
    pub fn next(self) -> Next {
        let [.., a, b] = *self.0;
        Next::of_ethertype(u16::from_be_bytes([a, b]))
    }
}

#[cfg(test)]
mod tests {
    use crate::Network;
    use crate::tests::build::*;
    use weir_ledger::RefusalReason;

    fn frame() -> Vec<u8> {
        let ip = udp_in_v4(5, 6, b"x");
        ethernet(8 + ip.len() as u16, &[&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &ip[..]].concat())
    }

    #[test]
    fn snap_leads_to_ip() {
        assert_eq!(decoded(&frame()).0.source_port, 5);
    }

    #[test]
    fn snap_of_something_else_is_its_ethertype() {
        let arp = decoded(&ethernet(36, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 6])).0;
        assert_eq!((arp.network, arp.source_port), (Network::Layer2, 0x0806));
    }

    #[test]
    fn frames_without_an_ethertype_have_0() {
        let spanning_tree = [0x42, 0x42, 3, 0, 0, 0, 0, 0];
        let discovery = [0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0];
        let low = [0xaa, 0xaa, 3, 0, 0, 0, 0, 4];
        for payload in [&spanning_tree[..], &discovery, &low, &[0x42], &[]] {
            let packet = decoded(&ethernet(38, payload)).0;
            assert_eq!((packet.network, packet.source_port), (Network::Layer2, 0));
        }
    }

    #[test]
    fn a_header_cut_where_it_could_still_be_snap_is_refused() {
        let frame = frame();
        for cut in 14..22 {
            assert_eq!(refused(1, &frame[..cut]), RefusalReason::LinkTruncated);
        }
    }
}
