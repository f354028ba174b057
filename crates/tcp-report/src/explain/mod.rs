//! One connection, segment by segment: the capture is read again for it.
//!
//! In: the report, and a closure that reads the same sources again. Out: a line per segment, and a comparison with the
//! report. Invariants: no pass delivers packets that the first pass did not have, and what had different packets
//! is not compared.

mod endpoint_pair;
mod listing;

use crate::connection::Connection;
use crate::reader::PacketConsumer;
use crate::report::CaptureReport;
use endpoint_pair::Search;
use listing::{Explanation, Verdict};
use std::io::{self, Write};
use weir_packet::Packet;
use weir_tcp::Degradation;

/// How one pass over the sources ended.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Frames read.
    pub frames: u64,
    /// It ended before the sources did.
    pub interrupted: bool,
}

/// Why a connection was not explained, or not as the report has it.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError<E> {
    /// A source could not be read again.
    #[error("cannot read the capture again")]
    Source(E),
    /// The output could not be written.
    #[error("cannot write the explanation")]
    Output(#[source] io::Error),
    /// The search for the connection was interrupted.
    #[error("interrupted before the connection was found")]
    SearchInterrupted,
    /// Interrupted between segments.
    #[error("interrupted: the list of segments is incomplete")]
    Interrupted,
    /// The connection is not in the capture any more, or cannot be recognised.
    #[error("the connection was not found again: {0}")]
    NotFound(&'static str),
    /// The capture has other packets than before.
    #[error("{CAPTURE_CHANGED}")]
    CaptureChanged,
    /// The batch engine and the segments disagree.
    #[error("the batch engine and the segment list disagree about this connection; please report this")]
    Mismatch,
}

/// Why a segment list cannot be compared with the report.
const CAPTURE_CHANGED: &str = "the capture changed while it was read";

/// Writes the segments of the connection at an index of the report. `read` reads all sources once more, and delivers
/// their packets.
///
/// # Errors
/// A source or the output failed, the run was interrupted, the capture changed, or the engine disagrees. What could be
/// explained is written in any case.
pub fn explain<E>(
    report: &CaptureReport,
    index: usize,
    sources: usize,
    mut read: impl FnMut(&mut dyn PacketConsumer) -> Result<Pass, E>,
    out: impl Write,
) -> Result<(), ExplainError<E>> {
    let connection = &report.connections[index];
    let frames = report.counts.ledger.packets.received;
    let mut read =
        |consumer: &mut dyn PacketConsumer| read(&mut FirstFrames { frames, consumer }).map_err(ExplainError::Source);
    let is_alone = report.connections.iter().filter(|other| other.ends() == connection.ends()).count() == 1;
    let mut number = 0;
    if !is_alone {
        let mut search = Search::new(connection);
        let interrupted = read(&mut search)?.interrupted;
        number = match search.finish() {
            Some(found) => found,
            None if interrupted => return Err(ExplainError::SearchInterrupted),
            None => return Err(ExplainError::NotFound(short_of_room(connection).unwrap_or(CAPTURE_CHANGED))),
        };
    }
    let mut explanation = Explanation::new(connection, index + 1, number, out);
    let pass = read(&mut explanation)?;
    // What one file has gained lies behind all that was read; what one of several has may lie between.
    let changed = pass.frames < frames || pass.frames > frames && sources > 1;
    let (verdict, failed) = if pass.interrupted {
        (Verdict::NotCompared, explanation.interrupt())
    } else {
        explanation.finish(if changed { Some(CAPTURE_CHANGED) } else { short_of_room(connection) })
    };
    match failed {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(ExplainError::Output(error)),
        _ => {}
    }
    if pass.interrupted {
        Err(ExplainError::Interrupted)
    } else if changed || verdict == Verdict::OtherPackets {
        Err(ExplainError::CaptureChanged)
    } else if verdict == Verdict::Differs {
        Err(ExplainError::Mismatch)
    } else {
        Ok(())
    }
}

/// Delivers the packets of the first frames only.
struct FirstFrames<'a> {
    frames: u64,
    consumer: &'a mut dyn PacketConsumer,
}

impl PacketConsumer for FirstFrames<'_> {
    fn consume(&mut self, packets: &[Packet], frame_numbers: &[u64]) {
        let first = frame_numbers.partition_point(|&frame| frame <= self.frames);
        self.consumer.consume(&packets[..first], &frame_numbers[..first]);
    }
}

/// Why the engine's word on a connection may differ, if it had no memory for all of it.
fn short_of_room(connection: &Connection) -> Option<&'static str> {
    let marked = connection.reports().iter().any(|report| report.degradation.has(Degradation::POOL_FULL));
    marked.then_some("it had no memory left for what is out of the ordinary in this connection (marked room)")
}
