//! Text of others for a terminal: nothing in it moves the cursor or changes the order of letters.

/// Replaces control characters, and those that change the direction of text or end a line (U+202E,
/// U+2028 and the like), by U+FFFD.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if is_printable(letter) { letter } else { '\u{fffd}' }).collect()
}

/// Whether a character is one of those that [`printable`] leaves.
pub fn is_printable(letter: char) -> bool {
    let is_format = matches!(letter,
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    !letter.is_control() && !is_format
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_replaced_and_letters_stay() {
        assert_eq!(
            printable("a\x1b[31m\nb\u{9b}c\u{202e}d\u{2066}e"),
            "a\u{fffd}[31m\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e"
        );
        let text = "Überwachung – ネット \u{5e9}\u{5dc}\u{5d5}\u{5dd}";
        assert_eq!(printable(text), text);
    }
}
