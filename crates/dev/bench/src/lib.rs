//! `weir bench`: measures Weir beside its ceilings, on one machine, in one run.
//!
//! Input: names of tables. Output: a [`Report`] with the conditions and, per table, figures with their
//! spread, as text, JSON and SVG plots.
//!
//! Invariants: the cases of a row run in turn, round by round, so that noise affects all of them alike.
//! Ratios are medians of the ratios within each round. Every packet of every round is found again in
//! flow records; otherwise the run fails.
//!
//! Ceilings (`ceiling.rs`): the *null consumer* touches each frame and does nothing. The *roofline* is
//! the least that a meter can do: it decodes in place, computes a keyed hash, and updates one
//! prefetched cache line per packet. *Decoder + one line* does the same with Weir's decoder and hash.
//! *Decoder + all lines* touches all lines that the meter needs: no meter of this layout is faster.
//!
//! It measures no network interface; `live/` does.
#![forbid(unsafe_code)]

mod ceiling;
mod conditions;
mod error;
mod frames;
mod hardware_counters;
mod live;
mod load;
mod mapped_array;
mod measure;
mod meter;
mod parallel;
mod plots;
mod report;
mod tables;

pub use error::Error;
pub use live::{LIVE, LiveOptions, LiveReport, live};
pub use plots::write_plots;
pub use report::{Report, json};
pub use tables::TABLES;

/// Which tables to measure, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of tables, measured in this order. If empty, all.
    pub tables: Vec<String>,
    /// Number of measured rounds.
    pub rounds: usize,
    /// Use small loads: tests that the benchmark works, and measures nothing.
    pub quick: bool,
    /// Date of the run, for the report.
    pub date: String,
}

/// Measures the tables. `say` receives progress messages; `show` receives the conditions and each
/// finished table as text.
///
/// # Errors
/// No such table, not enough memory, or counters that do not add up.
pub fn run(options: &Options, say: &mut dyn FnMut(&str), show: &mut dyn FnMut(&str)) -> Result<Report, Error> {
    let chosen = measure::choose(&options.tables, &TABLES.map(|(name, ..)| name), ["table", "tables"])?;
    let conditions = conditions::Conditions::read(&options.date, options.rounds, options.quick);
    let mut bench = measure::Bench { rounds: options.rounds.max(1), quick: options.quick, say };
    show(&conditions.to_string());
    let mut tables = Vec::new();
    for (_, _, measure) in chosen.into_iter().map(|index| TABLES[index]) {
        let table = measure(&mut bench)?;
        show(&format!("\n{table}"));
        tables.push(table);
    }
    Ok(Report { conditions, tables, balanced: true })
}
