//! What the output of `weir fields` and the tables of docs/fields.md say about a field.

use crate::column::Column;
use crate::selection::{FIELD_PROFILES, FieldProfile};

/// The names of the profiles.
pub fn profile_names() -> impl Iterator<Item = &'static str> {
    FIELD_PROFILES.iter().map(|(name, _)| *name)
}

/// The smallest profiles that have a column. All columns are in `all`.
pub fn profiles(column: &Column) -> String {
    let has = |profile: &&FieldProfile| profile.1(column) && profile.0 != "all";
    let names: Vec<&str> = FIELD_PROFILES.iter().filter(has).map(|(name, _)| *name).collect();
    if names.is_empty() { "all".into() } else { names.join(",") }
}

#[cfg(test)]
mod tests {
    use super::profiles;
    use crate::catalogue::{elements, fields, template_fields};
    use crate::element::{Element, Format, NTOP_ENTERPRISE, WEIR_ENTERPRISE};
    use crate::entry::Entry;
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::PathBuf;

    fn root() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..")
    }

    const HEADING: &str =
        "| Field | Type | Unit | Profiles | Meaning | IPFIX | NetFlow v9 |\n|---|---|---|---|---|---|---|";

    /// Marks the elements that basic templates have, and those that full ones do not have.
    fn mark(element: &Element) -> &'static str {
        match (element.is_basic(), element.is_full()) {
            (true, true) => "†",
            (true, false) => "†‡",
            (false, true) => "",
            (false, false) => "‡",
        }
    }

    /// A table with a row for each field.
    fn table(fields: impl Iterator<Item = &'static Entry>, with_prefix: bool) -> String {
        let names = |field: &Entry| match with_prefix {
            true => field.columns.iter().map(|column| column.name).collect(),
            false => field.name.split(", ").collect::<Vec<_>>(),
        };
        let rows = fields.map(|field| row(field, &names(field)));
        std::iter::once(HEADING.into()).chain(rows).collect::<Vec<String>>().join("\n")
    }

    fn row(field: &Entry, names: &[&str]) -> String {
        let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let list = |format, text: fn(&Element) -> String| {
            let elements = field.elements.iter().filter(|element| element.is_in(format)).map(text);
            let mut elements: Vec<String> = elements.collect();
            // One element may occur with several lengths.
            elements.dedup();
            elements.join(", ")
        };
        let ipfix = list(Format::Ipfix, |element| {
            let number = match (element.weir, element.ntop_reverse) {
                (None, None) => element.number.to_string(),
                // Elements of the whole flow have no other number for the reverse direction.
                (None, Some(reverse)) if reverse != element.number => {
                    format!("{NTOP_ENTERPRISE}/{}, reverse {reverse}", element.number)
                }
                (None, Some(_)) => format!("{NTOP_ENTERPRISE}/{}", element.number),
                (Some(_), _) => format!("{WEIR_ENTERPRISE}/{}", element.number),
            };
            format!(
                "{} ({number}){}{}",
                element.name,
                if element.with_anomalies_only { "\\*" } else { "" },
                mark(element)
            )
        });
        let netflow9 = list(Format::Netflow9, |element| format!("{}{}", element.number, mark(element)));
        let column = &field.columns[0];
        let profiles = profiles(column);
        let cells = [&names, column.kind.name(), column.unit, &profiles, column.description, &ipfix, &netflow9];
        format!("| {} |", cells.join(" | "))
    }

    #[test]
    fn the_tables_of_docs_fields_md_are_up_to_date() {
        let path = root().join("docs/fields.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let mut tables = [table(fields(), true), table(template_fields(), false)].into_iter();
        let paragraphs = page.split("\n\n").map(|paragraph| match paragraph.starts_with(HEADING) {
            true => tables.next().expect("the page has two tables of fields"),
            false => paragraph.to_owned(),
        });
        let expected = paragraphs.collect::<Vec<String>>().join("\n\n");
        assert_eq!(tables.next(), None, "the page has two tables of fields");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &expected).unwrap();
        }
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page == expected, "docs/fields.md is stale: BLESS=1 cargo test -p weir-fields page");
    }

    #[test]
    fn docs_store_md_has_the_fields_that_are_not_read_back() {
        let all: Vec<_> = crate::columns().iter().collect();
        let restored = crate::Restored::of(&all, false).unwrap();
        let is_missing = |field: &&Entry| !restored.known().contains(&&field.columns[0]);
        let names: Vec<_> = crate::fields().filter(is_missing).map(|field| format!("`{}`", field.name)).collect();
        assert!(names.len() < 60, "{names:?}");
        let page = std::fs::read_to_string(root().join("docs/store.md")).unwrap().replace('\n', " ");
        let list = format!("even if a file has them: {}.", names.join(", "));
        assert!(page.replace("  ", " ").contains(&list), "docs/store.md: {list}");
    }

    #[test]
    fn docs_anonymise_md_has_what_becomes_of_each_field() {
        let mut fields_of: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for entry in fields() {
            if let Some(rule) = entry.columns[0].properties.anonymisation {
                fields_of.entry(rule.name()).or_default().push(format!("`{}`", entry.name));
            }
        }
        let page = std::fs::read_to_string(root().join("docs/anonymise.md")).unwrap();
        for (rule, names) in fields_of {
            let row = format!("| {rule} | {} |", names.join(", "));
            assert!(page.contains(&row), "docs/anonymise.md: {row}");
        }
    }

    #[test]
    fn names_in_other_programs_are_those_of_fields() {
        let page = std::fs::read_to_string(root().join("docs/fields.md")).unwrap();
        let table = page.split("\n\n").find(|paragraph| paragraph.starts_with("| Field | Zeek |")).unwrap();
        for row in table.lines().skip(2) {
            let name = row.split('`').nth(1).unwrap();
            assert!(crate::selection::column(name).is_ok(), "{row}");
        }
    }

    #[test]
    fn iana_elements_match_the_registry() {
        let registry = std::fs::read_to_string(root().join("data/iana/ipfix-elements.csv")).unwrap();
        let registry: BTreeMap<u16, Vec<&str>> = registry
            .lines()
            .skip(1)
            .map(|line| line.split(',').collect::<Vec<_>>())
            .map(|columns| (columns[0].parse().unwrap(), columns))
            .collect();
        let mut weir = BTreeSet::new();
        for element in elements() {
            if element.weir.is_some() {
                assert!(weir.insert(element.number), "number {} is unique", element.number);
                assert!(element.number < crate::element::WEIR_REVERSE_BIT);
                continue;
            }
            if element.ntop_reverse.is_some() {
                continue;
            }
            let columns = &registry[&element.number];
            let (name, data_type, status) = (columns[1], columns[2], columns[5]);
            // The names in the registry begin with a small letter.
            let (first, rest) = data_type.split_at(1);
            let data_type = first.to_uppercase() + rest;
            assert_eq!((name, data_type), (element.name, format!("{:?}", element.data_type)));
            // NetFlow v9 uses some elements that IPFIX has replaced, and so do readers of basic
            // templates.
            assert!(status == "current" || element.is_basic() || !element.is_in(Format::Ipfix), "{name} is {status}");
        }
    }
}
