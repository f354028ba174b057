//! Sections 4 to 6 of the definition: from packets to records.
//!
//! Slots, the expiry cursor and the choice of a full cache follow section 5. All else is as plain as
//! possible: a flow is searched in every slot, and a record keeps the list of its packets, from which
//! its figures are computed when it ends.

use super::{Outcome, TcpReference};
use weir_flow::{Approximate, CacheFullPolicy, Config, Direction, EndReason, FlowRecord};
use weir_ledger::PacketAnomaly;
use weir_packet::{Flags, Network, Packet, TunnelType};

const SECOND: u128 = 1_000_000_000;
const TCP: u8 = 6;
const FRAGMENTS: usize = 65_536;
const OVERFLOWS: usize = 16_384;
/// Packets between two moves of the expiry cursor; slots per move; slots that a full cache chooses from.
const GROUP: usize = 64;
const SLOTS_PER_SWEEP: usize = 256;
const EVICTION_CANDIDATES: usize = 16;
/// Slots that are used in order, whatever the flow. Tests have fewer flows.
const SHARED_SLOTS: usize = 4096;

type Endpoint = ([u8; 16], u16);

/// Eviction order: kind of slot, time since when it waits, whether the flow was answered; lowest first.
type Rank = (u8, u128, bool);

/// Flow key. Fields outside the configured key are `None`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    network: Network,
    protocol: u8,
    /// Lower endpoint first; in one-way flows the source.
    endpoints: [Endpoint; 2],
    vlans: Option<(u16, u16)>,
    interface: Option<u32>,
    tunnel: Option<(TunnelType, Option<u32>)>,
}

/// State of a flow.
struct FlowState {
    key: Key,
    initiator: Endpoint,
    responder: Endpoint,
    /// Whether the initiator can no longer change.
    settled: bool,
    /// Endpoints that have sent a FIN, in any record of the flow.
    fins: Vec<Endpoint>,
    /// Endpoints that have sent a packet, in any record of the flow.
    senders: Vec<Endpoint>,
    /// Whether a TCP packet of the record has ACK.
    acknowledged: bool,
    /// Clock at the last packet.
    last: u128,
    /// Sender of the first packet: side 0 of the connection.
    first_sender: Endpoint,
    tcp: TcpReference,
    phase: Phase,
}

enum Phase {
    /// A record has been open since then.
    Open { since: u128, record: Record },
    /// FIN or RST arrived then.
    Closing { since: u128, record: Record },
    /// Between two records: the active deadline.
    Waiting { since: u128 },
}

/// The packets of one record.
#[derive(Default)]
struct Record {
    forward: Vec<Packet>,
    reverse: Vec<Packet>,
    interfaces: Vec<u32>,
    unattributed: bool,
}

/// Key of an overflow record: source and destination are prefixes, and one of the ports is 0.
type OverflowKey = (Network, u8, Endpoint, Endpoint);

/// An overflow record.
struct Overflow {
    key: OverflowKey,
    since: u128,
    record: Record,
}

/// Identity of a fragmented packet.
type FragmentName = (Network, [u8; 16], [u8; 16], u8, u32, TunnelType, Option<u32>);

/// A stored first fragment.
struct FirstFragment {
    name: FragmentName,
    since: u128,
    ports: (u16, u16),
    icmp: [u8; 2],
}

#[derive(Default)]
pub struct Meter {
    config: Config,
    /// Elapsed capture time, ns; monotonic.
    clock: u128,
    /// Packet time at which the clock continues.
    newest: Option<u64>,
    /// Slots that were ever used.
    flows: Vec<Option<FlowState>>,
    /// Free slots, by whether a TCP flow used them; the one freed last is at the end.
    free: [Vec<usize>; 2],
    cursor: usize,
    overflows: Vec<Overflow>,
    fragments: Vec<FirstFragment>,
    pub outcome: Outcome,
}

fn tunnel_id(packet: &Packet) -> Option<u32> {
    packet.flags.has(Flags::TUNNEL_ID).then_some(packet.tunnel_id)
}

impl Meter {
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    pub fn process(&mut self, burst: &[Packet]) {
        for group in burst.chunks(GROUP) {
            group.iter().for_each(|&packet| self.process_one(packet));
            self.sweep();
        }
    }

    fn process_one(&mut self, mut packet: Packet) {
        self.advance(packet.time_ns);
        let unattributed = !self.attribute(&mut packet);
        let key = self.key(&packet);
        let mut at = self.flows.iter().position(|flow| flow.as_ref().is_some_and(|flow| flow.key == key));
        if let Some(slot) = at {
            self.end_if_due(slot);
            let closing = self.flows[slot].as_ref().is_some_and(|flow| matches!(flow.phase, Phase::Closing { .. }));
            // Another flow starts.
            if closing && packet.control & Packet::SYN != 0 {
                self.end(slot, EndReason::EndOfFlow);
            }
            at = self.flows[slot].is_some().then_some(slot);
        }
        let at = match at.or_else(|| self.free_slot(&packet)) {
            Some(at) => at,
            None if self.config.cache_full_policy == CacheFullPolicy::Drop => {
                self.outcome.dropped_packets += 1;
                self.outcome.dropped_bytes += u64::from(packet.frame_bytes);
                return;
            }
            None => return self.sum_up(packet, unattributed),
        };
        self.flows[at].get_or_insert_with(|| FlowState {
            key,
            initiator: (packet.source, packet.source_port),
            responder: (packet.destination, packet.destination_port),
            settled: false,
            fins: Vec::new(),
            senders: Vec::new(),
            acknowledged: false,
            last: self.clock,
            first_sender: (packet.source, packet.source_port),
            tcp: TcpReference::default(),
            phase: Phase::Open { since: self.clock, record: Record::default() },
        });
        self.enter(at, packet, unattributed);
    }

    pub fn finish(mut self) -> Outcome {
        for at in 0..self.flows.len() {
            self.end_if_due(at);
            self.end(at, EndReason::Forced);
        }
        while !self.overflows.is_empty() {
            self.end_overflow(0);
        }
        self.outcome
    }

    fn count_anomaly(&mut self, anomaly: PacketAnomaly) {
        *self.outcome.anomalies.entry(anomaly).or_default() += 1;
    }

    // ---- Clock and timeouts ----

    /// Advances the clock by steps forward. A step back only resets the time from which the next step is
    /// counted.
    fn advance(&mut self, time: u64) {
        let newest = *self.newest.get_or_insert(time);
        if time >= newest {
            self.clock += u128::from(time - newest);
            self.newest = Some(time);
        } else if u128::from(newest - time) > SECOND {
            self.newest = Some(time);
            self.count_anomaly(PacketAnomaly::ClockWentBack);
        }
    }

    /// Advances the cursor by one slot.
    fn advance_cursor(&mut self) -> usize {
        let at = self.cursor;
        self.cursor = (at + 1) % self.flows.len();
        at
    }

    /// Ends what is due in the next slots.
    fn sweep(&mut self) {
        for _ in 0..SLOTS_PER_SWEEP.min(self.flows.len()) {
            let at = self.advance_cursor();
            self.end_if_due(at);
        }
        self.end_due_overflows();
    }

    fn end_if_due(&mut self, at: usize) {
        let (idle, active) = (u128::from(self.config.idle_timeout_ns), u128::from(self.config.active_timeout_ns));
        let Some(flow) = &mut self.flows[at] else { return };
        if let Phase::Open { since, record } = &mut flow.phase
            && self.clock >= *since + active
            && *since + active < flow.last + idle
        {
            let (since, record) = (*since + active, std::mem::take(record));
            self.outcome.flows.push(finished(flow, &record, EndReason::Active));
            flow.tcp.start_next_record();
            flow.phase = Phase::Waiting { since };
            flow.settled = true;
        }
        let deadline = match flow.phase {
            Phase::Open { .. } => flow.last + idle,
            Phase::Closing { since, .. } => since + idle.min(5 * SECOND),
            Phase::Waiting { since } => since + idle,
        };
        if self.clock >= deadline {
            self.end(at, EndReason::Idle);
        }
    }

    fn end_due_overflows(&mut self) {
        let active = u128::from(self.config.active_timeout_ns);
        while let Some(at) = self.overflows.iter().position(|overflow| self.clock >= overflow.since + active) {
            self.end_overflow(at);
        }
    }

    /// Removes the flow in a slot, if there is one, and exports its record, if it has one.
    fn end(&mut self, at: usize, reason: EndReason) {
        let Some(flow) = self.flows[at].take() else { return };
        self.free[usize::from(flow.key.protocol == TCP)].push(at);
        match &flow.phase {
            Phase::Open { record, .. } => self.outcome.flows.push(finished(&flow, record, reason)),
            Phase::Closing { record, .. } => self.outcome.flows.push(finished(&flow, record, EndReason::EndOfFlow)),
            Phase::Waiting { .. } => {}
        }
    }

    // ---- Fragments ----

    /// Stores a first fragment; gives a later one its ports. Returns false if they are unknown.
    fn attribute(&mut self, packet: &mut Packet) -> bool {
        let name = (
            packet.network,
            packet.source,
            packet.destination,
            packet.protocol,
            packet.identification,
            packet.tunnel_type,
            tunnel_id(packet),
        );
        if packet.flags.has(Flags::FRAGMENT_FIRST) {
            self.fragments.retain(|first| first.name != name);
            if self.fragments.len() == FRAGMENTS {
                self.fragments.remove(0);
            }
            let ports = (packet.source_port, packet.destination_port);
            self.fragments.push(FirstFragment { name, since: self.clock, ports, icmp: packet.icmp() });
        } else if packet.flags.has(Flags::FRAGMENT_LATER) {
            let known = |first: &&FirstFragment| first.name == name && self.clock < first.since + 30 * SECOND;
            let Some(first) = self.fragments.iter().find(known) else {
                self.count_anomaly(PacketAnomaly::FragmentUnattributed);
                return false;
            };
            (packet.source_port, packet.destination_port) = first.ports;
            packet.icmp_or_checksum = first.icmp;
        }
        true
    }

    // ---- Flows ----

    fn key(&self, packet: &Packet) -> Key {
        let options = self.config.key;
        let mut endpoints = [(packet.source, packet.source_port), (packet.destination, packet.destination_port)];
        if !options.unidirectional {
            endpoints.sort();
        }
        Key {
            network: packet.network,
            protocol: packet.protocol,
            endpoints,
            vlans: options.vlan.then_some((packet.vlan, packet.inner_vlan)),
            interface: options.interface.then_some(packet.interface),
            tunnel: options.tunnel.then_some((packet.tunnel_type, tunnel_id(packet))),
        }
    }

    /// Returns a slot for a new flow.
    fn free_slot(&mut self, packet: &Packet) -> Option<usize> {
        if let Some(at) = self.take_free_slot(packet) {
            return Some(at);
        }
        let mut choice: Vec<(Rank, usize)> = Vec::new();
        for _ in 0..EVICTION_CANDIDATES.min(self.flows.len()) {
            let at = self.advance_cursor();
            self.end_if_due(at);
            let rank = self.flows[at].as_ref().and_then(|flow| self.rank(flow, packet));
            choice.extend(rank.map(|rank| (rank, at)));
        }
        // Of equals, the first in the order of the cursor.
        let best = choice.iter().min_by_key(|(rank, _)| rank).copied();
        if self.free.iter().all(Vec::is_empty)
            && let Some((_, at)) = best
        {
            if matches!(self.flows[at].as_ref().map(|flow| &flow.phase), Some(Phase::Open { .. })) {
                self.count_anomaly(PacketAnomaly::Evicted);
            }
            self.end(at, EndReason::LackOfResources);
        }
        self.take_free_slot(packet)
    }

    /// Takes a slot that a flow of the same kind used, else an unused one, else any free one.
    fn take_free_slot(&mut self, packet: &Packet) -> Option<usize> {
        let kind = usize::from(packet.protocol == TCP);
        if let Some(at) = self.free[kind].pop() {
            return Some(at);
        }
        if self.flows.len() < self.config.flows as usize {
            assert!(self.flows.len() < SHARED_SLOTS, "the reference has no blocks of slots");
            self.flows.push(None);
            return Some(self.flows.len() - 1);
        }
        self.free[1 - kind].pop()
    }

    fn rank(&self, flow: &FlowState, packet: &Packet) -> Option<Rank> {
        match flow.phase {
            Phase::Closing { since, .. } => Some((0, since, false)),
            Phase::Open { .. } | Phase::Waiting { .. } => {
                let last = if let Phase::Waiting { since } = flow.phase { since } else { flow.last };
                let begins_with_syn = packet.control & (Packet::SYN | Packet::ACK) == Packet::SYN;
                let answered = flow.senders.len() == 2 || flow.acknowledged;
                let evictable =
                    self.config.cache_full_policy == CacheFullPolicy::EvictOldestIdle && !(begins_with_syn && answered);
                evictable.then_some((1, last, answered))
            }
        }
    }

    fn enter(&mut self, at: usize, packet: Packet, unattributed: bool) {
        let now = self.clock;
        let unidirectional = self.config.key.unidirectional;
        let flow = self.flows[at].as_mut().expect("a flow was found or opened there");
        let sender = (packet.source, packet.source_port);
        let receiver = (packet.destination, packet.destination_port);
        if !flow.senders.contains(&sender) {
            flow.senders.push(sender);
        }
        if let Phase::Waiting { .. } = flow.phase {
            flow.acknowledged = false;
            flow.phase = Phase::Open { since: now, record: Record::default() };
        }
        let (Phase::Open { record, .. } | Phase::Closing { record, .. }) = &mut flow.phase else {
            unreachable!("a record was opened above");
        };
        if packet.control & Packet::SYN != 0 && !flow.settled && !unidirectional {
            let answers = packet.control & Packet::ACK != 0;
            let (initiator, responder) = if answers { (receiver, sender) } else { (sender, receiver) };
            if initiator != flow.initiator {
                std::mem::swap(&mut record.forward, &mut record.reverse);
                (flow.initiator, flow.responder) = (initiator, responder);
            }
            flow.settled = true;
        }
        if packet.protocol == TCP {
            flow.tcp.enter(usize::from(sender != flow.first_sender), &packet);
        }
        flow.acknowledged |= packet.protocol == TCP && packet.control & Packet::ACK != 0;
        record.interfaces.push(packet.interface);
        record.unattributed |= unattributed;
        let list = if sender == flow.initiator { &mut record.forward } else { &mut record.reverse };
        list.push(packet);
        if let Phase::Open { since: _, record } = &mut flow.phase {
            flow.last = now;
            if packet.control & Packet::FIN != 0 && !flow.fins.contains(&sender) {
                flow.fins.push(sender);
            }
            let both = flow.fins.len() == 2 || (unidirectional && flow.fins.len() == 1);
            if packet.protocol == TCP && (both || packet.control & Packet::RST != 0) {
                let record = std::mem::take(record);
                flow.phase = Phase::Closing { since: now, record };
            }
        }
    }

    // ---- Overflow records ----

    fn sum_up(&mut self, packet: Packet, unattributed: bool) {
        self.count_anomaly(PacketAnomaly::Overflow);
        self.end_due_overflows();
        let kept = match packet.network {
            Network::Ipv4 => 15,
            Network::Ipv6 => 6,
            Network::Layer2 => 13,
        };
        let prefix = |address: [u8; 16]| std::array::from_fn(|at| if at < kept { address[at] } else { 0 });
        // Keeps the lower port, and the source's of two equal ones.
        let lower_is_source = packet.source_port <= packet.destination_port;
        let source = (prefix(packet.source), if lower_is_source { packet.source_port } else { 0 });
        let destination = (prefix(packet.destination), if lower_is_source { 0 } else { packet.destination_port });
        let mut key = (packet.network, packet.protocol, source, destination);
        let position = |overflows: &[Overflow], key| overflows.iter().position(|overflow| overflow.key == key);
        let mut at = position(&self.overflows, key);
        if at.is_none() && self.overflows.len() >= OVERFLOWS {
            let mut any = [0; 16];
            if packet.network == Network::Ipv4 {
                any[10..12].fill(0xff);
            }
            key = (packet.network, packet.protocol, (any, 0), (any, 0));
            at = position(&self.overflows, key);
        }
        let at = at.unwrap_or_else(|| {
            self.overflows.push(Overflow { key, since: self.clock, record: Record::default() });
            self.overflows.len() - 1
        });
        let record = &mut self.overflows[at].record;
        record.interfaces.push(packet.interface);
        record.unattributed |= unattributed;
        record.forward.push(packet);
    }

    fn end_overflow(&mut self, at: usize) {
        let Overflow { key: (network, protocol, source, destination), record, .. } = self.overflows.remove(at);
        let mut flow = FlowRecord { network, protocol, ..flow(&record, EndReason::LackOfResources) };
        (flow.source, flow.source_port) = source;
        (flow.destination, flow.destination_port) = destination;
        flow.approximate.0 |= Approximate::OVERFLOW;
        self.outcome.flows.push(flow);
    }
}

// ---- Section 6: figures ----

fn finished(state: &FlowState, record: &Record, reason: EndReason) -> FlowRecord {
    let mut flow = flow(record, reason);
    (flow.network, flow.protocol) = (state.key.network, state.key.protocol);
    (flow.source, flow.source_port) = state.initiator;
    (flow.destination, flow.destination_port) = state.responder;
    if flow.protocol == TCP {
        let side = usize::from(state.initiator != state.first_sender);
        flow.tcp = Some([side, 1 - side].map(|side| state.tcp.report(side)));
    }
    flow
}

fn flow(record: &Record, end_reason: EndReason) -> FlowRecord {
    let mut approximate = 0;
    let mut flag = |set: bool, bit: u16| approximate |= if set { bit } else { 0 };
    flag(record.unattributed, Approximate::FRAGMENTS);
    flag(mixed(&record.interfaces, |&interface| interface), Approximate::MIXED_INTERFACE);
    for packets in [&record.forward, &record.reverse] {
        flag(mixed(packets, |packet| (packet.vlan, packet.inner_vlan)), Approximate::MIXED_VLAN);
        flag(mixed(packets, |packet| packet.mpls_label), Approximate::MIXED_MPLS);
        let tunnel = |packet: &Packet| (packet.tunnel_type, tunnel_id(packet), packet.outer_addresses());
        flag(mixed(packets, tunnel), Approximate::MIXED_TUNNEL);
        flag(mixed(packets, Packet::mac_addresses), Approximate::MIXED_MAC);
    }
    FlowRecord {
        end_reason,
        approximate: Approximate(approximate),
        interface: record.interfaces[0],
        forward: direction(&record.forward),
        reverse: direction(&record.reverse),
        ..FlowRecord::default()
    }
}

fn mixed<T, V: PartialEq>(list: &[T], value: impl Fn(&T) -> V) -> bool {
    list.iter().any(|item| value(item) != value(&list[0]))
}

fn direction(packets: &[Packet]) -> Direction {
    let [first, ..] = packets else { return Direction::default() };
    let times: Vec<u64> = packets.iter().map(|packet| packet.time_ns).collect();
    let sizes: Vec<u32> = packets.iter().map(|packet| packet.ip_bytes).collect();
    let ttls: Vec<u8> = packets.iter().map(|packet| packet.ttl).collect();
    let span = |times: &[u64]| times.iter().max().expect("not empty") - times.iter().min().expect("not empty");
    let gaps: Vec<u64> = (1..times.len()).map(|at| span(&times[..=at]) - span(&times[..at])).collect();
    let square = |value: u64| u128::from(value) * u128::from(value);
    let [outer_source, outer_destination] = first.outer_addresses();
    let [source_mac, destination_mac] = first.mac_addresses();
    Direction {
        packets: packets.len() as u64,
        bytes: sizes.iter().map(|&size| u64::from(size)).sum(),
        frame_bytes: packets.iter().map(|packet| u64::from(packet.frame_bytes)).sum(),
        first_ns: *times.iter().min().expect("not empty"),
        last_ns: *times.iter().max().expect("not empty"),
        size_min: *sizes.iter().min().expect("not empty"),
        size_max: *sizes.iter().max().expect("not empty"),
        size_squares: sizes.iter().map(|&size| square(size.into())).sum(),
        iat_min_ns: gaps.iter().min().copied().unwrap_or(0),
        iat_max_ns: gaps.iter().max().copied().unwrap_or(0),
        iat_squares: gaps.iter().map(|&gap| square(gap)).sum(),
        mpls_label: first.mpls_label,
        tunnel_id: tunnel_id(first),
        vlan: first.vlan,
        inner_vlan: first.inner_vlan,
        tcp_flags: packets.iter().fold(0, |all, packet| all | packet.control & Packet::CONTROL),
        ttl_min: *ttls.iter().min().expect("not empty"),
        ttl_max: *ttls.iter().max().expect("not empty"),
        tos: first.tos,
        icmp: first.icmp(),
        tunnel_type: first.tunnel_type,
        outer_source,
        outer_destination,
        source_mac,
        destination_mac,
    }
}
