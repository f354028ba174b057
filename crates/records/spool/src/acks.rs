//! The file `acks`: up to where batches are gone, and up to where they are on the disk. Append only; the furthest valid
//! entry of each kind counts. So it is known how much the last segment has lost, which no later entry tells.

use crate::count::Count;
use crate::error::Error;
use crate::folder::{ACKS, Folder};
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

/// What a position in the file means. The checksum of an entry includes it.
#[derive(Clone, Copy)]
enum Meaning {
    Gone = 0,
    OnDisk = 1,
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
    file: File,
    octets: u64,
    /// All batches up to here are gone.
    pub last: Option<Ack>,
    /// All batches up to here are on the disk, or gone.
    pub on_disk: Option<Ack>,
    is_synced: bool,
}

impl Acks {
    /// Reads the file if there is one, and writes it anew.
    pub fn open(folder: &Folder, exists: bool) -> Result<Self, Error> {
        let failed = |error| folder.error(ACKS, error);
        let mut octets = Vec::new();
        if exists {
            let file = folder.read(ACKS).map_err(failed)?;
            file.take(4 * MOST_OCTETS).read_to_end(&mut octets).map_err(failed)?;
        }
        let [last, on_disk] = [Meaning::Gone, Meaning::OnDisk].map(|meaning| furthest(&octets, meaning));
        let whole = octets.len() / ENTRY_OCTETS * ENTRY_OCTETS;
        let octets = both(last, on_disk);
        let (file, octets) = match folder.replace(ACKS, &octets) {
            Ok(file) => (file, octets.len()),
            // What is on a full disk is delivered all the same: that makes space.
            Err(error) if exists && error.kind() == io::ErrorKind::StorageFull => {
                (folder.read_write(ACKS).map_err(failed)?, whole)
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(Self { file, octets: octets as u64, last, on_disk, is_synced: true })
    }

    /// Writes that all batches up to here are on the disk. Without space, what the last segment loses is not counted.
    pub fn note_on_disk(&mut self, folder: &Folder, ack: Ack) {
        let known = [self.on_disk, self.last].into_iter().flatten().map(|known| known.position.batches).max();
        if known.is_some_and(|known| known >= ack.position.batches) {
            return;
        }
        if self.octets >= MOST_OCTETS {
            let octets = both(self.last, Some(ack));
            if let Ok(file) = folder.replace(ACKS, &octets) {
                (self.file, self.octets) = (file, octets.len() as u64);
                (self.on_disk, self.is_synced) = (Some(ack), true);
            }
        } else if folder.write_at(&self.file, &ack.encode(Meaning::OnDisk), self.octets).is_ok() {
            self.octets += ENTRY_OCTETS as u64;
            (self.on_disk, self.is_synced) = (Some(ack), false);
        }
    }

    /// Writes that all batches up to here are gone. It lasts after [`Acks::sync`].
    pub fn append(&mut self, folder: &Folder, ack: Ack) -> io::Result<()> {
        if self.last.is_some_and(|last| last.position.batches >= ack.position.batches) {
            return Ok(());
        }
        let entry = ack.encode(Meaning::Gone);
        if self.octets >= MOST_OCTETS {
            let octets = both(Some(ack), self.on_disk);
            self.file = folder.replace(ACKS, &octets)?;
            (self.octets, self.last, self.is_synced) = (octets.len() as u64, Some(ack), true);
            return Ok(());
        }
        if let Err(error) = folder.write_at(&self.file, &entry, self.octets) {
            let _ = self.file.set_len(self.octets);
            // On a full disk, in place of an older one: segments are deleted, and there is space again.
            if error.kind() != io::ErrorKind::StorageFull || self.octets < 2 * ENTRY_OCTETS as u64 {
                return Err(error);
            }
            self.file.write_all_at(&entry, 0)?;
        } else {
            self.octets += ENTRY_OCTETS as u64;
        }
        (self.last, self.is_synced) = (Some(ack), false);
        Ok(())
    }

    pub fn sync(&mut self) -> io::Result<()> {
        if !self.is_synced {
            self.file.sync_data()?;
            self.is_synced = true;
        }
        Ok(())
    }
}

fn furthest(octets: &[u8], meaning: Meaning) -> Option<Ack> {
    let entries = octets.chunks_exact(ENTRY_OCTETS).filter_map(|entry| Ack::decode(entry, meaning));
    entries.max_by_key(|ack| ack.position.batches)
}

/// The entries of a new file.
fn both(gone: Option<Ack>, on_disk: Option<Ack>) -> Vec<u8> {
    let on_disk = on_disk.filter(|on_disk| gone.is_none_or(|gone| gone.position.batches < on_disk.position.batches));
    let entries = [(gone, Meaning::Gone), (on_disk, Meaning::OnDisk)];
    entries.into_iter().filter_map(|(ack, meaning)| Some(ack?.encode(meaning))).flatten().collect()
}
