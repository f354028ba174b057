//! The plots of a report as SVG files: rates over a logarithmic axis or as bars, and curves.

use crate::conditions::Conditions;
use crate::report::{Figure, NULL, Plot, Report, Table};
use std::path::{Path, PathBuf};
use weir_plot::{Axis, Point, Series, bar_chart, line_chart, standalone};

/// Writes the plots of all tables into a directory, which is created if necessary. Returns their paths.
///
/// # Errors
/// The directory or a file cannot be written.
pub fn write_plots(report: &Report, directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(directory)?;
    let mut written = Vec::new();
    for table in &report.tables {
        for (name, svg) in plots(table, &report.conditions) {
            let path = directory.join(format!("{name}.svg"));
            std::fs::write(&path, standalone(&svg))?;
            written.push(path);
        }
    }
    Ok(written)
}

/// Returns the name and the `<svg>` element of each plot of a table.
fn plots(table: &Table, conditions: &Conditions) -> Vec<(String, String)> {
    let conditions = conditions.summary();
    let mut plots = Vec::new();
    if !table.figures.is_empty() {
        plots.push((table.name.to_owned(), rates(table, &[&format!("{}; {}", table.load, table.clock), &conditions])));
    }
    for Plot { name, title, axes: [horizontal, vertical], curves } in &table.plots {
        let point = |&(x, y): &(f64, f64)| Point { x, y, range: [y; 2] };
        let series: Vec<Series<'_>> = curves
            .iter()
            .map(|curve| Series { name: &curve.series, points: curve.points.iter().map(point).collect() })
            .collect();
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let horizontal = Axis::values(horizontal, points().map(|point| point.0).collect(), false);
        let vertical = Axis::linear(vertical, points().map(|point| point.1).fold(0.0, f64::max));
        plots.push((name.clone(), line_chart(title, &[&table.load, &conditions], [horizontal, vertical], &series)));
    }
    plots
}

/// Draws the rates of a table: lines over a logarithmic axis if its rows are numbers, else bars.
fn rates(table: &Table, caption: &[&str]) -> String {
    const RATE: &str = "million packets per second";
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
        return bar_chart(table.title, caption, &format!("{RATE}, by {}", table.axis), &rows, &series);
    }
    let points = || series.iter().flat_map(|series| &series.points);
    let horizontal = Axis::values(table.axis, points().map(|point| point.x).collect(), true);
    let greatest = points().map(|point| point.range[1]).fold(0.0, f64::max);
    let least = points().map(|point| point.range[0]).fold(greatest, f64::min);
    line_chart(table.title, caption, [horizontal, Axis::logarithmic(RATE, [least, greatest])], &series)
}
