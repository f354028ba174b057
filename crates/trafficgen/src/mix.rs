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
use crate::expected::{ExpectedFlow, ExpectedFlows};
use crate::frame::{ACK, Endpoint, FIN, Headers, PSH, RST, SYN, Slot, TCP, Transport, UDP, WINDOW, segment_bytes};
use crate::hosts::Hosts;
use crate::random::{Fraction, Random};
use crate::schedule::Schedule;
use weir_capture::{SettingsError, SourceSettings};

const KEYS: &[&str] = &["flows", "new", "packets", "duration", "seed", "ramp", "ipv6", "udp", "rst", "snap"];

/// Shape of the Pareto distribution of segments per conversation; a smaller shape gives more
/// large flows.
const SHAPE: f64 = 1.1;
/// Average packets per conversation; affects only the speed of the schedule.
const PACKETS_PER_FLOW: u64 = 35;
/// Largest rate of new conversations per participant: large flows need 0.1 s.
const MAX_TURNOVER: u64 = 10;
/// Shortest duration per packet of a conversation, ns; a full segment takes 12 us on a gigabit
/// link.
const MIN_NS_PER_PACKET: u64 = 48_000;

const DNS: u16 = 53;
/// Mail: the initiator sends more than it receives.
const SMTP: u16 = 25;

/// The traffic of a port.
struct Service {
    protocol: u8,
    port: u16,
    /// Relative frequency among the services of its protocol.
    weight: u32,
    /// Payload bytes of a request, shortest and longest.
    request: [u32; 2],
    /// Payload bytes of the last segment of a round.
    last: [u32; 2],
    /// Payload bytes of the other segments; 0: as many as fit.
    full: u16,
    /// Largest number of segments in a round.
    round: [u32; 2],
    /// Segments in a conversation, with a bounded Pareto distribution.
    segments: [u32; 2],
    /// Segments per acknowledgment; 0: none. The end of a TCP round is always acknowledged.
    acknowledge: u8,
    /// Payload bytes of an acknowledgment; 0 in TCP.
    acknowledgment: u16,
}

const WEB: Service = Service {
    protocol: TCP,
    port: 443,
    weight: 66,
    request: [120, 1100],
    last: [100, 1400],
    full: 0,
    round: [2, 40],
    segments: [4, 20_000],
    acknowledge: 2,
    acknowledgment: 0,
};
const QUIC: Service = Service {
    protocol: UDP,
    port: 443,
    weight: 50,
    request: [60, 1200],
    last: [100, 1250],
    full: 1250,
    round: [2, 40],
    segments: [4, 20_000],
    acknowledge: 3,
    acknowledgment: 34,
};
const NAMES: Service = Service {
    protocol: UDP,
    port: DNS,
    weight: 34,
    request: [28, 60],
    last: [44, 400],
    full: 0,
    round: [1, 1],
    segments: [2, 6],
    acknowledge: 0,
    acknowledgment: 0,
};

const SERVICES: [Service; 10] = [
    WEB,
    Service { port: 80, weight: 12, ..WEB },
    Service { port: 993, weight: 6, round: [1, 12], segments: [2, 400], ..WEB },
    Service { port: SMTP, weight: 6, round: [1, 30], segments: [4, 2_000], ..WEB },
    Service { port: 22, weight: 4, request: [36, 100], last: [36, 300], round: [1, 2], segments: [10, 400], ..WEB },
    Service { port: 8443, weight: 6, request: [200, 800], round: [1, 4], segments: [4, 1_000], ..WEB },
    QUIC,
    NAMES,
    Service { port: 123, weight: 6, request: [48, 48], last: [48, 48], segments: [2, 4], ..NAMES },
    Service { port: 3478, weight: 10, request: [160, 180], last: [160, 1000], segments: [10, 400], ..NAMES },
];

#[derive(Clone, Copy, PartialEq)]
enum Step {
    /// It has ended; another one begins in its place.
    Ended,
    Syn,
    SynAck,
    HandshakeAck,
    Request,
    Segment,
    Acknowledge,
    Fin,
    /// The peer's pure acknowledgment of the FIN.
    FinAck,
    /// The peer's FIN.
    PeerFin,
    LastAck,
    Reset,
}

/// A conversation. Side 0 is the initiator.
#[derive(Clone, Copy)]
struct Conversation {
    ends: [Endpoint; 2],
    /// Time at which the last pause ends.
    until_ns: u64,
    /// Index of its expected flow; `usize::MAX` if expected flows are not recorded.
    index: usize,
    /// Next sequence number of each side.
    sequence: [u32; 2],
    /// Round-trip time from the capture point to each side.
    round_trip_ns: [u32; 2],
    /// Interval between packets of one side.
    pace_ns: u32,
    /// Segments in each round except the last.
    round: u32,
    /// Remaining segments, in this round and in all.
    round_left: u32,
    segments_left: u32,
    pauses_left: u32,
    identification: u16,
    service: u8,
    step: Step,
    unacknowledged: u8,
    ipv6: bool,
    /// Side that sends the segments.
    talker: u8,
    /// Side that closes the connection.
    closer: u8,
    resets: bool,
    /// The peer answers a FIN with one segment: acknowledgment and FIN.
    combines_fin: bool,
    ttl: [u8; 2],
}

struct Segment {
    side: u8,
    flags: u8,
    payload: u16,
    /// First bytes of the payload.
    opening: [u8; 4],
    /// Increase of the sequence number.
    advance: u32,
}

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
        };
        for participant in 0..flows {
            let spacing_ns = u128::from(participant) * u128::from(ramp_ns) / u128::from(flows);
            mix.schedule.set(participant as u32, START_NS + spacing_ns as u64);
        }
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
            let (segment, wait_ns) = conversation.next_segment(time_ns, &mut self.random);
            slot.time_ns = time_ns;
            let ip_bytes = conversation.write(&segment, slot);
            if let Some(flow) = expected.as_deref_mut().and_then(|expected| expected.flows.get_mut(conversation.index))
            {
                let direction = if segment.side == 0 { &mut flow.forward } else { &mut flow.reverse };
                let flags = if conversation.is_tcp() { segment.flags } else { 0 };
                direction.count(time_ns, ip_bytes, slot.wire_bytes, flags);
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
        let Service { protocol, port, round, segments, .. } = SERVICES[service];
        let tcp = protocol == TCP;

        let segments = self.random.pareto(SHAPE, segments);
        let mut round = self.random.between(round);
        if !tcp {
            // UDP has no pause after the last round, so it needs at least two rounds to have its
            // duration.
            round = round.min(segments / 2);
        }
        let rounds = segments.div_ceil(round);
        let packets = u64::from(segments) * 2 + u64::from(rounds) + 8;
        let drawn_ns = (self.random.exponential() * self.mean_life_ns as f64) as u64;
        let life_ns = drawn_ns.max(packets * MIN_NS_PER_PACKET);

        // Everything except the pauses takes at most half of the duration.
        let most_trip_ns = life_ns / (8 * (u64::from(rounds) + 4));
        let pace_ns = u64::from(self.random.between([12_000, 120_000])).min(life_ns / (4 * packets));
        let round_trip_ns = [[200_000, 20_000_000], [1_000_000, 120_000_000]]
            .map(|range| u64::from(self.random.between(range)).min(most_trip_ns) as u32);

        let bits = self.random.next_u64();
        Conversation {
            ends: self.hosts.ends(number, ipv6, port, &mut self.random),
            until_ns: now_ns + life_ns,
            index: usize::MAX,
            sequence: [self.random.next_u64() as u32, self.random.next_u64() as u32],
            round_trip_ns,
            pace_ns: pace_ns as u32,
            round,
            round_left: round.min(segments),
            segments_left: segments,
            // UDP has no pause after its last round.
            pauses_left: rounds - u32::from(!tcp),
            identification: bits as u16,
            service: service as u8,
            step: if tcp { Step::Syn } else { Step::Request },
            unacknowledged: 0,
            ipv6,
            // Except for mail, nearly all data flows from the responder.
            talker: u8::from(!(tcp && (port == SMTP || self.random.chance(Fraction::percent(8))))),
            closer: (bits >> 16) as u8 & 1,
            resets: self.random.chance(self.rst),
            combines_fin: (bits >> 17) & 1 == 0,
            ttl: [64 - (bits >> 24) as u8 % 8, 60 - (bits >> 32) as u8 % 12],
        }
    }

    fn service(&mut self) -> usize {
        let protocol = if self.random.chance(self.udp) { UDP } else { TCP };
        let all = || SERVICES.iter().enumerate().filter(|(_, service)| service.protocol == protocol);
        let total: u32 = all().map(|(_, service)| service.weight).sum();
        let mut drawn = self.random.below(u64::from(total)) as u32;
        for (at, service) in all() {
            match drawn.checked_sub(service.weight) {
                Some(rest) => drawn = rest,
                None => return at,
            }
        }
        unreachable!("the random number is below the sum of the weights")
    }
}

impl Conversation {
    fn service(&self) -> &'static Service {
        &SERVICES[usize::from(self.service)]
    }

    fn is_tcp(&self) -> bool {
        self.service().protocol == TCP
    }

    /// Returns the next segment, and the time until the following one.
    fn next_segment(&mut self, now_ns: u64, random: &mut Random) -> (Segment, u64) {
        let opening = self.opening();
        let control = |side, flags| Segment {
            side,
            flags,
            payload: 0,
            opening: [0; 4],
            advance: u32::from(flags & (SYN | FIN) != 0),
        };
        let data = |side, flags, payload: u16| Segment {
            side,
            flags,
            payload,
            opening: opening[usize::from(side)],
            advance: u32::from(payload),
        };
        let (talker, asker) = (self.talker, 1 - self.talker);
        let (closer, other) = (self.closer, 1 - self.closer);
        let (segment, next, wait_ns) = match self.step {
            Step::Ended | Step::Syn => (control(0, SYN), Step::SynAck, self.trip_ns(1, random)),
            Step::SynAck => (control(1, SYN | ACK), Step::HandshakeAck, self.trip_ns(0, random)),
            Step::HandshakeAck => (control(0, ACK), Step::Request, self.trip_ns(asker, random)),
            Step::Request => {
                let payload = random.between(self.service().request) as u16;
                (data(asker, PSH | ACK, payload), Step::Segment, self.trip_ns(talker, random))
            }
            Step::Segment => {
                self.segments_left -= 1;
                self.round_left -= 1;
                let acknowledge = self.service().acknowledge;
                self.unacknowledged = (self.unacknowledged + 1).min(acknowledge);
                let over = self.round_left == 0;
                let payload = if over { random.between(self.service().last) as u16 } else { self.full() };
                let (next, wait_ns) = if acknowledge != 0 && (over || self.unacknowledged == acknowledge) {
                    (Step::Acknowledge, self.pace_ns(random))
                } else {
                    self.step_after_segment(now_ns, random)
                };
                (data(talker, if over { PSH | ACK } else { ACK }, payload), next, wait_ns)
            }
            Step::Acknowledge => {
                self.unacknowledged = 0;
                let (next, wait_ns) = self.step_after_segment(now_ns, random);
                (data(asker, ACK, self.service().acknowledgment), next, wait_ns)
            }
            Step::Fin => {
                let next = if self.combines_fin { Step::PeerFin } else { Step::FinAck };
                (control(closer, FIN | ACK), next, self.trip_ns(other, random))
            }
            Step::FinAck => (control(other, ACK), Step::PeerFin, self.pace_ns(random)),
            Step::PeerFin => (control(other, FIN | ACK), Step::LastAck, self.trip_ns(closer, random)),
            Step::LastAck => (control(closer, ACK), Step::Ended, self.pace_ns(random)),
            Step::Reset => (control(closer, RST | ACK), Step::Ended, self.pace_ns(random)),
        };
        self.step = next;
        (segment, wait_ns)
    }

    /// Returns the step after a segment or an acknowledgment, and the time until then.
    fn step_after_segment(&mut self, now_ns: u64, random: &mut Random) -> (Step, u64) {
        if self.round_left > 0 {
            return (Step::Segment, self.pace_ns(random));
        }
        self.round_left = self.round.min(self.segments_left);
        let next = match (self.round_left, self.is_tcp(), self.resets) {
            (1.., ..) => Step::Request,
            (0, true, true) => Step::Reset,
            (0, true, false) => Step::Fin,
            (0, false, _) => Step::Ended,
        };
        let left_ns = self.until_ns.saturating_sub(now_ns);
        let pause_ns = match self.pauses_left {
            0 => 0,
            1 => left_ns,
            pauses => random.around(left_ns / u64::from(pauses)),
        };
        self.pauses_left = self.pauses_left.saturating_sub(1);
        (next, pause_ns.max(self.pace_ns(random)))
    }

    fn pace_ns(&self, random: &mut Random) -> u64 {
        random.around(u64::from(self.pace_ns))
    }

    /// Returns the first payload bytes of each side. A DNS query and its response share an ID, so
    /// that a DNS decoder does not see the same query repeatedly.
    fn opening(&self) -> [[u8; 4]; 2] {
        if self.service().port != DNS {
            return [[0; 4]; 2];
        }
        let [high, low] = (self.ends[0].port ^ self.segments_left as u16).to_be_bytes();
        [[high, low, 0x01, 0x00], [high, low, 0x81, 0x80]]
    }

    /// Returns the time until the answer of a side passes the capture point.
    fn trip_ns(&self, side: u8, random: &mut Random) -> u64 {
        random.around(u64::from(self.round_trip_ns[usize::from(side)]))
    }

    fn full(&self) -> u16 {
        match self.service().full {
            0 => segment_bytes(self.ipv6),
            full => full,
        }
    }

    /// Writes a segment as a frame. Returns the length of the IP packet in bytes.
    fn write(&mut self, segment: &Segment, slot: &mut Slot) -> u32 {
        let (from, to) = (usize::from(segment.side), usize::from(1 - segment.side));
        let transport = if self.is_tcp() {
            let acknowledgment = if segment.flags & ACK != 0 { self.sequence[to] } else { 0 };
            Transport::Tcp { sequence: self.sequence[from], acknowledgment, flags: segment.flags, window: WINDOW }
        } else {
            Transport::Udp
        };
        let headers = Headers {
            ipv6: self.ipv6,
            source: self.ends[from],
            destination: self.ends[to],
            source_side: segment.side,
            ttl: self.ttl[from],
            identification: self.identification,
            transport,
            payload: segment.payload,
            opening: segment.opening,
        };
        self.sequence[from] = self.sequence[from].wrapping_add(segment.advance);
        self.identification = self.identification.wrapping_add(1);
        headers.write(slot)
    }

    fn expected_flow(&self) -> ExpectedFlow {
        ExpectedFlow::new(self.ends, self.ipv6, self.service().protocol)
    }
}
