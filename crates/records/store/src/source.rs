//! Reads flow records back, from stores and from single files.
//!
//! Input: files of any version of Weir. Output: records that have the fields of [`FlowReader::known`]. Invariant: all
//! records of a file until it is damaged, in the order of the file.

use crate::error::Error;
use crate::folder::{Folder, Hour, StoredFile};
use crate::reading::{guarded, reader, too_few_values};
use crate::schema::{NS_REST, RowForm, has_microseconds};
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
    hours: VecDeque<HourFiles>,
    restored: Restored,
    starts_ns: Option<RangeInclusive<u64>>,
    /// The files of the hour that is read, which may be removed or replaced meanwhile.
    open: VecDeque<OpenFile>,
    /// Files of that hour that cannot be opened.
    damaged: Vec<Damage>,
    /// Octets of the files that are read.
    pub done_octets: u64,
    /// Octets of all files.
    pub total_octets: u64,
}

/// What was found before the first record is read.
pub struct Found {
    /// The reader of the records.
    pub reader: FlowReader,
    /// Files and folders that cannot be read.
    pub damaged: Vec<Damage>,
    /// What is none of a store.
    pub strange: Vec<PathBuf>,
    /// What rows of some files are.
    pub form: RowForm,
}

/// Files of an hour of a store, or a single file.
struct HourFiles {
    hour: Option<(Folder, Hour)>,
    files: Vec<PathBuf>,
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
    /// (ns since 1970 UTC) are not read.
    ///
    /// # Errors
    /// A path cannot be read or is no store, or the files lack a column without which a record is no flow.
    pub fn open(paths: &[PathBuf], starts_ns: Option<RangeInclusive<u64>>) -> std::result::Result<Found, Error> {
        let (mut damaged, mut strange) = (Vec::new(), Vec::new());
        let mut hours = VecDeque::new();
        for path in paths {
            hours.extend(hours_of(path, starts_ns.as_ref(), &mut damaged, &mut strange)?);
        }
        let (mut stored, mut form, mut total_octets): (Option<Vec<&'static Column>>, _, _) =
            (None, RowForm::default(), 0);
        for HourFiles { hour, files } in &mut hours {
            files.retain(|path| match columns_of(path) {
                Ok((columns, of_file)) => {
                    form.is_uniflow |= of_file.is_uniflow;
                    form.is_anonymised |= of_file.is_anonymised;
                    match &mut stored {
                        Some(stored) => stored.retain(|column| columns.contains(column)),
                        None => stored = Some(columns),
                    }
                    total_octets += fs::metadata(path).map_or(0, |file| file.len());
                    true
                }
                // It was removed or replaced, and the hour is read again later.
                Err(error) if hour.is_some() && error.kind() == io::ErrorKind::NotFound => true,
                Err(error) => {
                    damaged.push(Damage { path: path.clone(), error });
                    false
                }
            });
        }
        let stored = stored.unwrap_or_else(|| columns().iter().collect());
        let restored = Restored::of(&stored, form.is_uniflow).map_err(|column| {
            let lacks = |path: &&PathBuf| columns_of(path).is_ok_and(|(of, _)| of.iter().all(|of| of.name != column));
            let path = hours.iter().flat_map(|hour| &hour.files).find(lacks).unwrap_or(&paths[0]).clone();
            Error::NoFlows { path, column }
        })?;
        let (open, done_octets) = (VecDeque::new(), 0);
        let reader = Self { hours, restored, starts_ns, open, damaged: Vec::new(), done_octets, total_octets };
        Ok(Found { reader, damaged, strange, form })
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
        if self.open.is_empty() && self.damaged.is_empty() {
            let Some(hour) = self.hours.pop_front() else { return Ok(false) };
            self.open_hour(hour);
        }
        if let Some(damage) = self.damaged.pop() {
            return Err(damage);
        }
        let Some(mut file) = self.open.pop_front() else { return Ok(true) };
        let before = records.len();
        match guarded(|| file.read(&self.restored, records, most)) {
            Ok(true) => {
                self.open.push_front(file);
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

    /// Opens all files of an hour, so that it is as at one moment: sorted files replace others, with the same records.
    fn open_hour(&mut self, HourFiles { hour, mut files }: HourFiles) {
        /// An hour is seldom replaced, so that even a second attempt finds the same files.
        const ATTEMPTS: usize = 20;
        for attempt in 1..=ATTEMPTS {
            self.open.clear();
            self.damaged.clear();
            let (may_be_replaced, mut is_replaced) = (hour.is_some() && attempt < ATTEMPTS, false);
            for path in &files {
                match guarded(|| OpenFile::new(path)) {
                    Ok(file) => self.open.push_back(file),
                    Err(error) if may_be_replaced && error.kind() == io::ErrorKind::NotFound => is_replaced = true,
                    Err(error) => self.damaged.push(Damage { path: path.clone(), error }),
                }
            }
            let Some((folder, hour)) = hour.as_ref().filter(|_| is_replaced) else { return };
            files = folder.files_of(*hour).into_iter().map(|file| file.path).collect();
        }
    }
}

impl OpenFile {
    fn new(path: &Path) -> Result<Self> {
        let octets = fs::metadata(path)?.len();
        Ok(Self { path: path.into(), octets, reader: reader(path)?, next_group: 0, group: None })
    }

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
            let named = |error| ParquetError::General(format!("the column {}: {error}", column.name));
            values.read(rows).map_err(named)?;
            if Restored::is_required(column) && values.has_null() {
                return Err(ParquetError::General(format!("the column {} has rows without a value", column.name)));
            }
            values.set(column, &mut records[first..])?;
        }
        self.rows_left -= rows;
        if records[first..].iter_mut().map(Restored::finish).fold(true, |all, is_flow| all & is_flow) {
            Ok(())
        } else {
            Err(ParquetError::General("a row is no flow: its times, counts or addresses do not fit together".into()))
        }
    }
}

impl Values {
    fn open(group: &dyn RowGroupReader, schema: &SchemaDescriptor, column: &Column) -> Result<Self> {
        let place = |name: &str| schema.columns().iter().position(|of| of.name() == name);
        let at = place(column.name).ok_or_else(too_few_values)?;
        match (column.kind, schema.column(at).physical_type()) {
            (ColumnKind::Time, Physical::INT64) if !has_microseconds(schema.column(at).self_type()) => {
                Err(ParquetError::General(format!("the column {} has no times in microseconds", column.name)))
            }
            (ColumnKind::Time, Physical::INT64) => {
                let rest = place(&format!("{}{NS_REST}", column.name));
                let rest = rest.filter(|at| schema.column(*at).physical_type() == Physical::INT32);
                let rest = rest.map(|at| Typed::open(group, at)).transpose()?;
                Ok(Self::Times(Box::new((Typed::open(group, at)?, rest))))
            }
            (ColumnKind::Integer, Physical::INT64) => Ok(Self::Integers(Typed::open(group, at)?)),
            (ColumnKind::Number, Physical::DOUBLE) => Ok(Self::Numbers(Typed::open(group, at)?)),
            (ColumnKind::Time | ColumnKind::Integer | ColumnKind::Number, other) => Err(of_type(column, other)),
            (_, Physical::BYTE_ARRAY) => Ok(Self::Texts(Typed::open(group, at)?)),
            (_, other) => Err(of_type(column, other)),
        }
    }

    /// Whether a row has no value.
    fn has_null(&self) -> bool {
        let present = match self {
            Self::Times(times) => &times.0.present,
            Self::Integers(integers) => &integers.present,
            Self::Numbers(numbers) => &numbers.present,
            Self::Texts(texts) => &texts.present,
        };
        present.contains(&0)
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

fn of_type(column: &Column, of: Physical) -> ParquetError {
    ParquetError::General(format!("the column {} has the type {of}, which Weir does not write", column.name))
}

fn time(micros: i64, rest: i32) -> Option<StoredValue<'static>> {
    let micros = u64::try_from(micros).ok()?.checked_mul(1000)?;
    let rest = u64::try_from(rest).ok().filter(|rest| *rest < 1000)?;
    Some(StoredValue::Unsigned(micros.checked_add(rest)?))
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
            let before = self.present.len();
            let (read, ..) =
                self.reader.read_records(rows - before, Some(&mut self.present), None, &mut self.values)?;
            if read == 0 {
                return Err(too_few_values());
            }
            // A column of another program that is never null.
            self.present.resize(before + read, 1);
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
                return Err(ParquetError::General(format!("the column {} has an invalid value", column.name)));
            }
        }
        Ok(())
    }
}

/// The files at a path, the oldest hour first.
fn hours_of(
    path: &Path,
    starts_ns: Option<&RangeInclusive<u64>>,
    damaged: &mut Vec<Damage>,
    strange: &mut Vec<PathBuf>,
) -> std::result::Result<Vec<HourFiles>, Error> {
    let failed = |error| Error::Io { path: path.into(), error };
    let kind = fs::metadata(path).map_err(failed)?;
    if !kind.is_dir() {
        let is_file = kind.is_file();
        return if is_file {
            Ok(vec![HourFiles { hour: None, files: vec![path.into()] }])
        } else {
            Err(Error::NoFile(path.into()))
        };
    }
    let folder = Folder::new(path, None);
    folder.check_content()?;
    let content = folder.content().map_err(failed)?;
    strange.extend(content.strange);
    damaged.extend(content.unreadable.into_iter().map(|(path, error)| Damage { path, error }));
    let hours = content.files.chunk_by(|a, b| a.hour == b.hour);
    let is_wanted = |files: &&[StoredFile]| {
        let hour = files[0].hour;
        starts_ns.is_none_or(|of| hour.start_ns() <= *of.end() && hour.end_ns() >= *of.start())
    };
    let of_hour = |files: &[StoredFile]| HourFiles {
        hour: Some((folder.clone(), files[0].hour)),
        files: files.iter().map(|file| file.path.clone()).collect(),
    };
    Ok(hours.filter(is_wanted).map(of_hour).collect())
}

/// The columns of a file that are fields of Weir, and what its rows are.
///
/// # Errors
/// The file cannot be opened, or its end is damaged.
pub fn columns_of(path: &Path) -> io::Result<(Vec<&'static Column>, RowForm)> {
    let reader = guarded(|| reader(path))?;
    let metadata = reader.metadata().file_metadata();
    let schema = metadata.schema_descr_ptr();
    let has = |column: &&Column| schema.columns().iter().any(|of| of.name() == column.name);
    Ok((columns().iter().filter(has).collect(), RowForm::of(metadata)))
}
