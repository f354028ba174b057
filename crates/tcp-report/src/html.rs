//! The report as one HTML page that loads nothing: no script, no font, no other file.

use crate::connection_table::{ConnectionTable, LEGEND};
use crate::report::CaptureReport;
use crate::text::class_columns;
use std::fmt::Write as _;
use std::io::{self, Write};
use weir_plot::escape;
use weir_text::columns::Column;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#222;--paper:#fff;--line:#ccc;--faint:#666}\
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#16181c;--line:#3a3d44;--faint:#999}}\
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:70em;margin:2em auto;padding:0 1em}\
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:.15em .6em;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\
th.l,td.l{text-align:left}.facts td{white-space:normal}.wide{overflow-x:auto}.faint{color:var(--faint)}\
.note{border-left:3px solid #d55e00;padding-left:.8em}svg{width:100%;max-width:900px;display:block;margin:1em 0}\
.ink{fill:var(--ink)}.grid{stroke:var(--line)}";

impl CaptureReport {
    /// Writes the page.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write_html(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width\"/>\n<title>TCP in {0}</title>\n<style>{STYLE}</style>\n\
             </head>\n<body>\n<h1>TCP in {0}</h1>\n<table class=\"facts\">\n",
            escape(&self.options.sources.join(", "))
        );
        for (name, value) in self.facts() {
            let _ = writeln!(page, "<tr><th class=\"l\">{name}</th><td class=\"l\">{}</td></tr>", escape(&value));
        }
        page += "</table>\n";
        for warning in self.warnings() {
            let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(&warning));
        }
        for (name, plot) in self.plots() {
            let _ = write!(page, "<figure id=\"{name}\">\n{plot}</figure>\n");
        }
        if self.totals.connections > 0 {
            page += "<h2>Connections</h2>\n<div class=\"wide\">\n<table>\n";
            for (number, columns) in ConnectionTable::new(self.listed()).chunks().enumerate() {
                if number == 0 {
                    page += &heading_row(&columns);
                }
                page += &rows(&columns);
                out.write_all(page.as_bytes())?;
                page.clear();
            }
            let _ = write!(
                page,
                "</table>\n</div>\n<p class=\"faint\">{}. {}.</p>\n<h2>Segments by class</h2>\n<table>\n",
                self.list_description(),
                escape(LEGEND)
            );
            let classes = class_columns(&self.totals);
            page += &(heading_row(&classes) + &rows(&classes));
            page += "</table>\n";
        }
        if let Some(comparison) = &self.comparison {
            let _ =
                write!(page, "<h2>Comparison with the usual rule</h2>\n<pre>{}</pre>\n", escape(&comparison.text()));
        }
        let _ = write!(
            page,
            "<p class=\"faint\">Weir {}, analysed on: {}. Terms: docs/tcp.md.</p>\n</body>\n</html>\n",
            env!("CARGO_PKG_VERSION"),
            escape(&self.engine)
        );
        out.write_all(page.as_bytes())
    }
}

fn heading_row(columns: &[Column]) -> String {
    let heading = |column: &Column| format!("<th{}>{}</th>", alignment(column), escape(&column.heading));
    format!("<tr>{}</tr>\n", columns.iter().map(heading).collect::<String>())
}

fn rows(columns: &[Column]) -> String {
    let mut text = String::new();
    for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
        text += "<tr>";
        for column in columns {
            let _ = write!(text, "<td{}>{}</td>", alignment(column), escape(&column.cells[row]));
        }
        text += "</tr>\n";
    }
    text
}

fn alignment(column: &Column) -> &'static str {
    if column.right_aligned { "" } else { " class=\"l\"" }
}
