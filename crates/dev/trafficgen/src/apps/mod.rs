//! The profile `apps`: conversations that begin as those of real applications, with known facts.
//!
//! ```text
//! handshake (TCP) -> first packets of both sides (opening.rs) -> rounds of data -> FIN or RST
//! ```
//! The messages of the first packets are those of TLS 1.2 and 1.3, QUIC version 1, HTTP/1.1, DNS
//! and SSH, and octets of no known protocol. Fractions of the conversations have a fault among
//! their first packets, of which there is at most one. Data packets have the head of a record if
//! the protocol has such, and otherwise no meaning. Kinds, messages and faults follow from the
//! number of a conversation, so that a conversation takes as much memory as in the profile `mix`.

mod kind;
mod messages;
mod opening;
mod quic;
mod tls;

use crate::conversation::{Conversation, Segment, Step, StreamPlace};
use crate::expected::ExpectedFlows;
use crate::expected_application::ExpectedApplication;
use crate::frame::Slot;
use crate::population::{Conversations, Done, Population, Scale};
use crate::random::Fraction;
use kind::{Kind, Shares};
use opening::{Fault, Opening, Settings};
use weir_capture::{SettingsError, SourceSettings};

#[rustfmt::skip]
const KEYS: &[&str] = &[
    "flows", "new", "packets", "duration", "seed", "ramp", "ipv6", "rst", "snap",
    "tls12", "tls13", "quic", "http", "dns", "ssh", "unknown", "undecided",
    "split", "records", "missing", "loss", "duplicate", "overlap", "conflict", "reorder",
];
/// Large flows need 0.1 s.
const SCALE: Scale = Scale { flows: [10_000, 1 << 24], turnover: 10, events: 40, rst: 100 };
/// All first packets were sent.
const ALL_SENT: u8 = u8::MAX;
/// Time after which a lost segment is retransmitted.
const RETRANSMIT_NS: u64 = 200_000_000;

pub(super) struct Apps {
    population: Population<Conversation>,
    settings: Settings,
    opening: Opening,
}

impl Apps {
    /// Parses the settings after `apps,`.
    pub(super) fn new(text: Option<&str>) -> Result<Self, SettingsError> {
        let values = SourceSettings::parse("apps", KEYS, text)?;
        let population = Population::read(&values, &SCALE)?;
        let mut faults = [Fraction(0); Fault::ALL.len()];
        for (share, (_, name)) in faults.iter_mut().zip(Fault::ALL) {
            *share = Fraction::read(&values, name, 20)?;
        }
        if faults.iter().map(|share| share.0).sum::<u64>() > Fraction::ALL.0 {
            let reason = "the shares of missing, loss, duplicate, overlap, conflict and reorder exceed 100 %";
            return Err(SettingsError::Value("apps", text.unwrap_or_default().into(), reason.into()));
        }
        let settings = Settings {
            seed: population.seed,
            shares: Shares::read(&values)?,
            split: Fraction::read(&values, "split", 150)?,
            records: Fraction::read(&values, "records", 50)?,
            faults,
        };
        Ok(Self { population, settings, opening: Opening::default() })
    }

    /// Writes the next packet of the opening. Returns its segment, the length of the IP packet, and the
    /// time until the next packet.
    fn send_first(&mut self, conversation: &mut Conversation, slot: &mut Slot) -> (Segment, u32, u64) {
        self.opening.make(&self.settings, conversation.number, conversation.ipv6);
        let at = usize::from(conversation.first_packets);
        let packet = self.opening.packets[at];
        let flight = *self.opening.flight(&packet);
        let place = StreamPlace {
            side: flight.side,
            start: packet.start.into(),
            acknowledged: self.opening.acknowledged(&packet).into(),
            push: packet.end == flight.end,
        };
        let (segment, ip_bytes) = conversation.write_octets(&place, self.opening.payload(&packet), slot);
        conversation.first_packets += 1;
        let random = &mut self.population.random;
        let wait_ns = match self.opening.packets.get(at + 1) {
            Some(next) if next.is_late => RETRANSMIT_NS + random.below(RETRANSMIT_NS),
            Some(next) if next.flight == packet.flight => conversation.pace_ns(random),
            Some(next) => conversation.trip_ns(self.opening.flight(next).side, random),
            None => {
                conversation.first_packets = ALL_SENT;
                let messages = &self.opening.messages;
                conversation.advance(messages.streams.each_ref().map(|stream| stream.len() as u32));
                match messages.kind {
                    Kind::DnsTcp => conversation.close(),
                    Kind::DnsUdp | Kind::Undecided => conversation.step = Step::Ended,
                    _ => return (segment, ip_bytes, conversation.trip_ns(0, random)),
                }
                conversation.until_ns.saturating_sub(slot.time_ns)
            }
        };
        (segment, ip_bytes, wait_ns)
    }

    /// As [`Self::send_first`], after the opening.
    fn send_data(&mut self, conversation: &mut Conversation, slot: &mut Slot) -> (Segment, u32, u64) {
        let (segment, wait_ns) = conversation.next_segment(slot.time_ns, &mut self.population.random);
        let octets = self.data_octets(conversation, &segment);
        let ip_bytes = conversation.write_with(&segment, &octets, slot);
        (segment, ip_bytes, wait_ns)
    }

    /// The first octets of a data packet: the head of a record, a packet with a short header, or
    /// octets of no meaning.
    fn data_octets(&mut self, conversation: &Conversation, segment: &Segment) -> [u8; 16] {
        let mut octets = [0; 16];
        let random = u128::from(self.population.random.next_u64()) << 64 | u128::from(conversation.number);
        match opening::kind(&self.settings, conversation.number) {
            Kind::Tls12 | Kind::Tls13 => {
                let [high, low] = segment.payload.saturating_sub(tls::RECORD_HEAD as u16).to_be_bytes();
                octets[..tls::RECORD_HEAD].copy_from_slice(&[tls::APPLICATION_DATA, 3, 3, high, low]);
            }
            Kind::Http => octets.fill(b'.'),
            Kind::Quic => octets = (random & (u128::MAX >> 2) | 1 << 126).to_be_bytes(),
            _ => octets = random.to_be_bytes(),
        }
        octets
    }
}

impl Conversations for Apps {
    type Conversation = Conversation;

    fn population(&mut self) -> &mut Population<Conversation> {
        &mut self.population
    }

    fn open(&mut self, number: u64, now_ns: u64) -> Conversation {
        let kind = opening::kind(&self.settings, number);
        let ipv6 = self.population.random.chance(self.population.ipv6);
        let mut conversation = Conversation::new(number, kind.service(), ipv6, now_ns, &mut self.population);
        if kind == Kind::Undecided {
            // As a flood with forged addresses: without a handshake.
            conversation.step = Step::Request;
        }
        conversation
    }

    fn advance(
        &mut self,
        conversation: &mut Conversation,
        slot: &mut Slot,
        expected: Option<&mut ExpectedFlows>,
    ) -> Done {
        let is_opening = conversation.step == Step::Request && conversation.first_packets != ALL_SENT;
        let (segment, ip_bytes, wait_ns) = match is_opening {
            true => self.send_first(conversation, slot),
            false => self.send_data(conversation, slot),
        };
        if let Some(expected) = expected {
            conversation.count(&segment, ip_bytes, slot, expected);
            if conversation.index == expected.applications.len() {
                self.opening.make(&self.settings, conversation.number, conversation.ipv6);
                expected.applications.push(expected_application(&self.opening, 0));
            }
            if is_opening {
                // The opening is that of this conversation.
                let sent = usize::from(conversation.first_packets).min(self.opening.packets.len());
                expected.applications[conversation.index] = expected_application(&self.opening, sent);
            }
        }
        Done { has_frame: true, has_ended: conversation.step == Step::Ended, next_ns: slot.time_ns + wait_ns.max(1) }
    }
}

/// What the first packets of an opening hold, as many as were sent.
fn expected_application(opening: &Opening, sent: usize) -> ExpectedApplication {
    let messages = &opening.messages;
    let shown: [[bool; 2]; ExpectedApplication::FACTS.len()] = std::array::from_fn(|fact| opening.shows(fact, sent));
    let facts = ExpectedApplication::FACTS.into_iter().zip(shown);
    let hidden = facts.filter(|(_, shown)| *shown == [false, true]).map(|(name, _)| name);
    ExpectedApplication {
        kind: messages.kind.name(),
        application: if sent > 0 { messages.kind.application() } else { "" },
        facts: std::array::from_fn(|fact| messages.value(fact).filter(|_| shown[fact][1])),
        first_packets: opening.events(sent).collect(),
        hidden: hidden.collect(),
        is_cut: sent < opening.packets.len(),
    }
}
