//! What the fields of a template say about flows, and flow records of its data records.
//!
//! Input: the fields of a template, and the values of a data record. Output: a flow record. Invariant: a record has
//! addresses (or is of layer 2), a protocol, times, packets and octets, or there is none.

use crate::conversion::{Conversion, Converted, TimeUnit, number};
use crate::elements::{
    CERT_ENTERPRISE, ElementId, INITIAL_TCP_FLAGS, REVERSE_BIT, TCP_CONTROL_BITS, TIMES, Target, UDP_RESPONSE_TIME,
    UNION_TCP_FLAGS, is_time_of_record, targets, time_column,
};
use crate::field::Field;
use weir_fields::{
    Column, ColumnKind, REVERSE_ENTERPRISE, Restored, StoredValue, WEIR_ENTERPRISE, WEIR_FIRST_NUMBER, restore_omitted,
};
use weir_flow::FlowRecord;

/// What is known of a data record besides its values.
#[derive(Clone, Copy, Debug)]
pub struct SetContext {
    /// Export time, seconds since 1970 UTC.
    pub export_seconds: u32,
    /// Start of the exporter, ms since 1970 UTC, if an options record of the domain says it.
    pub boot_ms: Option<u64>,
}

/// Why a data record is no flow record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reject {
    /// The template lacks elements.
    Lacks(&'static str),
    /// The value of this field is none.
    Invalid(&'static str),
    /// The values do not fit together.
    NoFlow,
}

impl Reject {
    /// That a number of records are left out for this reason, with the place of the first.
    pub fn sentence(&self, records: u64, first: &str) -> String {
        match self {
            Self::Lacks(what) => format!("{records} records without {what} (the first {first})"),
            Self::Invalid(field) => format!("{records} records with an invalid value of {field} (the first {first})"),
            Self::NoFlow => format!("{records} records whose times or counts do not fit together (the first {first})"),
        }
    }
}

/// A field and the place of its value.
#[derive(Debug)]
pub struct Setter {
    pub column: &'static Column,
    /// The element of the catalogue for it.
    element: ElementId,
    conversion: Conversion,
    rank: u8,
    at: usize,
    /// A value whose bits are added.
    also: Option<usize>,
}

/// Most packets or octets of a direction. No flow has 2^53 octets (9 petabytes).
const MAX_COUNT: u64 = 1 << 53;
/// Largest other number: 18 years in ns.
const MAX_NUMBER: u64 = 1 << 59;
/// layer2OctetDeltaCount of both directions.
const LAYER2_OCTETS: [ElementId; 2] = [(0, 352), (REVERSE_ENTERPRISE, 352)];
const DURATION: &str = "flowDurationMilliseconds or flowDurationMicroseconds";
const NO_TIMES: &str = "the times flowStart... and flowEnd...";

/// The units of the elements of a time, the best first.
const TIME_UNITS: [TimeUnit; 6] = [
    TimeUnit::Nanoseconds,
    TimeUnit::Microseconds,
    TimeUnit::Milliseconds,
    TimeUnit::Seconds,
    TimeUnit::BeforeExport,
    TimeUnit::SysUptime,
];

#[derive(Debug)]
struct TimeField {
    at: usize,
    unit: TimeUnit,
}

/// The fields of a template.
#[derive(Debug)]
pub struct Layout {
    /// Different layouts of a file have different numbers, from 0 on.
    pub number: usize,
    /// In the order of the catalogue.
    pub setters: Vec<Setter>,
    start: Option<TimeField>,
    end: Option<TimeField>,
    /// A duration, and its unit in ns.
    duration: Option<(usize, u64)>,
    boot_ms: Option<usize>,
    /// biflowDirection.
    direction: Option<usize>,
    /// What a flow record needs, and the template does not have.
    lacks: Option<&'static str>,
    /// Records have both directions.
    pub has_reverse: bool,
    /// The template has elements of Weir.
    pub has_weir_elements: bool,
    /// The template has all elements that each full record of Weir has.
    pub has_full_elements: bool,
    /// Records have the octets of the frames of a direction.
    has_l2_bytes: [bool; 2],
    /// tcpPayloadOctets of the directions with TCP analysis that omit what follows from other fields.
    omits: [Option<usize>; 2],
}

impl Layout {
    /// The layout of these fields.
    pub fn new(layout_number: usize, fields: &[Field]) -> Self {
        let place = |enterprise: u32, number: u16| {
            fields.iter().position(|field| field.enterprise == enterprise && field.number == number)
        };
        let iana = |number: u16| place(0, number);
        let mut setters = setters(fields);
        if (iana(8).is_some() || iana(12).is_some()) && (iana(27).is_some() || iana(28).is_some()) {
            let addresses = setters.iter_mut().filter(|setter| setter.conversion == Conversion::AddressOrZero);
            addresses.for_each(|setter| setter.conversion = Conversion::Address);
        }
        if is_of_layer2(&setters) {
            // Basic records have a protocol of 0 then.
            setters.retain(|setter| setter.element != (0, 4));
        }
        for setter in &mut setters {
            let is_reverse = setter.element == (REVERSE_ENTERPRISE, TCP_CONTROL_BITS);
            let reverse = if is_reverse { REVERSE_BIT } else { 0 };
            if place(CERT_ENTERPRISE, UNION_TCP_FLAGS | reverse) == Some(setter.at) {
                setter.also = place(CERT_ENTERPRISE, INITIAL_TCP_FLAGS | reverse);
            }
        }
        let time = |numbers: [u16; 6]| {
            let mut known = numbers.into_iter().zip(TIME_UNITS);
            known.find_map(|(number, unit)| Some(TimeField { at: iana(number)?, unit }))
        };
        let (start, end) = (time([156, 154, 152, 150, 158, 22]), time([157, 155, 153, 151, 159, 21]));
        let duration = [(162, 1000), (161, 1_000_000)];
        let duration = duration.into_iter().find_map(|(number, unit)| Some((iana(number)?, unit)));
        let of_weir = |number: u16| place(WEIR_ENTERPRISE, WEIR_FIRST_NUMBER + number);
        let omits = [0, REVERSE_BIT].map(|reverse| {
            // tcpPayloadOctets, and tcpDegraded of directions with anomalies.
            let payload = place(WEIR_ENTERPRISE, (WEIR_FIRST_NUMBER + 15) | reverse);
            payload.filter(|_| place(WEIR_ENTERPRISE, (WEIR_FIRST_NUMBER + 43) | reverse).is_none())
        });
        let mut layout = Self {
            number: layout_number,
            has_reverse: has(&setters, &[(REVERSE_ENTERPRISE, 2)]),
            has_l2_bytes: LAYER2_OCTETS.map(|element| has(&setters, &[element])),
            has_weir_elements: (0..1000).any(|number| of_weir(number).is_some()),
            has_full_elements: [152, 153, 156, 157, 352, 136, 10, 239, 1, 2].into_iter().all(|of| iana(of).is_some()),
            boot_ms: iana(160),
            direction: iana(239),
            setters,
            start,
            end,
            duration,
            lacks: None,
            omits,
        };
        layout.lacks = layout.what_is_missing();
        layout
    }

    /// Whether a record has a value of the field, unless it is none.
    pub fn sets(&self, column: &Column) -> bool {
        is_time_of_record(column) || self.setters.iter().any(|setter| setter.column == column)
    }

    /// Whether a field is set by one of its elements at least.
    pub fn has_fields(&self) -> bool {
        !self.setters.is_empty() || self.start.is_some() || self.end.is_some()
    }

    fn what_is_missing(&self) -> Option<&'static str> {
        let has = |elements: &[ElementId]| has(&self.setters, elements);
        let [source, destination, protocol] = [has(&[(0, 8), (0, 27)]), has(&[(0, 12), (0, 28)]), has(&[(0, 4)])];
        let is_of_layer2 = is_of_layer2(&self.setters);
        let times = [self.start.is_some(), self.end.is_some(), self.duration.is_some()];
        let needed = [
            (is_of_layer2 || source, "sourceIPv4Address or sourceIPv6Address"),
            (is_of_layer2 || destination, "destinationIPv4Address or destinationIPv6Address"),
            (is_of_layer2 || protocol, "protocolIdentifier"),
            (times.into_iter().filter(|has| *has).count() > 1, NO_TIMES),
            (has(&[(0, 2)]), "packetDeltaCount or packetTotalCount"),
            (has(&[(0, 1)]), "octetDeltaCount or octetTotalCount"),
            (!self.has_reverse || has(&[(REVERSE_ENTERPRISE, 1)]), "the octets of the reverse direction"),
        ];
        needed.into_iter().find_map(|(has, name)| (!has).then_some(name))
    }

    /// Whether the record is the direction of the responder.
    pub fn is_from_responder(&self, values: &[&[u8]]) -> bool {
        self.direction.is_some_and(|at| number(values[at]) == Some(2))
    }

    /// Makes a flow record. `is_full`: the record omits what follows from other fields, as full ones of Weir.
    /// `is_wanted`: whether a setter is used. `invalid` gets the fields whose values are none.
    ///
    /// # Errors
    /// The record is no flow.
    pub fn restore(
        &self,
        values: &[&[u8]],
        set: &SetContext,
        is_full: bool,
        is_wanted: impl Fn(usize) -> bool,
        mut invalid: impl FnMut(&'static Column),
    ) -> Result<FlowRecord, Reject> {
        if let Some(lacks) = self.lacks {
            return Err(Reject::Lacks(lacks));
        }
        let mut flow = Restored::begin();
        let (start, end) = self.times(values, set)?;
        for (number, time) in TIMES.into_iter().zip([start, end]) {
            let column = time_column(number);
            if !column.restore(&mut flow, StoredValue::Unsigned(time)) {
                return Err(Reject::Invalid(column.name));
            }
        }
        self.set_values(&mut flow, values, is_wanted, &mut invalid)?;
        for (at, prefix) in ["fwd_", "rev_"].into_iter().enumerate() {
            let direction = if at == 1 { &mut flow.reverse } else { &mut flow.forward };
            if !self.has_l2_bytes[at] {
                // Not known; the sums of the run have the octets of IP.
                direction.frame_bytes = direction.bytes;
            }
            let omits = self.omits[at].filter(|_| is_full && direction.packets > 0);
            let Some(payload) = omits.and_then(|place| number(values[place])) else { continue };
            let has = |name: &str| self.setters.iter().any(|of| of.column.name.strip_prefix(prefix) == Some(name));
            restore_omitted(&mut flow, at == 1, payload, has);
        }
        if Restored::finish(&mut flow) { Ok(flow) } else { Err(Reject::NoFlow) }
    }

    /// Sets the values of all fields but the times.
    fn set_values(
        &self,
        flow: &mut FlowRecord,
        values: &[&[u8]],
        is_wanted: impl Fn(usize) -> bool,
        invalid: &mut impl FnMut(&'static Column),
    ) -> Result<(), Reject> {
        for (at, setter) in self.setters.iter().enumerate() {
            let is_needed = is_needed(setter.element);
            // Without packets of the responder, there is no answer.
            let has_no_answer = setter.element == UDP_RESPONSE_TIME && flow.reverse.packets == 0;
            // The sums of the run have the octets of frames.
            let is_summed = LAYER2_OCTETS.contains(&setter.element);
            if has_no_answer || !(is_needed || is_summed || is_wanted(at)) {
                continue;
            }
            let bits = setter.also.and_then(|also| Some(number(values[also])? | number(values[setter.at])?));
            let converted = match bits {
                Some(bits) => Converted::Value(StoredValue::Code(bits)),
                None => setter.conversion.convert(values[setter.at]),
            };
            let is_valid = match converted {
                // The sums of both directions must fit, too.
                Converted::Value(StoredValue::Unsigned(number)) if number > setter.largest() => false,
                Converted::Value(value) => setter.column.restore(flow, value),
                Converted::None => true,
                Converted::Invalid => false,
            };
            match is_valid {
                true => {}
                false if is_needed || is_summed => return Err(Reject::Invalid(setter.column.name)),
                false => invalid(setter.column),
            }
        }
        Ok(())
    }

    /// Start and end, ns since 1970 UTC.
    fn times(&self, values: &[&[u8]], set: &SetContext) -> Result<(u64, u64), Reject> {
        let boot_ms = self.boot_ms.and_then(|at| number(values[at])).or(set.boot_ms);
        let time = |field: &Option<TimeField>, number| {
            let Some(TimeField { at, unit }) = field else { return Ok(None) };
            if *unit == TimeUnit::SysUptime && boot_ms.is_none() {
                return Err(Reject::Lacks("systemInitTimeMilliseconds"));
            }
            let time = unit.time_ns(values[*at], set.export_seconds, boot_ms);
            time.map(Some).ok_or_else(|| Reject::Invalid(time_column(number).name))
        };
        let duration = || {
            let (at, unit) = self.duration.ok_or(Reject::Lacks(DURATION))?;
            number(values[at]).and_then(|number| number.checked_mul(unit)).ok_or(Reject::Invalid(DURATION))
        };
        let (start, end) = (time(&self.start, TIMES[0])?, time(&self.end, TIMES[1])?);
        let fits = |time: Option<u64>| time.ok_or(Reject::Invalid(DURATION));
        match (start, end) {
            (Some(start), Some(end)) => Ok((start, end)),
            (Some(start), None) => Ok((start, fits(start.checked_add(duration()?))?)),
            (None, Some(end)) => Ok((fits(end.checked_sub(duration()?))?, end)),
            (None, None) => Err(Reject::Lacks(NO_TIMES)),
        }
    }
}

/// Whether the template has one of these elements, or one that stands for it.
fn has(setters: &[Setter], elements: &[ElementId]) -> bool {
    setters.iter().any(|setter| elements.contains(&setter.element))
}

/// Whether records have MAC addresses in place of addresses of IP.
fn is_of_layer2(setters: &[Setter]) -> bool {
    let of_ip = [(0, 8), (0, 12), (0, 27), (0, 28)];
    !has(setters, &of_ip) && has(setters, &[(0, 56)]) && has(setters, &[(0, 80)])
}

/// Whether a flow record needs a value of the element, if its template has it: addresses, protocol, packets and octets.
fn is_needed(element: ElementId) -> bool {
    matches!(element, (0 | REVERSE_ENTERPRISE, 1 | 2) | (0, 4 | 8 | 12 | 27 | 28))
}

impl Setter {
    /// The largest number, so that sums of some fields fit, too.
    fn largest(&self) -> u64 {
        match self.column.kind {
            _ if is_count(self.element) => MAX_COUNT,
            ColumnKind::Integer => MAX_NUMBER,
            _ => u64::MAX,
        }
    }
}

/// Whether the element has packets or octets.
fn is_count(element: ElementId) -> bool {
    matches!(element, (0 | REVERSE_ENTERPRISE, 1 | 2)) || LAYER2_OCTETS.contains(&element)
}

/// The best element of each field, in the order of the catalogue.
fn setters(fields: &[Field]) -> Vec<Setter> {
    let mut setters: Vec<Setter> = Vec::new();
    for (at, field) in fields.iter().enumerate() {
        for target in targets(field.enterprise, field.number) {
            let Target { column, element, conversion, rank } = *target;
            let setter = Setter { column, element, conversion, rank, at, also: None };
            match setters.iter_mut().find(|of| of.column == target.column) {
                // The second of equal elements is that of an outer header, as is usual in tunnels.
                Some(before) if before.rank < setter.rank => *before = setter,
                Some(_) => {}
                None => setters.push(setter),
            }
        }
    }
    let place = |setter: &Setter| weir_fields::columns().iter().position(|column| column == setter.column);
    setters.sort_by_cached_key(place);
    setters
}
