//! Where the threads of a probe run: on the cores that the user names; else beside the card, if it pays to choose; else wherever the
//! system puts them.

use crate::Refusal;
use crate::arguments::{Cores, Layout, Probe};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::OsStr;
use weir_host::{SourceThreads, Sysroot};

/// Cores for threads and sinks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// One for each thread, in turn; none: all.
    pub threads: Vec<usize>,
    /// Those of the sinks; none: all.
    pub export: Vec<usize>,
    /// Why these, or why none.
    pub why: String,
}

impl Placement {
    /// For sources with so many queues each.
    pub fn choose(probe: &Probe, queues: &[usize]) -> Self {
        let named = |list: &Option<Cores>| list.as_ref().map_or_else(Vec::new, |cores| cores.0.clone());
        if probe.cores.is_some() || probe.export_cores.is_some() {
            return Self { threads: named(&probe.cores), export: named(&probe.export_cores), why: String::new() };
        }
        Self::beside_cards(&Sysroot::live(), probe, queues).unwrap_or_else(|why| Self { why, ..Self::default() })
    }

    /// Before it is known how many queues there are.
    pub fn not_yet(probe: &Probe) -> Self {
        let why = "or beside the card, if there are enough for each of its queues";
        match Self::choose(probe, &[]) {
            unknown if probe.cores.is_none() && probe.export_cores.is_none() => Self { why: why.into(), ..unknown },
            named => named,
        }
    }

    /// Cores of the cards' nodes, or why not.
    fn beside_cards(root: &Sysroot, probe: &Probe, queues: &[usize]) -> Result<Self, String> {
        let threads = if probe.layout == Layout::Split { 2 } else { 1 };
        // Threads that meter for all stand beside the first card.
        let meters = if probe.layout == Layout::Spread { super::meters(probe).into() } else { 0 };
        let work = probe.inputs.iter().zip(queues).enumerate().map(|(number, (input, queues))| {
            let devices = devices(input);
            if devices.is_empty() {
                Err("captures need no card")
            } else {
                Ok(SourceThreads { devices, threads: threads * queues + if number == 0 { meters } else { 0 } })
            }
        });
        let work = work.collect::<Result<Vec<_>, _>>()?;
        let allowed = sched_getaffinity(None).map_err(|error| error.to_string())?;
        let chosen = weir_host::assign_cpus(root, &work, |cpu| allowed.is_set(cpu as usize))
            .map_err(|reason| reason.to_string())?;
        let as_cores = |cpus: &[u32]| cpus.iter().map(|&cpu| cpu as usize).collect::<Vec<_>>();
        let nodes = chosen.sources.iter().zip(&work);
        let why: Vec<String> =
            nodes.map(|((node, _), work)| format!("{} is on node {node}", work.devices.join(" and "))).collect();
        let mut threads: Vec<usize> = chosen.sources.iter().flat_map(|(_, cpus)| as_cores(cpus)).collect();
        if let (Some(&readers), 1..) = (queues.first(), meters) {
            // Those that read come first, of all sources.
            threads[readers..].rotate_left(meters);
        }
        Ok(Self { threads, export: as_cores(&chosen.export), why: why.join(", ") })
    }

    /// The cores of the threads in words.
    pub fn threads_in_words(&self) -> String {
        self.in_words(&self.threads)
    }

    /// Those of the sinks.
    pub fn export_in_words(&self) -> String {
        self.in_words(&self.export)
    }

    /// Numbers of cores in words.
    pub fn list(cores: &[usize]) -> String {
        match cores {
            [] => "wherever the system puts them".into(),
            cores => cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
        }
    }

    fn in_words(&self, cores: &[usize]) -> String {
        let list = Self::list(cores);
        if self.why.is_empty() { list } else { format!("{list} ({})", self.why) }
    }
}

/// What is read from: names of interfaces, or addresses on the bus. None of a capture.
fn devices(input: &OsStr) -> Vec<String> {
    let name = input.to_string_lossy();
    if !weir_capture::is_live(&name) {
        return Vec::new();
    }
    let without_scheme =
        |device: String| device.split_once(':').map_or(device.clone(), |(_, device)| device.to_owned());
    weir_capture::devices(&name).into_iter().map(without_scheme).collect()
}

/// Queues that a source is asked to have, if its name says; else how many there are is known when it is open.
pub fn queues_asked(input: &OsStr) -> Option<usize> {
    let name = input.to_string_lossy();
    let value = name.split(',').find_map(|setting| setting.strip_prefix("queues="));
    let is_range = name.starts_with("af_xdp:");
    match value.map(|value| value.split_once('-').unwrap_or((value, value))) {
        Some((first, last)) if is_range => Some(last.parse::<usize>().ok()? + 1 - first.parse::<usize>().ok()?),
        Some((count, _)) => count.parse().ok(),
        None if is_range => None,
        None => Some(1),
    }
}

/// Opens a source, which takes memory, from the node where that memory is to be.
pub fn beside<T>(probe: &Probe, input: &OsStr, open: impl FnOnce() -> T) -> T {
    // DPDK sees to it by itself, and must not be kept from other cores.
    let is_dpdk = input.to_string_lossy().starts_with("dpdk:");
    let cores: Vec<usize> = match &probe.cores {
        _ if is_dpdk => Vec::new(),
        Some(cores) => cores.0.clone(),
        None => {
            let root = Sysroot::live();
            let near = devices(input).into_iter().flat_map(|device| weir_host::nearby_cpus(&root, &device));
            near.map(|cpu| cpu as usize).collect()
        }
    };
    let (Ok(before), false) = (sched_getaffinity(None), cores.is_empty()) else { return open() };
    let mut there = CpuSet::new();
    cores.into_iter().filter(|&core| core < CpuSet::MAX_CPU && before.is_set(core)).for_each(|core| there.set(core));
    // If the system does not let it, the memory is elsewhere, and all goes on.
    let moved = there.count() > 0 && sched_setaffinity(None, &there).is_ok();
    let opened = open();
    if moved {
        let _ = sched_setaffinity(None, &before);
    }
    opened
}

/// Cores on which this program may run.
pub fn cores_there() -> Vec<usize> {
    let there = sched_getaffinity(None);
    there.map_or_else(|_| vec![0], |there| (0..CpuSet::MAX_CPU).filter(|&core| there.is_set(core)).collect())
}

/// Refuses cores on which this program may not run.
pub fn check_cores(option: &str, list: Option<&Cores>) -> Result<(), Refusal> {
    let (Ok(there), Some(Cores(cores))) = (sched_getaffinity(None), list) else { return Ok(()) };
    let is_there = |core: usize| core < CpuSet::MAX_CPU && there.is_set(core);
    match cores.iter().copied().find(|&core| !is_there(core)) {
        Some(core) => Err(Refusal(format!(
            "{option}: there is no core {core} that this program may run on; there are {} of them (nproc, lscpu -e)",
            there.count()
        ))),
        None => Ok(()),
    }
}
