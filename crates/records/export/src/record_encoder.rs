//! Encodes a flow record as a data record of a template. The set of elements that apply to the flow
//! identifies the template (RFC 7011 section 3.4.1, RFC 3954 section 5.2).

use crate::element::{Context, Encode};
use crate::profile::{ElementChoice, Layout};
use std::hash::{Hash, Hasher};
use weir_fields::{
    DirectionView, Element, Entry, FieldValue, Format, NTOP_ENTERPRISE, REVERSE_ENTERPRISE, StaticField, Visitor,
    WEIR_ENTERPRISE, WEIR_REVERSE_BIT, field_elements, fields, template_field_elements, template_fields, visit_fields,
    visit_template_fields,
};
use weir_flow::{FlowRecord, KeyOptions};
use weir_packet::Network;

/// The elements of a record: one bit for each position of the encoder.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub(crate) struct ElementSet([u64; 5]);

impl PartialEq for ElementSet {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        // Not in order, so that it stays a comparison of words: loads of vectors wait for the words that
        // were just stored.
        let ([a, b, c, d, e], [f, g, h, i, j]) = (self.0, other.0);
        b == g && d == i && a == f && c == h && e == j
    }
}

impl Hash for ElementSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl ElementSet {
    const POSITIONS: usize = 5 * 64;

    #[inline(always)]
    fn add(&mut self, position: usize) {
        self.0[position / 64] |= 1 << (position % 64);
    }

    #[inline(always)]
    fn has(&self, position: usize) -> bool {
        self.0[position / 64] >> (position % 64) & 1 == 1
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// Elements that the compiler knows, for encoders that look up none of them at run time, which takes
/// less than half as many instructions. It does not know whether records have the application.
type Known = u8;
const UNKNOWN: Known = 0;
/// Those of full templates of IPFIX.
const FULL_IPFIX: Known = 1;
/// Those of basic templates.
const BASIC_IPFIX: Known = 2;
const BASIC_NETFLOW9: Known = 3;

/// Encodes flow records. It numbers all elements by their position in a record.
pub(crate) struct RecordEncoder {
    format: Format,
    positions: Vec<ElementPosition>,
    layout: Layout,
    /// The elements that records may have.
    chosen: ElementSet,
    known: Known,
    /// Those of basic records.
    basic: ElementSet,
}

struct ElementPosition {
    field: &'static Entry,
    element: &'static Element,
    reverse: bool,
}

/// Positions of the first elements: the reverse direction with its two lists of fields, then the
/// forward direction.
const REVERSE_TEMPLATE_FIELDS: usize = field_elements(true);
const FORWARD_FIELDS: usize = REVERSE_TEMPLATE_FIELDS + template_field_elements(true);
const FORWARD_TEMPLATE_FIELDS: usize = FORWARD_FIELDS + field_elements(false);

impl RecordEncoder {
    /// `format` is IPFIX or NetFlow v9; only IPFIX has elements of the reverse direction.
    /// `applications`: records of basic templates have the application.
    pub fn new(format: Format, choice: &ElementChoice, applications: bool) -> Self {
        // The reverse direction is first: nfdump 1.7.1 stores unknown reverse elements as the
        // forward ones, and keeps the last value.
        let positions: Vec<ElementPosition> = [true, false]
            .into_iter()
            .flat_map(|reverse| {
                let fields = fields().chain(template_fields()).filter(move |field| !reverse || field.is_of_direction());
                fields.flat_map(move |field| {
                    field.elements.iter().map(move |element| ElementPosition { field, element, reverse })
                })
            })
            .collect();
        assert!(positions.len() <= ElementSet::POSITIONS, "every position has a bit in a set");
        let positions_of = |has: &dyn Fn(&Element) -> bool| {
            let mut set = ElementSet::default();
            let all = positions.iter().enumerate();
            all.filter(|(_, of)| of.element.is_in(format) && has(of.element)).for_each(|(at, _)| set.add(at));
            set
        };
        let layout = choice.layout();
        let is_possible = |element: &Element| applications || layout == Layout::List || !element.is_application_id();
        let chosen = positions_of(&|element| choice.has(element) && is_possible(element));
        let basic = positions_of(&|element| element.is_basic() && (applications || !element.is_application_id()));
        let full = positions_of(&|element| element.is_full() && is_possible(element));
        let known = match (layout, format) {
            (Layout::Full, Format::Ipfix) if chosen == full => FULL_IPFIX,
            (Layout::Basic, Format::Ipfix) if chosen == basic => BASIC_IPFIX,
            (Layout::Basic, Format::Netflow9) if chosen == basic => BASIC_NETFLOW9,
            _ => UNKNOWN,
        };
        Self { format, layout, chosen, known, basic, positions }
    }

    /// Whether records may have an element.
    fn has(&self, is_wanted: fn(&Element) -> bool) -> bool {
        self.positions.iter().enumerate().any(|(at, of)| self.chosen.has(at) && is_wanted(of.element))
    }

    /// Whether records may have the application.
    pub fn has_applications(&self) -> bool {
        self.has(Element::is_application_id)
    }

    /// Whether records may have texts of any length.
    pub fn has_texts(&self) -> bool {
        self.has(Element::is_variable)
    }

    /// Length of the shortest record with these elements, octets.
    pub fn min_octets(&self, elements: ElementSet) -> usize {
        let positions = self.positions.iter().enumerate().filter(|(at, _)| elements.has(*at));
        positions.map(|(_, position)| position.element.min_octets()).sum()
    }

    /// Appends the elements that apply to a flow and returns their set. `basic`: the record has a
    /// basic template, whatever the choice of elements. NetFlow v9 and basic templates support
    /// unidirectional flows only.
    pub fn encode(
        &self,
        flow: &FlowRecord,
        from_responder: bool,
        basic: bool,
        context: Context,
        out: &mut Vec<u8>,
    ) -> ElementSet {
        let known = if basic && self.layout != Layout::Basic { UNKNOWN } else { self.known };
        match known {
            FULL_IPFIX => self.encode_known::<FULL_IPFIX>(flow, from_responder, basic, context, out),
            BASIC_IPFIX => self.encode_known::<BASIC_IPFIX>(flow, from_responder, basic, context, out),
            BASIC_NETFLOW9 => self.encode_known::<BASIC_NETFLOW9>(flow, from_responder, basic, context, out),
            _ => self.encode_known::<UNKNOWN>(flow, from_responder, basic, context, out),
        }
    }

    #[inline(never)]
    fn encode_known<const KNOWN: Known>(
        &self,
        flow: &FlowRecord,
        from_responder: bool,
        basic: bool,
        context: Context,
        out: &mut Vec<u8>,
    ) -> ElementSet {
        let (format, network) = (self.format, flow.network);
        let (layout, chosen) = if basic { (Layout::Basic, self.basic) } else { (self.layout, self.chosen) };
        let without_anomalies = |record: &DirectionView<'_>| {
            layout == Layout::Full && record.tcp.is_some_and(|report| !report.has_anomalies())
        };
        let mut state = EncoderState {
            chosen,
            basic: layout == Layout::Basic,
            network,
            icmp: flow.is_icmp(),
            without_anomalies: false,
            context,
            out,
            elements: ElementSet::default(),
        };
        if format == Format::Ipfix && flow.reverse.packets > 0 {
            let record = DirectionView::new(flow, true, from_responder);
            state.without_anomalies = without_anomalies(&record);
            visit_fields::<true>(&record, &mut Encoder::<0, KNOWN>(&mut state));
            visit_template_fields::<true>(&record, &mut Encoder::<REVERSE_TEMPLATE_FIELDS, KNOWN>(&mut state));
        }
        let record = DirectionView::new(flow, false, from_responder);
        state.without_anomalies = without_anomalies(&record);
        visit_fields::<false>(&record, &mut Encoder::<FORWARD_FIELDS, KNOWN>(&mut state));
        visit_template_fields::<false>(&record, &mut Encoder::<FORWARD_TEMPLATE_FIELDS, KNOWN>(&mut state));
        state.elements
    }

    /// The sets of all records, if these follow from the network and from ICMP alone: those of
    /// basic templates. Otherwise none.
    pub fn fixed_sets(&self) -> Vec<ElementSet> {
        if self.layout != Layout::Basic || self.chosen != self.basic {
            return Vec::new();
        }
        let kinds = [
            (Network::Ipv4, false),
            (Network::Ipv4, true),
            (Network::Ipv6, false),
            (Network::Ipv6, true),
            (Network::Layer2, false),
        ];
        let set_of = |(network, icmp)| {
            let mut set = ElementSet::default();
            let positions = self.positions.iter().enumerate().filter(|(at, of)| self.chosen.has(*at) && !of.reverse);
            let positions = positions.filter(|(_, of)| of.element.applies_to_basic(network, icmp));
            positions.for_each(|(at, _)| set.add(at));
            set
        };
        kinds.map(set_of).to_vec()
    }

    /// The template record of a set: template ID, field count, and for each field its number, its
    /// length, and the enterprise number of elements that are not IANA's.
    pub fn template(&self, id: u16, elements: ElementSet) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(id.to_be_bytes());
        record.extend((elements.count() as u16).to_be_bytes());
        for (_, position) in self.positions.iter().enumerate().filter(|(at, _)| elements.has(*at)) {
            let element = position.element;
            let (number, enterprise) = match (element.weir, element.ntop_reverse, position.reverse) {
                (None, None, false) => (element.number, None),
                (None, None, true) => (element.number, Some(REVERSE_ENTERPRISE)),
                (None, Some(_), false) => (element.number, Some(NTOP_ENTERPRISE)),
                (None, Some(reverse), true) => (reverse, Some(NTOP_ENTERPRISE)),
                (Some(_), _, false) => (element.number, Some(WEIR_ENTERPRISE)),
                (Some(_), _, true) => (element.number | WEIR_REVERSE_BIT, Some(WEIR_ENTERPRISE)),
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

    /// The elements of a template that are flow keys: bit n stands for element n (RFC 7011 section
    /// 4.4). `None` if one is not among the first 64.
    pub fn flow_keys(&self, elements: ElementSet, key: KeyOptions) -> Option<u64> {
        let positions = || self.positions.iter().enumerate().filter(|(at, _)| elements.has(*at));
        let of_ip = positions().any(|(_, position)| position.element.is_of_ip());
        let is_key = |position: &ElementPosition| !position.reverse && position.element.is_flow_key(key, of_ip);
        positions()
            .enumerate()
            .filter(|(_, (_, position))| is_key(position))
            .try_fold(0, |keys, (number, _)| Some(keys | 1_u64.checked_shl(number as u32)?))
    }

    /// Whether records with these elements are legal: those with elements of the reverse direction need a key
    /// that says whose direction it is (RFC 5103 section 4).
    pub fn names_directions(&self, elements: ElementSet) -> bool {
        let positions = || self.positions.iter().enumerate().filter(|(at, _)| elements.has(*at)).map(|(_, of)| of);
        let of_ip = positions().any(|position| position.element.is_of_ip());
        let is_key = |position: &ElementPosition| !position.reverse && position.element.is_directional_key(of_ip);
        !positions().any(|position| position.reverse) || positions().any(is_key)
    }

    /// The type information records of the chosen elements of Weir (RFC 5610 section 3): enterprise
    /// number, element number, data type, semantics, units, range, name, description.
    pub fn type_information(&self) -> impl Iterator<Item = Vec<u8>> {
        self.positions.iter().enumerate().filter(|(at, _)| self.chosen.has(*at)).filter_map(|(_, position)| {
            let element = position.element;
            let (semantics, units) = element.weir?;
            let mut name = element.name.to_owned();
            let mut number = element.number;
            if position.reverse {
                number |= WEIR_REVERSE_BIT;
                // `reverseExampleName`, as in RFC 5103 section 6.1.
                name[..1].make_ascii_uppercase();
                name.insert_str(0, "reverse");
            }
            let mut record = Vec::new();
            record.extend(WEIR_ENTERPRISE.to_be_bytes());
            record.extend(number.to_be_bytes());
            record.extend([element.data_type as u8, semantics as u8]);
            record.extend((units as u16).to_be_bytes());
            // From 0 to 0: the range of the data type.
            record.extend([0; 16]);
            // The description is the name in JSON.
            for text in [&*name, position.field.columns[usize::from(position.reverse)].name] {
                record.push(u8::try_from(text.len()).expect("names are short"));
                record.extend(text.as_bytes());
            }
            Some(record)
        })
    }
}

/// A record that is being encoded.
struct EncoderState<'a> {
    chosen: ElementSet,
    /// Elements of basic templates are written even if they do not apply.
    basic: bool,
    network: Network,
    icmp: bool,
    /// The direction has TCP analysis without anomalies, so some elements are omitted.
    without_anomalies: bool,
    context: Context,
    out: &'a mut Vec<u8>,
    elements: ElementSet,
}

/// Appends the elements that apply to the value of each field. The first one has the position
/// `FIRST`, a constant, so that a field without a chosen element costs a comparison, or
/// nothing if the elements are `KNOWN`.
struct Encoder<'a, 'b, const FIRST: usize, const KNOWN: Known>(&'b mut EncoderState<'a>);

/// Whether templates with these known elements have an element. It depends on the encoder for the
/// application, and for all elements if they are `UNKNOWN`.
const fn may_have(known: Known, element: &Element) -> bool {
    match known {
        _ if element.is_application_id() => true,
        FULL_IPFIX => element.is_full() && element.is_in(Format::Ipfix),
        BASIC_IPFIX => element.is_basic() && element.is_in(Format::Ipfix),
        BASIC_NETFLOW9 => element.is_basic() && element.is_in(Format::Netflow9),
        _ => true,
    }
}

/// Whether templates with these known elements have one of a field.
const fn may_have_one(known: Known, elements: &[Element]) -> bool {
    let mut at = 0;
    while at < elements.len() {
        if may_have(known, &elements[at]) {
            return true;
        }
        at += 1;
    }
    false
}

impl EncoderState<'_> {
    /// Whether records may have this element at this position.
    #[inline(always)]
    fn is_chosen<const KNOWN: Known>(&self, position: usize, element: &Element) -> bool {
        if KNOWN == UNKNOWN || element.is_application_id() {
            self.chosen.has(position)
        } else {
            may_have(KNOWN, element)
        }
    }

    /// Whether elements of basic templates are written even if they do not apply.
    #[inline(always)]
    fn is_basic<const KNOWN: Known>(&self) -> bool {
        match KNOWN {
            FULL_IPFIX => false,
            BASIC_IPFIX | BASIC_NETFLOW9 => true,
            _ => self.basic,
        }
    }

    /// Whether records may have an element of a field. The first one has this position.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn may_write<const KNOWN: Known>(&self, first: usize, elements: &'static [Element]) -> bool {
        elements.iter().enumerate().any(|(at, element)| self.is_chosen::<KNOWN>(first + at, element))
    }

    /// Appends the chosen elements of a field that apply to its value. The first one has this position.
    ///
    /// With debug assertions this is one function for all fields: a copy for each takes half a minute to compile.
    #[cfg_attr(not(debug_assertions), inline(always))]
    #[cfg_attr(debug_assertions, inline(never))]
    fn write<const KNOWN: Known>(&mut self, first: usize, elements: &'static [Element], value: &FieldValue<'_>) {
        for (at, element) in elements.iter().enumerate() {
            let position = first + at;
            if !self.is_chosen::<KNOWN>(position, element) {
                continue;
            }
            let basic = self.is_basic::<KNOWN>();
            if basic && element.is_basic() && element.applies_to_basic(self.network, self.icmp) {
                element.write_basic(value, self.context, self.out);
                self.elements.add(position);
            } else if (!basic || element.is_optional_in_basic())
                && element.applies(value, self.network, self.without_anomalies)
            {
                element.write(value, self.context, self.out);
                self.elements.add(position);
            }
        }
    }

    /// The same in a function of its own, because all fields and elements in one take minutes to compile. The type of the
    /// value is known in it.
    #[inline(never)]
    fn write_unknown<'a, F: StaticField>(&mut self, first: usize, value: impl FnOnce() -> FieldValue<'a>) {
        self.write::<UNKNOWN>(first, F::ELEMENTS, &value());
    }
}

impl<const FIRST: usize, const KNOWN: Known> Visitor for Encoder<'_, '_, FIRST, KNOWN> {
    // Without optimisation, all fields in one function would need more stack than a thread has.
    #[cfg_attr(not(debug_assertions), inline(always))]
    #[cfg_attr(debug_assertions, inline(never))]
    fn visit<'a, F: StaticField>(&mut self, elements_before: usize, value: impl FnOnce() -> FieldValue<'a>) {
        // Without code for fields that these templates never have: they are most of them.
        if !const { may_have_one(KNOWN, F::ELEMENTS) } {
            return;
        }
        let first = FIRST + elements_before;
        if !self.0.may_write::<KNOWN>(first, F::ELEMENTS) {
            return;
        }
        if KNOWN == UNKNOWN {
            self.0.write_unknown::<F>(first, value);
        } else {
            self.0.write::<KNOWN>(first, F::ELEMENTS, &value());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::MIN_MESSAGE_BYTES;
    use weir_fields::{DataType, elements};
    use weir_flow::Direction;
    use weir_packet::{NO_VLAN, Packet};
    use weir_tcp::{ResponseTimes, SegmentClass, SegmentCount, TcpReport};

    const CONTEXT: Context = Context { boot_ms: 0, text_octets: 0 };

    #[test]
    fn the_smallest_message_holds_every_template_and_every_flow() {
        let all = ElementChoice { list: elements().map(|element| element.name).collect(), ..ElementChoice::FULL };
        let cases = [(Format::Ipfix, 16, true, 1), (Format::Ipfix, 16, false, 2), (Format::Netflow9, 20, false, 2)];
        for ((format, header, reverse, records), choice) in
            cases.into_iter().flat_map(|case| [(case, ElementChoice::FULL), (case, all.clone())])
        {
            let layout = RecordEncoder::new(format, &choice, true);
            // The longest are those of TCP over IPv6 in tunnels over IPv6: all elements that apply
            // to such a flow.
            let other = |element: &Element| {
                element.data_type == DataType::Ipv4Address
                    || element.data_type == DataType::MacAddress
                    || element.name.starts_with("icmp")
                    || ["udpResponseTime", "ethernetType"].contains(&element.name)
                    || (element.name == "tcpControlBits" && element.octets == 1)
            };
            let positions = || {
                let chosen = layout.positions.iter().enumerate().filter(|(at, _)| layout.chosen.has(*at));
                // No application has all texts.
                let chosen = chosen.filter(|(_, position)| !position.element.is_variable());
                chosen.filter(|(_, position)| (reverse || !position.reverse) && !other(position.element))
            };
            let record: usize = positions().map(|(_, position)| usize::from(position.element.octets)).sum();
            let mut elements = ElementSet::default();
            positions().for_each(|(at, _)| elements.add(at));
            let template = layout.template(0, elements).len();
            // With a list of all elements, flows with longer records or templates are written in
            // another way: see `TemplateSink::encode`.
            let is_list = !choice.list.is_empty();
            assert!(is_list || header + records * (record + 4 + 3) <= MIN_MESSAGE_BYTES, "records of {record}");
            assert!(is_list && reverse || header + 4 + template + 3 <= MIN_MESSAGE_BYTES, "template of {template}");
            assert!(layout.type_information().all(|record| header + 4 + record.len() + 3 <= MIN_MESSAGE_BYTES));
        }
    }

    #[test]
    fn elements_that_the_compiler_knows_are_encoded_as_those_that_it_does_not() {
        let direction = Direction {
            packets: 4,
            bytes: 1200,
            tcp_flags: Packet::SYN | Packet::ACK,
            icmp: [8, 1],
            vlan: 7,
            inner_vlan: NO_VLAN,
            ttl_min: 60,
            ttl_max: 64,
            ..Direction::default()
        };
        let one_way = |network, protocol| FlowRecord {
            network,
            protocol,
            source: [1; 16],
            destination: [2; 16],
            source_port: 1000,
            destination_port: 443,
            interface: 3,
            forward: direction,
            ..FlowRecord::default()
        };
        let anomalies = TcpReport { zero_windows: 1, unique_bytes: 10, ..TcpReport::EMPTY };
        let sampling = Some([1, 10]);
        let networks = [Network::Ipv4, Network::Ipv6, Network::Layer2];
        let kinds = networks.into_iter().flat_map(|network| [1, 6, 17, 58, 255].map(|protocol| (network, protocol)));
        let flows: Vec<FlowRecord> = kinds
            .map(|(network, protocol)| one_way(network, protocol))
            .flat_map(|flow| [FlowRecord { reverse: direction, ..flow.clone() }, flow])
            .flat_map(|flow| [FlowRecord { tcp: Some([TcpReport::EMPTY; 2]), sampling, ..flow.clone() }, flow])
            .flat_map(|flow| [FlowRecord { tcp: flow.tcp.map(|_| [anomalies; 2]), ..flow.clone() }, flow])
            .collect();
        let cases = [
            (Format::Ipfix, ElementChoice::FULL, FULL_IPFIX),
            (Format::Ipfix, ElementChoice::BASIC, BASIC_IPFIX),
            (Format::Netflow9, ElementChoice::BASIC, BASIC_NETFLOW9),
        ];
        for ((format, choice, known), applications) in cases.iter().flat_map(|case| [(case, false), (case, true)]) {
            let encoder = RecordEncoder::new(*format, choice, applications);
            assert_eq!(encoder.known, *known);
            for flow in &flows {
                let [mut octets, mut expected] = [Vec::new(), Vec::new()];
                let set = encoder.encode(flow, true, false, CONTEXT, &mut octets);
                let expected_set = encoder.encode_known::<UNKNOWN>(flow, true, false, CONTEXT, &mut expected);
                assert!(set == expected_set && octets == expected, "{known}, {flow:?}");
            }
        }
    }

    #[test]
    fn a_bidirectional_tcp_flow_without_anomalies_has_at_most_60_fields() {
        let layout = RecordEncoder::new(Format::Ipfix, &ElementChoice::FULL, true);
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
            layout.encode(&flow, false, false, CONTEXT, &mut Vec::new()).count()
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
            // A second VLAN tag, or a connection in more than one record, adds elements.
            assert_eq!(fields(network, 8, report), 62);
            assert_eq!(fields(network, NO_VLAN, TcpReport { size_by_sequence_bytes: Some(2000), ..report }), 62);
            assert!(fields(network, NO_VLAN, TcpReport { zero_windows: 1, ..report }) > 100);
            // The mean response time of each side.
            let responses = ResponseTimes { count: 2, first_ns: 5, max_ns: 5, sum_ns: 8 };
            assert_eq!(fields(network, NO_VLAN, TcpReport { responses, ..report }), 62);
        }
    }
}
