//! Slots for new flows, and what happens when the cache is full.

use super::Meter;
use crate::free_slots::FlowKind;
use crate::key::{Endpoint, Key};
use crate::slot::{FlowKeyState, FlowSlot, SlotFlags};
use crate::{Approximate, CacheFullPolicy, EndReason, FlowRecord};
use weir_ledger::PacketAnomaly;
use weir_packet::Packet;

/// Slots among which a full cache chooses one to reuse.
const EVICTION_CANDIDATES: usize = 16;

/// Ranks of flows that may be evicted; the lowest is evicted first.
const CLOSING: u8 = 0;
const NOT_CLOSING: u8 = 1;

impl Meter {
    /// Opens the record of a new flow. `None` if the cache has no slot for it.
    pub(super) fn open_record(
        &mut self,
        key: &Key,
        hash: u64,
        endpoint: Endpoint,
        packet: &Packet,
        out: &mut Vec<FlowRecord>,
    ) -> Option<u32> {
        let slot = self.take_slot(FlowKind::of(packet.protocol), Some(packet), out)?;
        self.cache.insert(slot, hash, FlowSlot::new(key, endpoint, self.clock.now_ns), key.extension);
        if let Some(mark) = self.marks.get_mut(slot as usize) {
            *mark = 0;
        }
        if self.migration_search.active {
            self.list_if_migrating(slot, hash);
        }
        self.counters.created += 1;
        self.open_records.flows += 1;
        Some(slot)
    }

    /// Takes a slot: a free one, else one that has expired, else one that is closing, else by the
    /// policy. For a new flow with its first packet, or for a migrated flow.
    pub(super) fn take_slot(
        &mut self,
        kind: FlowKind,
        packet: Option<&Packet>,
        out: &mut Vec<FlowRecord>,
    ) -> Option<u32> {
        if let Some(slot) = self.cache.take_free(kind) {
            return Some(slot);
        }
        let mut best: Option<((u8, u64, bool), u32)> = None;
        for _ in 0..EVICTION_CANDIDATES.min(self.config.flows as usize) {
            let slot = self.cache.schedule.advance_cursor(self.cache.used());
            let due = self.cache.schedule.is_due(slot, self.clock.now_ns);
            if due && self.expire(slot, self.cache.hash_of(slot), out) {
                continue;
            }
            if let Some(rank) = self.eviction_rank(&self.cache.slots[slot as usize].state, packet)
                && best.is_none_or(|(other, _)| rank < other)
            {
                best = Some((rank, slot));
            }
        }
        if !self.cache.free.has_freed() {
            let (_, slot) = best?;
            if self.cache.slots[slot as usize].state.flags().has_unfinished_record() {
                self.counters.anomalies.count(PacketAnomaly::Evicted);
            }
            self.end_flow(slot, self.cache.hash_of(slot), EndReason::LackOfResources, out);
        }
        self.cache.take_free(kind)
    }

    /// Rank of a flow for eviction, the lowest first; `None` if it must not be evicted.
    fn eviction_rank(&self, state: &FlowKeyState, packet: Option<&Packet>) -> Option<(u8, u64, bool)> {
        if state.is_free() {
            // No flow has used it yet, or `drain_up_to` forgot that it is free.
            return None;
        } else if state.flags().has(SlotFlags::CLOSING) {
            return Some((CLOSING, state.idle_since_ns, false));
        }
        // A SYN does not evict an answered flow: a SYN flood leaves connections alone.
        let is_syn = packet.is_some_and(|packet| packet.control & (Packet::SYN | Packet::ACK) == Packet::SYN);
        let answered = state.is_answered();
        let may_evict = self.config.cache_full_policy == CacheFullPolicy::EvictOldestIdle && !(is_syn && answered);
        may_evict.then_some((NOT_CLOSING, state.idle_since_ns, answered))
    }

    /// Adds a packet that has no slot to an overflow record, or drops it.
    #[cold]
    pub(super) fn add_to_overflow_or_drop(&mut self, packet: &Packet, approximate: u16, out: &mut Vec<FlowRecord>) {
        let aggregated = approximate & Approximate::AGGREGATED != 0;
        if self.config.cache_full_policy == CacheFullPolicy::Drop && !aggregated {
            let bytes = u64::from(packet.frame_bytes);
            self.counters.dropped_packets += 1;
            self.counters.dropped_bytes += bytes;
            self.open_records.packets -= 1;
            self.open_records.bytes -= bytes;
            return;
        }
        self.counters.anomalies.count(if aggregated { PacketAnomaly::Aggregated } else { PacketAnomaly::Overflow });
        self.export_due_overflow(out);
        if self.overflow.add(packet, approximate, self.clock.now_ns) {
            self.counters.created += 1;
            self.open_records.flows += 1;
        }
    }
}
