//! Rows of a row group that are collected column by column.

use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use std::io::Write;
use std::net::IpAddr;
use weir_fields::{Column, ColumnKind, FieldValue};
use weir_flow::FlowRecord;
use weir_ledger::RecordTotals;

const NS_PER_MICROSECOND: u64 = 1000;

/// A row: a flow, or one direction of it.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    /// What is written.
    pub record: &'a FlowRecord,
    /// The flow. What is computed from several fields is that of the flow, and it decides the hour.
    pub flow: &'a FlowRecord,
    /// What is counted with this row: the flow, in one of its rows.
    pub totals: RecordTotals,
}

/// The rows of one row group.
pub struct Rows {
    pub(crate) columns: Vec<ColumnRows>,
    pub len: usize,
    /// Rows with an integer beyond 2^63 - 1, which is written instead.
    pub beyond_integers: u64,
}

/// The values of a column that are not null, and for each row 1, or 0 for null.
pub(crate) struct ColumnRows {
    pub column: &'static Column,
    pub present: Vec<i16>,
    pub values: Values,
}

pub(crate) enum Values {
    /// Microseconds, and the nanoseconds left.
    Times(Vec<i64>, Vec<i32>),
    Integers(Vec<i64>),
    Numbers(Vec<f64>),
    Texts(Texts),
}

/// Texts one behind the other, and where each ends.
#[derive(Default)]
pub(crate) struct Texts {
    pub octets: Vec<u8>,
    pub ends: Vec<usize>,
}

impl Rows {
    /// No rows of these columns.
    pub fn new(columns: &[&'static Column]) -> Self {
        let columns = columns.iter().map(|&column| ColumnRows::new(column)).collect();
        Self { columns, len: 0, beyond_integers: 0 }
    }

    /// Appends rows, column by column.
    pub fn push(&mut self, rows: &[Row<'_>]) {
        let before = self.len;
        let mut beyond = Vec::new();
        for of in &mut self.columns {
            let is_computed = !of.column.properties.computed_from.is_empty();
            for (at, Row { record, flow, .. }) in rows.iter().enumerate() {
                if !of.push(&of.column.read(if is_computed { flow } else { record })) {
                    beyond.push(before + at);
                }
            }
        }
        self.len += rows.len();
        beyond.sort_unstable();
        beyond.dedup();
        self.beyond_integers += beyond.len() as u64;
    }

    /// Writes the rows as a row group, and removes them.
    pub fn write<W: Write + Send>(&mut self, file: &mut SerializedFileWriter<W>) -> Result<()> {
        let mut group = file.next_row_group()?;
        for of in &mut self.columns {
            of.write(&mut group)?;
        }
        group.close()?;
        self.len = 0;
        Ok(())
    }
}

impl ColumnRows {
    fn new(column: &'static Column) -> Self {
        let values = match column.kind {
            ColumnKind::Time => Values::Times(Vec::new(), Vec::new()),
            ColumnKind::Integer => Values::Integers(Vec::new()),
            ColumnKind::Number => Values::Numbers(Vec::new()),
            _ => Values::Texts(Texts::default()),
        };
        Self { column, present: Vec::new(), values }
    }

    /// Appends a value. Returns whether it can be represented.
    fn push(&mut self, value: &FieldValue<'_>) -> bool {
        let is_present = !matches!(value, FieldValue::NotApplicable | FieldValue::NoValue);
        self.present.push(i16::from(is_present));
        if !is_present {
            return true;
        }
        match (&mut self.values, value) {
            (Values::Times(micros, rests), &FieldValue::Time(ns)) => {
                micros.push((ns / NS_PER_MICROSECOND) as i64);
                rests.push((ns % NS_PER_MICROSECOND) as i32);
            }
            (Values::Integers(integers), &(FieldValue::Unsigned(number) | FieldValue::Implied(number))) => {
                integers.push(i64::try_from(number).unwrap_or(i64::MAX));
                return i64::try_from(number).is_ok();
            }
            (Values::Numbers(numbers), &FieldValue::Float(number)) => numbers.push(number),
            (Values::Texts(texts), value) => texts.push(value),
            // The kind of a column is that of its values.
            _ => *self.present.last_mut().expect("a level was added") = 0,
        }
        true
    }

    fn write<W: Write + Send>(&mut self, group: &mut SerializedRowGroupWriter<'_, W>) -> Result<()> {
        let present = std::mem::take(&mut self.present);
        match &mut self.values {
            Values::Times(micros, rests) => {
                write_column::<_, Int64Type>(group, micros, &present)?;
                write_column::<_, Int32Type>(group, rests, &present)?;
                micros.clear();
                rests.clear();
            }
            Values::Integers(integers) => {
                write_column::<_, Int64Type>(group, integers, &present)?;
                integers.clear();
            }
            Values::Numbers(numbers) => {
                write_column::<_, DoubleType>(group, numbers, &present)?;
                numbers.clear();
            }
            Values::Texts(texts) => write_column::<_, ByteArrayType>(group, &texts.take(), &present)?,
        }
        self.present = present;
        self.present.clear();
        Ok(())
    }
}

fn write_column<W: Write + Send, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    present: &[i16],
) -> Result<()> {
    let mut column = group.next_column()?.ok_or_else(|| ParquetError::General("too few columns".into()))?;
    column.typed::<T>().write_batch(values, Some(present), None)?;
    column.close()
}

impl Texts {
    fn push(&mut self, value: &FieldValue<'_>) {
        match value {
            FieldValue::Ip(IpAddr::V4(address)) => append_ipv4(address.octets(), &mut self.octets),
            value => value.append_text(&mut self.octets),
        }
        self.ends.push(self.octets.len());
    }

    /// Takes the texts, which share one memory.
    fn take(&mut self) -> Vec<ByteArray> {
        let octets = ByteArray::from(std::mem::take(&mut self.octets));
        let mut start = 0;
        let slice = |end| {
            let text = octets.slice(start, end - start);
            start = end;
            text
        };
        self.ends.drain(..).map(slice).collect()
    }
}

/// As `Display` of an IPv4 address, which takes several times as long.
fn append_ipv4(octets: [u8; 4], out: &mut Vec<u8>) {
    for (at, octet) in octets.into_iter().enumerate() {
        if at > 0 {
            out.push(b'.');
        }
        if octet >= 100 {
            out.push(b'0' + octet / 100);
        }
        if octet >= 10 {
            out.push(b'0' + octet / 10 % 10);
        }
        out.push(b'0' + octet % 10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_addresses_are_written_as_everywhere() {
        let octets: Vec<u8> = (0..=255).collect();
        for [a, b] in octets.windows(2).map(|pair| [pair[0], pair[1]]) {
            let mut text = Vec::new();
            append_ipv4([a, b, 0, 255], &mut text);
            assert_eq!(String::from_utf8(text).unwrap(), std::net::Ipv4Addr::from([a, b, 0, 255]).to_string());
        }
    }
}
