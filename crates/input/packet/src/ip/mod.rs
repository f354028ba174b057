//! IP headers: addresses, lengths, fragments, and the payload after the last IP header.

mod extension;
mod ipv4;
mod ipv6;

use crate::frame_slice::FrameSlice;
use crate::packet::{AnomalySet, Packet};
use weir_ledger::RefusalReason;

pub(crate) use ipv4::Ipv4;
pub(crate) use ipv6::Ipv6;

/// A whole IP header. Its packet can be metered whatever follows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ip<'a> {
    V4(Ipv4<'a>),
    V6(Ipv6<'a>),
}

impl<'a> Ip<'a> {
    /// Splits a header of either version.
    ///
    /// # Errors
    /// As for that version; `IpVersion` for any other version, `LinkTruncated` if nothing was
    /// captured.
    #[inline]
    pub fn split(slice: FrameSlice<'a>) -> Result<Self, RefusalReason> {
        match slice.captured().first().ok_or(RefusalReason::LinkTruncated)? >> 4 {
            4 => Ipv4::split(slice).map(Self::V4),
            6 => Ipv6::split(slice).map(Self::V6),
            _ => Err(RefusalReason::IpVersion),
        }
    }

    /// The header without options and extension headers.
    pub fn octets(&self) -> &'a [u8] {
        match self {
            Self::V4(header) => header.octets(),
            Self::V6(header) => header.octets(),
        }
    }

    /// Fills the IP fields of `packet`; `payload_bytes` counts the octets after the IP headers.
    /// Returns the captured payload, or `None` if it has no transport header (later fragment,
    /// malformed headers).
    #[inline]
    pub fn fill(self, packet: &mut Packet, anomalies: &mut AnomalySet) -> Option<FrameSlice<'a>> {
        match self {
            Self::V4(header) => header.fill(packet, anomalies),
            Self::V6(header) => header.fill(packet, anomalies),
        }
    }
}
