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

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn lines_are_broken_between_words_only() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one extraordinarily two", 7), ["one", "extraordinarily", "two"]);
        assert_eq!(wrap("", 7), [""]);
    }
}
