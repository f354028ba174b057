//! The value of a field of a flow record, independent of the format.

use crate::community_id;
use std::net::IpAddr;
use weir_flow::Approximate;
use weir_tcp::Degradation;

/// The value of a field in one flow record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FieldValue {
    /// The field does not apply.
    NotApplicable,
    /// The field applies but has no value: null in text, 0 in a template, which keeps templates
    /// few.
    NoValue,
    Unsigned(u64),
    /// A number that follows from other fields of a direction without TCP anomalies. Templates omit
    /// it then.
    Implied(u64),
    /// Always finite.
    Float(f64),
    /// Nanoseconds since 1970-01-01 UTC.
    Time(u64),
    Ip(IpAddr),
    Mac([u8; 6]),
    /// A number and its name.
    Code(u8, &'static str),
    Approximate(Approximate),
    Degraded(Degradation),
    /// ASCII.
    CommunityId([u8; community_id::LENGTH]),
}
