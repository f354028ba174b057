//! Walks along a capture file of any format, record by record.
//!
//! ```text
//! settle: skip non-packets and read more bytes until a whole packet is at the cursor (or damage, or the end)
//! fill:   from there on, take packets while they are whole in the window
//! ```
//! Budget: one header read per frame; no copy, no allocation. A system call only where a stream's
//! window runs dry, and never for a mapped file. A format sees the bytes from the cursor on and
//! says what is there; it knows nothing of windows, so mapped and streamed input cannot differ.

use crate::error::Damage;
use crate::window::{ReadError, Window};
use crate::{Burst, Error, Frame, Progress, Source};
use std::path::PathBuf;

/// Largest captured length that is accepted. D-Bus and USB captures allow packets of 128 MiB. The
/// snap length in the file header is no bound: many writers set it to 0 or to less than their
/// packets have. A random length word exceeds this bound 15 times out of 16.
pub(crate) const MAX_CAPTURED: u32 = 256 * 1024 * 1024;

/// A burst ends with the frame that reaches this size, so that a burst fits into the cache and
/// merging copies little.
const BURST_BYTES: usize = 256 * 1024;

/// What is at the cursor.
pub(crate) enum Step<'a> {
    /// A packet, and the length of its record in bytes.
    Frame(Frame<'a>, usize),
    /// This number of bytes that are no packet.
    Skip(usize),
    /// A record that continues beyond the window, or nothing.
    More,
    /// Damage.
    Damaged {
        /// What is wrong.
        cause: Damage,
        /// Distance in bytes to the next record, if that can be known.
        skip: Option<usize>,
    },
}

/// A capture format.
pub(crate) trait Format {
    /// Reads frames from the start of `rest`, which has at most [`BURST_BYTES`], as long as they
    /// have the most common form, and returns the bytes of their records. [`Format::next`]
    /// continues.
    fn plain<'a>(&self, _rest: &'a [u8], _burst: &mut Burst<'a>) -> usize {
        0
    }

    /// Reads what is at the start of `rest`. A frame may be read twice; everything else counts as
    /// consumed.
    fn next<'a>(&mut self, rest: &'a [u8]) -> Step<'a>;

    /// Describes the end of a file that ends with `rest`, which is not empty and no whole record.
    fn cut(&self, rest: &[u8]) -> Damage;
}

/// A capture file of format `F`.
pub(crate) struct Reader<F> {
    path: PathBuf,
    window: Window,
    format: F,
    /// Start of the next record in the window.
    cursor: usize,
    /// Packets delivered.
    packets: u64,
    /// Damage behind the frames of the last burst.
    pending: Option<Error>,
    ended: bool,
}

impl<F: Format> Reader<F> {
    /// Reads from `cursor` in the window on.
    pub(crate) fn new(path: PathBuf, window: Window, format: F, cursor: usize) -> Self {
        Self { path, window, format, cursor, packets: 0, pending: None, ended: false }
    }

    /// Returns whether there is another packet; it is then whole at the cursor.
    fn settle(&mut self) -> Result<bool, Error> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        while !self.ended {
            match self.format.next(&self.window.bytes()[self.cursor..]) {
                Step::Frame(..) => return Ok(true),
                Step::Skip(bytes) => self.cursor += bytes,
                Step::Damaged { cause, skip } => {
                    let error = self.damaged(cause, 0);
                    self.cursor += skip.unwrap_or(0);
                    self.ended = skip.is_none();
                    return Err(error);
                }
                Step::More => match self.window.more(&mut self.cursor) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.ended = true;
                        let rest = &self.window.bytes()[self.cursor..];
                        if !rest.is_empty() {
                            return Err(self.damaged(self.format.cut(rest), 0));
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

impl<F: Format> Source for Reader<F> {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        if !self.settle()? {
            return Ok(false);
        }
        let window = self.window.bytes();
        let start = self.cursor;
        let near = &window[start..window.len().min(start + BURST_BYTES)];
        self.cursor += self.format.plain(near, burst);
        while !burst.is_full() && self.cursor - start < BURST_BYTES {
            match self.format.next(&window[self.cursor..]) {
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

    fn progress(&self) -> Progress {
        let (done_bytes, total_bytes) = self.window.progress(self.cursor);
        Progress { done_bytes, total_bytes }
    }
}
