//! The protocol field of PPP (RFC 1661 section 2), whole or compressed (section 6.5).

use super::{Next, PPPOE_SESSION};
use crate::octets::Octets;

/// A whole protocol field. The last octet of a protocol number is odd and all others are even,
/// which tells a field of one octet from one of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ppp(u16);

impl Ppp {
    /// Splits the field from what follows; `None` if the capture ends inside it.
    #[inline]
    pub fn split(octets: Octets<'_>) -> Option<(Self, Octets<'_>)> {
        let (&[first], rest) = octets.split()?;
        if first & 1 == 1 {
            return Some((Self(first.into()), rest));
        }
        octets.split().map(|(&field, rest)| (Self(u16::from_be_bytes(field)), rest))
    }

    /// What follows: IPv4 (RFC 1332), IPv6 (RFC 5072) or MPLS (RFC 3032 section 4.3).
    #[inline]
    pub fn next(self) -> Next {
        match self.0 {
            0x0021 => Next::Ipv4,
            0x0057 => Next::Ipv6,
            0x0281 => Next::Mpls,
            _ => Next::Other(PPPOE_SESSION),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(bytes: &[u8]) -> Option<(u16, usize)> {
        Ppp::split(Octets::of_frame(bytes, 100)).map(|(ppp, rest)| (ppp.0, rest.captured().len()))
    }

    #[test]
    fn the_field_is_one_octet_if_the_first_is_odd() {
        assert_eq!(split(&[0x21, 0x45]), Some((0x21, 1)));
        assert_eq!(split(&[0x00, 0x21]), Some((0x21, 0)));
        assert_eq!(split(&[0xc0, 0x21, 1]), Some((0xc021, 1)));
    }

    #[test]
    fn a_cut_field_is_none() {
        assert_eq!((split(&[]), split(&[0]), split(&[0xc0])), (None, None, None));
    }
}
