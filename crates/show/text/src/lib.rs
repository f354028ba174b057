//! Text for people: numbers with their units, times, aligned columns, and near matches of names.
//!
//! In: counts, octets, durations and times in ns; cells of a table. Out: strings. It opens and
//! prints nothing.
#![forbid(unsafe_code)]

pub mod columns;
mod flow_text;
mod near_match;
pub mod units;
mod wrap;
pub mod zone;

pub use flow_text::FlowText;
pub use near_match::{most_similar, similar, similarity};
pub use wrap::{paragraph, wrap};
