//! Writes flow records into one Parquet file, which gets its name when it is whole.

use crate::error::Error;
use crate::folder::{create_file, sync_folder};
use crate::reading::io_error;
use crate::rows::{Row, Rows};
use crate::schema::{ROW_GROUP_ROWS, RowForm, Schema};
use parquet::file::writer::SerializedFileWriter;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use weir_fields::Column;
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters};

/// The writer of one file.
pub struct SingleFile {
    path: PathBuf,
    part: PathBuf,
    replaces: bool,
    rows: Rows,
    /// `None` when it has ended.
    file: Option<SerializedFileWriter<File>>,
    written_rows: u64,
    pending: RecordTotals,
    counters: SinkCounters,
}

impl SingleFile {
    /// Begins a file beside the path, with `.part` at the end of its name. `name` is that of the counters.
    ///
    /// # Errors
    /// There is a file that is not empty, and it must not be replaced; the system refuses it.
    pub fn create(
        name: &str,
        path: &Path,
        columns: &[&'static Column],
        rows: RowForm,
        replaces: bool,
    ) -> Result<Self, Error> {
        let failed = |error| Error::Io { path: path.into(), error };
        check(path, replaces)?;
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = create_file(&part).map_err(failed)?;
        let schema = Schema::new(columns, rows).map_err(|error| failed(io::Error::other(error)))?;
        let writer = SerializedFileWriter::new(file, schema.root.clone(), schema.properties.clone());
        Ok(Self {
            path: path.into(),
            part,
            replaces,
            rows: Rows::new(&schema.columns),
            file: Some(writer.map_err(|error| failed(io_error(error)))?),
            written_rows: 0,
            pending: RecordTotals::default(),
            counters: SinkCounters { sink: name.into(), ..SinkCounters::default() },
        })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// The file cannot be written. Its records, and all later ones, are lost.
    pub fn write(&mut self, rows: &[Row<'_>]) -> Result<(), Error> {
        let lost = &mut self.counters;
        if self.file.is_none() {
            rows.iter().for_each(|row| lost.add_lost(ExportLossReason::WriteFailed, row.totals));
            return Ok(());
        }
        rows.iter().for_each(|row| self.pending.merge(row.totals));
        let mut rows = rows;
        while !rows.is_empty() {
            let (now, later) = rows.split_at(rows.len().min(ROW_GROUP_ROWS - self.rows.len));
            rows = later;
            self.rows.push(now);
            if self.rows.len == ROW_GROUP_ROWS {
                self.encode().or_else(|error| self.fail(error))?;
            }
        }
        Ok(())
    }

    fn encode(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        self.written_rows += self.rows.len as u64;
        self.rows.write(file).map_err(io_error)
    }

    /// Ends the file, and gives it its name.
    ///
    /// # Errors
    /// As [`SingleFile::write`].
    pub fn finish(&mut self) -> Result<(), Error> {
        self.end().or_else(|error| self.fail(error))
    }

    fn end(&mut self) -> io::Result<()> {
        if self.rows.len > 0 {
            self.encode()?;
        }
        let Some(file) = self.file.take() else { return Ok(()) };
        let file = file.into_inner().map_err(io_error)?;
        let octets = file.metadata()?.len();
        file.sync_all()?;
        check(&self.path, self.replaces).map_err(io::Error::other)?;
        renameat_with(CWD, &self.part, CWD, &self.path, RenameFlags::empty())?;
        sync_folder(self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")));
        let counters = &mut self.counters;
        counters.exported.merge(std::mem::take(&mut self.pending));
        counters.wire_records += self.written_rows;
        counters.messages += 1;
        counters.octets += octets;
        if self.rows.beyond_integers > 0 {
            counters.altered.insert("number_beyond_format", self.rows.beyond_integers);
        }
        Ok(())
    }

    fn fail(&mut self, error: io::Error) -> Result<(), Error> {
        self.file = None;
        let _ = fs::remove_file(&self.part);
        self.counters.add_lost(ExportLossReason::WriteFailed, std::mem::take(&mut self.pending));
        Err(Error::Io { path: self.path.clone(), error })
    }

    /// Records by outcome, so far.
    pub fn counters(&self) -> &SinkCounters {
        &self.counters
    }
}

/// A file that was begun and never ended, because another output could not be opened.
impl Drop for SingleFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Checks that a file may get this name.
fn check(path: &Path, replaces: bool) -> Result<(), Error> {
    match fs::symlink_metadata(path) {
        Ok(at) if at.is_file() && (replaces || at.len() == 0) => Ok(()),
        Ok(at) if at.is_file() => Err(Error::NotEmpty(path.into())),
        Ok(_) => Err(Error::NoFile(path.into())),
        Err(_) => Ok(()),
    }
}
