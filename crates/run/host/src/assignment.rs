//! Assigns CPUs to the threads of a probe when the user has not.
//!
//! In: the devices of each source and the number of its threads. Out: a CPU for each thread, and
//! the CPUs for encoding and sending records; or why the choice is left to the scheduler. Every
//! thread gets a core of its own on the NUMA node of its NIC. Two cores of that node stay free for
//! records, interrupts and the rest of the system. Cores are used in the order of [`cores`].

use crate::cpu::{self, cores};
use crate::nic;
use crate::sysroot::Sysroot;

/// Cores of a node that stay free, at least.
const FREE_CORES: usize = 2;

/// The devices of a source and the number of its threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceThreads {
    /// Interfaces or PCI addresses: `eth0`, `0000:17:00.0`. Several (a tap) are one source.
    pub devices: Vec<String>,
    /// One or two per receive queue.
    pub threads: usize,
}

/// The CPUs of all threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuAssignment {
    /// For each source: its NUMA node, and a CPU for each of its threads.
    pub sources: Vec<(u32, Vec<u32>)>,
    /// The other CPUs of these nodes, for sinks.
    pub export: Vec<u32>,
}

/// Why no CPUs are assigned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignmentError {
    /// The source has no interface: a file.
    #[error("the source is not a NIC")]
    NoDevice,
    /// The interface is virtual or does not exist.
    #[error("{0} has no PCI device")]
    NoPciDevice(String),
    /// The machine has several NUMA nodes, and that of a NIC is unknown.
    #[error("the firmware does not report the NUMA node of {0}")]
    UnknownNode(String),
    /// The interfaces of a tap are on different NUMA nodes.
    #[error("{} are on different NUMA nodes", .0.join(" and "))]
    DifferentNodes(Vec<String>),
    /// The NUMA node has too few cores that this program may use.
    #[error("NUMA node {node} of {} has {cores} cores; one per thread and two more are needed", devices.join(" and "))]
    TooFewCores {
        /// The node.
        node: u32,
        /// The interfaces of the source.
        devices: Vec<String>,
        /// Cores that this program may use.
        cores: usize,
    },
}

/// The CPUs of the NUMA node of an interface or a PCI address; empty if there is only one node, or
/// its node is unknown.
pub fn nearby_cpus(sysroot: &Sysroot, device: &str) -> Vec<u32> {
    let nodes = cpu::nodes(sysroot);
    let id = nic::node(sysroot, device).flatten();
    let node = nodes.iter().find(|node| nodes.len() > 1 && Some(node.id) == id);
    node.map_or_else(Vec::new, |node| node.cpus.clone())
}

/// Assigns CPUs that are `allowed`.
///
/// # Errors
/// No assignment is possible, or it would be of no use.
pub fn assign_cpus(
    sysroot: &Sysroot,
    sources: &[SourceThreads],
    allowed: impl Fn(u32) -> bool,
) -> Result<CpuAssignment, AssignmentError> {
    let nodes = cpu::nodes(sysroot);
    let cpus = cpu::cpus(sysroot, &nodes);
    let mut assigned = Vec::new();
    let mut used: Vec<u32> = Vec::new();
    for SourceThreads { devices, threads } in sources {
        let mut node = None;
        for device in devices {
            let own = match (nic::node(sysroot, device), &nodes[..]) {
                (None, _) => return Err(AssignmentError::NoPciDevice(device.clone())),
                (Some(Some(id)), _) => id,
                (Some(None), [only]) => only.id,
                (Some(None), _) => return Err(AssignmentError::UnknownNode(device.clone())),
            };
            if node.is_some_and(|node| node != own) {
                return Err(AssignmentError::DifferentNodes(devices.clone()));
            }
            node = Some(own);
        }
        let Some(node) = node else { return Err(AssignmentError::NoDevice) };
        let on_node: Vec<u32> =
            cores(&cpus, Some(node)).iter().map(|core| core[0]).filter(|&cpu| allowed(cpu)).collect();
        let free: Vec<u32> = on_node.iter().copied().filter(|cpu| !used.contains(cpu)).collect();
        if free.len() < threads + FREE_CORES {
            return Err(AssignmentError::TooFewCores { node, devices: devices.clone(), cores: on_node.len() });
        }
        used.extend(&free[..*threads]);
        assigned.push((node, free[..*threads].to_vec()));
    }
    let mut export = Vec::new();
    for (at, (node, _)) in assigned.iter().enumerate() {
        if assigned[..at].iter().any(|(earlier, _)| earlier == node) {
            continue;
        }
        let free = cores(&cpus, Some(*node)).into_iter().filter(|core| !core.iter().any(|cpu| used.contains(cpu)));
        export.extend(free.flatten().filter(|&cpu| allowed(cpu)));
    }
    export.sort_unstable();
    Ok(CpuAssignment { sources: assigned, export })
}
