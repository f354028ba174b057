//! Aligned columns: a table as lines of text, folded where the terminal is too narrow.

/// One column of a table.
pub struct Column {
    /// The heading.
    pub heading: String,
    /// Whether heading and cells are aligned at the right, else at the left.
    pub right_aligned: bool,
    /// One cell per row.
    pub cells: Vec<String>,
    width: usize,
    /// What the note about columns that do not fit calls it, if not by its heading.
    name: Option<&'static str>,
    /// Columns of a higher rank are left out first; those of rank 0 never.
    rank: u16,
}

impl Column {
    /// Creates a column from its cells.
    pub fn new(heading: impl Into<String>, right_aligned: bool, cells: impl Iterator<Item = String>) -> Self {
        let (heading, cells) = (heading.into(), Vec::from_iter(cells));
        let width = cells.iter().chain([&heading]).map(|text| text.chars().count()).max().unwrap_or(0);
        Self { heading, right_aligned, cells, width, name: None, rank: 0 }
    }

    /// Lets [`fit`] leave the column out, before those of a lower rank.
    #[must_use]
    pub fn optional(self, rank: u16) -> Self {
        Self { rank, ..self }
    }

    /// Forbids [`fit`] to leave the column out.
    pub fn require(&mut self) {
        self.rank = 0;
    }

    /// Gives a column whose heading is no name one for the note about columns that do not fit.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Whether any cell has text.
    pub fn has_content(&self) -> bool {
        self.cells.iter().any(|cell| !cell.is_empty())
    }

    /// Characters of the longest cell, or of the heading.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Widens the column to at least this many characters, those of another part of the same table.
    #[must_use]
    pub fn widened(self, width: usize) -> Self {
        Self { width: self.width.max(width), ..self }
    }
}

/// Leaves out optional columns that do not fit the terminal beside those of a lower rank, and returns
/// a line that names them. If the others alone do not fit, the rows have to be folded, and no column
/// is left out.
pub fn fit(columns: &mut Vec<Column>, terminal_columns: Option<usize>) -> String {
    /// Columns that the line names.
    const NAMED: usize = 8;
    let Some(limit) = terminal_columns else { return String::new() };
    let mut width = row_width(columns.iter().filter(|column| column.rank == 0));
    if width > limit {
        return String::new();
    }
    let mut by_rank: Vec<usize> = (0..columns.len()).filter(|&at| columns[at].rank > 0).collect();
    by_rank.sort_by_key(|&at| columns[at].rank);
    let mut left_out = Vec::new();
    for at in by_rank {
        let with_column = width + usize::from(width > 0) + columns[at].width;
        if with_column <= limit { width = with_column } else { left_out.push(at) }
    }
    let name = |&at: &usize| columns[at].name.unwrap_or(&columns[at].heading);
    let names: Vec<&str> = left_out.iter().rev().map(name).collect();
    let text = match names.len() {
        0 => return String::new(),
        1..=NAMED => format!("left out to fit the terminal: {}\n", names.join(", ")),
        n => {
            format!("left out to fit the terminal: {n} columns: {} and {} more\n", names[..NAMED].join(", "), n - NAMED)
        }
    };
    let mut at = 0..;
    columns.retain(|_| at.next().is_some_and(|at| !left_out.contains(&at)));
    text
}

/// Characters of a row with these columns.
fn row_width<'a>(columns: impl Iterator<Item = &'a Column>) -> usize {
    columns.map(|column| column.width + 1).sum::<usize>().saturating_sub(1)
}

/// Before each continuation line of a folded row.
const INDENT: &str = "    ";

/// Returns the headings and all rows as one text. See [`rows`].
pub fn lines(columns: &[Column], first_columns: usize, terminal_columns: Option<usize>) -> String {
    rows(columns, first_columns, terminal_columns).concat()
}

/// Returns the headings, then each row. If rows do not fit the terminal, all are folded: the
/// `first_columns` are on a line of their own, the others follow on lines of their own.
pub fn rows(columns: &[Column], first_columns: usize, terminal_columns: Option<usize>) -> Vec<String> {
    let Some(limit) = terminal_columns.filter(|&limit| row_width(columns.iter()) > limit) else {
        return aligned(columns, "");
    };
    let (first, mut rest) = columns.split_at(first_columns);
    let mut parts = vec![aligned(first, "")];
    while !rest.is_empty() {
        let mut width = INDENT.len();
        let fits = rest.iter().take_while(|column| {
            width += column.width + 1;
            width <= limit + 1
        });
        let (part, remaining) = rest.split_at(fits.count().max(1));
        parts.push(aligned(part, INDENT));
        rest = remaining;
    }
    (0..parts[0].len()).map(|row| parts.iter().map(|part| part[row].as_str()).collect()).collect()
}

/// The headings and each row of columns that fit, each as one line.
fn aligned(columns: &[Column], indent: &str) -> Vec<String> {
    let line = |text: &dyn Fn(&Column) -> &str| {
        let mut line = indent.to_string();
        for column in columns {
            let (text, width) = (text(column), column.width);
            line += &if column.right_aligned { format!("{text:>width$} ") } else { format!("{text:<width$} ") };
        }
        line.trim_end().to_string() + "\n"
    };
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let headings = line(&|column| &column.heading);
    std::iter::once(headings).chain((0..rows).map(|row| line(&|column| &column.cells[row]))).collect()
}
