//! A line of text that the user edits.

use crate::key::Key;

/// Longest text, characters: the probe takes expressions up to 64 KiB.
const MAX_CHARACTERS: usize = 4096;

/// A line of text, and the place of the cursor.
#[derive(Clone, Debug, Default)]
pub struct Editor {
    characters: Vec<char>,
    cursor: usize,
}

impl Editor {
    /// A text with the cursor behind it.
    pub fn new(text: &str) -> Self {
        let characters: Vec<char> = text.chars().collect();
        Self { cursor: characters.len(), characters }
    }

    /// The text.
    pub fn text(&self) -> String {
        self.characters.iter().collect()
    }

    /// Characters before the cursor.
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Puts the cursor behind this number of characters.
    pub fn place(&mut self, cursor: usize) {
        self.cursor = cursor.min(self.characters.len());
    }

    /// Edits the text.
    pub fn key(&mut self, key: Key) {
        match key {
            Key::Character(character) if !character.is_control() && self.characters.len() < MAX_CHARACTERS => {
                self.characters.insert(self.cursor, character);
                self.cursor += 1;
            }
            Key::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.characters.remove(self.cursor);
            }
            Key::Delete if self.cursor < self.characters.len() => drop(self.characters.remove(self.cursor)),
            Key::ClearLine => *self = Self::default(),
            Key::Left => self.cursor = self.cursor.saturating_sub(1),
            Key::Right => self.place(self.cursor + 1),
            Key::Home => self.cursor = 0,
            Key::End => self.cursor = self.characters.len(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_edited_at_the_cursor() {
        let mut editor = Editor::new("prt 8");
        for key in [Key::Home, Key::Right, Key::Character('o'), Key::End, Key::Character('0'), Key::Character('\u{1b}')]
        {
            editor.key(key);
        }
        assert_eq!((editor.text().as_str(), editor.cursor()), ("port 80", 7));
        for key in [Key::Left, Key::Backspace, Key::Delete, Key::Delete, Key::Right] {
            editor.key(key);
        }
        assert_eq!((editor.text().as_str(), editor.cursor()), ("port ", 5));
        [Key::ClearLine, Key::Backspace, Key::Left].into_iter().for_each(|key| editor.key(key));
        assert_eq!((editor.text().as_str(), editor.cursor()), ("", 0));
    }
}
