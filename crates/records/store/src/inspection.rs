//! Reads files of a store: how many rows, and whether all of it can be read.

use crate::reading::{check_column, guarded, reader};
use parquet::file::reader::FileReader;
use std::io;
use std::path::Path;

/// The number of rows, by the end of the file.
///
/// # Errors
/// The file cannot be opened, or its end is damaged.
pub fn count_rows(path: &Path) -> io::Result<u64> {
    guarded(|| Ok(reader(path)?.metadata().file_metadata().num_rows().unsigned_abs()))
}

/// Reads all values of a file. Returns the number of rows.
///
/// # Errors
/// The file cannot be opened, or is damaged.
pub fn verify(path: &Path) -> io::Result<u64> {
    guarded(|| {
        let readers = [reader(path)?];
        let metadata = readers[0].metadata().file_metadata();
        let rows = metadata.num_rows().unsigned_abs();
        let columns = metadata.schema_descr_ptr();
        (0..columns.num_columns()).try_for_each(|at| check_column(&readers, &columns, at, rows))?;
        Ok(rows)
    })
}
