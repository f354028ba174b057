//! The meter: puts packets into the records of their flows (`docs/metering.md` section 5).
//!
//! ```text
//! for each 64 packets:
//!     hash the keys                               -> prefetch the buckets of the index
//!     compare tags in the buckets                 -> prefetch the slots of the candidates
//!     per packet: advance the clock, compare keys -> count the packet in its record
//!     scan the next 256 slots for expiry          -> export the records of those that expired
//! ```
//! | file | what it does |
//! |---|---|
//! | `meter/fast_path.rs` | the loop above; packets of known flows |
//! | `meter/slow_path.rs` | new flows, fragments, encapsulation, full counters; effect of SYN, FIN and RST |
//! | `meter/slot_allocation.rs` | slots for new flows; the full cache |
//! | `meter/expiry.rs` | timeouts; the only place where records are exported |
//! | `meter/migration.rs` | flows that migrate to another meter |

mod expiry;
mod fast_path;
mod migration;
mod slot_allocation;
mod slow_path;

use crate::cache::FlowCache;
use crate::clock::Clock;
use crate::encapsulation::EncapsulationTable;
use crate::expiry_schedule::SCANNED_SLOTS;
use crate::follower::{NoFollower, PacketFollower};
use crate::fragments::FragmentCache;
use crate::full_counters::FullCounters;
use crate::inspection::{Inspection, NoPayloads, Payloads};
use crate::mapped_array::MappedArray;
use crate::memory_ahead::MemoryAhead;
use crate::migration::MigrationSearch;
use crate::overflow::OverflowRecords;
use crate::small_flow_filter::SmallFlowFilter;
use crate::tcp_analysis::TcpAnalysis;
use crate::timeouts::Timeouts;
use crate::{Config, Detail, FlowRecord, KeyOptions};
use std::io;
use weir_ledger::{InspectionCounters, PacketAnomaly, ReasonCounters, RecordTotals, TransactionCounters};
use weir_packet::Packet;

/// Packets per chunk: the most that are prefetched together, and the interval of the expiry scan.
const CHUNK_PACKETS: usize = 64;
/// Largest number of slots.
const MAX_SLOTS: u32 = 1 << 31;

/// Counters of a meter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records opened, overflow records included.
    pub created: u64,
    /// Packets dropped because the cache was full.
    pub dropped_packets: u64,
    /// Their octets on the wire.
    pub dropped_bytes: u64,
    /// Unattributed fragments, steps back of the clock, packets in overflow records, evictions.
    pub anomalies: ReasonCounters<PacketAnomaly, { PacketAnomaly::ALL.len() }>,
}

/// A metering process (RFC 7011) for one stream of packets.
#[derive(Debug)]
pub struct Meter {
    config: Config,
    detail: Detail,
    clock: Clock,
    /// Whether there was a packet.
    started: bool,
    cache: FlowCache,
    tcp: TcpAnalysis,
    inspection: Inspection,
    /// Per slot; empty unless configured.
    marks: MappedArray<u64>,
    encapsulation: EncapsulationTable,
    full_counters: FullCounters,
    fragments: FragmentCache,
    overflow: OverflowRecords,
    small_flow_filter: SmallFlowFilter,
    migration_search: MigrationSearch,
    /// Records not exported yet, with their packets and octets.
    open_records: RecordTotals,
    counters: Counters,
}

impl Meter {
    /// A meter with all the memory it will ever use; the system provides pages as they are touched.
    ///
    /// # Errors
    /// The system has not that much memory.
    pub fn new(config: Config) -> io::Result<Self> {
        let config = within_limits(config);
        let (slots, clock) = (config.flows as usize, Clock::default());
        let cache = FlowCache::new(&config, clock.now_ns)?;
        Ok(Self {
            config,
            detail: Detail::ALL,
            clock,
            started: false,
            tcp: TcpAnalysis::new(slots)?,
            inspection: Inspection::new(&config, slots)?,
            marks: MappedArray::with_huge_pages(if config.marks { slots } else { 0 })?,
            encapsulation: EncapsulationTable::new(slots, config.mac_addresses)?,
            full_counters: FullCounters::new()?,
            fragments: FragmentCache::new(cache.hasher.random_state())?,
            overflow: OverflowRecords::new(cache.hasher.random_state())?,
            small_flow_filter: SmallFlowFilter::new()?,
            migration_search: MigrationSearch::new(slots)?,
            open_records: RecordTotals::default(),
            counters: Counters::default(),
            cache,
        })
    }

    /// What provides the memory of the flows to come, for another thread. Until then, and if that
    /// thread is late, the system provides memory when the meter touches it.
    pub fn memory_ahead(&mut self) -> MemoryAhead {
        let cache = &self.cache;
        let tables =
            vec![cache.slots.memory(), cache.extensions.memory(), self.inspection.flows.memory(), self.marks.memory()];
        let (ahead, notices) = MemoryAhead::new(tables, self.tcp.connections.memory());
        self.cache.notices = notices;
        ahead
    }

    /// Meters a burst of packets; records that end are appended to `out`. Inspects no payload.
    pub fn process(&mut self, burst: &[Packet], out: &mut Vec<FlowRecord>) {
        self.start_and_process(burst, &NoPayloads, &mut NoFollower, out);
    }

    /// As [`Meter::process`]. Inspects the payload of the first packets of flows, and hands each
    /// packet with the mark of its flow to a follower, which needs [`Config::marks`].
    pub fn process_with(
        &mut self,
        burst: &[Packet],
        payloads: &impl Payloads,
        follower: &mut impl PacketFollower,
        out: &mut Vec<FlowRecord>,
    ) {
        if self.inspection.packets == 0 {
            self.start_and_process(burst, &NoPayloads, follower, out);
        } else {
            self.start_and_process(burst, payloads, follower, out);
        }
    }

    #[inline(always)]
    fn start_and_process<P: Payloads, F: PacketFollower>(
        &mut self,
        burst: &[Packet],
        payloads: &P,
        follower: &mut F,
        out: &mut Vec<FlowRecord>,
    ) {
        if let Some(first) = burst.first()
            && !self.started
        {
            self.start(first);
        }
        // The loop for the default key has constant options (decisions/0015).
        match self.config.key {
            KeyOptions::DEFAULT => self.process_burst(burst, KeyOptions::DEFAULT, payloads, follower, out),
            options => self.process_burst(burst, options, payloads, follower, out),
        }
    }

    /// Advances the clock to `now_ns`, on the time scale of the packets, and scans a quarter of the
    /// slots for expiry. Call it a few times a second while few packets or none arrive. It has no
    /// effect before the first packet or migrated flow.
    pub fn advance_time(&mut self, now_ns: u64, out: &mut Vec<FlowRecord>) {
        let used = self.cache.used();
        if (self.started || used > 0) && now_ns > self.clock.newest_ns {
            self.advance_clock(now_ns);
        }
        for _ in 0..(used as usize).div_ceil(4 * SCANNED_SLOTS) {
            self.expire_next_slots(out);
        }
        self.search_slots(self.cache.used().div_ceil(4));
    }

    /// Ends every record: call it at the end of input.
    pub fn drain(&mut self, out: &mut Vec<FlowRecord>) {
        while self.drain_up_to(usize::MAX, out) {}
    }

    /// Sets the detail of what is metered from now on. If TCP analysis is switched on, connections
    /// whose record began before stay without it for that record, as it may have missed packets.
    pub fn set_detail(&mut self, detail: Detail) {
        match (self.detail.tcp_analysis, detail.tcp_analysis) {
            (false, true) => self.tcp.resume_after(self.clock.now_ns),
            (true, false) => self.tcp.suspend(),
            _ => {}
        }
        self.inspection.set_active(detail.inspection);
        self.inspection.set_fingerprints(detail.fingerprints);
        self.detail = detail;
    }

    /// Changes the timeouts, also of present flows. A record that has expired by them ends within
    /// one round of the expiry cursor.
    pub fn set_timeouts(&mut self, idle_ns: u64, active_ns: u64) {
        (self.config.idle_timeout_ns, self.config.active_timeout_ns) = (idle_ns, active_ns);
        self.cache.set_timeouts(Timeouts { idle_ns, active_ns });
    }

    /// Records not exported yet, with their packets and octets.
    pub fn open_records(&self) -> RecordTotals {
        self.open_records
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The counters of inspection.
    pub fn inspection_counters(&self) -> InspectionCounters {
        self.inspection.counters()
    }

    /// Appends a record of each transaction that has ended since the last call, in the order in which they
    /// ended. Call it after each burst, with [`InspectionSettings::transaction_octets`](weir_dpi::InspectionSettings).
    pub fn take_transactions(&mut self, out: &mut Vec<FlowRecord>) {
        self.inspection.take_transactions(out);
    }

    /// Transactions that were begun, are open and were left out; `None` if none are recorded.
    pub fn transaction_counters(&self) -> Option<TransactionCounters> {
        self.inspection.transaction_counters()
    }

    /// Buckets that the longest search in the flow index visits.
    pub fn longest_chain(&self) -> usize {
        self.cache.index.longest_chain()
    }

    /// Memory that a meter takes at most, bytes. The system provides what is touched: for TCP
    /// analysis 448 bytes per connection and 1.5 KiB per direction with anomalies; for tunnels and
    /// migration, the entries of the flows concerned.
    pub fn memory_bytes_for(config: &Config) -> usize {
        let config = within_limits(*config);
        let slots = config.flows as usize;
        let encapsulation: usize = EncapsulationTable::memory_bytes_for(slots, config.mac_addresses).iter().sum();
        let cache = FlowCache::memory_bytes_for(&config) + OverflowRecords::memory_bytes_for() + fixed_memory_bytes();
        let marks = if config.marks { slots * size_of::<u64>() } else { 0 };
        let cache = cache + Inspection::memory_bytes_for(&config, slots) + marks;
        cache + encapsulation + TcpAnalysis::memory_bytes_for(slots) + MigrationSearch::memory_bytes_for(slots)
    }

    /// Memory taken at most, bytes: by the flow cache with inspection, by TCP analysis, for tunnels,
    /// and for migration.
    pub fn memory_bytes(&self) -> [usize; 4] {
        let [links, tunnels] = self.encapsulation.memory_bytes();
        let inspection = Inspection::memory_bytes_for(&self.config, self.config.flows as usize);
        let cache = self.cache.memory_bytes() + links + self.overflow.memory_bytes() + fixed_memory_bytes();
        [
            cache + inspection + self.marks.memory_bytes(),
            self.tcp.memory_bytes(),
            tunnels,
            self.migration_search.next.memory_bytes(),
        ]
    }

    #[cold]
    fn start(&mut self, first: &Packet) {
        self.started = true;
        self.set_origin(first.time_ns, first.interface);
        // It may be older than flows that migrated here before.
        self.clock.set(first.time_ns);
    }

    /// Sets time and default interface if there is no flow yet.
    fn set_origin(&mut self, time_ns: u64, interface: u32) {
        if self.cache.used() == 0 {
            self.clock.newest_ns = time_ns;
            self.encapsulation.set_default_interface(interface);
        }
    }

    #[inline(always)]
    fn advance_clock(&mut self, time_ns: u64) {
        if !self.clock.advance(time_ns) {
            self.counters.anomalies.count(PacketAnomaly::ClockWentBack);
        }
    }
}

fn within_limits(config: Config) -> Config {
    let prefetch_packets = config.prefetch_packets.clamp(1, CHUNK_PACKETS);
    let flows = config.flows.clamp(1, MAX_SLOTS);
    let inspection = config.inspection.map(|settings| settings.within(flows));
    Config { flows, prefetch_packets, inspection, ..config }
}

fn fixed_memory_bytes() -> usize {
    FullCounters::memory_bytes() + FragmentCache::memory_bytes() + SmallFlowFilter::memory_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CacheFullPolicy;
    use weir_packet::ipv4_mapped;

    #[test]
    fn memory_does_not_grow_after_the_start() {
        let (flows, cache_full_policy) = (14 << 10, CacheFullPolicy::EvictOldestIdle);
        let config = Config { flows, cache_full_policy, secret: Some(1), ..Config::default() };
        let mut meter = Meter::new(config).unwrap();
        let taken = |meter: &Meter| {
            let lists = [meter.cache.scratch.capacity(), meter.cache.upcoming.capacity()];
            (meter.memory_bytes(), lists)
        };
        let before = taken(&meter);
        let mut out = Vec::new();
        for number in 0..20 * flows {
            let source = ipv4_mapped(number.to_be_bytes());
            meter.process(&[Packet { source, source_port: 1, protocol: 17, ..Packet::default() }], &mut out);
            out.clear();
        }
        assert_eq!((meter.open_records().flows, taken(&meter)), (u64::from(flows), before));
    }

    #[test]
    fn packets_between_two_parts_of_a_drain_are_metered() {
        for cache_full_policy in [CacheFullPolicy::Overflow, CacheFullPolicy::EvictOldestIdle, CacheFullPolicy::Drop] {
            let config = Config { flows: 16, idle_timeout_ns: 1 << 30, secret: Some(1), ..Config::default() };
            let mut meter = Meter::new(Config { cache_full_policy, ..config }).unwrap();
            let (mut out, mut sent) = (Vec::new(), 0);
            let mut send =
                |meter: &mut Meter, out: &mut Vec<FlowRecord>, numbers: std::ops::Range<u32>, time_ns: u64| {
                    for number in numbers {
                        let source = ipv4_mapped(number.to_be_bytes());
                        let packet = Packet { source, time_ns, frame_bytes: 60, protocol: 17, ..Packet::default() };
                        meter.process(&[packet], out);
                        sent += 1;
                    }
                };
            // Eight slots are free below four in use and one that is drained.
            send(&mut meter, &mut out, 0..8, 0);
            send(&mut meter, &mut out, 8..12, 1 << 29);
            send(&mut meter, &mut out, 12..13, 5 << 28);
            assert_eq!(out.len(), 8);
            assert!(meter.drain_up_to(1, &mut out));
            send(&mut meter, &mut out, 20..200, 5 << 28);
            meter.drain(&mut out);
            let metered: u64 = out.iter().map(FlowRecord::packets).sum();
            assert_eq!(metered + meter.counters().dropped_packets, sent);
            assert_eq!(meter.open_records(), RecordTotals::default());
        }
    }

    #[test]
    fn memory_announced_equals_memory_taken() {
        for policy in [CacheFullPolicy::Overflow, CacheFullPolicy::EvictOldestIdle, CacheFullPolicy::Drop] {
            for (flows, vlan) in [(0, false), (1, true), (1000, false), (100_001, true), (1 << 20, false)] {
                let key = KeyOptions { vlan, ..KeyOptions::default() };
                let config = Config { flows, cache_full_policy: policy, key, mac_addresses: vlan, ..Config::default() };
                let taken = Meter::new(config).unwrap().memory_bytes().iter().sum();
                assert_eq!(Meter::memory_bytes_for(&config), taken, "{flows} {policy:?}");
            }
        }
    }

    #[test]
    fn flow_takes_at_most_256_bytes() {
        for flows in [1 << 20, 10_000_000] {
            let [cache, ..] = Meter::new(Config { flows, ..Config::default() }).unwrap().memory_bytes();
            let per_flow = cache as f64 / f64::from(flows);
            assert!(per_flow <= 256.0, "{per_flow} bytes per flow of {flows}");
        }
    }
}
