//! Reads the records of some files.
//!
//! Input: paths. Output: records that have the fields of [`FileReader::known`], in the order of the files. Invariant:
//! no record of a file that has changed since its templates were read.

use crate::error::{Error, Problem, ReadError, What};
use crate::layout::{Layout, Reject, SetContext};
use crate::source::{Handler, Source};
use crate::survey::{Runs, Survey, swap};
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use weir_fields::{Column, Restored, columns, columns_of_omitted};
use weir_flow::FlowRecord;

/// Reads the records of some files of one format.
pub struct FileReader<S: Source> {
    files: VecDeque<SurveyedFile<S>>,
    restored: Restored,
    starts_ns: Option<RangeInclusive<u64>>,
    open: Option<OpenFile<S>>,
    problems: VecDeque<Problem>,
    /// Octets of the files that are read.
    pub done_octets: u64,
    /// Octets of all files.
    pub total_octets: u64,
}

/// What was found before the first record is read.
pub struct Found<S: Source> {
    /// The reader of the records.
    pub reader: FileReader<S>,
    /// Fields that some records have no valid value of, so that they are not known.
    pub invalid: Vec<&'static Column>,
    /// Some records are directions of flows.
    pub has_directions: bool,
}

/// A file that was read once.
struct SurveyedFile<S: Source> {
    path: PathBuf,
    octets: u64,
    context: S::Context,
    /// Octets of its whole messages, without compression.
    content: u64,
    /// Why they are not the whole file.
    end: Option<ReadError>,
    is_uniflow: bool,
}

struct OpenFile<S> {
    path: PathBuf,
    octets: u64,
    content: u64,
    end: Option<ReadError>,
    source: S,
    records: Records,
}

/// The records of a message or a part of a block.
struct Records {
    runs: Runs,
    is_uniflow: bool,
    /// Which setters of a layout are used.
    wanted: HashMap<usize, Box<[bool]>>,
    columns: Vec<&'static Column>,
    flows: VecDeque<FlowRecord>,
}

impl Handler for Records {
    fn begin_weir_run(&mut self) {
        self.runs.begin();
    }

    fn record(&mut self, layout: &Rc<Layout>, set: &SetContext, values: &[&[u8]]) -> Result<(), Reject> {
        let columns = &self.columns;
        let wanted = self
            .wanted
            .entry(layout.number)
            .or_insert_with(|| layout.setters.iter().map(|setter| columns.contains(&setter.column)).collect());
        let is_full = self.runs.has_full_records(layout);
        let mut flow = layout.restore(values, set, is_full, |at| wanted[at], |_| {})?;
        if (layout.has_reverse || !self.is_uniflow) && layout.is_from_responder(values) {
            swap(&mut flow);
        }
        self.flows.push_back(flow);
        Ok(())
    }
}

impl<S: Source> FileReader<S> {
    /// Reads files for what is known of their records. Flows that start at other times (ns since 1970 UTC) are not read.
    ///
    /// # Errors
    /// A path is no regular file that can be read.
    pub fn open(paths: &[PathBuf], starts_ns: Option<RangeInclusive<u64>>) -> Result<Found<S>, Error> {
        let (mut files, mut surveys) = (VecDeque::new(), Vec::new());
        let mut total_octets = 0;
        for path in paths {
            let failed = |error| Error::Io { path: path.clone(), error };
            let metadata = fs::metadata(path).map_err(failed)?;
            if !metadata.is_file() {
                return Err(Error::NoFile(path.clone()));
            }
            if S::MAY_BE_EMPTY && metadata.len() == 0 {
                continue;
            }
            let (file, survey) = survey(path, metadata.len()).map_err(failed)?;
            total_octets += file.octets;
            files.push_back(file);
            if !survey.is_empty() {
                surveys.push(survey);
            }
        }
        let mut stored: Vec<&'static Column> = columns().iter().collect();
        for survey in &surveys {
            let known = survey.known();
            stored.retain(|column| known.contains(column));
        }
        let has_directions = surveys.iter().any(Survey::is_uniflow);
        let restored = Restored::of_some(&stored, has_directions);
        let mut invalid: Vec<_> = surveys.into_iter().flat_map(|survey| survey.invalid).collect();
        invalid.dedup();
        let (open, problems) = (None, VecDeque::new());
        let reader = Self { files, restored, starts_ns, open, problems, done_octets: 0, total_octets };
        Ok(Found { reader, invalid, has_directions })
    }

    /// The fields that the records have.
    pub fn known(&self) -> &[&'static Column] {
        self.restored.known()
    }

    /// From now on records have these fields only, and those of every record.
    pub fn keep_only(&mut self, fields: &[&'static Column]) {
        // What full records omit follows from these.
        let needed: Vec<_> = fields.iter().copied().chain(columns_of_omitted()).collect();
        self.restored.keep_only(&needed);
    }

    /// Appends records, up to a number of them. Returns whether there may be more.
    ///
    /// # Errors
    /// Something is wrong with a file. The next call goes on.
    pub fn read(&mut self, records: &mut Vec<FlowRecord>, most: usize) -> Result<bool, Problem> {
        if let Some(problem) = self.problems.pop_front() {
            return Err(problem);
        }
        if self.open.is_none() {
            let Some(file) = self.files.pop_front() else { return Ok(false) };
            self.open_file(file)?;
        }
        let Some(file) = &mut self.open else { return Ok(true) };
        if file.records.flows.is_empty() {
            let result = file.read_records();
            if let Some(starts_ns) = &self.starts_ns {
                file.records.flows.retain(|flow| starts_ns.contains(&flow.start_ns()));
            }
            if !matches!(result, Ok(true)) {
                self.close_file(result.err());
                return Ok(true);
            }
        }
        let count = most.min(file.records.flows.len());
        records.extend(file.records.flows.drain(..count));
        Ok(true)
    }

    fn open_file(&mut self, file: SurveyedFile<S>) -> Result<(), Problem> {
        let SurveyedFile { path, octets, context, content, end, is_uniflow } = file;
        match S::open(&path, context) {
            Ok(source) => {
                let columns = self.restored.columns().to_vec();
                let records = Records {
                    runs: Runs::default(),
                    is_uniflow,
                    wanted: HashMap::new(),
                    columns,
                    flows: VecDeque::new(),
                };
                self.open = Some(OpenFile { path, octets, content, end, source, records });
                Ok(())
            }
            Err(error) => {
                self.done_octets += octets;
                Err(Problem { path, what: What::Ended(error.into()) })
            }
        }
    }

    /// What was left out, and why the file ended.
    fn close_file(&mut self, error: Option<ReadError>) {
        let Some(OpenFile { path, octets, source, .. }) = self.open.take() else { return };
        self.done_octets += octets;
        let losses = source.losses().into_iter().map(What::LeftOut);
        let ended = error.map(What::Ended);
        self.problems.extend(losses.chain(ended).map(|what| Problem { path: path.clone(), what }));
    }
}

impl<S: Source> OpenFile<S> {
    /// Reads some records. Those that were added since the first reading are left out.
    fn read_records(&mut self) -> Result<bool, ReadError> {
        let offset = self.source.offset();
        if offset < self.content {
            let has_more = self.source.read_records(&mut self.records)?;
            return if has_more { Ok(true) } else { Err(ReadError::Changed) };
        }
        // What ended the first reading ends this one, too.
        self.end.take().map_or(Ok(false), Err)
    }
}

/// Reads a file for what its records have.
fn survey<S: Source>(path: &Path, octets: u64) -> std::io::Result<(SurveyedFile<S>, Survey)> {
    let mut source = S::open(path, S::Context::default())?;
    let mut survey = Survey::default();
    let end = loop {
        match source.read_records(&mut survey) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(error) => break Some(error),
        }
    };
    survey.unused = source.unused_elements();
    let (content, is_uniflow) = (source.offset(), survey.is_uniflow());
    let context = source.into_context();
    Ok((SurveyedFile { path: path.into(), octets, context, content, is_uniflow, end }, survey))
}
