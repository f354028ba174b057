//! Settings of a pipeline from the options that `weir read` and `weir probe` share.

use crate::arguments::{KeyField, Metering, TableFull};
use crate::error::Error;
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
        TableFull::Overflow => CacheFullPolicy::Overflow,
        TableFull::EvictOldestIdle => CacheFullPolicy::EvictOldestIdle,
        TableFull::Drop => CacheFullPolicy::Drop,
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

/// The error of a flow cache that does not fit into memory.
pub fn table_memory_error(config: &Config) -> Error {
    let memory = units::quantity(weir_flow::Meter::memory_bytes_for(config) as u64, "B");
    Error::TableMemory { flows: config.flows, memory }
}
