//! The TCP rules of `docs/tcp.md` as a slow and plain program: the fast implementations are tested
//! against it. Read it beside that page. It shares no code with them.
//!
//! In: packets of one connection in the order of the capture, with their side. Out: the class of
//! each, and a report per side and record.

use std::collections::VecDeque;
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
}

/// What one side sent.
#[derive(Clone, Debug, Default)]
struct Side {
    /// From the first SYN, payload or FIN on.
    seen: Option<Seen>,
    /// Position of the SYN, if there was one.
    syn: Option<u64>,
    /// Position of the first FIN.
    fin: Option<u64>,
    /// There was another SYN or FIN, at another position.
    several: bool,
    /// It sent FIN or RST.
    ended: bool,
    /// Its SYN acknowledged one of the other side.
    syn_has_ack: bool,
    /// Time of the SYN, and of its last retransmission.
    syn_ns: u64,
    last_syn_ns: u64,
    fin_ns: u64,
    /// Greatest acknowledgment number it sent.
    acknowledged: Option<u32>,
    /// Window of the last segment without payload.
    window: u16,
    /// The last window it announced was 0.
    zero_window: bool,
    /// Sequence number of the last segment with payload or FIN, if that was out of window.
    stray: Option<u32>,
    /// Remembered segments, the latest first.
    history: VecDeque<Packet>,
    /// A duplicate was found: the history is deep.
    has_duplicates: bool,
    report: TcpReport,
}

/// The positions of a stream that were seen: `lowest..next` without the holes. A position is a
/// sequence number continued to 64 bits. A FIN takes a position, as an octet does.
#[derive(Clone, Debug)]
struct Seen {
    lowest: u64,
    next: u64,
    since_ns: u64,
    /// In the order of their positions.
    holes: Vec<Hole>,
}

#[derive(Clone, Copy, Debug)]
struct Hole {
    start: u64,
    end: u64,
    since_ns: u64,
}

impl TcpReference {
    /// Enters a packet of a side (0 or 1) and returns its class.
    pub fn enter(&mut self, side: usize, packet: &Packet) -> SegmentClass {
        let [low, high] = &mut self.sides;
        let (own, peer) = if side == 0 { (low, &*high) } else { (high, &*low) };
        let class = own.classify(peer, packet);
        let count = &mut own.report.classes[class as usize];
        count.segments += 1;
        if class != SegmentClass::Unread {
            count.bytes += u64::from(packet.payload_bytes);
        }
        class
    }

    /// Report of one side and this record.
    pub fn report(&self, side: usize) -> TcpReport {
        let side = &self.sides[side];
        let mut report = side.report;
        if let Some(seen) = &side.seen {
            report.missing_bytes += seen.missing();
        }
        if let (Some(syn), Some(fin), false) = (side.syn, side.fin, side.several) {
            report.size_by_sequence_bytes = fin.checked_sub(syn + 1);
            report.duration_by_sequence_ns = side.fin_ns.checked_sub(side.syn_ns);
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
}

impl Side {
    fn classify(&mut self, peer: &Side, packet: &Packet) -> SegmentClass {
        if !packet.flags.has(Flags::TCP) {
            self.degrade(Degradation::UNREAD);
            return SegmentClass::Unread;
        }
        if packet.flags.has(Flags::FRAGMENT_FIRST) {
            // The payload of the later fragments is missing.
            self.degrade(Degradation::UNREAD);
        }
        if let Some(age) = self.history.iter().position(|earlier| is_duplicate(earlier, packet)) {
            if age >= if self.has_duplicates { DEEP_HISTORY / 2 } else { HISTORY - 1 } {
                self.degrade(Degradation::DUPLICATES);
            }
            self.has_duplicates = true;
            let same_ttl = self.history[age].ttl == packet.ttl;
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
        self.history.push_front(*packet);
        self.history.truncate(if self.has_duplicates { DEEP_HISTORY } else { HISTORY });
        class
    }

    fn degrade(&mut self, bit: u8) {
        self.report.degradation.0 |= bit;
    }

    /// A segment with SYN.
    fn synchronize(&mut self, peer: &Side, packet: &Packet) -> SegmentClass {
        if u64::from(packet.payload_bytes) >= MAX_WINDOW {
            return SegmentClass::OutOfWindow;
        }
        let is_known = self.syn.is_some_and(|syn| syn as u32 == packet.sequence);
        if !is_known {
            let first = packet.sequence.wrapping_add(1);
            // Segments that follow the SYN may have overtaken it.
            let below = self.seen.as_ref().map(|seen| (seen.lowest as u32).wrapping_sub(first));
            let overtaken = self.syn.is_none() && below.is_some_and(|below| u64::from(below) < MAX_WINDOW);
            if !overtaken {
                self.restart(peer, packet, initial_position(first));
            }
            let seen = self.seen.as_mut().expect("the positions have started");
            let first = nearest_position(seen.lowest, first);
            if first < seen.lowest {
                seen.holes.insert(0, Hole { start: first, end: seen.lowest, since_ns: seen.since_ns });
                seen.lowest = first;
                self.limit_holes();
            }
            self.syn = Some(first - 1);
            self.syn_ns = packet.time_ns;
            self.syn_has_ack = packet.control & Packet::ACK != 0;
            self.report.handshake_rtt_ns = if self.syn_has_ack { peer.time_since_syn(packet) } else { None };
            self.report.syn_window = Some(packet.window);
            self.report.maximum_segment_size = packet.maximum_segment_size();
            self.report.window_scale = packet.window_scale();
        }
        self.last_syn_ns = packet.time_ns;
        self.take(self.syn.expect("it was set") + 1, packet);
        if is_known { SegmentClass::SynRetransmission } else { SegmentClass::Syn }
    }

    /// A SYN starts a connection, perhaps another one between the same ports.
    fn restart(&mut self, peer: &Side, packet: &Packet, first: u64) {
        if self.seen.is_some() {
            if !self.ended && !peer.ended {
                self.degrade(Degradation::REUSED);
            }
            self.give_up_positions();
        }
        self.seen = Some(Seen::nothing(first, packet.time_ns));
        self.ended = false;
        self.history.clear();
        self.acknowledged = None;
        self.window = 0;
    }

    fn give_up_positions(&mut self) {
        let seen = self.seen.take();
        self.report.missing_bytes += seen.map_or(0, |seen| seen.missing());
        self.syn = None;
        self.several = true;
        self.stray = None;
        self.history.clear();
    }

    /// A segment without SYN and RST.
    fn receive(&mut self, peer: &Side, packet: &Packet) -> SegmentClass {
        let fin = packet.control & Packet::FIN != 0;
        let payload = packet.payload_bytes;
        if let Some(seen) = &self.seen
            && !fin
        {
            let next = seen.next as u32;
            let repeats_last = payload <= 1 && packet.sequence == next.wrapping_sub(1);
            // Before the first octet is the SYN.
            let may_probe = packet.sequence == next || repeats_last && seen.lowest < seen.next;
            if payload == 1 && may_probe && peer.zero_window {
                self.stray = None;
                self.take(seen.next - u64::from(repeats_last), packet);
                return SegmentClass::ZeroWindowProbe;
            }
            if repeats_last {
                return SegmentClass::KeepAlive;
            }
        }
        if payload == 0 && !fin {
            let repeats = packet.control & Packet::ACK != 0
                && self.acknowledged == Some(packet.acknowledgment)
                && self.window == packet.window
                && packet.window != 0;
            let outstanding = peer.seen.as_ref().is_some_and(|seen| is_after(seen.next as u32, packet.acknowledgment));
            self.window = packet.window;
            let is_duplicate = repeats && outstanding;
            return if is_duplicate { SegmentClass::DuplicateAcknowledgment } else { SegmentClass::Acknowledgment };
        }

        let Some(seen) = &self.seen else {
            if u64::from(payload) >= MAX_WINDOW {
                return SegmentClass::OutOfWindow;
            }
            return self.start_mid_stream(packet);
        };
        let start = nearest_position(seen.next, packet.sequence);
        let end = start + u64::from(payload) + u64::from(fin);
        let (known, since_ns) = (seen.count(start..end), seen.since(start..end));
        let in_order = start >= seen.next;
        let before_syn = self.syn.is_some_and(|syn| start <= syn);
        if before_syn || start + MAX_WINDOW <= seen.next || seen.next + MAX_WINDOW <= end {
            let is_near = |last: u32| (packet.sequence.wrapping_sub(last) as i32).unsigned_abs() < MAX_WINDOW as u32;
            // A segment that reaches from before the SYN into the stream belongs to the stream.
            let belongs = self.syn.is_some_and(|syn| start <= syn && end > syn + 1);
            if self.stray.is_some_and(is_near) && !belongs && u64::from(payload) < MAX_WINDOW {
                // Two segments in a row agree with each other: the stream went on without the
                // probe.
                self.degrade(Degradation::JUMP);
                self.give_up_positions();
                return self.start_mid_stream(packet);
            }
            self.stray = Some(packet.sequence);
            return SegmentClass::OutOfWindow;
        }
        self.stray = None;
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
            _ => DEFAULT_REORDERING_NS,
        };
        let is_soon = packet.time_ns.saturating_sub(since_ns) <= limit_ns;
        if is_soon { SegmentClass::OutOfOrder } else { SegmentClass::UnseenRetransmission }
    }

    /// The first payload or FIN, without a SYN before.
    fn start_mid_stream(&mut self, packet: &Packet) -> SegmentClass {
        let first = initial_position(packet.sequence);
        self.seen = Some(Seen::nothing(first, packet.time_ns));
        self.take(first, packet);
        SegmentClass::InOrder
    }

    /// Marks payload and FIN as seen, and counts the payload.
    fn take(&mut self, start: u64, packet: &Packet) {
        let seen = self.seen.as_mut().expect("the positions have started");
        let payload = start..start + u64::from(packet.payload_bytes);
        let known = seen.count(payload.clone());
        self.report.retransmitted_bytes += known;
        self.report.unique_bytes += u64::from(packet.payload_bytes) - known;
        self.report.largest_hole_bytes = self.report.largest_hole_bytes.max(start.saturating_sub(seen.next));
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
        self.limit_holes();
    }

    /// Gives up the lowest holes beyond [`MAX_HOLES`]: they count as seen.
    fn limit_holes(&mut self) {
        let seen = self.seen.as_mut().expect("the positions have started");
        while seen.holes.len() > MAX_HOLES {
            let hole = seen.holes.remove(0);
            self.report.missing_bytes += hole.end - hole.start;
            self.report.degradation.0 |= Degradation::HOLES;
        }
    }

    fn acknowledge(&mut self, peer: &Side, packet: &Packet) {
        let Some(before) = self.acknowledged.replace(packet.acknowledgment) else {
            if packet.control & Packet::SYN == 0 && peer.syn_has_ack && self.report.handshake_rtt_ns.is_none() {
                self.report.handshake_rtt_ns = peer.time_since_syn(packet);
            }
            return;
        };
        if is_after(before, packet.acknowledgment) {
            self.acknowledged = Some(before);
        } else if packet.acknowledgment.wrapping_sub(before) >= ACKNOWLEDGMENT_JUMP {
            self.history.clear();
        }
    }

    /// Time since its last SYN, if a segment of the other side acknowledges that SYN.
    fn time_since_syn(&self, answer: &Packet) -> Option<u64> {
        let (syn, seen) = (self.syn?, self.seen.as_ref()?);
        let number = answer.acknowledgment;
        let acknowledges = is_after(number, syn as u32) && !is_after(number, seen.next as u32);
        if acknowledges { answer.time_ns.checked_sub(self.last_syn_ns) } else { None }
    }
}

impl Seen {
    /// No positions yet, starting at `first`.
    fn nothing(first: u64, now_ns: u64) -> Self {
        Self { lowest: first, next: first, since_ns: now_ns, holes: Vec::new() }
    }

    /// Number of positions of a range that were seen.
    fn count(&self, range: Range<u64>) -> u64 {
        let within = overlap(&range, self.lowest..self.next);
        within - self.holes.iter().map(|hole| overlap(&range, hole.start..hole.end)).sum::<u64>()
    }

    /// Since when a range is known to be missing: that of its lowest hole, or of the start.
    fn since(&self, range: Range<u64>) -> u64 {
        let hole = self.holes.iter().find(|hole| overlap(&range, hole.start..hole.end) > 0);
        hole.map_or(self.since_ns, |hole| hole.since_ns)
    }

    /// Octets in all holes.
    fn missing(&self) -> u64 {
        self.holes.iter().map(|hole| hole.end - hole.start).sum()
    }

    /// Marks a range as seen.
    fn add(&mut self, range: Range<u64>, now_ns: u64) {
        let Range { start, end } = range;
        if start > self.next {
            self.holes.push(Hole { start: self.next, end: start, since_ns: now_ns });
        }
        if end < self.lowest {
            self.holes.insert(0, Hole { start: end, end: self.lowest, since_ns: self.since_ns });
        }
        self.lowest = self.lowest.min(start);
        self.next = self.next.max(end);
        let remainders =
            |hole: Hole| [Hole { end: hole.end.min(start), ..hole }, Hole { start: hole.start.max(end), ..hole }];
        self.holes = self.holes.drain(..).flat_map(remainders).filter(|hole| hole.start < hole.end).collect();
    }
}

/// Whether a packet is a duplicate of an earlier one of its side.
fn is_duplicate(earlier: &Packet, packet: &Packet) -> bool {
    let fields = |p: &Packet| {
        (p.sequence, p.acknowledgment, p.payload_bytes, p.control, p.window, p.icmp_or_checksum, p.identification)
    };
    let has_identification = packet.network == Network::Ipv4 && packet.identification & 0xffff != 0;
    let has = |bits| packet.control & bits != 0;
    let is_sent_once = !has(Packet::RST) && (packet.payload_bytes > 0 || has(Packet::SYN | Packet::FIN));
    let limit_ticks = if has_identification { 48 } else { 1 };
    fields(earlier) == fields(packet)
        && (has_identification || is_sent_once)
        && ticks_between(earlier.time_ns, packet.time_ns) <= limit_ticks
}

/// Distance of two times in units of 2^20 ns, which wrap after 2^24.
fn ticks_between(one_ns: u64, other_ns: u64) -> u64 {
    let ahead = (one_ns >> 20).wrapping_sub(other_ns >> 20) % (1 << 24);
    ahead.min((1 << 24) - ahead)
}

/// Whether sequence number `one` comes after `other`.
fn is_after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

/// The position of a sequence number that is nearest to a known position.
fn nearest_position(known: u64, sequence: u32) -> u64 {
    known.wrapping_add_signed(i64::from(sequence.wrapping_sub(known as u32) as i32))
}

/// The position of the first known sequence number. Lower positions remain available.
fn initial_position(sequence: u32) -> u64 {
    1 << 32 | u64::from(sequence)
}

fn overlap(one: &Range<u64>, other: Range<u64>) -> u64 {
    one.end.min(other.end).saturating_sub(one.start.max(other.start))
}
