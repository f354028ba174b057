//! Rows as lines of a width: which columns fit, and where they are cut.

use crate::columns::{self, Column, Kind};
use crate::line::{cut, padded, width as width_of};
use crate::row::Row;
use weir_text::zone::Zone;

/// Fewest columns of a text that is cut.
const MIN_TEXT: usize = 15;
/// Most columns of a text beside the key.
const MAX_TEXT: usize = 60;

/// A table.
pub struct Table {
    /// The headings.
    pub head: String,
    /// A line for each row.
    pub rows: Vec<String>,
    /// Headings of the columns that do not fit.
    pub left_out: Vec<String>,
}

struct Cells<'a> {
    column: &'a Column,
    heading: String,
    cells: Vec<String>,
    /// Columns of the longest cell.
    natural: usize,
    width: usize,
    is_shown: bool,
}

/// Lays out rows. Where one column does not fit, those of a higher rank are left out, too. The column that they are sorted by stays, and its heading is marked.
/// `has_dates`: times have their dates.
pub fn table(columns: &[Column], rows: &[Row], sort: &str, has_dates: bool, width: usize) -> Table {
    let mut all: Vec<Cells> = columns.iter().map(|column| cells(column, rows, sort, has_dates, width)).collect();
    let is_needed = |column: &Column| column.rank == 0 || column.sort == columns::order(sort).0;
    let (mut used, mut is_full) = (0, false);
    let mut by_rank: Vec<usize> = (0..all.len()).collect();
    by_rank.sort_by_key(|&at| (!is_needed(all[at].column), all[at].column.rank));
    for at in by_rank {
        let with_column = used + usize::from(used > 0) + all[at].width;
        is_full |= with_column > width;
        if is_needed(all[at].column) || !is_full {
            all[at].is_shown = true;
            used = with_column;
        }
    }
    widen(&mut all, width, used);
    let line = |cell: &dyn Fn(&Cells) -> String| {
        let shown = all.iter().filter(|cells| cells.is_shown);
        let cells = shown.map(|cells| aligned(cells, &cell(cells))).collect::<Vec<_>>();
        cut(cells.join(" ").trim_end(), width)
    };
    Table {
        head: line(&|cells| cells.heading.clone()),
        rows: (0..rows.len()).map(|row| line(&|cells| cells.cells[row].clone())).collect(),
        left_out: all.iter().filter(|cells| !cells.is_shown).map(|cells| columns::heading(cells.column)).collect(),
    }
}

fn cells<'a>(column: &'a Column, rows: &[Row], sort: &str, has_dates: bool, width: usize) -> Cells<'a> {
    let mark = match columns::order(sort) {
        (name, is_ascending) if !name.is_empty() && column.sort == name => {
            if is_ascending {
                "▲"
            } else {
                "▼"
            }
        }
        _ => "",
    };
    let heading = format!("{}{mark}", columns::heading(column));
    let cell = |row: &Row| match column.kind {
        Kind::Time => time(&(column.cell)(row), has_dates),
        _ => (column.cell)(row),
    };
    let cells: Vec<String> = rows.iter().map(cell).collect();
    let natural = cells.iter().chain([&heading]).map(|text| width_of(text)).max().unwrap_or_default();
    let least = match column.kind {
        // An IPv6 address fits half of 80 characters.
        Kind::Key => natural.min(width / 2),
        Kind::Text => natural.min(MIN_TEXT),
        Kind::Figure | Kind::Time => natural,
    };
    Cells { column, heading, cells, natural, width: least, is_shown: false }
}

/// Gives columns that are cut the space that is left, the key first; or takes from it what the others need.
fn widen(all: &mut [Cells], width: usize, used: usize) {
    let mut left = width.saturating_sub(used);
    let mut missing = used.saturating_sub(width);
    for kind in [Kind::Key, Kind::Text] {
        for cells in all.iter_mut().filter(|cells| cells.is_shown && cells.column.kind == kind) {
            let natural = if kind == Kind::Text { cells.natural.min(MAX_TEXT) } else { cells.natural };
            let more = natural.saturating_sub(cells.width).min(left);
            left -= more;
            let less = missing.min(cells.width.saturating_sub(MIN_TEXT));
            missing -= less;
            cells.width = cells.width + more - less;
        }
    }
}

fn aligned(cells: &Cells, text: &str) -> String {
    let text = cut(text, cells.width);
    match cells.column.kind {
        Kind::Key | Kind::Text => padded(&text, cells.width),
        Kind::Figure | Kind::Time => " ".repeat(cells.width.saturating_sub(width_of(&text))) + &text,
    }
}

/// A time in RFC 3339 as date, if it is wanted, and time of day to the millisecond, in the zone of the user.
fn time(text: &str, has_date: bool) -> String {
    if Zone::current().name() != "UTC"
        && let Ok(ns) = Zone::UTC.parse(text)
    {
        let (date, time) = Zone::current().date_and_time(ns);
        return if has_date { format!("{date} {time}") } else { time };
    }
    match (text.get(..10), text.get(11..23)) {
        (Some(date), Some(time)) if has_date => format!("{date} {time}"),
        (_, Some(time)) => time.into(),
        _ => text.into(),
    }
}
