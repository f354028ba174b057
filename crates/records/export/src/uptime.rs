//! The exporter's SysUptime of NetFlow v5 and v9 (RFC 3954 section 5.1): milliseconds since boot in
//! 32 bits, which is 49.7 days.
//!
//! A capture may be of any age and may span years, so the uptime and the clock of the host do not
//! fit. Boot is set one day before the first record, and the time in the header is that of the
//! latest record. A record whose times do not fit into 32 bits gets a new boot and a new message,
//! as after a restart of the exporter; collectors compute boot from each header.
//!
//! Two cases exceed the formats: of a record longer than 49.7 days the start is changed, and header
//! times after 2106-02-07 wrap. NetFlow v9 also carries absolute milliseconds, which are not
//! affected.

use std::time::{SystemTime, UNIX_EPOCH};
use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;

/// Time from boot to the first record, ms, for records that started earlier and are exported later.
const BOOT_BEFORE_FIRST_MS: u64 = 86_400_000;

/// Boot, and the latest record time since then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SysUptime {
    /// Whole seconds, in ms since 1970-01-01 UTC.
    boot_ms: u64,
    latest_ms: u64,
    started: bool,
}

impl SysUptime {
    /// Whether the times of a flow fit into 32 bits since the current boot.
    pub fn fits(&self, flow: &FlowRecord) -> bool {
        let (start_ms, end_ms) = (flow.start_ns() / 1_000_000, flow.end_ns() / 1_000_000);
        self.started && start_ms >= self.boot_ms && ceil_to_second(end_ms) - self.boot_ms <= u64::from(u32::MAX)
    }

    /// Includes a flow, with a new boot if it does not fit; records added before must have been
    /// sent then. Counts a flow whose times exceed the format as altered.
    pub fn include(&mut self, flow: &FlowRecord, counters: &mut SinkCounters) {
        let (start_ms, end_ms) = (flow.start_ns() / 1_000_000, flow.end_ns() / 1_000_000);
        if !self.fits(flow) {
            let wanted = start_ms.saturating_sub(BOOT_BEFORE_FIRST_MS);
            let possible = ceil_to_second(end_ms).saturating_sub(u64::from(u32::MAX));
            self.boot_ms = if possible > wanted { ceil_to_second(possible) } else { wanted / 1000 * 1000 };
            self.latest_ms = 0;
            self.started = true;
        }
        if !self.fits(flow) || header_wraps(end_ms) {
            *counters.altered.entry("time_beyond_format").or_default() += 1;
        }
        self.latest_ms = self.latest_ms.max(end_ms);
    }

    /// Boot, ms since 1970-01-01 UTC.
    pub fn boot_ms(&self) -> u64 {
        self.boot_ms
    }

    /// SysUptime in ms and seconds since 1970-01-01 UTC of a message header: the same time, not
    /// before the end of any record. Before the first record boot is now.
    pub fn header(&self) -> (u32, u32) {
        if !self.started {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            return (0, now as u32);
        }
        let now_ms = ceil_to_second(self.latest_ms.max(self.boot_ms));
        (u32::try_from(now_ms - self.boot_ms).unwrap_or(u32::MAX), (now_ms / 1000) as u32)
    }
}

/// Whether the seconds since 1970 in a header exceed 32 bits.
fn header_wraps(ms: u64) -> bool {
    u32::try_from(ceil_to_second(ms) / 1000).is_err()
}

fn ceil_to_second(ms: u64) -> u64 {
    ms.div_ceil(1000) * 1000
}

/// Milliseconds from boot to a time, at most what 32 bits hold.
pub(crate) fn uptime_ms(time_ns: u64, boot_ms: u64) -> u32 {
    u32::try_from((time_ns / 1_000_000).saturating_sub(boot_ms)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_flow::Direction;

    fn flow(first_ns: u64, last_ns: u64) -> FlowRecord {
        FlowRecord {
            forward: Direction { packets: 2, first_ns, last_ns, ..Direction::default() },
            ..FlowRecord::default()
        }
    }

    /// Start and end as a collector computes them, ms.
    fn seen(uptime: &SysUptime, flow: &FlowRecord) -> (u64, u64) {
        let (up_ms, seconds) = uptime.header();
        let boot_ms = u64::from(seconds) * 1000 - u64::from(up_ms);
        let absolute = |ns| boot_ms + u64::from(uptime_ms(ns, uptime.boot_ms()));
        (absolute(flow.start_ns()), absolute(flow.end_ns()))
    }

    proptest! {
        #[test]
        fn collectors_compute_the_times_of_any_record_before_2106(
            records in prop::collection::vec((0u64..4_290_000_000_000, 0u64..4_000_000_000), 1..20),
        ) {
            let mut uptime = SysUptime::default();
            for (start_ms, length_ms) in records {
                let end_ms = (start_ms + length_ms).min(4_290_000_000_000);
                let flow = flow(start_ms * 1_000_000 + 7, end_ms * 1_000_000 + 7);
                uptime.include(&flow, &mut SinkCounters::default());
                prop_assert!(uptime.fits(&flow));
                prop_assert_eq!(seen(&uptime, &flow), (start_ms, end_ms));
            }
        }
    }

    #[test]
    fn a_record_longer_than_the_format_keeps_its_end() {
        let mut uptime = SysUptime::default();
        let years = flow(0, 100_000_000_000_000_000);
        let mut counters = SinkCounters::default();
        uptime.include(&years, &mut counters);
        assert_eq!(counters.altered["time_beyond_format"], 1);
        let (start_ms, end_ms) = seen(&uptime, &years);
        assert_eq!(end_ms, 100_000_000_000);
        assert!(end_ms - start_ms > u64::from(u32::MAX) - 2000);
    }

    #[test]
    fn boot_is_kept_while_records_fit() {
        let mut uptime = SysUptime::default();
        let mut boot_after = |first_s: u64, last_s: u64| {
            let flow = flow(first_s * 1_000_000_000, last_s * 1_000_000_000);
            uptime.include(&flow, &mut SinkCounters::default());
            uptime.boot_ms()
        };
        let boot_ms = boot_after(1_000_000_000, 1_000_000_001);
        assert_eq!(boot_after(999_920_000, 1_000_000_000), boot_ms);
        assert_eq!(boot_after(1_004_000_000, 1_004_000_000), boot_ms);
        assert_ne!(boot_after(1_005_000_000, 1_005_000_000), boot_ms);
    }
}
