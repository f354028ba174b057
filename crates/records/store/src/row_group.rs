//! Reads the rows of a row group into records, those only that are selected.

use crate::reading::too_few_values;
use crate::schema::{NS_REST, has_microseconds};
use crate::selection::Selection;
use parquet::basic::Type as Physical;
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::RowGroupReader;
use parquet::schema::types::SchemaDescriptor;
use std::net::{IpAddr, Ipv4Addr};
use weir_fields::{Column, ColumnKind, Restored, StoredValue};
use weir_flow::FlowRecord;

/// Rows that are decoded together.
const CHUNK: usize = 1024;
/// Rows whose records fit into the cache of a core.
const SLICE: usize = 16;

/// A row group of which the first rows are read.
pub struct RowGroup {
    columns: Vec<RowColumn>,
    /// Rows that are not decoded.
    rows_left: usize,
    chunk: Chunk,
    /// Whether the last row that was decided about is selected.
    last_matches: bool,
    /// Records of the deciding columns only.
    scratch: Vec<FlowRecord>,
}

/// Decoded rows.
#[derive(Default)]
struct Chunk {
    /// For each row, whether it is read.
    selected: Vec<bool>,
    /// Rows that are not selected.
    others: usize,
    /// Rows that were taken.
    taken: usize,
}

struct RowColumn {
    column: &'static Column,
    values: Values,
    /// Whether rows are selected by it.
    decides: bool,
}

pub enum Values {
    /// Microseconds, and the nanoseconds left.
    Times(Box<(Typed<Int64Type>, Option<Typed<Int32Type>>)>),
    Integers(Typed<Int64Type>),
    Numbers(Typed<DoubleType>),
    Addresses(Typed<ByteArrayType>),
    Texts(Typed<ByteArrayType>),
}

/// Rows of a column: the values that are not null, and for each row 1, or 0 for null.
pub struct Typed<T: DataType> {
    reader: ColumnReaderImpl<T>,
    /// Rows before those that are read next.
    to_skip: usize,
    pub present: Vec<i16>,
    pub values: Vec<T::T>,
    /// The first values that were taken.
    taken: usize,
}

impl RowGroup {
    pub fn open(group: &dyn RowGroupReader, restored: &Restored, selection: Option<&Selection>) -> Result<Self> {
        let rows_left = usize::try_from(group.metadata().num_rows()).unwrap_or_default();
        let schema = group.metadata().schema_descr();
        let open = |column: &&'static Column| {
            let decides = selection.is_none_or(|selection| selection.columns.contains(column));
            Ok(RowColumn { column, values: Values::open(group, schema, column)?, decides })
        };
        let columns = restored.columns().iter().map(open).collect::<Result<_>>()?;
        Ok(Self { columns, rows_left, chunk: Chunk::default(), last_matches: false, scratch: Vec::new() })
    }

    /// Whether all rows were read.
    pub fn is_read(&self) -> bool {
        self.rows_left == 0 && self.chunk.taken == self.chunk.selected.len()
    }

    /// Appends the selected records of the next rows, up to a number of them. Returns how many rows that were decoded now
    /// are not selected.
    pub fn read(&mut self, selection: Option<&Selection>, records: &mut Vec<FlowRecord>, most: usize) -> Result<usize> {
        if self.chunk.taken == self.chunk.selected.len() && !self.decode(selection)? {
            self.chunk.selected.clear();
        }
        let most = most.min(self.chunk.selected.len() - self.chunk.taken);
        for done in (0..most).step_by(SLICE) {
            self.take(SLICE.min(most - done), records)?;
        }
        Ok(std::mem::take(&mut self.chunk.others))
    }

    /// Appends the selected records of some decoded rows.
    fn take(&mut self, rows: usize, records: &mut Vec<FlowRecord>) -> Result<()> {
        let rows = &self.chunk.selected[self.chunk.taken..][..rows];
        let selected = rows.iter().filter(|is_selected| **is_selected).count();
        let first = records.len();
        records.resize_with(first + selected, Restored::begin);
        for RowColumn { column, values, .. } in &mut self.columns {
            values.take(column, self.chunk.taken, rows, &mut records[first..])?;
        }
        self.chunk.taken += rows.len();
        finish(&mut records[first..])
    }

    /// Decodes the next rows. Returns whether one of them is read: otherwise only the deciding columns are decoded.
    fn decode(&mut self, selection: Option<&Selection>) -> Result<bool> {
        let rows = CHUNK.min(self.rows_left);
        self.rows_left -= rows;
        self.chunk.taken = 0;
        self.chunk.selected.clear();
        self.columns.iter_mut().filter(|of| of.decides).try_for_each(|of| of.decode(rows))?;
        let Some(selection) = selection else {
            self.chunk.selected.resize(rows, true);
            return Ok(true);
        };
        let mut differs = vec![false; rows];
        differs[0] = true;
        self.columns.iter().filter(|of| of.decides).for_each(|of| of.values.compare(&mut differs));
        for (at, differs) in differs.chunks(SLICE).enumerate() {
            self.decide(selection, at * SLICE, differs)?;
        }
        self.columns.iter_mut().filter(|of| of.decides).for_each(|of| of.values.take_again());
        let selected = &self.chunk.selected;
        let wanted = selected.iter().position(|is| *is).zip(selected.iter().rposition(|is| *is));
        for of in self.columns.iter_mut().filter(|of| !of.decides) {
            match wanted {
                Some((first, last)) => of.decode_some(rows, first, last)?,
                None => of.values.skip(rows),
            }
        }
        Ok(wanted.is_some())
    }

    /// Decides about some rows: about those that differ from the row before, and as about that row otherwise.
    fn decide(&mut self, selection: &Selection, row: usize, differs: &[bool]) -> Result<()> {
        self.scratch.clear();
        self.scratch.resize_with(differs.iter().filter(|differs| **differs).count(), Restored::begin);
        for RowColumn { column, values, .. } in self.columns.iter_mut().filter(|of| of.decides) {
            values.take(column, row, differs, &mut self.scratch)?;
        }
        finish(&mut self.scratch)?;
        let mut records = self.scratch.iter().peekable();
        let Chunk { selected, others, .. } = &mut self.chunk;
        let (mut matches, mut is_wanted) = (self.last_matches, selected.last().copied().unwrap_or_default());
        for differs in differs {
            if let Some(record) = records.next_if(|_| *differs) {
                matches = (selection.matches)(record);
                is_wanted = matches && selection.is_wanted.as_ref().is_none_or(|is_wanted| is_wanted(record));
            }
            *others += usize::from(!matches);
            selected.push(is_wanted);
        }
        self.last_matches = matches;
        Ok(())
    }
}

/// Completes records whose values are set.
fn finish(records: &mut [FlowRecord]) -> Result<()> {
    if records.iter_mut().map(Restored::finish).fold(true, |all, is_flow| all & is_flow) {
        Ok(())
    } else {
        Err(ParquetError::General("a row is no flow: its times, counts or addresses do not fit together".into()))
    }
}

impl RowColumn {
    fn decode(&mut self, rows: usize) -> Result<()> {
        let Self { column, values, .. } = self;
        values.decode(rows).map_err(|error| ParquetError::General(format!("the column {}: {error}", column.name)))?;
        if Restored::is_required(column) && values.has_null() {
            return Err(ParquetError::General(format!("the column {} has rows without a value", column.name)));
        }
        Ok(())
    }

    /// Decodes some of the next rows. The others have no value.
    fn decode_some(&mut self, rows: usize, first: usize, last: usize) -> Result<()> {
        self.values.skip(first);
        self.decode(last + 1 - first)?;
        self.values.surround(first, rows);
        self.values.skip(rows - 1 - last);
        Ok(())
    }
}

/// Calls a method of the values, whatever their type.
macro_rules! each {
    ($values:expr, $typed:ident => $call:expr) => {
        match $values {
            Values::Times(times) => {
                let $typed = &mut times.0;
                $call;
                if let Some($typed) = &mut times.1 {
                    $call;
                }
            }
            Values::Integers($typed) => $call,
            Values::Numbers($typed) => $call,
            Values::Addresses($typed) | Values::Texts($typed) => $call,
        }
    };
}

impl Values {
    pub fn open(group: &dyn RowGroupReader, schema: &SchemaDescriptor, column: &Column) -> Result<Self> {
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
            (ColumnKind::Address, Physical::BYTE_ARRAY) => Ok(Self::Addresses(Typed::open(group, at)?)),
            (_, Physical::BYTE_ARRAY) => Ok(Self::Texts(Typed::open(group, at)?)),
            (_, other) => Err(of_type(column, other)),
        }
    }

    /// Whether a row has no value.
    pub fn has_null(&self) -> bool {
        let present = match self {
            Self::Times(times) => &times.0.present,
            Self::Integers(integers) => &integers.present,
            Self::Numbers(numbers) => &numbers.present,
            Self::Addresses(texts) | Self::Texts(texts) => &texts.present,
        };
        present.contains(&0)
    }

    /// Decodes the next rows in place of those before.
    pub fn decode(&mut self, rows: usize) -> Result<()> {
        each!(self, typed => typed.decode(rows)?);
        Ok(())
    }

    /// Leaves out the next rows.
    pub fn skip(&mut self, rows: usize) {
        each!(self, typed => typed.skip(rows));
    }

    /// Marks the decoded rows whose value is another one than that of the row before.
    fn compare(&self, differs: &mut [bool]) {
        match self {
            Self::Times(times) => {
                times.0.compare(differs);
                times.1.iter().for_each(|rest| rest.compare(differs));
            }
            Self::Integers(integers) => integers.compare(differs),
            Self::Numbers(numbers) => numbers.compare(differs),
            Self::Addresses(texts) | Self::Texts(texts) => texts.compare(differs),
        }
    }

    /// Rows without a value come before the decoded ones, and behind them, so that there are as many as `rows`.
    fn surround(&mut self, before: usize, rows: usize) {
        each!(self, typed => typed.surround(before, rows));
    }

    /// The decoded rows are taken once more.
    fn take_again(&mut self) {
        each!(self, typed => typed.taken = 0);
    }

    /// Takes rows behind those that were taken, and sets their values in records: one for each selected row.
    fn take(&mut self, column: &Column, row: usize, selected: &[bool], records: &mut [FlowRecord]) -> Result<()> {
        match self {
            Self::Times(times) => {
                let (micros, rest) = &mut **times;
                let rest = rest.as_ref().map_or(&[][..], |rest| &rest.values);
                micros.take(column, row, selected, records, |at, micros| {
                    time(*micros, rest.get(at).copied().unwrap_or_default())
                })
            }
            Self::Integers(integers) => integers.take(column, row, selected, records, |_, number| {
                Some(StoredValue::Unsigned(u64::try_from(*number).ok()?))
            }),
            Self::Numbers(numbers) => {
                numbers.take(column, row, selected, records, |_, number| Some(StoredValue::Float(*number)))
            }
            Self::Addresses(texts) => {
                texts.take(column, row, selected, records, |_, text| address(text.data()).map(StoredValue::Ip))
            }
            Self::Texts(texts) => texts.take(column, row, selected, records, |_, octets| text(octets)),
        }
    }
}

fn of_type(column: &Column, of: Physical) -> ParquetError {
    ParquetError::General(format!("the column {} has the type {of}, which Weir does not write", column.name))
}

pub fn time(micros: i64, rest: i32) -> Option<StoredValue<'static>> {
    let micros = u64::try_from(micros).ok()?.checked_mul(1000)?;
    let rest = u64::try_from(rest).ok().filter(|rest| *rest < 1000)?;
    Some(StoredValue::Unsigned(micros.checked_add(rest)?))
}

fn text(octets: &ByteArray) -> Option<StoredValue<'_>> {
    std::str::from_utf8(octets.data()).ok().map(StoredValue::Text)
}

/// The address of a text.
pub fn address(text: &[u8]) -> Option<IpAddr> {
    ipv4_address(text).map(IpAddr::V4).or_else(|| std::str::from_utf8(text).ok()?.parse().ok())
}

/// The same as parsing by the standard library, which takes several times as long.
fn ipv4_address(text: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0; 4];
    let mut parts = text.split(|octet| *octet == b'.');
    for octet in &mut octets {
        let digits = parts.next().filter(|digits| (1..=3).contains(&digits.len()))?;
        if digits.len() > 1 && digits[0] == b'0' || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        *octet = u8::try_from(digits.iter().fold(0, |number, digit| 10 * number + u32::from(digit - b'0'))).ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

impl<T: DataType> Typed<T> {
    fn open(group: &dyn RowGroupReader, at: usize) -> Result<Self> {
        let reader = get_typed_column_reader::<T>(group.get_column_reader(at)?);
        Ok(Self { reader, to_skip: 0, present: Vec::new(), values: Vec::new(), taken: 0 })
    }

    fn skip(&mut self, rows: usize) {
        self.to_skip += rows;
    }

    fn decode(&mut self, rows: usize) -> Result<()> {
        self.present.clear();
        self.values.clear();
        self.taken = 0;
        let to_skip = std::mem::take(&mut self.to_skip);
        if to_skip > 0 && self.reader.skip_records(to_skip)? < to_skip {
            return Err(too_few_values());
        }
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

    fn compare(&self, differs: &mut [bool]) {
        let (mut values, mut last) = (self.values.iter(), None);
        for (present, differs) in self.present.iter().zip(differs) {
            let value = if *present == 0 { None } else { values.next() };
            *differs |= value != last;
            last = value;
        }
    }

    fn surround(&mut self, before: usize, rows: usize) {
        self.present.splice(0..0, std::iter::repeat_n(0, before));
        self.present.resize(rows, 0);
    }

    /// `convert` gets the place of a value, too.
    fn take<'a>(
        &'a mut self,
        column: &Column,
        row: usize,
        selected: &[bool],
        records: &mut [FlowRecord],
        mut convert: impl FnMut(usize, &'a T::T) -> Option<StoredValue<'a>>,
    ) -> Result<()> {
        let mut records = records.iter_mut();
        for (present, is_selected) in self.present[row..].iter().zip(selected) {
            let record = if *is_selected { records.next() } else { None };
            if *present == 0 {
                continue;
            }
            let value = self.values.get(self.taken).ok_or_else(too_few_values)?;
            if let Some(record) = record
                && !convert(self.taken, value).is_some_and(|value| column.restore(record, value))
            {
                return Err(ParquetError::General(format!("the column {} has an invalid value", column.name)));
            }
            self.taken += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_addresses_are_parsed_as_by_the_standard_library() {
        let parts = ["", "0", "00", "01", "1", "9", "10", "99", "100", "199", "255", "256", "999", "0255", "a", "+1"];
        let mut texts: Vec<String> = parts.iter().map(|part| format!("{part}.2.3.4")).collect();
        texts.extend(parts.iter().map(|part| format!("1.2.3.{part}")));
        texts.extend(["1.2.3", "1.2.3.4.5", "1.2.3.4.", "::1", "::ffff:1.2.3.4", "2001:db8::1", ""].map(String::from));
        for text in texts {
            assert_eq!(ipv4_address(text.as_bytes()), text.parse().ok(), "{text}");
            assert_eq!(address(text.as_bytes()), text.parse().ok(), "{text}");
        }
    }
}
