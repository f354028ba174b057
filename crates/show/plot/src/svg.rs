//! SVG elements as text.

use std::fmt::Write;

pub(crate) const WIDTH: f64 = 900.0;

/// An `<svg>` element under construction. Coordinates are pixels from the upper left corner.
pub(crate) struct Svg(String);

impl Svg {
    pub fn new(height: f64, title: &str) -> Self {
        let mut svg = Self(format!(
            "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n\
             <title>{}</title>\n",
            escape(title)
        ));
        svg.text([8.0, 24.0], "font-size=\"16\" font-weight=\"bold\"", title);
        svg
    }

    pub fn text(&mut self, [x, y]: [f64; 2], style: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = escape(text);
        self.element(&format!("<text class=\"ink\" fill=\"#222\" x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>"));
    }

    pub fn line(&mut self, [x0, y0]: [f64; 2], [x1, y1]: [f64; 2], style: &str) {
        self.element(&format!("<line x1=\"{x0:.1}\" y1=\"{y0:.1}\" x2=\"{x1:.1}\" y2=\"{y1:.1}\" {style}/>"));
    }

    pub fn polyline(&mut self, points: impl Iterator<Item = [f64; 2]>, style: &str) {
        let points: Vec<String> = points.map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        self.element(&format!("<polyline points=\"{}\" fill=\"none\" {style}/>", points.join(" ")));
    }

    /// A rectangle with a tooltip, or without if that is empty.
    pub fn rectangle(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], colour: &str, tooltip: &str) {
        let title = match tooltip {
            "" => "/>".into(),
            text => format!("><title>{}</title></rect>", escape(text)),
        };
        let size = format!("width=\"{width:.1}\" height=\"{height:.1}\"");
        self.element(&format!("<rect x=\"{x:.1}\" y=\"{y:.1}\" {size} fill=\"{colour}\"{title}"));
    }

    /// A circle with a tooltip, or without if that is empty.
    pub fn circle(&mut self, [x, y]: [f64; 2], radius: f64, style: &str, tooltip: &str) {
        let title = if tooltip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tooltip)) };
        self.element(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" {style}>{title}</circle>"));
    }

    fn element(&mut self, element: &str) {
        let _ = writeln!(self.0, "{element}");
    }

    pub fn finish(self) -> String {
        self.0 + "</svg>\n"
    }
}

/// Turns an `<svg>` element into the text of a file, with a white background.
pub fn standalone(svg: &str) -> String {
    let background = ">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    svg.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1).replacen(">\n", background, 1)
}

/// Escapes text for elements and attributes of XML and HTML. Characters that XML forbids are
/// replaced by U+FFFD.
pub fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, letter| {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_ends_no_element_and_no_attribute() {
        assert_eq!(escape("<a b='c' \"&\u{1}>"), "&lt;a b=&#39;c&#39; &quot;&amp;\u{fffd}&gt;");
    }
}
