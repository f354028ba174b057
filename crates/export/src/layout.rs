//! How a flow becomes a record of a template: its shape says which elements apply, and is the template.

use crate::element::{Body, Element, Formats, OWN_ENTERPRISE, OWN_REVERSE, REVERSE_ENTERPRISE};
use crate::fields::{Column, EXTRA, FIELDS};
use crate::value::Value;
use std::ops::Range;
use weir_flow::Flow;

/// Which elements a record has: bit n for slot n of the layout.
pub(crate) type Shape = u128;

/// Every element that a format could send, in the order in which those that apply are sent.
pub(crate) struct Layout {
    /// Columns with the slots of their elements, those of the reverse direction first.
    columns: Vec<(Column, Range<usize>)>,
    /// How many of them are of the reverse direction.
    reverse: usize,
    slots: Vec<Slot>,
}

struct Slot {
    element: &'static Element,
    reverse: bool,
}

impl Layout {
    /// `format` is IPFIX or NetFlow v9; only IPFIX has elements of the reverse direction.
    pub fn new(format: Formats) -> Self {
        let mut slots = Vec::new();
        let mut columns = Vec::new();
        let mut all: Vec<Column> = Column::all(FIELDS.iter().chain(EXTRA)).collect();
        // The reverse direction first: nfdump 1.7.1 takes reverse elements that it does not know for the forward ones, and
        // what comes last stays.
        all.sort_by_key(|column| !column.reverse);
        for column in all {
            let elements = column.field.elements.iter();
            let before = slots.len();
            if format == Formats::Ipfix || !column.reverse {
                let has = |element: &&Element| element.formats == format || element.formats == Formats::Both;
                slots.extend(elements.filter(has).map(|element| Slot { element, reverse: column.reverse }));
            }
            if slots.len() > before {
                columns.push((column, before..slots.len()));
            }
        }
        assert!(slots.len() <= Shape::BITS as usize, "a shape has a bit for every slot");
        let reverse = columns.iter().filter(|(column, _)| column.reverse).count();
        Self { columns, reverse, slots }
    }

    /// Appends what applies to a flow and says what that is. Times of uptime count from `boot_ms`.
    pub fn encode(&self, flow: &Flow, from_responder: bool, boot_ms: u64, out: &mut Body) -> Shape {
        let mut shape = 0;
        let of_other_direction = if flow.reverse.packets == 0 { self.reverse } else { 0 };
        for (column, slots) in &self.columns[of_other_direction..] {
            let value = column.value(flow, from_responder);
            if matches!(value, Value::Absent) {
                continue;
            }
            for (at, Slot { element, .. }) in slots.clone().zip(&self.slots[slots.clone()]) {
                if element.takes(&value, flow.network) {
                    element.write(&value, boot_ms, out);
                    shape |= 1 << at;
                }
            }
        }
        shape
    }

    /// The template record of a shape: identifier, number of fields, and for each its number and length, and its enterprise
    /// if that is not IANA.
    pub fn template(&self, id: u16, shape: Shape) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(id.to_be_bytes());
        record.extend((shape.count_ones() as u16).to_be_bytes());
        for (_, slot) in self.slots.iter().enumerate().filter(|(at, _)| shape & (1 << at) != 0) {
            let element = slot.element;
            let (number, enterprise) = match (element.own.is_some(), slot.reverse) {
                (false, false) => (element.number, None),
                (false, true) => (element.number, Some(REVERSE_ENTERPRISE)),
                (true, false) => (element.number, Some(OWN_ENTERPRISE)),
                (true, true) => (element.number | OWN_REVERSE, Some(OWN_ENTERPRISE)),
            };
            let flag = if enterprise.is_some() { 0x8000 } else { 0 };
            record.extend((number | flag).to_be_bytes());
            record.extend(element.octets.to_be_bytes());
            if let Some(enterprise) = enterprise {
                record.extend(enterprise.to_be_bytes());
            }
        }
        record
    }

    /// The type information records of our own elements (RFC 5610 section 3): enterprise, number, data type, semantics,
    /// units, name.
    pub fn own_types(&self) -> impl Iterator<Item = Vec<u8>> {
        self.slots.iter().filter_map(|slot| {
            let element = slot.element;
            let (semantics, units) = element.own?;
            let mut name = element.name.to_owned();
            let mut number = element.number;
            if slot.reverse {
                number |= OWN_REVERSE;
                // reverseExampleName, as RFC 5103 section 6.1 names the reverse of IANA's.
                name[..1].make_ascii_uppercase();
                name.insert_str(0, "reverse");
            }
            let mut record = Vec::new();
            record.extend(OWN_ENTERPRISE.to_be_bytes());
            record.extend(number.to_be_bytes());
            record.extend([element.data_type as u8, semantics as u8]);
            record.extend((units as u16).to_be_bytes());
            record.push(u8::try_from(name.len()).expect("names are short"));
            record.extend(name.as_bytes());
            Some(record)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::SHORTEST_MESSAGE;

    #[test]
    fn the_shortest_message_holds_every_template_and_every_flow() {
        for (format, header, records) in [(Formats::Ipfix, 16, 1), (Formats::Netflow9, 20, 2)] {
            let layout = Layout::new(format);
            // More than any flow has: both networks, both outer families.
            let record: usize = layout.slots.iter().map(|slot| usize::from(slot.element.octets)).sum();
            let template = layout.template(0, Shape::MAX >> (Shape::BITS as usize - layout.slots.len())).len();
            assert!(header + records * (record + 4 + 3) <= SHORTEST_MESSAGE, "records of {record}");
            assert!(header + 4 + template + 3 <= SHORTEST_MESSAGE, "template of {template}");
            assert!(layout.own_types().all(|record| header + 4 + record.len() + 3 <= SHORTEST_MESSAGE));
        }
    }

    #[test]
    fn own_types_are_named_in_both_directions() {
        let layout = Layout::new(Formats::Ipfix);
        let types: Vec<Vec<u8>> = layout.own_types().collect();
        let has = |number: u16, name: &str| {
            types.iter().any(|record| record[4..6] == number.to_be_bytes() && record[11..] == *name.as_bytes())
        };
        assert!(has(1, "packetSizeMean"));
        assert!(has(1 | OWN_REVERSE, "reversePacketSizeMean"));
        assert!(types.iter().all(|record| usize::from(record[10]) == record.len() - 11));
    }
}
