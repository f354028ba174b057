//! Views of flow records: expressions that select records, and aggregation by fields.
//!
//! Input: flow records. Output: the selected records, or sums per group of records.
//! Invariants: an expression is compiled once and applied without allocation. The sums of an
//! aggregation equal those of its records, whatever its memory limit.
//! Not done here: printing of tables, opening of files.
//!
//! docs/views.md defines the expressions and the fields of views.
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as weir_query;

mod condition;
mod count_field;
mod distinct;
mod error;
mod expression;
mod foreign_name;
mod group_field;
mod group_sums;
mod kept_groups;
mod key_hash;
mod lexer;
mod limits;
mod literal;
mod order;
mod parser;
mod ranges;
mod selecting_sink;
mod share;
mod stored_view;
mod sums;
#[cfg(test)]
mod tests;
mod view;
mod view_rows;

pub use count_field::CountField;
pub use distinct::DistinctCount;
pub use error::ExpressionError;
pub use expression::{Expression, TagTest};
pub use group_field::{GroupField, InvalidGroupField};
pub use literal::protocol_number;
pub use order::{InvalidOrder, Metric, Order, RecordOrder};
pub use selecting_sink::SelectingSink;
pub use share::Share;
pub use stored_view::{StoredSums, StoredTotals, StoredView};
pub use sums::Sums;
pub use view::{Row, Series, View, ViewSettings};
