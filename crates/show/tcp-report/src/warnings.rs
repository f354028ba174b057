//! What limits the figures of a report, in sentences.

use crate::percent::percent;
use crate::report::CaptureReport;
use std::fmt::{self, Display, Formatter};
use weir_tcp::{Degradation, SegmentClass};
use weir_text::units;

/// The meaning of each bit of [`Degradation`].
const DEGRADATIONS: [(u8, &str); 6] = [
    (Degradation::HOLES, "holes: more than 32 holes were open at a time, and octets of the lowest count as seen"),
    (Degradation::DUPLICATES, "duplicates: the capture may have more duplicates than were recognised"),
    (Degradation::JUMP, "jump: sequence numbers jumped, and the known positions were replaced"),
    (Degradation::REUSED, "reused: a new connection began before the previous one had ended"),
    (Degradation::UNREAD, "unread: fragments, or packets captured without a whole TCP header"),
    (
        Degradation::POOL_FULL,
        "room: the anomaly pool was full; segments with payload may count as acknowledgments, and their \
         payload may not count",
    ),
];

/// What limits the figures.
pub struct Warning {
    /// A sentence.
    pub text: String,
    /// What to do on the command line.
    pub advice: Option<&'static str>,
}

impl From<String> for Warning {
    fn from(text: String) -> Self {
        Self { text, advice: None }
    }
}

impl Display for Warning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        self.advice.map_or(Ok(()), |advice| write!(f, " ({advice})"))
    }
}

impl CaptureReport {
    /// What limits the figures: one sentence each.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let totals = &self.totals;
        let connections = |n| units::count(n, "connection");
        let mut warnings = Vec::from_iter(self.incomplete());
        let [copied, routed] =
            [SegmentClass::Duplicate, SegmentClass::RoutedDuplicate].map(|class| totals.count(class));
        let duplicates = copied.segments + routed.segments;
        if duplicates > 0 {
            let behind_router = match routed.segments {
                0 => String::new(),
                n => format!(", {n} of them captured before and behind a router"),
            };
            warnings.push(Warning::from(format!(
                "duplicated by the capture: {} ({} of all){behind_router}, with {} of payload; all counts of packets and octets \
                 include them, and so do sizes and rates of other tools",
                units::count(duplicates, "packet"),
                percent(duplicates, totals.packets),
                units::quantity(copied.bytes + routed.bytes, "B")
            )));
        }
        let missing_bytes = totals.sum(|side| side.missing_bytes);
        if missing_bytes > 0 {
            let text = format!(
                "sequence numbers skip {missing_bytes} octets ({}) of payload between captured octets, in {}: the capture lost packets, \
                 or ended before they were retransmitted, or they are in later fragments, or sequence numbers are wrong{}",
                units::quantity(missing_bytes, "B"),
                connections(totals.with_missing),
                match totals.impossible_bytes {
                    0 => String::new(),
                    n => format!(", as those of {} are: no link is so fast", units::quantity(n, "B")),
                }
            );
            warnings.push(Warning { text, advice: Some("--sort missing") });
        }
        let out_of_window = totals.count(SegmentClass::OutOfWindow);
        if out_of_window.segments > 0 {
            warnings.push(Warning::from(format!(
                "{} with {} of payload out of window: 2^30 octets or more away from the known positions; their octets do not \
                 count (two connections with the same ports, or wrong sequence numbers)",
                units::count(out_of_window.segments, "segment"),
                units::quantity(out_of_window.bytes, "B")
            )));
        }
        if totals.one_way > 0 {
            warnings.push(Warning::from(format!(
                "{} ({} of all) captured in one direction only: the capture misses the answers (asymmetric routing, or one \
                 half of a tap); acknowledgments of the other side are unknown",
                connections(totals.one_way),
                percent(totals.one_way, totals.connections)
            )));
        }
        if totals.without_syn > 0 {
            let sentence = "without a SYN in the capture: the sender of the first packet counts as the client";
            warnings.push(Warning::from(format!("{} {sentence}", connections(totals.without_syn))));
        }
        for (bit, sentence) in DEGRADATIONS {
            if let n @ 1.. = totals.with_degradation(bit) {
                warnings.push(Warning::from(format!("{} not exact ({sentence})", connections(n))));
            }
        }
        if self.counts.without_ports > 0 {
            warnings.push(Warning::from(format!(
                "{} of TCP without ports: later fragments, captured too short, or an IP length that ends before the ports; their \
                 connection is unknown",
                units::count(self.counts.without_ports, "packet")
            )));
        }
        warnings
    }

    /// The warning about packets of connections beyond the limit, if there are any.
    pub fn incomplete(&self) -> Option<Warning> {
        let left_out = self.left_out();
        (left_out > 0).then(|| Warning {
            text: format!(
                "incomplete: {} of TCP left out, of connections beyond the first {}, for which there is not enough memory",
                units::count(left_out, "packet"),
                self.totals.connections
            ),
            advice: Some("--connections; or split the capture, or filter fewer hosts or ports"),
        })
    }
}
