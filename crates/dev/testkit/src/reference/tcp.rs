//! The TCP rules of `docs/tcp.md` as a slow and plain program, written from that page alone: the
//! fast implementations are tested against it. Read it beside that page. It shares no code with
//! them, and keeps what was seen instead of what is missing.
//!
//! In: packets of one connection in the order of the capture, with their side. Out: the class of
//! each, a report per side and record, and the rules that the packets reached, so that a test can
//! check its coverage.

use std::collections::{BTreeSet, VecDeque};
use std::iter::once;
use std::ops::Range;
use weir_packet::{Flags, Network, Packet};
use weir_tcp::{Degradation, SegmentClass, TcpReport};

/// Remembered segments of a side, before and after its first duplicate.
const HISTORY: usize = 4;
const DEEP_HISTORY: usize = 64;
/// Most holes of a side.
const MAX_HOLES: usize = 32;
/// Largest possible window (RFC 7323 section 2.3), octets.
const MAX_WINDOW: u64 = 1 << 30;
/// An acknowledgment that advances this far clears the history.
const ACKNOWLEDGMENT_JUMP: u32 = 1 << 28;
/// Longest age of a hole that is filled out of order, if the round-trip time is unknown.
const DEFAULT_REORDERING_NS: u64 = 3_000_000;

/// A connection: what both sides sent.
#[derive(Clone, Debug, Default)]
pub struct TcpReference {
    sides: [Side; 2],
    reached: BTreeSet<&'static str>,
}

/// What one side sent.
#[derive(Clone, Debug, Default)]
struct Side {
    /// From the first SYN, payload or FIN on.
    stream: Option<Stream>,
    syn: Option<Packet>,
    /// Time of the last retransmission of that SYN.
    last_syn_ns: u64,
    /// Position and time of the first FIN.
    fin: Option<(u64, u64)>,
    /// There was another SYN or FIN, at another position.
    several: bool,
    /// It sent FIN or RST.
    ended: bool,
    /// Greatest acknowledgment number it sent.
    acknowledged: Option<u32>,
    /// Window of the last segment without payload.
    last_window: Option<u16>,
    /// The last window it announced was 0.
    zero_window: bool,
    /// Sequence number of the last segment with payload or FIN, if that was out of window.
    out_of_window: Option<u32>,
    /// Remembered segments, the latest first, and the one before them.
    remembered: VecDeque<Packet>,
    /// Sequence number after the request that waits for its answer, and time of its last payload.
    request: Option<(u32, u64)>,
    /// Sequence number after the timed segment that waits for its acknowledgment, and its time.
    timed: Option<(u32, u64)>,
    /// Of the last segment in order or SYN.
    last_identification: Option<u16>,
    /// A duplicate was found: the history is deep.
    has_duplicates: bool,
    report: TcpReport,
}

/// The positions of a side. A position is a sequence number continued to 64 bits. A FIN takes a
/// position, as an octet does.
#[derive(Clone, Debug)]
struct Stream {
    lowest: u64,
    next: u64,
    started_ns: u64,
    /// Ranges that were seen or settled, in the order of their positions. They do not touch.
    seen: Vec<Range<u64>>,
    /// The holes as they opened. They may have been filled since.
    gaps: Vec<Gap>,
    /// End of the highest hole that was settled.
    settled_end: u64,
}

/// A hole as it opened.
#[derive(Clone, Debug)]
struct Gap {
    range: Range<u64>,
    since_ns: u64,
    /// Of the segment that opened it, if its sender counts.
    identification: Option<u16>,
}

/// One side while it sends a packet.
struct Sender<'a> {
    own: &'a mut Side,
    peer: &'a mut Side,
    reached: &'a mut BTreeSet<&'static str>,
}

impl TcpReference {
    /// Enters a packet of a side (0 or 1) and returns its class.
    pub fn enter(&mut self, side: usize, packet: &Packet) -> SegmentClass {
        let [low, high] = &mut self.sides;
        let (own, peer) = if side == 0 { (low, high) } else { (high, low) };
        let mut sender = Sender { own, peer, reached: &mut self.reached };
        let class = sender.classify(packet);
        let count = &mut sender.own.report.classes[class as usize];
        count.segments += 1;
        if class != SegmentClass::Unread {
            count.bytes += u64::from(packet.payload_bytes);
        }
        class
    }

    /// Report of one side and this record.
    pub fn report(&self, side: usize) -> TcpReport {
        let Side { report, stream, syn, fin, several, .. } = &self.sides[side];
        let mut report = *report;
        let Some(stream) = stream else { return report };
        report.missing_bytes += stream.missing();
        // With a SYN, the lowest position is the one after it.
        if let (Some(syn), &Some((fin, fin_ns)), false) = (syn, fin, several) {
            report.size_by_sequence_bytes = fin.checked_sub(stream.lowest);
            report.duration_by_sequence_ns = fin_ns.checked_sub(syn.time_ns);
        }
        report
    }

    /// Starts the next record of the connection: all counters start at 0.
    pub fn start_next_record(&mut self) {
        for side in &mut self.sides {
            let TcpReport { syn_window, maximum_segment_size, window_scale, handshake_rtt_ns, .. } = side.report;
            side.report =
                TcpReport { syn_window, maximum_segment_size, window_scale, handshake_rtt_ns, ..TcpReport::default() };
        }
    }

    /// The rules that packets reached, by name.
    pub fn reached(&self) -> &BTreeSet<&'static str> {
        &self.reached
    }
}

impl Sender<'_> {
    fn reach(&mut self, rule: &'static str) {
        self.reached.insert(rule);
    }

    fn reach_if(&mut self, applies: bool, rule: &'static str) {
        if applies {
            self.reach(rule);
        }
    }

    fn degrade(&mut self, bit: u8) {
        self.own.report.degradation.0 |= bit;
    }

    fn stream(&mut self) -> &mut Stream {
        self.own.stream.as_mut().expect("the positions have started")
    }

    fn classify(&mut self, packet: &Packet) -> SegmentClass {
        if !packet.flags.has(Flags::TCP) {
            self.degrade(Degradation::UNREAD);
            return SegmentClass::Unread;
        }
        let is_first_fragment = packet.flags.has(Flags::FRAGMENT_FIRST);
        if is_first_fragment {
            // The payload of the later fragments is missing.
            self.degrade(Degradation::UNREAD);
            self.reach("first fragment");
        }
        if let Some(class) = self.duplicate(packet) {
            self.reach_if(is_first_fragment, "duplicate of a first fragment");
            return class;
        }
        let has = |bit| packet.control & bit != 0;
        let class = if has(Packet::RST) {
            self.own.ended = true;
            SegmentClass::Reset
        } else if has(Packet::SYN) {
            self.synchronize(packet)
        } else {
            self.receive(packet)
        };
        if class == SegmentClass::OutOfWindow {
            return class;
        }
        if class != SegmentClass::Reset {
            self.own.zero_window = packet.window == 0;
            self.own.report.zero_windows += u64::from(self.own.zero_window);
            let is_acknowledgment = class == SegmentClass::Acknowledgment;
            self.reach_if(packet.window == 0 && is_acknowledgment, "zero window of an acknowledgment only");
            self.reach_if(packet.window == 0 && !is_acknowledgment, "zero window");
            if has(Packet::ACK) {
                self.acknowledge(packet);
            }
            self.measure_times(packet, class);
        }
        let places = self.own.places();
        self.own.remembered.push_front(*packet);
        self.own.remembered.truncate(places + 1);
        class
    }

    /// The class of a duplicate; `None` if no remembered segment is its original.
    fn duplicate(&mut self, packet: &Packet) -> Option<SegmentClass> {
        let fields = |p: &Packet| {
            (p.sequence, p.acknowledgment, p.payload_bytes, p.control, p.window, p.icmp_or_checksum, p.identification)
        };
        let has = |bits| packet.control & bits != 0;
        let has_identification = identification(packet).is_some();
        let is_sent_once = !has(Packet::RST) && (packet.payload_bytes > 0 || has(Packet::SYN | Packet::FIN));
        let places = self.own.places();
        let remembered = self.own.remembered.iter().copied().enumerate();
        let equal: Vec<_> = remembered.filter(|(_, earlier)| fields(earlier) == fields(packet)).collect();
        for (place, earlier) in equal {
            let ticks = ticks_between(earlier.time_ns, packet.time_ns);
            let is_late = ticks > if has_identification { 48 } else { 1 };
            match (has_identification, is_sent_once) {
                (true, _) if is_late => self.reach("no duplicate: too late, identified"),
                (false, false) if has(Packet::RST) => self.reach("no duplicate: RST without identification"),
                (false, false) => self.reach("no duplicate: acknowledgment without identification"),
                (false, true) if is_late => self.reach("no duplicate: too late, not identified"),
                _ if place == HISTORY && places == HISTORY => self.reach("no duplicate: behind four others"),
                _ if place == DEEP_HISTORY => self.reach("no duplicate: behind 64 others"),
                _ => {
                    self.found_duplicate(place, has_identification);
                    let same_ttl = earlier.ttl == packet.ttl;
                    return Some(if same_ttl { SegmentClass::Duplicate } else { SegmentClass::RoutedDuplicate });
                }
            }
        }
        None
    }

    fn found_duplicate(&mut self, place: usize, has_identification: bool) {
        self.reach_if(has_identification, "duplicate by identification");
        self.reach_if(!has_identification, "duplicate without identification");
        self.reach_if(place == 1, "duplicate at the second place");
        self.reach_if(place >= HISTORY, "duplicate at the fifth place or beyond");
        self.reach_if(place == DEEP_HISTORY - 1, "duplicate at the 64th place");
        if !self.own.has_duplicates && place == HISTORY - 1 {
            self.degrade(Degradation::DUPLICATES);
            self.reach("duplicate at the fourth place");
        } else if place >= DEEP_HISTORY / 2 {
            self.degrade(Degradation::DUPLICATES);
            self.reach("duplicate beyond the 32nd place");
        }
        if !self.own.has_duplicates {
            // Older segments were forgotten before.
            self.own.remembered.truncate(HISTORY);
            self.own.has_duplicates = true;
        }
    }

    /// A segment with SYN.
    fn synchronize(&mut self, packet: &Packet) -> SegmentClass {
        if u64::from(packet.payload_bytes) >= MAX_WINDOW {
            return SegmentClass::OutOfWindow;
        }
        let is_known = self.own.syn.is_some_and(|syn| syn.sequence == packet.sequence);
        if !is_known {
            self.accept_syn(packet);
        }
        self.own.last_syn_ns = packet.time_ns;
        self.reach_if(packet.payload_bytes > 0 && is_known, "SYN retransmission with payload");
        self.reach_if(packet.payload_bytes > 0 && !is_known, "SYN with payload");
        self.reach_if(packet.control & Packet::FIN != 0, "SYN with FIN");
        let first = self.stream().lowest;
        self.take(first, packet);
        if is_known { SegmentClass::SynRetransmission } else { SegmentClass::Syn }
    }

    /// A SYN with a new number.
    fn accept_syn(&mut self, packet: &Packet) {
        let first = packet.sequence.wrapping_add(1);
        let below = self.own.stream.as_ref().map(|stream| u64::from((stream.lowest as u32).wrapping_sub(first)));
        if let Some(below) = below.filter(|&below| self.own.syn.is_none() && below < MAX_WINDOW) {
            // Segments that follow the SYN have overtaken it.
            self.reach("SYN overtaken");
            let stream = self.stream();
            let (range, since_ns) = (stream.lowest - below..stream.lowest, stream.started_ns);
            stream.gaps.push(Gap { range, since_ns, identification: None });
            stream.lowest -= below;
            let were_full = self.limit_holes();
            self.reach_if(were_full, "SYN overtaken, holes full");
        } else {
            self.restart(packet);
        }
        let answer = if packet.control & Packet::ACK != 0 { self.answer(packet) } else { None };
        self.reach_if(answer.is_some(), "handshake of the responder");
        self.own.syn = Some(*packet);
        self.own.report.handshake_rtt_ns = answer;
        self.own.report.syn_window = Some(packet.window);
        self.own.report.maximum_segment_size = packet.maximum_segment_size();
        self.own.report.window_scale = packet.window_scale();
    }

    /// A SYN starts a connection, perhaps another one between the same ports.
    fn restart(&mut self, packet: &Packet) {
        if self.own.stream.is_none() {
            self.reach("starts with a SYN");
        } else {
            self.reach("SYN restarts");
            if self.own.ended || self.peer.ended {
                self.reach("reused: a side had ended");
            } else {
                self.reach("reused: none had ended");
                self.degrade(Degradation::REUSED);
            }
            self.give_up_positions();
        }
        self.own.remembered.clear();
        self.own.stream = Some(Stream::new(packet.sequence.wrapping_add(1), packet.time_ns));
        (self.own.request, self.own.timed, self.own.last_identification) = (None, None, None);
        self.own.ended = false;
        self.own.acknowledged = None;
        self.own.last_window = None;
    }

    fn give_up_positions(&mut self) {
        self.own.report.missing_bytes += self.own.stream.take().map_or(0, |stream| stream.missing());
        self.own.several = true;
        self.own.syn = None;
        self.own.out_of_window = None;
        self.forget("history cleared by a restart", "deep history cleared by a restart");
    }

    fn forget(&mut self, rule: &'static str, rule_if_deep: &'static str) {
        let is_deep = self.own.has_duplicates && self.own.remembered.len() > HISTORY;
        self.own.remembered.clear();
        self.reach(if is_deep { rule_if_deep } else { rule });
    }

    /// Time from the other side's last SYN to a segment that acknowledges it.
    fn answer(&mut self, packet: &Packet) -> Option<u64> {
        let (syn, stream) = (self.peer.syn?, self.peer.stream.as_ref()?);
        let number = packet.acknowledgment;
        if !is_after(number, syn.sequence) || is_after(number, stream.next as u32) {
            self.reach("SYN answered wrongly");
            return None;
        }
        packet.time_ns.checked_sub(self.peer.last_syn_ns)
    }

    /// A segment with ACK.
    fn acknowledge(&mut self, packet: &Packet) {
        let number = packet.acknowledgment;
        let Some(before) = self.own.acknowledged else {
            self.own.acknowledged = Some(number);
            let is_answered = self.peer.syn.is_some_and(|syn| syn.control & Packet::ACK != 0);
            // The SYN-ACK itself is the answer of the responder.
            if is_answered && packet.control & Packet::SYN == 0 && self.own.report.handshake_rtt_ns.is_none() {
                self.own.report.handshake_rtt_ns = self.answer(packet);
                self.reach_if(self.own.report.handshake_rtt_ns.is_some(), "handshake of the initiator");
            }
            return;
        };
        if is_after(before, number) {
            return;
        }
        self.own.acknowledged = Some(number);
        if number.wrapping_sub(before) >= ACKNOWLEDGMENT_JUMP {
            self.forget("history cleared by a jump", "deep history cleared by a jump");
        }
    }

    /// Section 6: what the segment answers and acknowledges, and what it asks.
    fn measure_times(&mut self, packet: &Packet, class: SegmentClass) {
        use SegmentClass::*;
        let is_acknowledged = |end: u32| {
            let ahead = packet.acknowledgment.wrapping_sub(end);
            packet.control & Packet::ACK != 0 && u64::from(ahead) < MAX_WINDOW
        };
        if let Some((_, timed_ns)) = self.peer.timed.take_if(|(end, _)| is_acknowledged(*end)) {
            let trips = &mut self.own.report.round_trips;
            if let Some(rtt_ns) = packet.time_ns.checked_sub(timed_ns) {
                trips.min_ns = if trips.count == 0 { rtt_ns } else { trips.min_ns.min(rtt_ns) };
                trips.max_ns = trips.max_ns.max(rtt_ns);
                trips.sum_ns = trips.sum_ns.saturating_add(rtt_ns);
                trips.count += 1;
                self.reach("round trip");
            } else {
                self.reach("round trip: time runs backwards");
            }
        }
        let brings_octets = packet.payload_bytes > 0 && class != KeepAlive && class != ZeroWindowProbe;
        let is_new = matches!(class, InOrder | Syn);
        if brings_octets && is_new {
            if let Some((_, asked_ns)) = self.peer.request.take_if(|(end, _)| is_acknowledged(*end)) {
                let responses = &mut self.own.report.responses;
                if let Some(response_ns) = packet.time_ns.checked_sub(asked_ns) {
                    responses.first_ns = if responses.count == 0 { response_ns } else { responses.first_ns };
                    responses.max_ns = responses.max_ns.max(response_ns);
                    responses.sum_ns = responses.sum_ns.saturating_add(response_ns);
                    responses.count += 1;
                    self.reach("answer");
                } else {
                    self.reach("answer: time runs backwards");
                }
            } else if self.peer.request.is_some() {
                self.reach("no answer: the request is not acknowledged");
            }
        }
        // Karn's rule: an acknowledgment may be that of the first or of the second transmission.
        if !matches!(class, InOrder | Acknowledgment | DuplicateAcknowledgment) && self.own.timed.take().is_some() {
            self.reach("timed segment discarded");
        }
        if matches!(class, InOrder | Syn | SynRetransmission) {
            self.own.last_identification = identification(packet);
        }
        if !brings_octets {
            return;
        }
        let first = packet.sequence.wrapping_add(u32::from(packet.control & Packet::SYN != 0));
        let end = first.wrapping_add(packet.payload_bytes);
        if !is_new && self.peer.acknowledged.is_some_and(|number| !is_after(end, number)) {
            self.reach("request: not extended, acknowledged before");
            return;
        }
        self.reach_if(!is_new && self.own.request.is_some(), "request: repeated or completed");
        let later_end = match self.own.request {
            Some((known_end, _)) if class != InOrder && is_after(known_end, end) => known_end,
            _ => end,
        };
        self.own.request = Some((later_end, packet.time_ns));
        if class == InOrder && self.own.timed.is_none() {
            self.own.timed = Some((end, packet.time_ns));
        }
    }

    /// A segment without SYN and RST.
    fn receive(&mut self, packet: &Packet) -> SegmentClass {
        let fin = packet.control & Packet::FIN != 0;
        let is_closed = self.peer.zero_window;
        if let Some(&Stream { lowest, next, .. }) = self.own.stream.as_ref() {
            let repeats_last = packet.sequence == (next as u32).wrapping_sub(1);
            let is_next = packet.sequence == next as u32;
            match packet.payload_bytes {
                0 | 1 if repeats_last && fin => self.reach("no keep-alive: FIN"),
                // Before the first octet is the SYN.
                1 if repeats_last && is_closed && lowest < next => {
                    self.reach("probe again");
                    return self.receive_probe(next - 1, packet);
                }
                0 if repeats_last => {
                    self.reach("keep-alive without payload");
                    return SegmentClass::KeepAlive;
                }
                1 if repeats_last => {
                    self.reach("keep-alive with the last octet");
                    return SegmentClass::KeepAlive;
                }
                1 if is_next && !fin && is_closed => {
                    self.reach("probe");
                    return self.receive_probe(next, packet);
                }
                1 => self.reach_if(is_next && !fin, "no probe: window open"),
                _ => {}
            }
        }
        if packet.payload_bytes == 0 && !fin { self.receive_acknowledgment(packet) } else { self.receive_data(packet) }
    }

    fn receive_probe(&mut self, start: u64, packet: &Packet) -> SegmentClass {
        self.own.out_of_window = None;
        self.take(start, packet);
        SegmentClass::ZeroWindowProbe
    }

    /// A segment without payload, SYN, FIN and RST.
    fn receive_acknowledgment(&mut self, packet: &Packet) -> SegmentClass {
        let number = packet.acknowledgment;
        let last_window = self.own.last_window.replace(packet.window);
        let is_outstanding = self.peer.stream.as_ref().is_some_and(|stream| is_after(stream.next as u32, number));
        self.reach(if packet.control & Packet::ACK == 0 {
            "no duplicate acknowledgment: no ACK"
        } else if self.own.acknowledged != Some(number) {
            "no duplicate acknowledgment: other number"
        } else if last_window != Some(packet.window) {
            "no duplicate acknowledgment: other window"
        } else if packet.window == 0 {
            "no duplicate acknowledgment: window 0"
        } else if !is_outstanding {
            "no duplicate acknowledgment: nothing outstanding"
        } else {
            self.reach("duplicate acknowledgment");
            return SegmentClass::DuplicateAcknowledgment;
        });
        SegmentClass::Acknowledgment
    }

    /// Payload or FIN, without SYN and RST.
    fn receive_data(&mut self, packet: &Packet) -> SegmentClass {
        let payload = u64::from(packet.payload_bytes);
        let Some(stream) = &self.own.stream else {
            return if payload < MAX_WINDOW { self.start_mid_stream(packet) } else { SegmentClass::OutOfWindow };
        };
        let start = stream.position(packet.sequence);
        let end = start + payload + u64::from(packet.control & Packet::FIN != 0);
        let &Stream { lowest, next, .. } = stream;
        self.reach_if(end > next && end >> 32 != next >> 32, "position wraps");
        let is_before_syn = self.own.syn.is_some() && start < lowest;
        let rule = if end >= next + MAX_WINDOW {
            "out of window: ahead"
        } else if start + MAX_WINDOW <= next {
            "out of window: behind"
        } else if is_before_syn {
            "out of window: before the SYN"
        } else {
            self.own.out_of_window = None;
            let class = self.class_of(start..end, packet);
            self.take(start, packet);
            return class;
        };
        self.reach(rule);
        let distance = |last: u32| last.wrapping_sub(packet.sequence).min(packet.sequence.wrapping_sub(last));
        match self.own.out_of_window.map(distance) {
            Some(_) if is_before_syn && lowest < end => self.reach("out of window: reaches into the stream"),
            Some(distance) if u64::from(distance) < MAX_WINDOW && payload < MAX_WINDOW => {
                // Two segments in a row agree: the stream went on without the probe.
                self.reach("jump");
                self.degrade(Degradation::JUMP);
                self.give_up_positions();
                return self.start_mid_stream(packet);
            }
            Some(_) => self.reach("out of window: not next to the other"),
            None => {}
        }
        self.own.out_of_window = Some(packet.sequence);
        SegmentClass::OutOfWindow
    }

    /// The first payload or FIN, without a SYN before.
    fn start_mid_stream(&mut self, packet: &Packet) -> SegmentClass {
        self.reach("starts mid-stream");
        (self.own.request, self.own.timed, self.own.last_identification) = (None, None, None);
        let stream = self.own.stream.insert(Stream::new(packet.sequence, packet.time_ns));
        let first = stream.lowest;
        self.take(first, packet);
        SegmentClass::InOrder
    }

    /// The class of payload or FIN in window.
    fn class_of(&mut self, range: Range<u64>, packet: &Packet) -> SegmentClass {
        let stream = self.stream();
        let (lowest, next, known) = (stream.lowest, stream.next, stream.known(&range));
        if range.start >= next {
            self.reach(if range.start > next { "in order, beyond" } else { "in order, next" });
            self.reach_if(packet.payload_bytes == 0, "FIN alone in order");
            return SegmentClass::InOrder;
        }
        if known > 0 {
            self.retransmit(range, known, packet);
            return SegmentClass::Retransmission;
        }
        let stream = self.stream();
        let gaps = stream.gaps.iter().filter(|gap| overlap(&gap.range, &range) > 0);
        let lowest_gap = gaps.min_by_key(|gap| gap.range.start);
        let since_ns = lowest_gap.map_or(stream.started_ns, |gap| gap.since_ns);
        let opening = lowest_gap.and_then(|gap| gap.identification);
        let holes = stream.holes();
        self.reach_if(range.start < lowest, "below the start");
        self.reach_if(range.start >= lowest && holes.len() > 1, "fills one of two holes");
        self.reach_if(holes.iter().any(|hole| hole.start < range.start && range.end < hole.end), "splits a hole");
        let age_ns = packet.time_ns.saturating_sub(since_ns);
        if let (Some(opening), Some(filling)) = (opening, identification(packet)) {
            let (newer, older) = (filling.wrapping_sub(opening), opening.wrapping_sub(filling));
            match (newer, older) {
                (1..=8192, _) => {
                    self.reach("unseen by the identification");
                    return SegmentClass::UnseenRetransmission;
                }
                (_, 1..=1024) if age_ns <= 200_000_000 => {
                    self.reach("out of order by the identification");
                    return SegmentClass::OutOfOrder;
                }
                (_, 1..=1024) => self.reach("identification older, but too late"),
                _ => self.reach("identification too far away"),
            }
        }
        let round_trip_ns = match (self.own.report.handshake_rtt_ns, self.peer.report.handshake_rtt_ns) {
            (Some(own_ns), Some(peer_ns)) => Some(own_ns.saturating_add(peer_ns)),
            _ => None,
        };
        let limit_ns = round_trip_ns.unwrap_or(DEFAULT_REORDERING_NS);
        let is_soon = age_ns <= limit_ns;
        self.reach(match (is_soon, round_trip_ns.is_some()) {
            (true, true) => "out of order by the handshake",
            (true, false) => "out of order by 3 ms",
            (false, true) => "unseen by the handshake",
            (false, false) => "unseen by 3 ms",
        });
        if is_soon { SegmentClass::OutOfOrder } else { SegmentClass::UnseenRetransmission }
    }

    /// Counts a retransmission of which `known` positions were seen.
    fn retransmit(&mut self, range: Range<u64>, known: u64, packet: &Packet) {
        let is_partial = known < range.end - range.start;
        self.own.report.partial_retransmissions += u64::from(is_partial);
        self.reach(if is_partial { "retransmission, partial" } else { "retransmission, full" });
        let is_spurious = self.peer.acknowledged.is_some_and(|number| !is_after(range.end as u32, number));
        self.own.report.spurious_retransmissions += u64::from(is_spurious);
        self.reach(match self.peer.acknowledged {
            None => "retransmission, other side silent",
            Some(_) if is_spurious => "retransmission, spurious",
            Some(_) => "retransmission, not acknowledged",
        });
        let boundaries = |p: &Packet| (p.sequence, p.payload_bytes);
        let is_whole = self.own.remembered.iter().any(|earlier| boundaries(earlier) == boundaries(packet));
        self.reach_if(!is_whole, "retransmission, re-segmented");
    }

    /// Marks payload and FIN as seen, and counts them.
    fn take(&mut self, start: u64, packet: &Packet) {
        let (payload, fin) = (u64::from(packet.payload_bytes), packet.control & Packet::FIN != 0);
        let octets = start..start + payload;
        let last = self.own.last_identification;
        let stream = self.stream();
        let (next, known) = (stream.next, stream.known(&octets));
        let touched = stream.holes().iter().filter(|hole| overlap(hole, &octets) > 0).count();
        // A sender that counts is a little ahead of its last segment in order.
        let ahead = |before: u16, own: u16| own.wrapping_sub(before);
        let counts = |own: &u16| last.is_none_or(|before| (1..=1024).contains(&ahead(before, *own)));
        stream.take(start..octets.end + u64::from(fin), packet.time_ns, identification(packet).filter(counts));
        let report = &mut self.own.report;
        report.retransmitted_bytes += known;
        report.unique_bytes += payload - known;
        report.largest_hole_bytes = report.largest_hole_bytes.max(start.saturating_sub(next));
        report.fins += u64::from(fin);
        self.own.ended |= fin;
        self.reach_if(touched > 1, "touches several holes");
        match self.own.fin {
            None if fin => {
                self.own.fin = Some((octets.end, packet.time_ns));
                self.reach_if(self.own.several, "no size: several");
                self.reach_if(!self.own.several && self.own.syn.is_some(), "size by sequence");
            }
            Some((position, _)) if fin => {
                self.own.several |= position != octets.end;
                self.reach(if position == octets.end { "FIN retransmission" } else { "FIN at another position" });
            }
            Some((position, _)) => self.reach_if(octets.contains(&position), "payload on the FIN"),
            None => {}
        }
        self.limit_holes();
    }

    /// Settles the lowest of too many holes: it counts as seen. Returns whether there were too
    /// many.
    fn limit_holes(&mut self) -> bool {
        let stream = self.stream();
        let holes = stream.holes();
        if holes.len() <= MAX_HOLES {
            return false;
        }
        assert_eq!(holes.len(), MAX_HOLES + 1, "a segment opens or splits at most one hole");
        let hole = holes[0].clone();
        let is_below_others = hole.start == stream.lowest || hole.end < stream.settled_end;
        stream.settled_end = stream.settled_end.max(hole.end);
        stream.mark(hole.clone());
        self.own.report.missing_bytes += hole.end - hole.start;
        self.degrade(Degradation::HOLES);
        self.reach("hole settled");
        self.reach_if(is_below_others, "hole settled below others");
        true
    }
}

impl Side {
    /// How many segments it remembers.
    fn places(&self) -> usize {
        if self.has_duplicates { DEEP_HISTORY } else { HISTORY }
    }
}

impl Stream {
    /// No positions yet. Positions below the first remain available.
    fn new(first: u32, started_ns: u64) -> Self {
        let first = (1 << 40) + u64::from(first);
        Self { lowest: first, next: first, started_ns, seen: Vec::new(), gaps: Vec::new(), settled_end: 0 }
    }

    /// The nearest position with these low bits; of two at the same distance, the lower one.
    fn position(&self, sequence: u32) -> u64 {
        let cycle = 1_u64 << 32;
        let same = self.next - self.next % cycle + u64::from(sequence);
        let candidates = [same - cycle, same, same + cycle];
        candidates.into_iter().min_by_key(|candidate| candidate.abs_diff(self.next)).expect("there are three")
    }

    /// Number of positions of a range that count as seen.
    fn known(&self, range: &Range<u64>) -> u64 {
        self.seen.iter().map(|seen| overlap(seen, range)).sum()
    }

    /// The ranges that were not seen, in the order of their positions.
    fn holes(&self) -> Vec<Range<u64>> {
        let starts = once(self.lowest).chain(self.seen.iter().map(|seen| seen.end));
        let ends = self.seen.iter().map(|seen| seen.start).chain(once(self.next));
        starts.zip(ends).map(|(start, end)| start..end).filter(|hole| !hole.is_empty()).collect()
    }

    /// Octets in all holes.
    fn missing(&self) -> u64 {
        self.holes().iter().map(|hole| hole.end - hole.start).sum()
    }

    /// Takes a range, which may open a gap above or below.
    fn take(&mut self, range: Range<u64>, now_ns: u64, identification: Option<u16>) {
        if range.is_empty() {
            return;
        }
        if range.start > self.next {
            self.gaps.push(Gap { range: self.next..range.start, since_ns: now_ns, identification });
        }
        if range.end < self.lowest {
            let (range, since_ns) = (range.end..self.lowest, self.started_ns);
            self.gaps.push(Gap { range, since_ns, identification: None });
        }
        self.lowest = self.lowest.min(range.start);
        self.next = self.next.max(range.end);
        self.mark(range);
    }

    /// Counts a range as seen.
    fn mark(&mut self, range: Range<u64>) {
        self.seen.push(range);
        self.seen.sort_by_key(|seen| seen.start);
        self.seen.dedup_by(|upper, lower| {
            let touches = upper.start <= lower.end;
            lower.end = if touches { lower.end.max(upper.end) } else { lower.end };
            touches
        });
    }
}

/// Distance of two times in units of 2^20 ns, which wrap after 2^24.
fn ticks_between(one_ns: u64, other_ns: u64) -> u64 {
    let cycle = 1_u64 << 24;
    let distance = (one_ns / (1 << 20) % cycle).abs_diff(other_ns / (1 << 20) % cycle);
    distance.min(cycle - distance)
}

/// The IP identification, unless it is 0.
fn identification(packet: &Packet) -> Option<u16> {
    Some(packet.identification as u16).filter(|&number| packet.network == Network::Ipv4 && number != 0)
}

/// Whether one sequence number comes after another.
fn is_after(one: u32, other: u32) -> bool {
    (1..1 << 31).contains(&one.wrapping_sub(other))
}

/// Number of positions that two ranges share.
fn overlap(one: &Range<u64>, other: &Range<u64>) -> u64 {
    one.end.min(other.end).saturating_sub(one.start.max(other.start))
}
