//! `parquet:FOLDER`: a store, which is a folder of Parquet files (crate `store`). `parquet:FILE.parquet`: one file.

use super::file::{FIELDS, SinkFile};
use super::row_sink::{RowSink, RowWriter, row_form};
use super::{Destination, SinkKind, SinkSetting, WHERE, split};
use crate::compression::Compression;
use crate::rotation::RotationSettings;
use crate::sink::{Error, ExportOptions, FileMode, InvalidSink, InvalidSpec, Owner, Sink, UnusableFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weir_fields::{Column, select_columns};
use weir_ledger::SinkCounters;
use weir_store::{Folder, Keep, Row, Settings, SingleFile, Writer};
use weir_text::units::parse_duration;

const KEEP: SinkSetting = SinkSetting {
    name: "keep",
    value: "30d,200G",
    default: "",
    effect: "remove flows of an hour this long after it, and the oldest if there are more octets; all stay without it",
};
const INTERVAL: SinkSetting = SinkSetting {
    name: "interval",
    value: "1m",
    default: "1m",
    effect: "write records at the latest after this time; a crash loses as much",
};
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
/// Shortest interval: each file costs a sync, and has a footer.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(3600);

/// The end of the name of a single file.
const ENDING: &str = "parquet";

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "parquet",
    place: ":FOLDER",
    writes: "a store: a folder of Parquet files",
    example: "parquet:flows?keep=30d,200G",
    settings: &[FIELDS, KEEP, INTERVAL, WHERE],
    endings: &[ENDING],
    view: None,
    parse: |text| match text.split('?').next().and_then(|path| path.rsplit_once('.')) {
        Some((_, ENDING)) => Ok(Arc::new(ParquetFile::parse(text)?)),
        _ => Ok(Arc::new(Store::parse(text)?)),
    },
};

#[derive(Debug)]
struct Store {
    folder: PathBuf,
    columns: Option<Vec<&'static Column>>,
    keep: Keep,
    interval: Duration,
}

impl Store {
    fn parse(text: &str) -> Result<Self, InvalidSink> {
        let (folder, settings) = split(text);
        let mut store =
            Self { folder: folder.into(), columns: None, keep: Keep::default(), interval: DEFAULT_INTERVAL };
        match folder {
            "" => return Err(InvalidSink::Syntax("the folder is missing")),
            _ if Compression::of(folder).is_some() => {
                return Err(InvalidSink::Syntax(
                    "Parquet files are compressed inside; name a folder, or a file that ends with .parquet",
                ));
            }
            "-" => return Err(InvalidSink::Syntax("a store is a folder, not standard output; use csv:- or json:-")),
            _ => {}
        }
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some(("fields", selection)) => store.columns = Some(select_columns(selection)?),
                Some(("keep", limits)) => store.keep = limits.parse()?,
                Some(("interval", time)) => store.interval = parse_interval(time)?,
                _ => return Err(InvalidSink::StoreSetting(setting.into())),
            }
        }
        Ok(store)
    }

    fn settings(&self, options: &ExportOptions) -> Settings {
        let attempts = options.attempts;
        let runs_on = options.file_mode == FileMode::Append;
        Settings {
            columns: self.columns.clone().unwrap_or_else(|| options.stored_columns.clone()),
            rows: row_form(options),
            interval: self.interval,
            keep: self.keep,
            compacts: runs_on,
            upkeep: options.store_upkeep,
            retry: runs_on.then_some([attempts.retry, attempts.log]),
        }
    }
}

fn parse_interval(text: &str) -> Result<Duration, InvalidSink> {
    let time = parse_duration(text).ok().map(Duration::from_nanos);
    time.filter(|time| (MIN_INTERVAL..=MAX_INTERVAL).contains(time)).ok_or_else(|| InvalidSink::Interval(text.into()))
}

impl Destination for Store {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let owner = options.file_owner.map(|Owner { user, group }| (user, group));
        let folder = Folder::new(&self.folder, owner);
        let writer = Writer::open(name, folder, self.settings(options)).map_err(|error| failed(name, error))?;
        Ok(Box::new(RowSink::new(options, writer)))
    }

    fn check(&self, name: &str, _: &ExportOptions) -> Result<(), Error> {
        Folder::new(&self.folder, None).check().map_err(|error| failed(name, error))
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn memory_bytes(&self, stored_columns: &[&'static Column], runs_on: bool) -> u64 {
        let columns = self.columns.as_deref().unwrap_or(stored_columns);
        weir_store::memory_bytes(columns.len(), runs_on)
    }

    fn columns(&self) -> Option<&[&'static Column]> {
        self.columns.as_deref()
    }
}

/// One Parquet file, for `weir read`.
#[derive(Debug)]
struct ParquetFile {
    file: SinkFile,
    columns: Option<Vec<&'static Column>>,
}

impl ParquetFile {
    fn parse(text: &str) -> Result<Self, InvalidSink> {
        let (file, fields) = SinkFile::parse_named("parquet", text)?;
        if file.rotation != RotationSettings::default() {
            return Err(InvalidSink::Syntax(
                "a Parquet file is not rotated; use parquet:FOLDER, which has a folder for each hour",
            ));
        }
        Ok(Self { file, columns: fields.map(select_columns).transpose()? })
    }

    /// A probe runs on, and the file would have its name at the end.
    fn of_a_probe(name: &str) -> Error {
        let invalid = InvalidSink::Syntax("a probe writes a store: use parquet:FOLDER (a name without .parquet)");
        InvalidSpec { spec: name.into(), invalid }.into()
    }
}

impl Destination for ParquetFile {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        if options.file_mode == FileMode::Append {
            return Err(Self::of_a_probe(name));
        }
        let columns = self.columns.as_ref().unwrap_or(&options.stored_columns);
        let replaces = options.file_mode == FileMode::Overwrite;
        let writer = SingleFile::create(name, self.file.path.as_ref(), columns, row_form(options), replaces);
        let writer = writer.map_err(|error| failed(name, error))?;
        Ok(Box::new(RowSink::new(options, writer)))
    }

    fn check(&self, name: &str, _: &ExportOptions) -> Result<(), Error> {
        Err(Self::of_a_probe(name))
    }

    fn file(&self) -> Option<&SinkFile> {
        Some(&self.file)
    }

    fn makes_files(&self) -> bool {
        true
    }

    fn memory_bytes(&self, stored_columns: &[&'static Column], _: bool) -> u64 {
        weir_store::memory_bytes(self.columns.as_deref().unwrap_or(stored_columns).len(), false)
    }

    fn columns(&self) -> Option<&[&'static Column]> {
        self.columns.as_deref()
    }
}

impl RowWriter for Writer {
    fn write(&mut self, rows: &[Row<'_>]) -> Result<(), Error> {
        self.write(rows).map_err(|error| failed(&self.counters().sink, error))
    }

    fn tick(&mut self) -> Result<(), Error> {
        self.tick().map_err(|error| failed(&self.counters().sink, error))
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.finish().map_err(|error| failed(&self.counters().sink, error))
    }

    fn counters(&self) -> &SinkCounters {
        self.counters()
    }
}

impl RowWriter for SingleFile {
    fn write(&mut self, rows: &[Row<'_>]) -> Result<(), Error> {
        self.write(rows).map_err(|error| failed(&self.counters().sink, error))
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.finish().map_err(|error| failed(&self.counters().sink, error))
    }

    fn counters(&self) -> &SinkCounters {
        self.counters()
    }
}

fn failed(name: &str, error: weir_store::Error) -> Error {
    let sink = name.to_owned();
    match error {
        weir_store::Error::NoStore(_) | weir_store::Error::ForeignFiles { .. } => {
            Error::File { sink, problem: UnusableFile::NoStore }
        }
        weir_store::Error::NotEmpty(_) => Error::File { sink, problem: UnusableFile::NotEmpty },
        weir_store::Error::NoFile(_) => Error::File { sink, problem: UnusableFile::NoFile },
        weir_store::Error::Locked(_) => Error::File { sink, problem: UnusableFile::StoreLocked },
        weir_store::Error::Io { error, .. } => Error::Io { sink, error },
        other @ weir_store::Error::NoFlows { .. } => Error::Io { sink, error: std::io::Error::other(other) },
    }
}
