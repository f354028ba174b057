//! A file or standard output that counts which records were written.
//!
//! Callers pass octets together with the offsets at which records end. If a write fails, records that
//! end before the first octet not written are exported, all later ones are lost.
//!
//! This ends the output, except for a regular file that is appended to. Such a file may be writable
//! again later, for example when the disk has space. The incomplete record at its end is removed, and
//! after a second the next octets are written. Until then all records are lost.

use crate::compression::Compression;
use crate::pending_records::{PendingRecords, totals};
use crate::sink::{Error, ExportOptions, FileMode, Owner, UnusableFile};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, SinkCounters};

/// Time from a failed write to the next attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest time between two warnings that a file cannot be written.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// An open file or standard output, unbuffered.
pub(crate) struct FileOutput {
    sink: String,
    file: File,
    unused: Option<UnusedFile>,
    /// Each write is then a frame with whole records.
    compression: Option<Compression>,
    /// The file, or what was written to a pipe, has no octets.
    is_empty: bool,
    /// The last write failed for this reason.
    failed: Option<ExportLossReason>,
    /// The error that ended the output, until it is reported.
    error: Option<io::Error>,
    /// `None` if a failed write ends the output.
    retry: Option<Retry>,
}

/// What happened to an output that continues after a failed write.
#[derive(Default)]
struct Retry {
    last_attempt: Option<Instant>,
    /// Octets of an incomplete record at the end of the file.
    incomplete: u64,
    /// Last warning that the file cannot be written.
    last_warning: Option<Instant>,
    /// The log does not say yet that the file can be written again.
    is_warned: bool,
    /// Lost flow records since the log last said that the file can be written again.
    lost_flows: u64,
}

/// Records that are complete when the octets before `end` are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordBoundary {
    pub end: usize,
    pub pending: PendingRecords,
}

impl FileOutput {
    /// Opens a file; `-` is standard output. `whole_records` returns the length of the whole records
    /// in a file of the given length, octets, or `None` if no records can be appended to it.
    pub fn open(
        sink: &str,
        path: &str,
        options: &ExportOptions,
        whole_records: impl FnOnce(&File, u64) -> io::Result<Option<u64>>,
    ) -> Result<Self, Error> {
        let io_error = |error| Error::Io { sink: sink.into(), error };
        let (file, unused, is_empty, retry) = if path == "-" {
            // Not `Stdout`, which buffers and so does not report which octets were written.
            (io::stdout().as_fd().try_clone_to_owned().map(File::from).map_err(io_error)?, None, true, None)
        } else {
            let (mode, owner) = (options.file_mode, options.file_owner);
            let OutputFile { file, unused } = open_file(sink, Path::new(path), mode, owner)?;
            let metadata = file.metadata().map_err(io_error)?;
            let length = metadata.len();
            let whole = if length == 0 { Some(0) } else { whole_records(&file, length).map_err(io_error)? };
            let whole = whole.ok_or(Error::File { sink: sink.into(), problem: UnusableFile::OtherContent })?;
            if whole < length {
                file.set_len(whole).map_err(io_error)?;
                warn!(sink, octets = length - whole, "removed the incomplete last record of the file");
            }
            let retries = mode == FileMode::Append && metadata.is_file();
            (file, unused, whole == 0, retries.then(Retry::default))
        };
        let compression = Compression::of(path);
        Ok(Self { sink: sink.into(), file, unused, compression, is_empty, failed: None, error: None, retry })
    }

    /// Whether what comes next begins the file.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Whether a write is attempted at present. If not, records are lost.
    pub fn is_ready(&mut self) -> bool {
        self.unused.take().into_iter().for_each(UnusedFile::keep);
        let Some(retry) = &self.retry else { return self.failed.is_none() };
        if self.failed.is_some() && retry.last_attempt.is_none_or(|at| at.elapsed() >= RETRY_INTERVAL) {
            match self.remove_incomplete() {
                Ok(()) => self.failed = None,
                Err(error) => self.fail(error),
            }
        }
        self.failed.is_none()
    }

    /// Counts flows as lost, while the output is not ready.
    pub fn lose(&mut self, flows: &[FlowRecord], counters: &mut SinkCounters) {
        let mut pending = PendingRecords::default();
        flows.iter().for_each(|flow| pending.flows.merge(totals(flow)));
        self.count_lost(pending, counters);
    }

    fn count_lost(&mut self, pending: PendingRecords, counters: &mut SinkCounters) {
        pending.count_lost(self.failed.unwrap_or(ExportLossReason::WriteFailed), counters);
        self.retry.iter_mut().for_each(|retry| retry.lost_flows += pending.flows.flows);
    }

    /// Writes octets and counts the records in them. Returns whether all octets are written.
    pub fn write(&mut self, octets: &[u8], boundaries: &[RecordBoundary], counters: &mut SinkCounters) -> bool {
        let mut written = 0;
        let frame = self.compression.filter(|_| !octets.is_empty()).map(|compression| compression.compress(octets));
        // No record of an incomplete frame can be read.
        let end = |boundary: &RecordBoundary| frame.as_ref().map_or(boundary.end, Vec::len);
        let octets = frame.as_deref().unwrap_or(octets);
        if self.failed.is_none() {
            match self.write_octets(octets, &mut written) {
                Ok(()) => self.log_recovery(),
                Err(error) => {
                    if let Some(retry) = &mut self.retry {
                        let ends = boundaries.iter().map(end);
                        let whole = ends.take_while(|&end| end <= written).last().unwrap_or(0);
                        retry.incomplete = (written - whole) as u64;
                        written = whole;
                        // If this fails, the next attempt repeats it.
                        let _ = self.remove_incomplete();
                    }
                    self.fail(error);
                }
            }
        }
        self.is_empty &= written == 0;
        counters.octets += written as u64;
        for boundary in boundaries {
            if end(boundary) <= written {
                boundary.pending.count_exported(counters);
            } else {
                self.count_lost(boundary.pending, counters);
            }
        }
        self.failed.is_none()
    }

    /// Removes the incomplete record at the end of the file.
    fn remove_incomplete(&mut self) -> io::Result<()> {
        let Some(retry) = self.retry.as_mut() else { return Ok(()) };
        // Another program may have emptied the file meanwhile.
        let length = self.file.metadata()?.len();
        let whole = length.saturating_sub(std::mem::take(&mut retry.incomplete));
        if whole < length
            && let Err(error) = self.file.set_len(whole)
        {
            retry.incomplete = length - whole;
            return Err(error);
        }
        self.is_empty = whole == 0;
        Ok(())
    }

    fn fail(&mut self, error: io::Error) {
        let closed = error.kind() == io::ErrorKind::BrokenPipe;
        self.failed = Some(if closed { ExportLossReason::OutputClosed } else { ExportLossReason::WriteFailed });
        let Some(retry) = &mut self.retry else {
            self.error = Some(error);
            return;
        };
        retry.last_attempt = Some(Instant::now());
        if !retry.is_warned && retry.last_warning.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            (retry.is_warned, retry.last_warning) = (true, Some(Instant::now()));
            let sink = &self.sink;
            warn!(sink, %error, "file cannot be written, trying again, its records are lost until then");
        }
    }

    fn log_recovery(&mut self) {
        if let Some(retry) = self.retry.as_mut().filter(|retry| retry.is_warned) {
            info!(sink = self.sink, lost = retry.lost_flows, "file can be written again");
            (retry.is_warned, retry.lost_flows) = (false, 0);
        }
    }

    /// Ends the output after its last write.
    ///
    /// # Errors
    /// As [`FileOutput::report_end`].
    pub fn finish(&mut self) -> Result<(), Error> {
        self.unused.take().into_iter().for_each(UnusedFile::keep);
        self.report_end()
    }

    /// Reports once that the output has ended.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn report_end(&mut self) -> Result<(), Error> {
        self.error.take().map_or(Ok(()), |error| Err(Error::Io { sink: self.sink.clone(), error }))
    }

    /// Adds the number of octets that it writes to `written`.
    fn write_octets(&mut self, octets: &[u8], written: &mut usize) -> io::Result<()> {
        while *written < octets.len() {
            match self.file.write(&octets[*written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => *written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The pipe was inherited in non-blocking mode: wait until it can take more.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Length of the whole lines in a file of this length, octets. `None` if the first line does not
/// begin with `start`.
pub(crate) fn whole_lines(file: &File, length: u64, start: &[u8]) -> io::Result<Option<u64>> {
    /// More than the longest record.
    const TAIL_BYTES: u64 = 1 << 16;
    let mut begin = vec![0; start.len().min(length as usize)];
    file.read_exact_at(&mut begin, 0)?;
    if !start.starts_with(&begin) {
        return Ok(None);
    }
    let tail_start = length.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; (length - tail_start) as usize];
    file.read_exact_at(&mut tail, tail_start)?;
    let lines = tail.iter().rposition(|&octet| octet == b'\n').map(|at| tail_start + at as u64 + 1);
    Ok(lines.or((tail_start == 0).then_some(0)))
}

/// A file that is open for an output.
pub struct OutputFile {
    /// The file.
    pub file: File,
    /// Removes the file if nothing uses it. `None` if the file existed.
    pub unused: Option<UnusedFile>,
}

impl OutputFile {
    /// The file, which stays.
    pub fn keep(self) -> File {
        self.unused.into_iter().for_each(UnusedFile::keep);
        self.file
    }
}

/// A file that was created and is not used yet. When this is dropped, the file is removed, unless it
/// has content or another file is in its place.
pub struct UnusedFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl UnusedFile {
    /// The file stays.
    pub fn keep(mut self) {
        // There is no file with an empty name.
        self.path.clear();
    }
}

impl Drop for UnusedFile {
    fn drop(&mut self) {
        let is_unused = |at: fs::Metadata| (at.dev(), at.ino(), at.len()) == (self.device, self.inode, 0);
        if fs::symlink_metadata(&self.path).is_ok_and(is_unused) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens a file for an output. A new file has access for its owner and group (mode 0640), and gets
/// this `owner`; a file that exists keeps its own. It is locked until it is closed (flock). All writes
/// append. Devices and pipes are opened as they are. Errors contain `name`.
///
/// # Errors
/// The file cannot be opened, is a symbolic link to a regular file or to nothing, or `mode` refuses
/// it.
pub fn open_file(name: &str, path: &Path, mode: FileMode, owner: Option<Owner>) -> Result<OutputFile, Error> {
    let io_error = |error| Error::Io { sink: name.into(), error };
    let unusable = |problem| Error::File { sink: name.into(), problem };
    if fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        let file = File::options().write(true).open(path).map_err(io_error)?;
        // The path may be a symbolic link to a regular file by now.
        let is_link = file.metadata().map_err(io_error)?.is_file();
        return if is_link { Err(unusable(UnusableFile::SymbolicLink)) } else { Ok(OutputFile { file, unused: None }) };
    }
    let mut options = File::options();
    options.read(mode == FileMode::Append).append(true).mode(0o640).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    let (file, is_new) = match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (options.open(path), false),
        opened => (opened, true),
    };
    let file = file.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => unusable(UnusableFile::SymbolicLink),
        _ => io_error(error),
    })?;
    let mut unused = None;
    if is_new {
        let at = file.metadata().map_err(io_error)?;
        unused = Some(UnusedFile { path: path.into(), device: at.dev(), inode: at.ino() });
        if let Some(Owner { user, group }) = owner
            && let Err(error) = fchown(&file, Some(user), Some(group))
        {
            warn!(file = %path.display(), user, group, %error, "cannot change the owner of the new file");
        }
    }
    // Some file systems have no locks.
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(unusable(UnusableFile::Locked));
    }
    match mode {
        FileMode::New if file.metadata().map_err(io_error)?.len() > 0 => return Err(unusable(UnusableFile::NotEmpty)),
        FileMode::Overwrite => file.set_len(0).map_err(io_error)?,
        FileMode::New | FileMode::Append => {}
    }
    Ok(OutputFile { file, unused })
}
