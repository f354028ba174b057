//! Checks of NUMA memory, huge pages and swap.

use crate::cpu::NumaNode;
use crate::finding::{Finding, MACHINE, Severity};
use crate::machine::Machine;
use crate::nic::Nic;
use crate::units::gib;

/// Memory in huge pages that packet buffers and a flow cache of 2 M flows need.
const NEEDED_BYTES: u64 = 1 << 30;

/// The command that reserves more 2 MiB pages on a NUMA node.
pub fn reserve_command(NumaNode { id: node, huge_pages, .. }: &NumaNode, more: u64) -> String {
    let reserved = huge_pages.iter().find(|pages| pages.size_bytes == 2 << 20).map_or(0, |pages| pages.total);
    let pages = reserved.saturating_add(more);
    format!("echo {pages} > /sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages")
}

pub fn check(machine: &Machine, nics: &[&Nic]) -> Vec<Finding> {
    let mut findings = nodes(machine);
    findings.extend(huge_pages(machine, nics));
    findings.push(match machine.transparent_pages.as_deref() {
        None => Finding::unknown("transparent-huge-pages", MACHINE, "transparent huge pages"),
        Some("never") => {
            let (summary, impact) = (
                "transparent huge pages are off",
                "The flow cache uses 4 KiB pages, which costs 8 to 12 % from a million flows on (weir help performance).",
            );
            Finding::new(Severity::Warning, "transparent-huge-pages", MACHINE, summary, impact)
                .with_commands(&["echo madvise > /sys/kernel/mm/transparent_hugepage/enabled".into()], "")
        }
        Some(mode) => Finding::ok("transparent-huge-pages", MACHINE, format!("transparent huge pages: {mode}")),
    });
    findings.push(match &machine.swap {
        None => Finding::unknown("swap", MACHINE, "swap"),
        Some(swap) if swap.is_empty() => Finding::ok("swap", MACHINE, "no swap"),
        Some(swap) => {
            let summary = format!("swap is enabled on {}", swap.join(", "));
            let impact = "Parts of the flow cache may be swapped out. Reading them back takes milliseconds, longer than the \
                          receive ring can buffer.";
            Finding::new(Severity::Warning, "swap", MACHINE, summary, impact)
                .with_commands(&["swapoff -a".into()], "Everything that is swapped out must fit into memory.")
        }
    });
    findings
}

fn nodes(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    for node in &machine.nodes {
        match node.memory_bytes {
            None => findings.push(Finding::unknown("memory", MACHINE, format!("memory of NUMA node {}", node.id))),
            Some(0) if !node.cpus.is_empty() => {
                let summary = format!("NUMA node {} has CPUs but no memory", node.id);
                let impact = "These CPUs access all memory over the interconnect between nodes, which also delays the other \
                              nodes. Install memory modules on the channels of this node. With sub-NUMA clustering, populate \
                              all channels equally, or disable it.";
                findings.push(Finding::new(Severity::Critical, "memory", MACHINE, summary, impact));
            }
            Some(_) => {}
        }
    }
    if findings.is_empty() && !machine.nodes.is_empty() {
        let size = |node: &NumaNode| format!("node {}: {}", node.id, gib(node.memory_bytes.unwrap_or(0)));
        let sizes = machine.nodes.iter().map(size).collect::<Vec<_>>();
        findings.push(Finding::ok("memory", MACHINE, format!("memory of NUMA {}", sizes.join(", "))));
    }
    findings
}

/// No finding for a node without memory, which is a worse finding of its own.
fn huge_pages(machine: &Machine, nics: &[&Nic]) -> Option<Finding> {
    let nic = nics.iter().find(|nic| nic.is_fast()).or(nics.first());
    let node = nic.and_then(|nic| machine.node_of(nic)).or(machine.nodes.first());
    let Some((node, free)) = node.and_then(|node| Some((node, node.free_huge_page_bytes()?))) else {
        return Some(Finding::unknown("huge-pages", MACHINE, "reserved huge pages"));
    };
    if node.memory_bytes == Some(0) {
        return None;
    }
    let use_of_pages = "A DPDK source keeps packet buffers in reserved huge pages on the NUMA node of the NIC. Other \
                        sources need none.";
    let command = [reserve_command(node, NEEDED_BYTES >> 21)];
    let note = "This takes memory from all other programs. It is most likely to succeed right after boot.";
    let free_on_other = machine.nodes.iter().filter(|other| other.id != node.id);
    if let Some((other, bytes)) =
        free_on_other.filter_map(|other| Some((other.id, other.free_huge_page_bytes()?))).find(|(_, bytes)| *bytes > 0)
        && free == 0
    {
        let summary =
            format!("{} in huge pages are free on NUMA node {other}, but none on NUMA node {}", gib(bytes), node.id);
        let impact = format!("{use_of_pages} Pages of another node are behind the interconnect between sockets.");
        let finding = Finding::new(Severity::Critical, "huge-pages", MACHINE, summary, impact);
        return Some(finding.with_commands(&command, note));
    }
    let summary = match free {
        0 => format!("no huge pages are free on NUMA node {}", node.id),
        _ => format!("{} in huge pages are free on NUMA node {}", gib(free), node.id),
    };
    if free < NEEDED_BYTES {
        let finding = Finding::new(Severity::Warning, "huge-pages", MACHINE, summary, use_of_pages);
        return Some(finding.with_commands(&command, note));
    }
    Some(Finding::ok("huge-pages", MACHINE, summary))
}
