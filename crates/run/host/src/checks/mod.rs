//! The checks of `weir doctor`. docs/doctor.md lists each with its reason and its source.
//!
//! In: a machine and the names of the NICs that packets arrive on. Out: findings, the most serious
//! first.

mod cpu;
mod interrupts;
mod link;
mod memory;
mod queues;

pub use link::pcie_capacity;
pub use memory::reserve_command;
pub use queues::{LINK_GOES_DOWN, queues_command};

use crate::finding::Finding;
use crate::machine::Machine;
use crate::nic::Nic;

/// Runs all checks for the named NICs. Sorts findings by severity, then in order of checks.
pub fn examine(machine: &Machine, nics: &[&str]) -> Vec<Finding> {
    let nics: Vec<&Nic> = machine.nics.iter().filter(|nic| nics.contains(&&nic.name[..])).collect();
    let mut findings = Vec::new();
    for nic in &nics {
        findings.extend(link::check(machine, nic));
        findings.extend(queues::check(machine, nic));
        findings.extend(nic.pci.as_ref().map(|_| interrupts::check(machine, nic)));
    }
    findings.extend(cpu::check(machine, &nics));
    findings.extend(memory::check(machine, &nics));
    findings.sort_by_key(|finding| finding.severity);
    findings
}
