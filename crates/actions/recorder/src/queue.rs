//! The queue between pipelines and the thread that writes files.
//!
//! Input: frames of a burst. Output: chunks of packet blocks, ready to be written.
//! Invariants: a frame is copied once, into a chunk. Each output has a fixed number of chunks, so
//! its memory is bounded; with no chunk left, frames are dropped and counted. Nothing waits for the
//! disk. A chunk is handed over when it is full, and at the end of each burst while at least half of
//! the chunks are free. So small bursts do not use up the chunks of a slow disk: half of them are full.

use crate::block;
use crate::chunk::{CHUNK_BYTES, Chunk, WrittenCounters};
use crate::writer::{Shared, Writer};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::error;
use weir_capture::Frame;
use weir_egress::{InterfaceReport, PacketOutput, ReceivedPackets, WhenFull};
use weir_ledger::{OutputCounters, OutputDropReason, PacketTotals};

/// Chunks of an output: 16 MiB together.
const CHUNKS: usize = 1024;
/// How often a slow disk is waited for before the pipeline looks whether it shall go on.
const WAIT: Duration = Duration::from_millis(50);
/// Longest time that the end of a run waits for the disk.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// The writer, until its thread is started.
pub(crate) type IdleWriter = Arc<Mutex<Option<(Writer, Receiver<Chunk>)>>>;

/// The recorder's end in one pipeline.
pub struct RecorderOutput {
    name: String,
    /// `None` when this pipeline knows that the thread is started.
    writer: Option<IdleWriter>,
    shared: Arc<Shared>,
    /// The chunk that is being filled.
    chunk: Option<Chunk>,
    /// Empty chunks.
    spare: Vec<Chunk>,
    returned: Receiver<Chunk>,
    /// `None` after the end.
    full: Option<Sender<Chunk>>,
    counters: Arc<WrittenCounters>,
    taken: PacketTotals,
    queue_full: PacketTotals,
    /// Still in the queue when waiting for the disk ended.
    abandoned: PacketTotals,
    /// Frames of interfaces that were dropped since their last recorded frame.
    missing: Vec<(u32, u64)>,
    /// What this pipeline has received from interfaces at the last report.
    received: Vec<(u32, ReceivedPackets)>,
    when_full: WhenFull,
}

impl RecorderOutput {
    /// Memory of the queues of an output, octets.
    pub fn memory_bytes_for(pipelines: usize) -> u64 {
        (pipelines * CHUNKS * CHUNK_BYTES) as u64
    }

    pub(crate) fn new(name: &str, writer: IdleWriter, shared: Arc<Shared>, full: Sender<Chunk>) -> Self {
        let (home, returned) = channel();
        let counters = Arc::<WrittenCounters>::default();
        let chunk = |_| {
            let blocks = Vec::with_capacity(CHUNK_BYTES);
            Chunk { blocks, frames: Vec::new(), counters: counters.clone(), home: home.clone() }
        };
        Self {
            name: name.into(),
            writer: Some(writer),
            shared,
            chunk: None,
            spare: (0..CHUNKS).map(chunk).collect(),
            returned,
            full: Some(full),
            counters,
            taken: PacketTotals::default(),
            queue_full: PacketTotals::default(),
            abandoned: PacketTotals::default(),
            missing: Vec::new(),
            received: Vec::new(),
            when_full: WhenFull::Drop,
        }
    }

    /// Sets what happens if the disk is slower than the frames; initially [`WhenFull::Drop`].
    pub fn set_when_full(&mut self, when_full: WhenFull) {
        self.when_full = when_full;
    }

    /// Starts the thread, if no other pipeline has. Not before the first packet: a thread is restricted
    /// as the thread that starts it, which is the probe's after its start.
    fn start(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let idle = writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((writer, chunks)) = idle else { return };
        if let Err(error) = thread::Builder::new().name("weir-recorder".into()).spawn(move || writer.run(&chunks)) {
            // The receiver is gone with the writer: each chunk is counted as failed.
            error!(output = self.name, %error, "packets are lost: no thread for the output");
        }
    }

    /// Hands over a chunk that is not full, unless the disk is behind.
    fn hand_over_early(&mut self) {
        self.spare.extend(self.returned.try_iter());
        if self.spare.len() >= CHUNKS / 2 {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let Some(chunk) = self.chunk.take_if(|chunk| !chunk.frames.is_empty()) else { return };
        let failed = match &self.full {
            Some(full) => full.send(chunk).map_err(|error| error.0).err(),
            None => Some(chunk),
        };
        if let Some(chunk) = failed {
            // The thread has ended.
            self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner).is_stopped = true;
            let mut packets = PacketTotals::default();
            let mut start = 0;
            for &(end, _) in &chunk.frames {
                packets.add(block::word(&chunk.blocks, start + block::CAPTURED).map_or(0, |octets| octets as usize));
                start = end;
            }
            self.counters.add_failed(packets);
            chunk.give_back();
        }
    }

    fn waiting(&self) -> PacketTotals {
        let (written, failed) = (self.counters.written(), self.counters.failed());
        let left = |taken: u64, others: [u64; 3]| others.into_iter().fold(taken, u64::saturating_sub);
        PacketTotals {
            packets: left(self.taken.packets, [written.packets, failed.packets, self.abandoned.packets]),
            octets: left(self.taken.octets, [written.octets, failed.octets, self.abandoned.octets]),
        }
    }

    fn wait(until: Instant, holds: impl Fn() -> bool) {
        while !holds() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn add(&mut self, frame: &Frame<'_>) {
        let needed = frame.bytes.len() + block::PACKET_OVERHEAD;
        let is_too_long = |chunk: &Chunk| !chunk.frames.is_empty() && chunk.blocks.len() + needed > CHUNK_BYTES;
        if self.chunk.as_ref().is_some_and(is_too_long) {
            self.hand_over();
        }
        if self.chunk.is_none() {
            self.chunk = self.spare.pop();
        }
        while self.chunk.is_none() && self.when_full.waits() {
            // All chunks are with the thread, which gives them back, whatever becomes of the packets.
            self.chunk = match self.returned.recv_timeout(WAIT) {
                Err(RecvTimeoutError::Disconnected) => break,
                returned => returned.ok(),
            };
        }
        let missing = self.missing.iter_mut().find(|(interface, _)| *interface == frame.interface);
        let Some(chunk) = &mut self.chunk else {
            self.queue_full.add(frame.bytes.len());
            match missing {
                Some((_, count)) => *count += 1,
                None => self.missing.push((frame.interface, 1)),
            }
            return;
        };
        let dropped = missing.map_or(0, |(_, count)| std::mem::take(count));
        block::enhanced_packet(&mut chunk.blocks, frame.interface, frame, dropped);
        chunk.frames.push((chunk.blocks.len(), frame.link_type));
        self.taken.add(frame.bytes.len());
    }
}

impl PacketOutput for RecorderOutput {
    fn send(&mut self, frames: &[Frame<'_>]) {
        self.start();
        self.spare.extend(self.returned.try_iter());
        for frame in frames {
            self.add(frame);
        }
        self.hand_over_early();
    }

    fn flush(&mut self) {
        self.hand_over_early();
    }

    fn describe(&mut self, interface: &InterfaceReport) {
        let mut known = self.shared.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = known.entry(interface.number).or_default();
        shared.name.clone_from(&interface.name);
        if let Some(now) = interface.received {
            // Other pipelines have packets of it, too.
            let number = interface.number;
            let at = self.received.iter().position(|(of, _)| *of == number).unwrap_or_else(|| {
                self.received.push((number, ReceivedPackets::default()));
                self.received.len() - 1
            });
            let before = std::mem::replace(&mut self.received[at].1, now);
            let total = shared.received.get_or_insert_default();
            total.received += now.received.saturating_sub(before.received);
            total.dropped_nic += now.dropped_nic.saturating_sub(before.dropped_nic);
            total.dropped_system += now.dropped_system.saturating_sub(before.dropped_system);
        }
        self.shared.described.notify_one();
    }

    fn counters(&self) -> OutputCounters {
        let (sent, waiting) = (self.counters.written(), self.waiting());
        let recorder = Some(*self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner));
        let (output, dropped) = (self.name.clone(), BTreeMap::new());
        let mut counters = OutputCounters { output, sent, waiting, dropped, recorder };
        let mut failed = self.counters.failed();
        failed.merge(self.abandoned);
        let dropped = [(OutputDropReason::QueueFull, self.queue_full), (OutputDropReason::WriteFailed, failed)];
        for (reason, packets) in dropped.into_iter().filter(|(_, packets)| packets.packets > 0) {
            counters.add_dropped(reason, packets);
        }
        counters
    }

    fn finish(&mut self) {
        self.start();
        self.hand_over();
        if self.full.take().is_none() {
            return;
        }
        let until = Instant::now() + FINISH_TIMEOUT;
        Self::wait(until, || self.waiting().packets == 0);
        self.counters.is_abandoned.store(true, Relaxed);
        self.abandoned = self.waiting();
        if self.shared.pipelines.fetch_sub(1, Relaxed) == 1 {
            Self::wait(until, || self.shared.has_ended.load(Relaxed));
        }
    }
}
