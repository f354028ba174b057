//! The folder of a store, and the names in it.
//!
//! ```text
//! FOLDER/date=2026-11-24/hour=14/flows-20261124T140501.123456Z.parquet   records as they ended
//! FOLDER/date=2026-11-24/hour=13/hour-20261124T141500.000000Z.parquet    a whole hour, sorted
//! FOLDER/.weir/lock                                                      held by the one writer
//! FOLDER/.weir/*.part                                                    not finished: removed at start
//! ```
//!
//! The day and the hour (UTC) are those of the start of the flows. A file gets its final name when all
//! of it is on the disk. Programs that read the store do not see `.weir`: its name begins with a dot.

use crate::error::Error;
use parking_lot::Mutex;
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, RenameFlags, access, mkdirat, renameat_with, unlinkat};
use rustix::io::Errno;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const NS_PER_HOUR: u64 = 3600 * 1_000_000_000;
const HOURS_PER_DAY: u64 = 24;
const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits() as i32;
const PRIVATE: &str = ".weir";
const LOCK: &str = "lock";
const PART: &str = "part";
/// Files with the same time, at most.
const MAX_FILES_OF_A_TIME: u32 = 1_000_000;
/// User and group may read: files 0640, folders 0750.
const FILE_MODE: u32 = 0o640;
const FOLDER_MODE: u32 = 0o750;
/// First octets of the names of files.
const FRESH: &str = "flows-";
pub const SORTED: &str = "hour-";
const ENDING: &str = ".parquet";
/// First octets of the names of folders.
const DAY: &str = "date=";
const HOUR: &str = "hour=";

/// The file in the folder of a store that its one writer has locked.
pub fn lock_of(store: &Path) -> PathBuf {
    store.join(PRIVATE).join(LOCK)
}

/// An hour since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(u64);

impl Hour {
    /// The hour of a time, ns.
    pub fn of(time_ns: u64) -> Self {
        Self(time_ns / NS_PER_HOUR)
    }

    /// Its begin, ns since 1970-01-01 UTC.
    pub fn start_ns(self) -> u64 {
        self.0.saturating_mul(NS_PER_HOUR)
    }

    /// The time at which it ends, ns.
    pub fn end_ns(self) -> u64 {
        (self.0 + 1).saturating_mul(NS_PER_HOUR)
    }

    /// The path in a store.
    pub fn path(self) -> PathBuf {
        let time = jiff::Timestamp::from_second((self.0 * 3600) as i64).unwrap_or_default();
        time.strftime("date=%Y-%m-%d/hour=%H").to_string().into()
    }

    /// The day, UTC: `2026-11-24`.
    pub fn date(self) -> String {
        let path = self.path();
        let day = path.parent().and_then(Path::to_str).unwrap_or_default();
        day.trim_start_matches(DAY).into()
    }

    /// The hour of names of folders.
    fn of_names(day: &str, hour: &str) -> Option<Self> {
        let day: jiff::civil::Date = day.strip_prefix(DAY)?.parse().ok()?;
        let hour = hour.strip_prefix(HOUR).filter(|hour| hour.len() == 2)?.parse::<u64>().ok()?;
        let start = day.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second();
        (hour < HOURS_PER_DAY).then_some(Self(u64::try_from(start).ok()? / 3600 + hour))
    }
}

/// A finished file of a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredFile {
    /// The hour in which its flows start.
    pub hour: Hour,
    /// Its path.
    pub path: PathBuf,
    /// Octets.
    pub octets: u64,
    /// All records of the hour up to then, sorted by source address, then start.
    pub is_sorted: bool,
}

/// What is found in the folder of a store.
#[derive(Debug, Default)]
pub struct Content {
    /// The files, the oldest hour first.
    pub files: Vec<StoredFile>,
    /// What is none of a store, which is left as it is.
    pub strange: Vec<PathBuf>,
    /// Of another program, too, and there may be flows in it: Parquet files, and folders named as those of days and hours.
    pub foreign: Vec<PathBuf>,
    /// Folders that cannot be read.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

/// The folder of a store.
#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
    /// User and group of new files and folders.
    owner: Option<(u32, u32)>,
}

impl Folder {
    /// A folder, which need not exist.
    pub fn new(root: &Path, owner: Option<(u32, u32)>) -> Self {
        Self { root: root.into(), owner }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Creates the folder if it does not exist, and locks it for one writer, as long as the file is open.
    /// Removes what an earlier writer has not finished.
    ///
    /// # Errors
    /// The folder has other content, or another writer.
    pub fn lock(&self) -> Result<File, Error> {
        let failed = |error| Error::Io { path: self.root.clone(), error };
        self.make_folder(&self.root).map_err(failed)?;
        let private = self.root.join(PRIVATE);
        if !is_folder(&private) {
            self.check_content()?;
            self.make_folder(&private).map_err(failed)?;
        }
        let file = self.open_lock(&private.join(LOCK)).map_err(failed)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(Error::Locked(self.root.clone())),
            // Some file systems have no locks.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        self.remove_unfinished().map_err(failed)?;
        Ok(file)
    }

    /// Checks that [`Folder::lock`] can use the folder, but for another writer, and changes nothing.
    ///
    /// # Errors
    /// The folder has other content, is none, or may not be written; its parent, if it does not exist.
    pub fn check(&self) -> Result<(), Error> {
        let failed = |error| Error::Io { path: self.root.clone(), error };
        let may_write = |path: &Path| Ok(access(path, Access::WRITE_OK | Access::EXEC_OK)?);
        match fs::read_dir(&self.root) {
            Ok(_) => {
                may_write(&self.root).map_err(failed)?;
                self.check_content()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = self.root.parent().filter(|parent| !parent.as_os_str().is_empty());
                may_write(parent.unwrap_or(Path::new("."))).map_err(failed)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Checks that the folder is a store.
    ///
    /// # Errors
    /// It has other content, or cannot be read.
    pub fn check_content(&self) -> Result<(), Error> {
        let failed = |error| Error::Io { path: self.root.clone(), error };
        if is_folder(&self.root.join(PRIVATE)) {
            return Ok(());
        }
        if !has_days_only(&self.root).map_err(failed)? {
            return Err(Error::NoStore(self.root.clone()));
        }
        let content = self.content().map_err(failed)?;
        match content.foreign.first() {
            Some(first) if content.files.is_empty() => Err(Error::ForeignFiles {
                path: self.root.clone(),
                first: first.clone(),
                number: content.foreign.len(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether the locked file is still that of the folder: it may have been removed or replaced.
    pub fn is_locked_by(&self, lock: &File) -> bool {
        let at_path = fs::symlink_metadata(self.root.join(PRIVATE).join(LOCK));
        let is_same = |at: &fs::Metadata, open: &fs::Metadata| (at.dev(), at.ino()) == (open.dev(), open.ino());
        matches!((at_path, lock.metadata()), (Ok(at), Ok(open)) if is_same(&at, &open))
    }

    /// Opens the lock, which is no link. Only a new one changes its owner.
    fn open_lock(&self, path: &Path) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).append(true).mode(FILE_MODE).custom_flags(NOFOLLOW);
        match options.clone().create_new(true).open(path) {
            Ok(file) => {
                self.give_to_owner(&file);
                Ok(file)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path),
            Err(error) => Err(error),
        }
    }

    fn remove_unfinished(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.root.join(PRIVATE))? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == PART) {
                if is_folder(&path) { remove_folder(&path)? } else { fs::remove_file(&path)? }
            }
        }
        Ok(())
    }

    /// Creates a folder that may exist.
    pub fn make_folder(&self, path: &Path) -> io::Result<()> {
        match mkdirat(CWD, path, Mode::from_raw_mode(FOLDER_MODE)) {
            Ok(()) => {
                if let Ok(folder) = File::options().read(true).custom_flags(NOFOLLOW).open(path) {
                    self.give_to_owner(&folder);
                }
                Ok(())
            }
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A probe that has dropped its privileges creates files as this user; root gives them to it, and to the owner of a
    /// folder that exists.
    pub fn give_to_owner(&self, file: &File) {
        let of_folder = || fs::symlink_metadata(&self.root).ok().map(|at| (at.uid(), at.gid()));
        if let Some((user, group)) = self.owner.or_else(of_folder)
            && !file.metadata().is_ok_and(|at| (at.uid(), at.gid()) == (user, group))
            && let Err(error) = fchown(file, Some(user), Some(group))
        {
            tracing::debug!(folder = %self.root.display(), %error, "cannot change the owner");
        }
    }

    /// A path for something unfinished.
    pub fn unfinished(&self, name: &str) -> PathBuf {
        self.root.join(PRIVATE).join(format!("{name}.{PART}"))
    }

    /// Writes a file, to the disk, and only then gives it its name in the folder of its hour.
    ///
    /// # Errors
    /// The system refuses it. Nothing is left.
    pub fn add_file(&self, hour: Hour, octets: &[u8], naming: &Mutex<()>) -> io::Result<PathBuf> {
        let unfinished = self.unfinished("file");
        let added = self.write_file(&unfinished, octets).and_then(|()| {
            let _naming = naming.lock();
            self.name_file(hour, &unfinished)
        });
        if added.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        added
    }

    fn write_file(&self, path: &Path, octets: &[u8]) -> io::Result<()> {
        let mut file = create_file(path)?;
        self.give_to_owner(&file);
        file.write_all(octets)?;
        file.sync_all()
    }

    fn name_file(&self, hour: Hour, unfinished: &Path) -> io::Result<PathBuf> {
        let folder = self.root.join(hour.path());
        let day = folder.parent().unwrap_or(&self.root);
        let is_new = !is_folder(&folder);
        if is_new {
            // A link may lead out of the store.
            let is_other = |path: &Path| fs::symlink_metadata(path).is_ok_and(|at| !at.is_dir());
            if is_other(day) || is_other(&folder) {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            self.make_folder(day)?;
            self.make_folder(&folder)?;
        }
        for number in 0..MAX_FILES_OF_A_TIME {
            let path = folder.join(file_name(FRESH, number));
            match renameat_with(CWD, unfinished, CWD, &path, RenameFlags::NOREPLACE) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                // The file system has no such call.
                Err(Errno::INVAL | Errno::NOSYS) if fs::symlink_metadata(&path).is_err() => {
                    renameat_with(CWD, unfinished, CWD, &path, RenameFlags::empty())?;
                }
                Err(Errno::INVAL | Errno::NOSYS) => continue,
                Err(error) => return Err(error.into()),
            }
            sync_folder(&folder);
            if is_new {
                sync_folder(day);
                sync_folder(&self.root);
            }
            return Ok(path);
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// The files of the store.
    ///
    /// # Errors
    /// The folder cannot be read. Folders of days and hours may be removed meanwhile.
    pub fn content(&self) -> io::Result<Content> {
        let mut content = Content::default();
        for (day, day_path) in names(&self.root)?.into_iter().filter(|(name, _)| name != PRIVATE) {
            if Hour::of_names(&day, "hour=00").is_none() || !is_folder(&day_path) {
                content.add_other(&day, day_path);
                continue;
            }
            for (name, hour_path) in content.names_in(&day_path) {
                let Some(hour) = Hour::of_names(&day, &name).filter(|_| is_folder(&hour_path)) else {
                    content.add_other(&name, hour_path);
                    continue;
                };
                for (name, path) in content.names_in(&hour_path) {
                    content.add(hour, &name, path);
                }
            }
        }
        content.files.sort();
        content.strange.sort();
        content.foreign.sort();
        Ok(content)
    }

    /// The files of an hour.
    pub fn files_of(&self, hour: Hour) -> Vec<StoredFile> {
        let mut content = Content::default();
        for (name, path) in content.names_in(&self.root.join(hour.path())) {
            content.add(hour, &name, path);
        }
        content.files.sort();
        content.files
    }
}

/// The names in a folder, with their paths.
fn names(path: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = fs::read_dir(path)?.flatten();
    Ok(entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect())
}

impl Content {
    fn names_in(&mut self, path: &Path) -> Vec<(String, PathBuf)> {
        names(path).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                self.unreadable.push((path.into(), error));
            }
            Vec::new()
        })
    }

    fn add(&mut self, hour: Hour, name: &str, path: PathBuf) {
        let is_ours = name.ends_with(ENDING) && (name.starts_with(FRESH) || name.starts_with(SORTED));
        match fs::symlink_metadata(&path) {
            Ok(file) if is_ours && file.is_file() => {
                self.files.push(StoredFile { hour, path, octets: file.len(), is_sorted: name.starts_with(SORTED) });
            }
            Ok(_) => self.add_other(name, path),
            // It was removed meanwhile.
            Err(_) => {}
        }
    }

    /// Adds what is none of the store.
    fn add_other(&mut self, name: &str, path: PathBuf) {
        let is_of_time = name.starts_with(DAY) || name.starts_with(HOUR);
        let may_have_flows = name.to_ascii_lowercase().ends_with(ENDING) || is_of_time && is_folder(&path);
        if may_have_flows { self.foreign.push(path) } else { self.strange.push(path) }
    }

    /// Octets of all files.
    pub fn octets(&self) -> u64 {
        self.files.iter().map(|file| file.octets).sum()
    }
}

/// Creates a file, or empties it.
pub fn create_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true).mode(FILE_MODE).custom_flags(NOFOLLOW).open(path)
}

/// The name lasts when the folder is on the disk. Some file systems refuse this.
pub fn sync_folder(path: &Path) {
    let _ = File::open(path).and_then(|folder| folder.sync_all());
}

/// Whether there is a folder at a path. A link to one is none: what it leads to is not the store's to remove.
fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|at| at.is_dir())
}

/// Whether a folder has nothing but folders of days, as a store that was copied without hidden files.
fn has_days_only(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if Hour::of_names(&entry.file_name().to_string_lossy(), "hour=00").is_none() || !is_folder(&entry.path()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes a folder and the files in it.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        fs::remove_file(entry?.path())?;
    }
    Ok(unlinkat(CWD, path, AtFlags::REMOVEDIR)?)
}

/// Removes a folder if it is empty.
pub fn remove_empty(path: &Path) {
    let _ = unlinkat(CWD, path, AtFlags::REMOVEDIR);
}

/// A name with the time of now.
pub fn file_name(prefix: &str, number: u32) -> String {
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let time = i64::try_from(micros).ok().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    let time = time.unwrap_or_default().strftime("%Y%m%dT%H%M%S%.6fZ");
    let number = if number == 0 { String::new() } else { format!("-{number}") };
    format!("{prefix}{time}{number}{ENDING}")
}
