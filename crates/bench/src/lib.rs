//! `weir bench`: Weir measured beside its ceilings, on one machine, in one run.
//!
//! In: names of tables. Out: a [`Report`]: the conditions, and per table figures with their spread, as text, JSON and
//! SVG plots.
//! Always true: cases that are compared run in turn, round by round, so that noise hits all of them alike; ratios are
//! medians of ratios within one round; and every packet of every round is found again in records, or the run fails.
//!
//! Ceilings stand beside the meter (`ceiling.rs`). The *null consumer* touches each frame and does nothing. The
//! *roofline* is the least that a meter could do: a bare decode in place, a keyed hash, one cache line per
//! packet updated, with prefetch. *Decoder + one line* is the same behind Weir's own decoder and hash.
#![forbid(unsafe_code)]

mod ceiling;
mod conditions;
mod error;
mod frames;
mod harness;
mod huge;
mod index;
mod live;
mod load;
mod meter;
mod plots;
mod report;
mod tables;

pub use error::Error;
pub use live::{LIVE, LiveOptions, LiveReport, live};
pub use plots::write_plots;
pub use report::Report;
pub use tables::TABLES;

use std::path::PathBuf;

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Tables by name, in this order; none for all.
    pub tables: Vec<String>,
    /// Measured rounds.
    pub rounds: usize,
    /// Small loads: a test that all of it works, not a measurement.
    pub quick: bool,
    /// Folder of captures whose flows are hashed too.
    pub captures: Option<PathBuf>,
    /// The date, for the conditions.
    pub date: String,
}

/// Measures; `say` is told what goes on, and `show` the conditions and each table as soon as it is done, as text.
///
/// # Errors
/// No such table, no memory, or a meter that lost count.
pub fn run(options: &Options, say: &mut dyn FnMut(&str), show: &mut dyn FnMut(&str)) -> Result<Report, Error> {
    let all = TABLES.map(|(name, ..)| name.to_owned());
    let names = if options.tables.is_empty() { &all[..] } else { &options.tables };
    let find = |name: &String| {
        let table = TABLES.into_iter().find(|(known, ..)| known == name);
        table.ok_or_else(|| Error::UnknownTable { name: name.clone(), known: TABLES.map(|(name, ..)| name).to_vec() })
    };
    let wanted = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let conditions = conditions::Conditions::read(&options.date, options.rounds, options.quick);
    let mut bench =
        harness::Bench { rounds: options.rounds.max(1), quick: options.quick, captures: options.captures.clone(), say };
    show(&conditions.to_string());
    let mut tables = Vec::new();
    for (_, _, measure) in wanted {
        let table = measure(&mut bench)?;
        show(&format!("\n{table}"));
        tables.push(table);
    }
    Ok(Report { conditions, tables, balanced: true })
}
