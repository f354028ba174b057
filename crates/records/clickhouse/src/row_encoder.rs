//! Rows in the format RowBinary: the values of all columns one behind the other, little-endian, without names.
//!
//! A text begins with its length (LEB128), an array with the number of its values, and a value that may be none with
//! an octet that is 1 if it is none.

use crate::column_type::ColumnType;
use std::net::IpAddr;
use weir_fields::{Column, FieldValue};
use weir_flow::FlowRecord;

/// Encodes flow records.
pub struct RowEncoder {
    columns: Vec<(&'static Column, ColumnType)>,
    /// The value of the column of the probe, encoded; empty if rows have none.
    probe: Vec<u8>,
    text: Vec<u8>,
}

impl RowEncoder {
    /// An encoder of the columns of these fields, and of the name of the probe behind them, as
    /// [`row_columns`](crate::row_columns) has them.
    pub fn new(columns: &[&'static Column], probe: Option<&str>) -> Self {
        let typed = |&column: &&'static Column| (column, ColumnType::of(column));
        let mut encoded = Vec::new();
        if let Some(name) = probe {
            append_text(name.as_bytes(), &mut encoded);
        }
        Self { columns: columns.iter().map(typed).collect(), probe: encoded, text: Vec::new() }
    }

    /// Appends a row: a flow, or one direction of it. What is computed from several fields is that of the `flow`.
    /// Returns whether all values fit their types; one that does not becomes the largest.
    pub fn append(&mut self, record: &FlowRecord, flow: &FlowRecord, row: &mut Vec<u8>) -> bool {
        let Self { columns, probe, text } = self;
        let mut fits = true;
        for (column, of_type) in columns {
            let is_computed = !column.properties.computed_from.is_empty();
            let value = column.read(if is_computed { flow } else { record });
            fits &= append_value(*of_type, &value, text, row);
        }
        row.extend_from_slice(probe);
        fits
    }
}

fn append_value(of_type: ColumnType, value: &FieldValue<'_>, text: &mut Vec<u8>, row: &mut Vec<u8>) -> bool {
    match (of_type, value) {
        (ColumnType::Time { is_nullable }, value) => {
            let ns = if let FieldValue::Time(ns) = value { Some(*ns) } else { None };
            row.extend(is_nullable.then_some(u8::from(ns.is_none())));
            if let Some(ns) = ns.or((!is_nullable).then_some(0)) {
                row.extend(i64::try_from(ns).unwrap_or(i64::MAX).to_le_bytes());
                return i64::try_from(ns).is_ok();
            }
        }
        (ColumnType::Integer { octets, is_nullable }, value) => {
            let number = match value {
                FieldValue::Unsigned(number) | FieldValue::Implied(number) => Some(*number),
                _ => None,
            };
            row.extend(is_nullable.then_some(u8::from(number.is_none())));
            if let Some(number) = number.or((!is_nullable).then_some(0)) {
                return append_integer(number, octets, row);
            }
        }
        (ColumnType::Number, FieldValue::Float(number)) => {
            row.push(0);
            row.extend(number.to_le_bytes());
        }
        (ColumnType::Number, _) => row.push(1),
        (ColumnType::Address, value) => {
            let octets = match value {
                FieldValue::Ip(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
                FieldValue::Ip(IpAddr::V6(address)) => address.octets(),
                _ => [0; 16],
            };
            row.extend(octets);
        }
        (ColumnType::Text | ColumnType::Word, value) => {
            text.clear();
            value.append_text(text);
            append_text(text, row);
        }
        (ColumnType::Words(_) | ColumnType::Texts, value) => {
            text.clear();
            value.append_text(text);
            let separator = if let ColumnType::Words(separator) = of_type { separator } else { b',' };
            append_list(text, separator, row);
        }
    }
    true
}

/// Appends a number of 1, 2, 4 or 8 octets. Returns whether it fits.
fn append_integer(number: u64, octets: u8, row: &mut Vec<u8>) -> bool {
    let largest = u64::MAX >> (64 - 8 * u32::from(octets));
    row.extend(&number.min(largest).to_le_bytes()[..usize::from(octets)]);
    number <= largest
}

fn append_text(text: &[u8], row: &mut Vec<u8>) {
    append_length(text.len(), row);
    row.extend(text);
}

/// Appends the parts of a text; none of an empty one.
fn append_list(text: &[u8], separator: u8, row: &mut Vec<u8>) {
    if text.is_empty() {
        return row.push(0);
    }
    let parts = || text.split(|&octet| octet == separator);
    append_length(parts().count(), row);
    parts().for_each(|part| append_text(part, row));
}

/// LEB128.
fn append_length(mut length: usize, row: &mut Vec<u8>) {
    while length >= 0x80 {
        row.push(length as u8 | 0x80);
        length >>= 7;
    }
    row.push(length as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_fields::{columns, select_columns};
    use weir_flow::{Approximate, Direction};
    use weir_packet::Network;
    use weir_tcp::TcpReport;

    fn encoded(fields: &str, flow: &FlowRecord) -> (Vec<u8>, bool) {
        let mut row = Vec::new();
        let fits = RowEncoder::new(&select_columns(fields).unwrap(), None).append(flow, flow, &mut row);
        (row, fits)
    }

    #[test]
    fn values_have_the_octets_of_their_types() {
        let forward = Direction { packets: 0x0102, tcp_flags: 0x12, first_ns: 7, last_ns: 9, ..Direction::default() };
        let flow = FlowRecord {
            protocol: 6,
            destination_port: 443,
            forward,
            approximate: Approximate(3),
            ..FlowRecord::default()
        };
        assert_eq!(encoded("dst_port,fwd_packets", &flow).0, [&[0xbb, 1][..], &[2, 1, 0, 0, 0, 0, 0, 0]].concat());
        assert_eq!(encoded("protocol,fwd_tcp_flags,rev_tcp_flags", &flow).0, b"\x03tcp\x02SA\x00");
        assert_eq!(encoded("approximate", &flow).0, b"\x02\x08overflow\x0amixed_vlan");
        assert_eq!(encoded("udp_response_ns,fwd_vlan_id", &flow).0, [1, 1].as_slice());
        let mut of_probe = Vec::new();
        RowEncoder::new(&select_columns("dst_port").unwrap(), Some("p1")).append(&flow, &flow, &mut of_probe);
        assert_eq!(of_probe, b"\xbb\x01\x02p1");
        assert_eq!(encoded("src_ip", &flow).0[10..], [0xff, 0xff, 0, 0, 0, 0]);
        let late = FlowRecord { forward: Direction { first_ns: u64::MAX, ..forward }, ..flow };
        assert_eq!(encoded("start_time", &late), (i64::MAX.to_le_bytes().into(), false));
        let mut row = Vec::new();
        assert!(
            !append_integer(256, 1, &mut row) && append_integer(255, 1, &mut row) && append_integer(1, 8, &mut row)
        );
        assert_eq!(row, [255, 255, 1, 0, 0, 0, 0, 0, 0, 0]);
        append_length(300, &mut row);
        assert_eq!(row[10..], [0xac, 2]);
    }

    #[test]
    fn integers_that_are_never_none_have_a_value_in_every_flow() {
        let forward = Direction { packets: 1, ..Direction::default() };
        let with = |protocol, network, tcp| FlowRecord { protocol, network, tcp, forward, ..FlowRecord::default() };
        let flows = [
            FlowRecord::default(),
            with(6, Network::Ipv4, Some([TcpReport::EMPTY; 2])),
            with(17, Network::Ipv6, None),
            with(0, Network::Layer2, None),
        ];
        for column in columns() {
            if let ColumnType::Integer { is_nullable: false, .. } = ColumnType::of(column) {
                let has_value = |flow: &FlowRecord| matches!(column.read(flow), FieldValue::Unsigned(_));
                assert!(flows.iter().all(has_value), "{}", column.name);
            }
        }
    }
}
