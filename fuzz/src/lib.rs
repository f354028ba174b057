//! What the fuzz targets have in common: reading a capture to its end, in every way there is.
//!
//! Always true: whatever the octets are, memory and stream give the same frames and the same errors in the same
//! order, the number of both is bounded by the input, and nothing panics.
#![forbid(unsafe_code)]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Cursor, Read};
use std::path::Path;
use weir_capture::{Error, Source, from_bytes, from_reader, merge};

/// What a source said: frames as a digest of all there is to them, errors in words with their place among the frames.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    frames: usize,
    digest: u64,
    errors: Vec<(usize, String)>,
}

/// Hands over at most so many octets at a time.
struct Pieces {
    bytes: Cursor<Vec<u8>>,
    octets: usize,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let most = into.len().min(self.octets);
        self.bytes.read(&mut into[..most])
    }
}

/// Everything that a source says, at most `limit` frames and errors.
fn tell(source: &mut dyn Source, limit: usize) -> Told {
    let mut told = Told::default();
    let mut hasher = DefaultHasher::new();
    loop {
        match source.burst() {
            Ok(None) => break,
            Ok(Some(burst)) => {
                assert!(!burst.is_empty());
                for frame in &burst {
                    assert!(frame.wire_bytes as usize >= frame.bytes.len());
                    let facts = (frame.time_ns, frame.wire_bytes, frame.link_type, frame.time_clamped, frame.interface);
                    (frame.bytes, facts).hash(&mut hasher);
                }
                told.frames += burst.len();
            }
            Err(error) => told.errors.push((told.frames, error.to_string())),
        }
        assert!(told.frames + told.errors.len() <= limit, "more is told than the input can hold");
    }
    assert!(source.burst().is_ok_and(|burst| burst.is_none()), "the end stays the end");
    told.digest = hasher.finish();
    told
}

/// Reads a capture as a whole and in pieces, and compares.
pub fn read_every_way(bytes: &[u8], piece: usize, limit: usize) {
    let name = Path::new("input");
    let stream = || {
        let pieces = Pieces { bytes: Cursor::new(bytes.to_vec()), octets: piece.max(1) };
        from_reader(name, Box::new(pieces))
    };
    match (from_bytes(name, bytes.to_vec()), stream()) {
        (Ok(mut whole), Ok(mut pieces)) => {
            let told = tell(&mut *whole, limit);
            assert_eq!(told, tell(&mut *pieces, limit));
            let pair = [from_bytes(name, bytes.to_vec()), stream()].map(|source| source.expect("it opened before"));
            let merged = tell(&mut *merge(pair.into()), 2 * limit);
            assert_eq!(merged.frames, 2 * told.frames);
            assert_eq!(merged.errors.len(), 2 * told.errors.len());
        }
        (Err(whole), Err(pieces)) => {
            assert_eq!(whole.to_string(), pieces.to_string());
            assert!(matches!(whole, Error::NotACapture { .. }), "memory has no operating system to fail");
        }
        (whole, pieces) => panic!("a capture in one way alone: {:?} {:?}", whole.err(), pieces.err()),
    }
}
