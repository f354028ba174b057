//! Opens the sources of a probe and starts its threads.

use super::placement::{self, Placement};
use super::privileges::PIPELINE_NICE;
use crate::actions::Actions;
use crate::arguments::{Layout, ProbeOptions};
use crate::enrichment::Enricher;
use crate::error::{Error, ProbeError};
use crate::input;
use crate::memory::{MemoryUse, SinkMemory, ViewMemory};
use crate::outputs::OpenOutputs;
use crate::settings::start_error;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_capture::Input;
use weir_egress::WhenFull;
use weir_flow::FlowRecord;
use weir_packet::DecodeOptions;
use weir_probe::{BackPressure, CpuAffinity, ReceiveQueue, Settings, WorkerGroupSpec};

/// Nice value of export threads, below the priority of capture and metering.
const EXPORT_NICE: i32 = 5;

pub struct OpenGroups {
    pub groups: Vec<WorkerGroupSpec>,
    pub placement: Placement,
}

impl OpenGroups {
    /// Opens the outputs of the rules for each pipeline.
    pub fn add_actions(&mut self, actions: &Actions, probe: &ProbeOptions) -> Result<(), Error> {
        let queues: Vec<_> = self.groups.iter_mut().flat_map(|group| &mut group.queues).collect();
        let filter = probe.metering.selection.filter.as_deref();
        let opened = actions.open(&probe.inputs, queues.len(), &WhenFull::Drop, &probe.timing(), filter)?;
        queues.into_iter().zip(opened).for_each(|(queue, actions)| queue.actions = Some(actions));
        Ok(())
    }
}

/// The threads of a probe.
pub struct Started {
    pub probe: weir_probe::Probe,
    pub is_live: bool,
    pub sink_memory: SinkMemory,
}

/// Opens all sources. Each queue has a worker group; with `--layout spread`, all queues share one.
pub fn open_worker_groups(probe: &ProbeOptions, stop: &Arc<AtomicBool>) -> Result<OpenGroups, Error> {
    let (mut queues, mut counts) = (Vec::new(), Vec::new());
    for input in &probe.inputs {
        let before = queues.len();
        if let Some(live) = input.live() {
            let mut sources = loop {
                if probe.wait {
                    input::wait_for_interfaces(live, stop);
                }
                let indexes = live.interface_indexes();
                match placement::on_node_of(probe, live, || input::open_queues(live)) {
                    // The interface vanished again while it was opened.
                    Err(_) if probe.wait && !stop.load(Ordering::Relaxed) && input::have_changed(live, &indexes) => {}
                    opened => break opened?,
                }
            };
            if probe.wait && !sources.iter_mut().all(|source| source.wait_for_interface()) {
                return Err(ProbeError::CannotWait(live.to_string()).into());
            }
            let named = |(number, source)| (format!("{}@{number}", live.short_name()), Input::Live(source));
            queues.extend(sources.into_iter().enumerate().map(named));
        } else {
            let decode = DecodeOptions { decapsulate: probe.metering.selection.decap };
            let source = input::open_sources(slice::from_ref(input), decode, stop)?;
            queues.push((input.to_string(), source));
        }
        counts.push(queues.len() - before);
    }
    let placement = Placement::choose(probe, &counts);
    // Each thread gets the next core; after the last core, the first one again.
    let mut cores = placement.threads.iter().copied().cycle();
    let mut affinity = || CpuAffinity { cores: cores.next().into_iter().collect(), nice: PIPELINE_NICE };
    if probe.layout == Layout::Spread {
        let name = match &queues[..] {
            [(name, _)] => name.clone(),
            queues => format!("{} queues", queues.len()),
        };
        let queues = queues
            .into_iter()
            .map(|(_, source)| ReceiveQueue { source, affinity: affinity(), actions: None })
            .collect();
        let meters = (0..probe.metering_threads()).map(|_| affinity()).collect();
        return Ok(OpenGroups { groups: vec![WorkerGroupSpec { name, queues, meters }], placement });
    }
    let group = |(name, source)| {
        let queues = vec![ReceiveQueue { source, affinity: affinity(), actions: None }];
        WorkerGroupSpec { name, queues, meters: if probe.layout == Layout::Split { vec![affinity()] } else { vec![] } }
    };
    Ok(OpenGroups { groups: queues.into_iter().map(group).collect(), placement })
}

pub fn start(
    probe: &ProbeOptions,
    settings: &Settings,
    OpenGroups { groups, placement }: OpenGroups,
    open: &mut OpenOutputs,
    views: ViewMemory,
    enricher: Option<&Enricher>,
    actions: Option<&Actions>,
) -> Result<Started, Error> {
    let (sinks, transactions) = (std::mem::take(&mut open.sinks), open.transactions.take());
    let mut meter = settings.meter;
    (meter.prefetch_packets, meter.marks) = (probe.batch.into(), actions.is_some());
    let export = CpuAffinity { cores: placement.export, nice: EXPORT_NICE };
    let is_live = groups.iter().flat_map(|group| &group.queues).any(|queue| matches!(queue.source, Input::Live(_)));
    // Captures wait for slow sinks; live traffic does not.
    let back_pressure = if is_live { BackPressure::Drop } else { BackPressure::Block };
    let mut queues = groups.iter().flat_map(|group| &group.queues);
    let reads_captures = queues.any(|queue| matches!(queue.source, Input::File(_)));
    let meters_of =
        |group: &WorkerGroupSpec| if group.meters.is_empty() { group.queues.len() } else { group.meters.len() };
    let meters = groups.iter().map(meters_of).sum();
    let enrichment_bytes = enricher.map_or(0, |of| of.reserve_bytes(sinks.len(), back_pressure, true));
    let enrichment_bytes = enrichment_bytes + actions.map_or(0, |actions| actions.memory_bytes(meters));
    let recent_bytes = (probe.kept_records() as u64).saturating_mul(size_of::<FlowRecord>() as u64);
    let enrichment_bytes = enrichment_bytes.saturating_add(recent_bytes);
    let memory = MemoryUse {
        meters,
        reads_captures,
        reading_threads: 0,
        sinks: sinks.len(),
        back_pressure,
        views,
        enrichment_bytes,
    };
    let is_requested = probe.metering.flows.is_some();
    let sink_memory = memory.fit(&mut meter, is_requested)?;
    let queue_batches = Some(sink_memory.queue_batches);
    let settings = Settings { busy_poll: probe.busy_poll, meter, queue_batches, ..settings.clone() };
    let probe = weir_probe::Probe::start(groups, settings, sinks, transactions, export, back_pressure);
    let probe = probe.map_err(|error| start_error(&meter, is_requested, error))?;
    Ok(Started { probe, is_live, sink_memory })
}
