//! Packets logged by Linux netfilter (LINKTYPE_NFLOG of the tcpdump.org registry): a header of
//! family, version and resource identifier, then attributes, one of which holds the IP packet.
//!
//! An attribute has a length, which includes its own header of 4 octets, and a type, both in the
//! byte order of the capturing host; attributes are padded to 4 octets. Types are below 256, so the
//! type of the first attribute shows the byte order.

use super::next_header::NextHeader;
use crate::frame_slice::FrameSlice;
use weir_ledger::RefusalReason;

/// Largest number of attributes; Linux has 21 types.
const MAX_ATTRIBUTES: usize = 32;
/// Octets of length and type of an attribute.
const ATTRIBUTE_HEADER_BYTES: u32 = 4;
/// Type of the attribute that holds the packet (`NFULA_PAYLOAD`).
const PAYLOAD: u16 = 9;
/// The bits of a type without the flags "nested" and "network byte order".
const TYPE_MASK: u16 = 0x3fff;

/// Splits the header and its attributes from the packet, whose length is that of its attribute.
///
/// # Errors
/// `LinkTruncated` if the capture ends before the packet; `LinkMalformed` if the length of an
/// attribute is impossible; `TooManyHeaders` if the packet is not among the first 32 attributes.
pub(crate) fn split(frame: FrameSlice<'_>) -> Result<(NextHeader, FrameSlice<'_>), RefusalReason> {
    let truncated = RefusalReason::LinkTruncated;
    let (&[family, version, _, _], mut rest) = frame.split().ok_or(truncated)?;
    let not_ip = (NextHeader::Other(0), frame);
    // Address families of Linux.
    let next = match (version, family) {
        (0, 2) => NextHeader::Ipv4,
        (0, 10) => NextHeader::Ipv6,
        _ => return Ok(not_ip),
    };
    let mut read: Option<fn([u8; 2]) -> u16> = None;
    for _ in 0..MAX_ATTRIBUTES {
        if rest.wire_bytes() < ATTRIBUTE_HEADER_BYTES {
            return Ok(not_ip);
        }
        let (&[a, b, c, d], value) = rest.split().ok_or(truncated)?;
        let little_endian = u16::from_le_bytes([c, d]) & TYPE_MASK < 0x100;
        let read = *read.get_or_insert(if little_endian { u16::from_le_bytes } else { u16::from_be_bytes });
        let value_bytes = u32::from(read([a, b])).checked_sub(ATTRIBUTE_HEADER_BYTES);
        let value_bytes =
            value_bytes.filter(|&bytes| bytes <= value.wire_bytes()).ok_or(RefusalReason::LinkMalformed)?;
        if read([c, d]) & TYPE_MASK == PAYLOAD {
            return Ok((next, value.limit(value_bytes)));
        }
        let padded_bytes = value_bytes.next_multiple_of(4);
        if padded_bytes > value.wire_bytes() {
            return Ok(not_ip);
        }
        rest = value.skip(padded_bytes as usize).ok_or(truncated)?;
    }
    Err(RefusalReason::TooManyHeaders)
}

#[cfg(test)]
mod tests {
    use super::MAX_ATTRIBUTES;
    use crate::tests::frames::*;
    use crate::{DecodeOptions, Network, Packet, decode};
    use weir_ledger::{PacketAnomaly, RefusalReason};

    fn attribute(big_endian: bool, number: u16, value: &[u8]) -> Vec<u8> {
        let bytes = if big_endian { u16::to_be_bytes } else { u16::to_le_bytes };
        let mut octets = [&bytes(4 + value.len() as u16)[..], &bytes(number), value].concat();
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    }

    /// As `tcpdump -i nflog:1` writes it: packet header, prefix, interface, packet.
    fn frame(big_endian: bool, family: u8, packet: &[u8]) -> Vec<u8> {
        let attribute = |number, value: &[u8]| attribute(big_endian, number, value);
        [
            vec![family, 0, 0, 1],
            attribute(1, &[8, 0, 1, 0]),
            attribute(10, b"input\0"),
            attribute(0x8014, &[0; 8]),
            attribute(4, &[0, 0, 0, 2]),
            attribute(9, packet),
        ]
        .concat()
    }

    fn decode_frame(captured: &[u8], frame_bytes: usize) -> Result<Packet, RefusalReason> {
        let mut packet = Packet::default();
        decode(239, captured, frame_bytes as u32, DecodeOptions::default(), &mut packet).map(|_| packet)
    }

    fn not_ip(packet: &Packet) -> bool {
        (packet.network, packet.source_port) == (Network::Layer2, 0)
    }

    #[test]
    fn the_packet_is_found_in_either_byte_order() {
        for big_endian in [false, true] {
            let (v4, anomalies) = decoded_as(239, &frame(big_endian, 2, &udp_in_v4(5, 6, b"x")));
            assert!(anomalies.is_empty());
            assert_eq!((v4.network, v4.source_port, v4.ip_bytes, v4.payload_bytes), (Network::Ipv4, 5, 29, 1));
            let (v6, anomalies) = decoded_as(239, &frame(big_endian, 10, &udp_in_v6(5, 6, b"xy")));
            assert!(anomalies.is_empty());
            assert_eq!((v6.network, v6.source_port, v6.ip_bytes, v6.payload_bytes), (Network::Ipv6, 5, 50, 2));
        }
    }

    #[test]
    fn the_packet_is_as_long_as_its_attribute() {
        // A copy range shorter than the packet, and padding that is not part of it.
        let mut ip = udp_in_v4(5, 6, &[0; 100]);
        let (packet, anomalies) = decoded_as(239, &frame(false, 2, &ip[..63]));
        assert_eq!(anomaly_list(anomalies), [PacketAnomaly::LengthBeyondFrame]);
        assert_eq!(packet.ip_bytes, 128);
        ip[2..4].fill(0);
        let (packet, anomalies) = decoded_as(239, &frame(false, 2, &ip[..63]));
        assert_eq!(anomaly_list(anomalies), [PacketAnomaly::LengthFromFrame]);
        assert_eq!(packet.ip_bytes, 63);
    }

    #[test]
    fn other_families_and_versions_are_not_ip() {
        let mut version = frame(false, 2, &udp_in_v4(5, 6, b"x"));
        version[1] = 1;
        for frame in [version, frame(false, 7, &ethernet(0x0806, &[0; 28])), frame(false, 0, &[])] {
            assert!(not_ip(&decoded_as(239, &frame).0));
        }
    }

    #[test]
    fn a_frame_without_a_packet_is_not_ip() {
        for attributes in [&[][..], &[8, 0, 1, 0, 0, 0, 0, 0], &[5, 0, 1, 0, 7]] {
            assert!(not_ip(&decoded_as(239, &[&[2, 0, 0, 1], attributes].concat()).0), "{attributes:?}");
        }
    }

    #[test]
    fn attributes_of_an_impossible_length_are_malformed() {
        // A length below 4 octets, and a length beyond the frame.
        for attribute in [[3, 0, 1, 0], [0, 0, 9, 0], [60, 0, 1, 0], [0xd4, 7, 9, 0]] {
            let frame = [&[2, 0, 0, 1], &attribute[..], &udp_in_v4(5, 6, b"x")].concat();
            let result = decode_frame(&frame, frame.len()).map(|_| ());
            assert_eq!(result, Err(RefusalReason::LinkMalformed), "{attribute:?}");
        }
    }

    #[test]
    fn an_attribute_that_the_snap_length_cuts_has_its_length_on_the_wire() {
        let mut ip = udp_in_v4(5, 6, &[0; 100]);
        ip[2..4].fill(0);
        let frame = frame(false, 2, &ip);
        let packet = decode_frame(&frame[..frame.len() - 60], frame.len()).unwrap();
        assert_eq!((packet.source_port, packet.ip_bytes), (5, 128));
    }

    #[test]
    fn more_attributes_than_the_bound_are_refused() {
        let frame = |count: usize| {
            let packet = attribute(false, 9, &udp_in_v4(5, 6, b"x"));
            [vec![2, 0, 0, 1], attribute(false, 12, &[0; 4]).repeat(count - 1), packet].concat()
        };
        assert_eq!(decoded_as(239, &frame(MAX_ATTRIBUTES)).0.source_port, 5);
        assert_eq!(refusal(239, &frame(MAX_ATTRIBUTES + 1)), RefusalReason::TooManyHeaders);
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        let frame = frame(false, 2, &udp_in_v4(5, 6, b"x"));
        let packet_at = frame.len() - 32;
        for cut in 0..packet_at + 20 {
            let in_attributes = cut < packet_at;
            let reason = if in_attributes { RefusalReason::LinkTruncated } else { RefusalReason::Ipv4Truncated };
            assert_eq!(refusal(239, &frame[..cut]), reason, "cut at {cut}");
        }
    }
}
