//! Why a command failed (exit code 1), an enum per command or subject. The libraries state what is
//! wrong; these texts add what the user can do about it.

mod advice;
mod bypass;
mod clickhouse;
mod config;
mod health;
mod input;
mod machine;
mod output;
mod probe;
mod query;
mod reload;
mod rules;
mod store;
mod tcp;
mod top;

pub use advice::{advice, live_source, sink_advice};
pub use bypass::BypassError;
pub use clickhouse::ClickHouseError;
pub use config::{ConfigError, ConfigProblem};
pub use health::HealthError;
pub use input::InputError;
pub use machine::{BenchReportProblem, MachineError};
pub use output::OutputError;
pub use probe::ProbeError;
pub use query::QueryError;
pub use reload::{IncompleteConfig, ReloadError};
pub use rules::{RulesError, RulesProblems};
pub use store::StoreError;
pub use tcp::TcpError;
pub use top::TopError;

use crate::capabilities;
use advice::*;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Bypass(#[from] BypassError),
    #[error(transparent)]
    ClickHouse(#[from] ClickHouseError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Health(#[from] HealthError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error(transparent)]
    Reload(#[from] ReloadError),
    #[error(transparent)]
    Rules(#[from] RulesError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("--dpi full: this weir was built without nDPI; build it with --features ndpi")]
    NoNdpi,
    #[error("{0}")]
    Usage(#[from] clap::Error),
    /// What the command line parser says about an option.
    #[error("{0}")]
    Option(String),
    #[error("{0}")]
    Egress(weir_egress::Error),
    #[error("{path}: {error}{}", advice(error))]
    File { path: String, error: io::Error },
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Sources(Vec<SourceError>),
    /// All that is wrong, each a line.
    #[error("{}", lines(.0))]
    Problems(Vec<Error>),
    #[error("{}", enrichment_with_advice(.0))]
    Enrichment(Vec<weir_enrich::Error>),
    #[error("--anonymise: {0}{advice}", advice = key_advice(.0))]
    Key(#[from] weir_anonymise::KeyError),
    #[error("{0}{advice}", advice = capabilities::advice(.0))]
    Live(weir_capture::Error),
    #[error(transparent)]
    Filter(#[from] weir_capture::FilterError),
    #[error(transparent)]
    Traffic(#[from] weir_capture::SettingsError),
    #[error("{error}{}", sink_advice(.error))]
    Sink {
        #[from]
        error: weir_export::Error,
    },
    #[error(transparent)]
    InvalidOutput(#[from] crate::arguments::InvalidOutput),
    #[error("--sort: {0}")]
    Order(#[from] weir_query::InvalidOrder),
    #[error("{size}: the flow cache can grow to {memory}, more than the system provides; choose fewer flows (--flows)")]
    FlowCacheMemory { size: String, memory: String },
    #[error(transparent)]
    Memory(#[from] Box<FlowCacheTooLarge>),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error("{}: {error}{}", .error.option(), control_advice(.error))]
    Control {
        #[from]
        error: weir_control::Error,
    },
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    #[error("{0}{advice}", advice = recorder_advice(.0))]
    Recorder(#[from] weir_recorder::Error),
    #[error(
        "--where: this expression reads the packets more than once, which is impossible with {0}; save it to a file"
    )]
    PacketsOfPipe(String),
    #[error("{error}{}", sysroot_advice(.error))]
    Sysroot {
        #[from]
        error: weir_host::Error,
    },
    #[error(transparent)]
    Tcp(#[from] TcpError),
    #[error(transparent)]
    Top(#[from] TopError),
}

/// Flow caches that do not fit into the memory that is free.
#[derive(Debug, thiserror::Error)]
#[error(
    "{size}: {caches} can grow to {needed}, and everything else to {reserve}, of which the queues of sinks take \
     {queues}{views}; these do not fit into the memory that is free: {free} ({limit}); {advice}"
)]
pub struct FlowCacheTooLarge {
    pub size: String,
    pub caches: String,
    pub needed: String,
    pub reserve: String,
    pub queues: String,
    pub views: String,
    pub free: String,
    pub limit: String,
    pub advice: String,
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("synth:{spec}: {error}")]
    Traffic { spec: String, error: weir_capture::SettingsError },
    #[error("{}", capture_with_advice(.0))]
    Capture(weir_capture::Error),
}

impl Error {
    /// Fails if there are any problems.
    ///
    /// # Errors
    /// All of them.
    pub fn of(problems: Vec<Self>) -> Result<(), Self> {
        match <[Self; 1]>::try_from(problems) {
            Ok([problem]) => Err(problem),
            Err(problems) if problems.is_empty() => Ok(()),
            Err(problems) => Err(Self::Problems(problems)),
        }
    }

    /// A file that cannot be opened, read or written.
    pub fn file(path: impl Into<PathBuf>, error: io::Error) -> Self {
        Self::File { path: path.into().display().to_string(), error }
    }
}

/// The first line of each error: other lines show the place in an expression. An error that several
/// outputs have is named once.
fn lines(errors: &[Error]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for error in errors {
        let line = match error {
            // Each of these has its lines.
            Error::Sources(_) | Error::Problems(_) | Error::Enrichment(_) => error.to_string(),
            _ => error.to_string().lines().next().unwrap_or_default().into(),
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.join("\n")
}
