//! Decompresses gzip (RFC 1952) and Zstandard (RFC 8878) streams.
//!
//! In: a compressed stream. Out: its content, across all members or frames. Invariants: checksums
//! are verified, and an end inside a member or frame is an error. Errors of the underlying reader
//! pass through unchanged; all others are an [`io::Error`] that holds a [`StreamError`].

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder, errors::FrameDecoderError};
use std::error::Error;
use std::io::{self, BufRead, Read};

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
    Gzip(io::Error),
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
            Self::Gzip => Box::new(Gzip(MultiGzDecoder::new(source))),
            Self::Zstd => Box::new(Zstd { source, decoder: FrameDecoder::new(), inside: false }),
        }
    }
}

struct Gzip<R>(MultiGzDecoder<R>);

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(|error| match error.kind() {
            _ if error.raw_os_error().is_some() => error,
            io::ErrorKind::UnexpectedEof => StreamError::Cut("gzip").into(),
            _ => StreamError::Gzip(error).into(),
        })
    }
}

/// Largest window of a Zstandard frame: the default limit of the `zstd` command, and the window
/// that `zstd --long` writes.
const MAX_WINDOW_BYTES: u64 = 128 * 1024 * 1024;
/// Size of a Zstandard frame header: magic number, descriptor, window, dictionary and content size.
const MAX_HEADER_BYTES: usize = 18;

struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    /// Inside a frame whose content has not been returned completely.
    inside: bool,
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
            if self.decoder.is_finished() {
                self.inside = false;
                if let Some(expected) = self.decoder.get_checksum_from_data()
                    && self.decoder.get_calculated_checksum() != Some(expected)
                {
                    return Err(StreamError::Checksum.into());
                }
                continue;
            }
            self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1)).map_err(zstd_error)?;
        }
    }
}

impl<R: BufRead> Zstd<R> {
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
        self.decoder = FrameDecoder::new();
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
