//! Reads the columns of Parquet files.

use crate::schema::FIELDS_KEY;
use bytes::Bytes;
use parquet::basic::Type as Physical;
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Reads the columns of a file. Several threads may use it at once.
pub type Reader = SerializedFileReader<SharedFile>;

/// A file that several threads read: each reads at places of its own, while clones of a [`File`] have one place in
/// common.
#[derive(Clone)]
pub struct SharedFile(Arc<File>);

impl From<File> for SharedFile {
    fn from(file: File) -> Self {
        Self(Arc::new(file))
    }
}

/// Reads a file from a place on.
pub struct ReadFrom {
    file: SharedFile,
    place: u64,
}

impl Read for ReadFrom {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.0.read_at(buffer, self.place)?;
        self.place += read as u64;
        Ok(read)
    }
}

impl Length for SharedFile {
    fn len(&self) -> u64 {
        self.0.metadata().map_or(0, |file| file.len())
    }
}

impl ChunkReader for SharedFile {
    type T = BufReader<ReadFrom>;

    fn get_read(&self, place: u64) -> Result<Self::T> {
        Ok(BufReader::new(ReadFrom { file: self.clone(), place }))
    }

    fn get_bytes(&self, place: u64, length: usize) -> Result<Bytes> {
        // Of a file that is damaged, the length may be any.
        if place.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(ParquetError::EOF(format!("{length} octets at {place} are beyond the end of the file")));
        }
        let mut octets = vec![0; length];
        self.0.read_exact_at(&mut octets, place)?;
        Ok(octets.into())
    }
}

/// The values of a column: where each row's is among those that are not null.
pub struct Values<T> {
    /// The position of a row's value; `NULL` for null.
    positions: Vec<u32>,
    values: Vec<T>,
}

const NULL: u32 = u32::MAX;
const FOREIGN: &str = "this is no file of Weir";

/// Opens a file.
pub fn reader(path: &Path) -> Result<Reader> {
    reader_of(&File::open(path)?.into())
}

/// Reads an open file.
pub fn reader_of(shared: &SharedFile) -> Result<Reader> {
    /// Larger than that of a file with all columns and row groups.
    const MAX_FOOTER_OCTETS: u32 = 64 << 20;
    let mut end = [0; 8];
    let file = &shared.0;
    let length = file.metadata()?.len();
    let is_read = file.read_exact_at(&mut end, length.saturating_sub(8));
    let [a, b, c, d, magic @ ..] = end;
    if length == 0 {
        return Err(ParquetError::General("it is empty".into()));
    }
    if length < 12 || is_read.is_err() || magic != *b"PAR1" {
        return Err(ParquetError::General(
            "it does not end as a Parquet file: it is none, or its end is missing".into(),
        ));
    }
    // The decoder takes as much memory as the file says.
    if u32::from_le_bytes([a, b, c, d]) > MAX_FOOTER_OCTETS {
        return Err(ParquetError::General("its index is too long".into()));
    }
    let reader = SerializedFileReader::new(shared.clone())?;
    let entries = reader.metadata().file_metadata().key_value_metadata();
    if !entries.is_some_and(|entries| entries.iter().any(|entry| entry.key == FIELDS_KEY)) {
        return Err(ParquetError::General(FOREIGN.into()));
    }
    Ok(reader)
}

/// Whether a file is a whole one of another program.
pub fn is_foreign(path: &Path) -> bool {
    matches!(reader(path), Err(ParquetError::General(text)) if text == FOREIGN)
}

/// Reads all values of a column: there are as many as rows.
pub fn check_column(readers: &[Reader], columns: &SchemaDescriptor, at: usize, rows: u64) -> Result<()> {
    let found = match columns.column(at).physical_type() {
        Physical::INT32 => read_column::<Int32Type>(readers, at)?.positions.len(),
        Physical::INT64 => read_column::<Int64Type>(readers, at)?.positions.len(),
        Physical::DOUBLE => read_column::<DoubleType>(readers, at)?.positions.len(),
        Physical::BYTE_ARRAY => read_column::<ByteArrayType>(readers, at)?.positions.len(),
        other => return Err(unknown_type(other)),
    };
    if found as u64 == rows { Ok(()) } else { Err(too_few_values()) }
}

/// All values of a column.
pub fn read_column<T: DataType>(readers: &[Reader], at: usize) -> Result<Values<T::T>> {
    let mut column = Values { positions: Vec::new(), values: Vec::new() };
    let mut present = Vec::new();
    for reader in readers {
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group)?;
            let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
            let mut of_group = get_typed_column_reader::<T>(group.get_column_reader(at)?);
            let mut left = rows;
            while left > 0 {
                present.clear();
                let mut position = column.values.len() as u32;
                let (records, _, _) = of_group.read_records(left, Some(&mut present), None, &mut column.values)?;
                if records == 0 {
                    return Err(too_few_values());
                }
                left -= records;
                column.positions.extend(present.iter().map(|&level| {
                    let at = if level > 0 { position } else { NULL };
                    position += u32::from(level > 0);
                    at
                }));
            }
        }
    }
    Ok(column)
}

impl<T> Values<T> {
    /// The value of a row; `None` for null.
    pub fn get(&self, row: u32) -> Option<&T> {
        let position = *self.positions.get(row as usize)?;
        self.values.get(position as usize)
    }
}

/// The decoder of Parquet is not ours: a damaged file must not end the program.
pub fn guarded<T>(read: impl FnOnce() -> Result<T>) -> io::Result<T> {
    let panicked = |_| Err(ParquetError::General("the file is damaged".into()));
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(panicked).map_err(io_error)
}

/// An error of the system as it is, and what is wrong with a file in words.
pub fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}

/// Weir writes no such column.
pub fn unknown_type(of: Physical) -> ParquetError {
    ParquetError::General(format!("a column has the type {of}, which Weir does not write"))
}

/// The file is damaged.
pub fn too_few_values() -> ParquetError {
    ParquetError::General("a column has too few values".into())
}
