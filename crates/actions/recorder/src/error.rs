//! Why packets cannot be recorded or searched.

use std::io;
use std::path::PathBuf;

/// Why a recorder does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder cannot be used.
    #[error("{folder}: {error}", folder = folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// Two recorders would remove each other's files.
    #[error("{0}: another program records into this folder")]
    InUse(PathBuf),
    /// A setting has no meaning.
    #[error("{output}: {problem}")]
    Setting {
        /// The output as the user wrote it.
        output: String,
        /// What is wrong.
        problem: InvalidSetting,
    },
}

/// What is wrong with the settings of a folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSetting {
    /// No folder.
    #[error("name a folder, as in folder:/var/lib/weir/packets")]
    NoFolder,
    /// Unknown name.
    #[error("no setting {0}; there are size, time and total")]
    Unknown(String),
    /// Not a size.
    #[error("{0}={1} is not a size; write for example {0}=1GiB")]
    Size(&'static str, String),
    /// Not a time.
    #[error("time={0} is not a time of at least 1s; write for example time=5m")]
    Time(String),
    /// The bounds of a file and of the folder contradict each other.
    #[error("total={total} must be at least twice size={size}: the oldest file is removed while the newest is written")]
    Total {
        /// Limit of the folder in octets.
        total: u64,
        /// Limit of a file in octets.
        size: u64,
    },
    /// A file would have few packets.
    #[error("size={0} is too small; at least 1MiB")]
    SmallFile(u64),
}
