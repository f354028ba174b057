//! The header of a file.

use crate::error::FormatError;

/// Length of the header, octets.
pub const HEADER_OCTETS: usize = 40;
/// The first number of a file.
pub const MAGIC: u16 = 0xa50c;

/// How the blocks of a file are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Bzip2,
    Lz4,
    Zstandard,
}

/// Values of the header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub compression: Compression,
    /// Where the blocks about the file begin, behind those of records; 0 if there are none.
    pub appendix_offset: u64,
    /// Blocks of records. 0 without an appendix: nfcapd has not finished the file, and the number is not known.
    pub blocks: u32,
}

impl Header {
    /// The header, if the file can be read.
    pub fn parse(octets: &[u8]) -> Result<Self, FormatError> {
        let is = |magic: [u8; 2]| octets.starts_with(&magic);
        if is(MAGIC.to_be_bytes()) {
            return Err(FormatError::BigEndian);
        }
        if !is(MAGIC.to_le_bytes()) {
            return Err(FormatError::NotNfdump);
        }
        let version = octets.get(2..4).map(|word| u16::from_le_bytes([word[0], word[1]]));
        match version.ok_or(FormatError::CutHeader)? {
            1 => return Err(FormatError::Version1),
            2 => {}
            other => return Err(FormatError::Version(other)),
        }
        let octets: &[u8; HEADER_OCTETS] = octets.first_chunk().ok_or(FormatError::CutHeader)?;
        // Magic, layout version, version of nfdump, time, compression, encryption, blocks of the appendix, unused, its
        // place, size of blocks, number of blocks.
        let [.., compression, encryption] = octets[..18] else { return Err(FormatError::CutHeader) };
        if encryption != 0 {
            return Err(FormatError::Encrypted);
        }
        let compression = match compression {
            0 => Compression::None,
            1 => return Err(FormatError::Lzo),
            2 => Compression::Bzip2,
            3 => Compression::Lz4,
            4 => Compression::Zstandard,
            other => return Err(FormatError::Compression(other)),
        };
        let number = |at: usize, count: usize| {
            octets[at..at + count].iter().rev().fold(0, |number, octet| number << 8 | u64::from(*octet))
        };
        Ok(Self { compression, appendix_offset: number(24, 8), blocks: number(36, 4) as u32 })
    }
}
