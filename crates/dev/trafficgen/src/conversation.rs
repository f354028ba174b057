//! A conversation of the profiles `mix` and `apps`, which sends a packet at each of its events.
//!
//! ```text
//! TCP: handshake, then rounds, then FIN or RST          UDP: rounds
//! a round: a request in one direction; segments in the other, acknowledged in between
//! ```
//! Between rounds it pauses, so that it has its random duration. Nothing is lost, duplicated or
//! reordered.

use crate::expected::{ExpectedFlow, ExpectedFlows};
use crate::frame::{ACK, Endpoint, FIN, Headers, PSH, RST, SYN, Slot, TCP, Transport, UDP, WINDOW, segment_bytes};
use crate::population::Population;
use crate::random::{Fraction, Random};

/// Shape of the Pareto distribution of segments per conversation; a smaller shape gives more
/// large flows.
const SHAPE: f64 = 1.1;
/// Shortest duration per packet of a conversation, ns; a full segment takes 12 us on a gigabit
/// link.
const MIN_NS_PER_PACKET: u64 = 48_000;

const DNS: u16 = 53;
/// Mail: the initiator sends more than it receives.
pub(super) const SMTP: u16 = 25;

/// The traffic of a port.
pub(super) struct Service {
    pub(super) protocol: u8,
    pub(super) port: u16,
    /// Relative frequency among the services of its protocol.
    pub(super) weight: u32,
    /// Payload bytes of a request, shortest and longest.
    pub(super) request: [u32; 2],
    /// Payload bytes of the last segment of a round.
    pub(super) last: [u32; 2],
    /// Payload bytes of the other segments; 0: as many as fit.
    pub(super) full: u16,
    /// Largest number of segments in a round.
    pub(super) round: [u32; 2],
    /// Segments in a conversation, with a bounded Pareto distribution.
    pub(super) segments: [u32; 2],
    /// Segments per acknowledgment; 0: none. The end of a TCP round is always acknowledged.
    pub(super) acknowledge: u8,
    /// Payload bytes of an acknowledgment; 0 in TCP.
    pub(super) acknowledgment: u16,
}

pub(super) const WEB: Service = Service {
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
pub(super) const QUIC: Service = Service {
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
pub(super) const NAMES: Service = Service {
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
pub(super) const SSH: Service =
    Service { port: 22, weight: 4, request: [36, 100], last: [36, 300], round: [1, 2], segments: [10, 400], ..WEB };

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Step {
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
pub(super) struct Conversation {
    pub(super) ends: [Endpoint; 2],
    /// Time at which the last pause ends.
    pub(super) until_ns: u64,
    pub(super) number: u64,
    /// Packets of its beginning that were sent, in the profile `apps`.
    pub(super) first_packets: u8,
    /// Index of its expected flow; `usize::MAX` if expected flows are not recorded.
    pub(super) index: usize,
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
    pub(super) service: &'static Service,
    pub(super) step: Step,
    unacknowledged: u8,
    pub(super) ipv6: bool,
    /// Side that sends the segments.
    talker: u8,
    /// Side that closes the connection.
    closer: u8,
    resets: bool,
    /// The peer answers a FIN with one segment: acknowledgment and FIN.
    combines_fin: bool,
    ttl: [u8; 2],
}

const _: () = assert!(size_of::<Option<Conversation>>() <= 128);

pub(super) struct Segment {
    pub(super) side: u8,
    pub(super) flags: u8,
    pub(super) payload: u16,
    /// First bytes of the payload.
    opening: [u8; 4],
    /// Increase of the sequence number.
    advance: u32,
}

/// Where octets are in the streams of a conversation.
pub(super) struct StreamPlace {
    pub(super) side: u8,
    pub(super) start: u32,
    pub(super) acknowledged: u32,
    /// A message ends with them.
    pub(super) push: bool,
}

impl Conversation {
    /// Begins the conversation with this number. Draws its properties.
    pub(super) fn new(
        number: u64,
        service: &'static Service,
        ipv6: bool,
        now_ns: u64,
        population: &mut Population<Self>,
    ) -> Self {
        let Population { random, hosts, mean_life_ns, rst, .. } = population;
        let Service { protocol, port, round, segments, .. } = *service;
        let tcp = protocol == TCP;

        let segments = random.pareto(SHAPE, segments);
        let mut round = random.between(round);
        if !tcp {
            // UDP has no pause after the last round, so it needs at least two rounds to have its
            // duration.
            round = round.min(segments / 2);
        }
        let rounds = segments.div_ceil(round);
        let packets = u64::from(segments) * 2 + u64::from(rounds) + 8;
        let drawn_ns = (random.exponential() * *mean_life_ns as f64) as u64;
        let life_ns = drawn_ns.max(packets * MIN_NS_PER_PACKET);

        // Everything except the pauses takes at most half of the duration.
        let most_trip_ns = life_ns / (8 * (u64::from(rounds) + 4));
        let pace_ns = u64::from(random.between([12_000, 120_000])).min(life_ns / (4 * packets));
        let round_trip_ns = [[200_000, 20_000_000], [1_000_000, 120_000_000]]
            .map(|range| u64::from(random.between(range)).min(most_trip_ns) as u32);

        let bits = random.next_u64();
        Self {
            ends: hosts.ends(number, ipv6, port, random),
            until_ns: now_ns + life_ns,
            number,
            first_packets: 0,
            index: usize::MAX,
            sequence: [random.next_u64() as u32, random.next_u64() as u32],
            round_trip_ns,
            pace_ns: pace_ns as u32,
            round,
            round_left: round.min(segments),
            segments_left: segments,
            // UDP has no pause after its last round.
            pauses_left: rounds - u32::from(!tcp),
            identification: bits as u16,
            service,
            step: if tcp { Step::Syn } else { Step::Request },
            unacknowledged: 0,
            ipv6,
            // Except for mail, nearly all data flows from the responder.
            talker: u8::from(!(tcp && (port == SMTP || random.chance(Fraction::percent(8))))),
            closer: (bits >> 16) as u8 & 1,
            resets: random.chance(*rst),
            combines_fin: (bits >> 17) & 1 == 0,
            ttl: [64 - (bits >> 24) as u8 % 8, 60 - (bits >> 32) as u8 % 12],
        }
    }

    /// Sends no data any more.
    pub(super) fn close(&mut self) {
        self.step = if self.resets { Step::Reset } else { Step::Fin };
    }

    pub(super) fn is_tcp(&self) -> bool {
        self.service.protocol == TCP
    }

    /// Returns the next segment, and the time until the following one.
    pub(super) fn next_segment(&mut self, now_ns: u64, random: &mut Random) -> (Segment, u64) {
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
                let payload = random.between(self.service.request) as u16;
                (data(asker, PSH | ACK, payload), Step::Segment, self.trip_ns(talker, random))
            }
            Step::Segment => {
                self.segments_left -= 1;
                self.round_left -= 1;
                let acknowledge = self.service.acknowledge;
                self.unacknowledged = (self.unacknowledged + 1).min(acknowledge);
                let over = self.round_left == 0;
                let payload = if over { random.between(self.service.last) as u16 } else { self.full() };
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
                (data(asker, ACK, self.service.acknowledgment), next, wait_ns)
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

    pub(super) fn pace_ns(&self, random: &mut Random) -> u64 {
        random.around(u64::from(self.pace_ns))
    }

    /// Returns the first payload bytes of each side. A DNS query and its response share an ID, so
    /// that a DNS decoder does not see the same query repeatedly.
    fn opening(&self) -> [[u8; 4]; 2] {
        if self.service.port != DNS {
            return [[0; 4]; 2];
        }
        let [high, low] = (self.ends[0].port ^ self.segments_left as u16).to_be_bytes();
        [[high, low, 0x01, 0x00], [high, low, 0x81, 0x80]]
    }

    /// Returns the time until the answer of a side passes the capture point.
    pub(super) fn trip_ns(&self, side: u8, random: &mut Random) -> u64 {
        random.around(u64::from(self.round_trip_ns[usize::from(side)]))
    }

    fn full(&self) -> u16 {
        match self.service.full {
            0 => segment_bytes(self.ipv6),
            full => full,
        }
    }

    /// Writes a segment as a frame. Returns the length of the IP packet in bytes.
    pub(super) fn write(&mut self, segment: &Segment, slot: &mut Slot) -> u32 {
        self.headers(segment).write(slot)
    }

    /// As [`Self::write`], with these octets at the start of the payload.
    pub(super) fn write_with(&mut self, segment: &Segment, octets: &[u8], slot: &mut Slot) -> u32 {
        let octets = &octets[..octets.len().min(segment.payload.into())];
        self.headers(segment).write_payload(octets, slot)
    }

    /// Writes octets from this position of a side's stream, which have no rounds of their own.
    /// `acknowledged` is the position in the stream of the other side. Returns their segment and the
    /// length of the IP packet.
    pub(super) fn write_octets(&mut self, place: &StreamPlace, octets: &[u8], slot: &mut Slot) -> (Segment, u32) {
        let StreamPlace { side, start, acknowledged, push } = *place;
        let flags = if push { PSH | ACK } else { ACK };
        let segment = Segment { side, flags, payload: octets.len() as u16, opening: [0; 4], advance: 0 };
        let mut headers = self.headers(&segment);
        if let Transport::Tcp { sequence, acknowledgment, .. } = &mut headers.transport {
            *sequence = sequence.wrapping_add(start);
            *acknowledgment = acknowledgment.wrapping_add(acknowledged);
        }
        let ip_bytes = headers.write_payload(octets, slot);
        (segment, ip_bytes)
    }

    /// Advances the sequence numbers by what was sent with [`Self::write_octets`].
    pub(super) fn advance(&mut self, octets: [u32; 2]) {
        for (sequence, octets) in self.sequence.iter_mut().zip(octets) {
            *sequence = sequence.wrapping_add(octets);
        }
    }

    /// Returns the headers of a segment, and advances.
    fn headers(&mut self, segment: &Segment) -> Headers {
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
        headers
    }

    /// Counts a packet of a segment in the expected flow, which begins with its first one.
    pub(super) fn count(&mut self, segment: &Segment, ip_bytes: u32, slot: &Slot, expected: &mut ExpectedFlows) {
        let [from, to] = [segment.side, 1 - segment.side].map(|side| self.ends[usize::from(side)]);
        if self.index == usize::MAX {
            self.index = expected.add(ExpectedFlow::new([from, to], self.ipv6, self.service.protocol));
        }
        let flow = &mut expected.flows[self.index];
        let reverse = (flow.source, flow.source_port) != (from.ip(self.ipv6), from.port);
        flow.count(reverse, slot, ip_bytes, segment.flags);
    }
}
