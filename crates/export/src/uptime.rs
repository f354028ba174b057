//! The exporter's uptime, as NetFlow v5 and v9 count time: milliseconds since boot in 32 bits, 49.7 days.
//!
//! A capture may be of any age and may span years, so neither the machine's uptime nor its clock serves. Boot is put
//! one day before the first record, and the header's time is that of the newest record: capture time, not ours. A
//! record that 32 bits cannot tell from this boot gets a new boot and a new message, as if the exporter had been started again
//! (collectors compute boot from each header). A single record of more than 49.7 days has its start cut to what fits, and
//! header times after 2106-02-07 wrap: these two are beyond the formats. NetFlow v9 also carries absolute milliseconds, which are not.

use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;

/// How long before the first record boot is: room for records that began earlier and come later.
const BEFORE_MS: u64 = 86_400_000;

/// Boot and the newest time of a stream of messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uptime {
    /// Whole seconds, in ms since 1970.
    boot_ms: u64,
    newest_ms: u64,
    started: bool,
}

impl Uptime {
    /// Whether a flow's times can be told from the present boot.
    pub fn fits(&self, flow: &FlowRecord) -> bool {
        let (start_ms, end_ms) = (flow.start_ns() / 1_000_000, flow.end_ns() / 1_000_000);
        self.started && start_ms >= self.boot_ms && up_to_second(end_ms) - self.boot_ms <= u64::from(u32::MAX)
    }

    /// Makes a flow fit, or says in the line that its start will be cut. What was not sent yet must have been if it did
    /// not fit.
    pub fn enter(&mut self, flow: &FlowRecord, line: &mut SinkCounters) {
        let (start_ms, end_ms) = (flow.start_ns() / 1_000_000, flow.end_ns() / 1_000_000);
        if !self.fits(flow) {
            let wanted = start_ms.saturating_sub(BEFORE_MS);
            let possible = up_to_second(end_ms).saturating_sub(u64::from(u32::MAX));
            self.boot_ms = if possible > wanted { up_to_second(possible) } else { wanted / 1000 * 1000 };
            self.newest_ms = 0;
            self.started = true;
        }
        if !self.fits(flow) || header_wraps(end_ms) {
            *line.altered.entry("time_beyond_format").or_default() += 1;
        }
        self.newest_ms = self.newest_ms.max(end_ms);
    }

    /// Where uptime begins, ms since 1970.
    pub fn boot_ms(&self) -> u64 {
        self.boot_ms
    }

    /// The header's uptime in ms, and its seconds since 1970, of the same moment: no earlier than any record.
    pub fn header(&self) -> (u32, u32) {
        let now_ms = up_to_second(self.newest_ms.max(self.boot_ms));
        (u32::try_from(now_ms - self.boot_ms).unwrap_or(u32::MAX), (now_ms / 1000) as u32)
    }
}

/// Whether the header's seconds since 1970 go beyond 32 bits.
fn header_wraps(ms: u64) -> bool {
    u32::try_from(up_to_second(ms) / 1000).is_err()
}

fn up_to_second(ms: u64) -> u64 {
    ms.div_ceil(1000) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::uptime;
    use proptest::prelude::*;
    use weir_flow::Direction;

    fn flow(first_ns: u64, last_ns: u64) -> FlowRecord {
        FlowRecord {
            forward: Direction { packets: 2, first_ns, last_ns, ..Direction::default() },
            ..FlowRecord::default()
        }
    }

    /// Start and end as a collector computes them.
    fn seen(clock: &Uptime, flow: &FlowRecord) -> (u64, u64) {
        let (up_ms, seconds) = clock.header();
        let boot_ms = u64::from(seconds) * 1000 - u64::from(up_ms);
        let absolute = |ns| boot_ms + u64::from(uptime(ns, clock.boot_ms()));
        (absolute(flow.start_ns()), absolute(flow.end_ns()))
    }

    proptest! {
        #[test]
        fn collectors_compute_the_times_of_any_record_before_2106(
            records in prop::collection::vec((0u64..4_290_000_000_000, 0u64..4_000_000_000), 1..20),
        ) {
            let mut clock = Uptime::default();
            for (start_ms, length_ms) in records {
                let end_ms = (start_ms + length_ms).min(4_290_000_000_000);
                let flow = flow(start_ms * 1_000_000 + 7, end_ms * 1_000_000 + 7);
                clock.enter(&flow, &mut SinkCounters::default());
                prop_assert!(clock.fits(&flow));
                prop_assert_eq!(seen(&clock, &flow), (start_ms, end_ms));
            }
        }
    }

    #[test]
    fn a_record_of_years_keeps_its_end() {
        let mut clock = Uptime::default();
        let years = flow(0, 100_000_000_000_000_000);
        let mut line = SinkCounters::default();
        clock.enter(&years, &mut line);
        assert_eq!(line.altered["time_beyond_format"], 1);
        let (start_ms, end_ms) = seen(&clock, &years);
        assert_eq!(end_ms, 100_000_000_000);
        assert!(end_ms - start_ms > u64::from(u32::MAX) - 2000);
    }

    #[test]
    fn boot_stays_while_it_serves() {
        let mut clock = Uptime::default();
        clock.enter(&flow(1_000_000_000_000_000_000, 1_000_000_001_000_000_000), &mut SinkCounters::default());
        let boot_ms = clock.boot_ms();
        clock.enter(
            &flow(1_000_000_000_000_000_000 - 80_000_000_000_000, 1_000_000_000_000_000_000),
            &mut SinkCounters::default(),
        );
        clock.enter(&flow(1_004_000_000_000_000_000, 1_004_000_000_000_000_000), &mut SinkCounters::default());
        assert_eq!(clock.boot_ms(), boot_ms);
        clock.enter(&flow(1_005_000_000_000_000_000, 1_005_000_000_000_000_000), &mut SinkCounters::default());
        assert_ne!(clock.boot_ms(), boot_ms);
    }
}
