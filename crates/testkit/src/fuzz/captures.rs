//! Captures: any octets, read from memory, from a stream in pieces, and both merged.
//!
//! Invariants: memory and stream give the same frames and the same errors in the same order, the
//! input limits the number of both, and nothing panics.

use super::Input;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Cursor, Read};
use std::path::Path;
use weir_capture::{Error, Source, from_bytes, from_reader, merge};

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
    read_every_way(&bytes, piece.into(), bytes.len() / 16 + 1);
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
    read_every_way(bytes, piece.into(), bytes.len() / 12 + 1);
}

/// A gzip or zstd stream: the input follows a magic number.
///
/// # Panics
/// An invariant does not hold.
pub fn compressed(input: &[u8]) {
    let mut input = Input(input);
    let magic: &[u8] = if input.octet() & 1 == 0 { &[0x1f, 0x8b, 8] } else { &[0x28, 0xb5, 0x2f, 0xfd] };
    read_every_way(&[magic, input.rest()].concat(), 4096, LIMIT_COMPRESSED);
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
                    assert!(frame.wire_bytes as usize >= frame.bytes.len());
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
fn read_every_way(bytes: &[u8], piece: usize, limit: usize) {
    let name = Path::new("input");
    let stream = || {
        let pieces = Pieces { bytes: Cursor::new(bytes.to_vec()), piece_bytes: piece.max(1) };
        from_reader(name, Box::new(pieces))
    };
    match (from_bytes(name, bytes.to_vec()), stream()) {
        (Ok(mut whole), Ok(mut pieces)) => {
            let expected = content(&mut *whole, limit);
            assert_eq!(expected, content(&mut *pieces, limit));
            let pair = [from_bytes(name, bytes.to_vec()), stream()].map(|source| source.expect("it opened before"));
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
