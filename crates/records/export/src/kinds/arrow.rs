//! `arrow:PATH`: a stream of Apache Arrow.

use super::file::{FIELDS, SinkFile, is_standard_output};
use super::row_sink::{RowSink, RowWriter, row_form};
use super::{Destination, SinkKind, WHERE};
use crate::file_output::{FileOutput, RecordBoundary};
use crate::pending_records::PendingRecords;
use crate::rotation::RotationSettings;
use crate::sink::{Error, ExportOptions, FileMode, InvalidSink, InvalidSpec, Sink};
use std::fs::{self, File};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_fields::{Column, select_columns};
use weir_ledger::SinkCounters;
use weir_store::{ARROW_END, ARROW_ROWS, ArrowRows, Row};

/// A reader gets rows at the latest after this time.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "arrow",
    place: ":PATH",
    writes: "a stream of Apache Arrow (IPC)",
    example: "arrow:-",
    settings: &[FIELDS, WHERE],
    endings: &["arrows"],
    view: None,
    parse: |text| {
        let (file, fields) = SinkFile::parse_named("arrow", text)?;
        if file.rotation != RotationSettings::default() {
            return Err(InvalidSink::Syntax("a stream of Arrow is not rotated; use parquet:FOLDER to keep flows"));
        }
        Ok(Arc::new(ArrowFile { file, columns: fields.map(select_columns).transpose()? }))
    },
};

#[derive(Debug)]
struct ArrowFile {
    file: SinkFile,
    columns: Option<Vec<&'static Column>>,
}

impl ArrowFile {
    /// A probe writes for a reader: a file would have no end before its own, and others may move or remove it meanwhile.
    fn check_probe(&self, name: &str) -> Result<(), Error> {
        let is_special = fs::metadata(&self.file.path).is_ok_and(|file| !file.is_file());
        if is_special || is_standard_output(&self.file.path) {
            return Ok(());
        }
        let invalid = InvalidSink::Syntax(
            "a probe writes Arrow to standard output or a named pipe; use parquet:FOLDER to keep flows",
        );
        Err(InvalidSpec { spec: name.into(), invalid }.into())
    }
}

impl Destination for ArrowFile {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let columns = self.columns.as_ref().unwrap_or(&options.stored_columns);
        if options.file_mode == FileMode::Append {
            self.check_probe(name)?;
        }
        // A stream has an end, so that nothing can be appended.
        let mut if_empty = |_, _: &File, length| Ok((length == 0).then_some(0));
        let output = FileOutput::open(name, &self.file.path, None, options, &mut if_empty)?;
        let rows = ArrowRows::new(columns);
        let mut buffer = Vec::new();
        rows.encode_schema(row_form(options), &mut buffer);
        let counters = SinkCounters { sink: name.into(), ..SinkCounters::default() };
        let (pending, written) = (PendingRecords::default(), Instant::now());
        Ok(Box::new(RowSink::new(options, ArrowStream { rows, buffer, output, pending, written, counters })))
    }

    fn check(&self, name: &str, _: &ExportOptions) -> Result<(), Error> {
        self.check_probe(name)
    }

    fn file(&self) -> Option<&SinkFile> {
        Some(&self.file)
    }

    fn memory_bytes(&self, stored_columns: &[&'static Column], _: bool) -> u64 {
        /// Of a value, with its copy in a message; longer texts are rare.
        const OCTETS: u64 = 32;
        self.columns.as_deref().unwrap_or(stored_columns).len() as u64 * ARROW_ROWS as u64 * OCTETS
    }

    fn columns(&self) -> Option<&[&'static Column]> {
        self.columns.as_deref()
    }
}

/// A stream that is being written.
struct ArrowStream {
    rows: ArrowRows,
    /// Octets in front of the next message: the schema.
    buffer: Vec<u8>,
    output: FileOutput,
    /// Records of the rows.
    pending: PendingRecords,
    /// The time of the last message.
    written: Instant,
    counters: SinkCounters,
}

impl ArrowStream {
    fn flush(&mut self) -> Result<(), Error> {
        if !self.rows.is_empty() {
            self.rows.encode(&mut self.buffer);
        }
        let pending = std::mem::take(&mut self.pending);
        let boundary = RecordBoundary { end: self.buffer.len(), pending };
        self.output.write(&self.buffer, &[boundary], &mut self.counters);
        self.buffer.clear();
        self.written = Instant::now();
        self.output.report_end()
    }
}

impl RowWriter for ArrowStream {
    fn write(&mut self, mut rows: &[Row<'_>]) -> Result<(), Error> {
        while !rows.is_empty() {
            let (now, later) = rows.split_at(rows.len().min(ARROW_ROWS - self.rows.len()));
            rows = later;
            now.iter().for_each(|row| self.pending.flows.merge(row.totals));
            self.pending.wire_records += now.len() as u64;
            self.rows.push(now);
            if self.rows.len() == ARROW_ROWS {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), Error> {
        // The schema does not wait for rows: a reader learns the columns from it.
        let is_due = match self.rows.is_empty() {
            true => !self.buffer.is_empty(),
            false => self.written.elapsed() >= LONGEST_WAIT,
        };
        if is_due { self.flush() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.flush()?;
        self.output.write(&ARROW_END, &[], &mut self.counters);
        if self.rows.beyond_integers() > 0 {
            self.counters.altered.insert("number_beyond_format", self.rows.beyond_integers());
        }
        self.output.finish(&mut self.counters)
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }
}
