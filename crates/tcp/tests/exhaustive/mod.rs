//! A second implementation of `docs/tcp.md`, written from that page alone: it keeps every position
//! that was seen in a set, and every gap with the time when it opened. It counts the rules that
//! packets reached, so that a test can check its coverage.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use weir_packet::{Flags, Network, Packet};
use weir_tcp::{Degradation, SegmentClass, TcpReport};

const MAX_WINDOW: u64 = 1 << 30;

/// The rules of the page, by name.
pub const RULES: &[&str] = &[
    "starts with a SYN",
    "starts mid-stream",
    "below the start",
    "SYN overtaken",
    "SYN overtaken, holes full",
    "SYN restarts",
    "reused: a side had ended",
    "reused: none had ended",
    "position wraps",
    "out of window: ahead",
    "out of window: behind",
    "out of window: before the SYN",
    "out of window: not next to the other",
    "out of window: reaches into the stream",
    "jump",
    "hole given up",
    "hole given up below others",
    "duplicate by identification",
    "duplicate without identification",
    "duplicate at the second place",
    "duplicate at the fourth place",
    "duplicate at the fifth place or beyond",
    "duplicate beyond the 32nd place",
    "duplicate at the 64th place",
    "no duplicate: behind four others",
    "no duplicate: behind 64 others",
    "first fragment",
    "duplicate of a first fragment",
    "no duplicate: too late, identified",
    "no duplicate: too late, not identified",
    "no duplicate: acknowledgment without identification",
    "no duplicate: RST without identification",
    "history cleared by a jump",
    "history cleared by a restart",
    "deep history cleared by a jump",
    "deep history cleared by a restart",
    "SYN retransmission with payload",
    "SYN with payload",
    "SYN with FIN",
    "keep-alive without payload",
    "keep-alive with the last octet",
    "no keep-alive: FIN",
    "probe",
    "probe again",
    "no probe: window open",
    "duplicate acknowledgment",
    "no duplicate acknowledgment: nothing outstanding",
    "no duplicate acknowledgment: other window",
    "no duplicate acknowledgment: window 0",
    "no duplicate acknowledgment: other number",
    "no duplicate acknowledgment: no ACK",
    "in order, next",
    "in order, beyond",
    "FIN alone in order",
    "FIN retransmission",
    "FIN at another position",
    "payload on the FIN",
    "retransmission, full",
    "retransmission, partial",
    "retransmission, re-segmented",
    "retransmission, spurious",
    "retransmission, not acknowledged",
    "retransmission, other side silent",
    "out of order by the handshake",
    "out of order by 3 ms",
    "unseen by the handshake",
    "unseen by 3 ms",
    "fills one of two holes",
    "splits a hole",
    "touches several holes",
    "handshake of the responder",
    "handshake of the initiator",
    "SYN answered wrongly",
    "size by sequence",
    "no size: several",
    "zero window",
    "zero window of an acknowledgment only",
];

#[derive(Default)]
pub struct Exhaustive {
    sides: [Side; 2],
    pub reached: BTreeMap<&'static str, u64>,
}

#[derive(Default)]
struct Side {
    stream: Option<Stream>,
    syn: Option<Packet>,
    last_syn_ns: u64,
    fin: Option<(u64, u64)>,
    several: bool,
    ended: bool,
    acknowledged: Option<u32>,
    last_window: Option<u16>,
    zero_window: bool,
    out_of_window: Option<u32>,
    /// The latest is the last.
    remembered: Vec<Packet>,
    /// A duplicate was found.
    has_duplicates: bool,
    report: TcpReport,
}

struct Stream {
    lowest: u64,
    next: u64,
    started_ns: u64,
    seen: BTreeSet<u64>,
    /// As they opened; they may have been filled since.
    gaps: Vec<(Range<u64>, u64)>,
    given_up: Vec<Range<u64>>,
}

impl Stream {
    fn at(first: u64, started_ns: u64) -> Self {
        let (seen, gaps, given_up) = Default::default();
        Self { lowest: first, next: first, started_ns, seen, gaps, given_up }
    }

    /// The nearest position with these low bits; of two at the same distance, the lower one.
    fn position(&self, number: u32) -> u64 {
        let cycle = 1_u64 << 32;
        let same = self.next - self.next % cycle + u64::from(number);
        let candidates = [same - cycle, same, same + cycle];
        candidates.into_iter().min_by_key(|candidate| candidate.abs_diff(self.next)).unwrap()
    }

    fn has(&self, position: u64) -> bool {
        self.seen.contains(&position) || self.given_up.iter().any(|range| range.contains(&position))
    }

    fn known(&self, range: Range<u64>) -> u64 {
        range.filter(|&position| self.has(position)).count() as u64
    }

    fn holes(&self) -> Vec<Range<u64>> {
        let given_up: u64 = self.given_up.iter().map(|range| range.end - range.start).sum();
        if self.seen.len() as u64 + given_up == self.next - self.lowest {
            return Vec::new();
        }
        let mut taken: Vec<Range<u64>> = self.seen.iter().map(|&position| position..position + 1).collect();
        taken.extend(self.given_up.iter().cloned());
        taken.sort_by_key(|range| range.start);
        let mut holes = Vec::new();
        let mut at = self.lowest;
        for range in taken {
            if range.start > at {
                holes.push(at..range.start);
            }
            at = at.max(range.end);
        }
        if at < self.next {
            holes.push(at..self.next);
        }
        holes
    }

    fn missing(&self) -> u64 {
        self.holes().iter().map(|hole| hole.end - hole.start).sum()
    }

    fn take(&mut self, range: Range<u64>, now_ns: u64) {
        if range.is_empty() {
            return;
        }
        if range.start > self.next {
            self.gaps.push((self.next..range.start, now_ns));
        }
        if range.end < self.lowest {
            self.gaps.push((range.end..self.lowest, self.started_ns));
        }
        self.lowest = self.lowest.min(range.start);
        self.next = self.next.max(range.end);
        let new: Vec<u64> = range.filter(|&position| !self.has(position)).collect();
        self.seen.extend(new);
    }
}

impl Exhaustive {
    pub fn enter(&mut self, side: usize, packet: &Packet) -> SegmentClass {
        let class = self.classify(side, packet);
        let count = &mut self.sides[side].report.classes[class as usize];
        count.segments += 1;
        count.bytes += if class == SegmentClass::Unread { 0 } else { u64::from(packet.payload_bytes) };
        class
    }

    pub fn report(&self, side: usize) -> TcpReport {
        let side = &self.sides[side];
        let mut report = side.report;
        let stream = side.stream.as_ref();
        report.missing_bytes += stream.map_or(0, Stream::missing);
        // With a SYN, the lowest position is the one after it.
        if let (Some(syn), Some((fin, fin_ns)), Some(stream), false) = (side.syn, side.fin, stream, side.several) {
            report.size_by_sequence_bytes = fin.checked_sub(stream.lowest);
            report.duration_by_sequence_ns = fin_ns.checked_sub(syn.time_ns);
        }
        report
    }

    pub fn start_next_record(&mut self) {
        for side in &mut self.sides {
            let TcpReport { syn_window, maximum_segment_size, window_scale, handshake_rtt_ns, .. } = side.report;
            side.report =
                TcpReport { syn_window, maximum_segment_size, window_scale, handshake_rtt_ns, ..TcpReport::default() };
        }
    }

    fn rule(&mut self, name: &'static str) {
        assert!(RULES.contains(&name), "{name} is not in the list");
        *self.reached.entry(name).or_default() += 1;
    }

    fn classify(&mut self, side: usize, packet: &Packet) -> SegmentClass {
        if !packet.flags.has(Flags::TCP) {
            self.sides[side].report.degradation.0 |= Degradation::UNREAD;
            return SegmentClass::Unread;
        }
        let is_first = packet.flags.has(Flags::FRAGMENT_FIRST);
        if is_first {
            self.rule("first fragment");
            self.sides[side].report.degradation.0 |= Degradation::UNREAD;
        }
        if let Some(class) = self.duplicate(side, packet) {
            if is_first {
                self.rule("duplicate of a first fragment");
            }
            let own = &mut self.sides[side];
            if !std::mem::replace(&mut own.has_duplicates, true) {
                // Older segments were forgotten before.
                own.remembered.drain(..own.remembered.len().saturating_sub(4));
            }
            return class;
        }
        let class = match packet.control {
            bits if bits & Packet::RST != 0 => SegmentClass::Reset,
            bits if bits & Packet::SYN != 0 => self.syn(side, packet),
            _ => self.without_syn(side, packet),
        };
        let own = &mut self.sides[side];
        match class {
            SegmentClass::OutOfWindow => return class,
            SegmentClass::Reset => own.ended = true,
            _ => {
                own.zero_window = packet.window == 0;
                own.report.zero_windows += u64::from(own.zero_window);
                if packet.window == 0 {
                    let only = class == SegmentClass::Acknowledgment;
                    self.rule(if only { "zero window of an acknowledgment only" } else { "zero window" });
                }
                self.acknowledge(side, packet);
            }
        }
        self.sides[side].remembered.push(*packet);
        class
    }

    fn duplicate(&mut self, side: usize, packet: &Packet) -> Option<SegmentClass> {
        let fields = |p: &Packet| {
            (p.sequence, p.acknowledgment, p.payload_bytes, p.control, p.window, p.icmp_or_checksum, p.identification)
        };
        let identified = packet.network == Network::Ipv4 && packet.identification as u16 != 0;
        let control = packet.control & (Packet::SYN | Packet::FIN | Packet::RST);
        let bare = control & Packet::RST != 0 || packet.payload_bytes == 0 && control == 0;
        let all = if self.sides[side].has_duplicates { 64 } else { 4 };
        let places: Vec<Packet> = self.sides[side].remembered.iter().rev().take(all + 1).copied().collect();
        for (place, earlier) in places.iter().enumerate() {
            if fields(earlier) != fields(packet) {
                continue;
            }
            let cycle = 1_u64 << 24;
            let tick = |time_ns: u64| time_ns / (1 << 20) % cycle;
            let apart = tick(earlier.time_ns).abs_diff(tick(packet.time_ns));
            let apart = apart.min(cycle - apart);
            match (identified, bare) {
                (true, _) if apart > 48 => self.rule("no duplicate: too late, identified"),
                (false, true) if control != 0 => self.rule("no duplicate: RST without identification"),
                (false, true) => self.rule("no duplicate: acknowledgment without identification"),
                (false, false) if apart > 1 => self.rule("no duplicate: too late, not identified"),
                _ if place == all => {
                    self.rule(if all == 4 {
                        "no duplicate: behind four others"
                    } else {
                        "no duplicate: behind 64 others"
                    });
                }
                _ => {
                    self.rule(if identified {
                        "duplicate by identification"
                    } else {
                        "duplicate without identification"
                    });
                    if place == 1 {
                        self.rule("duplicate at the second place");
                    }
                    if place >= 4 {
                        self.rule("duplicate at the fifth place or beyond");
                    }
                    if all == 64 && place == 63 {
                        self.rule("duplicate at the 64th place");
                    }
                    if place == 3 && all == 4 || place >= 32 {
                        self.rule(if all == 4 {
                            "duplicate at the fourth place"
                        } else {
                            "duplicate beyond the 32nd place"
                        });
                        self.sides[side].report.degradation.0 |= Degradation::DUPLICATES;
                    }
                    let same = earlier.ttl == packet.ttl;
                    return Some(if same { SegmentClass::Duplicate } else { SegmentClass::RoutedDuplicate });
                }
            }
        }
        None
    }

    fn syn(&mut self, side: usize, packet: &Packet) -> SegmentClass {
        let own = &self.sides[side];
        let peer = &self.sides[1 - side];
        let is_known = own.syn.is_some_and(|syn| syn.sequence == packet.sequence);
        if !is_known {
            let first = packet.sequence.wrapping_add(1);
            let lowest = own.stream.as_ref().map(|stream| stream.lowest);
            let below = lowest.map(|lowest| u64::from((lowest as u32).wrapping_sub(first)));
            if own.syn.is_none() && below.is_some_and(|below| below < MAX_WINDOW) {
                self.rule("SYN overtaken");
                let stream = self.sides[side].stream.as_mut().unwrap();
                let first = stream.lowest - below.unwrap();
                if first < stream.lowest {
                    stream.gaps.push((first..stream.lowest, stream.started_ns));
                    stream.lowest = first;
                }
                if self.limit_holes(side) {
                    self.rule("SYN overtaken, holes full");
                }
            } else {
                let ended = own.ended || peer.ended;
                let known = own.stream.is_some();
                self.rule(if known { "SYN restarts" } else { "starts with a SYN" });
                if known {
                    self.rule(if ended { "reused: a side had ended" } else { "reused: none had ended" });
                    self.sides[side].report.degradation.0 |= if ended { 0 } else { Degradation::REUSED };
                    self.give_up_positions(side);
                }
                let own = &mut self.sides[side];
                own.remembered.clear();
                own.stream = Some(Stream::at((1 << 40) + u64::from(first), packet.time_ns));
                own.ended = false;
                own.acknowledged = None;
                own.last_window = None;
            }
            let answer = if packet.control & Packet::ACK != 0 { self.answer(side, packet) } else { None };
            if answer.is_some() {
                self.rule("handshake of the responder");
            }
            let own = &mut self.sides[side];
            own.syn = Some(*packet);
            own.report.syn_window = Some(packet.window);
            own.report.maximum_segment_size = packet.maximum_segment_size();
            own.report.window_scale = packet.window_scale();
            own.report.handshake_rtt_ns = answer;
        }
        self.sides[side].last_syn_ns = packet.time_ns;
        if packet.payload_bytes > 0 {
            self.rule(if is_known { "SYN retransmission with payload" } else { "SYN with payload" });
        }
        if packet.control & Packet::FIN != 0 {
            self.rule("SYN with FIN");
        }
        let lowest = self.sides[side].stream.as_ref().unwrap().lowest;
        self.take(side, packet, lowest);
        if is_known { SegmentClass::SynRetransmission } else { SegmentClass::Syn }
    }

    fn give_up_positions(&mut self, side: usize) {
        let own = &mut self.sides[side];
        own.report.missing_bytes += own.stream.take().map_or(0, |stream| stream.missing());
        own.several = true;
        own.syn = None;
        own.out_of_window = None;
        let many = own.remembered.len() > 4 && own.has_duplicates;
        own.remembered.clear();
        self.rule("history cleared by a restart");
        if many {
            self.rule("deep history cleared by a restart");
        }
    }

    /// Time from the other side's last SYN to a segment that acknowledges it.
    fn answer(&mut self, side: usize, packet: &Packet) -> Option<u64> {
        let peer = &self.sides[1 - side];
        let (syn, stream) = (peer.syn?, peer.stream.as_ref()?);
        let number = packet.acknowledgment;
        if !is_after(number, syn.sequence) || is_after(number, stream.next as u32) {
            self.rule("SYN answered wrongly");
            return None;
        }
        packet.time_ns.checked_sub(peer.last_syn_ns)
    }

    fn acknowledge(&mut self, side: usize, packet: &Packet) {
        if packet.control & Packet::ACK == 0 {
            return;
        }
        let number = packet.acknowledgment;
        let Some(before) = self.sides[side].acknowledged else {
            self.sides[side].acknowledged = Some(number);
            let answered = self.sides[1 - side].syn.is_some_and(|syn| syn.control & Packet::ACK != 0);
            // The SYN-ACK itself is the answer of the responder.
            if answered && packet.control & Packet::SYN == 0 && self.sides[side].report.handshake_rtt_ns.is_none() {
                self.sides[side].report.handshake_rtt_ns = self.answer(side, packet);
                if self.sides[side].report.handshake_rtt_ns.is_some() {
                    self.rule("handshake of the initiator");
                }
            }
            return;
        };
        if is_after(before, number) {
            return;
        }
        self.sides[side].acknowledged = Some(number);
        if number.wrapping_sub(before) >= 1 << 28 {
            let many = self.sides[side].remembered.len() > 4 && self.sides[side].has_duplicates;
            self.sides[side].remembered.clear();
            self.rule(if many { "deep history cleared by a jump" } else { "history cleared by a jump" });
        }
    }

    /// Classifies a segment without SYN and RST.
    fn without_syn(&mut self, side: usize, packet: &Packet) -> SegmentClass {
        let fin = packet.control & Packet::FIN != 0;
        let (own, peer) = (&self.sides[side], &self.sides[1 - side]);
        let zero_window = peer.zero_window;
        if let Some((next, some)) = own.stream.as_ref().map(|stream| (stream.next, stream.lowest < stream.next)) {
            let before = packet.sequence == (next as u32).wrapping_sub(1);
            match packet.payload_bytes {
                0 | 1 if before && fin => self.rule("no keep-alive: FIN"),
                1 if before && zero_window && some => {
                    self.rule("probe again");
                    self.sides[side].out_of_window = None;
                    self.take(side, packet, next - 1);
                    return SegmentClass::ZeroWindowProbe;
                }
                0 if before => {
                    self.rule("keep-alive without payload");
                    return SegmentClass::KeepAlive;
                }
                1 if before => {
                    self.rule("keep-alive with the last octet");
                    return SegmentClass::KeepAlive;
                }
                1 if packet.sequence == next as u32 && !fin && zero_window => {
                    self.rule("probe");
                    self.sides[side].out_of_window = None;
                    self.take(side, packet, next);
                    return SegmentClass::ZeroWindowProbe;
                }
                1 if packet.sequence == next as u32 && !fin => self.rule("no probe: window open"),
                _ => {}
            }
        }
        if packet.payload_bytes == 0 && !fin {
            return self.acknowledgment(side, packet);
        }
        self.payload(side, packet)
    }

    fn acknowledgment(&mut self, side: usize, packet: &Packet) -> SegmentClass {
        let number = packet.acknowledgment;
        let window = self.sides[side].last_window.replace(packet.window);
        let (own, peer) = (&self.sides[side], &self.sides[1 - side]);
        let outstanding = peer.stream.as_ref().is_some_and(|stream| is_after(stream.next as u32, number));
        let same = own.acknowledged == Some(number);
        let rule = if packet.control & Packet::ACK == 0 {
            "no duplicate acknowledgment: no ACK"
        } else if !same {
            "no duplicate acknowledgment: other number"
        } else if window != Some(packet.window) {
            "no duplicate acknowledgment: other window"
        } else if packet.window == 0 {
            "no duplicate acknowledgment: window 0"
        } else if !outstanding {
            "no duplicate acknowledgment: nothing outstanding"
        } else {
            self.rule("duplicate acknowledgment");
            return SegmentClass::DuplicateAcknowledgment;
        };
        self.rule(rule);
        SegmentClass::Acknowledgment
    }

    fn payload(&mut self, side: usize, packet: &Packet) -> SegmentClass {
        let fin = u64::from(packet.control & Packet::FIN != 0);
        let length = u64::from(packet.payload_bytes) + fin;
        let own = &self.sides[side];
        let Some(stream) = &own.stream else {
            if length - fin >= MAX_WINDOW {
                return SegmentClass::OutOfWindow;
            }
            return self.start_mid_stream(side, packet);
        };
        let start = stream.position(packet.sequence);
        let end = start + length;
        let (lowest, next) = (stream.lowest, stream.next);
        if end > next && end >> 32 != next >> 32 {
            self.rule("position wraps");
        }
        let out = if end >= next + MAX_WINDOW {
            Some("out of window: ahead")
        } else if start + MAX_WINDOW <= next {
            Some("out of window: behind")
        } else if self.sides[side].syn.is_some() && start < lowest {
            Some("out of window: before the SYN")
        } else {
            None
        };
        let last = self.sides[side].out_of_window.take();
        if let Some(rule) = out {
            self.rule(rule);
            let apart = |last: u32| last.wrapping_sub(packet.sequence).min(packet.sequence.wrapping_sub(last));
            let into_the_stream = self.sides[side].syn.is_some() && start < lowest && lowest < end;
            match last {
                Some(_) if into_the_stream => self.rule("out of window: reaches into the stream"),
                Some(last) if u64::from(apart(last)) < MAX_WINDOW && length - fin < MAX_WINDOW => {
                    self.rule("jump");
                    self.sides[side].report.degradation.0 |= Degradation::JUMP;
                    self.give_up_positions(side);
                    return self.start_mid_stream(side, packet);
                }
                Some(_) => self.rule("out of window: not next to the other"),
                None => {}
            }
            self.sides[side].out_of_window = Some(packet.sequence);
            return SegmentClass::OutOfWindow;
        }
        let class = self.class_of_payload(side, packet, start..end);
        self.take(side, packet, start);
        class
    }

    fn class_of_payload(&mut self, side: usize, packet: &Packet, range: Range<u64>) -> SegmentClass {
        let stream = self.sides[side].stream.as_ref().unwrap();
        let (lowest, next) = (stream.lowest, stream.next);
        if range.start >= next {
            let fin_alone = packet.payload_bytes == 0;
            self.rule(if range.start > next { "in order, beyond" } else { "in order, next" });
            if fin_alone {
                self.rule("FIN alone in order");
            }
            return SegmentClass::InOrder;
        }
        let known = stream.known(range.clone());
        let all = range.end - range.start;
        if known > 0 {
            let whole = self.sides[side]
                .remembered
                .iter()
                .any(|earlier| (earlier.sequence, earlier.payload_bytes) == (packet.sequence, packet.payload_bytes));
            let peers = self.sides[1 - side].acknowledged;
            let spurious = peers.is_some_and(|acknowledged| !is_after(range.end as u32, acknowledged));
            let report = &mut self.sides[side].report;
            report.partial_retransmissions += u64::from(known < all);
            report.spurious_retransmissions += u64::from(spurious);
            self.rule(if known < all { "retransmission, partial" } else { "retransmission, full" });
            self.rule(match peers {
                None => "retransmission, other side silent",
                Some(_) if spurious => "retransmission, spurious",
                Some(_) => "retransmission, not acknowledged",
            });
            if !whole {
                self.rule("retransmission, re-segmented");
            }
            return SegmentClass::Retransmission;
        }
        let first_gap = stream
            .gaps
            .iter()
            .filter(|(gap, _)| gap.start < range.end && range.start < gap.end)
            .min_by_key(|(gap, _)| gap.start);
        let since_ns = first_gap.map_or(stream.started_ns, |(_, since_ns)| *since_ns);
        let holes = stream.holes();
        if range.start < lowest {
            self.rule("below the start");
        } else {
            let (start, end) = (range.start, range.end);
            if holes.len() > 1 {
                self.rule("fills one of two holes");
            }
            if holes.iter().any(|hole| hole.start < start && end < hole.end) {
                self.rule("splits a hole");
            }
        }
        let both = (self.sides[0].report.handshake_rtt_ns, self.sides[1].report.handshake_rtt_ns);
        let (limit_ns, by_handshake) = match both {
            (Some(one), Some(other)) => (one.saturating_add(other), true),
            _ => (3_000_000, false),
        };
        let soon = packet.time_ns.saturating_sub(since_ns) <= limit_ns;
        self.rule(match (soon, by_handshake) {
            (true, true) => "out of order by the handshake",
            (true, false) => "out of order by 3 ms",
            (false, true) => "unseen by the handshake",
            (false, false) => "unseen by 3 ms",
        });
        if soon { SegmentClass::OutOfOrder } else { SegmentClass::UnseenRetransmission }
    }

    fn start_mid_stream(&mut self, side: usize, packet: &Packet) -> SegmentClass {
        self.rule("starts mid-stream");
        let first = (1 << 40) + u64::from(packet.sequence);
        self.sides[side].stream = Some(Stream::at(first, packet.time_ns));
        self.take(side, packet, first);
        SegmentClass::InOrder
    }

    fn take(&mut self, side: usize, packet: &Packet, start: u64) {
        let payload = u64::from(packet.payload_bytes);
        if payload >= MAX_WINDOW {
            return;
        }
        let own = &mut self.sides[side];
        let stream = own.stream.as_mut().unwrap();
        let end = start + payload;
        let known = stream.known(start..end);
        own.report.retransmitted_bytes += known;
        own.report.unique_bytes += payload - known;
        let fin = packet.control & Packet::FIN != 0;
        own.report.largest_hole_bytes = own.report.largest_hole_bytes.max(start.saturating_sub(stream.next));
        let touched = stream.holes().iter().filter(|hole| hole.start < end && start < hole.end).count();
        stream.take(start..end + u64::from(fin), packet.time_ns);
        let known_fin = own.fin;
        if fin {
            own.ended = true;
            own.report.fins += 1;
            match known_fin {
                None => own.fin = Some((end, packet.time_ns)),
                Some((position, _)) => own.several |= position != end,
            }
        }
        match known_fin {
            Some((position, _)) if fin => {
                self.rule(if position == end { "FIN retransmission" } else { "FIN at another position" });
            }
            Some((position, _)) if (start..end).contains(&position) => self.rule("payload on the FIN"),
            None if fin && self.sides[side].syn.is_some() && !self.sides[side].several => self.rule("size by sequence"),
            None if fin && self.sides[side].several => self.rule("no size: several"),
            _ => {}
        }
        if touched > 1 {
            self.rule("touches several holes");
        }
        self.limit_holes(side);
    }

    /// Gives up the lowest of too many holes; returns whether there were too many.
    fn limit_holes(&mut self, side: usize) -> bool {
        let own = &mut self.sides[side];
        let stream = own.stream.as_mut().unwrap();
        let holes = stream.holes();
        if holes.len() <= 32 {
            return false;
        }
        assert_eq!(holes.len(), 33, "a segment opens or splits at most one hole");
        let lowest = holes[0].clone();
        own.report.missing_bytes += lowest.end - lowest.start;
        own.report.degradation.0 |= Degradation::HOLES;
        let below = stream.lowest == lowest.start || stream.given_up.iter().any(|range| range.start > lowest.end);
        stream.given_up.push(lowest);
        self.rule("hole given up");
        if below {
            self.rule("hole given up below others");
        }
        true
    }
}

/// The rules, classes and degradations that packets reached.
#[derive(Debug, Default)]
pub struct Coverage {
    classes: BTreeMap<SegmentClass, u64>,
    degraded: BTreeMap<&'static str, u64>,
    rules: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub fn add(&mut self, model: &Exhaustive) {
        for (rule, times) in &model.reached {
            *self.rules.entry(rule).or_default() += times;
        }
        for report in [model.report(0), model.report(1)] {
            for class in SegmentClass::ALL {
                *self.classes.entry(class).or_default() += report.count(class).segments;
            }
            for name in report.degradation.names() {
                *self.degraded.entry(name).or_default() += 1;
            }
        }
    }

    /// Asserts that all rules were reached, except some. The pool never is full in these tests.
    pub fn assert_complete_except(&self, rare: &[&str]) {
        let reached = |rule: &str| self.rules.contains_key(rule) || rare.contains(&rule);
        let missing: Vec<_> = RULES.iter().filter(|rule| !reached(rule)).collect();
        assert!(missing.is_empty(), "not reached: {missing:?}");
        assert!(self.classes.values().all(|&segments| segments > 0), "{:?}", self.classes);
        assert!(
            self.degraded.keys().eq(["duplicates", "holes", "jump", "reused", "unread"].iter()),
            "{:?}",
            self.degraded
        );
    }
}

/// Whether one sequence number comes after another.
fn is_after(one: u32, other: u32) -> bool {
    (1..1 << 31).contains(&one.wrapping_sub(other))
}
