//! Two files are damaged at once, in every combination: what is missing is counted, or the spool says that it cannot know.

use super::damage::copy;
use super::{append, assert_balance, batch_of, drain, folder, settings};
use crate::{Spool, Status};
use std::fs;
use std::path::{Path, PathBuf};

const BATCHES: u64 = 14;

type Files = Vec<(PathBuf, Vec<u8>)>;

/// Damage to a file, by its place among the files of the spool.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Cut(usize),
    Flip(usize),
    /// A part of it, or all.
    Zero(usize, bool),
    /// Its octets stand twice in it.
    Repeat(usize),
    /// It stands in place of another file, which is gone.
    Over(usize, usize),
    /// A new segment has its octets.
    Duplicate(usize),
    Remove(usize),
    Swap(usize, usize),
}

impl Damage {
    fn of_file(at: usize, all: usize) -> Vec<Self> {
        let mut damages = vec![Self::Cut(at), Self::Flip(at), Self::Zero(at, false), Self::Zero(at, true)];
        damages.extend([Self::Repeat(at), Self::Duplicate(at), Self::Remove(at)]);
        damages.extend((0..all).filter(|&other| other != at).map(|other| Self::Over(at, other)));
        damages.extend((at + 1..all).map(|other| Self::Swap(at, other)));
        damages
    }

    /// Damages files on the disk, `part` thousandths behind their begin.
    fn apply(self, files: &Files, part: usize) {
        let read = |at: usize| fs::read(&files[at].0).unwrap_or_default();
        let write = |at: usize, octets: &[u8]| fs::write(&files[at].0, octets).unwrap();
        let place = |octets: &[u8]| (octets.len() * part / 1000).min(octets.len().saturating_sub(1));
        match self {
            Self::Cut(at) => {
                let octets = read(at);
                write(at, &octets[..place(&octets)]);
            }
            Self::Flip(at) => {
                let mut octets = read(at);
                let place = place(&octets);
                octets.get_mut(place).into_iter().for_each(|octet| *octet ^= 1 << (part % 8));
                write(at, &octets);
            }
            Self::Zero(at, is_all) => {
                let mut octets = read(at);
                let from = if is_all { 0 } else { place(&octets) };
                let to = if is_all { octets.len() } else { octets.len().min(from + 100) };
                octets[from..to].fill(0);
                write(at, &octets);
            }
            Self::Repeat(at) => write(at, &read(at).repeat(2)),
            Self::Over(at, other) => write(other, &read(at)),
            Self::Duplicate(at) => fs::write(files[at].0.with_file_name("00000099.seg"), read(at)).unwrap(),
            Self::Remove(at) => drop(fs::remove_file(&files[at].0)),
            Self::Swap(at, other) => {
                let (one, two) = (read(at), read(other));
                write(at, &two);
                write(other, &one);
            }
        }
    }
}

/// A spool of two runs in which `released` batches and one more are released; its files but the identity and the lock.
fn make(parent: &Path, released: u64) -> Files {
    let (mut spool, _) = Spool::open(settings(parent)).unwrap();
    spool.set_context(b"templates");
    (0..8).for_each(|n| append(&mut spool, n));
    for _ in 0..released {
        let batch = spool.next().unwrap().unwrap();
        spool.release(batch.id).unwrap();
    }
    spool.sync().unwrap();
    drop(spool);
    let (mut spool, _) = Spool::open(settings(parent)).unwrap();
    spool.set_context(b"others");
    (8..BATCHES).for_each(|n| append(&mut spool, n));
    let batch = spool.next().unwrap().unwrap();
    spool.release(batch.id).unwrap();
    spool.sync().unwrap();
    drop(spool);
    let names = fs::read_dir(parent.join("spool")).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<PathBuf> = names.filter(|path| !path.ends_with("lock")).collect();
    names.sort();
    assert_eq!(names.pop(), Some(parent.join("spool/spool")));
    assert!(names.len() >= 6);
    names.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

/// Opens, reads all: what was delivered, the outcomes, whether the spool says that it cannot know.
fn outcome(parent: &Path) -> (Vec<u16>, Status, bool) {
    let (mut spool, recovered) = Spool::open(settings(parent)).unwrap();
    assert_balance(&spool);
    append(&mut spool, 99);
    let mut read = drain(&mut spool);
    assert_eq!(read.pop(), Some(99));
    (read, spool.status(), recovered.positions_lost)
}

/// Flows of batches.
fn flows(batches: impl Iterator<Item = u64>) -> u64 {
    batches.map(|n| batch_of(n).1.flows).sum()
}

/// Every batch is delivered or counted. `gone`: batches that are delivered before. `is_known`: one of the files with
/// positions is whole.
fn check(parent: &Path, gone: u64, is_known: bool, damages: (Damage, Damage, usize)) {
    let (read, status, is_lost) = outcome(parent);
    let say = || format!("{damages:?}: {read:?} {status:?} {is_lost}");
    assert!(read.windows(2).all(|pair| pair[0] < pair[1]), "delivered twice or in another order: {}", say());
    let is_read = |n: &u64| read.contains(&(*n as u16));
    let missing: Vec<u64> = (gone..BATCHES).filter(|n| !is_read(n)).collect();
    let [damaged, unknown] = [status.damaged, status.unknown].map(|split| split.total());
    if is_known {
        assert!(!is_lost && unknown == Default::default(), "{}", say());
        assert!((0..gone).all(|n| !is_read(&n)), "delivered again: {}", say());
        assert_eq!(
            (damaged.batches, damaged.records.flows),
            (missing.len() as u64, flows(missing.into_iter())),
            "{}",
            say()
        );
        return;
    }
    let repeated = (0..gone).any(|n| is_read(&n));
    // What the end of the last segment has lost cannot be counted if nothing else knows of it.
    let last = read.last().map_or(gone, |&last| u64::from(last) + 1);
    let before = missing.iter().copied().filter(|&n| n < last);
    let counted = damaged.records.flows + unknown.records.flows;
    assert!(counted >= flows(before), "{}", say());
    assert!(is_lost || (!repeated && counted >= flows(missing.iter().copied())), "{}", say());
}

#[test]
fn two_damages_at_once_lose_nothing_in_silence() {
    let mut part = 0;
    for released in [1, 6] {
        let parent = folder();
        let files = make(parent.path(), released);
        let identity = (parent.path().join("spool/spool"), fs::read(parent.path().join("spool/spool")).unwrap());
        let all: Files = files.iter().cloned().chain([identity]).collect();
        let of = |name: &str| files.iter().position(|(path, _)| path.ends_with(name)).unwrap();
        let (acks, copied) = (of("acks"), of("acks.copy"));
        let damages: Vec<_> = (0..files.len()).flat_map(|at| Damage::of_file(at, files.len())).collect();
        for (at, &first) in damages.iter().enumerate() {
            for &second in &damages[at..] {
                copy(&all);
                // Another place in each case, also the last octet.
                part = (part + 37) % 1001;
                first.apply(&files, part);
                second.apply(&files, part * 7 % 1001);
                let is_whole = |place: usize| fs::read(&files[place].0).is_ok_and(|octets| octets == files[acks].1);
                check(parent.path(), released + 1, is_whole(acks) || is_whole(copied), (first, second, part));
            }
        }
    }
}

/// The lowest bit of a checksum of a position does not change its meaning.
#[test]
fn no_flipped_bit_of_a_checksum_makes_waiting_batches_gone() {
    let parent = folder();
    let files = make(parent.path(), 1);
    let acks: Vec<_> = files.iter().filter(|(path, _)| !path.to_string_lossy().ends_with(".seg")).collect();
    for bit in 0..acks[0].1.len() * 8 {
        for (path, octets) in &acks {
            let mut octets = octets.clone();
            octets[bit / 8] ^= 1 << (bit % 8);
            fs::write(path, octets).unwrap();
        }
        let (spool, recovered) = Spool::open(settings(parent.path())).unwrap();
        let status = spool.status();
        assert!(recovered.positions_lost && status.waiting.total().batches >= BATCHES - 2, "{bit} {status:?}");
        drop(spool);
        fs::write(parent.path().join("spool/acks"), &acks[0].1).unwrap();
    }
}
