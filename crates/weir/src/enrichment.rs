//! Enrichment of the records of a run: the files of `--networks`, `--geo` and `--tags`, what they
//! have, and how they are loaded again after SIGHUP.
//!
//! A thread of its own loads them again. The sink workers take the new tables with the next batch of
//! records, so nothing waits. A file that cannot be used keeps what was loaded from it before.

use crate::arguments;
use crate::error::{Error, ReloadError};
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::{debug, error, info, warn};
use weir_control::ListFile;
use weir_enrich::{Enrichment, Report, Sources};
use weir_flow::{FlowRecord, Places};
use weir_probe::{BackPressure, Exporter, InterfaceNames, RecordEnricher};
use weir_text::units;

/// While files are read again, they take this multiple of the memory of their tables: sorted
/// entries, and the new tables.
const RELOAD_FACTOR: u64 = 4;

/// What a reload has done, or why it could not, for the HTTP interface.
pub type ReloadResult = Result<String, String>;

/// Tables, databases and lists in use, and where they come from.
#[derive(Clone)]
pub struct Enricher {
    sources: Sources,
    /// With `--interface-names`.
    interface_names: Option<InterfaceNames>,
    current: Arc<Mutex<Arc<Enrichment>>>,
    /// What was loaded from each file, for the HTTP interface.
    lists: Arc<Mutex<Vec<ListFile>>>,
}

impl Enricher {
    /// Loads the files of the options; `None` if there are none. Says which lines are left out.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn load(options: &arguments::Enrichment) -> Result<Option<Self>, Error> {
        let sources = options.sources();
        let interface_names = options.interface_names.then(InterfaceNames::default);
        if sources.is_empty() && interface_names.is_none() {
            return Ok(None);
        }
        let (enrichment, reports) = Enrichment::load(&sources).map_err(Error::Enrichment)?;
        log_reports(&reports, &enrichment);
        let lists = Arc::new(Mutex::new(reports.iter().map(list_file).collect()));
        Ok(Some(Self { sources, interface_names, current: Arc::new(Mutex::new(Arc::new(enrichment))), lists }))
    }

    /// The names of interfaces, if records get them.
    pub fn interface_names(&self) -> Option<InterfaceNames> {
        self.interface_names.clone()
    }

    /// Sets places, tags and names of interfaces of records.
    pub fn record_enricher(&self) -> RecordEnricher {
        let (current, names) = (self.current.clone(), self.interface_names.clone());
        Arc::new(move |records: &mut [FlowRecord]| {
            let enrichment = get(&current);
            for record in records {
                let interface = names.as_ref().and_then(|names| names.name(record.interface));
                record.places = Some(Arc::new(Places { interface, ..enrichment.places(record) }));
            }
        })
    }

    /// The files, which a reload reads again.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.sources.paths()
    }

    /// Warns of files that a reload could not read: the probe may have become another user.
    pub fn check_readable(&self) {
        for path in self.paths() {
            if let Err(error) = File::open(path) {
                let file = path.display().to_string();
                warn!(file, %error, "this file cannot be read again, so SIGHUP will keep what it has now; --user may read it?");
            }
        }
    }

    /// Memory that the run takes for enrichment besides what it has now: for places of records in the
    /// queues of sinks and, if files can be read again, for that.
    pub fn reserve_bytes(&self, sinks: usize, back_pressure: BackPressure, reloads: bool) -> u64 {
        // The first sink that gets a batch enriches it. Only the others have enriched records waiting.
        let queues = Exporter::memory_bytes_for(sinks.saturating_sub(1), Exporter::queue_batches(back_pressure));
        let places = queues / size_of::<FlowRecord>() * size_of::<Places>();
        let file_bytes = self.paths().filter_map(|path| Some(fs::metadata(path).ok()?.len())).max().unwrap_or(0);
        let tables = get(&self.current).memory_bytes() as u64;
        places as u64 + if reloads { RELOAD_FACTOR * tables + file_bytes } else { 0 }
    }

    /// Loads all files again.
    fn reload(&self) -> ReloadResult {
        let (enrichment, reports, errors) = get(&self.current).reload(&self.sources);
        for error in &errors {
            error!(error = error.to_string(), "cannot load this file again, continuing with what it had before");
        }
        log_reports(&reports, &enrichment);
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        for list in lists.iter_mut() {
            let is_same = |option: &str, path: &Path| option == list.option && path.display().to_string() == list.file;
            if let Some(report) = reports.iter().find(|report| is_same(&report.option, &report.path)) {
                *list = list_file(report);
            } else {
                // All lists of tags stay as they were if one cannot be used.
                let of_file = errors.iter().find(|error| is_same(&error.option, &error.path));
                let of_list = errors.iter().find(|error| error.option.starts_with("--tags "));
                list.error = of_file.or(of_list).map(ToString::to_string);
            }
        }
        drop(lists);
        let (files, memory) = (reports.len(), units::quantity(enrichment.memory_bytes() as u64, "B"));
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(enrichment);
        if files > 0 {
            info!(files, memory, "networks, databases and lists loaded again");
        }
        match &errors[..] {
            [] => Ok(format!("{files} files of networks, databases and lists loaded again")),
            errors => Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
        }
    }
}

fn list_file(Report { option, path, entries, kind, broken }: &Report) -> ListFile {
    ListFile {
        option: option.clone(),
        file: path.display().to_string(),
        kind: kind.clone(),
        entries: *entries,
        lines_left_out: broken.first.len() as u64 + broken.more(),
        loaded: unix_seconds(SystemTime::now()),
        error: None,
    }
}

pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn get(current: &Mutex<Arc<Enrichment>>) -> Arc<Enrichment> {
    current.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Says what the files have, and which of their lines are left out.
fn log_reports(reports: &[Report], enrichment: &Enrichment) {
    for Report { option, path, entries, kind, broken } in reports {
        let file = path.display().to_string();
        debug!(option, file, entries, kind, "loaded");
        for line in &broken.first {
            let (text, reason) = (&line.text, line.reason.to_string());
            warn!(option, file, line = line.number, text, reason, "line left out");
        }
        if broken.more() > 0 {
            warn!(option, file, lines = broken.more(), "more lines left out");
        }
        if *entries == 0 {
            warn!(option, file, "there is no entry in this file");
        }
    }
    let memory = units::quantity(enrichment.memory_bytes() as u64, "B");
    debug!(memory, "networks, databases and lists");
}

/// Loads the files again after each SIGHUP, once at a time.
pub struct EnrichmentReloader {
    enricher: Option<Enricher>,
    running: Option<JoinHandle<ReloadResult>>,
    /// There was a signal while files were loaded.
    is_requested: bool,
}

impl EnrichmentReloader {
    pub fn new(enricher: Option<Enricher>) -> Self {
        Self { enricher, running: None, is_requested: false }
    }

    /// What was loaded from each file.
    pub fn lists(&self) -> Vec<ListFile> {
        let lists = |enricher: &Enricher| enricher.lists.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.enricher.as_ref().map(lists).unwrap_or_default()
    }

    /// Whether no files are loaded, and none will be.
    pub fn is_idle(&self) -> bool {
        self.running.is_none() && !self.is_requested
    }

    /// Starts to load the files again if that is requested. Call it often. Returns the result when that
    /// has ended.
    pub fn update(&mut self, is_requested: bool) -> Option<ReloadResult> {
        let Some(enricher) = &self.enricher else { return is_requested.then(|| Ok(String::new())) };
        self.is_requested |= is_requested;
        if self.running.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return None;
        }
        let failed = |error: Error| {
            error!(%error, "cannot load the files again");
            Err(error.to_string())
        };
        let mut result =
            self.running.take().map(|thread| thread.join().unwrap_or_else(|_| failed(ReloadError::Panicked.into())));
        if std::mem::take(&mut self.is_requested) {
            let enricher = enricher.clone();
            let thread = std::thread::Builder::new().name("weir-enrich".into()).spawn(move || enricher.reload());
            match thread {
                Ok(thread) => self.running = Some(thread),
                Err(error) => result = Some(failed(Error::Thread(error))),
            }
        }
        result
    }
}
