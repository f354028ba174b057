//! ICMP (RFC 792) and ICMPv6 (RFC 4443): type and code, and the flow key that pairs a request with
//! its reply.

use crate::frame_slice::FrameSlice;

/// Protocol number of ICMP over IPv4.
pub(super) const V4: u8 = 1;
/// Protocol number of ICMPv6 over IPv6.
pub(super) const V6: u8 = 58;
/// Length of the header before the message body, octets.
pub(super) const HEADER_BYTES: u32 = 8;

/// Selects the list of message types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

/// Type and code of an ICMP message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Icmp<'a>(&'a [u8; 2]);

impl<'a> Icmp<'a> {
    /// Length of type and code, octets.
    pub const BYTES: u32 = 2;

    /// Splits type and code from the rest of the message; `None` if the capture ends inside them.
    #[inline]
    pub fn split(slice: FrameSlice<'a>) -> Option<(Self, FrameSlice<'a>)> {
        slice.split().map(|(header, rest)| (Self(header), rest))
    }

    /// Type and code.
    #[inline]
    pub fn type_and_code(self) -> [u8; 2] {
        *self.0
    }

    /// Flow key in place of the ports: the type and the type of the opposite direction; for
    /// messages without an answer the type and `0x100 | code`, which is not a type.
    #[inline]
    pub fn key(self, version: Version) -> (u16, u16) {
        let [kind, code] = *self.0;
        (kind.into(), counterpart(version, kind).map_or(0x100 | u16::from(code), u16::from))
    }
}

/// The type of the opposite direction: reply to a request, request to a reply (list of Community
/// ID).
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
    use crate::tests::frames::*;
    use weir_ledger::PacketAnomaly;

    #[test]
    fn request_and_reply_types_are_counterparts() {
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
    fn type_and_counterpart_or_code_are_the_key() {
        for (ip, icmp, key) in [
            (ipv4(V4, &[8, 0, 0, 0, 0, 1, 0, 1, 9, 9]), [8, 0], (8, 0)),
            (ipv4(V4, &[3, 13, 0, 0, 0, 0, 0, 0, 9, 9]), [3, 13], (3, 0x10d)),
            (ipv6(V6, &[129, 7, 0, 0, 0, 1, 0, 1, 9, 9]), [129, 7], (129, 128)),
            (ipv6(V6, &[1, 4, 0, 0, 0, 0, 0, 0, 9, 9]), [1, 4], (1, 0x104)),
        ] {
            let (packet, anomalies) = decoded_as(101, &ip);
            assert!(anomalies.is_empty());
            assert_eq!((packet.icmp(), (packet.source_port, packet.destination_port)), (icmp, key));
            assert_eq!((packet.flags.0, packet.payload_bytes), (Flags::PORTS, 2));
        }
    }

    #[test]
    fn icmp_over_ipv6_and_icmpv6_over_ipv4_are_not_read() {
        for ip in [ipv4(V6, &[128, 0, 0, 0, 0, 0, 0, 0]), ipv6(V4, &[8, 0, 0, 0, 0, 0, 0, 0])] {
            let (packet, anomalies) = decoded_as(101, &ip);
            assert!(anomalies.is_empty());
            assert_eq!((packet.icmp(), packet.source_port, packet.flags.0), ([0, 0], 0, 0));
        }
    }

    #[test]
    fn a_missing_type_is_the_same_anomaly_as_missing_ports() {
        let ip = ipv4(V4, &[8, 0, 0, 0, 0, 1, 0, 1]);
        for cut in 20..22 {
            let (packet, anomalies) = snapped(228, &ip, cut);
            assert_eq!(anomaly_list(anomalies), [PacketAnomaly::PortsNotCaptured]);
            assert_eq!((packet.source_port, packet.destination_port, packet.flags.0), (0, 0, 0));
        }
        for length in 0..2 {
            let (packet, anomalies) = decoded_as(228, &ipv4(V4, &[8, 0][..length]));
            assert_eq!(anomaly_list(anomalies), [PacketAnomaly::TransportMalformed]);
            assert_eq!((packet.destination_port, packet.payload_bytes), (0, 0));
        }
        assert_eq!(snapped(228, &ip, 22).0, decoded_as(228, &ip).0);
    }
}
