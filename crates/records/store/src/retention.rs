//! What stays in a store: the newest hours, and so many octets.

use crate::folder::{Content, Folder, Hour, StoredFile, remove_empty};
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::time::Duration;
use tracing::{debug, info, warn};

/// Up to when flows stay. Without both, all stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// An hour is removed this long after its end.
    pub age: Option<Duration>,
    /// The oldest files are removed until the others have at most this many octets.
    pub octets: Option<u64>,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Number of files.
    pub files: u64,
    /// Octets of these files.
    pub octets: u64,
}

impl fmt::Display for Removed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} files, {} octets", self.files, self.octets)
    }
}

impl Keep {
    /// The files that have to go at this time, the oldest first. A clock that jumps ahead removes nothing:
    /// the age of an hour is counted to the newest hour of the store, if that is earlier.
    pub fn expired<'a>(&self, content: &'a Content, now_ns: u64) -> Vec<&'a StoredFile> {
        let newest = content.files.last().map_or(0, |file| file.hour.end_ns());
        let oldest_ns = self.age.map(|age| now_ns.min(newest).saturating_sub(age.as_nanos() as u64));
        let mut left = content.octets();
        let is_expired = |file: &&StoredFile| {
            let is_old = oldest_ns.is_some_and(|oldest_ns| file.hour.end_ns() < oldest_ns);
            let is_excess = self.octets.is_some_and(|octets| left > octets);
            left -= file.octets;
            is_old || is_excess
        };
        content.files.iter().take_while(is_expired).collect()
    }

    /// Removes what has to go. A file that cannot be removed stays, with a warning.
    pub fn apply(&self, name: &str, folder: &Folder, content: &Content, now_ns: u64) -> Removed {
        let mut removed = Removed::default();
        let (mut first, mut last) = (None::<Hour>, None::<Hour>);
        for file in self.expired(content, now_ns) {
            if is_being_read(file) {
                debug!(sink = name, file = %file.path.display(), "an old file of the store stays while it is read");
                continue;
            }
            if let Err(error) = fs::remove_file(&file.path) {
                warn!(sink = name, file = %file.path.display(), %error, "cannot remove an old file of the store");
                continue;
            }
            removed.files += 1;
            removed.octets += file.octets;
            first.get_or_insert(file.hour);
            last = Some(file.hour);
            let hour = folder.path().join(file.hour.path());
            remove_empty(&hour);
            hour.parent().into_iter().for_each(remove_empty);
        }
        if let (Some(first), Some(last)) = (first, last) {
            let (first, last) = (first.path(), last.path());
            let (files, octets) = (removed.files, removed.octets);
            info!(sink = name, files, octets, from = %first.display(), to = %last.display(), "removed old files of the store");
        }
        removed
    }
}

/// Whether a program of Weir reads the file: it has a shared lock.
fn is_being_read(file: &StoredFile) -> bool {
    let open = File::open(&file.path);
    open.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}
