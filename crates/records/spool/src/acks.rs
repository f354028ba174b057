//! The files `acks` and `acks.copy`: up to where batches are gone, and up to where they are on the disk. Both have the
//! same entries, append only; the furthest valid entry of each kind counts. So it is known how much the last segment has
//! lost, which no later entry tells, also if one of the two files is damaged.

use crate::count::Count;
use crate::error::Error;
use crate::folder::{ACKS, ACKS_COPY, Content, Folder};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Identifier, position, CRC.
const ENTRY_OCTETS: usize = 8 + 32 + 4;
/// The file is renewed when it is larger.
const MOST_OCTETS: u64 = 1 << 20;

/// A position: all batches up to here are released or dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// The last of these batches.
    pub id: u64,
    pub position: Count,
}

/// What a position in the file means. The checksum of an entry includes it, in all its bits: a flipped bit makes no entry
/// of the other meaning.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Meaning {
    Gone = 0,
    OnDisk = 0xffff_ffff,
}

impl Ack {
    fn encode(self, meaning: Meaning) -> [u8; ENTRY_OCTETS] {
        let mut octets = [0; ENTRY_OCTETS];
        octets[..8].copy_from_slice(&self.id.to_be_bytes());
        octets[8..40].copy_from_slice(&self.position.encode());
        let crc = crc32fast::hash(&octets[..40]) ^ meaning as u32;
        octets[40..].copy_from_slice(&crc.to_be_bytes());
        octets
    }

    fn decode(octets: &[u8], meaning: Meaning) -> Option<Self> {
        let id = u64::from_be_bytes(octets[..8].try_into().ok()?);
        let position = Count::decode(&octets[8..40])?;
        let ack = Self { id, position };
        (ack.encode(meaning) == octets).then_some(ack)
    }
}

#[derive(Debug)]
pub struct Acks {
    files: [File; 2],
    /// Of each file.
    octets: u64,
    /// All batches up to here are gone.
    pub last: Ack,
    /// All batches up to here are on the disk, or gone.
    pub on_disk: Option<Ack>,
    /// Neither file was whole: positions may be older than the truth.
    pub is_damaged: bool,
    is_synced: bool,
}

impl Acks {
    /// Reads the files that there are, and writes them anew. `known`: batches up to here are gone at least.
    pub fn open(folder: &Folder, content: &Content, known: Ack) -> Result<Self, Error> {
        let (mut last, mut on_disk, mut whole, mut is_damaged) = (None, None, 0, true);
        for (name, exists) in [(ACKS, content.has_acks), (ACKS_COPY, content.has_acks_copy)] {
            if exists {
                let failed = |error| folder.error(name, error);
                let mut octets = Vec::new();
                let file = folder.read(name).map_err(failed)?;
                file.take(4 * MOST_OCTETS).read_to_end(&mut octets).map_err(failed)?;
                let [gone, written] = [Meaning::Gone, Meaning::OnDisk].map(|meaning| furthest(&octets, meaning));
                is_damaged &= gone.is_none() || !octets.chunks(ENTRY_OCTETS).all(is_entry);
                (last, on_disk) = (further(last, gone), further(on_disk, written));
                whole = whole.max(octets.len() / ENTRY_OCTETS * ENTRY_OCTETS);
            }
        }
        let last = last.unwrap_or(known);
        let position = if last.position.batches < known.position.batches { known.position } else { last.position };
        let last = Ack { position, ..last };
        let octets = both(last, on_disk);
        let failed = |error| folder.error(ACKS, error);
        let (files, octets) = match replace(folder, &octets) {
            Ok(files) => (files, octets.len()),
            // What is on a full disk is delivered all the same: that makes space.
            Err(error) if content.has_acks && error.kind() == io::ErrorKind::StorageFull => {
                let file = folder.read_write(ACKS).map_err(failed)?;
                let copy = if content.has_acks_copy { folder.read_write(ACKS_COPY) } else { file.try_clone() };
                ([file, copy.map_err(failed)?], whole)
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(Self { files, octets: octets as u64, last, on_disk, is_damaged, is_synced: true })
    }

    /// Writes that all batches up to here are on the disk. Without space, what the last segment loses is not counted.
    pub fn note_on_disk(&mut self, folder: &Folder, ack: Ack) {
        let known = self.on_disk.map_or(0, |on_disk| on_disk.position.batches).max(self.last.position.batches);
        if known >= ack.position.batches {
            return;
        }
        if self.octets >= MOST_OCTETS {
            let octets = both(self.last, Some(ack));
            if let Ok(files) = replace(folder, &octets) {
                (self.files, self.octets) = (files, octets.len() as u64);
                (self.on_disk, self.is_synced) = (Some(ack), true);
            }
        } else if self.write(folder, &ack.encode(Meaning::OnDisk)).is_ok() {
            (self.on_disk, self.is_synced) = (Some(ack), false);
        }
    }

    /// Writes that all batches up to here are gone. It lasts after [`Acks::sync`].
    pub fn append(&mut self, folder: &Folder, ack: Ack) -> io::Result<()> {
        if self.last.position.batches >= ack.position.batches {
            return Ok(());
        }
        let entry = ack.encode(Meaning::Gone);
        if self.octets >= MOST_OCTETS {
            let octets = both(ack, self.on_disk);
            self.files = replace(folder, &octets)?;
            (self.octets, self.last, self.is_synced) = (octets.len() as u64, ack, true);
            return Ok(());
        }
        if let Err(error) = self.write(folder, &entry) {
            for file in &self.files {
                let _ = file.set_len(self.octets);
            }
            // On a full disk, in place of an older one: segments are deleted, and there is space again.
            if error.kind() != io::ErrorKind::StorageFull || self.octets < 2 * ENTRY_OCTETS as u64 {
                return Err(error);
            }
            for file in &self.files {
                file.write_all_at(&entry, 0)?;
            }
        }
        (self.last, self.is_synced) = (ack, false);
        Ok(())
    }

    /// Writes an entry behind all others.
    fn write(&mut self, folder: &Folder, entry: &[u8]) -> io::Result<()> {
        for file in &self.files {
            folder.write_at(file, entry, self.octets)?;
        }
        self.octets += ENTRY_OCTETS as u64;
        Ok(())
    }

    pub fn sync(&mut self) -> io::Result<()> {
        if !self.is_synced {
            for file in &self.files {
                file.sync_data()?;
            }
            self.is_synced = true;
        }
        Ok(())
    }
}

/// Replaces both files, one after the other: one of them is whole at any time.
fn replace(folder: &Folder, octets: &[u8]) -> io::Result<[File; 2]> {
    let copy = folder.replace(ACKS_COPY, octets)?;
    Ok([folder.replace(ACKS, octets)?, copy])
}

fn further(a: Option<Ack>, b: Option<Ack>) -> Option<Ack> {
    [a, b].into_iter().flatten().max_by_key(|ack| ack.position.batches)
}

fn is_entry(octets: &[u8]) -> bool {
    octets.len() == ENTRY_OCTETS
        && [Meaning::Gone, Meaning::OnDisk].into_iter().any(|meaning| Ack::decode(octets, meaning).is_some())
}

fn furthest(octets: &[u8], meaning: Meaning) -> Option<Ack> {
    let entries = octets.chunks_exact(ENTRY_OCTETS).filter_map(|entry| Ack::decode(entry, meaning));
    entries.max_by_key(|ack| ack.position.batches)
}

/// The entries of a new file.
fn both(gone: Ack, on_disk: Option<Ack>) -> Vec<u8> {
    let on_disk = on_disk.filter(|on_disk| gone.position.batches < on_disk.position.batches);
    let mut octets = gone.encode(Meaning::Gone).to_vec();
    octets.extend(on_disk.into_iter().flat_map(|ack| ack.encode(Meaning::OnDisk)));
    octets
}
