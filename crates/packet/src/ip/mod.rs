//! From the IP header to the transport header: addresses, lengths, fragments.

mod extension;
mod ipv4;
mod ipv6;

use crate::octets::Octets;
use crate::{AnomalySet, Flags, Packet};
use ipv4::Ipv4;
use ipv6::Ipv6;
use weir_ledger::RefusalReason;

/// A whole IP header; what it says can be metered, whatever follows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ip<'a> {
    V4(Ipv4<'a>),
    V6(Ipv6<'a>),
}

impl<'a> Ip<'a> {
    /// Splits the header of either version.
    ///
    /// # Errors
    /// As for that version; `IpVersion` if it is another one, `LinkTruncated` if nothing was captured.
    #[inline]
    pub fn split(octets: Octets<'a>) -> Result<Self, RefusalReason> {
        match octets.captured().first().ok_or(RefusalReason::LinkTruncated)? >> 4 {
            4 => Self::split_v4(octets),
            6 => Self::split_v6(octets),
            _ => Err(RefusalReason::IpVersion),
        }
    }

    /// Splits an IPv4 header.
    ///
    /// # Errors
    /// See [`Ipv4::split`].
    #[inline]
    pub fn split_v4(octets: Octets<'a>) -> Result<Self, RefusalReason> {
        Ipv4::split(octets).map(Self::V4)
    }

    /// Splits an IPv6 header.
    ///
    /// # Errors
    /// See [`Ipv6::split`].
    #[inline]
    pub fn split_v6(octets: Octets<'a>) -> Result<Self, RefusalReason> {
        Ipv6::split(octets).map(Self::V6)
    }

    /// Writes all that the IP headers say into `packet`, with `payload_bytes` what follows them, and
    /// gives what was captured of that: `None` if there is no transport header to be looked for.
    #[inline]
    pub fn describe(self, packet: &mut Packet, notes: &mut AnomalySet) -> Option<Octets<'a>> {
        match self {
            Self::V4(header) => header.describe(packet, notes),
            Self::V6(header) => header.describe(packet, notes),
        }
    }
}

/// What a fragment offset and the bit "more fragments" make of a packet.
#[inline]
fn fragment_flags(offset: u16, more: bool) -> Flags {
    Flags(match (offset, more) {
        (0, false) => 0,
        (0, true) => Flags::FRAGMENT_FIRST,
        _ => Flags::FRAGMENT_LATER,
    })
}
