//! Line charts, bar charts, scatter plots and time lines as SVG.
//!
//! In: titles, axes, series of numbers. Out: an `<svg>` element for an HTML page, or, after
//! [`standalone`], the text of an SVG file. Text has the class `ink` and grid lines have the class
//! `grid`, so that a page can recolour them.
//! The SVG has no script, no font and no reference to another file.
//! Why not the library `plotters`: its SVG has no tooltips and no classes.
#![forbid(unsafe_code)]

mod axis;
mod chart;
mod svg;
mod time_line;

pub use axis::Axis;
pub use chart::{bar_chart, line_chart, scatter_plot};
pub use svg::{escape, standalone};
pub use time_line::{Lane, Mark, time_line};
