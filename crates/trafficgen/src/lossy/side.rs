//! The two ends and what is on its way between them: what is sent and sent again (NewReno without SACK, RFC 6582),
//! and what is acknowledged.
//!
//! What sets the events apart, so that the truth is well defined:
//! - on its way a segment is delayed by less than 1 ms;
//! - a hole that acknowledgments tell of is repaired no earlier than a round trip and 2 ms after the segment was
//!   sent last, and after the first later one that the probe sees was sent, if the acknowledgments have not moved on
//!   until then. So nothing that is only late is sent again, and nothing comes again within 10 ms of its hole;
//! - what no acknowledgment tells of is repaired after a round trip and 200 ms in which nothing was sent.

use super::Probabilities;
use super::octets::Octets;
use super::probe::{Copied, Segment, Why};
use crate::frame::{ACK, FIN, PSH, WINDOW};
use crate::random::Random;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// No time at all.
pub(super) const NEVER: u64 = u64::MAX;
/// From the first sign of a loss to its repair.
const REPAIR_NS: u64 = 2_000_000;
/// Silence before something is sent again without a sign, beside two round trips.
const TIMEOUT_NS: u64 = 200_000_000;
/// How long an acknowledgment waits for a second segment.
const ACKNOWLEDGE_NS: [u32; 2] = [5_000_000, 40_000_000];
/// How long a segment is delayed on its way.
const LATE_NS: [u32; 2] = [50_000, 950_000];
/// Segments in flight, at most, and octets: less than the window says.
const MOST_SEGMENTS: usize = 60;
const MOST_OCTETS: u64 = 60_000;

/// Chance and its odds.
pub(super) struct Dice<'a> {
    pub(super) random: &'a mut Random,
    pub(super) shares: &'a Probabilities,
}

/// What happens to a segment on its way.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fate {
    Arrives,
    LostBefore,
    LostBehind,
}

impl Fate {
    pub(super) fn is_seen(self) -> bool {
        self != Self::LostBefore
    }

    pub(super) fn is_lost(self) -> bool {
        self != Self::Arrives
    }
}

impl Dice<'_> {
    pub(super) fn fate(&mut self) -> Fate {
        match self.random.chance(self.shares.loss) {
            false => Fate::Arrives,
            true if self.random.chance(self.shares.before) => Fate::LostBefore,
            true => Fate::LostBehind,
        }
    }
}

/// A segment that was sent and is not acknowledged yet.
struct Sent {
    start: u64,
    /// Behind its octets and its FIN.
    end: u64,
    /// When it departed last.
    time_ns: u64,
    /// The probe sees it.
    seen: bool,
}

/// One end of a conversation. Positions are those of [`Segment`].
pub(super) struct Side {
    /// Sequence number of the SYN.
    pub(super) first: u32,
    /// Of the last packet; 0 for ever if the host sends none.
    pub(super) identification: u16,
    pub(super) ttl: u8,
    /// From here to the probe.
    pub(super) ahead_ns: u64,
    /// Time that one segment takes to depart.
    pub(super) pace_ns: u64,
    /// Behind the last octet that the application has given, and whether there will be no more.
    pub(super) end: u64,
    pub(super) closed: bool,
    /// The first position never sent.
    next: u64,
    /// The first position not acknowledged.
    acknowledged: u64,
    flight: VecDeque<Sent>,
    /// Segments in flight, at most: now and ever.
    allowed: u32,
    pub(super) most_allowed: u32,
    /// What was sent when the last repair began; it lasts until all of that is acknowledged.
    recover: u64,
    /// When the last segment has departed.
    departed_ns: u64,
    pub(super) repair_ns: u64,
    pub(super) timeout_ns: u64,
    timeouts: u32,
    /// What has come from the other side.
    got: Octets,
    fin: Option<u64>,
    unacknowledged: u8,
    pub(super) acknowledge_ns: u64,
    /// The window that it announces.
    pub(super) window: u16,
}

impl Side {
    /// At rest before the handshake.
    pub(super) fn new(
        first: u32,
        identification: u16,
        ttl: u8,
        ahead_ns: u64,
        pace_ns: u64,
        most_allowed: u32,
    ) -> Self {
        let mut got = Octets::default();
        got.add(0, 1);
        Self {
            first,
            identification,
            ttl,
            ahead_ns,
            pace_ns,
            end: 1,
            closed: false,
            next: 1,
            acknowledged: 1,
            flight: VecDeque::new(),
            allowed: most_allowed.min(10),
            most_allowed,
            recover: 0,
            departed_ns: 0,
            repair_ns: NEVER,
            timeout_ns: NEVER,
            timeouts: 0,
            got,
            fin: None,
            unacknowledged: 0,
            acknowledge_ns: NEVER,
            window: WINDOW,
        }
    }

    /// When a timer of this side is over.
    pub(super) fn next_ns(&self) -> u64 {
        self.repair_ns.min(self.timeout_ns).min(self.acknowledge_ns)
    }

    /// The position that it waits for from the other side.
    pub(super) fn waits_for(&self) -> u64 {
        let next = self.got.first_hole();
        next + u64::from(self.fin == Some(next))
    }

    /// A segment without octets, as this side would send it now; it takes an identification.
    pub(super) fn segment(&mut self, side: u8, flags: u8, why: Why) -> Segment {
        if self.identification != 0 {
            // 0 is for hosts without.
            self.identification = self.identification.checked_add(1).unwrap_or(1);
        }
        Segment {
            side,
            flags,
            why,
            copied: Copied::Original,
            lost: false,
            ttl: self.ttl,
            identification: self.identification,
            window: self.window,
            length: 0,
            start: self.next,
            acknowledgment: self.waits_for(),
        }
    }

    /// When something departs that is ready now: one after the other.
    pub(super) fn depart(&mut self, now_ns: u64, pace_ns: u64) -> u64 {
        self.departed_ns = self.departed_ns.max(now_ns) + pace_ns;
        self.departed_ns
    }

    /// Behind the octets of everything up to a position that may be that behind a FIN.
    fn octets_end(&self, end: u64) -> u64 {
        end.min(self.end)
    }

    /// When the segment that is waited for is sent again, if nothing new is acknowledged until then.
    fn repair_at(&self, now_ns: u64, round_trip_ns: u64) -> u64 {
        let mut flight = self.flight.iter();
        let sent_ns = flight.next().map_or(0, |front| front.time_ns);
        // A hole is a hole from the first later segment on that the probe sees.
        let hole_ns = flight.filter(|later| later.seen).map(|later| later.time_ns).min().unwrap_or(0);
        now_ns.max(sent_ns.max(hole_ns) + round_trip_ns) + REPAIR_NS
    }

    /// Takes out of the flight what has arrived entirely, one after the other.
    fn arrived(&mut self, position: u64) -> Option<Sent> {
        self.flight.front().filter(|front| front.end <= position)?;
        self.flight.pop_front()
    }

    /// Starts the long timer anew, or stops it when nothing is in flight.
    fn set_timeout(&mut self, now_ns: u64, round_trip_ns: u64) {
        let wait_ns = (TIMEOUT_NS + 2 * round_trip_ns) << self.timeouts.min(4);
        self.timeout_ns = if self.flight.is_empty() { NEVER } else { now_ns.max(self.departed_ns) + wait_ns };
    }
}

/// Where a segment comes by next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Probe,
    Receiver,
}

/// Segments on their way, in the order of time, then of sending.
#[derive(Default)]
pub(super) struct Ways {
    pub(super) heap: BinaryHeap<Reverse<(u64, u32, Place, Segment)>>,
    sent: u32,
}

impl Ways {
    pub(super) fn push(&mut self, time_ns: u64, place: Place, segment: Segment) {
        self.heap.push(Reverse((time_ns, self.sent, place, segment)));
        self.sent = self.sent.wrapping_add(1);
    }

    pub(super) fn next_ns(&self) -> u64 {
        self.heap.peek().map_or(NEVER, |Reverse((time_ns, ..))| *time_ns)
    }
}

/// Both ends, and what is on its way between them.
pub(super) struct Exchange {
    pub(super) sides: [Side; 2],
    pub(super) ways: Ways,
    pub(super) round_trip_ns: u64,
    /// Octets of a full segment, and of one that fills a frame.
    pub(super) full: u16,
    pub(super) longest: u16,
    /// A FIN behind octets that are sent now rides on their last segment.
    pub(super) fin_rides: bool,
}

impl Exchange {
    /// Sends what may be sent: what the application has given, as far as the flight allows; of that nothing during a
    /// repair but for `extra` segments.
    pub(super) fn send(&mut self, side: u8, mut extra: u32, now_ns: u64, dice: &mut Dice<'_>) {
        let &mut Self { full, round_trip_ns, fin_rides, .. } = self;
        let full = u64::from(full);
        loop {
            let at = &mut self.sides[usize::from(side)];
            let repairing = at.repair_ns != NEVER || at.acknowledged < at.recover;
            let start = at.next;
            let mut end = at.end.min(start + full);
            if at.end.saturating_sub(end) == 1 {
                // One octet alone is for keep-alives and probes.
                end -= 1;
            }
            let last = end == at.end && at.closed;
            let end = if last && (start == at.end || fin_rides) { end + 1 } else { end.max(start) };
            if start >= end || (repairing && extra == 0) {
                break;
            }
            let allowed = (u64::from(at.allowed) * full).min(MOST_OCTETS);
            if !at.flight.is_empty() && (end - at.acknowledged > allowed || at.flight.len() >= MOST_SEGMENTS) {
                break;
            }
            extra = extra.saturating_sub(1);
            at.next = end;
            let (seen, time_ns) = self.transmit(side, start, end, Why::Data, now_ns, dice);
            let at = &mut self.sides[usize::from(side)];
            at.flight.push_back(Sent { start, end, time_ns, seen });
            at.set_timeout(now_ns, round_trip_ns);
        }
    }

    /// Sends one segment of these positions; whether the probe sees it, and when it departs.
    fn transmit(&mut self, side: u8, start: u64, end: u64, why: Why, now_ns: u64, dice: &mut Dice<'_>) -> (bool, u64) {
        let fate = dice.fate();
        let late = why == Why::Data && dice.random.chance(dice.shares.reorder);
        let late_ns = if late { u64::from(dice.random.between(LATE_NS)) } else { 0 };
        let at = &mut self.sides[usize::from(side)];
        let octets_end = at.octets_end(end);
        let push = if octets_end == at.end && octets_end > start { PSH } else { 0 };
        let fin = if end > octets_end { FIN } else { 0 };
        let mut segment = at.segment(side, ACK | push | fin, if late { Why::Late } else { why });
        segment.start = start;
        segment.length = (octets_end - start) as u16;
        segment.lost = fate.is_lost();
        (at.unacknowledged, at.acknowledge_ns) = (0, NEVER);
        let departs_ns = at.depart(now_ns, at.pace_ns);
        if fate.is_seen() {
            self.ways.push(departs_ns + at.ahead_ns + late_ns, Place::Probe, segment);
        }
        (fate.is_seen(), departs_ns)
    }

    /// Sends the segment that the other side waits for again, cut as before or anew.
    pub(super) fn repair(&mut self, side: u8, now_ns: u64, dice: &mut Dice<'_>) {
        let round_trip_ns = self.round_trip_ns;
        let at = &mut self.sides[usize::from(side)];
        at.timeouts += u32::from(at.timeout_ns <= now_ns);
        at.repair_ns = NEVER;
        at.allowed = (at.allowed / 2).max(2);
        let front = at.flight.front().expect("a timer runs while something is in flight");
        let (start, end) = (front.start, front.end);
        let mut departed_ns = now_ns;
        for (start, end) in self.cut(side, start, end, dice).into_iter().flatten() {
            let (seen, time_ns) = self.transmit(side, start, end, Why::Again, now_ns, dice);
            departed_ns = time_ns;
            let at = &mut self.sides[usize::from(side)];
            if end > at.next {
                at.flight.push_back(Sent { start: at.next, end, time_ns, seen });
                at.next = end;
            }
        }
        let at = &mut self.sides[usize::from(side)];
        at.flight[0].time_ns = departed_ns;
        at.recover = at.next;
        at.set_timeout(now_ns, round_trip_ns);
        let extra = dice.random.below(4).saturating_sub(1) as u32;
        self.send(side, extra, now_ns, dice);
    }

    /// What is sent in place of a segment: itself, two halves of it, itself with octets behind it (also some never sent
    /// before), or as many octets from a little earlier on. Neither a piece nor what is left to repair is ever a single
    /// octet: that would look like a keep-alive.
    fn cut(&self, side: u8, start: u64, end: u64, dice: &mut Dice<'_>) -> [Option<(u64, u64)>; 2] {
        let at = &self.sides[usize::from(side)];
        let octets_end = at.octets_end(end);
        let length = octets_end - start;
        let whole = [Some((start, end)), None];
        if length < 4 || !dice.random.chance(dice.shares.recut) {
            return whole;
        }
        let room = u64::from(self.longest) - length;
        let more = room.min(at.end - octets_end);
        match dice.random.below(3) {
            0 if end == octets_end && more >= 4 => {
                let mut joined = octets_end + 2 + dice.random.below(more - 1);
                let cut_end = at.flight.iter().map(|sent| at.octets_end(sent.end)).find(|&end| end >= joined);
                if cut_end.unwrap_or(at.end) - joined == 1 || at.end - joined == 1 || joined == at.next + 1 {
                    joined -= 1;
                }
                let fin = u64::from(joined == at.end && at.next > at.end);
                [Some((start, joined + fin)), None]
            }
            1 if start > 2 => {
                let shift = 2 + dice.random.below((length - 3).min(start - 2));
                [Some((start - shift, octets_end - shift)), None]
            }
            _ => {
                let middle = start + 2 + dice.random.below(length - 3);
                [Some((start, middle)), Some((middle, end))]
            }
        }
    }

    /// Takes note of an acknowledgment.
    pub(super) fn hear(&mut self, side: u8, segment: &Segment, now_ns: u64, dice: &mut Dice<'_>) {
        let round_trip_ns = self.round_trip_ns;
        let at = &mut self.sides[usize::from(side)];
        let position = segment.acknowledgment;
        if position > at.acknowledged {
            at.acknowledged = position;
            at.timeouts = 0;
            at.repair_ns = NEVER;
            at.allowed = (at.allowed + 1).min(at.most_allowed);
            while let Some(sent) = self.sides[usize::from(side)].arrived(position) {
                if sent.time_ns + round_trip_ns <= now_ns && dice.random.chance(dice.shares.spurious) {
                    self.transmit(side, sent.start, sent.end, Why::Again, now_ns, dice);
                }
            }
            let at = &mut self.sides[usize::from(side)];
            if let Some(front) = at.flight.front_mut() {
                front.start = front.start.max(position);
                if position < at.recover {
                    at.repair_ns = at.repair_at(now_ns, round_trip_ns);
                }
            }
            at.set_timeout(now_ns, round_trip_ns);
        } else if segment.why == Why::Ack && position == at.acknowledged && position >= at.recover {
            // The same again: behind what it waits for something else has come.
            if !at.flight.is_empty() && at.repair_ns == NEVER {
                at.repair_ns = at.repair_at(now_ns, round_trip_ns);
            }
        }
    }

    /// Takes in octets and a FIN, and acknowledges every second segment; all others that say something new at once.
    pub(super) fn take_in(&mut self, side: u8, segment: &Segment, now_ns: u64, dice: &mut Dice<'_>) {
        let at = &mut self.sides[usize::from(side)];
        let end = segment.start + u64::from(segment.length);
        let waited_for = at.waits_for();
        // A FIN that has come already waits behind a hole.
        let had_holes = at.got.has_holes() || at.fin.is_some();
        let repeated = at.got.add(segment.start, end);
        let fin = segment.flags & FIN != 0;
        let old = repeated == u64::from(segment.length) && (!fin || at.fin.is_some());
        if fin {
            at.fin = Some(end);
        }
        let in_order = segment.start == waited_for && !had_holes && !fin;
        if in_order && at.unacknowledged == 0 {
            at.unacknowledged = 1;
            at.acknowledge_ns = now_ns + u64::from(dice.random.between(ACKNOWLEDGE_NS));
        } else {
            self.acknowledge(side, if old { Why::AckOld } else { Why::Ack }, now_ns);
        }
        let at = &mut self.sides[usize::from(side)];
        let all = at.fin.is_some_and(|fin| at.waits_for() > fin);
        if all && !at.closed && dice.random.below(2) == 0 {
            at.closed = true;
        }
    }

    /// An acknowledgment alone.
    pub(super) fn acknowledge(&mut self, side: u8, why: Why, now_ns: u64) {
        let at = &mut self.sides[usize::from(side)];
        (at.unacknowledged, at.acknowledge_ns) = (0, NEVER);
        self.say(side, ACK, why, now_ns);
    }

    /// A segment without octets that is never lost.
    pub(super) fn say(&mut self, side: u8, flags: u8, why: Why, now_ns: u64) {
        let at = &mut self.sides[usize::from(side)];
        let segment = at.segment(side, flags, why);
        let departs_ns = at.depart(now_ns, 2_000);
        self.ways.push(departs_ns + at.ahead_ns, Place::Probe, segment);
    }
}
