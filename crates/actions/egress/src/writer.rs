//! The thread of a pipe output: merges the queues of the pipelines into one file.
//!
//! ```text
//! round: of the records in all queues, the earliest first ─► runs ─► writev ─► counters, queues
//! ```
//! Records of one queue keep their order. Records of several queues are ordered by time while
//! they wait together: no queue waits for another one. The octets go from the queue to the
//! operating system without another copy.

use crate::octets::{HEADER_OCTETS, Octets};
use crate::pipe_file::PipeFile;
use crate::pipe_state::{DROPPED, PipeState, Written};
use rtrb::Consumer;
use std::io::{ErrorKind, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};
use weir_capture::pcap_file_header;
use weir_ledger::{OutputDropReason, PacketTotals};

/// Bounds of one round: octets, and runs of records. Half as many runs as slices that `writev` takes,
/// because a run may be two slices.
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

type Queue = (Consumer<u8>, Arc<Written>);

pub(crate) struct Writer {
    name: String,
    file: PipeFile,
    queues: Vec<Queue>,
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

/// Consecutive records of one queue.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    queue: usize,
    octets: Range<usize>,
}

impl Writer {
    pub fn new(name: &str, file: PipeFile, queues: Vec<Queue>, state: Arc<PipeState>, retry: Duration) -> Self {
        let (name, has_reader) = (name.into(), file.is_open());
        let (has_header, failure, is_warned, refused) = (false, None, false, None);
        let mut writer = Self { name, file, queues, state, retry, has_header, failure, is_warned, refused };
        if !has_reader {
            writer.fail(OutputDropReason::Closed);
        }
        writer
    }

    /// Writes until all pipelines have ended and their queues are empty.
    pub fn run(mut self) {
        let mut sleep = SHORTEST_SLEEP;
        loop {
            // Before the queues are read: a pipeline that has ended adds nothing.
            let has_ended = self.queues.iter().all(|(queue, _)| queue.is_abandoned());
            if self.round() {
                sleep = SHORTEST_SLEEP;
            } else if has_ended {
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
        drop(self.file);
        self.state.has_ended.store(true, Ordering::Relaxed);
    }

    /// Writes or drops some records. Returns whether there were any.
    fn round(&mut self) -> bool {
        self.retry();
        if let Some((reason, _)) = self.failure {
            return self.queues.iter_mut().map(|queue| discard(queue, reason)).sum::<u64>() > 0;
        }
        let given_up = self.queues.iter_mut().filter(|(_, written)| written.gives_up.load(Ordering::Relaxed));
        let dropped: u64 = given_up.map(|queue| discard(queue, OutputDropReason::QueueFull)).sum();
        self.write() || dropped > 0
    }

    /// Writes the earliest records of all queues. Returns whether there are any.
    fn write(&mut self) -> bool {
        let Self { file, queues, state, has_header, .. } = self;
        let mut chunks = Vec::new();
        let mut counts = Vec::new();
        for (queue, written) in queues {
            let octets = queue.slots();
            chunks.push(queue.read_chunk(octets).expect("only this end takes octets"));
            counts.push(written);
        }
        let octets: Vec<_> = chunks.iter().map(|chunk| chunk.as_slices()).map(|(a, b)| Octets(a, b)).collect();
        let runs = merge(&octets);
        if runs.is_empty() {
            return false;
        }
        let header = pcap_file_header(state.link_type().unwrap_or(ETHERNET), SNAP_BYTES);
        let header = if *has_header { &[][..] } else { &header };
        let records = runs.iter().flat_map(|run| octets[run.queue].slices(run.octets.clone()));
        let mut slices: Vec<_> = [IoSlice::new(header)].into_iter().chain(records).collect();
        let gives_up = || counts.iter().all(|written| written.gives_up.load(Ordering::Relaxed));
        let (written, refusal) = write_all(file, &mut slices, gives_up);
        *has_header |= written >= header.len();

        let mut left = written.saturating_sub(header.len());
        let mut incomplete = written.min(header.len()) % PCAP_HEADER_OCTETS;
        let mut taken = vec![0; octets.len()];
        let mut totals = Vec::with_capacity(runs.len());
        for run in &runs {
            let (mut sent, mut dropped) = (PacketTotals::default(), PacketTotals::default());
            for (start, end) in records_of(octets[run.queue], run.octets.clone()) {
                let is_sent = end - start <= left;
                (if is_sent { &mut sent } else { &mut dropped }).add(end - start - HEADER_OCTETS);
                if !is_sent {
                    incomplete += left;
                }
                left = if is_sent { left - (end - start) } else { 0 };
            }
            totals.push((run.queue, sent, dropped));
            taken[run.queue] = run.octets.end;
        }
        // Once the loss is counted, the file has whole records.
        if refusal.is_some() {
            file.fail(incomplete as u64);
        }
        for (queue, sent, dropped) in totals {
            counts[queue].sent.add(sent);
            count_dropped(counts[queue], refusal.unwrap_or(OutputDropReason::WriteFailed), dropped);
        }
        chunks.into_iter().zip(taken).for_each(|(chunk, octets)| chunk.commit(octets));
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
fn merge(queues: &[Octets<'_>]) -> Vec<Run> {
    let mut heads: Vec<_> = queues.iter().map(|octets| (0, octets.record(0))).collect();
    let (mut runs, mut octets) = (Vec::<Run>::new(), 0);
    while octets < ROUND_OCTETS {
        let records = heads.iter().enumerate().filter_map(|(queue, &(at, record))| Some((queue, at, record?)));
        let Some((queue, at, record)) = records.min_by_key(|(.., record)| record.time_ns) else { break };
        let end = at + HEADER_OCTETS + record.octets;
        let number = runs.len();
        match runs.last_mut() {
            Some(run) if run.queue == queue => run.octets.end = end,
            _ if number == ROUND_RUNS => break,
            _ => runs.push(Run { queue, octets: at..end }),
        }
        heads[queue] = (end, queues[queue].record(end));
        octets += end - at;
    }
    runs
}

/// Start and end of each record in a range.
fn records_of(octets: Octets<'_>, range: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    let end_of = move |at| octets.record(at).map(|record| at + HEADER_OCTETS + record.octets);
    let first = Some((range.start, end_of(range.start)));
    std::iter::successors(first, move |&(_, end)| end.map(|at| (at, end_of(at))))
        .map_while(|(start, end)| Some((start, end?)))
        .take_while(move |&(_, end)| end <= range.end)
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

/// Drops all records of a queue. Returns their number.
fn discard((queue, written): &mut Queue, reason: OutputDropReason) -> u64 {
    let octets = queue.slots();
    let chunk = queue.read_chunk(octets).expect("only this end takes octets");
    let (first, second) = chunk.as_slices();
    let (mut dropped, mut taken) = (PacketTotals::default(), 0);
    for (start, end) in records_of(Octets(first, second), 0..octets) {
        dropped.add(end - start - HEADER_OCTETS);
        taken = end;
    }
    count_dropped(written, reason, dropped);
    chunk.commit(taken);
    dropped.packets
}

fn count_dropped(written: &Written, reason: OutputDropReason, dropped: PacketTotals) {
    let place = DROPPED.iter().position(|&known| known == reason).expect("the writer has these reasons");
    written.dropped[place].add(dropped);
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_capture::{Frame, pcap_record_header};

    /// Records with these times in ns, of frames with this many octets.
    fn records(frames: &[(u64, usize)]) -> Vec<u8> {
        let mut octets = Vec::new();
        for &(time_ns, length) in frames {
            let bytes = &vec![7; length];
            let frame = Frame { bytes, time_ns, wire_bytes: 0, link_type: 1, time_assumed: false, interface: 1 };
            octets.extend(pcap_record_header(&frame));
            octets.extend(bytes);
        }
        octets
    }

    #[test]
    fn queues_are_merged_by_time_and_incomplete_records_wait() {
        let first = records(&[(1, 10), (2, 10), (5, 10), (9, 10)]);
        let second = records(&[(3, 4), (4, 4), (6, 4)]);
        let run = |queue, octets| Run { queue, octets };
        // The last record of the first queue is incomplete.
        let queues = [Octets(&first[..100], &[]), Octets(&second[..30], &second[30..]), Octets(&[], &[])];
        assert_eq!(merge(&queues), [run(0, 0..52), run(1, 0..40), run(0, 52..78), run(1, 40..60)]);
        assert_eq!(records_of(queues[0], 26..78).collect::<Vec<_>>(), [(26, 52), (52, 78)]);
        assert_eq!(merge(&[]), []);
    }

    #[test]
    fn a_round_is_bounded() {
        let many = records(&vec![(1, 1000); 2000]);
        let [run] = &merge(&[Octets(&many, &[])])[..] else { panic!("it is one run") };
        assert!((ROUND_OCTETS..ROUND_OCTETS + 1016).contains(&run.octets.end));
        let times: Vec<_> = (0..2000).map(|time| (2 * time, 10)).collect();
        let later: Vec<_> = (0..2000).map(|time| (2 * time + 1, 10)).collect();
        assert_eq!(merge(&[Octets(&records(&times), &[]), Octets(&records(&later), &[])]).len(), ROUND_RUNS);
    }
}
