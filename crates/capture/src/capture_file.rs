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
use crate::format::{Format, Step};
use crate::read_ahead::ReadAhead;
use crate::window::{ReadError, Window};
use crate::{Burst, Error, Losses, Progress, Source};
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
    /// Damage behind the frames of the last burst.
    pending: Option<Error>,
    ended: bool,
}

impl<F: Format> CaptureFile<F> {
    /// Reads from `cursor` in the window on.
    pub(crate) fn new(path: PathBuf, window: Window, format: F, cursor: usize) -> Self {
        Self { path, window, format, cursor, packets: 0, ahead: ReadAhead::default(), pending: None, ended: false }
    }

    /// Moves the cursor to the next whole packet. Returns false at the end.
    fn find_packet(&mut self) -> Result<bool, Error> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        while !self.ended {
            match self.format.step(&self.window.bytes()[self.cursor..]) {
                Step::Frame(..) => return Ok(true),
                Step::Skip(bytes) => self.cursor += bytes,
                Step::Damaged { cause, skip } => {
                    let error = self.damaged(cause, 0);
                    self.cursor += skip.unwrap_or(0);
                    self.ended = skip.is_none();
                    return Err(error);
                }
                Step::More => match self.window.read_more(&mut self.cursor) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.ended = true;
                        let rest = &self.window.bytes()[self.cursor..];
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

    /// Damage at the cursor, behind this number of packets that are not counted yet.
    fn damaged(&self, cause: Damage, packets: usize) -> Error {
        let offset = self.window.offset() + self.cursor as u64;
        Error::Damaged { path: self.path.clone(), offset, packets: self.packets + packets as u64, cause }
    }
}

impl<F: Format> Source for CaptureFile<F> {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        if !self.find_packet()? {
            return Ok(false);
        }
        let window = self.window.bytes();
        let start = self.cursor;
        if let Some(file) = self.window.mapped() {
            self.ahead.advance(&self.format, file, start, self.packets);
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
        self.packets += burst.len() as u64;
        Ok(true)
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
