//! Cuts, flipped bits and missing files: what is whole is read, what is not is counted.

use super::{append, assert_balance, drain, folder, settings};
use crate::{Count, Spool};
use std::fs;
use std::path::{Path, PathBuf};

const BATCHES: u64 = 12;

/// A spool in which some batches are released; its files.
fn damaged_spool(parent: &Path) -> Vec<PathBuf> {
    let (mut spool, _) = Spool::open(settings(parent)).unwrap();
    spool.set_context(b"templates");
    (0..BATCHES).for_each(|n| append(&mut spool, n));
    for _ in 0..2 {
        let batch = spool.next().unwrap().unwrap();
        spool.release(batch.id).unwrap();
    }
    spool.sync().unwrap();
    let names = fs::read_dir(parent.join("spool")).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<PathBuf> = names.filter(|path| !path.ends_with("lock")).collect();
    names.sort();
    names
}

/// Opens, appends one batch and reads all.
fn read_all(parent: &Path) -> (Vec<u16>, Count, u64) {
    let (mut spool, recovered) = Spool::open(settings(parent)).unwrap();
    assert_balance(&spool);
    spool.set_context(b"others");
    append(&mut spool, 99);
    let read = drain(&mut spool);
    assert!(read.is_sorted() && read.last() == Some(&99), "{read:?}");
    assert_eq!(recovered.waiting, spool.status().appended.earlier);
    (read, spool.status().damaged.total(), recovered.octets_cut)
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "seg")
}

/// Writes files in place of all that there are.
pub fn copy(files: &[(PathBuf, Vec<u8>)]) {
    fs::read_dir(files[0].0.parent().unwrap())
        .unwrap()
        .for_each(|entry| fs::remove_file(entry.unwrap().path()).unwrap());
    files.iter().for_each(|(path, octets)| fs::write(path, octets).unwrap());
}

#[test]
fn each_cut_and_each_missing_file_loses_only_what_is_gone() {
    let parent = folder();
    let names = damaged_spool(parent.path());
    let files: Vec<_> = names.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    let last = files.iter().rposition(|(path, _)| is_segment(path)).unwrap();
    for (at, (path, octets)) in files.iter().enumerate().filter(|(_, (path, _))| is_segment(path)) {
        for length in (0..octets.len()).map(Some).chain([None]) {
            copy(&files);
            match length {
                Some(length) => fs::write(path, &octets[..length]).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            let (read, damaged, cut) = read_all(parent.path());
            let known = read.len() as u64 - 1 + damaged.batches;
            assert_eq!(known, BATCHES - 2, "{read:?} {damaged:?}");
            if at == last {
                assert!(cut <= octets.len() as u64);
            } else {
                assert!(cut == 0 || length.is_some_and(|length| length < 100));
            }
        }
    }
}

#[test]
fn each_flipped_bit_loses_one_batch_at_most() {
    let parent = folder();
    let names = damaged_spool(parent.path());
    let files: Vec<_> = names.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    for (path, octets) in &files {
        for bit in 0..octets.len() * 8 {
            // Each octet with one of its bits, in turn.
            if bit % 8 != bit / 8 % 8 {
                continue;
            }
            copy(&files);
            let mut octets = octets.clone();
            octets[bit / 8] ^= 1 << (bit % 8);
            fs::write(path, octets).unwrap();
            if path.ends_with("spool") {
                assert!(Spool::open(settings(parent.path())).is_err());
                continue;
            }
            let (read, damaged, _) = read_all(parent.path());
            let earlier = read.len() as u64 - 1;
            if path.ends_with("acks") || path.ends_with("acks.copy") {
                assert_eq!((earlier, damaged.batches), (BATCHES - 2, 0), "{read:?}");
                continue;
            }
            // A context that is damaged loses the batches of its segment.
            assert!((BATCHES - 6..=BATCHES - 2).contains(&earlier), "{path:?} {bit} {read:?}");
            assert_eq!(earlier + damaged.batches, BATCHES - 2, "{path:?} {bit} {read:?} {damaged:?}");
        }
    }
}

/// The last segments, or all of them: no later entry tells what is missing.
#[test]
fn missing_last_segments_are_counted() {
    let parent = folder();
    let names = damaged_spool(parent.path());
    let files: Vec<_> = names.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    let segments: Vec<_> = files.iter().filter(|(path, _)| is_segment(path)).collect();
    for kept in 0..segments.len() {
        copy(&files);
        segments[kept..].iter().for_each(|(path, _)| fs::remove_file(path).unwrap());
        let (read, damaged, _) = read_all(parent.path());
        assert_eq!(read.len() as u64 - 1 + damaged.batches, BATCHES - 2, "{kept}");
        assert!(damaged.batches > 0 && damaged.records.flows > 0);
        // What is counted is not counted again.
        assert_eq!(read_all(parent.path()).1, Count::default());
    }
}

#[test]
fn a_segment_that_vanishes_while_it_is_read_is_counted() {
    let parent = folder();
    damaged_spool(parent.path());
    let (mut spool, _) = Spool::open(settings(parent.path())).unwrap();
    let first = spool.next().unwrap().unwrap();
    let names: Vec<_> = spool.segments.iter().map(|segment| crate::folder::segment_name(segment.number)).collect();
    assert!(names.len() > 2);
    names[1..].iter().for_each(|name| fs::remove_file(parent.path().join("spool").join(name)).unwrap());
    spool.release(first.id).unwrap();
    let read = drain(&mut spool).len() as u64;
    assert_eq!(spool.status().damaged.earlier.batches + read + 1, BATCHES - 2);
    spool.sync().unwrap();
    append(&mut spool, 5);
    assert_eq!(drain(&mut spool), [5]);
}
