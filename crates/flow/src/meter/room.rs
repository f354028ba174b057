//! A place for a new flow, or none: the full table's policies.

use super::{CacheFullPolicy, Meter};
use crate::key::{Key, Side};
use crate::place::{Bits, Head, Narrow, Place};
use crate::{Approximate, EndReason, FlowRecord, Index};
use weir_ledger::PacketAnomaly;
use weir_packet::Packet;

/// Places among which a new flow chooses when the table is full.
const CHOICE: usize = 16;

/// Ranks of what may be given up for a new flow.
const CLOSING: u8 = 0;
const OPEN: u8 = 1;

impl<I: Index, const FIELDS: u8> Meter<I, FIELDS> {
    /// Takes a place for a new flow; `None` if there is none to be had.
    pub(super) fn admit(
        &mut self,
        key: &Key,
        hash: u64,
        side: Side,
        packet: &Packet,
        out: &mut Vec<FlowRecord>,
    ) -> Option<u32> {
        let at = self.room(Some(packet), out)?;
        let place = at as usize;
        self.places[place] = Place { head: Head::new(key, side, self.clock.now_ns), sides: [Narrow::NONE; 2] };
        if let Some(extra) = self.extras.get_mut(place) {
            *extra = key.extra;
        }
        self.set_due(at);
        self.index.insert(hash, at);
        if self.search.on {
            self.note_opened(at, hash);
        }
        self.counters.created += 1;
        self.live.flows += 1;
        Some(at)
    }

    /// A free place: else one that is due, else one that is closing, else by the policy. For a new flow that begins with a packet,
    /// or for one that came from another meter.
    pub(super) fn room(&mut self, packet: Option<&Packet>, out: &mut Vec<FlowRecord>) -> Option<u32> {
        if let Some(at) = self.take_free() {
            return Some(at);
        }
        let mut best: Option<((u8, u64, bool), u32)> = None;
        for _ in 0..CHOICE.min(self.config.flows as usize) {
            let at = self.advance_hand();
            let due = self.due[at as usize] <= self.tick(self.clock.now_ns);
            if due && self.end_if_due(at, self.hash_of(at), out) {
                continue;
            }
            let rank = self.rank(&self.places[at as usize].head, packet);
            if let Some(rank) = rank
                && best.is_none_or(|(other, _)| rank < other)
            {
                best = Some((rank, at));
            }
        }
        if self.free.is_empty() {
            let (_, at) = best?;
            if self.places[at as usize].head.bits().0 & (Bits::CLOSING | Bits::WAITING) == 0 {
                self.counters.anomalies.count(PacketAnomaly::Evicted);
            }
            self.retire(at, self.hash_of(at), EndReason::LackOfResources, out);
        }
        self.take_free()
    }

    /// How gladly a place is given to a new flow that begins with `packet`, lowest first; `None` for never.
    fn rank(&self, head: &Head, packet: Option<&Packet>) -> Option<(u8, u64, bool)> {
        let touched_ns = head.touched_ns;
        if head.is_free() {
            // Forgotten by `drain_some`.
            return None;
        } else if head.bits().has(Bits::CLOSING) {
            return Some((CLOSING, touched_ns, false));
        }
        // An unanswered SYN is no reason to end a flow that was answered.
        let begins = packet.is_some_and(|packet| packet.control & (Packet::SYN | Packet::ACK) == Packet::SYN);
        let answered = head.answered();
        let evict = self.config.policy == CacheFullPolicy::EvictOldestIdle && !(begins && answered);
        evict.then_some((OPEN, touched_ns, answered))
    }

    fn take_free(&mut self) -> Option<u32> {
        let fresh = self.used < self.config.flows;
        let at = self.free.pop().or(fresh.then_some(self.used))?;
        self.used = self.used.max(at + 1);
        Some(at)
    }

    /// The place that `take_free` gives the so manieth time from now, if it gives one.
    pub(super) fn next_free(&self, times: usize) -> u32 {
        match self.free.len().checked_sub(times) {
            Some(at) => self.free[at],
            None => self.used + (times - 1 - self.free.len()) as u32,
        }
    }

    /// The place the hand stands at; it moves on to the next.
    fn advance_hand(&mut self) -> u32 {
        let at = self.hand;
        self.hand = if at + 1 >= self.used { 0 } else { at + 1 };
        at
    }

    /// A packet that finds no room.
    #[cold]
    pub(super) fn refuse(&mut self, packet: &Packet, approximate: u16, out: &mut Vec<FlowRecord>) {
        let summed = approximate & Approximate::AGGREGATED != 0;
        if self.config.policy == CacheFullPolicy::Drop && !summed {
            let bytes = u64::from(packet.frame_bytes);
            self.counters.dropped_packets += 1;
            self.counters.dropped_bytes += bytes;
            self.live.packets -= 1;
            self.live.bytes -= bytes;
            return;
        }
        self.counters.anomalies.count(if summed { PacketAnomaly::Aggregated } else { PacketAnomaly::Overflow });
        self.end_overflow(out);
        if self.overflow.add(packet, approximate, self.clock.now_ns) {
            self.counters.created += 1;
            self.live.flows += 1;
        }
    }
}
