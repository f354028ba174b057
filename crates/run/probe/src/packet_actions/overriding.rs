//! Packets of flows that have an override ([`crate::overrides`]).

use super::Verdict;
use super::decision_table::is_forwarded;
use super::mark::{FlowState, Mark};
use super::verdicts::Follower;
use crate::overrides::OverrideAction;
use weir_flow::FollowedPacket;
use weir_rules::Action;

impl Follower<'_> {
    /// Does with a packet what the override of its flow says. Returns false if it has none. Rules can
    /// decide about the flow later as if there had been no override.
    #[inline(never)]
    pub(super) fn override_rules(&mut self, followed: &mut FollowedPacket<'_>, mark: &mut u64, number: u32) -> bool {
        let wire_bytes = self.burst.get(self.frame(followed)).map_or(0, |frame| frame.wire_bytes);
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
                let mut of_rules = actions.decisions.action(decision);
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
        self.set_verdict(followed, verdict);
        true
    }

    /// The mark of a flow whose packet is not forwarded. It has the decision of the rules if they can
    /// decide already, so that later packets need no record.
    fn decide_if_known(&mut self, followed: &mut FollowedPacket<'_>, mark: Mark, number: u32) -> Mark {
        let version = self.actions.version;
        if mark.decision(version).is_none()
            && followed.record.is_some()
            && let Some(decision) = self.decide(followed, mark)
        {
            return Mark::new(FlowState::Decided(decision), version, number);
        }
        mark.with_packets(number)
    }

    /// The decision of the rules from what is known, and the mark of the flow. Packets that wait leave.
    fn decide_now(&mut self, followed: &mut FollowedPacket<'_>, mark: Mark, number: u32) -> (u16, Mark) {
        let version = self.actions.version;
        if let Some(decision) = mark.decision(version) {
            return (decision, mark.with_packets(number));
        }
        if let Some(decision) = self.decide(followed, mark) {
            return (decision, Mark::new(FlowState::Decided(decision), version, number));
        }
        let fallback = self.fallback(followed);
        self.actions.release(followed.slot, fallback);
        (fallback, Mark::new(FlowState::Undecided, version, number))
    }
}
