//! Reads flow records back, from stores and from single files.
//!
//! Input: files of any version of Weir. Output: records that have the fields of [`FlowReader::known`]. Invariant: all
//! records of a file until it is damaged, in the order of the file.

use crate::error::Error;
use crate::folder::{Content, Folder, Hour, StoredFile};
use crate::reading::{Reader, SharedFile, guarded, reader, reader_of};
use crate::row_group::RowGroup;
use crate::schema::RowForm;
use crate::selection::{GroupBounds, Selection};
use parquet::errors::Result;
use parquet::file::reader::FileReader;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_fields::{Bounds, Column, Restored, columns};
use weir_flow::FlowRecord;

/// A file that cannot be read, or not to its end.
#[derive(Debug)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub error: io::Error,
}

/// Reads the records of some files.
pub struct FlowReader {
    hours: VecDeque<HourFiles>,
    restored: Restored,
    /// The files of the hour that is read, which may be removed or replaced meanwhile.
    open: VecDeque<OpenFile>,
    /// Files of that hour that cannot be opened.
    damaged: Vec<Damage>,
    /// Octets of the files that are read.
    pub done_octets: u64,
    /// Octets of all files.
    pub total_octets: u64,
    selection: Option<Arc<Selection>>,
    /// Row groups are taken from the last one to the first.
    is_backwards: bool,
    /// Records of these files that are not selected.
    pub others: u64,
}

/// What was found before the first record is read.
pub struct Found {
    /// The reader of the records.
    pub reader: FlowReader,
    /// Files and folders that cannot be read.
    pub damaged: Vec<Damage>,
    /// What is none of a store.
    pub strange: Vec<PathBuf>,
    /// What rows of some files are.
    pub form: RowForm,
}

/// Files of an hour of a store, or a single file.
#[derive(Clone)]
pub(crate) struct HourFiles {
    pub hour: Option<(Folder, Hour)>,
    pub files: Vec<PathBuf>,
}

/// Where the reading of row groups began.
pub(crate) struct Start(VecDeque<HourFiles>);

/// A row group of a file.
pub(crate) struct Group {
    pub reader: Arc<Reader>,
    /// The same file, for Bloom filters.
    file: SharedFile,
    /// The number of the row group.
    pub at: usize,
}

impl Group {
    /// What the index of the file says of it.
    pub fn bounds(&self) -> GroupBounds<'_> {
        GroupBounds { group: self.reader.metadata().row_group(self.at), file: &self.file }
    }

    pub fn rows(&self) -> u64 {
        u64::try_from(self.reader.metadata().row_group(self.at).num_rows()).unwrap_or_default()
    }
}

struct OpenFile {
    path: PathBuf,
    octets: u64,
    reader: Arc<Reader>,
    /// The same file, for Bloom filters.
    file: SharedFile,
    next_group: usize,
    group: Option<RowGroup>,
}

impl FlowReader {
    /// Finds the files of stores and single files, and the columns that all of them have. Hours of stores in which no
    /// flow starts at these times (ns since 1970 UTC) are not read.
    ///
    /// # Errors
    /// A path cannot be read or is no store, or the files lack a column without which a record is no flow.
    pub fn open(paths: &[PathBuf], starts_ns: Option<RangeInclusive<u64>>) -> std::result::Result<Found, Error> {
        let (mut damaged, mut strange) = (Vec::new(), Vec::new());
        let mut hours = VecDeque::new();
        for path in paths {
            hours.extend(hours_of(path, starts_ns.as_ref(), &mut damaged, &mut strange)?);
        }
        let (mut stored, mut form, mut total_octets): (Option<Vec<&'static Column>>, _, _) =
            (None, RowForm::default(), 0);
        for HourFiles { hour, files } in &mut hours {
            files.retain(|path| match columns_of(path) {
                Ok((columns, of_file)) => {
                    form.is_uniflow |= of_file.is_uniflow;
                    form.is_anonymised |= of_file.is_anonymised;
                    form.is_transactions |= of_file.is_transactions;
                    match &mut stored {
                        Some(stored) => stored.retain(|column| columns.contains(column)),
                        None => stored = Some(columns),
                    }
                    total_octets += fs::metadata(path).map_or(0, |file| file.len());
                    true
                }
                // It was removed or replaced, and the hour is read again later.
                Err(error) if hour.is_some() && error.kind() == io::ErrorKind::NotFound => true,
                Err(error) => {
                    damaged.push(Damage { path: path.clone(), error });
                    false
                }
            });
        }
        let stored = stored.unwrap_or_else(|| columns().iter().collect());
        let restored = Restored::of(&stored, form.is_uniflow).map_err(|column| {
            let lacks = |path: &&PathBuf| columns_of(path).is_ok_and(|(of, _)| of.iter().all(|of| of.name != column));
            let path = hours.iter().flat_map(|hour| &hour.files).find(lacks).unwrap_or(&paths[0]).clone();
            Error::NoFlows { path, column }
        })?;
        let (open, done_octets) = (VecDeque::new(), 0);
        let reader = Self {
            hours,
            restored,
            open,
            damaged: Vec::new(),
            done_octets,
            total_octets,
            selection: None,
            is_backwards: false,
            others: 0,
        };
        Ok(Found { reader, damaged, strange, form })
    }

    /// The fields that the records have.
    pub fn known(&self) -> &[&'static Column] {
        self.restored.known()
    }

    /// From now on records have these fields only, and those of every record.
    pub fn keep_only(&mut self, fields: &[&'static Column]) {
        self.restored.keep_only(fields);
    }

    /// From now on records have no octets of frames, unless these decide about them, or in these fields.
    pub fn leave_out_frames(&mut self, except: &[&'static Column]) {
        let deciding = self.selection.as_ref().map_or(&[][..], |selection| &selection.columns);
        let used: Vec<_> = deciding.iter().copied().chain(self.restored.sources(except)).collect();
        self.restored.leave_out_frames(&used);
    }

    /// From now on these records only are read: those that `matches` selects by some fields. `may_match` says whether
    /// some of many records may be selected.
    pub fn select(
        &mut self,
        fields: &[&'static Column],
        matches: impl Fn(&FlowRecord) -> bool + Send + Sync + 'static,
        may_match: impl Fn(&dyn Bounds) -> bool + Send + Sync + 'static,
    ) {
        let columns = self.columns_for(fields);
        let (matches, may_match) = (Box::new(matches), Box::new(may_match));
        self.selection = Some(Arc::new(Selection { columns, matches, is_wanted: None, may_match }));
    }

    /// The stored columns of records that have these fields, to decide about other records.
    pub(crate) fn columns_for(&self, fields: &[&'static Column]) -> Vec<&'static Column> {
        let mut restored = self.restored.clone();
        restored.keep_only_deciding(fields);
        restored.columns().to_vec()
    }

    /// Which records are read, and what of them.
    pub(crate) fn plan(&self) -> (Restored, Option<Arc<Selection>>) {
        (self.restored.clone(), self.selection.clone())
    }

    /// Appends records, up to a number of them. Returns whether there are more.
    ///
    /// # Errors
    /// A file is damaged. The next call goes on with the next file.
    pub fn read(&mut self, records: &mut Vec<FlowRecord>, most: usize) -> std::result::Result<bool, Damage> {
        if self.open.is_empty() && self.damaged.is_empty() {
            let Some(hour) = self.hours.pop_front() else { return Ok(false) };
            self.open_hour(hour);
        }
        if let Some(damage) = self.damaged.pop() {
            return Err(damage);
        }
        let Some(mut file) = self.open.pop_front() else { return Ok(true) };
        let before = records.len();
        match guarded(|| file.read(&self.restored, self.selection.as_deref(), records, most)) {
            Ok(Some(others)) => {
                self.others += others;
                self.open.push_front(file);
            }
            Ok(None) => self.done_octets += file.octets,
            Err(error) => {
                records.truncate(before);
                self.done_octets += file.octets;
                return Err(Damage { path: file.path, error });
            }
        }
        Ok(true)
    }

    /// Row groups are taken from here on by [`Self::next_group`], and all of them may be read again after
    /// [`Self::restart`].
    pub(crate) fn start(&self) -> Start {
        Start(self.hours.clone())
    }

    /// As if nothing had been read.
    pub(crate) fn restart(&mut self, Start(hours): Start) {
        (self.hours, self.is_backwards) = (hours, false);
        self.open.clear();
        self.damaged.clear();
        (self.done_octets, self.others) = (0, 0);
    }

    /// From now on, [`Self::next_group`] takes row groups from the last one to the first. Nothing is read yet.
    pub(crate) fn turn_back(&mut self) {
        self.is_backwards = true;
        self.hours = std::mem::take(&mut self.hours).into_iter().rev().collect();
    }

    /// The next row group of which records may be selected; `None` at the end.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub(crate) fn next_group(&mut self) -> std::result::Result<Option<Group>, Damage> {
        loop {
            let Some(file) = self.open.front_mut() else {
                let Some(hour) = self.hours.pop_front() else { return Ok(None) };
                self.open_hour(hour);
                if self.is_backwards {
                    self.open.make_contiguous().reverse();
                }
                match self.damaged.pop() {
                    Some(damage) => return Err(damage),
                    None => continue,
                }
            };
            if file.next_group == file.reader.num_row_groups() {
                self.done_octets += file.octets;
                self.open.pop_front();
                continue;
            }
            let at =
                if self.is_backwards { file.reader.num_row_groups() - 1 - file.next_group } else { file.next_group };
            file.next_group += 1;
            let group = Group { reader: file.reader.clone(), file: file.file.clone(), at };
            if self.selection.as_ref().is_none_or(|selection| (selection.may_match)(&group.bounds())) {
                return Ok(Some(group));
            }
            self.others += group.rows();
        }
    }

    /// The columns whose values are read from the files, in the order in which they are, and of these the ones that decide
    /// about a record.
    pub fn columns(&self) -> (&[&'static Column], &[&'static Column]) {
        (self.restored.columns(), self.selection.as_ref().map_or(&[][..], |selection| &selection.columns))
    }

    /// The stored columns that these fields are computed from.
    pub fn sources(&self, fields: &[&'static Column]) -> Vec<&'static Column> {
        self.restored.sources(fields)
    }

    /// Opens all files of an hour, so that it is as at one moment: sorted files replace others, with the same records.
    fn open_hour(&mut self, HourFiles { hour, mut files }: HourFiles) {
        /// An hour is seldom replaced, so that even a second attempt finds the same files.
        const ATTEMPTS: usize = 20;
        for attempt in 1..=ATTEMPTS {
            self.open.clear();
            self.damaged.clear();
            let (may_be_replaced, mut is_replaced) = (hour.is_some() && attempt < ATTEMPTS, false);
            for path in &files {
                match guarded(|| OpenFile::new(path)) {
                    Ok(file) => self.open.push_back(file),
                    Err(error) if may_be_replaced && error.kind() == io::ErrorKind::NotFound => is_replaced = true,
                    Err(error) => self.damaged.push(Damage { path: path.clone(), error }),
                }
            }
            let Some((folder, hour)) = hour.as_ref().filter(|_| is_replaced) else { return };
            files = folder.files_of(*hour).into_iter().map(|file| file.path).collect();
        }
    }
}

impl OpenFile {
    fn new(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let octets = file.metadata()?.len();
        let file = SharedFile::from(file);
        let reader = Arc::new(reader_of(&file)?);
        Ok(Self { path: path.into(), octets, reader, file, next_group: 0, group: None })
    }

    /// Returns the number of records that are not selected; `None` at the end of the file.
    fn read(
        &mut self,
        restored: &Restored,
        selection: Option<&Selection>,
        records: &mut Vec<FlowRecord>,
        most: usize,
    ) -> Result<Option<u64>> {
        if let Some(group) = self.group.as_mut().filter(|group| !group.is_read()) {
            return group.read(selection, records, most).map(|others| Some(others as u64));
        }
        self.group = None;
        if self.next_group == self.reader.num_row_groups() {
            return Ok(None);
        }
        let group = self.reader.get_row_group(self.next_group)?;
        self.next_group += 1;
        let bounds = GroupBounds { group: group.metadata(), file: &self.file };
        if selection.is_some_and(|selection| !(selection.may_match)(&bounds)) {
            return Ok(Some(u64::try_from(group.metadata().num_rows()).unwrap_or_default()));
        }
        self.group = Some(RowGroup::open(&*group, restored, selection)?);
        Ok(Some(0))
    }
}

/// The files at a path, the oldest hour first.
pub(crate) fn hours_of(
    path: &Path,
    starts_ns: Option<&RangeInclusive<u64>>,
    damaged: &mut Vec<Damage>,
    strange: &mut Vec<PathBuf>,
) -> std::result::Result<Vec<HourFiles>, Error> {
    let failed = |error| Error::Io { path: path.into(), error };
    let kind = fs::metadata(path).map_err(failed)?;
    if !kind.is_dir() {
        let is_file = kind.is_file();
        return if is_file {
            Ok(vec![HourFiles { hour: None, files: vec![path.into()] }])
        } else {
            Err(Error::NoFile(path.into()))
        };
    }
    let folder = Folder::new(path, None);
    folder.check_content()?;
    let content = folder.content().map_err(failed)?;
    damaged.extend(of_others(&content));
    strange.extend(content.strange);
    damaged.extend(content.unreadable.into_iter().map(|(path, error)| Damage { path, error }));
    let hours = content.files.chunk_by(|a, b| a.hour == b.hour);
    let is_wanted = |files: &&[StoredFile]| {
        let hour = files[0].hour;
        starts_ns.is_none_or(|of| hour.start_ns() <= *of.end() && hour.end_ns() >= *of.start())
    };
    let of_hour = |files: &[StoredFile]| HourFiles {
        hour: Some((folder.clone(), files[0].hour)),
        files: files.iter().map(|file| file.path.clone()).collect(),
    };
    Ok(hours.filter(is_wanted).map(of_hour).collect())
}

/// What a store has of other programs, as one damage: its flows are left out.
fn of_others(content: &Content) -> Option<Damage> {
    let [path, others @ ..] = content.foreign.as_slice() else { return None };
    let error = match others.len() {
        0 => "this is none of the store, and its flows are left out".into(),
        others => format!("this and {others} more are none of the store, and their flows are left out"),
    };
    Some(Damage { path: path.clone(), error: io::Error::other(error) })
}

/// The columns of a file that are fields of Weir, and what its rows are.
///
/// # Errors
/// The file cannot be opened, or its end is damaged.
pub fn columns_of(path: &Path) -> io::Result<(Vec<&'static Column>, RowForm)> {
    let reader = guarded(|| reader(path))?;
    let metadata = reader.metadata().file_metadata();
    let schema = metadata.schema_descr_ptr();
    let has = |column: &&Column| schema.columns().iter().any(|of| of.name() == column.name);
    Ok((columns().iter().filter(has).collect(), RowForm::of(metadata)))
}
