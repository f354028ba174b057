//! Shared by the fuzz targets: reads a capture to its end from memory, from a stream and merged.
//!
//! Invariants, for any input: memory and stream give the same frames and the same errors in the
//! same order, the input limits the number of both, and nothing panics.
#![forbid(unsafe_code)]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Cursor, Read};
use std::path::Path;
use weir_capture::{Error, Source, from_bytes, from_reader, merge};

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
                    let fields = (frame.time_ns, frame.wire_bytes, frame.link_type, frame.time_assumed, frame.interface);
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
pub fn read_every_way(bytes: &[u8], piece: usize, limit: usize) {
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
