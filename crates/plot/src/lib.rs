//! Line charts, bar charts and scatter plots as SVG.
//!
//! In: titles, axes, series of numbers. Out: an `<svg>` element for an HTML page, or, after
//! [`standalone`], the text of an SVG file. Text has the class `ink` and grid lines have the class
//! `grid`, so that a page can recolour them.
//! It writes shapes and text only: no script, no font, no reference. That, tooltips and the classes
//! are why it is no library: `plotters`, the one in wide use, has none of them.
#![forbid(unsafe_code)]

mod axis;
mod chart;
mod svg;

pub use axis::Axis;
pub use chart::{Point, Series, bar_chart, line_chart, scatter_plot};
pub use svg::{escape, standalone};
