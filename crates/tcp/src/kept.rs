//! A report in little memory: most tell of nothing but octets in order, acknowledgments, a beginning and an end.

use crate::report::{Class, Count, Report};

/// A [`Report`] that is kept: 56 octets, and as much again as a report takes if it tells of more than that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept(Told);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Usual(Usual),
    More(Box<Report>),
}

/// What a direction without trouble tells.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Usual {
    unique_bytes: u64,
    /// These three plus 1, or 0.
    handshake_ns: u64,
    size_by_sequence: u64,
    duration_by_sequence: u64,
    in_order: u32,
    acknowledgments: u32,
    syn_window: Option<u16>,
    maximum_segment: Option<u16>,
    window_scale: Option<u8>,
    syns: u8,
    fins: u8,
    resets: u8,
}

const _: () = assert!(size_of::<Kept>() == 56);

impl Usual {
    /// As much of it as fits.
    fn of(report: &Report) -> Self {
        let segments = |class| report.of(class).segments;
        let plus_1 = |figure: Option<u64>| figure.map_or(0, |figure| figure.wrapping_add(1));
        Self {
            unique_bytes: report.unique_bytes,
            handshake_ns: plus_1(report.handshake_ns),
            size_by_sequence: plus_1(report.size_by_sequence),
            duration_by_sequence: plus_1(report.duration_by_sequence),
            in_order: segments(Class::InOrder) as u32,
            acknowledgments: segments(Class::Acknowledgment) as u32,
            syn_window: report.syn_window,
            maximum_segment: report.maximum_segment,
            window_scale: report.window_scale,
            syns: segments(Class::Syn) as u8,
            fins: report.fins as u8,
            resets: segments(Class::Reset) as u8,
        }
    }

    fn report(&self) -> Report {
        let mut report = Report {
            unique_bytes: self.unique_bytes,
            fins: self.fins.into(),
            syn_window: self.syn_window,
            maximum_segment: self.maximum_segment,
            window_scale: self.window_scale,
            handshake_ns: self.handshake_ns.checked_sub(1),
            size_by_sequence: self.size_by_sequence.checked_sub(1),
            duration_by_sequence: self.duration_by_sequence.checked_sub(1),
            ..Report::NONE
        };
        report.classes[Class::Syn as usize].segments = self.syns.into();
        report.classes[Class::Reset as usize].segments = self.resets.into();
        report.classes[Class::InOrder as usize] = Count { segments: self.in_order.into(), bytes: self.unique_bytes };
        report.classes[Class::Acknowledgment as usize].segments = self.acknowledgments.into();
        report
    }
}

impl Kept {
    /// What was kept.
    pub fn report(&self) -> Report {
        match &self.0 {
            Told::Usual(usual) => usual.report(),
            Told::More(report) => **report,
        }
    }
}

impl From<Report> for Kept {
    fn from(report: Report) -> Self {
        let usual = Usual::of(&report);
        // Whatever does not fit makes a difference.
        Self(if usual.report() == report { Told::Usual(usual) } else { Told::More(Box::new(report)) })
    }
}

impl Default for Kept {
    fn default() -> Self {
        Report::NONE.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_out_is_what_was_put_in_and_little_needs_no_more_memory() {
        let usual = |change: fn(&mut Report)| {
            let mut report = Report::NONE;
            report.classes[Class::InOrder as usize] = Count { segments: 7, bytes: 700 };
            report.unique_bytes = 700;
            report.handshake_ns = Some(0);
            change(&mut report);
            let kept = Kept::from(report);
            assert_eq!(kept.report(), report);
            matches!(kept.0, Told::Usual(_))
        };
        assert!(usual(|_| {}));
        assert!(usual(|report| (report.syn_window, report.fins) = (Some(0), 255)));
        assert!(!usual(|report| report.fins = 256));
        assert!(!usual(|report| report.classes[Class::InOrder as usize].segments = 1 << 32));
        assert!(!usual(|report| report.handshake_ns = Some(u64::MAX)));
        assert!(!usual(|report| report.missing_bytes = 1));
        assert!(!usual(|report| report.classes[Class::KeepAlive as usize].segments = 1));
    }
}
