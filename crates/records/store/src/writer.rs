//! Writes flow records into a store.
//!
//! Records of an hour are encoded in memory, and written as one file when it has enough rows or is old
//! enough. Until then they wait, as those in a queue. So a file is on the disk whole, or not at all, and a
//! full disk delays files, up to a limit of memory, before it loses records.

use crate::encoded_chunk;
use crate::error::Error;
use crate::folder::{Folder, Hour};
use crate::maintenance::Maintenance;
use crate::rows::{Row, Rows};
use crate::schema::{ROW_GROUP_ROWS, Schema};
use crate::settings::Settings;
use parking_lot::Mutex;
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tracing::{debug, info, warn};
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters};

/// Rows of a file, at most.
const FILE_ROWS: usize = 4 * ROW_GROUP_ROWS;
/// Hours of which records are collected at the same time. Flows end in the order of their ends, so that
/// more are rare.
const MAX_HOURS: usize = 2;
/// Octets of encoded files that wait for a disk, at most. Beyond that the oldest is lost.
const MAX_WAITING_OCTETS: usize = 64 << 20;

/// The one writer of a store.
pub struct Writer {
    name: String,
    folder: Folder,
    settings: Settings,
    schema: Schema,
    lock: File,
    hours: Vec<OpenHour>,
    /// The memory of the rows of a file that has ended, for the next one.
    spare: Option<Rows>,
    waiting: VecDeque<EncodedFile>,
    failure: Option<Failure>,
    maintenance: Option<Maintenance>,
    /// Held while a file gets its name.
    naming: Arc<Mutex<()>>,
    counters: SinkCounters,
    /// Records that are not on the disk, and not lost.
    pending: RecordTotals,
    /// A file could not be written, and is not tried again.
    has_ended: bool,
}

/// The file of an hour that is being encoded.
struct OpenHour {
    hour: Hour,
    rows: Rows,
    file: SerializedFileWriter<Vec<u8>>,
    written_rows: usize,
    flows: RecordTotals,
    began: Instant,
}

/// A file that is not on the disk yet.
struct EncodedFile {
    hour: Hour,
    octets: Vec<u8>,
    rows: usize,
    flows: RecordTotals,
}

/// Files cannot be written.
struct Failure {
    last_attempt: Instant,
    last_warning: Option<Instant>,
    lost_flows: u64,
}

/// What a store takes at most, bytes.
pub fn memory_bytes(columns: usize, runs_on: bool) -> u64 {
    /// A value with its level; texts are longer, and most columns have few values.
    const VALUE_BYTES: usize = 12;
    let rows = ROW_GROUP_ROWS * columns * VALUE_BYTES;
    // Measured: 0.7 octets a column and row, and 1 with spare room.
    let hour = rows + FILE_ROWS * columns + encoded_chunk::kept_bytes(ROW_GROUP_ROWS);
    let others = if runs_on { MAX_WAITING_OCTETS + crate::compaction::memory_bytes(columns) } else { 0 };
    (MAX_HOURS * hour + others) as u64
}

impl Writer {
    /// Opens the store. `name` is that of the counters.
    ///
    /// # Errors
    /// The folder is no store and not empty, another program writes to it, or the system refuses it.
    pub fn open(name: &str, folder: Folder, settings: Settings) -> Result<Self, Error> {
        let schema = Schema::new(&settings.columns, settings.rows).map_err(|error| invalid(&folder, error))?;
        let lock = folder.lock()?;
        Ok(Self {
            name: name.into(),
            folder,
            settings,
            schema,
            lock,
            hours: Vec::new(),
            spare: None,
            waiting: VecDeque::new(),
            failure: None,
            maintenance: None,
            naming: Arc::default(),
            counters: SinkCounters { sink: name.into(), ..SinkCounters::default() },
            pending: RecordTotals::default(),
            has_ended: false,
        })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// A file cannot be written, and is not tried again. Its records, and all later ones, are lost.
    pub fn write(&mut self, rows: &[Row<'_>]) -> Result<(), Error> {
        if self.has_ended {
            rows.iter().for_each(|row| self.counters.add_lost(ExportLossReason::WriteFailed, row.totals));
            return Ok(());
        }
        rows.iter().for_each(|row| self.pending.merge(row.totals));
        let mut rows = rows;
        while let Some(first) = rows.first() {
            let hour = Hour::of(first.flow.start_ns());
            let of_hour = hour.start_ns()..hour.end_ns();
            let is_other = |row: &Row<'_>| !of_hour.contains(&row.flow.start_ns());
            let end = rows[1..].iter().position(is_other).map_or(rows.len(), |at| at + 1);
            let at = match self.hours.iter().rposition(|open| open.hour == hour) {
                Some(at) => at,
                None => self.begin_hour(hour)?,
            };
            let open = &mut self.hours[at];
            let (now, later) = rows.split_at(end.min(ROW_GROUP_ROWS - open.rows.len));
            rows = later;
            open.rows.push(now);
            now.iter().for_each(|row| open.flows.merge(row.totals));
            if open.rows.len == ROW_GROUP_ROWS {
                let encoded = open.encode_rows();
                let is_full = open.written_rows >= FILE_ROWS;
                encoded.map_err(|error| invalid(&self.folder, error))?;
                if is_full {
                    self.end_hour(at)?;
                }
            }
        }
        Ok(())
    }

    fn begin_hour(&mut self, hour: Hour) -> Result<usize, Error> {
        if self.hours.len() == MAX_HOURS {
            self.end_hour(0)?;
        }
        let rows = self.spare.take().unwrap_or_else(|| Rows::new(&self.schema.columns));
        let open = OpenHour::new(hour, &self.schema, rows).map_err(|error| invalid(&self.folder, error))?;
        self.hours.push(open);
        Ok(self.hours.len() - 1)
    }

    /// Does what is due also without records.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn tick(&mut self) -> Result<(), Error> {
        if self.maintenance.is_none() {
            self.maintenance = Maintenance::start(&self.name, &self.folder, &self.settings, &self.naming);
        }
        while let Some(at) = self.hours.iter().position(|open| open.began.elapsed() >= self.settings.interval) {
            self.end_hour(at)?;
        }
        self.write_waiting(false)
    }

    /// Ends a file, and writes it.
    fn end_hour(&mut self, at: usize) -> Result<(), Error> {
        let (file, mut rows) = self.hours.remove(at).encode().map_err(|error| invalid(&self.folder, error))?;
        let beyond = std::mem::take(&mut rows.beyond_integers);
        if beyond > 0 {
            *self.counters.altered.entry("number_beyond_format").or_default() += beyond;
        }
        self.spare = Some(rows);
        self.waiting.push_back(file);
        self.write_waiting(false)
    }

    /// Writes what waits for the disk, unless that failed a moment ago.
    fn write_waiting(&mut self, is_last_attempt: bool) -> Result<(), Error> {
        let Some([retry, log]) = self.settings.retry else { return self.write_or_end() };
        if !is_last_attempt && self.failure.as_ref().is_some_and(|failure| failure.last_attempt.elapsed() < retry) {
            self.lose_beyond(MAX_WAITING_OCTETS);
            return Ok(());
        }
        // One hour that cannot be written delays no other.
        let mut failed = None;
        for _ in 0..self.waiting.len() {
            if let Err(error) = self.write_first() {
                failed = Some(error);
                self.waiting.rotate_left(1);
            }
        }
        if let Some(error) = failed {
            let failure =
                self.failure.get_or_insert(Failure { last_attempt: Instant::now(), last_warning: None, lost_flows: 0 });
            failure.last_attempt = Instant::now();
            if failure.last_warning.is_none_or(|at| at.elapsed() >= log) {
                failure.last_warning = Some(Instant::now());
                let (sink, waiting) = (&self.name, self.pending.flows);
                let is_full = error.kind() == io::ErrorKind::StorageFull;
                let advice = if is_full { "; free some space, or let it keep less (keep=)" } else { "" };
                warn!(sink, %error, waiting, "the store cannot be written, trying again{advice}");
            }
            self.lose_beyond(if is_last_attempt { 0 } else { MAX_WAITING_OCTETS });
            return Ok(());
        }
        if let Some(failure) = self.failure.take() {
            info!(sink = self.name, lost = failure.lost_flows, "the store can be written again");
        }
        Ok(())
    }

    fn write_or_end(&mut self) -> Result<(), Error> {
        while !self.waiting.is_empty() {
            if let Err(error) = self.write_first() {
                self.hours.clear();
                self.waiting.clear();
                self.has_ended = true;
                let lost = std::mem::take(&mut self.pending);
                self.counters.add_lost(ExportLossReason::WriteFailed, lost);
                return Err(Error::Io { path: self.folder.path().into(), error });
            }
        }
        Ok(())
    }

    fn write_first(&mut self) -> io::Result<()> {
        let Some(file) = self.waiting.front() else { return Ok(()) };
        if !self.folder.is_locked_by(&self.lock) {
            // The folder was removed, or another one is mounted in its place.
            self.lock = self.folder.lock().map_err(io::Error::other)?;
            warn!(
                sink = self.name,
                "the folder of the store was removed or replaced, with its records; it has a new one"
            );
        }
        let path = self.folder.add_file(file.hour, &file.octets, &self.naming)?;
        let counters = &mut self.counters;
        subtract(&mut self.pending, file.flows);
        counters.exported.merge(file.flows);
        counters.wire_records += file.rows as u64;
        counters.messages += 1;
        counters.octets += file.octets.len() as u64;
        debug!(sink = self.name, file = %path.display(), rows = file.rows, "file written");
        self.waiting.pop_front();
        if let Some(maintenance) = &self.maintenance {
            maintenance.wake();
        }
        Ok(())
    }

    /// Gives up the oldest files, until the others have at most this many octets.
    fn lose_beyond(&mut self, octets: usize) {
        while self.waiting.iter().map(|file| file.octets.len()).sum::<usize>() > octets {
            let Some(file) = self.waiting.pop_front() else { break };
            subtract(&mut self.pending, file.flows);
            self.counters.add_lost(ExportLossReason::WriteFailed, file.flows);
            self.failure.iter_mut().for_each(|failure| failure.lost_flows += file.flows.flows);
        }
    }

    /// Writes all records.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn finish(&mut self) -> Result<(), Error> {
        while !self.hours.is_empty() {
            self.end_hour(0)?;
        }
        self.write_waiting(true)?;
        // An hour that is being sorted is left for the next run.
        self.maintenance = None;
        Ok(())
    }

    /// Records by outcome, so far.
    pub fn counters(&self) -> &SinkCounters {
        &self.counters
    }
}

impl OpenHour {
    fn new(hour: Hour, schema: &Schema, rows: Rows) -> Result<Self, ParquetError> {
        let file = SerializedFileWriter::new(Vec::new(), schema.root.clone(), schema.properties.clone())?;
        Ok(Self { hour, rows, file, written_rows: 0, flows: RecordTotals::default(), began: Instant::now() })
    }

    fn encode_rows(&mut self) -> Result<(), ParquetError> {
        self.written_rows += self.rows.len;
        self.rows.write(&mut self.file)
    }

    /// The file, and the memory of its rows.
    fn encode(mut self) -> Result<(EncodedFile, Rows), ParquetError> {
        if self.rows.len > 0 {
            self.encode_rows()?;
        }
        let octets = self.file.into_inner()?;
        let Self { hour, rows, written_rows, flows, .. } = self;
        Ok((EncodedFile { hour, octets, rows: written_rows, flows }, rows))
    }
}

/// Memory takes every octet, so that encoding fails by a defect only.
fn invalid(folder: &Folder, error: ParquetError) -> Error {
    Error::Io { path: folder.path().into(), error: io::Error::other(error) }
}

fn subtract(from: &mut RecordTotals, part: RecordTotals) {
    from.flows -= part.flows;
    from.packets -= part.packets;
    from.bytes -= part.bytes;
}
