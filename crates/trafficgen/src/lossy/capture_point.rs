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

struct CapturedSide {
    octets: Octets,
    syn: bool,
    fin: Option<u64>,
    /// Last window announced.
    window: u16,
    /// Highest acknowledgment of the peer.
    acknowledged: u64,
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
            let mut octets = Octets::default();
            octets.add(0, 1);
            CapturedSide { octets, syn: false, fin: None, window: u16::MAX, acknowledged: 0 }
        };
        Self { sides: [side(), side()] }
    }

    /// Captures a segment and counts it in the expected counters of its direction, in the first
    /// class that fits.
    pub(super) fn capture(&mut self, segment: &Segment, expected: &mut ExpectedTcp) {
        let &Segment { flags, kind, start, .. } = segment;
        let length = u64::from(segment.length);
        expected.segments += 1;
        expected.payload_octets += length;
        if segment.duplication != Duplication::Original {
            expected.switched_copies += u64::from(segment.duplication == Duplication::Switched);
            expected.routed_copies += u64::from(segment.duplication == Duplication::Routed);
            expected.copied_octets += length;
            return;
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
