//! The store (`parquet:FOLDER`).

mod content;
mod failures;
pub mod source;
mod sums;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

type Row = BTreeMap<String, Value>;

/// The files of a store that have their names.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = |path: &Path| -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let is_day = |path: &PathBuf| !path.ends_with(".weir");
    entries(folder)
        .iter()
        .filter(|path| is_day(path))
        .flat_map(|day| entries(day))
        .flat_map(|hour| entries(&hour))
        .collect()
}

/// The rows of a store as JSON has them, sorted.
fn rows(folder: &Path) -> Vec<Row> {
    rows_of(&files(folder))
}

fn rows_of(files: &[PathBuf]) -> Vec<Row> {
    let mut rows = Vec::new();
    for path in files {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            rows.push(json_row(row.get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect()));
        }
    }
    rows.sort_by_cached_key(|row| format!("{row:?}"));
    rows
}

fn json_row(fields: BTreeMap<String, Field>) -> Row {
    let value = |(name, field): (&String, &Field)| {
        let value = match field {
            Field::Null => Value::Null,
            Field::Long(number) => (*number).into(),
            Field::Double(number) => (*number).into(),
            Field::Str(text) => text.as_str().into(),
            Field::TimestampMicros(micros) => {
                let Field::Int(rest) = fields[&format!("{name}_ns_rest")] else { panic!("{name} has no nanoseconds") };
                let time = jiff::Timestamp::from_nanosecond(i128::from(*micros) * 1000 + i128::from(rest)).unwrap();
                format!("{time:.9}").into()
            }
            other => panic!("{name} is {other:?}"),
        };
        (name.clone(), value)
    };
    fields.iter().filter(|(name, _)| !name.ends_with("_ns_rest")).map(value).collect()
}

fn json_rows(path: &Path) -> Vec<Row> {
    let text = fs::read_to_string(path).unwrap();
    let mut rows: Vec<Row> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    rows.sort_by_cached_key(|row| format!("{row:?}"));
    rows
}

fn sink(folder: &Path, settings: &str) -> String {
    format!("parquet:{}{settings}", folder.display())
}

fn name_of(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}
