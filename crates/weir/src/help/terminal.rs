//! Writes a page as lines of text for a terminal.
//!
//! Text is wrapped, code is not. A table that does not fit has wrapped cells or, if these would be too
//! narrow, a paragraph for each row.

use super::page::{Block, Inline, Span, plain};
use weir_text::wrap;

/// Indentation of all but headings, and of headings below the second level.
const BODY: usize = 4;
const SUBHEADING: usize = 2;

/// Spaces between two columns of a table.
const GAP: usize = 2;

/// A wrapped column has at least this width.
const NARROWEST: usize = 16;

/// A page with lines of at most `columns` characters, if words and code permit.
pub fn text(blocks: &[Block], columns: usize) -> String {
    let mut text = String::new();
    let width = columns.saturating_sub(BODY).max(NARROWEST);
    for (at, block) in blocks.iter().enumerate() {
        if at > 0 && is_apart(&blocks[at - 1], block) {
            text.push('\n');
        }
        let (indent, lines) = match block {
            Block::Heading(level, heading) => (if *level > 2 { SUBHEADING } else { 0 }, vec![plain(heading)]),
            block => (BODY, lines(block, width)),
        };
        for line in lines {
            text += format!("{:indent$}{line}", "").trim_end();
            text.push('\n');
        }
    }
    text
}

/// Whether an empty line is between two blocks.
fn is_apart(before: &Block, block: &Block) -> bool {
    !matches!((before, block), (Block::Item(..), Block::Item(..)))
}

/// The lines of a block inside of a page.
pub fn lines(block: &Block, width: usize) -> Vec<String> {
    match block {
        Block::Heading(_, text) | Block::Paragraph(text) => wrap(&plain(text), width),
        Block::Item(marker, blocks) => item(marker, blocks, width),
        Block::Code(code) => code.lines().map(|line| format!("  {line}")).collect(),
        Block::Table(rows) => table(rows, width, true),
        Block::List(rows) => table(rows, width, false),
    }
}

fn item(marker: &str, blocks: &[Block], width: usize) -> Vec<String> {
    let indent = marker.len() + 1;
    let mut all: Vec<String> = Vec::new();
    for block in blocks {
        if matches!(block, Block::Code(_) | Block::Table(_)) {
            all.push(String::new());
        }
        all.extend(lines(block, width.saturating_sub(indent).max(NARROWEST)));
    }
    let prefix = |at: usize| if at == 0 { marker } else { "" };
    all.iter().enumerate().map(|(at, line)| format!("{:indent$}{line}", prefix(at))).collect()
}

fn table(rows: &[Vec<Inline>], width: usize, with_headings: bool) -> Vec<String> {
    let mut cells: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| cell_text(cell)).collect()).collect();
    if with_headings && cells.first().is_some_and(|headings| headings.iter().all(String::is_empty)) {
        cells.remove(0);
    }
    let Some(widths) = widths(&cells, width) else { return paragraphs(&cells, width) };
    let mut lines = Vec::new();
    for (at, row) in cells.iter().enumerate() {
        let parts: Vec<Vec<String>> = row.iter().zip(&widths).map(|(cell, &width)| wrap(cell, width)).collect();
        for line in 0..parts.iter().map(Vec::len).max().unwrap_or(0) {
            let part = |(parts, width): (&Vec<String>, &usize)| {
                format!("{:width$}{:GAP$}", parts.get(line).map_or("", String::as_str), "")
            };
            lines.push(parts.iter().zip(&widths).map(part).collect::<String>().trim_end().to_owned());
        }
        if at == 0 && with_headings {
            lines.push(widths.iter().map(|&width| "-".repeat(width)).collect::<Vec<_>>().join(&" ".repeat(GAP)));
        }
    }
    lines
}

/// Code needs no marks in a cell that has nothing else.
fn cell_text(cell: &[Span]) -> String {
    let is_separator = |text: &String| text.trim().chars().all(|letter| ",;/–".contains(letter));
    let is_code_alone = cell.iter().all(|span| match span {
        Span::Text(text) => is_separator(text),
        Span::Code(_) | Span::Topic(_) => true,
    });
    if is_code_alone { plain(cell).replace('`', "") } else { plain(cell) }
}

/// The widths of the columns, or `None` if the table does not fit.
fn widths(cells: &[Vec<String>], width: usize) -> Option<Vec<usize>> {
    let count = cells.iter().map(Vec::len).max()?;
    let letters = |text: &str| text.chars().count();
    let longest = |column: usize, length: &dyn Fn(&str) -> usize| {
        cells.iter().filter_map(|row| row.get(column)).map(|cell| length(cell)).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..count).map(|column| longest(column, &letters)).collect();
    let available = width.saturating_sub(GAP * (count - 1));
    // The widest columns become narrower until the table fits.
    let mut missing = widths.iter().sum::<usize>().saturating_sub(available);
    while missing > 0 {
        let widest = *widths.iter().max()?;
        let at = widths.iter().position(|&width| width == widest)?;
        widths[at] -= 1;
        missing -= 1;
    }
    let longest_word = |cell: &str| cell.split_whitespace().map(letters).max().unwrap_or(0);
    let fits = |(column, &width): (usize, &usize)| {
        let needed = longest(column, &letters);
        width == needed || width >= NARROWEST && width >= longest(column, &longest_word)
    };
    widths.iter().enumerate().all(fits).then_some(widths)
}

/// A row as a paragraph: its first cell, and below it the others behind their headings.
fn paragraphs(cells: &[Vec<String>], width: usize) -> Vec<String> {
    let Some((headings, rows)) = cells.split_first() else { return vec![] };
    let mut lines = Vec::new();
    for row in rows {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let Some((first, others)) = row.split_first() else { continue };
        lines.extend(wrap(first, width));
        for (heading, cell) in headings[1..].iter().zip(others).filter(|(_, cell)| !cell.is_empty()) {
            let text = if heading.is_empty() { cell.clone() } else { format!("{heading}: {cell}") };
            let indented = |line: String| format!("  {line}");
            lines.extend(wrap(&text, width.saturating_sub(2)).into_iter().map(indented));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::page::read;
    use super::text;

    #[test]
    fn text_is_wrapped_and_code_is_not() {
        let page = "# Title\n\nSome words of `code` and others.\n\n```console\n$ a very long line of code\n```\n\n* one\n* two words\n";
        let expected = "Title\n\n    Some words of\n    `code` and\n    others.\n\n      $ a very long line of code\n\n    * one\n    * two words\n";
        assert_eq!(text(&read(page, |_| None), 20), expected);
    }

    #[test]
    fn tables_are_aligned_wrapped_or_paragraphs() {
        let page = "| name | meaning |\n|---|---|\n| `a` | what the letter means here |\n";
        assert_eq!(
            text(&read(page, |_| None), 80),
            "    name  meaning\n    ----  --------------------------\n    a     what the letter means here\n"
        );
        assert_eq!(
            text(&read(page, |_| None), 28),
            "    name  meaning\n    ----  ------------------\n    a     what the letter\n          means here\n"
        );
        assert_eq!(text(&read(page, |_| None), 22), "    a\n      meaning: what\n      the letter means\n      here\n");
    }
}
