//! Errors of sources: what is wrong with a capture file or with live traffic, and where.

use crate::decompress::{Compression, StreamError};
use crate::live_error::LiveError;
use std::io;
use std::path::PathBuf;

/// Input that cannot be read, wholly or from some place on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be opened or read.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file, or `-` for standard input.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The file is not a capture in a supported format.
    #[error("{path}: {layer}{cause}", path = path.display(), layer = layer(*compression))]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// Compression that was removed before the content was examined.
        compression: Option<Compression>,
        /// What the content is instead.
        cause: FormatError,
    },
    /// A live source cannot be opened, or ended without being stopped.
    #[error("{name}: {cause}")]
    Live {
        /// The source as the user wrote it.
        name: String,
        /// What is wrong.
        cause: LiveError,
    },
    /// A capture file is damaged at some place.
    #[error("{path}: at byte {offset}: {cause}; {packets} packets before it were read", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the damage in bytes from the start of the (decompressed) capture.
        offset: u64,
        /// Packets delivered before the damage.
        packets: u64,
        /// What is wrong there.
        cause: Damage,
    },
}

fn layer(compression: Option<Compression>) -> String {
    compression.map_or_else(String::new, |compression| format!("inside {}, ", compression.name()))
}

/// Appended to every message about a file that is no capture.
const SUPPORTED: &str = "Weir reads pcap and pcapng, plain or compressed with gzip or zstd";

/// Why a file is not read as a capture.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The path names a directory.
    #[error("this is a directory; name the capture files in it")]
    Directory,
    /// The file has no content.
    #[error("it is empty. {SUPPORTED}")]
    Empty,
    /// The file is shorter than a magic number.
    #[error("it has only {bytes} bytes. {SUPPORTED}")]
    Short {
        /// Size of the file.
        bytes: usize,
    },
    /// The file has another format, which is known by its first bytes.
    #[error("it looks like {0}. {SUPPORTED}")]
    Other(&'static str),
    /// The first bytes are those of no known format.
    #[error("it begins with {:02x} {:02x} {:02x} {:02x}, which is no capture. {SUPPORTED}", .0[0], .0[1], .0[2], .0[3])]
    Unknown([u8; 4]),
    /// A pcap file ends inside its file header.
    #[error("it looks like a pcap file that was cut in its file header, after {bytes} of {of} bytes. {SUPPORTED}")]
    PcapHeaderCut {
        /// Bytes that are there.
        bytes: usize,
        /// Size of the file header.
        of: usize,
    },
    /// A pcap file of an unknown major version.
    #[error("it looks like a pcap file of version {major}.{minor}; only version 2 is supported. {SUPPORTED}")]
    PcapVersion {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// The first block of a pcapng file is damaged.
    #[error("it begins like a pcapng file, but: {0}. {SUPPORTED}")]
    Pcapng(Damage),
    /// A pcapng file ends inside its first block.
    #[error("it looks like a pcapng file that was cut in its first block, after {bytes} bytes. {SUPPORTED}")]
    PcapngCut {
        /// Bytes that are there.
        bytes: usize,
    },
    /// A compressed stream is damaged before the first packet.
    #[error("it looks like a compressed file that is damaged before the first packet: {0}. {SUPPORTED}")]
    Compressed(#[source] StreamError),
}

/// What is wrong at a damaged place of a capture file.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// A length field exceeds the size of any packet.
    #[error("the record claims {captured} captured bytes, more than any packet has ({limit})")]
    CapturedLength {
        /// The length field.
        captured: u32,
        /// Largest length that is accepted.
        limit: u32,
    },
    /// The file ends inside the header of a record.
    #[error("the file is cut in a record header, after {bytes} of {of} bytes")]
    RecordHeaderCut {
        /// Bytes that are there.
        bytes: usize,
        /// Size of the header.
        of: usize,
    },
    /// The file ends inside the captured bytes of a packet.
    #[error("the file is cut in a packet, after {bytes} of {of} captured bytes")]
    PacketCut {
        /// Bytes that are there.
        bytes: usize,
        /// Captured bytes by the record header.
        of: u32,
    },
    /// The file ends inside a block header.
    #[error("the file is cut in a block, after {bytes} bytes")]
    BlockHeaderCut {
        /// Bytes that are there.
        bytes: usize,
    },
    /// The file ends inside a block.
    #[error("the file is cut in a block, after {bytes} of {of} bytes")]
    BlockCut {
        /// Bytes that are there.
        bytes: usize,
        /// Length by the block header.
        of: u32,
    },
    /// A section header without the byte-order magic.
    #[error("the section header has no valid byte-order magic")]
    ByteOrder,
    /// A block length that is impossible.
    #[error("the block claims a length of {length} bytes, which must be a multiple of 4 from {shortest} to {longest}")]
    BlockLength {
        /// The length field.
        length: u32,
        /// Shortest length of such a block.
        shortest: u32,
        /// Longest length that is accepted.
        longest: u32,
    },
    /// The two length fields of a block differ.
    #[error("the block's length is {first} at its start and {last} at its end")]
    BlockLengths {
        /// Length at the start.
        first: usize,
        /// Length at the end.
        last: usize,
    },
    /// A block shorter than its fixed fields.
    #[error("the {0} block is too short")]
    BlockShort(&'static str),
    /// A section of an unknown major version.
    #[error("the section has version {major}.{minor}; only version 1 is supported, so it is skipped")]
    SectionVersion {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// A section describes too many interfaces.
    #[error("the section describes more than {limit} interfaces")]
    Interfaces {
        /// Largest number that is accepted.
        limit: usize,
    },
    /// An option reaches beyond its block.
    #[error("an interface option is cut")]
    OptionCut,
    /// `if_tsresol` does not have one byte.
    #[error("the time resolution of an interface does not have 1 byte")]
    TimeResolution,
    /// `if_tsoffset` does not have eight bytes.
    #[error("the time offset of an interface does not have 8 bytes")]
    TimeOffset,
    /// A packet of an interface whose description is damaged.
    #[error("the packet is from interface {0}, whose description is damaged")]
    DamagedInterface(u32),
    /// A packet of an interface that the section does not describe.
    #[error("the packet is from interface {number}, but the section has described {known}")]
    UnknownInterface {
        /// Interface number of the packet.
        number: u32,
        /// Interfaces described so far.
        known: usize,
    },
    /// The captured length exceeds the block.
    #[error("the packet claims {captured} captured bytes, but its block holds only {block}")]
    BlockCapturedLength {
        /// The length field.
        captured: u32,
        /// Bytes in the block.
        block: usize,
    },
    /// The compressed stream around the capture is damaged.
    #[error(transparent)]
    Compressed(#[from] Box<StreamError>),
}
