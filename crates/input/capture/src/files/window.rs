//! The bytes of an input: all of them in memory, or a window that moves along a stream.

use crate::files::decompress::StreamError;
use crate::files::mapped_file::MappedFile;
use crate::files::memory_budget::MemoryClaim;
use crate::source::{FrameMemory, Loss, Progress, SharedMemory};
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// First size of a stream's window. A pipe delivers 64 KiB at a time; a larger window is no faster.
const WINDOW_BYTES: usize = 256 * 1024;

/// Why no more bytes can be read although the input has not ended.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The operating system could not read.
    Io(io::Error),
    /// The compressed stream is damaged from here on.
    Stream(StreamError),
}

/// The bytes that a reader sees at the moment.
pub(crate) enum Window {
    /// The whole input: a mapped file, or memory.
    Whole(Arc<Whole>),
    Stream(Stream),
}

/// An input that is entirely in memory.
pub(crate) enum Whole {
    Mapped(MappedFile),
    Owned(Vec<u8>),
}

impl Whole {
    #[inline]
    fn mapped(&self) -> Option<&MappedFile> {
        match self {
            Self::Mapped(file) => Some(file),
            Self::Owned(_) => None,
        }
    }
}

impl FrameMemory for Whole {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(file) => file.map(),
            Self::Owned(bytes) => bytes,
        }
    }

    #[inline]
    fn has_loss(&self) -> bool {
        self.mapped().is_some_and(MappedFile::has_lost_pages)
    }

    fn loss(&self) -> Option<Loss> {
        self.mapped()?.loss()
    }
}

/// A window over a stream. It holds at most the rest of one record and one more read, and doubles
/// when a record does not fit: never more than twice the largest record that the formats allow.
pub(crate) struct Stream {
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// Filled bytes of the buffer.
    filled: usize,
    /// Offset of the buffer in the stream.
    offset: u64,
    ended: bool,
    /// Bytes taken from the compressed source, if there is one.
    compressed: Option<Arc<AtomicU64>>,
    total_bytes: Option<u64>,
    /// The buffer, once it is larger than at first.
    memory: MemoryClaim,
}

impl Stream {
    /// A stream without compression. `total_bytes` is its length, if known.
    pub(crate) fn plain(source: Box<dyn Read + Send>, total_bytes: Option<u64>) -> Self {
        let (buffer, memory) = (Vec::new(), MemoryClaim::default());
        Self { source, buffer, filled: 0, offset: 0, ended: false, compressed: None, total_bytes, memory }
    }

    /// The output of a decompressor. `compressed` counts its input, `total_bytes` is the length of
    /// that, if known.
    pub(crate) fn decompressed(
        source: Box<dyn Read + Send>,
        compressed: Arc<AtomicU64>,
        total_bytes: Option<u64>,
    ) -> Self {
        Self { compressed: Some(compressed), ..Self::plain(source, total_bytes) }
    }

    /// Returns the bytes that were read but not consumed, and the rest of the stream.
    pub(crate) fn into_rest(mut self) -> impl BufRead + Send {
        self.buffer.truncate(self.filled);
        io::Cursor::new(self.buffer).chain(io::BufReader::with_capacity(WINDOW_BYTES, self.source))
    }

    pub(crate) fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }

    fn grow(&mut self) -> Result<(), StreamError> {
        let bytes = (2 * self.buffer.len()).max(WINDOW_BYTES);
        if bytes > WINDOW_BYTES {
            self.memory.grow_to(bytes)?;
        }
        self.buffer.resize(bytes, 0);
        Ok(())
    }

    fn read_more(&mut self, cursor: &mut usize) -> Result<bool, ReadError> {
        if self.ended {
            return Ok(false);
        }
        self.buffer.copy_within(*cursor..self.filled, 0);
        self.filled -= *cursor;
        self.offset += *cursor as u64;
        *cursor = 0;
        if self.filled == self.buffer.len()
            && let Err(error) = self.grow()
        {
            self.ended = true;
            return Err(ReadError::Stream(error));
        }
        loop {
            match self.source.read(&mut self.buffer[self.filled..]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(false);
                }
                Ok(bytes) => {
                    self.filled += bytes;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    return Err(error.downcast().map_or_else(ReadError::Io, ReadError::Stream));
                }
            }
        }
    }
}

impl Window {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(whole) => whole.bytes(),
            Self::Stream(stream) => &stream.buffer[..stream.filled],
        }
    }

    /// The file, if the window is a mapped one.
    #[inline]
    pub(crate) fn mapped(&self) -> Option<&MappedFile> {
        match self {
            Self::Whole(whole) => whole.mapped(),
            Self::Stream(_) => None,
        }
    }

    /// The whole input, if the window has all of it.
    pub(crate) fn memory(&self) -> Option<SharedMemory> {
        match self {
            Self::Whole(whole) => Some(whole.clone()),
            Self::Stream(_) => None,
        }
    }

    /// Reads more bytes into the window. May drop the bytes before the cursor and then moves the
    /// cursor with them. Returns false at the end of the input.
    pub(crate) fn read_more(&mut self, cursor: &mut usize) -> Result<bool, ReadError> {
        match self {
            Self::Whole(_) => Ok(false),
            Self::Stream(stream) => stream.read_more(cursor),
        }
    }

    /// Reads until the window, nothing of which has been consumed, holds this number of bytes, or
    /// all of a shorter input.
    pub(crate) fn fill(&mut self, bytes: usize) -> Result<(), ReadError> {
        while self.bytes().len() < bytes && self.read_more(&mut 0)? {}
        Ok(())
    }

    /// Offset of the window in the capture, in bytes.
    pub(crate) fn offset(&self) -> u64 {
        match self {
            Self::Whole(_) => 0,
            Self::Stream(stream) => stream.offset,
        }
    }

    /// Progress with the cursor in the window.
    pub(crate) fn progress(&self, cursor: usize) -> Progress {
        let (done_bytes, total_bytes) = match self {
            Self::Whole(whole) => (cursor as u64, Some(whole.bytes().len() as u64)),
            Self::Stream(Stream { compressed: Some(bytes), total_bytes, .. }) => {
                (bytes.load(Ordering::Relaxed), *total_bytes)
            }
            Self::Stream(stream) => (stream.offset + cursor as u64, stream.total_bytes),
        };
        Progress { done_bytes, total_bytes }
    }
}

/// Counts the bytes that are taken from a source.
pub(crate) struct CountedRead<R> {
    source: R,
    bytes: Arc<AtomicU64>,
}

impl<R> CountedRead<R> {
    /// Wraps a source; returns the counter, too.
    pub(crate) fn new(source: R) -> (Self, Arc<AtomicU64>) {
        let bytes = Arc::new(AtomicU64::new(0));
        (Self { source, bytes: bytes.clone() }, bytes)
    }
}

impl<R: BufRead> Read for CountedRead<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.source.read(into)?;
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

impl<R: BufRead> BufRead for CountedRead<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.source.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.source.consume(bytes);
    }
}
