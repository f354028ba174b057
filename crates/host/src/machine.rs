//! A machine: everything that was read of it, once.

use crate::cpu::{self, Cpu, NumaNode};
use crate::nic::{self, Nic};
use crate::sysroot::Sysroot;
use serde::Serialize;

/// What could be read. What could not is `None` or empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: Option<String>,
    /// Whether it runs below another system.
    pub is_virtual: Option<bool>,
    /// Instruction sets that Weir can use: `avx2`, `avx512f`; `None` on processors that do not name theirs so.
    pub instructions: Option<Vec<String>>,
    /// The kernel's version.
    pub kernel: Option<String>,
    /// Processors that are online, ascending.
    pub cpus: Vec<Cpu>,
    /// Nodes, ascending.
    pub nodes: Vec<NumaNode>,
    /// Whether cores have more than one hardware thread.
    pub smt: Option<bool>,
    /// Whether processors may run faster than they are rated.
    pub turbo: Option<bool>,
    /// What the kernel reads the time from.
    pub clock_source: Option<String>,
    /// Microseconds of each second that threads with real-time priority may run; -1: all.
    pub realtime_us: Option<i64>,
    /// Transparent huge pages: `always`, `madvise`, `never`.
    pub transparent_pages: Option<String>,
    /// Files and partitions that memory is swapped to.
    pub swap: Option<Vec<String>>,
    /// Whether irqbalance runs.
    pub irqbalance: Option<bool>,
    /// Interfaces, by name.
    pub nics: Vec<Nic>,
}

impl Machine {
    /// Reads all there is; of interfaces without a device behind them, rings, features and the like only if they are `named`.
    pub fn read(sysroot: &Sysroot, named: &[String]) -> Self {
        let nodes = cpu::nodes(sysroot);
        // Every processor has a paragraph, and all say the same.
        let info = sysroot.text_until("/proc/cpuinfo", Some("\n\n"));
        let flags = info.as_deref().and_then(|info| field(info, "flags"));
        let has = |flag: &str| Some(flags.as_ref()?.split(' ').any(|name| name == flag));
        let switch = |path: &str, on: &str| sysroot.text(path).map(|text| text == on);
        let mode = sysroot.text("/sys/kernel/mm/transparent_hugepage/enabled");
        let swaps = sysroot.text("/proc/swaps").map(|text| {
            text.lines().skip(1).filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
        });
        Self {
            processor: info.as_deref().and_then(|info| field(info, "model name")),
            is_virtual: has("hypervisor"),
            instructions: has("avx2").map(|_| {
                ["avx2", "avx512f"].into_iter().filter(|name| has(name) == Some(true)).map(String::from).collect()
            }),
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
            // The mode stands in brackets among all there are.
            transparent_pages: mode.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
            swap: swaps,
            irqbalance: sysroot.runs("irqbalance"),
            nics: nic::names(sysroot).iter().map(|name| nic::read(sysroot, name, named.contains(name))).collect(),
        }
    }

    /// The node of that number.
    pub fn node(&self, id: u32) -> Option<&NumaNode> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The node that serves a NIC: its own, or the only one there is.
    pub fn node_of(&self, nic: &Nic) -> Option<&NumaNode> {
        match (nic.node, &self.nodes[..]) {
            (Some(id), _) => self.node(id),
            (None, [only]) => Some(only),
            _ => None,
        }
    }

    /// The hardware threads of each core of a node, or of all, in the order in which pipelines should take them: isolated
    /// ones first, then by the cache they share; the core of processor 0, where the system likes to be, last.
    pub fn cores(&self, node: Option<u32>) -> Vec<Vec<u32>> {
        cpu::cores(&self.cpus, node)
    }
}

/// What stands behind a name and a colon.
fn field(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))?;
    Some(value.trim().to_owned())
}
