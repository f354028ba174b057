//! Reads a page of `docs`: its Markdown as blocks.
//!
//! Links to other pages become the names of their topics, because an installed machine does not have the
//! files. Links into the repository lose their targets, and pictures are left out.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::borrow::Cow;

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Span {
    Text(String),
    Code(String),
    /// A topic, by its name.
    Topic(Cow<'static, str>),
}

pub type Inline = Vec<Span>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// Its level, from 1 on.
    Heading(u8, Inline),
    Paragraph(Inline),
    /// An item of a list, with what stands in front of it.
    Item(String, Vec<Block>),
    Code(String),
    /// Rows of cells. The first one has the headings.
    Table(Vec<Vec<Inline>>),
    /// Rows of a name and its meaning, without headings.
    List(Vec<Vec<Inline>>),
}

/// The text without marks, in which code is in backticks.
pub fn plain(text: &[Span]) -> String {
    let part = |span: &Span| match span {
        Span::Text(text) => text.clone(),
        Span::Code(code) => format!("`{code}`"),
        Span::Topic(name) => format!("`weir help {name}`"),
    };
    text.iter().map(part).collect()
}

/// The name of the topic that the target of a link is, if it is one.
pub type OfLink = fn(&str) -> Option<Cow<'static, str>>;

/// The blocks of a Markdown text.
pub fn read(text: &str, of_link: OfLink) -> Vec<Block> {
    let (blocks, rows, lists) = (vec![vec![]], vec![], vec![]);
    let mut reader = Reader { of_link, blocks, rows, lists, text: vec![], link: None, picture: 0 };
    Parser::new_ext(text, Options::ENABLE_TABLES).for_each(|event| reader.add(event));
    reader.blocks.pop().expect("the outermost list stays")
}

/// What has begun and not ended.
struct Reader {
    of_link: OfLink,
    /// The blocks of the page, and of each open item.
    blocks: Vec<Vec<Block>>,
    text: Inline,
    /// The number of the next item of each open list, if it has numbers.
    lists: Vec<Option<u64>>,
    /// Target of the open link, and the number of spans in front of it.
    link: Option<(String, usize)>,
    /// The number of spans in front of the words of a picture.
    picture: usize,
    rows: Vec<Vec<Inline>>,
}

impl Reader {
    fn add(&mut self, event: Event) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text.push(Span::Text(text.into_string())),
            Event::Code(code) => self.text.push(Span::Code(code.into_string())),
            Event::SoftBreak | Event::HardBreak => self.text.push(Span::Text(" ".into())),
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag) {
        match tag {
            Tag::CodeBlock(_) => self.end_paragraph(),
            Tag::List(number) => {
                self.end_paragraph();
                self.lists.push(number);
            }
            Tag::Item => self.blocks.push(vec![]),
            Tag::TableHead | Tag::TableRow => self.rows.push(vec![]),
            Tag::Image { .. } => self.picture = self.text.len(),
            Tag::Link { dest_url, .. } => self.link = Some((dest_url.into_string(), self.text.len())),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => {
                let text = std::mem::take(&mut self.text);
                self.push(Block::Heading(level_of(level), text));
            }
            TagEnd::Paragraph => self.end_paragraph(),
            TagEnd::CodeBlock => {
                let lines = std::mem::take(&mut self.text);
                let code: String = lines.into_iter().map(|line| plain(&[line])).collect();
                self.push(Block::Code(code.trim_end().into()));
            }
            TagEnd::Item => {
                self.end_paragraph();
                let blocks = self.blocks.pop().expect("the item has begun");
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}.", *number - 1)
                    }
                    _ => "*".into(),
                };
                self.push(Block::Item(marker, blocks));
            }
            TagEnd::List(_) => drop(self.lists.pop()),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                self.rows.last_mut().expect("the row has begun").push(cell);
            }
            TagEnd::Table => {
                let rows = std::mem::take(&mut self.rows);
                self.push(Block::Table(rows));
            }
            TagEnd::Image => self.text.truncate(self.picture),
            TagEnd::Link => self.end_link(),
            _ => {}
        }
    }

    fn push(&mut self, block: Block) {
        self.blocks.last_mut().expect("the outermost list stays").push(block);
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !text.is_empty() {
            self.push(Block::Paragraph(text));
        }
    }

    fn end_link(&mut self) {
        let Some((target, start)) = self.link.take() else { return };
        let text = plain(&self.text[start..]);
        let is_path = text.ends_with(".md") || text.ends_with('/');
        let topic = (self.of_link)(&target);
        let mut behind = |span| self.text.extend([Span::Text(" (".into()), span, Span::Text(")".into())]);
        if let Some(topic) = topic {
            if is_path {
                self.text.truncate(start);
                self.text.push(Span::Topic(topic));
            } else {
                behind(Span::Topic(topic));
            }
        } else if target.contains("://") {
            if text != target {
                behind(Span::Text(target));
            }
        } else if is_path {
            let name = text.trim_start_matches("../").to_owned();
            self.text.truncate(start);
            self.text.push(Span::Text(format!("{name} in the source code")));
        }
    }
}

fn level_of(level: HeadingLevel) -> u8 {
    level as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Span {
        Span::Text(text.into())
    }

    fn of_link(target: &str) -> Option<Cow<'static, str>> {
        match target {
            "rules.md" | "rules.md#levels" => Some("rules".into()),
            "tcp.md" => Some("tcp-guide".into()),
            _ => None,
        }
    }

    #[test]
    fn links_to_pages_are_topics() {
        let read = |text| match &read(text, of_link)[..] {
            [Block::Paragraph(text)] => plain(text),
            blocks => panic!("{blocks:?}"),
        };
        assert_eq!(read("see [rules.md](rules.md)"), "see `weir help rules`");
        assert_eq!(read("see [rules](rules.md#levels)."), "see rules (`weir help rules`).");
        assert_eq!(read("[`weir tcp`](tcp.md)"), "`weir tcp` (`weir help tcp-guide`)");
        assert_eq!(read("[DuckDB](https://duckdb.org)"), "DuckDB (https://duckdb.org)");
        assert_eq!(read("[decision 0022](decisions/0022-x.md)"), "decision 0022");
        assert_eq!(read("[SECURITY.md](../SECURITY.md)"), "SECURITY.md in the source code");
        assert_eq!(read("[below](#spool)"), "below");
    }

    #[test]
    fn blocks_nest() {
        let blocks = read(
            "# A\n\n1. one\n\n   ```\n   x\n    y\n   ```\n2. two\n   * three\n\n| a | b |\n|---|---|\n| `c` | d |\n",
            |_| None,
        );
        let paragraph = |part| Block::Paragraph(vec![text(part)]);
        let expected = vec![
            Block::Heading(1, vec![text("A")]),
            Block::Item("1.".into(), vec![paragraph("one"), Block::Code("x\n y".into())]),
            Block::Item("2.".into(), vec![paragraph("two"), Block::Item("*".into(), vec![paragraph("three")])]),
            Block::Table(vec![
                vec![vec![text("a")], vec![text("b")]],
                vec![vec![Span::Code("c".into())], vec![text("d")]],
            ]),
        ];
        assert_eq!(blocks, expected);
    }
}
