//! The rules of `docs/tcp.md`: classifies one segment and updates the state of its side.
//!
//! In: a segment, the state of its side and of the other side, and the anomaly pool. Out: the
//! class; the observer also gets every decision as a [`SegmentEvent`]. An observer that does
//! nothing costs nothing. `crates/meter/tcp-batch/kernels/tcp.h` repeats these functions for a GPU, by
//! the same names.

use crate::class::SegmentClass;
use crate::event::SegmentEvent;
use crate::history::{find_original, history_entry};
use crate::holes::Hole;
use crate::pool::{AnomalyPool, PoolEntry};
use crate::report::Degradation;
use crate::rules::{
    ACKNOWLEDGMENT_JUMP, DEEP_HISTORY, DEFAULT_REORDERING_NS, HISTORY, LATE_AGE, LATE_AGE_DEEP, MAX_HOLES, MAX_WINDOW,
    counted_identification, initial_position, is_after, is_sent_before, is_sent_once, nearest_position,
};
use crate::segment::Segment;
use crate::side::{ColdSide, HotSide, IN_ORDER_LIMIT};
use crate::times::{CompletedTime, MeasuredTimes, Times};
use weir_packet::Packet;

/// One side while it processes a segment.
pub(crate) struct Classifier<'a, O, C> {
    /// Its number, 0 or 1.
    pub side: usize,
    pub hot: &'a mut HotSide,
    pub cold: &'a mut ColdSide,
    pub peer: &'a HotSide,
    pub peer_cold: &'a ColdSide,
    pub times: &'a mut Times,
    pub pool: &'a mut AnomalyPool,
    pub observer: O,
    /// Gets each time that the segment completes, with the times of its side.
    pub complete: C,
}

/// A range of positions compared with those seen so far.
struct Overlap {
    /// Positions of the range that were seen.
    seen: u64,
    /// Time at which its lowest hole opened; without a hole, at which the positions started.
    missing_since_ns: u64,
    /// Identification of the segment that opened this hole, or 0.
    identification: u16,
}

impl<O: FnMut(SegmentEvent), C: FnMut(&mut MeasuredTimes, CompletedTime)> Classifier<'_, O, C> {
    /// Classifies and counts a segment, or a packet without a whole TCP header.
    pub fn classify_and_count(&mut self, segment: Option<&Segment>) -> SegmentClass {
        self.move_in_order_count();
        let class = match segment {
            Some(segment) => self.classify(segment),
            None => {
                self.degrade(Degradation::UNREAD);
                SegmentClass::Unread
            }
        };
        self.count(class, segment.map_or(0, |segment| segment.payload_bytes));
        class
    }

    /// Moves the counter of segments in order to the pool entry before it overflows.
    fn move_in_order_count(&mut self) {
        if self.hot.in_order >= IN_ORDER_LIMIT {
            let segments = u64::from(self.hot.in_order);
            if let Some(entry) = self.entry() {
                entry.classes[SegmentClass::InOrder as usize].segments += segments;
                self.hot.in_order = 0;
            }
        }
    }

    fn count(&mut self, class: SegmentClass, payload_bytes: u32) {
        let counter = match class {
            // Reports derive it from the number of packets.
            SegmentClass::Acknowledgment => return,
            SegmentClass::InOrder => {
                self.hot.in_order = self.hot.in_order.saturating_add(1);
                return;
            }
            SegmentClass::Syn => Some(&mut self.cold.syns),
            SegmentClass::Reset => Some(&mut self.cold.resets),
            _ => None,
        };
        if let Some(counter) = counter
            && payload_bytes == 0
            && *counter < u8::MAX
        {
            *counter += 1;
        } else if let Some(entry) = self.entry() {
            let count = &mut entry.classes[class as usize];
            count.segments += 1;
            count.bytes += u64::from(payload_bytes);
        }
    }

    fn classify(&mut self, segment: &Segment) -> SegmentClass {
        if segment.control & Segment::FIRST_FRAGMENT != 0 {
            self.degrade(Degradation::UNREAD);
        }
        if let Some(class) = self.duplicate(segment) {
            return class;
        }
        let class = if segment.has(Packet::RST) {
            self.hot.flags_and_history_number |= HotSide::ENDED;
            self.cold.scale_and_flags |= ColdSide::RESET;
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
            self.hot.set(HotSide::ZERO_WINDOW, segment.window == 0);
            if segment.window == 0 {
                (self.observer)(SegmentEvent::ZeroWindow);
                if let Some(entry) = self.entry() {
                    entry.zero_windows += 1;
                }
            }
            if segment.has(Packet::ACK) {
                self.acknowledge(segment);
            }
            self.measure_times(segment, class);
        }
        self.remember(segment);
        class
    }

    /// The class of a duplicate; `None` if no remembered segment is its original.
    fn duplicate(&mut self, segment: &Segment) -> Option<SegmentClass> {
        if segment.identification == 0 && !is_sent_once(segment.payload_bytes, segment.control.into()) {
            return None;
        }
        let next = self.hot.history_number();
        let (late_age, original) = if self.hot.has(HotSide::HAS_DEEP_HISTORY) {
            let history = &self.existing_entry()?.history;
            if !history.contains(segment.digest) {
                return None;
            }
            (LATE_AGE_DEEP, find_original(DEEP_HISTORY, segment, |age| history.get(next.wrapping_sub(age + 1))))
        } else {
            let recent = |age| self.hot.recent[next.wrapping_sub(age + 1) % HISTORY];
            (LATE_AGE, find_original(HISTORY, segment, recent))
        };
        let (age, original_ttl) = original?;
        (self.observer)(SegmentEvent::Duplicate { age, original_ttl });
        if age >= late_age {
            self.degrade(Degradation::DUPLICATES);
        }
        if !self.hot.has(HotSide::HAS_DEEP_HISTORY) {
            self.start_deep_history();
        }
        let same_ttl = original_ttl == segment.ttl;
        Some(if same_ttl { SegmentClass::Duplicate } else { SegmentClass::RoutedDuplicate })
    }

    fn start_deep_history(&mut self) {
        let (recent, next) = (self.hot.recent, self.hot.history_number());
        if let Some(entry) = self.entry() {
            entry.history.start(&recent, next);
            self.hot.flags_and_history_number |= HotSide::HAS_DEEP_HISTORY;
        }
    }

    fn remember(&mut self, segment: &Segment) {
        let number = self.hot.history_number();
        self.hot.remember(segment.digest, segment.ttl, segment.time_ns);
        if self.hot.has(HotSide::HAS_DEEP_HISTORY)
            && let Some(entry) = self.existing_entry()
        {
            entry.history.set(number, history_entry(segment.digest, segment.ttl, segment.time_ns));
        }
    }

    fn clear_history(&mut self) {
        self.hot.recent = [0; HISTORY];
        if self.hot.has(HotSide::HAS_DEEP_HISTORY)
            && let Some(entry) = self.existing_entry()
        {
            entry.history.clear();
        }
    }

    /// Processes a segment with SYN.
    fn synchronize(&mut self, segment: &Segment) -> SegmentClass {
        if u64::from(segment.payload_bytes) >= MAX_WINDOW {
            return SegmentClass::OutOfWindow;
        }
        let first = segment.sequence.wrapping_add(1);
        let is_known = self.hot.has(HotSide::SYN) && self.cold.lowest_position as u32 == first;
        if !is_known {
            self.accept_syn(segment, first);
        }
        self.cold.last_syn_ns = segment.time_ns;
        let class = if is_known { SegmentClass::SynRetransmission } else { SegmentClass::Syn };
        self.account_positions(self.cold.lowest_position, segment, class);
        class
    }

    /// Stores a SYN with a new sequence number; `first` is the sequence number after it.
    fn accept_syn(&mut self, segment: &Segment, first: u32) {
        // A SYN below the known positions was overtaken by the segments that follow it.
        let below = (self.cold.lowest_position as u32).wrapping_sub(first);
        if !self.hot.has(HotSide::STARTED) || self.hot.has(HotSide::SYN) || u64::from(below) >= MAX_WINDOW {
            self.restart(segment, initial_position(first));
        }
        let lowest = self.cold.lowest_position;
        let first = nearest_position(lowest, first);
        if first < lowest {
            self.cold.lowest_position = first;
            self.insert_lowest_hole(first, lowest);
            self.limit_holes();
        }
        let has_ack = segment.has(Packet::ACK);
        let handshake_rtt_ns = if has_ack { self.time_since_peer_syn(segment) } else { 0 };
        self.hot.flags_and_history_number |= HotSide::SYN | HotSide::OPTIONS;
        self.cold.syn_ns = segment.time_ns;
        self.cold.syn_window = segment.window;
        self.cold.maximum_segment_size = segment.maximum_segment_size;
        self.cold.scale_and_flags = self.cold.scale_and_flags & !(ColdSide::SYN_ACKED | 0xf) | segment.window_scale;
        self.cold.scale_and_flags |= if has_ack { ColdSide::SYN_ACKED } else { 0 };
        self.set_handshake_rtt(handshake_rtt_ns);
    }

    /// Starts new positions: for the first SYN of the side, or for a new connection on its ports.
    fn restart(&mut self, segment: &Segment, lowest: u64) {
        if self.hot.has(HotSide::STARTED) {
            if !self.hot.has(HotSide::ENDED) && !self.peer.has(HotSide::ENDED) {
                self.degrade(Degradation::REUSED);
            }
            self.give_up_positions();
        }
        self.start(lowest, segment);
        self.hot.flags_and_history_number &= !(HotSide::ENDED | HotSide::ACKED);
        // The fast path does not search the history: it relies on a segment that acknowledges more
        // than all remembered ones being no duplicate.
        self.clear_history();
        self.hot.acknowledged = 0;
        self.hot.window = 0;
    }

    fn start(&mut self, lowest: u64, segment: &Segment) {
        (self.observer)(SegmentEvent::PositionsStarted { lowest, restarted: self.hot.has(HotSide::STARTED) });
        (self.cold.lowest_position, self.hot.next_position) = (lowest, lowest);
        self.cold.started_ns = segment.time_ns;
        self.hot.flags_and_history_number |= HotSide::STARTED;
        self.times.forget(self.side);
    }

    fn give_up_positions(&mut self) {
        if let Some(entry) = self.existing_entry() {
            entry.missing_bytes += entry.holes.missing_bytes();
            entry.holes.clear();
        }
        self.hot.flags_and_history_number &= !(HotSide::SYN | HotSide::LAST_OUT_OF_WINDOW);
        self.cold.scale_and_flags |= ColdSide::SEVERAL_SYN_OR_FIN;
        self.clear_history();
    }

    /// Processes a segment without SYN and RST.
    fn receive(&mut self, segment: &Segment) -> SegmentClass {
        let (sequence, payload_bytes, fin) = (segment.sequence, segment.payload_bytes, segment.has(Packet::FIN));
        let next = self.hot.next_position as u32;
        if self.hot.has(HotSide::STARTED) && !fin {
            let repeats_last = payload_bytes <= 1 && sequence == next.wrapping_sub(1);
            let may_probe = sequence == next || repeats_last && self.cold.lowest_position < self.hot.next_position;
            if payload_bytes == 1 && may_probe && self.peer.has(HotSide::ZERO_WINDOW) {
                self.hot.flags_and_history_number &= !HotSide::LAST_OUT_OF_WINDOW;
                self.account_positions(
                    self.hot.next_position - u64::from(repeats_last),
                    segment,
                    SegmentClass::ZeroWindowProbe,
                );
                return SegmentClass::ZeroWindowProbe;
            }
            if repeats_last {
                return SegmentClass::KeepAlive;
            }
        }
        if payload_bytes == 0 && !fin {
            return self.receive_acknowledgment(segment);
        }
        if !self.hot.has(HotSide::STARTED) {
            if u64::from(payload_bytes) >= MAX_WINDOW {
                return SegmentClass::OutOfWindow;
            }
            return self.start_mid_stream(segment);
        }
        self.receive_data(segment, u64::from(payload_bytes) + u64::from(fin))
    }

    /// Processes a segment without payload, SYN, FIN and RST.
    fn receive_acknowledgment(&mut self, segment: &Segment) -> SegmentClass {
        let repeats = segment.has(Packet::ACK)
            && self.hot.has(HotSide::ACKED)
            && self.hot.acknowledged == segment.acknowledgment
            && self.hot.window == segment.window
            && segment.window != 0;
        // Checked last: the cache line of the other side is mostly cold.
        let is_duplicate = repeats
            && self.peer.has(HotSide::STARTED)
            && is_after(self.peer.next_position as u32, segment.acknowledgment);
        self.hot.window = segment.window;
        if is_duplicate { SegmentClass::DuplicateAcknowledgment } else { SegmentClass::Acknowledgment }
    }

    /// Processes payload and FIN of a side whose positions are known; `length` counts both.
    fn receive_data(&mut self, segment: &Segment, length: u64) -> SegmentClass {
        let next = self.hot.next_position;
        let start = nearest_position(next, segment.sequence);
        let end = start + length;
        let in_order = start >= next;
        let before_syn = !in_order && self.hot.has(HotSide::SYN) && start < self.cold.lowest_position;
        if before_syn || start + MAX_WINDOW <= next || next + MAX_WINDOW <= end {
            // Such a segment belongs to the stream, although it starts before the SYN.
            let reaches_into_stream = before_syn && end > self.cold.lowest_position;
            return self.receive_out_of_window(segment, reaches_into_stream);
        }
        self.hot.flags_and_history_number &= !HotSide::LAST_OUT_OF_WINDOW;
        if in_order {
            self.account_positions(start, segment, SegmentClass::InOrder);
            return SegmentClass::InOrder;
        }
        let overlap = self.compare_with_seen(start, end, |_, _, _| {});
        let seen = overlap.seen;
        let class = if seen > 0 {
            SegmentClass::Retransmission
        } else if self.is_reordered(segment, &overlap) {
            SegmentClass::OutOfOrder
        } else {
            SegmentClass::UnseenRetransmission
        };
        self.account_positions(start, segment, class);
        if class == SegmentClass::Retransmission {
            let is_partial = seen < length;
            let is_spurious = self.peer.has(HotSide::ACKED) && !is_after(end as u32, self.peer.acknowledged);
            if is_partial {
                (self.observer)(SegmentEvent::PartialRetransmission);
            }
            if is_spurious {
                (self.observer)(SegmentEvent::SpuriousRetransmission);
            }
            if let Some(entry) = self.entry() {
                entry.partial_retransmissions += u64::from(is_partial);
                entry.spurious_retransmissions += u64::from(is_spurious);
            }
        }
        class
    }

    fn receive_out_of_window(&mut self, segment: &Segment, reaches_into_stream: bool) -> SegmentClass {
        let sequence = segment.sequence;
        let is_near = |last: u32| (sequence.wrapping_sub(last) as i32).unsigned_abs() < MAX_WINDOW as u32;
        let agrees = self.hot.has(HotSide::LAST_OUT_OF_WINDOW)
            && self.existing_entry().is_some_and(|entry| is_near(entry.out_of_window_sequence));
        if agrees && !reaches_into_stream && u64::from(segment.payload_bytes) < MAX_WINDOW {
            // Two segments in a row agree with each other: the capture missed a part of the stream.
            self.degrade(Degradation::JUMP);
            self.give_up_positions();
            return self.start_mid_stream(segment);
        }
        if let Some(entry) = self.entry() {
            entry.out_of_window_sequence = sequence;
            self.hot.flags_and_history_number |= HotSide::LAST_OUT_OF_WINDOW;
        }
        SegmentClass::OutOfWindow
    }

    /// Starts the positions with payload or FIN.
    fn start_mid_stream(&mut self, segment: &Segment) -> SegmentClass {
        let lowest = initial_position(segment.sequence);
        self.start(lowest, segment);
        self.account_positions(lowest, segment, SegmentClass::InOrder);
        SegmentClass::InOrder
    }

    /// Whether a segment that fills a hole was overtaken. Else its original was lost before the capture
    /// point.
    fn is_reordered(&self, segment: &Segment, missing: &Overlap) -> bool {
        let age_ns = segment.time_ns.saturating_sub(missing.missing_since_ns);
        is_sent_before(segment.identification, missing.identification, age_ns)
            .unwrap_or_else(|| age_ns <= self.reordering_ns())
    }

    /// Longest age of a hole whose filling counts as out of order if the identification does not
    /// decide: the round trip of the handshake.
    fn reordering_ns(&self) -> u64 {
        match (self.cold.handshake_rtt_ns, self.peer_cold.handshake_rtt_ns) {
            (0, _) | (_, 0) => DEFAULT_REORDERING_NS,
            (own, peer) => (own - 1).saturating_add(peer - 1),
        }
    }

    /// Compares a range with the positions seen so far. Passes each part that was seen to `each`.
    fn compare_with_seen(&mut self, start: u64, end: u64, each: impl Fn(&mut O, u64, u64)) -> Overlap {
        let mut seen = overlap(start, end, self.cold.lowest_position, self.hot.next_position);
        let mut lowest = None;
        let mut from = start.max(self.cold.lowest_position);
        if let Some(index) = self.hot.entry_number.checked_sub(1) {
            for hole in self.pool.entry(index).holes.overlapping(start, end) {
                seen -= overlap(start, end, hole.start, hole.end());
                lowest.get_or_insert((hole.since_ns, hole.identification));
                if from < hole.start {
                    each(&mut self.observer, from, hole.start);
                }
                from = hole.end();
            }
        }
        let to = end.min(self.hot.next_position);
        if from < to {
            each(&mut self.observer, from, to);
        }
        let (missing_since_ns, identification) = lowest.unwrap_or((self.cold.started_ns, 0));
        Overlap { seen, missing_since_ns, identification }
    }

    /// Marks the positions of payload and FIN as seen, and counts the payload.
    fn account_positions(&mut self, start: u64, segment: &Segment, class: SegmentClass) {
        let payload = u64::from(segment.payload_bytes);
        let payload_end = start + payload;
        let repeated = if payload == 0 || class == SegmentClass::InOrder {
            0
        } else {
            let report = |observer: &mut O, start, end| observer(SegmentEvent::Repeated(start..end));
            self.compare_with_seen(start, payload_end, report).seen
        };
        self.hot.unique_bytes += payload - repeated;
        if class != SegmentClass::InOrder
            && payload > 0
            && let Some(entry) = self.entry()
        {
            entry.unique_bytes += payload - repeated;
            entry.retransmitted_bytes += repeated;
        }
        let fin = segment.has(Packet::FIN);
        if payload > 0 || fin {
            self.mark_seen(start, payload_end + u64::from(fin), segment);
        }
        if fin {
            self.take_fin(payload_end, segment.time_ns);
        }
    }

    fn take_fin(&mut self, position: u64, time_ns: u64) {
        if !self.hot.has(HotSide::FIN) {
            self.cold.fin_position = position;
            self.cold.fin_ns = time_ns;
        } else if self.cold.fin_position != position {
            self.cold.scale_and_flags |= ColdSide::SEVERAL_SYN_OR_FIN;
        }
        self.hot.flags_and_history_number |= HotSide::FIN | HotSide::ENDED;
        if self.cold.fins < u8::MAX {
            self.cold.fins += 1;
        } else if let Some(entry) = self.entry() {
            entry.fins += 1;
        }
    }

    /// Marks a range as seen: opens a hole beside the known positions, or fills holes.
    fn mark_seen(&mut self, start: u64, end: u64, segment: &Segment) {
        let next = self.hot.next_position;
        self.hot.next_position = next.max(end);
        if start == next {
            return;
        }
        if start > next {
            (self.observer)(SegmentEvent::HoleOpened(next..start));
            let identification = counted_identification(self.times.identification(self.side), segment.identification);
            let length = (start - next) as u32;
            let hole = Hole { start: next, length, since_ns: segment.time_ns, identification };
            if let Some(entry) = self.entry() {
                entry.largest_hole_bytes = entry.largest_hole_bytes.max(hole.length.into());
                entry.holes.push(hole);
            }
        } else {
            let lowest = self.cold.lowest_position;
            self.cold.lowest_position = lowest.min(start);
            if end < lowest {
                self.insert_lowest_hole(end, lowest);
            } else if let Some(index) = self.hot.entry_number.checked_sub(1) {
                let observer = &mut self.observer;
                let report = |start, end| observer(SegmentEvent::HoleFilled(start..end));
                self.pool.entry_mut(index).holes.fill(start, end, report);
            }
        }
        self.limit_holes();
    }

    /// Inserts a hole below all positions known before.
    fn insert_lowest_hole(&mut self, start: u64, end: u64) {
        (self.observer)(SegmentEvent::HoleOpened(start..end));
        let length = (end - start) as u32;
        let hole = Hole { start, length, since_ns: self.cold.started_ns, identification: 0 };
        if let Some(entry) = self.entry() {
            entry.holes.insert(0, hole);
        }
    }

    /// Settles the lowest hole if there are more than [`MAX_HOLES`]: it counts as seen from now on.
    fn limit_holes(&mut self) {
        if let Some(entry) = self.existing_entry()
            && entry.holes.len() > MAX_HOLES
        {
            let hole = entry.holes.remove(0);
            entry.missing_bytes += u64::from(hole.length);
            (self.observer)(SegmentEvent::HoleSettled(hole.start..hole.end()));
            self.degrade(Degradation::HOLES);
        }
    }

    fn acknowledge(&mut self, segment: &Segment) {
        let number = segment.acknowledgment;
        if !self.hot.has(HotSide::ACKED) {
            if !segment.has(Packet::SYN) && self.peer_cold.has(ColdSide::SYN_ACKED) && self.cold.handshake_rtt_ns == 0 {
                self.set_handshake_rtt(self.time_since_peer_syn(segment));
            }
            self.hot.flags_and_history_number |= HotSide::ACKED;
            self.hot.acknowledged = number;
        } else if !is_after(self.hot.acknowledged, number) {
            if number.wrapping_sub(self.hot.acknowledged) >= ACKNOWLEDGMENT_JUMP {
                self.clear_history();
            }
            self.hot.acknowledged = number;
        }
    }

    /// Measures the times that a segment completes, and starts new ones.
    fn measure_times(&mut self, segment: &Segment, class: SegmentClass) {
        use SegmentClass::*;
        let (side, has_ack, time_ns) = (self.side, segment.has(Packet::ACK), segment.time_ns);
        if has_ack && let Some(time) = self.times.acknowledge(side, segment) {
            (self.complete)(self.times.measured_mut(side), time);
            (self.observer)(SegmentEvent::PayloadAcknowledged { rtt_ns: time.time_ns });
        }
        if !matches!(class, InOrder | Acknowledgment | DuplicateAcknowledgment) {
            self.times.discard_timed(side);
        }
        if matches!(class, InOrder | Syn | SynRetransmission) {
            self.times.set_identification(side, segment.identification);
        }
        if segment.payload_bytes == 0 || matches!(class, KeepAlive | ZeroWindowProbe) {
            return;
        }
        let start = segment.sequence.wrapping_add(u32::from(segment.has(Packet::SYN)));
        let end = start.wrapping_add(segment.payload_bytes);
        if matches!(class, InOrder | Syn) {
            if has_ack && let Some(time) = self.times.answer(side, segment) {
                (self.complete)(self.times.measured_mut(side), time);
                (self.observer)(SegmentEvent::RequestAnswered { response_ns: time.time_ns });
            }
        } else if self.peer.has(HotSide::ACKED) && !is_after(end, self.peer.acknowledged) {
            return;
        }
        if class == InOrder {
            self.times.request(side, end, time_ns);
            self.times.time_segment(side, end, time_ns);
        } else {
            let later = self.times.request_end(side).filter(|&known| is_after(known, end));
            self.times.request(side, later.unwrap_or(end), time_ns);
        }
    }

    /// Sets the round-trip time, which is given plus 1, or 0.
    fn set_handshake_rtt(&mut self, rtt_ns_plus_1: u64) {
        self.cold.handshake_rtt_ns = rtt_ns_plus_1;
        if let Some(rtt_ns) = rtt_ns_plus_1.checked_sub(1) {
            (self.observer)(SegmentEvent::HandshakeAnswered { rtt_ns });
        }
    }

    /// Time since the other side's last SYN plus 1, if this segment acknowledges it; else 0.
    fn time_since_peer_syn(&self, answer: &Segment) -> u64 {
        let number = answer.acknowledgment;
        let acknowledges = self.peer.has(HotSide::SYN)
            && is_after(number, (self.peer_cold.lowest_position - 1) as u32)
            && !is_after(number, self.peer.next_position as u32);
        let since_ns = answer.time_ns.checked_sub(self.peer_cold.last_syn_ns);
        if acknowledges { since_ns.map_or(0, |ns| ns.saturating_add(1)) } else { 0 }
    }

    fn degrade(&mut self, bit: u8) {
        (self.observer)(SegmentEvent::Degraded(bit));
        if let Some(entry) = self.entry() {
            entry.degradation |= bit;
        }
    }

    /// The pool entry of the side, allocated now if it has none; `None` if the pool is full.
    fn entry(&mut self) -> Option<&mut PoolEntry> {
        if self.hot.entry_number == 0 {
            match self.pool.allocate() {
                Some(index) => self.hot.entry_number = index + 1,
                None => self.cold.scale_and_flags |= ColdSide::POOL_FULL,
            }
        }
        self.existing_entry()
    }

    /// The pool entry of the side, if it has one.
    fn existing_entry(&mut self) -> Option<&mut PoolEntry> {
        self.hot.entry_number.checked_sub(1).map(|index| self.pool.entry_mut(index))
    }
}

fn overlap(start: u64, end: u64, other_start: u64, other_end: u64) -> u64 {
    end.min(other_end).saturating_sub(start.max(other_start))
}
