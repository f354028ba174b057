//! `weir bench`: measures Weir beside its ceilings, on one machine, in one run.
//!
//! Input: names of tables. Output: a [`Report`] with the conditions and, per table, figures with their
//! spread, as text, and JSON.
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
//! The modules are public for the program in `benches/`, which has tables of single parts of Weir.
//! It measures no network interface; `live/` does.
#![forbid(unsafe_code)]

pub mod ceiling;
pub mod conditions;
pub mod error;
pub mod frames;
pub mod live;
pub mod load;
pub mod mapped_array;
pub mod measure;
pub mod meter;
pub mod report;
mod tables;

pub use error::Error;
pub use live::{LIVE, LiveOptions, LiveReport, live};
pub use report::{Report, json};
pub use tables::{Measure, NamedTable, TABLES};

use weir_export::SinkSpec;

/// Which tables to measure, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of tables, measured in this order. If empty, all.
    pub tables: Vec<String>,
    /// Number of measured rounds.
    pub rounds: usize,
    /// Use small loads: tests that the benchmark works, and measures nothing.
    pub quick: bool,
    /// The table `encode` measures these sinks instead of its own.
    pub sinks: Vec<SinkSpec>,
    /// Date of the run, for the report.
    pub date: String,
}

/// Measures tables out of `known`. `say` receives progress messages; `show` receives the conditions and each
/// finished table as text.
///
/// # Errors
/// No such table, not enough memory, or counters that do not add up.
pub fn run(
    known: &[NamedTable],
    options: &Options,
    say: &mut dyn FnMut(&str),
    show: &mut dyn FnMut(&str),
) -> Result<Report, Error> {
    let chosen = measure::choose(
        &options.tables,
        &known.iter().map(|(name, ..)| *name).collect::<Vec<_>>(),
        ["table", "tables"],
    )?;
    if !options.sinks.is_empty() && !chosen.iter().any(|&index| known[index].0 == "encode") {
        return Err(Error::SinksWithoutTable);
    }
    let conditions = conditions::Conditions::read(&options.date, options.rounds, options.quick);
    let mut bench = measure::Bench { rounds: options.rounds.max(1), quick: options.quick, sinks: &options.sinks, say };
    show(&conditions.to_string());
    let mut tables = Vec::new();
    for (_, _, measure) in chosen.into_iter().map(|index| known[index]) {
        let table = measure(&mut bench)?;
        show(&format!("\n{table}"));
        tables.push(table);
    }
    Ok(Report { conditions, tables, balanced: true })
}
