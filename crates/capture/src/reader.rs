//! The walk along a capture file, which is the same for all formats.
//!
//! ```text
//! settle: skip what is no packet, fetch octets, until a whole packet stands at the cursor (or damage, or the end)
//! burst:  from there on, take packets while they lie whole in the window
//! ```
//! Budget: a header read per frame; no copy, no allocation. A system call only where a stream's window runs
//! dry, and never for a mapped file. A format sees the octets from the cursor on and says what stands there;
//! it knows nothing of windows, so mapped and streamed input cannot differ.

use crate::input::{Input, Trouble};
use crate::{Burst, Error, Frame, Progress, Source};
use std::path::PathBuf;

/// More octets than a packet of any link type has: D-Bus and USB captures allow 128 MiB. The snap length in
/// the file says nothing here: many writers leave it at 0 or at a value that their packets exceed. A length
/// word that is garbage lies beyond this bound 15 times out of 16.
pub(crate) const MAX_CAPTURED: u32 = 256 * 1024 * 1024;

/// A burst ends with the frame that reaches this many octets, so that a burst fits into the cache and whoever
/// has to copy one (merging) copies little.
const BURST_BYTES: usize = 256 * 1024;

/// What stands at the cursor.
pub(crate) enum Step<'a> {
    /// A packet, in so many octets of the file.
    Frame(Frame<'a>, usize),
    /// So many octets that are no packet.
    Skip(usize),
    /// A record that goes on beyond the window, or nothing.
    More,
    /// Something impossible. The next record is so many octets further on, if that can be known.
    Damaged {
        /// What is wrong.
        what: String,
        /// How far to the next record.
        skip: Option<usize>,
    },
}

/// A capture format.
pub(crate) trait Format {
    /// Frames from the start of `rest`, which is at most [`BURST_BYTES`] long, as far as they are as plain as nearly all are,
    /// and their octets in the file. [`Format::next`] knows how to go on.
    fn plain<'a>(&self, _rest: &'a [u8], _burst: &mut Burst<'a>) -> usize {
        0
    }

    /// What stands at the start of `rest`. A frame may be asked for twice; everything else counts as used.
    fn next<'a>(&mut self, rest: &'a [u8]) -> Step<'a>;

    /// In words, how the file is cut if it ends with `rest`, which is not empty and no whole record.
    fn cut(&self, rest: &[u8]) -> String;
}

/// A capture file of format `F`.
pub(crate) struct Reader<F> {
    path: PathBuf,
    input: Input,
    format: F,
    /// Where the next record begins in the window.
    cursor: usize,
    /// Damage behind the frames of the burst that was handed out last.
    pending: Option<Error>,
    ended: bool,
}

impl<F: Format> Reader<F> {
    /// Reads on from `cursor` in the input's window.
    pub(crate) fn new(path: PathBuf, input: Input, format: F, cursor: usize) -> Self {
        Self { path, input, format, cursor, pending: None, ended: false }
    }

    /// Whether there is another packet; it then lies whole at the cursor.
    fn settle(&mut self) -> Result<bool, Error> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        while !self.ended {
            match self.format.next(&self.input.window()[self.cursor..]) {
                Step::Frame(..) => return Ok(true),
                Step::Skip(octets) => self.cursor += octets,
                Step::Damaged { what, skip } => {
                    let error = self.damaged(what);
                    self.cursor += skip.unwrap_or(0);
                    self.ended = skip.is_none();
                    return Err(error);
                }
                Step::More => match self.input.more(&mut self.cursor) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.ended = true;
                        let rest = &self.input.window()[self.cursor..];
                        if !rest.is_empty() {
                            return Err(self.damaged(self.format.cut(rest)));
                        }
                    }
                    Err(trouble) => {
                        self.ended = true;
                        return Err(match trouble {
                            Trouble::Io(error) => Error::Io { path: self.path.clone(), error },
                            Trouble::Damaged(what) => self.damaged(what),
                        });
                    }
                },
            }
        }
        Ok(false)
    }

    /// Damage at the cursor.
    fn damaged(&self, what: String) -> Error {
        Error::Damaged { path: self.path.clone(), offset: self.input.before() + self.cursor as u64, what }
    }
}

impl<F: Format> Source for Reader<F> {
    fn fill<'a>(&'a mut self, burst: &mut Burst<'a>) -> Result<bool, Error> {
        if !self.settle()? {
            return Ok(false);
        }
        let window = self.input.window();
        let start = self.cursor;
        let near = &window[start..window.len().min(start + BURST_BYTES)];
        self.cursor += self.format.plain(near, burst);
        while !burst.is_full() && self.cursor - start < BURST_BYTES {
            match self.format.next(&window[self.cursor..]) {
                Step::Frame(frame, octets) => {
                    burst.push(frame);
                    self.cursor += octets;
                }
                Step::Skip(octets) => self.cursor += octets,
                Step::More => break,
                Step::Damaged { what, skip } => {
                    self.pending = Some(self.damaged(what));
                    self.cursor += skip.unwrap_or(0);
                    self.ended = skip.is_none();
                    break;
                }
            }
        }
        Ok(true)
    }

    fn progress(&self) -> Progress {
        let (done_bytes, total_bytes) = self.input.progress(self.cursor);
        Progress { done_bytes, total_bytes }
    }
}
