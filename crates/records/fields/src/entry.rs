//! The form of an entry of the catalogue, and the view of a record that entries read values from.

use crate::column::Column;
use crate::element::Element;
use crate::restore::{RestoredSide, StoredValue};
use crate::value::FieldValue;
use weir_flow::{Direction, FlowRecord};
use weir_tcp::TcpReport;

/// A flow record of which one direction is written.
#[derive(Clone, Copy, Debug)]
pub struct DirectionView<'a> {
    /// The record.
    pub flow: &'a FlowRecord,
    /// The direction that is written.
    pub direction: &'a Direction,
    /// TCP analysis of that direction.
    pub tcp: Option<&'a TcpReport>,
    /// The record is the reverse direction of a bidirectional flow: its source is the responder.
    pub from_responder: bool,
}

impl<'a> DirectionView<'a> {
    /// Selects the forward or the reverse direction of a flow record.
    #[inline(always)]
    pub fn new(flow: &'a FlowRecord, reverse: bool, from_responder: bool) -> Self {
        let direction = if reverse { &flow.reverse } else { &flow.forward };
        let tcp = flow.tcp.as_ref().map(|reports| &reports[usize::from(reverse)]).filter(|_| direction.packets > 0);
        Self { flow, direction, tcp, from_responder }
    }

    /// The same for a column. The TCP counters of a direction without packets are 0.
    pub(crate) fn of_column(flow: &'a FlowRecord, reverse: bool) -> Self {
        let record = Self::new(flow, reverse, false);
        let none = flow.tcp.is_some().then_some(&TcpReport::EMPTY);
        Self { tcp: record.tcp.or(none), ..record }
    }
}

/// An entry of the catalogue: a field of flow records.
#[derive(Debug)]
pub struct Entry {
    /// The name without the prefix of a direction.
    pub name: &'static str,
    /// The column of the whole flow, or those of the forward and the reverse direction.
    pub columns: &'static [Column],
    /// Its encodings in IPFIX and NetFlow v9.
    pub elements: &'static [Element],
}

impl Entry {
    /// Whether each direction has the field.
    pub const fn is_of_direction(&self) -> bool {
        self.columns.len() == 2
    }
}

/// The number of elements in a list of fields, or in the reverse direction.
pub(crate) const fn count_elements(list: &[Entry], reverse: bool) -> usize {
    let (mut elements, mut at) = (0, 0);
    while at < list.len() {
        elements += if !reverse || list[at].is_of_direction() { list[at].elements.len() } else { 0 };
        at += 1;
    }
    elements
}

/// A field as a type: its elements are constants where it is visited.
pub trait StaticField {
    /// Its encodings in IPFIX and NetFlow v9.
    const ELEMENTS: &'static [Element];
}

/// Receives the fields of a record one after the other.
pub trait Visitor {
    /// Receives the next field, the number of elements of the fields before it, and a function that
    /// reads its value.
    fn visit<'a, F: StaticField>(&mut self, elements_before: usize, value: impl FnOnce() -> FieldValue<'a>);
}

/// Calls a function of an entry, whose argument has the type that it needs.
#[inline(always)]
pub(crate) fn read<'a>(
    record: &DirectionView<'a>,
    field: impl FnOnce(&DirectionView<'a>) -> FieldValue<'a>,
) -> FieldValue<'a> {
    field(record)
}

/// The same for a function that sets the value of a stored record.
pub(crate) fn restore(
    record: &mut RestoredSide<'_>,
    value: StoredValue<'_>,
    field: impl FnOnce(&mut RestoredSide<'_>, StoredValue<'_>) -> Option<()>,
) -> Option<()> {
    field(record, value)
}

/// Defines the entries of a file and a function that visits them. A field belongs to the `flow`, or
/// to `each` direction. `or N`: where the field does not apply, its column has the number N. The
/// entries have the common properties, except for those behind the value. `=>`: sets the value of a stored record. The function visits all
/// fields, or those of the reverse direction, without a loop, so that the properties of each field
/// are constants.
macro_rules! fields {
    (@is_of_direction flow) => { false };
    (@is_of_direction each) => { true };
    (@restore $reverse:literal) => { None };
    (@restore $reverse:literal $restore:expr) => {
        Some(|flow, value| $crate::entry::restore(&mut $crate::restore::RestoredSide::new(flow, $reverse), value, $restore))
    };
    (@none) => { None };
    (@none $none:literal) => { Some($none) };
    (@column $prefix:literal $name:literal, $kind:ident, $unit:literal, $description:literal, $none:expr, $properties:expr, $reverse:literal, $read:expr, $restore:expr) => {
        $crate::column::Column {
            name: concat!($prefix, $name),
            json_key: concat!(",\"", $prefix, $name, "\":"),
            kind: $crate::column::ColumnKind::$kind,
            unit: $unit,
            description: $description,
            properties: $properties,
            none: $none,
            read: |flow| $crate::entry::read(&$crate::entry::DirectionView::of_column(flow, $reverse), $read),
            restore: $restore,
        }
    };
    (@columns flow $name:literal, $kind:ident, $unit:literal, $description:literal, $none:expr, $properties:expr, $read:expr, $($restore:expr)?) => {
        &[$crate::entry::fields!(@column "" $name, $kind, $unit, $description, $none, $properties, false, $read, $crate::entry::fields!(@restore false $($restore)?))]
    };
    (@columns each $name:literal, $kind:ident, $unit:literal, $description:literal, $none:expr, $properties:expr, $read:expr, $($restore:expr)?) => {
        &[
            $crate::entry::fields!(@column "fwd_" $name, $kind, $unit, $description, $none, $properties, false, $read, $crate::entry::fields!(@restore false $($restore)?)),
            $crate::entry::fields!(@column "rev_" $name, $kind, $unit, $description, $none, $properties.of_reverse(), true, $read, $crate::entry::fields!(@restore true $($restore)?)),
        ]
    };
    ($common:expr;
        $($of:ident $name:literal, $kind:ident $(or $none:literal)?, $unit:literal, $description:literal,
            [$($element:expr),* $(,)?], $read:expr $(=> $restore:expr)? $(, $property:ident: $value:expr)*;)+) => {
        /// The entries in the order of the columns.
        pub(crate) const ENTRIES: &[$crate::entry::Entry] = &[$($crate::entry::Entry {
            name: $name,
            columns: $crate::entry::fields!(@columns $of $name, $kind, $unit, $description, $crate::entry::fields!(@none $($none)?),
                $crate::column::Properties { $($property: $value,)* ..$common }, $read, $($restore)?),
            elements: &[$($element),*],
        },)+];

        /// Visits the fields: those before have this number of elements. Returns it with these fields.
        #[inline(always)]
        pub(crate) fn visit<const REVERSE: bool>(
            record: &$crate::entry::DirectionView<'_>,
            mut elements_before: usize,
            visitor: &mut impl $crate::entry::Visitor,
        ) -> usize {
            $(
                if !REVERSE || $crate::entry::fields!(@is_of_direction $of) {
                    struct This;
                    impl $crate::entry::StaticField for This {
                        const ELEMENTS: &'static [Element] = &[$($element),*];
                    }
                    visitor.visit::<This>(elements_before, || $crate::entry::read(record, $read));
                    elements_before += <This as $crate::entry::StaticField>::ELEMENTS.len();
                }
            )+
            elements_before
        }
    };
}
pub(crate) use fields;
