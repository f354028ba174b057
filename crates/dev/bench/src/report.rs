//! Report of `weir bench`: its types are the JSON output; the functions here render text.

use crate::conditions::Conditions;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use weir_text::units::number;

/// Series of several tables.
pub const NULL: &str = "null consumer";
/// Touches frames and does nothing.
pub const ROOFLINE: &str = "roofline";
/// The least that a meter can do.
pub const DECODED: &str = "decoder + one line";
/// Weir's decoder and hash, then one line.
pub const DECODED_ALL: &str = "decoder + all lines";
/// Weir's decoder and hash, then all lines.
pub const PIPELINE: &str = "weir";

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub(crate) conditions: Conditions,
    pub(crate) tables: Vec<Table>,
    /// True: every packet of every round is accounted for (otherwise there is no report).
    pub(crate) balanced: bool,
}

/// A table of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// What it compares.
    pub title: &'static str,
    /// The load of all cases, and fixed conditions.
    pub load: String,
    /// Clock: CPU time of one thread, or wall clock for several.
    pub clock: &'static str,
    /// What the rates and times are those of: `packet`, `record`, `line`.
    pub item: &'static str,
    /// The quantity that differs between rows, with its unit.
    pub axis: &'static str,
    /// Whether rows are numbers for a logarithmic axis; otherwise they are names.
    pub logarithmic: bool,
    /// Series that the ratios refer to.
    pub against: Vec<&'static str>,
    /// The figures, row by row.
    pub figures: Vec<Figure>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

/// Figures of one case.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its row.
    pub row: String,
    /// Position on the axis.
    pub x: f64,
    /// The case.
    pub series: String,
    /// Packets, or items of another kind, per round.
    pub packets: u64,
    /// Million packets, or items, per second.
    pub mpps: Spread,
    /// Ratios to other series of the same row, within one round.
    pub of: BTreeMap<String, Spread>,
    /// Further figures by name.
    pub facts: BTreeMap<String, f64>,
}

/// Median and range of several rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Computes the spread of `values`.
    ///
    /// # Panics
    /// If `values` is empty.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Self { median: f64::midpoint(low, high), min: values[0], max: values[values.len() - 1] }
    }

    /// Minimum and maximum in parentheses.
    pub fn range(&self, decimals: usize) -> String {
        format!("({:.decimals$}-{:.decimals$})", self.min, self.max)
    }
}

impl Table {
    /// Creates an empty table for CPU times of one thread, numeric rows, and ratios to the roofline.
    pub fn new(name: &'static str, title: &'static str, axis: &'static str, load: impl Into<String>) -> Self {
        Self {
            name,
            title,
            load: load.into(),
            clock: "CPU time of the thread",
            item: "packet",
            axis,
            logarithmic: true,
            against: vec![ROOFLINE, DECODED],
            figures: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Unit of the rates.
    fn rate_unit(&self) -> String {
        match self.item {
            "packet" => "Mpps".into(),
            item => format!("M {item}s/s"),
        }
    }
}

/// Renders a report as JSON.
pub fn json<R: Serialize>(report: &R) -> String {
    serde_json::to_string_pretty(report).expect("numbers and strings only")
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, title, load, clock, item, axis, against, .. } = self;
        writeln!(f, "{name}: {title}\nload: {load}")?;
        if !self.figures.is_empty() {
            writeln!(f, "time: {clock}; median of rounds (minimum-maximum)")?;
            let width = |text: &dyn Fn(&Figure) -> usize| self.figures.iter().map(text).max().unwrap_or(0);
            let row_width = width(&|figure| figure.row.chars().count()).max(axis.chars().count());
            let width = width(&|figure| figure.series.chars().count());
            let (rate, time) = (self.rate_unit(), format!("ns/{item}"));
            write!(f, "{axis:row_width$}  {:width$} {rate:>11} {:17} {time:>9}", "", "")?;
            against.iter().try_for_each(|against| write!(f, "  % of {against}"))?;
            writeln!(f)?;
            let mut previous_row = "";
            for Figure { row, series, mpps, of, facts, .. } in &self.figures {
                let label = if row == previous_row { "" } else { row };
                previous_row = row;
                let Spread { median, .. } = mpps;
                let (range, ns) = (mpps.range(2), 1e3 / median);
                write!(f, "{label:row_width$}  {series:width$} {median:11.2} {range:17} {ns:9.1}")?;
                for &against in against {
                    let width = against.len() + 5;
                    match of.get(against) {
                        Some(ratio) => write!(f, "  {:width$.1}", 100.0 * ratio.median)?,
                        None => write!(f, "  {:>width$}", "")?,
                    }
                }
                let facts: Vec<String> =
                    facts.iter().map(|(name, value)| format!("{name} {}", number(*value))).collect();
                writeln!(f, "  {}", facts.join(", "))?;
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}
