//! Watches the link state of interfaces. The source waits for an interface without a link, and
//! itself reports an interface that is removed.

use std::ffi::OsString;
use tracing::{info, warn};

/// The interfaces of all sources and their last known link state.
pub struct LinkMonitor(Vec<(String, bool)>);

impl LinkMonitor {
    /// Reads the link state of the interfaces of `inputs`.
    pub fn new(inputs: &[OsString]) -> Self {
        let live = inputs.iter().map(|input| input.to_string_lossy()).filter(|input| weir_capture::is_live(input));
        let mut devices: Vec<String> = live.flat_map(|input| weir_capture::devices(&input)).collect();
        devices.sort();
        devices.dedup();
        let state = |device: String| weir_capture::has_link(&device).map(|has_link| (device, has_link));
        Self(devices.into_iter().filter_map(state).collect())
    }

    /// Logs changes since the last call.
    pub fn log_changes(&mut self) {
        for (device, had_link) in &mut self.0 {
            let Some(has_link) = weir_capture::has_link(device).filter(|has_link| has_link != had_link) else {
                continue;
            };
            *had_link = has_link;
            let interface = device.split_once(':').map_or(device.as_str(), |(_, interface)| interface);
            if has_link {
                info!(interface, "interface has a link again");
            } else {
                warn!(interface, "interface is down or has no link, waiting for it");
            }
        }
    }
}
