//! The documents of the repository: line length, links, file names that they mention, and retired words.
//!
//! Input: every Markdown file, and the Rust sources below `crates`. Output: one line per violation,
//! `FILE:LINE: what is wrong`. Every page of `docs` is in the index of its folder. It does not check grammar
//! or facts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest line of Markdown, in characters. Tables, code blocks and lines of a single long word are exempt.
const COLUMNS: usize = 100;

/// Words and phrases that must not come back, each with its replacement. Inline code is exempt.
const RETIRED: [(&str, &str); 24] = [
    ("nobody", "name what does not happen: \"it is not known\", \"no program reads it\""),
    ("somebody", "name the person or program"),
    ("everybody", "name the persons or programs"),
    ("whoever", "name the person or program; for the reader: you"),
    ("so many", "the name of the number, or N"),
    ("as many as there are", "all"),
    ("at hand", "available"),
    ("wrong use", "usage error"),
    ("sent again", "retransmitted"),
    ("is told", "is reported; of a program: is configured"),
    ("are told", "are reported"),
    ("was told", "was reported"),
    ("tells of", "reports"),
    ("told of", "reported"),
    ("rung", "level"),
    ("rungs", "levels"),
    ("ladder", "load shedder"),
    ("annex", "encapsulation table"),
    ("the hand", "expiry cursor"),
    ("the house", "the project, the repository"),
    ("elephant", "large flow"),
    ("elephants", "large flows"),
    ("graphics card", "GPU"),
    ("network card", "NIC"),
];

/// All violations in the documents and sources of a repository.
pub fn violations(root: &Path) -> Vec<String> {
    [pages(root), unlisted_pages(&files(&root.join("docs"), "md")), security_page(root), sources(root)].concat()
}

/// Markdown: wrapped, linked, and free of retired words.
fn pages(root: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for page in &files(root, "md") {
        let text = fs::read_to_string(page).expect("a page can be read");
        let parts = Markdown::parse(&text);
        let words = [retired_words(&parts.prose), retired_words(&parts.code_blocks)].concat();
        let files = [dead_links(page, &parts.prose), missing_files(root, &parts.inline_code)].concat();
        wrong.extend(report(root, page, [long_lines(&text), words, files].concat()));
    }
    wrong
}

/// Tests that SECURITY.md names exist.
fn security_page(root: &Path) -> Vec<String> {
    let sources = files(&root.join("crates"), "rs").into_iter().map(|file| fs::read_to_string(file).expect("readable"));
    let names = |source: String| -> Vec<String> {
        let functions = source.split("fn ").skip(1);
        functions.filter_map(|rest| Some(rest.split_once("() {")?.0.to_owned())).collect()
    };
    let tests: BTreeSet<String> = sources.flat_map(names).collect();
    let page = root.join("SECURITY.md");
    let text = fs::read_to_string(&page).expect("the page can be read");
    report(root, &page, missing_tests(&tests, &Markdown::parse(&text).inline_code))
}

/// Names, comments and strings of the sources are free of retired words, and texts of the program of names of pages.
fn sources(root: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in files(&root.join("crates"), "rs") {
        let text = fs::read_to_string(&source).expect("a source can be read");
        wrong.extend(report(root, &source, retired_words_of_source(&text)));
        wrong.extend(report(root, &source, pages_in_texts(root, &source, &text)));
    }
    wrong
}

/// Pages of `docs` that texts of the program name: an installed machine has `weir help TOPIC` instead. Comments of code
/// and tests may name them.
fn pages_in_texts(root: &Path, source: &Path, text: &str) -> Vec<(usize, String)> {
    let is_of = |folder: &str| source.starts_with(root.join(folder));
    let name = source.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if is_of("crates/dev") || source.components().any(|part| part.as_os_str() == "tests") || name == "tests.rs" {
        return vec![];
    }
    // Comments of the items of these folders are texts of the program: help, and the description of the HTTP interface.
    let has_texts = is_of("crates/weir/src/arguments") || is_of("crates/run/control/src");
    let is_page = |word: &str| {
        let page = word.trim_start_matches("docs/").strip_suffix(".md");
        page.is_some_and(|page| !page.is_empty() && root.join("docs").join(format!("{page}.md")).exists())
    };
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    for (index, line) in product.lines().enumerate() {
        let is_comment = line.trim_start().starts_with("//");
        let is_text = !is_comment || has_texts && line.trim_start().starts_with("///");
        if !is_text || line.contains("include_str!") {
            continue;
        }
        let words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && !"-_./".contains(letter));
        let pages = words.map(|word| word.trim_end_matches('.')).filter(|word| is_page(word));
        found.extend(pages.map(|page| (index + 1, format!("names {page}: name a topic of `weir help`"))));
    }
    found
}

/// All files below a folder with this extension; build outputs and hidden folders are left out. Cargo does not tag a
/// `target` that existed before its first build, so the name counts too.
pub(crate) fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("the folder can be listed").path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let built = path.ends_with("target") || path.ends_with("node_modules") || path.join("CACHEDIR.TAG").exists();
        if path.is_dir() && !hidden && !built {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A Markdown file in parts of equal line structure: prose without code, inline code with its lines, code blocks.
struct Markdown {
    prose: String,
    inline_code: Vec<(usize, String)>,
    code_blocks: String,
}

impl Markdown {
    fn parse(text: &str) -> Self {
        let mut parts = Self { prose: String::new(), inline_code: Vec::new(), code_blocks: String::new() };
        let (mut in_block, mut in_code) = (false, false);
        for (index, line) in text.lines().enumerate() {
            let fence = line.trim_start().starts_with("```");
            if fence || in_block {
                in_block ^= fence;
                in_code = false;
                parts.code_blocks += line;
            } else {
                // A paragraph ends inline code that was not closed.
                in_code &= !line.trim().is_empty();
                for (piece, segment) in line.split('`').enumerate() {
                    in_code ^= piece > 0;
                    if in_code {
                        parts.inline_code.push((index + 1, segment.into()));
                        parts.prose.push('`');
                    } else {
                        parts.prose += segment;
                    }
                }
            }
            parts.prose.push('\n');
            parts.code_blocks.push('\n');
        }
        parts
    }

    /// Anchors of the headings, as GitHub makes them.
    fn anchors(text: &str) -> BTreeSet<String> {
        let headings = text.lines().filter_map(|line| Some(line.strip_prefix('#')?.trim_start_matches('#').trim()));
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        headings
            .map(|heading| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-"))
            .collect()
    }
}

/// Lines that are too long.
fn long_lines(text: &str) -> Vec<(usize, String)> {
    let mut in_block = false;
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let content = line.trim_start();
        let fence = content.starts_with("```");
        in_block ^= fence;
        let words = content.trim_start_matches(['*', '-', ' ']).split(' ').count();
        let length = line.chars().count();
        if length > COLUMNS && !in_block && !fence && !content.starts_with('|') && words > 1 {
            found.push((index + 1, format!("{length} columns, {COLUMNS} are allowed")));
        }
    }
    found
}

/// Retired words in a text, with their replacements.
fn retired_words(text: &str) -> Vec<(usize, String)> {
    // One space between words, so that phrases are found across lines; the line of each octet beside it.
    let (mut folded, mut lines) = (String::from(" "), vec![1]);
    for (index, line) in text.lines().enumerate() {
        for word in line.split_whitespace() {
            folded += &word.to_lowercase();
            folded.push(' ');
            lines.resize(folded.len(), index + 1);
        }
    }
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (phrase, replacement) in RETIRED {
        for (at, _) in folded.match_indices(phrase) {
            let (before, behind) = (&folded[..at], &folded[at + phrase.len()..]);
            // A whole string and the value of an option are names. The user `nobody` is a name, too.
            let is_name = before.ends_with('=')
                || before.ends_with('"') && behind.starts_with('"')
                || phrase == "nobody"
                    && ["user ", "group ", "drop to ", "\""].iter().any(|noun| before.ends_with(noun));
            if !is_name && !before.ends_with(part_of_word) && !behind.starts_with(part_of_word) {
                found.push((lines[at], format!("retired: \"{phrase}\"; write: {replacement}")));
            }
        }
    }
    found
}

/// Relative links of a page whose file or anchor does not exist.
fn dead_links(page: &Path, prose: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, link) in relative_links(prose) {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { page.into() } else { page.parent().expect("a file has a folder").join(file) };
        if !target.exists() {
            found.push((line, format!("dead link: {link}")));
        } else if !anchor.is_empty() {
            let text = fs::read_to_string(&target).expect("a page can be read");
            if !Markdown::anchors(&text).contains(anchor) {
                found.push((line, format!("no such heading: {link}")));
            }
        }
    }
    found
}

/// The links of a page that lead to other files or headings, with their lines.
fn relative_links(prose: &str) -> impl Iterator<Item = (usize, &str)> {
    let links = prose.lines().enumerate().flat_map(|(index, line)| {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        targets.map(move |(link, _)| (index + 1, link))
    });
    links.filter(|(_, link)| !link.contains("://") && !link.starts_with("mailto:"))
}

/// The files that a Markdown text links to, with their lines.
pub(crate) fn linked_files(text: &str) -> Vec<(usize, String)> {
    let prose = Markdown::parse(text).prose;
    let files =
        relative_links(&prose).map(|(line, link)| (line, link.split('#').next().unwrap_or_default().to_owned()));
    files.filter(|(_, file)| !file.is_empty()).collect()
}

/// Files that inline code names by their path from the root, and functions (`FILE::FUNCTION`), that do not exist.
fn missing_files(root: &Path, inline_code: &[(usize, String)]) -> Vec<(usize, String)> {
    const FOLDERS: [&str; 7] = ["crates/", "docs/", "scripts/", "testdata/", "data/", "fuzz/", "xtask/"];
    let is_path =
        |code: &str| FOLDERS.iter().any(|folder| code.starts_with(folder)) && !code.contains([' ', '*', '<', '…', '{']);
    let exists = |code: &str| match code.split_once("::") {
        None => root.join(code).exists(),
        Some((file, function)) => {
            fs::read_to_string(root.join(file)).is_ok_and(|source| source.contains(&format!("fn {function}(")))
        }
    };
    let missing = inline_code.iter().filter(|(_, code)| is_path(code) && !exists(code));
    missing.map(|(line, code)| (*line, format!("no such file or function: {code}"))).collect()
}

/// Rust source as Markdown: without the markers of comments and the backslashes at the ends of lines.
fn without_markers(source: &str) -> String {
    let marker = |c: char| c.is_whitespace() || matches!(c, '/' | '!' | '*');
    source.lines().map(|line| line.trim_start_matches(marker).trim_end_matches('\\').to_owned() + "\n").collect()
}

fn retired_words_of_source(source: &str) -> Vec<(usize, String)> {
    let parts = Markdown::parse(&without_markers(source));
    [retired_words(&parts.prose), retired_words(&parts.code_blocks)].concat()
}

/// Pages below `docs` that the README of their folder does not link to.
fn unlisted_pages(pages: &[PathBuf]) -> Vec<String> {
    let listed = |page: &Path, name: &str| {
        let index = fs::read_to_string(page.with_file_name("README.md")).expect("the folder has a README.md");
        name == "README.md" || index.contains(&format!("]({name})"))
    };
    let names =
        pages.iter().map(|page| (page, page.file_name().and_then(|name| name.to_str()).expect("names are UTF-8")));
    let unlisted = names.filter(|(page, name)| !listed(page, name));
    unlisted.map(|(page, _)| format!("{}: the README.md beside it does not link to it", page.display())).collect()
}

fn report(root: &Path, page: &Path, found: Vec<(usize, String)>) -> Vec<String> {
    let name = page.strip_prefix(root).expect("the file is below the root").display();
    found.into_iter().map(|(line, what)| format!("{name}:{line}: {what}")).collect()
}

/// Names in inline code that look like those of tests (four words at least) and are none.
fn missing_tests(tests: &BTreeSet<String>, inline_code: &[(usize, String)]) -> Vec<(usize, String)> {
    let is_name = |code: &str| code.split('_').count() > 3 && code.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let missing = inline_code.iter().filter(|(_, code)| is_name(code) && !tests.contains(code));
    missing.map(|(line, code)| (*line, format!("no such test: {code}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_name_pages_are_found() {
        let root = crate::root();
        let found = |file: &str, text: &str| pages_in_texts(&root, &root.join(file), text).len();
        let text = "// docs/views.md\n/// docs/views.md.\nlet a = \"(docs/views.md)\";\nlet b = \"see views.md.\";\n";
        assert_eq!(found("crates/weir/src/read.rs", text), 2);
        assert_eq!(found("crates/weir/src/arguments/read.rs", text), 3);
        assert_eq!(found("crates/weir/tests/all/main.rs", text), 0);
        assert_eq!(found("crates/weir/src/read.rs", "let a = \"none-such.md\"; include_str!(\"docs/views.md\");"), 0);
        assert_eq!(found("crates/weir/src/read.rs", &format!("#[cfg(test)]\nmod tests {{\n{text}")), 0);
    }

    #[test]
    fn names_of_tests_are_checked() {
        let planted = Markdown::parse("`a_test_that_is_none`, `planted_violations_are_found`").inline_code;
        let tests = BTreeSet::from(["planted_violations_are_found".into()]);
        assert_eq!(missing_tests(&tests, &planted), [(1, "no such test: a_test_that_is_none".into())]);
    }

    #[test]
    fn planted_violations_are_found() {
        let long = format!("{} end", "word ".repeat(20));
        assert_eq!(long_lines(&format!("short\n{long}")).len(), 1);
        assert_eq!(long_lines(&format!("* {}", long.replace(' ', "-"))), [], "a single long word");
        assert_eq!(long_lines(&format!("| {long} |\n```text\n{long}\n```")), [], "a table and a code block");

        let lines = |text: &str| retired_words(text).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
        assert_eq!(lines("A\nWhoever reads so\nmany files"), [2, 2]);
        assert_eq!(lines("wrong user, rungs_of, housekeeping, beforehand"), [], "parts of other words");
        assert_eq!(lines(&Markdown::parse("User `nobody`, not\nnobody.").prose), [2], "inline code is exempt");

        let page = crate::root().join("README.md");
        assert_eq!(dead_links(&page, "[a](docs/metering.md) [b](https://x.y/z) [c](#weir)"), []);
        assert_eq!(dead_links(&page, "[a](docs/none.md)\n[b](#none)").len(), 2);
        const FILE: &str = "xtask/src/tidy/documents.rs";
        let text =
            format!("`{FILE}` and\n`crates/none.rs`, `crates/*.rs`,\n`{FILE}::missing_files`, `{FILE}::missing`");
        let missing = missing_files(&crate::root(), &Markdown::parse(&text).inline_code);
        assert_eq!(missing.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 3], "{missing:?}");
    }

    #[test]
    fn names_comments_and_strings_of_sources_are_searched() {
        let found = |source: &str| retired_words_of_source(source).len();
        assert_eq!(found("let level = ladder(rungs_of); // level"), 1);
        assert_eq!(found("let x = '\"'; // the top rung\nlet y = \"whoever reads\";"), 2);
        assert_eq!(found("let x = [\"nobody\", \"--user=nobody\"]; // user nobody"), 0);
        assert_eq!(found("/// User `nobody`.\nlet x = r#\"a \" rung\"#; /* so\nmany */"), 2);
        assert_eq!(found("    // Not so\n    /// many\n\"a wrong \\\n use\""), 2);
    }
}
