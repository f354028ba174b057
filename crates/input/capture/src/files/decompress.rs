//! Decompresses gzip (RFC 1952) and Zstandard (RFC 8878) streams.
//!
//! In: a compressed stream. Out: its content, across all members or frames. Invariants: checksums
//! are verified, and an end inside a member or frame is an error. Errors of the underlying reader
//! pass through unchanged; all others are an [`io::Error`] that holds a [`StreamError`].
//!
//! A damaged stream delivers all content before the damage, however its bytes arrive. The gzip
//! decoders of flate2 drop the content of the call that meets the damage, so only its deflate
//! decoder is used. The Zstandard decoder retains a window, which is read after the damage.

use crate::files::memory_budget::{MemoryClaim, MemoryExceeded};
use flate2::{Crc, CrcReader, Decompress, FlushDecompress, Status};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder, errors::FrameDecoderError};
use std::error::Error;
use std::io::{self, BufRead, Read};
use std::ops::Range;

/// A compression format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

/// What is wrong with a compressed stream.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("the {0} stream is cut")]
    Cut(&'static str),
    #[error("the gzip stream is damaged: {0}")]
    Gzip(&'static str),
    #[error("the zstd stream is damaged: {0}")]
    Zstd(FrameDecoderError),
    #[error("the zstd stream is damaged: wrong checksum")]
    Checksum,
    #[error("the zstd stream is damaged: other data follows a frame")]
    NotAFrame,
    #[error("the zstd stream needs a dictionary, which is not supported")]
    Dictionary,
    #[error(
        "the zstd stream needs a window of {0} bytes, more than the limit of {MAX_WINDOW_BYTES}: \
         decompress it with `zstd -dc --long=31` and read it from `-`"
    )]
    Window(u64),
    #[error(transparent)]
    Memory(#[from] MemoryExceeded),
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

impl Compression {
    /// Recognizes a compressed stream by its first bytes. A Zstandard stream may begin with
    /// skippable frames.
    pub(crate) fn detect(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Returns the name of the format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    pub(crate) fn reader(self, source: impl BufRead + Send + 'static) -> Box<dyn Read + Send> {
        match self {
            Self::Gzip => Box::new(Gzip::new(source)),
            Self::Zstd => Box::new(Zstd::new(source)),
        }
    }
}

/// The window of deflate: the decoder writes at most this many bytes at a time.
const DEFLATE_WINDOW_BYTES: usize = 32 * 1024;

struct Gzip<R> {
    source: R,
    next: GzipPart,
    decoder: Decompress,
    /// Checksum and length of the member's content so far.
    checksum: Crc,
    output: Box<[u8]>,
    /// Part of `output` that has not been returned.
    ready: Range<usize>,
}

/// Part of a member that is read next.
enum GzipPart {
    Header,
    Content,
    Trailer,
    /// Nothing: the content is damaged here.
    Damage,
}

impl<R: BufRead> Gzip<R> {
    fn new(source: R) -> Self {
        let output = vec![0; DEFLATE_WINDOW_BYTES].into();
        let decoder = Decompress::new(false);
        Self { source, next: GzipPart::Header, decoder, checksum: Crc::new(), output, ready: 0..0 }
    }

    /// Reads the header of a member.
    fn read_header(&mut self) -> io::Result<()> {
        const HEADER_CHECKSUM: u8 = 2;
        const EXTRA: u8 = 4;
        const NAME: u8 = 8;
        const COMMENT: u8 = 16;
        const RESERVED: u8 = 0xe0;
        let mut reader = CrcReader::new(&mut self.source);
        let mut fixed = [0; 10];
        reader.read_exact(&mut fixed)?;
        let [0x1f, 0x8b, 8, flags, ..] = fixed else { return Err(StreamError::Gzip("invalid header").into()) };
        if flags & RESERVED != 0 {
            return Err(StreamError::Gzip("invalid header").into());
        }
        let mut pair = [0; 2];
        if flags & EXTRA != 0 {
            reader.read_exact(&mut pair)?;
            let length = u16::from_le_bytes(pair).into();
            if io::copy(&mut (&mut reader).take(length), &mut io::sink())? < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        for text in [NAME, COMMENT] {
            if flags & text != 0 {
                reader.skip_until(0)?;
            }
        }
        if flags & HEADER_CHECKSUM != 0 {
            let checksum = reader.crc().sum() as u16;
            reader.read_exact(&mut pair)?;
            if u16::from_le_bytes(pair) != checksum {
                return Err(StreamError::Gzip("wrong header checksum").into());
            }
        }
        self.decoder.reset(false);
        self.checksum.reset();
        Ok(())
    }

    /// Decompresses the next bytes into `output`, which is empty.
    fn read_content(&mut self) -> io::Result<()> {
        let input = self.source.fill_buf()?;
        let at_end = input.is_empty();
        let before = (self.decoder.total_in(), self.decoder.total_out());
        let status = self.decoder.decompress(input, &mut self.output, FlushDecompress::None);
        self.source.consume((self.decoder.total_in() - before.0) as usize);
        self.ready = 0..(self.decoder.total_out() - before.1) as usize;
        self.checksum.update(&self.output[self.ready.clone()]);
        match status {
            Ok(Status::StreamEnd) => self.next = GzipPart::Trailer,
            Ok(_) if at_end && self.ready.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(_) => self.next = GzipPart::Damage,
        }
        Ok(())
    }

    fn read_trailer(&mut self) -> io::Result<()> {
        let mut trailer = [0; 8];
        self.source.read_exact(&mut trailer)?;
        let expected = u64::from(self.checksum.amount()) << 32 | u64::from(self.checksum.sum());
        if u64::from_le_bytes(trailer) != expected {
            return Err(StreamError::Gzip("wrong checksum").into());
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let cut = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => StreamError::Cut("gzip").into(),
            _ => error,
        };
        while self.ready.is_empty() {
            match self.next {
                GzipPart::Header if self.source.fill_buf()?.is_empty() => return Ok(0),
                GzipPart::Header => {
                    self.read_header().map_err(cut)?;
                    self.next = GzipPart::Content;
                }
                GzipPart::Content => self.read_content().map_err(cut)?,
                GzipPart::Trailer => {
                    self.read_trailer().map_err(cut)?;
                    self.next = GzipPart::Header;
                }
                GzipPart::Damage => return Err(StreamError::Gzip("invalid compressed data").into()),
            }
        }
        let bytes = self.ready.len().min(into.len());
        let start = self.ready.start;
        into[..bytes].copy_from_slice(&self.output[start..start + bytes]);
        self.ready.start += bytes;
        Ok(bytes)
    }
}

/// Largest window of a Zstandard frame: the default limit of the `zstd` command, and the window
/// that `zstd --long` writes.
const MAX_WINDOW_BYTES: u64 = 128 * 1024 * 1024;
/// Size of a Zstandard frame header: magic number, descriptor, window, dictionary and content size.
const MAX_HEADER_BYTES: usize = 18;

/// Largest content of a block.
const MAX_BLOCK_BYTES: usize = 128 * 1024;

struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    /// Inside a frame whose content has not been returned completely.
    inside: bool,
    window_bytes: u64,
    /// The decoder's buffer.
    memory: MemoryClaim,
    /// Why the frame cannot be decoded further. Returned after the content that was decoded.
    failure: Option<io::Error>,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.inside {
                if self.source.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                self.inside = self.begin_frame()?;
                continue;
            }
            let bytes = self.decoder.read(into)?;
            if bytes > 0 || into.is_empty() {
                return Ok(bytes);
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if self.decoder.is_finished() {
                self.inside = false;
                if let Some(expected) = self.decoder.get_checksum_from_data()
                    && self.decoder.get_calculated_checksum() != Some(expected)
                {
                    return Err(StreamError::Checksum.into());
                }
                continue;
            }
            if let Err(error) = self.decode_block() {
                self.failure = Some(error);
                self.end_frame();
            }
        }
    }
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        let (decoder, memory) = (FrameDecoder::new(), MemoryClaim::default());
        Self { source, decoder, inside: false, window_bytes: 0, memory, failure: None }
    }

    /// Decodes the next block into the decoder's buffer, which holds at most a window before.
    fn decode_block(&mut self) -> io::Result<()> {
        let content_bytes = self.decoder.blocks_decoded().saturating_mul(MAX_BLOCK_BYTES);
        let buffer_bytes = content_bytes.min(self.window_bytes as usize) + MAX_BLOCK_BYTES;
        // The decoder doubles its buffer.
        self.memory.grow_to(buffer_bytes.next_power_of_two()).map_err(StreamError::from)?;
        self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1)).map_err(zstd_error)?;
        Ok(())
    }

    /// Ends the frame, so that the decoder returns its window.
    fn end_frame(&mut self) {
        /// A last block without content, and a checksum that is read only if the frame has one.
        const END: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];
        // If only the checksum is missing, the frame is finished when it is read.
        let _ = self.decoder.decode_blocks(&END[..], BlockDecodingStrategy::UptoBlocks(1));
    }

    /// Reads the header of the next frame. Returns false after a skippable frame.
    ///
    /// The decoder parses the header again. It is parsed here because the decoder limits the window
    /// of some frames only, and to less than the `zstd` command does.
    fn begin_frame(&mut self) -> io::Result<bool> {
        let mut header = [0; MAX_HEADER_BYTES];
        let magic = &mut header[..4];
        self.source.read_exact(magic).map_err(zstd_read_error)?;
        match *magic {
            [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
                let mut length = [0; 4];
                self.source.read_exact(&mut length).map_err(zstd_read_error)?;
                let length = u64::from(u32::from_le_bytes(length));
                let skipped = io::copy(&mut (&mut self.source).take(length), &mut io::sink())?;
                return if skipped == length { Ok(false) } else { Err(StreamError::Cut("zstd").into()) };
            }
            [0x28, 0xb5, 0x2f, 0xfd] => {}
            _ => return Err(StreamError::NotAFrame.into()),
        }
        self.source.read_exact(&mut header[4..5]).map_err(zstd_read_error)?;
        let descriptor = header[4];
        let single_segment = descriptor & 0x20 != 0;
        let dictionary_at = 5 + usize::from(!single_segment);
        let content_at = dictionary_at + [0, 1, 2, 4][usize::from(descriptor & 3)];
        let content_bytes = match descriptor >> 6 {
            0 => usize::from(single_segment),
            power => 1 << power,
        };
        let header = &mut header[..content_at + content_bytes];
        self.source.read_exact(&mut header[5..]).map_err(zstd_read_error)?;
        if header[dictionary_at..content_at].iter().any(|&byte| byte != 0) {
            return Err(StreamError::Dictionary.into());
        }
        let window_bytes = if single_segment {
            let mut content = [0; 8];
            content[..content_bytes].copy_from_slice(&header[content_at..]);
            u64::from_le_bytes(content)
        } else {
            let base = 1_u64 << (10 + (header[5] >> 3));
            base + base / 8 * u64::from(header[5] & 7)
        };
        if window_bytes > MAX_WINDOW_BYTES {
            return Err(StreamError::Window(window_bytes).into());
        }
        // A new decoder has no buffer.
        (self.decoder, self.memory) = (FrameDecoder::new(), MemoryClaim::default());
        self.window_bytes = window_bytes;
        self.decoder.reset(&*header).map_err(zstd_error)?;
        Ok(true)
    }
}

/// Returns the reader's error unchanged, everything else as a [`StreamError`].
fn zstd_error(error: FrameDecoderError) -> io::Error {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(at) = cause {
        if let Some(source) = at.downcast_ref::<io::Error>() {
            return match source.raw_os_error() {
                Some(number) => io::Error::from_raw_os_error(number),
                None => zstd_read_error(source.kind().into()),
            };
        }
        cause = at.source();
    }
    StreamError::Zstd(error).into()
}

fn zstd_read_error(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => StreamError::Cut("zstd").into(),
        _ => error,
    }
}
