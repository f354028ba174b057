//! Where generated traffic begins and ends.

use weir_capture::{SettingsError, SourceSettings};

pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// Start time of all generated traffic: 2026-01-01 00:00 UTC.
pub(super) const START_NS: u64 = 1_767_225_600 * SECOND_NS;
/// Largest number of packets: up to this number, every conversation has its own 5-tuple.
const MAX_PACKETS: u64 = 100_000_000_000;
pub(super) struct Bounds {
    pub(super) packets: u64,
    /// First time after the end.
    pub(super) end_ns: u64,
}

impl Bounds {
    /// Parses `packets` and `duration`; without either, the limit is `packets`.
    pub(super) fn read(values: &SourceSettings<'_>, packets: u64) -> Result<Self, SettingsError> {
        let given = values.number("packets", [1, MAX_PACKETS])?;
        let duration_ns = values.duration_ns("duration", [1, 1_000_000 * SECOND_NS])?;
        Ok(Self {
            packets: given.unwrap_or(if duration_ns.is_some() { MAX_PACKETS } else { packets }),
            end_ns: duration_ns.map_or(u64::MAX, |duration_ns| START_NS + duration_ns),
        })
    }

    /// Returns whether a packet at this time, after `sent` others, is beyond the end.
    #[inline]
    pub(super) fn reached(&self, sent: u64, time_ns: u64) -> bool {
        sent >= self.packets || time_ns >= self.end_ns
    }
}
