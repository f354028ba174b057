//! A report in little memory: most tell of nothing but octets in order, acknowledgments, a beginning and an end.

use crate::report::{SegmentClass, SegmentCount, TcpReport};

/// A [`TcpReport`] that is kept: 56 octets, and as much again as a report takes if it tells of more than that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactReport(Told);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Usual(Usual),
    More(Box<TcpReport>),
}

/// What a direction without trouble tells.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Usual {
    unique_bytes: u64,
    /// These three plus 1, or 0.
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

const _: () = assert!(size_of::<CompactReport>() == 56);

impl Usual {
    /// As much of it as fits.
    fn of(report: &TcpReport) -> Self {
        let segments = |class| report.count(class).segments;
        let plus_1 = |figure: Option<u64>| figure.map_or(0, |figure| figure.wrapping_add(1));
        Self {
            unique_bytes: report.unique_bytes,
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
            fins: self.fins.into(),
            syn_window: self.syn_window,
            maximum_segment_size: self.maximum_segment_size,
            window_scale: self.window_scale,
            handshake_rtt_ns: self.handshake_rtt_ns.checked_sub(1),
            size_by_sequence_bytes: self.size_by_sequence_bytes.checked_sub(1),
            duration_by_sequence_ns: self.duration_by_sequence_ns.checked_sub(1),
            ..TcpReport::EMPTY
        };
        report.classes[SegmentClass::Syn as usize].segments = self.syns.into();
        report.classes[SegmentClass::Reset as usize].segments = self.resets.into();
        report.classes[SegmentClass::InOrder as usize] =
            SegmentCount { segments: self.in_order.into(), bytes: self.unique_bytes };
        report.classes[SegmentClass::Acknowledgment as usize].segments = self.acknowledgments.into();
        report
    }
}

impl CompactReport {
    /// What was kept.
    pub fn report(&self) -> TcpReport {
        match &self.0 {
            Told::Usual(usual) => usual.report(),
            Told::More(report) => **report,
        }
    }
}

impl From<TcpReport> for CompactReport {
    fn from(report: TcpReport) -> Self {
        let usual = Usual::of(&report);
        // Whatever does not fit makes a difference.
        Self(if usual.report() == report { Told::Usual(usual) } else { Told::More(Box::new(report)) })
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
    fn what_is_taken_out_is_what_was_put_in_and_little_needs_no_more_memory() {
        let usual = |change: fn(&mut TcpReport)| {
            let mut report = TcpReport::EMPTY;
            report.classes[SegmentClass::InOrder as usize] = SegmentCount { segments: 7, bytes: 700 };
            report.unique_bytes = 700;
            report.handshake_rtt_ns = Some(0);
            change(&mut report);
            let kept = CompactReport::from(report);
            assert_eq!(kept.report(), report);
            matches!(kept.0, Told::Usual(_))
        };
        assert!(usual(|_| {}));
        assert!(usual(|report| (report.syn_window, report.fins) = (Some(0), 255)));
        assert!(!usual(|report| report.fins = 256));
        assert!(!usual(|report| report.classes[SegmentClass::InOrder as usize].segments = 1 << 32));
        assert!(!usual(|report| report.handshake_rtt_ns = Some(u64::MAX)));
        assert!(!usual(|report| report.missing_bytes = 1));
        assert!(!usual(|report| report.classes[SegmentClass::KeepAlive as usize].segments = 1));
    }
}
