//! Opens a capture file: recognizes its format by its content alone.

use crate::error::Error;
use crate::error::FormatError;
use crate::files::capture_file::CaptureFile;
use crate::files::decompress::Compression;
use crate::files::mapped_file::MappedFile;
use crate::files::packet_records::{self, PacketsFile};
use crate::files::pcap::{self, Pcap};
use crate::files::pcapng::Pcapng;
use crate::files::window::{CountedRead, ReadError, Stream, Whole, Window};
use crate::source::Source;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes that suffice to recognize every supported format.
const MAGIC_BYTES: usize = 24;

/// Bytes that suffice to describe any other content.
const SAMPLE_BYTES: usize = 64;

/// What a file is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A capture: pcap or pcapng.
    Capture,
    /// A file of packet records (docs/packet-records.md).
    Packets {
        /// Its packets must be those inside tunnels, else those outside.
        decapsulated: bool,
    },
}

/// Opens a capture file: pcap or pcapng, plain or compressed with gzip or Zstandard. `-` is
/// standard input.
///
/// A plain file is mapped into memory. If it is truncated while it is read, that is damage where it
/// ends now. Pipes and compressed files are read through a buffer of bounded size.
///
/// # Errors
/// [`Error::Io`] if it cannot be opened or read, [`Error::NotACapture`] if it has another format.
pub fn open(path: &Path) -> Result<Box<dyn Source + Send>, Error> {
    open_as(path, Content::Capture)
}

/// As [`open`], with this content.
///
/// # Errors
/// As [`open`].
pub fn open_as(path: &Path, content: Content) -> Result<Box<dyn Source + Send>, Error> {
    let failed = |error| Error::Io { path: path.to_owned(), error };
    if path == Path::new("-") {
        // Not `Stdin` itself, which has a small buffer of its own.
        let input = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned().map(File::from).map_err(failed)?;
        return from_reader_as(path, content, Box::new(input));
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(Error::NotACapture { path: path.to_owned(), compression: None, cause: FormatError::Directory });
    }
    // Files without a length (below /proc) and those that cannot be mapped are read like pipes.
    let length = Some(metadata.len()).filter(|&length| metadata.is_file() && length > 0);
    let mut head = [0; 4];
    let is_plain = file.read_exact_at(&mut head, 0).is_ok() && Compression::detect(&head).is_none();
    if length.is_none() || !is_plain {
        return open_stream(path, content, Stream::plain(Box::new(file), length));
    }
    match MappedFile::new(path, file) {
        Ok(file) => open_window(path, content, Window::Whole(Arc::new(Whole::Mapped(file))), None),
        Err((_, file)) => open_stream(path, content, Stream::plain(Box::new(file), length)),
    }
}

/// Reads a capture from memory. `name` appears in errors.
///
/// # Errors
/// As [`open`].
pub fn from_bytes(name: &Path, bytes: Vec<u8>) -> Result<Box<dyn Source + Send>, Error> {
    from_bytes_as(name, Content::Capture, bytes)
}

/// As [`from_bytes`], with this content.
///
/// # Errors
/// As [`open`].
pub fn from_bytes_as(name: &Path, content: Content, bytes: Vec<u8>) -> Result<Box<dyn Source + Send>, Error> {
    match Compression::detect(&bytes) {
        Some(compression) => {
            let total_bytes = bytes.len() as u64;
            open_compressed(name, content, compression, io::Cursor::new(bytes), Some(total_bytes))
        }
        None => open_window(name, content, Window::Whole(Arc::new(Whole::Owned(bytes))), None),
    }
}

/// Reads a capture from a stream of bytes. `name` appears in errors.
///
/// # Errors
/// As [`open`].
pub fn from_reader(name: &Path, reader: Box<dyn Read + Send>) -> Result<Box<dyn Source + Send>, Error> {
    from_reader_as(name, Content::Capture, reader)
}

/// As [`from_reader`], with this content.
///
/// # Errors
/// As [`open`].
pub fn from_reader_as(
    name: &Path,
    content: Content,
    reader: Box<dyn Read + Send>,
) -> Result<Box<dyn Source + Send>, Error> {
    open_stream(name, content, Stream::plain(reader, None))
}

fn open_stream(path: &Path, content: Content, stream: Stream) -> Result<Box<dyn Source + Send>, Error> {
    let mut window = Window::Stream(stream);
    window.fill(4).map_err(|error| read_error(path, error))?;
    let compression = Compression::detect(window.bytes());
    match (compression, window) {
        (Some(compression), Window::Stream(stream)) => {
            let total_bytes = stream.total_bytes();
            open_compressed(path, content, compression, stream.into_rest(), total_bytes)
        }
        (_, window) => open_window(path, content, window, None),
    }
}

fn open_compressed(
    path: &Path,
    content: Content,
    compression: Compression,
    source: impl BufRead + Send + 'static,
    total_bytes: Option<u64>,
) -> Result<Box<dyn Source + Send>, Error> {
    let (source, consumed) = CountedRead::new(source);
    let stream = Stream::decompressed(compression.reader(source), consumed, total_bytes);
    open_window(path, content, Window::Stream(stream), Some(compression))
}

/// Opens the capture that an input is, if it is one.
fn open_window(
    path: &Path,
    content: Content,
    mut window: Window,
    compression: Option<Compression>,
) -> Result<Box<dyn Source + Send>, Error> {
    let refuse = |cause| Error::NotACapture { path: path.to_owned(), compression, cause };
    window.fill(MAGIC_BYTES).map_err(|error| read_error(path, error))?;
    if let Content::Packets { decapsulated } = content {
        let format = PacketsFile::new(window.bytes(), decapsulated).map_err(refuse)?;
        return Ok(Box::new(CaptureFile::new(path.to_owned(), window, format, packet_records::FILE_HEADER_BYTES)));
    }
    if PacketsFile::detect(window.bytes()) {
        return Err(refuse(FormatError::Packets));
    }
    if Pcap::detect(window.bytes()) {
        let format = Pcap::new(window.bytes()).map_err(refuse)?;
        return Ok(Box::new(CaptureFile::new(path.to_owned(), window, format, pcap::FILE_HEADER_BYTES)));
    }
    if Pcapng::detect(window.bytes()) {
        while !Pcapng::has_first_block(window.bytes()).map_err(|damage| refuse(FormatError::Pcapng(damage)))? {
            if !window.read_more(&mut 0).map_err(|error| read_error(path, error))? {
                return Err(refuse(FormatError::PcapngCut(window.bytes().len())));
            }
        }
        return Ok(Box::new(CaptureFile::new(path.to_owned(), window, Pcapng::new(), 0)));
    }
    window.fill(SAMPLE_BYTES).map_err(|error| read_error(path, error))?;
    let bytes = window.bytes();
    Err(refuse(describe(&bytes[..bytes.len().min(SAMPLE_BYTES)])))
}

fn read_error(path: &Path, error: ReadError) -> Error {
    let path = path.to_owned();
    match error {
        ReadError::Io(error) => Error::Io { path, error },
        ReadError::Stream(error) => {
            Error::NotACapture { path, compression: None, cause: FormatError::Compressed(error) }
        }
    }
}

fn describe(head: &[u8]) -> FormatError {
    /// First bytes, and the format that begins with them.
    const KNOWN: [(&[u8], &str); 17] = [
        (b"\x1f\x8b", "gzip once more, and only one layer of compression is removed"),
        (b"\x28\xb5\x2f\xfd", "zstd once more, and only one layer of compression is removed"),
        (b"\xfd7zXZ\0", "xz: decompress it with `xz -dc` and read it from `-`"),
        (b"BZh", "bzip2: decompress it with `bzip2 -dc` and read it from `-`"),
        (b"\x04\x22\x4d\x18", "lz4: decompress it with `lz4 -dc` and read it from `-`"),
        (b"PK\x03\x04", "a zip archive: unpack it first"),
        (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive: unpack it first"),
        (b"snoop\0\0\0", "a snoop capture (RFC 1761): convert it with `editcap -F pcapng`"),
        (b"btsnoop\0", "a Bluetooth btsnoop capture"),
        (b"TRSNIFF data", "a Sniffer capture: convert it with `editcap -F pcapng`"),
        (b"XCP\0", "a NetXRay capture: convert it with `editcap -F pcapng`"),
        (b"GMBU", "a Microsoft Network Monitor capture: convert it with `editcap -F pcapng`"),
        (b"RTSS", "a Microsoft Network Monitor capture: convert it with `editcap -F pcapng`"),
        (b"PAR1", "a Parquet file"),
        (b"\x7fELF", "a program"),
        (b"\x00\x0a", "IPFIX messages, which hold flow records and no packets; `weir read ipfix:FILE` reads them"),
        (b"\x00\x09", "NetFlow v9 messages, which hold flow records and no packets"),
    ];
    if let Some((_, name)) = KNOWN.iter().find(|(magic, _)| head.starts_with(magic)) {
        return FormatError::Other(name);
    }
    match *head {
        [] => FormatError::Empty,
        [_, _, _, _, ..] if is_text(head) => FormatError::Other("text"),
        [_, _, _, _, ..] if is_erf(head) => FormatError::Other("an ERF capture: convert it with `editcap -F pcapng`"),
        [a, b, c, d, ..] => FormatError::Unknown([a, b, c, d]),
        _ => FormatError::Short(head.len()),
    }
}

/// Whether all complete characters are printable; the last character may be cut.
fn is_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or(""),
        Err(_) => "",
    };
    !text.is_empty() && text.chars().all(|character| !character.is_control() || character.is_ascii_whitespace())
}

/// Whether the bytes can be the first record of the Extensible Record Format, which has no magic
/// number: seconds in bytes 4-7 (little-endian), a type up to 48, and a length (big-endian) of at
/// least the record's own header.
fn is_erf(head: &[u8]) -> bool {
    let [_, _, _, _, a, b, c, d, kind, _, high, low, ..] = *head else { return false };
    // 1995 to 2050: such NICs have existed since 1995.
    (788_918_400..2_524_608_000).contains(&u32::from_le_bytes([a, b, c, d]))
        && (1..=48).contains(&(kind & 0x7f))
        && u16::from_be_bytes([high, low]) >= 16
}
