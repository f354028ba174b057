//! Checks the built pages: every link leads to a file, and to a part of it that exists, and nothing that a page loads
//! comes from another host.

use super::index::beside;
use super::{Error, file_error};
use crate::tidy::files;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What a page has.
#[derive(Default)]
struct Page {
    ids: BTreeSet<String>,
    /// Tag and target.
    links: Vec<(String, String)>,
}

/// All dead links of the pages in a folder, and all that they load from elsewhere.
pub(super) fn violations(folder: &Path) -> Result<Vec<String>, Error> {
    let mut pages = BTreeMap::new();
    for path in files(folder, "html") {
        let text = fs::read_to_string(&path).map_err(|error| file_error(&path, error))?;
        pages.insert(path, parse(&text));
    }
    let mut wrong = Vec::new();
    for (path, page) in &pages {
        for (tag, target) in &page.links {
            if let Some(problem) = problem(path, tag, target, &pages) {
                let name = path.strip_prefix(folder).unwrap_or(path).display();
                wrong.push(format!("{name}: {problem}: {target}"));
            }
        }
    }
    for path in files(folder, "css") {
        let text = fs::read_to_string(&path).map_err(|error| file_error(&path, error))?;
        let foreign = text.split("url(").skip(1).filter(|rest| is_foreign(rest.trim_start_matches(['"', '\''])));
        wrong.extend(foreign.map(|_| format!("{}: loads from another host", path.display())));
    }
    Ok(wrong)
}

/// Whether a target names another host.
fn is_foreign(target: &str) -> bool {
    target.starts_with("http:") || target.starts_with("https:") || target.starts_with("//")
}

/// What is wrong with a target.
fn problem(page: &Path, tag: &str, target: &str, pages: &BTreeMap<PathBuf, Page>) -> Option<&'static str> {
    if is_foreign(target) {
        return (tag != "a").then_some("loads from another host");
    }
    if target.starts_with("mailto:") || target.starts_with("data:") || target.starts_with("javascript:") {
        return None;
    }
    let (file, id) = target.split_once('#').unwrap_or((target, ""));
    let file = file.split('?').next().unwrap_or_default();
    let path = if file.is_empty() { page.to_owned() } else { beside(page, file) };
    if !path.is_file() {
        return Some("no such file");
    }
    let has = |page: &Page| page.ids.contains(id);
    (!id.is_empty() && !pages.get(&path).is_some_and(has)).then_some("no such part")
}

/// The ids and links of the tags of a page.
fn parse(html: &str) -> Page {
    let mut page = Page::default();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        if let Some(behind) = rest.strip_prefix("!--") {
            rest = behind.split_once("-->").map_or("", |(_, behind)| behind);
            continue;
        }
        let (tag, behind) = rest.split_at(end_of_tag(rest));
        rest = behind;
        let name = tag.split(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or_default().to_owned();
        for (key, value) in attributes(&tag[name.len()..]) {
            match key {
                "id" => drop(page.ids.insert(value)),
                // Scalable pictures inside of a page have no files.
                "href" | "src" if name != "use" => page.links.push((name.clone(), value)),
                _ => {}
            }
        }
        if name == "script" {
            rest = rest.split_once("</script").map_or("", |(_, behind)| behind);
        }
    }
    page
}

/// Where a tag ends: at the first `>` outside of quotes.
fn end_of_tag(tag: &str) -> usize {
    let mut quote = None;
    for (at, letter) in tag.char_indices() {
        match (quote, letter) {
            (None, '>') => return at,
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            _ => {}
        }
    }
    tag.len()
}

/// Keys and quoted values of a tag.
fn attributes(tag: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    let mut rest = tag;
    while let Some((key, behind)) = rest.split_once('=') {
        let quote = if behind.starts_with('\'') { '\'' } else { '"' };
        let Some((value, behind)) = behind.strip_prefix(quote).and_then(|value| value.split_once(quote)) else { break };
        found.push((key.trim().rsplit(char::is_whitespace).next().unwrap_or_default(), unescape(value)));
        rest = behind;
    }
    found
}

fn unescape(value: &str) -> String {
    value.replace("&#x27;", "'").replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_and_other_hosts_are_found() {
        let folder = std::env::temp_dir().join(format!("weir-site-links-{}", std::process::id()));
        fs::create_dir_all(folder.join("docs")).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write(
            "index.html",
            "<h1 id=\"top\">a > b</h1><a class='x' href=\"docs/a.html#one\">a</a> <a href='#top'>b</a>",
        );
        write(
            "docs/a.html",
            "<script>if (a < b) \"<a href='none'>\"</script><p id=one>x<p id=\"one\"><!-- <a href=\"none\"> -->\
             <a href=\"../index.html#none\">c</a><a href=\"https://example.com/\">d</a><a href=\"b.html\">e</a>\
             <img alt=\"a > b\" src=\"https://example.com/x.png\"><code>&lt;a href=\"none\"></code>",
        );
        write("a.css", "a { src: url('x.woff2') } b { src: url(\"https://example.com/y\") }");
        let found = violations(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let expected = [
            "docs/a.html: no such part: ../index.html#none",
            "docs/a.html: no such file: b.html",
            "docs/a.html: loads from another host: https://example.com/x.png",
        ];
        assert_eq!(found[..3], expected);
        assert!(found.len() == 4 && found[3].ends_with("a.css: loads from another host"), "{found:?}");
    }
}
