//! Geneve (RFC 8926 section 3.4): a network identifier and options, then what the protocol type says.

use super::Malformed;
use crate::link::{IPV4, IPV6, Next};
use crate::octets::Octets;

/// UDP destination port.
pub(super) const PORT: u16 = 6081;
/// Protocol type of Ethernet.
const ETHERNET: u16 = 0x6558;

/// A whole Geneve header of version 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geneve<'a>(&'a [u8; 8]);

impl<'a> Geneve<'a> {
    /// Splits the header and its options from what follows.
    ///
    /// # Errors
    /// It is cut, or of another version.
    #[inline]
    pub fn split(octets: Octets<'a>) -> Result<(Self, Octets<'a>), Malformed> {
        let (header, rest) = octets.split().ok_or(Malformed)?;
        if header[0] >> 6 != 0 {
            return Err(Malformed);
        }
        let options_bytes = usize::from(header[0] & 0x3f) * 4;
        Ok((Self(header), rest.skip(options_bytes).ok_or(Malformed)?))
    }

    /// What follows.
    #[inline]
    pub fn next(self) -> Next {
        let [_, _, a, b, ..] = *self.0;
        match u16::from_be_bytes([a, b]) {
            ETHERNET => Next::Ethernet,
            IPV4 => Next::Ipv4,
            IPV6 => Next::Ipv6,
            other => Next::Other(other),
        }
    }

    /// Virtual network identifier: 24 bits.
    #[inline]
    pub fn identifier(self) -> u32 {
        let [_, _, _, _, a, b, c, _] = *self.0;
        u32::from_be_bytes([0, a, b, c])
    }
}

#[cfg(test)]
mod tests {
    use super::PORT;
    use crate::TunnelType;
    use crate::tests::build::*;

    fn geneve(first: u8, protocol: u16, payload: &[u8]) -> Vec<u8> {
        let [a, b] = protocol.to_be_bytes();
        let mut header = vec![first, 0, a, b, 0x12, 0x34, 0x56, 0];
        header.resize(8 + usize::from(first & 0x3f) * 4, 0xaa);
        udp_from([192, 0, 2, 1], [192, 0, 2, 2], 50_000, PORT, &[&header, payload].concat())
    }

    #[test]
    fn every_payload_is_entered_behind_the_options() {
        for (protocol, payload) in [
            (0x6558, ethernet(0x0800, &udp_in_v4(5, 6, b"x"))),
            (0x0800, udp_in_v4(5, 6, b"x")),
            (0x86dd, udp_in_v6(5, 6, b"x")),
        ] {
            for options in [0, 1, 63] {
                let (packet, notes) = entered(228, &geneve(options, protocol, &payload));
                assert!(notes.is_empty());
                assert_eq!((packet.tunnel_type, packet.tunnel_id), (TunnelType::Geneve, 0x12_3456));
                assert_eq!(packet.source_port, 5);
                assert_outer_v4(&packet);
            }
        }
    }

    #[test]
    fn other_payloads_are_no_fault() {
        assert_not_entered(228, &geneve(0, 0x6558, &ethernet(0x0806, &[0; 28])), &[]);
        assert_not_entered(228, &geneve(0, 0x8847, &mpls(&[1], &udp_in_v4(5, 6, b"x"))), &[]);
    }

    #[test]
    fn other_versions_are_not_entered() {
        assert_malformed(228, &geneve(0x40, 0x0800, &udp_in_v4(5, 6, b"x")));
    }

    #[test]
    fn a_header_cut_anywhere_is_not_entered() {
        let packet = geneve(2, 0x6558, &ethernet(0x0800, &udp_in_v4(5, 6, b"x")));
        assert_entered_from(228, &packet, 24..28 + 16 + 14 + 20);
    }
}
