//! A file or standard output that counts which records were written.
//!
//! Callers pass octets together with the offsets at which records end. The first write that fails
//! ends the output: records that end before the first octet not written are exported, all later
//! ones are lost.

use crate::pending_records::PendingRecords;
use crate::sink::{Error, FileMode, UnusableFile};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;
use weir_ledger::{ExportLossReason, SinkCounters};

/// An open file or standard output, unbuffered.
pub(crate) struct FileOutput {
    sink: String,
    file: File,
    /// The file has records of an earlier run.
    is_continued: bool,
    ended: Option<ExportLossReason>,
    /// The error that ended the output, until it is reported.
    error: Option<io::Error>,
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
        mode: FileMode,
        whole_records: impl FnOnce(&File, u64) -> io::Result<Option<u64>>,
    ) -> Result<Self, Error> {
        let io_error = |error| Error::Io { sink: sink.into(), error };
        let (file, is_continued) = if path == "-" {
            // Not `Stdout`, which buffers and so does not report which octets were written.
            (io::stdout().as_fd().try_clone_to_owned().map(File::from).map_err(io_error)?, false)
        } else {
            let file = open_file(sink, Path::new(path), mode)?;
            let length = file.metadata().map_err(io_error)?.len();
            let whole = if length == 0 { Some(0) } else { whole_records(&file, length).map_err(io_error)? };
            let whole = whole.ok_or(Error::File { sink: sink.into(), problem: UnusableFile::OtherContent })?;
            if whole < length {
                file.set_len(whole).map_err(io_error)?;
            }
            (file, whole > 0)
        };
        Ok(Self { sink: sink.into(), file, is_continued, ended: None, error: None })
    }

    /// Whether the file has records of an earlier run.
    pub fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// Writes octets and counts the records in them.
    pub fn write(&mut self, octets: &[u8], boundaries: &[RecordBoundary], counters: &mut SinkCounters) {
        let written = if self.ended.is_none() { self.write_octets(octets) } else { 0 };
        counters.octets += written as u64;
        for boundary in boundaries {
            match self.ended {
                Some(reason) if boundary.end > written => boundary.pending.count_lost(reason, counters),
                _ => boundary.pending.count_exported(counters),
            }
        }
    }

    /// Reports once that the output has ended.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn report_end(&mut self) -> Result<(), Error> {
        self.error.take().map_or(Ok(()), |error| Err(Error::Io { sink: self.sink.clone(), error }))
    }

    /// Returns the number of octets written. The output has ended if not all were.
    fn write_octets(&mut self, octets: &[u8]) -> usize {
        let mut written = 0;
        while written < octets.len() {
            let error = match self.file.write(&octets[written..]) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(more) => {
                    written += more;
                    continue;
                }
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::Interrupted => continue,
                // The pipe was inherited in non-blocking mode: wait until it can take more.
                io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                io::ErrorKind::BrokenPipe => self.ended = Some(ExportLossReason::OutputClosed),
                _ => self.ended = Some(ExportLossReason::WriteFailed),
            }
            self.error = Some(error);
            break;
        }
        written
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

/// Opens a file for an output, with access for its owner and group (mode 0640) if it is new. It is
/// locked until it is closed (flock). All writes append. Devices and pipes are opened as they are.
/// Errors contain `name`.
///
/// # Errors
/// The file cannot be opened, is a symbolic link to a regular file or to nothing, or `mode` refuses
/// it.
pub fn open_file(name: &str, path: &Path, mode: FileMode) -> Result<File, Error> {
    let io_error = |error| Error::Io { sink: name.into(), error };
    let unusable = |problem| Error::File { sink: name.into(), problem };
    if fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        let file = File::options().write(true).open(path).map_err(io_error)?;
        // The path may be a symbolic link to a regular file by now.
        let is_link = file.metadata().map_err(io_error)?.is_file();
        return if is_link { Err(unusable(UnusableFile::SymbolicLink)) } else { Ok(file) };
    }
    let mut options = File::options();
    options.read(mode == FileMode::Append).append(true).create(true);
    options.mode(0o640).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => unusable(UnusableFile::SymbolicLink),
        _ => io_error(error),
    })?;
    // Some file systems have no locks.
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(unusable(UnusableFile::Locked));
    }
    match mode {
        FileMode::New if file.metadata().map_err(io_error)?.len() > 0 => return Err(unusable(UnusableFile::NotEmpty)),
        FileMode::Overwrite => file.set_len(0).map_err(io_error)?,
        FileMode::New | FileMode::Append => {}
    }
    Ok(file)
}
