//! Reads the columns of a row group, for sums without records.

use crate::reading::{Reader, too_few_values};
use crate::row_group::{Typed, Values, time};
use crate::schema::NS_REST;
use crate::text_column::TextColumn;
use parquet::basic::Type as Physical;
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::statistics::Statistics;
use parquet::schema::types::SchemaDescriptor;
use weir_fields::{Column, ColumnKind, Restored, RowSums, Rows, StoredColumn, StoredRows};

/// Rows that are decoded together: their columns fit into the cache of a core.
const CHUNK: usize = 2048;

/// What is read of row groups.
pub struct ColumnPlan<'a> {
    /// All columns.
    pub columns: &'a [&'static Column],
    /// Those that decide about a row; none if all rows are selected.
    pub deciding: &'a [&'static Column],
    /// Those in which null means the same as 0.
    pub zeros: &'a [&'static Column],
}

/// Sums up the rows of a row group. Returns the number of rows that are not selected.
///
/// # Errors
/// These rows cannot be summed up without records.
pub fn sum_up(plan: &ColumnPlan<'_>, reader: &Reader, group: usize, sums: &mut dyn RowSums) -> Result<u64> {
    let mut columns = ColumnGroup::open(plan, reader, group)?;
    let (mut selected, mut others) = (Vec::with_capacity(CHUNK), 0);
    while columns.rows_left > 0 {
        let rows = CHUNK.min(columns.rows_left);
        columns.rows_left -= rows;
        columns.rows.rows = rows;
        columns.forget();
        columns.decode(rows, true)?;
        selected.clear();
        if !sums.select(&columns.rows, &mut selected) {
            return Err(unsuitable());
        }
        others += (rows - selected.len()) as u64;
        if selected.is_empty() {
            columns.skip(rows);
            continue;
        }
        columns.decode(rows, false)?;
        if !sums.add(&columns.rows, &selected) {
            return Err(unsuitable());
        }
    }
    Ok(others)
}

fn unsuitable() -> ParquetError {
    ParquetError::General("the rows are no flows of which sums can be made".into())
}

struct ColumnGroup {
    columns: Vec<GroupColumn>,
    rows: StoredRows,
    rows_left: usize,
}

struct GroupColumn {
    column: &'static Column,
    decides: bool,
    /// `None` if all rows are null or 0.
    source: Option<Source>,
}

enum Source {
    Numbers(Box<Values>),
    Texts(Box<TextColumn>),
}

impl ColumnGroup {
    fn open(plan: &ColumnPlan<'_>, reader: &Reader, group: usize) -> Result<Self> {
        let group = reader.get_row_group(group)?;
        let metadata = group.metadata();
        let schema = metadata.schema_descr();
        let open = |column: &&'static Column| {
            let is_nothing = has_only_nothing(metadata, column, plan.zeros.contains(column));
            let source = if is_nothing { None } else { Some(Source::open(&*group, schema, column)?) };
            Ok(GroupColumn { column, decides: plan.deciding.contains(column), source })
        };
        let columns: Vec<_> = plan.columns.iter().map(open).collect::<Result<_>>()?;
        let kinds = columns.iter().map(|of| match (&of.source, of.column.kind) {
            (None, _) => StoredColumn::Nothing,
            (_, ColumnKind::Time | ColumnKind::Integer) => StoredColumn::Unsigned(Rows::default()),
            (_, ColumnKind::Number) => StoredColumn::Float(Rows::default()),
            _ => StoredColumn::Text { places: Vec::new(), values: Vec::new() },
        });
        let rows = StoredRows { rows: 0, columns: kinds.collect() };
        Ok(Self { columns, rows, rows_left: usize::try_from(metadata.num_rows()).unwrap_or_default() })
    }

    /// Leaves no addresses of the rows before in columns that are not yet decoded.
    fn forget(&mut self) {
        for column in &mut self.rows.columns {
            if let StoredColumn::Text { places, .. } = column {
                places.clear();
            }
        }
    }

    /// Decodes the next rows of the columns that decide, or of the others.
    fn decode(&mut self, rows: usize, decides: bool) -> Result<()> {
        for (of, to) in self.columns.iter_mut().zip(&mut self.rows.columns).filter(|(of, _)| of.decides == decides) {
            match (&mut of.source, to) {
                (None, _) => {}
                (Some(Source::Texts(texts)), StoredColumn::Text { places, values }) => {
                    texts.decode(rows, places, values)?;
                }
                (Some(Source::Texts(_)), _) => return Err(too_few_values()),
                (Some(Source::Numbers(values)), to) => {
                    values.decode(rows)?;
                    if Restored::is_required(of.column) && values.has_null() {
                        return Err(too_few_values());
                    }
                    copy(values, to)?;
                }
            }
        }
        Ok(())
    }

    /// Leaves out the next rows of the columns that do not decide.
    fn skip(&mut self, rows: usize) {
        for of in self.columns.iter_mut().filter(|of| !of.decides) {
            match &mut of.source {
                Some(Source::Numbers(values)) => values.skip(rows),
                Some(Source::Texts(texts)) => texts.skip(rows),
                None => {}
            }
        }
    }
}

impl Source {
    fn open(group: &dyn RowGroupReader, schema: &SchemaDescriptor, column: &Column) -> Result<Self> {
        let is_number = matches!(column.kind, ColumnKind::Time | ColumnKind::Integer | ColumnKind::Number);
        let at = schema.columns().iter().position(|of| of.name() == column.name).ok_or_else(too_few_values)?;
        if is_number || schema.column(at).physical_type() != Physical::BYTE_ARRAY {
            return Values::open(group, schema, column).map(|values| Self::Numbers(Box::new(values)));
        }
        TextColumn::open(group, at, column.kind == ColumnKind::Address).map(|texts| Self::Texts(Box::new(texts)))
    }
}

/// Whether the index says that each value of a column is null, or also that the others are 0.
fn has_only_nothing(group: &RowGroupMetaData, column: &Column, is_zero_nothing: bool) -> bool {
    // A required column is checked for nulls.
    if Restored::is_required(column) {
        return false;
    }
    let chunk = |name: &str| group.columns().iter().find(|chunk| chunk.column_descr().name() == name);
    let Some(statistics) = chunk(column.name).and_then(|chunk| chunk.statistics()) else { return false };
    if statistics.null_count_opt() == u64::try_from(group.num_rows()).ok() {
        return chunk(&format!("{}{NS_REST}", column.name)).is_none();
    }
    let Statistics::Int64(values) = statistics else { return false };
    is_zero_nothing && values.min_opt() == Some(&0) && values.max_opt() == Some(&0)
}

/// Copies decoded values to rows.
fn copy(values: &Values, to: &mut StoredColumn) -> Result<()> {
    match (values, to) {
        (Values::Times(times), StoredColumn::Unsigned(to)) => {
            let (micros, rest) = &**times;
            // Where the nanoseconds left are null, they are in other places than the microseconds.
            if rest.as_ref().is_some_and(|rest| rest.values.len() != micros.values.len()) {
                return Err(too_few_values());
            }
            let rest = rest.as_ref().map_or(&[][..], |rest| &rest.values);
            spread(micros, to, |at, value| time_ns(*value, rest.get(at).copied().unwrap_or_default()))
        }
        (Values::Integers(integers), StoredColumn::Unsigned(to)) => {
            spread(integers, to, |_, number| u64::try_from(*number).ok())
        }
        (Values::Numbers(numbers), StoredColumn::Float(to)) => spread(numbers, to, |_, number| Some(*number)),
        _ => Err(too_few_values()),
    }
}

fn time_ns(micros: i64, rest: i32) -> Option<u64> {
    match time(micros, rest)? {
        weir_fields::StoredValue::Unsigned(ns) => Some(ns),
        _ => None,
    }
}

/// Gives each row its value, and the default where it has none.
fn spread<T: DataType, V: Copy + Default>(
    of: &Typed<T>,
    to: &mut Rows<V>,
    convert: impl Fn(usize, &T::T) -> Option<V>,
) -> Result<()> {
    to.values.clear();
    to.present.clear();
    let mut is_valid = true;
    let mut convert = |(at, value)| {
        let converted = convert(at, value);
        is_valid &= converted.is_some();
        converted.unwrap_or_default()
    };
    if of.values.len() == of.present.len() {
        to.values.extend(of.values.iter().enumerate().map(convert));
    } else {
        let mut values = of.values.iter().enumerate();
        to.present.extend(of.present.iter().map(|level| *level > 0));
        let value =
            |level: &i16| if *level > 0 { values.next().map_or_else(V::default, &mut convert) } else { V::default() };
        to.values.extend(of.present.iter().map(value));
    }
    if is_valid { Ok(()) } else { Err(invalid()) }
}

fn invalid() -> ParquetError {
    ParquetError::General("a column has an invalid value".into())
}
