//! The sending end of a reader: it sends each packet to the meter that has its bucket, and applies
//! updates of the indirection table between bursts.

use super::group_state::GroupState;
use super::indirection_table::IndirectionTable;
use crate::heartbeat::beat;
use crate::loss_channel::SnapshotSender;
use crate::loss_history::LossSnapshot;
use crate::reading_stage::ReadingStage;
use crate::settings::BackPressure;
use rtrb::Producer;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use weir_capture::{LiveSource, MAX_BURST_FRAMES};
use weir_flow::{BUCKETS, Partitioner};
use weir_packet::Packet;

/// Packets in a queue: 2 MiB, some milliseconds at line rate.
pub(crate) const QUEUE_PACKETS: usize = 1 << 14;
/// Time between two attempts to put packets into a full queue.
const RETRY_INTERVAL: Duration = Duration::from_micros(50);
/// Poll timeout of a live source while flows migrate.
const FAST_POLL_TIMEOUT: Duration = Duration::from_millis(1);

pub(crate) struct Dispatcher {
    pub(super) group: Arc<GroupState>,
    pub(super) number: usize,
    pub(super) queues: Vec<Producer<Packet>>,
    /// Packets sent to each meter.
    pub(super) sent: Vec<u64>,
    pub(super) snapshots: Vec<SnapshotSender>,
    pub(super) back_pressure: BackPressure,
    /// Poll timeout of a live source while no flows migrate.
    pub(super) poll_timeout: Duration,
    /// `None` with a single meter.
    pub(super) partitioner: Option<Partitioner>,
    pub(super) table: IndirectionTable,
    pub(super) generation: u64,
    /// The last table update that was applied.
    pub(super) update: u64,
}

impl Dispatcher {
    /// Sends packets to their meters. If a queue is full, waits, or drops and counts packets.
    pub fn send(&mut self, packets: &mut [Packet], reader: &mut ReadingStage) {
        let Some(partitioner) = &mut self.partitioner else {
            return enqueue(&mut self.queues[0], packets.iter(), self.back_pressure, &mut self.sent[0], reader);
        };
        let counters = &self.group.readers[self.number].packets;
        let mut meters = [0_u8; MAX_BURST_FRAMES];
        for (meter, packet) in meters.iter_mut().zip(&mut *packets) {
            let bucket = usize::from(partitioner.assign(packet)) % BUCKETS;
            // Only this thread writes the counter, so no atomic addition is needed.
            counters[bucket].store(counters[bucket].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            *meter = self.table[bucket];
        }
        for (number, queue) in self.queues.iter_mut().enumerate() {
            let of_meter = packets.iter().zip(meters).filter(|(_, meter)| usize::from(*meter) == number);
            enqueue(queue, of_meter.map(|(packet, _)| packet), self.back_pressure, &mut self.sent[number], reader);
        }
    }

    /// Applies an update of the table, if there is a new one.
    #[inline]
    pub fn apply_update(&mut self, source: Option<&mut dyn LiveSource>) {
        if self.group.last_update.load(Ordering::Relaxed) != self.update {
            self.apply_new_update(source);
        }
    }

    #[cold]
    fn apply_new_update(&mut self, source: Option<&mut dyn LiveSource>) {
        let new = self.group.table_update.lock();
        let number = self.group.last_update.load(Ordering::Relaxed);
        let (table, generation, poll_fast) = (new.table, new.generation, new.poll_fast);
        drop(new);
        if let Some(source) = source {
            let longest = if poll_fast { FAST_POLL_TIMEOUT } else { self.poll_timeout };
            source.set_poll_timeout(longest.min(self.poll_timeout));
        }
        let state = &self.group.readers[self.number];
        if generation != self.generation {
            store_all(&state.sent_before, &self.sent);
            state.generation.store(generation, Ordering::Release);
        }
        state.applied_update.store(number, Ordering::Release);
        (self.table, self.update, self.generation) = (table, number, generation);
    }

    /// Whether a meter has requested a loss snapshot.
    #[inline]
    pub fn snapshot_is_requested(&self) -> bool {
        self.snapshots.iter().any(SnapshotSender::is_requested)
    }

    /// Updates the losses of a source and sends a snapshot to all meters.
    pub fn update_losses(&mut self, reader: &mut ReadingStage, source: &mut dyn LiveSource) {
        // Nearly full: more than three quarters.
        let nearly_full = self.queues.iter().any(|queue| queue.slots() < QUEUE_PACKETS / 4);
        let snapshot = reader.update_losses(source, nearly_full);
        self.snapshots.iter_mut().for_each(|sender| sender.send(snapshot));
    }

    pub fn send_last_snapshot(&mut self, snapshot: LossSnapshot) {
        self.snapshots.iter_mut().for_each(|sender| sender.send_last(snapshot));
    }

    /// Publishes that all packets up to a time were sent.
    pub fn set_complete_until(&self, time_ns: u64) {
        self.group.readers[self.number].complete_until_ns.store(time_ns, Ordering::Release);
    }

    /// Whether all meters have finished.
    pub fn is_abandoned(&self) -> bool {
        self.queues.iter().all(Producer::is_abandoned)
    }
}

impl Drop for Dispatcher {
    /// Publishes how many packets were sent in total.
    fn drop(&mut self) {
        let state = &self.group.readers[self.number];
        store_all(&state.sent_in_total, &self.sent);
        state.is_finished.store(true, Ordering::Release);
    }
}

#[inline]
fn enqueue<'a>(
    queue: &mut Producer<Packet>,
    mut packets: impl Iterator<Item = &'a Packet> + Clone,
    back_pressure: BackPressure,
    sent: &mut u64,
    reader: &mut ReadingStage,
) {
    let mut left = packets.clone().count();
    while left > 0 {
        let count = queue.slots().min(left);
        if let Ok(chunk) = queue.write_chunk_uninit(count) {
            chunk.fill_from_iter(packets.by_ref().take(count).copied());
        }
        *sent += count as u64;
        left -= count;
        if left == 0 {
            return;
        }
        if back_pressure == BackPressure::Drop || queue.is_abandoned() {
            return reader.drop_packets(packets);
        }
        beat();
        thread::sleep(RETRY_INTERVAL);
    }
}

fn store_all(counters: &[AtomicU64], values: &[u64]) {
    for (counter, value) in counters.iter().zip(values) {
        counter.store(*value, Ordering::Relaxed);
    }
}
