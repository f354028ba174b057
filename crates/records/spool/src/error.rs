use std::io;
use std::path::PathBuf;

/// A spool cannot be used, or has not taken a batch.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is one writer at a time.
    #[error(
        "{}: the spool is in use by the process {holder}; give each sink and each probe a folder of its own",
        folder.display()
    )]
    Locked {
        /// The folder.
        folder: PathBuf,
        /// Process id, or `unknown`.
        holder: String,
    },
    /// There are files of others in the folder.
    #[error("{}: the folder has {name:?}, which is not part of a spool; name an empty folder", folder.display())]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// One of the files.
        name: String,
    },
    /// Nothing says whose segments these are.
    #[error(
        "{}: the folder has segments but no file \"spool\", which names their sink; name an empty folder",
        .0.display()
    )]
    NoIdentity(PathBuf),
    /// The file `spool` cannot be read.
    #[error("{}: the file \"spool\" is damaged or of another version of Weir; name an empty folder", .0.display())]
    InvalidIdentity(PathBuf),
    /// The records are for another collector.
    #[error("{}: the spool belongs to the sink {found}, not to {wanted}; name another folder", folder.display())]
    OtherSink {
        /// The folder.
        folder: PathBuf,
        /// Its sink.
        found: String,
        /// This sink.
        wanted: String,
    },
    /// Links are not followed.
    #[error("{}: this is a symbolic link or no folder; name the folder itself", .0.display())]
    NoFolder(PathBuf),
    /// The batch exceeds the limit of the spool.
    #[error("{}: a batch of {octets} octets is larger than the limit of the spool, {limit}", folder.display())]
    TooLarge {
        /// The folder.
        folder: PathBuf,
        /// Octets of the entry.
        octets: u64,
        /// Limit, octets.
        limit: u64,
    },
    /// The operating system reported an error.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
}

impl Error {
    /// The disk has no space.
    pub(crate) fn is_full_disk(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == io::ErrorKind::StorageFull)
    }
}
