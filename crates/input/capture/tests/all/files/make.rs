//! Builds capture files, and reads sources to their end.

use std::io::{Read, Write};
use std::path::Path;
use weir_capture::{Error, Frame, Source, from_bytes, from_reader};

/// A frame with its own octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub bytes: Vec<u8>,
    pub time_ns: u64,
    pub wire_bytes: u32,
    pub link_type: u16,
    pub time_assumed: bool,
    pub interface: u32,
}

impl From<&Frame<'_>> for Kept {
    fn from(frame: &Frame<'_>) -> Self {
        let Frame { bytes, time_ns, wire_bytes, link_type, time_assumed, interface } = *frame;
        Self { bytes: bytes.to_vec(), time_ns, wire_bytes, link_type, time_assumed, interface }
    }
}

/// The frames and errors of a source, in order.
fn read_in_order(source: &mut dyn Source) -> Vec<Result<Kept, Error>> {
    let mut content = Vec::new();
    loop {
        match source.burst() {
            Ok(None) => return content,
            Ok(Some(burst)) => {
                assert!(!burst.is_empty());
                content.extend(burst.iter().map(|frame| Ok(Kept::from(frame))));
            }
            Err(error) => content.push(Err(error)),
        }
    }
}

/// The same, with the messages of the errors.
pub fn read_as_text(source: &mut dyn Source) -> Vec<Result<Kept, String>> {
    read_in_order(source).into_iter().map(|item| item.map_err(|error| error.to_string())).collect()
}

/// All frames and all errors.
pub fn read(source: &mut dyn Source) -> (Vec<Kept>, Vec<Error>) {
    let (mut frames, mut errors) = (Vec::new(), Vec::new());
    for item in read_in_order(source) {
        item.map_or_else(|error| errors.push(error), |frame| frames.push(frame));
    }
    (frames, errors)
}

/// The octets as a gzip stream.
pub fn gzip(bytes: &[u8], level: flate2::Compression) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns at most `octets` bytes per read.
struct Pieces {
    bytes: std::io::Cursor<Vec<u8>>,
    octets: usize,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let most = into.len().min(self.octets);
        self.bytes.read(&mut into[..most])
    }
}

/// The same octets as a stream of pieces.
pub fn try_stream(bytes: Vec<u8>, octets: usize) -> Result<Box<dyn Source + Send>, Error> {
    from_reader(Path::new("input"), Box::new(Pieces { bytes: std::io::Cursor::new(bytes), octets }))
}

/// The same octets, which are a capture, as a stream of pieces.
pub fn read_stream(bytes: Vec<u8>, octets: usize) -> Box<dyn Source + Send> {
    try_stream(bytes, octets).unwrap()
}

/// Reads from memory and as streams, and asserts that all results are equal. Empty if the bytes are
/// no capture.
pub fn same_either_way(bytes: &[u8]) -> (Vec<Kept>, Vec<Error>) {
    let whole = from_bytes(Path::new("input"), bytes.to_vec());
    for octets in [13, 1 << 20] {
        match (&whole, try_stream(bytes.to_vec(), octets)) {
            (Ok(_), Ok(mut stream)) => {
                let mut again = from_bytes(Path::new("input"), bytes.to_vec()).unwrap();
                assert_eq!(read_as_text(&mut *stream), read_as_text(&mut *again));
            }
            (Err(whole), Err(stream)) => assert_eq!(whole.to_string(), stream.to_string()),
            _ => panic!("a capture in one way alone"),
        }
    }
    whole.map(|mut source| read(&mut *source)).unwrap_or_default()
}

/// Builds a pcap file. Set unusual properties before the first record.
pub struct Pcap {
    pub version: (u16, u16),
    pub snap_bytes: u32,
    pub link_type: u32,
    /// Writes the original length before the captured one.
    pub swap_lengths: bool,
    /// Where each record ends.
    pub ends: Vec<usize>,
    big_endian: bool,
    magic: u32,
    bytes: Vec<u8>,
}

impl Pcap {
    pub fn new(big_endian: bool, magic: u32) -> Self {
        let (ends, bytes) = (Vec::new(), Vec::new());
        Self { version: (2, 4), snap_bytes: 65_535, link_type: 1, swap_lengths: false, ends, big_endian, magic, bytes }
    }

    fn words(&mut self, words: &[u32]) {
        let bytes = |word: &u32| if self.big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
        self.bytes.extend(words.iter().flat_map(bytes));
    }

    /// Two numbers of 16 bits as one word.
    fn pair(&self, (first, second): (u16, u16)) -> u32 {
        let (high, low) = if self.big_endian { (first, second) } else { (second, first) };
        u32::from(high) << 16 | u32::from(low)
    }

    fn begin(&mut self) {
        if self.bytes.is_empty() {
            self.words(&[self.magic, self.pair(self.version), 0, 0, self.snap_bytes, self.link_type]);
        }
    }

    /// A record header alone.
    pub fn header(&mut self, seconds: u32, fraction: u32, captured: u32, wire: u32) {
        self.begin();
        let [first, second] = if self.swap_lengths { [wire, captured] } else { [captured, wire] };
        self.words(&[seconds, fraction, first, second]);
        if self.magic == 0xa1b2_cd34 {
            self.words(&[3, self.pair((0x0800, 0))]);
        }
    }

    /// A record of octets that differ from record to record.
    pub fn record(mut self, seconds: u32, fraction: u32, captured: u32, wire: u32) -> Self {
        self.header(seconds, fraction, captured, wire);
        self.bytes.extend((0..captured).map(|at| (at ^ seconds) as u8));
        self.ends.push(self.bytes.len());
        self
    }

    pub fn done(mut self) -> Vec<u8> {
        self.begin();
        self.bytes
    }
}

/// Builds a pcapng file.
pub struct Ng {
    /// Where each block starts.
    pub starts: Vec<usize>,
    /// Where each packet block ends.
    pub packet_ends: Vec<usize>,
    big_endian: bool,
    bytes: Vec<u8>,
}

impl Ng {
    /// A section of unknown length.
    pub fn section(big_endian: bool) -> Self {
        let file = Self { starts: Vec::new(), packet_ends: Vec::new(), big_endian, bytes: Vec::new() };
        let body = [file.word(0x1a2b_3c4d).to_vec(), file.half(1).to_vec(), file.half(0).to_vec(), vec![0xff; 8]];
        file.block(0x0a0d_0d0a, &body.concat())
    }

    fn word(&self, value: u32) -> [u8; 4] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn half(&self, value: u16) -> [u8; 2] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    /// A block of any kind, padded.
    pub fn block(mut self, kind: u32, body: &[u8]) -> Self {
        self.starts.push(self.bytes.len());
        let length = self.word(12 + body.len().next_multiple_of(4) as u32);
        let kind = self.word(kind);
        self.bytes.extend(kind.iter().chain(&length).chain(body));
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.bytes.extend(length);
        self
    }

    /// An interface description with options.
    pub fn interface(self, link_type: u16, snap_bytes: u32, options: &[(u16, &[u8])]) -> Self {
        let mut body = [&self.half(link_type)[..], &[0, 0], &self.word(snap_bytes)].concat();
        for (code, value) in options {
            body.extend(self.half(*code));
            body.extend(self.half(value.len() as u16));
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(1, &body)
    }

    fn packet(mut self, kind: u32, body: &[&[u8]], captured: u32) -> Self {
        let mut body = body.concat();
        body.extend((0..captured).map(|at| (at ^ captured) as u8));
        self = self.block(kind, &body);
        self.packet_ends.push(self.bytes.len());
        self
    }

    pub fn enhanced(self, interface: u32, time: u64, captured: u32, wire: u32) -> Self {
        let words = [interface, (time >> 32) as u32, time as u32, captured, wire].map(|value| self.word(value));
        self.packet(6, &[words.as_flattened()], captured)
    }

    pub fn simple(self, captured: u32, wire: u32) -> Self {
        let wire = self.word(wire);
        self.packet(3, &[&wire], captured)
    }

    pub fn obsolete(self, interface: u16, time: u64, captured: u32, wire: u32) -> Self {
        let number = self.half(interface);
        let words = [(time >> 32) as u32, time as u32, captured, wire].map(|value| self.word(value));
        self.packet(2, &[&number, &[0xff, 0xff], words.as_flattened()], captured)
    }

    /// Adds another section.
    pub fn and(mut self, next: Self) -> Self {
        let before = self.bytes.len();
        self.starts.extend(next.starts.iter().map(|at| at + before));
        self.packet_ends.extend(next.packet_ends.iter().map(|at| at + before));
        self.bytes.extend(next.bytes);
        self.big_endian = next.big_endian;
        self
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn done(self) -> Vec<u8> {
        self.bytes
    }
}
