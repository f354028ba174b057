//! The folder of a spool: its names, files without links, the lock.

use crate::error::Error;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, mkdirat, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};

const LOCK: &str = "lock";
pub const IDENTITY: &str = "spool";
pub const ACKS: &str = "acks";
pub const ACKS_COPY: &str = "acks.copy";
/// Ending of files that are not finished.
const PART: &str = ".part";
const SEGMENT: &str = ".seg";
/// User and group may read: files 0640, folders 0750.
const FILE_MODE: Mode = Mode::from_raw_mode(0o640);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o750);

/// The file in the folder of a spool that its one writer has locked.
pub fn lock_of(spool: &Path) -> PathBuf {
    spool.join(LOCK)
}

/// The name of a segment.
pub fn segment_name(number: u32) -> String {
    format!("{number:08}{SEGMENT}")
}

/// What is in a folder.
#[derive(Debug, Default)]
pub struct Content {
    /// Numbers of the segments, ascending.
    pub segments: Vec<u32>,
    pub has_identity: bool,
    pub has_acks: bool,
    pub has_acks_copy: bool,
    /// A name that no spool has.
    pub foreign: Option<String>,
}

/// An open folder. Its files are found in it even if it is renamed.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    folder: File,
    /// User and group of new files.
    owner: Option<(u32, u32)>,
    /// Octets that can still be written, for tests of a full disk.
    #[cfg(test)]
    pub space: std::rc::Rc<std::cell::Cell<Option<u64>>>,
}

impl Folder {
    /// Opens a folder; creates it if its parent exists.
    pub fn open(path: &Path, owner: Option<(u32, u32)>) -> Result<Self, Error> {
        let io_error = |error: Errno| Error::Io { path: path.into(), error: error.into() };
        let is_new = match mkdirat(CWD, path, FOLDER_MODE) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(io_error(error)),
        };
        let folder = Self::of(path, owner)?;
        if is_new {
            folder.give_to_owner(&folder.folder);
        }
        Ok(folder)
    }

    /// Opens a folder that exists.
    pub fn of(path: &Path, owner: Option<(u32, u32)>) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder: File = match openat(CWD, path, flags, Mode::empty()) {
            Ok(folder) => folder.into(),
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(Error::NoFolder(path.into())),
            Err(error) => return Err(Error::Io { path: path.into(), error: error.into() }),
        };
        Ok(Self {
            path: path.into(),
            folder,
            owner,
            #[cfg(test)]
            space: std::rc::Rc::default(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error with the path of a file in the folder.
    pub fn error(&self, name: &str, error: io::Error) -> Error {
        Error::Io { path: self.path.join(name), error }
    }

    pub fn content(&self) -> Result<Content, Error> {
        let failed = |error: Errno| Error::Io { path: self.path.clone(), error: error.into() };
        let mut content = Content::default();
        for entry in rustix::fs::Dir::read_from(&self.folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            match name.as_str() {
                "." | ".." | LOCK => {}
                IDENTITY => content.has_identity = true,
                ACKS => content.has_acks = true,
                ACKS_COPY => content.has_acks_copy = true,
                name if name.strip_suffix(PART).is_some_and(|name| [IDENTITY, ACKS, ACKS_COPY].contains(&name)) => {}
                _ => match number_of(&name) {
                    Some(number) => content.segments.push(number),
                    None => content.foreign = Some(name),
                },
            }
        }
        content.segments.sort_unstable();
        Ok(content)
    }

    /// The lock of the one writer, held until the file is closed.
    pub fn lock(&self) -> Result<File, Error> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = self.open_file(LOCK, flags).map_err(|error| self.error(LOCK, error))?;
        if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::WOULDBLOCK {
                return Err(self.error(LOCK, error.into()));
            }
            let mut holder = String::new();
            let is_known = (&file).take(20).read_to_string(&mut holder).is_ok();
            let holder = holder.trim().parse::<u32>().ok().filter(|_| is_known);
            let holder = holder.map_or("unknown".into(), |pid| pid.to_string());
            return Err(Error::Locked { folder: self.path.clone(), holder });
        }
        self.give_to_owner(&file);
        // Without space on the disk, the process is not named.
        let _ = file.set_len(0).and_then(|()| file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0));
        Ok(file)
    }

    /// Whether another process holds the lock: an error with its id.
    pub fn check_lock(&self) -> Result<(), Error> {
        match self.open_file(LOCK, OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC) {
            Ok(file) => match flock(&file, FlockOperation::NonBlockingLockShared) {
                Err(Errno::WOULDBLOCK) => self.lock().map(drop),
                _ => Ok(()),
            },
            Err(_) => Ok(()),
        }
    }

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.folder, name, flags, FILE_MODE)?.into())
    }

    pub fn read(&self, name: &str) -> io::Result<File> {
        let file = self.open_file(name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no regular file"));
        }
        Ok(file)
    }

    pub fn read_write(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC)
    }

    /// A new file. Its name is on the disk.
    pub fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = self.open_file(name, flags)?;
        self.give_to_owner(&file);
        self.sync()?;
        Ok(file)
    }

    /// Replaces a file as a whole: the old or the new one is on the disk, never a part.
    pub fn replace(&self, name: &str, octets: &[u8]) -> io::Result<File> {
        let part = format!("{name}{PART}");
        self.delete(&part)?;
        let file = self.create(&part)?;
        if let Err(error) = self.write_at(&file, octets, 0).and_then(|()| file.sync_all()) {
            self.delete(&part)?;
            return Err(error);
        }
        renameat_with(&self.folder, part.as_str(), &self.folder, name, RenameFlags::empty())?;
        self.sync()?;
        Ok(file)
    }

    /// Deletes a file, which may be missing. [`Folder::sync`] makes it last.
    pub fn delete(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a file a name that no other has. [`Folder::sync`] makes it last.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat_with(&self.folder, from, &self.folder, to, RenameFlags::NOREPLACE)?)
    }

    pub fn sync(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    pub fn write_at(&self, file: &File, octets: &[u8], offset: u64) -> io::Result<()> {
        #[cfg(test)]
        if let Some(space) = self.space.get() {
            let fits = (octets.len() as u64).min(space);
            self.space.set(Some(space - fits));
            file.write_all_at(&octets[..fits as usize], offset)?;
            return if fits < octets.len() as u64 { Err(Errno::NOSPC.into()) } else { Ok(()) };
        }
        file.write_all_at(octets, offset)
    }

    /// A probe that has dropped its privileges works as this user; root gives its files to it, or to the owner of
    /// the folder.
    fn give_to_owner(&self, file: &File) {
        let of_folder = || self.folder.metadata().ok().map(|folder| (folder.uid(), folder.gid()));
        if let Some((user, group)) = self.owner.or_else(of_folder)
            && rustix::process::geteuid().is_root()
        {
            // A folder that does not permit this is found out when the privileges are gone.
            let _ = fchown(file, Some(user), Some(group));
        }
    }
}

fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(SEGMENT)?;
    let number = digits.parse().ok().filter(|_| digits.len() >= 8)?;
    (segment_name(number) == name).then_some(number)
}
