//! Everything that is read of a machine.

use crate::cpu::{self, Cpu, NumaNode};
use crate::nic::{self, Nic};
use crate::sysroot::Sysroot;
use serde::Serialize;

/// A machine. Values that could not be read are `None` or empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Name of the CPU model.
    pub processor: Option<String>,
    /// Whether it is a virtual machine.
    pub is_virtual: Option<bool>,
    /// Kernel version.
    pub kernel: Option<String>,
    /// CPUs that are online, in ascending order.
    pub cpus: Vec<Cpu>,
    /// NUMA nodes, in ascending order.
    pub nodes: Vec<NumaNode>,
    /// Whether SMT is active: cores have more than one hardware thread.
    pub smt: Option<bool>,
    /// Whether turbo frequencies are enabled.
    pub turbo: Option<bool>,
    /// Clock source of the kernel.
    pub clock_source: Option<String>,
    /// Time that real-time threads may run in each second, µs; -1 for no limit
    /// (`sched_rt_runtime_us`).
    pub realtime_us: Option<i64>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_pages: Option<String>,
    /// Swap files and partitions.
    pub swap: Option<Vec<String>>,
    /// Whether irqbalance runs.
    pub irqbalance: Option<bool>,
    /// Interfaces, by name.
    pub nics: Vec<Nic>,
}

impl Machine {
    /// Reads a machine. Virtual interfaces are read in full only if they are `named`.
    pub fn read(sysroot: &Sysroot, named: &[String]) -> Self {
        let nodes = cpu::nodes(sysroot);
        // There is a paragraph for each CPU. The values read here are the same in all.
        let info = sysroot.text_until("/proc/cpuinfo", Some("\n\n"));
        let switch = |path: &str, on: &str| sysroot.text(path).map(|text| text == on);
        let mode = sysroot.text("/sys/kernel/mm/transparent_hugepage/enabled");
        let swaps = sysroot.text("/proc/swaps").map(|text| {
            text.lines().skip(1).filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
        });
        let flags = info.as_deref().and_then(|info| field(info, "flags"));
        Self {
            processor: info.as_deref().and_then(|info| field(info, "model name")),
            is_virtual: flags.map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: sysroot.text("/proc/sys/kernel/osrelease").filter(|text| !text.is_empty()),
            cpus: cpu::cpus(sysroot, &nodes),
            nodes,
            smt: switch("/sys/devices/system/cpu/smt/active", "1"),
            turbo: switch("/sys/devices/system/cpu/intel_pstate/no_turbo", "0")
                .or_else(|| switch("/sys/devices/system/cpu/cpufreq/boost", "1")),
            clock_source: sysroot
                .text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .filter(|text| !text.is_empty()),
            realtime_us: sysroot.number("/proc/sys/kernel/sched_rt_runtime_us"),
            // The file lists all modes, the active one in brackets.
            transparent_pages: mode.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
            swap: swaps,
            irqbalance: sysroot.runs("irqbalance"),
            nics: nic::names(sysroot).iter().map(|name| nic::read(sysroot, name, named.contains(name))).collect(),
        }
    }

    /// The NUMA node with a number.
    pub fn node(&self, id: u32) -> Option<&NumaNode> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The NUMA node of a NIC: the one it reports, or the only one.
    pub fn node_of(&self, nic: &Nic) -> Option<&NumaNode> {
        match (nic.node, &self.nodes[..]) {
            (Some(id), _) => self.node(id),
            (None, [only]) => Some(only),
            _ => None,
        }
    }

    /// The CPUs of each core of a node, or of all nodes, in the order in which pipelines should use
    /// the cores: isolated ones first, the core of CPU 0 last.
    pub fn cores(&self, node: Option<u32>) -> Vec<Vec<u32>> {
        cpu::cores(&self.cpus, node)
    }
}

/// The text after a name and a colon.
fn field(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))?;
    Some(value.trim().to_owned())
}
