//! Functions that entries read values with.

use crate::entry::DirectionView;
use crate::value::FieldValue;
use weir_flow::{Approximate, Direction};
use weir_packet::Network;

pub(crate) fn when(applies: bool, number: impl Into<u64>) -> FieldValue<'static> {
    if applies { FieldValue::Unsigned(number.into()) } else { FieldValue::NotApplicable }
}

/// A value that only applies if it is present.
pub(crate) fn optional<T>(value: Option<T>, convert: impl FnOnce(T) -> FieldValue<'static>) -> FieldValue<'static> {
    value.map_or(FieldValue::NotApplicable, convert)
}

/// A number that only applies if the direction has packets.
pub(crate) fn number<T: Into<u64>>(
    record: &DirectionView<'_>,
    applies: bool,
    read: impl FnOnce(&Direction) -> T,
) -> FieldValue<'static> {
    of_packets(record, applies, |direction| FieldValue::Unsigned(read(direction).into()))
}

/// A value that only applies if the direction has packets.
pub(crate) fn of_packets(
    record: &DirectionView<'_>,
    applies: bool,
    read: impl FnOnce(&Direction) -> FieldValue<'static>,
) -> FieldValue<'static> {
    if applies && record.direction.packets > 0 { read(record.direction) } else { FieldValue::NotApplicable }
}

#[inline]
pub(crate) fn text(text: &str) -> FieldValue<'_> {
    FieldValue::Text(text.into())
}

#[inline]
pub(crate) fn is_ip(record: &DirectionView<'_>) -> bool {
    record.flow.network != Network::Layer2
}

/// Whether type and code are known. An overflow record sums many types; if the packet had no type
/// and code, both ports are 0 (docs/metering.md section 2).
#[inline]
pub(crate) fn has_icmp(record: &DirectionView<'_>) -> bool {
    let flow = record.flow;
    flow.is_icmp()
        && !flow.approximate.has(Approximate::OVERFLOW)
        && (flow.source_port, flow.destination_port) != (0, 0)
}

/// ICMP type * 256 + code.
#[inline]
pub fn type_and_code<'a>(record: &DirectionView<'a>) -> FieldValue<'a> {
    number(record, has_icmp(record), |direction| u16::from_be_bytes(direction.icmp))
}
