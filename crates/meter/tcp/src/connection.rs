//! A TCP connection: the state machine that classifies its segments.
//!
//! In: packets in the order of the capture, with the side that sent them. Out: the class of each,
//! and a [`TcpReport`] per side and record. A connection takes seven cache lines; an ordinary
//! segment touches the hot line of its side and the first of the times, and the times of its side if
//! it completes one:
//! ```text
//! hot 0, 1    per side: positions, acknowledgments, digests of the last four segments
//! cold 0, 1   per side: SYN, FIN, the round trip of the handshake
//! times       a line for both: requests and timed segments; then per side: response times and round trips
//! ```
//! [`Connection::classify_fast`] takes a segment that only brings the next octets or only
//! acknowledges more. [`Connection::classify`] takes any packet. Holes, counters of anomalies and a
//! longer history are in an [`AnomalyPool`]. The tests compare the results with the slow reference
//! in `testkit`.

use crate::class::{SegmentClass, SegmentCount};
use crate::classifier::Classifier;
use crate::event::SegmentEvent;
use crate::pool::{AnomalyPool, DetachedEntries, PoolEntry};
use crate::report::{Degradation, TcpReport};
use crate::rules::{is_unfragmented_segment, nearest_position};
use crate::segment::{CONTROL, Segment, digest};
use crate::side::{ColdSide, HotSide};
use crate::times::{CompletedTime, MeasuredTimes, Times};
use bytemuck::{Pod, Zeroable};
use weir_packet::Packet;

/// Both directions of a connection. All zero is a connection without packets.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
pub struct Connection {
    hot: [HotSide; 2],
    cold: [ColdSide; 2],
    times: Times,
}

const _: () = assert!(size_of::<Connection>() == 7 * 64);

impl Connection {
    /// A connection without packets.
    pub const NEW: Self = bytemuck::zeroed();

    /// The cache line of a side that [`Connection::classify_fast`] touches, to prefetch it.
    #[inline(always)]
    pub fn hot_line(&self, side: usize) -> &impl Sized {
        &self.hot[side & 1]
    }

    /// The cache line for both sides that [`Connection::classify_fast`] touches, too.
    #[inline(always)]
    pub fn times_line(&self) -> &impl Sized {
        &self.times
    }

    /// The cache lines that [`Connection::classify`] touches: all but the measured times.
    #[inline(always)]
    pub fn lines(&self) -> &[[u64; 8]] {
        let lines: &[[u64; 8]; 7] = bytemuck::must_cast_ref(self);
        &lines[..5]
    }

    /// Whether a packet of a side has payload that is not next, by the [`Connection::hot_line`].
    #[inline(always)]
    pub fn is_displaced(&self, side: usize, packet: &Packet) -> bool {
        packet.payload_bytes > 0 && packet.sequence != self.hot[side & 1].next_position as u32
    }

    /// Classifies and counts a packet that only brings the next octets of its side or only
    /// acknowledges more than before. Returns false and changes nothing for any other packet, and
    /// when the counter of segments in order is full: [`Connection::classify`] takes these.
    ///
    /// `complete` gets each time that the packet completes, and the times of its side. It enters the time
    /// there, or prefetches them and calls [`Connection::enter_time`] later.
    #[inline(always)]
    pub fn classify_fast(
        &mut self,
        side: usize,
        packet: &Packet,
        pool: &AnomalyPool,
        complete: impl FnMut(&mut MeasuredTimes, CompletedTime),
    ) -> bool {
        let segment = Segment {
            time_ns: packet.time_ns,
            sequence: packet.sequence,
            acknowledgment: packet.acknowledgment,
            payload_bytes: packet.payload_bytes,
            window: packet.window,
            control: (packet.control & CONTROL) as u8,
            ttl: packet.ttl,
            // Without a look at the network: segments of IPv6 that open a hole have none.
            identification: packet.identification as u16,
            ..Segment::default()
        };
        let digest = || digest(packet, &pool.digest_key);
        is_unfragmented_segment(packet) && self.take_fast(side, &segment, digest, complete)
    }

    /// Like [`Connection::classify_fast`], with a segment.
    #[inline(always)]
    pub fn classify_segment_fast(&mut self, side: usize, segment: &Segment) -> bool {
        self.take_fast(side, segment, || segment.digest, MeasuredTimes::enter)
    }

    /// Enters a time that a packet of a side completed. Until then, reports lack it.
    #[inline(always)]
    pub fn enter_time(&mut self, side: usize, time: CompletedTime) {
        self.times.measured_mut(side).enter(time);
    }

    #[inline(always)]
    fn take_fast(
        &mut self,
        side: usize,
        segment: &Segment,
        digest: impl FnOnce() -> u32,
        mut complete: impl FnMut(&mut MeasuredTimes, CompletedTime),
    ) -> bool {
        let is_taken = self.hot[side & 1].classify_fast(segment, digest);
        if is_taken {
            if let Some(time) = self.times.acknowledge(side, segment) {
                complete(self.times.measured_mut(side), time);
            }
            if segment.payload_bytes > 0 {
                let end = segment.sequence.wrapping_add(segment.payload_bytes);
                if let Some(time) = self.times.answer(side, segment) {
                    complete(self.times.measured_mut(side), time);
                }
                self.times.request(side, end, segment.time_ns);
                self.times.time_segment(side, end, segment.time_ns);
                self.times.set_identification(side, segment.identification);
            }
        }
        is_taken
    }

    /// Classifies and counts a packet of a side (0 or 1).
    pub fn classify(&mut self, side: usize, packet: &Packet, pool: &mut AnomalyPool) -> SegmentClass {
        self.classify_segment(side, Segment::from_packet(packet, &pool.digest_key).as_ref(), pool)
    }

    /// Like [`Connection::classify`], and passes the times that the packet completes to `complete`,
    /// as [`Connection::classify_fast`] does.
    pub fn classify_completing(
        &mut self,
        side: usize,
        packet: &Packet,
        pool: &mut AnomalyPool,
        complete: impl FnMut(&mut MeasuredTimes, CompletedTime),
    ) -> SegmentClass {
        let segment = Segment::from_packet(packet, &pool.digest_key);
        self.classifier(side, pool, |_| {}, complete).classify_and_count(segment.as_ref())
    }

    /// Like [`Connection::classify`], with a segment; `None`: a packet without a whole TCP header.
    pub fn classify_segment(&mut self, side: usize, segment: Option<&Segment>, pool: &mut AnomalyPool) -> SegmentClass {
        self.classifier(side, pool, |_| {}, MeasuredTimes::enter).classify_and_count(segment)
    }

    /// Like [`Connection::classify`], and passes every decision about the packet to `observer`.
    ///
    /// ```
    /// use weir_packet::{Flags, Packet};
    /// use weir_tcp::{AnomalyPool, Connection, SegmentClass, SegmentEvent};
    ///
    /// let mut pool = AnomalyPool::new(2)?;
    /// let mut connection = Connection::NEW;
    /// let segment = |sequence, payload_bytes| Packet {
    ///     sequence,
    ///     payload_bytes,
    ///     control: Packet::ACK,
    ///     flags: Flags(Flags::TCP),
    ///     ..Packet::default()
    /// };
    /// connection.classify(0, &segment(1000, 100), &mut pool);
    /// let first = connection.position(0, 1000).expect("positions are known");
    ///
    /// // Octets 50 to 99 again, and 100 new ones.
    /// let mut events = Vec::new();
    /// let class = connection.classify_observed(0, &segment(1050, 150), &mut pool, |event| events.push(event));
    /// assert_eq!(class, SegmentClass::Retransmission);
    /// assert!(events.contains(&SegmentEvent::Repeated(first + 50..first + 100)));
    /// assert!(events.contains(&SegmentEvent::PartialRetransmission));
    /// assert_eq!(connection.report(0, 2, &pool).unique_bytes, 200);
    /// # Ok::<(), std::collections::TryReserveError>(())
    /// ```
    pub fn classify_observed(
        &mut self,
        side: usize,
        packet: &Packet,
        pool: &mut AnomalyPool,
        observer: impl FnMut(SegmentEvent),
    ) -> SegmentClass {
        let segment = Segment::from_packet(packet, &pool.digest_key);
        self.classifier(side, pool, observer, MeasuredTimes::enter).classify_and_count(segment.as_ref())
    }

    fn classifier<'a, O, C>(
        &'a mut self,
        side: usize,
        pool: &'a mut AnomalyPool,
        observer: O,
        complete: C,
    ) -> Classifier<'a, O, C> {
        let (side, times) = (side & 1, &mut self.times);
        let ([hot_0, hot_1], [cold_0, cold_1]) = (&mut self.hot, &mut self.cold);
        let (hot, cold, peer, peer_cold) =
            if side == 0 { (hot_0, cold_0, hot_1, cold_1) } else { (hot_1, cold_1, hot_0, cold_0) };
        Classifier { side, hot, cold, peer, peer_cold, times, pool, observer, complete }
    }

    /// The position of a sequence number of a side: the one nearest to its next position. `None`
    /// before the positions of the side start.
    pub fn position(&self, side: usize, sequence: u32) -> Option<u64> {
        let hot = &self.hot[side & 1];
        hot.has(HotSide::STARTED).then(|| nearest_position(hot.next_position, sequence))
    }

    /// Whether the connection has ended: FIN from both sides, or RST from either.
    pub fn has_ended(&self) -> bool {
        self.hot.iter().all(|hot| hot.has(HotSide::FIN)) || self.cold.iter().any(|cold| cold.has(ColdSide::RESET))
    }

    /// Report of one side and this record, in which the side sent `packets`.
    pub fn report(&self, side: usize, packets: u64, pool: &AnomalyPool) -> TcpReport {
        let mut report = TcpReport::EMPTY;
        self.write_report(side, packets, pool, &mut report);
        report
    }

    /// Writes the report of one side into an empty one.
    #[inline]
    pub fn write_report(&self, side: usize, packets: u64, pool: &AnomalyPool, report: &mut TcpReport) {
        let entry = self.entry_index(side).map(|index| pool.entry(index));
        self.write(side, packets, entry, report);
    }

    /// Report of a connection whose anomalies were detached from its pool.
    pub fn report_detached(&self, side: usize, packets: u64, anomalies: &DetachedEntries) -> TcpReport {
        let mut report = TcpReport::EMPTY;
        self.write(side, packets, anomalies.0[side & 1].as_deref(), &mut report);
        report
    }

    #[inline(always)]
    fn write(&self, side: usize, packets: u64, entry: Option<&PoolEntry>, report: &mut TcpReport) {
        let (hot, cold) = (&self.hot[side & 1], &self.cold[side & 1]);
        report.unique_bytes = hot.unique_bytes;
        report.fins = cold.fins.into();
        report.classes[SegmentClass::Syn as usize].segments = cold.syns.into();
        report.classes[SegmentClass::Reset as usize].segments = cold.resets.into();
        report.classes[SegmentClass::InOrder as usize] =
            SegmentCount { segments: hot.in_order.into(), bytes: hot.unique_bytes };
        let mut others = u64::from(hot.in_order) + u64::from(cold.syns) + u64::from(cold.resets);
        if let Some(entry) = entry {
            others += entry.add_to(report);
        }
        // All other packets are acknowledgments.
        report.classes[SegmentClass::Acknowledgment as usize].segments = packets - others;
        if cold.has(ColdSide::POOL_FULL) {
            report.degradation.0 |= Degradation::POOL_FULL;
        }
        if hot.has(HotSide::OPTIONS) {
            report.syn_window = Some(cold.syn_window);
            report.maximum_segment_size = (cold.maximum_segment_size > 0).then_some(cold.maximum_segment_size);
            report.window_scale = (cold.scale_and_flags & 0xf).checked_sub(1);
        }
        report.handshake_rtt_ns = cold.handshake_rtt_ns.checked_sub(1);
        let measured = self.times.measured(side);
        (report.responses, report.round_trips) = (measured.responses, measured.round_trips);
        if hot.has(HotSide::SYN) && hot.has(HotSide::FIN) && !cold.has(ColdSide::SEVERAL_SYN_OR_FIN) {
            report.size_by_sequence_bytes = cold.fin_position.checked_sub(cold.lowest_position);
            report.duration_by_sequence_ns = cold.fin_ns.checked_sub(cold.syn_ns);
        }
    }

    /// Starts the next record: all counters start at 0.
    pub fn start_next_record(&mut self, pool: &mut AnomalyPool) {
        self.times.start_next_record();
        for (hot, cold) in self.hot.iter_mut().zip(&mut self.cold) {
            (hot.unique_bytes, hot.in_order) = (0, 0);
            (cold.syns, cold.fins, cold.resets) = (0, 0, 0);
            if hot.entry_number > 0 {
                let entry = pool.entry_mut(hot.entry_number - 1);
                if entry.holes.len() == 0 && !hot.has(HotSide::LAST_OUT_OF_WINDOW | HotSide::HAS_DEEP_HISTORY) {
                    pool.release(hot.entry_number - 1);
                    hot.entry_number = 0;
                } else {
                    entry.reset_counters();
                }
            }
        }
    }

    /// Index of the pool entry of a side.
    pub fn entry_index(&self, side: usize) -> Option<u32> {
        self.hot[side & 1].entry_number.checked_sub(1)
    }

    /// Moves the anomalies of both sides out of their pool. Until [`Connection::attach_entries`],
    /// only [`Connection::report_detached`] gives complete reports.
    pub fn detach_entries(&mut self, pool: &mut AnomalyPool) -> DetachedEntries {
        let mut anomalies = DetachedEntries::default();
        for (hot, entry) in self.hot.iter_mut().zip(&mut anomalies.0) {
            if let Some(index) = hot.entry_number.checked_sub(1) {
                *entry = Some(Box::new(*pool.entry(index)));
                pool.release(index);
                hot.entry_number = 0;
            }
        }
        anomalies
    }

    /// Moves detached anomalies into another pool of this process. If the pool is full they are
    /// lost, and the report is marked [`Degradation::POOL_FULL`].
    pub fn attach_entries(&mut self, anomalies: DetachedEntries, pool: &mut AnomalyPool) {
        for ((hot, cold), entry) in self.hot.iter_mut().zip(&mut self.cold).zip(anomalies.0) {
            let Some(entry) = entry else { continue };
            match pool.allocate() {
                Some(index) => {
                    *pool.entry_mut(index) = *entry;
                    hot.entry_number = index + 1;
                }
                None => {
                    cold.scale_and_flags |= ColdSide::POOL_FULL;
                    // These flags need an entry.
                    hot.flags_and_history_number &= !(HotSide::LAST_OUT_OF_WINDOW | HotSide::HAS_DEEP_HISTORY);
                }
            }
        }
    }

    /// Makes it a connection without packets and releases its pool entries.
    pub fn reset(&mut self, pool: &mut AnomalyPool) {
        for hot in &self.hot {
            if hot.entry_number > 0 {
                pool.release(hot.entry_number - 1);
            }
        }
        *self = Self::NEW;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side::IN_ORDER_LIMIT;
    use weir_packet::Flags;

    /// Ten octets with number 0.
    fn segment() -> Packet {
        Packet {
            payload_bytes: 10,
            control: Packet::ACK,
            window: 1,
            flags: Flags(Flags::TCP),
            identification: 1,
            ..Packet::default()
        }
    }

    #[test]
    fn in_order_counter_exceeds_32_bits() {
        let mut pool = AnomalyPool::new(1).unwrap();
        let mut connection = Connection::NEW;
        let mut packet = segment();
        connection.classify(0, &packet, &mut pool);
        for packets in [1_u64 << 31, 1 << 32, 3 << 31] {
            connection.hot[0].in_order = IN_ORDER_LIMIT - 1;
            for is_fast in [true, false] {
                packet.sequence += 10;
                packet.identification += 1;
                assert_eq!(connection.classify_fast(0, &packet, &pool, MeasuredTimes::enter), is_fast);
                if !is_fast {
                    assert_eq!(connection.classify(0, &packet, &mut pool), SegmentClass::InOrder);
                }
            }
            let report = connection.report(0, packets + 1, &pool);
            assert_eq!((report.count(SegmentClass::InOrder).segments, report.degradation.0), (packets + 1, 0));
        }
    }

    /// A connection with a hole and a retransmission on side 0, and the segment that fills the
    /// hole.
    fn connection_with_hole(pool: &mut AnomalyPool) -> (Connection, Packet) {
        let mut connection = Connection::NEW;
        for sequence in [0, 20, 20] {
            connection.classify(0, &Packet { sequence, ..segment() }, pool);
        }
        (connection, Packet { sequence: 10, ..segment() })
    }

    #[test]
    fn a_connection_that_moves_to_another_pool_continues_unchanged() {
        let [mut pool_of_stayed, mut one, mut other] = [(); 3].map(|()| AnomalyPool::new(2).unwrap());
        let (mut stayed, missing) = connection_with_hole(&mut pool_of_stayed);
        let (mut moved, _) = connection_with_hole(&mut one);
        // Another connection uses the pool, so that the indices differ.
        connection_with_hole(&mut other);
        let anomalies = moved.detach_entries(&mut one);
        assert_eq!((one.used(), [0, 1].map(|side| moved.entry_index(side))), (0, [None; 2]));
        assert_eq!(moved.report_detached(0, 3, &anomalies), stayed.report(0, 3, &pool_of_stayed));
        moved.attach_entries(anomalies, &mut other);
        assert_eq!((other.used(), [0, 1].map(|side| moved.entry_index(side))), (2, [Some(1), None]));
        stayed.classify(0, &missing, &mut pool_of_stayed);
        moved.classify(0, &missing, &mut other);
        assert_eq!(moved.report(0, 4, &other), stayed.report(0, 4, &pool_of_stayed));
        moved.reset(&mut other);
        assert_eq!(other.used(), 1);
    }

    #[test]
    fn a_connection_that_moves_to_a_full_pool_is_marked() {
        let [mut one, mut full] = [AnomalyPool::new(1).unwrap(), AnomalyPool::new(0).unwrap()];
        let (mut moved, missing) = connection_with_hole(&mut one);
        let anomalies = moved.detach_entries(&mut one);
        moved.attach_entries(anomalies, &mut full);
        moved.classify(0, &missing, &mut full);
        let report = moved.report(0, 4, &full);
        assert_eq!((report.degradation.0, report.segments()), (Degradation::POOL_FULL, 4));
    }
}
