//! The receiving end of a meter: it takes packets from the queues of all readers, and carries out
//! the tasks of its meter in migrations (see [`super`]).

use super::group_state::{GroupState, Handoff, MigrationTask, ReaderState};
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
    group: Arc<GroupState>,
    number: usize,
    queues: Vec<PacketQueue>,
    /// Number of the last task that was started.
    seen_task: u64,
    migration: MigrationState,
    /// Flows from other meters, and the channels to all meters.
    flows_in: Receiver<Vec<MigratedFlow>>,
    flows_out: Vec<Sender<Vec<MigratedFlow>>>,
    /// Flows received for the current migration, one entry per old meter.
    received: Vec<Vec<MigratedFlow>>,
}

struct PacketQueue {
    packets: Consumer<Packet>,
    taken: u64,
}

/// The state of this meter in a migration.
enum MigrationState {
    None,
    /// The flows are being collected.
    Collecting(Box<Handoff>),
    /// The flows are collected; packets sent before the new generation are still in the queues.
    Out(Box<Handoff>),
    In {
        generation: u64,
        old_meters: usize,
    },
}

impl MeterInput {
    /// The input of meter `number`, without queues.
    pub fn new(
        (group, number): (Arc<GroupState>, usize),
        flows_in: Receiver<Vec<MigratedFlow>>,
        flows_out: Vec<Sender<Vec<MigratedFlow>>>,
    ) -> Self {
        let (queues, received) = (Vec::new(), Vec::new());
        Self { group, number, queues, seen_task: 0, migration: MigrationState::None, flows_in, flows_out, received }
    }

    pub fn add_queue(&mut self, packets: Consumer<Packet>) {
        self.queues.push(PacketQueue { packets, taken: 0 });
    }

    /// Processes at most a burst of packets from each queue, and during a migration none that was
    /// sent with the new table. Returns the number of packets, and whether the queues were emptied,
    /// so that the clock of the meter may advance to that of the readers.
    pub fn process(&mut self, metering: &mut MeteringStage) -> (usize, bool) {
        let generation = match &self.migration {
            MigrationState::None | MigrationState::Collecting(_) => None,
            MigrationState::Out(handoff) => Some(handoff.generation),
            MigrationState::In { generation, .. } => Some(*generation),
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
        if !matches!(self.migration, MigrationState::None) {
            self.continue_migration(metering);
        }
    }

    #[cold]
    fn take_task(&mut self, metering: &mut MeteringStage) {
        let state = &self.group.meters[self.number];
        let mut next = state.next_task.lock();
        self.seen_task = state.last_task.load(Ordering::Relaxed);
        match next.task.take() {
            Some(MigrationTask::MigrateOut(handoff)) => {
                metering.meter.start_migration(handoff.buckets);
                self.migration = MigrationState::Collecting(handoff);
            }
            Some(MigrationTask::MigrateIn { generation, old_meters }) => {
                self.migration = MigrationState::In { generation, old_meters };
                state.ready_generation.store(generation, Ordering::Release);
            }
            Some(MigrationTask::Cancel) => {
                metering.meter.cancel_migration();
                self.migration = MigrationState::None;
                // There are some if another old meter has panicked.
                self.received.extend(self.flows_in.try_iter());
                self.received.drain(..).flatten().for_each(|flow| metering.migrate_in(flow));
            }
            None => {}
        }
    }

    #[cold]
    fn continue_migration(&mut self, metering: &mut MeteringStage) {
        let state = &self.group.meters[self.number];
        let done = match std::mem::replace(&mut self.migration, MigrationState::None) {
            MigrationState::None => return,
            MigrationState::Collecting(handoff) if !metering.meter.migration_ready() => {
                self.migration = MigrationState::Collecting(handoff);
                return;
            }
            MigrationState::Collecting(handoff) => {
                let generation = handoff.generation;
                self.migration = MigrationState::Out(handoff);
                state.ready_generation.store(generation, Ordering::Release);
                return;
            }
            MigrationState::Out(handoff) if !self.has_processed_all_before(handoff.generation) => {
                self.migration = MigrationState::Out(handoff);
                return;
            }
            MigrationState::Out(handoff) => {
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
            MigrationState::In { generation, old_meters } => {
                self.received.extend(self.flows_in.try_iter());
                if self.received.len() < old_meters {
                    self.migration = MigrationState::In { generation, old_meters };
                    return;
                }
                self.received.drain(..).flatten().for_each(|flow| metering.migrate_in(flow));
                generation
            }
        };
        state.done_generation.store(done, Ordering::Release);
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
        next.is_closed = matches!(self.migration, MigrationState::None) && next.task.is_none();
        next.is_closed
    }
}

impl Drop for MeterInput {
    fn drop(&mut self) {
        self.group.meters[self.number].next_task.lock().is_closed = true;
    }
}
