//! The definition of Weir's TCP fields as a program: slow, unbounded in time but not in rules, meant to be read beside
//! `docs/tcp.md`. What is fast elsewhere is tested against it.

use crate::rules::{
    COPY_TICKS, FAR, IDENTIFIED_COPY_TICKS, LEAP, MAX_HOLES, REMEMBERED, REMEMBERED_DEEP, REORDERING_NS, SUSPICIOUS,
    SUSPICIOUS_DEEP, first_position, is_after, is_first_fragment, is_identified, is_segment, is_told_by_itself, near,
    tick, ticks_between,
};
use crate::{Degradation, SegmentClass, TcpReport};
use std::collections::VecDeque;
use std::ops::Range;
use weir_packet::Packet;

/// A connection: what its two endpoints sent.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    halves: [Half; 2],
}

/// What one endpoint sent.
#[derive(Clone, Debug, Default)]
struct Half {
    /// From the first SYN, payload or FIN on.
    seen: Option<Seen>,
    /// Position of the SYN, if there was one.
    isn: Option<u64>,
    /// Position of the first FIN.
    fin: Option<u64>,
    /// There was another SYN or FIN, at another position.
    several: bool,
    /// It sent FIN or RST.
    ended: bool,
    /// Its SYN acknowledged one of the other side.
    answers: bool,
    /// Time of the SYN, and of its last repetition.
    syn_ns: u64,
    last_syn_ns: u64,
    fin_ns: u64,
    /// Greatest acknowledgment number it sent.
    acknowledged: Option<u32>,
    /// Window of the last segment that only acknowledged.
    window: u16,
    /// The last window it announced was 0.
    zero_window: bool,
    /// Sequence number of the last segment with payload or FIN, if it was out of window.
    strange: Option<u32>,
    /// The last segments that were no copies, the latest first.
    recent: VecDeque<Packet>,
    /// A copy was found: more are remembered.
    copied: bool,
    report: TcpReport,
}

/// Positions in the stream: `lowest..highest` were seen, but for the holes. A position is a sequence number in 64 bits,
/// of which the low 32 are what the wire has. A FIN takes a position, as an octet does.
#[derive(Clone, Debug)]
struct Seen {
    lowest: u64,
    highest: u64,
    since_ns: u64,
    /// In order of position.
    holes: Vec<Hole>,
}

#[derive(Clone, Copy, Debug)]
struct Hole {
    start: u64,
    end: u64,
    since_ns: u64,
}

impl Reference {
    /// Enters a packet of one side (0 or 1), and says what it was.
    pub fn enter(&mut self, side: usize, packet: &Packet) -> SegmentClass {
        let [low, high] = &mut self.halves;
        let (own, peer) = if side == 0 { (low, &*high) } else { (high, &*low) };
        let class = own.classify(peer, packet);
        let count = &mut own.report.classes[class as usize];
        count.segments += 1;
        if class != SegmentClass::Unread {
            count.bytes += u64::from(packet.payload_bytes);
        }
        class
    }

    /// What one side sent in this record.
    pub fn report(&self, side: usize) -> TcpReport {
        let half = &self.halves[side];
        let mut report = half.report;
        if let Some(seen) = &half.seen {
            report.missing_bytes += seen.missing();
        }
        if let (Some(isn), Some(fin), false) = (half.isn, half.fin, half.several) {
            report.size_by_sequence_bytes = fin.checked_sub(isn + 1);
            report.duration_by_sequence_ns = half.fin_ns.checked_sub(half.syn_ns);
        }
        report
    }

    /// Begins another record of the same connection: what was counted is counted anew.
    pub fn next_record(&mut self) {
        for half in &mut self.halves {
            let TcpReport { syn_window, maximum_segment_size, window_scale, handshake_rtt_ns, .. } = half.report;
            half.report =
                TcpReport { syn_window, maximum_segment_size, window_scale, handshake_rtt_ns, ..TcpReport::default() };
        }
    }
}

impl Half {
    fn classify(&mut self, peer: &Half, packet: &Packet) -> SegmentClass {
        if !is_segment(packet) {
            self.report.degradation.0 |= Degradation::UNREAD;
            return SegmentClass::Unread;
        }
        if is_first_fragment(packet) {
            // What the others bring is missing.
            self.report.degradation.0 |= Degradation::UNREAD;
        }
        if let Some(age) = self.recent.iter().position(|earlier| is_copy(earlier, packet)) {
            if age >= if self.copied { SUSPICIOUS_DEEP } else { SUSPICIOUS } {
                self.report.degradation.0 |= Degradation::DUPLICATES;
            }
            self.copied = true;
            let same_ttl = self.recent[age].ttl == packet.ttl;
            return if same_ttl { SegmentClass::Duplicate } else { SegmentClass::RoutedDuplicate };
        }
        let has = |bit| packet.control & bit != 0;
        let class = if has(Packet::RST) {
            self.ended = true;
            SegmentClass::Reset
        } else if has(Packet::SYN) {
            self.synchronize(peer, packet)
        } else {
            self.receive(peer, packet)
        };
        if class == SegmentClass::OutOfWindow {
            return class;
        }
        if class != SegmentClass::Reset {
            self.zero_window = packet.window == 0;
            self.report.zero_windows += u64::from(self.zero_window);
            if has(Packet::ACK) {
                self.acknowledge(peer, packet);
            }
        }
        self.recent.push_front(*packet);
        self.recent.truncate(self.remembered());
        class
    }

    /// How many segments it remembers.
    fn remembered(&self) -> usize {
        if self.copied { REMEMBERED_DEEP } else { REMEMBERED }
    }

    /// A segment with SYN.
    fn synchronize(&mut self, peer: &Half, packet: &Packet) -> SegmentClass {
        if u64::from(packet.payload_bytes) >= FAR {
            return SegmentClass::OutOfWindow;
        }
        let again = self.isn.is_some_and(|isn| isn as u32 == packet.sequence);
        if !again {
            let first = packet.sequence.wrapping_add(1);
            // It may have been overtaken by what follows it.
            let behind = self.seen.as_ref().map(|seen| (seen.lowest as u32).wrapping_sub(first));
            let overtaken = self.isn.is_none() && behind.is_some_and(|behind| u64::from(behind) < FAR);
            if !overtaken {
                self.begin_anew(peer, packet, first_position(first));
            }
            let seen = self.seen.as_mut().expect("it has begun");
            let first = near(seen.lowest, first);
            if first < seen.lowest {
                seen.holes.insert(0, Hole { start: first, end: seen.lowest, since_ns: seen.since_ns });
                seen.lowest = first;
                self.settle();
            }
            self.isn = Some(first - 1);
            self.syn_ns = packet.time_ns;
            self.answers = packet.control & Packet::ACK != 0;
            let handshake_rtt_ns = if self.answers { peer.time_since_syn(packet) } else { None };
            self.report.syn_window = Some(packet.window);
            self.report.maximum_segment_size = packet.maximum_segment_size();
            self.report.window_scale = packet.window_scale();
            self.report.handshake_rtt_ns = handshake_rtt_ns;
        }
        self.last_syn_ns = packet.time_ns;
        self.take(self.isn.expect("there is one") + 1, packet);
        if again { SegmentClass::SynRetransmission } else { SegmentClass::Syn }
    }

    /// A SYN begins a connection, perhaps another one between the same ports.
    fn begin_anew(&mut self, peer: &Half, packet: &Packet, first: u64) {
        if self.seen.is_some() {
            if !self.ended && !peer.ended {
                self.report.degradation.0 |= Degradation::REUSED;
            }
            self.give_up();
        }
        self.seen = Some(Seen::nothing(first, packet.time_ns));
        self.ended = false;
        self.recent.clear();
        self.acknowledged = None;
        self.window = 0;
    }

    /// What is known belongs to something else than what comes.
    fn give_up(&mut self) {
        let seen = self.seen.take();
        self.report.missing_bytes += seen.map_or(0, |seen| seen.missing());
        self.isn = None;
        self.several = true;
        self.strange = None;
        self.recent.clear();
    }

    /// A segment without SYN and RST.
    fn receive(&mut self, peer: &Half, packet: &Packet) -> SegmentClass {
        let fin = packet.control & Packet::FIN != 0;
        let payload = packet.payload_bytes;
        if let Some(seen) = &self.seen
            && !fin
        {
            let next = seen.highest as u32;
            let again = payload <= 1 && packet.sequence == next.wrapping_sub(1);
            // What lies before the first octet is a SYN.
            let probes = packet.sequence == next || again && seen.lowest < seen.highest;
            if payload == 1 && probes && peer.zero_window {
                self.strange = None;
                self.take(seen.highest - u64::from(again), packet);
                return SegmentClass::ZeroWindowProbe;
            }
            if again {
                return SegmentClass::KeepAlive;
            }
        }
        if payload == 0 && !fin {
            let repeats = packet.control & Packet::ACK != 0
                && self.acknowledged == Some(packet.acknowledgment)
                && self.window == packet.window
                && packet.window != 0;
            let outstanding =
                peer.seen.as_ref().is_some_and(|seen| is_after(seen.highest as u32, packet.acknowledgment));
            self.window = packet.window;
            return if repeats && outstanding {
                SegmentClass::DuplicateAcknowledgment
            } else {
                SegmentClass::Acknowledgment
            };
        }

        let Some(seen) = &self.seen else {
            if u64::from(payload) >= FAR {
                return SegmentClass::OutOfWindow;
            }
            return self.begin_amid(packet);
        };
        let start = near(seen.highest, packet.sequence);
        let end = start + u64::from(payload) + u64::from(fin);
        let (known, since_ns) = (seen.count(start..end), seen.since(start..end));
        let in_order = start >= seen.highest;
        let before_syn = self.isn.is_some_and(|isn| start <= isn);
        if before_syn || start + FAR <= seen.highest || seen.highest + FAR <= end {
            let near_the_last = |last: u32| (packet.sequence.wrapping_sub(last) as i32).unsigned_abs() < FAR as u32;
            // What reaches into the stream from before its SYN is of it, however odd.
            let is_of_it = self.isn.is_some_and(|isn| start <= isn && end > isn + 1);
            let agrees = self.strange.is_some_and(near_the_last) && !is_of_it && u64::from(payload) < FAR;
            if agrees {
                // Two in a row that agree with each other: what was known is of another time.
                self.report.degradation.0 |= Degradation::JUMP;
                self.give_up();
                return self.begin_amid(packet);
            }
            self.strange = Some(packet.sequence);
            return SegmentClass::OutOfWindow;
        }
        self.strange = None;
        self.take(start, packet);
        if in_order {
            return SegmentClass::InOrder;
        }
        if known > 0 {
            self.report.partial_retransmissions += u64::from(known < end - start);
            let acknowledged = peer.acknowledged.is_some_and(|acknowledged| !is_after(end as u32, acknowledged));
            self.report.spurious_retransmissions += u64::from(acknowledged);
            return SegmentClass::Retransmission;
        }
        let limit_ns = match (self.report.handshake_rtt_ns, peer.report.handshake_rtt_ns) {
            (Some(own_ns), Some(peer_ns)) => own_ns.saturating_add(peer_ns),
            _ => REORDERING_NS,
        };
        let soon = packet.time_ns.saturating_sub(since_ns) <= limit_ns;
        if soon { SegmentClass::OutOfOrder } else { SegmentClass::UnseenRetransmission }
    }

    /// The first payload or FIN that is known, without a SYN.
    fn begin_amid(&mut self, packet: &Packet) -> SegmentClass {
        let first = first_position(packet.sequence);
        self.seen = Some(Seen::nothing(first, packet.time_ns));
        self.take(first, packet);
        SegmentClass::InOrder
    }

    /// Takes payload and FIN into what was seen.
    fn take(&mut self, start: u64, packet: &Packet) {
        let seen = self.seen.as_mut().expect("it has begun");
        let payload = start..start + u64::from(packet.payload_bytes);
        let known = seen.count(payload.clone());
        self.report.retransmitted_bytes += known;
        self.report.unique_bytes += u64::from(packet.payload_bytes) - known;
        self.report.largest_hole_bytes = self.report.largest_hole_bytes.max(start.saturating_sub(seen.highest));
        let fin = packet.control & Packet::FIN != 0;
        if packet.payload_bytes > 0 || fin {
            seen.add(start..payload.end + u64::from(fin), packet.time_ns);
        }
        if fin {
            self.ended = true;
            self.report.fins += 1;
            match self.fin {
                None => (self.fin, self.fin_ns) = (Some(payload.end), packet.time_ns),
                Some(known) => self.several |= known != payload.end,
            }
        }
        self.settle();
    }

    /// Of too many holes the lowest is taken as seen.
    fn settle(&mut self) {
        let seen = self.seen.as_mut().expect("it has begun");
        while seen.holes.len() > MAX_HOLES {
            let hole = seen.holes.remove(0);
            self.report.missing_bytes += hole.end - hole.start;
            self.report.degradation.0 |= Degradation::HOLES;
        }
    }

    fn acknowledge(&mut self, peer: &Half, packet: &Packet) {
        let Some(before) = self.acknowledged.replace(packet.acknowledgment) else {
            if packet.control & Packet::SYN == 0 && peer.answers && self.report.handshake_rtt_ns.is_none() {
                self.report.handshake_rtt_ns = peer.time_since_syn(packet);
            }
            return;
        };
        if is_after(before, packet.acknowledgment) {
            self.acknowledged = Some(before);
        } else if packet.acknowledgment.wrapping_sub(before) >= LEAP {
            self.recent.clear();
        }
    }

    /// Time since its last SYN, if a segment of the other side acknowledges that.
    fn time_since_syn(&self, answer: &Packet) -> Option<u64> {
        let (isn, seen) = (self.isn?, self.seen.as_ref()?);
        let number = answer.acknowledgment;
        let acknowledges = is_after(number, isn as u32) && !is_after(number, seen.highest as u32);
        if acknowledges { answer.time_ns.checked_sub(self.last_syn_ns) } else { None }
    }
}

impl Seen {
    /// Nothing yet, from a position on.
    fn nothing(first: u64, now_ns: u64) -> Self {
        Self { lowest: first, highest: first, since_ns: now_ns, holes: Vec::new() }
    }

    /// How many positions of a range were seen.
    fn count(&self, range: Range<u64>) -> u64 {
        let within = overlap(&range, self.lowest..self.highest);
        within - self.holes.iter().map(|hole| overlap(&range, hole.start..hole.end)).sum::<u64>()
    }

    /// Since when it is known that a range is missing: of its lowest hole, or of the beginning.
    fn since(&self, range: Range<u64>) -> u64 {
        let hole = self.holes.iter().find(|hole| overlap(&range, hole.start..hole.end) > 0);
        hole.map_or(self.since_ns, |hole| hole.since_ns)
    }

    fn missing(&self) -> u64 {
        self.holes.iter().map(|hole| hole.end - hole.start).sum()
    }

    /// Marks a range as seen.
    fn add(&mut self, range: Range<u64>, now_ns: u64) {
        let Range { start, end } = range;
        if start > self.highest {
            self.holes.push(Hole { start: self.highest, end: start, since_ns: now_ns });
        }
        if end < self.lowest {
            self.holes.insert(0, Hole { start: end, end: self.lowest, since_ns: self.since_ns });
        }
        self.lowest = self.lowest.min(start);
        self.highest = self.highest.max(end);
        let around =
            |hole: Hole| [Hole { end: hole.end.min(start), ..hole }, Hole { start: hole.start.max(end), ..hole }];
        self.holes = self.holes.drain(..).flat_map(around).filter(|hole| hole.start < hole.end).collect();
    }
}

/// Whether a packet is a copy of an earlier one of its direction.
fn is_copy(earlier: &Packet, packet: &Packet) -> bool {
    let facts = |p: &Packet| {
        (p.sequence, p.acknowledgment, p.payload_bytes, p.control, p.window, p.icmp_or_checksum, p.identification)
    };
    let identified = is_identified(packet);
    let limit = if identified { IDENTIFIED_COPY_TICKS } else { COPY_TICKS };
    facts(earlier) == facts(packet)
        && (identified || is_told_by_itself(packet.payload_bytes, packet.control))
        && ticks_between(tick(earlier.time_ns), tick(packet.time_ns)) <= limit
}

fn overlap(one: &Range<u64>, other: Range<u64>) -> u64 {
    one.end.min(other.end).saturating_sub(one.start.max(other.start))
}
