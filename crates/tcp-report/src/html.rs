//! The report as one page that needs nothing else: no script, no font, no other file.

use crate::connection_table::List;
use crate::plots::plots;
use crate::report::CaptureReport;
use crate::text::{LEGEND, fact_lines};
use crate::totals::percent;
use std::fmt::Write as _;
use std::io::{self, Write};
use weir_plot::escape;
use weir_tcp::SegmentClass;
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

/// The page. The list is written some connections at a time.
pub fn html(report: &CaptureReport, out: &mut dyn Write) -> io::Result<()> {
    let sources = report.sources.join(", ");
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width\"/>\n<title>TCP in {0}</title>\n<style>{STYLE}</style>\n\
         </head>\n<body>\n<h1>TCP in {0}</h1>\n",
        escape(&sources)
    );
    page += "<table class=\"facts\">\n";
    for (name, value) in fact_lines(report) {
        let _ = writeln!(page, "<tr><th class=\"l\">{name}</th><td class=\"l\">{}</td></tr>", escape(&value));
    }
    page += "</table>\n";
    for warning in report.warnings() {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(&warning));
    }
    for (name, plot) in plots(report) {
        let _ = write!(page, "<figure id=\"{name}\">\n{plot}</figure>\n");
    }
    if report.totals.connections > 0 {
        page += "<h2>Connections</h2>\n<div class=\"wide\">\n";
        page += "<table>\n";
        for (at, columns) in List::of(report.listed()).pieces().enumerate() {
            if at == 0 {
                page += &headings(&columns);
            }
            page += &rows(&columns);
            out.write_all(page.as_bytes())?;
            page.clear();
        }
        page += "</table>\n";
        let last = match report.min_packets {
            0..=1 => String::new(),
            fewest => format!("; those of fewer than {fewest} packets come last"),
        };
        let _ = write!(
            page,
            "</div>\n<p class=\"faint\">{} of {} connections, by {}{last}. {}.</p>\n",
            report.listed().len(),
            report.totals.connections,
            report.sort.description(),
            escape(LEGEND)
        );
        page += "<h2>Segments by class</h2>\n";
        page += &classes(report);
    }
    if let Some(comparison) = &report.comparison {
        let _ = write!(page, "<h2>Another rule</h2>\n<pre>{}</pre>\n", escape(&comparison.text()));
    }
    let _ = write!(
        page,
        "<p class=\"faint\">weir {}, on the {}. Terms are those of its docs/tcp.md.</p>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        escape(&report.engine)
    );
    out.write_all(page.as_bytes())
}

fn side(column: &Column) -> &'static str {
    if column.to_the_right { "" } else { " class=\"l\"" }
}

fn headings(columns: &[Column]) -> String {
    let heading = |column: &Column| format!("<th{}>{}</th>", side(column), escape(&column.heading));
    format!("<tr>{}</tr>\n", columns.iter().map(heading).collect::<String>())
}

fn rows(columns: &[Column]) -> String {
    let mut text = String::new();
    for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
        text += "<tr>";
        for column in columns {
            let _ = write!(text, "<td{}>{}</td>", side(column), escape(&column.cells[row]));
        }
        text += "</tr>\n";
    }
    text
}

fn classes(report: &CaptureReport) -> String {
    let totals = &report.totals;
    let mut text = String::from(
        "<table>\n<tr><th class=\"l\">class</th><th>packets</th><th>share</th><th>octets of payload</th><th>share</th></tr>\n",
    );
    for class in SegmentClass::ALL {
        let count = totals.of_class(class);
        if count.segments > 0 {
            let _ = writeln!(
                text,
                "<tr><td class=\"l\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                class.name(),
                count.segments,
                escape(&percent(count.segments, totals.packets)),
                count.bytes,
                escape(&percent(count.bytes, totals.payload_bytes))
            );
        }
    }
    text + "</table>\n"
}
