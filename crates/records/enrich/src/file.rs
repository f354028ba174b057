//! Files of the user: opened once, read whole, and checked for changes meanwhile.

use crate::error::Problem;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// An open file.
#[derive(Debug)]
pub(crate) struct InputFile {
    pub file: File,
    version: Version,
}

/// Length, and time of the last change of the content. The time of the last change of the inode also
/// changes when another file takes its place.
type Version = (u64, i64, i64);

fn version(file: &Metadata) -> Version {
    (file.len(), file.mtime(), file.mtime_nsec())
}

impl InputFile {
    /// Opens a regular file that is not empty. Does not wait for the writer of a pipe.
    pub fn open(path: &Path) -> Result<Self, Problem> {
        if !fs::metadata(path)?.is_file() {
            return Err(Problem::NotAFile);
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.len() == 0 {
            return Err(Problem::Empty);
        }
        Ok(Self { file, version: version(&metadata) })
    }

    /// Fails if the file has changed since it was opened. Call it when the file is read.
    pub fn check_unchanged(&self) -> Result<(), Problem> {
        if version(&self.file.metadata()?) == self.version { Ok(()) } else { Err(Problem::Changed) }
    }

    /// All octets.
    pub fn read_all(mut self) -> Result<Vec<u8>, Problem> {
        let mut octets = Vec::with_capacity(self.version.0 as usize);
        self.file.read_to_end(&mut octets)?;
        self.check_unchanged()?;
        Ok(octets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_no_file_or_empty_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let problem = |name: &str| InputFile::open(&directory.path().join(name)).unwrap_err().to_string();
        assert_eq!(problem("."), "not a regular file");
        assert!(problem("missing").starts_with("No such file"));
        File::create(directory.path().join("empty")).unwrap();
        assert_eq!(problem("empty"), "the file is empty");
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"10.0.0.0/8\n").unwrap();
        let open = InputFile::open(file.path()).unwrap();
        open.check_unchanged().unwrap();
        file.write_all(b"10").unwrap();
        assert!(matches!(open.check_unchanged(), Err(Problem::Changed)));
        // Another file in its place has no effect on the open one.
        let open = InputFile::open(file.path()).unwrap();
        let other = tempfile::NamedTempFile::new_in(file.path().parent().unwrap()).unwrap();
        fs::write(other.path(), "x").unwrap();
        fs::rename(other.path(), file.path()).unwrap();
        assert_eq!(open.read_all().unwrap(), b"10.0.0.0/8\n10");
    }
}
