//! The loop over packets. A packet of a known flow that its compact counters can count is counted
//! here, SYN, FIN and RST included; all others go to `slow_path.rs`.
//!
//! Three passes let the memory of many packets load at the same time; the second and the third take
//! turns. What the first two find only decides what is prefetched; the third compares the whole key.

use super::{CHUNK_PACKETS, Meter};
use crate::follower::{FollowedPacket, PacketFollower};
use crate::free_slots::FlowKind;
use crate::hash::HashedKey;
use crate::inspection::Payloads;
use crate::key::{Endpoint, Key};
use crate::slot::{FlowSlot, TCP};
use crate::{FlowRecord, KeyOptions};
use weir_packet::{Flags, Packet};

/// Packets between the prefetch of what few of them need and its use. The state of their flow tells
/// which ones need it, and is there only in the third pass.
const RARE_AHEAD: usize = 8;
/// Packets between the prefetch of a flow and its use. A CPU core waits while more cache lines are
/// on their way than it can keep track of. So the prefetches come between packets that are metered,
/// and memory is busy all the time.
const FLOW_AHEAD: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Lookup {
    hashed: HashedKey,
    index_bucket: u32,
    /// The slot that is probably the flow's.
    candidate: u32,
    /// The flow is probably new.
    is_new: bool,
}

impl Meter {
    #[inline(always)]
    pub(super) fn process_burst<P: Payloads, F: PacketFollower>(
        &mut self,
        burst: &[Packet],
        options: KeyOptions,
        payloads: &P,
        follower: &mut F,
        out: &mut Vec<FlowRecord>,
    ) {
        let mut first = 0;
        for chunk in burst.chunks(CHUNK_PACKETS) {
            for packets in chunk.chunks(self.config.prefetch_packets) {
                self.process_prefetched(packets, first, options, (payloads, &mut *follower), out);
                first += packets.len();
            }
            self.expire_next_slots(out);
        }
    }

    /// Meters at most [`CHUNK_PACKETS`] packets in three passes, and prefetches for all of them.
    /// `first` is the index of the first one in the burst.
    #[inline(always)]
    fn process_prefetched<P: Payloads, F: PacketFollower>(
        &mut self,
        packets: &[Packet],
        first: usize,
        options: KeyOptions,
        (payloads, follower): (&P, &mut F),
        out: &mut Vec<FlowRecord>,
    ) {
        let mut lookups = [Lookup::default(); CHUNK_PACKETS];
        for (lookup, packet) in lookups.iter_mut().zip(packets) {
            lookup.hashed = self.cache.hasher.hash_packet(packet, options);
            lookup.index_bucket = self.cache.index.prefetch(lookup.hashed.hash);
        }
        // New flows that were foreseen and not met yet, by kind.
        let mut foreseen = [0; 2];
        for (lookup, packet) in lookups.iter_mut().zip(packets).take(FLOW_AHEAD) {
            self.prefetch_flow::<F>(lookup, packet, &mut foreseen);
        }
        self.open_records.packets += packets.len() as u64;
        self.open_records.bytes += packets.iter().map(|packet| u64::from(packet.frame_bytes)).sum::<u64>();
        for (at, packet) in packets.iter().enumerate() {
            if let (Some(lookup), Some(packet)) = (lookups.get_mut(at + FLOW_AHEAD), packets.get(at + FLOW_AHEAD)) {
                self.prefetch_flow::<F>(lookup, packet, &mut foreseen);
            }
            if let (Some(lookup), Some(packet)) = (lookups.get(at + RARE_AHEAD), packets.get(at + RARE_AHEAD)) {
                self.prefetch_rare::<P>(lookup, packet);
            }
            let Some(lookup) = lookups.get(at) else { break };
            if lookup.is_new {
                foreseen[FlowKind::of(packet.protocol) as usize] -= 1;
            }
            self.process_packet(lookup, packet, options, (payloads, follower, first + at), out);
        }
        self.tcp.enter_completed();
    }

    /// Prefetches what nearly every packet of a flow needs.
    #[inline(always)]
    fn prefetch_flow<F: PacketFollower>(&self, lookup: &mut Lookup, packet: &Packet, foreseen: &mut [usize; 2]) {
        let endpoint = lookup.hashed.endpoint & 1;
        let candidate = self.cache.index.candidate(lookup.index_bucket, lookup.hashed.hash).unwrap_or_else(|| {
            // Probably a new flow: it will get the next free slot.
            let kind = FlowKind::of(packet.protocol);
            foreseen[kind as usize] += 1;
            lookup.is_new = true;
            let next = self.cache.free.nth(kind, foreseen[kind as usize]);
            self.cache.slots.prefetch_line(next, FlowSlot::counters_line(1 - endpoint));
            next
        });
        lookup.candidate = candidate;
        self.cache.slots.prefetch_line(candidate, FlowSlot::STATE_LINE);
        self.cache.slots.prefetch_line(candidate, FlowSlot::counters_line(endpoint));
        if packet.protocol == TCP {
            self.tcp.prefetch_for(candidate, endpoint, packet);
        }
        if F::ACTIVE {
            self.marks.prefetch_line(candidate, 0);
        }
    }

    /// Prefetches what few packets need: the inspection of a flow, what TCP analysis knows beside the
    /// ordinary.
    #[inline(always)]
    fn prefetch_rare<P: Payloads>(&self, lookup: &Lookup, packet: &Packet) {
        let slot = lookup.candidate;
        if P::AVAILABLE
            && let Some(flow) = self.cache.slots.get(slot as usize)
            && flow.state.needs_inspection()
        {
            self.inspection.flows.prefetch_line(slot, 0);
        }
        if packet.protocol == TCP && !self.tcp.is_suspended() {
            self.tcp.prefetch_displaced(slot, lookup.hashed.endpoint & 1, packet);
        }
    }

    #[inline(always)]
    fn process_packet<P: Payloads, F: PacketFollower>(
        &mut self,
        lookup: &Lookup,
        packet: &Packet,
        options: KeyOptions,
        (payloads, follower, index): (&P, &mut F, usize),
        out: &mut Vec<FlowRecord>,
    ) {
        self.advance_clock(packet.time_ns);
        let (endpoint, candidate) = (lookup.hashed.endpoint & 1, lookup.candidate);
        let key = Key::new(packet, endpoint, lookup.hashed.ports_and_protocol, options);
        if packet.flags.0 & (Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER) == 0
            && self.encapsulation.is_default(packet)
            && let Some(slot) = self.cache.slots.get_mut(candidate as usize)
            && slot.state.matches_fast(&key)
            && (!options.has_extension() || self.cache.extensions[candidate as usize] == key.extension)
            // The times of a migrated flow may be later than the clock. The differences then wrap,
            // exceed the timeouts, and the packet takes the slow path.
            && self.clock.now_ns.wrapping_sub(slot.state.record_began_ns) < self.cache.timeouts.active_ns
            && self.clock.now_ns.wrapping_sub(slot.state.idle_since_ns) < self.cache.timeouts.idle_ns
            && let Some(iat_ns) = slot.counters[endpoint].fast_iat_ns(packet)
        {
            slot.state.idle_since_ns = self.clock.now_ns;
            slot.add_fast(endpoint, iat_ns, packet);
            let (needs_inspection, packets) = (slot.state.needs_inspection(), slot.counters[endpoint].packets());
            if packet.control & (Packet::SYN | Packet::FIN | Packet::RST) != 0 {
                self.update_tcp_state(candidate, endpoint, packet);
                self.analyse(candidate, endpoint, packet);
            } else if packet.protocol == TCP {
                if self.tcp.is_suspended() {
                    self.tcp.unanalysed.insert(candidate);
                } else if !self.tcp.add_fast(candidate, endpoint, packet) {
                    self.analyse(candidate, endpoint, packet);
                }
            }
            if P::AVAILABLE && needs_inspection {
                self.inspect(candidate, endpoint, packets, packet, payloads, index);
            }
            if F::ACTIVE {
                self.follow(candidate, packet, index, follower);
            }
        } else {
            let counted = self.process_slow(&lookup.hashed, packet, out);
            if P::AVAILABLE
                && let Some((slot, endpoint)) = counted
                && self.cache.slots[slot as usize].state.needs_inspection()
            {
                let packets = self.packets_of(slot, endpoint);
                self.inspect(slot, endpoint, packets, packet, payloads, index);
            }
            if F::ACTIVE
                && let Some((slot, _)) = counted
            {
                self.follow(slot, packet, index, follower);
            }
        }
    }

    /// Hands a packet to the follower.
    #[inline(always)]
    fn follow<F: PacketFollower>(&mut self, slot: u32, packet: &Packet, index: usize, follower: &mut F) {
        let (Some(&mark), Some(flow)) = (self.marks.get(slot as usize), self.cache.slots.get(slot as usize)) else {
            return;
        };
        let inspection_ended =
            self.inspection.packets == 0 || !flow.state.needs_inspection() || self.inspection.is_decided(slot);
        let tuple = follower.needs_tuple().then(|| flow.state.tuple());
        let mut record = follower.needs_record(mark).then(|| self.record_so_far(slot));
        let record = record.as_deref_mut();
        let mut followed = FollowedPacket { index, packet, slot, inspection_ended, record, tuple };
        follower.follow(&mut followed, &mut self.marks[slot as usize]);
    }

    /// Inspects a packet of a flow whose inspection has not ended. Its number in its direction is
    /// `packets`.
    #[inline(never)]
    fn inspect<P: Payloads>(
        &mut self,
        slot: u32,
        endpoint: Endpoint,
        packets: u64,
        packet: &Packet,
        payloads: &P,
        index: usize,
    ) {
        let payload = || payloads.payload(index, packet);
        if !self.inspection.inspect(slot, endpoint, packet, packets, payload)
            && let Some(slot) = self.cache.slots.get_mut(slot as usize)
        {
            slot.state.end_inspection();
        }
    }
}
