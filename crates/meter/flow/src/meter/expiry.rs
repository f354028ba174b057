//! How records end: timeouts, the scan for expired slots, the drain at the end, and the export.

use super::{CHUNK_PACKETS, Meter};
use crate::instructions::prefetch;
use crate::key::Endpoint;
use crate::slot::{FlowKeyState, SlotFlags};
use crate::{Approximate, Direction, EndReason, FlowRecord};
use weir_packet::Packet;

impl Meter {
    #[inline(always)]
    pub(super) fn expire_next_slots(&mut self, out: &mut Vec<FlowRecord>) {
        self.cache.find_due(&self.clock);
        if !self.cache.scratch.is_empty() {
            self.expire_due(out);
        }
        self.prefetch_upcoming();
        if self.migration_search.has_unsearched() {
            self.search_next_slots();
        }
        self.export_due_overflow(out);
    }

    /// Examines the slots that the scan found.
    #[inline(never)]
    fn expire_due(&mut self, out: &mut Vec<FlowRecord>) {
        let mut due = std::mem::take(&mut self.cache.scratch);
        for (slot, hash) in &mut due {
            *hash = self.cache.hash_of(*slot);
            self.cache.index.prefetch(*hash);
        }
        for (slot, hash) in due.drain(..) {
            if !self.expire(slot, hash, out) {
                self.cache.set_deadline(slot);
            }
        }
        self.cache.scratch = due;
    }

    /// Prefetches the rest of the slots that the next scan will find due, and the states of those
    /// that the scan after it will find. Affects only speed.
    #[inline(always)]
    fn prefetch_upcoming(&mut self) {
        while let Some(slot) = self.cache.upcoming.pop() {
            if self.cache.is_idle(slot, &self.clock) {
                self.cache.prefetch_for_removal(slot);
                if self.is_connection(slot) {
                    self.tcp.prefetch(slot);
                }
            }
        }
        let (cache, now_ns) = (&mut self.cache, self.clock.now_ns);
        cache.schedule.scan_ahead(cache.used(), now_ns, |slot| {
            prefetch(&cache.slots[slot as usize].state);
            cache.upcoming.push(slot);
        });
    }

    /// Ends what has expired in a slot: record, flow or both. Returns whether it is free now.
    pub(super) fn expire(&mut self, slot: u32, hash: u64, out: &mut Vec<FlowRecord>) -> bool {
        if self.cache.timeouts.active_timeout_reached(&self.cache.slots[slot as usize].state, &self.clock) {
            self.end_record_by_active_timeout(slot, out);
        }
        let idle = self.cache.is_idle(slot, &self.clock);
        if idle {
            self.end_flow(slot, hash, EndReason::Idle, out);
        }
        idle
    }

    /// Prepares a flow for a packet of its key: exports its record if that has expired, or ends the
    /// flow and frees the slot if the packet starts another flow. Returns whether the flow stays.
    pub(super) fn continue_flow(&mut self, slot: u32, hash: u64, packet: &Packet, out: &mut Vec<FlowRecord>) -> bool {
        if self.cache.slots[slot as usize].state.flags().has(SlotFlags::CLOSING) {
            if packet.control & Packet::SYN == 0 && !self.cache.is_idle(slot, &self.clock) {
                return true;
            }
            self.end_flow(slot, hash, EndReason::EndOfFlow, out);
            return false;
        }
        !self.expire(slot, hash, out)
    }

    /// Ends up to `limit` records, so that draining needs no memory for all of them. Returns
    /// whether records may be left. For the end of input: packets that are metered in between find
    /// fewer slots, as it discards the list of free ones.
    pub fn drain_up_to(&mut self, limit: usize, out: &mut Vec<FlowRecord>) -> bool {
        let enough = out.len().saturating_add(limit);
        self.cache.forget_free_slots(self.cache.used());
        while out.len() < enough && self.cache.used() > 0 {
            let slot = self.cache.used() - 1;
            if (slot as usize).is_multiple_of(CHUNK_PACKETS) {
                for ahead in slot.saturating_sub(CHUNK_PACKETS as u32)..slot {
                    self.cache.index.prefetch(self.cache.hash_of(ahead));
                }
            }
            if !self.cache.slots[slot as usize].state.is_free() {
                let hash = self.cache.hash_of(slot);
                if !self.expire(slot, hash, out) {
                    self.end_flow(slot, hash, EndReason::Forced, out);
                }
            }
            self.cache.forget_free_slots(slot);
        }
        while out.len() < enough
            && let Some(record) = self.overflow.take_oldest()
        {
            self.export_overflow(record, out);
        }
        out.len() >= enough
    }

    /// Ends a flow: exports its record, if it has one, and frees the slot. The record of a closing
    /// connection has reason [`EndReason::EndOfFlow`], whatever `reason` is.
    pub(super) fn end_flow(&mut self, slot: u32, hash: u64, reason: EndReason, out: &mut Vec<FlowRecord>) {
        let flags = self.cache.slots[slot as usize].state.flags();
        if !flags.has(SlotFlags::BETWEEN_RECORDS) {
            let reason = if flags.has(SlotFlags::CLOSING) { EndReason::EndOfFlow } else { reason };
            self.export_record(slot, reason, out);
        }
        if self.is_connection(slot) {
            self.tcp.end_connection(slot);
        }
        self.inspection.end_flow(slot);
        self.cache.remove(slot, hash);
    }

    /// Ends a record at its active timeout. The flow stays for one idle timeout from then on.
    fn end_record_by_active_timeout(&mut self, slot: u32, out: &mut Vec<FlowRecord>) {
        let analysed = !self.tcp.unanalysed.contains(slot);
        self.export_record(slot, EndReason::Active, out);
        if self.is_connection(slot) {
            self.tcp.end_record(slot, analysed, self.cache.slots[slot as usize].state.record_began_ns);
        }
        let state = &mut self.cache.slots[slot as usize].state;
        state.set_flags(SlotFlags(state.flags().of_flow().0 | SlotFlags::BETWEEN_RECORDS));
        state.idle_since_ns = state.record_began_ns + self.cache.timeouts.active_ns;
        self.cache.set_deadline(slot);
    }

    /// Exports the record of a slot: appends it to `out`, the initiator as its source, and clears
    /// what other tables hold of it.
    fn export_record(&mut self, slot: u32, end_reason: EndReason, out: &mut Vec<FlowRecord>) {
        let unanalysed = self.tcp.unanalysed.contains(slot);
        // A record has more than 1 KiB. With space for it and one constant for each `push`, the constant
        // is copied once, to its place.
        out.reserve(1);
        if self.is_connection(slot) && !unanalysed {
            out.push(FlowRecord::OF_TCP);
        } else {
            out.push(FlowRecord::NONE);
        }
        let Some(record) = out.last_mut() else { return };
        let flags = self.fill_record(slot, record);
        record.end_reason = end_reason;
        if unanalysed {
            record.approximate.0 |= Approximate::UNANALYSED;
            self.tcp.unanalysed.remove(slot);
        }
        if flags.has(SlotFlags::FULL_COUNTERS) {
            for endpoint in [0, 1] {
                self.full_counters.remove(slot, endpoint);
            }
        }
        record.findings = self.inspection.findings_of_record(slot, end_reason == EndReason::Active);
        self.count_exported(record);
    }

    /// Fills an empty record with what a slot holds: key, directions, TCP reports. Returns the flags
    /// of the slot.
    #[inline(always)]
    fn fill_record(&mut self, slot: u32, record: &mut FlowRecord) -> SlotFlags {
        let state = self.cache.slots[slot as usize].state;
        let initiator = state.write_key(record);
        record.interface = self.encapsulation.interface(slot as usize, state.flags());
        record.approximate.0 |= self.write_direction(slot, initiator, &state, &mut record.forward);
        record.approximate.0 |= self.write_direction(slot, 1 - initiator, &state, &mut record.reverse);
        if let Some(reports) = &mut record.tcp {
            self.tcp.write_reports(slot, initiator, [record.forward.packets, record.reverse.packets], reports);
        }
        state.flags()
    }

    /// Slots that were ever used: those below.
    pub fn used_slots(&self) -> u32 {
        self.cache.used()
    }

    /// The record of a slot as far as it has come, if there is one. It stays open.
    pub fn live_record(&mut self, slot: u32) -> Option<Box<FlowRecord>> {
        let state = &self.cache.slots[slot as usize].state;
        let is_open = !state.is_free() && !state.flags().has(SlotFlags::BETWEEN_RECORDS);
        is_open.then(|| self.record_so_far(slot))
    }

    /// The record of a slot as far as it has come. It stays open.
    pub fn record_so_far(&mut self, slot: u32) -> Box<FlowRecord> {
        let analysed = self.is_connection(slot) && !self.tcp.unanalysed.contains(slot);
        let mut record = Box::new(if analysed { FlowRecord::OF_TCP } else { FlowRecord::NONE });
        self.fill_record(slot, &mut record);
        record.findings =
            match self.cache.slots[slot as usize].state.needs_inspection() && !self.inspection.is_decided(slot) {
                true => self.inspection.findings_so_far(slot),
                false => self.inspection.findings(slot),
            };
        record
    }

    /// Writes the packets that `endpoint` sent into an empty direction. Returns further bits of
    /// [`Approximate`].
    #[inline(always)]
    fn write_direction(&self, slot: u32, endpoint: Endpoint, state: &FlowKeyState, direction: &mut Direction) -> u16 {
        let has_full = state.flags().has(SlotFlags::FULL_COUNTERS);
        let full = if has_full { self.full_counters.get(slot, endpoint) } else { None };
        let compact = &self.cache.slots[slot as usize].counters[endpoint];
        match full {
            Some(full) => *direction = *full,
            None if compact.packets() == 0 => return 0,
            None => compact.write_to(direction),
        }
        state.write_headers(endpoint, direction);
        self.encapsulation.write_to(slot as usize, endpoint, state.flags(), direction)
    }

    /// Exports the overflow records that have reached the active timeout.
    #[inline(always)]
    pub(super) fn export_due_overflow(&mut self, out: &mut Vec<FlowRecord>) {
        while let Some(record) = self.overflow.take_due(self.cache.timeouts.active_ns, self.clock.now_ns) {
            self.export_overflow(record, out);
        }
    }

    fn export_overflow(&mut self, record: FlowRecord, out: &mut Vec<FlowRecord>) {
        self.count_exported(&record);
        out.push(record);
    }

    fn count_exported(&mut self, record: &FlowRecord) {
        self.open_records.flows -= 1;
        self.open_records.packets -= record.packets();
        self.open_records.bytes -= record.frame_bytes();
    }

    /// Whether a slot has a TCP connection.
    pub(super) fn is_connection(&self, slot: u32) -> bool {
        self.cache.slots[slot as usize].state.is_tcp()
    }
}
