//! The meter: one packet at a time into the record of its flow (`docs/metering.md` section 5).
//!
//! ```text
//! for each packet: advance the clock; give a later fragment its ports; make the key
//!     known and still of that flow -> enter into its record
//!     else                         -> find room, open a record, enter
//! after each burst: end what is due, oldest first
//! ```
//! A *slot* holds a flow. Its record, if it has one at the moment, is what is exported. Slots hang in one
//! of four lists by what they wait for, each in the order of its deadlines, so that what is due, idle
//! for longest or least worth keeping is always at the front of a list.

use crate::bounded::roomy;
use crate::fragments::Fragments;
use crate::key::{Key, Side};
use crate::list::{Links, List};
use crate::overflow::Overflow;
use crate::record::{enter, mixed};
use crate::{Approximate, Direction, EndReason, Flow, Tuning};
use ahash::RandomState;
use hashbrown::HashTable;
use weir_ledger::{Noted, Records, Tally};
use weir_packet::{Flags, Packet};

/// A packet may be this much older than the newest before that counts as a step of time back.
const REORDERING_NS: u64 = 1_000_000_000;
/// How long a flow that has ended still takes its last acknowledgments.
const CLOSING_NS: u64 = 5_000_000_000;
/// Records ended for their age per burst at most, so that a jump of the clock does not stall the pipeline.
const ENDED_PER_BURST: usize = 256;
/// Packets whose memory is fetched together.
const AHEAD: usize = 64;
const TCP: u8 = 6;

/// What distinguishes flows besides network, addresses, ports and protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyOptions {
    /// Both VLAN identifiers.
    pub vlan: bool,
    /// The interface.
    pub interface: bool,
    /// The tunnel's type and identifier.
    pub tunnel: bool,
    /// One-way flows: the two directions are two records.
    pub unidirectional: bool,
}

/// What happens to a packet of a new flow when the table is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Sum it into an overflow record.
    #[default]
    Overflow,
    /// End the record that has been idle for longest.
    EvictOldestIdle,
    /// Count it and drop it.
    Drop,
}

/// What the meter is told at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Records in the table, at least 1.
    pub flows: u32,
    /// Idle timeout, ns.
    pub idle_ns: u64,
    /// Active timeout, ns.
    pub active_ns: u64,
    /// The flow key.
    pub key: KeyOptions,
    /// What a full table does.
    pub policy: Policy,
    /// Secret of the hash; `None` takes one from the operating system. Records do not depend on it.
    pub secret: Option<u64>,
    /// How it uses the machine.
    pub tuning: Tuning,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            flows: 1 << 20,
            idle_ns: 120_000_000_000,
            active_ns: 300_000_000_000,
            key: KeyOptions::default(),
            policy: Policy::Overflow,
            secret: None,
            tuning: Tuning::default(),
        }
    }
}

/// What the meter counts beside its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records opened, overflow records included.
    pub created: u64,
    /// Packets dropped because the table was full.
    pub dropped_packets: u64,
    /// Their octets on the wire.
    pub dropped_bytes: u64,
    /// Unattributed fragments and steps back of the clock.
    pub noted: Tally<Noted, { Noted::ALL.len() }>,
}

/// What a slot waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Packets seen from one side only.
    Unanswered,
    /// Packets seen from both sides.
    Answered,
    /// Ended by FIN or RST; takes last acknowledgments.
    Closing,
    /// Between two records of one flow, after the active timeout.
    Waiting,
}

/// Where a packet belongs.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    key: Key,
    side: Side,
    hash: u64,
}

/// Number of states.
const STATES: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: Key,
    /// By the side that sent: 0 the low endpoint, 1 the high one.
    sides: [Direction; 2],
    state: State,
    initiator: u8,
    approximate: u8,
    /// Whether the initiator is settled: a SYN was seen, or this is not the flow's first record.
    settled: bool,
    /// FIN seen, one bit per side.
    fins: u8,
    /// Packets seen in this flow, one bit per side.
    seen: u8,
    interface: u32,
    /// The clock at the record's first packet.
    began_ns: u64,
    /// The clock at the flow's last packet; while closing, at its end.
    touched_ns: u64,
}

/// The meter.
#[derive(Debug)]
pub struct Meter {
    config: Config,
    counters: Counters,
    live: Records,
    /// Time that has passed by the capture since its first packet; it never goes back.
    clock_ns: u64,
    /// The packet time that the clock stands at.
    newest_ns: Option<u64>,
    hasher: RandomState,
    table: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// One list per state, ordered by `touched_ns`.
    lists: [List; STATES],
    links: Links,
    /// Slots with an open record, ordered by `began_ns`.
    open: List,
    open_links: Links,
    fragments: Fragments,
    overflow: Overflow,
}

impl Meter {
    /// Takes all the memory it will ever use; the system provides pages as they are first touched.
    pub fn new(config: Config) -> Self {
        let config = Config { flows: config.flows.clamp(1, u32::MAX - 1), ..config };
        let hasher = match config.secret {
            Some(secret) => RandomState::with_seeds(secret, !secret, secret.rotate_left(32), 0x9e37_79b9_7f4a_7c15),
            None => RandomState::new(),
        };
        let flows = config.flows as usize;
        Self {
            config,
            counters: Counters::default(),
            live: Records::default(),
            clock_ns: 0,
            newest_ns: None,
            table: HashTable::with_capacity(roomy(flows)),
            slots: Vec::with_capacity(flows),
            free: Vec::with_capacity(flows),
            lists: [List::default(); STATES],
            links: Links::new(flows),
            open: List::default(),
            open_links: Links::new(flows),
            fragments: Fragments::new(hasher.clone()),
            overflow: Overflow::new(hasher.clone(), config.policy != Policy::Drop),
            hasher,
        }
    }

    /// Enters a burst; records that end are appended to `out`.
    pub fn absorb(&mut self, burst: &[Packet], out: &mut Vec<Flow>) {
        let mut places = [Place::default(); AHEAD];
        for group in burst.chunks(AHEAD) {
            for (place, packet) in places.iter_mut().zip(group) {
                *place = self.place(packet);
            }
            self.look_ahead(&places[..group.len()]);
            for (place, packet) in places.iter().zip(group) {
                self.enter(place, packet, out);
            }
        }
        self.end_due(ENDED_PER_BURST, out);
    }

    /// Ends every record: call at the end of input.
    pub fn drain(&mut self, out: &mut Vec<Flow>) {
        while self.drain_some(usize::MAX, out) {}
    }

    /// Ends up to `limit` records, so that draining needs no memory for all of them at once.
    /// Whether any may be left.
    pub fn drain_some(&mut self, limit: usize, out: &mut Vec<Flow>) -> bool {
        let enough = out.len().saturating_add(limit);
        if self.end_due(limit, out) == limit {
            return true;
        }
        for state in [State::Unanswered, State::Answered, State::Closing, State::Waiting] {
            while out.len() < enough
                && let Some(at) = self.lists[state as usize].first()
            {
                self.retire(at, EndReason::Forced, out);
            }
        }
        while out.len() < enough
            && let Some(flow) = self.overflow.take()
        {
            self.hand_out(flow, out);
        }
        out.len() >= enough
    }

    /// Records in the table now, with their packets and octets.
    pub fn live(&self) -> Records {
        self.live
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A first look at the slots of a group, in two short loops: the memory of many packets is fetched at the
    /// same time and is there when they are entered. What was seen decides nothing.
    fn look_ahead(&self, places: &[Place]) {
        let mut likely = [0; AHEAD];
        for (at, place) in likely.iter_mut().zip(places) {
            *at = self.table.find(place.hash, |_| true).map_or(0, |&at| at as usize);
        }
        let mut seen = 0;
        for (&at, place) in likely.iter().zip(places) {
            if let Some(slot) = self.slots.get(at) {
                let direction = &slot.sides[place.side];
                seen ^= slot.touched_ns
                    ^ u64::from(slot.key.low_port)
                    ^ direction.packets
                    ^ direction.iat_squares as u64
                    ^ direction.mpls_label as u64;
                seen ^= u64::from(direction.outer_destination[0]);
            }
        }
        std::hint::black_box(seen);
    }

    fn place(&self, packet: &Packet) -> Place {
        let (key, side) = Key::of(packet, self.config.key);
        Place { key, side, hash: self.hasher.hash_one(key) }
    }

    fn enter(&mut self, place: &Place, packet: &Packet, out: &mut Vec<Flow>) {
        self.advance_clock(packet.time_ns);
        let mut approximate = 0;
        let (with_ports, moved);
        let mut place = place;
        let packet = if packet.flags.0 & (Flags::FRAGMENT_FIRST | Flags::FRAGMENT_LATER) == 0 {
            packet
        } else {
            let mut fragment = *packet;
            if !self.fragments.resolve(&mut fragment, self.clock_ns) {
                self.counters.noted.count(Noted::FragmentUnattributed);
                approximate = Approximate::FRAGMENTS;
            }
            with_ports = fragment;
            moved = self.place(&with_ports);
            place = &moved;
            &with_ports
        };
        let Place { key, side, hash } = *place;
        let known = self.table.find(hash, |&at| self.slots[at as usize].key == key).copied();
        match known
            .filter(|&at| self.still_of_flow(at, packet, out))
            .or_else(|| self.admit(key, hash, side, packet, out))
        {
            Some(at) => self.add(at, side, approximate, packet),
            None => self.refuse(packet, approximate),
        }
    }

    /// The clock runs by the steps of time forward; a step back only sets where the next is counted from.
    fn advance_clock(&mut self, time_ns: u64) {
        let newest_ns = *self.newest_ns.get_or_insert(time_ns);
        if time_ns >= newest_ns {
            self.clock_ns = self.clock_ns.saturating_add(time_ns - newest_ns);
            self.newest_ns = Some(time_ns);
        } else if newest_ns - time_ns > REORDERING_NS {
            self.newest_ns = Some(time_ns);
            self.counters.noted.count(Noted::ClockWentBack);
        }
    }

    /// Whether a packet of its key still belongs to the flow in a slot. If not, the slot is free again.
    /// If so, the slot is ready for it: a record that is due has been handed out.
    fn still_of_flow(&mut self, at: u32, packet: &Packet, out: &mut Vec<Flow>) -> bool {
        let slot = &self.slots[at as usize];
        if slot.state == State::Closing {
            let last_acknowledgment = packet.payload_bytes == 0 && packet.control & Packet::SYN == 0;
            if last_acknowledgment && !self.over(slot) {
                return true;
            }
            self.retire(at, EndReason::EndOfFlow, out);
            return false;
        }
        if slot.state != State::Waiting && self.active_first(slot) && self.active_over(slot) {
            self.hand_out_active(at, out);
        }
        if self.over(&self.slots[at as usize]) {
            self.retire(at, EndReason::Idle, out);
            return false;
        }
        true
    }

    /// Whether a slot has waited for as long as its state allows.
    fn over(&self, slot: &Slot) -> bool {
        self.clock_ns - slot.touched_ns >= self.patience(slot)
    }

    fn patience(&self, slot: &Slot) -> u64 {
        let idle = self.config.idle_ns;
        if slot.state == State::Closing { idle.min(CLOSING_NS) } else { idle }
    }

    /// Whether an open record has been open for as long as it may although packets come.
    fn active_over(&self, slot: &Slot) -> bool {
        self.clock_ns - slot.began_ns >= self.config.active_ns
    }

    /// Whether the active timeout comes before the idle timeout.
    fn active_first(&self, slot: &Slot) -> bool {
        let deadline = |since: u64, wait: u64| u128::from(since) + u128::from(wait);
        deadline(slot.began_ns, self.config.active_ns) < deadline(slot.touched_ns, self.patience(slot))
    }

    /// Takes a slot for a new flow; `None` if there is none to be had.
    fn admit(&mut self, key: Key, hash: u64, side: Side, packet: &Packet, out: &mut Vec<Flow>) -> Option<u32> {
        let slot = Slot {
            key,
            sides: [Direction::default(); 2],
            state: State::Unanswered,
            initiator: side as u8,
            approximate: 0,
            settled: false,
            fins: 0,
            seen: 0,
            interface: packet.interface,
            began_ns: self.clock_ns,
            touched_ns: self.clock_ns,
        };
        let at = self.room(packet, out)?;
        match self.slots.get_mut(at as usize) {
            Some(reused) => *reused = slot,
            None => self.slots.push(slot),
        }
        let (hasher, slots) = (&self.hasher, &self.slots);
        self.table.insert_unique(hash, at, |&at| hasher.hash_one(slots[at as usize].key));
        self.lists[State::Unanswered as usize].push(&mut self.links, at);
        self.open.push(&mut self.open_links, at);
        self.counters.created += 1;
        Some(at)
    }

    /// An unused slot: a free one, else one that is due, else one that only waits, else by the policy.
    fn room(&mut self, packet: &Packet, out: &mut Vec<Flow>) -> Option<u32> {
        if let Some(at) = self.unused() {
            return Some(at);
        }
        self.end_due(usize::MAX, out);
        if self.free.is_empty() {
            let spare = self.lists[State::Closing as usize].first().or(self.lists[State::Waiting as usize].first());
            let victim = match spare {
                Some(spare) => spare,
                None => {
                    let victim = self.victim(packet)?;
                    self.counters.noted.count(Noted::Evicted);
                    victim
                }
            };
            self.retire(victim, EndReason::LackOfResources, out);
        }
        self.unused()
    }

    fn unused(&mut self) -> Option<u32> {
        let fresh = (self.slots.len() < self.config.flows as usize).then_some(self.slots.len() as u32);
        self.free.pop().or(fresh)
    }

    /// Whom to evict for a new flow, if anybody.
    fn victim(&self, packet: &Packet) -> Option<u32> {
        if self.config.policy != Policy::EvictOldestIdle {
            return None;
        }
        let unanswered = self.lists[State::Unanswered as usize].first();
        let answered = self.lists[State::Answered as usize].first();
        let unanswered_syn = packet.control & (Packet::SYN | Packet::ACK) == Packet::SYN;
        match (unanswered, answered) {
            (Some(one), Some(other)) if !unanswered_syn => {
                let touched = |at: u32| self.slots[at as usize].touched_ns;
                Some(if touched(other) < touched(one) { other } else { one })
            }
            (None, Some(other)) if !unanswered_syn => Some(other),
            (one, _) => one,
        }
    }

    /// A packet for which there is no slot.
    fn refuse(&mut self, packet: &Packet, approximate: u8) {
        if self.config.policy == Policy::Drop {
            self.counters.dropped_packets += 1;
            self.counters.dropped_bytes += u64::from(packet.frame_bytes);
            return;
        }
        self.counters.noted.count(Noted::Overflow);
        if self.overflow.add(packet, approximate, self.clock_ns) {
            self.counters.created += 1;
            self.live.flows += 1;
        }
        self.live.packets += 1;
        self.live.bytes += u64::from(packet.frame_bytes);
    }

    /// Enters a packet into a slot that is ready for it.
    fn add(&mut self, at: u32, side: Side, approximate: u8, packet: &Packet) {
        let slot = &mut self.slots[at as usize];
        let was = slot.state;
        if was == State::Waiting {
            // The next record of a flow that goes on.
            slot.sides = [Direction::default(); 2];
            slot.approximate = 0;
            slot.interface = packet.interface;
            slot.began_ns = self.clock_ns;
            self.open.push(&mut self.open_links, at);
            self.counters.created += 1;
        }
        let first_of_record = slot.sides[0].packets + slot.sides[1].packets == 0;
        self.live.flows += u64::from(first_of_record);
        self.live.packets += 1;
        self.live.bytes += u64::from(packet.frame_bytes);

        slot.approximate |= approximate | mixed(&slot.sides[side], packet);
        if slot.interface != packet.interface {
            slot.approximate |= Approximate::MIXED_INTERFACE;
        }
        enter(&mut slot.sides[side], packet);
        slot.seen |= 1 << side;
        if packet.control & Packet::SYN != 0 && !slot.settled && !self.config.key.unidirectional && slot.key.has_sides()
        {
            let answers = packet.control & Packet::ACK != 0;
            slot.initiator = (side ^ usize::from(answers)) as u8;
            slot.settled = true;
        }
        if was == State::Closing {
            return;
        }
        slot.touched_ns = self.clock_ns;
        let state = if packet.protocol == TCP && closes(slot, side, packet.control, self.config.key.unidirectional) {
            self.open.remove(&mut self.open_links, at);
            State::Closing
        } else if slot.seen == 3 {
            State::Answered
        } else {
            State::Unanswered
        };
        slot.state = state;
        if state == was {
            self.lists[state as usize].renew(&mut self.links, at);
        } else {
            self.lists[was as usize].remove(&mut self.links, at);
            self.lists[state as usize].push(&mut self.links, at);
        }
    }

    /// Ends records that are due and forgets flows that nothing came for any more: up to `limit` of both.
    /// How many there were.
    fn end_due(&mut self, limit: usize, out: &mut Vec<Flow>) -> usize {
        let mut left = limit;
        while left > 0
            && let Some(at) = self.open.first()
        {
            let slot = &self.slots[at as usize];
            if !self.active_over(slot) {
                break;
            } else if self.active_first(slot) {
                self.hand_out_active(at, out);
            } else {
                self.retire(at, EndReason::Idle, out);
            }
            left -= 1;
        }
        for state in [State::Unanswered, State::Answered, State::Closing, State::Waiting] {
            while left > 0
                && let Some(at) = self.lists[state as usize].first()
            {
                if !self.over(&self.slots[at as usize]) {
                    break;
                }
                self.retire(at, EndReason::Idle, out);
                left -= 1;
            }
        }
        while left > 0
            && let Some(flow) = self.overflow.due(self.config.active_ns, self.clock_ns)
        {
            self.hand_out(flow, out);
            left -= 1;
        }
        limit - left
    }

    /// Hands out the record of a flow that goes on after the active timeout.
    fn hand_out_active(&mut self, at: u32, out: &mut Vec<Flow>) {
        let slot = &mut self.slots[at as usize];
        let flow = record(slot, EndReason::Active);
        self.lists[slot.state as usize].remove(&mut self.links, at);
        self.open.remove(&mut self.open_links, at);
        slot.state = State::Waiting;
        slot.settled = true;
        // Remembered for one idle timeout after its active end; records end in the order they began,
        // so that the list stays in the order of its deadlines.
        slot.touched_ns = slot.began_ns + self.config.active_ns;
        self.lists[State::Waiting as usize].push(&mut self.links, at);
        self.hand_out(flow, out);
    }

    /// Ends the flow in a slot, hands out its record if it has one, and frees the slot: the one door out.
    /// A closing record ends with the flow whatever the `reason`.
    fn retire(&mut self, at: u32, reason: EndReason, out: &mut Vec<Flow>) {
        let slot = &self.slots[at as usize];
        let state = slot.state;
        let reason = if state == State::Closing { EndReason::EndOfFlow } else { reason };
        if state != State::Waiting {
            let flow = record(slot, reason);
            self.hand_out(flow, out);
        }
        let hash = self.hasher.hash_one(self.slots[at as usize].key);
        self.table.find_entry(hash, |&other| other == at).expect("every slot in use is in the table").remove();
        self.lists[state as usize].remove(&mut self.links, at);
        if matches!(state, State::Unanswered | State::Answered) {
            self.open.remove(&mut self.open_links, at);
        }
        self.free.push(at);
    }

    fn hand_out(&mut self, flow: Flow, out: &mut Vec<Flow>) {
        self.live.flows -= 1;
        self.live.packets -= flow.packets();
        self.live.bytes -= flow.frame_bytes();
        out.push(flow);
    }
}

/// Whether a packet's control bits end the flow: RST, or FIN from both sides.
fn closes(slot: &mut Slot, side: Side, control: u16, unidirectional: bool) -> bool {
    if control & Packet::FIN != 0 {
        slot.fins |= 1 << side;
    }
    control & Packet::RST != 0 || slot.fins == 3 || (unidirectional && slot.fins != 0)
}

/// The record in a slot, turned so that the initiator is the source.
fn record(slot: &Slot, end_reason: EndReason) -> Flow {
    let initiator = Side::from(slot.initiator);
    let (source, source_port) = slot.key.endpoint(initiator);
    let (destination, destination_port) = slot.key.endpoint(1 - initiator);
    Flow {
        source,
        destination,
        source_port,
        destination_port,
        protocol: slot.key.protocol,
        network: slot.key.network,
        end_reason,
        approximate: Approximate(slot.approximate),
        interface: slot.interface,
        forward: slot.sides[initiator],
        reverse: slot.sides[1 - initiator],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::mapped;

    #[test]
    fn memory_stays_as_it_was_taken_at_the_start() {
        // As many flows as fill a hash table of the next smaller size to the brim.
        let flows = 14 << 10;
        let config = Config { flows, policy: Policy::EvictOldestIdle, secret: Some(1), ..Config::default() };
        let mut meter = Meter::new(config);
        let taken = |meter: &Meter| (meter.table.num_buckets(), meter.slots.capacity(), meter.free.capacity());
        let before = taken(&meter);
        let mut out = Vec::new();
        for number in 0..20 * flows {
            let source = mapped(number.to_be_bytes());
            meter.absorb(&[Packet { source, source_port: 1, protocol: 17, ..Packet::default() }], &mut out);
            out.clear();
        }
        assert_eq!((meter.live().flows, taken(&meter)), (u64::from(flows), before));
    }
}
