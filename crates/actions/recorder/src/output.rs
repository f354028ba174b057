//! The recorder's end in one pipeline.
//!
//! Input: frames of a burst. Output: chunks of packet blocks, ready to be written, in a queue that
//! drops frames if the disk is slower than they are ([`weir_egress::Queue`]).

use crate::block;
use crate::writer::Shared;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use weir_capture::Frame;
use weir_egress::{InterfaceReport, PacketOutput, Queue, ReceivedPackets};
use weir_ledger::{OutputCounters, RecorderCounters};

/// The recorder's end in one pipeline.
pub struct RecorderOutput {
    pub(crate) queue: Queue,
    pub(crate) shared: Arc<Shared>,
    /// Frames of interfaces that were dropped since their last recorded frame.
    pub(crate) missing: BTreeMap<u32, u64>,
    /// What this pipeline has received from interfaces at the last report.
    pub(crate) received: BTreeMap<u32, ReceivedPackets>,
}

impl PacketOutput for RecorderOutput {
    fn send(&mut self, frames: &[Frame<'_>]) {
        self.queue.start();
        for frame in frames {
            let missing = self.missing.get(&frame.interface).copied().unwrap_or(0);
            let is_queued = self.queue.push(frame, frame.bytes.len() + block::PACKET_OVERHEAD, |blocks| {
                block::enhanced_packet(blocks, frame.interface, frame, missing);
            });
            if !is_queued {
                self.missing.insert(frame.interface, missing + 1);
            } else if missing > 0 {
                self.missing.remove(&frame.interface);
            }
        }
        self.queue.flush();
    }

    fn flush(&mut self) {
        self.queue.flush();
    }

    fn describe(&mut self, interface: &InterfaceReport) {
        let mut known = self.shared.interfaces.lock();
        let shared = known.entry(interface.number).or_default();
        shared.name.clone_from(&interface.name);
        if let Some(now) = interface.received {
            // Other pipelines have packets of it, too.
            let before = mem::replace(self.received.entry(interface.number).or_default(), now);
            let total = shared.received.get_or_insert_default();
            total.received += now.received.saturating_sub(before.received);
            total.dropped_nic += now.dropped_nic.saturating_sub(before.dropped_nic);
            total.dropped_system += now.dropped_system.saturating_sub(before.dropped_system);
        }
        self.shared.described.notify_one();
    }

    fn counters(&self) -> OutputCounters {
        let mut recorder: RecorderCounters = *self.shared.counters.lock();
        recorder.is_stopped |= self.queue.has_lost_thread();
        OutputCounters { recorder: Some(recorder), ..self.queue.counters() }
    }

    fn finish(&mut self) {
        self.queue.finish();
    }
}
