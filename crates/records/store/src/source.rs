//! Reads flow records back, from stores and from single files.
//!
//! Input: files of any version of Weir. Output: records that have the fields of [`FlowReader::known`]. Invariant: all
//! records of a file until it is damaged, in the order of the file.

use crate::error::Error;
use crate::folder::{Folder, StoredFile};
use crate::reading::{guarded, reader, too_few_values, unknown_type};
use crate::schema::NS_REST;
use parquet::basic::Type as Physical;
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use weir_fields::{Column, ColumnKind, Restored, StoredValue, columns};
use weir_flow::FlowRecord;

/// A file that cannot be read, or not to its end.
#[derive(Debug)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub error: io::Error,
}

/// Reads the records of some files.
pub struct FlowReader {
    files: VecDeque<StoredRecords>,
    restored: Restored,
    starts_ns: Option<RangeInclusive<u64>>,
    open: Option<OpenFile>,
    /// Octets of the files that are read.
    pub done_octets: u64,
    /// Octets of all files.
    pub total_octets: u64,
}

struct StoredRecords {
    path: PathBuf,
    octets: u64,
}

struct OpenFile {
    path: PathBuf,
    octets: u64,
    reader: SerializedFileReader<File>,
    next_group: usize,
    group: Option<Group>,
}

/// A row group of which the first rows are read.
struct Group {
    columns: Vec<(&'static Column, Values)>,
    rows_left: usize,
}

enum Values {
    /// Microseconds, and the nanoseconds left.
    Times(Box<(Typed<Int64Type>, Option<Typed<Int32Type>>)>),
    Integers(Typed<Int64Type>),
    Numbers(Typed<DoubleType>),
    Texts(Typed<ByteArrayType>),
}

/// Some rows of a column: those that are not null, and for each row 1, or 0 for null.
struct Typed<T: DataType> {
    reader: ColumnReaderImpl<T>,
    present: Vec<i16>,
    values: Vec<T::T>,
}

impl FlowReader {
    /// Finds the files of stores and single files, and the columns that all of them have. Flows that start at other times
    /// (ns since 1970 UTC) are not read. Files whose end is damaged are left out, and returned.
    ///
    /// # Errors
    /// A path cannot be read or is no store, or the files lack a column without which a record is no flow.
    pub fn open(
        paths: &[PathBuf],
        starts_ns: Option<RangeInclusive<u64>>,
    ) -> std::result::Result<(Self, Vec<Damage>), Error> {
        let (mut files, mut damaged) = (VecDeque::new(), Vec::new());
        let mut common: Option<Vec<&'static Column>> = None;
        for path in files_of(paths, starts_ns.as_ref())? {
            match columns_of(&path) {
                Ok(stored) => {
                    match &mut common {
                        Some(common) => common.retain(|column| stored.contains(column)),
                        None => common = Some(stored),
                    }
                    let octets = fs::metadata(&path).map_or(0, |file| file.len());
                    files.push_back(StoredRecords { path, octets });
                }
                Err(error) => damaged.push(Damage { path, error }),
            }
        }
        let stored = common.unwrap_or_else(|| columns().iter().collect());
        let restored = Restored::of(&stored).map_err(|column| Error::NoFlows { path: paths[0].clone(), column })?;
        let total_octets = files.iter().map(|file| file.octets).sum();
        Ok((Self { files, restored, starts_ns, open: None, done_octets: 0, total_octets }, damaged))
    }

    /// The fields that the records have.
    pub fn known(&self) -> &[&'static Column] {
        self.restored.known()
    }

    /// From now on records have these fields only, and those of every record.
    pub fn keep_only(&mut self, fields: &[&'static Column]) {
        self.restored.keep_only(fields);
    }

    /// Appends records, up to a number of them. Returns whether there are more.
    ///
    /// # Errors
    /// A file is damaged. The next call goes on with the next file.
    pub fn read(&mut self, records: &mut Vec<FlowRecord>, most: usize) -> std::result::Result<bool, Damage> {
        let open = match self.open.take() {
            Some(file) => Some(file),
            None => self.open_next()?,
        };
        let Some(mut file) = open else { return Ok(false) };
        let before = records.len();
        match guarded(|| file.read(&self.restored, records, most)) {
            Ok(true) => {
                self.open = Some(file);
                if let Some(starts_ns) = &self.starts_ns {
                    records.retain(|record| starts_ns.contains(&record.start_ns()));
                }
            }
            Ok(false) => self.done_octets += file.octets,
            Err(error) => {
                records.truncate(before);
                self.done_octets += file.octets;
                return Err(Damage { path: file.path, error });
            }
        }
        Ok(true)
    }

    fn open_next(&mut self) -> std::result::Result<Option<OpenFile>, Damage> {
        let Some(StoredRecords { path, octets }) = self.files.pop_front() else { return Ok(None) };
        match guarded(|| reader(&path)) {
            Ok(reader) => Ok(Some(OpenFile { path, octets, reader, next_group: 0, group: None })),
            Err(error) => Err(Damage { path, error }),
        }
    }
}

impl OpenFile {
    /// Returns whether there may be more.
    fn read(&mut self, restored: &Restored, records: &mut Vec<FlowRecord>, most: usize) -> Result<bool> {
        while self.group.as_ref().is_none_or(|group| group.rows_left == 0) {
            if self.next_group == self.reader.num_row_groups() {
                return Ok(false);
            }
            let group = self.reader.get_row_group(self.next_group)?;
            self.group = Some(Group::open(&*group, restored)?);
            self.next_group += 1;
        }
        self.group.as_mut().map_or(Ok(false), |group| group.read(records, most).map(|()| true))
    }
}

impl Group {
    fn open(group: &dyn RowGroupReader, restored: &Restored) -> Result<Self> {
        let rows_left = usize::try_from(group.metadata().num_rows()).unwrap_or_default();
        let schema = group.metadata().schema_descr();
        let values = |column: &&'static Column| Ok((*column, Values::open(group, schema, column)?));
        Ok(Self { columns: restored.columns().iter().map(values).collect::<Result<_>>()?, rows_left })
    }

    fn read(&mut self, records: &mut Vec<FlowRecord>, most: usize) -> Result<()> {
        let rows = most.min(self.rows_left);
        let first = records.len();
        records.resize_with(first + rows, Restored::begin);
        for (column, values) in &mut self.columns {
            values.read(rows)?;
            values.set(column, &mut records[first..])?;
        }
        records[first..].iter_mut().for_each(Restored::finish);
        self.rows_left -= rows;
        Ok(())
    }
}

impl Values {
    fn open(group: &dyn RowGroupReader, schema: &SchemaDescriptor, column: &Column) -> Result<Self> {
        let place = |name: &str| schema.columns().iter().position(|of| of.name() == name);
        let at = place(column.name).ok_or_else(too_few_values)?;
        match (column.kind, schema.column(at).physical_type()) {
            (ColumnKind::Time, Physical::INT64) => {
                let rest = place(&format!("{}{NS_REST}", column.name));
                let rest = rest.filter(|at| schema.column(*at).physical_type() == Physical::INT32);
                let rest = rest.map(|at| Typed::open(group, at)).transpose()?;
                Ok(Self::Times(Box::new((Typed::open(group, at)?, rest))))
            }
            (ColumnKind::Integer, Physical::INT64) => Ok(Self::Integers(Typed::open(group, at)?)),
            (ColumnKind::Number, Physical::DOUBLE) => Ok(Self::Numbers(Typed::open(group, at)?)),
            (ColumnKind::Time | ColumnKind::Integer | ColumnKind::Number, other) => Err(unknown_type(other)),
            (_, Physical::BYTE_ARRAY) => Ok(Self::Texts(Typed::open(group, at)?)),
            (_, other) => Err(unknown_type(other)),
        }
    }

    fn read(&mut self, rows: usize) -> Result<()> {
        match self {
            Self::Times(times) => {
                let (micros, rest) = &mut **times;
                micros.read(rows)?;
                rest.iter_mut().try_for_each(|rest| rest.read(rows))
            }
            Self::Integers(integers) => integers.read(rows),
            Self::Numbers(numbers) => numbers.read(rows),
            Self::Texts(texts) => texts.read(rows),
        }
    }

    fn set(&self, column: &Column, records: &mut [FlowRecord]) -> Result<()> {
        match self {
            Self::Times(times) => {
                let (micros, rest) = &**times;
                let mut rest = rest.iter().flat_map(|rest| &rest.values);
                micros.set(column, records, |micros| time(*micros, rest.next().copied().unwrap_or_default()))
            }
            Self::Integers(integers) => {
                integers.set(column, records, |number| Some(StoredValue::Unsigned(u64::try_from(*number).ok()?)))
            }
            Self::Numbers(numbers) => numbers.set(column, records, |number| Some(StoredValue::Float(*number))),
            Self::Texts(texts) => texts.set(column, records, text),
        }
    }
}

fn time(micros: i64, rest: i32) -> Option<StoredValue<'static>> {
    let micros = u64::try_from(micros).ok()?.checked_mul(1000)?;
    Some(StoredValue::Unsigned(micros.checked_add(rest.try_into().ok()?)?))
}

fn text(octets: &ByteArray) -> Option<StoredValue<'_>> {
    std::str::from_utf8(octets.data()).ok().map(StoredValue::Text)
}

impl<T: DataType> Typed<T> {
    fn open(group: &dyn RowGroupReader, at: usize) -> Result<Self> {
        let reader = get_typed_column_reader::<T>(group.get_column_reader(at)?);
        Ok(Self { reader, present: Vec::new(), values: Vec::new() })
    }

    /// Reads the next rows in place of those before.
    fn read(&mut self, rows: usize) -> Result<()> {
        self.present.clear();
        self.values.clear();
        while self.present.len() < rows {
            let left = rows - self.present.len();
            let (read, ..) = self.reader.read_records(left, Some(&mut self.present), None, &mut self.values)?;
            if read == 0 {
                return Err(too_few_values());
            }
        }
        Ok(())
    }

    /// Sets the values in records: one for each row.
    fn set<'a>(
        &'a self,
        column: &Column,
        records: &mut [FlowRecord],
        mut convert: impl FnMut(&'a T::T) -> Option<StoredValue<'a>>,
    ) -> Result<()> {
        let mut values = self.values.iter();
        for (record, _) in records.iter_mut().zip(&self.present).filter(|(_, present)| **present > 0) {
            let value = values.next().ok_or_else(too_few_values)?;
            if !convert(value).is_some_and(|value| column.restore(record, value)) {
                return Err(ParquetError::General(format!(
                    "the column {} has a value that is none of it",
                    column.name
                )));
            }
        }
        Ok(())
    }
}

/// The files at these paths, the oldest of each store first.
fn files_of(paths: &[PathBuf], starts_ns: Option<&RangeInclusive<u64>>) -> std::result::Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for path in paths {
        let failed = |error| Error::Io { path: path.clone(), error };
        if fs::metadata(path).map_err(failed)?.is_dir() {
            let folder = Folder::new(path, None);
            folder.check_content()?;
            let content = folder.content().map_err(failed)?;
            let is_wanted = |file: &StoredFile| {
                starts_ns.is_none_or(|of| file.hour.start_ns() <= *of.end() && file.hour.end_ns() >= *of.start())
            };
            files.extend(content.files.into_iter().filter(is_wanted).map(|file| file.path));
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

/// The columns of a file that are fields of Weir.
fn columns_of(path: &Path) -> io::Result<Vec<&'static Column>> {
    let reader = guarded(|| reader(path))?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let has = |column: &&Column| schema.columns().iter().any(|of| of.name() == column.name);
    Ok(columns().iter().filter(has).collect())
}
