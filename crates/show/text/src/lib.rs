//! Text for people: numbers with their units, times, and aligned columns.
//!
//! In: counts, octets, durations and times in ns; cells of a table. Out: strings. It opens and
//! prints nothing.
#![forbid(unsafe_code)]

pub mod columns;
pub mod units;
mod wrap;

pub use wrap::{paragraph, wrap};
