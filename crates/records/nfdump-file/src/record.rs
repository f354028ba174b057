//! The extensions of a record, and their values as information elements.
//!
//! Input: the octets of a record. Output: which elements it has, and their values in network byte order. Extensions
//! without an entry in [`VALUES`] are skipped. Invariant: the elements follow from the bits of the kind of a record.

use weir_fields::{REVERSE_ENTERPRISE, WEIR_ENTERPRISE, WEIR_FIRST_NUMBER};
use weir_flow::Approximate;
use weir_ipfix_file::{ElementId, Field};

/// Length of the header of a record, octets.
const HEADER_OCTETS: usize = 12;
/// Extensions have numbers below.
const EXTENSIONS: usize = 64;
const GENERIC_FLOW: usize = 1;
const IPV4_FLOW: usize = 2;
const IPV6_FLOW: usize = 3;
const MISCELLANEOUS: usize = 4;
const COUNTERS: usize = 5;
const VLAN: usize = 6;
/// Places of values in the extension of every flow.
const DESTINATION_PORT: usize = 42;
const PROTOCOL: usize = 44;
/// Flags of a record.
const EVENT: u8 = 1;
const SAMPLED: u8 = 2;
const INTERFACE: ElementId = (0, 10);
const VLAN_ID: ElementId = (0, 58);
const DOT1Q_VLAN_ID: ElementId = (0, 243);
const TCP_FLAGS: ElementId = (0, 6);
const MIN_TTL: ElementId = (0, 52);
const MAX_TTL: ElementId = (0, 53);
const REVERSE_PACKETS: ElementId = (REVERSE_ENTERPRISE, 2);
const REVERSE_TCP_FLAGS: ElementId = (REVERSE_ENTERPRISE, 6);
/// approximateRecord of Weir.
const APPROXIMATE: ElementId = (WEIR_ENTERPRISE, WEIR_FIRST_NUMBER + 13);
/// The bit of a kind of records that have it.
const HAS_APPROXIMATE: u64 = 1 << 63;

/// When a record has a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    /// 0 stands for none.
    NotZero,
    /// With ports.
    Ports,
    /// Of ICMP.
    Icmp,
    /// Of ICMPv6.
    IcmpIpv6,
    /// Without the older extension of VLAN.
    NoVlan,
    /// With counters of the reverse direction.
    Reverse,
}

/// A value of an extension.
struct Value {
    extension: usize,
    at: usize,
    octets: usize,
    element: ElementId,
    when: When,
}

const fn value(extension: usize, at: usize, octets: usize, element: ElementId, when: When) -> Value {
    Value { extension, at, octets, element, when }
}

/// The values that have a field.
#[rustfmt::skip]
const VALUES: [Value; 29] = [
    // Times in ms, packets, octets, ports, protocol, TCP flags, type of service.
    value(GENERIC_FLOW, 0, 8, (0, 152), When::Always),
    value(GENERIC_FLOW, 8, 8, (0, 153), When::Always),
    value(GENERIC_FLOW, 24, 8, (0, 2), When::Always),
    value(GENERIC_FLOW, 32, 8, (0, 1), When::Always),
    value(GENERIC_FLOW, 40, 2, (0, 7), When::Ports),
    value(GENERIC_FLOW, DESTINATION_PORT, 2, (0, 11), When::Ports),
    value(GENERIC_FLOW, DESTINATION_PORT, 2, (0, 32), When::Icmp),
    value(GENERIC_FLOW, DESTINATION_PORT, 2, (0, 139), When::IcmpIpv6),
    value(GENERIC_FLOW, PROTOCOL, 1, (0, 4), When::Always),
    value(GENERIC_FLOW, 45, 1, TCP_FLAGS, When::Always),
    value(GENERIC_FLOW, 47, 1, (0, 5), When::Always),
    value(IPV4_FLOW, 0, 4, (0, 8), When::Always),
    value(IPV4_FLOW, 4, 4, (0, 12), When::Always),
    value(IPV6_FLOW, 0, 16, (0, 27), When::Always),
    value(IPV6_FLOW, 16, 16, (0, 28), When::Always),
    // Input interface, biflowDirection, end reason, TCP flags of the reverse direction.
    value(MISCELLANEOUS, 0, 4, INTERFACE, When::Always),
    value(MISCELLANEOUS, 12, 1, (0, 239), When::NotZero),
    value(MISCELLANEOUS, 13, 1, (0, 136), When::NotZero),
    value(MISCELLANEOUS, 14, 1, REVERSE_TCP_FLAGS, When::Reverse),
    value(COUNTERS, 8, 8, REVERSE_PACKETS, When::Always),
    value(COUNTERS, 16, 8, (REVERSE_ENTERPRISE, 1), When::Always),
    value(VLAN, 0, 4, VLAN_ID, When::Always),
    value(14, 0, 4, (0, 70), When::NotZero),
    // Source and destination MAC address of the input.
    value(15, 0, 6, (0, 56), When::NotZero),
    value(15, 16, 6, (0, 80), When::NotZero),
    // From 1.7.2 on: VLAN identifiers, smallest and largest TTL.
    value(38, 0, 2, DOT1Q_VLAN_ID, When::NoVlan),
    value(38, 2, 2, (0, 245), When::NotZero),
    value(42, 2, 1, MIN_TTL, When::Always),
    value(42, 3, 1, MAX_TTL, When::Always),
];

/// Which elements a record has: a bit for each of [`VALUES`], and [`HAS_APPROXIMATE`].
pub type Kind = u64;

/// The extensions of a record.
pub struct Record<'a> {
    extensions: [Option<&'a [u8]>; EXTENSIONS],
    flags: u8,
    exporter: u16,
    protocol: u8,
}

impl<'a> Record<'a> {
    /// Splits a record. `None` if lengths do not fit.
    pub fn split(octets: &'a [u8]) -> Option<Self> {
        let (header, mut rest) = octets.split_first_chunk::<HEADER_OCTETS>()?;
        let [_, _, _, _, count, count_high, _, _, exporter, exporter_high, flags, _] = *header;
        let mut extensions = [None; EXTENSIONS];
        for _ in 0..u16::from_le_bytes([count, count_high]) {
            let &[kind, kind_high, length, length_high, ..] = rest else { return None };
            let (extension, after) = rest.split_at_checked(u16::from_le_bytes([length, length_high]).into())?;
            rest = after;
            if let Some(place) = extensions.get_mut(usize::from(u16::from_le_bytes([kind, kind_high]))) {
                *place = Some(extension.get(4..)?);
            }
        }
        let fits = |value: &Value| extensions[value.extension].is_none_or(|of| of.len() >= value.at + value.octets);
        let exporter = u16::from_le_bytes([exporter, exporter_high]);
        let protocol = extensions[GENERIC_FLOW].and_then(|of| of.get(PROTOCOL).copied()).unwrap_or_default();
        VALUES.iter().all(fits).then_some(Self { extensions, flags, exporter, protocol })
    }

    /// Whether it is an event of a firewall or of NAT (NSEL, NEL), and no flow.
    pub fn is_event(&self) -> bool {
        self.flags & EVENT != 0
    }

    /// The exporter that sampled the flow, by its number in the file.
    pub fn sampled_by(&self) -> Option<u16> {
        (self.flags & SAMPLED != 0).then_some(self.exporter)
    }

    /// Which elements the record has.
    pub fn kind(&self) -> Kind {
        let has = |value: &Value| self.octets(value).is_some_and(|octets| self.has(value.when, octets));
        (0..).zip(&VALUES).filter(|(_, value)| has(value)).fold(0, |kind, (bit, _)| kind | 1 << bit)
    }

    fn octets(&self, value: &Value) -> Option<&'a [u8]> {
        self.extensions[value.extension]?.get(value.at..value.at + value.octets)
    }

    fn is_set(&self, value: &Value) -> bool {
        self.octets(value).is_some_and(is_set)
    }

    fn has(&self, when: When, octets: &[u8]) -> bool {
        let has = |extension: usize| self.extensions[extension].is_some();
        let (is_icmp, is_icmp_ipv6) = (self.protocol == 1 && has(IPV4_FLOW), self.protocol == 58 && has(IPV6_FLOW));
        match when {
            When::Always => true,
            When::NotZero => is_set(octets),
            When::Ports => !is_icmp && !is_icmp_ipv6,
            When::Icmp => is_icmp,
            When::IcmpIpv6 => is_icmp_ipv6,
            When::NoVlan => !has(VLAN),
            When::Reverse => has(COUNTERS),
        }
    }

    /// Appends the values of its elements. `is_sampled`: of approximateRecord, if the kind has it.
    pub fn append_values(&self, kind: Kind, is_sampled: bool, octets: &mut Vec<u8>) {
        for value in elements(kind).filter_map(|value| self.octets(value)) {
            // An IPv6 address is two numbers, the upper one first.
            value.chunks(8).for_each(|number| octets.extend(number.iter().rev()));
        }
        if kind & HAS_APPROXIMATE != 0 {
            octets.extend((u16::from(is_sampled) * Approximate::SAMPLED).to_be_bytes());
        }
    }
}

/// The fields of the records of a kind.
pub fn fields(kind: Kind) -> Vec<Field> {
    let field = |(enterprise, number), octets| Field { enterprise, number, length: octets };
    let approximate = (kind & HAS_APPROXIMATE != 0).then_some(field(APPROXIMATE, 2));
    elements(kind).map(|value| field(value.element, value.octets as u16)).chain(approximate).collect()
}

/// The kind of records that say whether they are sampled.
pub fn with_approximate(kind: Kind) -> Kind {
    kind | HAS_APPROXIMATE
}

fn elements(kind: Kind) -> impl Iterator<Item = &'static Value> {
    (0..).zip(&VALUES).filter(move |(bit, _)| kind >> bit & 1 == 1).map(|(_, value)| value)
}

fn is_set(octets: &[u8]) -> bool {
    octets.iter().any(|octet| *octet != 0)
}

/// Values that are 0 in all records, because nfdump stores them whether or not the exporter sent them.
#[derive(Default)]
pub struct Usage {
    /// Bits of [`VALUES`]: some record could have a value, and has one.
    possible: Kind,
    used: Kind,
}

impl Usage {
    /// Adds a record.
    pub fn add(&mut self, record: &Record<'_>, kind: Kind) {
        const TCP: u8 = 6;
        for (bit, value) in (0..).zip(&VALUES).filter(|(bit, _)| kind >> bit & 1 == 1) {
            let has_answer = || elements(kind).any(|of| of.element == REVERSE_PACKETS && record.is_set(of));
            let is_possible = match value.element {
                INTERFACE | VLAN_ID | DOT1Q_VLAN_ID | MIN_TTL | MAX_TTL | REVERSE_PACKETS => true,
                TCP_FLAGS => record.protocol == TCP,
                REVERSE_TCP_FLAGS => record.protocol == TCP && has_answer(),
                _ => false,
            };
            self.possible |= u64::from(is_possible) << bit;
            self.used |= u64::from(is_possible && record.is_set(value)) << bit;
        }
    }

    /// The elements of these values.
    pub fn unused(&self) -> Vec<ElementId> {
        elements(self.possible & !self.used).map(|value| value.element).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ipfix_file::Layout;

    #[test]
    fn every_value_has_a_field() {
        for value in &VALUES {
            let Value { element: (enterprise, number), octets, .. } = *value;
            let is_direction = (enterprise, number) == (0, 239);
            let layout = Layout::new(0, &[Field { enterprise, number, length: octets as u16 }]);
            assert!(is_direction || layout.has_fields(), "{enterprise}/{number}");
        }
    }
}
