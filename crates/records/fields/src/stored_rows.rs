//! Columns of stored rows, from which sums are made without a flow record for each row.

use crate::column::Column;
use crate::restore::StoredValue;
use std::net::IpAddr;
use weir_flow::FlowRecord;

/// The values of some columns in some rows of a row group.
#[derive(Debug, Default)]
pub struct StoredRows {
    /// Number of rows.
    pub rows: usize,
    /// The columns, each with a value for each row.
    pub columns: Vec<StoredColumn>,
}

/// The values of a column.
#[derive(Debug, Default)]
pub enum StoredColumn {
    /// Every value is null or 0.
    #[default]
    Nothing,
    /// Integers; times in ns since 1970 UTC. Null is 0.
    Unsigned(Rows<u64>),
    /// Numbers. Null is 0.
    Float(Rows<f64>),
    /// Places in `values`; null is [`StoredColumn::NULL`].
    Text {
        /// For each row, the place of its value.
        places: Vec<u32>,
        /// The different values of the row group up to now. A place keeps its value.
        values: Vec<StoredText>,
    },
}

/// A value for each row.
#[derive(Debug, Default)]
pub struct Rows<T> {
    /// The values.
    pub values: Vec<T>,
    /// For each row whether it has a value; empty if all have.
    pub present: Vec<bool>,
}

/// A value of a column of texts.
#[derive(Debug)]
pub enum StoredText {
    /// A text.
    Text(Box<str>),
    /// A text that is an address.
    Ip(IpAddr),
}

/// Sums of the rows of a row group.
pub trait RowSums: Send {
    /// Appends the numbers of the rows that are selected: the columns that decide are set. `false`: these rows cannot
    /// be summed up.
    fn select(&mut self, rows: &StoredRows, selected: &mut Vec<u32>) -> bool;

    /// Adds the selected rows of those that [`Self::select`] got: all columns are set. `false`: these rows cannot be
    /// summed up.
    fn add(&mut self, rows: &StoredRows, selected: &[u32]) -> bool;
}

impl StoredColumn {
    /// The place of a null in a column of texts.
    pub const NULL: u32 = u32::MAX;

    /// What stands for the value of a row, as of [`Self::for_each_token`].
    #[inline]
    pub fn token(&self, row: usize) -> u64 {
        let mut token = 0;
        self.for_each_token(&[row as u32], |of| token = of);
        token
    }

    /// Calls a function with what stands for the value of each of some rows: the same for equal values of a row group.
    #[inline]
    pub fn for_each_token(&self, of: &[u32], mut use_token: impl FnMut(u64)) {
        // No stored integer is as large as this.
        const NULL: u64 = u64::MAX;
        let of = of.iter().map(|row| *row as usize);
        match self {
            Self::Nothing => of.for_each(|_| use_token(0)),
            Self::Unsigned(rows) => of.for_each(|row| use_token(if rows.has(row) { rows.values[row] } else { NULL })),
            Self::Float(rows) => {
                of.for_each(|row| use_token(if rows.has(row) { rows.values[row].to_bits() } else { NULL }));
            }
            Self::Text { places, .. } => of.for_each(|row| use_token(places[row].into())),
        }
    }

    /// The address of a row; `None` also in a column that is not decoded yet.
    #[inline]
    pub fn address(&self, row: usize) -> Option<IpAddr> {
        let Self::Text { places, values } = self else { return None };
        match values.get(*places.get(row)? as usize)? {
            StoredText::Ip(address) => Some(*address),
            StoredText::Text(_) => None,
        }
    }

    /// Whether a row has a text or an address; `false` also in a column that is not decoded yet.
    #[inline]
    pub fn has_text(&self, row: usize) -> bool {
        matches!(self, Self::Text { places, .. } if places.get(row).is_some_and(|place| *place != Self::NULL))
    }

    /// The integers; `None` if all are null or 0.
    pub fn numbers(&self) -> Option<&Rows<u64>> {
        if let Self::Unsigned(rows) = self { Some(rows) } else { None }
    }

    /// Sets the value of a row in a record. Returns whether it is one of the column.
    pub fn restore(&self, column: &Column, row: usize, flow: &mut FlowRecord) -> bool {
        fn of<T: Copy>(rows: &Rows<T>, row: usize) -> Option<T> {
            rows.has(row).then(|| rows.values[row])
        }
        let value = match self {
            Self::Nothing => None,
            Self::Unsigned(rows) => of(rows, row).map(StoredValue::Unsigned),
            Self::Float(rows) => of(rows, row).map(StoredValue::Float),
            Self::Text { places, values } => values.get(places[row] as usize).map(StoredText::value),
        };
        value.is_none_or(|value| column.restore(flow, value))
    }
}

impl<T> Rows<T> {
    /// Whether a row has a value.
    #[inline]
    pub fn has(&self, row: usize) -> bool {
        self.present.is_empty() || self.present[row]
    }
}

impl StoredText {
    /// The value, to be set in a record.
    pub fn value(&self) -> StoredValue<'_> {
        match self {
            Self::Text(text) => StoredValue::Text(text),
            Self::Ip(address) => StoredValue::Ip(*address),
        }
    }
}
