//! Aligned columns: a table as lines of text, folded where the terminal is too narrow.

/// One column: a heading and a cell per row.
pub struct Column {
    /// The heading.
    pub heading: String,
    /// Aligned at the right, else at the left.
    pub to_the_right: bool,
    /// One cell per row.
    pub cells: Vec<String>,
    width: usize,
}

impl Column {
    /// From its cells, which stand at the right or at the left.
    pub fn new(heading: impl Into<String>, to_the_right: bool, cells: impl Iterator<Item = String>) -> Self {
        let (heading, cells) = (heading.into(), Vec::from_iter(cells));
        let width = cells.iter().chain([&heading]).map(|text| text.chars().count()).max().unwrap_or(0);
        Self { heading, to_the_right, cells, width }
    }

    /// Whether any cell says something.
    pub fn says_something(&self) -> bool {
        self.cells.iter().any(|cell| !cell.is_empty())
    }

    /// Letters of the longest cell, or of the heading.
    pub fn width(&self) -> usize {
        self.width
    }

    /// With room for more letters, as another piece of the same table has them.
    pub fn widened(self, width: usize) -> Self {
        Self { width: self.width.max(width), ..self }
    }
}

/// What stands before a line that goes on.
const INDENT: &str = "    ";

/// Columns as lines, with their headings. Lines that do not fit the terminal are folded: who, and how much in as many
/// lines as that takes.
pub fn lines(columns: &[Column], who: usize, terminal_columns: Option<usize>) -> String {
    rows(columns, who, terminal_columns).concat()
}

/// The same line by line: first the headings.
pub fn rows(columns: &[Column], who: usize, terminal_columns: Option<usize>) -> Vec<String> {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let lines = |columns: &[Column], indent: &str| -> Vec<String> {
        let line = |cell: &dyn Fn(&Column) -> String| {
            let mut line = indent.to_string();
            for column in columns {
                let (text, width) = (cell(column), column.width);
                line += &if column.to_the_right { format!("{text:>width$} ") } else { format!("{text:<width$} ") };
            }
            line.trim_end().to_string() + "\n"
        };
        let heading = line(&|column| column.heading.clone());
        std::iter::once(heading).chain((0..rows).map(|row| line(&|column| column.cells[row].clone()))).collect()
    };
    let width = columns.iter().map(|column| column.width + 1).sum::<usize>().saturating_sub(1);
    if terminal_columns.is_some_and(|limit| width > limit) {
        let (who, mut how_much) = columns.split_at(who);
        let mut parts = vec![lines(who, "")];
        while !how_much.is_empty() {
            let mut width = INDENT.len();
            let fits = how_much.iter().take_while(|column| {
                width += column.width + 1;
                terminal_columns.is_none_or(|limit| width <= limit + 1)
            });
            let (part, rest) = how_much.split_at(fits.count().max(1));
            parts.push(lines(part, INDENT));
            how_much = rest;
        }
        (0..=rows).map(|row| parts.iter().map(|part| part[row].as_str()).collect()).collect()
    } else {
        lines(columns, "")
    }
}
