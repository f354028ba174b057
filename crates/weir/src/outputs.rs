//! What commands that meter have in common: where records go, and what a record is.

use crate::arguments::{self, KeyField, Metering, TableFull};
use crate::files::{self, Target};
use crate::summary::{self, Observed, Totals};
use crate::{Outcome, Refusal, say};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use weir_capture::PacketFilter;
use weir_export::Sink;
use weir_flow::{CacheFullPolicy, KeyOptions};
use weir_ledger::Ledger;
use weir_probe::{Overload, SelfTrafficFilter, Settings, SinkChange};

/// The sinks, and what goes to standard output.
pub struct Outputs {
    pub sinks: Vec<String>,
    /// Everything that is written, as the user wrote it.
    pub targets: Vec<(String, Target)>,
    /// The sink on standard output.
    pub on_standard_output: Option<String>,
    /// Where the ledger goes as JSON.
    stats: Option<PathBuf>,
}

/// The sinks, open, and what is told at the end.
pub struct Opened {
    sinks: Vec<Box<dyn Sink + Send>>,
    totals: Arc<Mutex<Totals>>,
    stats: Option<File>,
}

/// What is told at the end of a run.
pub struct Ending {
    /// No summary.
    pub quiet: bool,
    /// The ledger in words.
    pub verbose: bool,
}

impl Outputs {
    /// Of what the user asked for; nothing is a table on standard output.
    pub fn of(outputs: &[String], stats: Option<&Path>) -> Self {
        let ledger_on_standard_output = stats == Some(Path::new("-"));
        let sinks = match outputs {
            // The ledger takes the table's place; there is still a sink, so that it can balance.
            [] if ledger_on_standard_output => vec!["table:/dev/null".into()],
            [] => vec!["table:-".into()],
            sinks => sinks.to_vec(),
        };
        let mut targets: Vec<_> = sinks.iter().map(|sink| (format!("-o {sink}"), Target::of_sink(sink))).collect();
        if let Some(path) = stats {
            targets.push((format!("--stats {}", path.display()), Target::of_path(path)));
        }
        let on_standard_output = sinks.iter().find(|sink| Target::of_sink(sink) == Target::Standard).cloned();
        Self { sinks, targets, on_standard_output, stats: stats.map(Path::to_path_buf) }
    }

    /// Opens all of it. Pipes wait for who reads them, until `stop`.
    pub fn open(&self, sinks: &arguments::Sinks, stop: &AtomicBool) -> Result<Opened, Refusal> {
        let totals = Arc::new(Mutex::new(Totals::default()));
        let wait = |sink: &String| files::wait_for_reader(sink, stop);
        let pipes = self.sinks.iter().map(wait).collect::<Result<Vec<_>, _>>()?;
        let mut opened = self.sinks.iter().map(|sink| files::open_sink(sink, sinks)).collect::<Result<Vec<_>, _>>()?;
        drop(pipes);
        let first = opened.remove(0);
        opened.insert(0, Box::new(Observed { sink: first, totals: totals.clone() }));
        let stats = match &self.stats {
            Some(path) if path != Path::new("-") => Some(files::create(path)?),
            _ => None,
        };
        Ok(Opened { sinks: opened, totals, stats })
    }

    /// Opens the sinks but for those that are `kept`, each under the number that it had. Records of the first that is opened are added
    /// up, if that is asked for.
    ///
    /// # Errors
    /// One cannot be opened; a pipe that nobody reads is not waited for.
    pub fn change_sinks(
        &self,
        sinks: &arguments::Sinks,
        kept: impl Fn(&String) -> Option<usize>,
        mut totals: Option<&Arc<Mutex<Totals>>>,
    ) -> Result<Vec<SinkChange>, Refusal> {
        let open = |sink| {
            if let Some(before) = kept(sink) {
                return Ok(SinkChange::Keep(before));
            }
            let pipe = files::wait_for_reader(sink, &AtomicBool::new(true))?;
            let opened = files::open_sink(sink, sinks)?;
            drop(pipe);
            Ok(SinkChange::Open(match totals.take() {
                Some(totals) => Box::new(Observed { sink: opened, totals: totals.clone() }),
                None => opened,
            }))
        };
        self.sinks.iter().map(open).collect()
    }

    /// Tells what a run came to: the summary behind the table if there is one, the ledger in words if it was asked for or has
    /// something to say, and as JSON.
    pub fn tell(&self, ledger: &Ledger, opened: Opened, ending: &Ending) -> Outcome {
        let mut flawed = summary::flawed(ledger);
        if !ending.quiet {
            let text = summary::summary(ledger, &opened.totals.lock().unwrap_or_else(PoisonError::into_inner));
            let table = self.on_standard_output.as_ref().filter(|_| self.table_on_standard_output());
            if ledger.sinks.iter().any(|sink| Some(&sink.sink) == table && sink.lost.is_empty()) {
                let gap = if ledger.flows_created > 0 { "\n" } else { "" };
                flawed |= crate::print(format!("{gap}{}", crate::harmless(&text)).as_bytes()) == Outcome::Flawed;
            } else {
                let _ = crate::tell(&text);
            }
        }
        if ending.verbose || summary::flawed(ledger) {
            let _ = crate::tell(&summary::ledger_in_words(ledger));
        }
        if let Some(path) = &self.stats {
            flawed |= write_stats(ledger, path, opened.stats) == Outcome::Flawed;
        }
        if flawed { Outcome::Flawed } else { Outcome::Done }
    }

    /// Whether that is a table.
    pub fn table_on_standard_output(&self) -> bool {
        self.on_standard_output.as_ref().is_some_and(|sink| sink.starts_with("table:"))
    }
}

impl Opened {
    /// The sinks, once.
    pub fn take_sinks(&mut self) -> Vec<Box<dyn Sink + Send>> {
        std::mem::take(&mut self.sinks)
    }

    /// What the records of the first sink add up to.
    pub fn totals(&self) -> &Arc<Mutex<Totals>> {
        &self.totals
    }
}

/// What a pipeline is told.
pub fn settings(metering: &Metering) -> Result<Settings, Refusal> {
    let has = |part| metering.key.contains(&part);
    let key = KeyOptions {
        vlan: has(KeyField::Vlan),
        interface: has(KeyField::Interface),
        tunnel: has(KeyField::Tunnel),
        unidirectional: metering.uniflow_key,
    };
    let policy = match metering.full {
        TableFull::Overflow => CacheFullPolicy::Overflow,
        TableFull::EvictOldestIdle => CacheFullPolicy::EvictOldestIdle,
        TableFull::Drop => CacheFullPolicy::Drop,
    };
    let default = weir_flow::Config::default();
    let flows = metering.flows.unwrap_or(default.flows);
    Ok(Settings {
        busy_poll: false,
        filter: filter(metering.filter.as_deref())?,
        meter: weir_flow::Config {
            flows,
            idle_timeout_ns: metering.idle,
            active_timeout_ns: metering.active,
            key,
            policy,
            ..default
        },
        decode: weir_packet::DecodeOptions { decapsulate: metering.decap },
        layer2: metering.layer2,
        self_traffic: SelfTrafficFilter::default(),
        // Of live traffic only, see `weir probe`.
        overload: Overload::Drop,
        sample_one_in: 1,
    })
}

/// Compiles what `--filter` says.
pub fn filter(expression: Option<&str>) -> Result<Option<PacketFilter>, Refusal> {
    expression.map(PacketFilter::new).transpose().map_err(|error| Refusal(error.to_string()))
}

/// Writes the ledger as JSON to its file, or to standard output.
pub(crate) fn write_stats(ledger: &Ledger, path: &Path, file: Option<File>) -> Outcome {
    let mut json =
        serde_json::to_vec_pretty(&ledger.json()).expect("the ledger has string keys and plain numbers only");
    json.push(b'\n');
    let Some(mut file) = file else { return crate::print(&json) };
    match file.write_all(&json) {
        Ok(()) => Outcome::Done,
        Err(error) => {
            say(&format!("--stats {}: {error}{}", path.display(), files::advice(&error)));
            Outcome::Flawed
        }
    }
}
