//! What is wrong with a file.

use std::io;
use std::path::PathBuf;

/// A file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system reported an error.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// What all records of a file have must be known before the first is returned.
    #[error("{}: this is no regular file, and flows are read twice; save it to a file first", .0.display())]
    NoFile(PathBuf),
}

/// A file was not read to its end, or some of its records are left out.
#[derive(Debug)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub what: What,
}

/// What is wrong with a file.
#[derive(Debug)]
pub enum What {
    /// The rest of the file cannot be read.
    Ended(ReadError),
    /// These records are left out, with the reason.
    LeftOut(String),
}

/// The rest of a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system or a decompressor reported an error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is no message.
    #[error("the file is empty")]
    Empty,
    /// The file is of another kind.
    #[error("this is {0}, not IPFIX")]
    OtherFormat(String),
    /// What follows a message is none.
    #[error("at octet {offset} is no IPFIX message (version {version}, length {length})")]
    NoMessage {
        /// Octets before it.
        offset: u64,
        /// Version of the header.
        version: u16,
        /// Length in the header.
        length: u16,
    },
    /// The last message is not whole.
    #[error("the message at octet {0} is cut off")]
    Cut(u64),
    /// A limit protects the memory.
    #[error("the file has more than {0} different templates")]
    TooManyTemplates(usize),
    /// What is wrong with a file of another format.
    #[error(transparent)]
    Format(Box<dyn std::error::Error + Send + Sync>),
    /// It was longer, or had other templates, when it was read for the first time.
    #[error("the file has changed while it was read")]
    Changed,
}
