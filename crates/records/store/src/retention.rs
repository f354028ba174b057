//! What stays in a store: by age, and by octets.

use crate::folder::{Content, Folder, Hour, StoredFile, remove_empty};
use crate::reading::is_foreign;
use std::fs::{self, File, TryLockError};
use std::str::FromStr;
use std::time::Duration;
use tracing::{debug, info, warn};
use weir_text::units::{parse_size, time_unit_ns};

const MIN_AGE: Duration = Duration::from_secs(3600);
const MIN_OCTETS: u64 = 1_000_000;

/// Up to when flows stay. Without both, all stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// An hour is removed this long after its end.
    pub age: Option<Duration>,
    /// The oldest files are removed until the others have at most this many octets.
    pub octets: Option<u64>,
}

/// A text that is no [`Keep`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("keep must be a time from 1h, such as 30d, a size from 1MB, such as 200G, or both, as in 30d,200G, not {0:?}")]
pub struct InvalidKeep(String);

/// `30d`, `200G` or both.
impl FromStr for Keep {
    type Err = InvalidKeep;

    fn from_str(text: &str) -> Result<Self, InvalidKeep> {
        let mut keep = Self::default();
        for limit in text.split(',') {
            match (time(limit), parse_size(limit)) {
                (Some(age), _) if keep.age.is_none() && age >= MIN_AGE => keep.age = Some(age),
                (_, Some(octets)) if keep.octets.is_none() && octets >= MIN_OCTETS => keep.octets = Some(octets),
                _ => return Err(InvalidKeep(text.into())),
            }
        }
        Ok(keep)
    }
}

/// A number above 0 and what follows it.
fn number(text: &str) -> Option<(u64, &str)> {
    let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    Some((number.parse().ok().filter(|&number| number > 0)?, unit))
}

fn time(text: &str) -> Option<Duration> {
    let (number, unit) = number(text)?;
    time_unit_ns(unit).and_then(|ns| number.checked_mul(ns)).map(Duration::from_nanos)
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Number of files.
    pub files: u64,
    /// Octets of these files.
    pub octets: u64,
    /// Number of files that the system did not remove.
    pub failed: u64,
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
            if is_foreign(&file.path) {
                warn!(sink = name, file = %file.path.display(), "an old file in the store is none of Weir, it stays");
                removed.failed += 1;
                continue;
            }
            if let Err(error) = fs::remove_file(&file.path) {
                warn!(sink = name, file = %file.path.display(), %error, "cannot remove an old file of the store");
                removed.failed += 1;
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

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    #[test]
    fn limits_are_times_and_sizes() {
        let keep = |age: Option<u64>, octets| Some(Keep { age: age.map(Duration::from_secs), octets });
        for (text, expected) in [
            ("30d", keep(Some(30 * 86_400), None)),
            ("200G", keep(None, Some(200_000_000_000))),
            ("2TiB,12h", keep(Some(12 * 3600), Some(2 << 40))),
            ("500MB", keep(None, Some(500_000_000))),
            ("", None),
            ("30", None),
            ("0d", None),
            ("1d,2d", None),
            ("1G,", None),
            ("10m", None),
            ("100k", None),
            ("99999999999T", None),
            ("1Gb", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }

    fn content(files: &[(u64, u64)]) -> Content {
        let file = |&(hour, octets): &(u64, u64)| StoredFile {
            hour: Hour::of(hour * 3600 * 1_000_000_000),
            path: format!("{hour}").into(),
            octets,
            is_sorted: false,
        };
        Content { files: files.iter().map(file).collect(), ..Content::default() }
    }

    #[test]
    fn the_oldest_go_first_and_a_clock_that_jumps_removes_nothing() {
        let content = content(&[(1, 10), (2, 20), (30, 30), (31, 40)]);
        let hours = |keep: Keep, now_h: u64| keep.expired(&content, now_h * 3600 * 1_000_000_000).len();
        let octets = |octets| Keep { octets: Some(octets), age: None };
        assert_eq!([100, 99, 70, 69, 0].map(|most| hours(octets(most), 32)), [0, 1, 2, 3, 4]);
        let age = |hours: u64| Keep { age: Some(Duration::from_secs(3600 * hours)), octets: None };
        assert_eq!([40, 30, 29, 28, 1].map(|most| hours(age(most), 32)), [0, 0, 1, 2, 2]);
        assert_eq!((hours(age(40), 1_000_000), hours(age(1), 3)), (0, 0));
    }

    #[test]
    fn a_file_of_another_program_stays_and_a_damaged_one_goes() {
        let parent = tempfile::tempdir().unwrap();
        let [foreign, damaged] = ["1", "2"].map(|name| parent.path().join(name));
        let schema = Arc::new(parse_message_type("message m { required int64 a; }").unwrap());
        let file = File::create(&foreign).unwrap();
        SerializedFileWriter::new(file, schema, Arc::default()).unwrap().close().unwrap();
        fs::write(&damaged, "PAR1").unwrap();
        let mut content = content(&[(1, 10), (2, 10)]);
        for (file, path) in content.files.iter_mut().zip([&foreign, &damaged]) {
            file.path.clone_from(path);
        }
        let keep = Keep { octets: Some(0), age: None };
        let removed = keep.apply("store", &Folder::new(parent.path(), None), &content, 0);
        assert_eq!(removed, Removed { files: 1, octets: 10, failed: 1 });
        assert_eq!([foreign, damaged].map(|path| path.exists()), [true, false]);
    }
}
