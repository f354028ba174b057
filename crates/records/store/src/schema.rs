//! The columns of Parquet files, and how each is encoded.
//!
//! | column of Weir | type in Parquet |
//! |---|---|
//! | time | INT64, TIMESTAMP(MICROS, UTC); and INT32 `NAME_ns_rest`: the nanoseconds left, 0 to 999 |
//! | integer | INT64 |
//! | number | DOUBLE |
//! | all others | BYTE_ARRAY, STRING: the text as in CSV |
//!
//! Integers are signed, because many programs cannot subtract unsigned ones. Times have microseconds,
//! because DuckDB and Spark cannot calculate with nanoseconds.

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::errors::Result;
use parquet::file::metadata::{FileMetaData, KeyValue};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use std::sync::Arc;
use weir_fields::{Column, ColumnKind};

/// Rows of a row group, at most.
pub const ROW_GROUP_ROWS: usize = 1 << 16;
/// Rows of a page of a sorted file, at most: what a search decompresses of each column.
pub const SORTED_PAGE_ROWS: usize = 1 << 13;
/// What follows the name of a time, for the column of the nanoseconds left.
pub const NS_REST: &str = "_ns_rest";
/// Key in the metadata of a file: the fields, as JSON.
pub const FIELDS_KEY: &str = "weir.fields";
/// Key in the metadata of a file whose rows are directions of flows: `true`.
pub const UNIFLOW_KEY: &str = "weir.uniflow";
/// Key in the metadata of a file whose flows were anonymised before they were stored: `true`.
pub const ANONYMISED_KEY: &str = "weir.anonymised";
/// Key in the metadata of a file whose rows are transactions: `true`.
pub const TRANSACTIONS_KEY: &str = "weir.transactions";
/// Key in the metadata of a file: the version of Weir.
pub const VERSION_KEY: &str = "weir.version";
/// Share of addresses that a Bloom filter does not exclude although the row group has none of them.
const BLOOM_FALSE_POSITIVES: f64 = 0.02;
/// A column of integers with more different values has no dictionary.
const INTEGER_DICTIONARY_OCTETS: usize = 1 << 14;
/// Level 3 takes half as much time again, and saves less than 1 %.
const ZSTD_LEVEL: i32 = 1;

/// What the rows of a file are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowForm {
    /// A row is a direction of a flow.
    pub is_uniflow: bool,
    /// The flows were anonymised before they were stored.
    pub is_anonymised: bool,
    /// A row is a transaction: a question of DNS or a request of HTTP.
    pub is_transactions: bool,
}

impl RowForm {
    /// What the metadata of a file say.
    pub(crate) fn of(metadata: &FileMetaData) -> Self {
        let has = |key: &str| metadata.key_value_metadata().into_iter().flatten().any(|entry| entry.key == key);
        Self {
            is_uniflow: has(UNIFLOW_KEY),
            is_anonymised: has(ANONYMISED_KEY),
            is_transactions: has(TRANSACTIONS_KEY),
        }
    }
}

/// What the metadata of a file say besides its fields.
pub fn file_metadata(rows: RowForm) -> impl Iterator<Item = (&'static str, &'static str)> {
    let entries = [
        (rows.is_uniflow, UNIFLOW_KEY),
        (rows.is_anonymised, ANONYMISED_KEY),
        (rows.is_transactions, TRANSACTIONS_KEY),
    ];
    let marks = entries.into_iter().filter(|(is_given, _)| *is_given).map(|(_, key)| (key, "true"));
    [(VERSION_KEY, env!("CARGO_PKG_VERSION"))].into_iter().chain(marks)
}

/// The columns of a file.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The columns of Weir.
    pub columns: Arc<[&'static Column]>,
    /// The columns of Parquet.
    pub root: TypePtr,
    /// How they are written.
    pub properties: WriterPropertiesPtr,
}

impl Schema {
    /// The schema of files with these columns and rows.
    pub fn new(columns: &[&'static Column], rows: RowForm) -> Result<Self> {
        let fields = columns.iter().flat_map(|column| column_types(column)).collect::<Result<Vec<_>>>()?;
        let root = Type::group_type_builder("flows").with_fields(fields).build()?;
        let mut metadata = vec![KeyValue::new(FIELDS_KEY.into(), describe(columns))];
        metadata.extend(file_metadata(rows).map(|(key, value)| KeyValue::new(key.into(), value.to_owned())));
        let properties = writer_properties(root.get_fields(), Some(metadata), ROW_GROUP_ROWS)?;
        Ok(Self { columns: columns.into(), root: Arc::new(root), properties })
    }
}

fn column_types(column: &Column) -> impl Iterator<Item = Result<TypePtr>> {
    let optional = |name: &str, physical, logical| {
        let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        builder.with_logical_type(logical).build().map(Arc::new)
    };
    let (own, rest) = match column.kind {
        ColumnKind::Time => {
            let time = LogicalType::timestamp(true, TimeUnit::MICROS);
            let rest = optional(&format!("{}{NS_REST}", column.name), Physical::INT32, None);
            (optional(column.name, Physical::INT64, Some(time)), Some(rest))
        }
        ColumnKind::Integer => (optional(column.name, Physical::INT64, None), None),
        ColumnKind::Number => (optional(column.name, Physical::DOUBLE, None), None),
        _ => (optional(column.name, Physical::BYTE_ARRAY, Some(LogicalType::String)), None),
    };
    [own].into_iter().chain(rest)
}

/// How files with these columns of Parquet are written, with this number of rows of a page at most.
///
/// # Errors
/// None that is known: the values are constants.
pub fn writer_properties(
    columns: &[TypePtr],
    metadata: Option<Vec<KeyValue>>,
    page_rows: usize,
) -> Result<WriterPropertiesPtr> {
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("weir ", env!("CARGO_PKG_VERSION")).into())
        .set_key_value_metadata(metadata)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_data_page_row_count_limit(page_rows)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for column in columns {
        let path = ColumnPath::from(column.name());
        let is_integer = column.get_physical_type() == Physical::INT64;
        if column.get_physical_type() == Physical::DOUBLE {
            builder = builder.set_column_dictionary_enabled(path, false);
        } else if is_time(column) || is_integer && column.name().ends_with("_ns") {
            // Hardly any two are the same.
            builder = builder
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        } else if is_integer {
            builder = builder
                .set_column_dictionary_page_size_limit(path.clone(), INTEGER_DICTIONARY_OCTETS)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        } else if is_address(column) {
            builder = builder
                .set_column_bloom_filter_fpp(path.clone(), BLOOM_FALSE_POSITIVES)
                .set_column_bloom_filter_max_ndv(path, ROW_GROUP_ROWS as u64);
        }
    }
    Ok(Arc::new(builder.build()))
}

/// Whether a column has times.
pub fn is_time(column: &Type) -> bool {
    matches!(column.get_basic_info().logical_type_ref(), Some(LogicalType::Timestamp(_)))
}

/// Whether these are microseconds.
pub fn has_microseconds(column: &Type) -> bool {
    let logical = column.get_basic_info().logical_type_ref();
    matches!(logical, Some(LogicalType::Timestamp(time)) if time.unit == TimeUnit::MICROS)
}

/// Whether a column has addresses. A test compares the names with the catalogue.
pub fn is_address(column: &Type) -> bool {
    column.get_physical_type() == Physical::BYTE_ARRAY && column.name().ends_with("_ip")
}

/// The fields with their units and sentences, as JSON.
fn describe(columns: &[&'static Column]) -> String {
    let fields: Vec<_> = columns
        .iter()
        .map(|Column { name, kind, unit, description, .. }| {
            serde_json::json!({ "name": name, "type": kind.name(), "unit": unit, "description": description })
        })
        .collect();
    serde_json::Value::Array(fields).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_fields::columns;

    #[test]
    fn addresses_are_known_by_their_names() {
        for column in columns() {
            let Some(Ok(of)) = column_types(column).next() else { panic!("{} has no type", column.name) };
            assert_eq!(is_address(&of), column.kind == ColumnKind::Address, "{}", column.name);
            assert_eq!(is_time(&of), column.kind == ColumnKind::Time, "{}", column.name);
        }
    }
}
