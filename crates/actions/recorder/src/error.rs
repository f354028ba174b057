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
        problem: String,
    },
}
