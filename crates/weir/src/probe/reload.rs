//! SIGHUP: reads the configuration file again, and applies its timeouts, filter and sinks.

use super::config;
use crate::arguments::{ProbeOptions, Sinks};
use crate::error::Error;
use crate::files::Target;
use crate::outputs::Outputs;
use crate::sandbox::Sandbox;
use crate::settings::{key_options, settings};
use crate::summary::TrafficSummary;
use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use tracing::{debug, error, info, warn};
use weir_text::units;

/// Options that are applied without a restart.
const RELOADABLE: [&str; 7] = ["idle", "active", "filter", "output", "top", "uniflow", "domain"];

/// Reloads the configuration. Holds the options in effect.
pub struct Reloader {
    arguments: Vec<OsString>,
    /// Arguments of the command line and of the file when the probe started.
    started_with: Vec<OsString>,
    /// Options in effect, as far as they are reloadable.
    current: ProbeOptions,
    /// The sink whose records the summary counts.
    summarized: Option<String>,
}

impl Reloader {
    pub fn new(
        current: ProbeOptions,
        arguments: Vec<OsString>,
        started_with: Vec<OsString>,
        outputs: &Outputs,
    ) -> Self {
        Self { arguments, started_with, current, summarized: outputs.sinks.first().cloned() }
    }

    /// Applies the file and logs the result. After an error, the old configuration stays in effect.
    pub fn reload(
        &mut self,
        running: &mut weir_probe::Probe,
        summary: &Arc<Mutex<TrafficSummary>>,
        sandbox: Option<&Sandbox>,
    ) {
        if let Err(error) = self.try_reload(running, summary, sandbox) {
            error!(
                error = error.to_string().trim_end(),
                "cannot reload the configuration, continuing with the old one"
            );
        }
    }

    fn try_reload(
        &mut self,
        running: &mut weir_probe::Probe,
        summary: &Arc<Mutex<TrafficSummary>>,
        sandbox: Option<&Sandbox>,
    ) -> Result<(), Error> {
        let Some(path) = &self.current.config else { return Err(Error::ReloadWithoutConfig) };
        let merged = config::merge(&self.current, &self.arguments)?;
        let (probe, _) = config::parse(&merged)?;
        let outputs = Outputs { retries: true, ..Outputs::new(&probe.sinks.outputs, probe.reporting.stats.as_deref()) };
        let before = Outputs::new(&self.current.sinks.outputs, self.current.reporting.stats.as_deref());
        let settings = settings(&probe.metering)?;
        let meter = settings.meter;
        let same_options =
            Sinks { outputs: self.current.sinks.outputs.clone(), ..probe.sinks.clone() } == self.current.sinks;
        let position = |sink: &String| before.sinks.iter().position(|old| old == sink).filter(|_| same_options);
        let is_new = |sink: &&String| position(sink).is_none();
        let is_file = |sink: &&String| matches!(Target::of_sink(sink), Target::File(_));
        let mut new_files = outputs.sinks.iter().filter(is_new).filter(is_file);
        if let Some(sink) = new_files.find(|sink| before.sinks.contains(sink)) {
            return Err(Error::ReloadChangesOpenFile(sink.clone()));
        }
        if let Some(sandbox) = sandbox
            && let Some(sink) = outputs.sinks.iter().filter(is_new).find(|sink| !sandbox.permits(sink))
        {
            return Err(Error::ReloadOutsideSandbox { sink: sink.clone(), permitted: sandbox.directories() });
        }
        let stays_summarized =
            self.summarized.as_ref().is_some_and(|sink| outputs.sinks.contains(sink) && !is_new(&sink));
        let sinks = if same_options && outputs.sinks == before.sinks {
            None
        } else {
            let summary = if stays_summarized { None } else { Some(summary) };
            let key = key_options(&self.current.metering);
            Some(outputs.change_sinks(&probe.sinks, key, position, summary)?)
        };
        for sink in &outputs.sinks {
            debug!(sink, "reload: sink {}", if is_new(&sink) { "opened" } else { "stays open" });
        }
        for sink in before.sinks.iter().filter(|&sink| !outputs.sinks.contains(sink)) {
            debug!(sink, "reload: sink is closed after its last records");
        }
        running.reconfigure(settings, sinks).map_err(Error::Thread)?;
        let mut ignored = config::differing_options(&self.started_with, &merged)?;
        ignored.retain(|name| !RELOADABLE.contains(&name.as_str()));
        if !ignored.is_empty() {
            warn!(options = ignored.join(", "), "some changes need a restart and were not applied");
        }
        let (idle, active) = (units::span(meter.idle_timeout_ns), units::span(meter.active_timeout_ns));
        let file = path.display().to_string();
        info!(file, idle, active, sinks = outputs.sinks.join(", "), "configuration reloaded");
        if !stays_summarized {
            self.summarized = outputs.sinks.iter().find(is_new).cloned();
        }
        self.current.sinks = probe.sinks;
        Ok(())
    }
}
