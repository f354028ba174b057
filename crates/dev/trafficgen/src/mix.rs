//! The profile `mix`: Internet-like TCP and UDP conversations of heavy-tailed lengths in both
//! directions.
//!
//! ```text
//! a participant is always in a conversation; at its event it sends one packet and schedules the next event:
//!     TCP: handshake, then rounds, then FIN or RST          UDP: rounds
//!     a round: a request in one direction; segments in the other, acknowledged in between
//! between rounds a conversation pauses, so that it has its random duration
//! when it ends, the participant begins another one, with addresses and ports never used before
//! ```
//! The durations are exponentially distributed with the mean `flows / new`, so that new
//! conversations begin at the given rate once all participants have begun. Nothing is lost,
//! duplicated or reordered.

use crate::bounds::{Bounds, SECOND_NS, START_NS};
use crate::conversation::{Conversation, NAMES, QUIC, SMTP, SSH, Service, Step, Traffic, WEB};
use crate::expected::ExpectedFlows;
use crate::frame::{Slot, TCP, UDP};
use crate::hosts::Hosts;
use crate::random::{Fraction, Random};
use crate::schedule::Schedule;
use weir_capture::{SettingsError, SourceSettings};

const KEYS: &[&str] = &["flows", "new", "packets", "duration", "seed", "ramp", "ipv6", "udp", "rst", "trains", "snap"];

/// Average packets per conversation; affects only the speed of the schedule.
const PACKETS_PER_FLOW: u64 = 35;
/// Speed of the link on which the packets of a train follow each other: 100 Gbit/s.
const TRAIN_BITS_PER_NS: u64 = 100;
/// Largest rate of new conversations per participant: large flows need 0.1 s.
const MAX_TURNOVER: u64 = 10;

const SERVICES: [Service; 10] = [
    WEB,
    Service { port: 80, weight: 12, ..WEB },
    Service { port: 993, weight: 6, round: [1, 12], segments: [2, 400], ..WEB },
    Service { port: SMTP, weight: 6, round: [1, 30], segments: [4, 2_000], ..WEB },
    SSH,
    Service { port: 8443, weight: 6, request: [200, 800], round: [1, 4], segments: [4, 1_000], ..WEB },
    QUIC,
    NAMES,
    Service { port: 123, weight: 6, request: [48, 48], last: [48, 48], segments: [2, 4], ..NAMES },
    Service { port: 3478, weight: 10, request: [160, 180], last: [160, 1000], segments: [10, 400], ..NAMES },
];

pub(super) struct Mix {
    random: Random,
    schedule: Schedule,
    conversations: Box<[Option<Conversation>]>,
    bounds: Bounds,
    sent: u64,
    opened: u64,
    mean_life_ns: u64,
    hosts: Hosts,
    ipv6: Fraction,
    udp: Fraction,
    rst: Fraction,
    trains: Fraction,
}

impl Mix {
    /// Parses the settings after `mix,`. Returns the profile and the snap length.
    pub(super) fn new(text: Option<&str>) -> Result<(Self, u32), SettingsError> {
        let values = SourceSettings::parse("mix", KEYS, text)?;
        let flows = values.number("flows", [1, 1 << 24])?.unwrap_or(10_000);
        let new = values.number("new", [1, MAX_TURNOVER * flows])?.unwrap_or_else(|| (flows / 10).max(1));
        let seed = values.number("seed", [0, u64::MAX])?.unwrap_or(1);
        let snap = values.number("snap", [1, 65_535])?.unwrap_or(65_535) as u32;
        let ramp_ns = values.duration_ns("ramp", [0, 3600 * SECOND_NS])?.unwrap_or(SECOND_NS);
        let mut mix = Self {
            random: Random::new(seed),
            // A few packets per bucket of the schedule.
            schedule: Schedule::new(flows as u32, 8 * SECOND_NS / (new * PACKETS_PER_FLOW), START_NS),
            conversations: vec![None; flows as usize].into(),
            bounds: Bounds::read(&values, 1_000_000)?,
            sent: 0,
            opened: 0,
            mean_life_ns: flows * SECOND_NS / new,
            hosts: Hosts::new(flows, seed),
            ipv6: values.fraction_billionths("ipv6")?.map_or(Fraction::percent(30), Fraction),
            udp: values.fraction_billionths("udp")?.map_or(Fraction::percent(40), Fraction),
            rst: values.fraction_billionths("rst")?.map_or(Fraction::percent(10), Fraction),
            trains: values.fraction_billionths("trains")?.map_or(Fraction::percent(0), Fraction),
        };
        mix.schedule.set_all(START_NS, ramp_ns);
        Ok((mix, snap))
    }

    /// Fills slots from the first on and returns their number.
    pub(super) fn fill(&mut self, slots: &mut [Slot], mut expected: Option<&mut ExpectedFlows>) -> usize {
        for (filled, slot) in slots.iter_mut().enumerate() {
            if self.bounds.packets == self.sent {
                return filled;
            }
            let (time_ns, participant) = self.schedule.next();
            if self.bounds.reached(self.sent, time_ns) {
                self.bounds.packets = self.sent;
                return filled;
            }
            let at = participant as usize;
            if self.conversations[at].as_ref().is_none_or(|conversation| conversation.step == Step::Ended) {
                let mut conversation = self.open(time_ns);
                if let Some(expected) = expected.as_deref_mut() {
                    conversation.index = expected.add(conversation.expected_flow());
                }
                self.conversations[at] = Some(conversation);
            }
            let conversation = self.conversations[at].as_mut().expect("one was opened if there was none");
            let (segment, mut wait_ns) = conversation.next_segment(time_ns, &mut self.random);
            slot.time_ns = time_ns;
            let ip_bytes = conversation.write(&segment, slot);
            if let Some(flow) = expected.as_deref_mut().and_then(|expected| expected.flows.get_mut(conversation.index))
            {
                let direction = if segment.side == 0 { &mut flow.forward } else { &mut flow.reverse };
                let flags = if conversation.is_tcp() { segment.flags } else { 0 };
                direction.count(time_ns, ip_bytes, slot.wire_bytes, flags);
            }
            // A segment or an acknowledgment of the same round follows at once.
            let in_round = matches!(conversation.step, Step::Segment | Step::Acknowledge);
            if in_round && self.trains != Fraction::percent(0) && self.random.chance(self.trains) {
                wait_ns = u64::from(slot.wire_bytes) * 8 / TRAIN_BITS_PER_NS;
            }
            self.schedule.set(participant, time_ns + wait_ns.max(1));
            self.sent += 1;
        }
        slots.len()
    }

    fn open(&mut self, now_ns: u64) -> Conversation {
        let number = self.opened;
        self.opened += 1;
        let ipv6 = self.random.chance(self.ipv6);
        let service = self.service();
        let traffic = Traffic { hosts: &self.hosts, mean_life_ns: self.mean_life_ns, rst: self.rst };
        Conversation::new(number, service, ipv6, now_ns, &traffic, &mut self.random)
    }

    fn service(&mut self) -> &'static Service {
        let protocol = if self.random.chance(self.udp) { UDP } else { TCP };
        let all = || SERVICES.iter().filter(|service| service.protocol == protocol);
        let total: u32 = all().map(|service| service.weight).sum();
        let mut drawn = self.random.below(u64::from(total)) as u32;
        for service in all() {
            match drawn.checked_sub(service.weight) {
                Some(rest) => drawn = rest,
                None => return service,
            }
        }
        unreachable!("the random number is below the sum of the weights")
    }
}
