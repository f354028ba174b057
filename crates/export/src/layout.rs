//! How a flow becomes a record of a template: its shape says which elements apply, and is the template.

use crate::element::{Body, Element, Formats, NTOP_ENTERPRISE, OWN_ENTERPRISE, OWN_REVERSE, REVERSE_ENTERPRISE};
use crate::fields::{EXTRA, FIELDS, Field, Record, Visitor, visit_extra, visit_fields};
use crate::value::Value;
use weir_flow::FlowRecord;
use weir_packet::Network;

/// Which elements a record has: a bit for each slot of the layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Shape([u64; 3]);

impl Shape {
    const SLOTS: usize = 3 * 64;

    #[inline(always)]
    fn add(&mut self, slot: usize) {
        self.0[slot / 64] |= 1 << (slot % 64);
    }

    fn has(&self, slot: usize) -> bool {
        self.0[slot / 64] >> (slot % 64) & 1 == 1
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// Every element, in the order in which those that apply are sent.
pub(crate) struct Layout {
    format: Formats,
    slots: Vec<Slot>,
}

struct Slot {
    element: &'static Element,
    reverse: bool,
}

/// Slots of the reverse direction.
const REVERSE_SLOTS: usize = {
    let (mut slots, mut at) = (0, 0);
    while at < FIELDS.len() + EXTRA.len() {
        let field = if at < FIELDS.len() { &FIELDS[at] } else { &EXTRA[at - FIELDS.len()] };
        slots += if field.reverse.is_some() { field.elements.len() } else { 0 };
        at += 1;
    }
    slots
};

impl Layout {
    /// `format` is IPFIX or NetFlow v9; only IPFIX has elements of the reverse direction.
    pub fn new(format: Formats) -> Self {
        // The reverse direction first: nfdump 1.7.1 takes reverse elements that it does not know for the forward ones, and
        // what comes last stays.
        let slots: Vec<Slot> = [true, false]
            .into_iter()
            .flat_map(|reverse| {
                let fields = FIELDS.iter().chain(EXTRA).filter(move |field| !reverse || field.reverse.is_some());
                fields.flat_map(|field| field.elements).map(move |element| Slot { element, reverse })
            })
            .collect();
        assert!(slots.len() <= Shape::SLOTS, "a shape has a bit for every slot");
        Self { format, slots }
    }

    /// Appends what applies to a flow and says what that is. Times of uptime count from `boot_ms`. NetFlow v9 takes one-way
    /// flows only.
    pub fn encode(&self, flow: &FlowRecord, from_responder: bool, boot_ms: u64, out: &mut Body) -> Shape {
        let (format, network) = (self.format, flow.network);
        let mut encoder = Encoder { format, network, calm: false, boot_ms, out, slot: 0, shape: Shape::default() };
        if format == Formats::Ipfix && flow.reverse.packets > 0 {
            let record = Record::new(flow, true, from_responder);
            encoder.calm = is_calm(&record);
            visit_fields::<true>(&record, &mut encoder);
            visit_extra::<true>(&record, &mut encoder);
        }
        encoder.slot = REVERSE_SLOTS;
        let record = Record::new(flow, false, from_responder);
        encoder.calm = is_calm(&record);
        visit_fields::<false>(&record, &mut encoder);
        visit_extra::<false>(&record, &mut encoder);
        encoder.shape
    }

    /// The template record of a shape: identifier, number of fields, and for each its number and length, and its enterprise
    /// if that is not IANA.
    pub fn template(&self, id: u16, shape: Shape) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(id.to_be_bytes());
        record.extend((shape.count() as u16).to_be_bytes());
        for (_, slot) in self.slots.iter().enumerate().filter(|(at, _)| shape.has(*at)) {
            let element = slot.element;
            let (number, enterprise) = match (element.own, element.ntop_reverse, slot.reverse) {
                (None, None, false) => (element.number, None),
                (None, None, true) => (element.number, Some(REVERSE_ENTERPRISE)),
                (None, Some(_), false) => (element.number, Some(NTOP_ENTERPRISE)),
                (None, Some(reverse), true) => (reverse, Some(NTOP_ENTERPRISE)),
                (Some(_), _, false) => (element.number, Some(OWN_ENTERPRISE)),
                (Some(_), _, true) => (element.number | OWN_REVERSE, Some(OWN_ENTERPRISE)),
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
        self.slots.iter().filter(|slot| slot.element.is_of(self.format)).filter_map(|slot| {
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

/// Puts the elements that take a field's value one behind the other.
struct Encoder<'a> {
    format: Formats,
    network: Network,
    /// The direction is one of TCP without trouble.
    calm: bool,
    boot_ms: u64,
    out: &'a mut Body,
    /// Of the next element.
    slot: usize,
    shape: Shape,
}

fn is_calm(record: &Record<'_>) -> bool {
    record.tcp.is_some_and(|report| !report.has_anomalies())
}

impl Visitor for Encoder<'_> {
    #[inline(always)]
    fn visit(&mut self, field: &'static Field, value: impl FnOnce() -> Value) {
        if field.elements.is_empty() {
            return;
        }
        let value = value();
        for element in field.elements {
            if element.is_of(self.format) && element.takes(&value, self.network, self.calm) {
                element.write(&value, self.boot_ms, self.out);
                self.shape.add(self.slot);
            }
            self.slot += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{DataType, SHORTEST_MESSAGE};
    use weir_flow::Direction;
    use weir_packet::{NO_VLAN, Packet};
    use weir_tcp::{SegmentClass, SegmentCount, TcpReport};

    #[test]
    fn the_shortest_message_holds_every_template_and_every_flow() {
        for (format, header, reverse, records) in
            [(Formats::Ipfix, 16, true, 1), (Formats::Ipfix, 16, false, 2), (Formats::Netflow9, 20, false, 2)]
        {
            let layout = Layout::new(format);
            // The longest are those of TCP over IPv6, in tunnels over IPv6: all but what no flow has besides.
            let other = |element: &Element| {
                element.data_type == DataType::Ipv4Address
                    || element.data_type == DataType::MacAddress
                    || element.name.starts_with("icmp")
            };
            let has = |slot: &Slot| slot.element.is_of(format) && (reverse || !slot.reverse) && !other(slot.element);
            let slots = || layout.slots.iter().enumerate().filter(|(_, slot)| has(slot));
            let record: usize = slots().map(|(_, slot)| usize::from(slot.element.octets)).sum();
            let mut shape = Shape::default();
            slots().for_each(|(at, _)| shape.add(at));
            let template = layout.template(0, shape).len();
            assert!(header + records * (record + 4 + 3) <= SHORTEST_MESSAGE, "records of {record}");
            assert!(header + 4 + template + 3 <= SHORTEST_MESSAGE, "template of {template}");
            assert!(layout.own_types().all(|record| header + 4 + record.len() + 3 <= SHORTEST_MESSAGE));
        }
    }

    #[test]
    fn two_ways_of_tcp_without_trouble_are_no_more_fields_than_tshark_takes() {
        let layout = Layout::new(Formats::Ipfix);
        let fields = |network, inner_vlan, report: TcpReport| {
            let direction = Direction {
                packets: 4,
                bytes: 1200,
                tcp_flags: Packet::SYN | Packet::ACK | Packet::FIN,
                vlan: 7,
                inner_vlan,
                ..Direction::default()
            };
            let flow = FlowRecord {
                network,
                protocol: 6,
                forward: direction,
                reverse: direction,
                tcp: Some([report; 2]),
                ..FlowRecord::default()
            };
            layout.encode(&flow, false, 0, &mut Body::new()).count()
        };
        let mut report = TcpReport {
            unique_bytes: 1000,
            fins: 1,
            syn_window: Some(1000),
            maximum_segment_size: Some(1460),
            window_scale: Some(7),
            handshake_rtt_ns: Some(1),
            size_by_sequence_bytes: Some(1000),
            duration_by_sequence_ns: Some(1),
            ..TcpReport::EMPTY
        };
        for (class, segments, bytes) in
            [(SegmentClass::Syn, 1, 0), (SegmentClass::Acknowledgment, 1, 0), (SegmentClass::InOrder, 2, 1000)]
        {
            report.classes[class as usize] = SegmentCount { segments, bytes };
        }
        for network in [Network::Ipv4, Network::Ipv6] {
            assert_eq!(fields(network, NO_VLAN, report), 60);
            // A second tag, or a connection in more than one record, is more.
            assert_eq!(fields(network, 8, report), 62);
            assert_eq!(fields(network, NO_VLAN, TcpReport { size_by_sequence_bytes: Some(2000), ..report }), 62);
            assert!(fields(network, NO_VLAN, TcpReport { zero_windows: 1, ..report }) > 100);
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
