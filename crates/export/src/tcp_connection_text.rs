//! Text records of whole TCP connections (`weir tcp`): endpoints, times, and every TCP field, with
//! the names and values of the records of [`crate::open`]. Other fields (IP octets, inter-arrival
//! times, VLANs) are not known of a connection.

use crate::field_value::FieldValue;
use crate::fields::{DirectionView, FIELDS, Field, Visitor, visit_fields};
use crate::json_csv::{TextFormat, append_value};
use weir_flow::FlowRecord;

/// Fields of a connection besides the TCP fields.
const COMMON_FIELDS: [&str; 9] =
    ["start", "end", "duration_ns", "src_ip", "dst_ip", "src_port", "dst_port", "packets", "community_id"];

/// The names of all columns: the fields, then those of the reverse direction.
pub fn tcp_columns() -> impl Iterator<Item = &'static str> {
    let fields = || FIELDS.iter().filter(|field| has_field(field));
    fields().map(|field| field.name).chain(fields().filter_map(|field| field.reverse))
}

/// Appends a connection as a JSON object.
pub fn append_tcp_json(connection: &FlowRecord, out: &mut Vec<u8>) {
    append(TextFormat::Json, connection, out);
    out.push(b'}');
}

/// Appends a connection as a line of CSV that ends with LF.
pub fn append_tcp_csv(connection: &FlowRecord, out: &mut Vec<u8>) {
    append(TextFormat::Csv, connection, out);
    out.push(b'\n');
}

fn append(format: TextFormat, connection: &FlowRecord, out: &mut Vec<u8>) {
    let mut columns = Columns { format, reverse: false, first: true, out };
    visit_fields::<false>(&DirectionView::new(connection, false, false), &mut columns);
    columns.reverse = true;
    visit_fields::<true>(&DirectionView::new(connection, true, false), &mut columns);
}

fn has_field(field: &Field) -> bool {
    field.tcp_only || COMMON_FIELDS.contains(&field.name)
}

struct Columns<'a> {
    format: TextFormat,
    reverse: bool,
    first: bool,
    out: &'a mut Vec<u8>,
}

impl Visitor for Columns<'_> {
    fn visit(&mut self, field: &'static Field, value: impl FnOnce() -> FieldValue) {
        if !has_field(field) {
            return;
        }
        let first = std::mem::replace(&mut self.first, false);
        match self.format {
            TextFormat::Json => {
                let name = if self.reverse { field.reverse.unwrap_or(field.name) } else { field.name };
                self.out.push(if first { b'{' } else { b',' });
                self.out.push(b'"');
                self.out.extend(name.as_bytes());
                self.out.extend(b"\":");
            }
            TextFormat::Csv => self.out.extend((!first).then_some(b',')),
        }
        append_value(self.format, &value(), self.out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::Direction;
    use weir_tcp::TcpReport;

    #[test]
    fn json_and_csv_have_all_columns() {
        let forward = Direction { packets: 3, first_ns: 5, last_ns: 7, ..Direction::default() };
        let tcp = Some([TcpReport { unique_bytes: 42, ..TcpReport::default() }, TcpReport::default()]);
        let connection =
            FlowRecord { protocol: 6, source_port: 1000, destination_port: 80, forward, tcp, ..FlowRecord::default() };
        let (mut json, mut csv) = (Vec::new(), Vec::new());
        append_tcp_json(&connection, &mut json);
        append_tcp_csv(&connection, &mut csv);
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        let cells: Vec<&str> = csv.trim_end().split(',').collect();
        assert_eq!(cells.len(), tcp_columns().count());
        assert_eq!(json.as_object().unwrap().len(), cells.len());
        for (name, cell) in tcp_columns().zip(cells) {
            let value = &json[name];
            let text = value.as_str().map_or_else(|| value.to_string(), String::from);
            assert_eq!(cell, if value.is_null() { "" } else { &text }, "{name}");
        }
        assert_eq!((&json["tcp_unique_bytes"], &json["duration_ns"]), (&42.into(), &2.into()));
        assert!(json["rev_tcp_unique_bytes"].is_null());
    }
}
