//! ICMP (RFC 792) and ICMPv6 (RFC 4443): type and code, and the flow key that pairs a request with
//! its reply.

use super::ports::add_missing_header;
use crate::frame_slice::FrameSlice;
use crate::packet::{AnomalySet, Flags, Packet};

/// Protocol number of ICMP over IPv4.
pub(crate) const V4: u8 = 1;
/// Protocol number of ICMPv6 over IPv6.
pub(crate) const V6: u8 = 58;
/// Length of the header before the message body, octets.
const HEADER_BYTES: u32 = 8;
/// Length of type and code, octets.
const TYPE_AND_CODE_BYTES: u32 = 2;

/// What a message of ICMP has in place of ports: its type and the type of the opposite direction; for
/// messages without an answer the type and `0x100 | code`, which is not a type.
#[inline]
pub fn icmp_ports(protocol: u8, kind: u8, code: u8) -> [u16; 2] {
    [kind.into(), counterpart(protocol, kind).map_or(0x100 | u16::from(code), u16::from)]
}

/// As [`super::fill`], for an ICMP message.
#[inline]
pub(super) fn fill(slice: FrameSlice<'_>, packet: &mut Packet, anomalies: &mut AnomalySet) {
    match slice.split() {
        Some((&[kind, code], _)) => {
            packet.icmp_or_checksum = [kind, code];
            [packet.source_port, packet.destination_port] = icmp_ports(packet.protocol, kind, code);
            packet.flags.0 |= Flags::PORTS;
        }
        None => add_missing_header(TYPE_AND_CODE_BYTES, packet, anomalies),
    }
    packet.payload_bytes = packet.payload_bytes.saturating_sub(HEADER_BYTES);
}

/// The type of the opposite direction: reply to a request, request to a reply (list of Community
/// ID).
#[inline]
fn counterpart(protocol: u8, kind: u8) -> Option<u8> {
    Some(match (protocol, kind) {
        // Echo.
        (V4, 8) => 0,
        (V4, 0) => 8,
        // Timestamp, information, mask.
        (V4, 13 | 15 | 17) => kind + 1,
        (V4, 14 | 16 | 18) => kind - 1,
        // Router solicitation and advertisement.
        (V4, 10) => 9,
        (V4, 9) => 10,
        // Echo, multicast listener, router, neighbour, node information, home agent.
        (V6, 128 | 130 | 133 | 135 | 139 | 144) => kind + 1,
        (V6, 129 | 131 | 134 | 136 | 140 | 145) => kind - 1,
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
        for (protocol, pairs) in [(V4, &v4[..]), (V6, &v6)] {
            for kind in 0..=255 {
                let pair = pairs.iter().find_map(|&(a, b)| match kind {
                    _ if kind == a => Some(b),
                    _ if kind == b => Some(a),
                    _ => None,
                });
                assert_eq!(counterpart(protocol, kind), pair, "protocol {protocol} type {kind}");
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
            let packet = without_anomalies(decoded_as(101, &ip));
            assert_eq!((packet.icmp(), (packet.source_port, packet.destination_port)), (icmp, key));
            assert_eq!((packet.flags.0, packet.payload_bytes), (Flags::PORTS, 2));
        }
    }

    #[test]
    fn icmp_over_ipv6_and_icmpv6_over_ipv4_are_not_read() {
        for ip in [ipv4(V6, &[128, 0, 0, 0, 0, 0, 0, 0]), ipv6(V4, &[8, 0, 0, 0, 0, 0, 0, 0])] {
            let packet = without_anomalies(decoded_as(101, &ip));
            assert_eq!((packet.icmp(), packet.source_port, packet.flags.0), ([0, 0], 0, 0));
        }
    }

    #[test]
    fn a_missing_type_is_the_same_anomaly_as_missing_ports() {
        let ip = ipv4(V4, &[8, 0, 0, 0, 0, 1, 0, 1]);
        for cut in 20..22 {
            let packet = with_anomalies(snapped(228, &ip, cut), &[PacketAnomaly::PortsNotCaptured]);
            assert_eq!((packet.source_port, packet.destination_port, packet.flags.0), (0, 0, 0));
        }
        for length in 0..2 {
            let packet =
                with_anomalies(decoded_as(228, &ipv4(V4, &[8, 0][..length])), &[PacketAnomaly::TransportMalformed]);
            assert_eq!((packet.destination_port, packet.payload_bytes), (0, 0));
        }
        assert_eq!(snapped(228, &ip, 22).0, decoded_as(228, &ip).0);
    }
}
