//! Which fields of the catalogue an information element has the values of.
//!
//! The catalogue says it for the elements that Weir writes. What other exporters write, and Weir does not, is in a
//! table here. Times and elements of directions of records are read by [`Layout`](crate::layout::Layout).

use crate::conversion::Conversion;
use std::collections::HashMap;
use std::sync::LazyLock;
use weir_fields::{
    Column, ColumnKind, DataType, Element, Format, NTOP_ENTERPRISE, REVERSE_ENTERPRISE, WEIR_ENTERPRISE,
    WEIR_FIRST_NUMBER, WEIR_REVERSE_BIT, columns, elements_of,
};

/// Private enterprise number of CERT, whose elements YAF writes.
pub const CERT_ENTERPRISE: u32 = 6871;
/// unionTCPFlags: the control bits of all segments but the first.
pub const UNION_TCP_FLAGS: u16 = 15;
/// initialTCPFlags: those of the first segment.
pub const INITIAL_TCP_FLAGS: u16 = 14;
/// The bit of the reverse direction in numbers of CERT and Weir (RFC 5103 section 6.2).
pub const REVERSE_BIT: u16 = WEIR_REVERSE_BIT;

/// Enterprise and number of an element; 0 is the enterprise of IANA.
pub type ElementId = (u32, u16);

/// A field that an element has the value of.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The field.
    pub column: &'static Column,
    /// The element of the catalogue for it: the same one, or the one that it stands for.
    pub element: ElementId,
    /// How it is read.
    pub conversion: Conversion,
    /// Of the elements of a template for one field, the one with the highest number is read.
    pub rank: u8,
}

/// Elements that other exporters write, and the elements of the catalogue that they stand for.
const STAND_FOR: [(ElementId, ElementId, Conversion); 24] = [
    // octetTotalCount, packetTotalCount and layer2OctetTotalCount.
    ((0, 85), (0, 1), Conversion::Number),
    ((REVERSE_ENTERPRISE, 85), (REVERSE_ENTERPRISE, 1), Conversion::Number),
    ((0, 86), (0, 2), Conversion::Number),
    ((REVERSE_ENTERPRISE, 86), (REVERSE_ENTERPRISE, 2), Conversion::Number),
    ((0, 353), (0, 352), Conversion::Number),
    ((REVERSE_ENTERPRISE, 353), (REVERSE_ENTERPRISE, 352), Conversion::Number),
    // initiatorOctets, responderOctets, initiatorPackets and responderPackets.
    ((0, 231), (0, 1), Conversion::Number),
    ((0, 232), (REVERSE_ENTERPRISE, 1), Conversion::Number),
    ((0, 298), (0, 2), Conversion::Number),
    ((0, 299), (REVERSE_ENTERPRISE, 2), Conversion::Number),
    // samplingInterval, which Weir writes for collectors that know no other.
    ((0, 34), (0, 310), Conversion::Sampling),
    // icmpTypeCodeIPv4 and icmpTypeCodeIPv6.
    ((0, 32), (0, 176), Conversion::IcmpType),
    ((0, 32), (0, 177), Conversion::IcmpCode),
    ((0, 139), (0, 178), Conversion::IcmpType),
    ((0, 139), (0, 179), Conversion::IcmpCode),
    ((REVERSE_ENTERPRISE, 32), (REVERSE_ENTERPRISE, 176), Conversion::IcmpType),
    ((REVERSE_ENTERPRISE, 32), (REVERSE_ENTERPRISE, 177), Conversion::IcmpCode),
    ((REVERSE_ENTERPRISE, 139), (REVERSE_ENTERPRISE, 178), Conversion::IcmpType),
    ((REVERSE_ENTERPRISE, 139), (REVERSE_ENTERPRISE, 179), Conversion::IcmpCode),
    // ipTTL.
    ((0, 192), (0, 52), Conversion::Number),
    ((0, 192), (0, 53), Conversion::Number),
    ((CERT_ENTERPRISE, UNION_TCP_FLAGS), (0, TCP_CONTROL_BITS), Conversion::CodeOrZero),
    ((CERT_ENTERPRISE, UNION_TCP_FLAGS | REVERSE_BIT), (REVERSE_ENTERPRISE, TCP_CONTROL_BITS), Conversion::CodeOrZero),
    // reverseFlowDeltaMilliseconds: from the first packet to that of the responder.
    ((CERT_ENTERPRISE, 21), UDP_RESPONSE_TIME, Conversion::MillisecondsToNs),
];

/// tcpControlBits.
pub const TCP_CONTROL_BITS: u16 = 6;
/// udpResponseTime of Weir.
pub const UDP_RESPONSE_TIME: ElementId = (WEIR_ENTERPRISE, WEIR_FIRST_NUMBER + 56);
/// flowStartMilliseconds and flowEndMilliseconds: elements of the two times that every record has.
pub const TIMES: [u16; 2] = [152, 153];

/// Whether the element of a field does not say what the record had: 0 in the window scale of ntop stands for none, too.
pub fn is_ambiguous(column: &Column) -> bool {
    const TCP_WIN_SCALE_IN: u16 = 418;
    elements_of(column).any(|element| element.ntop_reverse.is_some() && element.number == TCP_WIN_SCALE_IN)
}

/// Whether the field is one of the two times that every record has, which are read in the best unit of the record.
pub fn is_time_of_record(column: &Column) -> bool {
    elements_of(column).any(|element| element.weir.is_none() && TIMES.contains(&element.number))
}

/// The field of one of [`TIMES`].
pub fn time_column(number: u16) -> &'static Column {
    // A search for every record would take longer than the record.
    static COLUMNS: LazyLock<[&'static Column; 2]> = LazyLock::new(|| {
        TIMES.map(|number| {
            let is_of = |column: &&Column| elements_of(column).any(|of| of.weir.is_none() && of.number == number);
            columns().iter().find(is_of).expect("the catalogue has both times")
        })
    });
    COLUMNS[usize::from(number == TIMES[1])]
}

/// The fields of an element.
pub fn targets(enterprise: u32, number: u16) -> &'static [Target] {
    static TARGETS: LazyLock<HashMap<ElementId, Vec<Target>>> = LazyLock::new(all_targets);
    TARGETS.get(&(enterprise, number)).map_or(&[], Vec::as_slice)
}

fn all_targets() -> HashMap<ElementId, Vec<Target>> {
    let mut all: HashMap<_, Vec<Target>> = HashMap::new();
    let is_read = |column: &&Column| column.is_restored() && !is_ambiguous(column) && !is_time_of_record(column);
    for column in columns().iter().filter(is_read) {
        // The numbers of applicationId are those of each exporter, and a record does not say whose they are.
        let elements = elements_of(column).filter(|of| of.is_in(Format::Ipfix) && !of.is_application_id());
        for (rank, of) in (1..).zip(elements) {
            let element = identifier(of, column.name.starts_with("rev_"));
            let target = Target { column, element, conversion: conversion(column, of), rank };
            all.entry(element).or_default().push(target);
        }
    }
    for (other, element, conversion) in STAND_FOR {
        let of_catalogue = all.get(&element).cloned().unwrap_or_default();
        let same = of_catalogue.into_iter().map(|target| Target { conversion, rank: 0, ..target });
        all.entry(other).or_default().extend(same);
    }
    all
}

/// Enterprise and number of the element of a direction.
fn identifier(element: &Element, is_reverse: bool) -> ElementId {
    match (element.weir, element.ntop_reverse, is_reverse) {
        (None, None, false) => (0, element.number),
        (None, None, true) => (REVERSE_ENTERPRISE, element.number),
        (None, Some(_), false) => (NTOP_ENTERPRISE, element.number),
        (None, Some(reverse), true) => (NTOP_ENTERPRISE, reverse),
        (Some(_), _, false) => (WEIR_ENTERPRISE, element.number),
        (Some(_), _, true) => (WEIR_ENTERPRISE, element.number | WEIR_REVERSE_BIT),
    }
}

fn conversion(column: &Column, element: &Element) -> Conversion {
    const PROTOCOL_IDENTIFIER: u16 = 4;
    const VLAN_ID: u16 = 58;
    const FLOW_END_REASON: u16 = 136;
    const TCP_WIN_MSS_IN: u16 = 417;
    const SAMPLING_POPULATION: u16 = 310;
    match element.data_type {
        DataType::Float64 => Conversion::Float,
        DataType::Ipv4Address | DataType::Ipv6Address => Conversion::AddressOrZero,
        DataType::MacAddress => Conversion::Mac,
        DataType::String => Conversion::Text,
        DataType::DateTimeMilliseconds | DataType::DateTimeNanoseconds => Conversion::Milliseconds,
        DataType::OctetArray => Conversion::Label,
        _ if element.ntop_reverse.is_some() && element.number == TCP_WIN_MSS_IN => Conversion::NotZero,
        _ => match (element.number, column.kind) {
            (VLAN_ID, _) => Conversion::Vlan,
            (SAMPLING_POPULATION, _) => Conversion::Sampling,
            (PROTOCOL_IDENTIFIER | FLOW_END_REASON, _) => Conversion::CodeOrZero,
            (_, ColumnKind::Word | ColumnKind::Words | ColumnKind::TcpFlags) => Conversion::Code,
            _ => Conversion::Number,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_element_has_a_field() {
        for ((enterprise, number), element, _) in STAND_FOR {
            let has_field = targets(enterprise, number).iter().any(|target| target.element == element);
            assert!(has_field, "{enterprise}/{number}");
        }
        assert!(targets(0, 65_000).is_empty());
    }
}
