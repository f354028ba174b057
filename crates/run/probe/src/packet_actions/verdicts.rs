//! The meter calls [`Follower`] with each packet of a burst and the mark of its flow. It decides about
//! the flow and gives the packet its verdict.

use super::decision_table::WITHOUT_FLOW;
use super::mark::{FlowState, Mark};
use super::{PacketActions, Verdict};
use std::slice;
use weir_capture::{Burst, MAX_BURST_FRAMES};
use weir_flow::{FollowedPacket, PacketFollower};

pub(crate) struct Follower<'a> {
    pub(super) actions: &'a mut PacketActions,
    pub(super) burst: &'a Burst<'a>,
    pub(super) frame_of: &'a [u8],
    has_overrides: bool,
}

impl PacketActions {
    /// Begins a burst: frames of no packet have no flow.
    pub(crate) fn follow<'a>(&'a mut self, burst: &'a Burst<'a>, frame_of: &'a [u8], removed: u64) -> Follower<'a> {
        for (index, verdict) in self.verdicts.iter_mut().enumerate() {
            *verdict = if removed >> index & 1 == 1 { Verdict::Removed } else { Verdict::WithoutFlow };
        }
        let has_overrides = self.overrides.update();
        Follower { actions: self, burst, frame_of, has_overrides }
    }
}

impl PacketFollower for Follower<'_> {
    const ACTIVE: bool = true;

    #[inline]
    fn needs_record(&self, mark: u64) -> bool {
        Mark(mark).decision(self.actions.version).is_none()
    }

    #[inline]
    fn needs_tuple(&self) -> bool {
        self.has_overrides
    }

    #[inline]
    fn follow(&mut self, followed: &mut FollowedPacket<'_>, mark: &mut u64) {
        let before = Mark(*mark);
        let number = before.packets().saturating_add(1);
        let version = self.actions.version;
        if followed.tuple.is_some() && self.override_rules(followed, mark, number) {
            return;
        }
        let decision =
            before.decision(version).or_else(|| self.decide(followed, before)).or_else(|| self.hold(followed, number));
        let (state, verdict) = match decision {
            Some(decision) => (FlowState::Decided(decision), Verdict::Decided { decision, number }),
            None => (FlowState::Held, Verdict::Done),
        };
        *mark = Mark::new(state, version, number).0;
        self.set_verdict(followed, verdict);
    }
}

impl Follower<'_> {
    /// The index of a packet's frame in the burst.
    pub(super) fn frame(&self, followed: &FollowedPacket<'_>) -> usize {
        self.frame_of.get(followed.index).map_or(0, |&frame| usize::from(frame))
    }

    pub(super) fn set_verdict(&mut self, followed: &FollowedPacket<'_>, verdict: Verdict) {
        let frame = self.frame(followed);
        self.actions.verdicts[frame % MAX_BURST_FRAMES] = verdict;
    }

    /// Decides about a flow. Returns the number of the decision; `None` if it needs the application.
    #[inline(never)]
    pub(super) fn decide(&mut self, followed: &mut FollowedPacket<'_>, mark: Mark) -> Option<u16> {
        let Some(record) = followed.record.as_deref_mut() else { return Some(WITHOUT_FLOW) };
        let (slot, actions) = (followed.slot, &mut *self.actions);
        if let Some(enrich) = &actions.enricher
            && actions.rules.needs_places()
        {
            enrich(slice::from_mut(record));
        }
        let has_packets = actions.held.as_ref().is_some_and(|held| held.has(slot));
        let is_held = mark.state() == FlowState::Held;
        // The packets of an earlier flow in this slot, which has ended undecided.
        if has_packets && !is_held {
            let fallback = actions.held.as_ref().and_then(|held| held.fallback(slot));
            actions.release(slot, fallback.unwrap_or(WITHOUT_FLOW));
        }
        // Its packets have left, so that later ones must not wait.
        let is_late = is_held && mark.version() == actions.version && !has_packets;
        let decision = actions.rules.decide(record, followed.inspection_ended || is_late)?;
        if !actions.inspects && mark.packets() == 0 && actions.rules.needs_inspection() {
            actions.counters.decided_uninspected += 1;
        }
        let number = actions.decisions.number(decision);
        actions.release(slot, number);
        Some(number)
    }

    /// Holds a packet. Returns the decision from what is known if there is no room.
    #[inline(never)]
    fn hold(&mut self, followed: &FollowedPacket<'_>, number: u32) -> Option<u16> {
        let fallback = self.fallback(followed);
        let Some(frame) = self.burst.get(self.frame(followed)) else { return Some(fallback) };
        let actions = &mut *self.actions;
        actions.clock.advance(frame.time_ns);
        let now_ns = actions.clock.now_ns;
        loop {
            let Some(held) = &mut actions.held else { return Some(fallback) };
            if held.hold(now_ns, followed.slot, frame, followed.packet, number, fallback) {
                actions.counters.held.add(frame.wire_bytes as usize);
                return None;
            }
            // The packets of the oldest flow leave, so that this one can wait.
            let oldest = held.overdue(None);
            actions.counters.decided_full += 1;
            // Without one, the packet is longer than the memory.
            let Some((slot, of_oldest)) = oldest else { return Some(fallback) };
            actions.release(slot, of_oldest);
            if slot == followed.slot {
                return Some(fallback);
            }
        }
    }

    /// The number of the decision about a flow from what is known.
    pub(super) fn fallback(&mut self, followed: &FollowedPacket<'_>) -> u16 {
        let actions = &mut *self.actions;
        let decision = followed.record.as_deref().and_then(|record| actions.rules.decide(record, true));
        decision.map_or(WITHOUT_FLOW, |decision| actions.decisions.number(decision))
    }
}
