//! The flow cache: slots of flows, found by key, freed when flows end.
//!
//! Lookup: [`FlowCache::find`], on the fast path [`FlowIndex::candidate`]. Insertion:
//! [`FlowCache::insert`]. Expiry: `schedule` finds slots that are due, `timeouts` decides.
//! Invariant: a slot below [`FreeSlots::used`] is either in the index or free, until a drain
//! ([`FlowCache::forget_free_slots`]) forgets the free ones.

use crate::clock::Clock;
use crate::expiry_schedule::{ExpirySchedule, SCANNED_SLOTS};
use crate::flow_index::FlowIndex;
use crate::free_slots::{FlowKind, FreeSlots};
use crate::hash::KeyHasher;
use crate::instructions::prefetch;
use crate::key::{Key, KeyExtension};
use crate::mapped_array::MappedArray;
use crate::memory_ahead::BlockNotices;
use crate::slot::FlowSlot;
use crate::timeouts::Timeouts;
use crate::{Config, bounded};
use std::io;

#[derive(Debug)]
pub(crate) struct FlowCache {
    pub slots: MappedArray<FlowSlot>,
    /// Per slot, if the flow key has extensions; else empty.
    pub extensions: MappedArray<KeyExtension>,
    pub index: FlowIndex,
    pub hasher: KeyHasher,
    pub timeouts: Timeouts,
    pub schedule: ExpirySchedule,
    pub free: FreeSlots,
    /// Gets the blocks of slots that are used next.
    pub notices: BlockNotices,
    /// Working memory of expiry and migration: slots and their hashes; empty between calls.
    pub scratch: Vec<(u32, u64)>,
    /// Slots that a later scan will probably find due.
    pub upcoming: Vec<u32>,
}

impl FlowCache {
    pub fn new(config: &Config, now_ns: u64) -> io::Result<Self> {
        let flows = config.flows as usize;
        Ok(Self {
            free: FreeSlots::new(flows)?,
            notices: BlockNotices::default(),
            index: FlowIndex::new(flows)?,
            slots: MappedArray::with_huge_pages(flows)?,
            extensions: MappedArray::with_huge_pages(if config.key.has_extension() { flows } else { 0 })?,
            schedule: ExpirySchedule::new(flows, now_ns)?,
            timeouts: Timeouts { idle_ns: config.idle_timeout_ns, active_ns: config.active_timeout_ns },
            hasher: KeyHasher::new(config.secret),
            scratch: bounded::vec_with_capacity(SCANNED_SLOTS)?,
            upcoming: bounded::vec_with_capacity(SCANNED_SLOTS)?,
        })
    }

    pub fn memory_bytes_for(config: &Config) -> usize {
        let flows = config.flows as usize;
        let extension = if config.key.has_extension() { size_of::<KeyExtension>() } else { 0 };
        let lists = FreeSlots::memory_bytes_for(flows) + ExpirySchedule::memory_bytes_for(flows);
        FlowIndex::memory_bytes_for(flows) + flows * (size_of::<FlowSlot>() + extension) + lists
    }

    pub fn memory_bytes(&self) -> usize {
        let slots = self.slots.len();
        let lists = FreeSlots::memory_bytes_for(slots) + ExpirySchedule::memory_bytes_for(slots);
        self.index.memory_bytes() + self.slots.memory_bytes() + self.extensions.memory_bytes() + lists
    }

    #[inline(always)]
    pub fn find(&self, hash: u64, key: &Key) -> Option<u32> {
        self.index.find(hash, |slot| {
            let slot = slot as usize;
            let extension = self.extensions.get(slot);
            self.slots[slot].state.matches(key) && extension.is_none_or(|extension| *extension == key.extension)
        })
    }

    /// Inserts a flow into a slot that [`FlowCache::take_free`] returned.
    pub fn insert(&mut self, slot: u32, hash: u64, flow: FlowSlot, extension: KeyExtension) {
        self.slots[slot as usize] = flow;
        if let Some(own) = self.extensions.get_mut(slot as usize) {
            *own = extension;
        }
        self.set_deadline(slot);
        self.index.insert(hash, slot);
    }

    pub fn remove(&mut self, slot: u32, hash: u64) {
        self.index.remove(hash, slot);
        let state = &mut self.slots[slot as usize].state;
        let kind = FlowKind::of(state.protocol());
        state.set_free();
        self.schedule.clear(slot);
        self.free.free(kind, slot);
    }

    /// Slots that were ever used or soon will be: those below.
    #[inline(always)]
    pub fn used(&self) -> u32 {
        self.free.used
    }

    pub fn take_free(&mut self, kind: FlowKind) -> Option<u32> {
        let (schedule, notices) = (&mut self.schedule, &self.notices);
        self.free.take(kind, |kind, block| {
            // Nothing expires in them.
            block.clone().for_each(|slot| schedule.clear(slot));
            notices.send(kind, block);
        })
    }

    /// Forgets the free slots below `used`, and the slots from there on, which are taken again.
    pub fn forget_free_slots(&mut self, used: u32) {
        self.free.forget(used);
        self.schedule.reset_cursor();
    }

    pub fn hash_of(&self, slot: u32) -> u64 {
        self.hasher.hash_key(&self.slots[slot as usize].state.key(self.extension(slot)))
    }

    pub fn extension(&self, slot: u32) -> KeyExtension {
        self.extensions.get(slot as usize).copied().unwrap_or(KeyExtension::NONE)
    }

    /// Whether no packet came for the idle timeout.
    pub fn is_idle(&self, slot: u32, clock: &Clock) -> bool {
        self.timeouts.is_idle(&self.slots[slot as usize].state, clock)
    }

    pub fn set_deadline(&mut self, slot: u32) {
        self.schedule.set(slot, self.timeouts.deadline_ns(&self.slots[slot as usize].state));
    }

    /// Scans the next [`SCANNED_SLOTS`] slots and lists those that may have expired in `scratch`.
    #[inline(always)]
    pub fn find_due(&mut self, clock: &Clock) {
        self.schedule.rebase_ticks(self.free.used, clock.now_ns);
        self.schedule.scan(self.free.used, clock.now_ns, |slot| self.scratch.push((slot, 0)));
    }

    pub fn set_timeouts(&mut self, timeouts: Timeouts) {
        self.timeouts = timeouts;
        self.schedule.mark_all_due(self.free.used);
    }

    /// Prefetches the counters of a slot and its index bucket; its state is in the CPU cache.
    pub fn prefetch_for_removal(&self, slot: u32) {
        self.slots[slot as usize].counters.iter().for_each(prefetch);
        self.index.prefetch(self.hash_of(slot));
    }
}
