//! Flow records in ClickHouse: the types of columns, rows in the format RowBinary, and the text of statements.
//!
//! Input: columns of the catalogue and flow records. Output: octets and SQL; what a table lacks.
//! Invariant: a row has a value for each column, and what does not fit its type is reported.
//! Not done here: requests to a server (crate `export`), and questions (crate `sql`).
#![forbid(unsafe_code)]

mod column_type;
mod comparison;
mod kafka;
mod names;
mod row_encoder;
mod schema;
mod views;

pub use column_type::{ColumnType, PROBE, row_columns};
pub use comparison::{Difference, LiveColumn, RowColumn, Window, compare, window};
pub use kafka::Topic;
pub use names::{MissingField, TableName, insert_statement, quoted_name, quoted_text};
pub use row_encoder::RowEncoder;
pub use schema::{TableSettings, create_table};
