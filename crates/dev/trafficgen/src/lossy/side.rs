//! The two endpoints and the segments in flight: transmission, retransmission (NewReno without
//! SACK, RFC 6582) and acknowledgment.
//!
//! Rules that keep the events apart in time, so that the expected counters are well defined:
//! - In flight, a segment is delayed by less than 1 ms.
//! - A gap that duplicate acknowledgments report is retransmitted if the acknowledgments do not
//!   advance: one round-trip time and 2 ms after the last transmission of the segment, and after
//!   the transmission of the first later segment that the capture point captures. So a segment that
//!   is only late is not retransmitted, and no retransmission follows its gap within 10 ms.
//! - A loss that no acknowledgment reports is retransmitted after one round-trip time and 200 ms
//!   without transmission.

use super::capture_point::{Duplication, Kind, Segment};
use super::chance::Chance;
use super::octets::Octets;
use crate::frame::{ACK, FIN, PSH, WINDOW};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The time of no event.
pub(super) const NEVER: u64 = u64::MAX;
/// Time from the first sign of a loss to the retransmission.
const RETRANSMIT_NS: u64 = 2_000_000;
/// Retransmission timeout, in addition to two round-trip times.
const TIMEOUT_NS: u64 = 200_000_000;
/// Delay of an acknowledgment that waits for a second segment.
const DELAYED_ACK_NS: [u32; 2] = [5_000_000, 40_000_000];
/// Delay of a reordered segment.
const REORDER_NS: [u32; 2] = [50_000, 950_000];
/// Largest number of segments and octets in flight; less than the announced window.
const MAX_SEGMENTS: usize = 60;
const MAX_OCTETS: u64 = 60_000;

/// A segment that was sent and is not acknowledged.
struct SentSegment {
    start: u64,
    /// Position after its octets and its FIN.
    end: u64,
    time_ns: u64,
    captured: bool,
}

/// One endpoint of a conversation. Positions are those of [`Segment`].
pub(super) struct Side {
    /// Sequence number of the SYN.
    pub(super) first: u32,
    /// IPv4 identification of the last packet; always 0 if the host sends none.
    pub(super) identification: u16,
    pub(super) ttl: u8,
    /// Delay from this side to the capture point.
    pub(super) to_capture_point_ns: u64,
    /// Transmission time of one segment.
    pub(super) pace_ns: u64,
    /// Position after the application's last octet, and whether there will be no more.
    pub(super) end: u64,
    pub(super) closed: bool,
    /// First position that was never sent.
    next: u64,
    /// First position that is not acknowledged.
    acknowledged: u64,
    flight: VecDeque<SentSegment>,
    /// Congestion window in segments: current and largest.
    window_segments: u32,
    pub(super) max_window_segments: u32,
    /// First unsent position when the last retransmission began; recovery lasts until it is
    /// acknowledged.
    recover: u64,
    departed_ns: u64,
    pub(super) retransmit_ns: u64,
    pub(super) timeout_ns: u64,
    timeouts: u32,
    /// Octets received from the peer.
    received: Octets,
    fin: Option<u64>,
    unacknowledged: u8,
    pub(super) acknowledge_ns: u64,
    /// Window that it announces.
    pub(super) window: u16,
}

impl Side {
    /// An idle side before the handshake.
    pub(super) fn new(
        first: u32,
        identification: u16,
        ttl: u8,
        to_capture_point_ns: u64,
        pace_ns: u64,
        max_window_segments: u32,
    ) -> Self {
        let mut received = Octets::default();
        received.add(0, 1);
        Self {
            first,
            identification,
            ttl,
            to_capture_point_ns,
            pace_ns,
            end: 1,
            closed: false,
            next: 1,
            acknowledged: 1,
            flight: VecDeque::new(),
            window_segments: max_window_segments.min(10),
            max_window_segments,
            recover: 0,
            departed_ns: 0,
            retransmit_ns: NEVER,
            timeout_ns: NEVER,
            timeouts: 0,
            received,
            fin: None,
            unacknowledged: 0,
            acknowledge_ns: NEVER,
            window: WINDOW,
        }
    }

    pub(super) fn next_ns(&self) -> u64 {
        self.retransmit_ns.min(self.timeout_ns).min(self.acknowledge_ns)
    }

    /// Returns the next position that it expects from the peer.
    pub(super) fn next_expected(&self) -> u64 {
        let next = self.received.first_gap();
        next + u64::from(self.fin == Some(next))
    }

    /// Creates a segment without octets that this side would send now, with the next
    /// identification.
    pub(super) fn segment(&mut self, side: u8, flags: u8, kind: Kind) -> Segment {
        if self.identification != 0 {
            // 0 marks hosts without identification.
            self.identification = self.identification.checked_add(1).unwrap_or(1);
        }
        Segment {
            side,
            flags,
            kind,
            duplication: Duplication::Original,
            lost: false,
            ttl: self.ttl,
            identification: self.identification,
            window: self.window,
            length: 0,
            start: self.next,
            acknowledgment: self.next_expected(),
        }
    }

    /// Returns when a segment that is ready now has been sent; segments are sent one after the
    /// other.
    pub(super) fn transmission_end(&mut self, now_ns: u64, pace_ns: u64) -> u64 {
        self.departed_ns = self.departed_ns.max(now_ns) + pace_ns;
        self.departed_ns
    }

    /// Returns the end of the octets before a position that may include a FIN.
    fn octets_end(&self, end: u64) -> u64 {
        end.min(self.end)
    }

    /// Returns when the first unacknowledged segment is retransmitted, unless the acknowledgments
    /// advance.
    fn retransmission_time(&self, now_ns: u64, round_trip_ns: u64) -> u64 {
        let mut flight = self.flight.iter();
        let sent_ns = flight.next().map_or(0, |front| front.time_ns);
        // For the capture point, the gap begins with the first later segment that it captures.
        let gap_ns = flight.filter(|later| later.captured).map(|later| later.time_ns).min().unwrap_or(0);
        now_ns.max(sent_ns.max(gap_ns) + round_trip_ns) + RETRANSMIT_NS
    }

    /// Removes the first segment in flight, if it is completely acknowledged.
    fn pop_acknowledged(&mut self, position: u64) -> Option<SentSegment> {
        self.flight.front().filter(|front| front.end <= position)?;
        self.flight.pop_front()
    }

    /// Restarts the retransmission timeout, or stops it when nothing is in flight.
    fn set_timeout(&mut self, now_ns: u64, round_trip_ns: u64) {
        let wait_ns = (TIMEOUT_NS + 2 * round_trip_ns) << self.timeouts.min(4);
        self.timeout_ns = if self.flight.is_empty() { NEVER } else { now_ns.max(self.departed_ns) + wait_ns };
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hop {
    CapturePoint,
    Receiver,
}

/// Segments in flight, ordered by time, then by transmission.
#[derive(Default)]
pub(super) struct InFlight {
    pub(super) heap: BinaryHeap<Reverse<(u64, u32, Hop, Segment)>>,
    sent: u32,
}

impl InFlight {
    pub(super) fn push(&mut self, time_ns: u64, place: Hop, segment: Segment) {
        self.heap.push(Reverse((time_ns, self.sent, place, segment)));
        self.sent = self.sent.wrapping_add(1);
    }

    pub(super) fn next_ns(&self) -> u64 {
        self.heap.peek().map_or(NEVER, |Reverse((time_ns, ..))| *time_ns)
    }
}

pub(super) struct Exchange {
    pub(super) sides: [Side; 2],
    pub(super) in_flight: InFlight,
    pub(super) round_trip_ns: u64,
    /// Octets of a full segment, and of the longest that fits into a frame.
    pub(super) full: u16,
    pub(super) longest: u16,
    /// The last data segment carries the FIN.
    pub(super) fin_with_data: bool,
}

impl Exchange {
    /// Sends the application's data within the congestion window; during recovery only `extra`
    /// segments.
    pub(super) fn send(&mut self, side: u8, mut extra: u32, now_ns: u64, chance: &mut Chance<'_>) {
        let &mut Self { full, round_trip_ns, fin_with_data, .. } = self;
        let full = u64::from(full);
        loop {
            let at = &mut self.sides[usize::from(side)];
            let recovering = at.retransmit_ns != NEVER || at.acknowledged < at.recover;
            let start = at.next;
            let mut end = at.end.min(start + full);
            if at.end.saturating_sub(end) == 1 {
                // A single octet would look like a keep-alive or a zero-window probe.
                end -= 1;
            }
            let last = end == at.end && at.closed;
            let end = if last && (start == at.end || fin_with_data) { end + 1 } else { end.max(start) };
            if start >= end || (recovering && extra == 0) {
                break;
            }
            let window_segments = (u64::from(at.window_segments) * full).min(MAX_OCTETS);
            if !at.flight.is_empty() && (end - at.acknowledged > window_segments || at.flight.len() >= MAX_SEGMENTS) {
                break;
            }
            extra = extra.saturating_sub(1);
            at.next = end;
            let (captured, time_ns) = self.transmit(side, start, end, Kind::Data, now_ns, chance);
            let at = &mut self.sides[usize::from(side)];
            at.flight.push_back(SentSegment { start, end, time_ns, captured });
            at.set_timeout(now_ns, round_trip_ns);
        }
    }

    /// Sends one segment of these positions. Returns whether the capture point captures it, and the
    /// end of its transmission.
    fn transmit(
        &mut self,
        side: u8,
        start: u64,
        end: u64,
        kind: Kind,
        now_ns: u64,
        chance: &mut Chance<'_>,
    ) -> (bool, u64) {
        let fate = chance.fate();
        let reordered = kind == Kind::Data && chance.random.chance(chance.probabilities.reorder);
        let delay_ns = if reordered { u64::from(chance.random.between(REORDER_NS)) } else { 0 };
        let at = &mut self.sides[usize::from(side)];
        let octets_end = at.octets_end(end);
        let push = if octets_end == at.end && octets_end > start { PSH } else { 0 };
        let fin = if end > octets_end { FIN } else { 0 };
        let mut segment = at.segment(side, ACK | push | fin, if reordered { Kind::Delayed } else { kind });
        segment.start = start;
        segment.length = (octets_end - start) as u16;
        segment.lost = fate.is_lost;
        (at.unacknowledged, at.acknowledge_ns) = (0, NEVER);
        let sent_ns = at.transmission_end(now_ns, at.pace_ns);
        if fate.is_captured {
            self.in_flight.push(sent_ns + at.to_capture_point_ns + delay_ns, Hop::CapturePoint, segment);
        }
        (fate.is_captured, sent_ns)
    }

    /// Retransmits the segment that the peer expects, with the same or other boundaries.
    pub(super) fn retransmit(&mut self, side: u8, now_ns: u64, chance: &mut Chance<'_>) {
        let round_trip_ns = self.round_trip_ns;
        let at = &mut self.sides[usize::from(side)];
        at.timeouts += u32::from(at.timeout_ns <= now_ns);
        at.retransmit_ns = NEVER;
        at.window_segments = (at.window_segments / 2).max(2);
        let front = at.flight.front().expect("a timer runs while something is in flight");
        let (start, end) = (front.start, front.end);
        let mut departed_ns = now_ns;
        for (start, end) in self.resegment(side, start, end, chance).into_iter().flatten() {
            let (captured, time_ns) = self.transmit(side, start, end, Kind::Retransmission, now_ns, chance);
            departed_ns = time_ns;
            let at = &mut self.sides[usize::from(side)];
            if end > at.next {
                at.flight.push_back(SentSegment { start: at.next, end, time_ns, captured });
                at.next = end;
            }
        }
        let at = &mut self.sides[usize::from(side)];
        at.flight[0].time_ns = departed_ns;
        at.recover = at.next;
        at.set_timeout(now_ns, round_trip_ns);
        let extra = chance.random.below(4).saturating_sub(1) as u32;
        self.send(side, extra, now_ns, chance);
    }

    /// Returns the segments that retransmit a segment: itself, two parts of it, itself with
    /// following octets (which may be new), or the same number of octets from an earlier position.
    /// No part and no remaining gap is a single octet, which would look like a keep-alive.
    fn resegment(&self, side: u8, start: u64, end: u64, chance: &mut Chance<'_>) -> [Option<(u64, u64)>; 2] {
        let at = &self.sides[usize::from(side)];
        let octets_end = at.octets_end(end);
        let length = octets_end - start;
        let whole = [Some((start, end)), None];
        if length < 4 || !chance.random.chance(chance.probabilities.recut) {
            return whole;
        }
        let room = u64::from(self.longest) - length;
        let more = room.min(at.end - octets_end);
        match chance.random.below(3) {
            0 if end == octets_end && more >= 4 => {
                let mut joined = octets_end + 2 + chance.random.below(more - 1);
                let cut_end = at.flight.iter().map(|sent| at.octets_end(sent.end)).find(|&end| end >= joined);
                if cut_end.unwrap_or(at.end) - joined == 1 || at.end - joined == 1 || joined == at.next + 1 {
                    joined -= 1;
                }
                let fin = u64::from(joined == at.end && at.next > at.end);
                [Some((start, joined + fin)), None]
            }
            1 if start > 2 => {
                let shift = 2 + chance.random.below((length - 3).min(start - 2));
                [Some((start - shift, octets_end - shift)), None]
            }
            _ => {
                let middle = start + 2 + chance.random.below(length - 3);
                [Some((start, middle)), Some((middle, end))]
            }
        }
    }

    pub(super) fn process_acknowledgment(&mut self, side: u8, segment: &Segment, now_ns: u64, chance: &mut Chance<'_>) {
        let round_trip_ns = self.round_trip_ns;
        let at = &mut self.sides[usize::from(side)];
        let position = segment.acknowledgment;
        if position > at.acknowledged {
            at.acknowledged = position;
            at.timeouts = 0;
            at.retransmit_ns = NEVER;
            at.window_segments = (at.window_segments + 1).min(at.max_window_segments);
            while let Some(sent) = self.sides[usize::from(side)].pop_acknowledged(position) {
                if sent.time_ns + round_trip_ns <= now_ns && chance.random.chance(chance.probabilities.spurious) {
                    self.transmit(side, sent.start, sent.end, Kind::Retransmission, now_ns, chance);
                }
            }
            let at = &mut self.sides[usize::from(side)];
            if let Some(front) = at.flight.front_mut() {
                front.start = front.start.max(position);
                if position < at.recover {
                    at.retransmit_ns = at.retransmission_time(now_ns, round_trip_ns);
                }
            }
            at.set_timeout(now_ns, round_trip_ns);
        } else if segment.kind == Kind::Ack && position == at.acknowledged && position >= at.recover {
            // A duplicate acknowledgment: a later segment has arrived.
            if !at.flight.is_empty() && at.retransmit_ns == NEVER {
                at.retransmit_ns = at.retransmission_time(now_ns, round_trip_ns);
            }
        }
    }

    /// Receives octets and a FIN. Acknowledges every second segment in order, and all other
    /// segments at once.
    pub(super) fn receive_data(&mut self, side: u8, segment: &Segment, now_ns: u64, chance: &mut Chance<'_>) {
        let at = &mut self.sides[usize::from(side)];
        let end = segment.start + u64::from(segment.length);
        let expected = at.next_expected();
        // A FIN that was received earlier follows a gap.
        let had_gaps = at.received.has_gaps() || at.fin.is_some();
        let repeated = at.received.add(segment.start, end);
        let fin = segment.flags & FIN != 0;
        let old = repeated == u64::from(segment.length) && (!fin || at.fin.is_some());
        if fin {
            at.fin = Some(end);
        }
        let in_order = segment.start == expected && !had_gaps && !fin;
        if in_order && at.unacknowledged == 0 {
            at.unacknowledged = 1;
            at.acknowledge_ns = now_ns + u64::from(chance.random.between(DELAYED_ACK_NS));
        } else {
            self.acknowledge(side, if old { Kind::AckOld } else { Kind::Ack }, now_ns);
        }
        let at = &mut self.sides[usize::from(side)];
        let all = at.fin.is_some_and(|fin| at.next_expected() > fin);
        if all && !at.closed && chance.random.below(2) == 0 {
            at.closed = true;
        }
    }

    pub(super) fn acknowledge(&mut self, side: u8, kind: Kind, now_ns: u64) {
        let at = &mut self.sides[usize::from(side)];
        (at.unacknowledged, at.acknowledge_ns) = (0, NEVER);
        self.send_control(side, ACK, kind, now_ns);
    }

    /// Sends a segment without octets, which is never lost.
    pub(super) fn send_control(&mut self, side: u8, flags: u8, kind: Kind, now_ns: u64) {
        let at = &mut self.sides[usize::from(side)];
        let segment = at.segment(side, flags, kind);
        let sent_ns = at.transmission_end(now_ns, 2_000);
        self.in_flight.push(sent_ns + at.to_capture_point_ns, Hop::CapturePoint, segment);
    }
}
