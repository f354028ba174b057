//! Settings of a pipeline from the options that `weir read` and `weir probe` share.

use crate::arguments::{FullPolicy, KeyField, Metering};
use crate::error::Error;
use std::io;
use weir_capture::PacketFilter;
use weir_flow::{CacheFullPolicy, Config, KeyOptions};
use weir_probe::{OverloadPolicy, SelfTrafficFilter, Settings};
use weir_text::units;

/// Settings of a pipeline that reads captures; `weir probe` changes those of live traffic.
pub fn settings(metering: &Metering) -> Result<Settings, Error> {
    let has = |field| metering.key.contains(&field);
    let key = KeyOptions {
        vlan: has(KeyField::Vlan),
        interface: has(KeyField::Interface),
        tunnel: has(KeyField::Tunnel),
        unidirectional: metering.uniflow_key,
    };
    let policy = match metering.full {
        FullPolicy::Overflow => CacheFullPolicy::Overflow,
        FullPolicy::EvictOldestIdle => CacheFullPolicy::EvictOldestIdle,
        FullPolicy::Drop => CacheFullPolicy::Drop,
    };
    let default = Config::default();
    let flows = metering.flows.unwrap_or(default.flows);
    Ok(Settings {
        busy_poll: false,
        filter: filter(metering.filter.as_deref())?,
        meter: Config {
            flows,
            idle_timeout_ns: metering.idle,
            active_timeout_ns: metering.active,
            key,
            policy,
            ..default
        },
        decode: weir_packet::DecodeOptions { decapsulate: metering.decap },
        layer2: metering.layer2,
        self_traffic: SelfTrafficFilter::default(),
        overload: OverloadPolicy::Lose,
        sample_one_in: 1,
    })
}

/// Compiles the expression of `--filter`.
pub fn filter(expression: Option<&str>) -> Result<Option<PacketFilter>, Error> {
    Ok(expression.map(PacketFilter::new).transpose()?)
}

/// The error of a pipeline that does not start: its flow cache needs too much memory, or the system refuses a thread.
pub fn start_error(config: &Config, error: io::Error) -> Error {
    if error.kind() != io::ErrorKind::OutOfMemory {
        return Error::Thread(error);
    }
    let memory = units::quantity(weir_flow::Meter::memory_bytes_for(config) as u64, "B");
    Error::FlowCacheMemory { flows: config.flows, memory }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_memory_is_reported_as_a_flow_cache_too_large() {
        let text = |kind: io::ErrorKind| start_error(&Config::default(), kind.into()).to_string();
        assert!(text(io::ErrorKind::OutOfMemory).starts_with("--flows 1048576"));
        assert!(text(io::ErrorKind::WouldBlock).starts_with("cannot start a thread"));
    }
}
