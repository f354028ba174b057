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

use crate::conversation::{Conversation, NAMES, QUIC, SMTP, SSH, Service, Step, WEB};
use crate::expected::ExpectedFlows;
use crate::frame::{Slot, TCP, UDP};
use crate::population::{Conversations, Done, Population, Scale};
use crate::random::Fraction;
use weir_capture::{SettingsError, SourceSettings};

const KEYS: &[&str] = &["flows", "new", "packets", "duration", "seed", "ramp", "ipv6", "udp", "rst", "trains", "snap"];

/// Large flows need 0.1 s.
const SCALE: Scale = Scale { flows: [10_000, 1 << 24], turnover: 10, events: 35, rst: 100 };
/// Speed of the link on which the packets of a train follow each other: 100 Gbit/s.
const TRAIN_BITS_PER_NS: u64 = 100;

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
    population: Population<Conversation>,
    udp: Fraction,
    trains: Fraction,
}

impl Mix {
    /// Parses the settings after `mix,`.
    pub(super) fn new(text: Option<&str>) -> Result<Self, SettingsError> {
        let values = SourceSettings::parse("mix", KEYS, text)?;
        Ok(Self {
            population: Population::read(&values, &SCALE)?,
            udp: Fraction::read(&values, "udp", 400)?,
            trains: Fraction::read(&values, "trains", 0)?,
        })
    }

    fn service(&mut self) -> &'static Service {
        let random = &mut self.population.random;
        let protocol = if random.chance(self.udp) { UDP } else { TCP };
        let all = || SERVICES.iter().filter(|service| service.protocol == protocol);
        let weights = || all().map(|service| u64::from(service.weight));
        let drawn = random.weighted(weights().sum(), weights());
        drawn.and_then(|at| all().nth(at)).expect("the weights add up to the sum")
    }
}

impl Conversations for Mix {
    type Conversation = Conversation;

    fn population(&mut self) -> &mut Population<Conversation> {
        &mut self.population
    }

    fn open(&mut self, number: u64, now_ns: u64) -> Conversation {
        let ipv6 = self.population.random.chance(self.population.ipv6);
        Conversation::new(number, self.service(), ipv6, now_ns, &mut self.population)
    }

    fn advance(
        &mut self,
        conversation: &mut Conversation,
        slot: &mut Slot,
        expected: Option<&mut ExpectedFlows>,
    ) -> Done {
        let random = &mut self.population.random;
        let (segment, mut wait_ns) = conversation.next_segment(slot.time_ns, random);
        let ip_bytes = conversation.write(&segment, slot);
        if let Some(expected) = expected {
            conversation.count(&segment, ip_bytes, slot, expected);
        }
        // A segment or an acknowledgment of the same round follows at once.
        let in_round = matches!(conversation.step, Step::Segment | Step::Acknowledge);
        if in_round && self.trains != Fraction(0) && random.chance(self.trains) {
            wait_ns = u64::from(slot.wire_bytes) * 8 / TRAIN_BITS_PER_NS;
        }
        Done { has_frame: true, has_ended: conversation.step == Step::Ended, next_ns: slot.time_ns + wait_ns.max(1) }
    }
}
