//! Errors: a reload of a running probe.

use crate::arguments::RecordSink;
use crate::sandbox::Sandbox;

/// A reload of a running probe.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    #[error("{path}: {problem}")]
    Incomplete { path: String, problem: IncompleteConfig },
    #[error("these options differ from those at the start, and a change needs a restart: {0}")]
    NeedsRestart(String),
    #[error("the reload panicked, please report this")]
    Panicked,
    #[error(
        "{0}: top, uniflow, domain and where of an open sink cannot change, nor the settings of a store; restart the probe, or name another file"
    )]
    ChangesOpenFile(String),
    #[error(
        "{0}: a sink with a spool cannot change while the probe runs, because the open one has the folder until its end; \
         restart the probe, or name another folder"
    )]
    ChangesOpenSpool(String),
    #[error(
        "{sink}: a running probe opens files only in the directories of the outputs that it was started with \
         ({permitted}); restart the probe, or name a file there"
    )]
    OutsideSandbox { sink: String, permitted: String },
    #[error("{0}: a running probe connects only to the TCP ports that it was started with; restart the probe")]
    OtherTcpPort(String),
    #[error(
        "the queues of {sinks} sinks ({closing} are being closed) can grow to {needed}{views}, and {room} is left for them \
         beside the flow caches ({limit}); name fewer sinks, change them in several reloads, or raise the limit and \
         restart the probe"
    )]
    Sinks { sinks: usize, closing: usize, needed: String, views: String, room: String, limit: String },
}

/// Why a configuration file seems to be incomplete when it is read again.
#[derive(Debug, thiserror::Error)]
pub enum IncompleteConfig {
    #[error("the file is empty")]
    Empty,
    #[error("the last line does not end with a line feed, so the file may be incomplete; end it with one")]
    LastLine,
    #[error(
        "the file is the beginning of the configuration in effect, so it may be incomplete; if you removed its last \
         lines, write a comment there"
    )]
    Beginning,
    #[error("the file names no output, so it may be incomplete; for the table, write output = [\"table:-\"]")]
    NoOutput,
}

impl ReloadError {
    /// The sandbox does not permit a new sink.
    pub fn outside(sandbox: &Sandbox, sink: &RecordSink) -> Self {
        match sink.spec.tcp_ports().as_slice() {
            [_, ..] => Self::OtherTcpPort(sink.to_string()),
            [] => Self::OutsideSandbox { sink: sink.to_string(), permitted: sandbox.directories() },
        }
    }
}
