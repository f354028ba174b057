//! A report in little memory, for lists of many connections.

use crate::class::{SegmentClass, SegmentCount};
use crate::report::TcpReport;
use crate::times::{ResponseTimes, RoundTripTimes};

/// A [`TcpReport`] in 120 bytes. One with anomalies also takes a `TcpReport` on the heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactReport(Contents);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Contents {
    Normal(Normal),
    Full(Box<TcpReport>),
}

/// The fields that are not 0 without anomalies.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Normal {
    unique_bytes: u64,
    responses: ResponseTimes,
    round_trips: RoundTripTimes,
    /// The next three are the value plus 1, or 0 for `None`.
    handshake_rtt_ns: u64,
    size_by_sequence_bytes: u64,
    duration_by_sequence_ns: u64,
    in_order: u32,
    acknowledgments: u32,
    syn_window: Option<u16>,
    maximum_segment_size: Option<u16>,
    window_scale: Option<u8>,
    syns: u8,
    fins: u8,
    resets: u8,
}

const _: () = assert!(size_of::<CompactReport>() == 120);

impl Normal {
    /// Takes the fields over. Values that do not fit are truncated.
    fn from_report(report: &TcpReport) -> Self {
        let segments = |class| report.count(class).segments;
        let plus_1 = |value: Option<u64>| value.map_or(0, |value| value.wrapping_add(1));
        Self {
            unique_bytes: report.unique_bytes,
            responses: report.responses,
            round_trips: report.round_trips,
            handshake_rtt_ns: plus_1(report.handshake_rtt_ns),
            size_by_sequence_bytes: plus_1(report.size_by_sequence_bytes),
            duration_by_sequence_ns: plus_1(report.duration_by_sequence_ns),
            in_order: segments(SegmentClass::InOrder) as u32,
            acknowledgments: segments(SegmentClass::Acknowledgment) as u32,
            syn_window: report.syn_window,
            maximum_segment_size: report.maximum_segment_size,
            window_scale: report.window_scale,
            syns: segments(SegmentClass::Syn) as u8,
            fins: report.fins as u8,
            resets: segments(SegmentClass::Reset) as u8,
        }
    }

    fn report(&self) -> TcpReport {
        let mut report = TcpReport {
            unique_bytes: self.unique_bytes,
            responses: self.responses,
            round_trips: self.round_trips,
            fins: self.fins.into(),
            syn_window: self.syn_window,
            maximum_segment_size: self.maximum_segment_size,
            window_scale: self.window_scale,
            handshake_rtt_ns: self.handshake_rtt_ns.checked_sub(1),
            size_by_sequence_bytes: self.size_by_sequence_bytes.checked_sub(1),
            duration_by_sequence_ns: self.duration_by_sequence_ns.checked_sub(1),
            ..TcpReport::EMPTY
        };
        let in_order = SegmentCount { segments: self.in_order.into(), bytes: self.unique_bytes };
        report.classes[SegmentClass::Syn as usize].segments = self.syns.into();
        report.classes[SegmentClass::Reset as usize].segments = self.resets.into();
        report.classes[SegmentClass::InOrder as usize] = in_order;
        report.classes[SegmentClass::Acknowledgment as usize].segments = self.acknowledgments.into();
        report
    }
}

impl CompactReport {
    /// The report.
    pub fn report(&self) -> TcpReport {
        match &self.0 {
            Contents::Normal(normal) => normal.report(),
            Contents::Full(report) => **report,
        }
    }
}

impl From<TcpReport> for CompactReport {
    fn from(report: TcpReport) -> Self {
        let normal = Normal::from_report(&report);
        // Any field that does not fit makes them differ.
        let fits = normal.report() == report;
        Self(if fits { Contents::Normal(normal) } else { Contents::Full(Box::new(report)) })
    }
}

impl Default for CompactReport {
    fn default() -> Self {
        TcpReport::EMPTY.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_returned_unchanged_and_without_anomalies_needs_no_heap() {
        let stays_small = |change: fn(&mut TcpReport)| {
            let mut report = TcpReport::EMPTY;
            report.classes[SegmentClass::InOrder as usize] = SegmentCount { segments: 7, bytes: 700 };
            report.unique_bytes = 700;
            report.handshake_rtt_ns = Some(0);
            change(&mut report);
            let compact = CompactReport::from(report);
            assert_eq!(compact.report(), report);
            matches!(compact.0, Contents::Normal(_))
        };
        assert!(stays_small(|_| {}));
        assert!(stays_small(|report| (report.syn_window, report.fins) = (Some(0), 255)));
        assert!(!stays_small(|report| report.fins = 256));
        assert!(!stays_small(|report| report.classes[SegmentClass::InOrder as usize].segments = 1 << 32));
        assert!(!stays_small(|report| report.handshake_rtt_ns = Some(u64::MAX)));
        assert!(!stays_small(|report| report.missing_bytes = 1));
        assert!(!stays_small(|report| report.classes[SegmentClass::KeepAlive as usize].segments = 1));
    }
}
