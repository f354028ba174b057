//! Entries of segments: a header with a checksum of its own, and the payload.
//!
//! ```text
//! 0  magic and version   4     24  fingerprint of the context      8
//! 4  kind                1     32  batches, flows, packets and octets
//! 5  0                   1         of all batches before          32
//! 6  format              2     64  those of this batch            32
//! 8  octets of payload   4     96  CRC of what is before           4
//! 12 CRC of the payload  4    100  payload
//! 16 identifier          8
//! ```
//! The CRC is that of Ethernet and gzip (IEEE 802.3): `crc32fast`, which other parts of Weir need anyway, computes
//! it with the carry-less multiplication of the CPU. It finds every error of up to 32 bits in a row, as CRC-32C does.

use crate::count::Count;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub const HEADER_OCTETS: usize = 100;
const MAGIC: [u8; 4] = *b"WsE\x01";
/// Octets that are read at once to find the next entry after damage.
const WINDOW: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A batch.
    Batch,
    /// What the batches of the segment need, such as templates.
    Context,
}

#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub kind: Kind,
    pub format: u16,
    pub payload_octets: u32,
    pub payload_crc: u32,
    pub id: u64,
    pub context: u64,
    /// All batches before.
    pub before: Count,
    /// This batch.
    pub count: Count,
}

impl Header {
    /// The header and the payload.
    pub fn encode(&self, payload: &[u8]) -> Vec<u8> {
        let mut octets = Vec::with_capacity(HEADER_OCTETS + payload.len());
        octets.extend(MAGIC);
        octets.extend([u8::from(self.kind == Kind::Context), 0]);
        octets.extend(self.format.to_be_bytes());
        octets.extend(self.payload_octets.to_be_bytes());
        octets.extend(self.payload_crc.to_be_bytes());
        octets.extend(self.id.to_be_bytes());
        octets.extend(self.context.to_be_bytes());
        octets.extend(self.before.encode());
        octets.extend(self.count.encode());
        octets.extend(crc32fast::hash(&octets).to_be_bytes());
        octets.extend(payload);
        octets
    }

    fn decode(octets: &[u8]) -> Option<Self> {
        let octets = octets.get(..HEADER_OCTETS)?;
        let crc = u32::from_be_bytes(octets[96..].try_into().ok()?);
        if octets[..4] != MAGIC || crc32fast::hash(&octets[..96]) != crc {
            return None;
        }
        let kind = match octets[4] {
            0 => Kind::Batch,
            1 => Kind::Context,
            _ => return None,
        };
        Some(Self {
            kind,
            format: u16::from_be_bytes(octets[6..8].try_into().ok()?),
            payload_octets: u32::from_be_bytes(octets[8..12].try_into().ok()?),
            payload_crc: u32::from_be_bytes(octets[12..16].try_into().ok()?),
            id: u64::from_be_bytes(octets[16..24].try_into().ok()?),
            context: u64::from_be_bytes(octets[24..32].try_into().ok()?),
            before: Count::decode(&octets[32..64])?,
            count: Count::decode(&octets[64..96])?,
        })
    }

    pub fn octets(&self) -> u64 {
        HEADER_OCTETS as u64 + u64::from(self.payload_octets)
    }

    /// All batches up to this one.
    pub fn after(&self) -> Count {
        let mut count = self.before;
        count.merge(self.count);
        count
    }
}

/// Identifies a context among those of a spool.
pub fn fingerprint(context: &[u8]) -> u64 {
    (context.len() as u64) << 32 | u64::from(crc32fast::hash(context))
}

pub enum Found {
    /// A whole entry, and where it begins.
    Entry(u64, Header, Vec<u8>),
    /// The header of an entry whose payload is damaged or cut, and where it begins.
    Damaged(u64, Header),
    End,
}

/// The first entry whose header is whole, at `offset` or after it.
pub fn find(file: &File, mut offset: u64, end: u64) -> io::Result<Found> {
    let mut window = Vec::new();
    while offset + HEADER_OCTETS as u64 <= end {
        let octets = (end - offset).min(if window.is_empty() { HEADER_OCTETS as u64 } else { WINDOW as u64 });
        window.resize(octets as usize, 0);
        if let Err(error) = file.read_exact_at(&mut window, offset) {
            return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(Found::End) } else { Err(error) };
        }
        let starts = window.windows(MAGIC.len()).enumerate().filter(|(_, octets)| **octets == MAGIC);
        if let Some((at, header)) = starts.map(|(at, _)| at).find_map(|at| Some((at, Header::decode(&window[at..])?))) {
            return payload_of(file, offset + at as u64, header, end);
        }
        // A header may begin in the last octets of the window.
        offset += (window.len() - HEADER_OCTETS + 1) as u64;
    }
    Ok(Found::End)
}

fn payload_of(file: &File, offset: u64, header: Header, end: u64) -> io::Result<Found> {
    if offset + header.octets() > end {
        return Ok(Found::Damaged(offset, header));
    }
    let mut payload = vec![0; header.payload_octets as usize];
    match file.read_exact_at(&mut payload, offset + HEADER_OCTETS as u64) {
        Ok(()) if crc32fast::hash(&payload) == header.payload_crc => Ok(Found::Entry(offset, header, payload)),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(Found::Damaged(offset, header)),
    }
}
