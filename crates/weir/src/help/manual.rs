//! Writes a topic as a manual page of section 7.

use super::page::{Block, Inline, Span, plain};
use super::{Topic, terminal};
use roff::{Roff, bold, roman};

/// Columns of tables and code, which `man` does not fill.
const COLUMNS: usize = 72;

/// The manual page of a topic.
pub fn page_of(topic: &Topic) -> String {
    let (name, sentence) = (format!("weir-{}", topic.name), topic.sentence());
    let mut page = Roff::new();
    let version = format!("weir {}", env!("CARGO_PKG_VERSION"));
    page.control("TH", [name.as_str(), "7", "", version.as_str(), ""]);
    page.control("SH", ["NAME"]).text([roman(format!("{name} - {sentence}"))]);
    let mut blocks = topic.blocks();
    // The name of the page is its title.
    blocks[0] = Block::Heading(2, vec![Span::Text("DESCRIPTION".into())]);
    blocks.iter().for_each(|block| append(&mut page, block));
    page.render()
}

fn append(page: &mut Roff, block: &Block) {
    match block {
        Block::Heading(level, text) => {
            let macro_name = if *level > 2 { "SS" } else { "SH" };
            page.control(macro_name, [plain(text).as_str()]);
        }
        Block::Paragraph(text) => {
            page.control("PP", []).text(inline(text));
        }
        Block::Item(marker, blocks) => {
            let marker = if marker == "*" { "\\(bu" } else { marker };
            page.control("IP", [marker, "4"]);
            for (at, block) in blocks.iter().enumerate() {
                match block {
                    Block::Paragraph(text) if at == 0 => drop(page.text(inline(text))),
                    block => {
                        page.control("RS", ["4"]);
                        append(page, block);
                        page.control("RE", []);
                    }
                }
            }
        }
        Block::Code(_) | Block::Table(_) | Block::List(_) => {
            page.control("PP", []).control("nf", []);
            for line in terminal::lines(block, COLUMNS) {
                page.text([roman(line)]);
            }
            page.control("fi", []);
        }
    }
}

fn inline(text: &Inline) -> Vec<roff::Inline> {
    let part = |span: &Span| match span {
        Span::Text(text) => roman(text),
        Span::Code(code) => bold(code),
        Span::Topic(name) => bold(format!("weir-{name}(7)")),
    };
    text.iter().map(part).collect()
}
