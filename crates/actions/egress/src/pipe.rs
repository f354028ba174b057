//! A pipe or a file in pcap format as an output: a queue per pipeline, and one thread that writes
//! (`writer.rs`).
//!
//! A frame that finds no room in the queue is dropped, so that a slow reader costs its own packets
//! only. The file has one link type: that of the first frame.

use crate::error::Error;
use crate::output::{OutputSettings, PacketOutput, WhenFull};
use crate::pipe_file::PipeFile;
use crate::queue::{Queue, QueueSettings};
use crate::writer::{PipeState, Writer};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_capture::{Frame, pcap_record_header};
use weir_ledger::{OutputCounters, OutputDropReason};

/// After the time of a slow reader, longest time after which the writer stops.
const GIVE_UP_TIMEOUT: Duration = Duration::from_secs(1);
/// Octets of a record before the frame.
const HEADER_OCTETS: usize = 16;

/// The end of a pipe output in one pipeline.
pub(crate) struct PipeOutput {
    queue: Queue,
    state: Arc<PipeState>,
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
        let state = Arc::<PipeState>::default();
        let writer = Writer::new(name, file, state.clone(), settings.retry);
        let settings = QueueSettings {
            output: name.into(),
            thread: "weir-pcap",
            when_full: settings.when_full.clone(),
            finish_timeout: settings.finish_timeout,
            give_up_timeout: GIVE_UP_TIMEOUT,
            reason_to_abandon: OutputDropReason::QueueFull,
        };
        let queues = Queue::open(&settings, pipelines, |chunks, progress| writer.run(&chunks, &progress));
        Ok(queues.into_iter().map(|queue| Self { queue, state: state.clone() }).collect())
    }
}

impl PacketOutput for PipeOutput {
    fn send(&mut self, frames: &[Frame<'_>]) {
        self.queue.start();
        let Some(first) = frames.first() else { return };
        let refusal = self.state.refusal();
        let link_type = *self.state.link_type.get_or_init(|| first.link_type);
        for frame in frames {
            let refusal = if frame.link_type == link_type { refusal } else { Some(OutputDropReason::LinkType) };
            if let Some(reason) = refusal {
                self.queue.refuse(frame, reason);
                continue;
            }
            self.queue.push(frame, HEADER_OCTETS + frame.bytes.len(), |octets| {
                octets.extend_from_slice(&pcap_record_header(frame));
                octets.extend_from_slice(frame.bytes);
            });
        }
        self.queue.flush();
    }

    fn flush(&mut self) {
        self.queue.flush();
    }

    fn counters(&self) -> OutputCounters {
        self.queue.counters()
    }

    fn finish(&mut self) {
        self.queue.finish();
    }
}
