//! Octets on their way to a reader: all of them in memory, or a window that moves along a stream.

use crate::map::Map;
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first size of a stream's window. A pipe hands over 64 KiB at a time; larger is no faster.
const WINDOW_BYTES: usize = 256 * 1024;

/// Why there are no more octets, though the input has not ended.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The operating system could not read.
    Io(io::Error),
    /// The compressed stream makes no sense from here on.
    Damaged(String),
}

/// Where a reader's octets come from.
pub(crate) enum Input {
    /// Everything is there: a mapped file, or memory.
    Whole(Whole),
    /// The octets pass by.
    Stream(Stream),
}

/// Octets that are all there.
pub(crate) enum Whole {
    /// A mapped file.
    Mapped(Map),
    /// Memory.
    Owned(Vec<u8>),
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map.as_ref(),
            Self::Owned(bytes) => bytes,
        }
    }
}

/// A window over a stream. It holds at most the rest of one record and one more reading, and doubles when a
/// record does not fit: never more than twice the largest record that the formats allow.
pub(crate) struct Stream {
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// Octets of the buffer that are filled.
    filled: usize,
    /// Octets of the stream before the buffer.
    before: u64,
    ended: bool,
    /// Octets taken from the compressed source, if there is one.
    compressed: Option<Arc<AtomicU64>>,
    total: Option<u64>,
    /// Whether an error without a number of the operating system comes from the decompressor.
    decompressed: bool,
}

impl Stream {
    /// A stream as it is. `total` is its length, if known.
    pub(crate) fn plain(source: Box<dyn Read + Send>, total: Option<u64>) -> Self {
        Self {
            source,
            buffer: Vec::new(),
            filled: 0,
            before: 0,
            ended: false,
            compressed: None,
            total,
            decompressed: false,
        }
    }

    /// A stream that comes out of a decompressor; `compressed` counts what went in, of `total` if known.
    pub(crate) fn decompressed(source: Box<dyn Read + Send>, compressed: Arc<AtomicU64>, total: Option<u64>) -> Self {
        Self { compressed: Some(compressed), decompressed: true, ..Self::plain(source, total) }
    }

    /// Gives back what was read but not used, and the rest of the stream.
    pub(crate) fn into_rest(mut self) -> impl BufRead + Send {
        self.buffer.truncate(self.filled);
        io::Cursor::new(self.buffer).chain(io::BufReader::with_capacity(WINDOW_BYTES, self.source))
    }

    /// The length of the stream, if known.
    pub(crate) fn total(&self) -> Option<u64> {
        self.total
    }

    fn more(&mut self, cursor: &mut usize) -> Result<bool, Trouble> {
        if self.ended {
            return Ok(false);
        }
        self.buffer.copy_within(*cursor..self.filled, 0);
        self.filled -= *cursor;
        self.before += *cursor as u64;
        *cursor = 0;
        if self.filled == self.buffer.len() {
            self.buffer.resize((2 * self.buffer.len()).max(WINDOW_BYTES), 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.filled..]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(false);
                }
                Ok(octets) => {
                    self.filled += octets;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    return Err(match error.raw_os_error() {
                        None if self.decompressed => Trouble::Damaged(error.to_string()),
                        _ => Trouble::Io(error),
                    });
                }
            }
        }
    }
}

impl Input {
    /// Everything that is there now.
    pub(crate) fn window(&self) -> &[u8] {
        match self {
            Self::Whole(whole) => whole.as_ref(),
            Self::Stream(stream) => &stream.buffer[..stream.filled],
        }
    }

    /// Brings more octets into the window, which may drop what lies before the cursor and then moves the
    /// cursor with it. `false` at the end of the input.
    pub(crate) fn more(&mut self, cursor: &mut usize) -> Result<bool, Trouble> {
        match self {
            Self::Whole(_) => Ok(false),
            Self::Stream(stream) => stream.more(cursor),
        }
    }

    /// Fills the window, from whose start nothing has been used, up to `octets` if the input has as many.
    pub(crate) fn fill(&mut self, octets: usize) -> Result<(), Trouble> {
        while self.window().len() < octets && self.more(&mut 0)? {}
        Ok(())
    }

    /// Where the window begins, in octets from the start of the capture.
    pub(crate) fn before(&self) -> u64 {
        match self {
            Self::Whole(_) => 0,
            Self::Stream(stream) => stream.before,
        }
    }

    /// Octets used of how many, with the cursor in the window.
    pub(crate) fn progress(&self, cursor: usize) -> (u64, Option<u64>) {
        match self {
            Self::Whole(whole) => (cursor as u64, Some(whole.as_ref().len() as u64)),
            Self::Stream(stream) => {
                let done = match &stream.compressed {
                    Some(octets) => octets.load(Ordering::Relaxed),
                    None => stream.before + cursor as u64,
                };
                (done, stream.total)
            }
        }
    }
}

/// Counts what is taken from a source.
pub(crate) struct Counted<R> {
    source: R,
    octets: Arc<AtomicU64>,
}

impl<R> Counted<R> {
    /// Counts from 0.
    pub(crate) fn new(source: R) -> (Self, Arc<AtomicU64>) {
        let octets = Arc::new(AtomicU64::new(0));
        (Self { source, octets: octets.clone() }, octets)
    }
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let octets = self.source.read(into)?;
        self.octets.fetch_add(octets as u64, Ordering::Relaxed);
        Ok(octets)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.source.fill_buf()
    }

    fn consume(&mut self, octets: usize) {
        self.octets.fetch_add(octets as u64, Ordering::Relaxed);
        self.source.consume(octets);
    }
}
