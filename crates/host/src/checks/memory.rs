//! Memory of the nodes, large pages, swap.

use super::is_fast;
use crate::finding::{Finding, Severity};
use crate::machine::Machine;
use crate::nic::Nic;
use crate::units::gib;

const MACHINE: &str = "machine";
/// Less in reserved pages is few: 1 GiB, for buffers and a table of 2 M flows.
const FEW: u64 = 1 << 30;

/// The command that reserves so many pages of 2 MiB on a node.
pub fn reserve(node: u32, pages: u64) -> String {
    format!("echo {pages} > /sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages")
}

pub fn check(machine: &Machine, nics: &[&Nic]) -> Vec<Finding> {
    let mut findings = nodes(machine);
    findings.extend(pages(machine, nics));
    findings.push(match machine.transparent_pages.as_deref() {
        None => Finding::unknown("transparent", MACHINE, "transparent huge pages"),
        Some("never") => {
            let impact = "The table lies in pages of 4 KiB, which costs 8 to 12 % from a million flows on (docs/performance.md).".into();
            Finding::bad(Severity::Warning, "transparent", MACHINE, "transparent huge pages are off".into(), impact)
                .by_hand(&["echo madvise > /sys/kernel/mm/transparent_hugepage/enabled".into()], "")
        }
        Some(mode) => Finding::fine("transparent", MACHINE, format!("transparent huge pages: {mode}")),
    });
    findings.push(match &machine.swap {
        None => Finding::unknown("swap", MACHINE, "swap"),
        Some(swap) if swap.is_empty() => Finding::fine("swap", MACHINE, "no swap"),
        Some(swap) => {
            let summary = format!("memory may be swapped to {}", swap.join(", "));
            let impact = "A part of the table that was swapped out takes milliseconds to come back; the ring does not hold that much.";
            Finding::bad(Severity::Warning, "swap", MACHINE, summary, impact.into())
                .by_hand(&["swapoff -a".into()], "Needs room in memory for all that is swapped out.")
        }
    });
    findings
}

fn nodes(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    for node in &machine.nodes {
        match node.memory_bytes {
            None => findings.push(Finding::unknown("memory", MACHINE, format!("memory of node {}", node.id))),
            Some(0) if !node.cpus.is_empty() => {
                let summary = format!("node {} has processors and no memory", node.id);
                let impact = "Whatever runs there reads and writes over the link between nodes, and so does the other side. Put memory \
                           modules on its channels; with sub-NUMA clustering, all channels must be filled alike, or it must be off.";
                findings.push(Finding::bad(Severity::Critical, "memory", MACHINE, summary, impact.into()));
            }
            Some(_) => {}
        }
    }
    if findings.is_empty() && !machine.nodes.is_empty() {
        let all = machine.nodes.iter().map(|node| format!("node {}: {}", node.id, gib(node.memory_bytes.unwrap_or(0))));
        findings.push(Finding::fine("memory", MACHINE, all.collect::<Vec<_>>().join(", ")));
    }
    findings
}

/// Nothing of a node without memory: of that something worse is said.
fn pages(machine: &Machine, nics: &[&Nic]) -> Option<Finding> {
    let nic = nics.iter().find(|nic| is_fast(nic)).or(nics.first());
    let node = nic.and_then(|nic| machine.node_of(nic)).or(machine.nodes.first());
    let Some((node, free)) = node.and_then(|node| Some((node, node.free_huge_page_bytes()?))) else {
        return Some(Finding::unknown("pages", MACHINE, "reserved huge pages"));
    };
    if node.memory_bytes == Some(0) {
        return None;
    }
    let needs = "A DPDK source keeps its packets in reserved pages on the NIC's node; other sources do without.";
    let two = |node: &crate::NumaNode| {
        node.huge_pages.iter().find(|pages| pages.size_bytes == 2 << 20).map_or(0, |pages| pages.total)
    };
    let command = [reserve(node.id, two(node) + (FEW >> 21))];
    let note = "It takes memory from all other programs; best done right after boot.";
    let elsewhere = machine.nodes.iter().filter(|other| other.id != node.id);
    if let Some((other, octets)) =
        elsewhere.filter_map(|other| Some((other.id, other.free_huge_page_bytes()?))).find(|(_, octets)| *octets > 0)
        && free == 0
    {
        let summary = format!("huge pages are free on node {other} ({}), none on node {}", gib(octets), node.id);
        let impact = format!("{needs} Those of another node are behind the link between sockets.");
        return Some(Finding::bad(Severity::Critical, "pages", MACHINE, summary, impact).by_hand(&command, note));
    }
    let summary = match free {
        0 => format!("no huge pages are free on node {}", node.id),
        _ => format!("{} in huge pages are free on node {}", gib(free), node.id),
    };
    if free < FEW {
        return Some(Finding::bad(Severity::Warning, "pages", MACHINE, summary, needs.into()).by_hand(&command, note));
    }
    Some(Finding::fine("pages", MACHINE, summary))
}
