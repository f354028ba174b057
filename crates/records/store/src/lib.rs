//! A store: flow records in Parquet files, a folder for each hour. Also single files, and streams of Arrow.
//!
//! Input: flow records. Output: files that every program reads that reads Parquet, and the records again.
//! Invariants: a file is on the disk whole, or not at all; every record is in one file, waits, or is counted as lost.
//! Not done here: SQL.
#![forbid(unsafe_code)]

mod arrow;
mod column_group;
mod compaction;
mod encoded_chunk;
mod error;
mod folder;
mod inspection;
mod maintenance;
mod reading;
mod replacement;
mod retention;
mod row_group;
mod rows;
mod schema;
mod selection;
mod settings;
mod single_file;
mod source;
mod summing;
mod text_column;
mod times;
mod writer;

pub use arrow::{ARROW_END, ARROW_ROWS, ArrowRows, ReportColumn, ReportValue};
pub use compaction::{Compacted, compact_hour};
pub use error::Error;
pub use folder::{Content, Folder, Hour, StoredFile, lock_of};
pub use inspection::{count_rows, verify};
pub use retention::{InvalidKeep, Keep, Removed};
pub use rows::Row;
pub use schema::{ANONYMISED_KEY, FIELDS_KEY, NS_REST, ROW_GROUP_ROWS, RowForm, Schema, UNIFLOW_KEY, VERSION_KEY};
pub use settings::{Settings, UpkeepTimes};
pub use single_file::SingleFile;
pub use source::{Damage, FlowReader, Found, columns_of};
pub use summing::{Collecting, Summing};
pub use times::{StoredTimes, stored_times};
pub use writer::{Writer, memory_bytes};
