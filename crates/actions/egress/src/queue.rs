//! A queue of frames for each pipeline, and one thread that writes the frames of all.
//!
//! ```text
//! pipeline: frame ─ copied once ─► chunk ─ it is full, or the burst ends ─► thread ─► file
//!                                    ▲────────────── empty ◄──────────────────┘
//! ```
//! Invariants: each frame is sent, waiting or dropped with a reason, and counted once. A queue has a
//! fixed number of chunks, so its memory is bounded; with no chunk left, frames are dropped or wait
//! ([`WhenFull`]). A chunk that is not full is handed over at the end of a burst, and only while most
//! chunks are free: small bursts do not use up the queue of a slow reader.
//! Not done here: the format of the octets, and writing them.

use crate::output::{Refused, WhenFull};
use parking_lot::Mutex;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tracing::error;
use weir_capture::Frame;
use weir_ledger::{OutputCounters, OutputDropReason, PacketTotals};

const CHUNKS: usize = 1024;
/// Octets of a chunk; only a single longer frame exceeds them.
const CHUNK_OCTETS: usize = 16 << 10;
/// Octets of the queue of each pipeline: 13 ms of 10 Gbit/s, 130 ms of 1 Gbit/s.
pub const QUEUE_OCTETS: usize = CHUNKS * CHUNK_OCTETS;
/// With fewer free chunks, only full ones are handed over.
const MOST_CHUNKS: usize = CHUNKS / 8 * 7;
/// How often a pipeline that waits for a chunk looks whether it shall go on.
const WAIT: Duration = Duration::from_millis(50);

/// How the queues of an output behave.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// The output as the user wrote it.
    pub output: String,
    /// Name of the thread.
    pub thread: &'static str,
    /// What happens to frames for which there is no room.
    pub when_full: WhenFull,
    /// Longest time in which the end of a run waits for the thread.
    pub finish_timeout: Duration,
    /// After that, longest time in which the thread stops.
    pub give_up_timeout: Duration,
    /// Why packets were lost that wait after these times.
    pub reason_to_abandon: OutputDropReason,
}

/// A frame of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Where it ends in the octets of the chunk.
    pub end: usize,
    /// As in [`Frame`], and all that follow.
    pub time_ns: u64,
    /// Octets of the frame, without what the format adds.
    pub captured: u32,
    /// Length on the wire.
    pub wire_bytes: u32,
    /// Interface number.
    pub interface: u32,
    /// LINKTYPE number.
    pub link_type: u16,
}

/// Frames of one pipeline in the format of the output.
pub struct Chunk {
    /// The octets of all frames.
    pub octets: Vec<u8>,
    /// The frames, in their order.
    pub records: Vec<Record>,
    /// Number of the pipeline, from 0.
    pub pipeline: usize,
    /// That of the pipeline.
    pub progress: Arc<Progress>,
    /// Where the empty chunk goes back to.
    home: Sender<Self>,
}

impl Chunk {
    pub(crate) fn new(pipeline: usize, progress: Arc<Progress>, home: Sender<Self>) -> Self {
        Self { octets: Vec::with_capacity(CHUNK_OCTETS), records: Vec::new(), pipeline, progress, home }
    }

    /// Appends a frame, whose octets `encode` writes.
    #[inline]
    pub(crate) fn push(&mut self, frame: &Frame<'_>, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.octets);
        self.records.push(Record {
            end: self.octets.len(),
            time_ns: frame.time_ns,
            captured: frame.bytes.len() as u32,
            wire_bytes: frame.wire_bytes,
            interface: frame.interface,
            link_type: frame.link_type,
        });
    }

    /// The octets of these records.
    pub fn octets_of(&self, records: Range<usize>) -> &[u8] {
        let end_of = |records: usize| records.checked_sub(1).map_or(0, |last| self.records[last].end);
        &self.octets[end_of(records.start)..end_of(records.end)]
    }

    /// Gives the empty chunk back to its pipeline.
    pub fn give_back(mut self) {
        self.octets.clear();
        self.octets.shrink_to(CHUNK_OCTETS);
        self.records.clear();
        let home = self.home.clone();
        // The pipeline may be gone.
        let _ = home.send(self);
    }

    /// Counts the packets from this record on as dropped, and gives the chunk back.
    pub fn discard(self, first: usize, reason: OutputDropReason) {
        let mut dropped = PacketTotals::default();
        self.records[first..].iter().for_each(|record| dropped.add(record.captured as usize));
        self.progress.add_dropped(reason, dropped);
        self.give_back();
    }
}

/// What the thread has done with the frames of one pipeline.
#[derive(Debug, Default)]
pub struct Progress {
    counters: Mutex<OutputCounters>,
    gives_up: AtomicBool,
}

impl Progress {
    /// Counts packets that were written.
    pub fn add_sent(&self, packets: PacketTotals) {
        self.counters.lock().sent.merge(packets);
    }

    /// Counts packets that were lost.
    pub fn add_dropped(&self, reason: OutputDropReason, packets: PacketTotals) {
        if packets.packets > 0 {
            self.counters.lock().add_dropped(reason, packets);
        }
    }

    /// Whether the pipeline waits no longer: its chunks are to be discarded.
    pub fn gives_up(&self) -> bool {
        self.gives_up.load(Relaxed)
    }
}

/// The thread, until it is started.
type IdleThread = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// What the queues of an output share.
struct Shared {
    /// Pipelines that have not finished.
    pipelines: AtomicUsize,
    /// The thread has ended.
    has_ended: AtomicBool,
}

/// The end of an output in one pipeline.
pub struct Queue {
    settings: QueueSettings,
    shared: Arc<Shared>,
    /// `None` when this pipeline knows that the thread is started.
    thread: Option<IdleThread>,
    /// The chunk that is being filled.
    chunk: Option<Chunk>,
    free: Vec<Chunk>,
    returned: Receiver<Chunk>,
    /// `None` after the end.
    full: Option<Sender<Chunk>>,
    progress: Arc<Progress>,
    queued: PacketTotals,
    /// Not queued.
    refused: Refused,
    /// What had become of the queued packets when the thread was abandoned, with those that waited.
    abandoned: Option<OutputCounters>,
    has_lost_thread: bool,
}

impl Queue {
    /// A queue for each pipeline. `write` is what the thread does: it takes chunks until all pipelines
    /// have ended, and gets what it shall count into, by pipeline.
    pub fn open(
        settings: &QueueSettings,
        pipelines: usize,
        write: impl FnOnce(Receiver<Chunk>, Vec<Arc<Progress>>) + Send + 'static,
    ) -> Vec<Self> {
        let (full, chunks) = channel();
        let shared = Arc::new(Shared { pipelines: AtomicUsize::new(pipelines), has_ended: AtomicBool::new(false) });
        let progress: Vec<_> = (0..pipelines).map(|_| Arc::<Progress>::default()).collect();
        let (of_thread, of_writer) = (shared.clone(), progress.clone());
        let run = move || {
            write(chunks, of_writer);
            of_thread.has_ended.store(true, Relaxed);
        };
        let thread: IdleThread = Arc::new(Mutex::new(Some(Box::new(run))));
        let queue = |(pipeline, progress): (usize, Arc<Progress>)| {
            let (home, returned) = channel();
            Self {
                settings: settings.clone(),
                shared: shared.clone(),
                thread: Some(thread.clone()),
                chunk: None,
                free: (0..CHUNKS).map(|_| Chunk::new(pipeline, progress.clone(), home.clone())).collect(),
                returned,
                full: Some(full.clone()),
                progress,
                queued: PacketTotals::default(),
                refused: Refused::default(),
                abandoned: None,
                has_lost_thread: false,
            }
        };
        progress.into_iter().enumerate().map(queue).collect()
    }

    /// Starts the thread, if no other pipeline has. Not before the first packet: a thread is restricted as
    /// the thread that starts it, which is the probe's after its start.
    pub fn start(&mut self) {
        let Some(run) = self.thread.take().and_then(|idle| idle.lock().take()) else { return };
        if let Err(error) = thread::Builder::new().name(self.settings.thread.into()).spawn(run) {
            // The receiver is gone with the thread: each chunk is counted as failed.
            error!(output = self.settings.output, %error, "packets are lost: no thread for the output");
            self.shared.has_ended.store(true, Relaxed);
        }
    }

    /// Queues a frame, for which `encode` appends at most `octets`. Returns whether there was room; else it
    /// is counted as dropped.
    #[inline]
    pub fn push(&mut self, frame: &Frame<'_>, octets: usize, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        let is_full = |chunk: &Chunk| !chunk.records.is_empty() && chunk.octets.len() + octets > CHUNK_OCTETS;
        if self.chunk.as_ref().is_some_and(is_full) {
            self.hand_over();
        }
        if self.chunk.is_none() {
            self.chunk = self.free_chunk();
        }
        let has_room = octets <= CHUNK_OCTETS || self.has_room(octets);
        let Some(chunk) = self.chunk.as_mut().filter(|_| has_room) else {
            self.refuse(frame, OutputDropReason::QueueFull);
            return false;
        };
        chunk.push(frame, encode);
        self.queued.add(frame.bytes.len());
        true
    }

    /// Counts a frame that is not queued.
    pub fn refuse(&mut self, frame: &Frame<'_>, reason: OutputDropReason) {
        self.refused.add(reason, frame.bytes.len());
    }

    fn free_chunk(&mut self) -> Option<Chunk> {
        let mut free = self.free.pop().or_else(|| self.returned.try_recv().ok());
        while free.is_none() && self.settings.when_full.waits() {
            // All chunks are with the thread, which gives them back, whatever becomes of the packets.
            free = match self.returned.recv_timeout(WAIT) {
                Err(RecvTimeoutError::Disconnected) => break,
                returned => returned.ok(),
            };
        }
        free
    }

    /// Whether there is room for a frame that is longer than a chunk: the queue has no more octets of such
    /// frames than of others.
    fn has_room(&mut self, octets: usize) -> bool {
        loop {
            let waiting = self.progress().waiting.octets;
            if waiting == 0 || waiting + octets as u64 <= QUEUE_OCTETS as u64 || self.shared.has_ended.load(Relaxed) {
                return true;
            }
            if !self.settings.when_full.waits() {
                return false;
            }
            // A chunk comes back when its frames are written.
            self.free.extend(self.returned.recv_timeout(WAIT));
        }
    }

    /// Hands over a chunk that is not full, unless the thread is behind. At the end of each burst, and
    /// several times a second while there are few packets.
    pub fn flush(&mut self) {
        self.free.extend(self.returned.try_iter());
        if self.free.len() >= MOST_CHUNKS {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let Some(chunk) = self.chunk.take_if(|chunk| !chunk.records.is_empty()) else { return };
        let failed = match &self.full {
            Some(full) => full.send(chunk).map_err(|error| error.0).err(),
            None => Some(chunk),
        };
        if let Some(chunk) = failed {
            self.has_lost_thread = true;
            chunk.discard(0, OutputDropReason::WriteFailed);
        }
    }

    /// The thread could not be started, or has ended before this pipeline.
    pub fn has_lost_thread(&self) -> bool {
        self.has_lost_thread
    }

    /// What became of the queued packets; the rest of them is waiting.
    fn progress(&self) -> OutputCounters {
        let counters = self.abandoned.clone().unwrap_or_else(|| self.progress.counters.lock().clone());
        let done = counters.total();
        let packets = self.queued.packets.saturating_sub(done.packets);
        let octets = self.queued.octets.saturating_sub(done.octets);
        OutputCounters { waiting: PacketTotals { packets, octets }, ..counters }
    }

    /// The outcome of the frames so far.
    pub fn counters(&self) -> OutputCounters {
        let mut counters = OutputCounters { output: self.settings.output.clone(), ..self.progress() };
        self.refused.add_to(&mut counters);
        counters
    }

    /// Hands over the rest, and waits until it is written. Nothing is waiting then.
    pub fn finish(&mut self) {
        self.start();
        self.hand_over();
        if self.full.take().is_none() {
            return;
        }
        let QueueSettings { finish_timeout, give_up_timeout, reason_to_abandon, .. } = self.settings;
        let until = Instant::now() + finish_timeout;
        let is_empty = || self.progress().waiting.packets == 0;
        if !wait(until, is_empty) {
            self.progress.gives_up.store(true, Relaxed);
            if !wait(Instant::now() + give_up_timeout, is_empty) {
                // The thread waits in a system call. What it does later is not counted again.
                let mut counters = self.progress();
                let waiting = mem::take(&mut counters.waiting);
                counters.add_dropped(reason_to_abandon, waiting);
                self.abandoned = Some(counters);
            }
        }
        if self.shared.pipelines.fetch_sub(1, Relaxed) == 1 {
            wait(until.max(Instant::now() + give_up_timeout), || self.shared.has_ended.load(Relaxed));
        }
    }
}

/// Waits until a condition holds; returns whether it does.
fn wait(until: Instant, holds: impl Fn() -> bool) -> bool {
    while !holds() {
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}
