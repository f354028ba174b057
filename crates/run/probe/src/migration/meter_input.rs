//! The receiving end of a meter: it takes packets from the queues of all readers, and carries out
//! the tasks of its meter in migrations (see [`super`]).

use super::group_state::{GroupState, MigrationTask, ReaderState};
use crate::metering_stage::MeteringStage;
use rtrb::Consumer;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{Receiver, Sender};
use weir_capture::MAX_BURST_FRAMES;
use weir_flow::{BUCKETS, MigratedFlow};
use weir_packet::Packet;

pub(crate) struct MeterInput {
    pub(super) group: Arc<GroupState>,
    pub(super) number: usize,
    pub(super) queues: Vec<PacketQueue>,
    /// Number of the last task that was started.
    pub(super) seen_task: u64,
    /// The task of the present migration.
    pub(super) task: Option<MigrationTask>,
    /// With [`MigrationTask::MigrateOut`]: the flows are collected; packets sent before the new
    /// generation are still in the queues.
    pub(super) is_collected: bool,
    /// Flows from other meters, and the channels to all meters.
    pub(super) flows_in: Receiver<Vec<MigratedFlow>>,
    pub(super) flows_out: Vec<Sender<Vec<MigratedFlow>>>,
    /// Flows received for the current migration, one entry per old meter.
    pub(super) received: Vec<Vec<MigratedFlow>>,
}

pub(super) struct PacketQueue {
    pub(super) packets: Consumer<Packet>,
    pub(super) taken: u64,
}

impl MeterInput {
    /// Processes at most a burst of packets from each queue, and during a migration none that was
    /// sent with the new table. Returns the number of packets, and whether the queues were emptied,
    /// so that the clock of the meter may advance to that of the readers.
    pub fn process(&mut self, metering: &mut MeteringStage) -> (usize, bool) {
        let generation = match &self.task {
            Some(MigrationTask::MigrateOut(handoff)) => self.is_collected.then_some(handoff.generation),
            Some(MigrationTask::MigrateIn { generation, .. }) => Some(*generation),
            Some(MigrationTask::Cancel) | None => None,
        };
        let (mut sum, mut emptied) = (0, generation.is_none());
        for (reader, queue) in self.queues.iter_mut().enumerate() {
            let available = queue.packets.slots();
            let mut count = available.min(MAX_BURST_FRAMES);
            // After `slots`: if packets of the generation are in the queue, its number is visible.
            if let Some(generation) = generation
                && let Some(end) = self.group.sent_before(reader, self.number, generation)
            {
                count = count.min(end.saturating_sub(queue.taken) as usize);
            }
            if let Ok(chunk) = queue.packets.read_chunk(count) {
                let (first, second) = chunk.as_slices();
                metering.process(first);
                metering.process(second);
                chunk.commit_all();
            }
            queue.taken += count as u64;
            sum += count;
            emptied &= count == available;
        }
        if sum > 0 {
            self.group.meters[self.number].open_records.store(metering.meter.open_records().flows, Ordering::Relaxed);
        }
        (sum, emptied)
    }

    /// The time up to which all readers have sent all packets, ns by the clock that stamps packets.
    /// To be called before [`MeterInput::process`].
    pub fn complete_until_ns(&self) -> Option<u64> {
        let time = |reader: &ReaderState| {
            // In this order: the time of a finished reader is final.
            let is_finished = reader.is_finished.load(Ordering::Acquire);
            (is_finished, reader.complete_until_ns.load(Ordering::Acquire))
        };
        let times = || self.group.readers.iter().map(time);
        let running = times().filter(|(is_finished, _)| !is_finished).map(|(_, time_ns)| time_ns).min();
        let time_ns = running.or_else(|| times().map(|(_, time_ns)| time_ns).max());
        time_ns.filter(|&time_ns| time_ns > 0)
    }

    /// Whether all readers have finished. Everything they sent is then in the queues.
    pub fn is_abandoned(&self) -> bool {
        let all = self.queues.iter().all(|queue| queue.packets.is_abandoned());
        // The documentation of `rtrb` requires this fence.
        fence(Ordering::Acquire);
        all
    }

    #[inline]
    pub fn migrate(&mut self, metering: &mut MeteringStage) {
        let state = &self.group.meters[self.number];
        if state.last_task.load(Ordering::Relaxed) != self.seen_task {
            self.take_task(metering);
        }
        if let Some(task) = self.task.take() {
            self.task = self.continue_migration(task, metering);
        }
    }

    #[cold]
    fn take_task(&mut self, metering: &mut MeteringStage) {
        let state = &self.group.meters[self.number];
        let mut next = state.next_task.lock();
        self.seen_task = state.last_task.load(Ordering::Relaxed);
        let Some(task) = next.task.take() else { return };
        match &task {
            MigrationTask::MigrateOut(handoff) => {
                metering.meter.start_migration(handoff.buckets);
                self.is_collected = false;
            }
            MigrationTask::MigrateIn { generation, .. } => state.ready_generation.store(*generation, Ordering::Release),
            MigrationTask::Cancel => {
                metering.meter.cancel_migration();
                self.task = None;
                // There are some if another old meter has panicked.
                self.received.extend(self.flows_in.try_iter());
                self.received.drain(..).flatten().for_each(|flow| metering.migrate_in(flow));
                return;
            }
        }
        self.task = Some(task);
    }

    /// Does what can be done of a task. Returns it unless it is done.
    #[cold]
    fn continue_migration(&mut self, task: MigrationTask, metering: &mut MeteringStage) -> Option<MigrationTask> {
        let state = &self.group.meters[self.number];
        let done = match &task {
            MigrationTask::MigrateOut(handoff) if !self.is_collected => {
                if metering.meter.migration_ready() {
                    self.is_collected = true;
                    state.ready_generation.store(handoff.generation, Ordering::Release);
                }
                return Some(task);
            }
            MigrationTask::MigrateOut(handoff) if !self.has_processed_all_before(handoff.generation) => {
                return Some(task);
            }
            MigrationTask::MigrateOut(handoff) => {
                let new_meter = |bucket: u16| usize::from(handoff.table[usize::from(bucket)]);
                let new_meters = (0..BUCKETS as u16).filter(|&bucket| handoff.buckets.contains(bucket)).map(new_meter);
                let mut flows: BTreeMap<usize, Vec<MigratedFlow>> =
                    new_meters.map(|meter| (meter, Vec::new())).collect();
                metering.meter.migrate_out(|bucket, flow| flows.entry(new_meter(bucket)).or_default().push(flow));
                for (meter, flows) in flows {
                    // Cannot fail: a new meter does not finish during a migration.
                    let _ = self.flows_out[meter].send(flows);
                }
                handoff.generation
            }
            MigrationTask::MigrateIn { generation, old_meters } => {
                self.received.extend(self.flows_in.try_iter());
                if self.received.len() < *old_meters {
                    return Some(task);
                }
                self.received.drain(..).flatten().for_each(|flow| metering.migrate_in(flow));
                *generation
            }
            MigrationTask::Cancel => return None,
        };
        state.done_generation.store(done, Ordering::Release);
        None
    }

    /// Whether all packets that were sent before a generation are processed.
    fn has_processed_all_before(&self, generation: u64) -> bool {
        self.queues.iter().enumerate().all(|(reader, queue)| {
            self.group.sent_before(reader, self.number, generation).is_some_and(|end| queue.taken >= end)
        })
    }

    /// Called after all readers have finished: whether the meter may finish, because the queues are
    /// empty and no migration is in progress. From then on it accepts no task.
    pub fn try_close(&mut self) -> bool {
        // Packets of a new generation may have been held back.
        if self.queues.iter().any(|queue| queue.packets.slots() > 0) {
            return false;
        }
        let mut next = self.group.meters[self.number].next_task.lock();
        next.is_closed = self.task.is_none() && next.task.is_none();
        next.is_closed
    }
}

impl Drop for MeterInput {
    fn drop(&mut self) {
        self.group.meters[self.number].next_task.lock().is_closed = true;
    }
}
