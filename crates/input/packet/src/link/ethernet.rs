//! Ethernet (IEEE 802.3 clause 3): two MAC addresses, then an EtherType or a length.

use super::link_headers::LinkHeaders;
use super::next_header::NextHeader;
use crate::frame_slice::{FrameSlice, array, be16};

/// Splits the header from its payload; `None` if the capture ends inside it.
#[inline]
pub(crate) fn split<'a>(frame: FrameSlice<'a>, headers: &mut LinkHeaders) -> Option<(NextHeader, FrameSlice<'a>)> {
    let (header, rest) = frame.split::<14>()?;
    headers.destination = array(header, 0);
    headers.source = array(header, 6);
    Some((NextHeader::of_ethertype_or_length(be16(header, 12)), rest))
}

#[cfg(test)]
mod tests {
    use crate::tests::frames::*;
    use crate::{NO_LABEL, NO_VLAN, Network, Packet};

    #[test]
    fn a_frame_without_ip_has_its_addresses_and_ethertype() {
        let packet = without_anomalies(decoded(&ethernet(0x0806, &[0; 28])));
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
        assert_truncation_is_refused(1, &ethernet(0x0800, &udp_in_v4(5, 6, b"x")), 14);
        assert_not_ip(1, &ethernet(0x0806, &[]), 0x0806);
    }

    #[test]
    fn pppoe_discovery_is_not_ip() {
        assert_not_ip(1, &ethernet(0x8863, &[0x11, 9, 0, 0, 0, 0]), 0x8863);
    }
}
