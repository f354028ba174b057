//! What a field can hold, whatever the format.

use crate::community_id::CommunityId;
use std::net::IpAddr;
use weir_flow::Approximate;
use weir_tcp::Degradation;

/// What a field holds for one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    /// The field does not apply.
    Absent,
    /// It applies, and there is none: null in text, 0 in a template, so that there are fewer of these.
    Missing,
    Unsigned(u64),
    /// A number that follows from other fields of a direction of TCP without trouble: not in a template then.
    Implied(u64),
    /// Always finite.
    Float(f64),
    /// Nanoseconds since 1970 UTC.
    Time(u64),
    Ip(IpAddr),
    Mac([u8; 6]),
    /// A number with a word for it.
    Code(u8, &'static str),
    Words(Approximate),
    Degraded(Degradation),
    Text(CommunityId),
}
