//! One conversation: what its applications do, when anything happens, and which copies the probe gets.
//!
//! ```text
//! handshake -> rounds (a request, an answer, a pause) -> keep-alives and closed windows in between -> FIN or RST
//! ```
//! The next step is taken when nothing is on its way and no timer runs, so that it meets both sides at rest.

use super::probe::{Copied, Probe, Segment, Why};
use super::side::{Dice, Exchange, NEVER, Place, Side};
use crate::frame::{ACK, Endpoint, FIN, Headers, RST, SYN, Slot, Transport, WINDOW};
use std::cmp::Reverse;

const MILLISECOND_NS: u64 = 1_000_000;
/// Until a SYN is sent again for the first time (RFC 6298).
const SYN_TIMEOUT_NS: u64 = 1_000_000_000;
/// From a segment to its copy.
const COPY_NS: [u32; 2] = [1_000, 99_000];

impl Dice<'_> {
    fn milliseconds(&mut self, range: [u32; 2]) -> u64 {
        u64::from(self.random.between(range)) * MILLISECOND_NS
    }
}

/// A copy that the probe will get.
struct Copy {
    due_ns: u64,
    /// Segments of the same side that may come before it.
    others: u8,
    segment: Segment,
}

/// What was drawn for a conversation before it began.
pub(super) struct Draft {
    pub(super) ends: [Endpoint; 2],
    pub(super) ipv6: bool,
    /// When the last pause shall be over.
    pub(super) until_ns: u64,
    /// The side that sends the answers.
    pub(super) talker: u8,
    /// The side that ends it.
    pub(super) closer: u8,
    pub(super) resets: bool,
    /// The last answer of the closer ends with FIN.
    pub(super) joins_fin: bool,
    pub(super) rounds: u32,
    /// Octets of an answer, on the average.
    pub(super) answer: u32,
    /// Keep-alives, and the number of rounds to come when they are sent.
    pub(super) keep_alives: Option<(u8, u32)>,
    /// The same for announcements of a closed window.
    pub(super) closed_windows: Option<(u8, u32)>,
}

/// What both sides do next when nothing is on its way.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Syn,
    Round,
    KeepAlive(u8),
    /// The asker closes its window; so many announcements are to come.
    CloseWindow(u8),
    ProbeWindow(u8),
    OpenWindow,
    Fin,
    Reset,
    Over,
}

pub(super) struct Conversation {
    pub(super) draft: Draft,
    exchange: Exchange,
    pub(super) probe: Probe,
    /// Where it lies in the expected, if that is kept and the probe saw something.
    pub(super) place: Option<usize>,
    copy: Option<Copy>,
    step: Step,
    step_ns: u64,
    /// SYNs sent.
    syns: u32,
    established: bool,
    rounds_left: u32,
    /// The request of this round ends here, and the answer to it is still to come.
    request_end: Option<u64>,
    /// The asker says something while the answer comes.
    interrupts: bool,
}

impl Conversation {
    pub(super) fn new(draft: Draft, exchange: Exchange, now_ns: u64) -> Self {
        Self {
            rounds_left: draft.rounds,
            draft,
            exchange,
            probe: Probe::new(),
            place: None,
            copy: None,
            step: Step::Syn,
            step_ns: now_ns,
            syns: 0,
            established: false,
            request_end: None,
            interrupts: false,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.step == Step::Over && self.step_ns != NEVER
    }

    /// When anything happens next.
    pub(super) fn next_ns(&self) -> u64 {
        let copy_ns = self.copy.as_ref().map_or(NEVER, |copy| copy.due_ns);
        self.exchange
            .sides
            .iter()
            .map(Side::next_ns)
            .fold(self.exchange.ways.next_ns().min(copy_ns).min(self.step_ns), u64::min)
    }

    /// Does one thing that is due, if anything is; the segment that comes by the probe, if that is it.
    pub(super) fn turn(&mut self, now_ns: u64, dice: &mut Dice<'_>) -> Option<Segment> {
        let seen = self.happen(now_ns, dice);
        if self.step_ns == NEVER && self.next_ns() == NEVER {
            let (step, pause_ns) = self.choose(now_ns, dice);
            self.step = step;
            self.step_ns = now_ns + pause_ns.max(1);
        }
        seen
    }

    fn happen(&mut self, now_ns: u64, dice: &mut Dice<'_>) -> Option<Segment> {
        if let Some(segment) = self.copied(now_ns) {
            return Some(segment);
        }
        if self.exchange.ways.next_ns() <= now_ns {
            let Reverse((_, _, place, segment)) = self.exchange.ways.heap.pop().expect("something comes next");
            if place == Place::Receiver {
                self.receive(&segment, now_ns, dice);
                return None;
            }
            if !segment.lost {
                let behind_ns = self.exchange.sides[1 - usize::from(segment.side)].ahead_ns;
                self.exchange.ways.push(now_ns + behind_ns, Place::Receiver, segment);
            }
            self.maybe_copy(&segment, now_ns, dice);
            return Some(segment);
        }
        for side in 0..2 {
            let at = &self.exchange.sides[usize::from(side)];
            if at.acknowledge_ns <= now_ns {
                self.exchange.acknowledge(side, Why::Ack, now_ns);
            } else if at.repair_ns.min(at.timeout_ns) <= now_ns {
                self.exchange.repair(side, now_ns, dice);
            }
        }
        if self.step_ns <= now_ns {
            self.step_ns = NEVER;
            self.take(now_ns, dice);
        }
        None
    }

    /// The copy, if it is due or no other segment may come before it any more.
    fn copied(&mut self, now_ns: u64) -> Option<Segment> {
        let copy = self.copy.as_mut()?;
        let next = self.exchange.ways.heap.peek().filter(|Reverse((time_ns, ..))| *time_ns <= now_ns);
        let pushed = next
            .is_some_and(|Reverse((_, _, place, segment))| *place == Place::Probe && segment.side == copy.segment.side);
        if copy.due_ns <= now_ns || (pushed && copy.others == 0) {
            return self.copy.take().map(|copy| copy.segment);
        }
        copy.others -= u8::from(pushed);
        None
    }

    /// Draws whether the probe gets a segment twice. What a host without identifications may well send twice
    /// within so short a time is not copied.
    fn maybe_copy(&mut self, segment: &Segment, now_ns: u64, dice: &mut Dice<'_>) {
        let told_apart = match segment.why {
            Why::Syn | Why::Data | Why::Late | Why::Again => true,
            Why::Ack | Why::AckOld | Why::Reset => segment.identification != 0,
            Why::KeepAlive | Why::WindowProbe => false,
        };
        if !told_apart || self.copy.is_some() || !dice.random.chance(dice.shares.duplicate) {
            return;
        }
        let routed = dice.random.chance(dice.shares.routed);
        let copied = if routed { Copied::Routed } else { Copied::Switched };
        self.copy = Some(Copy {
            due_ns: now_ns + u64::from(dice.random.between(COPY_NS)),
            others: dice.random.below(3) as u8,
            segment: Segment { copied, ttl: segment.ttl - u8::from(routed), ..*segment },
        });
    }

    /// The next step, and how long until then.
    fn choose(&mut self, now_ns: u64, dice: &mut Dice<'_>) -> (Step, u64) {
        if !self.established {
            return (Step::Syn, SYN_TIMEOUT_NS << (self.syns - 1).min(5));
        }
        match self.step {
            Step::Reset | Step::Over => return (Step::Over, 0),
            Step::KeepAlive(1..) => return (self.step, dice.milliseconds([100, 500])),
            Step::CloseWindow(1..) => return (self.step, dice.milliseconds([3, 50])),
            Step::CloseWindow(0) => {
                return (Step::ProbeWindow(dice.random.between([1, 4]) as u8), dice.milliseconds([200, 400]));
            }
            Step::ProbeWindow(1..) => return (self.step, dice.milliseconds([200, 400])),
            Step::ProbeWindow(0) => return (Step::OpenWindow, dice.milliseconds([20, 300])),
            _ => {}
        }
        let left = self.rounds_left;
        if let Some((times, _)) = self.draft.keep_alives.take_if(|(_, at)| *at == left) {
            return (Step::KeepAlive(times), dice.milliseconds([300, 1500]));
        }
        if let Some((times, _)) = self.draft.closed_windows.take_if(|(_, at)| *at == left) {
            return (Step::CloseWindow(times), dice.milliseconds([3, 50]));
        }
        let closed = self.exchange.sides.each_ref().map(|side| side.closed);
        if left == 0 {
            return match closed {
                [true, true] => (Step::Over, 0),
                [false, false] if self.draft.resets => (Step::Reset, dice.milliseconds([1, 50])),
                _ => (Step::Fin, dice.milliseconds([1, 50])),
            };
        }
        let pause_ns = self.draft.until_ns.saturating_sub(now_ns) / u64::from(left);
        (Step::Round, dice.random.around(pause_ns).max(MILLISECOND_NS))
    }

    /// Takes the step.
    fn take(&mut self, now_ns: u64, dice: &mut Dice<'_>) {
        let Draft { talker, closer, .. } = self.draft;
        let asker = 1 - talker;
        match &mut self.step {
            Step::Syn => {
                self.syns += 1;
                self.say_syn(0, now_ns, dice);
            }
            Step::Round => {
                self.rounds_left -= 1;
                self.interrupts = dice.random.below(8) == 0;
                let side = &mut self.exchange.sides[usize::from(asker)];
                side.end += u64::from(dice.random.pareto(1.1, [40, 6_000]));
                self.request_end = Some(side.end);
                self.exchange.send(asker, 0, now_ns, dice);
            }
            Step::KeepAlive(left) => {
                *left -= 1;
                let side = dice.random.below(2) as u8;
                self.say_past(side, Why::KeepAlive, dice.random.below(2) as u16, now_ns);
            }
            Step::CloseWindow(left) => {
                *left -= 1;
                self.exchange.sides[usize::from(asker)].window = 0;
                self.exchange.acknowledge(asker, Why::AckOld, now_ns);
            }
            Step::ProbeWindow(left) => {
                *left -= 1;
                self.say_past(talker, Why::WindowProbe, 1, now_ns);
            }
            Step::OpenWindow => {
                self.exchange.sides[usize::from(asker)].window = WINDOW;
                self.exchange.acknowledge(asker, Why::AckOld, now_ns);
                // What the talker wanted to say all the time, as soon as it hears of this.
                self.request_end = Some(0);
            }
            Step::Fin => {
                let side = if self.exchange.sides[usize::from(closer)].closed { 1 - closer } else { closer };
                self.exchange.sides[usize::from(side)].closed = true;
                self.exchange.send(side, 0, now_ns, dice);
            }
            Step::Reset => self.exchange.say(closer, RST | ACK, Why::Reset, now_ns),
            Step::Over => {}
        }
    }

    /// A segment has come through.
    fn receive(&mut self, segment: &Segment, now_ns: u64, dice: &mut Dice<'_>) {
        let side = 1 - segment.side;
        match segment.why {
            Why::Syn if segment.flags & ACK == 0 => self.say_syn(1, now_ns, dice),
            Why::Syn => {
                self.established = true;
                self.exchange.acknowledge(0, Why::AckOld, now_ns);
            }
            // A probe against a closed window is not accepted.
            Why::KeepAlive | Why::WindowProbe => self.exchange.acknowledge(side, Why::AckOld, now_ns),
            Why::Reset => {}
            Why::Ack | Why::AckOld | Why::Data | Why::Late | Why::Again => {
                self.exchange.hear(side, segment, now_ns, dice);
                if segment.length > 0 || segment.flags & FIN != 0 {
                    self.exchange.take_in(side, segment, now_ns, dice);
                }
                self.answer(side, dice);
                self.exchange.send(side, 0, now_ns, dice);
            }
        }
    }

    /// Lets the talker answer, if it has got what it waits for; with the last answer it may close.
    fn answer(&mut self, side: u8, dice: &mut Dice<'_>) {
        let heard = self.exchange.sides[usize::from(side)].waits_for();
        let last = self.rounds_left == 0 && self.draft.closed_windows.is_none() && self.draft.keep_alives.is_none();
        if side == self.draft.talker && self.request_end.take_if(|end| heard >= *end).is_some() {
            let talker = &mut self.exchange.sides[usize::from(side)];
            talker.end += dice.random.around(u64::from(self.draft.answer)).max(2);
            talker.closed = last && self.draft.joins_fin && !self.draft.resets && side == self.draft.closer;
        } else if side != self.draft.talker && std::mem::take(&mut self.interrupts) {
            let asker = &mut self.exchange.sides[usize::from(side)];
            asker.end += if asker.closed { 0 } else { u64::from(dice.random.between([20, 200])) };
        }
    }

    /// A SYN of the initiator or the answer to it; either may be lost.
    fn say_syn(&mut self, side: u8, now_ns: u64, dice: &mut Dice<'_>) {
        let flags = if side == 0 { SYN } else { SYN | ACK };
        let at = &mut self.exchange.sides[usize::from(side)];
        let mut segment = at.segment(side, flags, Why::Syn);
        (segment.start, segment.length) = (0, 0);
        let fate = dice.fate();
        segment.lost = fate.is_lost();
        if fate.is_seen() {
            self.exchange.ways.push(now_ns + at.ahead_ns, Place::Probe, segment);
        }
    }

    /// A segment just below what comes next, or one octet of that; neither is ever lost.
    fn say_past(&mut self, side: u8, why: Why, length: u16, now_ns: u64) {
        let at = &mut self.exchange.sides[usize::from(side)];
        let mut segment = at.segment(side, ACK, why);
        segment.start -= u64::from(why == Why::KeepAlive);
        segment.length = length;
        self.exchange.ways.push(now_ns + at.ahead_ns, Place::Probe, segment);
    }

    /// Writes a segment as a frame; octets of the IP packet.
    pub(super) fn write(&self, segment: &Segment, slot: &mut Slot) -> u32 {
        let (from, to) = (usize::from(segment.side), usize::from(1 - segment.side));
        let number = |side: usize, position: u64| self.exchange.sides[side].first.wrapping_add(position as u32);
        let acknowledgment = if segment.flags & ACK != 0 { number(to, segment.acknowledgment) } else { 0 };
        let headers = Headers {
            ipv6: self.draft.ipv6,
            source: self.draft.ends[from],
            destination: self.draft.ends[to],
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
