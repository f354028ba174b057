//! Packets that need more than the fast path: first packets, fragments, encapsulation, full
//! counters, expired records. Both paths apply SYN, FIN and RST here
//! ([`Meter::update_tcp_state`]).

use super::Meter;
use crate::compact_counters::CompactCounters;
use crate::hash::HashedKey;
use crate::key::{Endpoint, Key};
use crate::slot::{FlowSlot, SlotFlags, TCP};
use crate::{Approximate, FlowRecord};
use bytemuck::Zeroable;
use weir_ledger::PacketAnomaly;
use weir_packet::{Flags, Packet};

impl Meter {
    /// Meters any packet. Returns the slot and the endpoint that it was counted for, if it was.
    #[inline(never)]
    pub(super) fn process_slow(
        &mut self,
        hashed: &HashedKey,
        packet: &Packet,
        out: &mut Vec<FlowRecord>,
    ) -> Option<(u32, Endpoint)> {
        let HashedKey { mut hash, mut endpoint, mut ports_and_protocol } = *hashed;
        let options = self.config.key;
        let (mut packet, mut approximate) = (packet, 0);
        let with_ports;
        if packet.flags.0 & (Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER) != 0 {
            let mut fragment = *packet;
            if !self.resolve_fragment(&mut fragment) {
                self.counters.anomalies.count(PacketAnomaly::FragmentUnattributed);
                approximate = Approximate::FRAGMENTS;
            }
            with_ports = fragment;
            packet = &with_ports;
            HashedKey { hash, endpoint, ports_and_protocol } = self.cache.hasher.hash_packet(packet, options);
        }
        let key = Key::new(packet, endpoint, ports_and_protocol, options);
        let known = self.cache.find(hash, &key);
        // A packet that needs full counters opens no record if there are none left.
        let has_full_counters = |slot| self.full_counters.contains(slot, endpoint);
        let lacks_full_counters = !CompactCounters::can_start(packet)
            && !self.full_counters.can_take(1)
            && !known.is_some_and(has_full_counters);
        let slot = if lacks_full_counters {
            None
        } else {
            known.filter(|&slot| self.continue_flow(slot, hash, packet, out)).or_else(|| {
                if !self.detail.small_flows && !self.small_flow_filter.is_large(hash) {
                    approximate |= Approximate::AGGREGATED;
                    return None;
                }
                self.open_record(&key, hash, endpoint, packet, out)
            })
        };
        match slot {
            Some(slot) if self.count(slot, endpoint, approximate, packet) => {
                self.analyse(slot, endpoint, packet);
                Some((slot, endpoint))
            }
            _ => {
                self.add_to_overflow_or_drop(packet, approximate, out);
                None
            }
        }
    }

    /// Looks a fragment up, unless a partitioner has. Returns false if its ports are unknown.
    fn resolve_fragment(&mut self, fragment: &mut Packet) -> bool {
        if fragment.flags.has(Flags::LOOKED_UP) {
            return !fragment.flags.has(Flags::FRAGMENT_LATER);
        }
        self.fragments.resolve(fragment, self.clock.now_ns)
    }

    /// Counts a packet in its record. Returns false if it needs full counters and none are left.
    #[inline(always)]
    fn count(&mut self, slot: u32, endpoint: Endpoint, approximate: u16, packet: &Packet) -> bool {
        let flow = &mut self.cache.slots[slot as usize];
        let simple =
            approximate == 0 && !flow.state.flags().has(SlotFlags::SLOW_PATH) && self.encapsulation.is_default(packet);
        if simple && flow.add(endpoint, packet) {
            flow.state.idle_since_ns = self.clock.now_ns;
            self.update_tcp_state(slot, endpoint, packet);
            return true;
        }
        self.count_general(slot, endpoint, approximate, packet)
    }

    /// As [`Meter::count`], for any packet.
    fn count_general(&mut self, slot: u32, endpoint: Endpoint, approximate: u16, packet: &Packet) -> bool {
        let flow = &mut self.cache.slots[slot as usize];
        if flow.state.flags().has(SlotFlags::BETWEEN_RECORDS) {
            if packet.protocol == TCP {
                self.tcp.start_record(slot, flow.state.record_began_ns);
            }
            flow.start_next_record(self.clock.now_ns);
            self.cache.set_deadline(slot);
            self.counters.created += 1;
            self.open_records.flows += 1;
        }
        let packets = [0, 1].map(|endpoint| self.packets_of(slot, endpoint));
        let (opens_record, opens_direction) = (packets == [0; 2], packets[endpoint] == 0);
        let flow = &mut self.cache.slots[slot as usize];
        let mut flags = flow.state.flags();
        let uses_full_counters = flags.has(SlotFlags::FULL_COUNTERS) && self.full_counters.contains(slot, endpoint);
        if uses_full_counters || !flow.add(endpoint, packet) {
            let compact = std::mem::replace(&mut flow.counters[endpoint], CompactCounters::zeroed());
            if !self.full_counters.add(slot, endpoint, || compact.to_direction(), packet) {
                flow.counters[endpoint] = compact;
                return false;
            }
            flags.0 |= SlotFlags::FULL_COUNTERS;
            flow.state.add_headers(endpoint, opens_direction, packet);
        }
        flags.0 |= 1 << (SlotFlags::SEEN_SHIFT + endpoint as u32);
        flags.add_approximate(approximate);
        if flags.has(SlotFlags::ENCAPSULATED) || !self.encapsulation.is_default(packet) {
            let mixed =
                self.encapsulation.add(slot as usize, endpoint, &mut flags, opens_record, opens_direction, packet);
            flags.add_approximate(mixed);
        }
        flow.state.set_flags(flags);
        if !flags.has(SlotFlags::CLOSING) {
            flow.state.idle_since_ns = self.clock.now_ns;
            self.update_tcp_state(slot, endpoint, packet);
        }
        true
    }

    /// Packets that `endpoint` sent in the current record. Touches no memory of the other direction.
    pub(super) fn packets_of(&self, slot: u32, endpoint: Endpoint) -> u64 {
        let FlowSlot { state, counters } = &self.cache.slots[slot as usize];
        let has_full = state.flags().has(SlotFlags::FULL_COUNTERS);
        let full = if has_full { self.full_counters.get(slot, endpoint) } else { None };
        counters[endpoint].packets() + full.map_or(0, |direction| direction.packets)
    }

    /// Analyses a packet that was counted, if it is TCP.
    #[inline(never)]
    pub(super) fn analyse(&mut self, slot: u32, endpoint: Endpoint, packet: &Packet) {
        if packet.protocol == TCP {
            self.tcp.add(slot, endpoint, packet, self.cache.slots[slot as usize].state.record_began_ns);
        }
    }

    /// Applies SYN, FIN and RST: sets the initiator, and whether the record is closing.
    #[inline(never)]
    pub(super) fn update_tcp_state(&mut self, slot: u32, endpoint: Endpoint, packet: &Packet) {
        let state = &mut self.cache.slots[slot as usize].state;
        let mut flags = state.flags();
        let unidirectional = self.config.key.unidirectional;
        let syn = packet.control & Packet::SYN != 0;
        if syn
            && !flags.has(SlotFlags::INITIATOR_FINAL)
            && !unidirectional
            && state.address_and_port(0) != state.address_and_port(1)
        {
            let answers = packet.control & Packet::ACK != 0;
            let initiator = endpoint as u16 ^ u16::from(answers);
            flags.0 = flags.0 & !(1 << SlotFlags::INITIATOR_SHIFT)
                | initiator << SlotFlags::INITIATOR_SHIFT
                | SlotFlags::INITIATOR_FINAL;
        }
        if packet.protocol == TCP {
            if packet.control & Packet::FIN != 0 {
                flags.0 |= 1 << (SlotFlags::FIN_SHIFT + endpoint as u32);
            }
            let fins = flags.0 >> SlotFlags::FIN_SHIFT & 3;
            if packet.control & Packet::RST != 0 || fins == 3 || (unidirectional && fins != 0) {
                flags.0 |= SlotFlags::CLOSING;
            }
        }
        state.set_flags(flags);
        if flags.has(SlotFlags::CLOSING) {
            self.cache.set_deadline(slot);
        }
    }
}
