//! Overrides: what an IDS says about single flows, in place of their rules, for a time.
//!
//! ```text
//! HTTP interface -> Overrides -> inbox per pipeline -> OverrideTable -> packets of the flow
//! ```
//! A pipeline looks at a number between two bursts, and takes the lock only if it has changed. Both
//! sides share each override, in which each pipeline has counters of its own: a packet writes no memory
//! that another thread writes, but the number of packets before a shunt begins, while there are some. A
//! pipeline checks whether an override has expired when a packet of the flow arrives.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_flow::FlowTuple;
use weir_ledger::{PacketTotals, RuleCounters};

/// What happens to the packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideAction {
    /// All are forwarded, to the egresses of the rules.
    Forward,
    /// None is forwarded.
    Drop,
    /// The rules decide about this number of packets, then none is forwarded.
    Shunt(u32),
}

impl OverrideAction {
    const NAMES: [&'static str; 3] = ["forward", "drop", "shunt"];

    fn index(self) -> usize {
        match self {
            Self::Forward => 0,
            Self::Drop => 1,
            Self::Shunt(_) => 2,
        }
    }
}

/// The override of a flow.
#[derive(Debug)]
pub struct Override {
    /// The flow.
    pub tuple: FlowTuple,
    /// What happens to its packets.
    pub action: OverrideAction,
    /// When it ends.
    pub until: Instant,
    /// Of two, the newer one has the higher number.
    number: u64,
    more: AtomicU32,
    is_removed: AtomicBool,
    /// Of each pipeline: packets that it has decided, and their octets on the wire.
    decided: Box<[PipelineCounters]>,
}

/// Counters that one thread writes, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct PipelineCounters {
    packets: AtomicU64,
    octets: AtomicU64,
}

impl PipelineCounters {
    fn add(&self, octets: u32) {
        for (counter, more) in [(&self.packets, 1), (&self.octets, octets.into())] {
            // No other thread writes it.
            counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        }
    }

    fn totals(&self) -> PacketTotals {
        let [packets, octets] = [&self.packets, &self.octets].map(|counter| counter.load(Ordering::Relaxed));
        PacketTotals { packets, octets }
    }
}

impl Override {
    /// Packets that it has decided, and their octets on the wire.
    pub fn decided(&self) -> PacketTotals {
        self.decided.iter().fold(PacketTotals::default(), |mut all, of_pipeline| {
            all.merge(of_pipeline.totals());
            all
        })
    }

    /// Packets before a shunt begins.
    pub fn more(&self) -> u32 {
        self.more.load(Ordering::Relaxed)
    }

    fn is_valid(&self, now: Instant) -> bool {
        now < self.until && !self.is_removed.load(Ordering::Relaxed)
    }

    /// Takes one of the packets before a shunt begins. Returns false if there is none left.
    fn take_one(&self) -> bool {
        self.more.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |more| more.checked_sub(1)).is_ok()
    }
}

/// The overrides of a probe.
#[derive(Clone, Debug, Default)]
pub struct Overrides(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// How many were added or removed.
    changes: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    table: Table,
    /// Of each pipeline: those that were added or removed since it looked.
    inboxes: Vec<Vec<Arc<Override>>>,
}

type Table = HashMap<FlowTuple, Arc<Override>, ahash::RandomState>;

impl Overrides {
    /// At most this number are in effect.
    pub const MAX: usize = 16_384;

    /// Adds an override, in place of an earlier one of the flow. It has an effect on packets that a
    /// pipeline reads from now on. If there are [`Overrides::MAX`], it replaces the oldest one. Returns it,
    /// and whether there was an earlier one of the flow.
    pub fn add(&self, tuple: FlowTuple, action: OverrideAction, time: Duration) -> (Arc<Override>, bool) {
        let now = Instant::now();
        let mut state = self.0.state.lock();
        let State { table, inboxes } = &mut *state;
        if table.len() >= Self::MAX {
            table.retain(|_, present| present.is_valid(now));
        }
        if table.len() >= Self::MAX && !table.contains_key(&tuple) {
            let oldest = table.values().min_by_key(|present| present.number).map(|present| present.tuple);
            let removed = oldest.and_then(|oldest| table.remove(&oldest));
            if let Some(removed) = removed {
                removed.is_removed.store(true, Ordering::Relaxed);
                self.announce(inboxes, &removed);
            }
        }
        let more = if let OverrideAction::Shunt(more) = action { more } else { 0 };
        let added = Arc::new(Override {
            tuple,
            action,
            until: now + time,
            number: self.0.changes.load(Ordering::Relaxed),
            more: more.into(),
            is_removed: AtomicBool::default(),
            decided: inboxes.iter().map(|_| PipelineCounters::default()).collect(),
        });
        let earlier = table.insert(tuple, added.clone());
        let replaces = earlier.is_some_and(|earlier| {
            let was_valid = earlier.is_valid(now);
            earlier.is_removed.store(true, Ordering::Relaxed);
            was_valid
        });
        self.announce(inboxes, &added);
        (added, replaces)
    }

    fn announce(&self, inboxes: &mut [Vec<Arc<Override>>], changed: &Arc<Override>) {
        for inbox in inboxes {
            // A pipeline that is blocked does not read it.
            if inbox.len() >= 2 * Self::MAX {
                let now = Instant::now();
                inbox.retain(|present| present.is_valid(now));
            }
            inbox.push(changed.clone());
        }
        self.0.changes.fetch_add(1, Ordering::Release);
    }

    /// Takes an override back. Returns it, if there was one.
    pub fn remove(&self, tuple: &FlowTuple) -> Option<Arc<Override>> {
        let mut state = self.0.state.lock();
        let removed = state.table.remove(tuple)?;
        let was_valid = removed.is_valid(Instant::now());
        removed.is_removed.store(true, Ordering::Relaxed);
        self.announce(&mut state.inboxes, &removed);
        was_valid.then_some(removed)
    }

    /// How many were added or removed since the start.
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// Those in effect, the next one to end first.
    pub fn list(&self) -> Vec<Arc<Override>> {
        let now = Instant::now();
        let mut list: Vec<_> = self.0.state.lock().table.values().filter(|of| of.is_valid(now)).cloned().collect();
        list.sort_by_key(|of| of.until);
        list
    }

    /// The side of one more pipeline, which gets those that are added from now on.
    pub(crate) fn subscribe(&self) -> OverrideTable {
        let mut state = self.0.state.lock();
        state.inboxes.push(Vec::new());
        OverrideTable {
            source: Some((self.clone(), state.inboxes.len() - 1)),
            changes: self.0.changes.load(Ordering::Acquire),
            ..OverrideTable::default()
        }
    }
}

/// The overrides as a pipeline knows them.
#[derive(Default)]
pub(crate) struct OverrideTable {
    /// With the number of the pipeline; `None` if there can be none.
    source: Option<(Overrides, usize)>,
    changes: u64,
    table: Table,
    now: Option<Instant>,
    /// When the last one ends.
    until: Option<Instant>,
    /// By action: packets that overrides have decided, and those of them that were forwarded.
    counters: [[PacketTotals; 2]; 3],
}

impl OverrideTable {
    /// Once per burst: takes new ones, and looks at the clock if there are any. Returns whether there
    /// are any.
    #[inline]
    pub fn update(&mut self) -> bool {
        let Some((source, _)) = &self.source else { return false };
        if source.0.changes.load(Ordering::Acquire) == self.changes && self.table.is_empty() {
            return false;
        }
        self.take_new();
        !self.table.is_empty()
    }

    #[inline(never)]
    fn take_new(&mut self) {
        let now = Instant::now();
        self.now = Some(now);
        let Some((source, inbox)) = &self.source else { return };
        let changes = source.0.changes.load(Ordering::Acquire);
        if changes != std::mem::replace(&mut self.changes, changes) {
            for changed in std::mem::take(&mut source.0.state.lock().inboxes[*inbox]) {
                if changed.is_valid(now) {
                    self.until = self.until.max(Some(changed.until));
                    self.table.insert(changed.tuple, changed);
                } else {
                    self.table.remove(&changed.tuple);
                }
            }
        }
        if self.until.is_none_or(|until| until <= now) {
            self.table.clear();
        } else if self.table.len() > 2 * Overrides::MAX {
            self.table.retain(|_, of| of.is_valid(now));
        }
    }

    /// Counts a packet in the override of its flow. Returns what happens to it: the action, and whether
    /// a shunt has begun.
    pub fn decide(&self, tuple: &FlowTuple, wire_bytes: u32) -> Option<(OverrideAction, bool)> {
        let (found, now) = (self.table.get(tuple)?, self.now?);
        if !found.is_valid(now) {
            return None;
        }
        let (_, pipeline) = self.source.as_ref()?;
        found.decided.get(*pipeline)?.add(wire_bytes);
        let is_shunted = matches!(found.action, OverrideAction::Shunt(_)) && !found.take_one();
        Some((found.action, is_shunted))
    }

    /// Counts a packet that an override has decided.
    pub fn count(&mut self, action: OverrideAction, is_forwarded: bool, wire_bytes: u32) {
        let [decided, forwarded] = &mut self.counters[action.index()];
        decided.add(wire_bytes as usize);
        if is_forwarded {
            forwarded.add(wire_bytes as usize);
        }
    }

    /// One row per action, as those of rules.
    pub fn counters(&self) -> impl Iterator<Item = RuleCounters> {
        let rows = OverrideAction::NAMES.into_iter().zip(self.counters).filter(|_| self.source.is_some());
        rows.map(|(rule, [matched, forwarded])| RuleCounters {
            level: "override",
            rule: rule.into(),
            matched,
            forwarded,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::{Network, ipv4_mapped};

    const MINUTE: Duration = Duration::from_secs(60);

    fn tuple(number: u32) -> FlowTuple {
        FlowTuple::new([(ipv4_mapped(number.to_be_bytes()), 1), (ipv4_mapped([192, 0, 2, 1]), 80)], 6, Network::Ipv4)
    }

    #[test]
    fn their_number_is_limited_and_the_oldest_makes_room() {
        let overrides = Overrides::default();
        let mut table = overrides.subscribe();
        let max = Overrides::MAX as u32;
        for number in 0..max {
            let time = if (100..110).contains(&number) { Duration::ZERO } else { MINUTE };
            assert!(!overrides.add(tuple(number), OverrideAction::Drop, time).1);
        }
        // Those that have ended go first.
        for number in max..max + 10 {
            overrides.add(tuple(number), OverrideAction::Drop, MINUTE);
        }
        assert!(overrides.add(tuple(0), OverrideAction::Forward, MINUTE).1, "it takes the place of another");
        assert!(table.update());
        overrides.add(tuple(max + 10), OverrideAction::Drop, MINUTE);
        assert_eq!(overrides.list().len(), Overrides::MAX);
        assert!(table.decide(&tuple(1), 60).is_none() && table.decide(&tuple(0), 60).is_some(), "at once");
        assert!(table.update() && table.decide(&tuple(max + 10), 60).is_some());
        assert!(overrides.remove(&tuple(1)).is_none() && overrides.remove(&tuple(2)).is_some());
    }

    #[test]
    fn a_pipeline_sees_the_last_change_of_a_flow_and_forgets_what_has_ended() {
        let overrides = Overrides::default();
        let mut table = overrides.subscribe();
        assert!(!table.update() && table.decide(&tuple(1), 60).is_none());
        overrides.add(tuple(1), OverrideAction::Drop, MINUTE);
        overrides.add(tuple(1), OverrideAction::Shunt(1), MINUTE);
        overrides.add(tuple(2), OverrideAction::Drop, MINUTE);
        overrides.add(tuple(3), OverrideAction::Drop, Duration::ZERO);
        overrides.remove(&tuple(2));
        assert!(table.update());
        assert_eq!(table.decide(&tuple(1), 60), Some((OverrideAction::Shunt(1), false)));
        assert_eq!(table.decide(&tuple(1), 70), Some((OverrideAction::Shunt(1), true)));
        assert!(table.decide(&tuple(2), 60).is_none() && table.decide(&tuple(3), 60).is_none());
        let removed = overrides.remove(&tuple(1)).unwrap();
        assert!(table.decide(&tuple(1), 60).is_none(), "at once");
        assert_eq!(removed.decided(), PacketTotals { packets: 2, octets: 130 });
        assert!(!table.update());
    }

    #[test]
    fn the_packets_of_all_pipelines_are_summed_up_and_share_what_precedes_a_shunt() {
        let overrides = Overrides::default();
        let mut tables = [overrides.subscribe(), overrides.subscribe()];
        let (added, _) = overrides.add(tuple(1), OverrideAction::Shunt(3), MINUTE);
        assert!(tables.iter_mut().all(OverrideTable::update));
        let decide = |table: &OverrideTable| table.decide(&tuple(1), 100).unwrap().1;
        assert_eq!([0, 1, 0, 1, 0].map(|table: usize| decide(&tables[table])), [false, false, false, true, true]);
        assert_eq!((added.decided(), added.more()), (PacketTotals { packets: 5, octets: 500 }, 0));
    }

    #[test]
    fn a_pipeline_that_is_blocked_does_not_let_memory_grow() {
        let overrides = Overrides::default();
        let mut table = overrides.subscribe();
        for number in 0..100_000 {
            overrides.add(tuple(number), OverrideAction::Drop, MINUTE);
            if number >= 100 {
                overrides.remove(&tuple(number));
            }
        }
        assert!(overrides.0.state.lock().inboxes[0].len() <= 2 * Overrides::MAX);
        assert!(table.update());
        assert_eq!(table.table.len(), 100);
    }
}
