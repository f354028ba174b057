//! Why a connection was not explained.

use std::io;

/// Why packets cannot be compared with those of the report.
pub const CAPTURE_CHANGED: &str = "the capture changed while it was read";

/// Why a connection was not explained, or not confirmed.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError<E> {
    /// A source could not be read again.
    #[error("cannot read the capture again")]
    Source(E),
    /// The output could not be written.
    #[error("cannot write the segments")]
    Output(#[source] io::Error),
    /// Interrupted before the connection was found; nothing is written.
    #[error("interrupted before the connection was found")]
    SearchInterrupted,
    /// The connection is not in the capture any more, or cannot be recognised; nothing is written.
    #[error("the connection was not found again: {0}")]
    NotFound(&'static str),
    /// Interrupted between segments.
    #[error("interrupted: the list of segments is incomplete")]
    Interrupted,
    /// The capture has other packets than before.
    #[error("{CAPTURE_CHANGED}")]
    CaptureChanged,
    /// The report of the batch engine is another one.
    #[error("the batch engine and the segment list have different reports of this connection; please report this")]
    Mismatch,
}
