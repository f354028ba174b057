//! SIGHUP and the HTTP interface: reads the configuration file, the rules and the files of enrichment again,
//! and applies timeouts, filter, sinks, rules, networks, databases and lists.
//!
//! A thread of its own reads the files, compiles the filter and opens the sinks, all of which may
//! wait for long. Only then does the main thread change the running probe. After an error nothing
//! has changed. A file that may be incomplete is refused (docs/probe.md).

use super::config;
use crate::actions::Actions;
use crate::anonymisation;
use crate::arguments::{Output, ProbeOptions, RecordSink, Sinks};
use crate::enrichment::{Enricher, LoadedFiles};
use crate::error::{Error, IncompleteConfig, ReloadError};
use crate::files::{self, Target};
use crate::input;
use crate::memory::SinkMemory;
use crate::missing_options;
use crate::outputs::Outputs;
use crate::sandbox::Sandbox;
use crate::settings::{key_options, probe_settings};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{debug, error, info, warn};
use weir_anonymise::Anonymiser;
use weir_control::{InEffect, Timeouts};
use weir_probe::{Settings, SinkChange};
use weir_text::units;

/// Options that are applied without a restart.
const RELOADABLE: [&str; 7] = ["idle", "active", "filter", "output", "top", "uniflow", "domain"];
/// After this time the log says that a reload has not ended.
const LOG_AFTER: Duration = Duration::from_secs(15);

/// What a reload has done, or why it could not, for the HTTP interface.
pub type ReloadResult = Result<String, String>;

/// Loads everything again, one reload at a time.
pub struct Reloader {
    current: Current,
    running: Option<Running>,
    /// There was a signal during the running reload.
    is_requested: bool,
    /// Idle and active timeout in effect, ns.
    timeouts_ns: [u64; 2],
    /// Why the last reload did not succeed.
    error: Option<String>,
}

/// All that is in effect and can be loaded again.
#[derive(Clone)]
pub struct Current {
    pub configuration: Effective,
    /// Those of `--rules`.
    pub actions: Option<Actions>,
    pub enricher: Option<Enricher>,
}

struct Running {
    thread: JoinHandle<Result<Prepared, Error>>,
    started: Instant,
    is_logged: bool,
}

/// The configuration in effect.
#[derive(Clone)]
pub struct Effective {
    /// Arguments of the command line.
    pub arguments: Vec<OsString>,
    /// Arguments of the command line and of the file when the probe started.
    pub started_with: Vec<OsString>,
    /// The text of the file.
    pub text: String,
    /// Options in effect, as far as they are reloadable.
    pub options: ProbeOptions,
    /// That of `--anonymise`. Its key is read at the start only.
    pub anonymiser: Option<Anonymiser>,
    /// What the probe may still open; `None` is everything.
    pub sandbox: Option<Arc<Sandbox>>,
    pub sink_memory: SinkMemory,
}

/// Everything that can be applied.
struct Prepared {
    configuration: Option<PreparedConfiguration>,
    actions: Option<Actions>,
    files: Option<LoadedFiles>,
}

/// A configuration that can be applied: its sinks are open, its filter is compiled.
struct PreparedConfiguration {
    settings: Settings,
    sinks: Option<Vec<SinkChange>>,
    effective: Effective,
}

impl Reloader {
    /// `settings` are those at the start.
    pub fn new(current: Current, settings: &Settings) -> Self {
        Self { current, running: None, is_requested: false, timeouts_ns: timeouts_ns(settings), error: None }
    }

    /// What is in effect, for the HTTP interface.
    pub fn in_effect(&self) -> InEffect {
        let Current { configuration, actions, enricher } = &self.current;
        let path = configuration.options.rules.as_deref();
        let rules = path.zip(actions.as_ref()).map(|(path, actions)| actions.in_effect(path, self.error.clone()));
        let lists = enricher.as_ref().map(Enricher::lists).unwrap_or_default();
        let sinks = configuration.options.sinks.outputs.iter().flat_map(Output::sinks);
        let stores = sinks.filter_map(|sink| sink.spec.folder().map(PathBuf::from));
        let inputs = configuration.options.inputs.iter().map(ToString::to_string).collect();
        let transactions = configuration.options.sinks.transactions.iter();
        let transactions = transactions.filter_map(|sink| sink.spec.folder().map(PathBuf::from)).collect();
        InEffect { inputs, rules, lists, timeouts: self.timeouts(), stores: stores.collect(), transactions }
    }

    fn timeouts(&self) -> Timeouts {
        let ProbeOptions { drain_timeout_ns, interval_ns, .. } = self.current.configuration.options;
        let [idle, active] = self.timeouts_ns;
        let [idle, active, drain, interval] = [idle, active, drain_timeout_ns, interval_ns].map(|ns| ns as f64 / 1e9);
        Timeouts { idle, active, drain, interval }
    }

    /// Starts a reload if that is requested, and ends one that is prepared. Call it often. A request
    /// during a reload starts another one after it. Returns the result of a reload that has ended.
    pub fn update(&mut self, is_requested: bool, probe: &mut weir_probe::Probe) -> Option<ReloadResult> {
        let mut result = None;
        if is_requested {
            probe.exporter().reopen_files();
            if self.current.has_files() {
                self.is_requested = true;
            } else {
                let text = "started without --config: files that were moved are opened again";
                info!("{text}");
                result = Some(Ok(text.into()));
            }
        }
        if let Some(running) = &mut self.running
            && !running.thread.is_finished()
        {
            if !running.is_logged && running.started.elapsed() >= LOG_AFTER {
                running.is_logged = true;
                warn!("the reload has not ended, the old configuration is in effect until then");
            }
            return result;
        }
        if let Some(running) = self.running.take() {
            let prepared = running.thread.join().unwrap_or(Err(ReloadError::Panicked.into()));
            let applied = prepared.and_then(|prepared| self.apply(prepared, probe));
            result = Some(self.log_result(applied));
        }
        if std::mem::take(&mut self.is_requested) {
            let (current, closing) = (self.current.clone(), probe.exporter().closing_sinks());
            let thread = std::thread::Builder::new().name("weir-reload".into());
            match thread.spawn(move || current.prepare_reload(closing)) {
                Ok(thread) => self.running = Some(Running { thread, started: Instant::now(), is_logged: false }),
                Err(error) => result = Some(self.log_result(Err(Error::Thread(error)))),
            }
        }
        result
    }

    /// Whether no reload is running or requested.
    pub fn is_idle(&self) -> bool {
        self.running.is_none() && !self.is_requested
    }

    /// Applies everything. Returns what it has, for the HTTP interface.
    fn apply(&mut self, prepared: Prepared, probe: &mut weir_probe::Probe) -> Result<String, Error> {
        let Prepared { configuration, actions, files } = prepared;
        let file = self.current.configuration.options.config.as_ref().map(|path| path.display().to_string());
        let (mut done, current) = (Vec::new(), &mut self.current);
        // The only part that can fail comes first.
        if let Some(PreparedConfiguration { settings, sinks, effective }) = configuration {
            let timeouts = timeouts_ns(&settings);
            probe.reconfigure(settings, sinks).map_err(Error::Thread)?;
            (current.configuration, self.timeouts_ns) = (effective, timeouts);
            done.push("configuration reloaded".into());
        }
        let lists = current.enricher.as_mut().zip(files).map(|(enricher, files)| enricher.use_files(files));
        let rules = actions.map(|actions| {
            probe.set_rules(actions.rules.clone());
            let path = current.configuration.options.rules.as_deref().unwrap_or(Path::new(""));
            let rules = units::count(actions.rules.rules.len() as u64, "rule");
            current.actions = Some(actions);
            format!("{rules} of {}", path.display())
        });
        done.extend(rules.clone());
        done.extend(lists.clone());
        let [idle, active] = self.timeouts_ns.map(units::span);
        let outputs = current.configuration.outputs();
        let sinks = outputs.sinks.iter().map(RecordSink::to_string).collect::<Vec<_>>().join(", ");
        info!(file, idle, active, sinks, rules, lists, "configuration reloaded");
        Ok(done.join("; "))
    }

    /// Logs why a reload did not succeed, and keeps that for the HTTP interface.
    fn log_result(&mut self, result: Result<String, Error>) -> ReloadResult {
        let result = result.map_err(|error| error.to_string().trim_end().to_owned());
        self.error = result.clone().err();
        if let Err(error) = &result {
            error!(error, "cannot reload the configuration, continuing with the old one");
            self.current.enricher.iter_mut().for_each(|enricher| enricher.note_error(error));
        }
        result
    }
}

fn timeouts_ns(settings: &Settings) -> [u64; 2] {
    [settings.meter.idle_timeout_ns, settings.meter.active_timeout_ns]
}

impl Current {
    /// Whether there is something to load again.
    fn has_files(&self) -> bool {
        self.configuration.options.config.is_some() || self.actions.is_some() || self.enricher.is_some()
    }

    /// Reads all files, and opens and compiles what is new in them. `closing` sinks of earlier reloads
    /// still write their last records.
    ///
    /// # Errors
    /// A file is invalid, may be incomplete or changes more than is reloadable, or a sink cannot
    /// be opened: what is wrong with the files, or the first sink.
    fn prepare_reload(self, closing: usize) -> Result<Prepared, Error> {
        let mut problems = Vec::new();
        let mut note = |error| problems.push(error);
        let files = self.enricher.as_ref().map(Enricher::load_again).transpose().map_err(&mut note).ok().flatten();
        let actions = self.load_rules(files.as_ref()).map_err(&mut note).ok().flatten();
        let configuration = self.configuration;
        let new = configuration.options.config.is_some().then(|| configuration.read());
        let new = new.transpose().map_err(&mut note).ok().flatten();
        Error::of(problems)?;
        let configuration = new.map(|new| configuration.prepare_reload(new, actions.as_ref(), closing)).transpose()?;
        Ok(Prepared { configuration, actions, files })
    }

    fn load_rules(&self, files: Option<&LoadedFiles>) -> Result<Option<Actions>, Error> {
        let ProbeOptions { rules, metering, enrichment, .. } = &self.configuration.options;
        let (Some(path), Some(actions)) = (rules, &self.actions) else { return Ok(None) };
        let new = actions.load_again(path)?;
        missing_options::check_rules(&new.rules, metering, enrichment)?;
        files.map_or(Ok(()), |files| missing_options::check_tags(&new.rules, metering, &files.enrichment))?;
        Ok(Some(new))
    }
}

impl Effective {
    fn outputs(&self) -> Outputs {
        outputs(&self.options)
    }

    /// Reads and checks the file. Returns its text, and its options with those of the command line.
    fn read(&self) -> Result<(String, ProbeOptions), Error> {
        let path = self.options.config.as_ref().expect("only a probe with a configuration file reloads it");
        let text = config::read_settled(path, &self.options.timing())?;
        let new = self.check(path, &text)?;
        Ok((text, new))
    }

    fn prepare_reload(
        self,
        (text, new): (String, ProbeOptions),
        actions: Option<&Actions>,
        closing: usize,
    ) -> Result<PreparedConfiguration, Error> {
        let (mut outputs, before) = (outputs(&new), self.outputs());
        outputs.anonymiser = self.anonymiser.clone();
        if let Some(view) = &mut outputs.view {
            view.groups = self.sink_memory.views.groups;
        }
        outputs.problems(&new.sinks).into_iter().next().map_or(Ok(()), Err)?;
        files::check_targets(&new.inputs, &outputs.targets)?;
        if let Some(actions) = actions {
            actions.check(&new.inputs, &outputs.targets, &new.metering, &new.enrichment)?;
        }
        let settings = probe_settings(&new)?;
        let same_options =
            Sinks { outputs: self.options.sinks.outputs.clone(), ..new.sinks.clone() } == self.options.sinks;
        let position = |unit: &[RecordSink]| before.units().position(|old| old == unit).filter(|_| same_options);
        let is_new = |sink: &&RecordSink| !outputs.units().any(|unit| unit.contains(sink) && position(unit).is_some());
        let new_sinks: Vec<RecordSink> = outputs.sinks.iter().filter(is_new).cloned().collect();
        self.check_new(&new_sinks, &before)?;
        let added = outputs.sinks.iter().filter(is_new).count();
        let kept = outputs.sinks.len() - added;
        let views = |outputs: &Outputs, is_counted: &dyn Fn(&&RecordSink) -> bool| {
            outputs.sinks.iter().filter(is_counted).filter(|sink| outputs.shows_view(sink)).count()
        };
        let (added_views, all_views) = (views(&outputs, &is_new), views(&outputs, &|_| true));
        // Sinks that earlier reloads closed may have been views.
        let closing_views = closing + views(&before, &|sink| is_new(sink) || !outputs.sinks.contains(sink));
        let views = if added_views > 0 { all_views + closing_views } else { 0 };
        let view_bytes = outputs.view.as_ref().map_or(0, |view| view.max_memory_bytes() * views as u64);
        let closing = closing + before.sinks.len().saturating_sub(kept);
        let queue_batches = Some(self.sink_memory.queue_batches_of_new(kept, closing, added, view_bytes)?);
        let settings = Settings { queue_batches, ..settings };
        missing_options::warn(
            &new_sinks,
            &Sinks { records: None, by: Vec::new(), ..new.sinks.clone() },
            &new.metering,
            new.inspects(),
            &new.enrichment,
        );
        let sinks = if same_options && outputs.sinks == before.sinks {
            None
        } else {
            let key = key_options(&self.options.metering);
            Some(outputs.change_sinks(&new.sinks, key, position)?)
        };
        for sink in &outputs.sinks {
            debug!(%sink, "reload: sink {}", if is_new(&sink) { "opened" } else { "stays open" });
        }
        for sink in before.sinks.iter().filter(|&sink| !outputs.sinks.contains(sink)) {
            debug!(%sink, "reload: sink is closed after its last records");
        }
        let options = ProbeOptions { sinks: new.sinks, ..self.options.clone() };
        Ok(PreparedConfiguration { settings, sinks, effective: Self { text, options, ..self } })
    }

    /// Whether new sinks write to no file or spool of another one, and the sandbox permits what they open.
    fn check_new(&self, new_sinks: &[RecordSink], before: &Outputs) -> Result<(), Error> {
        let is_file = |sink: &&RecordSink| matches!(Target::of_sink(&sink.spec), Target::File(_) | Target::Folder(_));
        let is_open = |sink: &&RecordSink| {
            before.sinks.iter().any(|old| Target::of_sink(&old.spec) == Target::of_sink(&sink.spec))
        };
        if let Some(sink) = new_sinks.iter().filter(is_file).find(is_open) {
            return Err(ReloadError::ChangesOpenFile(sink.to_string()).into());
        }
        let has_open_spool = |sink: &&RecordSink| {
            let spool = Target::spool_of(&sink.spec);
            spool.is_some() && before.sinks.iter().any(|old| Target::spool_of(&old.spec) == spool)
        };
        if let Some(sink) = new_sinks.iter().find(has_open_spool) {
            return Err(ReloadError::ChangesOpenSpool(sink.to_string()).into());
        }
        let Some(sandbox) = &self.sandbox else { return Ok(()) };
        let is_outside = |sink: &&RecordSink| Target::all_of(&sink.spec).any(|target| !sandbox.permits(&target));
        new_sinks.iter().find(is_outside).map_or(Ok(()), |sink| Err(ReloadError::outside(sandbox, sink).into()))
    }

    /// Checks a new text of the file. Returns its options, with those of the command line.
    ///
    /// # Errors
    /// The text is invalid, may be incomplete, or changes more than is reloadable.
    fn check(&self, path: &Path, text: &str) -> Result<ProbeOptions, Error> {
        let incomplete = |problem| Err(ReloadError::Incomplete { path: path.display().to_string(), problem }.into());
        if text != self.text {
            if text.trim().is_empty() {
                return incomplete(IncompleteConfig::Empty);
            }
            if !text.ends_with('\n') {
                return incomplete(IncompleteConfig::LastLine);
            }
            if self.text.starts_with(text) {
                return incomplete(IncompleteConfig::Beginning);
            }
        }
        let merged = config::add_text(&self.arguments, path, text)?;
        let (new, _) = config::parse(&merged)?;
        input::check_sources(&new.inputs, "probe")?;
        anonymisation::check(&new.sinks, new.rules.as_deref())?;
        if new.sinks.outputs.is_empty() && !self.options.sinks.outputs.is_empty() {
            return incomplete(IncompleteConfig::NoOutput);
        }
        let mut changed = config::differing_options(&self.started_with, &merged)?;
        changed.retain(|name| !RELOADABLE.contains(&name.as_str()));
        if changed.is_empty() { Ok(new) } else { Err(ReloadError::NeedsRestart(changed.join(", ")).into()) }
    }
}

/// The outputs of a probe.
pub fn outputs(options: &ProbeOptions) -> Outputs {
    let ProbeOptions { sinks, metering, enrichment, reporting, .. } = options;
    let outputs = Outputs::new(sinks, metering, enrichment, reporting.stats.as_deref());
    Outputs { retries: true, applications: options.inspects(), timing: options.timing(), ..outputs }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective(text: &str) -> Effective {
        let arguments: Vec<OsString> = ["weir", "probe", "--config", "FILE"].map(OsString::from).into();
        let started_with = config::add_text(&arguments, Path::new("FILE"), text).unwrap();
        let (options, _) = config::parse(&started_with).unwrap();
        Effective {
            arguments,
            started_with,
            text: text.into(),
            options,
            anonymiser: None,
            sandbox: None,
            sink_memory: SinkMemory::default(),
        }
    }

    #[test]
    fn a_file_that_is_cut_off_anywhere_is_refused() {
        let old = "# The probe of eth0.\nidle = 60\ninput = [\"af_packet:eth0\"]\nflows = 65536\n\
                   output = [\"json:a\", \"ipfix+udp://192.0.2.1\"]\nfilter = \"udp\"\ntop = 20\n";
        // As `old`, with other values of what is reloadable.
        let new = "# Probe of eth0.\nidle = 30\ninput = [\"af_packet:eth0\"]\nflows = 65536\n\
                   filter = \"tcp\"\ntop = 10\noutput = [\"json:b\"]\n";
        let effective = effective(old);
        for text in [old, new] {
            assert!(effective.check(Path::new("FILE"), text).is_ok(), "{text}");
            for length in 0..text.len() {
                let cut = &text[..length];
                assert!(effective.check(Path::new("FILE"), cut).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn the_reason_of_a_refusal_is_named() {
        let effective = effective("input = [\"af_packet:eth0\"]\noutput = [\"json:a\"]\nidle = 60\n");
        for (text, reason) in [
            ("", "FILE: the file is empty"),
            ("\n \n", "FILE: the file is empty"),
            ("input = [\"af_packet:eth0\"]\noutput = [\"json:a\"]\nidle = 6", "does not end with a line feed"),
            ("input = [\"af_packet:eth0\"]\noutput = [\"json:a\"]\n", "the beginning of the configuration in effect"),
            ("output = [\"json:a\"]\n", "nothing to read: name a source"),
            ("input = [\"af_packet:eth0\"]\nidle = 60\n", "names no output"),
            ("input = [\"af_packet:eth1\"]\noutput = [\"json:a\"]\ndecap = true\n", "needs a restart: input, decap"),
            ("input = [\n", "TOML parse error"),
        ] {
            let error = effective.check(Path::new("FILE"), text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }
}
