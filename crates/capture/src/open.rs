//! From a name to a source: what a file is, by its content alone.

use crate::decompress::Compression;
use crate::input::{Counted, Input, Stream, Trouble, Whole};
use crate::map::Map;
use crate::pcap::{self, Pcap};
use crate::pcapng::{First, Pcapng};
use crate::reader::Reader;
use crate::{Error, Source};
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::Path;

/// Octets that are enough to tell any format.
const HEAD_BYTES: usize = 24;

/// Octets that are enough to say what something else looks like.
const LOOK_BYTES: usize = 64;

/// What Weir reads, for people who gave it something else.
const READS: &str = "Weir reads pcap and pcapng, plain or compressed with gzip or zstd";

/// Opens a capture file, whatever its name: pcap or pcapng, plain or inside gzip or Zstandard. `-` is standard input.
///
/// Plain files are mapped into memory; do not shorten one while it is read, the operating system ends a
/// process that touches what is gone. Pipes and compressed files are read through a buffer of bounded size.
///
/// # Errors
/// [`Error::Io`] if it cannot be opened or read, [`Error::NotACapture`] if it is something else.
pub fn open(path: &Path) -> Result<Box<dyn Source + Send>, Error> {
    let failed = |error| Error::Io { path: path.to_owned(), error };
    if path == Path::new("-") {
        // Not `Stdin` itself, which has a small buffer of its own.
        #[cfg(unix)]
        let input = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned().map(File::from).map_err(failed)?;
        #[cfg(not(unix))]
        let input = io::stdin();
        return from_reader(path, Box::new(input));
    }
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if about.is_dir() {
        return Err(Error::NotACapture {
            path: path.to_owned(),
            what: "this is a directory; name the capture files in it".into(),
        });
    }
    // Files without a length (below /proc) and those that cannot be mapped are read like pipes.
    let length = Some(about.len()).filter(|&length| about.is_file() && length > 0);
    match length.map(|_| Map::new(&file)) {
        Some(Ok(map)) => whole(path, Whole::Mapped(map)),
        _ => stream(path, Stream::plain(Box::new(file), length)),
    }
}

/// Reads a capture from memory; `name` is for messages.
///
/// # Errors
/// As [`open`].
pub fn from_bytes(name: &Path, bytes: Vec<u8>) -> Result<Box<dyn Source + Send>, Error> {
    whole(name, Whole::Owned(bytes))
}

/// Reads a capture from a stream of octets; `name` is for messages.
///
/// # Errors
/// As [`open`].
pub fn from_reader(name: &Path, reader: Box<dyn Read + Send>) -> Result<Box<dyn Source + Send>, Error> {
    stream(name, Stream::plain(reader, None))
}

fn whole(path: &Path, whole: Whole) -> Result<Box<dyn Source + Send>, Error> {
    match Compression::detect(whole.as_ref()) {
        Some(compression) => {
            let total = whole.as_ref().len() as u64;
            inside(path, compression, io::Cursor::new(whole), Some(total))
        }
        None => capture(path, Input::Whole(whole), None),
    }
}

fn stream(path: &Path, stream: Stream) -> Result<Box<dyn Source + Send>, Error> {
    let mut input = Input::Stream(stream);
    input.fill(4).map_err(|trouble| unreadable(path, trouble, None))?;
    let compression = Compression::detect(input.window());
    match (compression, input) {
        (Some(compression), Input::Stream(stream)) => {
            let total = stream.total();
            inside(path, compression, stream.into_rest(), total)
        }
        (_, input) => capture(path, input, None),
    }
}

/// The capture inside a compressed stream.
fn inside(
    path: &Path,
    compression: Compression,
    source: impl BufRead + Send + 'static,
    total: Option<u64>,
) -> Result<Box<dyn Source + Send>, Error> {
    let (source, octets) = Counted::new(source);
    let stream = Stream::decompressed(compression.reader(source), octets, total);
    capture(path, Input::Stream(stream), Some(compression))
}

/// The capture that an input is, if it is one.
fn capture(path: &Path, mut input: Input, within: Option<Compression>) -> Result<Box<dyn Source + Send>, Error> {
    let refused = |what: String| {
        let layer = within.map_or(String::new(), |compression| format!("inside {}, ", compression.name()));
        Error::NotACapture { path: path.to_owned(), what: format!("{layer}{what}. {READS}") }
    };
    input.fill(HEAD_BYTES).map_err(|trouble| unreadable(path, trouble, within))?;
    if Pcap::detect(input.window()) {
        let format = Pcap::new(input.window()).map_err(refused)?;
        return Ok(Box::new(Reader::new(path.to_owned(), input, format, pcap::FILE_HEADER)));
    }
    if Pcapng::detect(input.window()) {
        loop {
            match Pcapng::first(input.window()) {
                First::Whole => return Ok(Box::new(Reader::new(path.to_owned(), input, Pcapng::new(), 0))),
                First::Strange(what) => return Err(refused(what)),
                First::Cut => {}
            }
            if !input.more(&mut 0).map_err(|trouble| unreadable(path, trouble, within))? {
                let octets = input.window().len();
                return Err(refused(format!(
                    "it looks like a pcapng file that was cut in its first block, after {octets} octets"
                )));
            }
        }
    }
    input.fill(LOOK_BYTES).map_err(|trouble| unreadable(path, trouble, within))?;
    let window = input.window();
    Err(refused(describe(&window[..window.len().min(LOOK_BYTES)])))
}

/// Trouble before it was clear what the input is.
fn unreadable(path: &Path, trouble: Trouble, within: Option<Compression>) -> Error {
    let path = path.to_owned();
    match trouble {
        Trouble::Io(error) => Error::Io { path, error },
        Trouble::Damaged(what) => {
            let name = within.map_or("", Compression::name);
            Error::NotACapture { path, what: format!("it looks like {name}, but before any packet {what}. {READS}") }
        }
    }
}

/// What a file that is no capture looks like.
fn describe(head: &[u8]) -> String {
    /// First octets, and what begins with them.
    const KNOWN: [(&[u8], &str); 17] = [
        (b"\x1f\x8b", "gzip once more, and one layer of compression is all that is opened"),
        (b"\x28\xb5\x2f\xfd", "zstd once more, and one layer of compression is all that is opened"),
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
        (b"\x00\x0a", "IPFIX messages, which hold flows and no packets"),
        (b"\x00\x09", "NetFlow v9 messages, which hold flows and no packets"),
    ];
    if head.is_empty() {
        return "it is empty".into();
    }
    if let Some((_, name)) = KNOWN.iter().find(|(magic, _)| head.starts_with(magic)) {
        return format!("it looks like {name}");
    }
    if head.len() < 4 {
        return format!("it has only {} octets", head.len());
    }
    if is_text(head) {
        return "it looks like text".into();
    }
    if is_erf(head) {
        return "it looks like an ERF capture: convert it with `editcap -F pcapng`".into();
    }
    format!("it begins with {:02x} {:02x} {:02x} {:02x}, which is no capture", head[0], head[1], head[2], head[3])
}

/// Printable, as far as it was read; a character may be cut at the end.
fn is_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or(""),
        Err(_) => "",
    };
    !text.is_empty() && text.chars().all(|character| !character.is_control() || character.is_ascii_whitespace())
}

/// Extensible Record Format has no magic number. Its first record has a time (seconds in octets 4-7, little endian), a
/// type below 48, and a length (big endian) of at least its own header.
fn is_erf(head: &[u8]) -> bool {
    let [_, _, _, _, a, b, c, d, kind, _, high, low, ..] = *head else { return false };
    // 1995 to 2050: the time that such cards have been around, and some more.
    (788_918_400..2_524_608_000).contains(&u32::from_le_bytes([a, b, c, d]))
        && (1..=48).contains(&(kind & 0x7f))
        && u16::from_be_bytes([high, low]) >= 16
}
