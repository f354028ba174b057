//! A file or standard output that counts which records were written.
//!
//! Callers pass octets together with the offsets at which records end. If a write fails, records that
//! end before the first octet not written are exported, all later ones are lost.
//!
//! The incomplete record at the end of a regular file is removed. The output has ended then, except
//! for a regular file that is appended to. Such a file may be writable again later, for example when
//! the disk has space: after a second the next octets are written. Until then all records are lost.
//!
//! A rotated output ([`crate::rotation`]) writes one file after another.

use crate::compression::Compression;
use crate::kinds::is_standard_output;
use crate::pending_records::{PendingRecords, totals};
use crate::rotation::{RotatedName, Rotation};
use crate::sink::{Attempts, Error, ExportOptions, FileMode, Owner, UnusableFile};
use rustix::fs::{Access, OFlags, access, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, SinkCounters};

/// An open file or standard output, unbuffered.
pub(crate) struct FileOutput {
    sink: String,
    /// `None` if a rotated output has no file at present.
    file: Option<File>,
    /// The path of a file, to open it again.
    path: PathBuf,
    owner: Option<Owner>,
    rotation: Option<Rotation>,
    unused: Option<UnusedFile>,
    /// Each write is then a frame with whole records.
    compression: Option<Compression>,
    /// The file, or what was written to a pipe, has no octets.
    is_empty: bool,
    /// A regular file at a path: standard output may belong to several programs.
    is_regular: bool,
    /// Octets of an incomplete record at the end of the file.
    incomplete: u64,
    /// The last write failed for this reason.
    failed: Option<ExportLossReason>,
    /// The error that ended the output, until it is reported.
    error: Option<io::Error>,
    /// `None` if a failed write ends the output.
    retry: Option<Retry>,
    attempts: Attempts,
    /// When to look whether another program has removed the file.
    next_look: Instant,
}

/// What happened to an output that continues after a failed write.
#[derive(Default)]
struct Retry {
    last_attempt: Option<Instant>,
    /// Last warning that the file cannot be written.
    last_warning: Option<Instant>,
    /// The log does not say yet that the file can be written again.
    is_warned: bool,
    /// Lost flow records since the log last said that the file can be written again.
    lost_flows: u64,
}

/// Returns the length of the whole records in a file of the given length, octets, or `None` if no
/// records can be appended to it.
pub(crate) type WholeRecords<'a> = &'a mut dyn FnMut(Option<Compression>, &File, u64) -> io::Result<Option<u64>>;

/// Records that are complete when the octets before `end` are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordBoundary {
    pub end: usize,
    pub pending: PendingRecords,
}

impl FileOutput {
    /// Opens a file; `-` is standard output, which `-.gz` and `-.zst` compress. A rotated output ends the files of earlier runs, and
    /// begins one if the system's clock is its time.
    pub fn open(
        sink: &str,
        path: &str,
        rotated: Option<RotatedName>,
        options: &ExportOptions,
        whole_records: WholeRecords<'_>,
    ) -> Result<Self, Error> {
        let retries = options.file_mode == FileMode::Append;
        let mut output = Self {
            sink: sink.into(),
            file: None,
            path: path.into(),
            owner: options.file_owner,
            rotation: None,
            unused: None,
            compression: Compression::of(path),
            is_empty: true,
            is_regular: rotated.is_some(),
            incomplete: 0,
            failed: None,
            error: None,
            retry: None,
            attempts: options.attempts,
            next_look: Instant::now(),
        };
        if let Some(name) = rotated {
            end_unfinished(sink, &name, output.compression, whole_records).map_err(|error| output.io_error(error))?;
            // With the times of records, the first file begins later.
            let writable = access(name.folder(), Access::WRITE_OK | Access::EXEC_OK);
            writable.map_err(|error| output.io_error(error.into()))?;
            let rotation = Rotation::new(name, options);
            let waits_for_records = rotation.has_record_time();
            (output.rotation, output.retry) = (Some(rotation), retries.then(Retry::default));
            if !waits_for_records {
                output.begin_file()?;
            }
        } else if is_standard_output(path) {
            // Not `Stdout`, which buffers and so does not report which octets were written.
            let standard_output = io::stdout().as_fd().try_clone_to_owned().map(File::from);
            output.file = Some(standard_output.map_err(|error| output.io_error(error))?);
        } else {
            output.is_regular = output.open_path(options.file_mode, whole_records)?;
            output.retry = (retries && output.is_regular).then(Retry::default);
        }
        Ok(output)
    }

    fn io_error(&self, error: io::Error) -> Error {
        Error::Io { sink: self.sink.clone(), error }
    }

    /// Opens the file at the path. Returns whether it is a regular file.
    fn open_path(&mut self, mode: FileMode, whole_records: WholeRecords<'_>) -> Result<bool, Error> {
        let OutputFile { file, unused } = open_file(&self.sink, &self.path, mode, self.owner)?;
        let metadata = file.metadata().map_err(|error| self.io_error(error))?;
        let whole = cut_to_whole_records(&self.sink, &file, metadata.len(), self.compression, whole_records);
        let whole = whole.map_err(|error| self.io_error(error))?;
        let whole = whole.ok_or(Error::File { sink: self.sink.clone(), problem: UnusableFile::OtherContent })?;
        (self.file, self.unused, self.is_empty) = (Some(file), unused, whole == 0);
        Ok(metadata.is_file())
    }

    /// Begins a file of a rotated output.
    fn begin_file(&mut self) -> Result<(), Error> {
        let Some(rotation) = &mut self.rotation else { return Ok(()) };
        let OutputFile { file, unused } =
            rotation.begin(|part| match open_file(&self.sink, part, FileMode::New, self.owner) {
                Err(Error::File { problem: UnusableFile::NotEmpty | UnusableFile::Locked, .. }) => Ok(None),
                opened => opened.map(Some),
            })?;
        (self.file, self.unused, self.is_empty) = (Some(file), unused, true);
        Ok(())
    }

    /// Ends the file of a rotated output and gives it its name. A file without content is removed.
    fn end_file(&mut self, counters: &mut SinkCounters) {
        let (Some(rotation), Some(file)) = (&self.rotation, self.file.take()) else { return };
        let (sink, part, unused) = (&self.sink, rotation.part.display(), self.unused.take());
        let Ok(metadata) = file.metadata() else { return };
        if metadata.len() == 0 {
            return;
        }
        unused.into_iter().for_each(UnusedFile::keep);
        if metadata.nlink() == 0 {
            let lost = rotation.records;
            warn!(sink, file = %part, lost = lost.flows.flows, "another program has removed the file and its records");
            lost.revoke_exported(ExportLossReason::WriteFailed, counters);
            return;
        }
        let is_at_path = |at: fs::Metadata| (at.dev(), at.ino()) == (metadata.dev(), metadata.ino());
        if !fs::symlink_metadata(&rotation.part).is_ok_and(is_at_path) {
            return info!(sink, file = %part, "another program has moved the file");
        }
        if let Err(error) = file.sync_all() {
            warn!(sink, file = %part, %error, "the system cannot write the file to the disk");
        }
        match rotation.rename() {
            Ok(path) => debug!(sink, file = %path.display(), records = rotation.records.flows.flows, "file ended"),
            Err(error) => warn!(sink, file = %part, %error, "the file cannot be renamed and keeps its temporary name"),
        }
    }

    /// Whether another file has to begin before this record. Not while files cannot be written.
    pub fn is_due(&mut self, flow: &FlowRecord) -> bool {
        self.rotation.as_mut().is_some_and(|rotation| {
            rotation.advance(flow);
            self.failed.is_none() && (self.file.is_none() || rotation.is_over())
        })
    }

    /// Whether the file has to end now, without a record.
    pub fn is_over(&mut self) -> bool {
        self.rotation.as_mut().is_some_and(|rotation| {
            rotation.read_clock();
            self.file.is_some() && rotation.is_over()
        })
    }

    /// Ends the file, and begins another one.
    pub fn rotate(&mut self, counters: &mut SinkCounters) {
        self.end_file(counters);
        if let Err(error) = self.begin_file() {
            self.fail(as_io_error(error));
        }
    }

    /// Whether another program has removed the file, which then has to be opened again. Looks at most
    /// once a second, and 10 s after a removal.
    pub fn is_removed(&mut self) -> bool {
        let now = Instant::now();
        if self.retry.is_none() || now < self.next_look {
            return false;
        }
        let metadata = self.file.as_ref().and_then(|file| file.metadata().ok());
        let is_removed = metadata.is_some_and(|file| file.is_file() && file.nlink() == 0);
        self.next_look = now + if is_removed { self.attempts.log } else { self.attempts.retry };
        if is_removed {
            warn!(sink = self.sink, "another program has removed the file with its records, it is created again");
        }
        is_removed
    }

    /// Opens the file again by its name, if another program has moved or removed it. Returns whether
    /// it is another file now.
    pub fn reopen(&mut self, counters: &mut SinkCounters, whole_records: WholeRecords<'_>) -> bool {
        let path = self.rotation.as_ref().map_or(&self.path, |rotation| &rotation.part);
        let Some(open) = self.file.as_ref().and_then(|file| file.metadata().ok()) else { return false };
        let is_same = |at: fs::Metadata| (at.dev(), at.ino()) == (open.dev(), open.ino());
        if !open.is_file() || self.retry.is_none() || fs::symlink_metadata(path).is_ok_and(is_same) {
            return false;
        }
        if self.rotation.is_some() {
            self.rotate(counters);
            return true;
        }
        self.end_frames(counters);
        let old = self.file.take();
        match self.open_path(FileMode::Append, whole_records) {
            Ok(_) => {
                self.failed = None;
                info!(sink = self.sink, "file was moved, its name is a new file now");
                true
            }
            Err(error) => {
                self.file = old;
                warn!(%error, "the moved file cannot be opened again by its name, records go on to it");
                false
            }
        }
    }

    /// Whether the output writes one file after another.
    pub fn is_rotated(&self) -> bool {
        self.rotation.is_some()
    }

    /// Whether what comes next begins the file.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Whether a write is attempted at present. If not, records are lost.
    pub fn is_ready(&mut self) -> bool {
        match &mut self.rotation {
            Some(rotation) => rotation.read_clock(),
            None => self.unused.take().into_iter().for_each(UnusedFile::keep),
        }
        let Some(retry) = &self.retry else { return self.failed.is_none() };
        if self.failed.is_some() && retry.last_attempt.is_none_or(|at| at.elapsed() >= self.attempts.retry) {
            let result = match self.file {
                Some(_) => self.remove_incomplete(),
                None => self.begin_file().map_err(as_io_error),
            };
            match result {
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
        let frame = self.compression.filter(|_| !octets.is_empty()).map(|compression| compression.compress(octets));
        self.write_frame(frame, octets, boundaries, counters)
    }

    /// As [`FileOutput::write`]: the octets, or a frame of them.
    fn write_frame(
        &mut self,
        frame: Option<Vec<u8>>,
        octets: &[u8],
        boundaries: &[RecordBoundary],
        counters: &mut SinkCounters,
    ) -> bool {
        let mut written = 0;
        // No record of an incomplete frame can be read.
        let end = |boundary: &RecordBoundary| frame.as_ref().map_or(boundary.end, Vec::len);
        let octets = frame.as_deref().unwrap_or(octets);
        if self.failed.is_none() {
            match self.write_octets(octets, &mut written) {
                Ok(()) => self.log_recovery(),
                Err(error) => {
                    if self.is_regular {
                        let ends = boundaries.iter().map(end);
                        let whole = ends.take_while(|&end| end <= written).last().unwrap_or(0);
                        self.incomplete = (written - whole) as u64;
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
        self.rotation.iter_mut().for_each(|rotation| rotation.length += written as u64);
        for boundary in boundaries {
            if end(boundary) <= written {
                boundary.pending.count_exported(counters);
                self.rotation.iter_mut().for_each(|rotation| rotation.records.merge(boundary.pending));
            } else {
                self.count_lost(boundary.pending, counters);
            }
        }
        self.failed.is_none()
    }

    /// Ends an output that stays. Without content, a compressed one gets an empty frame: to programs
    /// that decompress it, a file without octets is damaged.
    fn end_frames(&mut self, counters: &mut SinkCounters) {
        if let Some(compression) = self.compression
            && self.is_empty
            && self.is_ready()
        {
            self.write_frame(Some(compression.compress(&[])), &[], &[], counters);
        }
    }

    /// Removes the incomplete record at the end of the file.
    fn remove_incomplete(&mut self) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.is_regular) else { return Ok(()) };
        // Another program may have emptied the file meanwhile.
        let length = file.metadata()?.len();
        let whole = length.saturating_sub(std::mem::take(&mut self.incomplete));
        if whole < length
            && let Err(error) = file.set_len(whole)
        {
            self.incomplete = length - whole;
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
        if !retry.is_warned && retry.last_warning.is_none_or(|at| at.elapsed() >= self.attempts.log) {
            (retry.is_warned, retry.last_warning) = (true, Some(Instant::now()));
            let sink = &self.sink;
            let advice = if error.kind() == io::ErrorKind::StorageFull { "; free some space" } else { "" };
            warn!(sink, %error, "file cannot be written, trying again, its records are lost until then{advice}");
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
    pub fn finish(&mut self, counters: &mut SinkCounters) -> Result<(), Error> {
        match self.rotation {
            Some(_) => self.end_file(counters),
            None => {
                self.unused.take().into_iter().for_each(UnusedFile::keep);
                self.end_frames(counters);
            }
        }
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
            let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
            match file.write(&octets[*written..]) {
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

fn as_io_error(error: Error) -> io::Error {
    match error {
        Error::Io { error, .. } => error,
        other => io::Error::other(other),
    }
}

/// Removes the incomplete record at the end of a file. Returns the length of the whole records,
/// octets; `None` if the file has other content.
fn cut_to_whole_records(
    name: &str,
    file: &File,
    length: u64,
    compression: Option<Compression>,
    whole_records: WholeRecords<'_>,
) -> io::Result<Option<u64>> {
    if is_empty_frame(file, length, compression)? {
        file.set_len(0)?;
        return Ok(Some(0));
    }
    let whole = if length == 0 { Some(0) } else { whole_records(compression, file, length)? };
    if let Some(whole) = whole.filter(|&whole| whole < length) {
        file.set_len(whole)?;
        warn!(sink = name, octets = length - whole, "removed the incomplete last record of the file");
    }
    Ok(whole)
}

/// Whether a file has the frame of an output that had no content, and nothing else.
fn is_empty_frame(file: &File, length: u64, compression: Option<Compression>) -> io::Result<bool> {
    let Some(frame) = compression.map(|compression| compression.compress(&[])) else { return Ok(false) };
    let mut content = vec![0; frame.len()];
    Ok(length == frame.len() as u64 && file.read_exact_at(&mut content, 0).map(|()| content == frame)?)
}

/// Ends rotated files that a run which was killed has left: removes incomplete records, and gives them
/// their names. One that cannot be ended is left as it is, with a warning. So is one that another
/// program writes, without.
///
/// # Errors
/// The folder cannot be read.
fn end_unfinished(
    sink: &str,
    name: &RotatedName,
    compression: Option<Compression>,
    whole_records: WholeRecords<'_>,
) -> io::Result<()> {
    for part in name.unfinished()? {
        let path = part.display().to_string();
        let mut end = || -> Result<Option<PathBuf>, Error> {
            let io_error = |error| Error::Io { sink: path.clone(), error };
            let OutputFile { file, .. } = match open_file(&path, &part, FileMode::Append, None) {
                Err(Error::File { problem: UnusableFile::Locked, .. }) => return Ok(None),
                opened => opened?,
            };
            let length = file.metadata().map_err(io_error)?.len();
            match cut_to_whole_records(&path, &file, length, compression, whole_records).map_err(io_error)? {
                None => Err(Error::File { sink: path.clone(), problem: UnusableFile::OtherContent }),
                Some(0) => fs::remove_file(&part).map(|()| None).map_err(io_error),
                Some(_) => file.sync_all().and_then(|()| name.rename(&part)).map(Some).map_err(io_error),
            }
        };
        match end() {
            Ok(None) => {}
            Ok(Some(path)) => info!(sink, file = %path.display(), "ended the file of an earlier run"),
            Err(error) => warn!(sink, %error, "the file of an earlier run cannot be ended, so it is left as it is"),
        }
    }
    Ok(())
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
/// it. [`UnusableFile::NoReader`] for a named pipe that no program reads yet: open it again later.
pub fn open_file(name: &str, path: &Path, mode: FileMode, owner: Option<Owner>) -> Result<OutputFile, Error> {
    let io_error = |error| Error::Io { sink: name.into(), error };
    let unusable = |problem| Error::File { sink: name.into(), problem };
    let opened = open_unlocked(name, path, mode)?;
    let at = opened.file.metadata().map_err(io_error)?;
    if !at.is_file() {
        return Ok(opened);
    }
    // A probe that has dropped its privileges creates files as this user.
    if let (Some(_), Some(Owner { user, group })) = (&opened.unused, owner)
        && (at.uid(), at.gid()) != (user, group)
        && let Err(error) = fchown(&opened.file, Some(user), Some(group))
    {
        warn!(file = %path.display(), user, group, %error, "cannot change the owner of the new file");
    }
    // Some file systems have no locks.
    if matches!(opened.file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(unusable(UnusableFile::Locked));
    }
    match mode {
        FileMode::New if opened.file.metadata().map_err(io_error)?.len() > 0 => {
            return Err(unusable(UnusableFile::NotEmpty));
        }
        FileMode::Overwrite => opened.file.set_len(0).map_err(io_error)?,
        FileMode::New | FileMode::Append => {}
    }
    Ok(opened)
}

/// Opens a file as [`open_file`] does, but does not lock it, and keeps owner and content.
fn open_unlocked(name: &str, path: &Path, mode: FileMode) -> Result<OutputFile, Error> {
    let io_error = |error| Error::Io { sink: name.into(), error };
    let mut options = File::options();
    options.read(mode == FileMode::Append).append(true).create_new(true).mode(0o640);
    let file = match options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Ok(OutputFile { file: open_existing(name, path, mode)?, unused: None });
        }
        created => created.map_err(io_error)?,
    };
    let at = file.metadata().map_err(io_error)?;
    let unused = Some(UnusedFile { path: path.into(), device: at.dev(), inode: at.ino() });
    Ok(OutputFile { file, unused })
}

/// Opens what is at a path. Its type is read from the open file: the path may change meanwhile.
/// Does not wait for the reader of a pipe.
fn open_existing(name: &str, path: &Path, mode: FileMode) -> Result<File, Error> {
    let unusable = |problem| Error::File { sink: name.into(), problem };
    let open = |can_read: bool, link: OFlags| {
        let flags = (OFlags::NONBLOCK | link).bits() as i32;
        File::options().read(can_read).append(true).custom_flags(flags).open(path)
    };
    let is_pipe = || fs::metadata(path).is_ok_and(|at| at.file_type().is_fifo());
    let failed = |error: io::Error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) if is_pipe() => unusable(UnusableFile::NoReader),
        _ => Error::Io { sink: name.into(), error },
    };
    let is_file = |file: &File| file.metadata().map(|at| at.is_file()).map_err(failed);
    // Another user may have made a link to a file. One to a device or a pipe, such as /dev/stdout, is
    // followed.
    let file = match open(false, OFlags::NOFOLLOW) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => match open(false, OFlags::empty()) {
            Ok(file) if is_file(&file)? => return Err(unusable(UnusableFile::SymbolicLink)),
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::LOOP)) => {
                return Err(unusable(UnusableFile::SymbolicLink));
            }
            opened => opened.map_err(failed)?,
        },
        opened => opened.map_err(failed)?,
    };
    if !is_file(&file)? {
        // From now on, writes wait for the reader.
        let flags = fcntl_getfl(&file).map_err(|error| failed(error.into()))?;
        fcntl_setfl(&file, flags - OFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
        return Ok(file);
    }
    if mode != FileMode::Append {
        return Ok(file);
    }
    let file = open(true, OFlags::NOFOLLOW).map_err(failed)?;
    if is_file(&file)? { Ok(file) } else { Err(failed(Errno::STALE.into())) }
}

/// Checks that [`open_file`] can open a file to append to it. A new file is created and removed again.
/// A lock is no error: it may be that of the running program whose next start is checked. Devices and
/// pipes are not opened, because their other end would notice it.
///
/// # Errors
/// As [`open_file`].
pub fn check_file(name: &str, path: &Path) -> Result<(), Error> {
    check_records(name, path, &mut |_, _, length| Ok(Some(length)))
}

/// As [`check_file`], and that records can be appended to the file.
///
/// # Errors
/// As [`open_file`]. The file has other content.
pub(crate) fn check_records(name: &str, path: &Path, whole_records: WholeRecords<'_>) -> Result<(), Error> {
    let io_error = |error| Error::Io { sink: name.into(), error };
    match fs::metadata(path) {
        Ok(at) if at.is_dir() => return Err(io_error(Errno::ISDIR.into())),
        Ok(at) if !at.is_file() => return access(path, Access::WRITE_OK).map_err(|error| io_error(error.into())),
        _ => {}
    }
    let OutputFile { file, .. } = open_unlocked(name, path, FileMode::Append)?;
    let length = file.metadata().map_err(io_error)?.len();
    let compression = Compression::of(&path.to_string_lossy());
    match if length == 0 { Ok(Some(0)) } else { whole_records(compression, &file, length) } {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Error::File { sink: name.into(), problem: UnusableFile::OtherContent }),
        Err(error) => Err(io_error(error)),
    }
}

/// Checks that rotated files can be created.
///
/// # Errors
/// The folder does not exist, or this user cannot write it.
pub(crate) fn check_rotated(name: &str, rotated: &RotatedName) -> Result<(), Error> {
    let writable = access(rotated.folder(), Access::WRITE_OK | Access::EXEC_OK);
    writable.map_err(|error| Error::Io { sink: name.into(), error: error.into() })?;
    check_file(name, &rotated.next_part())
}
