//! The catalogue of fields: name, sentence, how the value is read from a flow record, information
//! elements, and everything else that a part of Weir has to know of a field.
//!
//! The entries stand in a file for each origin, in the order of the columns: `record.rs`,
//! `enrichment.rs`, `headers.rs`, `tcp.rs` and `inspection.rs`. Only the catalogue decides whether a
//! field applies to a flow. If not, its value is [`FieldValue::NotApplicable`]: null in JSON, empty
//! in CSV, and not in the template. A count that does not apply is 0 in JSON and CSV, so that its
//! column is one of integers.

mod enrichment;
mod headers;
mod inspection;
mod reading;
mod record;
mod tcp;
mod template;

use crate::column::Column;
use crate::element::Element;
use crate::entry::{DirectionView, Entry, Visitor, count_elements};

pub use reading::type_and_code;

/// All fields in the order of the columns.
static FIELDS: [&[Entry]; 5] =
    [record::ENTRIES, enrichment::ENTRIES, headers::ENTRIES, tcp::ENTRIES, inspection::ENTRIES];

/// Fields of templates only: the fields above in other encodings that collectors expect.
static TEMPLATE_FIELDS: &[Entry] = template::ENTRIES;

/// All fields in the order of the columns.
pub fn fields() -> impl Iterator<Item = &'static Entry> {
    FIELDS.into_iter().flatten()
}

/// Fields of templates only, in other encodings.
pub fn template_fields() -> impl Iterator<Item = &'static Entry> {
    TEMPLATE_FIELDS.iter()
}

/// The elements of all fields.
pub fn elements() -> impl Iterator<Item = &'static Element> {
    fields().chain(template_fields()).flat_map(|field| field.elements)
}

/// The elements of a column: those of its field, which are the same for both directions. A total
/// and a text have those of the field with the parts or the number, and what is computed those of its
/// sources.
pub fn elements_of(column: &Column) -> impl Iterator<Item = &'static Element> {
    let name = column.name;
    let name = name.strip_prefix("fwd_").or_else(|| name.strip_prefix("rev_")).unwrap_or(name);
    let sources = column.properties.computed_from;
    let is_of = move |field: &&Entry| {
        field.name == name || field.name.strip_suffix("_number") == Some(name) || sources.contains(&field.name)
    };
    fields().filter(is_of).flat_map(|field| field.elements)
}

/// The elements that records with these fields only can have.
pub fn elements_of_records(known: &[&'static Column]) -> Vec<&'static Element> {
    let is_known = |name: &str| {
        let of_direction = |prefix| known.iter().any(|column| column.name.strip_prefix(prefix) == Some(name));
        ["", "fwd_", "rev_"].into_iter().any(of_direction)
    };
    let in_other_encodings = template_fields().filter(|field| field.name.split(", ").all(is_known));
    known.iter().copied().flat_map(elements_of).chain(in_other_encodings.flat_map(|field| field.elements)).collect()
}

/// The number of elements of all fields, or of those of the reverse direction. Those of templates
/// only follow.
pub const fn field_elements(reverse: bool) -> usize {
    count_elements(record::ENTRIES, reverse)
        + count_elements(enrichment::ENTRIES, reverse)
        + count_elements(headers::ENTRIES, reverse)
        + count_elements(tcp::ENTRIES, reverse)
        + count_elements(inspection::ENTRIES, reverse)
}

/// The same for the fields of templates only.
pub const fn template_field_elements(reverse: bool) -> usize {
    count_elements(template::ENTRIES, reverse)
}

/// Visits all fields, or those of the reverse direction.
#[inline(always)]
pub fn visit_fields<const REVERSE: bool>(record: &DirectionView<'_>, visitor: &mut impl Visitor) {
    let before = record::visit::<REVERSE>(record, 0, visitor);
    let before = enrichment::visit::<REVERSE>(record, before, visitor);
    let before = headers::visit::<REVERSE>(record, before, visitor);
    let before = tcp::visit::<REVERSE>(record, before, visitor);
    let before = inspection::visit::<REVERSE>(record, before, visitor);
    debug_assert_eq!(before, field_elements(REVERSE));
}

/// The same for the fields of templates only.
#[inline(always)]
pub fn visit_template_fields<const REVERSE: bool>(record: &DirectionView<'_>, visitor: &mut impl Visitor) {
    template::visit::<REVERSE>(record, 0, visitor);
}
