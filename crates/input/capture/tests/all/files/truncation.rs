//! A mapped file that is truncated, extended or replaced while it is read.

use super::mapped::{Numbers, large};
use super::*;
use std::fs::{self, File};

/// Reads the first bursts, lets something happen to the file, and reads the rest.
fn read_with(path: &Path, threads: usize, bursts: usize, event: impl FnOnce()) -> (usize, Vec<Kept>, Vec<Error>) {
    let mut source = read_on_threads(vec![open(path).unwrap()], ReadingThreads::UpTo(threads));
    let (mut frames, mut errors) = (Vec::new(), Vec::new());
    for _ in 0..bursts {
        match source.burst() {
            Ok(burst) => frames.extend(burst.iter().flatten().map(Kept::from)),
            Err(error) => errors.push(error),
        }
    }
    event();
    let count = frames.len();
    let (more_frames, more_errors) = read(&mut *source);
    frames.extend(more_frames);
    errors.extend(more_errors);
    (count, frames, errors)
}

#[test]
fn truncation_is_damage_where_the_file_ends_now() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    let mut numbers = Numbers(3);
    for round in 0..40 {
        let bytes = large(&mut numbers, round % 2 == 0, false);
        let (expected, _) = read(&mut *from_bytes(&path, bytes.clone()).unwrap());
        fs::write(&path, &bytes).unwrap();
        let left = match round % 5 {
            0 => 0,
            1 => numbers.below(bytes.len() as u64 / 4096) * 4096,
            _ => numbers.below(bytes.len() as u64),
        };
        let truncate = || File::options().write(true).open(&path).unwrap().set_len(left).unwrap();
        let (at_least, frames, errors) = read_with(&path, round % 3, numbers.below(8) as usize, truncate);
        let Some(Error::Damaged { packets, cause, .. }) = errors.last() else { panic!("{errors:?}") };
        let expected_cause = format!("the file was truncated while it was read, from {} to {left} bytes", bytes.len());
        assert_eq!((*packets, cause.to_string()), (frames.len() as u64, expected_cause), "round {round}: {errors:?}");
        let reports = errors.iter().filter(|error| error.to_string().contains("truncated while")).count();
        assert_eq!(reports, 1, "round {round}: {errors:?}");
        // All whole packets of the rest and no others.
        let whole = |bytes: &[u8]| {
            let rest = from_bytes(&path, bytes.to_vec());
            rest.map_or_else(|_| Vec::new(), |mut rest| read(&mut *rest).0).len().max(at_least)
        };
        let intact = whole(&bytes[..left as usize]);
        // With reading threads, also packets of the page in which the file ends now.
        let page_end = if round % 3 == 0 { left as usize } else { (left as usize).next_multiple_of(4096) };
        let most = whole(&bytes[..page_end.min(bytes.len())]);
        assert!((intact..=most).contains(&frames.len()), "round {round}, {left} bytes: {} frames", frames.len());
        assert!(frames[..intact] == expected[..intact], "round {round}, {left} bytes");
    }
}

#[test]
fn what_is_appended_and_what_replaces_the_file_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let [path, other] = ["input", "other"].map(|name| folder.path().join(name));
    let mut numbers = Numbers(5);
    let bytes = large(&mut numbers, false, false);
    let (expected, damage) = read(&mut *from_bytes(&path, bytes.clone()).unwrap());
    let damaged = damage.len();
    for threads in 0..3 {
        fs::write(&path, &bytes).unwrap();
        let append = || {
            let mut file = File::options().append(true).open(&path).unwrap();
            std::io::Write::write_all(&mut file, &bytes[24..]).unwrap();
        };
        let (_, frames, errors) = read_with(&path, threads, 3, append);
        assert!(frames == expected && errors.len() == damaged, "{threads}: {} frames, {errors:?}", frames.len());
        fs::write(&path, &bytes).unwrap();
        fs::write(&other, b"another file").unwrap();
        let (_, frames, errors) = read_with(&path, threads, 3, || fs::rename(&other, &path).unwrap());
        assert!(frames == expected && errors.len() == damaged, "{threads}: {} frames, {errors:?}", frames.len());
    }
}

#[test]
fn a_compressed_file_that_is_truncated_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    let bytes = large(&mut Numbers(9), false, false);
    let stream: Vec<u8> = bytes.chunks(1000).flat_map(|part| gzip(part, flate2::Compression::none())).collect();
    for threads in 0..3 {
        fs::write(&path, &stream).unwrap();
        let truncate = || File::options().write(true).open(&path).unwrap().set_len(stream.len() as u64 / 2).unwrap();
        let (_, _, errors) = read_with(&path, threads, 1, truncate);
        // The reading thread may be faster.
        assert!(threads > 0 || errors.iter().any(|error| error.to_string().contains("cut")), "{errors:?}");
    }
}
