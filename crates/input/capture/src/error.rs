//! Errors of sources: what is wrong with a capture file or with live traffic, and where.

use crate::files::decompress::{Compression, StreamError};
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
    #[error("{path}: at byte {offset}: {cause}; {} read", packets_before(*packets), path = path.display())]
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

impl Error {
    /// The capabilities that a process needs if it is not permitted to read live traffic; none for other errors.
    pub fn needed_capabilities(&self) -> &'static [&'static str] {
        if let Self::Live { cause, .. } = self { cause.needed_capabilities() } else { &[] }
    }
}

fn layer(compression: Option<Compression>) -> String {
    compression.map_or_else(String::new, |compression| format!("inside {}, ", compression.name()))
}

/// Appended to every message about a file that is no capture.
const SUPPORTED: &str = "Weir reads pcap and pcapng, plain or compressed with gzip or zstd";

/// Why a file is not read as a capture.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error("this is a directory; name the capture files in it")]
    Directory,
    #[error("it is empty. {SUPPORTED}")]
    Empty,
    #[error("it has only {0} bytes. {SUPPORTED}")]
    Short(usize),
    #[error("it looks like {0}. {SUPPORTED}")]
    Other(&'static str),
    #[error("it begins with {:02x} {:02x} {:02x} {:02x}, which is no capture. {SUPPORTED}", .0[0], .0[1], .0[2], .0[3])]
    Unknown([u8; 4]),
    #[error("it looks like a pcap file that was cut in its file header, after {0} of {1} bytes. {SUPPORTED}")]
    PcapHeaderCut(usize, usize),
    #[error("it looks like a pcap file of version {0}.{1}; only version 2 is supported. {SUPPORTED}")]
    PcapVersion(u16, u16),
    #[error("it begins like a pcapng file, but: {0}. {SUPPORTED}")]
    Pcapng(Damage),
    #[error("it looks like a pcapng file that was cut in its first block, after {0} bytes. {SUPPORTED}")]
    PcapngCut(usize),
    #[error("it is a file of packet records; read it as packets:FILE")]
    Packets,
    #[error("it is no file of packet records, which weir read -o packets:FILE and weir synth write")]
    NoPackets,
    #[error("it looks like a file of packet records that was cut in its file header, after {0} of {1} bytes")]
    PacketsHeaderCut(usize, usize),
    #[error(
        "it is a file of packet records in big-endian order; all files of packet records of Weir are little-endian"
    )]
    PacketsByteOrder,
    #[error(
        "it is a file of packet records of version {version} (records of {record_bytes} bytes, flags {flags:#x}); this Weir reads \
         version 1. Write it again from the capture"
    )]
    PacketsVersion { version: u16, record_bytes: u16, flags: u32 },
    #[error("its packets were decoded without --decap; leave --decap out, or write it again with --decap")]
    PacketsOutside,
    #[error("its packets were decoded with --decap; add --decap")]
    PacketsInside,
    /// A compressed stream cannot be read up to the first packet.
    #[error("it looks like a compressed file, with an error before the first packet: {0}. {SUPPORTED}")]
    Compressed(#[source] StreamError),
}

/// What is wrong at a damaged place of a capture file.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    #[error("the record claims {0} captured bytes, more than the limit of {1}")]
    CapturedLength(u32, u32),
    #[error("the file is cut in {0}, after {1}{of} bytes", of = .2.map_or_else(String::new, |all| format!(" of {all}")))]
    Cut(&'static str, usize, Option<usize>),
    #[error("the file was truncated while it was read, from {0} to {1} bytes")]
    Truncated(usize, usize),
    #[error("the file cannot be read from here on: the system reported a bus error (SIGBUS)")]
    LostPages,
    #[error("the section header has no valid byte-order magic")]
    ByteOrder,
    #[error("the block claims a length of {0} bytes, which must be a multiple of 4 from {1} to {2}")]
    BlockLength(u32, u32, u32),
    #[error("the block's length is {0} at its start and {1} at its end")]
    BlockLengths(usize, usize),
    #[error("the {0} block is too short")]
    BlockShort(&'static str),
    #[error("the section has version {0}.{1}; only version 1 is supported, so it is skipped")]
    SectionVersion(u16, u16),
    #[error("the section describes more than {0} interfaces")]
    Interfaces(usize),
    #[error("{0}")]
    InterfaceOption(&'static str),
    #[error("the packet is from interface {0}, whose description is damaged")]
    DamagedInterface(u32),
    #[error("the packet is from interface {0}, but the section has described {1}")]
    UnknownInterface(u32, usize),
    #[error("the packet claims {0} captured bytes, but its block holds only {1}")]
    BlockCapturedLength(u32, usize),
    #[error("the packet record has the kind {0} or values that none of this version has, so it is skipped")]
    Record(u8),
    #[error("bytes follow the end record")]
    BehindEnd,
    #[error("the file ends without an end record: it was cut, or not written to its end")]
    NoEnd,
    #[error("the end record counts {written} packets, and the file has {read}, and {damaged} damaged records")]
    Packets { written: u64, read: u64, damaged: u64 },
    /// The compressed stream around the capture is damaged.
    #[error(transparent)]
    Compressed(#[from] Box<StreamError>),
}

fn packets_before(packets: u64) -> String {
    if packets == 1 { "1 packet before it was".into() } else { format!("{packets} packets before it were") }
}
