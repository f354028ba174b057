//! Ethernet (IEEE 802.3 clause 3): two addresses, and an EtherType or a length.

use super::Next;
use crate::octets::Octets;

/// A whole Ethernet header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ethernet<'a>(&'a [u8; 14]);

impl<'a> Ethernet<'a> {
    /// Splits the header from what follows; `None` if the capture ends inside it.
    #[inline]
    pub fn split(octets: Octets<'a>) -> Option<(Self, Octets<'a>)> {
        octets.split().map(|(header, rest)| (Self(header), rest))
    }

    /// Destination address.
    #[inline]
    pub fn destination(self) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = *self.0;
        [a, b, c, d, e, f]
    }

    /// Source address.
    #[inline]
    pub fn source(self) -> [u8; 6] {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.0;
        [a, b, c, d, e, f]
    }

    /// What follows.
    #[inline]
    pub fn next(self) -> Next {
        let [.., a, b] = *self.0;
        Next::of_ethertype_or_length(u16::from_be_bytes([a, b]))
    }
}

/// Whether a value where an EtherType can stand is too low to be one (IEEE 802.3 clause 3.2.6).
#[inline]
pub(crate) fn is_length(value: u16) -> bool {
    value < 0x0600
}

#[cfg(test)]
mod tests {
    use crate::tests::build::*;
    use crate::{NO_LABEL, NO_VLAN, Network, Packet};
    use weir_ledger::RefusalReason;

    #[test]
    fn a_frame_without_ip_is_its_addresses_and_ethertype() {
        let (packet, notes) = decoded(&ethernet(0x0806, &[0; 28]));
        assert!(notes.is_empty());
        assert_eq!((packet.network, packet.protocol), (Network::Layer2, 255));
        assert_eq!(packet.source, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1]);
        assert_eq!(packet.destination, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2]);
        assert_eq!((packet.source_port, packet.destination_port), (0x0806, 0x0806));
        assert_eq!((packet.ip_bytes, packet.payload_bytes, packet.frame_bytes), (0, 0, 42));
        assert_eq!((packet.vlan, packet.inner_vlan, packet.mpls_label), (NO_VLAN, NO_VLAN, NO_LABEL));
        assert_eq!(packet.flags.0, crate::Flags::PORTS);
        assert_eq!(packet, Packet { ttl: 0, tos: 0, window: 0, ..packet });
    }

    #[test]
    fn a_header_cut_anywhere_is_refused() {
        let frame = ethernet(0x0806, &[0; 28]);
        for cut in 0..14 {
            assert_eq!(refused(1, &frame[..cut]), RefusalReason::LinkTruncated);
        }
        assert_eq!(decoded(&frame[..14]).0.source_port, 0x0806);
    }

    #[test]
    fn pppoe_discovery_is_not_ip() {
        assert_eq!(decoded(&ethernet(0x8863, &[0x11, 9, 0, 0, 0, 0])).0.source_port, 0x8863);
    }
}
