//! Captures: any octets, read from memory, from a stream in pieces, and both merged.
//!
//! Invariants: memory and stream give the same frames and the same errors in the same order, the
//! input limits the number of both, and nothing panics. A packet of a file of packet records gives the same record
//! again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Cursor, Read};
use std::path::Path;
use weir_capture::{Content as Kind, DECODED_LINK_TYPE, Error, Frame, Source, from_bytes_as, from_reader_as, merge};
use weir_packet::{DecodeOptions, Packet, decode, decode_with_mac_addresses, record};
use weir_testkit::input::Input;

/// Limit of the frames and errors of a compressed input: a small one may decompress to many.
const LIMIT_COMPRESSED: usize = 1 << 24;

/// A pcap file: the first octets select the variant, the rest follows the file header.
///
/// # Panics
/// An invariant does not hold.
pub fn pcap(input: &[u8]) {
    let mut input = Input(input);
    let (variant, piece) = (input.octet(), input.octet());
    let magic = [0xa1b2_c3d4_u32, 0xa1b2_3c4d, 0xa1b2_cd34][usize::from(variant % 3)];
    let (magic, version) = match variant & 0x80 {
        0 => (magic.to_le_bytes(), if variant & 0x40 == 0 { [2, 0, 4, 0] } else { [2, 0, 2, 0] }),
        _ => (magic.to_be_bytes(), if variant & 0x40 == 0 { [0, 2, 0, 4] } else { [0, 2, 0, 2] }),
    };
    let bytes = [&magic[..], &version, input.rest()].concat();
    // A record has at least 16 bytes; the end may add an error.
    read_every_way(&bytes, Kind::Capture, piece.into(), bytes.len() / 16 + 1);
}

/// A pcapng file, or anything else that is not compressed: the input unchanged.
///
/// # Panics
/// An invariant does not hold.
pub fn pcapng(input: &[u8]) {
    let mut input = Input(input);
    let (piece, bytes) = (input.octet(), input.rest());
    if let [0x1f, 0x8b, ..] | [0x28, 0xb5, ..] | [0x50..=0x5f, 0x2a, ..] = bytes {
        return;
    }
    // A block has at least 12 bytes; the end may add an error.
    read_every_way(bytes, Kind::Capture, piece.into(), bytes.len() / 12 + 1);
}

/// A gzip or zstd stream: the input follows a magic number.
///
/// # Panics
/// An invariant does not hold.
pub fn compressed(input: &[u8]) {
    let mut input = Input(input);
    let magic: &[u8] = if input.octet() & 1 == 0 { &[0x1f, 0x8b, 8] } else { &[0x28, 0xb5, 0x2f, 0xfd] };
    read_every_way(&[magic, input.rest()].concat(), Kind::Capture, 4096, LIMIT_COMPRESSED);
}

/// A file of packet records behind its file header: the input is records.
///
/// # Panics
/// An invariant does not hold.
pub fn packets_file(input: &[u8]) {
    let mut input = Input(input);
    let (decapsulated, piece) = (input.octet() & 1, input.octet());
    let header = [&b"WeirPkt\n\x04\x03\x02\x01\x01\0\x88\0"[..], &[decapsulated, 0, 0, 0, 0, 0, 0, 0]].concat();
    let bytes = [&header[..], input.rest()].concat();
    let kind = Kind::Packets { decapsulated: decapsulated == 1 };
    // A record has 136 bytes; the end may add an error.
    read_every_way(&bytes, kind, piece.into(), bytes.len() / 136 + 2);
    let mut source = from_bytes_as(Path::new("input"), kind, bytes).expect("the header is valid");
    loop {
        match source.burst() {
            Ok(Some(burst)) => burst.iter().for_each(check_packet),
            Ok(None) => break,
            Err(_) => {}
        }
    }
}

/// Decodes a frame of a file of packet records. A packet, or a reason that the file gives, is written as it was read.
fn check_packet(frame: &Frame<'_>) {
    let mut packet = Packet::default();
    let options = DecodeOptions::default();
    let decoded = decode_with_mac_addresses(frame.link_type, frame.bytes, frame.wire_bytes, options, &mut packet);
    if frame.link_type == DECODED_LINK_TYPE && decoded.is_ok() {
        assert_eq!(record::write(decoded, &packet), frame.bytes);
        assert_eq!(decode(frame.link_type, frame.bytes, frame.wire_bytes, options, &mut packet), decoded);
        assert_eq!(packet.mac_addresses(), [[0; 6]; 2]);
    }
}

/// Everything that a source delivers: number and digest of its frames, and its errors with the
/// number of frames before each.
#[derive(Debug, Default, PartialEq, Eq)]
struct Content {
    frames: usize,
    digest: u64,
    errors: Vec<(usize, String)>,
}

/// A reader that returns at most `piece_bytes` per call.
struct Pieces {
    bytes: Cursor<Vec<u8>>,
    piece_bytes: usize,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let most = into.len().min(self.piece_bytes);
        self.bytes.read(&mut into[..most])
    }
}

/// Reads a source to its end, which must come after at most `limit` frames and errors.
fn content(source: &mut dyn Source, limit: usize) -> Content {
    let mut content = Content::default();
    let mut hasher = DefaultHasher::new();
    loop {
        match source.burst() {
            Ok(None) => break,
            Ok(Some(burst)) => {
                assert!(!burst.is_empty());
                for frame in &burst {
                    assert!(frame.wire_bytes as usize >= frame.bytes.len() || frame.link_type == DECODED_LINK_TYPE);
                    let fields =
                        (frame.time_ns, frame.wire_bytes, frame.link_type, frame.time_assumed, frame.interface);
                    (frame.bytes, fields).hash(&mut hasher);
                }
                content.frames += burst.len();
            }
            Err(error) => content.errors.push((content.frames, error.to_string())),
        }
        assert!(content.frames + content.errors.len() <= limit, "more frames than the input can hold");
    }
    assert!(source.burst().is_ok_and(|burst| burst.is_none()), "the end stays the end");
    content.digest = hasher.finish();
    content
}

/// Reads a capture from memory, from a stream in pieces, and both merged, and compares the results.
fn read_every_way(bytes: &[u8], kind: Kind, piece: usize, limit: usize) {
    let name = Path::new("input");
    let stream = || {
        let pieces = Pieces { bytes: Cursor::new(bytes.to_vec()), piece_bytes: piece.max(1) };
        from_reader_as(name, kind, Box::new(pieces))
    };
    match (from_bytes_as(name, kind, bytes.to_vec()), stream()) {
        (Ok(mut whole), Ok(mut pieces)) => {
            let expected = content(&mut *whole, limit);
            assert_eq!(expected, content(&mut *pieces, limit));
            let pair =
                [from_bytes_as(name, kind, bytes.to_vec()), stream()].map(|source| source.expect("it opened before"));
            let merged = content(&mut *merge(pair.into()), 2 * limit);
            assert_eq!(merged.frames, 2 * expected.frames);
            assert_eq!(merged.errors.len(), 2 * expected.errors.len());
        }
        (Err(whole), Err(pieces)) => {
            assert_eq!(whole.to_string(), pieces.to_string());
            assert!(matches!(whole, Error::NotACapture { .. }), "memory has no operating system to fail");
        }
        (whole, pieces) => panic!("a capture in one way alone: {:?} {:?}", whole.err(), pieces.err()),
    }
}
