//! Reads flow records from the files of nfdump 1.7 (nfcapd, nfpcapd, `nfdump -w`).
//!
//! Input: files with layout version 2, plain or with blocks that are compressed by LZ4, bzip2 or Zstandard. Output: the
//! extensions of each record as information elements, of which `weir-ipfix-file` makes flow records. Invariants: every
//! record is returned or counted; memory is bounded by [`MAX_BLOCK_OCTETS`](block::MAX_BLOCK_OCTETS) and by what a frame
//! of Zstandard may reserve (100 MiB), whatever the file says. Not done here: LZO, encrypted files, files of nfdump 1.6 and of big-endian machines, which are refused.
//! Source: the headers nffileV2.h and nfxV3.h of nfdump 1.7.1, and nfxV3.h of 1.7.8 for later extensions.
#![forbid(unsafe_code)]

mod block;
mod error;
mod header;
mod record;
mod source;
#[cfg(test)]
mod tests;

pub use error::FormatError;
pub use source::Nfdump;
use weir_ipfix_file::FileReader;

/// Reads files of nfdump.
pub type NfdumpReader = FileReader<Nfdump>;

/// The first two octets of a file.
pub const MAGIC: [u8; 2] = header::MAGIC.to_le_bytes();
