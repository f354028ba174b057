//! VXLAN (RFC 7348 section 5): a VXLAN network identifier, then an Ethernet frame.

use super::header::TunnelHeader;
use crate::frame_slice::{FrameSlice, be32};
use crate::link::NextHeader;

/// UDP destination port of VXLAN.
pub(super) const PORT: u16 = 4789;
/// Flag: the identifier is valid.
const IDENTIFIER_VALID: u8 = 0x08;

/// Splits the header from its payload; `None` if the header is truncated or has no valid
/// identifier, which has 24 bits.
#[inline]
pub(super) fn split(slice: FrameSlice<'_>) -> Option<TunnelHeader<'_>> {
    let (header, payload) = slice.split::<8>()?;
    let is_valid = header[0] & IDENTIFIER_VALID != 0;
    is_valid.then(|| TunnelHeader { identifier: Some(be32(header, 4) >> 8), next: NextHeader::Ethernet, payload })
}

#[cfg(test)]
mod tests {
    use super::PORT;
    use crate::tests::frames::*;
    use crate::{Flags, TunnelType};

    fn vxlan(flags: u8, payload: &[u8]) -> Vec<u8> {
        let header = [flags, 0, 0, 0, 0x12, 0x34, 0x56, 0xff];
        udp_from([192, 0, 2, 1], [192, 0, 2, 2], 50_000, PORT, &[&header, payload].concat())
    }

    #[test]
    fn the_inner_frame_is_decapsulated() {
        for payload in
            [ethernet(0x0800, &udp_in_v4(5, 6, b"x")), ethernet(0x8100, &vlan(1, 0x86dd, &udp_in_v6(5, 6, b"x")))]
        {
            let packet = without_anomalies(decapsulated(228, &vxlan(0x08, &payload)));
            assert_eq!((packet.tunnel_type, packet.tunnel_id, packet.source_port), (TunnelType::Vxlan, 0x12_3456, 5));
            assert_eq!((packet.flags.0, packet.vlan), (Flags::TUNNEL_ID | Flags::PORTS, crate::NO_VLAN));
            assert_outer_v4(&packet);
        }
    }

    #[test]
    fn arp_inside_is_not_an_anomaly() {
        assert_not_decapsulated(228, &vxlan(0x08, &ethernet(0x0806, &[0; 28])), &[]);
    }

    #[test]
    fn a_header_without_a_valid_identifier_is_not_decapsulated() {
        assert_malformed(228, &vxlan(0x00, &ethernet(0x0800, &udp_in_v4(5, 6, b"x"))));
        assert_malformed(228, &vxlan(0x08, &ethernet(0x0800, &udp_in_v6(5, 6, b"x"))));
    }

    #[test]
    fn only_the_destination_port_identifies_a_tunnel() {
        let mut packet = vxlan(0x08, &ethernet(0x0800, &udp_in_v4(5, 6, b"x")));
        packet[20..24].rotate_left(2);
        let packet = without_anomalies(decapsulated(228, &packet));
        assert_eq!((packet.tunnel_type, packet.source_port), (TunnelType::None, PORT));
    }

    #[test]
    fn a_truncated_header_is_not_decapsulated() {
        let packet = vxlan(0x08, &ethernet(0x0800, &udp_in_v4(5, 6, b"x")));
        assert_decapsulated_from(228, &packet, 24..28 + 8 + 14 + 20);
    }
}
