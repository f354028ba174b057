//! What the probe has seen of a conversation, octet by octet, and so what each segment is.
//!
//! Why a segment was sent is known from its sender; whether its octets are new to the probe only here. Where both
//! say something about its class they must agree, and that is asserted.

use super::octets::Octets;
use crate::expected_tcp::ExpectedTcp;
use crate::frame::{ACK, FIN, RST, SYN};

/// Why a segment is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    Syn,
    /// An acknowledgment alone.
    Ack,
    /// The same, in answer to octets that had all been there: no sign of a loss.
    AckOld,
    /// New octets or a first FIN.
    Data,
    /// The same, but delayed on the way.
    Late,
    /// Octets or a FIN again.
    Again,
    KeepAlive,
    WindowProbe,
    Reset,
}

/// Whether a frame was copied on its way to the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Copied {
    Original,
    /// The very same frame.
    Switched,
    /// With a lower TTL.
    Routed,
}

/// A segment on its way. Positions count from the SYN, which is 0: octets begin at 1, a FIN stands behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Segment {
    pub(super) side: u8,
    pub(super) flags: u8,
    pub(super) why: Why,
    pub(super) copied: Copied,
    /// Lost behind the probe.
    pub(super) lost: bool,
    pub(super) ttl: u8,
    pub(super) identification: u16,
    pub(super) window: u16,
    /// Octets.
    pub(super) length: u16,
    pub(super) start: u64,
    /// The position that the sender waits for from the other side.
    pub(super) acknowledgment: u64,
}

/// What was seen of one side.
struct Seen {
    octets: Octets,
    syn: bool,
    fin: Option<u64>,
    /// The last window announced.
    window: u16,
    /// The highest acknowledgment of the other side.
    acknowledged: u64,
}

impl Seen {
    /// The position behind the highest seen.
    fn highest(&self) -> u64 {
        self.octets.end().max(self.fin.map_or(0, |fin| fin + 1))
    }
}

pub(super) struct Probe {
    sides: [Seen; 2],
}

impl Probe {
    pub(super) fn new() -> Self {
        let side = || {
            let mut octets = Octets::default();
            octets.add(0, 1);
            Seen { octets, syn: false, fin: None, window: u16::MAX, acknowledged: 0 }
        };
        Self { sides: [side(), side()] }
    }

    /// Sees one segment and enters it into the truth of its direction: into one class, the first that fits.
    pub(super) fn see(&mut self, segment: &Segment, expected: &mut ExpectedTcp) {
        let &Segment { flags, why, start, .. } = segment;
        let length = u64::from(segment.length);
        expected.segments += 1;
        expected.payload_octets += length;
        match segment.copied {
            Copied::Original => {}
            Copied::Switched | Copied::Routed => {
                expected.switched_copies += u64::from(segment.copied == Copied::Switched);
                expected.routed_copies += u64::from(segment.copied == Copied::Routed);
                expected.copied_octets += length;
                return;
            }
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
            assert!(matches!(why, Why::KeepAlive | Why::WindowProbe), "{segment:?} looks like a keep-alive");
            if length == 1 && to.window == 0 {
                expected.window_probes += 1;
                expected.retransmitted_octets += length;
            } else {
                expected.keep_alives += 1;
                expected.keep_alive_octets += length;
            }
            return;
        }
        assert_ne!(why, Why::KeepAlive, "{segment:?} does not look like one");
        if length == 0 && !fin {
            assert!(matches!(why, Why::Ack | Why::AckOld), "{segment:?} carries nothing");
            expected.acks += 1;
            return;
        }
        let end = start + length;
        let repeated = from.octets.add(start, end);
        expected.unique_octets += length - repeated;
        if length == 1 && !fin && start == highest && to.window == 0 {
            assert_eq!(why, Why::WindowProbe, "{segment:?} comes against a closed window");
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
        } else if why == Why::Late {
            expected.out_of_order += 1;
        } else {
            assert_eq!(why, Why::Again, "{segment:?} fills a hole");
            expected.unseen += 1;
        }
    }

    /// What was seen of a side, and of the other.
    fn pair(&mut self, side: u8) -> [&mut Seen; 2] {
        let [first, second] = &mut self.sides;
        if side == 0 { [first, second] } else { [second, first] }
    }
}
