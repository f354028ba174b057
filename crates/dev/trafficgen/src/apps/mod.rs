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

use crate::bounds::{Bounds, SECOND_NS, START_NS};
use crate::conversation::{Conversation, Segment, Step, StreamPlace, Traffic};
use crate::expected::{ExpectedDirection, ExpectedFlow, ExpectedFlows};
use crate::expected_application::ExpectedApplication;
use crate::frame::{ACK, PSH, Slot};
use crate::hosts::Hosts;
use crate::random::{Fraction, Random};
use crate::schedule::Schedule;
use kind::{Kind, Shares};
use messages::Fact;
use opening::{Fault, Opening, Settings};
use weir_capture::{SettingsError, SourceSettings};

#[rustfmt::skip]
const KEYS: &[&str] = &[
    "flows", "new", "packets", "duration", "seed", "ramp", "ipv6", "rst", "snap",
    "tls12", "tls13", "quic", "http", "dns", "ssh", "unknown", "undecided",
    "split", "records", "missing", "loss", "duplicate", "overlap", "conflict", "reorder",
];
/// Average packets per conversation; affects only the speed of the schedule.
const PACKETS_PER_FLOW: u64 = 40;
/// Largest rate of new conversations per participant: large flows need 0.1 s.
const MAX_TURNOVER: u64 = 10;
/// All first packets were sent.
const ALL_SENT: u8 = u8::MAX;
/// Time after which a lost segment is retransmitted.
const RETRANSMIT_NS: u64 = 200_000_000;

pub(super) struct Apps {
    random: Random,
    schedule: Schedule,
    conversations: Box<[Option<Conversation>]>,
    bounds: Bounds,
    sent: u64,
    opened: u64,
    mean_life_ns: u64,
    hosts: Hosts,
    ipv6: Fraction,
    rst: Fraction,
    settings: Settings,
    opening: Opening,
}

impl Apps {
    /// Parses the settings after `apps,`. Returns the profile and the snap length.
    pub(super) fn new(text: Option<&str>) -> Result<(Self, u32), SettingsError> {
        let values = SourceSettings::parse("apps", KEYS, text)?;
        let flows = values.number("flows", [1, 1 << 24])?.unwrap_or(10_000);
        let new = values.number("new", [1, MAX_TURNOVER * flows])?.unwrap_or_else(|| (flows / 10).max(1));
        let seed = values.number("seed", [0, u64::MAX])?.unwrap_or(1);
        let snap = values.number("snap", [1, 65_535])?.unwrap_or(65_535) as u32;
        let ramp_ns = values.duration_ns("ramp", [0, 3600 * SECOND_NS])?.unwrap_or(SECOND_NS);
        let fraction = |key, percent| {
            Ok::<_, SettingsError>(values.fraction_billionths(key)?.map_or(Fraction::percent(percent), Fraction))
        };
        let mut faults = [Fraction(0); Fault::ALL.len()];
        for (share, (_, name)) in faults.iter_mut().zip(Fault::ALL) {
            *share = fraction(name, 2)?;
        }
        if faults.iter().map(|share| share.0).sum::<u64>() > Fraction::ALL.0 {
            let reason = "the shares of missing, loss, duplicate, overlap, conflict and reorder exceed 100 %";
            return Err(SettingsError::Value("apps", text.unwrap_or_default().into(), reason.into()));
        }
        let mut apps = Self {
            random: Random::new(seed),
            // A few packets per bucket of the schedule.
            schedule: Schedule::new(flows as u32, 8 * SECOND_NS / (new * PACKETS_PER_FLOW), START_NS),
            conversations: vec![None; flows as usize].into(),
            bounds: Bounds::read(&values, 1_000_000)?,
            sent: 0,
            opened: 0,
            mean_life_ns: flows * SECOND_NS / new,
            hosts: Hosts::new(flows, seed),
            ipv6: fraction("ipv6", 30)?,
            rst: fraction("rst", 10)?,
            settings: Settings {
                seed,
                shares: Shares::read(&values)?,
                split: fraction("split", 15)?,
                records: fraction("records", 5)?,
                faults,
            },
            opening: Opening::default(),
        };
        apps.schedule.set_all(START_NS, ramp_ns);
        Ok((apps, snap))
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
            let mut conversation =
                self.conversations[at].take().filter(|c| c.step != Step::Ended).unwrap_or_else(|| self.open(time_ns));
            slot.time_ns = time_ns;
            let is_opening = conversation.step == Step::Request && conversation.first_packets != ALL_SENT;
            let sent = if is_opening {
                self.send_first(&mut conversation, time_ns, slot)
            } else {
                self.send_data(&mut conversation, time_ns, slot)
            };
            if let Some(expected) = expected.as_deref_mut() {
                self.count(&mut conversation, &sent, is_opening, slot, expected);
            }
            self.conversations[at] = Some(conversation);
            self.schedule.set(participant, time_ns + sent.wait_ns.max(1));
            self.sent += 1;
        }
        slots.len()
    }

    fn open(&mut self, now_ns: u64) -> Conversation {
        let number = self.opened;
        self.opened += 1;
        let kind = opening::kind(&self.settings, number);
        let ipv6 = self.random.chance(self.ipv6);
        let traffic = Traffic { hosts: &self.hosts, mean_life_ns: self.mean_life_ns, rst: self.rst };
        let mut conversation = Conversation::new(number, kind.service(), ipv6, now_ns, &traffic, &mut self.random);
        if kind == Kind::Undecided {
            // As a flood with forged addresses: without a handshake.
            conversation.step = Step::Request;
        }
        conversation
    }

    fn send_first(&mut self, conversation: &mut Conversation, now_ns: u64, slot: &mut Slot) -> Sent {
        self.opening.make(&self.settings, conversation.number, conversation.ipv6);
        let at = usize::from(conversation.first_packets);
        let packet = self.opening.packets[at];
        let side = self.opening.flight(&packet).side;
        let place = StreamPlace {
            side,
            start: packet.start.into(),
            acknowledged: self.opening.acknowledged(&packet).into(),
            push: packet.end == self.opening.flight(&packet).end,
        };
        let flags = if place.push { PSH | ACK } else { ACK };
        let ip_bytes = conversation.write_octets(&place, self.opening.payload(&packet), slot);
        conversation.first_packets += 1;
        let wait_ns = match self.opening.packets.get(at + 1) {
            Some(next) if next.is_late => RETRANSMIT_NS + self.random.below(RETRANSMIT_NS),
            Some(next) if next.flight == packet.flight => conversation.pace_ns(&mut self.random),
            Some(next) => conversation.trip_ns(self.opening.flight(next).side, &mut self.random),
            None => {
                conversation.first_packets = ALL_SENT;
                let octets = [0, 1].map(|side: usize| self.opening.messages.streams[side].len() as u32);
                conversation.advance(octets);
                let kind = self.opening.messages.kind;
                if kind.ends_after_opening() {
                    if kind == Kind::DnsTcp {
                        conversation.close();
                    } else {
                        conversation.step = Step::Ended;
                    }
                    conversation.until_ns.saturating_sub(now_ns)
                } else {
                    conversation.trip_ns(0, &mut self.random)
                }
            }
        };
        Sent { side, flags, ip_bytes, wait_ns }
    }

    fn send_data(&mut self, conversation: &mut Conversation, now_ns: u64, slot: &mut Slot) -> Sent {
        let (segment, wait_ns) = conversation.next_segment(now_ns, &mut self.random);
        let octets = self.data_octets(conversation, &segment);
        let ip_bytes = conversation.write_with(&segment, &octets, slot);
        Sent { side: segment.side, flags: segment.flags, ip_bytes, wait_ns }
    }

    /// The first octets of a data packet: the head of a record, a packet with a short header, or
    /// octets of no meaning.
    fn data_octets(&mut self, conversation: &Conversation, segment: &Segment) -> [u8; 16] {
        let mut octets = [0; 16];
        let random = u128::from(self.random.next_u64()) << 64 | u128::from(conversation.number);
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

    /// Counts a packet in the expected flow, and begins the flow with its first one.
    fn count(
        &mut self,
        conversation: &mut Conversation,
        sent: &Sent,
        is_opening: bool,
        slot: &Slot,
        expected: &mut ExpectedFlows,
    ) {
        let is_new = conversation.index == usize::MAX;
        if is_new {
            let mut flow = conversation.expected_flow();
            if sent.side == 1 {
                // The first packet of the client is missing.
                flow = ExpectedFlow {
                    source: flow.destination,
                    destination: flow.source,
                    source_port: flow.destination_port,
                    destination_port: flow.source_port,
                    ..flow
                };
            }
            conversation.index = expected.add(flow);
            self.opening.make(&self.settings, conversation.number, conversation.ipv6);
            expected.applications.push(expected_application(&self.opening, 0));
        }
        if is_opening {
            // The opening is that of this conversation.
            let all = self.opening.packets.len();
            let sent = usize::from(conversation.first_packets).min(all);
            expected.applications[conversation.index] = expected_application(&self.opening, sent);
        }
        let flow = &mut expected.flows[conversation.index];
        let is_reverse = (flow.source, flow.source_port) != conversation.end(sent.side);
        let direction: &mut ExpectedDirection = if is_reverse { &mut flow.reverse } else { &mut flow.forward };
        direction.count(
            slot.time_ns,
            sent.ip_bytes,
            slot.wire_bytes,
            if conversation.is_tcp() { sent.flags } else { 0 },
        );
    }
}

/// A packet that was sent.
struct Sent {
    side: u8,
    flags: u8,
    ip_bytes: u32,
    /// Time until the next one.
    wait_ns: u64,
}

/// What the first packets of an opening hold, as many as were sent.
fn expected_application(opening: &Opening, sent: usize) -> ExpectedApplication {
    let messages = &opening.messages;
    let shown = Fact::ALL.map(|fact| opening.shows(fact, sent));
    let value = |at: usize| messages.value(Fact::ALL[at]).filter(|_| shown[at][1]);
    let facts = ExpectedApplication::FACTS.into_iter().zip(shown);
    let hidden = facts.filter(|(_, shown)| *shown == [false, true]).map(|(name, _)| name);
    ExpectedApplication {
        kind: messages.kind.name(),
        application: if sent > 0 { messages.kind.application() } else { "" },
        facts: std::array::from_fn(value),
        first_packets: opening.events(sent).collect(),
        hidden: hidden.collect(),
        is_cut: sent < opening.packets.len(),
    }
}
