//! The report as one HTML page that loads nothing: no font, no other file.
//!
//! Its script sorts and searches the lists. All texts from outside are escaped, and the script
//! writes text only, so names in a capture cannot add elements or scripts.

use crate::connection::Connection;
use crate::connection_table::ConnectionTable;
use crate::group_table::{legend, text_columns};
use crate::report::{CaptureReport, Part};
use crate::text::class_columns;
use crate::time_line::{MAX_TIME_LINES, TimeLines};
use std::fmt::Write as _;
use std::io::{self, Write};
use weir_plot::escape;
use weir_text::columns::Column;

const STYLE: &str = include_str!("page.css");
/// The page is also well-formed XML, so the script has neither `<` nor `&`.
const SCRIPT: &str = include_str!("page.js");
/// The browser loads nothing, whatever the page contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

impl CaptureReport {
    /// Writes the page.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write_html(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width\"/>\n<title>TCP in {0}</title>\n<style>\n{STYLE}</style>\n\
             </head>\n<body>\n<h1>TCP in {0}</h1>\n",
            escape(&self.options.sources.join(", "))
        );
        self.append_findings(&mut page);
        page += "<table class=\"facts\">\n";
        for (name, value) in self.facts() {
            let _ = writeln!(page, "<tr><th class=\"l\">{name}</th><td class=\"l\">{}</td></tr>", escape(&value));
        }
        page += "</table>\n";
        for warning in self.warnings() {
            let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(&warning.text));
        }
        self.append_groups(&mut page);
        for part in Part::ALL {
            self.write_list(part, &mut page, out)?;
        }
        self.write_time_lines(&mut page, out)?;
        for (name, plot) in self.plots() {
            let _ = write!(page, "<figure id=\"{name}\">\n{plot}</figure>\n");
        }
        if self.totals.connections > 0 {
            let classes = class_columns(&self.totals);
            let _ = write!(
                page,
                "<h2>Segments by class</h2>\n<div class=\"wide\">\n<table>\n{}</table>\n</div>\n",
                table_rows(&classes)
            );
        }
        if let Some(comparison) = &self.comparison {
            let _ = write!(
                page,
                "<h2>Comparison with the usual rule</h2>\n<pre>{}</pre>\n",
                escape(&comparison.text(Some(120)))
            );
        }
        let _ = write!(
            page,
            "<p class=\"faint\">Weir {}, analysed on: {}. Terms: <code>weir help tcp-guide</code>.</p>\n\
             <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            env!("CARGO_PKG_VERSION"),
            escape(&self.engine)
        );
        out.write_all(page.as_bytes())
    }

    fn append_findings(&self, page: &mut String) {
        let found = self.found();
        if found.is_empty() {
            return;
        }
        *page += "<h2>Found</h2>\n<ul class=\"found\">\n";
        for (sentence, _) in found {
            let _ = writeln!(page, "<li>{}</li>", escape(&sentence));
        }
        *page += "</ul>\n";
    }

    /// The groups of `--by` and those of failures.
    fn append_groups(&self, page: &mut String) {
        if let Some(grouping) = self.options.grouping {
            let listed = &self.groups[..self.limited(self.groups.len())];
            let columns = text_columns(listed, grouping.by, grouping.order);
            let _ = write!(
                page,
                "<h2>By {}</h2>\n<p class=\"faint\">{}.</p>\n<div class=\"wide\">\n<table class=\"groups\">\n{}</table>\n</div>\n\
                 <p class=\"faint\">{}.</p>\n",
                grouping.by.name(),
                escape(&self.groups_description(grouping)),
                table_rows(&columns),
                escape(&legend(&columns))
            );
        }
        if !self.failure_groups.is_empty() {
            let _ = write!(
                page,
                "<h2>Groups of failed connections</h2>\n<p class=\"faint\">{}.</p>\n<div class=\"wide\">\n<table \
                 class=\"groups\">\n{}</table>\n</div>\n",
                escape(&self.failure_groups_description()),
                table_rows(&self.failure_group_columns())
            );
        }
    }

    /// Writes a list of connections: a row for each, in which the client is above the server.
    fn write_list(&self, part: Part, page: &mut String, out: &mut dyn Write) -> io::Result<()> {
        let listed = self.listed(part);
        if listed.is_empty() {
            return Ok(());
        }
        let title = if part == Part::Failed { "Failed connections" } else { "Connections" };
        let further = self.named(part);
        let table = ConnectionTable::new(&self.connections, listed, &further, part.columns());
        let searched = match self.list_counts(part) {
            (all, listed, _) if listed < all => {
                let rows = listed + further.len() as u64;
                let more = match further.len() {
                    0 => String::new(),
                    1 => " The last row is one more, which \u{201c}Found\u{201d} is about.".into(),
                    number => format!(" The last {number} rows are more, which \u{201c}Found\u{201d} is about."),
                };
                format!("{more} Search and sorting are of these {rows}, not of all {all}.")
            }
            _ => String::new(),
        };
        let _ = write!(
            page,
            "<h2>{title}</h2>\n<p class=\"faint\">{}.{searched} In a cell with two values the upper one is of the client, the lower one of the \
             server.</p>\n<div class=\"wide\">\n<table class=\"list\">\n<thead>\n<tr><th class=\"l\">#</th><th class=\"l\">client, server</th>",
            escape(&self.list_description(part))
        );
        for column in &table.columns {
            let class = if column.is_text { " class=\"l\"" } else { "" };
            let _ =
                write!(page, "<th{class} title=\"{}\">{}</th>", escape(&column.explanation()), escape(column.heading));
        }
        *page += "</tr>\n</thead>\n<tbody>\n";
        for (first, chunk) in table.chunks() {
            for (index, connection) in (first..).zip(chunk) {
                self.append_row(&table, index, connection, page);
            }
            out.write_all(page.as_bytes())?;
            page.clear();
        }
        for index in further {
            self.append_row(&table, index, &self.connections[index], page);
        }
        let _ = write!(page, "</tbody>\n</table>\n</div>\n<p class=\"faint\">{}.</p>\n", escape(&table.legend()));
        Ok(())
    }

    fn append_row(&self, table: &ConnectionTable<'_>, index: usize, connection: &Connection, page: &mut String) {
        let number = connection.number;
        let _ = write!(page, "<tr><td class=\"l\" data-v=\"{number}\">");
        let _ = match self.time_lines.lines.contains_key(&index) {
            true => write!(page, "<a href=\"#t{number}\">{number}</a>"),
            false => write!(page, "{number}"),
        };
        let [client, server] = [connection.client, connection.server].map(|endpoint| escape(&endpoint.to_string()));
        let _ = write!(page, "</td><td class=\"l e\">{client}<br/>{server}</td>");
        for column in &table.columns {
            let (mut texts, mut value) = (Vec::new(), None);
            for cell in column.cells(connection) {
                // Lists of words can be divided.
                texts.push(escape(&cell.text).replace(',', ",<wbr/>"));
                value = cell.value.map_or(value, |n| Some(n.saturating_add(value.unwrap_or(0))));
            }
            let class = if column.is_text { " class=\"l\"" } else { "" };
            let value = value.map_or(String::new(), |value| format!(" data-v=\"{value}\""));
            let _ = write!(page, "<td{class}{value}>{}</td>", texts.join("<br/>"));
        }
        *page += "</tr>\n";
    }

    fn write_time_lines(&self, page: &mut String, out: &mut dyn Write) -> io::Result<()> {
        let TimeLines { lines, missing } = &self.time_lines;
        if lines.is_empty() && missing.is_empty() {
            return Ok(());
        }
        let _ = write!(
            page,
            "<h2>Time lines</h2>\n<p class=\"faint\">Of the first {MAX_TIME_LINES} connections of each list. {missing}</p>\n"
        );
        for (&index, line) in lines {
            let connection = &self.connections[index];
            let outcome = connection.failure().map_or(connection.delay().name(), |failure| failure.name());
            let _ = write!(
                page,
                "<details id=\"t{0}\">\n<summary>#{0} {1}: {outcome}</summary>\n{2}</details>\n",
                connection.number,
                escape(&connection.name()),
                line.plot(connection.number)
            );
            out.write_all(page.as_bytes())?;
            page.clear();
        }
        Ok(())
    }
}

/// The headings and rows of a table.
fn table_rows(columns: &[Column]) -> String {
    let row = |element: &str, text: &dyn Fn(&Column) -> &str| {
        let cell = |column: &Column| format!("<{element}{}>{}</{element}>", alignment(column), escape(text(column)));
        format!("<tr>{}</tr>\n", columns.iter().map(cell).collect::<String>())
    };
    let rows = (0..columns[0].cells.len()).map(|at| row("td", &|column| &column.cells[at]));
    row("th", &|column| &column.heading) + &rows.collect::<String>()
}

fn alignment(column: &Column) -> &'static str {
    if column.right_aligned { "" } else { " class=\"l\"" }
}

#[cfg(test)]
mod tests {
    #[test]
    fn style_and_script_are_text_of_xml_that_loads_nothing() {
        for text in [super::STYLE, super::SCRIPT] {
            for forbidden in ["<", "&", "]]>", "url(", "@import", "http", "fetch", "innerHTML", "eval"] {
                assert!(!text.contains(forbidden), "{forbidden}");
            }
        }
    }
}
