//! Geneve (RFC 8926 section 3.4): a virtual network identifier and options, then a payload of the
//! protocol type.

use super::header::TunnelHeader;
use crate::frame_slice::{FrameSlice, be16, be32};
use crate::link::{ETHERNET_BRIDGING, IPV4, IPV6, NextHeader};

/// UDP destination port of Geneve.
pub(super) const PORT: u16 = 6081;

/// Splits the header and its options from the payload; `None` if the header is truncated or of
/// another version than 0. The identifier has 24 bits.
#[inline]
pub(super) fn split(slice: FrameSlice<'_>) -> Option<TunnelHeader<'_>> {
    let (header, rest) = slice.split::<8>()?;
    if header[0] >> 6 != 0 {
        return None;
    }
    let options_bytes = usize::from(header[0] & 0x3f) * 4;
    let next = match be16(header, 2) {
        ETHERNET_BRIDGING => NextHeader::Ethernet,
        IPV4 => NextHeader::Ipv4,
        IPV6 => NextHeader::Ipv6,
        other => NextHeader::Other(other),
    };
    Some(TunnelHeader { identifier: Some(be32(header, 4) >> 8), next, payload: rest.skip(options_bytes)? })
}

#[cfg(test)]
mod tests {
    use super::PORT;
    use crate::TunnelType;
    use crate::tests::frames::*;

    fn geneve(first: u8, protocol: u16, payload: &[u8]) -> Vec<u8> {
        let [a, b] = protocol.to_be_bytes();
        let mut header = vec![first, 0, a, b, 0x12, 0x34, 0x56, 0];
        header.resize(8 + usize::from(first & 0x3f) * 4, 0xaa);
        udp_from([192, 0, 2, 1], [192, 0, 2, 2], 50_000, PORT, &[&header, payload].concat())
    }

    #[test]
    fn every_payload_after_the_options_is_decapsulated() {
        for (protocol, payload) in [
            (0x6558, ethernet(0x0800, &udp_in_v4(5, 6, b"x"))),
            (0x0800, udp_in_v4(5, 6, b"x")),
            (0x86dd, udp_in_v6(5, 6, b"x")),
        ] {
            for options in [0, 1, 63] {
                let packet = without_anomalies(decapsulated(228, &geneve(options, protocol, &payload)));
                assert_eq!((packet.tunnel_type, packet.tunnel_id), (TunnelType::Geneve, 0x12_3456));
                assert_eq!(packet.source_port, 5);
                assert_outer_v4(&packet);
            }
        }
    }

    #[test]
    fn other_payloads_are_not_an_anomaly() {
        assert_not_decapsulated(228, &geneve(0, 0x6558, &ethernet(0x0806, &[0; 28])), &[]);
        assert_not_decapsulated(228, &geneve(0, 0x8847, &mpls(&[1], &udp_in_v4(5, 6, b"x"))), &[]);
    }

    #[test]
    fn other_versions_are_not_decapsulated() {
        assert_malformed(228, &geneve(0x40, 0x0800, &udp_in_v4(5, 6, b"x")));
    }

    #[test]
    fn a_truncated_header_is_not_decapsulated() {
        let packet = geneve(2, 0x6558, &ethernet(0x0800, &udp_in_v4(5, 6, b"x")));
        assert_decapsulated_from(228, &packet, 24..28 + 16 + 14 + 20);
    }
}
