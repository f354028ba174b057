//! The door of every sink: what takes flow records, what holds for all of them, and how they end.

use std::net::SocketAddr;
use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;

/// Whatever takes flow records.
pub trait Sink {
    /// Takes a batch. Trouble with the surroundings is counted in the line, not returned, except
    /// when going on makes no sense: the reader of a pipe went away, or a file cannot be written any more.
    ///
    /// # Errors
    /// The sink is finished: every record of this batch that was not written is in the line as lost.
    /// Further batches may still be given and are counted as lost.
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error>;

    /// Writes out whatever is held back.
    ///
    /// # Errors
    /// As [`Sink::write`].
    fn finish(&mut self) -> Result<(), Error>;

    /// What became of the records so far.
    fn counters(&self) -> &SinkCounters;

    /// From where to where it sends datagrams, if it does: traffic that is not to be metered by who makes it.
    fn udp_endpoints(&self) -> Option<[SocketAddr; 2]> {
        None
    }
}

/// What holds for all sinks of a run.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Write a bidirectional flow as two one-way records where the format could carry it as one.
    pub uniflow: bool,
    /// Observation Domain ID (IPFIX), Source ID (NetFlow v9), engine ID (v5, low octet).
    pub observation_domain: u32,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { uniflow: false, observation_domain: 1 }
    }
}

/// A sink that cannot be opened or has ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a sink as the user wrote it.
    #[error("{spec}: {what}")]
    Spec {
        /// What the user wrote.
        spec: String,
        /// What is wrong with it and what would be right.
        what: String,
    },
    /// The operating system refused.
    #[error("{sink}: {error}")]
    Io {
        /// The sink as the user wrote it.
        sink: String,
        /// What the operating system said.
        error: std::io::Error,
    },
}

impl Error {
    /// Whether the reader of our output went away (`weir read … | head`): a quiet end.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}
