//! The screen as plain text, for scripts.

use crate::line::{Line, PLAIN};
use crate::state::State;

impl State {
    /// Figures, headings and all rows as text of this width, without keys. What is wrong with files is not cut.
    pub fn page(&self, columns: usize) -> String {
        let listing = self.listing();
        let (head, rows) = self.rows(&listing.rows, columns);
        let mut lines = self.head(columns);
        lines.extend([self.what(columns), head]);
        lines.extend(rows);
        lines.extend(listing.problems.iter().map(|problem| Line::new(problem, PLAIN)));
        if listing.problems.is_empty() {
            lines.extend(Some(self.message(columns)).filter(|line| !line.text().is_empty()));
        }
        lines.iter().map(|line| line.text().trim_end().to_owned() + "\n").collect()
    }
}
