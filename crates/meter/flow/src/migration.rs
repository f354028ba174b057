//! Flows on their way to another meter, and the search for them (`meter/migration.rs`).

use crate::clock::Clock;
use crate::encapsulation::Encapsulation;
use crate::key::{Endpoint, KeyExtension};
use crate::mapped_array::MappedArray;
use crate::partition::BucketSet;
use crate::slot::{FlowSlot, SlotFlags};
use crate::{Approximate, Direction, EndReason, FlowRecord};
use std::io;
use weir_ledger::RecordTotals;
use weir_tcp::{Connection, DetachedEntries};

/// A flow that has left one meter for another: [`crate::Meter::migrate_out`],
/// [`crate::Meter::migrate_in`]. If it is dropped, its packets are in no record.
#[derive(Debug)]
pub struct MigratedFlow {
    pub(crate) flow: FlowSlot,
    /// [`Connection::NEW`] for other protocols.
    pub(crate) connection: Connection,
    pub(crate) anomalies: DetachedEntries,
    pub(crate) unanalysed: bool,
    pub(crate) extension: KeyExtension,
    /// Clock of the meter it left, to which its times refer.
    pub(crate) clock: Clock,
    /// Default interface of the meter it left.
    pub(crate) interface: u32,
    /// What few flows have.
    pub(crate) rare: Option<Box<RareState>>,
}

const _: () = assert!(size_of::<MigratedFlow>() == 704);

#[derive(Debug)]
pub(crate) struct RareState {
    pub encapsulation: Option<Encapsulation>,
    /// Full counters per sending endpoint.
    pub counters: [Option<Direction>; 2],
}

impl MigratedFlow {
    pub(crate) fn full_counters(&self, endpoint: Endpoint) -> Option<&Direction> {
        self.rare.as_ref()?.counters[endpoint].as_ref()
    }

    /// Its record with packets and octets; nothing between two records.
    pub(crate) fn totals(&self) -> RecordTotals {
        if self.flow.state.flags().has(SlotFlags::BETWEEN_RECORDS) {
            return RecordTotals::default();
        }
        let mut totals = RecordTotals { flows: 1, ..RecordTotals::default() };
        for endpoint in [0, 1] {
            let compact = self.flow.counters[endpoint].to_direction();
            let direction = self.full_counters(endpoint).unwrap_or(&compact);
            totals.packets += direction.packets;
            totals.bytes += direction.frame_bytes;
        }
        totals
    }

    /// The record of a flow that the new meter has no memory for; `None` between two records.
    pub(crate) fn record(&self) -> Option<FlowRecord> {
        let state = &self.flow.state;
        if state.flags().has(SlotFlags::BETWEEN_RECORDS) {
            return None;
        }
        let mut record = FlowRecord::NONE;
        let initiator = state.write_key(&mut record);
        let closing = state.flags().has(SlotFlags::CLOSING);
        record.end_reason = if closing { EndReason::EndOfFlow } else { EndReason::LackOfResources };
        let encapsulation = self.rare.as_ref().and_then(|rare| rare.encapsulation.as_ref());
        record.interface = encapsulation.map_or(self.interface, Encapsulation::interface);
        for (endpoint, direction) in [(initiator, &mut record.forward), (1 - initiator, &mut record.reverse)] {
            *direction =
                self.full_counters(endpoint).copied().unwrap_or_else(|| self.flow.counters[endpoint].to_direction());
            if direction.packets > 0 {
                state.write_headers(endpoint, direction);
                if let Some(encapsulation) = encapsulation {
                    record.approximate.0 |= encapsulation.write_to(endpoint, direction);
                }
            }
        }
        if self.unanalysed {
            record.approximate.0 |= Approximate::UNANALYSED;
        } else if state.is_tcp() {
            let report = |endpoint, packets| self.connection.report_detached(endpoint, packets, &self.anomalies);
            record.tcp =
                Some([report(initiator, record.forward.packets), report(1 - initiator, record.reverse.packets)]);
        }
        Some(record)
    }
}

/// The search for the flows of some buckets, and the list of slots that were found.
#[derive(Debug)]
pub(crate) struct MigrationSearch {
    pub active: bool,
    pub buckets: BucketSet,
    /// Slots that are not searched yet. Flows that start during the search are listed when they do.
    from: u32,
    until: u32,
    /// The slot that was listed last plus 1, or [`END`].
    first: u32,
    /// Per slot: the one listed before it plus 1, or [`END`]; 0 if the slot is not listed.
    pub next: MappedArray<u32>,
}

const END: u32 = u32::MAX;

impl MigrationSearch {
    pub fn new(slots: usize) -> io::Result<Self> {
        // Small pages: only those of slots that are found are touched.
        let next = MappedArray::with_small_pages(slots)?;
        Ok(Self { active: false, buckets: BucketSet::default(), from: 0, until: 0, first: END, next })
    }

    pub fn memory_bytes_for(slots: usize) -> usize {
        slots * size_of::<u32>()
    }

    /// Starts a search of the slots below `until`; another one is cancelled.
    pub fn start(&mut self, buckets: BucketSet, until: u32) {
        self.cancel();
        (self.active, self.buckets, self.until) = (true, buckets, until);
    }

    pub fn cancel(&mut self) {
        while self.pop().is_some() {}
        (self.active, self.from, self.until) = (false, 0, 0);
    }

    #[inline(always)]
    pub fn has_unsearched(&self) -> bool {
        self.from < self.until
    }

    pub fn take_range(&mut self, count: u32) -> std::ops::Range<u32> {
        let from = self.from;
        self.from = self.until.min(from.saturating_add(count));
        from..self.from
    }

    pub fn push(&mut self, slot: u32) {
        let next = &mut self.next[slot as usize];
        if *next == 0 {
            *next = std::mem::replace(&mut self.first, slot + 1);
        }
    }

    pub fn pop(&mut self) -> Option<u32> {
        if self.first == END {
            return None;
        }
        let slot = self.first - 1;
        self.first = std::mem::take(&mut self.next[slot as usize]);
        Some(slot)
    }
}
