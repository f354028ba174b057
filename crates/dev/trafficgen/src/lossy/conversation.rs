//! One conversation: the steps of its applications, the order of its events, and the duplicates
//! that the capture point captures.
//!
//! ```text
//! handshake -> rounds (request, response, pause), with keep-alives and zero windows in between -> FIN or RST
//! ```
//! The next step is taken when no segment is in flight and no timer runs, so that both sides are
//! idle.

use super::capture_point::{CapturePoint, Duplication, Kind, Segment};
use super::chance::{Chance, MILLISECOND_NS};
use super::side::{Exchange, Hop, NEVER, Side};
use crate::frame::{ACK, Endpoint, FIN, Headers, RST, SYN, Slot, Transport, WINDOW};
use std::cmp::Reverse;

/// Time before the first retransmission of a SYN (RFC 6298).
const SYN_TIMEOUT_NS: u64 = 1_000_000_000;
/// Time from a segment to its duplicate.
const DUPLICATE_NS: [u32; 2] = [1_000, 99_000];

/// A duplicate that the capture point will capture.
struct Duplicate {
    due_ns: u64,
    /// Segments of the same side that may still precede it.
    others: u8,
    segment: Segment,
}

pub(super) struct Properties {
    pub(super) ends: [Endpoint; 2],
    pub(super) ipv6: bool,
    /// Time at which the last pause ends.
    pub(super) until_ns: u64,
    /// Side that sends the responses.
    pub(super) talker: u8,
    /// Side that closes the connection.
    pub(super) closer: u8,
    pub(super) resets: bool,
    /// The last response of the closer carries the FIN.
    pub(super) combines_fin: bool,
    pub(super) rounds: u32,
    /// Average octets of a response.
    pub(super) answer: u32,
    /// Number of keep-alives, and the remaining rounds when they are sent.
    pub(super) keep_alives: Option<(u8, u32)>,
    /// The same for zero windows.
    pub(super) zero_windows: Option<(u8, u32)>,
}

/// The next step when both sides are idle.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Syn,
    Round,
    KeepAlive(u8),
    /// The requester announces a zero window; with the remaining announcements.
    CloseWindow(u8),
    ProbeWindow(u8),
    OpenWindow,
    Fin,
    Reset,
    Ended,
}

pub(crate) struct Conversation {
    pub(super) properties: Properties,
    exchange: Exchange,
    pub(super) capture_point: CapturePoint,
    /// Index of its expected flow, if those are recorded and the capture point has captured a
    /// segment.
    pub(super) index: Option<usize>,
    duplicate: Option<Duplicate>,
    step: Step,
    step_ns: u64,
    syns: u32,
    established: bool,
    rounds_left: u32,
    /// End of this round's request, while its response is outstanding.
    request_end: Option<u64>,
    /// Time at which the talker has thought and responds.
    respond_ns: u64,
    /// The requester sends data during the response.
    interrupts: bool,
}

impl Conversation {
    pub(super) fn new(properties: Properties, exchange: Exchange, now_ns: u64) -> Self {
        Self {
            rounds_left: properties.rounds,
            properties,
            exchange,
            capture_point: CapturePoint::new(),
            index: None,
            duplicate: None,
            step: Step::Syn,
            step_ns: now_ns,
            syns: 0,
            established: false,
            request_end: None,
            respond_ns: NEVER,
            interrupts: false,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.step == Step::Ended && self.step_ns != NEVER
    }

    pub(super) fn next_ns(&self) -> u64 {
        let duplicate_ns = self.duplicate.as_ref().map_or(NEVER, |duplicate| duplicate.due_ns);
        self.exchange
            .sides
            .iter()
            .map(Side::next_ns)
            .fold(self.exchange.in_flight.next_ns().min(duplicate_ns).min(self.step_ns).min(self.respond_ns), u64::min)
    }

    /// Processes one due event. Returns the segment that passes the capture point, if there is one.
    pub(super) fn advance(&mut self, now_ns: u64, chance: &mut Chance<'_>) -> Option<Segment> {
        let captured = self.process_event(now_ns, chance);
        if self.step_ns == NEVER && self.next_ns() == NEVER {
            let (step, pause_ns) = self.next_step(now_ns, chance);
            self.step = step;
            self.step_ns = now_ns + pause_ns.max(1);
        }
        captured
    }

    fn process_event(&mut self, now_ns: u64, chance: &mut Chance<'_>) -> Option<Segment> {
        if let Some(segment) = self.take_duplicate(now_ns) {
            return Some(segment);
        }
        if self.exchange.in_flight.next_ns() <= now_ns {
            let Reverse((_, _, place, segment)) = self.exchange.in_flight.heap.pop().expect("something comes next");
            if place == Hop::Receiver {
                self.receive(&segment, now_ns, chance);
                return None;
            }
            if !segment.lost {
                let from_capture_point_ns = self.exchange.sides[1 - usize::from(segment.side)].to_capture_point_ns;
                self.exchange.in_flight.push(now_ns + from_capture_point_ns, Hop::Receiver, segment);
            }
            self.maybe_duplicate(&segment, now_ns, chance);
            return Some(segment);
        }
        for side in 0..2 {
            let at = &self.exchange.sides[usize::from(side)];
            if at.acknowledge_ns <= now_ns {
                self.exchange.acknowledge(side, Kind::Ack, now_ns);
            } else if at.retransmit_ns.min(at.timeout_ns) <= now_ns {
                self.exchange.retransmit(side, now_ns, chance);
            }
        }
        if self.respond_ns <= now_ns {
            self.respond_ns = NEVER;
            self.start_response(chance);
            self.exchange.send(self.properties.talker, 0, now_ns, chance);
        }
        if self.step_ns <= now_ns {
            self.step_ns = NEVER;
            self.execute_step(now_ns, chance);
        }
        None
    }

    /// Takes the duplicate, if it is due or no other segment may precede it any more.
    fn take_duplicate(&mut self, now_ns: u64) -> Option<Segment> {
        let duplicate = self.duplicate.as_mut()?;
        let next = self.exchange.in_flight.heap.peek().filter(|Reverse((time_ns, ..))| *time_ns <= now_ns);
        let pushed = next.is_some_and(|Reverse((_, _, place, segment))| {
            *place == Hop::CapturePoint && segment.side == duplicate.segment.side
        });
        if duplicate.due_ns <= now_ns || (pushed && duplicate.others == 0) {
            return self.duplicate.take().map(|duplicate| duplicate.segment);
        }
        duplicate.others -= u8::from(pushed);
        None
    }

    /// Randomly duplicates a segment. A segment that a host without identification may really send
    /// twice within so short a time is not duplicated.
    fn maybe_duplicate(&mut self, segment: &Segment, now_ns: u64, chance: &mut Chance<'_>) {
        let is_distinguishable = match segment.kind {
            Kind::Syn | Kind::Data | Kind::Delayed | Kind::Retransmission => true,
            Kind::Ack | Kind::AckOld | Kind::Reset => segment.identification != 0,
            Kind::KeepAlive | Kind::WindowProbe => false,
        };
        if !is_distinguishable || self.duplicate.is_some() || !chance.random.chance(chance.probabilities.duplicate) {
            return;
        }
        let routed = chance.random.chance(chance.probabilities.routed);
        let duplication = if routed { Duplication::Routed } else { Duplication::Switched };
        self.duplicate = Some(Duplicate {
            due_ns: now_ns + u64::from(chance.random.between(DUPLICATE_NS)),
            others: chance.random.below(3) as u8,
            segment: Segment { duplication, ttl: segment.ttl - u8::from(routed), ..*segment },
        });
    }

    fn next_step(&mut self, now_ns: u64, chance: &mut Chance<'_>) -> (Step, u64) {
        if !self.established {
            return (Step::Syn, SYN_TIMEOUT_NS << (self.syns - 1).min(5));
        }
        match self.step {
            Step::Reset | Step::Ended => return (Step::Ended, 0),
            Step::KeepAlive(1..) => return (self.step, chance.milliseconds([100, 500])),
            Step::CloseWindow(1..) => return (self.step, chance.milliseconds([3, 50])),
            Step::CloseWindow(0) => {
                return (Step::ProbeWindow(chance.random.between([1, 4]) as u8), chance.milliseconds([200, 400]));
            }
            Step::ProbeWindow(1..) => return (self.step, chance.milliseconds([200, 400])),
            Step::ProbeWindow(0) => return (Step::OpenWindow, chance.milliseconds([20, 300])),
            _ => {}
        }
        let left = self.rounds_left;
        if let Some((times, _)) = self.properties.keep_alives.take_if(|(_, at)| *at == left) {
            return (Step::KeepAlive(times), chance.milliseconds([300, 1500]));
        }
        if let Some((times, _)) = self.properties.zero_windows.take_if(|(_, at)| *at == left) {
            return (Step::CloseWindow(times), chance.milliseconds([3, 50]));
        }
        let closed = self.exchange.sides.each_ref().map(|side| side.closed);
        if left == 0 {
            return match closed {
                [true, true] => (Step::Ended, 0),
                [false, false] if self.properties.resets => (Step::Reset, chance.milliseconds([1, 50])),
                _ => (Step::Fin, chance.milliseconds([1, 50])),
            };
        }
        let pause_ns = self.properties.until_ns.saturating_sub(now_ns) / u64::from(left);
        (Step::Round, chance.random.around(pause_ns).max(MILLISECOND_NS))
    }

    fn execute_step(&mut self, now_ns: u64, chance: &mut Chance<'_>) {
        let Properties { talker, closer, .. } = self.properties;
        let requester = 1 - talker;
        match &mut self.step {
            Step::Syn => {
                self.syns += 1;
                self.send_syn(0, now_ns, chance);
            }
            Step::Round => {
                self.rounds_left -= 1;
                self.interrupts = chance.random.below(8) == 0;
                let side = &mut self.exchange.sides[usize::from(requester)];
                side.end += u64::from(chance.random.pareto(1.1, [40, 6_000]));
                self.request_end = Some(side.end);
                self.exchange.send(requester, 0, now_ns, chance);
            }
            Step::KeepAlive(left) => {
                *left -= 1;
                let side = chance.random.below(2) as u8;
                self.send_probe(side, Kind::KeepAlive, chance.random.below(2) as u16, now_ns);
            }
            Step::CloseWindow(left) => {
                *left -= 1;
                self.exchange.sides[usize::from(requester)].window = 0;
                self.exchange.acknowledge(requester, Kind::AckOld, now_ns);
            }
            Step::ProbeWindow(left) => {
                *left -= 1;
                self.send_probe(talker, Kind::WindowProbe, 1, now_ns);
            }
            Step::OpenWindow => {
                self.exchange.sides[usize::from(requester)].window = WINDOW;
                self.exchange.acknowledge(requester, Kind::AckOld, now_ns);
                // The talker's outstanding response follows as soon as it receives this.
                self.request_end = Some(0);
            }
            Step::Fin => {
                let side = if self.exchange.sides[usize::from(closer)].closed { 1 - closer } else { closer };
                self.exchange.sides[usize::from(side)].closed = true;
                self.exchange.send(side, 0, now_ns, chance);
            }
            Step::Reset => self.exchange.send_control(closer, RST | ACK, Kind::Reset, now_ns),
            Step::Ended => {}
        }
    }

    fn receive(&mut self, segment: &Segment, now_ns: u64, chance: &mut Chance<'_>) {
        let side = 1 - segment.side;
        match segment.kind {
            Kind::Syn if segment.flags & ACK == 0 => self.send_syn(1, now_ns, chance),
            Kind::Syn => {
                self.established = true;
                self.exchange.acknowledge(0, Kind::AckOld, now_ns);
            }
            // The octet of a zero-window probe is not accepted.
            Kind::KeepAlive | Kind::WindowProbe => self.exchange.acknowledge(side, Kind::AckOld, now_ns),
            Kind::Reset => {}
            Kind::Ack | Kind::AckOld | Kind::Data | Kind::Delayed | Kind::Retransmission => {
                self.exchange.process_acknowledgment(side, segment, now_ns, chance);
                if segment.length > 0 || segment.flags & FIN != 0 {
                    self.exchange.receive_data(side, segment, now_ns, chance);
                }
                self.respond(side, now_ns, chance);
                self.exchange.send(side, 0, now_ns, chance);
            }
        }
    }

    /// Makes the talker respond once it has received the request and thought about it.
    fn respond(&mut self, side: u8, now_ns: u64, chance: &mut Chance<'_>) {
        let received = self.exchange.sides[usize::from(side)].next_expected();
        if side == self.properties.talker && self.request_end.take_if(|end| received >= *end).is_some() {
            let think_ns = chance.think();
            self.capture_point.thinks(side, think_ns);
            if think_ns == 0 {
                self.start_response(chance);
            } else {
                self.respond_ns = now_ns + think_ns;
            }
        } else if side != self.properties.talker
            && (chance.probabilities.think_ns == 0 || self.request_end.is_none() && self.respond_ns == NEVER)
            && std::mem::take(&mut self.interrupts)
        {
            // It does not change a request that the talker thinks about.
            let requester = &mut self.exchange.sides[usize::from(side)];
            requester.end += if requester.closed { 0 } else { u64::from(chance.random.between([20, 200])) };
        }
    }

    /// Gives the talker its response to send; with the last one it may close.
    fn start_response(&mut self, chance: &mut Chance<'_>) {
        let Properties { talker, closer, combines_fin, resets, answer, .. } = self.properties;
        let last =
            self.rounds_left == 0 && self.properties.zero_windows.is_none() && self.properties.keep_alives.is_none();
        let side = &mut self.exchange.sides[usize::from(talker)];
        side.end += chance.random.around(u64::from(answer)).max(2);
        side.closed = last && combines_fin && !resets && talker == closer;
    }

    /// Sends the initiator's SYN or the SYN-ACK; either may be lost.
    fn send_syn(&mut self, side: u8, now_ns: u64, chance: &mut Chance<'_>) {
        let flags = if side == 0 { SYN } else { SYN | ACK };
        let at = &mut self.exchange.sides[usize::from(side)];
        let mut segment = at.segment(side, flags, Kind::Syn);
        (segment.start, segment.length) = (0, 0);
        let fate = chance.fate();
        segment.lost = fate.is_lost;
        if fate.is_captured {
            self.exchange.in_flight.push(now_ns + at.to_capture_point_ns, Hop::CapturePoint, segment);
        }
    }

    /// Sends a keep-alive or a zero-window probe; neither is ever lost.
    fn send_probe(&mut self, side: u8, kind: Kind, length: u16, now_ns: u64) {
        let at = &mut self.exchange.sides[usize::from(side)];
        let mut segment = at.segment(side, ACK, kind);
        segment.start -= u64::from(kind == Kind::KeepAlive);
        segment.length = length;
        self.exchange.in_flight.push(now_ns + at.to_capture_point_ns, Hop::CapturePoint, segment);
    }

    /// Writes a segment as a frame. Returns the length of the IP packet in bytes.
    pub(super) fn write(&self, segment: &Segment, slot: &mut Slot) -> u32 {
        let (from, to) = (usize::from(segment.side), usize::from(1 - segment.side));
        let number = |side: usize, position: u64| self.exchange.sides[side].first.wrapping_add(position as u32);
        let acknowledgment = if segment.flags & ACK != 0 { number(to, segment.acknowledgment) } else { 0 };
        let headers = Headers {
            ipv6: self.properties.ipv6,
            source: self.properties.ends[from],
            destination: self.properties.ends[to],
            source_side: segment.side,
            ttl: segment.ttl,
            identification: segment.identification,
            transport: Transport::Tcp {
                sequence: number(from, segment.start),
                acknowledgment,
                flags: segment.flags,
                window: segment.window,
            },
            payload: segment.length,
            opening: [0; 4],
        };
        headers.write(slot)
    }
}
