//! Fragment fields, which IPv4 and IPv6 share.

use crate::packet::Flags;

/// The flags of a packet with this fragment offset and "more fragments" bit.
#[inline]
pub(super) fn fragment_flags(offset: u16, more: bool) -> Flags {
    Flags(match (offset, more) {
        (0, false) => 0,
        (0, true) => Flags::FRAGMENT_FIRST,
        _ => Flags::FRAGMENT_LATER,
    })
}
