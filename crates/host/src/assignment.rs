//! Which processors the threads of a probe take when nobody says so, if it pays to choose.
//!
//! In: what each source reads from, and how many threads work on it. Out: a processor for each of them, and those for whoever
//! encodes and sends records; or why the system had better choose.
//! Always true: every thread has a core of its own, on the node of its NIC; two cores of that node are left, for records, interrupts and
//! the rest of the system. Cores are taken in the order of [`cores`]: isolated ones first, that of processor 0 last.

use crate::cpu::{self, cores};
use crate::nic;
use crate::sysroot::Sysroot;

/// Cores of a node that stay free, at least.
const LEFT: usize = 2;

/// What a source reads from, and the threads that work on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceThreads {
    /// Interfaces, or addresses on the bus: `eth0`, `0000:17:00.0`. Several (a tap) are one source.
    pub devices: Vec<String>,
    /// One or two for each queue.
    pub threads: usize,
}

/// Processors, as the kernel numbers them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuAssignment {
    /// For each source: its node, and a processor for each of its threads.
    pub sources: Vec<(u32, Vec<u32>)>,
    /// What is left on these nodes, for records.
    pub export: Vec<u32>,
}

/// The processors of the node that an interface, or an address on the bus, is on; none if there is but one node, or it is not known.
pub fn nearby_cpus(sysroot: &Sysroot, device: &str) -> Vec<u32> {
    let nodes = cpu::nodes(sysroot);
    let id = nic::node(sysroot, device).ok().flatten();
    let node = nodes.iter().find(|node| nodes.len() > 1 && Some(node.id) == id);
    node.map_or_else(Vec::new, |node| node.cpus.clone())
}

/// Chooses processors among those that are allowed.
///
/// # Errors
/// Why there is nothing to choose, in words.
pub fn assign_cpus(
    sysroot: &Sysroot,
    work: &[SourceThreads],
    allowed: impl Fn(u32) -> bool,
) -> Result<CpuAssignment, String> {
    let nodes = cpu::nodes(sysroot);
    let cpus = cpu::cpus(sysroot, &nodes);
    let mut sources = Vec::new();
    let mut taken: Vec<u32> = Vec::new();
    for SourceThreads { devices, threads } in work {
        let mut node = None;
        for device in devices {
            let its = match (nic::node(sysroot, device)?, &nodes[..]) {
                (Some(id), _) => id,
                (None, [only]) => only.id,
                _ => return Err(format!("the firmware does not say on which node {device} is")),
            };
            if node.is_some_and(|node| node != its) {
                return Err(format!("{} are on different nodes", devices.join(" and ")));
            }
            node = Some(its);
        }
        let Some(node) = node else { return Err("nothing is read from a NIC".into()) };
        let on_node: Vec<u32> =
            cores(&cpus, Some(node)).iter().map(|core| core[0]).filter(|&cpu| allowed(cpu)).collect();
        let free: Vec<u32> = on_node.iter().copied().filter(|cpu| !taken.contains(cpu)).collect();
        if free.len() < threads + LEFT {
            let (name, has) = (devices.join(" and "), on_node.len());
            return Err(format!(
                "node {node}, where {name} is, has {has} cores, too few for a thread each and two more"
            ));
        }
        taken.extend(&free[..*threads]);
        sources.push((node, free[..*threads].to_vec()));
    }
    let mut export = Vec::new();
    for (at, (node, _)) in sources.iter().enumerate() {
        if sources[..at].iter().any(|(before, _)| before == node) {
            continue;
        }
        let free = cores(&cpus, Some(*node)).into_iter().filter(|core| !core.iter().any(|cpu| taken.contains(cpu)));
        export.extend(free.flatten().filter(|&cpu| allowed(cpu)));
    }
    export.sort_unstable();
    Ok(CpuAssignment { sources, export })
}
