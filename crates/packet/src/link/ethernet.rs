//! Ethernet (IEEE 802.3 clause 3): two MAC addresses, then an EtherType or a length.

use super::next_header::NextHeader;
use crate::frame_slice::FrameSlice;

/// A whole Ethernet header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ethernet<'a>(&'a [u8; 14]);

impl<'a> Ethernet<'a> {
    /// Splits the header from its payload; `None` if the capture ends inside it.
    #[inline]
    pub fn split(frame: FrameSlice<'a>) -> Option<(Self, FrameSlice<'a>)> {
        frame.split().map(|(header, rest)| (Self(header), rest))
    }

    /// Destination MAC address.
    #[inline]
    pub fn destination(self) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = *self.0;
        [a, b, c, d, e, f]
    }

    /// Source MAC address.
    #[inline]
    pub fn source(self) -> [u8; 6] {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.0;
        [a, b, c, d, e, f]
    }

    /// The header that follows.
    #[inline]
    pub fn next(self) -> NextHeader {
        let [.., a, b] = *self.0;
        NextHeader::of_ethertype_or_length(u16::from_be_bytes([a, b]))
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::frames::*;
    use crate::{NO_LABEL, NO_VLAN, Network, Packet};
    use weir_ledger::RefusalReason;

    #[test]
    fn a_frame_without_ip_has_its_addresses_and_ethertype() {
        let (packet, anomalies) = decoded(&ethernet(0x0806, &[0; 28]));
        assert!(anomalies.is_empty());
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
    fn truncation_anywhere_is_refused() {
        let frame = ethernet(0x0806, &[0; 28]);
        for cut in 0..14 {
            assert_eq!(refusal(1, &frame[..cut]), RefusalReason::LinkTruncated);
        }
        assert_eq!(decoded(&frame[..14]).0.source_port, 0x0806);
    }

    #[test]
    fn pppoe_discovery_is_not_ip() {
        assert_eq!(decoded(&ethernet(0x8863, &[0x11, 9, 0, 0, 0, 0])).0.source_port, 0x8863);
    }
}
