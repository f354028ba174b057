//! The topics of `weir help`: every page of `docs`, and sections that people look for by themselves.
//!
//! A topic has the name of its page. Where `weir help` describes a command of this name, which has many
//! options, the topic has `-guide` behind it.

use super::page::{self, Block, Span};
use std::borrow::Cow;

/// A text about a subject.
pub struct Topic {
    /// What `weir help` calls it.
    pub name: Cow<'static, str>,
    pub(super) text: &'static str,
    /// The part that it is, if it is not the whole page.
    section: Option<&'static Section>,
}

/// Names of pages, with their texts.
macro_rules! pages {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../../docs/", $name, ".md")))),*]
    };
}

const PAGES: &[(&str, &str)] = pages!(
    "af_packet" "af_xdp" "anonymise" "applications" "bench" "bypass" "clickhouse" "collectors" "comparison"
    "conformance" "containers" "control" "cookbook" "doctor" "dpdk" "egress" "enrichment" "faults" "fields" "glossary" "inputs"
    "install" "ipfix-files" "kafka" "metering" "nfdump-files" "operating" "outputs" "overload" "packages" "packet-records"
    "page" "performance" "probe" "python" "query" "quick-start" "read" "recorder" "reference" "rules" "scale" "sizing"
    "store" "synth" "tcp" "top" "transactions" "troubleshooting" "view" "views"
);

/// The page that lists all others.
const INDEX: &str = include_str!("../../../../docs/README.md");

/// Pages of commands whose own help has their name.
const GUIDES: [&str; 10] = ["bench", "bypass", "clickhouse", "doctor", "probe", "read", "synth", "tcp", "top", "view"];

/// A section that is a topic of its own.
struct Section {
    name: &'static str,
    page: &'static str,
    heading: &'static str,
    sentence: &'static str,
}

const SECTIONS: [Section; 1] = [Section {
    name: "expressions",
    page: "views",
    heading: "Expressions",
    sentence: "what --where selects: words, fields, literals, rules",
}];

/// Other names of topics.
const ALIASES: [(&str, &str); 3] = [("sinks", "outputs"), ("sources", "inputs"), ("where", "expressions")];

/// All topics.
pub fn topics() -> impl Iterator<Item = Topic> {
    let sections = SECTIONS.iter().map(|section| {
        let (_, text) = PAGES.iter().find(|(name, _)| *name == section.page).expect("the page exists");
        Topic { name: section.name.into(), text, section: Some(section) }
    });
    let pages = PAGES.iter().map(|&(page, text)| Topic { name: name_of(page), text, section: None });
    sections.chain(pages)
}

/// All names, also the other ones, that `weir help` knows.
pub fn names() -> impl Iterator<Item = Cow<'static, str>> {
    topics().map(|topic| topic.name).chain(ALIASES.iter().map(|(alias, _)| (*alias).into())).chain(["topics".into()])
}

/// The topic with this name.
pub fn find(name: &str) -> Option<Topic> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| *name);
    topics().find(|topic| topic.name == name)
}

/// The name of the topic that a link from one page to another leads to.
pub fn of_link(target: &str) -> Option<Cow<'static, str>> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let (page, _) = PAGES.iter().find(|(name, _)| file.strip_suffix(".md") == Some(*name))?;
    let section = SECTIONS.iter().find(|of| of.page == *page && of.heading.eq_ignore_ascii_case(anchor));
    Some(section.map_or_else(|| name_of(page), |section| section.name.into()))
}

/// The name of the topic of a page.
fn name_of(page: &'static str) -> Cow<'static, str> {
    if GUIDES.contains(&page) { format!("{page}-guide").into() } else { page.into() }
}

impl Topic {
    /// What it has.
    pub fn blocks(&self) -> Vec<Block> {
        let blocks = page::read(self.text, of_link);
        let Some(section) = self.section else { return blocks };
        let is_start = |block: &Block| matches!(block, Block::Heading(2, text) if page::plain(text) == section.heading);
        let is_end = |block: &Block| matches!(block, Block::Heading(..=2, _));
        let mut section = blocks.into_iter().skip_while(|block| !is_start(block));
        let start: Vec<Block> = section.next().into_iter().collect();
        start.into_iter().chain(section.take_while(|block| !is_end(block))).collect()
    }

    /// A sentence about it: that of the index of the pages.
    pub fn sentence(&self) -> String {
        if let Some(section) = self.section {
            return section.sentence.into();
        }
        let rows = page::read(INDEX, of_link).into_iter().filter_map(|block| match block {
            Block::Table(rows) => Some(rows),
            _ => None,
        });
        let is_own = |row: &Vec<page::Inline>| matches!(&row[0][..], [Span::Topic(name)] if *name == self.name);
        rows.flatten().find(is_own).map(|row| page::plain(&row[1])).unwrap_or_default()
    }
}

/// The list of the topics, in the groups of the index.
pub fn list() -> Vec<Block> {
    let is_topic = |row: &Vec<page::Inline>| matches!(&row[0][..], [Span::Topic(_)]);
    let to_name = |mut row: Vec<page::Inline>| {
        for span in &mut row[0] {
            if let Span::Topic(name) = span {
                *span = Span::Text(name.to_string());
            }
        }
        row
    };
    let intro = "Print a topic with 'weir help TOPIC', the options of a command with 'weir COMMAND --help'.";
    let heading = |text: &str| Block::Heading(1, vec![Span::Text(text.into())]);
    let mut list = vec![heading("Topics"), Block::Paragraph(vec![Span::Text(intro.into())])];
    for block in page::read(INDEX, of_link) {
        match block {
            Block::Heading(2, text) => list.push(Block::Heading(2, text)),
            Block::Table(rows) => list.push(Block::List(rows.into_iter().filter(is_topic).map(to_name).collect())),
            _ => {}
        }
    }
    let others = |(name, meaning): (&str, String)| vec![vec![Span::Text(name.into())], vec![Span::Text(meaning)]];
    let sections = SECTIONS.iter().map(|section| (section.name, section.sentence.to_owned()));
    let aliases = ALIASES.iter().map(|(alias, name)| (*alias, format!("the same as {name}")));
    list.push(Block::Heading(2, vec![Span::Text("Sections and other names".into())]));
    list.push(Block::List(sections.chain(aliases).map(others).collect()));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_a_topic_with_a_sentence() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        for file in std::fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
            if file == "README.md" || !file.contains('.') {
                continue;
            }
            let name = of_link(&file).unwrap_or_else(|| panic!("PAGES lacks {file}"));
            let topic = find(&name).unwrap();
            assert!(!topic.sentence().is_empty(), "docs/README.md lacks a sentence about {file}");
            assert!(topic.blocks().len() > 3, "{file}");
        }
    }

    #[test]
    fn links_lead_to_topics() {
        for (target, name) in
            [("views.md", "views"), ("views.md#expressions", "expressions"), ("tcp.md#x", "tcp-guide")]
        {
            assert_eq!(of_link(target).as_deref(), Some(name));
        }
        assert_eq!(of_link("../SECURITY.md").or(of_link("decisions/README.md")).or(of_link("#views")), None);
    }

    #[test]
    fn sections_are_parts_of_their_pages() {
        for topic in topics().filter(|topic| topic.section.is_some()) {
            let whole = find(topic.section.unwrap().page).unwrap().blocks();
            assert!(topic.blocks().len() > 3 && topic.blocks().len() < whole.len(), "{}", topic.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let names: Vec<_> = names().collect();
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), different.len(), "{names:?}");
    }
}
