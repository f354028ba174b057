//! Time lines of connections: what each side sent when.
//!
//! In: segments with their classes. Out: an SVG per connection. A time line has a fixed number of
//! bins, whose width doubles as the connection gets longer, so its size has a limit.

use std::collections::BTreeMap;
use weir_packet::Packet;
use weir_plot::{Axis, Lane, Mark, time_line};
use weir_tcp::SegmentClass;
use weir_text::units;

/// Connections of each list that get a time line.
pub const MAX_TIME_LINES: usize = 20;
const BINS: usize = 128;
const FIRST_BIN_NS: u64 = 1 << 10;

/// What a lane of a time line counts: payload octets, responses, or segments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LaneKind {
    Payload,
    Response,
    Syn,
    Fin,
    Reset,
    Retransmission,
    OutOfOrder,
    Duplicate,
    DuplicateAck,
    ZeroWindow,
    Probe,
    Acknowledgment,
}

/// The lanes with their names, in the sequence of the type.
const LANES: [(LaneKind, &str); 12] = [
    (LaneKind::Payload, "payload"),
    (LaneKind::Response, "response pending"),
    (LaneKind::Syn, "SYN"),
    (LaneKind::Fin, "FIN"),
    (LaneKind::Reset, "RST"),
    (LaneKind::Retransmission, "retransmission"),
    (LaneKind::OutOfOrder, "out of order"),
    (LaneKind::Duplicate, "duplicate"),
    (LaneKind::DuplicateAck, "duplicate ACK"),
    (LaneKind::ZeroWindow, "zero window"),
    (LaneKind::Probe, "keep-alive, probe"),
    (LaneKind::Acknowledgment, "acknowledgment"),
];

/// The time lines of a report, by index of the connection.
#[derive(Default)]
pub struct TimeLines {
    pub(crate) lines: BTreeMap<usize, TimeLine>,
    /// Why there are none, or not all; empty if all are there.
    pub(crate) missing: &'static str,
}

impl TimeLines {
    /// None, for a reason.
    pub fn missing(reason: &'static str) -> Self {
        Self { lines: BTreeMap::new(), missing: reason }
    }
}

/// What the sides of a connection sent in each part of its time.
#[derive(Default)]
pub(crate) struct TimeLine {
    /// Time of the first packet, ns.
    start_ns: u64,
    /// Length of a bin, ns.
    bin_ns: u64,
    /// At most [`BINS`]: a count for each lane of each side.
    bins: Vec<[[u64; LANES.len()]; 2]>,
}

impl TimeLine {
    /// Adds a segment of a side.
    pub fn enter(&mut self, side: usize, packet: &Packet, class: SegmentClass, zero_window: bool) {
        use SegmentClass as Class;
        if self.bins.is_empty() {
            (self.start_ns, self.bin_ns) = (packet.time_ns, FIRST_BIN_NS);
        }
        // Times can go back.
        let age_ns = packet.time_ns.saturating_sub(self.start_ns);
        while age_ns / self.bin_ns >= BINS as u64 {
            self.halve();
        }
        let bin = (age_ns / self.bin_ns) as usize;
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, Default::default());
        }
        let counts = &mut self.bins[bin][side];
        let mut count = |kind: LaneKind, n: u64| counts[kind as usize] += n;
        match class {
            Class::Duplicate | Class::RoutedDuplicate => return count(LaneKind::Duplicate, 1),
            Class::Unread | Class::OutOfWindow => return,
            Class::Reset => return count(LaneKind::Reset, 1),
            Class::Syn => count(LaneKind::Syn, 1),
            Class::SynRetransmission => {
                count(LaneKind::Syn, 1);
                count(LaneKind::Retransmission, 1);
            }
            Class::ZeroWindowProbe | Class::KeepAlive => count(LaneKind::Probe, 1),
            Class::DuplicateAcknowledgment => count(LaneKind::DuplicateAck, 1),
            Class::Acknowledgment => count(LaneKind::Acknowledgment, 1),
            Class::InOrder => {}
            Class::Retransmission | Class::UnseenRetransmission => count(LaneKind::Retransmission, 1),
            Class::OutOfOrder => count(LaneKind::OutOfOrder, 1),
        }
        count(LaneKind::Payload, packet.payload_bytes.into());
        count(LaneKind::Fin, u64::from(packet.control & Packet::FIN != 0));
        count(LaneKind::ZeroWindow, u64::from(zero_window));
    }

    /// Adds the response time of a side, which ends with the segment that was added last.
    pub fn enter_response(&mut self, side: usize, time_ns: u64, response_ns: u64) {
        let age_ns = time_ns.saturating_sub(self.start_ns);
        let [first, last] = [age_ns.saturating_sub(response_ns), age_ns].map(|ns| (ns / self.bin_ns) as usize);
        for bin in &mut self.bins[first..=last] {
            bin[side][LaneKind::Response as usize] += 1;
        }
    }

    /// Exchanges the sides.
    pub fn reverse(&mut self) {
        self.bins.iter_mut().for_each(|sides| sides.reverse());
    }

    /// Halves the number of bins.
    fn halve(&mut self) {
        self.bin_ns *= 2;
        for at in 0..self.bins.len().div_ceil(2) {
            let mut sum = self.bins[2 * at];
            if let Some(second) = self.bins.get(2 * at + 1) {
                for (sum, second) in sum.iter_mut().flatten().zip(second.iter().flatten()) {
                    *sum += second;
                }
            }
            self.bins[at] = sum;
        }
        self.bins.truncate(self.bins.len().div_ceil(2));
    }

    /// Draws the time line.
    pub fn plot(&self, number: u32) -> String {
        const PAYLOAD_PIXELS: f64 = 34.0;
        const EVENT_PIXELS: f64 = 8.0;
        let length_ns = self.bin_ns.saturating_mul(self.bins.len() as u64);
        let (unit, unit_ns) = match length_ns {
            ..2_000_000 => ("µs", 1e3),
            2_000_000..2_000_000_000 => ("ms", 1e6),
            2_000_000_000..7_200_000_000_000 => ("s", 1e9),
            _ => ("h", 3.6e12),
        };
        let time = |bin: usize| bin as f64 * self.bin_ns as f64 / unit_ns;
        let lanes = LANES.iter().filter_map(|&(kind, name)| {
            let counts = |bin: usize| [0, 1].map(|side| (side, self.bins[bin][side][kind as usize]));
            let greatest = (0..self.bins.len()).flat_map(|bin| counts(bin).map(|(_, count)| count)).max()?;
            let marks = (0..self.bins.len()).flat_map(|bin| counts(bin).map(|(side, count)| (bin, side, count)));
            let marks: Vec<Mark> = marks
                .filter(|&(.., count)| count > 0)
                .map(|(bin, side, count)| {
                    let from = units::span(bin as u64 * self.bin_ns);
                    let what = match kind {
                        LaneKind::Payload => units::count(count, "octet"),
                        LaneKind::Response => name.into(),
                        _ => format!("{count} {name}"),
                    };
                    let tooltip = format!("after {from}, {}: {what}", ["client", "server"][side]);
                    let height = if kind == LaneKind::Payload { count as f64 / greatest as f64 } else { 1.0 };
                    Mark { side, range: [time(bin), time(bin + 1)], height, tooltip }
                })
                .collect();
            let half_height = if kind == LaneKind::Payload { PAYLOAD_PIXELS } else { EVENT_PIXELS };
            (greatest > 0).then_some(Lane { name, half_height, marks })
        });
        let axis = Axis::linear(&format!("{unit} since the first packet"), time(self.bins.len()));
        time_line(&format!("What happened when in #{number}"), &axis, ["client", "server"], &lanes.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_line_has_a_limited_number_of_bins_and_keeps_every_count() {
        let mut line = TimeLine::default();
        let mut segments = 0;
        for time_ns in (0..100).chain([5000, 1_000_000, 3_000_000_000, u64::MAX, 7]) {
            let packet = Packet { time_ns, payload_bytes: 10, ..Packet::default() };
            line.enter(1, &packet, SegmentClass::InOrder, false);
            line.enter_response(0, time_ns, 50);
            segments += 1;
        }
        assert!(line.bins.len() <= BINS && line.bin_ns >= u64::MAX / BINS as u64);
        let octets: u64 = line.bins.iter().map(|sides| sides[1][LaneKind::Payload as usize]).sum();
        assert_eq!(octets, segments * 10);
        // Two of payload, and the responses of the other side.
        assert_eq!(line.plot(1).matches("server: ").count(), 2);
        assert_eq!(line.plot(1).matches("client: response pending").count(), 2);
    }
}
