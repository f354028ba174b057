//! The three kinds of charts.

use crate::axis::Axis;
use crate::svg::{Svg, WIDTH};
use std::collections::BTreeMap;
use weir_text::units;

/// Two colours that people with colour-vision deficiency tell apart (Okabe and Ito, 2008).
pub(crate) const COLOURS: [&str; 2] = ["#0072b2", "#d55e00"];
/// The area between the axes.
const LEFT: f64 = 70.0;
const TOP: f64 = 84.0;
const RIGHT: f64 = WIDTH - 20.0;
const BOTTOM: f64 = 400.0;

/// Draws points with a line through them, and its name.
pub fn line_chart(title: &str, axes: [Axis; 2], name: &str, points: &[[f64; 2]]) -> String {
    let (mut svg, place) = begin(title, &axes);
    let stroke = format!("stroke=\"{}\"", COLOURS[0]);
    svg.polyline(points.iter().map(|&[x, y]| place(x, y)), &format!("{stroke} stroke-width=\"2\" "));
    for &[x, y] in points {
        let centre = place(x, y);
        svg.line(centre, centre, &stroke);
        svg.circle(centre, 3.0, &format!("fill=\"{}\"", COLOURS[0]), "");
    }
    legend(&mut svg, [name].into_iter());
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
    let (mut svg, place) = begin(title, &axes);
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

/// Draws horizontal bars: a group for each row, a bar in it for each of one or two series, with its
/// value behind it.
pub fn bar_chart(title: &str, axis: &str, rows: &[&str], series: &[(&str, Vec<u64>)]) -> String {
    const BAR: f64 = 16.0;
    let longest = rows.iter().map(|row| row.chars().count()).max().unwrap_or(0);
    let left = (20.0 + 7.0 * longest as f64).min(WIDTH / 2.0);
    let group = BAR * series.len() as f64 + 8.0;
    let mut svg = Svg::new(TOP + group * rows.len() as f64 + 12.0, title);
    svg.text([8.0, TOP - 12.0], "font-size=\"12\"", axis);
    let greatest = series.iter().flat_map(|(_, values)| values).max().map_or(0.0, |&greatest| greatest as f64);
    let scale = (RIGHT - 60.0 - left) / greatest.max(f64::MIN_POSITIVE);
    for (at, row) in rows.iter().enumerate() {
        let y = TOP + group * at as f64 + (group - 8.0) / 2.0 + 4.0;
        svg.text([left - 8.0, y], "text-anchor=\"end\" font-size=\"12\"", row);
    }
    for (number, ((_, values), colour)) in series.iter().zip(COLOURS).enumerate() {
        for (row, value) in values.iter().map(|&value| value as f64).enumerate().filter(|&(_, value)| value > 0.0) {
            let y = TOP + group * row as f64 + BAR * number as f64;
            svg.rectangle([left, y], [(value * scale).max(1.0), BAR - 2.0], colour, "");
            let end = [left + value * scale + 5.0, y + BAR / 2.0 + 3.0];
            svg.text(end, "font-size=\"11\"", &units::number(value));
        }
    }
    if series.len() > 1 {
        legend(&mut svg, series.iter().map(|&(name, _)| name));
    }
    svg.finish()
}

/// Begins a chart with two axes. Also returns where a point lies, in pixels.
fn begin<'a>(title: &str, axes: &'a [Axis; 2]) -> (Svg, impl Fn(f64, f64) -> [f64; 2] + 'a) {
    /// Distance of the first and the last value from the ends of the horizontal axis.
    const INSET: f64 = 20.0;
    /// Least distance between two labels of the horizontal axis.
    const LABEL: f64 = 44.0;
    let [horizontal, vertical] = axes;
    let place = |x: f64, y: f64| {
        let x = LEFT + INSET + (RIGHT - LEFT - 2.0 * INSET) * horizontal.place(x);
        [x, BOTTOM - (BOTTOM - TOP) * vertical.place(y)]
    };
    let mut svg = Svg::new(BOTTOM + 62.0, title);
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

fn legend<'a>(svg: &mut Svg, names: impl Iterator<Item = &'a str>) {
    const Y: f64 = 44.0;
    let mut x = LEFT;
    for (name, colour) in names.zip(COLOURS) {
        svg.line([x, Y], [x + 22.0, Y], &format!("stroke=\"{colour}\" stroke-width=\"4\" "));
        svg.text([x + 27.0, Y + 4.0], "font-size=\"12\"", name);
        x += 42.0 + 6.6 * name.chars().count() as f64;
    }
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

    #[test]
    fn every_value_has_a_point_on_a_line() {
        let axes = [Axis::values("x", vec![1.0, 2.0]), Axis::linear("y", 4.0)];
        let svg = line_chart("a < b", axes, "<name>", &[[1.0, 1.0], [2.0, 2.0]]);
        assert_eq!((count(&svg, "polyline"), count(&svg, "circle")), (1, 2));
    }

    #[test]
    fn every_value_above_0_has_a_bar() {
        let svg =
            bar_chart("title", "axis", &["one", "two"], &[("<first>", vec![0, 2]), ("second", vec![1, u64::MAX])]);
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
