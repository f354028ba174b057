//! Settings of a pipeline from the options that `weir read` and `weir probe` share.

use crate::arguments::{FullPolicy, Inspection, KeyField, Metering, ProbeOptions, Selection, Sinks, Switch};
use crate::error::Error;
use crate::memory;
use std::io;
use tracing::debug;
use weir_capture::PacketFilter;
use weir_dpi::InspectionSettings;
use weir_flow::{CacheFullPolicy, Config, KeyOptions};
use weir_ledger::Timing;
use weir_packet::DecodeOptions;
use weir_probe::{OverloadPolicy, SelfTrafficFilter, Settings, ShedOrder};
use weir_text::units;

/// Settings of a pipeline that reads captures.
pub fn settings(metering: &Metering) -> Result<Settings, Error> {
    let key = key_options(metering);
    let policy = match metering.full {
        FullPolicy::Overflow => CacheFullPolicy::Overflow,
        FullPolicy::EvictOldestIdle => CacheFullPolicy::EvictOldestIdle,
        FullPolicy::Drop => CacheFullPolicy::Drop,
    };
    let default = Config::default();
    let flows = metering.flows.unwrap_or(default.flows);
    let (idle_timeout_ns, active_timeout_ns) = (metering.idle_ns, metering.active_ns);
    let (filter, decode) = selection(&metering.selection)?;
    let mac_addresses = metering.mac_addresses;
    if metering.dpi == Some(Inspection::Full) {
        let Some(version) = weir_flow::ndpi_version() else { return Err(Error::NoNdpi) };
        debug!(version, "nDPI");
    }
    let inspection = metering.inspects().then(|| InspectionSettings {
        packets: metering.dpi_packets,
        octets: metering.dpi_octets,
        personal: metering.dpi_fields,
        ports: metering.dpi_ports,
        transactions: if metering.dpi_transactions == Switch::On {
            InspectionSettings::default().transactions
        } else {
            0
        },
        ..InspectionSettings::default()
    });
    let meter = Config {
        flows,
        idle_timeout_ns,
        active_timeout_ns,
        key,
        mac_addresses,
        cache_full_policy: policy,
        inspection,
        second_opinion: metering.dpi == Some(Inspection::Full),
        ..default
    };
    let max_memory = units::quantity(weir_flow::Meter::memory_bytes_for(&meter) as u64, "B");
    debug!(flows, max_memory, "flow cache of each meter");
    Ok(Settings {
        busy_poll: false,
        filter,
        times_ns: None,
        meter,
        decode,
        layer2: metering.layer2,
        self_traffic: SelfTrafficFilter::default(),
        overload: OverloadPolicy::Lose,
        shed: ShedOrder::default(),
        sampling_population: 1,
        queue_batches: None,
        observer: None,
        interface_names: None,
        enricher: None,
        transaction_enricher: None,
        rules: None,
        memory_thread: None,
        timing: Timing::default(),
    })
}

/// Lets the meter record transactions, if a sink gets them.
pub fn record_transactions(settings: &mut Settings, sinks: &Sinks) {
    if let Some(inspection) = settings.meter.inspection.as_mut().filter(|_| !sinks.transactions.is_empty()) {
        inspection.transaction_octets = InspectionSettings::TRANSACTION_OCTETS;
    }
}

/// Settings of the pipelines of a probe.
pub fn probe_settings(probe: &ProbeOptions) -> Result<Settings, Error> {
    let mut settings = settings(&probe.metering)?;
    record_transactions(&mut settings, &probe.sinks);
    if !probe.inspects() {
        (settings.meter.inspection, settings.meter.second_opinion) = (None, false);
    }
    let (overload, shed, timing) = (probe.overload, probe.shed, probe.timing());
    Ok(Settings { overload, shed, sampling_population: probe.sample, timing, ..settings })
}

pub fn key_options(metering: &Metering) -> KeyOptions {
    let has = |field| metering.key.contains(&field);
    KeyOptions {
        vlan: has(KeyField::Vlan),
        interface: has(KeyField::Interface),
        tunnel: has(KeyField::Tunnel),
        unidirectional: metering.uniflow_key,
    }
}

/// Which packets are processed, and how they are decoded.
pub fn selection(selection: &Selection) -> Result<(Option<PacketFilter>, DecodeOptions), Error> {
    let filter = selection.filter.as_deref().map(PacketFilter::new).transpose()?;
    Ok((filter, DecodeOptions { decapsulate: selection.decap }))
}

/// Why a pipeline does not start: too little memory for the flow cache, or no thread.
pub fn start_error(config: &Config, is_requested: bool, error: io::Error) -> Error {
    if error.kind() != io::ErrorKind::OutOfMemory {
        return Error::Thread(error);
    }
    let memory = units::quantity(weir_flow::Meter::memory_bytes_for(config) as u64, "B");
    Error::FlowCacheMemory { size: memory::size_text(config.flows, is_requested), memory }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_memory_is_reported_as_a_flow_cache_too_large() {
        let text =
            |kind: io::ErrorKind, is_requested| start_error(&Config::default(), is_requested, kind.into()).to_string();
        assert!(text(io::ErrorKind::OutOfMemory, true).starts_with("--flows 1048576: "));
        assert!(text(io::ErrorKind::OutOfMemory, false).starts_with("the default of 1048576 flows: "));
        assert!(text(io::ErrorKind::WouldBlock, true).starts_with("cannot start a thread"));
    }
}
