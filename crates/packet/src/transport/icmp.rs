//! ICMP (RFC 792) and ICMPv6 (RFC 4443): type and code, and the key that pairs a request with its reply.

use crate::octets::Octets;

/// Protocol number of ICMP, which runs over IPv4.
pub(super) const V4: u8 = 1;
/// Protocol number of ICMPv6, which runs over IPv6.
pub(super) const V6: u8 = 58;
/// Octets before the body of a message.
pub(super) const HEADER_BYTES: u32 = 8;

/// Which list of types holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

/// Type and code of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Icmp<'a>(&'a [u8; 2]);

impl<'a> Icmp<'a> {
    /// Octets that they take.
    pub const BYTES: u32 = 2;

    /// Splits type and code from what follows; `None` if the capture ends inside them.
    #[inline]
    pub fn split(octets: Octets<'a>) -> Option<(Self, Octets<'a>)> {
        octets.split().map(|(header, rest)| (Self(header), rest))
    }

    /// Type and code.
    #[inline]
    pub fn type_and_code(self) -> [u8; 2] {
        *self.0
    }

    /// What stands for the ports: the type and its counterpart, or, where nothing answers, the type and
    /// `0x100 | code`, which is no type.
    #[inline]
    pub fn key(self, version: Version) -> (u16, u16) {
        let [kind, code] = *self.0;
        (kind.into(), counterpart(version, kind).map_or(0x100 | u16::from(code), u16::from))
    }
}

/// The type that answers a type, or that it answers (the list of Community ID).
#[inline]
fn counterpart(version: Version, kind: u8) -> Option<u8> {
    Some(match (version, kind) {
        // Echo.
        (Version::V4, 8) => 0,
        (Version::V4, 0) => 8,
        // Timestamp, information, mask.
        (Version::V4, 13 | 15 | 17) => kind + 1,
        (Version::V4, 14 | 16 | 18) => kind - 1,
        // Router solicitation and advertisement.
        (Version::V4, 10) => 9,
        (Version::V4, 9) => 10,
        // Echo, multicast listener, router, neighbour, node information, home agent.
        (Version::V6, 128 | 130 | 133 | 135 | 139 | 144) => kind + 1,
        (Version::V6, 129 | 131 | 134 | 136 | 140 | 145) => kind - 1,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flags;
    use crate::tests::build::*;
    use weir_ledger::PacketAnomaly;

    #[test]
    fn every_pair_of_the_list_is_one_key() {
        let v4 = [(8, 0), (13, 14), (15, 16), (17, 18), (10, 9)];
        let v6 = [(128, 129), (133, 134), (135, 136), (130, 131), (139, 140), (144, 145)];
        for (version, pairs) in [(Version::V4, &v4[..]), (Version::V6, &v6)] {
            for kind in 0..=255 {
                let pair = pairs.iter().find_map(|&(a, b)| match kind {
                    _ if kind == a => Some(b),
                    _ if kind == b => Some(a),
                    _ => None,
                });
                assert_eq!(counterpart(version, kind), pair, "{version:?} type {kind}");
            }
        }
    }

    #[test]
    fn type_and_code_are_the_key() {
        for (ip, icmp, key) in [
            (ipv4(V4, &[8, 0, 0, 0, 0, 1, 0, 1, 9, 9]), [8, 0], (8, 0)),
            (ipv4(V4, &[3, 13, 0, 0, 0, 0, 0, 0, 9, 9]), [3, 13], (3, 0x10d)),
            (ipv6(V6, &[129, 7, 0, 0, 0, 1, 0, 1, 9, 9]), [129, 7], (129, 128)),
            (ipv6(V6, &[1, 4, 0, 0, 0, 0, 0, 0, 9, 9]), [1, 4], (1, 0x104)),
        ] {
            let (packet, notes) = decoded_as(101, &ip);
            assert!(notes.is_empty());
            assert_eq!((packet.icmp(), (packet.source_port, packet.destination_port)), (icmp, key));
            assert_eq!((packet.flags.0, packet.payload_bytes), (Flags::PORTS, 2));
        }
    }

    #[test]
    fn each_belongs_to_its_own_network() {
        for ip in [ipv4(V6, &[128, 0, 0, 0, 0, 0, 0, 0]), ipv6(V4, &[8, 0, 0, 0, 0, 0, 0, 0])] {
            let (packet, notes) = decoded_as(101, &ip);
            assert!(notes.is_empty());
            assert_eq!((packet.icmp(), packet.source_port, packet.flags.0), ([0, 0], 0, 0));
        }
    }

    #[test]
    fn absent_types_are_noted_like_ports() {
        let ip = ipv4(V4, &[8, 0, 0, 0, 0, 1, 0, 1]);
        for cut in 20..22 {
            let (packet, notes) = snapped(228, &ip, cut);
            assert_eq!(noted(notes), [PacketAnomaly::PortsNotCaptured]);
            assert_eq!((packet.source_port, packet.destination_port, packet.flags.0), (0, 0, 0));
        }
        for length in 0..2 {
            let (packet, notes) = decoded_as(228, &ipv4(V4, &[8, 0][..length]));
            assert_eq!(noted(notes), [PacketAnomaly::TransportMalformed]);
            assert_eq!((packet.destination_port, packet.payload_bytes), (0, 0));
        }
        assert_eq!(snapped(228, &ip, 22).0, decoded_as(228, &ip).0);
    }
}
