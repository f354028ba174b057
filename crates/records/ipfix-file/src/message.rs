//! Messages of a file (RFC 7011 section 3.1).
//!
//! Input: octets of a file, plain or compressed (gzip, Zstandard). Output: one message at a time. Invariant: a buffer
//! holds one message, which has 65535 octets at most.

use crate::error::ReadError;
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

/// Length of a message header, octets.
pub const HEADER_OCTETS: usize = 16;
const IPFIX: u16 = 10;

/// Values of a message header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Export time, seconds since 1970 UTC.
    pub export_seconds: u32,
    /// Observation domain ID.
    pub domain: u32,
}

/// Reads messages.
pub struct MessageReader {
    source: Box<dyn Read>,
    /// Octets of the messages before the next one.
    pub offset: u64,
    message: Vec<u8>,
}

impl MessageReader {
    /// Opens a file, which may be compressed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(1 << 16, File::open(path)?);
        let head = file.fill_buf()?;
        let source: Box<dyn Read> = if head.starts_with(b"\x1f\x8b") {
            Box::new(BufReader::new(MultiGzDecoder::new(file)))
        } else if head.starts_with(b"\x28\xb5\x2f\xfd") {
            Box::new(BufReader::new(Zstandard { file: Some(file), frame: None }))
        } else {
            Box::new(file)
        };
        Ok(Self::new(source))
    }

    /// Reads these octets.
    pub fn new(source: Box<dyn Read>) -> Self {
        Self { source, offset: 0, message: Vec::new() }
    }

    /// The header and the sets of the next message; `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<(Header, &[u8])>, ReadError> {
        self.fill(HEADER_OCTETS)?;
        if self.message.is_empty() && self.offset > 0 {
            return Ok(None);
        }
        let word = |at: usize| self.message.get(at..at + 2).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]));
        let (version, length) = (word(0), word(2));
        if version != IPFIX || usize::from(length) < HEADER_OCTETS && self.message.len() == HEADER_OCTETS {
            return Err(match self.offset {
                0 => other_format(&self.message),
                offset => ReadError::NoMessage { offset, version, length },
            });
        }
        if self.message.len() < HEADER_OCTETS {
            return Err(ReadError::Cut(self.offset));
        }
        self.fill(length.into())?;
        if self.message.len() < usize::from(length) {
            return Err(ReadError::Cut(self.offset));
        }
        self.offset += u64::from(length);
        let (header, sets) = self.message.split_at(HEADER_OCTETS);
        let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Ok(Some((Header { export_seconds: number(4), domain: number(12) }, sets)))
    }

    /// Reads up to this length of the message: the header, then the rest.
    fn fill(&mut self, length: usize) -> Result<(), ReadError> {
        if length == HEADER_OCTETS {
            self.message.clear();
        }
        let missing = length.saturating_sub(self.message.len());
        match self.source.by_ref().take(missing as u64).read_to_end(&mut self.message) {
            Ok(_) => Ok(()),
            // A compressed stream that is cut.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(ReadError::Cut(self.offset)),
            Err(error) => Err(error.into()),
        }
    }
}

/// What a file is that does not begin with a message of IPFIX.
fn other_format(head: &[u8]) -> ReadError {
    const CAPTURES: [&[u8]; 5] =
        [b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1", b"\x0a\x0d\x0d\x0a"];
    let format = match head {
        [] => return ReadError::Empty,
        [0, 9, ..] => "NetFlow v9",
        [0, 5, ..] => "NetFlow v5",
        _ if CAPTURES.iter().any(|magic| head.starts_with(magic)) => "a capture of packets (pcap)",
        _ if head.starts_with(b"PAR1") => "a Parquet file",
        _ if head.starts_with(b"\x0c\xa5") || head.starts_with(b"\xa5\x0c") => "a file of nfdump",
        _ if head.iter().all(|octet| matches!(octet, b' '..=b'~' | b'\n' | b'\r' | b'\t')) => "text",
        [a, b, ..] => return ReadError::OtherFormat(format!("a file that begins with the octets {a:02x} {b:02x}")),
        [a] => return ReadError::OtherFormat(format!("a file of the octet {a:02x}")),
    };
    ReadError::OtherFormat(format.into())
}

/// The content of all Zstandard frames of a file.
struct Zstandard {
    /// `None` while a frame is read, and after an error.
    file: Option<BufReader<File>>,
    frame: Option<Box<StreamingDecoder<BufReader<File>, ruzstd::decoding::FrameDecoder>>>,
}

impl Read for Zstandard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let octets = frame.read(buffer)?;
                if octets > 0 || buffer.is_empty() {
                    return Ok(octets);
                }
                self.file = self.frame.take().map(|frame| frame.into_inner());
            }
            let Some(mut file) = self.file.take() else { return Ok(0) };
            if file.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.frame = Some(Box::new(StreamingDecoder::new(file).map_err(io::Error::other)?));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_formats_are_named() {
        let cases: [(&[u8], &str); 7] = [
            (b"", "the file is empty"),
            (&[0, 9, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "this is NetFlow v9, not IPFIX"),
            (&[0, 5, 0, 1], "this is NetFlow v5, not IPFIX"),
            (b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00", "this is a capture of packets (pcap), not IPFIX"),
            (b"start_time,end_time\n", "this is text, not IPFIX"),
            (b"\xff", "this is a file of the octet ff, not IPFIX"),
            (
                b"\x00\x0a\x00\x03\0\0\0\0\0\0\0\0\0\0\0\0",
                "this is a file that begins with the octets 00 0a, not IPFIX",
            ),
        ];
        for (octets, expected) in cases {
            let mut reader = MessageReader::new(Box::new(io::Cursor::new(octets.to_vec())));
            assert_eq!(reader.next().unwrap_err().to_string(), expected);
        }
    }
}
