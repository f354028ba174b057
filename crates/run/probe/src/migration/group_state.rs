//! What the readers (reading threads), the meters (metering threads) and the rebalancer of a worker
//! group share.

use super::indirection_table::{IndirectionTable, even_table};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_flow::{BUCKETS, BucketSet};

pub(crate) struct GroupState {
    pub readers: Vec<ReaderState>,
    pub meters: Vec<MeterState>,
    /// Number of the last table update. An update has a new table, or only another `poll_fast`.
    pub last_update: AtomicU64,
    /// Generation of the last table: the number of the migration that made it.
    generation: AtomicU64,
    pub table_update: Mutex<TableUpdate>,
    /// Locked while flows are on their way between meters.
    pub migrating: Mutex<()>,
    pub moved_buckets: AtomicU64,
    /// Imbalance of the load at the last measurement, in thousandths.
    pub imbalance_permille: AtomicU64,
}

pub(crate) struct TableUpdate {
    pub table: IndirectionTable,
    /// The same as before if the table has not changed.
    pub generation: u64,
    /// Flows are migrating: check for the next update soon.
    pub poll_fast: bool,
}

/// State of a reader, which alone writes it.
#[repr(align(128))]
pub(crate) struct ReaderState {
    /// Number of the last update that the reader has applied.
    pub applied_update: AtomicU64,
    /// The generation that it uses, and packets sent to each meter before.
    pub generation: AtomicU64,
    pub sent_before: Vec<AtomicU64>,
    /// The reader has finished, and packets sent to each meter in total.
    pub is_finished: AtomicBool,
    pub sent_in_total: Vec<AtomicU64>,
    pub packets: [AtomicU64; BUCKETS],
    /// All packets up to this time were sent, ns by the clock that stamps packets; 0 if unknown.
    pub complete_until_ns: AtomicU64,
}

#[derive(Default)]
#[repr(align(128))]
pub(crate) struct MeterState {
    pub last_task: AtomicU64,
    pub next_task: Mutex<NextTask>,
    /// The last generation that the meter is ready for.
    pub ready_generation: AtomicU64,
    /// The last generation for which the meter has done its task.
    pub done_generation: AtomicU64,
    /// Records that are open in this meter.
    pub open_records: AtomicU64,
}

/// The next task of a meter.
#[derive(Default)]
pub(crate) struct NextTask {
    pub task: Option<MigrationTask>,
    /// The meter has finished and accepts no more tasks.
    pub is_closed: bool,
}

/// Flows that migrate: `buckets`, from `generation` on, to their meters in `table`.
pub(crate) struct Handoff {
    pub generation: u64,
    pub buckets: BucketSet,
    pub table: IndirectionTable,
}

/// The task of one meter in a migration.
pub(crate) enum MigrationTask {
    /// Pass flows to other meters.
    MigrateOut(Box<Handoff>),
    /// Take over flows from a number of meters.
    MigrateIn { generation: u64, old_meters: usize },
    /// Stop the migration; flows stay where they are.
    Cancel,
}

/// The meter has finished: nothing can be migrated any more.
#[derive(Debug, thiserror::Error)]
#[error("the meter has finished")]
pub(crate) struct MeterFinished;

impl GroupState {
    pub fn new(readers: usize, meters: usize) -> Self {
        let counters = || (0..meters).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let reader = |_| ReaderState {
            applied_update: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            sent_before: counters(),
            is_finished: AtomicBool::new(false),
            sent_in_total: counters(),
            packets: [const { AtomicU64::new(0) }; BUCKETS],
            complete_until_ns: AtomicU64::new(0),
        };
        Self {
            readers: (0..readers).map(reader).collect(),
            meters: (0..meters).map(|_| MeterState::default()).collect(),
            last_update: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            table_update: Mutex::new(TableUpdate { table: even_table(meters), generation: 0, poll_fast: false }),
            migrating: Mutex::default(),
            moved_buckets: AtomicU64::new(0),
            imbalance_permille: AtomicU64::new(0),
        }
    }

    /// Packets per bucket since the start.
    pub fn packets(&self) -> [u64; BUCKETS] {
        let sum =
            |bucket: usize| self.readers.iter().map(|reader| reader.packets[bucket].load(Ordering::Relaxed)).sum();
        std::array::from_fn(sum)
    }

    /// Records that are open in all meters.
    pub fn open_records(&self) -> u64 {
        self.meters.iter().map(|meter| meter.open_records.load(Ordering::Relaxed)).sum()
    }

    /// Publishes a table, which readers adopt if its generation is new. Returns the update number.
    pub fn publish(&self, table: &IndirectionTable, generation: u64, poll_fast: bool) -> u64 {
        let mut update = self.table_update.lock();
        *update = TableUpdate { table: *table, generation, poll_fast };
        self.generation.store(generation, Ordering::Release);
        self.last_update.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether every reader has applied an update or has finished.
    pub fn is_applied(&self, update: u64) -> bool {
        self.readers.iter().all(|reader| {
            reader.applied_update.load(Ordering::Acquire) >= update || reader.is_finished.load(Ordering::Acquire)
        })
    }

    pub fn assign(&self, meter: usize, task: MigrationTask) -> Result<(), MeterFinished> {
        let state = &self.meters[meter];
        let mut next = state.next_task.lock();
        if next.is_closed {
            return Err(MeterFinished);
        }
        next.task = Some(task);
        state.last_task.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a meter has reached a step of a generation.
    ///
    /// # Errors
    /// The meter has finished before it had.
    pub fn has_reached(
        &self,
        meter: usize,
        generation: u64,
        step: fn(&MeterState) -> &AtomicU64,
    ) -> Result<bool, MeterFinished> {
        let state = &self.meters[meter];
        let has_reached = || step(state).load(Ordering::Acquire) >= generation;
        // The meter may have finished after it reached this step: check again.
        if !has_reached() && state.next_task.lock().is_closed && !has_reached() {
            Err(MeterFinished)
        } else {
            Ok(has_reached())
        }
    }

    /// Packets that a reader sent to a meter before a generation; `None` until it adopts that.
    pub fn sent_before(&self, reader: usize, meter: usize, generation: u64) -> Option<u64> {
        let state = &self.readers[reader];
        // Load `is_finished` first: once it is set, `generation` and `sent_in_total` are final. A
        // generation that is not published yet has no such number.
        let is_finished =
            self.generation.load(Ordering::Acquire) == generation && state.is_finished.load(Ordering::Acquire);
        if state.generation.load(Ordering::Acquire) == generation {
            Some(state.sent_before[meter].load(Ordering::Relaxed))
        } else {
            is_finished.then(|| state.sent_in_total[meter].load(Ordering::Relaxed))
        }
    }
}
