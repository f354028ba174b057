//! Makes the files of an hour few, sorted by the first address, then the first time: smaller, and a search for such an
//! address reads few of their row groups.
//!
//! A file is made column by column: the rows in memory are those of one column, and what is encoded.

use crate::encoded_chunk::EncodedChunk;
use crate::folder::{Folder, Hour, StoredFile, create_file};
use crate::inspection::verify;
use crate::reading::{Reader, guarded, read_column, reader, too_few_values, unknown_type};
use crate::replacement::Replacement;
use crate::schema::{ROW_GROUP_ROWS, RowForm, SORTED_PAGE_ROWS, is_address, is_time, writer_properties};
use parking_lot::Mutex;
use parquet::basic::Type as Physical;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{FileMetaData, KeyValue};
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::reader::FileReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor, TypePtr};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows of a sorted file, at most.
const SORTED_ROWS: usize = 32 * ROW_GROUP_ROWS;

/// What sorting an hour takes at most, bytes: the encoded columns, and one that is being sorted.
pub fn memory_bytes(columns: usize) -> usize {
    const VALUE_BYTES: usize = 48;
    SORTED_ROWS * (columns + VALUE_BYTES)
}

/// What became of an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compacted {
    /// It stays as it is: it is sorted, has other files meanwhile, or the program ends.
    Nothing,
    /// It has this number of sorted files now.
    Into {
        /// Number of sorted files.
        files: usize,
        /// Their octets.
        octets: u64,
        /// Files that are damaged, and stay beside them.
        damaged: Vec<PathBuf>,
    },
}

/// Files with the same columns.
struct Group<'a> {
    root: TypePtr,
    form: RowForm,
    metadata: Option<Vec<KeyValue>>,
    files: Vec<&'a StoredFile>,
    rows: usize,
}

/// Sorts the records of an hour, and puts the sorted files in the place of all others at once. Damaged files stay as they
/// are.
///
/// # Errors
/// No file can be read, the disk is full, or the file system cannot exchange folders or link files. The hour is as
/// before.
pub fn compact_hour(
    folder: &Folder,
    hour: Hour,
    files: &[StoredFile],
    naming: &Mutex<()>,
    stop: &AtomicBool,
) -> io::Result<Compacted> {
    let sorted = sort_hour(folder, hour, files, naming, stop);
    let Err(error) = sorted else { return sorted };
    if stop.load(Ordering::Relaxed) {
        return Err(error);
    }
    let (readable, damaged): (Vec<_>, Vec<_>) = files.iter().cloned().partition(|file| verify(&file.path).is_ok());
    if readable.is_empty() || damaged.is_empty() {
        return Err(error);
    }
    match sort_hour(folder, hour, &readable, naming, stop)? {
        Compacted::Into { files, octets, .. } => {
            Ok(Compacted::Into { files, octets, damaged: damaged.into_iter().map(|file| file.path).collect() })
        }
        Compacted::Nothing => Err(error),
    }
}

fn sort_hour(
    folder: &Folder,
    hour: Hour,
    files: &[StoredFile],
    naming: &Mutex<()>,
    stop: &AtomicBool,
) -> io::Result<Compacted> {
    let mut replacement = Replacement::new(folder, hour)?;
    let mut merged: Vec<PathBuf> = Vec::new();
    for group in guarded(|| groups(files))? {
        if let [file] = group.files[..]
            && file.is_sorted
        {
            continue;
        }
        let path = replacement.new_file();
        let written = guarded(|| sort(folder, &group, &path, stop))?;
        if !written {
            return Ok(Compacted::Nothing);
        }
        merged.extend(group.files.iter().map(|file| file.path.clone()));
    }
    if merged.is_empty() {
        return Ok(Compacted::Nothing);
    }
    // No other file gets its name meanwhile.
    let _naming = naming.lock();
    let (files, octets) = replacement.finish(&merged)?;
    Ok(Compacted::Into { files, octets, damaged: Vec::new() })
}

/// The files in groups of the same columns, none with more rows than a sorted file. A sorted file that has no room for
/// others is a group of its own.
fn groups(files: &[StoredFile]) -> Result<Vec<Group<'_>>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for file in files {
        let reader = reader(&file.path).map_err(|error| named(error, &file.path))?;
        let metadata = reader.metadata().file_metadata();
        let rows = usize::try_from(metadata.num_rows()).unwrap_or(usize::MAX);
        let root = Arc::new(metadata.schema().clone());
        let form = RowForm::of(metadata);
        let has_room = |group: &&mut Group<'_>| {
            *group.root == *root && group.form == form && group.rows.saturating_add(rows) <= SORTED_ROWS
        };
        match groups.iter_mut().find(has_room) {
            Some(group) => {
                group.files.push(file);
                group.rows += rows;
            }
            None => groups.push(Group { root, form, metadata: kept_metadata(metadata), files: vec![file], rows }),
        }
    }
    Ok(groups)
}

fn named(error: ParquetError, path: &Path) -> ParquetError {
    ParquetError::General(format!("{}: {error}", path.display()))
}

fn kept_metadata(metadata: &FileMetaData) -> Option<Vec<KeyValue>> {
    metadata.key_value_metadata().cloned()
}

/// Writes the rows of some files to one, sorted. Returns whether it was not stopped.
fn sort(folder: &Folder, group: &Group<'_>, path: &Path, stop: &AtomicBool) -> Result<bool> {
    let readers: Vec<_> = group.files.iter().map(|file| reader(&file.path)).collect::<Result<_>>()?;
    let columns = SchemaDescriptor::new(group.root.clone());
    let properties = writer_properties(group.root.get_fields(), group.metadata.clone(), SORTED_PAGE_ROWS)?;
    let order = order(&readers, &columns)?;
    let mut chunks: Vec<Vec<EncodedChunk>> = Vec::new();
    for at in 0..columns.num_columns() {
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        chunks.push(sorted_column(&readers, &columns, at, &order, &properties)?);
    }
    let file = create_file(path)?;
    folder.give_to_owner(&file);
    write_file(file, &group.root, properties, chunks)?;
    Ok(true)
}

fn write_file(
    file: File,
    root: &TypePtr,
    properties: WriterPropertiesPtr,
    columns: Vec<Vec<EncodedChunk>>,
) -> Result<()> {
    let mut file = SerializedFileWriter::new(file, root.clone(), properties)?;
    let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    let groups = columns.first().map_or(0, ExactSizeIterator::len);
    for _ in 0..groups {
        let mut group = file.next_row_group()?;
        for chunks in &mut columns {
            chunks.next().ok_or_else(too_few_values)?.append(&mut group)?;
        }
        group.close()?;
    }
    let mut file = file.into_inner()?;
    file.flush()?;
    file.sync_all()?;
    Ok(())
}

/// A column of all files, in another order.
fn sorted_column(
    readers: &[Reader],
    columns: &SchemaDescriptor,
    at: usize,
    order: &[u32],
    properties: &WriterPropertiesPtr,
) -> Result<Vec<EncodedChunk>> {
    let write = match columns.column(at).physical_type() {
        Physical::INT32 => sorted_column_of::<Int32Type>,
        Physical::INT64 => sorted_column_of::<Int64Type>,
        Physical::DOUBLE => sorted_column_of::<DoubleType>,
        Physical::BYTE_ARRAY => sorted_column_of::<ByteArrayType>,
        other => return Err(unknown_type(other)),
    };
    write(readers, columns, at, order, properties)
}

fn sorted_column_of<T: DataType>(
    readers: &[Reader],
    columns: &SchemaDescriptor,
    at: usize,
    order: &[u32],
    properties: &WriterPropertiesPtr,
) -> Result<Vec<EncodedChunk>> {
    let column = read_column::<T>(readers, at)?;
    let (mut values, mut present) = (Vec::new(), Vec::new());
    let mut chunks = Vec::new();
    for rows in order.chunks(ROW_GROUP_ROWS) {
        values.clear();
        present.clear();
        for &row in rows {
            let value = column.get(row);
            present.push(i16::from(value.is_some()));
            values.extend(value.cloned());
        }
        chunks.push(EncodedChunk::new::<T>(columns.column(at), properties, &values, &present)?);
    }
    Ok(chunks)
}

/// The rows by the first address, then the first time.
fn order(readers: &[Reader], columns: &SchemaDescriptor) -> Result<Vec<u32>> {
    let place = |is_key: &dyn Fn(&ColumnDescPtr) -> bool| columns.columns().iter().position(is_key);
    let rows: i64 = readers.iter().map(|reader| reader.metadata().file_metadata().num_rows()).sum();
    let mut order: Vec<u32> = (0..u32::try_from(rows).map_err(|_| too_few_values())?).collect();
    let addresses = place(&|column| is_address(column.self_type()));
    let addresses = addresses.map(|at| read_column::<ByteArrayType>(readers, at)).transpose()?;
    let times = place(&|column| is_time(column.self_type()));
    let times = times.map(|at| read_column::<Int64Type>(readers, at)).transpose()?;
    let address = |row: u32| addresses.as_ref().and_then(|of| of.get(row)).map(ByteArray::data);
    let time = |row: u32| times.as_ref().and_then(|of| of.get(row));
    order.sort_by(|&a, &b| address(a).cmp(&address(b)).then_with(|| time(a).cmp(&time(b))));
    Ok(order)
}
