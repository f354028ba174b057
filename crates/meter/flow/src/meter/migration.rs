//! Flows that migrate to another meter while both run.
//!
//! ```text
//! start_migration  each chunk of packets is followed by a search of a few slots for the flows of the
//!                  buckets; flows that start meanwhile are listed, too
//! migrate_out      removes the listed flows with all their state
//! migrate_in       inserts them into another meter, with their times by its clock
//! ```
//! Invariant: a flow is in one meter or in one [`MigratedFlow`], with all its packets and octets,
//! and its record is counted as created once.

use super::{CHUNK_PACKETS, Meter};
use crate::free_slots::FlowKind;
use crate::instructions::prefetch;
use crate::migration::RareState;
use crate::partition::{BucketSet, bucket_of};
use crate::slot::SlotFlags;
use crate::{FlowRecord, MigratedFlow};
use weir_ledger::RecordTotals;
use weir_tcp::{Connection, DetachedEntries};

/// Slots that are searched after each chunk of packets.
const SEARCHED_SLOTS: u32 = CHUNK_PACKETS as u32;

impl Meter {
    /// Starts a search for the flows of some buckets, which are to migrate to another meter.
    /// [`Meter::process`] then searches a few slots per chunk of packets and
    /// [`Meter::advance_time`] a quarter of them, until [`Meter::migration_ready`]. An earlier
    /// search is cancelled.
    pub fn start_migration(&mut self, buckets: BucketSet) {
        self.migration_search.start(buckets, self.cache.used());
    }

    /// Whether a search has covered all slots, so that [`Meter::migrate_out`] takes no longer than
    /// the flows that it found need.
    pub fn migration_ready(&self) -> bool {
        self.migration_search.active && !self.migration_search.has_unsearched()
    }

    /// Cancels a search.
    pub fn cancel_migration(&mut self) {
        self.migration_search.cancel();
    }

    /// Takes all flows of the buckets out of this meter and hands each over with its bucket; first
    /// searches the slots that are left. Afterwards a packet of such a flow would open another
    /// record here, unless [`Meter::migrate_in`] brings the flow back. Without a search nothing
    /// happens.
    pub fn migrate_out(&mut self, mut hand_over: impl FnMut(u16, MigratedFlow)) {
        self.search_slots(u32::MAX);
        let mut found = std::mem::take(&mut self.cache.scratch);
        loop {
            // Many at a time, so that their memory loads at the same time.
            found.extend(std::iter::from_fn(|| self.migration_search.pop()).take(CHUNK_PACKETS).map(|slot| (slot, 0)));
            if found.is_empty() {
                break;
            }
            found.iter().for_each(|&(slot, _)| prefetch(&self.cache.slots[slot as usize].state));
            for (slot, hash) in &mut found {
                *hash = self.cache.hash_of(*slot);
                self.cache.prefetch_for_removal(*slot);
                if self.is_connection(*slot) {
                    self.tcp.prefetch(*slot);
                }
            }
            for (slot, hash) in found.drain(..) {
                // The flow may have ended since, and another one have taken the slot.
                let bucket = bucket_of(hash);
                if !self.cache.slots[slot as usize].state.is_free() && self.migration_search.buckets.contains(bucket) {
                    hand_over(bucket, self.remove_migrating(slot, hash));
                }
            }
        }
        self.cache.scratch = found;
        self.migration_search.cancel();
    }

    /// Inserts a flow from [`Meter::migrate_out`] of a meter with the same secret and flow key,
    /// before the first packet of the flow. Its record continues as in a single meter, even if the
    /// clocks differ. Without memory for the flow, the record ends now for lack of resources;
    /// without memory for its TCP anomalies it is marked.
    pub fn migrate_in(&mut self, flow: MigratedFlow, out: &mut Vec<FlowRecord>) {
        if !self.started {
            self.set_origin(flow.clock.newest_ns, flow.interface);
        }
        let full = [0, 1].into_iter().filter(|&endpoint| flow.full_counters(endpoint).is_some()).count();
        let kind = FlowKind::of(flow.flow.state.protocol());
        let slot = if self.full_counters.can_take(full) { self.take_slot(kind, None, out) } else { None };
        match slot {
            Some(slot) => self.insert_migrated(slot, flow),
            None => out.extend(flow.record()),
        }
    }

    /// Lists a slot whose flow started during a search, if the flow is to migrate.
    #[cold]
    #[inline(never)]
    pub(super) fn list_if_migrating(&mut self, slot: u32, hash: u64) {
        if self.migration_search.buckets.contains(bucket_of(hash)) {
            self.migration_search.push(slot);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn search_next_slots(&mut self) {
        self.search_slots(SEARCHED_SLOTS);
    }

    /// Searches the next `count` slots, if some are left, and lists flows that are to migrate.
    pub(super) fn search_slots(&mut self, count: u32) {
        for slot in self.migration_search.take_range(count) {
            if !self.cache.slots[slot as usize].state.is_free() {
                self.list_if_migrating(slot, self.cache.hash_of(slot));
            }
        }
    }

    fn remove_migrating(&mut self, slot: u32, hash: u64) -> MigratedFlow {
        let flow = self.cache.slots[slot as usize];
        let flags = flow.state.flags();
        let (connection, anomalies, unanalysed) = if self.is_connection(slot) {
            self.tcp.take(slot, &flow.state)
        } else {
            (Connection::NEW, DetachedEntries::default(), false)
        };
        let encapsulation = self.encapsulation.copy(slot as usize, flags);
        let has_full = flags.has(SlotFlags::FULL_COUNTERS);
        let counters =
            if has_full { [0, 1].map(|endpoint| self.full_counters.remove(slot, endpoint)) } else { [None; 2] };
        let is_rare = encapsulation.is_some() || counters.iter().any(Option::is_some);
        let migrated = MigratedFlow {
            flow,
            connection,
            anomalies,
            unanalysed,
            extension: self.cache.extension(slot),
            clock: self.clock,
            interface: self.encapsulation.default_interface,
            rare: is_rare.then(|| Box::new(RareState { encapsulation, counters })),
        };
        let RecordTotals { flows, packets, bytes } = migrated.totals();
        self.open_records.flows -= flows;
        self.open_records.packets -= packets;
        self.open_records.bytes -= bytes;
        // Meters that flows migrate between inspect nothing.
        self.inspection.end_flow(slot);
        self.cache.remove(slot, hash);
        migrated
    }

    fn insert_migrated(&mut self, slot: u32, migrated: MigratedFlow) {
        self.open_records.merge(migrated.totals());
        let MigratedFlow { mut flow, connection, anomalies, unanalysed, extension, clock, interface, rare } = migrated;
        let (encapsulation, counters) = rare.map_or((None, [None; 2]), |rare| (rare.encapsulation, rare.counters));
        for (endpoint, direction) in counters.into_iter().enumerate() {
            if let Some(direction) = direction {
                self.full_counters.insert(slot, endpoint, direction);
            }
        }
        let state = &mut flow.state;
        state.record_began_ns = self.clock.translate(state.record_began_ns, &clock);
        state.idle_since_ns = self.clock.translate(state.idle_since_ns, &clock);
        let mut flags = state.flags();
        if !flags.has(SlotFlags::BETWEEN_RECORDS) {
            if unanalysed {
                self.tcp.unanalysed.insert(slot);
            }
            self.encapsulation.insert(slot as usize, &mut flags, encapsulation, interface);
        }
        state.set_flags(flags);
        if state.is_tcp() {
            self.tcp.insert(slot, connection, anomalies);
        }
        let hash = self.cache.hasher.hash_key(&state.key(extension));
        self.cache.insert(slot, hash, flow, extension);
        if self.migration_search.active {
            self.list_if_migrating(slot, hash);
        }
    }
}
