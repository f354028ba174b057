//! Lines of the screen: text with styles. Widths are those of the terminal: a character of Chinese takes two columns, a
//! combining one none.

use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::Span;

/// Headings.
pub const HEADING: Style = Style::new().add_modifier(Modifier::BOLD);
/// The row that is selected.
pub const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
/// What was lost, and what is wrong.
pub const LOSS: Style = Style::new().fg(Color::Red);
/// Text without a style.
pub const PLAIN: Style = Style::new();

/// A line: parts with their styles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line(pub Vec<(String, Style)>);

impl Line {
    /// A line of one style.
    pub fn new(text: impl Into<String>, style: Style) -> Self {
        Self(vec![(text.into(), style)])
    }

    /// Parts with two spaces between them. Those at the end that do not fit are left out; the first one stays.
    pub fn of_parts(parts: impl IntoIterator<Item = (String, Style)>, columns: usize) -> Self {
        let mut line = Self::default();
        let mut used = 0;
        for (text, style) in parts.into_iter().filter(|(text, _)| !text.is_empty()) {
            let length = width(&text);
            if used > 0 && used + 2 + length > columns {
                break;
            }
            if used > 0 {
                line.0.push(("  ".into(), PLAIN));
                used += 2;
            }
            used += length;
            line.0.push((text, style));
        }
        line
    }

    /// The text.
    pub fn text(&self) -> String {
        self.0.iter().map(|(text, _)| text.as_str()).collect()
    }
}

/// Columns of the terminal that a text takes.
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { Span::raw(text).width() }
}

/// The text with spaces behind it, to this number of columns.
pub fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// The text in at most this number of columns. What is cut off is marked by `…`; of `A → B` both ends are cut.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.into();
    }
    if let Some((from, to)) = text.split_once(" → ")
        && columns >= 9
    {
        let [from_length, to_length] = [from, to].map(width);
        let half = (columns - 3) / 2;
        let (from_columns, to_columns) = if from_length <= half {
            (from_length, columns - 3 - from_length)
        } else if to_length <= half {
            (columns - 3 - to_length, to_length)
        } else {
            (half, columns - 3 - half)
        };
        return format!("{} → {}", cut_end(from, from_columns), cut_end(to, to_columns));
    }
    cut_end(text, columns)
}

fn cut_end(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.into();
    }
    let (mut used, mut end) = (0, 0);
    for (at, character) in text.char_indices() {
        let next = at + character.len_utf8();
        used += width(&text[at..next]);
        if used >= columns {
            break;
        }
        end = next;
    }
    if columns == 0 { String::new() } else { format!("{}…", &text[..end]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_their_ends_and_pairs_at_both() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcdef", 0), "");
        assert_eq!(cut("2001:db8::1234 → 10.0.0.1", 18), "2001:d… → 10.0.0.1");
        assert_eq!(cut("2001:db8::1234 → 2001:db8::5678", 17), "2001:d… → 2001:d…");
        // Two columns each, but for the accent.
        assert_eq!([width("例え.jp"), width("e\u{301}")], [7, 1]);
        assert_eq!([cut("例え.jp", 7), cut("例え.jp", 6), cut("例え.jp", 4)], ["例え.jp", "例え.…", "例…"]);
        assert_eq!(padded("例え", 6), "例え  ");
    }

    #[test]
    fn parts_that_do_not_fit_are_left_out() {
        let parts = || ["first", "", "second", "third"].map(|part| (part.to_owned(), PLAIN));
        assert_eq!(Line::of_parts(parts(), 20).text(), "first  second  third");
        assert_eq!(Line::of_parts(parts(), 19).text(), "first  second");
        assert_eq!(Line::of_parts(parts(), 2).text(), "first");
    }
}
