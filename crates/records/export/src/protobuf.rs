//! Flow records as `FlowMessage` of goflow2 v2, with Weir's own fields from number 1000 on.
//!
//! A message describes one direction. It is written by hand: a varint for numbers, 8 octets for floating-point
//! numbers, a length and octets for the rest (protobuf.dev, *Encoding*). Before it stands its length, as goflow2
//! writes it. goflow2's fields have a value unless that is 0 (proto3); Weir's are `optional`: they are there if they
//! apply. data/weir-flow.proto is the schema, which a test compares with the tables here.
//!
//! Weir's numbers follow from those of information elements, which do not change: [`number`].

use std::net::IpAddr;
use std::sync::LazyLock;
use weir_fields::{Column, ColumnKind, Element, FieldValue, fields};
use weir_flow::FlowRecord;
use weir_packet::Network;

/// Numbers of fields whose elements are in the IANA registry, or ntop's, begin here.
const IANA_FIRST_NUMBER: u32 = 2000;
const NTOP_FIRST_NUMBER: u32 = 3000;
/// biflowDirection (239): 1 from the initiator, 2 from the responder.
const BIFLOW_DIRECTION: u32 = IANA_FIRST_NUMBER + 239;

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const OCTETS: u32 = 2;

/// Fields of goflow2 that are no column.
const SAMPLING_RATE: u32 = 3;
const SEQUENCE: u32 = 4;
const ETHERTYPE: u32 = 30;
const OBSERVATION_DOMAIN: u32 = 70;
const MPLS_LABEL: u32 = 81;
const TIME_RECEIVED: u32 = 110;

/// A column that is a field of goflow2: its number, type and name there, and the IANA element of the column.
type CommonField = (u32, &'static str, &'static str, u16);

const COMMON: [CommonField; 20] = [
    (6, "bytes", "src_addr", 8),
    (7, "bytes", "dst_addr", 12),
    (9, "uint64", "bytes", 1),
    (10, "uint64", "packets", 2),
    (14, "uint32", "src_as", 16),
    (15, "uint32", "dst_as", 17),
    (18, "uint32", "in_if", 10),
    (20, "uint32", "proto", 4),
    (21, "uint32", "src_port", 7),
    (22, "uint32", "dst_port", 11),
    (23, "uint32", "ip_tos", 5),
    (25, "uint32", "ip_ttl", 52),
    (26, "uint32", "tcp_flags", 6),
    (27, "uint64", "src_mac", 56),
    (28, "uint64", "dst_mac", 80),
    (29, "uint32", "vlan_id", 58),
    (31, "uint32", "icmp_type", 176),
    (32, "uint32", "icmp_code", 177),
    (111, "uint64", "time_flow_start_ns", 152),
    (112, "uint64", "time_flow_end_ns", 153),
];

/// IANA elements of what goflow2's fields have in another form: EtherType, label stack, samplingPopulation.
const ELSEWHERE: [u16; 3] = [256, 70, 310];

/// A column as a field of a message.
#[derive(Clone, Copy, Debug)]
struct MessageField {
    number: u32,
    /// The name in the schema.
    name: &'static str,
    column: &'static Column,
}

/// The fields that columns are: goflow2's, and Weir's in the order of their numbers.
struct MessageFields {
    common: Vec<MessageField>,
    weir: Vec<MessageField>,
}

static FIELDS: LazyLock<MessageFields> = LazyLock::new(|| {
    let has =
        |elements: &[Element], number: u16| elements.iter().any(|element| is_iana(element) && element.number == number);
    let common = COMMON.iter().map(|&(number, _, name, element)| {
        let entry = fields().find(|entry| has(entry.elements, element)).expect("a test looks for all elements");
        MessageField { number, name, column: &entry.columns[0] }
    });
    let weir = fields().filter_map(|entry| {
        let column = &entry.columns[0];
        let mut others = COMMON.iter().map(|(_, _, _, element)| *element).chain(ELSEWHERE);
        let is_other = others.any(|element| has(entry.elements, element));
        let number = number(entry.elements).filter(|_| !is_other)?;
        Some(MessageField { number, name: entry.name, column })
    });
    let (common, mut weir): (_, Vec<_>) = (common.collect(), weir.collect());
    weir.sort_by_key(|field| field.number);
    MessageFields { common, weir }
});

/// The number of a field of Weir: that of its element, from 1000 on for an element of Weir, plus 2000 for one of IANA,
/// or 3000 for one of ntop. What has no element follows from other fields.
fn number(elements: &[Element]) -> Option<u32> {
    let first = |is: fn(&Element) -> bool, base: u32| {
        elements.iter().find(|element| is(element)).map(|element| base + u32::from(element.number))
    };
    first(|element| element.weir.is_some(), 0)
        .or_else(|| first(is_iana, IANA_FIRST_NUMBER))
        .or_else(|| first(|_| true, NTOP_FIRST_NUMBER))
}

fn is_iana(element: &Element) -> bool {
    element.weir.is_none() && element.ntop_reverse.is_none()
}

/// What a message says besides the flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageContext {
    /// When it is written, ns since 1970 UTC.
    pub time_ns: u64,
    /// The number of the message.
    pub sequence: u32,
    /// The record is the reverse direction of its flow.
    pub is_reverse: bool,
}

/// Writes messages with a selection of Weir's fields.
pub(crate) struct MessageEncoder {
    observation_domain: u32,
    weir: Vec<MessageField>,
    body: Vec<u8>,
    text: Vec<u8>,
}

impl MessageEncoder {
    /// `selected`: the columns of which Weir's fields are wanted; `known`: the columns that records have.
    pub fn new(
        observation_domain: u32,
        selected: Option<&[&'static Column]>,
        known: Option<&[&'static Column]>,
    ) -> Self {
        // A message has one direction, so the column of either direction selects the field.
        let has = |list: Option<&[&'static Column]>, field: &MessageField| {
            let is_of = |column: &&Column| {
                let name = column.name;
                name == field.name || name.strip_prefix("fwd_").or(name.strip_prefix("rev_")) == Some(field.name)
            };
            list.is_none_or(|list| list.iter().any(is_of))
        };
        let weir = FIELDS.weir.iter().filter(|field| has(selected, field) && has(known, field));
        Self { observation_domain, weir: weir.copied().collect(), body: Vec::new(), text: Vec::new() }
    }

    /// Appends one direction of a flow, whose forward direction it is, with its length before it.
    pub fn append(&mut self, record: &FlowRecord, context: MessageContext, out: &mut Vec<u8>) {
        let Self { body, text, weir, observation_domain } = self;
        body.clear();
        append_number(SAMPLING_RATE, record.sampling.map_or(1, |[_, max]| max.into()), body);
        append_number(SEQUENCE, context.sequence.into(), body);
        for field in &FIELDS.common {
            append_value(field, &field.column.read(record), text, false, body);
        }
        append_number(ETHERTYPE, ethertype(record).into(), body);
        append_number(OBSERVATION_DOMAIN, (*observation_domain).into(), body);
        if record.forward.mpls_label != weir_packet::NO_LABEL {
            text.clear();
            append_varint(record.forward.mpls_label.into(), text);
            append_octets(MPLS_LABEL, text, body);
        }
        append_number(TIME_RECEIVED, context.time_ns, body);
        for field in weir.iter() {
            append_value(field, &field.column.read(record), text, true, body);
        }
        append_number(BIFLOW_DIRECTION, if context.is_reverse { 2 } else { 1 }, body);
        append_varint(body.len() as u64, out);
        out.extend(body.iter());
    }
}

/// The EtherType of the packets. In an overflow record of layer-2 flows, the other port is 0.
fn ethertype(record: &FlowRecord) -> u16 {
    match record.network {
        Network::Ipv4 => 0x0800,
        Network::Ipv6 => 0x86dd,
        Network::Layer2 => record.source_port.max(record.destination_port),
    }
}

/// Appends a value if it applies; without `optional` presence, unless it is 0.
fn append_value(field: &MessageField, value: &FieldValue<'_>, text: &mut Vec<u8>, optional: bool, out: &mut Vec<u8>) {
    let number = match *value {
        FieldValue::NotApplicable | FieldValue::NoValue => return,
        FieldValue::Unsigned(number) | FieldValue::Implied(number) if field.column.kind == ColumnKind::Number => {
            return append_double(field.number, number as f64, out);
        }
        FieldValue::Float(number) => return append_double(field.number, number, out),
        FieldValue::Ip(IpAddr::V4(address)) => return append_octets(field.number, &address.octets(), out),
        FieldValue::Ip(IpAddr::V6(address)) => return append_octets(field.number, &address.octets(), out),
        FieldValue::Unsigned(number) | FieldValue::Implied(number) | FieldValue::Time(number) => number,
        FieldValue::Mac([a, b, c, d, e, f]) => u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
        _ => {
            text.clear();
            value.append_text(text);
            return append_octets(field.number, text, out);
        }
    };
    if optional {
        append_varint((field.number << 3 | VARINT).into(), out);
        append_varint(number, out);
    } else {
        append_number(field.number, number, out);
    }
}

/// Appends a number that is not 0.
fn append_number(field: u32, number: u64, out: &mut Vec<u8>) {
    if number != 0 {
        append_varint((field << 3 | VARINT).into(), out);
        append_varint(number, out);
    }
}

fn append_double(field: u32, number: f64, out: &mut Vec<u8>) {
    append_varint((field << 3 | FIXED64).into(), out);
    out.extend(number.to_le_bytes());
}

fn append_octets(field: u32, octets: &[u8], out: &mut Vec<u8>) {
    append_varint((field << 3 | OCTETS).into(), out);
    append_varint(octets.len() as u64, out);
    out.extend(octets);
}

/// Seven bits per octet, the lowest first; the highest bit says that more follow.
fn append_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fmt::Write;

    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../data/weir-flow.proto");
    const HEAD: &str = "\
// Flow records of Weir in Kafka (docs/kafka.md): FlowMessage of goflow2 v2, and Weir's fields from number 1000 on.
// A message is one direction of a flow. Before it stands its length, a varint, as goflow2 writes it.
// Written by: BLESS=1 cargo test -p weir-export protobuf
syntax = \"proto3\";
package flowpb;

message FlowMessage {
  // Fields of goflow2 that Weir writes.
";

    fn type_of(kind: ColumnKind) -> &'static str {
        match kind {
            ColumnKind::Time | ColumnKind::Integer | ColumnKind::Mac => "uint64",
            ColumnKind::Number => "double",
            ColumnKind::Address => "bytes",
            _ => "string",
        }
    }

    fn schema() -> String {
        let mut common: Vec<(u32, &str, &str)> =
            COMMON.iter().map(|&(number, kind, name, _)| (number, kind, name)).collect();
        common.extend([
            (SAMPLING_RATE, "uint64", "sampling_rate"),
            (SEQUENCE, "uint32", "sequence_num"),
            (ETHERTYPE, "uint32", "etype"),
            (OBSERVATION_DOMAIN, "uint32", "observation_domain_id"),
            (MPLS_LABEL, "repeated uint32", "mpls_label"),
            (TIME_RECEIVED, "uint64", "time_received_ns"),
        ]);
        common.sort_unstable();
        let mut text = HEAD.to_owned();
        for (number, kind, name) in common {
            writeln!(text, "  {kind} {name} = {number};").unwrap();
        }
        text += "\n  // Fields of Weir (docs/fields.md describes them). One that is missing does not apply.\n";
        for field in &FIELDS.weir {
            let kind = type_of(field.column.kind);
            writeln!(text, "  optional {kind} {} = {};", field.name, field.number).unwrap();
        }
        text += "  // 1: this direction is the initiator's, 2: the responder's.\n";
        writeln!(text, "  uint32 biflow_direction = {BIFLOW_DIRECTION};\n}}").unwrap();
        text
    }

    /// Name and type of each number.
    fn numbers(schema: &str) -> BTreeMap<u32, String> {
        let field = |line: &str| {
            let (declared, number) = line.trim().strip_suffix(';')?.split_once(" = ")?;
            Some((number.parse().ok()?, declared.to_owned()))
        };
        schema.lines().filter_map(field).collect()
    }

    #[test]
    fn the_schema_is_that_of_the_catalogue_and_no_number_changes() {
        let (expected, present) = (schema(), std::fs::read_to_string(PATH).unwrap_or_default());
        let new = numbers(&expected);
        for (number, declared) in numbers(&present) {
            assert_eq!(new.get(&number), Some(&declared), "consumers know {number} as {declared}");
        }
        if std::env::var_os("BLESS").is_some() {
            return std::fs::write(PATH, expected).unwrap();
        }
        assert!(present == expected, "data/weir-flow.proto is stale: BLESS=1 cargo test -p weir-export protobuf");
    }

    #[test]
    fn names_and_numbers_are_unique_and_permitted() {
        let schema = schema();
        let numbers = numbers(&schema);
        let names: BTreeSet<&str> = numbers.values().filter_map(|declared| declared.rsplit(' ').next()).collect();
        let fields = COMMON.len() + 6 + FIELDS.weir.len() + 1;
        assert_eq!((numbers.len(), names.len()), (fields, fields));
        assert!(numbers.keys().all(|&number| !(19_000..20_000).contains(&number)));
        assert!(FIELDS.weir.iter().all(|field| field.number >= 1000));
    }

    #[test]
    fn varints_are_as_in_the_specification() {
        for (number, octets) in [(0, &[0][..]), (127, &[127]), (150, &[0x96, 1]), (u64::MAX, &[0xff; 10])] {
            let mut out = Vec::new();
            append_varint(number, &mut out);
            let last = if number == u64::MAX { [&octets[..9], &[1]].concat() } else { octets.to_vec() };
            assert_eq!(out, last);
        }
    }
}
