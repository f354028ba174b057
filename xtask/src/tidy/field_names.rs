//! The name of a field stands in the catalogue (`crates/records/fields`), and in no other product code: what the
//! rest needs to know of a field, it takes from its entry.
//!
//! The names are those of docs/fields.md, which a test of the catalogue keeps up to date. Those of a single word, as
//! `packets`, are words for other things, too, and are not searched.

use super::documents::files;
use std::collections::BTreeSet;
use std::path::Path;

/// Files that name fields, with the reason.
#[rustfmt::skip]
const ALLOWED: [(&str, &str); 20] = [
    ("crates/actions/recorder/src/query.rs", "what the index knows of a flow without its record"),
    ("crates/ledger/src/reasons.rs", "a reason to refuse a packet, which has the name of a field"),
    ("crates/records/clickhouse/src/column_type.rs", "fields that every row has, and those of few values"),
    ("crates/records/clickhouse/src/schema.rs", "the order of rows, and an index"),
    ("crates/records/clickhouse/src/views.rs", "sums of fields"),
    ("crates/records/export/src/protobuf.rs", "names in goflow2's message, of which some are those of fields"),
    ("crates/records/query/src/foreign_name.rs", "what names of Wireshark are here"),
    ("crates/records/query/src/order.rs", "numbers of a view, which are sums of fields"),
    ("crates/records/query/src/parser.rs", "the words ip, ip6 and layer2 stand for tests of a field"),
    ("crates/records/sql/src/computed.rs", "SQL of fields that follow from others"),
    ("crates/run/control/src/flows.rs", "a parameter of requests"),
    ("crates/run/control/src/overrides.rs", "JSON keys of overrides"),
    ("crates/show/top/src/columns.rs", "what of an answer is a column, and which flows failed"),
    ("crates/show/top/src/names.rs", "which values of an answer have names"),
    ("crates/show/top/src/scan.rs", "what of an answer is a scan, and which flows it has"),
    ("crates/show/tcp-report/src/group_table.rs", "numbers of groups, one of which has the name of a field"),
    ("crates/show/tcp-report/src/known_fields.rs", "fields that connections have without being printed"),
    ("crates/weir/src/eve.rs", "JSON keys of Suricata and of overrides"),
    ("crates/weir/src/names.rs", "the stored name of a destination, and its address"),
    ("crates/weir/src/table/render.rs", "the table has columns of its own, which sorting by these fields marks"),
];

/// All violations below `crates`.
pub fn violations(root: &Path) -> Vec<String> {
    let page = std::fs::read_to_string(root.join("docs/fields.md")).expect("docs/fields.md can be read");
    let names = names(&page);
    let mut wrong = Vec::new();
    let mut unused: BTreeSet<&str> = ALLOWED.iter().map(|(file, _)| *file).collect();
    if names.is_empty() {
        wrong.push("docs/fields.md: the table of fields is missing".into());
    }
    for source in files(&root.join("crates"), "rs") {
        let file = source.strip_prefix(root).expect("the file is below the root").display().to_string();
        if !is_product(&file) {
            continue;
        }
        let text = std::fs::read_to_string(&source).expect("a source can be read");
        for (line, name) in literals(&text).filter(|(_, literal)| names.contains(literal)) {
            let is_allowed = ALLOWED.iter().any(|(allowed, _)| *allowed == file);
            unused.remove(file.as_str());
            if !is_allowed {
                let place = "belongs to the entry in crates/records/fields/src/catalogue";
                wrong.push(format!("{file}:{line}: what depends on the field {name:?} {place}"));
            }
        }
    }
    let unused = unused.into_iter();
    wrong.extend(unused.map(|file| format!("xtask/src/tidy/field_names.rs: {file} names no field any more")));
    wrong
}

fn is_product(file: &str) -> bool {
    let is_test = file.contains("/tests/") || file.ends_with("/tests.rs");
    file.contains("/src/")
        && !is_test
        && !["crates/dev/", "crates/records/fields/"].iter().any(|of| file.starts_with(of))
}

/// The names of columns that have several words.
fn names(page: &str) -> BTreeSet<&str> {
    let table = page.split("\n\n").find(|paragraph| paragraph.starts_with("| Field | Type |")).unwrap_or_default();
    let cells = table.lines().filter_map(|row| row.strip_prefix("| `")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.trim_end_matches('`').split("`, `"));
    names.filter(|name| name.contains('_')).collect()
}

/// The string literals of a source without its tests and comments, each with its line.
fn literals(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    lines.flat_map(|(index, line)| line.split('"').skip(1).step_by(2).map(move |literal| (index + 1, literal)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_with_the_name_of_a_field_is_found() {
        let page = "# Fields\n\n| Field | Type | Unit |\n|---|---|---|\n| `packets` | integer | |\n| `fwd_tos`, `rev_tos` | integer | |\n\n| Field | Zeek |\n|---|---|\n| `src_ip` | x |";
        assert_eq!(names(page), ["fwd_tos", "rev_tos"].into());
        let text =
            "const A: &str = \"src_ip\";\n// \"src_ip\"\nfn f() { g(\"a\", \"b\") }\n#[cfg(test)]\nmod tests {\n\"c\"";
        assert_eq!(literals(text).collect::<Vec<_>>(), [(1, "src_ip"), (3, "a"), (3, "b")]);
        assert!(is_product("crates/weir/src/read.rs") && !is_product("crates/weir/tests/all/main.rs"));
        assert!(!is_product("crates/records/query/src/tests/views.rs") && !is_product("crates/dev/bench/src/lib.rs"));
    }
}
