//! The form of Rust sources: functions have at most 70 lines, and a module with children is a `mod.rs`.
//!
//! Sources are formatted by rustfmt, so a function ends at the first `}` with the indentation of its `fn`.

use super::documents::files;
use std::path::Path;

/// Longest function, in lines with its signature.
const FUNCTION_LINES: usize = 70;

/// Functions that were longer when this check was made, with their length. Shorten them; add none.
#[rustfmt::skip]
const LONGER: &[(&str, &str, usize)] = &[
    ("crates/records/export/src/tests/expected.rs", "record", 80),
    ("crates/records/export/src/tests/json_csv.rs", "expected", 108),
    ("crates/input/packet/src/tests/strategies.rs", "framed", 72),
    ("crates/records/query/src/tests/expressions.rs", "errors_name_the_problem", 85),
    ("crates/records/query/src/tests/expressions.rs", "fields_are_compared_by_name_with_units_ranges_and_sets", 75),
    ("crates/dev/testkit/tests/all/truth.rs", "compared", 76),
    ("crates/dev/testkit/tests/all/tshark.rs", "enter", 97),
    ("crates/dev/trafficgen/src/tests/lossy.rs", "classify", 88),
    ("crates/weir/src/ledger_text.rs", "counters", 85),
    ("crates/weir/src/summary.rs", "text", 77),
    ("crates/weir/tests/all/actions/overrides.rs", "an_override_that_cannot_be_is_refused_in_plain_words", 92),
    ("crates/weir/tests/all/actions/rules.rs", "each_flow_is_handed_on_by_its_application_from_its_first_packet_on_and_in_order", 80),
    ("crates/weir/tests/all/cli/help.rs", "usage_errors_have_exit_code_1_and_a_reason", 71),
    ("crates/weir/tests/all/read/cookbook.rs", "packets", 86),
    ("crates/weir/tests/all/read/cookbook.rs", "the_answers_are_those_of_tshark", 195),
    ("crates/weir/tests/all/read/enrichment.rs", "records_have_places_and_tags", 81),
    ("crates/weir/tests/all/tcp/report.rs", "each_part_of_the_time_of_a_connection_is_exact", 113),
    ("fuzz/bodies/src/meter.rs", "packet", 77),
];

/// All violations below `crates`, `benches`, `fuzz` and `xtask`.
pub fn violations(root: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in ["crates", "benches", "fuzz", "xtask"].iter().flat_map(|folder| files(&root.join(folder), "rs")) {
        let name = source.strip_prefix(root).expect("the file is below the root").display();
        let text = std::fs::read_to_string(&source).expect("a source can be read");
        let file = name.to_string();
        for (line, function, length) in long_functions(&text) {
            if !LONGER.iter().any(|&(of, name, most)| of == file && name == function && length <= most) {
                wrong.push(format!("{name}:{line}: fn {function} has {length} lines, {FUNCTION_LINES} are allowed"));
            }
        }
        let folder = source.with_extension("");
        if folder.is_dir() && !files(&folder, "rs").is_empty() {
            wrong.push(format!("{name}: a module with children is the mod.rs of its folder"));
        }
    }
    wrong
}

/// Functions that are too long: the line at which each begins, its name and its lines.
fn long_functions(text: &str) -> Vec<(usize, &str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indentation = &line[..line.len() - line.trim_start().len()];
        let end = lines[index..].iter().position(|line| line.strip_prefix(indentation) == Some("}"));
        let length = end.unwrap_or_default() + 1;
        if length > FUNCTION_LINES {
            found.push((index + 1, name, length));
        }
    }
    found
}

/// The name of the function that begins in a line and has a body on further lines.
fn function_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().peekable();
    while words
        .next_if(|word| word.starts_with("pub") || ["const", "unsafe", "extern", "\"C\""].contains(word))
        .is_some()
    {}
    (words.next()? == "fn" && !line.ends_with('}') && !line.ends_with(';')).then_some(())?;
    words.next()?.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_functions_are_found() {
        let body = |lines| "    let a = 1;\n".repeat(lines);
        let text = format!("fn short() {{\n{}}}\n\npub(crate) unsafe fn long<T>(\n) {{\n{}}}\n", body(68), body(68));
        assert_eq!(long_functions(&text), [(72, "long", 71)]);
        let method = format!("impl A {{\n    const fn long(&self) {{\n{}    }}\n}}\n", body(69));
        assert_eq!(long_functions(&method).len(), 1);
        assert_eq!(long_functions("trait A {\n    fn a();\n    fn b() {}\n}\n"), []);
    }
}
