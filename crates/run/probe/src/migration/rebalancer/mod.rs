//! The rebalancer of a worker group: it measures how many packets each meter processes, and moves
//! buckets from busy meters to others.
//!
//! It runs on a thread of its own, which sleeps most of the time. [`super`] describes the steps of
//! a migration.

use super::group_state::{GroupState, Handoff, MeterFinished, MeterState, MigrationTask};
use super::indirection_table::{self, IndirectionTable, SIGNIFICANT_PACKETS, even_table, imbalance_permille, loads};
use crate::heartbeat::{Pulse, beat, catch_panic};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_flow::{BUCKETS, BucketSet};

const INTERVAL: Duration = Duration::from_millis(100);
/// A measurement ends with [`SIGNIFICANT_PACKETS`] per meter, or after this time.
const MAX_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two checks whether a step is done.
const CHECK_INTERVAL: Duration = Duration::from_micros(200);
/// How long to wait until the readers poll with a short timeout; then the migration is cancelled. A
/// reader that waits for a pipe applies no update.
const READER_TIMEOUT: Duration = Duration::from_millis(500);
/// Limits of one migration: flows (approximate) and buckets. They bound how long the new meters
/// hold back packets until the flows have arrived.
const MAX_FLOWS: u64 = 20_000;
const MAX_BUCKETS: usize = 256;

pub(crate) struct RebalancerThread {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
    pub pulse: Pulse,
    pub group: Arc<GroupState>,
}

impl RebalancerThread {
    pub fn start(group: Arc<GroupState>) -> io::Result<Self> {
        let (stop, stopped) = sync_channel(1);
        let mut rebalancer = Rebalancer::new(group.clone());
        let pulse = Pulse::new("weir-balance".into());
        let heartbeat = pulse.heartbeat.clone();
        let run = move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                beat();
                if rebalancer.rebalance().is_err() {
                    // A meter has finished, and the others will soon.
                    break;
                }
            }
        };
        let thread = thread::Builder::new()
            .name(pulse.name.clone())
            .spawn(move || heartbeat.adopt(|| catch_panic(run).unwrap_or_default()))?;
        Ok(Self { stop: Some(stop), thread: Some(thread), pulse, group })
    }
}

impl Drop for RebalancerThread {
    /// Stops the thread after the current migration.
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Rebalancer {
    group: Arc<GroupState>,
    table: IndirectionTable,
    generation: u64,
    /// The last generation that was prepared; it may have been cancelled.
    prepared: u64,
    /// Packets per bucket at the last measurement, and its time.
    packets: [u64; BUCKETS],
    measured: Instant,
}

impl Rebalancer {
    fn new(group: Arc<GroupState>) -> Self {
        Self {
            table: even_table(group.meters.len()),
            packets: group.packets(),
            measured: Instant::now(),
            group,
            generation: 0,
            prepared: 0,
        }
    }

    /// Measures the load, and moves buckets if it is uneven.
    fn rebalance(&mut self) -> Result<(), MeterFinished> {
        let (packets, meters) = (self.group.packets(), self.group.meters.len());
        let packets_since: [u64; BUCKETS] = std::array::from_fn(|bucket| packets[bucket] - self.packets[bucket]);
        let sum = packets_since.iter().sum::<u64>();
        if sum < SIGNIFICANT_PACKETS * meters as u64 && self.measured.elapsed() < MAX_INTERVAL {
            return Ok(());
        }
        (self.packets, self.measured) = (packets, Instant::now());
        let imbalance = imbalance_permille(&loads(&packets_since, &self.table, meters));
        self.group.imbalance_permille.store(imbalance, Ordering::Relaxed);
        // Few packets are uneven by chance.
        if sum * 10 < SIGNIFICANT_PACKETS * meters as u64 {
            return Ok(());
        }
        let flows_per_bucket = (self.group.open_records() / BUCKETS as u64).max(1);
        let limit = ((MAX_FLOWS / flows_per_bucket) as usize).clamp(1, MAX_BUCKETS);
        let moves = indirection_table::plan_moves(&packets_since, &self.table, meters, limit);
        if moves.is_empty() { Ok(()) } else { self.migrate(&moves) }
    }

    /// Moves each bucket to its new meter.
    fn migrate(&mut self, moves: &[(u16, u8)]) -> Result<(), MeterFinished> {
        self.prepared += 1;
        let migration = Migration::new(moves, &self.table, self.prepared);
        let ready = self.prepare(&migration);
        if !matches!(ready, Ok(true)) {
            self.cancel(&migration);
            self.group.publish(&self.table, self.generation, false);
            return ready.map(drop);
        }
        let migrating = self.group.migrating.lock();
        self.group.publish(&migration.table, migration.generation, true);
        (self.table, self.generation) = (migration.table, migration.generation);
        let done = self.wait_for(migration.meters(), migration.generation, |meter| &meter.done_generation);
        // A meter has panicked. The others would wait for its flows.
        done.inspect_err(|_| self.cancel(&migration))?;
        drop(migrating);
        self.group.publish(&self.table, self.generation, false);
        self.group.moved_buckets.fetch_add(moves.len() as u64, Ordering::Relaxed);
        // Packets that arrived meanwhile were counted under the old table.
        (self.packets, self.measured) = (self.group.packets(), Instant::now());
        Ok(())
    }

    fn cancel(&self, migration: &Migration) {
        for meter in migration.meters() {
            // A meter that has finished has nothing to cancel.
            let _ = self.group.assign(meter, MigrationTask::Cancel);
        }
    }

    /// Prepares all meters and readers. Returns whether all are ready.
    fn prepare(&self, migration: &Migration) -> Result<bool, MeterFinished> {
        let Migration { generation, table, .. } = *migration;
        for (&meter, old_meter) in &migration.old_meters {
            let handoff = Handoff { generation, buckets: old_meter.buckets, table };
            self.group.assign(meter.into(), MigrationTask::MigrateOut(Box::new(handoff)))?;
        }
        let old_meters = migration.old_meters.keys().map(|&meter| meter.into());
        self.wait_for(old_meters, generation, |meter| &meter.ready_generation)?;
        for &meter in &migration.new_meters {
            let old_meters =
                migration.old_meters.values().filter(|old_meter| old_meter.new_meters.contains(&meter)).count();
            self.group.assign(meter.into(), MigrationTask::MigrateIn { generation, old_meters })?;
        }
        let new_meters = migration.new_meters.iter().map(|&meter| meter.into());
        self.wait_for(new_meters, generation, |meter| &meter.ready_generation)?;
        let (update, since) = (self.group.publish(&self.table, self.generation, true), Instant::now());
        while !self.group.is_applied(update) {
            beat();
            if since.elapsed() >= READER_TIMEOUT {
                return Ok(false);
            }
            thread::sleep(CHECK_INTERVAL);
        }
        Ok(true)
    }

    fn wait_for(
        &self,
        meters: impl Iterator<Item = usize>,
        generation: u64,
        step: fn(&MeterState) -> &AtomicU64,
    ) -> Result<(), MeterFinished> {
        for meter in meters {
            while !self.group.has_reached(meter, generation, step)? {
                beat();
                thread::sleep(CHECK_INTERVAL);
            }
        }
        Ok(())
    }
}

/// The old and the new meters of the buckets that move.
struct Migration {
    generation: u64,
    table: IndirectionTable,
    old_meters: BTreeMap<u8, OldMeter>,
    new_meters: BTreeSet<u8>,
}

/// Buckets that leave one meter, and their new meters.
#[derive(Default)]
struct OldMeter {
    buckets: BucketSet,
    new_meters: BTreeSet<u8>,
}

impl Migration {
    fn new(moves: &[(u16, u8)], old_table: &IndirectionTable, generation: u64) -> Self {
        let (mut table, mut old_meters) = (*old_table, BTreeMap::<u8, OldMeter>::new());
        for &(bucket, new_meter) in moves {
            let old_meter =
                old_meters.entry(std::mem::replace(&mut table[usize::from(bucket)], new_meter)).or_default();
            old_meter.buckets.insert(bucket);
            old_meter.new_meters.insert(new_meter);
        }
        Self { generation, table, old_meters, new_meters: moves.iter().map(|&(_, new_meter)| new_meter).collect() }
    }

    /// All meters that take part; each either loses or gains buckets.
    fn meters(&self) -> impl Iterator<Item = usize> {
        self.old_meters.keys().chain(&self.new_meters).map(|&meter| usize::from(meter))
    }
}

#[cfg(test)]
mod tests;
