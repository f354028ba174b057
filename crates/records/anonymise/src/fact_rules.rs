//! What becomes of each extracted field, by the catalogue of fields. One that no field is read from is left out.

use weir_dpi::Fact;
use weir_fields::{Anonymisation, ColumnKind, Entry, fields};

/// What becomes of an extracted field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactRule {
    /// It is left out.
    LeaveOut,
    /// It stays.
    Keep,
    /// It is a name, unless it is one of these words.
    Name {
        /// Words that stay.
        words: &'static [&'static str],
        /// It is a list, separated by commas.
        is_list: bool,
        /// The case of letters means nothing.
        is_caseless: bool,
        /// It is a host, perhaps with a port.
        is_host: bool,
    },
}

/// The extracted fields of which something stays, with their rules.
pub fn rules_of_catalogue() -> Vec<(Fact, FactRule)> {
    let of_entry = |entry: &Entry| Some((entry.columns[0].properties.fact?, rule(entry)));
    let mut rules: Vec<_> = fields().filter_map(of_entry).filter(|(_, rule)| *rule != FactRule::LeaveOut).collect();
    // Several fields may be read from one.
    rules.sort_by_key(|(fact, _)| *fact);
    rules.dedup_by_key(|(fact, _)| *fact);
    rules
}

/// The rule of a field.
pub(crate) fn rule(entry: &Entry) -> FactRule {
    let column = &entry.columns[0];
    let name = |words| FactRule::Name {
        words,
        is_list: column.properties.is_list,
        is_caseless: matches!(column.kind, ColumnKind::HostName | ColumnKind::CaselessText),
        is_host: column.kind == ColumnKind::HostName,
    };
    match column.properties.anonymisation {
        Some(Anonymisation::Keep) => FactRule::Keep,
        // A number.
        None if !column.kind.can_identify() => FactRule::Keep,
        Some(Anonymisation::Name) => name(&[]),
        Some(Anonymisation::Words(words)) => name(words),
        _ => FactRule::LeaveOut,
    }
}
