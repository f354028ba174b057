//! Explains one connection segment by segment. The capture is read again for it.
//!
//! In: the report, and a function that reads the same sources again. Out: a line per segment, and a
//! comparison with the report. Invariant: a later pass sees no packets that the first pass did not
//! see, and reports from different packets are not compared.

mod error;
mod flow_packets;
mod search;
mod segment_list;

use crate::connection::Connection;
use crate::reader::PacketConsumer;
use crate::report::CaptureReport;
use error::CAPTURE_CHANGED;
pub use error::ExplainError;
pub use flow_packets::{Explained, FlowError, FlowPackets, InvalidTcpFlow};
use search::ConnectionSearch;
pub(crate) use search::PairTracker;
use segment_list::SegmentList;
use std::io::{self, Write};
use weir_packet::Packet;
use weir_tcp::Degradation;

/// How one pass over all sources ended.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Frames read.
    pub frames: u64,
    /// Whether it ended before the sources did.
    pub interrupted: bool,
}

impl CaptureReport {
    /// Writes the segments of the connection at an index. `read` reads all sources once more;
    /// `sources` is their number. The lines fit `terminal_columns`, if given.
    ///
    /// # Errors
    /// A source or the output failed, a pass was interrupted, the capture changed, or the batch
    /// engine has another report of the connection. The segments are written as far as possible.
    pub fn explain<E>(
        &self,
        index: usize,
        sources: usize,
        read: impl FnMut(&mut dyn PacketConsumer) -> Result<Pass, E>,
        terminal_columns: Option<usize>,
        out: impl Write,
    ) -> Result<(), ExplainError<E>> {
        self.explain_first(index, sources, read, terminal_columns, u64::MAX, out).map(drop)
    }

    /// The same with lines for the first `most` segments only. Returns how many others there are.
    pub(crate) fn explain_first<E>(
        &self,
        index: usize,
        sources: usize,
        mut read: impl FnMut(&mut dyn PacketConsumer) -> Result<Pass, E>,
        terminal_columns: Option<usize>,
        most: u64,
        out: impl Write,
    ) -> Result<u64, ExplainError<E>> {
        let connection = &self.connections[index];
        let frames = self.counts.ledger.packets.received;
        let mut read = |consumer: &mut dyn PacketConsumer| {
            read(&mut FirstFrames { frames, consumer }).map_err(ExplainError::Source)
        };
        let is_only = self.connections.iter().filter(|other| other.key() == connection.key()).count() == 1;
        let mut number = 0;
        if !is_only {
            let mut search = ConnectionSearch::new(connection);
            let interrupted = read(&mut search)?.interrupted;
            number = match search.finish() {
                Some(number) => number,
                None if interrupted => return Err(ExplainError::SearchInterrupted),
                None => return Err(ExplainError::NotFound(missing_memory(connection).unwrap_or(CAPTURE_CHANGED))),
            };
        }
        let mut list = SegmentList::new(connection, number, terminal_columns, out);
        list.limit(most);
        let pass = read(&mut list)?;
        // Frames that were appended to one file come last. Those of one of several files can come
        // anywhere.
        let changed = !pass.interrupted && (pass.frames < frames || pass.frames > frames && sources > 1);
        let left_out = list.left_out();
        let (result, error) = match pass.interrupted {
            true => list.interrupt(),
            false => list.finish(if changed { Some(CAPTURE_CHANGED) } else { missing_memory(connection) }),
        };
        match error {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ExplainError::Output(error)),
            _ if changed => Err(ExplainError::CaptureChanged),
            _ => result.map(|()| left_out),
        }
    }
}

/// Passes on the packets of the first frames only.
pub(crate) struct FirstFrames<'a> {
    pub frames: u64,
    pub consumer: &'a mut dyn PacketConsumer,
}

impl PacketConsumer for FirstFrames<'_> {
    fn consume(&mut self, packets: &[Packet], frame_numbers: &[u64]) {
        let first = frame_numbers.partition_point(|&frame| frame <= self.frames);
        self.consumer.consume(&packets[..first], &frame_numbers[..first]);
    }
}

/// Why the report of the engine can differ, if it had too little memory for the connection.
fn missing_memory(connection: &Connection) -> Option<&'static str> {
    connection
        .degradation()
        .has(Degradation::POOL_FULL)
        .then_some("the anomaly pool was full when this connection needed it (marked \"room\")")
}
