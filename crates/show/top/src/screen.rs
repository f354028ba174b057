//! The screen: the figures on top, the list, and the keys at the bottom.

use crate::columns::{self, Column};
use crate::line::{HEADING, LOSS, Line, PLAIN, SELECTED, cut, width};
use crate::list::List;
use crate::row::{Row, shown};
use crate::scan;
use crate::state::{Edit, State};
use crate::status;
use crate::table::table;
use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Modifier, Style};
use weir_dpi::printable;
use weir_text::units::{count, span};
use weir_text::zone::Zone;

/// The smallest terminal.
pub const MIN_COLUMNS: u16 = 40;
/// The smallest terminal.
pub const MIN_ROWS: u16 = 12;

/// Lines above the rows: title, figures, lists, what the list is, headings.
const HEAD_LINES: usize = status::LINES + 4;

const HELP: [&str; 17] = [
    "1 to 6          hosts, pairs, servers, applications, flows, failures",
    "s > and S <     sort by the next column, by the one before",
    "/               select flows: an expression as --where (weir help expressions)",
    "                Enter applies it, Esc leaves it, Ctrl-U clears it",
    "arrows, PageUp, PageDown, Home, End",
    "                select a row",
    "Enter           open it: the flows of a group, all fields of a flow",
    "Esc             back",
    "p, space        pause, go on",
    "r               ask now",
    "q, Ctrl-C       end",
    "",
    "bit/s           of a flow: octets between two answers, by their time",
    "≥bit/s          of a group: the same of its current flows. It is a lower bound,",
    "                because the octets of flows that end are no longer in the sum",
    "bytes, packets  of the current records; without a probe, of all stored flows",
    "                Any key closes this text. 'weir help top-guide' has the rest",
];

impl State {
    /// Draws everything.
    pub fn draw(&mut self, buffer: &mut Buffer) {
        let (columns, rows) = (buffer.area.width, buffer.area.height);
        if columns < MIN_COLUMNS || rows < MIN_ROWS {
            put(buffer, 0, &Line::new(format!("needs {MIN_COLUMNS}x{MIN_ROWS}"), PLAIN), PLAIN);
            return;
        }
        let foot = self.foot(columns.into());
        let room = usize::from(rows) - HEAD_LINES - foot.len();
        self.page = room;
        let head = self.head(columns.into());
        let (what, body) = self.body(columns.into(), room);
        for (number, line) in head.iter().chain(&what).enumerate() {
            put(buffer, number, line, PLAIN);
        }
        for (number, (line, style)) in body.iter().enumerate().take(room) {
            put(buffer, HEAD_LINES + number, line, *style);
        }
        for (number, line) in foot.iter().enumerate() {
            put(buffer, HEAD_LINES + room + number, line, PLAIN);
        }
        self.put_cursor(buffer, HEAD_LINES + room);
    }

    /// The place of the cursor, in the filter that is edited.
    fn put_cursor(&self, buffer: &mut Buffer, row: usize) {
        let Some(edit) = &self.edit else { return };
        let shift = shift(edit, buffer.area.width.into());
        let column = (FILTER.len() + edit.columns(shift, edit.editor.cursor())) as u16;
        if let Some(cell) = buffer.cell_mut((column, row as u16)) {
            cell.set_style(Style::new().add_modifier(Modifier::REVERSED));
        }
    }

    /// Title and figures.
    pub(crate) fn head(&self, columns: usize) -> Vec<Line> {
        let time = Zone::current().date_and_second(self.clock_ns).1;
        let every = if self.is_live() { format!("every {}", self.interval()) } else { "stored flows".into() };
        let parts = [
            ("weir top".to_owned(), HEADING),
            (if self.is_paused { "PAUSED".into() } else { String::new() }, LOSS),
            (if self.is_old() { "OLD".into() } else { String::new() }, LOSS),
            (cut(&printable(&self.settings.target), columns.saturating_sub(20)), PLAIN),
            (if self.clock_ns > 0 { format!("{time} {}", Zone::current().name()) } else { String::new() }, PLAIN),
            (every, PLAIN),
        ];
        let figures = if self.is_live() {
            status::of_probe(self.status.as_ref(), columns)
        } else {
            let listing = self.listing();
            let flows =
                listing.is_answered.then_some([listing.matching + scan::flows(&listing.scans), listing.searched]);
            status::of_view(&self.about, flows, columns)
        };
        [Line::of_parts(parts, columns)].into_iter().chain(figures).collect()
    }

    /// The names of the lists, what is listed, headings; and the rows.
    fn body(&mut self, columns: usize, room: usize) -> (Vec<Line>, Vec<(Line, Style)>) {
        let lists = self.lists(columns);
        if self.is_help {
            let help = HELP.iter().map(|line| (Line::new(*line, PLAIN), PLAIN)).collect();
            return (vec![lists, Line::default(), Line::new("Keys and figures", HEADING)], help);
        }
        if let Some(detail) = &mut self.detail {
            let lines = detail.lines(&self.meanings, columns);
            detail.first = detail.first.min(lines.len().saturating_sub(room));
            let what = vec![lists, Line::default(), Line::new(cut(&detail.title, columns), HEADING)];
            let shown = lines.into_iter().skip(detail.first).map(|line| (line, PLAIN));
            return (what, shown.collect());
        }
        let (selected, first) = {
            let listing = self.listing();
            let first = listing.first.clamp((listing.selected + 1).saturating_sub(room), listing.selected);
            (listing.selected, first.min(listing.rows.len().saturating_sub(room)))
        };
        self.set_first(first);
        let shown: Vec<Row> = self.listing().rows.iter().skip(first).take(room).cloned().collect();
        let (head, rows) = self.rows(&shown, columns);
        let style = |number: usize| if first + number == selected { SELECTED } else { PLAIN };
        let rows = rows.into_iter().enumerate().map(|(number, line)| (line, style(number))).collect();
        (vec![lists, self.what(columns), head], rows)
    }

    fn set_first(&mut self, first: usize) {
        self.group.as_mut().unwrap_or(&mut self.base).first = first;
    }

    /// Headings, and a line for each row.
    pub(crate) fn rows(&self, rows: &[Row], columns: usize) -> (Line, Vec<Line>) {
        let listing = self.listing();
        let table = table(&self.columns(), rows, &listing.sort, self.has_dates(), columns);
        let lines = table.rows.into_iter().map(|row| Line::new(row, PLAIN)).collect();
        (Line::new(table.head, HEADING), lines)
    }

    /// The columns of the list.
    fn columns(&self) -> Vec<Column> {
        let columns = columns::columns(self.listing().list, self.is_live());
        if self.settings.names && self.listing().list != List::Applications {
            columns::with_names(columns)
        } else {
            columns
        }
    }

    fn lists(&self, columns: usize) -> Line {
        let name = |list: List| {
            let is_shown = list == self.base.list;
            let text = format!("{} {}", list.number(), list.name());
            if is_shown { (format!("[{text}]"), HEADING) } else { (text, PLAIN) }
        };
        let whole = Line::of_parts(List::ALL.map(name), usize::MAX);
        if width(&whole.text()) <= columns {
            return whole;
        }
        let short = |list: List| if list == self.base.list { name(list) } else { (list.number().to_string(), PLAIN) };
        Line::of_parts(List::ALL.map(short), columns)
    }

    /// What the list is, how many flows there are, and the filter.
    pub(crate) fn what(&self, columns: usize) -> Line {
        let listing = self.listing();
        let of_group = listing.group.as_ref().map(|(title, _)| format!("flows of {title}"));
        let what = match (listing.list, self.is_live()) {
            (List::Failures, _) if listing.is_answered => self.failures(),
            _ if of_group.is_some() => of_group.unwrap_or_default(),
            (List::Flows, true) => "current flows".into(),
            (List::Flows, false) => "stored flows".into(),
            (List::Failures, _) => "failed flows".into(),
            (_, true) => "sums of current flows; ≥bit/s: at least, since the last answer".into(),
            (_, false) => "sums of stored flows: totals, no rates".into(),
        };
        let filter =
            if self.filter.trim().is_empty() { String::new() } else { format!("where {}", printable(&self.filter)) };
        let number = match (listing.is_answered, listing.list) {
            (false, _) => "asking …".into(),
            (_, List::Failures) => String::new(),
            _ => format!("{} match", listing.matching),
        };
        let part = match (listing.is_answered, listing.problems.is_empty()) {
            (true, false) => "damaged: this is what could be read",
            (true, true) if !self.is_complete() => "not all were read in time",
            _ => "",
        };
        let room = columns.saturating_sub(24);
        let parts = [(cut(&filter, room), HEADING), (what, PLAIN), (part.into(), LOSS), (number, PLAIN)];
        Line::of_parts(parts, columns)
    }

    /// Which failures are listed, and how many there are. Those of scans are in no other number.
    fn failures(&self) -> String {
        let listing = self.listing();
        let what = listing.group.as_ref().map_or_else(|| "failed".into(), |(title, _)| title.clone());
        let scans = match listing.scans.len() {
            0 => String::new(),
            number => format!(", {} in {}", scan::flows(&listing.scans), count(number as u64, "scan")),
        };
        match (self.is_live(), listing.matching_ended) {
            (true, Some(ended)) => {
                format!("{what}: {} current; of the last 15 min: {ended} stored{scans}", listing.matching)
            }
            (true, None) => format!("{what}: {} current{scans}", listing.matching),
            (false, _) => format!("{what}: {} stored{scans}", listing.matching),
        }
    }

    /// A message, and the keys; or the filter that is edited.
    fn foot(&self, columns: usize) -> Vec<Line> {
        if let Some(edit) = &self.edit {
            return edit_lines(edit, columns);
        }
        let keys = if self.detail.is_some() {
            "Esc back  arrows scroll  p pause  ? help  q end"
        } else if self.group.is_some() {
            "Esc back  s/S sort  / filter  Enter open  p pause  ? help  q end"
        } else {
            "1-6 list  s/S sort  / filter  Enter open  p pause  ? help  q end"
        };
        let keys = keys.split("  ").map(|key| (key.to_owned(), PLAIN));
        vec![self.message(columns), Line::of_parts(keys, columns)]
    }

    /// Whether the figures are those of an earlier time.
    fn is_old(&self) -> bool {
        self.away.is_some() || self.is_live() && self.silence_ns.is_some()
    }

    /// What is wrong, or else the columns that do not fit.
    pub(crate) fn message(&self, columns: usize) -> Line {
        let loss = |text: &str| Line::new(cut(text, columns), LOSS);
        let silence = self.silence_ns.map(|ns| format!(" for {}", seconds(ns))).unwrap_or_default();
        match &self.away {
            Some(reason) => return loss(&format!("no answer{silence}, trying again: {reason}")),
            // Files may take their time.
            None if !silence.is_empty() && !self.is_live() => return Line::new(format!("reading{silence}"), PLAIN),
            None if !silence.is_empty() => return loss(&format!("no answer{silence}: all figures are older")),
            None => {}
        }
        if let Some(refusal) = &self.refusal {
            return loss(refusal);
        }
        let reasons = self.status.as_ref().and_then(|status| status["not_ready"].as_array());
        let reasons: Vec<String> = reasons.into_iter().flatten().map(shown).collect();
        if !reasons.is_empty() {
            return loss(&format!("not ready: {}", reasons.join("; ")));
        }
        if let [problem, others @ ..] = self.listing().problems.as_slice() {
            let more = match others.len() {
                0 => String::new(),
                1 => "; 1 more is damaged".into(),
                number => format!("; {number} more are damaged"),
            };
            let room = columns.saturating_sub(width(&more));
            return loss(&(cut(problem, room) + &more));
        }
        if !self.note.is_empty() {
            return loss(&self.note);
        }
        if self.detail.is_some() || self.is_help {
            return Line::default();
        }
        let listing = self.listing();
        if let Some(why) = &listing.no_names {
            return loss(&format!("no names: {why}"));
        }
        let left_out = table(&self.columns(), &listing.rows, &listing.sort, self.has_dates(), columns).left_out;
        if left_out.is_empty() {
            return Line::default();
        }
        Line::new(cut(&format!("too narrow for: {}", left_out.join(", ")), columns), PLAIN)
    }
}

/// A time in whole seconds, a long one in its largest units.
fn seconds(ns: u64) -> String {
    if ns < 120_000_000_000 { format!("{} s", ns / 1_000_000_000) } else { span(ns) }
}

/// Before the filter that is edited.
const FILTER: &str = "where: ";

/// Characters of the filter at the left that are not shown, so that the cursor is.
fn shift(edit: &Edit, columns: usize) -> usize {
    let (cursor, room) = (edit.editor.cursor(), columns.saturating_sub(FILTER.len() + 1));
    (0..cursor).find(|&shift| edit.columns(shift, cursor) <= room).unwrap_or(cursor)
}

fn edit_lines(edit: &Edit, columns: usize) -> Vec<Line> {
    let shift = shift(edit, columns);
    let text: String = edit.text().chars().skip(shift).collect();
    let filter = Line(vec![(FILTER.into(), HEADING), (text, PLAIN)]);
    let Some((sentence, place)) = &edit.error else {
        return vec![filter, Line::new("Enter apply  Esc cancel  Ctrl-U clear", PLAIN)];
    };
    let marks = place.map(|(before, length)| {
        let before = before.max(shift);
        " ".repeat(FILTER.len() + edit.columns(shift, before))
            + &"^".repeat(edit.columns(before, before + length).max(1))
    });
    vec![filter, Line::new(marks.unwrap_or_default(), LOSS), Line::new(cut(sentence, columns), LOSS)]
}

fn put(buffer: &mut Buffer, row: usize, line: &Line, style: Style) {
    let (width, row) = (buffer.area.width, row as u16);
    let mut column = 0;
    for (text, own) in &line.0 {
        let left = usize::from(width.saturating_sub(column));
        column = buffer.set_stringn(column, row, text, left, own.patch(style)).0;
    }
    if style == SELECTED {
        buffer.set_style(ratatui_core::layout::Rect::new(0, row, width, 1), style);
    }
}
