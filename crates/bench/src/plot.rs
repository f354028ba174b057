//! Plots as SVG: lines over two logarithmic axes, for ceilings stand far above the rest; bars beside names. Plain
//! shapes and text, nothing else.

use crate::conditions::Conditions;
use crate::report::{Figure, NULL, Plot, Report, Table, number};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Writes one SVG file or more per table into a folder, which is made; their paths.
///
/// # Errors
/// What the system says.
pub fn write_plots(report: &Report, folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder)?;
    let mut written = Vec::new();
    for table in &report.tables {
        for (name, text) in of(table, &report.conditions) {
            let path = folder.join(format!("{name}.svg"));
            std::fs::write(&path, text)?;
            written.push(path);
        }
    }
    Ok(written)
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 520.0;
/// The area of the axes: left, top, right, bottom.
const AREA: [f64; 4] = [70.0, 84.0, 880.0, 400.0];
/// Colours that people who see colours differently tell apart (Okabe and Ito, 2008).
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];

/// A line, or the bars of one colour.
struct Series<'a> {
    name: &'a str,
    /// Place on the axis; value; least and most.
    points: Vec<(f64, f64, [f64; 2])>,
}

/// The plots of a table: name and text.
pub fn of(table: &Table, conditions: &Conditions) -> Vec<(String, String)> {
    let mut plots = Vec::new();
    if !table.figures.is_empty() {
        let mut rows: Vec<(&str, f64)> = Vec::new();
        let mut series: Vec<Series<'_>> = Vec::new();
        // Bars begin at 0: the null consumer's would leave no room for the others.
        let is_plotted = |figure: &&Figure| table.logarithmic || figure.series != NULL;
        for figure in table.figures.iter().filter(is_plotted) {
            let row = rows.iter().position(|&(row, _)| row == figure.row).unwrap_or_else(|| {
                rows.push((&figure.row, figure.x));
                rows.len() - 1
            });
            let x = if table.logarithmic { figure.x } else { row as f64 };
            let point = (x, figure.mpps.median, [figure.mpps.min, figure.mpps.max]);
            match series.iter_mut().find(|series| series.name == figure.series) {
                Some(series) => series.points.push(point),
                None => series.push(Series { name: &figure.series, points: vec![point] }),
            }
        }
        let axes = [table.axis, "million packets per second"];
        let mut svg =
            Svg::new(table.title, axes, &[&format!("{}; {}", table.load, table.clock), &conditions.in_short()]);
        let values = || series.iter().flat_map(|series| &series.points).flat_map(|point| point.2);
        let highest = values().fold(0.0, f64::max);
        if table.logarithmic {
            svg.logarithmic_axis(values().fold(highest, f64::min), highest);
            svg.lines(&series, true);
        } else {
            svg.value_axis(highest);
            svg.bars(&rows, &series);
        }
        svg.legend(series.iter().map(|series| series.name));
        plots.push((table.name.to_owned(), svg.end()));
    }
    for Plot { name, title, axes, curves } in &table.plots {
        let mut svg = Svg::new(title, [&axes[0], &axes[1]], &[&table.load, &conditions.in_short()]);
        let series: Vec<Series<'_>> = curves
            .iter()
            .map(|curve| Series {
                name: &curve.series,
                points: curve.points.iter().map(|&(x, y)| (x, y, [y; 2])).collect(),
            })
            .collect();
        svg.value_axis(series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(0.0, f64::max));
        svg.lines(&series, false);
        svg.legend(series.iter().map(|series| series.name));
        plots.push((name.clone(), svg.end()));
    }
    plots
}

struct Svg {
    text: String,
    /// The value at the lower end of a logarithmic axis, else 0.
    least: f64,
    /// The value at the upper end of the axis.
    most: f64,
}

impl Svg {
    fn new(title: &str, axes: [&str; 2], caption: &[&str]) -> Self {
        let mut svg = Self { text: String::new(), least: 0.0, most: 1.0 };
        let _ = write!(
            svg.text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let [left, top, right, bottom] = AREA;
        svg.words(left, 24.0, "font-size=\"16\" font-weight=\"bold\"", title);
        svg.words(f64::midpoint(left, right), bottom + 40.0, "text-anchor=\"middle\"", axes[0]);
        let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 18 {})\"", f64::midpoint(top, bottom));
        svg.words(18.0, f64::midpoint(top, bottom), &turned, axes[1]);
        let lines = caption.iter().flat_map(|line| wrapped(line, 130));
        for (at, line) in lines.enumerate() {
            svg.words(left, bottom + 66.0 + 15.0 * at as f64, "font-size=\"11\" fill=\"#555555\"", &line);
        }
        svg
    }

    fn words(&mut self, x: f64, y: f64, style: &str, words: &str) {
        let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(self.text, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{words}</text>");
    }

    fn line(&mut self, [x0, y0, x1, y1]: [f64; 4], style: &str) {
        let _ = writeln!(self.text, "<line x1=\"{x0:.1}\" y1=\"{y0:.1}\" x2=\"{x1:.1}\" y2=\"{y1:.1}\" {style}/>");
    }

    fn y(&self, value: f64) -> f64 {
        let [_, top, _, bottom] = AREA;
        let share = match self.least {
            0.0 => value / self.most,
            least => (value.max(least) / least).ln() / (self.most / least).ln(),
        };
        bottom - (bottom - top) * share
    }

    /// From 0 to a little above the highest value, with a line at each round number.
    fn value_axis(&mut self, highest: f64) {
        let [left, _, right, bottom] = AREA;
        let power = 10_f64.powf((highest.max(1e-9) / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| highest / step <= 6.0);
        let step = step.unwrap_or(power * 10.0);
        let steps = (highest / step).ceil().max(1.0);
        self.most = steps * step;
        for at in 0..=steps as usize {
            self.value(at as f64 * step);
        }
        self.line([left, bottom, right, bottom], "stroke=\"black\"");
    }

    /// From below the lowest value to above the highest, with a line at 1, 2 and 5 of each power of ten.
    fn logarithmic_axis(&mut self, lowest: f64, highest: f64) {
        let [left, _, right, bottom] = AREA;
        let powers = lowest.max(1e-3).log10().floor() as i32..=highest.max(1e-3).log10().floor() as i32 + 1;
        let round: Vec<f64> = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power))).collect();
        self.least = round.iter().copied().filter(|&value| value <= lowest.max(1e-3)).fold(1e-3, f64::max);
        self.most = round.iter().copied().find(|&value| value >= highest && value > self.least).unwrap_or(highest);
        let (least, most) = (self.least, self.most);
        for value in round.into_iter().filter(|value| (least..=most).contains(value)) {
            self.value(value);
        }
        self.line([left, bottom, right, bottom], "stroke=\"black\"");
    }

    /// A line at a value, with its number.
    fn value(&mut self, value: f64) {
        let ([left, _, right, _], y) = (AREA, self.y(value));
        self.line([left, y, right, y], "stroke=\"#dddddd\"");
        self.words(left - 8.0, y + 4.0, "text-anchor=\"end\"", &number(value));
    }

    fn lines(&mut self, series: &[Series<'_>], logarithmic: bool) {
        let [left, _, right, bottom] = AREA;
        let scale = |x: f64| if logarithmic { x.max(1e-9).log2() } else { x };
        let mut places: Vec<f64> = series.iter().flat_map(|series| &series.points).map(|point| point.0).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let (Some(&first), Some(&last)) = (places.first(), places.last()) else { return };
        let span = (scale(last) - scale(first)).max(1e-9);
        let at = |x: f64| left + 20.0 + (right - left - 40.0) * (scale(x) - scale(first)) / span;
        let mut free = f64::MIN;
        for &place in &places {
            let x = at(place);
            self.line([x, bottom, x, bottom + 5.0], "stroke=\"black\"");
            if x >= free {
                self.words(x, bottom + 20.0, "text-anchor=\"middle\"", &short(place));
                free = x + 44.0;
            }
        }
        for (series, (colour, dash)) in series.iter().zip(styles()) {
            let points: Vec<String> =
                series.points.iter().map(|&(x, y, _)| format!("{:.1},{:.1}", at(x), self.y(y))).collect();
            let (points, style) = (points.join(" "), "fill=\"none\" stroke-width=\"2\"");
            let _ = writeln!(self.text, "<polyline points=\"{points}\" stroke=\"{colour}\" {style} {dash}/>");
            for &(x, y, [least, most]) in &series.points {
                let (x, y) = (at(x), self.y(y));
                self.line([x, self.y(least), x, self.y(most)], &format!("stroke=\"{colour}\""));
                let _ = writeln!(self.text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
            }
        }
    }

    fn bars(&mut self, rows: &[(&str, f64)], series: &[Series<'_>]) {
        let [left, _, right, bottom] = AREA;
        let room = (right - left) / rows.len().max(1) as f64;
        let width = 0.8 * room / series.len().max(1) as f64;
        for (at, (row, _)) in rows.iter().enumerate() {
            let x = left + room * (at as f64 + 0.5);
            // Names that would run into each other are turned a little.
            let turned = if row.len() as f64 * 7.0 > room {
                format!("transform=\"rotate(-12 {x:.1} {})\"", bottom + 18.0)
            } else {
                String::new()
            };
            self.words(x, bottom + 18.0, &format!("text-anchor=\"middle\" font-size=\"11\" {turned}"), row);
        }
        for (number, (series, (colour, _))) in series.iter().zip(styles()).enumerate() {
            for &(row, value, [least, most]) in &series.points {
                let x = left + room * (row + 0.1) + width * number as f64;
                let (y, height) = (self.y(value), bottom - self.y(value));
                let _ = writeln!(
                    self.text,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>",
                    width * 0.92
                );
                let middle = x + width * 0.46;
                self.line([middle, self.y(least), middle, self.y(most)], "stroke=\"#333333\"");
            }
        }
    }

    fn legend<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let (mut x, mut y) = (AREA[0], 44.0);
        for (name, (colour, dash)) in names.zip(styles()) {
            let width = 42.0 + 6.6 * name.chars().count() as f64;
            if x + width > AREA[2] {
                (x, y) = (AREA[0], y + 18.0);
            }
            let style = format!("stroke=\"{colour}\" stroke-width=\"4\" {dash}");
            self.line([x, y, x + 22.0, y], &style);
            self.words(x + 27.0, y + 4.0, "font-size=\"12\"", name);
            x += width;
        }
    }

    fn end(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// Colour and dashes of each series.
fn styles() -> impl Iterator<Item = (&'static str, &'static str)> {
    let dashes = ["", "stroke-dasharray=\"6 3\"", "stroke-dasharray=\"2 3\""];
    dashes.into_iter().cycle().flat_map(|dash| COLOURS.map(|colour| (colour, dash)))
}

/// A number on an axis: `131k`, `10M`.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", number(v / 1e6)),
        v if v >= 1e4 => format!("{}k", (v / 1e3).round()),
        v => number(v),
    }
}

/// Lines of at most so many characters, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        if lines.last().is_some_and(|line| line.len() + word.len() + 1 > width) {
            lines.push(String::new());
        }
        let line = lines.last_mut().expect("there is one");
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}
