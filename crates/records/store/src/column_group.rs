//! Reads the columns of a row group, for sums without records.

use crate::reading::{Reader, too_few_values};
use crate::row_group::{Typed, Values, address, time};
use crate::schema::NS_REST;
use parquet::data_type::{ByteArray, ByteArrayType, DataType};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::FileReader;
use parquet::file::statistics::Statistics;
use std::collections::HashMap;
use weir_fields::{Column, ColumnKind, Restored, RowSums, Rows, StoredColumn, StoredRows, StoredText};

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
    values: Option<Values>,
    texts: Texts,
}

impl ColumnGroup {
    fn open(plan: &ColumnPlan<'_>, reader: &Reader, group: usize) -> Result<Self> {
        let group = reader.get_row_group(group)?;
        let metadata = group.metadata();
        let schema = metadata.schema_descr();
        let open = |column: &&'static Column| {
            let is_nothing = has_only_nothing(metadata, column, plan.zeros.contains(column));
            let values = if is_nothing { None } else { Some(Values::open(&*group, schema, column)?) };
            Ok(GroupColumn { column, decides: plan.deciding.contains(column), values, texts: Texts::default() })
        };
        let columns: Vec<_> = plan.columns.iter().map(open).collect::<Result<_>>()?;
        let kinds = columns.iter().map(|of| match (&of.values, of.column.kind) {
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
            let Some(values) = &mut of.values else { continue };
            values.decode(rows)?;
            if Restored::is_required(of.column) && values.has_null() {
                return Err(too_few_values());
            }
            copy(values, &mut of.texts, to)?;
        }
        Ok(())
    }

    /// Leaves out the next rows of the columns that do not decide.
    fn skip(&mut self, rows: usize) {
        let others = self.columns.iter_mut().filter(|of| !of.decides);
        others.filter_map(|of| of.values.as_mut()).for_each(|values| values.skip(rows));
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
fn copy(values: &Values, texts: &mut Texts, to: &mut StoredColumn) -> Result<()> {
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
        (Values::Addresses(of), StoredColumn::Text { places, values }) => texts.copy(of, places, values, true),
        (Values::Texts(of), StoredColumn::Text { places, values }) => texts.copy(of, places, values, false),
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

/// Finds the places of texts. Values of a dictionary are the same octets in memory each time.
#[derive(Default)]
struct Texts {
    /// Places by octets.
    places: HashMap<Box<[u8]>, u32, ahash::RandomState>,
    /// The last values at each hash of their address, which stay in memory as long as they are here.
    recent: Vec<Option<(ByteArray, u32)>>,
}

/// Entries of [`Texts::recent`].
const RECENT: usize = 1 << 12;

impl Texts {
    fn copy(
        &mut self,
        of: &Typed<ByteArrayType>,
        places: &mut Vec<u32>,
        values: &mut Vec<StoredText>,
        is_address: bool,
    ) -> Result<()> {
        places.clear();
        self.recent.resize(RECENT, None);
        let mut texts = of.values.iter();
        for level in &of.present {
            if *level == 0 {
                places.push(StoredColumn::NULL);
                continue;
            }
            let text = texts.next().ok_or_else(too_few_values)?;
            places.push(self.place(text, values, is_address)?);
        }
        Ok(())
    }

    #[inline]
    fn place(&mut self, text: &ByteArray, values: &mut Vec<StoredText>, is_address: bool) -> Result<u32> {
        let octets = text.data();
        let hash = (octets.as_ptr().addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let recent = &mut self.recent[(hash >> (u64::BITS - RECENT.trailing_zeros())) as usize];
        if let Some((known, place)) = recent
            && std::ptr::eq(known.data(), octets)
        {
            return Ok(*place);
        }
        let place = match self.places.get(octets) {
            Some(place) => *place,
            None => {
                let place = values.len() as u32;
                values.push(stored_text(octets, is_address).ok_or_else(invalid)?);
                self.places.insert(octets.into(), place);
                place
            }
        };
        *recent = Some((text.clone(), place));
        Ok(place)
    }
}

fn stored_text(octets: &[u8], is_address: bool) -> Option<StoredText> {
    if is_address {
        return address(octets).map(StoredText::Ip);
    }
    std::str::from_utf8(octets).ok().map(|text| StoredText::Text(text.into()))
}
