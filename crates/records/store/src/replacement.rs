//! A folder that takes the place of the folder of an hour at once.

use crate::folder::{Folder, Hour, SORTED, file_name, remove_folder, sync_folder};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Files that will be those of an hour. What is not finished is removed.
pub struct Replacement {
    hour: PathBuf,
    unfinished: PathBuf,
    files: u32,
    octets: u64,
}

impl Replacement {
    /// An empty folder for the files of an hour.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new(folder: &Folder, hour: Hour) -> io::Result<Self> {
        let unfinished = folder.unfinished("hour");
        // What an earlier one has left must not become part of this hour.
        match fs::symlink_metadata(&unfinished) {
            Ok(at) if at.is_dir() => remove_folder(&unfinished)?,
            Ok(_) => fs::remove_file(&unfinished)?,
            Err(_) => {}
        }
        folder.make_folder(&unfinished)?;
        Ok(Self { hour: folder.path().join(hour.path()), unfinished, files: 0, octets: 0 })
    }

    /// The path of another sorted file.
    pub fn new_file(&mut self) -> PathBuf {
        self.files += 1;
        self.unfinished.join(file_name(SORTED, self.files - 1))
    }

    /// Takes the place of the hour: with the new files, and all of its files but these. Returns the number of new files
    /// and their octets.
    ///
    /// # Errors
    /// The file system has no links or cannot exchange folders. The hour is as it was.
    pub fn finish(mut self, merged: &[PathBuf]) -> io::Result<(usize, u64)> {
        for entry in fs::read_dir(&self.unfinished)? {
            self.octets += entry?.metadata()?.len();
        }
        let merged: HashSet<&PathBuf> = merged.iter().collect();
        for entry in fs::read_dir(&self.hour)? {
            let entry = entry?;
            if !merged.contains(&entry.path()) {
                let named =
                    |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", entry.path().display()));
                fs::hard_link(entry.path(), self.unfinished.join(entry.file_name())).map_err(named)?;
            }
        }
        sync_folder(&self.unfinished);
        renameat_with(CWD, &self.unfinished, CWD, &self.hour, RenameFlags::EXCHANGE)?;
        self.hour.parent().into_iter().for_each(sync_folder);
        self.unfinished.parent().into_iter().for_each(sync_folder);
        Ok((self.files as usize, self.octets))
    }
}

impl Drop for Replacement {
    /// Removes what is not finished; when it is finished, what it has replaced.
    fn drop(&mut self) {
        let _ = remove_folder(&self.unfinished);
    }
}
