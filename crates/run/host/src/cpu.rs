//! CPUs and NUMA nodes.
//!
//! A *CPU* is what the kernel numbers: a hardware thread. A *core* has one or more of them. A *NUMA
//! node* is memory with the cores that are close to it.

use crate::sysroot::Sysroot;
use serde::Serialize;

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

/// A CPU that is online.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Its number.
    pub id: u32,
    /// Its NUMA node.
    pub node: Option<u32>,
    /// Its socket (physical package).
    pub package: Option<u32>,
    /// The CPUs of its core, including itself, in ascending order.
    pub siblings: Vec<u32>,
    /// The CPUs that share its second-level cache; empty if unknown.
    pub level2: Vec<u32>,
    /// The CPUs that share its third-level cache; empty if unknown.
    pub level3: Vec<u32>,
    /// Whether it is isolated from the scheduler (`isolcpus`).
    pub isolated: bool,
    /// Frequency governor.
    pub governor: Option<String>,
    /// Idle states, in order of depth.
    pub idle_states: Vec<IdleState>,
}

/// A CPU idle state (C-state).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdleState {
    /// Its name: `C1`, `C6`.
    pub name: String,
    /// Exit latency, µs.
    pub latency_us: u32,
    /// Whether the state is disabled.
    pub disabled: bool,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    /// Its number.
    pub id: u32,
    /// Its CPUs, in ascending order.
    pub cpus: Vec<u32>,
    /// Size of its memory.
    pub memory_bytes: Option<u64>,
    /// Free memory.
    pub free_bytes: Option<u64>,
    /// Reserved huge pages, by size.
    pub huge_pages: Vec<HugePages>,
}

/// Reserved huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HugePages {
    /// Size of one page.
    pub size_bytes: u64,
    /// Number of reserved pages.
    pub total: u64,
    /// Number of free pages.
    pub free: u64,
}

impl NumaNode {
    /// Free memory in reserved huge pages; `None` if unknown.
    pub fn free_huge_page_bytes(&self) -> Option<u64> {
        let bytes = self.huge_pages.iter().map(|pages| pages.size_bytes.saturating_mul(pages.free));
        (!self.huge_pages.is_empty()).then(|| bytes.fold(0, u64::saturating_add))
    }
}

/// NUMA nodes with CPUs or memory. A kernel without NUMA support counts as one node.
pub fn nodes(sysroot: &Sysroot) -> Vec<NumaNode> {
    let node = |id, cpus, meminfo: &str, huge_pages: &str| {
        let memory = sysroot.text(meminfo);
        let field = |name| bytes_of(memory.as_deref()?, name);
        let (memory_bytes, free_bytes) = (field("MemTotal"), field("MemFree"));
        NumaNode { id, cpus, memory_bytes, free_bytes, huge_pages: pages(sysroot, huge_pages) }
    };
    let ids = sysroot.list(&format!("{NODE}/online")).unwrap_or_default();
    let nodes = ids.into_iter().filter_map(|id| {
        let folder = format!("{NODE}/node{id}");
        let cpus = sysroot.list(&format!("{folder}/cpulist"))?;
        Some(node(id, cpus, &format!("{folder}/meminfo"), &format!("{folder}/hugepages")))
    });
    let nodes: Vec<NumaNode> = nodes.collect();
    if !nodes.is_empty() {
        return nodes;
    }
    let cpus = sysroot.list(&format!("{CPU}/online")).filter(|cpus| !cpus.is_empty());
    cpus.map(|cpus| node(0, cpus, "/proc/meminfo", "/sys/kernel/mm/hugepages")).into_iter().collect()
}

/// Parses a line such as `Node 0 MemTotal: 1024 kB` or `MemTotal: 1024 kB`.
pub fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.ends_with(name)))?.1;
    value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn pages(sysroot: &Sysroot, folder: &str) -> Vec<HugePages> {
    let sizes = sysroot.names(folder).into_iter().filter_map(|name| {
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let of = |what: &str| sysroot.number(&format!("{folder}/{name}/{what}"));
        Some(HugePages { size_bytes: kib.checked_mul(1024)?, total: of("nr_hugepages")?, free: of("free_hugepages")? })
    });
    let mut pages: Vec<HugePages> = sizes.collect();
    pages.sort_by_key(|pages| pages.size_bytes);
    pages
}

/// CPUs that are online, in ascending order.
pub fn cpus(sysroot: &Sysroot, nodes: &[NumaNode]) -> Vec<Cpu> {
    let isolated = sysroot.list(&format!("{CPU}/isolated")).unwrap_or_default();
    let online = sysroot.list(&format!("{CPU}/online")).unwrap_or_default();
    let cpu = |id: u32| {
        let folder = format!("{CPU}/cpu{id}");
        // Older kernels have only `thread_siblings_list`.
        let siblings = sysroot
            .list(&format!("{folder}/topology/core_cpus_list"))
            .or_else(|| sysroot.list(&format!("{folder}/topology/thread_siblings_list")))
            .filter(|siblings| siblings.contains(&id));
        let shared = |level: u32| {
            let caches = sysroot.names(&format!("{folder}/cache")).into_iter().filter(|name| name.starts_with("index"));
            let mut caches = caches.map(|name| format!("{folder}/cache/{name}"));
            let cache = caches.find(|cache| sysroot.number(&format!("{cache}/level")) == Some(level))?;
            sysroot.list(&format!("{cache}/shared_cpu_list"))
        };
        Cpu {
            id,
            node: nodes.iter().find(|node| node.cpus.contains(&id)).map(|node| node.id),
            package: sysroot.number(&format!("{folder}/topology/physical_package_id")),
            siblings: siblings.unwrap_or_else(|| vec![id]),
            level2: shared(2).unwrap_or_default(),
            level3: shared(3).unwrap_or_default(),
            isolated: isolated.contains(&id),
            governor: sysroot.text(&format!("{folder}/cpufreq/scaling_governor")).filter(|name| !name.is_empty()),
            idle_states: idle(sysroot, &folder),
        }
    };
    online.into_iter().map(cpu).collect()
}

/// The CPUs of each core of a node, or of all nodes, in the order in which pipelines should use the
/// cores: isolated ones first, then by shared cache. The core of CPU 0 is last, because the system
/// uses it for other work.
pub fn cores(cpus: &[Cpu], node: Option<u32>) -> Vec<Vec<u32>> {
    let is_on_node = |cpu: &&Cpu| node.is_none() || cpu.node == node;
    let is_first = |cpu: &&Cpu| cpu.siblings.first() == Some(&cpu.id);
    let mut firsts: Vec<&Cpu> = cpus.iter().filter(is_on_node).filter(is_first).collect();
    firsts.sort_by_key(|cpu| (cpu.id == 0, !cpu.isolated, cpu.level3.first().copied(), cpu.id));
    let is_online = |id: &u32| cpus.iter().any(|cpu| cpu.id == *id);
    firsts.iter().map(|cpu| cpu.siblings.iter().copied().filter(is_online).collect()).collect()
}

fn idle(sysroot: &Sysroot, folder: &str) -> Vec<IdleState> {
    let names = sysroot.names(&format!("{folder}/cpuidle")).into_iter().filter(|name| name.starts_with("state"));
    let states = names.filter_map(|state| {
        let of = |what: &str| sysroot.text(&format!("{folder}/cpuidle/{state}/{what}"));
        let (latency_us, disabled) = (of("latency")?.parse().ok()?, of("disable")? != "0");
        Some(IdleState { name: of("name")?, latency_us, disabled })
    });
    states.collect()
}
