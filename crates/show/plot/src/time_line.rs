//! Time lines: what two sides did, in lanes above each other.

use crate::axis::Axis;
use crate::chart::COLOURS;
use crate::svg::{Svg, WIDTH};

/// The area of the lanes.
const LEFT: f64 = 150.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 62.0;
/// Between two lanes, pixels.
const GAP: f64 = 6.0;
/// Narrower marks cannot be seen.
const LEAST_WIDTH: f64 = 2.0;

/// What happened of one kind. The first side is drawn above the middle, the second side below it.
pub struct Lane<'a> {
    /// The name, at the left.
    pub name: &'a str,
    /// Pixels above and below the middle.
    pub half_height: f64,
    /// What happened.
    pub marks: Vec<Mark>,
}

/// Something that a side did.
pub struct Mark {
    /// 0 or 1.
    pub side: usize,
    /// Begin and end on the axis.
    pub range: [f64; 2],
    /// Part of the lane that it fills, 0 to 1.
    pub height: f64,
    /// The text of the tooltip.
    pub tooltip: String,
}

/// Draws lanes over a common time axis. The names of both sides are the legend.
pub fn time_line(title: &str, axis: &Axis, sides: [&str; 2], lanes: &[Lane<'_>]) -> String {
    let bottom = TOP + lanes.iter().map(|lane| 2.0 * lane.half_height + GAP).sum::<f64>();
    let mut svg = Svg::new(bottom + 46.0, title);
    let place = |value: f64| LEFT + (RIGHT - LEFT) * axis.place(value).clamp(0.0, 1.0);
    for (number, (side, where_drawn)) in sides.iter().zip(["above", "below"]).enumerate() {
        let x = LEFT + 220.0 * number as f64;
        svg.rectangle([x, 38.0], [22.0, 8.0], COLOURS[number], "");
        svg.text([x + 28.0, 46.0], "font-size=\"12\"", &format!("{side} ({where_drawn} the line)"));
    }
    for (value, label) in &axis.ticks {
        let x = place(*value);
        svg.line([x, TOP], [x, bottom], "class=\"grid\" stroke=\"#ddd\"");
        svg.text([x, bottom + 16.0], "text-anchor=\"middle\" font-size=\"12\"", label);
    }
    let mut top = TOP;
    for lane in lanes {
        let middle = top + lane.half_height;
        svg.text([LEFT - 8.0, middle + 4.0], "text-anchor=\"end\" font-size=\"12\"", lane.name);
        for mark in &lane.marks {
            let [from, to] = mark.range.map(place);
            let from = from.min(RIGHT - LEAST_WIDTH);
            let height = (lane.half_height * mark.height).max(1.0);
            let y = if mark.side == 0 { middle - height } else { middle };
            let size = [(to - from).max(LEAST_WIDTH), height];
            svg.rectangle([from, y], size, COLOURS[mark.side & 1], &mark.tooltip);
        }
        svg.line([LEFT, middle], [RIGHT, middle], "class=\"grid\" stroke=\"#888\"");
        top += 2.0 * lane.half_height + GAP;
    }
    let centre = f64::midpoint(LEFT, RIGHT);
    svg.text([centre, bottom + 38.0], "text-anchor=\"middle\"", &axis.title);
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::standalone;

    #[test]
    fn every_mark_has_a_visible_rectangle_and_an_escaped_tooltip() {
        let mark = |side, range| Mark { side, range, height: 0.0, tooltip: "<b>".into() };
        let marks = vec![mark(0, [0.0, 0.0]), mark(1, [1.0, 9.0])];
        let lanes = [Lane { name: "a & b", half_height: 8.0, marks }];
        let text = standalone(&time_line("title", &Axis::linear("s", 2.0), ["one", "two"], &lanes));
        let document = roxmltree::Document::parse(&text).unwrap();
        let rectangles = document.descendants().filter(|node| node.has_tag_name("rect") && node.has_children());
        let number = |node: roxmltree::Node<'_, '_>, name| node.attribute(name).unwrap().parse::<f64>().unwrap();
        let mut marks = 0;
        for node in rectangles {
            assert!(number(node, "width") >= LEAST_WIDTH && number(node, "height") >= 1.0, "{text}");
            assert!(number(node, "x") + number(node, "width") <= RIGHT, "{text}");
            assert_eq!(node.children().find_map(|title| title.text()), Some("<b>"));
            marks += 1;
        }
        assert_eq!(marks, 2);
    }
}
