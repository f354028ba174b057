//! TCP (RFC 9293 section 3.1), with the options maximum segment size and window scale of SYN
//! segments.

use crate::frame_slice::FrameSlice;
use crate::packet::Packet;

/// Protocol number of TCP.
pub(crate) const PROTOCOL: u8 = 6;
/// Length of a header without options, octets.
pub(super) const FIXED_BYTES: u32 = 20;

/// A whole fixed TCP header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tcp<'a>(&'a [u8; 20]);

impl<'a> Tcp<'a> {
    /// Splits the fixed header from the options and the payload; `None` if the capture ends inside
    /// it.
    #[inline]
    pub fn split(slice: FrameSlice<'a>) -> Option<(Self, FrameSlice<'a>)> {
        slice.split().map(|(header, rest)| (Self(header), rest))
    }

    /// Source port.
    #[inline]
    pub fn source_port(self) -> u16 {
        let [a, b, ..] = *self.0;
        u16::from_be_bytes([a, b])
    }

    /// Destination port.
    #[inline]
    pub fn destination_port(self) -> u16 {
        let [_, _, a, b, ..] = *self.0;
        u16::from_be_bytes([a, b])
    }

    /// Sequence number of the first payload octet, or of the SYN.
    #[inline]
    pub fn sequence(self) -> u32 {
        let [_, _, _, _, a, b, c, d, ..] = *self.0;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Acknowledgment number: the next sequence number that the sender expects.
    #[inline]
    pub fn acknowledgment(self) -> u32 {
        let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *self.0;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Length of the header with its options by the data offset, octets.
    #[inline]
    pub fn header_bytes(self) -> u32 {
        u32::from(self.0[12] >> 4) * 4
    }

    /// Control bits including the reserved ones, 12 bits.
    #[inline]
    pub fn control(self) -> u16 {
        u16::from_be_bytes([self.0[12], self.0[13]]) & 0x0fff
    }

    /// Window, not scaled, octets.
    #[inline]
    pub fn window(self) -> u16 {
        u16::from_be_bytes([self.0[14], self.0[15]])
    }

    /// Checksum, as on the wire.
    #[inline]
    pub fn checksum(self) -> [u8; 2] {
        [self.0[16], self.0[17]]
    }
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
        let (packet, anomalies) = decoded_as(228, &ipv4(6, &segment));
        assert!(anomalies.is_empty());
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
        let (packet, anomalies) = decoded_as(229, &ip);
        assert!(anomalies.is_empty());
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
            let (packet, anomalies) = snapped(1, &frame, (14 + 40 + captured).min(frame.len()));
            assert!(anomalies.is_empty());
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
            let (packet, anomalies) = decoded_as(228, &ipv4(6, &segment[..length]));
            assert_eq!(anomaly_list(anomalies), [PacketAnomaly::TransportMalformed]);
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
            let (packet, anomalies) = decoded_as(228, &ipv4(6, &segment));
            assert_eq!(anomaly_list(anomalies), [PacketAnomaly::TransportMalformed]);
            assert_eq!((packet.control, packet.payload_bytes), (Packet::SYN, payload_bytes));
        }
    }
}
