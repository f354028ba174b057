//! The decisions that rules have made, by number, and the packets that each one has decided.

use super::mark::Mark;
use std::collections::HashMap;
use weir_ledger::{ActionCounters, PacketTotals, RuleCounters};
use weir_rules::{Action, Decision, Rules};

/// Decisions that differ. There are fewer, unless rules are combined in every way.
const MAX_DECISIONS: usize = 60_000;
/// Actions of further decisions, which are not counted by rule.
const MAX_ACTIONS: usize = 5_000;
const _: () = assert!(MAX_DECISIONS + MAX_ACTIONS <= Mark::MAX_DECISION, "a mark has every number");
/// In place of the rules of such a decision.
const NOT_COUNTED: [Option<u16>; 3] = [Some(u16::MAX); 3];

/// The decision about packets of no flow.
pub(super) const WITHOUT_FLOW: u16 = 0;

pub(super) struct DecisionTable {
    entries: Vec<Entry>,
    numbers: HashMap<Decision, u16, ahash::RandomState>,
}

struct Entry {
    decision: Decision,
    matched: PacketTotals,
    forwarded: PacketTotals,
}

impl DecisionTable {
    /// Has the decision about packets of no flow.
    pub fn new(rules: &Rules) -> Self {
        let mut table = Self { entries: Vec::new(), numbers: HashMap::default() };
        table.number(rules.without_flow());
        table
    }

    /// The number of a decision.
    pub fn number(&mut self, mut decision: Decision) -> u16 {
        if let Some(&number) = self.numbers.get(&decision) {
            return number;
        }
        if self.entries.len() >= MAX_DECISIONS {
            decision.rules = NOT_COUNTED;
            if let Some(&number) = self.numbers.get(&decision) {
                return number;
            }
            if self.entries.len() >= MAX_DECISIONS + MAX_ACTIONS {
                return WITHOUT_FLOW;
            }
        }
        let number = self.entries.len() as u16;
        self.entries.push(Entry { decision, matched: PacketTotals::default(), forwarded: PacketTotals::default() });
        self.numbers.insert(decision, number);
        number
    }

    pub fn action(&self, number: u16) -> Action {
        self.entries[usize::from(number)].decision.action
    }

    /// Counts a packet by its decision; it has the number `packet` in its flow. Returns the action if it
    /// is forwarded.
    #[inline]
    pub fn count(
        &mut self,
        number: u16,
        packet: u32,
        wire_bytes: u32,
        counters: &mut ActionCounters,
    ) -> Option<Action> {
        let entry = self.entries.get_mut(usize::from(number))?;
        let action = entry.decision.action;
        entry.matched.add(wire_bytes as usize);
        if !is_forwarded(&action, packet, wire_bytes, counters) {
            return None;
        }
        entry.forwarded.add(wire_bytes as usize);
        Some(action)
    }

    /// What each rule has decided.
    pub fn rule_counters(&self, rules: &Rules) -> Vec<RuleCounters> {
        let of = |level, rule: &str| RuleCounters { level, rule: rule.into(), ..RuleCounters::default() };
        let mut counters: Vec<_> = rules.rules.iter().map(|rule| of(rule.level.name(), &rule.name)).collect();
        let mut none = of("default", "no rule matched");
        let mut not_counted = of("default", "too many combinations of rules");
        for Entry { decision, matched, forwarded } in &self.entries {
            let add = |counters: &mut RuleCounters| {
                counters.matched.merge(*matched);
                counters.forwarded.merge(*forwarded);
            };
            if decision.rules == NOT_COUNTED {
                add(&mut not_counted);
            } else if decision.rules == [None; 3] {
                add(&mut none);
            } else {
                for &rule in decision.rules.iter().flatten() {
                    if let Some(counters) = counters.get_mut(usize::from(rule)) {
                        add(counters);
                    }
                }
            }
        }
        counters.push(none);
        counters.extend(Some(not_counted).filter(|counters| counters.matched.packets > 0));
        counters
    }
}

/// Counts a packet by what is done with it; it has the number `packet` in its flow. Returns whether it
/// is forwarded.
#[inline]
pub(super) fn is_forwarded(action: &Action, packet: u32, wire_bytes: u32, counters: &mut ActionCounters) -> bool {
    if !action.forward || action.egresses == 0 {
        counters.dropped.add(wire_bytes as usize);
        return false;
    }
    if action.shunt.is_some_and(|packets| packet > packets) {
        counters.shunted.add(wire_bytes as usize);
        return false;
    }
    counters.forwarded.add(wire_bytes as usize);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_decision_has_its_action_however_rules_are_combined() {
        let rules = Rules::new("").unwrap();
        let mut table = DecisionTable::new(&rules);
        let dropped = Action { forward: false, ..rules.without_flow().action };
        for at in 0..62_000_u32 {
            let rules = [Some((at % 256) as u16), Some((at / 256) as u16), None];
            let action = Action { shunt: Some(at % 7), ..dropped };
            let number = table.number(Decision { action, rules });
            assert_eq!(table.action(number), action, "{at}");
            table.count(number, 1, 100, &mut ActionCounters::default());
        }
        let counters = table.rule_counters(&rules);
        let not_counted = counters.iter().find(|counters| counters.rule == "too many combinations of rules").unwrap();
        assert_eq!(not_counted.matched.packets, 62_000 + 1 - MAX_DECISIONS as u64);
        assert!(table.entries.len() <= MAX_DECISIONS + 7);
    }
}
