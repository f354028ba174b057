//! GTP-U version 1 (3GPP TS 29.281 section 5): a tunnel endpoint identifier, optional fields and
//! extension headers; then, in messages of type G-PDU, a packet.

use super::header::TunnelHeader;
use crate::frame_slice::{FrameSlice, be32};
use crate::link::{NO_ETHERTYPE, NextHeader};

/// UDP destination port of GTP-U.
pub(super) const PORT: u16 = 2152;
/// Message type that carries a packet; all others are signalling.
const G_PDU: u8 = 255;
/// Three bits of version, and the bit that distinguishes GTP from the charging protocol GTP'.
const VERSION_1_OF_GTP: u8 = 0b0011;

/// Splits the header with its optional fields and extension headers from the payload; `None` if a
/// header is truncated, of another version, or an extension header has length 0.
#[inline]
pub(super) fn split(slice: FrameSlice<'_>) -> Option<TunnelHeader<'_>> {
    let (header, rest) = slice.split::<8>()?;
    if header[0] >> 4 != VERSION_1_OF_GTP {
        return None;
    }
    let identifier = Some(be32(header, 4));
    if header[1] != G_PDU {
        return Some(TunnelHeader { identifier, next: NextHeader::Other(NO_ETHERTYPE), payload: rest });
    }
    let payload = skip_optional(header[0], rest)?;
    let next = match payload.captured().first()? >> 4 {
        4 => NextHeader::Ipv4,
        6 => NextHeader::Ipv6,
        _ => NextHeader::Other(NO_ETHERTYPE),
    };
    Some(TunnelHeader { identifier, next, payload })
}

/// Skips sequence number, N-PDU number and the type of the first extension header, which are all
/// present if any of the three lowest bits of `flags` is set; then the extension headers if bit 2
/// is set.
#[inline]
fn skip_optional(flags: u8, slice: FrameSlice<'_>) -> Option<FrameSlice<'_>> {
    if flags & 0b111 == 0 {
        return Some(slice);
    }
    let (&[_, _, _, mut extension], mut rest) = slice.split()?;
    if flags & 0b100 == 0 {
        return Some(rest);
    }
    // Each iteration consumes at least four captured octets.
    while extension != 0 {
        // Length in words of four octets, contents, and the type of the next extension header.
        let (&[words], _) = rest.split()?;
        let last = (usize::from(words) * 4).checked_sub(1)?;
        let (&[next], after) = rest.skip(last)?.split()?;
        (extension, rest) = (next, after);
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::PORT;
    use crate::TunnelType;
    use crate::tests::frames::*;

    fn gtpu(bits: u8, message: u8, optional: &[u8], payload: &[u8]) -> Vec<u8> {
        let [a, b] = ((optional.len() + payload.len()) as u16).to_be_bytes();
        let header = [bits, message, a, b, 0x12, 0x34, 0x56, 0x78];
        udp_from([192, 0, 2, 1], [192, 0, 2, 2], PORT, PORT, &[&header, optional, payload].concat())
    }

    #[test]
    fn packets_after_optional_fields_and_extensions_are_decapsulated() {
        for payload in [udp_in_v4(5, 6, b"x"), udp_in_v6(5, 6, b"x")] {
            for (bits, optional) in [
                (0x30, &[][..]),
                (0x32, &[0, 1, 0, 0]),
                (0x31, &[0, 0, 9, 0]),
                // Without the extension bit, the extension type is ignored.
                (0x32, &[0, 1, 0, 0x85]),
                (0x34, &[0, 0, 0, 0]),
                (0x34, &[0, 0, 0, 0x85, 1, 0x10, 9, 0]),
                (0x37, &[0, 1, 2, 0x85, 2, 0, 0, 0, 0, 0, 0, 0x40, 1, 0, 0, 0]),
            ] {
                let packet = without_anomalies(decapsulated(228, &gtpu(bits, 255, optional, &payload)));
                assert_eq!((packet.tunnel_type, packet.tunnel_id), (TunnelType::Gtpu, 0x1234_5678));
                assert_eq!(packet.source_port, 5);
                assert_outer_v4(&packet);
            }
        }
    }

    #[test]
    fn signalling_and_other_payloads_are_not_an_anomaly() {
        assert_not_decapsulated(228, &gtpu(0x32, 1, &[0, 1, 0, 0], &[]), &[]);
        assert_not_decapsulated(228, &gtpu(0x30, 254, &[], &[]), &[]);
        assert_not_decapsulated(228, &gtpu(0x30, 255, &[], &ethernet(0x0800, &udp_in_v4(5, 6, b"x"))), &[]);
    }

    #[test]
    fn impossible_headers_are_not_decapsulated() {
        let payload = udp_in_v4(5, 6, b"x");
        // Version 2; GTP'; an extension header of length 0; nothing after the header.
        assert_malformed(228, &gtpu(0x50, 255, &[], &payload));
        assert_malformed(228, &gtpu(0x20, 255, &[], &payload));
        assert_malformed(228, &gtpu(0x34, 255, &[0, 0, 0, 0x85, 0, 0, 0, 0], &payload));
        assert_malformed(228, &gtpu(0x30, 255, &[], &[]));
    }

    #[test]
    fn many_extensions_are_skipped() {
        let mut optional = [vec![0, 0, 0, 0x85], [1, 0, 0, 0x85].repeat(300)].concat();
        *optional.last_mut().unwrap() = 0;
        assert_eq!(decapsulated(228, &gtpu(0x34, 255, &optional, &udp_in_v4(5, 6, b"x"))).0.source_port, 5);
    }

    #[test]
    fn a_truncated_header_is_not_decapsulated() {
        let optional = [0, 0, 0, 0x85, 1, 0x10, 9, 0];
        let packet = gtpu(0x34, 255, &optional, &udp_in_v4(5, 6, b"x"));
        assert_decapsulated_from(228, &packet, 24..28 + 16 + 20);
    }
}
