//! Rows of a row group that are collected column by column.

use crate::encoded_chunk::{EncodedChunk, UniformChunks, UniformValue};
use parquet::basic::Type as Physical;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::writer::SerializedFileWriter;
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};
use weir_fields::{Column, ColumnKind, FieldValue};
use weir_flow::FlowRecord;
use weir_ledger::RecordTotals;

const NS_PER_MICROSECOND: u64 = 1000;
/// Rows whose records fit into the cache of a core while they are read column by column.
const SLICE: usize = 32;

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
    uniform: UniformChunks,
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
    ipv6: Ipv6Texts,
}

/// Texts of IPv6 addresses that were written lately: to write one takes several times as long as to find it.
#[derive(Default)]
struct Ipv6Texts(Vec<Option<(Ipv6Addr, Vec<u8>)>>);

impl Rows {
    /// No rows of these columns.
    pub fn new(columns: &[&'static Column]) -> Self {
        let columns = columns.iter().map(|&column| ColumnRows::new(column)).collect();
        Self { columns, len: 0, beyond_integers: 0, uniform: UniformChunks::default() }
    }

    /// Appends rows, column by column.
    pub fn push(&mut self, rows: &[Row<'_>]) {
        let mut beyond = Vec::new();
        for rows in rows.chunks(SLICE) {
            for of in &mut self.columns {
                of.push(rows, self.len, &mut beyond);
            }
            self.len += rows.len();
        }
        beyond.sort_unstable();
        beyond.dedup();
        self.beyond_integers += beyond.len() as u64;
    }

    /// Writes the rows as a row group, and removes them.
    pub fn write<W: Write + Send>(&mut self, file: &mut SerializedFileWriter<W>) -> Result<()> {
        let columns = file.schema_descr().columns().to_vec();
        let mut columns = columns.into_iter();
        let mut next = || columns.next().ok_or_else(|| ParquetError::General("too few columns".into()));
        let properties = file.properties().clone();
        let mut group = file.next_row_group()?;
        for of in &mut self.columns {
            let (column, present) = (next()?, &of.present);
            let chunk = match (of.uniform(), &mut of.values) {
                (Some(value), _) => self.uniform.chunk(column, &properties, value, present)?,
                (None, Values::Times(micros, rests)) => {
                    EncodedChunk::new::<Int64Type>(column, &properties, micros, present)?.append(&mut group)?;
                    EncodedChunk::new::<Int32Type>(next()?, &properties, rests, present)?
                }
                (None, Values::Integers(integers)) => {
                    EncodedChunk::new::<Int64Type>(column, &properties, integers, present)?
                }
                (None, Values::Numbers(numbers)) => {
                    EncodedChunk::new::<DoubleType>(column, &properties, numbers, present)?
                }
                (None, Values::Texts(texts)) => {
                    EncodedChunk::new::<ByteArrayType>(column, &properties, &texts.take(), present)?
                }
            };
            chunk.append(&mut group)?;
            of.values.clear();
            of.present.clear();
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

    /// Appends the values of some rows, of which the first has a number. Appends the numbers of rows whose value is too
    /// large.
    fn push(&mut self, rows: &[Row<'_>], first: usize, beyond: &mut Vec<usize>) {
        let Self { column, present, values } = self;
        let is_computed = !column.properties.computed_from.is_empty();
        let flows = rows.iter().map(|row| if is_computed { row.flow } else { row.record });
        // The kind of a column is that of its values.
        match values {
            Values::Times(micros, rests) => present.extend(flows.map(|flow| {
                let FieldValue::Time(ns) = column.read(flow) else { return 0 };
                micros.push((ns / NS_PER_MICROSECOND) as i64);
                rests.push((ns % NS_PER_MICROSECOND) as i32);
                1
            })),
            Values::Integers(integers) => present.extend(flows.enumerate().map(|(at, flow)| {
                let (FieldValue::Unsigned(number) | FieldValue::Implied(number)) = column.read(flow) else { return 0 };
                integers.push(i64::try_from(number).unwrap_or_else(|_| {
                    beyond.push(first + at);
                    i64::MAX
                }));
                1
            })),
            Values::Numbers(numbers) => present.extend(flows.map(|flow| {
                let FieldValue::Float(number) = column.read(flow) else { return 0 };
                numbers.push(number);
                1
            })),
            Values::Texts(texts) => present.extend(flows.map(|flow| {
                let value = column.read(flow);
                let is_present = !matches!(value, FieldValue::NotApplicable | FieldValue::NoValue);
                if is_present {
                    texts.push(&value);
                }
                i16::from(is_present)
            })),
        }
    }

    /// What all values are, if a chunk of them may be copied from another column.
    fn uniform(&self) -> Option<UniformValue> {
        match &self.values {
            _ if self.column.kind == ColumnKind::Address => None,
            Values::Times(..) => None,
            Values::Integers(integers) => match integers.first() {
                None => Some(UniformValue::None(Physical::INT64)),
                Some(first) => integers.iter().all(|of| of == first).then_some(UniformValue::Integer(*first)),
            },
            Values::Numbers(numbers) => numbers.is_empty().then_some(UniformValue::None(Physical::DOUBLE)),
            Values::Texts(texts) => texts.uniform(),
        }
    }
}

impl Values {
    fn clear(&mut self) {
        match self {
            Self::Times(micros, rests) => {
                micros.clear();
                rests.clear();
            }
            Self::Integers(integers) => integers.clear(),
            Self::Numbers(numbers) => numbers.clear(),
            Self::Texts(Texts { octets, ends, .. }) => {
                octets.clear();
                ends.clear();
            }
        }
    }
}

impl Texts {
    fn push(&mut self, value: &FieldValue<'_>) {
        match value {
            FieldValue::Ip(IpAddr::V4(address)) => append_ipv4(address.octets(), &mut self.octets),
            FieldValue::Ip(IpAddr::V6(address)) => self.octets.extend(self.ipv6.text(*address)),
            value => value.append_text(&mut self.octets),
        }
        self.ends.push(self.octets.len());
    }

    /// Appends a text as it is.
    pub fn push_text(&mut self, text: &str) {
        self.octets.extend(text.as_bytes());
        self.ends.push(self.octets.len());
    }

    /// The text that all are.
    fn uniform(&self) -> Option<UniformValue> {
        let Some(&length) = self.ends.first() else { return Some(UniformValue::None(Physical::BYTE_ARRAY)) };
        let is_as_long = (1..).zip(&self.ends).all(|(number, end)| *end == number * length);
        let is_same = || self.octets[length..] == self.octets[..self.octets.len() - length];
        (is_as_long && is_same()).then(|| UniformValue::Text(self.octets[..length].to_vec()))
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

impl Ipv6Texts {
    const PLACES: usize = 1 << 10;

    fn text(&mut self, address: Ipv6Addr) -> &[u8] {
        self.0.resize(Self::PLACES, None);
        let bits = address.to_bits();
        let hash = ((bits >> 64) as u64 ^ bits as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = &mut self.0[(hash >> (u64::BITS - Self::PLACES.trailing_zeros())) as usize];
        if place.as_ref().is_none_or(|(known, _)| *known != address) {
            *place = Some((address, address.to_string().into_bytes()));
        }
        place.as_ref().map_or(&[], |(_, text)| text)
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
