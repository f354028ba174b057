//! The same as [`crate::Reference`], at speed: four cache lines a connection, of which an ordinary segment touches one.
//!
//! ```text
//! hot 0, 1    per side: how far it is, what it acknowledged, marks of its last four segments
//! cold 0, 1   per side: SYN, FIN, the round trip of the handshake
//! ```
//! [`Connection::usual`] takes a segment that brings the next octets, or acknowledges more, and is nothing else.
//! Everything else goes through [`Connection::enter`], which is the reference over again, packed. What is out of the
//! ordinary is kept in a [`Room`]: holes, rare counts, and marks of 64 segments once a copy was found.

use crate::report::{Degradation, SegmentClass, SegmentCount, TcpReport};
use crate::room::{AnomalyPool, Hole, TcpAnomalies, TcpAnomaly};
use crate::rules::{
    COPY_TICKS, FAR, IDENTIFIED_COPY_TICKS, LEAP, MAX_HOLES, REMEMBERED, REMEMBERED_DEEP, REORDERING_NS, SUSPICIOUS,
    SUSPICIOUS_DEEP, first_position, is_after, is_told_by_itself, is_whole_segment, near, tick, ticks_between,
};
use crate::segment::{CONTROL, Segment, mark};
use bytemuck::{Pod, Zeroable};
use weir_packet::Packet;

/// A connection: both directions. All zero is one that has not begun.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
pub struct Connection {
    hot: [Hot; 2],
    cold: [Cold; 2],
}

/// What nearly every segment changes.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
struct Hot {
    /// Behind the highest position seen.
    highest: u64,
    /// Octets seen for the first time in this record.
    unique_bytes: u64,
    /// Segments in order in this record.
    in_order: u32,
    /// Greatest acknowledgment number it sent.
    acknowledged: u32,
    /// Window of the last segment that only acknowledged.
    window: u16,
    /// Bits, and above [`DEEP`] the number of segments remembered so far, modulo 64.
    state: u16,
    /// What it has in the room: number plus 1.
    trouble: u32,
    /// The last segments that were no copies: mark, TTL (8 bits), tick (24 bits); 0 is none. If [`DEEP`] more
    /// of them are in the room.
    recent: [u64; REMEMBERED],
}

/// How it began and ended.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
struct Cold {
    lowest: u64,
    since_ns: u64,
    syn_ns: u64,
    last_syn_ns: u64,
    fin: u64,
    fin_ns: u64,
    /// Plus 1, or 0.
    handshake_rtt_ns: u64,
    maximum_segment_size: u16,
    syn_window: u16,
    /// Window scale plus 1 in the low 4 bits; above, more of the state.
    scale_and_more: u8,
    syns: u8,
    fins: u8,
    resets: u8,
}

const _: () = assert!(size_of::<Connection>() == 256 && size_of::<Hot>() == 64 && size_of::<Cold>() == 64);

/// Bits of [`Hot::state`]: a position is known.
const BEGAN: u16 = 1;
/// It acknowledged something.
const ACKED: u16 = 1 << 1;
/// The last window it announced was 0.
const ZERO: u16 = 1 << 2;
/// The position of its SYN is known: the one before the lowest.
const SYN: u16 = 1 << 3;
/// The position of its FIN is known.
const FIN: u16 = 1 << 4;
/// The last segment with payload or FIN was out of window.
const STRANGE: u16 = 1 << 5;
/// It told its options.
const TOLD: u16 = 1 << 6;
/// It sent FIN or RST.
const ENDED: u16 = 1 << 7;
/// A copy was found, and there was room to remember more.
const DEEP: u16 = 1 << 8;
/// One segment remembered.
const TURN: u16 = 1 << 10;
const _: () = assert!((u16::MAX / TURN) as usize + 1 == REMEMBERED_DEEP);

/// Bits of [`Cold::scale_and_more`]: its SYN acknowledged one of the other side.
const ANSWERS: u8 = 1 << 4;
/// More than one SYN or FIN, at different positions.
const SEVERAL: u8 = 1 << 5;
/// There was no room, in this record or before: a hole that was not kept then is missed now.
const NO_ROOM: u8 = 1 << 6;
/// It sent RST.
const RESET: u8 = 1 << 7;

/// [`Hot::in_order`] from which it is moved to where there is more room.
const FULL: u32 = 1 << 31;

impl Connection {
    /// One that has not begun.
    pub const NEW: Self = Self {
        hot: [Hot {
            highest: 0,
            unique_bytes: 0,
            in_order: 0,
            acknowledged: 0,
            window: 0,
            state: 0,
            trouble: 0,
            recent: [0; REMEMBERED],
        }; 2],
        cold: [Cold {
            lowest: 0,
            since_ns: 0,
            syn_ns: 0,
            last_syn_ns: 0,
            fin: 0,
            fin_ns: 0,
            handshake_rtt_ns: 0,
            maximum_segment_size: 0,
            syn_window: 0,
            scale_and_more: 0,
            syns: 0,
            fins: 0,
            resets: 0,
        }; 2],
    };

    /// The memory that [`Connection::usual`] needs of a side, to be fetched ahead.
    #[inline(always)]
    pub fn hot_line(&self, side: usize) -> &impl Sized {
        &self.hot[side & 1]
    }

    /// Takes a packet that brings the next octets of its side, or acknowledges more than before, and is nothing else.
    /// If not it changes nothing, and the packet is one for [`Connection::enter`], as is one in 2^31 in any case.
    #[inline(always)]
    pub fn enter_fast(&mut self, side: usize, packet: &Packet, room: &AnomalyPool) -> bool {
        let segment = Segment {
            time_ns: packet.time_ns,
            sequence: packet.sequence,
            acknowledgment: packet.acknowledgment,
            payload_bytes: packet.payload_bytes,
            window: packet.window,
            control: (packet.control & CONTROL) as u8,
            ttl: packet.ttl,
            ..Segment::default()
        };
        is_whole_segment(packet) && self.advance(side, &segment, || mark(packet, &room.secret))
    }

    /// The same of a segment, which is one for [`Connection::step`] if not.
    #[inline(always)]
    pub fn enter_segment_fast(&mut self, side: usize, segment: &Segment) -> bool {
        self.advance(side, segment, || segment.mark)
    }

    #[inline(always)]
    fn advance(&mut self, side: usize, segment: &Segment, mark: impl FnOnce() -> u32) -> bool {
        let hot = &mut self.hot[side & 1];
        let step = segment.acknowledgment.wrapping_sub(hot.acknowledged);
        if u16::from(segment.control) != Packet::ACK || segment.window == 0 || step >= LEAP {
            return false;
        }
        let next = hot.highest as u32;
        if segment.payload_bytes == 0 {
            if hot.state & (ACKED | ZERO | DEEP) != ACKED || step == 0 || segment.sequence == next.wrapping_sub(1) {
                return false;
            }
            hot.window = segment.window;
        } else {
            // A single octet may be a probe of a closed window; what is larger than a packet is a lie, or rare.
            let known = hot.state & (BEGAN | ACKED | ZERO | STRANGE | DEEP) == BEGAN | ACKED && hot.in_order < FULL;
            if !known || segment.sequence != next || segment.payload_bytes.wrapping_sub(2) >= 1 << 16 {
                return false;
            }
            hot.highest += u64::from(segment.payload_bytes);
            hot.unique_bytes += u64::from(segment.payload_bytes);
            hot.in_order += 1;
        }
        hot.acknowledged = segment.acknowledgment;
        hot.remember(mark(), segment.ttl, segment.time_ns);
        true
    }

    /// Enters a packet of one side (0 or 1), and says what it was.
    pub fn enter(&mut self, side: usize, packet: &Packet, room: &mut AnomalyPool) -> SegmentClass {
        self.enter_segment(side, Segment::of(packet, &room.secret).as_ref(), room)
    }

    /// Enters a segment, or a packet that has no whole TCP header.
    pub fn enter_segment(&mut self, side: usize, segment: Option<&Segment>, room: &mut AnomalyPool) -> SegmentClass {
        let side = side & 1;
        let ([hot_0, hot_1], [cold_0, cold_1]) = (&mut self.hot, &mut self.cold);
        let (own, peer) =
            if side == 0 { ((hot_0, cold_0), (&*hot_1, &*cold_1)) } else { ((hot_1, cold_1), (&*hot_0, &*cold_0)) };
        let mut half = Half { hot: own.0, cold: own.1, peer: peer.0, peer_cold: peer.1, room };
        half.spill();
        let class = match segment {
            Some(segment) => half.classify(segment),
            None => {
                half.degrade(Degradation::UNREAD);
                SegmentClass::Unread
            }
        };
        half.count(class, segment.map_or(0, |segment| segment.payload_bytes));
        class
    }

    /// What one side sent in this record, of so many packets.
    pub fn report(&self, side: usize, packets: u64, room: &AnomalyPool) -> TcpReport {
        let mut report = TcpReport::EMPTY;
        self.write_report(side, packets, room, &mut report);
        report
    }

    /// The same into a report of nothing.
    #[inline]
    pub fn write_report(&self, side: usize, packets: u64, room: &AnomalyPool, report: &mut TcpReport) {
        let trouble = self.hot[side & 1].trouble.checked_sub(1).map(|at| room.entry(at));
        self.write(side, packets, trouble, report);
    }

    /// The same of a connection that has left its room.
    pub fn report_detached(&self, side: usize, packets: u64, troubles: &TcpAnomalies) -> TcpReport {
        let mut report = TcpReport::EMPTY;
        self.write(side, packets, troubles.0[side & 1].as_deref(), &mut report);
        report
    }

    #[inline(always)]
    fn write(&self, side: usize, packets: u64, trouble: Option<&TcpAnomaly>, report: &mut TcpReport) {
        let (hot, cold) = (&self.hot[side & 1], &self.cold[side & 1]);
        report.unique_bytes = hot.unique_bytes;
        report.fins = cold.fins.into();
        report.classes[SegmentClass::Syn as usize].segments = cold.syns.into();
        report.classes[SegmentClass::Reset as usize].segments = cold.resets.into();
        report.classes[SegmentClass::InOrder as usize] =
            SegmentCount { segments: hot.in_order.into(), bytes: hot.unique_bytes };
        let mut others = u64::from(hot.in_order) + u64::from(cold.syns) + u64::from(cold.resets);
        if let Some(trouble) = trouble {
            others += trouble.add_to(report);
        }
        // What is nothing else only acknowledged.
        report.classes[SegmentClass::Acknowledgment as usize].segments = packets - others;
        if cold.scale_and_more & NO_ROOM != 0 {
            report.degradation.0 |= Degradation::POOL_FULL;
        }
        if hot.state & TOLD != 0 {
            report.syn_window = Some(cold.syn_window);
            report.maximum_segment_size = (cold.maximum_segment_size > 0).then_some(cold.maximum_segment_size);
            report.window_scale = (cold.scale_and_more & 0xf).checked_sub(1);
        }
        report.handshake_rtt_ns = cold.handshake_rtt_ns.checked_sub(1);
        if hot.state & (SYN | FIN) == SYN | FIN && cold.scale_and_more & SEVERAL == 0 {
            report.size_by_sequence_bytes = cold.fin.checked_sub(cold.lowest);
            report.duration_by_sequence_ns = cold.fin_ns.checked_sub(cold.syn_ns);
        }
    }

    /// Whether it has ended: FIN was seen from both sides, or RST from either.
    pub fn has_ended(&self) -> bool {
        self.hot.iter().all(|hot| hot.has(FIN)) || self.cold.iter().any(|cold| cold.scale_and_more & RESET != 0)
    }

    /// The numbers that both sides have in the [`Room`], if they have.
    pub fn anomaly_indices(&self) -> [Option<u32>; 2] {
        [self.hot[0].trouble.checked_sub(1), self.hot[1].trouble.checked_sub(1)]
    }

    /// Begins another record: what was counted is counted anew.
    pub fn start_next_record(&mut self, room: &mut AnomalyPool) {
        for (hot, cold) in self.hot.iter_mut().zip(&mut self.cold) {
            (hot.unique_bytes, hot.in_order) = (0, 0);
            (cold.syns, cold.fins, cold.resets) = (0, 0, 0);
            if hot.trouble > 0 {
                let trouble = room.entry_mut(hot.trouble - 1);
                if trouble.holes.len() == 0 && hot.state & (STRANGE | DEEP) == 0 {
                    room.give_back(hot.trouble - 1);
                    hot.trouble = 0;
                } else {
                    trouble.clear_counts();
                }
            }
        }
    }

    /// Takes out of a room what it has there. Until it joins another room, only [`Connection::report_detached`] knows what to
    /// make of it.
    pub fn detach_anomalies(&mut self, room: &mut AnomalyPool) -> TcpAnomalies {
        let mut troubles = TcpAnomalies::default();
        for (hot, trouble) in self.hot.iter_mut().zip(&mut troubles.0) {
            if let Some(at) = hot.trouble.checked_sub(1) {
                *trouble = Some(Box::new(*room.entry(at)));
                room.give_back(at);
                hot.trouble = 0;
            }
        }
        troubles
    }

    /// Puts into a room what it had in another one of this process. What finds no room there is forgotten, as if it had never
    /// found any: the report says so.
    pub fn attach_anomalies(&mut self, troubles: TcpAnomalies, room: &mut AnomalyPool) {
        for ((hot, cold), trouble) in self.hot.iter_mut().zip(&mut self.cold).zip(troubles.0) {
            let Some(trouble) = trouble else { continue };
            match room.take() {
                Some(at) => {
                    *room.entry_mut(at) = *trouble;
                    hot.trouble = at + 1;
                }
                None => {
                    cold.scale_and_more |= NO_ROOM;
                    // These say that there is more in the room.
                    hot.state &= !(STRANGE | DEEP);
                }
            }
        }
    }

    /// Forgets the connection: gives back what it has in the room.
    pub fn reset(&mut self, room: &mut AnomalyPool) {
        for hot in &self.hot {
            if hot.trouble > 0 {
                room.give_back(hot.trouble - 1);
            }
        }
        *self = Self::NEW;
    }
}

impl Hot {
    #[inline(always)]
    fn remember(&mut self, mark: u32, ttl: u8, time_ns: u64) {
        self.recent[self.turn() % REMEMBERED] = entry(mark, ttl, time_ns);
        self.state = self.state.wrapping_add(TURN);
    }

    /// Segments remembered so far, modulo 64.
    #[inline(always)]
    fn turn(&self) -> usize {
        usize::from(self.state / TURN)
    }

    fn has(&self, bit: u16) -> bool {
        self.state & bit != 0
    }

    fn set(&mut self, bit: u16, value: bool) {
        self.state = if value { self.state | bit } else { self.state & !bit };
    }
}

/// What is remembered of a segment.
#[inline(always)]
fn entry(mark: u32, ttl: u8, time_ns: u64) -> u64 {
    u64::from(mark) << 32 | u64::from(ttl) << 24 | u64::from(tick(time_ns))
}

/// Age and TTL of the latest of some entries, by age, of which a segment is a copy.
#[inline(always)]
fn original(remembered: usize, segment: &Segment, entry: impl Fn(usize) -> u64) -> Option<(usize, u8)> {
    let limit = if segment.identified { IDENTIFIED_COPY_TICKS } else { COPY_TICKS };
    (0..remembered).find_map(|age| {
        let entry = entry(age);
        let near = ticks_between(entry as u32 & 0x00ff_ffff, tick(segment.time_ns)) <= limit;
        ((entry >> 32) as u32 == segment.mark && near).then_some((age, (entry >> 24) as u8))
    })
}

/// One side, on its way through a segment.
struct Half<'a> {
    hot: &'a mut Hot,
    cold: &'a mut Cold,
    peer: &'a Hot,
    peer_cold: &'a Cold,
    room: &'a mut AnomalyPool,
}

impl Half<'_> {
    /// What it has in the room, if it has something there.
    fn known_trouble(&mut self) -> Option<&mut TcpAnomaly> {
        self.hot.trouble.checked_sub(1).map(|at| self.room.entry_mut(at))
    }

    /// What it has in the room, from now on, if there is some left.
    fn trouble(&mut self) -> Option<&mut TcpAnomaly> {
        if self.hot.trouble == 0 {
            match self.room.take() {
                Some(at) => self.hot.trouble = at + 1,
                None => self.cold.scale_and_more |= NO_ROOM,
            }
        }
        self.known_trouble()
    }

    fn degrade(&mut self, bit: u8) {
        if let Some(trouble) = self.trouble() {
            trouble.degradation |= bit;
        }
    }

    /// Makes room in counts that are about to be full.
    fn spill(&mut self) {
        if self.hot.in_order >= FULL {
            let segments = u64::from(self.hot.in_order);
            if let Some(trouble) = self.trouble() {
                trouble.classes[SegmentClass::InOrder as usize].segments += segments;
                self.hot.in_order = 0;
            }
        }
    }

    fn count(&mut self, class: SegmentClass, bytes: u32) {
        let small = match class {
            SegmentClass::Acknowledgment => return,
            SegmentClass::InOrder => {
                self.hot.in_order = self.hot.in_order.saturating_add(1);
                return;
            }
            SegmentClass::Syn => Some(&mut self.cold.syns),
            SegmentClass::Reset => Some(&mut self.cold.resets),
            _ => None,
        };
        if let Some(small) = small
            && bytes == 0
            && *small < u8::MAX
        {
            *small += 1;
        } else if let Some(trouble) = self.trouble() {
            let count = &mut trouble.classes[class as usize];
            count.segments += 1;
            count.bytes += u64::from(bytes);
        }
    }

    fn classify(&mut self, segment: &Segment) -> SegmentClass {
        if segment.control & Segment::FRAGMENT != 0 {
            self.degrade(Degradation::UNREAD);
        }
        if let Some(class) = self.copy(segment) {
            return class;
        }
        let class = if segment.has(Packet::RST) {
            self.hot.state |= ENDED;
            self.cold.scale_and_more |= RESET;
            SegmentClass::Reset
        } else if segment.has(Packet::SYN) {
            self.synchronize(segment)
        } else {
            self.receive(segment)
        };
        if class == SegmentClass::OutOfWindow {
            return class;
        }
        if class != SegmentClass::Reset {
            self.hot.set(ZERO, segment.window == 0);
            if segment.window == 0
                && let Some(trouble) = self.trouble()
            {
                trouble.zero_windows += 1;
            }
            if segment.has(Packet::ACK) {
                self.acknowledge(segment);
            }
        }
        self.remember(segment);
        class
    }

    /// Whether it is a copy of a segment that is remembered, the latest first.
    fn copy(&mut self, segment: &Segment) -> Option<SegmentClass> {
        if !segment.identified && !is_told_by_itself(segment.payload_bytes, segment.control.into()) {
            return None;
        }
        let turn = self.hot.turn();
        let (suspicious, original) = if self.hot.has(DEEP) {
            let originals = &self.known_trouble()?.originals;
            if !originals.have(segment.mark) {
                return None;
            }
            (SUSPICIOUS_DEEP, original(REMEMBERED_DEEP, segment, |age| originals.get(turn.wrapping_sub(age + 1))))
        } else {
            let recent = |age| self.hot.recent[turn.wrapping_sub(age + 1) % REMEMBERED];
            (SUSPICIOUS, original(REMEMBERED, segment, recent))
        };
        let (age, ttl) = original?;
        if age >= suspicious {
            self.degrade(Degradation::DUPLICATES);
        }
        if !self.hot.has(DEEP) {
            self.remember_more();
        }
        Some(if ttl == segment.ttl { SegmentClass::Duplicate } else { SegmentClass::RoutedDuplicate })
    }

    /// From now on.
    fn remember_more(&mut self) {
        let (recent, turn) = (self.hot.recent, self.hot.turn());
        if let Some(trouble) = self.trouble() {
            trouble.originals.begin(&recent, turn);
            self.hot.state |= DEEP;
        }
    }

    fn remember(&mut self, segment: &Segment) {
        let turn = self.hot.turn();
        self.hot.remember(segment.mark, segment.ttl, segment.time_ns);
        if self.hot.has(DEEP)
            && let Some(trouble) = self.known_trouble()
        {
            trouble.originals.set(turn, entry(segment.mark, segment.ttl, segment.time_ns));
        }
    }

    /// Lets all be forgotten that could have copies.
    fn forget(&mut self) {
        self.hot.recent = [0; REMEMBERED];
        if self.hot.has(DEEP)
            && let Some(trouble) = self.known_trouble()
        {
            trouble.originals.clear();
        }
    }

    fn synchronize(&mut self, segment: &Segment) -> SegmentClass {
        if u64::from(segment.payload_bytes) >= FAR {
            return SegmentClass::OutOfWindow;
        }
        let first = segment.sequence.wrapping_add(1);
        let again = self.hot.has(SYN) && self.cold.lowest as u32 == first;
        if !again {
            let behind = (self.cold.lowest as u32).wrapping_sub(first);
            if !self.hot.has(BEGAN) || self.hot.has(SYN) || u64::from(behind) >= FAR {
                self.begin_anew(segment, first_position(first));
            }
            let first = near(self.cold.lowest, first);
            if first < self.cold.lowest {
                let hole =
                    Hole { start: first, length: (self.cold.lowest - first) as u32, since_ns: self.cold.since_ns };
                self.cold.lowest = first;
                if let Some(trouble) = self.trouble() {
                    trouble.holes.insert(0, hole);
                }
                self.settle();
            }
            let answers = segment.has(Packet::ACK);
            let handshake_rtt_ns = if answers { self.time_since_peers_syn(segment) } else { 0 };
            self.hot.state |= SYN | TOLD;
            self.cold.syn_ns = segment.time_ns;
            self.cold.syn_window = segment.window;
            self.cold.maximum_segment_size = segment.maximum_segment_size;
            self.cold.scale_and_more = self.cold.scale_and_more & !(ANSWERS | 0xf) | segment.window_scale;
            self.cold.scale_and_more |= if answers { ANSWERS } else { 0 };
            self.cold.handshake_rtt_ns = handshake_rtt_ns;
        }
        self.cold.last_syn_ns = segment.time_ns;
        let class = if again { SegmentClass::SynRetransmission } else { SegmentClass::Syn };
        self.take(self.cold.lowest, segment, class);
        class
    }

    fn begin_anew(&mut self, segment: &Segment, first: u64) {
        if self.hot.has(BEGAN) {
            if !self.hot.has(ENDED) && !self.peer.has(ENDED) {
                self.degrade(Degradation::REUSED);
            }
            self.give_up();
        }
        self.begin(first, segment);
        self.hot.state &= !(ENDED | ACKED);
        // What acknowledges more than before is no copy: `usual` relies on it.
        self.forget();
        self.hot.acknowledged = 0;
        self.hot.window = 0;
    }

    fn begin(&mut self, first: u64, segment: &Segment) {
        (self.cold.lowest, self.hot.highest) = (first, first);
        self.cold.since_ns = segment.time_ns;
        self.hot.state |= BEGAN;
    }

    fn give_up(&mut self) {
        if let Some(trouble) = self.known_trouble() {
            trouble.missing_bytes += trouble.holes.missing();
            trouble.holes.clear();
        }
        self.hot.state &= !(SYN | STRANGE);
        self.cold.scale_and_more |= SEVERAL;
        self.forget();
    }

    fn receive(&mut self, segment: &Segment) -> SegmentClass {
        let (sequence, payload, fin) = (segment.sequence, segment.payload_bytes, segment.has(Packet::FIN));
        let next = self.hot.highest as u32;
        if self.hot.has(BEGAN) && !fin {
            let again = payload <= 1 && sequence == next.wrapping_sub(1);
            let probes = sequence == next || again && self.cold.lowest < self.hot.highest;
            if payload == 1 && probes && self.peer.has(ZERO) {
                self.hot.state &= !STRANGE;
                self.take(self.hot.highest - u64::from(again), segment, SegmentClass::ZeroWindowProbe);
                return SegmentClass::ZeroWindowProbe;
            }
            if again {
                return SegmentClass::KeepAlive;
            }
        }
        if payload == 0 && !fin {
            let repeats = segment.has(Packet::ACK)
                && self.hot.has(ACKED)
                && self.hot.acknowledged == segment.acknowledgment
                && self.hot.window == segment.window
                && segment.window != 0;
            // Asked last: the other side's line is mostly far away.
            let repeats = repeats && self.peer.has(BEGAN) && is_after(self.peer.highest as u32, segment.acknowledgment);
            self.hot.window = segment.window;
            return if repeats { SegmentClass::DuplicateAcknowledgment } else { SegmentClass::Acknowledgment };
        }
        if !self.hot.has(BEGAN) {
            if u64::from(payload) >= FAR {
                return SegmentClass::OutOfWindow;
            }
            return self.begin_amid(segment);
        }
        let highest = self.hot.highest;
        let start = near(highest, sequence);
        let end = start + u64::from(payload) + u64::from(fin);
        let in_order = start >= highest;
        let before_syn = !in_order && self.hot.has(SYN) && start < self.cold.lowest;
        if before_syn || start + FAR <= highest || highest + FAR <= end {
            // What reaches into the stream from before its SYN is of it, however odd.
            let is_of_it = before_syn && end > self.cold.lowest;
            return self.out_of_window(segment, is_of_it);
        }
        self.hot.state &= !STRANGE;
        if in_order {
            self.take(start, segment, SegmentClass::InOrder);
            return SegmentClass::InOrder;
        }
        let (known, since_ns) = self.known(start, end);
        let class = if known > 0 {
            SegmentClass::Retransmission
        } else if segment.time_ns.saturating_sub(since_ns) <= self.reordering_ns() {
            SegmentClass::OutOfOrder
        } else {
            SegmentClass::UnseenRetransmission
        };
        self.take(start, segment, class);
        if class == SegmentClass::Retransmission {
            let spurious = self.peer.has(ACKED) && !is_after(end as u32, self.peer.acknowledged);
            if let Some(trouble) = self.trouble() {
                trouble.partial_retransmissions += u64::from(known < end - start);
                trouble.spurious_retransmissions += u64::from(spurious);
            }
        }
        class
    }

    fn out_of_window(&mut self, segment: &Segment, is_of_it: bool) -> SegmentClass {
        let strange = self.hot.has(STRANGE);
        let sequence = segment.sequence;
        let near = |last: u32| (sequence.wrapping_sub(last) as i32).unsigned_abs() < FAR as u32;
        let agrees = strange && self.known_trouble().is_some_and(|trouble| near(trouble.strange));
        if agrees && !is_of_it && u64::from(segment.payload_bytes) < FAR {
            self.degrade(Degradation::JUMP);
            self.give_up();
            return self.begin_amid(segment);
        }
        if let Some(trouble) = self.trouble() {
            trouble.strange = sequence;
            self.hot.state |= STRANGE;
        }
        SegmentClass::OutOfWindow
    }

    fn begin_amid(&mut self, segment: &Segment) -> SegmentClass {
        let first = first_position(segment.sequence);
        self.begin(first, segment);
        self.take(first, segment, SegmentClass::InOrder);
        SegmentClass::InOrder
    }

    fn reordering_ns(&self) -> u64 {
        match (self.cold.handshake_rtt_ns, self.peer_cold.handshake_rtt_ns) {
            (0, _) | (_, 0) => REORDERING_NS,
            (own, peer) => (own - 1).saturating_add(peer - 1),
        }
    }

    /// How many positions of a range were seen, and since when it is known that they are missing.
    fn known(&mut self, start: u64, end: u64) -> (u64, u64) {
        let mut known = overlap(start, end, self.cold.lowest, self.hot.highest);
        let mut since_ns = None;
        if let Some(trouble) = self.known_trouble() {
            for hole in trouble.holes.iter() {
                let missing = overlap(start, end, hole.start, hole.end());
                known -= missing;
                if missing > 0 {
                    since_ns.get_or_insert(hole.since_ns);
                }
            }
        }
        (known, since_ns.unwrap_or(self.cold.since_ns))
    }

    /// Takes payload and FIN into what was seen.
    fn take(&mut self, start: u64, segment: &Segment, class: SegmentClass) {
        let payload = u64::from(segment.payload_bytes);
        let payload_end = start + payload;
        let known = if payload == 0 || class == SegmentClass::InOrder { 0 } else { self.known(start, payload_end).0 };
        self.hot.unique_bytes += payload - known;
        if class != SegmentClass::InOrder
            && payload > 0
            && let Some(trouble) = self.trouble()
        {
            trouble.unique_bytes += payload - known;
            trouble.retransmitted_bytes += known;
        }
        let fin = segment.has(Packet::FIN);
        if payload > 0 || fin {
            self.add(start, payload_end + u64::from(fin), segment.time_ns);
        }
        if fin {
            self.note_fin(payload_end, segment.time_ns);
        }
    }

    fn note_fin(&mut self, position: u64, time_ns: u64) {
        if !self.hot.has(FIN) {
            self.cold.fin = position;
            self.cold.fin_ns = time_ns;
        } else if self.cold.fin != position {
            self.cold.scale_and_more |= SEVERAL;
        }
        self.hot.state |= FIN | ENDED;
        if self.cold.fins < u8::MAX {
            self.cold.fins += 1;
        } else if let Some(trouble) = self.trouble() {
            trouble.fins += 1;
        }
    }

    /// Marks a range as seen.
    fn add(&mut self, start: u64, end: u64, now_ns: u64) {
        let highest = self.hot.highest;
        self.hot.highest = highest.max(end);
        if start == highest {
            return;
        }
        if start > highest {
            let hole = Hole { start: highest, length: (start - highest) as u32, since_ns: now_ns };
            if let Some(trouble) = self.trouble() {
                trouble.largest_hole_bytes = trouble.largest_hole_bytes.max(hole.length.into());
                trouble.holes.push(hole);
            }
        } else {
            let lowest = self.cold.lowest;
            self.cold.lowest = lowest.min(start);
            if end < lowest {
                let hole = Hole { start: end, length: (lowest - end) as u32, since_ns: self.cold.since_ns };
                if let Some(trouble) = self.trouble() {
                    trouble.holes.insert(0, hole);
                }
            } else if let Some(trouble) = self.known_trouble() {
                trouble.holes.cut(start, end);
            }
        }
        self.settle();
    }

    /// Of too many holes the lowest is taken as seen.
    fn settle(&mut self) {
        if let Some(trouble) = self.known_trouble()
            && trouble.holes.len() > MAX_HOLES
        {
            let hole = trouble.holes.remove(0);
            trouble.missing_bytes += u64::from(hole.length);
            trouble.degradation |= Degradation::HOLES;
        }
    }

    fn acknowledge(&mut self, segment: &Segment) {
        let number = segment.acknowledgment;
        if !self.hot.has(ACKED) {
            let answers = self.peer_cold.scale_and_more & ANSWERS != 0;
            if !segment.has(Packet::SYN) && answers && self.cold.handshake_rtt_ns == 0 {
                self.cold.handshake_rtt_ns = self.time_since_peers_syn(segment);
            }
            self.hot.state |= ACKED;
            self.hot.acknowledged = number;
        } else if !is_after(self.hot.acknowledged, number) {
            if number.wrapping_sub(self.hot.acknowledged) >= LEAP {
                self.forget();
            }
            self.hot.acknowledged = number;
        }
    }

    /// Time since the other side's last SYN plus 1, if this acknowledges that; else 0.
    fn time_since_peers_syn(&self, answer: &Segment) -> u64 {
        let number = answer.acknowledgment;
        let acknowledges = self.peer.has(SYN)
            && is_after(number, (self.peer_cold.lowest - 1) as u32)
            && !is_after(number, self.peer.highest as u32);
        let since = answer.time_ns.checked_sub(self.peer_cold.last_syn_ns);
        if acknowledges { since.map_or(0, |ns| ns.saturating_add(1)) } else { 0 }
    }
}

fn overlap(start: u64, end: u64, other_start: u64, other_end: u64) -> u64 {
    end.min(other_end).saturating_sub(start.max(other_start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::Flags;

    #[test]
    fn segments_in_order_are_counted_beyond_32_bits() {
        let mut room = AnomalyPool::new(1).unwrap();
        let mut connection = Connection::NEW;
        let mut packet = Packet {
            payload_bytes: 10,
            control: Packet::ACK,
            window: 1,
            flags: Flags(Flags::TCP),
            identification: 1,
            ..Packet::default()
        };
        connection.enter(0, &packet, &mut room);
        for (already, packets) in [(FULL - 1, 1_u64 << 31), (FULL - 1, 1 << 32), (FULL - 1, 3 << 31)] {
            connection.hot[0].in_order = already;
            for usual in [true, false] {
                packet.sequence += 10;
                packet.identification += 1;
                assert_eq!(connection.enter_fast(0, &packet, &room), usual);
                if !usual {
                    assert_eq!(connection.enter(0, &packet, &mut room), SegmentClass::InOrder);
                }
            }
            let report = connection.report(0, packets + 1, &room);
            assert_eq!((report.count(SegmentClass::InOrder).segments, report.degradation.0), (packets + 1, 0));
        }
    }

    /// A connection of which one side lost a segment, and the segment that comes behind.
    fn with_a_hole(room: &mut AnomalyPool) -> (Connection, Packet) {
        let mut connection = Connection::NEW;
        let packet = Packet {
            payload_bytes: 10,
            control: Packet::ACK,
            window: 1,
            flags: Flags(Flags::TCP),
            identification: 1,
            ..Packet::default()
        };
        for sequence in [0, 20, 20] {
            connection.enter(0, &Packet { sequence, ..packet }, room);
        }
        (connection, Packet { sequence: 10, ..packet })
    }

    #[test]
    fn a_connection_that_moves_to_another_room_goes_on_as_if_it_had_stayed() {
        let [mut stayed_in, mut one, mut other] = [(); 3].map(|()| AnomalyPool::new(2).unwrap());
        let (mut stayed, missing) = with_a_hole(&mut stayed_in);
        let (mut moved, _) = with_a_hole(&mut one);
        // Another one is there already, so that numbers differ.
        with_a_hole(&mut other);
        let troubles = moved.detach_anomalies(&mut one);
        assert_eq!((one.used(), moved.anomaly_indices()), (0, [None; 2]));
        assert_eq!(moved.report_detached(0, 3, &troubles), stayed.report(0, 3, &stayed_in));
        moved.attach_anomalies(troubles, &mut other);
        assert_eq!((other.used(), moved.anomaly_indices()), (2, [Some(1), None]));
        stayed.enter(0, &missing, &mut stayed_in);
        moved.enter(0, &missing, &mut other);
        assert_eq!(moved.report(0, 4, &other), stayed.report(0, 4, &stayed_in));
        moved.reset(&mut other);
        assert_eq!(other.used(), 1);
    }

    #[test]
    fn a_connection_that_moves_to_a_full_room_says_so() {
        let [mut one, mut full] = [AnomalyPool::new(1).unwrap(), AnomalyPool::new(0).unwrap()];
        let (mut moved, missing) = with_a_hole(&mut one);
        let troubles = moved.detach_anomalies(&mut one);
        moved.attach_anomalies(troubles, &mut full);
        moved.enter(0, &missing, &mut full);
        let report = moved.report(0, 4, &full);
        assert_eq!((report.degradation.0, report.segments()), (Degradation::POOL_FULL, 4));
    }
}
