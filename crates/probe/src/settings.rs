//! What pipelines are told.

use crate::ladder::Overload;
use crate::self_traffic::SelfTrafficFilter;
use weir_capture::PacketFilter;

/// What one pipeline is told.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Which frames go further; all without one.
    pub filter: Option<PacketFilter>,
    /// The meter's part.
    pub meter: weir_flow::Config,
    /// The decoder's part.
    pub decode: weir_packet::DecodeOptions,
    /// Meter frames without IP as flows of MAC addresses.
    pub layer2: bool,
    /// Threads look for packets all the time instead of sleeping: each takes a whole core.
    pub busy_poll: bool,
    /// What is not metered because our sinks send it; it counts as filtered.
    pub self_traffic: SelfTrafficFilter,
    /// What is done when more comes than can be metered.
    pub overload: Overload,
    /// One packet in so many is metered, chosen at random; all if it is 0 or 1. Under overload it may be fewer.
    pub sample_one_in: u32,
}
