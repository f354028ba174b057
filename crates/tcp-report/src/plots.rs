//! Plots as SVG, by hand: plain shapes and text that stand on a page as well as in a file of their own.

use crate::connection::{Connection, payload};
use crate::histogram::{self, Histogram};
use crate::report::CaptureReport;
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 720.0;
/// Colours that people who see colours differently tell apart (Okabe and Ito, 2008).
const COLOURS: [&str; 2] = ["#0072b2", "#d55e00"];

/// The plots of a run: a name, and the SVG.
pub fn plots(report: &CaptureReport) -> Vec<(&'static str, String)> {
    let mut plots = Vec::new();
    if let Some(shares) = histogram::retransmitted(&report.connections, report.min_packets) {
        plots.push(("retransmitted", bars(&shares)));
    }
    if let Some(times) = histogram::round_trips(&report.totals) {
        plots.push(("round-trips", bars(&times)));
    }
    if let Some(plot) = scatter(&report.connections) {
        plots.push(("sizes", plot));
    }
    plots
}

/// As a file of its own.
pub fn standalone(plot: &str) -> String {
    let paper = "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>";
    plot.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1).replacen(">\n", &format!(">\n{paper}\n"), 1)
}

/// For text and attributes of HTML and SVG.
pub fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, letter| {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // What no XML may hold.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
        out
    })
}

fn begin(height: f64, title: &str) -> String {
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n\
         <title>{}</title>\n",
        escaped(title)
    );
    words(&mut svg, 8.0, 20.0, "font-size=\"14\" font-weight=\"bold\"", title);
    svg
}

fn words(svg: &mut String, x: f64, y: f64, style: &str, text: &str) {
    let _ =
        writeln!(svg, "<text class=\"ink\" fill=\"#222\" x=\"{x:.1}\" y=\"{y:.1}\" {style}>{}</text>", escaped(text));
}

fn line(svg: &mut String, [x0, y0, x1, y1]: [f64; 4]) {
    let _ = writeln!(
        svg,
        "<line class=\"grid\" stroke=\"#ccc\" x1=\"{x0:.1}\" y1=\"{y0:.1}\" x2=\"{x1:.1}\" y2=\"{y1:.1}\"/>"
    );
}

/// A bar for each step and series, with its number.
fn bars(histogram: &Histogram) -> String {
    const BAR: f64 = 15.0;
    let (left, top) = (110.0, 50.0);
    let row = BAR * histogram.series.len() as f64 + 8.0;
    let mut svg = begin(top + row * histogram.steps.len() as f64 + 8.0, &histogram.title);
    let mut x = left;
    words(&mut svg, 8.0, 40.0, "", histogram.axis);
    if histogram.series.len() > 1 {
        x += 60.0;
        for ((name, _), colour) in histogram.series.iter().zip(COLOURS) {
            let _ = writeln!(svg, "<rect x=\"{x:.1}\" y=\"30\" width=\"10\" height=\"10\" fill=\"{colour}\"/>");
            words(&mut svg, x + 15.0, 40.0, "", name);
            x += 110.0;
        }
    }
    let scale = (WIDTH - left - 80.0) / histogram.most().max(1) as f64;
    for (at, step) in histogram.steps.iter().enumerate() {
        let y = top + row * at as f64;
        words(&mut svg, left - 8.0, y + row / 2.0, "text-anchor=\"end\"", step);
        for (number, ((_, counts), colour)) in histogram.series.iter().zip(COLOURS).enumerate() {
            let (y, count) = (y + BAR * number as f64, counts[at]);
            let width = if count == 0 { 0.0 } else { (count as f64 * scale).max(1.0) };
            let height = BAR - 2.0;
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{colour}\"/>"
            );
            if count > 0 {
                words(&mut svg, left + width + 5.0, y + BAR - 4.0, "font-size=\"11\"", &count.to_string());
            }
        }
    }
    svg + "</svg>\n"
}

/// Size and share of segments sent again of every connection, both axes logarithmic. Connections that lie together are
/// one larger circle, so that there are never more than some thousand. `None` if none has payload.
fn scatter(connections: &[Connection]) -> Option<String> {
    const CELL: f64 = 5.0;
    const LEAST_SHARE: f64 = 1e-4;
    let [left, top, right, bottom] = [70.0, 40.0, WIDTH - 16.0, 330.0];
    let octets = |connection: &Connection| connection.both(payload);
    let most = connections.iter().map(octets).max().filter(|&most| most > 0)?;
    let powers = (most as f64).log10().ceil().max(1.0);
    let mut svg = begin(bottom + 46.0, "Size and share of segments sent again, by connection");
    words(&mut svg, f64::midpoint(left, right), bottom + 36.0, "text-anchor=\"middle\"", "octets of payload");
    for power in 0..=powers as u32 {
        let x = left + (right - left) * f64::from(power) / powers;
        line(&mut svg, [x, top, x, bottom]);
        let label = match power {
            0 => "0, 1".into(),
            _ => weir_text::units::short(10_u64.saturating_pow(power)).replace(".00", "").replace(".0", ""),
        };
        words(&mut svg, x, bottom + 18.0, "text-anchor=\"middle\"", &label);
    }
    // A place below the smallest share is for none at all.
    let none = bottom - 12.0;
    let height = |share: f64| {
        let up = (share.max(LEAST_SHARE) / LEAST_SHARE).log10() / -LEAST_SHARE.log10();
        none - 24.0 - (none - 24.0 - top) * up
    };
    for (y, label) in [(none, "none"), (height(1e-4), "0.01 %"), (height(1e-3), "0.1 %"), (height(0.01), "1 %")]
        .into_iter()
        .chain([(height(0.1), "10 %"), (height(1.0), "100 %")])
    {
        line(&mut svg, [left, y, right, y]);
        words(&mut svg, left - 6.0, y + 4.0, "text-anchor=\"end\"", label);
    }
    let mut cells: BTreeMap<(u32, u32), (u64, &Connection)> = BTreeMap::new();
    for connection in connections {
        let share = connection.retransmitted_share();
        let x = left + (right - left) * (octets(connection).max(1) as f64).log10() / powers;
        let y = if share == 0.0 { none } else { height(share) };
        let cell = ((x / CELL) as u32, (y / CELL) as u32);
        cells.entry(cell).or_insert((0, connection)).0 += 1;
    }
    for ((x, y), (count, connection)) in cells {
        let (x, y) = ((f64::from(x) + 0.5) * CELL, (f64::from(y) + 0.5) * CELL);
        let radius = 2.5 + (count as f64).log10() * 1.5;
        let mut title = connection.name();
        if count > 1 {
            let _ = write!(title, " and {} more", count - 1);
        }
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"{}\" fill-opacity=\"0.6\"><title>{}</title></circle>",
            COLOURS[0],
            escaped(&title)
        );
    }
    Some(svg + "</svg>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_escaped_ends_text_or_attributes() {
        assert_eq!(escaped("<a b='c' \"&\u{1}>"), "&lt;a b=&#39;c&#39; &quot;&amp;\u{fffd}&gt;");
    }
}
