//! Reads stored flows: stores and Parquet files first, then IPFIX files, then files of nfdump.

use crate::error::{Error, StoreError};
use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use tracing::warn;
use weir_capture::SourceSpec;
use weir_fields::{Bounds, Column, Field, start_time};
use weir_flow::FlowRecord;
use weir_ipfix_file::{FileReader, Found, IpfixReader, Problem, Source, What};
use weir_nfdump_file::NfdumpReader;
use weir_query::Expression;
use weir_store::{Damage, FlowReader, RowForm};

/// The ending of a single Parquet file.
const PARQUET: &str = "parquet";
/// The endings of an IPFIX file, also with one of [`COMPRESSED`] behind it.
const IPFIX: [&str; 2] = ["ipfix", "fix"];
const COMPRESSED: [&str; 2] = ["gz", "zst"];

/// Where stored flows are.
#[derive(Debug, Default)]
pub struct StoredPaths {
    /// Folders of stores, and Parquet files.
    parquet: Vec<PathBuf>,
    ipfix: Vec<PathBuf>,
    nfdump: Vec<PathBuf>,
}

impl StoredPaths {
    /// Adds a source of stored flows: a folder, a file with the ending of one, a file that begins as those of nfdump,
    /// or a path behind `parquet:`, `ipfix:` or `nfdump:`. Returns whether it is one.
    pub fn add(&mut self, source: &SourceSpec) -> bool {
        let SourceSpec::Capture(path) = source else { return false };
        let named =
            |scheme: &str| path.to_str().and_then(|path| path.strip_prefix(scheme)).filter(|path| !path.is_empty());
        if let Some(path) = named("parquet:") {
            self.parquet.push(path.into());
        } else if let Some(path) = named("ipfix:") {
            self.ipfix.push(path.into());
        } else if let Some(path) = named("nfdump:") {
            self.nfdump.push(path.into());
        } else if path.is_dir() || path.extension().is_some_and(|end| end == PARQUET) {
            self.parquet.push(path.clone());
        } else if is_ipfix(path) {
            self.ipfix.push(path.clone());
        } else if is_nfdump(path) {
            self.nfdump.push(path.clone());
        } else {
            return false;
        }
        true
    }

    /// Takes the stores and Parquet files out.
    pub fn take_parquet(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.parquet)
    }

    /// All paths.
    pub fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.parquet.iter().chain(&self.ipfix).chain(&self.nfdump)
    }
}

fn is_ipfix(path: &Path) -> bool {
    let ends =
        |path: &Path, endings: [&str; 2]| path.extension().is_some_and(|end| endings.iter().any(|of| end == *of));
    ends(path, IPFIX) || ends(path, COMPRESSED) && path.file_stem().is_some_and(|stem| ends(stem.as_ref(), IPFIX))
}

/// Whether it is a file of nfdump: their names say little.
pub fn is_nfdump(path: &Path) -> bool {
    // To open a pipe would wait for its writer.
    let starts = |mut file: File| {
        let mut start = [0; 2];
        file.read_exact(&mut start).is_ok() && start == weir_nfdump_file::MAGIC
    };
    path.is_file() && File::open(path).is_ok_and(starts)
}

/// Reads the records of all paths.
pub struct StoredReader {
    parquet: FlowReader,
    ipfix: IpfixReader,
    nfdump: NfdumpReader,
    is_only_parquet: bool,
    is_parquet_read: bool,
    starts_ns: Option<RangeInclusive<u64>>,
    condition: Option<Expression>,
    /// Records of IPFIX and nfdump's files that are not selected.
    others: u64,
    known: Vec<&'static Column>,
    /// What is wrong with files and folders, found before the first record.
    pub problems: Vec<StoredProblem>,
    /// What the records of some files are.
    pub form: RowForm,
}

/// What is wrong with a file or a folder.
pub enum StoredProblem {
    /// The rest of it cannot be read.
    Ended(PathBuf, io::Error),
    /// Some of its records are left out.
    LeftOut(PathBuf, String),
}

impl From<Damage> for StoredProblem {
    fn from(Damage { path, error }: Damage) -> Self {
        Self::Ended(path, error)
    }
}

impl From<Problem> for StoredProblem {
    fn from(Problem { path, what }: Problem) -> Self {
        match what {
            What::Ended(error) => Self::Ended(path, io::Error::other(error)),
            What::LeftOut(records) => Self::LeftOut(path, records),
        }
    }
}

impl StoredProblem {
    /// What is wrong, with the path.
    pub fn text(&self) -> String {
        match self {
            Self::Ended(path, error) => format!("{}: {error}", path.display()),
            Self::LeftOut(path, records) => format!("{}: left out: {records}", path.display()),
        }
    }

    /// Logs it.
    pub fn log(&self) {
        match self {
            Self::Ended(path, error) => {
                warn!(path = %path.display(), %error, "this cannot be read, or not to its end; what cannot be read is left out");
            }
            Self::LeftOut(path, records) => {
                warn!(path = %path.display(), "left out, because they cannot be read as flows: {records}");
            }
        }
    }
}

/// Files of Parquet, the condition by which their flows are selected, and the times of their starts.
type ParquetReader<'a> = (&'a mut FlowReader, Option<&'a Expression>, Option<RangeInclusive<u64>>);

impl StoredReader {
    /// Finds the files, and the fields that all of them have. Flows that start at other times are not read.
    pub fn open(paths: &StoredPaths, starts_ns: Option<RangeInclusive<u64>>) -> Result<Self, Error> {
        let found = FlowReader::open(&paths.parquet, starts_ns.clone()).map_err(StoreError::from)?;
        if let Some(path) = found.strange.first() {
            let (others, path) = (found.strange.len() - 1, path.display());
            warn!(%path, others, "there is something in the store that is none of it, which is left out");
        }
        let (ipfix, is_ipfix_uniflow) = open(&paths.ipfix, starts_ns.clone())?;
        let (nfdump, is_nfdump_uniflow) = open(&paths.nfdump, starts_ns.clone())?;
        let parquet = found.reader;
        let is_known = |column: &&Column| ipfix.known().contains(column) && nfdump.known().contains(column);
        let known = parquet.known().iter().copied().filter(is_known).collect();
        let is_uniflow = found.form.is_uniflow || is_ipfix_uniflow || is_nfdump_uniflow;
        Ok(Self {
            parquet,
            ipfix,
            nfdump,
            is_only_parquet: paths.ipfix.is_empty() && paths.nfdump.is_empty(),
            is_parquet_read: false,
            starts_ns,
            condition: None,
            others: 0,
            known,
            problems: found.damaged.into_iter().map(Into::into).collect(),
            form: RowForm { is_uniflow, ..found.form },
        })
    }

    /// The fields that the records have.
    pub fn known(&self) -> &[&'static Column] {
        &self.known
    }

    /// From now on only records are read that match, if there is a condition. Its fields are known.
    pub fn select(&mut self, condition: Option<&Expression>) {
        self.condition = condition.cloned();
        select(&mut self.parquet, self.starts_ns.clone(), condition);
    }

    /// Records that were found and are not selected, up to now.
    pub fn others(&self) -> u64 {
        self.parquet.others + self.others
    }

    /// From now on records have these fields only, and those of every record.
    pub fn keep_only(&mut self, fields: &[&'static Column]) {
        self.parquet.keep_only(fields);
        self.ipfix.keep_only(fields);
        self.nfdump.keep_only(fields);
    }

    /// Appends records, up to a number of them. Returns whether there may be more.
    ///
    /// # Errors
    /// Something is wrong with a file. The next call goes on.
    pub fn read(&mut self, records: &mut Vec<FlowRecord>, most: usize) -> Result<bool, StoredProblem> {
        if !self.is_parquet_read {
            self.is_parquet_read = !self.parquet.read(records, most)?;
            return Ok(true);
        }
        let before = records.len();
        let is_more = self.ipfix.read(records, most)? || self.nfdump.read(records, most)?;
        if let Some(condition) = &self.condition {
            let found = records.split_off(before);
            self.others += found.len() as u64;
            records.extend(found.into_iter().filter(|record| condition.matches(record)));
            self.others -= (records.len() - before) as u64;
        }
        Ok(is_more)
    }

    /// The reader of Parquet files, if there are no others; and what it selects.
    pub fn only_parquet(&mut self) -> Option<ParquetReader<'_>> {
        self.is_only_parquet.then_some((&mut self.parquet, self.condition.as_ref(), self.starts_ns.clone()))
    }

    /// Octets of the files that are read.
    pub fn done_octets(&self) -> u64 {
        self.parquet.done_octets + self.ipfix.done_octets + self.nfdump.done_octets
    }

    /// Octets of all files.
    pub fn total_octets(&self) -> u64 {
        self.parquet.total_octets + self.ipfix.total_octets + self.nfdump.total_octets
    }
}

/// The reader of files, and whether some records are directions of flows.
fn open<S: Source>(
    paths: &[PathBuf],
    starts_ns: Option<RangeInclusive<u64>>,
) -> Result<(FileReader<S>, bool), StoreError> {
    let Found { reader, invalid, has_directions } = FileReader::open(paths, starts_ns)?;
    if !invalid.is_empty() {
        let fields = invalid.iter().map(|column| column.name).collect::<Vec<_>>().join(",");
        warn!(fields, "some records have no valid value of these fields, so they are not known");
    }
    Ok((reader, has_directions))
}

/// From now on records of stores are read only if they start at these times, ns since 1970 UTC, and match the condition,
/// whose fields are known.
pub fn select(reader: &mut FlowReader, starts_ns: Option<RangeInclusive<u64>>, condition: Option<&Expression>) {
    if condition.is_none() && starts_ns.is_none() {
        return;
    }
    let names = condition.map(Expression::fields).unwrap_or_default();
    let mut fields: Vec<_> = names.into_iter().filter_map(weir_fields::field).flat_map(Field::columns).collect();
    fields.push(start_time());
    let (starts, condition) = (starts_ns, condition.cloned());
    let (group_starts, of_group) = (starts.clone(), condition.clone());
    let matches = move |flow: &FlowRecord| {
        starts.as_ref().is_none_or(|starts| starts.contains(&flow.start_ns()))
            && condition.as_ref().is_none_or(|condition| condition.matches(flow))
    };
    let may_match = move |bounds: &dyn Bounds| {
        let times = bounds.numbers(start_time());
        let is_of_time = |starts: &RangeInclusive<u64>, times: RangeInclusive<u64>| {
            starts.start() <= times.end() && times.start() <= starts.end()
        };
        group_starts.as_ref().zip(times).is_none_or(|(starts, times)| is_of_time(starts, times))
            && of_group.as_ref().is_none_or(|condition| condition.may_match(bounds))
    };
    reader.select(&fields, matches, may_match);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_files_have_flows() {
        let kind = |name: &str| {
            let mut paths = StoredPaths::default();
            let is_stored = paths.add(&SourceSpec::Capture(name.into()));
            assert_eq!(is_stored, paths.all().count() == 1, "{name}");
            (paths.parquet.len(), paths.ipfix.len())
        };
        for name in ["a.ipfix", "b.fix", "c.ipfix.gz", "d.fix.zst", "ipfix:e"] {
            assert_eq!(kind(name), (0, 1), "{name}");
        }
        for name in ["a.pcap", "b.gz", "ipfix", "ipfix:", "c.pcap.zst", "d.ipfix.xz"] {
            assert_eq!(kind(name), (0, 0), "{name}");
        }
        assert_eq!((kind("a.parquet"), kind("parquet:b")), ((1, 0), (1, 0)));
        let file = tempfile::NamedTempFile::new().unwrap();
        for (start, is_nfdump) in [(&weir_nfdump_file::MAGIC[..], true), (b"\xa5\x0c", false), (b"\x0c", false)] {
            std::fs::write(file.path(), start).unwrap();
            let mut paths = StoredPaths::default();
            assert_eq!(paths.add(&SourceSpec::Capture(file.path().into())), is_nfdump);
            assert_eq!(paths.nfdump.len(), usize::from(is_nfdump));
        }
        let mut paths = StoredPaths::default();
        assert!(paths.add(&SourceSpec::Capture("nfdump:a".into())) && paths.nfdump == [PathBuf::from("a")]);
    }
}
