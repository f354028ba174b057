//! What all connections of a run add up to, and what a reader has to know before believing it.

use crate::connection::{Connection, duplicates, payload, retransmitted, sequenced};
use std::fmt::Write;
use weir_tcp::{Degradation, SegmentClass, SegmentCount};
use weir_text::units;

/// Sums over all connections. Of pairs the clients' come first.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Connections.
    pub connections: u64,
    /// Packets of connections.
    pub packets: u64,
    /// Octets of payload, duplicates included.
    pub payload_bytes: u64,
    /// Both directions, by number of [`SegmentClass`].
    pub classes: [SegmentCount; SegmentClass::COUNT],
    /// Retransmitted segments.
    pub retransmitted: [u64; 2],
    /// Segments that occupy sequence numbers: with payload, SYN or FIN.
    pub sequenced: [u64; 2],
    /// Duplicates that the capture made.
    pub duplicates: u64,
    /// Octets of payload of these.
    pub duplicate_bytes: u64,
    /// Octets of payload seen for the first time.
    pub unique_bytes: u64,
    /// Octets of payload that had been seen.
    pub retransmitted_bytes: u64,
    /// Retransmissions that also bring new octets.
    pub partial: u64,
    /// Retransmissions of nothing but what was acknowledged.
    pub spurious: u64,
    /// Segments that announce a window of 0.
    pub zero_windows: [u64; 2],
    /// Octets missing between captured ones.
    pub missing_bytes: u64,
    /// Connections with missing octets.
    pub with_missing: u64,
    /// Connections of which one direction was captured.
    pub one_way: u64,
    /// Connections of which no SYN was captured.
    pub without_syn: u64,
    /// Connections by bit of [`Degradation`].
    pub degraded: [u64; 8],
    /// Connections with any of these bits.
    pub any_degraded: u64,
    /// Time of the first packet, ns since 1970-01-01 UTC.
    pub first_ns: u64,
    /// Time of the last packet, ns.
    pub last_ns: u64,
    /// Round-trip times of handshakes, ns, ascending: on the client side of the capture point, and on the server side.
    pub round_trips: [Vec<u64>; 2],
}

impl Totals {
    /// Of all of them.
    pub fn of(connections: &[Connection]) -> Self {
        let mut totals = Self { first_ns: u64::MAX, ..Self::default() };
        for connection in connections {
            totals.connections += 1;
            totals.packets += connection.all_packets();
            totals.first_ns = totals.first_ns.min(connection.first_ns);
            totals.last_ns = totals.last_ns.max(connection.last_ns);
            let reports = connection.reports();
            let missing: u64 = reports.iter().map(|report| report.missing_bytes).sum();
            totals.missing_bytes += missing;
            totals.with_missing += u64::from(missing > 0);
            totals.one_way += u64::from(connection.is_one_way());
            let has_syn = reports.iter().any(|report| report.syn_window.is_some());
            totals.without_syn += u64::from(!has_syn);
            let degraded = reports.iter().fold(0, |bits, report| bits | report.degradation.0);
            totals.any_degraded += u64::from(degraded != 0);
            for (bit, count) in totals.degraded.iter_mut().enumerate() {
                *count += u64::from(degraded >> bit & 1);
            }
            for (side, report) in reports.iter().enumerate() {
                for (sum, count) in totals.classes.iter_mut().zip(&report.classes) {
                    sum.segments += count.segments;
                    sum.bytes += count.bytes;
                }
                totals.payload_bytes += payload(report);
                totals.retransmitted[side] += retransmitted(report);
                totals.sequenced[side] += sequenced(report);
                totals.duplicates += duplicates(report);
                totals.duplicate_bytes +=
                    report.count(SegmentClass::Duplicate).bytes + report.count(SegmentClass::RoutedDuplicate).bytes;
                totals.unique_bytes += report.unique_bytes;
                totals.retransmitted_bytes += report.retransmitted_bytes;
                totals.partial += report.partial_retransmissions;
                totals.spurious += report.spurious_retransmissions;
                totals.zero_windows[side] += report.zero_windows;
                totals.round_trips[side].extend(report.handshake_rtt_ns);
            }
        }
        totals.round_trips.iter_mut().for_each(|times| times.sort_unstable());
        totals
    }

    /// Connections of which not all was counted, as there was no memory for it.
    pub fn without_room(&self) -> u64 {
        self.degraded[Degradation::POOL_FULL.trailing_zeros() as usize]
    }

    /// Segments and octets of a class.
    pub fn of_class(&self, class: SegmentClass) -> SegmentCount {
        self.classes[class as usize]
    }

    /// What must be known before the figures are believed: one sentence each.
    pub fn warnings(&self, without_ports: u64, left_out: u64) -> Vec<String> {
        let mut warnings = Vec::new();
        if left_out > 0 {
            warnings.push(incomplete(left_out, self.connections));
        }
        if self.duplicates > 0 {
            let routed = self.of_class(SegmentClass::RoutedDuplicate).segments;
            let mut text = format!(
                "copies that the capture made: {} ({} of all)",
                units::count(self.duplicates, "packet"),
                percent(self.duplicates, self.packets)
            );
            if routed > 0 {
                let _ = write!(text, ", {routed} of them seen before and behind a router");
            }
            let _ = write!(
                text,
                ", {} of payload; every count of packets and octets here, and sizes and rates of any other tool, includes them",
                units::quantity(self.duplicate_bytes, "B")
            );
            warnings.push(text);
        }
        let (octets, connections) = (self.missing_bytes, self.with_missing);
        if octets > 0 {
            warnings.push(format!(
                "{octets} octets ({}) of payload in {} are missing, though what surrounds them is there: the capture lost \
                 packets or ended before they were sent again, they came in later fragments, or sequence numbers lie \
                 (--sort missing)",
                units::quantity(octets, "B"),
                units::count(connections, "connection")
            ));
        }
        let out_of_window = self.of_class(SegmentClass::OutOfWindow);
        if out_of_window.segments > 0 {
            warnings.push(format!(
                "{} with {} of payload out of window: 2^30 octets or more from what surrounds them, so that their \
                 octets are not taken (two connections under the same ports, or sequence numbers that lie)",
                units::count(out_of_window.segments, "segment"),
                units::quantity(out_of_window.bytes, "B")
            ));
        }
        if self.one_way > 0 {
            warnings.push(format!(
                "{} ({} of all) seen from one side only, though answered: the capture misses a direction (asymmetric \
                 routes, or half of a tap); what the other side had acknowledged is not known",
                units::count(self.one_way, "connection"),
                percent(self.one_way, self.connections)
            ));
        }
        if self.without_syn > 0 {
            warnings.push(format!(
                "{} without a SYN in the capture: the sender of the first packet is called the client",
                units::count(self.without_syn, "connection")
            ));
        }
        for (bit, sentence) in DEGRADED {
            let connections = self.degraded[bit.trailing_zeros() as usize];
            if connections > 0 {
                warnings.push(format!("{}: {sentence}", units::count(connections, "connection")));
            }
        }
        if without_ports > 0 {
            warnings.push(format!(
                "{} of TCP without ports (later fragments, captured too short, or of an IP length that ends before them): in no connection",
                units::count(without_ports, "packet")
            ));
        }
        warnings
    }
}

/// What to say of packets for whose connections there was no room.
pub fn incomplete(left_out: u64, connections: u64) -> String {
    format!(
        "incomplete: {} of TCP left out, of connections that began when {connections} were known, for more of which there \
         is no memory (--connections): split the capture, or narrow it to fewer hosts or ports",
        units::count(left_out, "packet")
    )
}

/// What the marks of [`Degradation`] mean.
const DEGRADED: [(u8, &str); 6] = [
    (Degradation::HOLES, "not exact (holes): more than 32 holes at a time; octets of the lowest were taken as seen"),
    (Degradation::DUPLICATES, "not exact (duplicates): more copies may be there than were recognised"),
    (Degradation::JUMP, "not exact (jump): sequence numbers jumped, and what was known was given up"),
    (Degradation::REUSED, "not exact (reused): a new connection began before the one before it had ended"),
    (Degradation::UNREAD, "not exact (unread): fragments, or packets captured without a whole TCP header"),
    (
        Degradation::POOL_FULL,
        "not exact (room): no memory was left for what was out of the ordinary; segments of theirs with payload may count as acknowledgments, and their payload not at all",
    ),
];

/// A share in three digits: `12.3 %`. What is not nothing is not called 0.
pub fn percent(part: u64, whole: u64) -> String {
    let share = 100.0 * part as f64 / whole.max(1) as f64;
    match share {
        0.0 => "0 %".into(),
        s if s < 0.01 => "<0.01 %".into(),
        s if s < 9.995 => format!("{s:.2} %"),
        s if s < 99.95 || part == whole => format!("{s:.1} %"),
        _ => ">99.9 %".into(),
    }
}

/// The value below or at which so many percent of the ascending ones are.
pub fn quantile(ascending: &[u64], percent: usize) -> Option<u64> {
    let at = (ascending.len() * percent).div_ceil(100).max(1);
    ascending.get(at - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_three_digits_and_only_nothing_is_0() {
        for (part, whole, text) in [
            (0, 0, "0 %"),
            (1, 1_000_000, "<0.01 %"),
            (1, 100, "1.00 %"),
            (1, 3, "33.3 %"),
            (99_999, 100_000, ">99.9 %"),
            (7, 7, "100.0 %"),
        ] {
            assert_eq!(percent(part, whole), text);
        }
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        assert_eq!(quantile(&[], 50), None);
        assert_eq!(quantile(&[5], 95), Some(5));
        assert_eq!(quantile(&[1, 2, 3, 4], 50), Some(2));
        assert_eq!(quantile(&[1, 2, 3, 4], 95), Some(4));
    }
}
