//! Enrichment of the records of a run: the files of `--networks`, `--geo` and `--tags`, what they
//! have, and how they are loaded again after SIGHUP.
//!
//! The thread of the reload loads them again. The sink workers take the new tables with the next batch of
//! records, so nothing waits.

use crate::arguments;
use crate::error::Error;
use parking_lot::Mutex;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::{debug, warn};
use weir_control::ListFile;
use weir_enrich::{Enrichment, Report, Sources};
use weir_flow::{FlowRecord, Places};
use weir_probe::{BackPressure, Exporter, InterfaceNames, RecordEnricher};
use weir_text::units;

/// While files are read again, they take this multiple of the memory of their tables: sorted
/// entries, and the new tables.
const RELOAD_FACTOR: u64 = 4;

/// Tables, databases and lists in use, and where they come from.
#[derive(Clone)]
pub struct Enricher {
    sources: Sources,
    /// With `--interface-names`.
    interface_names: Option<InterfaceNames>,
    current: Arc<Mutex<Arc<Enrichment>>>,
    /// What was loaded from each file, for the HTTP interface.
    lists: Vec<ListFile>,
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
        let lists = reports.iter().map(list_file).collect();
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
            let enrichment = current.lock().clone();
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
        let tables = self.current().memory_bytes() as u64;
        places as u64 + if reloads { RELOAD_FACTOR * tables + file_bytes } else { 0 }
    }

    /// Loads all files again. Nothing changes until [`Self::use_files`].
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn load_again(&self) -> Result<LoadedFiles, Error> {
        let (enrichment, reports) = Enrichment::load(&self.sources).map_err(Error::Enrichment)?;
        Ok(LoadedFiles { enrichment, reports })
    }

    /// What is loaded.
    pub fn current(&self) -> Arc<Enrichment> {
        self.current.lock().clone()
    }

    /// What was loaded from each file.
    pub fn lists(&self) -> Vec<ListFile> {
        self.lists.clone()
    }

    /// Uses loaded files from the next batch of records on. Returns a text that says so.
    pub fn use_files(&mut self, LoadedFiles { enrichment, reports }: LoadedFiles) -> String {
        log_reports(&reports, &enrichment);
        self.lists = reports.iter().map(list_file).collect();
        let memory = units::quantity(enrichment.memory_bytes() as u64, "B");
        *self.current.lock() = Arc::new(enrichment);
        format!("{} of networks, databases and lists, {memory}", units::count(reports.len() as u64, "file"))
    }

    /// Notes why a later version of the files is not in effect.
    pub fn note_error(&mut self, error: &str) {
        self.lists.iter_mut().for_each(|list| list.error = Some(error.into()));
    }
}

/// Files that were loaded again.
pub struct LoadedFiles {
    pub enrichment: Enrichment,
    reports: Vec<Report>,
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
