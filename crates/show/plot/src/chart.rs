//! The three kinds of charts.

use crate::axis::Axis;
use crate::svg::{Svg, WIDTH};
use std::collections::BTreeMap;
use weir_text::{units, wrap};

/// Colours that people with colour-vision deficiency tell apart (Okabe and Ito, 2008).
pub(crate) const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];
const DASHES: [&str; 3] = ["", "stroke-dasharray=\"6 3\"", "stroke-dasharray=\"2 3\""];
/// The area between the axes.
const LEFT: f64 = 70.0;
const TOP: f64 = 84.0;
const RIGHT: f64 = WIDTH - 20.0;
const BOTTOM: f64 = 400.0;
const CAPTION_COLUMNS: usize = 130;
const CAPTION_LINE: f64 = 15.0;

/// The points of one line, or the bars of one colour.
pub struct Series<'a> {
    /// The name in the legend.
    pub name: &'a str,
    /// The values.
    pub points: Vec<Point>,
}

/// A value.
pub struct Point {
    /// The place on the first axis; for a bar the index of its row.
    pub x: f64,
    /// The value itself.
    pub y: f64,
    /// The least and the greatest measured value; both `y` if there is only one.
    pub range: [f64; 2],
}

/// Draws a line with points for each series, below the title; the caption stands below the chart.
pub fn line_chart(title: &str, caption: &[&str], axes: [Axis; 2], series: &[Series<'_>]) -> String {
    let (mut svg, place) = begin(title, caption, &axes);
    for (Series { points, .. }, (colour, dash)) in series.iter().zip(styles()) {
        let stroke = format!("stroke=\"{colour}\"");
        svg.polyline(
            points.iter().map(|point| place(point.x, point.y)),
            &format!("{stroke} stroke-width=\"2\" {dash}"),
        );
        for &Point { x, y, range: [least, greatest] } in points {
            svg.line(place(x, least), place(x, greatest), &stroke);
            svg.circle(place(x, y), 3.0, &format!("fill=\"{colour}\""), "");
        }
    }
    legend(&mut svg, series, 44.0);
    svg.finish()
}

/// Draws a circle for each point, with its name as tooltip. Points less than a few pixels apart are
/// one larger circle, so that the size of the plot has a limit.
pub fn scatter_plot<T>(
    title: &str,
    axes: [Axis; 2],
    points: impl Iterator<Item = (f64, f64, T)>,
    name: impl Fn(&T) -> String,
) -> String {
    const CELL: f64 = 6.0;
    let (mut svg, place) = begin(title, &[], &axes);
    let mut cells: BTreeMap<[u32; 2], (u64, T)> = BTreeMap::new();
    for (x, y, point) in points {
        let cell = place(x, y).map(|pixels| (pixels / CELL) as u32);
        cells.entry(cell).or_insert((0, point)).0 += 1;
    }
    for (cell, (count, point)) in cells {
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        let centre = cell.map(|number| (f64::from(number) + 0.5) * CELL);
        let style = format!("fill=\"{}\" fill-opacity=\"0.6\"", COLOURS[0]);
        svg.circle(centre, 3.0 + (count as f64).log10() * 2.0, &style, &(name(&point) + &more));
    }
    svg.finish()
}

/// Draws horizontal bars: a group for each row, a bar in it for each series, with its value behind
/// it.
pub fn bar_chart(title: &str, caption: &[&str], axis: &str, rows: &[&str], series: &[Series<'_>]) -> String {
    const BAR: f64 = 16.0;
    let longest = rows.iter().map(|row| row.chars().count()).max().unwrap_or(0);
    let left = (20.0 + 7.0 * longest as f64).min(WIDTH / 2.0);
    let group = BAR * series.len() as f64 + 8.0;
    let bottom = TOP + group * rows.len() as f64;
    let mut svg = with_caption(title, caption, bottom);
    svg.text([8.0, TOP - 12.0], "font-size=\"12\"", axis);
    let values = || series.iter().flat_map(|series| &series.points).map(|point| point.range[1].max(point.y));
    let scale = (RIGHT - 60.0 - left) / values().fold(f64::MIN_POSITIVE, f64::max);
    for (at, row) in rows.iter().enumerate() {
        let y = TOP + group * at as f64 + (group - 8.0) / 2.0 + 4.0;
        svg.text([left - 8.0, y], "text-anchor=\"end\" font-size=\"12\"", row);
    }
    for (number, (Series { points, .. }, (colour, _))) in series.iter().zip(styles()).enumerate() {
        for &Point { x: row, y: value, range: [least, greatest] } in points.iter().filter(|point| point.y > 0.0) {
            let y = TOP + group * row + BAR * number as f64;
            svg.rectangle([left, y], [(value * scale).max(1.0), BAR - 2.0], colour);
            let middle = y + BAR / 2.0 - 1.0;
            if greatest > least {
                svg.line([left + least * scale, middle], [left + greatest * scale, middle], "stroke=\"#333\"");
            }
            let end = left + greatest.max(value) * scale + 5.0;
            svg.text([end, middle + 4.0], "font-size=\"11\"", &units::number(value));
        }
    }
    if series.len() > 1 {
        legend(&mut svg, series, 44.0);
    }
    svg.finish()
}

/// Begins a chart with two axes. Also returns where a point lies, in pixels.
fn begin<'a>(title: &str, caption: &[&str], axes: &'a [Axis; 2]) -> (Svg, impl Fn(f64, f64) -> [f64; 2] + 'a) {
    /// Distance of the first and the last value from the ends of the horizontal axis.
    const INSET: f64 = 20.0;
    /// Least distance between two labels of the horizontal axis.
    const LABEL: f64 = 44.0;
    let [horizontal, vertical] = axes;
    let place = |x: f64, y: f64| {
        let x = LEFT + INSET + (RIGHT - LEFT - 2.0 * INSET) * horizontal.place(x);
        [x, BOTTOM - (BOTTOM - TOP) * vertical.place(y)]
    };
    let mut svg = with_caption(title, caption, BOTTOM + 50.0);
    for (value, label) in &vertical.ticks {
        let [_, y] = place(0.0, *value);
        svg.line([LEFT, y], [RIGHT, y], "class=\"grid\" stroke=\"#ddd\"");
        svg.text([LEFT - 8.0, y + 4.0], "text-anchor=\"end\"", label);
    }
    let mut free = f64::MIN;
    for (value, label) in &horizontal.ticks {
        let [x, _] = place(*value, 0.0);
        svg.line([x, BOTTOM], [x, BOTTOM + 5.0], "class=\"grid\" stroke=\"#888\"");
        if x >= free {
            svg.text([x, BOTTOM + 20.0], "text-anchor=\"middle\"", label);
            free = x + LABEL;
        }
    }
    svg.line([LEFT, BOTTOM], [RIGHT, BOTTOM], "class=\"grid\" stroke=\"#888\"");
    let middle = [f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM)];
    svg.text([middle[0], BOTTOM + 42.0], "text-anchor=\"middle\"", &horizontal.title);
    let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 18 {})\"", middle[1]);
    svg.text([18.0, middle[1]], &turned, &vertical.title);
    (svg, place)
}

/// Begins a chart whose shapes end at `bottom`; the caption stands below.
fn with_caption(title: &str, caption: &[&str], bottom: f64) -> Svg {
    let lines: Vec<String> = caption.iter().flat_map(|line| wrap(line, CAPTION_COLUMNS)).collect();
    let mut svg = Svg::new(bottom + 12.0 + CAPTION_LINE * lines.len() as f64, title);
    for (line, number) in lines.iter().zip(1..) {
        svg.text([LEFT, bottom + CAPTION_LINE * f64::from(number)], "font-size=\"11\"", line);
    }
    svg
}

fn legend(svg: &mut Svg, series: &[Series<'_>], mut y: f64) {
    let mut x = LEFT;
    for (Series { name, .. }, (colour, dash)) in series.iter().zip(styles()) {
        let width = 42.0 + 6.6 * name.chars().count() as f64;
        if x + width > RIGHT {
            (x, y) = (LEFT, y + 18.0);
        }
        svg.line([x, y], [x + 22.0, y], &format!("stroke=\"{colour}\" stroke-width=\"4\" {dash}"));
        svg.text([x + 27.0, y + 4.0], "font-size=\"12\"", name);
        x += width;
    }
}

/// Colour and dashes of each series.
fn styles() -> impl Iterator<Item = (&'static str, &'static str)> {
    DASHES.into_iter().cycle().flat_map(|dash| COLOURS.map(|colour| (colour, dash)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::standalone;

    fn count(svg: &str, name: &str) -> usize {
        let text = standalone(svg);
        let document = roxmltree::Document::parse(&text).unwrap();
        document.descendants().filter(|node| node.has_tag_name(name)).count()
    }

    fn series(values: &[f64]) -> Series<'static> {
        let point = |(at, &y): (usize, &f64)| Point { x: at as f64, y, range: [y, y + 1.0] };
        Series { name: "<series>", points: values.iter().enumerate().map(point).collect() }
    }

    #[test]
    fn every_series_has_a_line_and_every_value_a_point() {
        let axes = [Axis::values("x", vec![0.0, 1.0], false), Axis::linear("y", 4.0)];
        let svg = line_chart("a < b", &["caption"], axes, &[series(&[1.0, 2.0]), series(&[3.0, 4.0])]);
        assert_eq!((count(&svg, "polyline"), count(&svg, "circle")), (2, 4));
    }

    #[test]
    fn every_value_above_0_has_a_bar() {
        let svg = bar_chart("title", &[], "axis", &["one", "two"], &[series(&[0.0, 2.0]), series(&[1e-9, 4.0])]);
        // The background is a rectangle, too.
        assert_eq!(count(&svg, "rect"), 3 + 1);
    }

    #[test]
    fn points_close_together_are_one_circle() {
        let axes = || [Axis::powers("x", vec![(1.0, "1".into()), (100.0, "100".into())]), Axis::linear("y", 1.0)];
        let points = [(1.0, 0.0, "a"), (1.001, 0.0, "b"), (100.0, 1.0, "c")];
        let svg = scatter_plot("title", axes(), points.into_iter(), ToString::to_string);
        assert_eq!(count(&svg, "circle"), 2);
        assert!(svg.contains("<title>a and 1 more</title>"), "{svg}");
    }
}
