//! `weir probe`: meters live traffic, with pipelines for each receive queue, until a signal.
//!
//! A probe has four states, a file each:
//!
//! 1. `configured`: options and configuration file (`config`) are valid (`check`).
//! 2. `opened`: `--autotune`, socket of the HTTP interface (`control`), sources and sinks (`start`), privileges,
//!    sandbox.
//! 3. `running`: threads meter; the main thread observes them (`monitor`) and reloads (`reload`).
//! 4. `finished`: all flows are exported, and the final report.

mod autotune;
mod check;
mod config;
mod configured;
mod control;
mod finished;
mod machine;
mod monitor;
mod opened;
mod overload;
mod placement;
pub mod privileges;
mod rate_limit;
mod reload;
mod running;
mod service;
mod start;
mod status;

pub use config::{options_of_file, without_invalid_values};

use crate::arguments::ProbeOptions;
use crate::error::Error;
use crate::run_status::RunStatus;
use configured::Configured;
use finished::Finished;
use opened::Opened;
use running::Running;
use std::ffi::OsString;
use std::ops::ControlFlow;

/// Runs a probe. `invalid` are the errors of options that `arguments` do not have for that reason, with
/// `--check`.
pub fn run(given: &ProbeOptions, arguments: Vec<OsString>, invalid: Vec<Error>) -> Result<RunStatus, Error> {
    let configured = match Configured::new(given, arguments, invalid)? {
        ControlFlow::Break(status) => return Ok(status),
        ControlFlow::Continue(configured) => configured,
    };
    let mut running = Running::start(Opened::open(configured)?)?;
    running.meter();
    Ok(Finished::new(running).report())
}
