//! The plots of a report as SVG files: rates over a logarithmic axis, or as bars.

use crate::report::{Figure, NULL, Report, Table};
use std::path::Path;
use weir_plot::{Axis, Point, Series, bar_chart, line_chart, standalone};

/// Writes a plot of each table into a directory, which is created if necessary.
///
/// # Errors
/// The directory or a file cannot be written.
pub fn write_plots(report: &Report, directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let conditions = report.conditions.summary();
    for table in report.tables.iter().filter(|table| !table.figures.is_empty()) {
        let svg = rates(table, &[&format!("{}; {}", table.load, table.clock), &conditions]);
        std::fs::write(directory.join(format!("{}.svg", table.name)), standalone(&svg))?;
    }
    Ok(())
}

/// Draws the rates of a table: lines over a logarithmic axis if its rows are numbers, else bars.
fn rates(table: &Table, caption: &[&str]) -> String {
    let rate = format!("million {}s per second", table.item);
    let mut rows: Vec<&str> = Vec::new();
    let mut series: Vec<Series<'_>> = Vec::new();
    // Bars start at 0; the null consumer's would dwarf all others.
    for figure in table.figures.iter().filter(|figure| table.logarithmic || figure.series != NULL) {
        let Figure { row, x, series: name, mpps, .. } = figure;
        let index = rows.iter().position(|known| known == row).unwrap_or_else(|| {
            rows.push(row);
            rows.len() - 1
        });
        let x = if table.logarithmic { *x } else { index as f64 };
        let point = Point { x, y: mpps.median, range: [mpps.min, mpps.max] };
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, points: vec![point] }),
        }
    }
    if !table.logarithmic {
        return bar_chart(table.title, caption, &format!("{rate}, by {}", table.axis), &rows, &series);
    }
    let points = || series.iter().flat_map(|series| &series.points);
    let horizontal = Axis::values(table.axis, points().map(|point| point.x).collect(), true);
    let greatest = points().map(|point| point.range[1]).fold(0.0, f64::max);
    let least = points().map(|point| point.range[0]).fold(greatest, f64::min);
    line_chart(table.title, caption, [horizontal, Axis::logarithmic(&rate, [least, greatest])], &series)
}
