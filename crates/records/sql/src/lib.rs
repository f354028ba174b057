//! SQL over stored flows. DuckDB answers; its library is loaded when it is needed.
//!
//! Input: a SELECT, and views over Parquet, CSV and JSON files. Output: rows as text, in chunks.
//! Invariants: a database is in memory and locked down: no network, no extension, no other file, no
//! statement but SELECT and EXPLAIN. Not done here: finding files, formats of output, a sandbox.
//! `unsafe` is in `library.rs` (the C interface) and `connection.rs` (its handles).
#![deny(unsafe_code)]

mod computed;
mod connection;
mod database;
mod error;
mod library;
mod macros;
mod question;
mod tokens;

pub use computed::{computed_fields, with_computed};
pub use database::{Column, Database, Kind, Query, Rows, Settings, View};
pub use error::Error;
pub use library::{ENVIRONMENT, Engine, OLDEST_VERSION};
pub use macros::{macros, port_name};
pub use question::{Argument, Placeholders, QUESTIONS, Question};
pub use tokens::{gives_name, quoted_identifier, quoted_text, text_literals, uses_identifier};
