//! Settings of pipelines.

use crate::admission::SelfTrafficFilter;
use crate::interface_names::InterfaceNames;
use crate::load_shedder::{OverloadPolicy, ShedOrder};
use crate::thread::CpuAffinity;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use weir_capture::PacketFilter;
use weir_flow::FlowRecord;
use weir_ledger::Timing;
use weir_rules::Rules;

/// Settings of one pipeline.
#[derive(Clone, Default)]
pub struct Settings {
    /// Frames that do not match are not metered; `None` admits all frames.
    pub filter: Option<PacketFilter>,
    /// Frames of other times are not metered, ns since 1970 UTC; `None` admits all.
    pub times_ns: Option<RangeInclusive<u64>>,
    /// Settings of the meter.
    pub meter: weir_flow::Config,
    /// Settings of the decoder.
    pub decode: weir_packet::DecodeOptions,
    /// Meter frames without IP as flows of MAC addresses.
    pub layer2: bool,
    /// Poll for packets without sleeping. Each thread then uses a whole core.
    pub busy_poll: bool,
    /// Datagrams of our own sinks, which are not metered and count as filtered.
    pub self_traffic: SelfTrafficFilter,
    /// What to do when more packets arrive than can be metered.
    pub overload: OverloadPolicy,
    /// What the first overload levels leave out.
    pub shed: ShedOrder,
    /// Meter one packet in this number, chosen at random; 0 or 1 meters all. Load shedding may
    /// sample fewer.
    pub sampling_population: u32,
    /// Batches in the queue of each sink; `None` is [`Exporter::queue_batches`](crate::Exporter::queue_batches).
    pub queue_batches: Option<usize>,
    /// Gets every batch of records, whatever sinks lose.
    pub observer: Option<RecordObserver>,
    /// Gets the names of interfaces before their records are exported.
    pub interface_names: Option<InterfaceNames>,
    /// Adds to records before sinks get them.
    pub enricher: Option<RecordEnricher>,
    /// The same for the records of transactions, which are no flows.
    pub transaction_enricher: Option<RecordEnricher>,
    /// What happens to packets, if the pipeline has [`PacketActions`](crate::PacketActions).
    pub rules: Option<Arc<Rules>>,
    /// Each meter has a [`MemoryAhead`](weir_flow::MemoryAhead) on a thread of its own, with this
    /// affinity. `None`: the metering thread touches all memory itself.
    pub memory_thread: Option<CpuAffinity>,
    /// When sinks are let do what is due, and abandoned.
    pub timing: Timing,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { meter, decode, layer2, .. } = self;
        write!(f, "{meter:?} {decode:?} layer2: {layer2}")
    }
}

/// Called by pipelines with each batch of records that they export. It must not wait.
pub type RecordObserver = Arc<dyn Fn(&[FlowRecord]) + Send + Sync>;

/// Called once for each batch of records, on the thread of the sink that gets it first. Other sinks
/// wait for it; pipelines do not.
pub type RecordEnricher = Arc<dyn Fn(&mut [FlowRecord]) + Send + Sync>;

/// What a thread does when the queue to a sink, or from a reading to a metering thread, is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackPressure {
    /// Wait until it has free slots; the source waits, too. For captures.
    Block,
    /// Drop the records or packets and count them. For live traffic, which does not wait.
    Drop,
}
