//! Ports: the first four octets of TCP, UDP (RFC 768), UDP-Lite (RFC 3828), DCCP (RFC 4340) and
//! SCTP (RFC 9260).

use crate::frame_slice::{FrameSlice, be16};
use crate::packet::{AnomalySet, Flags, Packet};
use weir_ledger::PacketAnomaly;

/// Protocol number of UDP.
pub(crate) const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// Length of both ports, octets.
const PORTS_BYTES: u32 = 4;

/// Shortest header of a protocol with ports, octets; `None` for other protocols, and for TCP, which
/// has a parser of its own.
#[inline]
pub(super) fn header_bytes(protocol: u8) -> Option<u32> {
    Some(match protocol {
        UDP | UDP_LITE => 8,
        DCCP | SCTP => 12,
        _ => return None,
    })
}

/// Source and destination port of a transport header; `None` if the capture ends inside them.
#[inline]
pub(crate) fn read_ports(slice: FrameSlice<'_>) -> Option<(u16, u16)> {
    slice.split::<4>().map(|(ports, _)| (be16(ports, 0), be16(ports, 2)))
}

/// As [`super::fill`], for a protocol with ports and a header of at least `header_bytes`.
#[inline]
pub(super) fn fill(header_bytes: u32, slice: FrameSlice<'_>, packet: &mut Packet, anomalies: &mut AnomalySet) {
    match read_ports(slice) {
        Some(ports) => {
            (packet.source_port, packet.destination_port) = ports;
            packet.flags.0 |= Flags::PORTS;
            if packet.payload_bytes < header_bytes {
                anomalies.add(PacketAnomaly::TransportMalformed);
            }
        }
        None => add_missing_header(PORTS_BYTES, packet, anomalies),
    }
    // The header length of these two is not fixed, so their payload is counted from the IP headers
    // on.
    if !matches!(packet.protocol, DCCP | UDP_LITE) {
        packet.payload_bytes = packet.payload_bytes.saturating_sub(header_bytes);
    }
}

/// Adds the anomaly of a transport header that lacks its first `needed` octets: the packet itself
/// or only the capture ends there.
#[cold]
pub(super) fn add_missing_header(needed: u32, packet: &Packet, anomalies: &mut AnomalySet) {
    anomalies.add(if packet.payload_bytes < needed {
        PacketAnomaly::TransportMalformed
    } else {
        PacketAnomaly::PortsNotCaptured
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flags;
    use crate::tests::frames::*;
    use weir_ledger::PacketAnomaly;

    /// A payload that begins with ports 5 and 6.
    fn payload(length: usize) -> Vec<u8> {
        [0, 5, 0, 6].into_iter().chain(std::iter::repeat(0)).take(length).collect()
    }

    #[test]
    fn four_protocols_have_ports_over_ipv4_and_ipv6() {
        for (protocol, payload_bytes) in [(UDP, 32), (DCCP, 40), (SCTP, 28), (UDP_LITE, 40)] {
            for ip in [ipv4(protocol, &payload(40)), ipv6(protocol, &payload(40))] {
                let packet = without_anomalies(decoded_as(101, &ip));
                assert_eq!((packet.source_port, packet.destination_port, packet.flags.0), (5, 6, Flags::PORTS));
                assert_eq!((packet.protocol, packet.payload_bytes, packet.control), (protocol, payload_bytes, 0));
            }
        }
    }

    #[test]
    fn other_protocols_have_no_ports() {
        for protocol in [2, 4, 41, 46, 47, 58, 89, 103, 112, 255] {
            let packet = without_anomalies(decoded_as(228, &ipv4(protocol, &payload(40))));
            assert_eq!((packet.source_port, packet.flags.0, packet.payload_bytes), (0, 0, 40));
        }
    }

    #[test]
    fn a_capture_and_a_packet_that_end_before_the_ports_are_different_anomalies() {
        for protocol in [UDP, DCCP, SCTP, UDP_LITE] {
            let whole = ipv4(protocol, &payload(40));
            for cut in 0..4 {
                for ((packet, anomalies), expected) in [
                    (snapped(228, &whole, 20 + cut), PacketAnomaly::PortsNotCaptured),
                    (decoded_as(228, &ipv4(protocol, &payload(cut))), PacketAnomaly::TransportMalformed),
                ] {
                    assert_eq!(anomaly_list(anomalies), [expected]);
                    assert_eq!((packet.source_port, packet.destination_port, packet.flags.0), (0, 0, 0));
                }
            }
            assert_eq!(snapped(228, &whole, 24).0, decoded_as(228, &whole).0);
        }
    }

    #[test]
    fn a_packet_that_ends_inside_the_header_is_malformed() {
        for (protocol, header) in [(UDP, 8), (DCCP, 12), (SCTP, 12), (UDP_LITE, 8)] {
            for length in 4..=header {
                let (packet, anomalies) = decoded_as(228, &ipv4(protocol, &payload(length)));
                assert_eq!(packet.source_port, 5);
                assert_eq!(
                    anomaly_list(anomalies),
                    if length < header { vec![PacketAnomaly::TransportMalformed] } else { vec![] }
                );
            }
        }
    }

    #[test]
    fn a_frame_shorter_than_its_packet_lacks_the_ports() {
        let mut ip = ipv4(UDP, &[]);
        ip[3] = 100;
        let packet =
            with_anomalies(decoded_as(228, &ip), &[PacketAnomaly::LengthBeyondFrame, PacketAnomaly::PortsNotCaptured]);
        assert_eq!((packet.ip_bytes, packet.payload_bytes), (100, 72));
    }
}
