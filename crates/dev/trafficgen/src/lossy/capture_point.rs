//! Classifies the segments that the capture point captures.
//!
//! The sender of a segment knows its kind; whether its octets are new to the capture point is known
//! only here. Assertions check that both agree.

use super::octets::Octets;
use crate::expected_tcp::ExpectedTcp;
use crate::frame::{ACK, FIN, RST, SYN};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Syn,
    /// Pure acknowledgment.
    Ack,
    /// Pure acknowledgment of octets that were all received before: no sign of a loss.
    AckOld,
    /// New octets or the first FIN.
    Data,
    /// The same, but delayed on the way.
    Delayed,
    /// Retransmitted octets or FIN.
    Retransmission,
    KeepAlive,
    WindowProbe,
    Reset,
}

/// How a frame was duplicated on its way to the capture point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Duplication {
    Original,
    /// The same frame again.
    Switched,
    /// The same with a lower TTL.
    Routed,
}

/// A segment in flight. Positions count from the SYN, which is 0: octets begin at 1, a FIN follows
/// the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Segment {
    pub(super) side: u8,
    pub(super) flags: u8,
    pub(super) kind: Kind,
    pub(super) duplication: Duplication,
    /// Lost after the capture point.
    pub(super) lost: bool,
    pub(super) ttl: u8,
    pub(super) identification: u16,
    pub(super) window: u16,
    /// Payload octets.
    pub(super) length: u16,
    pub(super) start: u64,
    /// Next position that the sender expects from its peer.
    pub(super) acknowledgment: u64,
}

#[derive(Default)]
struct CapturedSide {
    octets: Octets,
    syn: bool,
    fin: Option<u64>,
    /// Last window announced.
    window: u16,
    /// Highest acknowledgment of the peer.
    acknowledged: u64,
    /// End and time of the request that the peer has not answered.
    asked: Option<(u64, u64)>,
    /// End and time of the timed segment that the peer has not acknowledged.
    timed: Option<(u64, u64)>,
    /// Time that the side thinks before its next answer.
    thought_ns: u64,
}

impl CapturedSide {
    /// Returns the position after the highest one captured.
    fn highest(&self) -> u64 {
        self.octets.end().max(self.fin.map_or(0, |fin| fin + 1))
    }
}

pub(super) struct CapturePoint {
    sides: [CapturedSide; 2],
}

impl CapturePoint {
    pub(super) fn new() -> Self {
        let side = || {
            let mut side = CapturedSide { window: u16::MAX, ..CapturedSide::default() };
            side.octets.add(0, 1);
            side
        };
        Self { sides: [side(), side()] }
    }

    /// Captures a segment and counts it in the expected counters of its direction.
    pub(super) fn capture(&mut self, segment: &Segment, now_ns: u64, expected: &mut ExpectedTcp) {
        let before = *expected;
        self.count(segment, expected);
        self.measure(segment, now_ns, &before, expected);
    }

    /// A side thinks for this time before its next answer.
    pub(super) fn thinks(&mut self, side: u8, time_ns: u64) {
        self.sides[usize::from(side)].thought_ns = time_ns;
    }

    /// Measures the times that a segment completes; `before` is without it.
    fn measure(&mut self, segment: &Segment, now_ns: u64, before: &ExpectedTcp, expected: &mut ExpectedTcp) {
        let counted = |count: fn(&ExpectedTcp) -> u64| count(expected) > count(before);
        if counted(|e| e.switched_copies + e.routed_copies + e.rst) {
            return;
        }
        let in_order = counted(|e| e.in_order);
        let is_data = in_order || counted(|e| e.retransmissions + e.out_of_order + e.unseen);
        let is_ack = counted(|e| e.acks);
        let [from, to] = self.pair(segment.side);
        let acknowledges = |end: u64| segment.flags & ACK != 0 && end <= segment.acknowledgment;
        if let Some((_, timed_ns)) = to.timed.take_if(|(end, _)| acknowledges(*end)) {
            let time_ns = now_ns - timed_ns;
            let least_ns = if expected.round_trips == 0 { u64::MAX } else { expected.round_trip_min_ns };
            expected.round_trip_min_ns = time_ns.min(least_ns);
            expected.round_trip_max_ns = time_ns.max(expected.round_trip_max_ns);
            expected.round_trip_sum_ns += time_ns;
            expected.round_trips += 1;
        }
        if !in_order && !is_ack {
            from.timed = None;
        }
        if !is_data || segment.length == 0 {
            return;
        }
        let end = segment.start + u64::from(segment.length);
        if in_order && let Some((_, asked_ns)) = to.asked.take_if(|(end, _)| acknowledges(*end)) {
            let time_ns = now_ns - asked_ns;
            expected.answer_first_ns = if expected.answers == 0 { time_ns } else { expected.answer_first_ns };
            expected.answer_max_ns = time_ns.max(expected.answer_max_ns);
            expected.answer_sum_ns += time_ns;
            expected.answers += 1;
            expected.thought_ns += std::mem::take(&mut from.thought_ns);
        }
        if !in_order && end <= from.acknowledged {
            return;
        }
        from.asked = Some((end.max(from.asked.map_or(0, |(end, _)| end)), now_ns));
        if in_order {
            from.timed.get_or_insert((end, now_ns));
        }
    }

    /// Counts a segment in the first class that fits.
    fn count(&mut self, segment: &Segment, expected: &mut ExpectedTcp) {
        let &Segment { flags, kind, start, .. } = segment;
        let length = u64::from(segment.length);
        expected.segments += 1;
        expected.payload_octets += length;
        if segment.duplication != Duplication::Original {
            return count_copy(segment, expected);
        }
        if flags & RST != 0 {
            expected.rst += 1;
            return;
        }
        let fin = flags & FIN != 0;
        expected.fin += u64::from(fin);
        expected.zero_windows += u64::from(segment.window == 0);
        let [from, to] = self.pair(segment.side);
        from.window = segment.window;
        if flags & ACK != 0 {
            to.acknowledged = to.acknowledged.max(segment.acknowledgment);
        }
        if flags & SYN != 0 {
            *if from.syn { &mut expected.syn_again } else { &mut expected.syn } += 1;
            from.syn = true;
            return;
        }
        let highest = from.highest();
        if length <= 1 && !fin && start + 1 == highest {
            assert!(matches!(kind, Kind::KeepAlive | Kind::WindowProbe), "{segment:?} looks like a keep-alive");
            if length == 1 && to.window == 0 {
                expected.window_probes += 1;
                expected.retransmitted_octets += length;
            } else {
                expected.keep_alives += 1;
                expected.keep_alive_octets += length;
            }
            return;
        }
        assert_ne!(kind, Kind::KeepAlive, "{segment:?} does not look like one");
        if length == 0 && !fin {
            assert!(matches!(kind, Kind::Ack | Kind::AckOld), "{segment:?} carries nothing");
            expected.acks += 1;
            return;
        }
        let end = start + length;
        let repeated = from.octets.add(start, end);
        expected.unique_octets += length - repeated;
        if length == 1 && !fin && start == highest && to.window == 0 {
            assert_eq!(kind, Kind::WindowProbe, "{segment:?} comes against a closed window");
            expected.window_probes += 1;
            return;
        }
        let fin_again = fin && from.fin.is_some();
        if fin {
            from.fin = Some(end);
        }
        if start >= highest {
            expected.in_order += 1;
        } else if repeated > 0 || fin_again {
            expected.retransmissions += 1;
            expected.retransmitted_octets += repeated;
            expected.spurious += u64::from(end + u64::from(fin) <= from.acknowledged);
        } else if kind == Kind::Delayed {
            expected.out_of_order += 1;
        } else {
            assert_eq!(kind, Kind::Retransmission, "{segment:?} fills a hole");
            expected.unseen += 1;
        }
    }

    /// Returns the state of a side and of its peer.
    fn pair(&mut self, side: u8) -> [&mut CapturedSide; 2] {
        let [first, second] = &mut self.sides;
        if side == 0 { [first, second] } else { [second, first] }
    }
}

/// Counts a segment that a switch or a router has sent twice.
fn count_copy(segment: &Segment, expected: &mut ExpectedTcp) {
    expected.switched_copies += u64::from(segment.duplication == Duplication::Switched);
    expected.routed_copies += u64::from(segment.duplication == Duplication::Routed);
    expected.copied_octets += u64::from(segment.length);
}
