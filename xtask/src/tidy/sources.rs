//! The form of Rust sources: functions have at most 70 lines, and a module with children is a `mod.rs`.
//!
//! Sources are formatted by rustfmt, so a function ends at the first `}` with the indentation of its `fn`.

use super::documents::files;
use std::path::Path;

/// Longest function, in lines with its signature.
const FUNCTION_LINES: usize = 70;

/// All violations below `crates`, `fuzz` and `xtask`.
pub fn violations(root: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in ["crates", "fuzz", "xtask"].iter().flat_map(|folder| files(&root.join(folder), "rs")) {
        let name = source.strip_prefix(root).expect("the file is below the root").display();
        let text = std::fs::read_to_string(&source).expect("a source can be read");
        wrong.extend(long_functions(&text).into_iter().map(|(line, what)| format!("{name}:{line}: {what}")));
        let folder = source.with_extension("");
        if folder.is_dir() && !files(&folder, "rs").is_empty() {
            wrong.push(format!("{name}: a module with children is the mod.rs of its folder"));
        }
    }
    wrong
}

/// Functions that are too long, with the line at which each begins.
fn long_functions(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indentation = &line[..line.len() - line.trim_start().len()];
        let end = lines[index..].iter().position(|line| line.strip_prefix(indentation) == Some("}"));
        let length = end.unwrap_or_default() + 1;
        if length > FUNCTION_LINES {
            found.push((index + 1, format!("fn {name} has {length} lines, {FUNCTION_LINES} are allowed")));
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
        assert_eq!(long_functions(&text), [(72, "fn long has 71 lines, 70 are allowed".into())]);
        let method = format!("impl A {{\n    const fn long(&self) {{\n{}    }}\n}}\n", body(69));
        assert_eq!(long_functions(&method).len(), 1);
        assert_eq!(long_functions("trait A {\n    fn a();\n    fn b() {}\n}\n"), []);
    }
}
