//! Why the rest of a file cannot be read.

use weir_ipfix_file::ReadError;

/// Why the rest of a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It does not begin as one.
    #[error("this is no file of nfdump")]
    NotNfdump,
    /// Its numbers have the other order.
    #[error("this is a file of nfdump from a big-endian machine, which is not read")]
    BigEndian,
    /// Layout version 1.
    #[error("this is a file of nfdump 1.6, which is not read; nfdump 1.7 converts it: nfdump -r FILE -w NEW_FILE")]
    Version1,
    /// A layout of the future.
    #[error("layout version {0} of nfdump's files is not known")]
    Version(u16),
    /// The content is encrypted.
    #[error("this file of nfdump is encrypted")]
    Encrypted,
    /// The blocks have a compression that has no free library.
    #[error("its blocks are compressed with LZO, which is not read; nfdump rewrites it with LZ4: nfdump -J 3 -r FILE")]
    Lzo,
    /// A compression of the future.
    #[error("compression {0} of nfdump's files is not known")]
    Compression(u8),
    /// The header of the file is not whole.
    #[error("the header of the file is cut off")]
    CutHeader,
    /// The last block is not whole.
    #[error("the block at octet {0} is cut off")]
    CutBlock(u64),
    /// What follows a block is none.
    #[error("at octet {offset} is no block (length {octets})")]
    NoBlock {
        /// Octets before it.
        offset: u64,
        /// The length in its header.
        octets: u32,
    },
    /// Blocks are missing.
    #[error("the file ends {0} blocks before the number in its header")]
    MissingBlocks(u32),
    /// A limit protects the memory.
    #[error("the file has records of more than {0} different kinds")]
    TooManyKinds(usize),
}

impl From<FormatError> for ReadError {
    fn from(error: FormatError) -> Self {
        Self::Format(Box::new(error))
    }
}
