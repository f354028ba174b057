//! Why outputs cannot be used.

use std::io;
use std::path::PathBuf;

/// Why an output cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is no output.
    #[error(
        "{0}: not an output{near}; outputs are: af_packet:IFACE and af_xdp:IFACE (an interface), dpdk:DEVICE (a port of \
         DPDK), pcap:PATH (a pipe or a file; pcap:- is standard output), folder:DIR (rolling files)",
        near = .1.map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
    )]
    Unknown(String, Option<&'static str>),
    /// Nothing follows the scheme.
    #[error("{0}: the name is missing: {1}")]
    NoName(String, &'static str),
    /// Settings follow the name of an interface.
    #[error("{0}: an output has no settings; remove '{1}'")]
    Settings(String, String),
    /// The text is no way to balance.
    #[error(
        "balance: '{0}' is not one of address-pair, five-tuple, mirror{near}",
        near = .1.map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
    )]
    Balance(String, Option<&'static str>),
    /// The packets would return through a source (a loop).
    #[error(
        "{output}: this is a loop: its packets leave through {interface}, which {source_name} monitors, and would be \
         metered and forwarded again, without end; forward packets to an interface that no source reads"
    )]
    Loop {
        /// The output.
        output: String,
        /// The interface that both use.
        interface: String,
        /// The source.
        source_name: String,
    },
    /// An output is written twice in an egress, or a file in two.
    #[error("{0}: it is named twice; leave one of them out")]
    Twice(String),
    /// The interface cannot be opened; the error names the output.
    #[error(transparent)]
    Interface(#[from] weir_capture::Error),
    /// The file or pipe cannot be opened.
    #[error("{0}: {1}")]
    File(String, io::Error),
    /// Only the recorder writes folders.
    #[error("{0}: packets cannot be forwarded to a folder here; pcap:PATH writes a file")]
    Folder(String),
    /// A FIFO has no reader, and packets would have to wait for one.
    #[error("{0}: no program reads this pipe")]
    NoReader(String),
    /// The file cannot be created, for its folder does not exist or cannot be written.
    #[error("{0}: it cannot be created in {folder}: {2}", folder = .1.display())]
    NotCreated(String, PathBuf, io::Error),
    /// The file has other content than packets.
    #[error("{0}: the file has other content, and is not overwritten; choose another name")]
    OtherContent(String),
}
