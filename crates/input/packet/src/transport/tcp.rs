//! TCP (RFC 9293 section 3.1), with the options maximum segment size and window scale of SYN
//! segments.

use super::ports;
use crate::frame_slice::{FrameSlice, array, be16, be32};
use crate::packet::{AnomalySet, Flags, Packet};
use weir_ledger::PacketAnomaly;

/// Protocol number of TCP.
pub(crate) const PROTOCOL: u8 = 6;
/// Length of a header without options, octets.
const FIXED_BYTES: u32 = 20;

/// As [`super::fill`], for a TCP segment.
#[inline]
pub(super) fn fill(slice: FrameSlice<'_>, packet: &mut Packet, anomalies: &mut AnomalySet) {
    let Some((header, rest)) = slice.split::<20>() else {
        return ports::fill(FIXED_BYTES, slice, packet, anomalies);
    };
    (packet.source_port, packet.destination_port) = (be16(header, 0), be16(header, 2));
    packet.sequence = be32(header, 4);
    packet.acknowledgment = be32(header, 8);
    packet.control = be16(header, 12) & Packet::CONTROL;
    packet.window = be16(header, 14);
    packet.icmp_or_checksum = array(header, 16);
    packet.flags.0 |= Flags::PORTS | Flags::TCP;
    let header_bytes = u32::from(header[12] >> 4) * 4;
    if header_bytes < FIXED_BYTES || header_bytes > packet.payload_bytes {
        anomalies.add(PacketAnomaly::TransportMalformed);
    } else if packet.has_options() {
        read_options(rest.limit(header_bytes - FIXED_BYTES).captured(), packet);
    }
    // An impossible data offset is taken as a header without options, which was captured.
    packet.payload_bytes = packet.payload_bytes.saturating_sub(header_bytes.max(FIXED_BYTES));
}

/// Stores the options of a SYN segment in its packet, as far as they were captured. The first
/// option of each kind counts. Options after one with an impossible length are not read.
#[cold]
#[inline(never)]
pub(crate) fn read_options(mut options: &[u8], packet: &mut Packet) {
    let (mut maximum_segment, mut window_scale) = (None, None);
    while let [kind, rest @ ..] = options {
        options = match (kind, rest) {
            (0, _) => break,
            (1, _) => rest,
            (_, &[length, ..]) if length >= 2 && rest.len() >= usize::from(length) - 1 => {
                let (value, after) = rest[1..].split_at(usize::from(length) - 2);
                match (kind, value) {
                    (2, &[high, low]) => maximum_segment = maximum_segment.or(Some(u16::from_be_bytes([high, low]))),
                    (3, &[scale]) => window_scale = window_scale.or(Some(scale)),
                    _ => {}
                }
                after
            }
            _ => break,
        };
    }
    packet.set_options(maximum_segment.unwrap_or(0), window_scale);
}

#[cfg(test)]
mod tests {
    use crate::tests::frames::*;
    use crate::{Flags, Packet};
    use weir_ledger::PacketAnomaly;

    #[test]
    fn every_field_is_read() {
        let mut segment = tcp(0x0102, 0x0304, 0xf12, b"hello");
        segment[4..12].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        segment[14..18].copy_from_slice(&[9, 10, 11, 12]);
        let packet = without_anomalies(decoded_as(228, &ipv4(6, &segment)));
        assert_eq!((packet.source_port, packet.destination_port), (0x0102, 0x0304));
        assert_eq!((packet.sequence, packet.acknowledgment), (0x0102_0304, 0x0506_0708));
        assert_eq!((packet.control & Packet::CONTROL, packet.window, packet.payload_bytes), (0xf12, 0x090a, 5));
        assert_eq!((packet.icmp_or_checksum, packet.icmp()), ([11, 12], [0, 0]));
        assert_eq!(packet.flags.0, Flags::PORTS | Flags::TCP);
    }

    #[test]
    fn options_are_not_payload_and_need_not_be_captured() {
        let mut segment = tcp(5, 6, Packet::SYN, &[1; 45]);
        segment[12] = 0xf0;
        let ip = ipv6(6, &segment);
        let packet = without_anomalies(decoded_as(229, &ip));
        assert_eq!((packet.payload_bytes, packet.control), (5, Packet::SYN));
        assert_eq!(snapped(229, &ip, 60).0, packet);
    }

    #[test]
    fn the_first_captured_option_of_each_kind_is_stored() {
        let read = |control, options: &[u8], captured: usize| {
            let mut segment = tcp(5, 6, control, options);
            segment[12] = (5 + options.len().div_ceil(4) as u8) << 4;
            segment.resize(usize::from(segment[12] >> 2), 0);
            let mut ip = ipv4(6, &segment);
            ip[4..6].copy_from_slice(&[0xab, 0xcd]);
            let frame = ethernet(0x0800, &ip);
            let packet = without_anomalies(snapped(1, &frame, (14 + 40 + captured).min(frame.len())));
            assert_eq!((packet.identification & 0xffff, packet.control & Packet::CONTROL), (0xabcd, control));
            (packet.maximum_segment_size(), packet.window_scale())
        };
        let all = [1, 2, 4, 5, 0xb4, 3, 3, 7, 2, 4, 1, 1, 3, 3, 9, 0];
        assert_eq!(read(Packet::SYN | Packet::ACK, &all, 40), (Some(1460), Some(7)));
        assert_eq!(read(Packet::ACK, &all, 40), (None, None));
        assert_eq!(read(Packet::SYN, &all, 7), (Some(1460), None));
        assert_eq!(read(Packet::SYN, &all, 0), (None, None));
        assert_eq!(read(Packet::SYN, &[3, 3, 0], 40), (None, Some(0)));
        assert_eq!(read(Packet::SYN, &[3, 3, 200], 40), (None, Some(14)));
        assert_eq!(read(Packet::SYN, &[0, 3, 3, 7], 40), (None, None));
        for bad in [[8, 0, 2, 4, 5, 0xb4, 0, 0], [8, 1, 2, 4, 5, 0xb4, 0, 0], [8, 9, 2, 4, 5, 0xb4, 0, 0]] {
            assert_eq!(read(Packet::SYN, &bad, 40), (None, None));
        }
        // An option of the wrong length is ignored.
        assert_eq!(read(Packet::SYN, &[2, 3, 5, 3, 4, 7, 7, 0], 40), (None, None));
    }

    #[test]
    fn a_truncated_header_gives_both_ports_or_none() {
        let ip = ipv4(6, &tcp(5, 6, Packet::SYN, b"hello"));
        for cut in 20..40 {
            let (packet, anomalies) = snapped(228, &ip, cut);
            let ports = if cut < 24 { (0, 0, 0) } else { (5, 6, Flags::PORTS) };
            assert_eq!((packet.source_port, packet.destination_port, packet.flags.0), ports);
            assert_eq!(anomaly_list(anomalies), if cut < 24 { vec![PacketAnomaly::PortsNotCaptured] } else { vec![] });
            assert_eq!((packet.control, packet.ip_bytes, packet.payload_bytes), (0, 45, 5));
        }
    }

    #[test]
    fn a_packet_that_ends_inside_the_header_is_malformed() {
        let segment = tcp(5, 6, Packet::SYN, b"");
        for length in 0..20 {
            let packet =
                with_anomalies(decoded_as(228, &ipv4(6, &segment[..length])), &[PacketAnomaly::TransportMalformed]);
            let ports = if length < 4 { (0, 0, 0) } else { (5, 6, Flags::PORTS) };
            assert_eq!((packet.source_port, packet.destination_port, packet.flags.0), ports);
            assert_eq!((packet.control, packet.payload_bytes), (0, 0));
            // Padding after the packet is not read as a header.
            let mut frame = ethernet(0x0800, &ipv4(6, &segment[..length]));
            frame.resize(100, 0xee);
            assert_eq!(decoded(&frame).0.source_port, ports.0);
        }
    }

    #[test]
    fn an_impossible_data_offset_is_an_anomaly_and_the_fixed_header_is_used() {
        for (offset, payload_bytes) in [(0x00, 5), (0x40, 5), (0x70, 0), (0xf0, 0)] {
            let mut segment = tcp(5, 6, Packet::SYN, b"hello");
            segment[12] = offset;
            let packet = with_anomalies(decoded_as(228, &ipv4(6, &segment)), &[PacketAnomaly::TransportMalformed]);
            assert_eq!((packet.control, packet.payload_bytes), (Packet::SYN, payload_bytes));
        }
    }
}
