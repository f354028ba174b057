//! The first state of a probe: its options, from command line and file, are valid together.

use super::config::{self, Merged};
use super::{check, privileges, reload};
use crate::arguments::{Logging, ProbeOptions};
use crate::console::log::{self, Prefix};
use crate::console::print;
use crate::error::Error;
use crate::missing_options;
use crate::outputs::Outputs;
use crate::run_status::RunStatus;
use crate::settings::probe_settings;
use std::ffi::OsString;
use std::ops::ControlFlow;
use weir_probe::Settings;

/// A valid configuration.
pub struct Configured {
    /// Arguments of the command line.
    pub arguments: Vec<OsString>,
    /// Arguments of the command line and of the file.
    pub merged: Vec<OsString>,
    /// The text of the file.
    pub text: String,
    pub options: ProbeOptions,
    pub settings: Settings,
    pub outputs: Outputs,
}

impl Configured {
    /// Merges command line and file, and validates them. `invalid` are the errors of options that
    /// `arguments` do not have for that reason, with `--check`.
    ///
    /// Breaks if the command has no more to do: with `--print-config` and `--check`.
    ///
    /// # Errors
    /// All problems of the configuration; with `--check` also those of sources and outputs.
    pub fn new(
        given: &ProbeOptions,
        arguments: Vec<OsString>,
        invalid: Vec<Error>,
    ) -> Result<ControlFlow<RunStatus, Self>, Error> {
        let Merged { arguments: merged, text, invalid: of_file } =
            config::merge(given, &arguments).inspect_err(|_| {
                if let Some(log_format) = config::log_format(given, &arguments) {
                    log::init(Logging { log_level: None, log_format }, given.reporting.quiet, Prefix::Time);
                }
            })?;
        let (options, logging) = config::parse_at_start(&merged)?;
        log::init(logging, options.reporting.quiet, Prefix::Time);
        let mut problems = Vec::from_iter(invalid.into_iter().chain(of_file));
        if !options.check {
            Error::of(std::mem::take(&mut problems))?;
        }
        if options.print_config {
            return Ok(ControlFlow::Break(print(config::to_file(&merged)?.as_bytes())));
        }
        let mut note = |error| problems.push(error);
        let owner = privileges::changes_to(&options.user).map_err(&mut note).ok().flatten();
        let settings = probe_settings(&options).map_err(note).ok();
        let outputs = Outputs { owner, ..reload::outputs(&options) };
        problems.extend(check::options(&options, &outputs));
        let is_valid = problems.is_empty();
        if options.check {
            problems.extend(check::surroundings(&options, &outputs));
        }
        let Some(settings) = settings.filter(|_| is_valid) else {
            return Error::of(problems).map(|()| ControlFlow::Break(RunStatus::Problems));
        };
        missing_options::warn_of_inspection(&options.metering, options.inspects());
        let (sinks, metering, enrichment) = (&options.sinks, &options.metering, &options.enrichment);
        missing_options::warn(&outputs.sinks, sinks, metering, options.inspects(), enrichment);
        if options.check {
            let printed = print(check::describe(&options, logging, &outputs, &settings).as_bytes());
            return Error::of(problems).map(|()| ControlFlow::Break(printed));
        }
        Ok(ControlFlow::Continue(Self { arguments, merged, text, options, settings, outputs }))
    }
}
