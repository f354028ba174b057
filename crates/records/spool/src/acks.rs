//! The file `acks`: up to where batches are gone. Append only; the furthest valid entry counts.

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

impl Ack {
    fn encode(self) -> [u8; ENTRY_OCTETS] {
        let mut octets = [0; ENTRY_OCTETS];
        octets[..8].copy_from_slice(&self.id.to_be_bytes());
        octets[8..40].copy_from_slice(&self.position.encode());
        let crc = crc32fast::hash(&octets[..40]);
        octets[40..].copy_from_slice(&crc.to_be_bytes());
        octets
    }

    fn decode(octets: &[u8]) -> Option<Self> {
        let id = u64::from_be_bytes(octets[..8].try_into().ok()?);
        let position = Count::decode(&octets[8..40])?;
        let ack = Self { id, position };
        (ack.encode() == octets).then_some(ack)
    }
}

#[derive(Debug)]
pub struct Acks {
    file: File,
    octets: u64,
    pub last: Option<Ack>,
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
        let last = furthest(&octets);
        let octets = last.map_or(Vec::new(), |ack| ack.encode().to_vec());
        let file = folder.replace(ACKS, &octets).map_err(failed)?;
        Ok(Self { file, octets: octets.len() as u64, last, is_synced: true })
    }

    /// Writes a position. It lasts after [`Acks::sync`].
    pub fn append(&mut self, folder: &Folder, ack: Ack) -> io::Result<()> {
        if self.last.is_some_and(|last| last.position.batches >= ack.position.batches) {
            return Ok(());
        }
        if self.octets >= MOST_OCTETS {
            self.file = folder.replace(ACKS, &ack.encode())?;
            (self.octets, self.last, self.is_synced) = (ENTRY_OCTETS as u64, Some(ack), true);
            return Ok(());
        }
        if let Err(error) = folder.write_at(&self.file, &ack.encode(), self.octets) {
            let _ = self.file.set_len(self.octets);
            // On a full disk, in place of an older one: segments are deleted, and there is space again.
            if error.kind() != io::ErrorKind::StorageFull || self.octets < 2 * ENTRY_OCTETS as u64 {
                return Err(error);
            }
            self.file.write_all_at(&ack.encode(), 0)?;
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

fn furthest(octets: &[u8]) -> Option<Ack> {
    octets.chunks_exact(ENTRY_OCTETS).filter_map(Ack::decode).max_by_key(|ack| ack.position.batches)
}
