//! What pipelines are told.

use crate::own::Own;
use weir_capture::Selector;

/// What one pipeline is told.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Which frames go further; all without one.
    pub filter: Option<Selector>,
    /// The meter's part.
    pub meter: weir_flow::Config,
    /// The decoder's part.
    pub decode: weir_packet::Options,
    /// Meter frames without IP as flows of MAC addresses.
    pub layer2: bool,
    /// Threads look for packets all the time instead of sleeping: each takes a whole core.
    pub busy_poll: bool,
    /// What is not metered because our sinks send it; it counts as filtered.
    pub own: Own,
}
