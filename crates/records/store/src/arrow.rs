//! Encodes rows as a stream of Apache Arrow (the IPC format of its columnar specification, version 5).
//!
//! Input: rows. Output: a message with the schema, messages with some rows each, and the mark of the end. The columns
//! are those of the Parquet files, except that times have nanoseconds and no second column. Invariant: each message
//! begins at a multiple of 8 octets. Not done here: dictionaries and compressed buffers.
//!
//! The tables of FlatBuffers are written slot by slot: the crate `arrow-ipc` takes four CPU minutes to build.

use crate::rows::{ColumnRows, Row, Rows, Texts, Values};
use crate::schema::{RowForm, file_metadata};
use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, WIPOffset};
use weir_fields::{Column, ColumnKind};

/// What a stream ends with.
pub const ARROW_END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Rows of a message, at most: their texts stay below 2^31 octets.
pub const ARROW_ROWS: usize = 1 << 13;
const NS_PER_MICROSECOND: i64 = 1000;

type Flat = FlatBufferBuilder<'static>;
type Table = WIPOffset<TableFinishedWIPOffset>;

/// Places of the members of the tables in Message.fbs and Schema.fbs of Arrow, in octets of a vtable.
mod slot {
    const fn slot(member: u16) -> u16 {
        4 + 2 * member
    }
    pub const MESSAGE_VERSION: u16 = slot(0);
    pub const MESSAGE_HEADER_TYPE: u16 = slot(1);
    pub const MESSAGE_HEADER: u16 = slot(2);
    pub const MESSAGE_BODY_LENGTH: u16 = slot(3);
    pub const SCHEMA_FIELDS: u16 = slot(1);
    pub const SCHEMA_METADATA: u16 = slot(2);
    pub const FIELD_NAME: u16 = slot(0);
    pub const FIELD_NULLABLE: u16 = slot(1);
    pub const FIELD_TYPE_TYPE: u16 = slot(2);
    pub const FIELD_TYPE: u16 = slot(3);
    pub const FIELD_CHILDREN: u16 = slot(5);
    pub const FIELD_METADATA: u16 = slot(6);
    pub const KEY: u16 = slot(0);
    pub const VALUE: u16 = slot(1);
    pub const INT_BITS: u16 = slot(0);
    pub const INT_SIGNED: u16 = slot(1);
    pub const FLOAT_PRECISION: u16 = slot(0);
    pub const TIMESTAMP_UNIT: u16 = slot(0);
    pub const TIMESTAMP_ZONE: u16 = slot(1);
    pub const BATCH_LENGTH: u16 = slot(0);
    pub const BATCH_NODES: u16 = slot(1);
    pub const BATCH_BUFFERS: u16 = slot(2);
}

/// The version of metadata: V5.
const VERSION: i16 = 4;
/// Types of messages.
const SCHEMA: u8 = 1;
const RECORD_BATCH: u8 = 3;
/// Types of columns.
const INT: u8 = 2;
const FLOATING_POINT: u8 = 3;
const UTF8: u8 = 5;
const TIMESTAMP: u8 = 10;
const DOUBLE: i16 = 2;
const NANOSECONDS: i16 = 3;

/// A column that is not in the catalogue of fields: of integers, or else of texts.
#[derive(Clone, Copy, Debug)]
pub struct ReportColumn {
    /// Name, also in JSON and CSV.
    pub name: &'static str,
    /// Whether its values are integers.
    pub is_integer: bool,
    /// Unit of the values, or "".
    pub unit: &'static str,
    /// What the column means, in a sentence.
    pub description: &'static str,
}

/// A value of such a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportValue<'a> {
    /// It does not apply.
    None,
    /// Of a column of integers.
    Integer(i64),
    /// Of a column of texts.
    Text(&'a str),
}

/// Rows that are encoded together.
pub struct ArrowRows {
    rows: Rows,
    /// Columns behind those of the catalogue: which rows have a value, and the values.
    others: Vec<(ReportColumn, Vec<i16>, Values)>,
}

impl ArrowRows {
    /// No rows of these columns.
    pub fn new(columns: &[&'static Column]) -> Self {
        Self::with_report_columns(columns, &[])
    }

    /// No rows of these columns, and of others behind them.
    pub fn with_report_columns(columns: &[&'static Column], others: &[ReportColumn]) -> Self {
        let values =
            |is_integer| if is_integer { Values::Integers(Vec::new()) } else { Values::Texts(Texts::default()) };
        let others = others.iter().map(|column| (*column, Vec::new(), values(column.is_integer))).collect();
        Self { rows: Rows::new(columns), others }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.len == 0
    }

    /// Rows up to now with an integer beyond 2^63 - 1, which is written instead.
    pub fn beyond_integers(&self) -> u64 {
        self.rows.beyond_integers
    }

    /// Appends rows.
    pub fn push(&mut self, rows: &[Row<'_>]) {
        self.rows.push(rows);
    }

    /// Appends a row, and its values in the columns that are not in the catalogue.
    pub fn push_report(&mut self, row: Row<'_>, others: &[ReportValue<'_>]) {
        self.rows.push(&[row]);
        for ((_, present, values), value) in self.others.iter_mut().zip(others) {
            let is_present = match (values, value) {
                (Values::Integers(integers), ReportValue::Integer(integer)) => {
                    integers.push(*integer);
                    true
                }
                (Values::Texts(texts), ReportValue::Text(text)) => {
                    texts.push_text(text);
                    true
                }
                _ => false,
            };
            present.push(i16::from(is_present));
        }
    }

    /// Appends the message with which a stream begins.
    pub fn encode_schema(&self, form: RowForm, out: &mut Vec<u8>) {
        let mut flat = Flat::new();
        let own = self
            .rows
            .columns
            .iter()
            .map(|ColumnRows { column, .. }| (column.name, column.kind, column.unit, column.description));
        let others = self.others.iter().map(|(column, ..)| {
            let kind = if column.is_integer { ColumnKind::Integer } else { ColumnKind::Word };
            (column.name, kind, column.unit, column.description)
        });
        let fields: Vec<Table> = own.chain(others).map(|column| field(&mut flat, column)).collect();
        let fields = flat.create_vector(&fields);
        let entries = file_metadata(form).map(|(key, value)| entry(&mut flat, key, value)).collect::<Vec<_>>();
        let metadata = flat.create_vector(&entries);
        let schema = flat.start_table();
        flat.push_slot_always(slot::SCHEMA_FIELDS, fields);
        flat.push_slot_always(slot::SCHEMA_METADATA, metadata);
        let schema = flat.end_table(schema);
        append_message(flat, SCHEMA, schema, &[], out);
    }

    /// Appends a message with the rows, and removes them.
    pub fn encode(&mut self, out: &mut Vec<u8>) {
        let mut body = Body { rows: self.rows.len, ..Body::default() };
        self.rows.columns.iter_mut().for_each(|of| body.append(&mut of.present, &mut of.values));
        self.others.iter_mut().for_each(|(_, present, values)| body.append(present, values));
        let mut flat = Flat::new();
        let nodes = pairs(&mut flat, &body.nodes);
        let buffers = pairs(&mut flat, &body.buffers);
        let batch = flat.start_table();
        flat.push_slot_always(slot::BATCH_LENGTH, self.rows.len as i64);
        flat.push_slot_always(slot::BATCH_NODES, nodes);
        flat.push_slot_always(slot::BATCH_BUFFERS, buffers);
        let batch = flat.end_table(batch);
        append_message(flat, RECORD_BATCH, batch, &body.octets, out);
        self.rows.len = 0;
    }
}

/// The octets behind the metadata of a message, and what is where.
#[derive(Default)]
struct Body {
    rows: usize,
    octets: Vec<u8>,
    /// Of each column: rows, and how many are null.
    nodes: Vec<[i64; 2]>,
    /// Of each buffer: its place, and its length.
    buffers: Vec<[i64; 2]>,
}

impl Body {
    /// Appends the values of a column, and removes them.
    fn append(&mut self, levels: &mut Vec<i16>, values: &mut Values) {
        let present = &*levels;
        let nulls = present.iter().filter(|level| **level == 0).count();
        self.nodes.push([self.rows as i64, nulls as i64]);
        // Without nulls, the bits that say which rows have values are left out.
        let bits = present.chunks(8).filter(|_| nulls > 0);
        self.push(bits.map(|rows| (0..).zip(rows).fold(0, |octet, (bit, level)| octet | u8::from(*level > 0) << bit)));
        match values {
            Values::Times(micros, rests) => {
                let ns = |(micros, rest): (&i64, &i32)| micros.saturating_mul(NS_PER_MICROSECOND) + i64::from(*rest);
                self.push_rows(present, micros.iter().zip(&*rests).map(ns).map(i64::to_le_bytes));
                micros.clear();
                rests.clear();
            }
            Values::Integers(integers) => self.push_rows(present, integers.drain(..).map(i64::to_le_bytes)),
            Values::Numbers(numbers) => self.push_rows(present, numbers.drain(..).map(f64::to_le_bytes)),
            Values::Texts(texts) => {
                let mut ends = texts.ends.drain(..);
                let mut end = 0;
                let mut end_of = |level: &i16| {
                    if *level > 0 {
                        end = ends.next().unwrap_or(end);
                    }
                    (end as i32).to_le_bytes()
                };
                let ends: Vec<u8> = [0; 4].into_iter().chain(present.iter().flat_map(&mut end_of)).collect();
                self.push(ends);
                self.push(texts.octets.drain(..));
            }
        }
        levels.clear();
    }

    /// A buffer of values of 8 octets: 0 for null.
    fn push_rows(&mut self, present: &[i16], mut values: impl Iterator<Item = [u8; 8]>) {
        let value = |level: &i16| if *level > 0 { values.next().unwrap_or_default() } else { [0; 8] };
        self.push(present.iter().flat_map(value).collect::<Vec<_>>());
    }

    fn push(&mut self, octets: impl IntoIterator<Item = u8>) {
        let start = self.octets.len();
        self.octets.extend(octets);
        self.buffers.push([start as i64, (self.octets.len() - start) as i64]);
        self.octets.resize(self.octets.len().next_multiple_of(8), 0);
    }
}

/// A column, of its name, kind, unit and sentence.
fn field(flat: &mut Flat, (name, kind, unit, description): (&str, ColumnKind, &str, &str)) -> Table {
    let name = flat.create_string(name);
    let (type_type, of_type) = column_type(flat, kind);
    let children = flat.create_vector::<Table>(&[]);
    let entries = [("unit", unit), ("description", description)];
    let entries = entries.map(|(key, value)| entry(flat, key, value));
    let metadata = flat.create_vector(&entries);
    let field = flat.start_table();
    flat.push_slot_always(slot::FIELD_NAME, name);
    flat.push_slot_always(slot::FIELD_NULLABLE, true);
    flat.push_slot_always(slot::FIELD_TYPE_TYPE, type_type);
    flat.push_slot_always(slot::FIELD_TYPE, of_type);
    flat.push_slot_always(slot::FIELD_CHILDREN, children);
    flat.push_slot_always(slot::FIELD_METADATA, metadata);
    flat.end_table(field)
}

fn column_type(flat: &mut Flat, kind: ColumnKind) -> (u8, Table) {
    let zone = (kind == ColumnKind::Time).then(|| flat.create_string("UTC"));
    let of_type = flat.start_table();
    let type_type = match (kind, zone) {
        (ColumnKind::Time, Some(zone)) => {
            flat.push_slot_always(slot::TIMESTAMP_UNIT, NANOSECONDS);
            flat.push_slot_always(slot::TIMESTAMP_ZONE, zone);
            TIMESTAMP
        }
        (ColumnKind::Integer, _) => {
            flat.push_slot_always(slot::INT_BITS, i64::BITS as i32);
            flat.push_slot_always(slot::INT_SIGNED, true);
            INT
        }
        (ColumnKind::Number, _) => {
            flat.push_slot_always(slot::FLOAT_PRECISION, DOUBLE);
            FLOATING_POINT
        }
        _ => UTF8,
    };
    (type_type, flat.end_table(of_type))
}

fn entry(flat: &mut Flat, key: &str, value: &str) -> Table {
    let (key, value) = (flat.create_string(key), flat.create_string(value));
    let entry = flat.start_table();
    flat.push_slot_always(slot::KEY, key);
    flat.push_slot_always(slot::VALUE, value);
    flat.end_table(entry)
}

/// A vector of structures of two numbers. Vectors are written from their end.
fn pairs(flat: &mut Flat, pairs: &[[i64; 2]]) -> WIPOffset<flatbuffers::Vector<'static, i64>> {
    flat.start_vector::<i64>(2 * pairs.len());
    pairs.iter().rev().flat_map(|[one, other]| [other, one]).for_each(|number| {
        flat.push(*number);
    });
    flat.end_vector::<i64>(pairs.len())
}

/// Appends a message: its length, the metadata, and the body.
fn append_message(mut flat: Flat, kind: u8, header: Table, body: &[u8], out: &mut Vec<u8>) {
    let message = flat.start_table();
    flat.push_slot_always(slot::MESSAGE_VERSION, VERSION);
    flat.push_slot_always(slot::MESSAGE_HEADER_TYPE, kind);
    flat.push_slot_always(slot::MESSAGE_HEADER, header);
    flat.push_slot_always(slot::MESSAGE_BODY_LENGTH, body.len() as i64);
    let message = flat.end_table(message);
    flat.finish_minimal(message);
    let metadata = flat.finished_data();
    let padding = metadata.len().next_multiple_of(8) - metadata.len();
    out.extend([0xff; 4]);
    out.extend(((metadata.len() + padding) as u32).to_le_bytes());
    out.extend(metadata);
    out.extend(&[0; 8][..padding]);
    out.extend(body);
}
