//! gzip (RFC 1952) and Zstandard (RFC 8878) as streams of octets.
//!
//! In: a compressed stream. Out: what was compressed, across all members or frames.
//! Always true: checksums are verified, and an end inside a member or frame is an error, never a quiet end.
//! Errors of the source pass through as they are; all others say what is wrong with the stream.

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder, errors::FrameDecoderError};
use std::error::Error;
use std::io::{self, BufRead, Read};

/// A way to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// Recognises a compressed stream by its first octets. Skippable frames may come before the first
    /// Zstandard frame.
    pub(crate) fn detect(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Its name for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// What comes out of a compressed stream.
    pub(crate) fn reader(self, source: impl BufRead + Send + 'static) -> Box<dyn Read + Send> {
        match self {
            Self::Gzip => Box::new(Gzip(MultiGzDecoder::new(source))),
            Self::Zstd => Box::new(Zstd { source, decoder: FrameDecoder::new(), inside: false }),
        }
    }
}

/// gzip members, one after another.
struct Gzip<R>(MultiGzDecoder<R>);

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(|error| match error.kind() {
            _ if error.raw_os_error().is_some() => error,
            io::ErrorKind::UnexpectedEof => damaged("the gzip stream is cut"),
            _ => damaged(&format!("the gzip stream is damaged: {error}")),
        })
    }
}

/// The largest window that a Zstandard frame may ask for: what the `zstd` command takes unasked, and
/// `zstd --long` writes.
const MAX_WINDOW_BYTES: u64 = 128 * 1024 * 1024;
/// Zstandard: magic number, descriptor, window, dictionary and content size.
const MAX_HEADER_BYTES: usize = 18;

/// Zstandard frames, one after another.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    /// Within a frame, whose content has not been handed out yet.
    inside: bool,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.inside {
                if self.source.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                self.inside = self.enter()?;
                continue;
            }
            let octets = self.decoder.read(into)?;
            if octets > 0 || into.is_empty() {
                return Ok(octets);
            }
            if self.decoder.is_finished() {
                self.inside = false;
                if let Some(wanted) = self.decoder.get_checksum_from_data()
                    && self.decoder.get_calculated_checksum() != Some(wanted)
                {
                    return Err(damaged("the zstd stream is damaged: wrong checksum"));
                }
                continue;
            }
            self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1)).map_err(explain)?;
        }
    }
}

impl<R: BufRead> Zstd<R> {
    /// Reads the header of the next frame; `false` if the frame was one to be skipped.
    ///
    /// The header is parsed here although the decoder does it once more, because the decoder bounds the
    /// window of some frames only, and by less than the `zstd` command does.
    fn enter(&mut self) -> io::Result<bool> {
        let mut header = [0; MAX_HEADER_BYTES];
        let magic = &mut header[..4];
        self.source.read_exact(magic).map_err(cut)?;
        match *magic {
            [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
                let mut length = [0; 4];
                self.source.read_exact(&mut length).map_err(cut)?;
                let length = u64::from(u32::from_le_bytes(length));
                let skipped = io::copy(&mut (&mut self.source).take(length), &mut io::sink())?;
                return if skipped == length { Ok(false) } else { Err(cut(io::ErrorKind::UnexpectedEof.into())) };
            }
            [0x28, 0xb5, 0x2f, 0xfd] => {}
            _ => return Err(damaged("the zstd stream is damaged: what follows a frame is no frame")),
        }
        self.source.read_exact(&mut header[4..5]).map_err(cut)?;
        let descriptor = header[4];
        let single_segment = descriptor & 0x20 != 0;
        let dictionary_at = 5 + usize::from(!single_segment);
        let content_at = dictionary_at + [0, 1, 2, 4][usize::from(descriptor & 3)];
        let content_bytes = match descriptor >> 6 {
            0 => usize::from(single_segment),
            power => 1 << power,
        };
        let header = &mut header[..content_at + content_bytes];
        self.source.read_exact(&mut header[5..]).map_err(cut)?;
        if header[dictionary_at..content_at].iter().any(|&octet| octet != 0) {
            return Err(damaged("the zstd stream needs a dictionary, which Weir cannot be given"));
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
            let what = format!(
                "the zstd stream asks for a window of {window_bytes} octets, Weir takes {MAX_WINDOW_BYTES}: \
                 decompress it with `zstd -dc --long=31` and read it from `-`"
            );
            return Err(damaged(&what));
        }
        self.decoder = FrameDecoder::new();
        self.decoder.reset(&*header).map_err(explain)?;
        Ok(true)
    }
}

/// An error of the source as it is; everything else in words.
fn explain(error: FrameDecoderError) -> io::Error {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(at) = cause {
        if let Some(source) = at.downcast_ref::<io::Error>() {
            return match source.raw_os_error() {
                Some(number) => io::Error::from_raw_os_error(number),
                None => cut(source.kind().into()),
            };
        }
        cause = at.source();
    }
    damaged(&format!("the zstd stream is damaged: {error}"))
}

fn cut(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("the zstd stream is cut"),
        _ => error,
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
