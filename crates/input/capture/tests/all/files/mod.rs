//! The reader with capture files that the tests build byte by byte.

mod content;
mod make;
mod mapped;
mod merging;
mod names;
mod pcap;
mod pcapng;
mod streams;
mod threads;
mod truncation;

use make::{Kept, Ng, Pcap, gzip, read, read_stream, same_either_way};
use std::path::Path;
use weir_capture::{Error, ReadingThreads, from_bytes, merge, open, read_on_threads};

/// Why this is no capture; the same from memory and from streams.
fn refusal(bytes: Vec<u8>) -> String {
    same_either_way(&bytes);
    match from_bytes(Path::new("input"), bytes) {
        Ok(_) => panic!("this is no capture"),
        Err(error @ Error::NotACapture { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
    }
}

/// Frames, and the offsets and words of damage.
fn damage(bytes: &[u8]) -> (Vec<Kept>, Vec<(u64, String)>) {
    let (frames, errors) = same_either_way(bytes);
    let places = errors.into_iter().map(|error| match error {
        Error::Damaged { offset, cause, .. } => (offset, cause.to_string()),
        other => panic!("{other}"),
    });
    (frames, places.collect())
}

/// Asserts that a part of a file, which was cut, delivers this number of whole frames; then, unless
/// it ends there, the damage in the record or block that starts at this offset.
fn delivers_until_the_cut(part: &[u8], whole: usize, start: usize) {
    let (frames, errors) = damage(part);
    assert_eq!(frames.len(), whole, "cut at {}", part.len());
    match errors.as_slice() {
        [] => assert_eq!(start, part.len()),
        [(offset, what)] => {
            assert!(start < part.len() && what.contains("is cut"), "{what}");
            assert_eq!(*offset, start as u64, "cut at {}", part.len());
        }
        more => panic!("{more:?}"),
    }
}

fn intact(bytes: &[u8]) -> Vec<Kept> {
    let (frames, errors) = damage(bytes);
    assert_eq!(errors, []);
    frames
}
