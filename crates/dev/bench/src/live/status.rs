//! What a consumer reports about itself.

use std::time::{Duration, Instant};
use weir_ledger::TrafficCounters;

/// Time within which a running thread must answer a status query.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Counters of a consumer since its start.
#[derive(Clone, Debug, Default)]
pub struct ConsumerStatus {
    /// Packet counters. A null consumer counts received packets as metered.
    pub packets: TrafficCounters,
    /// CPU time of the pipeline threads in the order of the packet path, ns.
    pub cpu_time_ns: Vec<u64>,
    /// CPU time of the exporter thread, ns.
    pub exporter_cpu_time_ns: u64,
    /// Flow records that the sink received.
    pub records: u64,
    /// Arrival of the last of them.
    pub last_record: Option<Instant>,
}

impl ConsumerStatus {
    /// Packets that the consumer counted as lost.
    pub fn lost(&self) -> u64 {
        let TrafficCounters { dropped_nic, dropped_kernel, dropped_queue, dropped_cache_full, .. } = self.packets;
        dropped_nic + dropped_kernel + dropped_queue + dropped_cache_full
    }
}
