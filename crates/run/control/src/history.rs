//! The last hour: counters of the probe, second by second, in a bounded memory.
//!
//! In: a report each second. Out: the samples that a client does not have yet. Counters are those since the start, so
//! that a second without a sample (the probe did not report) loses nothing but its place.

use crate::report::{Client, Report};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{MissedTickBehavior, interval};
use utoipa::{IntoParams, ToSchema};

/// Seconds that are kept.
const MAX_SAMPLES: usize = 3600;
const INTERVAL: Duration = Duration::from_secs(1);

/// The parameters of a request.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Only samples after this time, ms since 1970; all if it is later than the newest one. Default: all
    #[param(value_type = Option<u64>)]
    after: Option<String>,
}

impl Query {
    /// The parameter `after`.
    pub fn after(&self) -> Result<u64, &'static str> {
        let after = self.after.as_deref().map_or(Ok(0), str::parse);
        after.map_err(|_| "after: use a time in milliseconds since 1970")
    }
}

/// Counters of the probe at a time: those since the start, if nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sample {
    time_ms: u64,
    received_packets: u64,
    received_bytes: u64,
    dropped_packets: u64,
    refused_packets: u64,
    created_flows: u64,
    active_flows: u64,
    lost_records: u64,
    waiting_records: u64,
    overload_level: u64,
}

/// Counters of the last hour, one value a second, the oldest first. A second is missing if the probe did not report.
#[derive(Serialize, ToSchema)]
pub struct Samples {
    /// When each was taken, ms since 1970.
    time_ms: Vec<u64>,
    /// Packets that the sources delivered or reported as lost, since the start.
    received_packets: Vec<u64>,
    /// Their octets on the wire.
    received_bytes: Vec<u64>,
    /// Packets lost in front of the meter or because the flow cache was full, since the start.
    dropped_packets: Vec<u64>,
    /// Packets that the decoder refused, since the start.
    refused_packets: Vec<u64>,
    /// Flow records created since the start.
    created_flows: Vec<u64>,
    /// Flow records that are open or wait for export.
    active_flows: Vec<u64>,
    /// Flow records that the sinks lost, since the start.
    lost_records: Vec<u64>,
    /// Flow records in the queues of the sinks and in their spools.
    waiting_records: Vec<u64>,
    /// Level of the load shedder.
    overload_level: Vec<u64>,
}

impl Sample {
    fn of(report: &Report, time: SystemTime) -> Self {
        let ledger = &report.ledger;
        let packets = &ledger.packets;
        let sinks = || ledger.sinks.iter();
        let lost = sinks().flat_map(|sink| sink.lost.values()).map(|lost| lost.flows).sum();
        Self {
            time_ms: time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64),
            received_packets: packets.received,
            received_bytes: ledger.bytes.received,
            dropped_packets: [
                packets.dropped_nic,
                packets.dropped_kernel,
                packets.dropped_queue,
                packets.dropped_cache_full,
            ]
            .iter()
            .sum(),
            refused_packets: packets.refused.total(),
            created_flows: ledger.flows_created,
            active_flows: ledger.live.flows,
            lost_records: lost,
            waiting_records: sinks().map(|sink| sink.waiting.flows + sink.spooled.flows).sum(),
            overload_level: ledger.overload.level.into(),
        }
    }
}

/// The samples of the last hour.
#[derive(Default)]
pub struct History(RwLock<VecDeque<Sample>>);

impl History {
    /// Takes a sample each second, until the probe ends.
    pub async fn record(self: Arc<Self>, client: Client) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(snapshot) = client.report().await else { continue };
            if snapshot.report.is_ending {
                return;
            }
            self.add(Sample::of(&snapshot.report, SystemTime::now()));
        }
    }

    fn add(&self, sample: Sample) {
        let mut samples = self.0.write();
        if samples.back().is_some_and(|last| last.time_ms > sample.time_ms) {
            // The clock was set back: times of a history only increase.
            samples.clear();
        }
        if samples.len() == MAX_SAMPLES {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The samples after a time; all if that is later than the newest, which is from before the clock was set back.
    pub fn samples(&self, after_ms: u64) -> Samples {
        let samples = self.0.read();
        let is_past = samples.back().is_none_or(|last| after_ms <= last.time_ms);
        let after_ms = if is_past { after_ms } else { 0 };
        let column = |value: fn(&Sample) -> u64| {
            samples.iter().filter(|sample| sample.time_ms > after_ms).map(value).collect::<Vec<_>>()
        };
        Samples {
            time_ms: column(|sample| sample.time_ms),
            received_packets: column(|sample| sample.received_packets),
            received_bytes: column(|sample| sample.received_bytes),
            dropped_packets: column(|sample| sample.dropped_packets),
            refused_packets: column(|sample| sample.refused_packets),
            created_flows: column(|sample| sample.created_flows),
            active_flows: column(|sample| sample.active_flows),
            lost_records: column(|sample| sample.lost_records),
            waiting_records: column(|sample| sample.waiting_records),
            overload_level: column(|sample| sample.overload_level),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hour_is_kept_and_clients_get_what_they_do_not_have() {
        let history = History::default();
        (1..=4000)
            .for_each(|time_ms| history.add(Sample { time_ms, received_packets: 2 * time_ms, ..Sample::default() }));
        let all = history.samples(0);
        assert_eq!((all.time_ms.len(), all.time_ms[0], all.received_packets[3599]), (3600, 401, 8000));
        assert_eq!(history.samples(3998).received_packets, [7998, 8000]);
        assert!(history.samples(4000).time_ms.is_empty());
    }

    #[test]
    fn a_clock_that_is_set_back_begins_a_new_history_which_all_clients_get() {
        let history = History::default();
        let add = |time_ms| history.add(Sample { time_ms, ..Sample::default() });
        [5000, 6000, 1000, 2000].into_iter().for_each(add);
        assert_eq!([history.samples(0).time_ms, history.samples(6000).time_ms], [[1000, 2000], [1000, 2000]]);
        assert_eq!(history.samples(1000).time_ms, [2000]);
    }
}
