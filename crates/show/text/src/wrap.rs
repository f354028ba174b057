/// Breaks a text between words into lines of at most `columns` characters; a longer word has a line
/// of its own.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut width = 0;
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        if width > 0 && width + 1 + letters > columns {
            lines.push(String::new());
            width = 0;
        }
        let line = lines.last_mut().expect("there is a line from the beginning");
        if width > 0 {
            line.push(' ');
            width += 1;
        }
        line.push_str(word);
        width += letters;
    }
    lines
}

/// A text behind a prefix, broken into lines of at most `columns` characters. Lines after the first are
/// indented by the length of the prefix.
pub fn paragraph(prefix: &str, text: &str, columns: Option<usize>) -> String {
    /// Characters of the text in each line, at least.
    const LEAST: usize = 20;
    let width = prefix.chars().count();
    let lines = wrap(text, columns.map_or(usize::MAX, |columns| columns.saturating_sub(width).max(LEAST)));
    format!("{prefix}{}\n", lines.join(&format!("\n{:width$}", "")))
}

#[cfg(test)]
mod tests {
    use super::{paragraph, wrap};

    #[test]
    fn lines_are_broken_between_words_only() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one extraordinarily two", 7), ["one", "extraordinarily", "two"]);
        assert_eq!(wrap("", 7), [""]);
    }

    #[test]
    fn lines_of_a_paragraph_are_indented_by_its_prefix() {
        assert_eq!(
            paragraph("note: ", "one two three four five six", Some(26)),
            "note: one two three four\n      five six\n"
        );
        assert_eq!(paragraph("note: ", "one two", None), "note: one two\n");
        assert_eq!(paragraph("", "", Some(0)), "\n");
    }
}
