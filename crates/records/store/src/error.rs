use std::io;
use std::path::PathBuf;

/// A store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There are other files in the folder.
    #[error("{}: the folder is not empty, and is no store of Weir; to read other files, name each", .0.display())]
    NoStore(PathBuf),
    /// Another program names its folders as a store does.
    #[error(
        "{}: this is no store of Weir: all {number} Parquet files and folders in it are of another program, the first is \
         {}",
        path.display(), first.display()
    )]
    ForeignFiles {
        /// The folder.
        path: PathBuf,
        /// The first file or folder.
        first: PathBuf,
        /// How many there are.
        number: usize,
    },
    /// The content of a file is kept.
    #[error("{}: the file exists and is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// A link, a device, a pipe or a folder cannot be replaced.
    #[error("{}: this is no regular file", .0.display())]
    NoFile(PathBuf),
    /// There is one writer at a time.
    #[error("{}: another program writes to this store", .0.display())]
    Locked(PathBuf),
    /// Flows are known by their key, their times and their counts.
    #[error("{}: records without the column {column} cannot be read as flows; use another program for them", .path.display())]
    NoFlows {
        /// The file or folder.
        path: PathBuf,
        /// The column that a file lacks.
        column: &'static str,
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
