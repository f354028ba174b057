//! Counts what a live source has lost, every 0.1 s and on request, and what a file of packet records says
//! of its own losses.

use crate::loss_history::LossSnapshot;
use std::time::{Duration, Instant};
use weir_capture::{Burst, Input, LiveSource, Losses};
use weir_ledger::TrafficCounters;

/// Time between two updates. While full bursts arrive, packet times measure it.
const UPDATE_INTERVAL: Duration = Duration::from_millis(100);
const UPDATE_INTERVAL_NS: u64 = UPDATE_INTERVAL.as_nanos() as u64;

#[derive(Default)]
pub(crate) struct LossCounter {
    losses: Losses,
    /// Time of the newest packet read, ns.
    newest_ns: u64,
    /// `newest_ns` at the last update.
    updated_ns: u64,
    /// When the last update was; `None` before the first.
    updated: Option<Instant>,
    /// The source had fewer frames than a full burst.
    burst_was_short: bool,
}

impl LossCounter {
    /// Notes the time of the newest packet. Returns whether the burst was not full.
    #[inline]
    pub fn note_burst(&mut self, burst: &Burst<'_>) -> bool {
        self.burst_was_short = !burst.is_full();
        self.newest_ns = burst.last().map_or(self.newest_ns, |frame| frame.time_ns);
        self.burst_was_short
    }

    /// Whether an update is due. Call this before reading a burst, so that the counters cover
    /// exactly the packets read so far.
    #[inline]
    pub fn update_is_due(&self) -> bool {
        self.updated.is_none_or(|updated| {
            self.newest_ns.abs_diff(self.updated_ns) >= UPDATE_INTERVAL_NS
                || self.burst_was_short && updated.elapsed() >= UPDATE_INTERVAL
        })
    }

    /// Adds the losses that a finite source reports at its end to the packet counters.
    pub fn add_recorded(&mut self, source: &Input<'_>, packets: &mut TrafficCounters) {
        if let Input::File(source) = source {
            let before = std::mem::replace(&mut self.losses, source.recorded_losses());
            add_losses(before, self.losses, packets);
        }
    }

    /// Adds the new losses of a source to the packet counters. Lost octets are not known. Returns a
    /// snapshot without the levels of load shedding.
    pub fn update(&mut self, source: &mut dyn LiveSource, packets: &mut TrafficCounters) -> LossSnapshot {
        // Before `query_losses`: packets lost after this call have a later time.
        let complete_until_ns = source.now_ns().max(self.newest_ns);
        let before = std::mem::replace(&mut self.losses, source.query_losses());
        add_losses(before, self.losses, packets);
        let lost = packets.dropped_nic + packets.dropped_kernel + packets.dropped_queue;
        // After `query_losses`: losses in between are in the next update and have an earlier time.
        let latest_ns = source.latest_ns();
        (self.updated_ns, self.updated) = (self.newest_ns, Some(Instant::now()));
        let clock = source.clock_steps();
        LossSnapshot { complete_until_ns, latest_ns, lost, clock, ..LossSnapshot::default() }
    }
}

fn add_losses(before: Losses, now: Losses, packets: &mut TrafficCounters) {
    let new = [now.nic - before.nic, now.kernel - before.kernel, now.queue - before.queue];
    packets.dropped_nic += new[0];
    packets.dropped_kernel += new[1];
    packets.dropped_queue += new[2];
    packets.received += new.iter().sum::<u64>();
}
