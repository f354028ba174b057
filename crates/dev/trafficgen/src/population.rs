//! What the profiles of conversations have in common: participants that are always in a conversation,
//! and the order of their events.

use crate::Profile;
use crate::expected::ExpectedFlows;
use crate::frame::Slot;
use crate::hosts::Hosts;
use crate::random::{Fraction, Random};
use crate::schedule::Schedule;
use weir_capture::{SettingsError, SourceSettings};

pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// Start time of all generated traffic: 2026-01-01 00:00 UTC.
pub(super) const START_NS: u64 = 1_767_225_600 * SECOND_NS;
/// Largest number of packets: up to this number, every conversation has its own 5-tuple.
const MAX_PACKETS: u64 = 100_000_000_000;

/// Where generated traffic and its frames end.
pub(super) struct Bounds {
    pub(super) packets: u64,
    /// First time after the end.
    pub(super) end_ns: u64,
    /// Captured bytes per frame.
    pub(super) snap: u32,
}

impl Bounds {
    /// Parses `packets`, `duration` and `snap`; without the first two, the limit is `packets`.
    pub(super) fn read(values: &SourceSettings<'_>, packets: u64) -> Result<Self, SettingsError> {
        let snap = values.number("snap", [1, 65_535])?.unwrap_or(65_535) as u32;
        let given = values.number("packets", [1, MAX_PACKETS])?;
        let duration_ns = values.duration_ns("duration", [1, 1_000_000 * SECOND_NS])?;
        Ok(Self {
            packets: given.unwrap_or(if duration_ns.is_some() { MAX_PACKETS } else { packets }),
            end_ns: duration_ns.map_or(u64::MAX, |duration_ns| START_NS + duration_ns),
            snap,
        })
    }

    /// Returns whether a packet at this time, after `sent` others, is beyond the end.
    #[inline]
    pub(super) fn reached(&self, sent: u64, time_ns: u64) -> bool {
        sent >= self.packets || time_ns >= self.end_ns
    }
}

/// Limits and defaults of the settings of a profile.
pub(super) struct Scale {
    /// Default and largest number of participants.
    pub(super) flows: [u64; 2],
    /// Largest number of new conversations per participant and second.
    pub(super) turnover: u64,
    /// Average events per conversation; affects only the speed of the schedule.
    pub(super) events: u64,
    /// Default fraction of TCP conversations that end with RST, in per mille.
    pub(super) rst: u64,
}

/// The participants of a profile.
pub(super) struct Population<C> {
    pub(super) random: Random,
    pub(super) hosts: Hosts,
    pub(super) seed: u64,
    pub(super) mean_life_ns: u64,
    pub(super) ipv6: Fraction,
    /// Fraction of TCP conversations that end with RST.
    pub(super) rst: Fraction,
    conversations: Box<[Option<C>]>,
    schedule: Schedule,
    bounds: Bounds,
    sent: u64,
    opened: u64,
}

impl<C> Population<C> {
    /// Parses the settings that all profiles of conversations have.
    pub(super) fn read(values: &SourceSettings<'_>, scale: &Scale) -> Result<Self, SettingsError> {
        let [default, most] = scale.flows;
        let flows = values.number("flows", [1, most])?.unwrap_or(default);
        let new = values.number("new", [1, scale.turnover * flows])?.unwrap_or_else(|| (flows / 10).max(1));
        let seed = values.number("seed", [0, u64::MAX])?.unwrap_or(1);
        let bounds = Bounds::read(values, 1_000_000)?;
        let ramp_ns = values.duration_ns("ramp", [0, 3600 * SECOND_NS])?.unwrap_or(SECOND_NS);
        // A few events per bucket of the schedule.
        let mut schedule = Schedule::new(flows as u32, 8 * SECOND_NS / (new * scale.events), START_NS);
        schedule.set_all(START_NS, ramp_ns);
        Ok(Self {
            random: Random::new(seed),
            hosts: Hosts::new(flows, seed),
            seed,
            mean_life_ns: flows * SECOND_NS / new,
            ipv6: Fraction::read(values, "ipv6", 300)?,
            rst: Fraction::read(values, "rst", scale.rst)?,
            conversations: (0..flows).map(|_| None).collect(),
            schedule,
            bounds,
            sent: 0,
            opened: 0,
        })
    }

    /// Returns time and participant of the next event, until the end.
    fn next(&mut self) -> Option<(u64, u32)> {
        if self.bounds.packets == self.sent {
            return None;
        }
        let event = self.schedule.next();
        if self.bounds.reached(self.sent, event.0) {
            self.bounds.packets = self.sent;
            return None;
        }
        Some(event)
    }
}

/// What a conversation has done at an event.
pub(super) struct Done {
    /// The slot has a frame now.
    pub(super) has_frame: bool,
    /// The conversation has ended; at its next event another one begins.
    pub(super) has_ended: bool,
    pub(super) next_ns: u64,
}

/// A profile of conversations.
pub(super) trait Conversations: Send {
    type Conversation;

    fn population(&mut self) -> &mut Population<Self::Conversation>;

    /// Begins the conversation with this number.
    fn open(&mut self, number: u64, now_ns: u64) -> Self::Conversation;

    /// Processes the event that is due at the time of the slot.
    fn advance(
        &mut self,
        conversation: &mut Self::Conversation,
        slot: &mut Slot,
        expected: Option<&mut ExpectedFlows>,
    ) -> Done;
}

impl<P: Conversations> Profile for P {
    fn fill(&mut self, slots: &mut [Slot], mut expected: Option<&mut ExpectedFlows>) -> usize {
        let mut filled = 0;
        while filled < slots.len()
            && let Some((now_ns, participant)) = self.population().next()
        {
            let at = participant as usize;
            let mut conversation = self.population().conversations[at].take().unwrap_or_else(|| {
                let number = self.population().opened;
                self.population().opened += 1;
                self.open(number, now_ns)
            });
            let slot = &mut slots[filled];
            slot.time_ns = now_ns;
            let Done { has_frame, has_ended, next_ns } = self.advance(&mut conversation, slot, expected.as_deref_mut());
            let population = self.population();
            population.conversations[at] = (!has_ended).then_some(conversation);
            population.schedule.set(participant, next_ns);
            population.sent += u64::from(has_frame);
            filled += usize::from(has_frame);
        }
        filled
    }

    fn bounds(&mut self) -> &Bounds {
        &self.population().bounds
    }
}
