//! The thread of a pipe output: merges the queues of the pipelines into one file.
//!
//! ```text
//! round: of the records in all queues, the earliest first ─► runs ─► writev ─► counters, empty chunks
//! ```
//! Records of one queue keep their order. Records of several queues are ordered by time while
//! they wait together: no queue waits for another one. The octets go from the chunks to the
//! operating system without another copy.

use crate::pipe_file::PipeFile;
use crate::queue::{Chunk, Progress, Record};
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};
use weir_capture::pcap_file_header;
use weir_ledger::{OutputDropReason, PacketTotals};

/// Bounds of one round: octets, and runs of records, which are fewer than the slices that `writev` takes.
const ROUND_OCTETS: usize = 1 << 20;
const ROUND_RUNS: usize = 500;
/// The thread sleeps while the queues are empty, twice as long each time.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);
const LONGEST_SLEEP: Duration = Duration::from_millis(16);
/// Poll interval while a slow reader blocks, after which the thread checks whether to stop.
const WAIT: Duration = Duration::from_millis(50);
/// The length of frames that the file announces; tools accept no more.
const SNAP_BYTES: u32 = 262_144;
const ETHERNET: u16 = 1;
const PCAP_HEADER_OCTETS: usize = 24;

/// What the pipelines and the writer of an output share.
#[derive(Debug, Default)]
pub(crate) struct PipeState {
    /// The link type of the file, once there is a frame.
    pub link_type: OnceLock<u16>,
    /// 0, or the number of the reason for which nothing can be written, plus 1.
    refusal: AtomicU8,
}

impl PipeState {
    pub fn set_refusal(&self, reason: Option<OutputDropReason>) {
        self.refusal.store(reason.map_or(0, |reason| reason as u8 + 1), Relaxed);
    }

    pub fn refusal(&self) -> Option<OutputDropReason> {
        OutputDropReason::ALL.get(usize::from(self.refusal.load(Relaxed)).checked_sub(1)?).copied()
    }
}

pub(crate) struct Writer {
    name: String,
    file: PipeFile,
    state: Arc<PipeState>,
    /// Time from a failed write to the next attempt.
    retry: Duration,
    /// The file has its header.
    has_header: bool,
    /// Why nothing can be written now, and when that was found or tried last.
    failure: Option<(OutputDropReason, Instant)>,
    /// The log says that nothing can be written.
    is_warned: bool,
    /// Why it cannot be opened again, as the log says.
    refused: Option<ErrorKind>,
}

/// What waits of a pipeline.
#[derive(Default)]
struct Waiting {
    chunks: VecDeque<Chunk>,
    /// Records of the first chunk that are written or dropped.
    done: usize,
}

/// A record that waits.
#[derive(Clone, Copy)]
struct Place {
    pipeline: usize,
    chunk: usize,
    record: usize,
    time_ns: u64,
    octets: usize,
}

/// Consecutive records of one chunk.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    pipeline: usize,
    chunk: usize,
    records: Range<usize>,
}

impl Waiting {
    fn places(&self, pipeline: usize) -> impl Iterator<Item = Place> {
        let of_chunks = self.chunks.iter().enumerate().flat_map(move |(number, chunk)| {
            chunk.records.iter().enumerate().map(move |(record, &Record { time_ns, .. })| {
                let octets = chunk.octets_of(record..record + 1).len();
                Place { pipeline, chunk: number, record, time_ns, octets }
            })
        });
        of_chunks.skip(self.done)
    }

    /// Gives back the chunks that are done when these records are.
    fn advance(&mut self, records: usize) {
        self.done += records;
        while self.chunks.front().is_some_and(|chunk| chunk.records.len() <= self.done)
            && let Some(chunk) = self.chunks.pop_front()
        {
            self.done -= chunk.records.len();
            chunk.give_back();
        }
    }

    /// Drops all records. Returns whether there were any.
    fn discard(&mut self, reason: OutputDropReason) -> bool {
        let has_any = !self.chunks.is_empty();
        self.chunks.drain(..).for_each(|chunk| chunk.discard(std::mem::take(&mut self.done), reason));
        has_any
    }
}

impl Writer {
    pub fn new(name: &str, file: PipeFile, state: Arc<PipeState>, retry: Duration) -> Self {
        let (name, has_reader) = (name.into(), file.is_open());
        let (has_header, failure, is_warned, refused) = (false, None, false, None);
        let mut writer = Self { name, file, state, retry, has_header, failure, is_warned, refused };
        if !has_reader {
            writer.fail(OutputDropReason::Closed);
        }
        writer
    }

    /// Writes until all pipelines have ended and their queues are empty.
    pub fn run(mut self, chunks: &Receiver<Chunk>, progress: &[Arc<Progress>]) {
        let mut waiting: Vec<_> = progress.iter().map(|_| Waiting::default()).collect();
        let mut sleep = SHORTEST_SLEEP;
        loop {
            let have_ended = loop {
                match chunks.try_recv() {
                    Ok(chunk) => waiting[chunk.pipeline].chunks.push_back(chunk),
                    Err(error) => break error == TryRecvError::Disconnected,
                }
            };
            if self.round(&mut waiting, progress) {
                sleep = SHORTEST_SLEEP;
            } else if have_ended {
                break;
            } else {
                // Noticed at once, because the next reader would begin in the stream of the last one.
                if self.file.wait_for_end(sleep) {
                    self.file.fail(0);
                    self.fail(OutputDropReason::Closed);
                }
                sleep = (sleep * 2).min(LONGEST_SLEEP);
            }
        }
        if self.failure.is_none() && !self.has_header {
            // A capture without packets has a header, too.
            let header = pcap_file_header(ETHERNET, SNAP_BYTES);
            write_all(&mut self.file, &mut [IoSlice::new(&header)], || true);
        }
    }

    /// Writes or drops some records. Returns whether there were any.
    fn round(&mut self, waiting: &mut [Waiting], progress: &[Arc<Progress>]) -> bool {
        self.retry();
        let mut has_dropped = false;
        for (waiting, progress) in waiting.iter_mut().zip(progress) {
            let given_up = progress.gives_up().then_some(OutputDropReason::QueueFull);
            if let Some(reason) = self.failure.map(|(reason, _)| reason).or(given_up) {
                has_dropped |= waiting.discard(reason);
            }
        }
        self.write(waiting, progress) || has_dropped
    }

    /// Writes the earliest records of all queues. Returns whether there are any.
    fn write(&mut self, waiting: &mut [Waiting], progress: &[Arc<Progress>]) -> bool {
        let runs = merge(waiting);
        if runs.is_empty() {
            return false;
        }
        let header = pcap_file_header(self.state.link_type.get().copied().unwrap_or(ETHERNET), SNAP_BYTES);
        let header = if self.has_header { &[][..] } else { &header };
        let of_run = |run: &Run| waiting[run.pipeline].chunks[run.chunk].octets_of(run.records.clone());
        let mut slices: Vec<_> = [header].into_iter().chain(runs.iter().map(of_run)).map(IoSlice::new).collect();
        let gives_up = || progress.iter().all(|progress| progress.gives_up());
        let (written, refusal) = write_all(&mut self.file, &mut slices, gives_up);
        self.has_header |= written >= header.len();

        let mut left = written.saturating_sub(header.len());
        let mut incomplete = written.min(header.len()) % PCAP_HEADER_OCTETS;
        let mut totals = Vec::with_capacity(runs.len());
        for run in &runs {
            let (mut sent, mut dropped) = (PacketTotals::default(), PacketTotals::default());
            let chunk = &waiting[run.pipeline].chunks[run.chunk];
            for number in run.records.clone() {
                let octets = chunk.octets_of(number..number + 1).len();
                let is_sent = octets <= left;
                (if is_sent { &mut sent } else { &mut dropped }).add(chunk.records[number].captured as usize);
                if !is_sent {
                    incomplete += left;
                }
                left = if is_sent { left - octets } else { 0 };
            }
            totals.push((sent, dropped));
        }
        // Once the loss is counted, the file has whole records.
        if refusal.is_some() {
            self.file.fail(incomplete as u64);
        }
        for (run, (sent, dropped)) in runs.iter().zip(totals) {
            progress[run.pipeline].add_sent(sent);
            progress[run.pipeline].add_dropped(refusal.unwrap_or(OutputDropReason::WriteFailed), dropped);
            waiting[run.pipeline].advance(run.records.len());
        }
        match refusal {
            Some(reason) => self.fail(reason),
            None if self.is_warned => {
                info!(output = self.name, "packets are written again");
                self.is_warned = false;
            }
            None => {}
        }
        true
    }

    fn fail(&mut self, reason: OutputDropReason) {
        if !self.is_warned {
            warn!(output = self.name, reason = reason.key(), "packets are lost: the output cannot be written");
        }
        (self.failure, self.is_warned) = (Some((reason, Instant::now())), true);
        self.state.set_refusal(Some(reason));
    }

    /// After a failure, now and then: opens a FIFO again, or tries a file again.
    fn retry(&mut self) {
        let is_due = |(_, last): &(OutputDropReason, Instant)| last.elapsed() >= self.retry;
        let Some((reason, last)) = self.failure.filter(is_due) else { return };
        if self.file.is_open() {
            self.failure = None;
        } else {
            match self.file.reopen() {
                // It is another stream for another reader.
                Ok(true) => (self.failure, self.has_header, self.refused) = (None, false, None),
                Ok(false) => {
                    // It can be opened again, but has no reader.
                    let reason = if self.refused.take().is_some() { OutputDropReason::Closed } else { reason };
                    self.state.set_refusal(Some(reason));
                    self.failure = Some((reason, last.max(Instant::now())));
                    return;
                }
                Err(error) => {
                    if self.refused.replace(error.kind()) != Some(error.kind()) {
                        warn!(output = self.name, %error, "packets are lost: the output cannot be opened again");
                    }
                    self.fail(OutputDropReason::WriteFailed);
                    return;
                }
            }
        }
        self.state.set_refusal(None);
    }
}

/// The earliest records of all queues, in the order of their times, within the bounds of a round.
fn merge(waiting: &[Waiting]) -> Vec<Run> {
    let mut heads: Vec<_> =
        waiting.iter().enumerate().map(|(pipeline, waiting)| waiting.places(pipeline).peekable()).collect();
    let (mut runs, mut octets) = (Vec::<Run>::new(), 0);
    while octets < ROUND_OCTETS {
        let places = heads.iter_mut().filter_map(|head| head.peek().copied());
        let Some(earliest) = places.min_by_key(|place| place.time_ns) else { break };
        let Place { pipeline, chunk, record, .. } = earliest;
        let number = runs.len();
        match runs.last_mut() {
            Some(run) if (run.pipeline, run.chunk) == (pipeline, chunk) => run.records.end = record + 1,
            _ if number == ROUND_RUNS => break,
            _ => runs.push(Run { pipeline, chunk, records: record..record + 1 }),
        }
        heads[pipeline].next();
        octets += earliest.octets;
    }
    runs
}

/// Writes all of the octets. Returns how many were written, and if it is not all, why.
fn write_all(
    file: &mut PipeFile,
    mut slices: &mut [IoSlice<'_>],
    gives_up: impl Fn() -> bool,
) -> (usize, Option<OutputDropReason>) {
    let mut written = 0;
    // Takes off empty slices.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match file.write(slices) {
            Ok(0) if gives_up() => return (written, Some(OutputDropReason::QueueFull)),
            Ok(0) => file.wait_for_room(WAIT),
            Ok(octets) => {
                written += octets;
                IoSlice::advance_slices(&mut slices, octets);
            }
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return (written, Some(OutputDropReason::Closed)),
            Err(error) => {
                debug!(%error, "write failed");
                return (written, Some(OutputDropReason::WriteFailed));
            }
        }
    }
    (written, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use weir_capture::Frame;

    /// Chunks of frames with these times in ns, which take 10 octets each.
    fn waiting(chunks: &[&[u64]], done: usize) -> Waiting {
        let chunk = |times: &&[u64]| {
            let mut chunk = Chunk::new(0, Arc::default(), channel().0);
            for &time_ns in *times {
                let frame =
                    Frame { bytes: &[], time_ns, wire_bytes: 0, link_type: 1, time_assumed: false, interface: 1 };
                chunk.push(&frame, |octets| octets.extend([7; 10]));
            }
            chunk
        };
        Waiting { chunks: chunks.iter().map(chunk).collect(), done }
    }

    #[test]
    fn queues_are_merged_by_time() {
        let run = |pipeline, chunk, records| Run { pipeline, chunk, records };
        let mut queues = [waiting(&[&[1, 2, 5], &[9]], 1), waiting(&[&[3, 4], &[6]], 0), Waiting::default()];
        let runs = [run(0, 0, 1..2), run(1, 0, 0..2), run(0, 0, 2..3), run(1, 1, 0..1), run(0, 1, 0..1)];
        assert_eq!(merge(&queues), runs);
        queues[0].advance(1);
        queues[1].advance(2);
        assert_eq!(merge(&queues), [run(0, 0, 2..3), run(1, 0, 0..1), run(0, 1, 0..1)]);
        assert_eq!(merge(&[]), []);
    }

    #[test]
    fn a_round_is_bounded() {
        let many = waiting(&[&[1; ROUND_OCTETS / 10 + 10]], 0);
        assert_eq!(merge(&[many]), [Run { pipeline: 0, chunk: 0, records: 0..ROUND_OCTETS / 10 + 1 }]);
        let times = |from: u64| (0..2000).map(|time| 2 * time + from).collect::<Vec<_>>();
        assert_eq!(merge(&[waiting(&[&times(0)], 0), waiting(&[&times(1)], 0)]).len(), ROUND_RUNS);
    }
}
