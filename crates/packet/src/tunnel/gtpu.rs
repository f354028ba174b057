//! GTP-U, version 1 (3GPP TS 29.281 section 5): a tunnel endpoint identifier, optional fields, extension
//! headers; in messages of one type, a packet.

use super::Malformed;
use crate::link::Next;
use crate::octets::Octets;

/// UDP destination port.
pub(super) const PORT: u16 = 2152;
/// The message type that carries a packet (G-PDU); all others are signalling.
const PACKET: u8 = 255;

/// A whole GTP-U header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gtpu<'a> {
    header: &'a [u8; 8],
    next: Next,
}

impl<'a> Gtpu<'a> {
    /// Splits the header with its optional fields and extension headers from what follows.
    ///
    /// # Errors
    /// It is cut, of another version, or an extension header has no length.
    #[inline]
    pub fn split(octets: Octets<'a>) -> Result<(Self, Octets<'a>), Malformed> {
        let (header, rest) = octets.split().ok_or(Malformed)?;
        // Three bits of version, and one that tells GTP from the charging protocol GTP'.
        if header[0] >> 4 != 0b0011 {
            return Err(Malformed);
        }
        if header[1] != PACKET {
            return Ok((Self { header, next: Next::Other(0) }, rest));
        }
        let rest = skip_optional(header[0], rest).ok_or(Malformed)?;
        let next = match rest.captured().first().ok_or(Malformed)? >> 4 {
            4 => Next::Ipv4,
            6 => Next::Ipv6,
            _ => Next::Other(0),
        };
        Ok((Self { header, next }, rest))
    }

    /// Tunnel endpoint identifier.
    #[inline]
    pub fn identifier(self) -> u32 {
        let [_, _, _, _, a, b, c, d] = *self.header;
        u32::from_be_bytes([a, b, c, d])
    }

    /// What follows.
    #[inline]
    pub fn next(self) -> Next {
        self.next
    }
}

/// Passes sequence number, N-PDU number and the type of the first extension header, which are there all
/// together if any of three bits is set, and then the extension headers if theirs is.
#[inline]
fn skip_optional(bits: u8, octets: Octets<'_>) -> Option<Octets<'_>> {
    if bits & 0b111 == 0 {
        return Some(octets);
    }
    let (&[_, _, _, mut extension], mut rest) = octets.split()?;
    if bits & 0b100 == 0 {
        return Some(rest);
    }
    // Each turn takes four octets at least of what was captured.
    while extension != 0 {
        // Its length in words of four octets, contents, and the type of the next.
        let (&[words], _) = rest.split()?;
        let last = (usize::from(words) * 4).checked_sub(1)?;
        let (&[next], behind) = rest.skip(last)?.split()?;
        (extension, rest) = (next, behind);
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::PORT;
    use crate::TunnelType;
    use crate::tests::build::*;

    fn gtpu(bits: u8, message: u8, optional: &[u8], payload: &[u8]) -> Vec<u8> {
        let [a, b] = ((optional.len() + payload.len()) as u16).to_be_bytes();
        let header = [bits, message, a, b, 0x12, 0x34, 0x56, 0x78];
        udp_from([192, 0, 2, 1], [192, 0, 2, 2], PORT, PORT, &[&header, optional, payload].concat())
    }

    #[test]
    fn packets_are_entered_behind_optional_fields_and_extensions() {
        for payload in [udp_in_v4(5, 6, b"x"), udp_in_v6(5, 6, b"x")] {
            for (bits, optional) in [
                (0x30, &[][..]),
                (0x32, &[0, 1, 0, 0]),
                (0x31, &[0, 0, 9, 0]),
                // Without the bit for extensions, their type says nothing.
                (0x32, &[0, 1, 0, 0x85]),
                (0x34, &[0, 0, 0, 0]),
                (0x34, &[0, 0, 0, 0x85, 1, 0x10, 9, 0]),
                (0x37, &[0, 1, 2, 0x85, 2, 0, 0, 0, 0, 0, 0, 0x40, 1, 0, 0, 0]),
            ] {
                let (packet, notes) = entered(228, &gtpu(bits, 255, optional, &payload));
                assert!(notes.is_empty());
                assert_eq!((packet.tunnel_type, packet.tunnel_id), (TunnelType::Gtpu, 0x1234_5678));
                assert_eq!(packet.source_port, 5);
                assert_outer_v4(&packet);
            }
        }
    }

    #[test]
    fn signalling_and_other_payloads_are_no_fault() {
        assert_not_entered(228, &gtpu(0x32, 1, &[0, 1, 0, 0], &[]), &[]);
        assert_not_entered(228, &gtpu(0x30, 254, &[], &[]), &[]);
        assert_not_entered(228, &gtpu(0x30, 255, &[], &ethernet(0x0800, &udp_in_v4(5, 6, b"x"))), &[]);
    }

    #[test]
    fn impossible_headers_are_not_entered() {
        let payload = udp_in_v4(5, 6, b"x");
        // Version 2; GTP'; an extension header of no length; nothing behind the header.
        assert_malformed(228, &gtpu(0x50, 255, &[], &payload));
        assert_malformed(228, &gtpu(0x20, 255, &[], &payload));
        assert_malformed(228, &gtpu(0x34, 255, &[0, 0, 0, 0x85, 0, 0, 0, 0], &payload));
        assert_malformed(228, &gtpu(0x30, 255, &[], &[]));
    }

    #[test]
    fn many_extensions_are_passed() {
        let mut optional = [vec![0, 0, 0, 0x85], [1, 0, 0, 0x85].repeat(300)].concat();
        *optional.last_mut().unwrap() = 0;
        assert_eq!(entered(228, &gtpu(0x34, 255, &optional, &udp_in_v4(5, 6, b"x"))).0.source_port, 5);
    }

    #[test]
    fn a_header_cut_anywhere_is_not_entered() {
        let optional = [0, 0, 0, 0x85, 1, 0x10, 9, 0];
        let packet = gtpu(0x34, 255, &optional, &udp_in_v4(5, 6, b"x"));
        assert_entered_from(228, &packet, 24..28 + 16 + 20);
    }
}
