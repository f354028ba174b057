//! The blocks of a file.
//!
//! Input: a file. Output: the content of one block of records at a time. Invariant: a block has
//! [`MAX_BLOCK_OCTETS`] at most, compressed and not.

use crate::error::FormatError;
use crate::header::{Compression, HEADER_OCTETS, Header};
use bzip2_rs::DecoderReader;
use ruzstd::decoding::StreamingDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read};
use weir_ipfix_file::ReadError;

/// Most octets of a block: nfdump's own limit for reading.
pub const MAX_BLOCK_OCTETS: usize = 5 << 20;
/// Length of the header of a block, octets.
pub const BLOCK_HEADER_OCTETS: u64 = 12;
/// The flag of a block that is not compressed, whatever the header of the file says.
const UNCOMPRESSED: u16 = 1;

/// What the header of a block says, and what its content is.
#[derive(Debug)]
pub struct Block {
    /// Its place in the file.
    pub offset: u64,
    /// Its type: 3 for records.
    pub kind: u16,
    /// Number of its records, as the header says.
    pub records: u32,
    /// Its records, decompressed; `None` if the octets cannot be decompressed to as many as a block may have.
    pub content: Option<Vec<u8>>,
}

/// Reads blocks of records.
pub struct BlockReader {
    file: BufReader<File>,
    header: Option<Header>,
    /// Octets of the file that were read.
    position: u64,
    blocks: u32,
}

impl BlockReader {
    pub fn new(file: File) -> Self {
        Self { file: BufReader::with_capacity(1 << 16, file), header: None, position: 0, blocks: 0 }
    }

    /// Reads the header of the file, in front of the first block. Returns its octets, and 0 from the second call on.
    pub fn read_header(&mut self) -> Result<u64, ReadError> {
        if self.header.is_some() {
            return Ok(0);
        }
        let octets = self.take(HEADER_OCTETS)?;
        self.header = Some(Header::parse(&octets)?);
        self.position = HEADER_OCTETS as u64;
        Ok(self.position)
    }

    /// The next block; `None` behind the last.
    pub fn next(&mut self) -> Result<Option<Block>, ReadError> {
        let Some(header) = self.header else { return Ok(None) };
        let is_counted = header.blocks > 0 || header.appendix_offset > 0;
        if is_counted && self.blocks == header.blocks {
            return Ok(None);
        }
        let offset = self.position;
        let head = self.take(BLOCK_HEADER_OCTETS as usize)?;
        if head.is_empty() {
            let missing = header.blocks.saturating_sub(self.blocks);
            return if missing > 0 { Err(FormatError::MissingBlocks(missing).into()) } else { Ok(None) };
        }
        let &[a, b, c, d, e, f, g, h, kind, kind_high, flags, flags_high] = &*head else {
            return Err(FormatError::CutBlock(offset).into());
        };
        let octets = u32::from_le_bytes([e, f, g, h]);
        let length = usize::try_from(octets).ok().filter(|length| (1..=MAX_BLOCK_OCTETS).contains(length));
        let length = length.ok_or(FormatError::NoBlock { offset, octets })?;
        let content = self.take(length)?;
        if content.len() < length {
            return Err(FormatError::CutBlock(offset).into());
        }
        self.position += BLOCK_HEADER_OCTETS + u64::from(octets);
        self.blocks += 1;
        let is_plain = u16::from_le_bytes([flags, flags_high]) & UNCOMPRESSED != 0;
        let compression = if is_plain { Compression::None } else { header.compression };
        Ok(Some(Block {
            offset,
            kind: u16::from_le_bytes([kind, kind_high]),
            records: u32::from_le_bytes([a, b, c, d]),
            content: decompressed(compression, content),
        }))
    }

    /// Octets behind the blocks that the header of the file counts, and in front of the appendix.
    pub fn uncounted(&self) -> Option<std::ops::Range<u64>> {
        let header = self.header.filter(|header| self.blocks == header.blocks)?;
        Some(self.position..header.appendix_offset).filter(|range| !range.is_empty())
    }

    /// The next octets; fewer at the end of the file.
    fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut octets = Vec::new();
        self.file.by_ref().take(count as u64).read_to_end(&mut octets)?;
        Ok(octets)
    }
}

fn decompressed(compression: Compression, octets: Vec<u8>) -> Option<Vec<u8>> {
    match compression {
        Compression::None => Some(octets),
        Compression::Lz4 => {
            // The length is not stored: most blocks have below 1 MiB.
            let with_room = |room: usize| lz4_flex::block::decompress(&octets, room).ok();
            with_room(1 << 20).or_else(|| with_room(MAX_BLOCK_OCTETS))
        }
        Compression::Bzip2 => all_of(DecoderReader::new(&*octets)),
        Compression::Zstandard => all_of(StreamingDecoder::new(&*octets).ok()?),
    }
}

/// All octets of a decompressor, if they are not too many.
fn all_of(decompressor: impl Read) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    decompressor.take(MAX_BLOCK_OCTETS as u64 + 1).read_to_end(&mut octets).ok()?;
    (octets.len() <= MAX_BLOCK_OCTETS).then_some(octets)
}
