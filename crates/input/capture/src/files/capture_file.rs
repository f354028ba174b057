//! Reads a capture file of any format, record by record.
//!
//! ```text
//! find_packet: skip other records and read more bytes until a whole packet is at the cursor
//! fill:        from there on, read packets while they are whole in the window
//! ```
//! Cost: one header read per frame; no copy, no allocation. A system call only when the window of a
//! stream has no whole packet left, and never for a mapped file. A format gets the bytes from the
//! cursor on and returns what they are. It does not use the window, so mapped and streamed input
//! cannot differ.

use crate::error::Damage;
use crate::error::Error;
use crate::files::format::{Format, Step};
use crate::files::mapped_file::MappedFile;
use crate::files::read_ahead::ReadAhead;
use crate::files::window::{ReadError, Window};
use crate::source::{Burst, Loss, Losses, Progress, SharedMemory, Source};
use std::path::PathBuf;

/// A burst ends with the frame that reaches this size, so that a burst fits into the cache and
/// merging copies little.
const BURST_BYTES: usize = 256 * 1024;

pub(crate) struct CaptureFile<F> {
    path: PathBuf,
    window: Window,
    format: F,
    /// Start of the next record in the window.
    cursor: usize,
    packets: u64,
    ahead: ReadAhead,
    /// Bytes of the window that may be read: all, unless the file was truncated.
    limit: usize,
    /// Why not all.
    loss: Option<Loss>,
    /// Damage behind the frames of the last burst.
    pending: Option<Error>,
    ended: bool,
}

impl<F: Format> CaptureFile<F> {
    /// Reads from `cursor` in the window on.
    pub(crate) fn new(path: PathBuf, window: Window, format: F, cursor: usize) -> Self {
        let (ahead, limit) = (ReadAhead::default(), usize::MAX);
        Self { path, window, format, cursor, packets: 0, ahead, limit, loss: None, pending: None, ended: false }
    }

    /// Moves the cursor to the next whole packet. Returns false at the end.
    fn find_packet(&mut self) -> Result<bool, Error> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        while !self.ended {
            match self.format.step(rest(&self.window, self.cursor, self.limit)) {
                Step::Frame(..) => return Ok(true),
                Step::Skip(bytes) => self.cursor += bytes,
                Step::Damaged { cause, skip } => {
                    if self.apply_truncation() {
                        continue;
                    }
                    let error = self.damaged(cause, 0);
                    self.cursor += skip.unwrap_or(0);
                    self.ended = skip.is_none();
                    return Err(error);
                }
                Step::More => match self.window.read_more(&mut self.cursor) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.ended = true;
                        let rest = rest(&self.window, self.cursor, self.limit);
                        let is_whole = rest.is_empty() && self.limit == usize::MAX && !self.has_lost_pages();
                        let present = || self.window.mapped().filter(|_| !is_whole).and_then(MappedFile::loss);
                        // A file that was truncated may have grown back.
                        if let Some(loss) = self.loss.take().or_else(present) {
                            return Err(loss.into_error(self.packets));
                        }
                        if !rest.is_empty() {
                            return Err(self.damaged(self.format.truncation(rest), 0));
                        }
                        if let Some(cause) = self.format.check_end(self.packets) {
                            return Err(self.damaged(cause, 0));
                        }
                    }
                    Err(error) => {
                        self.ended = true;
                        return Err(match error {
                            ReadError::Io(error) => Error::Io { path: self.path.clone(), error },
                            ReadError::Stream(error) => self.damaged(Box::new(error).into(), 0),
                        });
                    }
                },
            }
        }
        Ok(false)
    }

    /// Whether pages of a mapped file were lost when they were read.
    #[inline]
    fn has_lost_pages(&self) -> bool {
        self.window.mapped().is_some_and(MappedFile::has_lost_pages)
    }

    /// Reads a mapped file no further than to where it ends now. Returns whether that is less than
    /// before.
    #[cold]
    fn apply_truncation(&mut self) -> bool {
        let loss = self.window.mapped().and_then(MappedFile::loss);
        let Some(loss) = loss.filter(|loss| loss.intact_bytes < self.limit) else { return false };
        (self.limit, self.loss) = (loss.intact_bytes, Some(loss));
        true
    }

    /// Damage at the cursor, behind this number of packets that are not counted yet.
    fn damaged(&self, cause: Damage, packets: usize) -> Error {
        let offset = self.window.offset() + self.cursor as u64;
        Error::Damaged { path: self.path.clone(), offset, packets: self.packets + packets as u64, cause }
    }
}

/// The bytes of a window from the cursor to the limit.
#[inline]
fn rest(window: &Window, cursor: usize, limit: usize) -> &[u8] {
    let bytes = window.bytes();
    bytes.get(cursor..bytes.len().min(limit)).unwrap_or_default()
}

/// Removes the frames of a burst that are not wholly in the first bytes of their file.
#[cold]
fn remove_behind(bytes: usize, file: &MappedFile, burst: &mut Burst<'_>) {
    let end = file.map().as_ptr().addr() + bytes;
    while burst.last().is_some_and(|frame| frame.bytes.as_ptr().addr() + frame.bytes.len() > end) {
        burst.pop();
    }
}

impl<F: Format> Source for CaptureFile<F> {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        let area_is_due = self.window.mapped().is_some() && self.ahead.is_due(self.cursor);
        if area_is_due {
            self.apply_truncation();
        }
        if !self.find_packet()? {
            return Ok(false);
        }
        let window = self.window.bytes();
        let window = &window[..window.len().min(self.limit)];
        let start = self.cursor;
        if area_is_due && let Some(file) = self.window.mapped() {
            self.ahead.advance(&self.format, (file, window.len()), start, self.packets);
        }
        let near = &window[start..window.len().min(start + BURST_BYTES)];
        self.cursor += self.format.read_common(near, burst);
        while !burst.is_full() && self.cursor - start < BURST_BYTES {
            match self.format.step(&window[self.cursor..]) {
                Step::Frame(frame, bytes) => {
                    burst.push(frame);
                    self.cursor += bytes;
                }
                Step::Skip(bytes) => self.cursor += bytes,
                Step::More => break,
                Step::Damaged { cause, skip } => {
                    self.pending = Some(self.damaged(cause, burst.len()));
                    self.cursor += skip.unwrap_or(0);
                    self.ended = skip.is_none();
                    break;
                }
            }
        }
        // Behind the end of a truncated file, the rest of its last page reads as records without
        // octets.
        let is_odd = self.pending.is_some() || burst.last().is_some_and(|frame| frame.wire_bytes == 0);
        if (is_odd || self.has_lost_pages())
            && let Some(file) = self.window.mapped()
            && let Some(loss) = file.loss()
        {
            remove_behind(loss.intact_bytes, file, burst);
            self.limit = loss.intact_bytes;
            // Otherwise only what was read ahead is lost.
            if self.cursor > self.limit || self.pending.is_some() {
                (self.cursor, self.ended) = (self.limit.max(start), true);
                let error = loss.into_error(self.packets + burst.len() as u64);
                // Damage that was met is behind that.
                self.pending = None;
                if burst.is_empty() {
                    return Err(error);
                }
                self.pending = Some(error);
            }
        }
        self.packets += burst.len() as u64;
        Ok(true)
    }

    fn memory(&self) -> Option<SharedMemory> {
        self.window.memory()
    }

    fn interfaces(&self) -> Vec<(u32, String)> {
        self.format.interfaces()
    }

    fn recorded_losses(&self) -> Losses {
        self.format.losses()
    }

    fn progress(&self) -> Progress {
        self.window.progress(self.cursor)
    }
}
