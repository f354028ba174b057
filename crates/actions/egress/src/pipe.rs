//! A pipe or a file in pcap format as an output: a queue per pipeline, and one thread that writes.
//!
//! ```text
//! pipeline: frame ─ copied once ─► queue of octets (pcap records) ─► writer (`writer.rs`) ─► file
//! ```
//! A frame that finds no room in the queue is dropped, so that a slow reader costs its own packets
//! only. The file has one link type: that of the first frame.

use crate::error::Error;
use crate::octets::HEADER_OCTETS;
use crate::output::{OutputSettings, PacketOutput, WhenFull};
use crate::pipe_file::PipeFile;
use crate::pipe_state::{DROPPED, PipeState, QUEUE_FULL, SharedTotals, Written};
use crate::writer::Writer;
use rtrb::{Producer, RingBuffer};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tracing::error;
use weir_capture::{Frame, pcap_record_header};
use weir_ledger::{OutputCounters, OutputDropReason, PacketTotals};

/// Octets of the queue of each pipeline: 13 ms of 10 Gbit/s, 130 ms of 1 Gbit/s.
pub(crate) const QUEUE_OCTETS: usize = 16 << 20;
/// After the time of a slow reader, longest time after which the writer stops.
const GIVE_UP_TIMEOUT: Duration = Duration::from_secs(1);

/// The end of a pipe output in one pipeline.
pub(crate) struct PipeOutput {
    name: String,
    /// `None` when the pipeline has finished.
    queue: Option<Producer<u8>>,
    settings: OutputSettings,
    written: Arc<Written>,
    state: Arc<PipeState>,
    /// The writer, until its thread is started; `None` when this pipeline knows that it is.
    writer: Option<Arc<Mutex<Option<Writer>>>>,
    queued: PacketTotals,
    link_type: PacketTotals,
    /// Not queued, in the order of [`DROPPED`].
    dropped: [PacketTotals; 3],
    /// What the writer had sent and dropped when it was abandoned at the end, with what waited.
    abandoned: Option<(PacketTotals, [PacketTotals; 3])>,
}

impl PipeOutput {
    /// Opens a pipe or a file for these pipelines.
    ///
    /// # Errors
    /// The file cannot be opened, or has other content. Packets wait for a reader, and there is none.
    pub fn open(name: &str, path: &Path, pipelines: usize, settings: &OutputSettings) -> Result<Vec<Self>, Error> {
        let file = PipeFile::open(name, path)?;
        if matches!(settings.when_full, WhenFull::Wait(_)) && !file.is_open() {
            return Err(Error::NoReader(name.into()));
        }
        let state = Arc::new(PipeState::new(pipelines));
        let (mut outputs, mut queues) = (Vec::new(), Vec::new());
        for _ in 0..pipelines {
            let (producer, consumer) = RingBuffer::new(QUEUE_OCTETS);
            let written = Arc::new(Written::default());
            queues.push((consumer, written.clone()));
            outputs.push(Self {
                name: name.into(),
                queue: Some(producer),
                settings: settings.clone(),
                written,
                state: state.clone(),
                writer: None,
                queued: PacketTotals::default(),
                link_type: PacketTotals::default(),
                dropped: Default::default(),
                abandoned: None,
            });
        }
        let writer = Arc::new(Mutex::new(Some(Writer::new(name, file, queues, state, settings.retry))));
        outputs.iter_mut().for_each(|output: &mut Self| output.writer = Some(writer.clone()));
        Ok(outputs)
    }

    /// Starts the writer, if no other pipeline has. Not before the first packet: a thread is restricted as
    /// the thread that starts it, which is the probe's after its start.
    fn start(&mut self) {
        let Some(writer) = self.writer.take() else { return };
        let Some(writer) = writer.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let name = self.name.clone();
        if let Err(error) = thread::Builder::new().name("weir-pcap".into()).spawn(|| writer.run()) {
            error!(output = name, %error, "packets are lost: no thread for the output");
            self.state.set_refusal(Some(OutputDropReason::WriteFailed));
            self.state.has_ended.store(true, Ordering::Relaxed);
        }
    }

    /// What the writer has sent, what it has dropped in the order of [`DROPPED`], and what waits: the
    /// rest of what was queued.
    fn progress(&self) -> (PacketTotals, [PacketTotals; 3], PacketTotals) {
        if let Some((sent, dropped)) = self.abandoned {
            return (sent, dropped, PacketTotals::default());
        }
        let (sent, dropped) = (self.written.sent.get(), self.written.dropped.each_ref().map(SharedTotals::get));
        let mut waiting = self.queued;
        for done in dropped.iter().chain([&sent]) {
            waiting.packets = waiting.packets.saturating_sub(done.packets);
            waiting.octets = waiting.octets.saturating_sub(done.octets);
        }
        (sent, dropped, waiting)
    }

    fn waiting(&self) -> PacketTotals {
        self.progress().2
    }

    /// Waits until a condition holds; returns whether it does.
    fn wait(timeout: Duration, holds: impl Fn() -> bool) -> bool {
        let started = Instant::now();
        while !holds() {
            if started.elapsed() >= timeout {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

impl PacketOutput for PipeOutput {
    fn send(&mut self, frames: &[Frame<'_>]) {
        self.start();
        let (Some(queue), Some(first)) = (&mut self.queue, frames.first()) else { return };
        let refusal = self.state.refusal();
        let link_type = self.state.link_type_or(first.link_type);
        let mut free = queue.slots();
        for frame in frames {
            let octets = frame.bytes.len();
            if u32::from(frame.link_type) != link_type {
                self.link_type.add(octets);
                continue;
            }
            if let Some(reason) = refusal {
                self.dropped[reason].add(octets);
                continue;
            }
            if free < HEADER_OCTETS + octets {
                free = queue.slots();
                while self.settings.when_full.waits()
                    && free < (HEADER_OCTETS + octets).min(QUEUE_OCTETS)
                    && self.state.refusal().is_none()
                {
                    thread::sleep(Duration::from_millis(1));
                    free = queue.slots();
                }
            }
            // The reader of the queue takes a record when all of it is there.
            let is_queued = free >= HEADER_OCTETS + octets
                && queue.push_entire_slice(&pcap_record_header(frame)).is_ok()
                && queue.push_entire_slice(frame.bytes).is_ok();
            if is_queued {
                free -= HEADER_OCTETS + octets;
                self.queued.add(octets);
            } else {
                self.dropped[QUEUE_FULL].add(octets);
            }
        }
    }

    fn counters(&self) -> OutputCounters {
        let (sent, written, waiting) = self.progress();
        let mut counters = OutputCounters { output: self.name.clone(), sent, waiting, ..OutputCounters::default() };
        let dropped = DROPPED.into_iter().zip(written).chain(DROPPED.into_iter().zip(self.dropped));
        for (reason, dropped) in dropped.chain([(OutputDropReason::LinkType, self.link_type)]) {
            if dropped.packets > 0 {
                counters.add_dropped(reason, dropped);
            }
        }
        counters
    }

    fn finish(&mut self) {
        self.start();
        if self.queue.take().is_none() {
            return;
        }
        if !Self::wait(self.settings.finish_timeout, || self.waiting().packets == 0) {
            self.written.gives_up.store(true, Ordering::Relaxed);
            if !Self::wait(GIVE_UP_TIMEOUT, || self.waiting().packets == 0) {
                // The writer waits in a system call for a reader that does not read. What it does later is
                // not counted again.
                let (sent, mut dropped, waiting) = self.progress();
                dropped[QUEUE_FULL].merge(waiting);
                self.abandoned = Some((sent, dropped));
            }
        }
        if self.state.pipelines.fetch_sub(1, Ordering::Relaxed) == 1 {
            Self::wait(GIVE_UP_TIMEOUT, || self.state.has_ended.load(Ordering::Relaxed));
        }
    }
}
