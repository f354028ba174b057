//! Actions on packets: which frames of a burst go to which outputs, by rules, one decision per flow
//! (docs/decisions/0020).
//!
//! ```text
//! meter -> mark of the flow -> decision (rules, once per flow) -> verdict per frame
//! burst, verdicts -> dropped | shunted | held | cut -> outputs
//! ```
//! Per packet of a decided flow this reads the mark and counts. It allocates only for new flows and
//! for packets that are held.

use crate::held_packets::HeldPackets;
use crate::overrides::{OverrideAction, OverrideTable, Overrides};
use crate::settings::RecordEnricher;
use arrayvec::ArrayVec;
use std::collections::HashMap;
use std::slice;
use std::sync::Arc;
use weir_capture::{Burst, Frame, MAX_BURST_FRAMES};
use weir_egress::{Egress, InterfaceReport, ReceivedPackets};
use weir_flow::{FlowRecord, FollowedPacket, PacketFollower};
use weir_ledger::{ActionCounters, PacketTotals, RuleCounters};
use weir_packet::{DecodeOptions, Packet, header_octets};
use weir_rules::{Action, Decision, Rules, Slice};

/// Decisions that differ. There are fewer, unless rules are combined in every way.
const MAX_DECISIONS: usize = 60_000;
/// Actions of further decisions, which are not counted by rule.
const MAX_ACTIONS: usize = 5_000;
/// In place of the rules of such a decision.
const NOT_COUNTED: [Option<u16>; 3] = [Some(u16::MAX); 3];
/// A packet may be this much older than the newest one; beyond it, time has stepped back.
const REORDERING_NS: u64 = 1_000_000_000;

/// The mark of a flow: 16 bits its decision plus 1, 16 bits the version of the rules, 32 bits the
/// packets of the flow so far.
#[derive(Clone, Copy)]
struct Mark(u64);

impl Mark {
    const UNDECIDED: u16 = 0;
    const HELD: u16 = u16::MAX;

    fn new(state: u16, version: u16, packets: u32) -> Self {
        Self(u64::from(state) | u64::from(version) << 16 | u64::from(packets) << 32)
    }

    fn state(self) -> u16 {
        self.0 as u16
    }

    fn version(self) -> u16 {
        (self.0 >> 16) as u16
    }

    fn packets(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The decision, if it was made by this version of the rules.
    #[inline]
    fn decision(self, version: u16) -> Option<u16> {
        let is_decided = self.version() == version && !matches!(self.state(), Self::UNDECIDED | Self::HELD);
        is_decided.then(|| self.state() - 1)
    }
}

/// What happens to a frame.
#[derive(Clone, Copy)]
enum Verdict {
    /// It belongs to no flow.
    WithoutFlow,
    /// It was filtered after all: it is a datagram of a sink.
    Removed,
    /// It was copied, and waits; or an override has decided against it.
    Done,
    /// An override forwards it, with the outputs of this decision.
    Overridden { decision: u16, number: u32 },
    Decided {
        decision: u16,
        /// Number of the packet in its flow, from 1.
        number: u32,
    },
}

/// Decisions, and what they did.
struct Decided {
    decision: Decision,
    matched: PacketTotals,
    forwarded: PacketTotals,
}

/// The rules of a pipeline and their outputs.
pub struct PacketActions {
    rules: Arc<Rules>,
    version: u16,
    enricher: Option<RecordEnricher>,
    /// Whether flows that begin now are inspected.
    inspects: bool,
    decode: DecodeOptions,
    decided: Vec<Decided>,
    numbers: HashMap<Decision, u16, ahash::RandomState>,
    held: Option<HeldPackets>,
    egresses: Vec<Egress>,
    /// Without rules and outputs.
    counters: ActionCounters,
    /// Rules of earlier versions, with their counters.
    former: Vec<RuleCounters>,
    verdicts: [Verdict; MAX_BURST_FRAMES],
    overrides: OverrideTable,
    /// The time of the newest packet.
    newest_ns: u64,
    /// Time that has passed by packet times. It never goes back.
    passed_ns: u64,
    /// What is added to packet times to give the time of the system's clock.
    clock_offset_ns: i64,
    interfaces: FrameInterfaces,
}

/// Interfaces of the frames, for the outputs that record them.
#[derive(Default)]
struct FrameInterfaces {
    last: Option<u32>,
    seen: Vec<u32>,
    /// How many of `seen` are described.
    described: usize,
}

impl FrameInterfaces {
    #[inline]
    fn note(&mut self, interface: u32) {
        if self.last != Some(interface) {
            self.add(interface);
        }
    }

    #[cold]
    fn add(&mut self, interface: u32) {
        self.last = Some(interface);
        if !self.seen.contains(&interface) {
            self.seen.push(interface);
        }
    }
}

/// The decision about packets of no flow.
const WITHOUT_FLOW: u16 = 0;

impl PacketActions {
    /// `egresses` are those of the rules, in their order.
    pub fn new(rules: Arc<Rules>, egresses: Vec<Egress>) -> Self {
        let mut actions = Self {
            rules: rules.clone(),
            version: 0,
            enricher: None,
            inspects: true,
            decode: DecodeOptions::default(),
            decided: Vec::new(),
            numbers: HashMap::default(),
            held: None,
            egresses,
            counters: ActionCounters::default(),
            former: Vec::new(),
            verdicts: [Verdict::WithoutFlow; MAX_BURST_FRAMES],
            overrides: OverrideTable::default(),
            newest_ns: 0,
            passed_ns: 0,
            clock_offset_ns: 0,
            interfaces: FrameInterfaces::default(),
        };
        actions.apply(rules);
        actions
    }

    /// Adds overrides of single flows.
    #[must_use]
    pub fn with_overrides(self, overrides: &Overrides) -> Self {
        Self { overrides: overrides.subscribe(), ..self }
    }

    /// Starts the outputs, with what the pipeline knows.
    pub(crate) fn start(&mut self, enricher: Option<RecordEnricher>, decode: DecodeOptions) {
        (self.enricher, self.decode) = (enricher, decode);
        self.egresses.iter_mut().for_each(Egress::start);
    }

    /// Memory of the packets that wait, octets per pipeline.
    pub fn memory_bytes_for(rules: &Rules) -> u64 {
        if rules.needs_inspection() { rules.hold.octets } else { 0 }
    }

    /// Takes other rules with the same egresses. Each flow is decided again with its next packet.
    pub(crate) fn reconfigure(&mut self, rules: &Arc<Rules>) {
        if Arc::ptr_eq(rules, &self.rules) {
            return;
        }
        self.release_all();
        let present = self.rule_counters();
        merge_rules(&mut self.former, present);
        self.apply(rules.clone());
    }

    fn apply(&mut self, rules: Arc<Rules>) {
        self.version = self.version.wrapping_add(1);
        self.decided.clear();
        self.numbers.clear();
        let hold = rules.hold;
        self.held = rules.needs_inspection().then(|| HeldPackets::new(hold.octets, hold.time_ns));
        let without_flow = rules.without_flow();
        self.rules = rules;
        self.number(without_flow);
    }

    /// The number of a decision.
    fn number(&mut self, mut decision: Decision) -> u16 {
        if let Some(&number) = self.numbers.get(&decision) {
            return number;
        }
        if self.decided.len() >= MAX_DECISIONS {
            decision.rules = NOT_COUNTED;
            if let Some(&number) = self.numbers.get(&decision) {
                return number;
            }
            if self.decided.len() >= MAX_DECISIONS + MAX_ACTIONS {
                return WITHOUT_FLOW;
            }
        }
        let number = self.decided.len() as u16;
        self.decided.push(Decided { decision, matched: PacketTotals::default(), forwarded: PacketTotals::default() });
        self.numbers.insert(decision, number);
        number
    }

    /// Sets whether flows that begin are inspected.
    pub(crate) fn set_inspection(&mut self, inspects: bool) {
        self.inspects = inspects;
    }

    /// The number of the decision about a flow from what is known.
    fn fallback(&mut self, followed: &FollowedPacket<'_>) -> u16 {
        let decision = followed.record.as_deref().and_then(|record| self.rules.decide(record, true));
        decision.map_or(WITHOUT_FLOW, |decision| self.number(decision))
    }

    /// Begins a burst: frames of no packet have no flow.
    pub(crate) fn follow<'a>(&'a mut self, burst: &'a Burst<'a>, frame_of: &'a [u8], removed: u64) -> Follower<'a> {
        for (index, verdict) in self.verdicts.iter_mut().enumerate() {
            *verdict = if removed >> index & 1 == 1 { Verdict::Removed } else { Verdict::WithoutFlow };
        }
        let has_overrides = self.overrides.update();
        Follower { actions: self, burst, frame_of, has_overrides }
    }

    /// Ends a burst: counts its frames, and forwards them to the outputs.
    pub(crate) fn dispatch(&mut self, burst: &Burst<'_>, packets: &[Packet], frame_of: &[u8]) {
        let mut packet_of = [None; MAX_BURST_FRAMES];
        for (packet, &frame) in packets.iter().zip(frame_of) {
            packet_of[usize::from(frame) % MAX_BURST_FRAMES] = Some(packet);
        }
        if let Some(last) = burst.last() {
            self.pass_time(last.time_ns);
        }
        let mut batch = Batch { clock_offset_ns: self.clock_offset_ns, ..Batch::default() };
        for (index, frame) in burst.iter().enumerate() {
            self.interfaces.note(frame.interface);
            let outgoing = (*frame, packet_of[index % MAX_BURST_FRAMES]);
            let (decision, number) = match self.verdicts[index % MAX_BURST_FRAMES] {
                Verdict::WithoutFlow => (WITHOUT_FLOW, 1),
                Verdict::Decided { decision, number } => (decision, number),
                Verdict::Removed | Verdict::Done => continue,
                Verdict::Overridden { decision, number } => {
                    let action = self.decided[usize::from(decision)].decision.action;
                    batch.add(outgoing, &action, number, self.decode, &mut self.counters);
                    continue;
                }
            };
            let (decided, counters) = (&mut self.decided, &mut self.counters);
            if let Some(action) = count(decided, counters, decision, number, frame.wire_bytes) {
                batch.add(outgoing, &action, number, self.decode, counters);
            }
        }
        batch.send(&mut self.egresses);
        self.release_overdue();
    }

    /// Takes a packet time, in any order. After a step back of the clock time continues from there.
    fn pass_time(&mut self, time_ns: u64) {
        if time_ns >= self.newest_ns {
            // The first packet begins it.
            let step_ns = if self.newest_ns == 0 { 0 } else { time_ns - self.newest_ns };
            (self.newest_ns, self.passed_ns) = (time_ns, self.passed_ns.saturating_add(step_ns));
        } else if self.newest_ns - time_ns > REORDERING_NS {
            self.newest_ns = time_ns;
        }
    }

    /// Sets what is added to the times of packets that are forwarded: the system's clock was set since
    /// the source was opened.
    pub(crate) fn set_clock_offset(&mut self, offset_ns: i64) {
        self.clock_offset_ns = offset_ns;
    }

    /// Whether a frame was of an interface that is not described yet.
    pub(crate) fn has_new_interface(&self) -> bool {
        self.interfaces.described < self.interfaces.seen.len()
    }

    /// Describes new interfaces to the outputs, whose names `names` has. `received` are the packets of
    /// the interfaces, which are recorded if there is only one.
    pub(crate) fn describe_interfaces(&mut self, names: &[(u32, String)], received: Option<ReceivedPackets>) {
        let received = received.filter(|_| names.len() == 1);
        let described = std::mem::replace(&mut self.interfaces.described, self.interfaces.seen.len());
        let first = if received.is_some() { 0 } else { described };
        for &number in &self.interfaces.seen[first..] {
            let name = names.iter().find(|(of, _)| *of == number).map_or_else(String::new, |(_, name)| name.clone());
            let report = InterfaceReport { number, name, received };
            self.egresses.iter_mut().for_each(|egress| egress.describe(&report));
        }
    }

    /// Lets packets go that have waited too long, and what outputs have kept. `now_ns` is on the time
    /// scale of the packets.
    pub(crate) fn advance_time(&mut self, now_ns: u64) {
        self.pass_time(now_ns);
        self.release_overdue();
        self.egresses.iter_mut().for_each(Egress::flush);
    }

    fn release_overdue(&mut self) {
        let now_ns = self.passed_ns;
        while let Some((slot, fallback)) = self.held.as_mut().and_then(|held| held.overdue(Some(now_ns))) {
            self.counters.decided_late += 1;
            self.release(slot, fallback);
        }
    }

    fn release_all(&mut self) {
        while let Some((slot, fallback)) = self.held.as_mut().and_then(|held| held.overdue(None)) {
            self.release(slot, fallback);
        }
    }

    /// Lets the packets of a flow go.
    fn release(&mut self, slot: u32, decision: u16) {
        let clock_offset_ns = self.clock_offset_ns;
        let Self { held: Some(held), decided, counters, decode, egresses, .. } = self else { return };
        held.release(slot, |released| {
            let wire_bytes = released.frame.wire_bytes;
            counters.held.packets -= 1;
            counters.held.octets -= u64::from(wire_bytes);
            if let Some(action) = count(decided, counters, decision, released.number, wire_bytes) {
                let mut batch = Batch { clock_offset_ns, ..Batch::default() };
                batch.add((released.frame, Some(released.packet)), &action, released.number, *decode, counters);
                batch.send(egresses);
            }
        });
    }

    /// What was done so far.
    pub(crate) fn account(&self) -> ActionCounters {
        let mut rules = self.former.clone();
        merge_rules(&mut rules, self.rule_counters());
        let outputs = self.egresses.iter().flat_map(Egress::counters).collect();
        ActionCounters { rules, outputs, ..self.counters.clone() }
    }

    fn rule_counters(&self) -> Vec<RuleCounters> {
        let of = |level, rule: &str| RuleCounters { level, rule: rule.into(), ..RuleCounters::default() };
        let mut counters: Vec<_> = self.rules.rules.iter().map(|rule| of(rule.level.name(), &rule.name)).collect();
        let mut none = of("default", "no rule matched");
        let mut not_counted = of("default", "too many combinations of rules");
        for Decided { decision, matched, forwarded } in &self.decided {
            if decision.rules == NOT_COUNTED {
                not_counted.matched.merge(*matched);
                not_counted.forwarded.merge(*forwarded);
                continue;
            }
            let mut rules = decision.rules.iter().flatten().peekable();
            if rules.peek().is_none() {
                none.matched.merge(*matched);
                none.forwarded.merge(*forwarded);
            }
            for &rule in rules {
                if let Some(counters) = counters.get_mut(usize::from(rule)) {
                    counters.matched.merge(*matched);
                    counters.forwarded.merge(*forwarded);
                }
            }
        }
        counters.push(none);
        counters.extend(Some(not_counted).filter(|counters| counters.matched.packets > 0));
        counters.extend(self.overrides.counters());
        counters
    }

    /// Lets all packets go, and waits for the outputs.
    pub(crate) fn finish(&mut self) -> ActionCounters {
        self.release_all();
        self.egresses.iter_mut().for_each(Egress::finish);
        self.account()
    }
}

fn merge_rules(mine: &mut Vec<RuleCounters>, theirs: Vec<RuleCounters>) {
    let mut all = ActionCounters { rules: std::mem::take(mine), ..ActionCounters::default() };
    all.merge(&ActionCounters { rules: theirs, ..ActionCounters::default() });
    *mine = all.rules;
}

/// Counts a packet by its decision. Returns the action if it is forwarded.
#[inline]
fn count(
    decided: &mut [Decided],
    counters: &mut ActionCounters,
    decision: u16,
    number: u32,
    wire_bytes: u32,
) -> Option<Action> {
    let decided = decided.get_mut(usize::from(decision))?;
    let action = decided.decision.action;
    decided.matched.add(wire_bytes as usize);
    if !is_forwarded(&action, number, wire_bytes, counters) {
        return None;
    }
    decided.forwarded.add(wire_bytes as usize);
    Some(action)
}

/// Counts a packet by what is done with it. Returns whether it is forwarded.
#[inline]
fn is_forwarded(action: &Action, number: u32, wire_bytes: u32, counters: &mut ActionCounters) -> bool {
    if !action.forward || action.egresses == 0 {
        counters.dropped.add(wire_bytes as usize);
        return false;
    }
    if action.shunt.is_some_and(|packets| number > packets) {
        counters.shunted.add(wire_bytes as usize);
        return false;
    }
    counters.forwarded.add(wire_bytes as usize);
    true
}

/// Packets of a burst that are forwarded, in their order, and the egresses of each.
#[derive(Default)]
struct Batch<'a> {
    packets: ArrayVec<(Frame<'a>, Option<&'a Packet>), MAX_BURST_FRAMES>,
    egresses: ArrayVec<u32, MAX_BURST_FRAMES>,
    clock_offset_ns: i64,
}

impl<'a> Batch<'a> {
    /// Adds a packet, which has this number in its flow, from 1.
    fn add(
        &mut self,
        (mut frame, packet): (Frame<'a>, Option<&'a Packet>),
        action: &Action,
        number: u32,
        decode: DecodeOptions,
        counters: &mut ActionCounters,
    ) {
        let slice = if number > action.slice_after { action.slice } else { Slice::Whole };
        let kept = match (slice, packet) {
            (Slice::Octets(octets), _) => octets as usize,
            (Slice::Network, Some(packet)) => header_octets(frame.link_type, frame.bytes, packet, decode)[0],
            (Slice::Transport, Some(packet)) => header_octets(frame.link_type, frame.bytes, packet, decode)[1],
            (Slice::Whole, _) | (_, None) => frame.bytes.len(),
        };
        if kept < frame.bytes.len() {
            frame.bytes = &frame.bytes[..kept];
            counters.cut += 1;
        }
        frame.time_ns = frame.time_ns.saturating_add_signed(self.clock_offset_ns);
        self.packets.push((frame, packet));
        self.egresses.push(action.egresses);
    }

    fn send(&self, egresses: &mut [Egress]) {
        let all = self.egresses.iter().fold(0, |all, of| all | of);
        let are_same = self.egresses.iter().all(|&of| of == all);
        for (index, egress) in egresses.iter_mut().enumerate().filter(|(index, _)| all >> index & 1 == 1) {
            if are_same {
                egress.send(&self.packets);
                continue;
            }
            let of_egress = self.packets.iter().zip(&self.egresses).filter(|(_, of)| *of >> index & 1 == 1);
            let packets: ArrayVec<_, MAX_BURST_FRAMES> = of_egress.map(|(packet, _)| *packet).collect();
            egress.send(&packets);
        }
    }
}

/// Gives each packet of a burst its verdict.
pub(crate) struct Follower<'a> {
    actions: &'a mut PacketActions,
    burst: &'a Burst<'a>,
    frame_of: &'a [u8],
    has_overrides: bool,
}

impl PacketFollower for Follower<'_> {
    const ACTIVE: bool = true;

    #[inline]
    fn needs_record(&self, mark: u64, _: bool) -> bool {
        Mark(mark).decision(self.actions.version).is_none()
    }

    #[inline]
    fn needs_tuple(&self) -> bool {
        self.has_overrides
    }

    #[inline]
    fn follow(&mut self, followed: &mut FollowedPacket<'_>, mark: &mut u64) {
        let number = Mark(*mark).packets().saturating_add(1);
        let version = self.actions.version;
        if followed.tuple.is_some() && self.override_rules(followed, mark, number) {
            return;
        }
        let state = match (Mark(*mark).decision(version), followed.record.as_deref_mut()) {
            (Some(decision), _) => decision + 1,
            (None, Some(record)) => self.decide(followed.slot, followed.inspection_ended, record, Mark(*mark)),
            (None, None) => WITHOUT_FLOW + 1,
        };
        let frame = self.frame_of.get(followed.index).map_or(0, |&frame| usize::from(frame));
        let mut verdict = Verdict::Decided { decision: state.wrapping_sub(1), number };
        let mut state = state;
        if state == Mark::HELD {
            verdict = self.hold(followed, frame, number);
            if let Verdict::Decided { decision, .. } = verdict {
                state = decision + 1;
            }
        }
        *mark = Mark::new(state, version, number).0;
        self.actions.verdicts[frame % MAX_BURST_FRAMES] = verdict;
    }

    fn follow_without_flow(&mut self, _: usize, _: &Packet) {}
}

impl Follower<'_> {
    /// Decides about a flow. Returns the state of its mark.
    #[inline(never)]
    fn decide(&mut self, slot: u32, inspection_ended: bool, record: &mut FlowRecord, mark: Mark) -> u16 {
        let actions = &mut *self.actions;
        if let Some(enricher) = &actions.enricher
            && actions.rules.needs_places()
        {
            (enricher.0)(slice::from_mut(record));
        }
        let has_packets = actions.held.as_ref().is_some_and(|held| held.has(slot));
        // The packets of an earlier flow in this slot, which has ended undecided.
        if has_packets && mark.state() != Mark::HELD {
            let fallback = actions.held.as_ref().and_then(|held| held.fallback(slot));
            actions.release(slot, fallback.unwrap_or(WITHOUT_FLOW));
        }
        // Its packets have left, so that later ones must not wait.
        let is_late = mark.state() == Mark::HELD && mark.version() == actions.version && !has_packets;
        match actions.rules.decide(record, inspection_ended || is_late) {
            Some(decision) => {
                if !actions.inspects && mark.packets() == 0 && actions.rules.needs_inspection() {
                    actions.counters.decided_uninspected += 1;
                }
                let number = actions.number(decision);
                actions.release(slot, number);
                number + 1
            }
            None => Mark::HELD,
        }
    }

    /// Does with a packet what the override of its flow says. Returns false if it has none. Rules can
    /// decide about the flow later as if there had been no override.
    #[inline(never)]
    fn override_rules(&mut self, followed: &mut FollowedPacket<'_>, mark: &mut u64, number: u32) -> bool {
        let frame = self.frame_of.get(followed.index).map_or(0, |&frame| usize::from(frame));
        let wire_bytes = self.burst.get(frame).map_or(0, |frame| frame.wire_bytes);
        let found = followed.tuple.and_then(|tuple| self.actions.overrides.decide(&tuple, wire_bytes));
        let Some((action, is_shunted)) = found else { return false };
        let before = Mark(*mark);
        let mut verdict = Verdict::Done;
        let is_forwarded = match action {
            OverrideAction::Drop => {
                self.actions.counters.dropped.add(wire_bytes as usize);
                *mark = self.decide_if_known(followed, before, number).0;
                false
            }
            OverrideAction::Shunt(_) if is_shunted => {
                self.actions.counters.shunted.add(wire_bytes as usize);
                *mark = self.decide_if_known(followed, before, number).0;
                false
            }
            OverrideAction::Shunt(_) | OverrideAction::Forward => {
                let (decision, decided) = self.decide_now(followed, before, number);
                *mark = decided.0;
                let actions = &mut *self.actions;
                let mut of_rules = actions.decided[usize::from(decision)].decision.action;
                if action == OverrideAction::Forward {
                    of_rules = Action { forward: true, shunt: None, ..of_rules };
                }
                let is_forwarded = is_forwarded(&of_rules, number, wire_bytes, &mut actions.counters);
                if is_forwarded {
                    verdict = Verdict::Overridden { decision, number };
                }
                is_forwarded
            }
        };
        self.actions.overrides.count(action, is_forwarded, wire_bytes);
        self.actions.verdicts[frame % MAX_BURST_FRAMES] = verdict;
        true
    }

    /// The mark of a flow whose packet is not forwarded. It has the decision of the rules if they can
    /// decide already, so that later packets need no record.
    fn decide_if_known(&mut self, followed: &mut FollowedPacket<'_>, mark: Mark, number: u32) -> Mark {
        let version = self.actions.version;
        if mark.decision(version).is_none()
            && let Some(record) = followed.record.as_deref_mut()
        {
            let state = self.decide(followed.slot, followed.inspection_ended, record, mark);
            if state != Mark::HELD {
                return Mark::new(state, version, number);
            }
        }
        Mark::new(mark.state(), mark.version(), number)
    }

    /// The decision of the rules from what is known, and the mark of the flow. Packets that wait leave.
    fn decide_now(&mut self, followed: &mut FollowedPacket<'_>, mark: Mark, number: u32) -> (u16, Mark) {
        let version = self.actions.version;
        if let Some(decision) = mark.decision(version) {
            return (decision, Mark::new(mark.state(), version, number));
        }
        let state = match followed.record.as_deref_mut() {
            Some(record) => self.decide(followed.slot, followed.inspection_ended, record, mark),
            None => WITHOUT_FLOW + 1,
        };
        if state != Mark::HELD {
            return (state - 1, Mark::new(state, version, number));
        }
        let fallback = self.actions.fallback(followed);
        self.actions.release(followed.slot, fallback);
        (fallback, Mark::new(Mark::UNDECIDED, version, number))
    }

    /// Holds a packet, or decides if there is no room.
    #[inline(never)]
    fn hold(&mut self, followed: &FollowedPacket<'_>, frame: usize, number: u32) -> Verdict {
        let actions = &mut *self.actions;
        let fallback = actions.fallback(followed);
        let Some(frame) = self.burst.get(frame) else { return Verdict::Decided { decision: fallback, number } };
        actions.pass_time(frame.time_ns);
        let now_ns = actions.passed_ns;
        let Some(held) = &mut actions.held else { return Verdict::Decided { decision: fallback, number } };
        let mut has_room = held.hold(now_ns, followed.slot, frame, followed.packet, number, fallback);
        while !has_room {
            // The oldest flow goes, so that this one can wait.
            let oldest = actions.held.as_mut().and_then(|held| held.overdue(None));
            actions.counters.decided_full += 1;
            // Without one, the packet is longer than the memory.
            let Some((slot, of_oldest)) = oldest else { break };
            actions.release(slot, of_oldest);
            if slot == followed.slot {
                break;
            }
            let Some(held) = &mut actions.held else { break };
            has_room = held.hold(now_ns, followed.slot, frame, followed.packet, number, fallback);
        }
        if has_room {
            actions.counters.held.add(frame.wire_bytes as usize);
            return Verdict::Done;
        }
        Verdict::Decided { decision: fallback, number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions() -> PacketActions {
        PacketActions::new(Arc::new(Rules::new("").unwrap()), Vec::new())
    }

    #[test]
    fn time_passes_by_forward_steps_alone() {
        const S: u64 = 1_000_000_000;
        let mut actions = actions();
        // A clock that goes back an hour does not stop it; packets out of order do not move it.
        for (time_ns, passed_ns) in
            [(5000, 0), (5001, 1), (5000, 1), (8601, 3601), (5001, 3601), (5002, 3602), (5002, 3602), (5004, 3604)]
        {
            actions.pass_time(time_ns * S);
            assert_eq!(actions.passed_ns, passed_ns * S, "{time_ns}");
        }
    }

    #[test]
    fn every_decision_has_its_action_however_rules_are_combined() {
        let mut actions = actions();
        let dropped = Action { forward: false, ..actions.rules.without_flow().action };
        for at in 0..62_000_u32 {
            let rules = [Some((at % 256) as u16), Some((at / 256) as u16), None];
            let action = Action { shunt: Some(at % 7), ..dropped };
            let number = actions.number(Decision { action, rules });
            assert_eq!(actions.decided[usize::from(number)].decision.action, action, "{at}");
            actions.decided[usize::from(number)].matched.add(100);
        }
        let counters = actions.rule_counters();
        let not_counted = counters.iter().find(|counters| counters.rule == "too many combinations of rules").unwrap();
        assert_eq!(not_counted.matched.packets, 62_000 + 1 - MAX_DECISIONS as u64);
        assert!(actions.decided.len() <= MAX_DECISIONS + 7);
    }
}
