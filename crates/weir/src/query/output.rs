//! The result of a query: as a table, CSV, JSON or Parquet, at standard output or in a file.

use crate::arguments::{Query, QueryFormat};
use crate::console::{self, printable, style};
use crate::error::{Error, QueryError};
use crate::files;
use crate::run_status::RunStatus;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use weir_export::FileMode;
use weir_sql::{Kind, Rows};
use weir_text::columns::{Column, lines};

/// Rows of a table. The others are counted.
const TABLE_ROWS: u64 = 10_000;
/// What follows the name of a file, and the number of the process, until it is whole.
const PART: &str = "part";

/// Why a result was not written.
pub enum Failure {
    Query(weir_sql::Error),
    Write(io::Error),
    Other(Error),
    /// It was logged.
    Told,
}

impl From<weir_sql::Error> for Failure {
    fn from(error: weir_sql::Error) -> Self {
        Self::Query(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// Where a result goes. What is left of a file that is not whole is removed.
pub struct Output {
    format: QueryFormat,
    /// `None` is standard output.
    path: Option<PathBuf>,
    mode: FileMode,
    /// Whether something was written to standard output.
    has_begun: AtomicBool,
}

impl Output {
    /// That of the command line.
    ///
    /// # Errors
    /// The format is not known, or the file exists.
    pub fn of(query: &Query) -> Result<Self, Error> {
        let format = format(query)?;
        let path = query.output.clone().filter(|path| path != Path::new("-"));
        if format == QueryFormat::Parquet && path.is_none() {
            return Err(QueryError::ParquetNeedsFile.into());
        }
        let output = Self { format, path, mode: query.output_files.mode(), has_begun: AtomicBool::new(false) };
        if query.print_sql.is_none()
            && let Some(path) = &output.path
        {
            output.check(path)?;
        }
        Ok(output)
    }

    /// Checks that the file may be made, and can be.
    fn check(&self, path: &Path) -> Result<(), Error> {
        let metadata = fs::metadata(path);
        if metadata.as_ref().is_ok_and(|file| !file.is_file()) {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "this is not a regular file");
            return Err(Error::file(path, error));
        }
        let part = part(path);
        files::open(&part, FileMode::Overwrite, &AtomicBool::new(false))?;
        let _ = fs::remove_file(&part);
        if metadata.is_ok_and(|file| file.len() > 0) {
            files::open(path, files::keeping_content(self.mode), &AtomicBool::new(false))?;
        }
        Ok(())
    }

    /// The file.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The file that DuckDB writes.
    pub fn parquet_file(&self) -> Option<PathBuf> {
        let path = self.path.as_deref().filter(|_| self.format == QueryFormat::Parquet)?;
        Some(files::absolute(&part(path)))
    }

    /// Whether a part of the result is where a reader has seen it.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// An error of writing.
    pub fn error(&self, error: io::Error) -> Error {
        match &self.path {
            Some(path) => Error::file(path, error),
            None => Error::file(Path::new("standard output"), error),
        }
    }

    /// Runs a query and writes its result, of a file into `FILE.part`.
    pub fn write(&self, query: &weir_sql::Query<'_>) -> Result<(), Failure> {
        match &self.path {
            Some(path) => self.write_part(query, &part(path)),
            None => self.write_rows(query, &mut query.run()?, &mut BufWriter::new(io::stdout().lock())),
        }
    }

    /// Gives the file its name, if the result is whole.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn finish(&self, status: RunStatus) -> Result<(), Error> {
        match &self.path {
            Some(path) if status == RunStatus::Success => {
                fs::rename(part(path), path).map_err(|error| Error::file(path, error))
            }
            _ => Ok(()),
        }
    }

    fn write_part(&self, query: &weir_sql::Query<'_>, part: &Path) -> Result<(), Failure> {
        if self.format == QueryFormat::Parquet {
            // DuckDB keeps the mode of the file.
            files::open(part, FileMode::Overwrite, &AtomicBool::new(false)).map_err(Failure::Other)?;
            return Ok(query.write_parquet(&files::absolute(part))?);
        }
        let mut rows = query.run()?;
        let file = files::open(part, FileMode::Overwrite, &AtomicBool::new(false)).map_err(Failure::Other)?;
        let mut file = BufWriter::new(file);
        self.write_rows(query, &mut rows, &mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok(())
    }

    fn write_rows(&self, query: &weir_sql::Query<'_>, rows: &mut Rows<'_>, out: &mut dyn Write) -> Result<(), Failure> {
        match self.format {
            QueryFormat::Csv => self.write_csv(query, rows, out)?,
            QueryFormat::Json => self.write_json(query, rows, out)?,
            QueryFormat::Table | QueryFormat::Parquet => self.write_table(query, rows, out)?,
        }
        Ok(out.flush()?)
    }

    fn write_csv(&self, query: &weir_sql::Query<'_>, rows: &mut Rows<'_>, out: &mut dyn Write) -> Result<(), Failure> {
        let mut csv = csv::Writer::from_writer(out);
        let failed = |error: csv::Error| match error.into_kind() {
            csv::ErrorKind::Io(error) => Failure::Write(error),
            _ => Failure::Write(io::ErrorKind::InvalidData.into()),
        };
        csv.write_record(query.columns.iter().map(|column| printable(&column.name))).map_err(failed)?;
        while let Some(chunk) = rows.next_chunk()? {
            self.has_begun.store(true, Ordering::Relaxed);
            for row in 0..chunk.first().map_or(0, Vec::len) {
                let cells = chunk.iter().map(|column| printable(column[row].unwrap_or_default()));
                csv.write_record(cells).map_err(failed)?;
            }
        }
        Ok(csv.flush()?)
    }

    fn write_json(&self, query: &weir_sql::Query<'_>, rows: &mut Rows<'_>, out: &mut dyn Write) -> Result<(), Failure> {
        let names: Vec<String> = query.columns.iter().map(|column| json_text(&column.name)).collect();
        while let Some(chunk) = rows.next_chunk()? {
            self.has_begun.store(true, Ordering::Relaxed);
            for row in 0..chunk.first().map_or(0, Vec::len) {
                for (at, (cells, name)) in chunk.iter().zip(&names).enumerate() {
                    let start = if at == 0 { '{' } else { ',' };
                    write!(out, "{start}{name}:{}", json_value(query.columns[at].kind, cells[row]))?;
                }
                out.write_all(b"}\n")?;
            }
        }
        Ok(())
    }

    fn write_table(
        &self,
        query: &weir_sql::Query<'_>,
        rows: &mut Rows<'_>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let mut cells: Vec<Vec<String>> = vec![Vec::new(); query.columns.len()];
        let mut count = 0_u64;
        while let Some(chunk) = rows.next_chunk()? {
            let length = chunk.first().map_or(0, Vec::len);
            let shown = TABLE_ROWS.saturating_sub(count).min(length as u64) as usize;
            for (cells, column) in cells.iter_mut().zip(&chunk) {
                let text = if query.is_explain { plan_text } else { cell_text };
                cells.extend(column[..shown].iter().map(|cell| text(*cell)));
            }
            count += length as u64;
        }
        self.has_begun.store(true, Ordering::Relaxed);
        if count == 0 {
            return Ok(out.write_all(b"no rows\n")?);
        }
        let columns: Vec<Column> = query
            .columns
            .iter()
            .zip(cells)
            .map(|(column, cells)| {
                Column::new(cell_text(Some(&column.name)), column.kind == Kind::Number, cells.into_iter())
            })
            .collect();
        let mut text = if query.is_explain {
            columns.iter().flat_map(|column| &column.cells).filter(|cell| cell.contains('\n')).cloned().collect()
        } else {
            let width = if self.path.is_some() { None } else { console::terminal_columns() };
            lines(&columns, 1, width)
        };
        if let more @ 1.. = count.saturating_sub(TABLE_ROWS) {
            text += &format!("and {more} more rows: --format csv or json writes all\n");
        }
        if self.path.is_some() {
            return Ok(out.write_all(text.as_bytes())?);
        }
        let status = console::print_styled(&text, style::table);
        if status == RunStatus::Success { Ok(()) } else { Err(Failure::Told) }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(part(path));
        }
    }
}

fn part(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    // Another query may write to the same name.
    name.push(format!(".{}.{PART}", std::process::id()));
    name.into()
}

/// The format of a result.
fn format(query: &Query) -> Result<QueryFormat, Error> {
    if let Some(format) = query.format {
        return Ok(format);
    }
    let Some(path) = &query.output else { return Ok(QueryFormat::Table) };
    match path.extension().and_then(|end| end.to_str()) {
        Some("csv") => Ok(QueryFormat::Csv),
        Some("json" | "jsonl" | "ndjson") => Ok(QueryFormat::Json),
        Some("parquet") => Ok(QueryFormat::Parquet),
        _ if path == Path::new("-") => Ok(QueryFormat::Table),
        _ => Err(QueryError::UnknownFormat(path.clone()).into()),
    }
}

/// A value in a table, in one line. The end of a long one is cut.
fn cell_text(cell: Option<&str>) -> String {
    const MAX_CHARACTERS: usize = 1_000;
    let text = cell.unwrap_or("-");
    let cut = text.char_indices().nth(MAX_CHARACTERS).map(|(at, _)| at);
    let (shown, rest) = cut.map_or((text, ""), |at| (&text[..at], "…"));
    weir_dpi::printable(shown) + rest
}

/// A plan, which has many lines.
fn plan_text(cell: Option<&str>) -> String {
    printable(cell.unwrap_or_default())
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A value in JSON. What JSON has no number for is null.
fn json_value(kind: Kind, cell: Option<&str>) -> String {
    let Some(text) = cell else { return "null".into() };
    let is_finite = |text: &str| text.ends_with(|c: char| c.is_ascii_digit());
    match kind {
        Kind::Number if is_finite(text) => text.into(),
        Kind::Number => "null".into(),
        Kind::Boolean => text.into(),
        Kind::Nested if serde_json::from_str::<serde_json::Value>(text).is_ok() => text.into(),
        Kind::Nested | Kind::Time | Kind::Text => json_text(text),
    }
}
