//! Actions on packets: which frames of a burst go to which outputs, by rules, one decision per flow
//! (docs/decisions/0020).
//!
//! ```text
//! meter -> mark of the flow -> decision (rules, once per flow) -> verdict per frame
//! burst, verdicts -> dropped | shunted | held | cut -> outputs
//! ```
//! Per packet of a decided flow this reads the mark and counts. It allocates only for new flows and
//! for packets that are held.

mod decision_table;
mod held_packets;
mod mark;
mod outputs;
mod overriding;
mod verdicts;

use crate::overrides::{OverrideTable, Overrides};
use crate::settings::RecordEnricher;
use decision_table::{DecisionTable, WITHOUT_FLOW};
use held_packets::HeldPackets;
use outputs::PacketOutputs;
use std::sync::Arc;
use weir_capture::{Burst, MAX_BURST_FRAMES};
use weir_egress::Egress;
use weir_flow::Clock;
use weir_ledger::{ActionCounters, RuleCounters};
use weir_packet::{DecodeOptions, Packet};
use weir_rules::Rules;

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

/// The rules of a pipeline and their outputs.
pub struct PacketActions {
    rules: Arc<Rules>,
    /// How many rules there were before, modulo 2^16: marks of earlier rules do not count.
    version: u16,
    decisions: DecisionTable,
    enricher: Option<RecordEnricher>,
    /// Whether flows that begin now are inspected.
    pub(crate) inspects: bool,
    held: Option<HeldPackets>,
    /// Time as packets that wait measure it: by packet times.
    clock: Clock,
    overrides: OverrideTable,
    verdicts: [Verdict; MAX_BURST_FRAMES],
    pub(crate) outputs: PacketOutputs,
    /// Without rules and outputs.
    counters: ActionCounters,
    /// Rules of earlier versions, with their counters.
    former: Vec<RuleCounters>,
}

impl PacketActions {
    /// `egresses` are those of the rules, in their order.
    pub fn new(rules: Arc<Rules>, egresses: Vec<Egress>) -> Self {
        Self {
            version: 1,
            decisions: DecisionTable::new(&rules),
            enricher: None,
            inspects: true,
            held: held_packets(&rules),
            clock: Clock { newest_ns: u64::MAX, ..Clock::default() },
            overrides: OverrideTable::default(),
            verdicts: [Verdict::WithoutFlow; MAX_BURST_FRAMES],
            outputs: PacketOutputs::new(egresses),
            counters: ActionCounters::default(),
            former: Vec::new(),
            rules,
        }
    }

    /// Adds overrides of single flows.
    #[must_use]
    pub fn with_overrides(self, overrides: &Overrides) -> Self {
        Self { overrides: overrides.subscribe(), ..self }
    }

    /// Starts the outputs, with what the pipeline knows.
    pub(crate) fn start(&mut self, enricher: Option<RecordEnricher>, decode: DecodeOptions) {
        (self.enricher, self.outputs.decode) = (enricher, decode);
        self.outputs.egresses.iter_mut().for_each(Egress::start);
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
        self.version = self.version.wrapping_add(1);
        self.decisions = DecisionTable::new(rules);
        self.held = held_packets(rules);
        self.rules = rules.clone();
    }

    /// Ends a burst: counts its frames, and forwards them to the outputs.
    pub(crate) fn dispatch(&mut self, burst: &Burst<'_>, packets: &[Packet], frame_of: &[u8]) {
        let mut packet_of = [None; MAX_BURST_FRAMES];
        for (packet, &frame) in packets.iter().zip(frame_of) {
            packet_of[usize::from(frame) % MAX_BURST_FRAMES] = Some(packet);
        }
        if let Some(last) = burst.last() {
            self.clock.advance(last.time_ns);
        }
        let Self { verdicts, decisions, outputs, counters, .. } = self;
        let mut batch = outputs.batch();
        for (index, frame) in burst.iter().enumerate() {
            outputs.interfaces.note(frame.interface);
            let wire_bytes = frame.wire_bytes;
            let (action, number) = match verdicts[index % MAX_BURST_FRAMES] {
                Verdict::WithoutFlow => (decisions.count(WITHOUT_FLOW, 1, wire_bytes, counters), 1),
                Verdict::Decided { decision, number } => {
                    (decisions.count(decision, number, wire_bytes, counters), number)
                }
                Verdict::Overridden { decision, number } => (Some(decisions.action(decision)), number),
                Verdict::Removed | Verdict::Done => continue,
            };
            if let Some(action) = action {
                batch.add((*frame, packet_of[index % MAX_BURST_FRAMES]), &action, number, counters);
            }
        }
        batch.send(&mut outputs.egresses);
        self.release_overdue();
    }

    /// Lets packets go that have waited too long, and what outputs have kept. `now_ns` is on the time
    /// scale of the packets.
    pub(crate) fn advance_time(&mut self, now_ns: u64) {
        self.clock.advance(now_ns);
        self.release_overdue();
        self.outputs.egresses.iter_mut().for_each(Egress::flush);
    }

    fn release_overdue(&mut self) {
        let now_ns = self.clock.now_ns;
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
        let Self { held: Some(held), decisions, counters, outputs, .. } = self else { return };
        held.release(slot, |released| {
            let wire_bytes = released.frame.wire_bytes;
            counters.held.packets -= 1;
            counters.held.octets -= u64::from(wire_bytes);
            if let Some(action) = decisions.count(decision, released.number, wire_bytes, counters) {
                let mut batch = outputs.batch();
                batch.add((released.frame, Some(released.packet)), &action, released.number, counters);
                batch.send(&mut outputs.egresses);
            }
        });
    }

    /// What was done so far.
    pub(crate) fn account(&self) -> ActionCounters {
        let mut rules = self.former.clone();
        merge_rules(&mut rules, self.rule_counters());
        let outputs = self.outputs.egresses.iter().flat_map(Egress::counters).collect();
        ActionCounters { rules, outputs, ..self.counters.clone() }
    }

    fn rule_counters(&self) -> Vec<RuleCounters> {
        let mut counters = self.decisions.rule_counters(&self.rules);
        counters.extend(self.overrides.counters());
        counters
    }

    /// Lets all packets go, and waits for the outputs.
    pub(crate) fn finish(&mut self) -> ActionCounters {
        self.release_all();
        self.outputs.egresses.iter_mut().for_each(Egress::finish);
        self.account()
    }
}

/// Memory for packets that wait, if rules need the application.
fn held_packets(rules: &Rules) -> Option<HeldPackets> {
    rules.needs_inspection().then(|| HeldPackets::new(rules.hold.octets, rules.hold.time_ns))
}

fn merge_rules(mine: &mut Vec<RuleCounters>, theirs: Vec<RuleCounters>) {
    let mut all = ActionCounters { rules: std::mem::take(mine), ..ActionCounters::default() };
    all.merge(&ActionCounters { rules: theirs, ..ActionCounters::default() });
    *mine = all.rules;
}
