//! Cores of the probe's threads: those that the user names; else cores on the NUMA node of the NIC
//! if there are enough; else no assignment, and the scheduler decides.

use crate::arguments::{Cores, Layout, ProbeOptions};
use crate::error::{Error, ProbeError};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tracing::info;
use weir_capture::LiveSpec;
use weir_host::{SourceThreads, Sysroot};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// One core per thread, in turn; empty: no assignment.
    pub threads: Vec<usize>,
    /// Cores of the export threads; empty: no assignment.
    pub export: Vec<usize>,
    /// Why these cores, or why no assignment.
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
enum NoAssignment {
    #[error("{0} is not a NIC")]
    NotNic(String),
    #[error(transparent)]
    Affinity(#[from] rustix::io::Errno),
    #[error(transparent)]
    Host(#[from] weir_host::AssignmentError),
}

impl Placement {
    /// Chooses cores for sources with the given numbers of queues.
    pub fn choose(probe: &ProbeOptions, queues: &[usize]) -> Self {
        let named = |list: &Option<Cores>| list.as_ref().map_or_else(Vec::new, |cores| cores.0.clone());
        if probe.cores.is_some() || probe.export_cores.is_some() {
            return Self { threads: named(&probe.cores), export: named(&probe.export_cores), reason: String::new() };
        }
        Self::near_nics(&Sysroot::live(), probe, queues)
            .unwrap_or_else(|reason| Self { reason: reason.to_string(), ..Self::default() })
    }

    /// The placement before the number of queues is known.
    pub fn undecided(probe: &ProbeOptions) -> Self {
        match Self::choose(probe, &[]) {
            undecided if probe.cores.is_none() && probe.export_cores.is_none() => Self {
                reason: "until the number of queues is known; then those of the NIC's NUMA node if there are enough"
                    .into(),
                ..undecided
            },
            named => named,
        }
    }

    fn near_nics(root: &Sysroot, probe: &ProbeOptions, queues: &[usize]) -> Result<Self, NoAssignment> {
        let threads_per_queue = if probe.layout == Layout::Split { 2 } else { 1 };
        // Metering threads for all queues are placed with the first NIC.
        let meters = if probe.layout == Layout::Spread { probe.metering_threads().into() } else { 0 };
        let sources = probe.inputs.iter().zip(queues).enumerate().map(|(number, (input, queues))| {
            let live = input.live().ok_or_else(|| NoAssignment::NotNic(input.to_string()))?;
            let devices = live.devices().iter().map(|device| device.name.clone()).collect();
            let meters = if number == 0 { meters } else { 0 };
            Ok(SourceThreads { devices, threads: threads_per_queue * queues + meters })
        });
        let sources = sources.collect::<Result<Vec<_>, NoAssignment>>()?;
        let allowed = sched_getaffinity(None)?;
        let chosen = weir_host::assign_cpus(root, &sources, |cpu| allowed.is_set(cpu as usize))?;
        let as_cores = |cpus: &[u32]| cpus.iter().map(|&cpu| cpu as usize).collect::<Vec<_>>();
        let nodes = chosen.sources.iter().zip(&sources);
        let reason: Vec<String> = nodes
            .map(|((node, _), source)| format!("{} is on NUMA node {node}", source.devices.join(" and ")))
            .collect();
        let mut threads: Vec<usize> = chosen.sources.iter().flat_map(|(_, cpus)| as_cores(cpus)).collect();
        if let (Some(&readers), 1..) = (queues.first(), meters) {
            // The reading threads of all sources come first.
            threads[readers..].rotate_left(meters);
        }
        Ok(Self { threads, export: as_cores(&chosen.export), reason: reason.join(", ") })
    }

    /// Logs cores that were chosen, with the reason.
    pub fn log(&self) {
        if !(self.threads.is_empty() || self.reason.is_empty()) {
            let [cores, export_cores] = [&self.threads, &self.export].map(|cores| list(cores));
            info!(cores, export_cores, reason = self.reason, "cores assigned");
        }
    }

    /// The cores of all threads and the reason, for `--check`.
    pub fn text(&self) -> String {
        let reason = &self.reason;
        if self.threads.is_empty() && self.export.is_empty() {
            return format!("not assigned: {reason}");
        }
        let cores = format!("reading and metering {}; export {}", list(&self.threads), list(&self.export));
        if reason.is_empty() { cores } else { format!("{cores} ({reason})") }
    }
}

fn list(cores: &[usize]) -> String {
    match cores {
        [] => "any".into(),
        cores => cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// Runs `open`, which allocates the rings of a source, on the NUMA node where its threads will run.
pub fn on_node_of<T>(probe: &ProbeOptions, live: &LiveSpec, open: impl FnOnce() -> T) -> T {
    let cores: Vec<usize> = match &probe.cores {
        // DPDK places its memory itself, and needs access to the other cores.
        _ if live.is_dpdk() => Vec::new(),
        Some(cores) => cores.0.clone(),
        None => {
            let root = Sysroot::live();
            let near = live.devices().iter().flat_map(|device| weir_host::nearby_cpus(&root, &device.name));
            near.map(|cpu| cpu as usize).collect()
        }
    };
    let (Ok(before), false) = (sched_getaffinity(None), cores.is_empty()) else { return open() };
    let mut near = CpuSet::new();
    cores.into_iter().filter(|&core| core < CpuSet::MAX_CPU && before.is_set(core)).for_each(|core| near.set(core));
    // If this fails, the memory is on another node: slower, but correct.
    let is_pinned = near.count() > 0 && sched_setaffinity(None, &near).is_ok();
    let opened = open();
    if is_pinned {
        let _ = sched_setaffinity(None, &before);
    }
    opened
}

/// Cores that this process may use.
pub fn available_cores() -> Vec<usize> {
    let available = sched_getaffinity(None);
    available.map_or_else(|_| vec![0], |cores| (0..CpuSet::MAX_CPU).filter(|&core| cores.is_set(core)).collect())
}

/// Checks that this process may use all cores of an option.
pub fn check_cores(option: &'static str, list: Option<&Cores>) -> Result<(), Error> {
    let (Ok(available), Some(Cores(cores))) = (sched_getaffinity(None), list) else { return Ok(()) };
    let is_available = |core: usize| core < CpuSet::MAX_CPU && available.is_set(core);
    match cores.iter().copied().find(|&core| !is_available(core)) {
        Some(core) => Err(ProbeError::CoreNotAvailable { option, core, available: available.count() as usize }.into()),
        None => Ok(()),
    }
}
