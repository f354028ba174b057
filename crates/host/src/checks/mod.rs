//! What is looked at, and what is said of it. docs/doctor.md lists every check with its reason and its source.
//!
//! In: a machine, and the names of the NICs that packets come from. Out: findings, the worst first.

mod bus;
mod cpu;
mod interrupts;
mod memory;
mod queues;

pub use bus::fits_bus;
pub use memory::reserve;
pub use queues::{LINK_GOES_DOWN, set_queues};

use crate::finding::Finding;
use crate::machine::Machine;
use crate::nic::Nic;

/// From so many bits a second on, a core has no time to lose.
const FAST: u64 = 10_000_000_000;
/// Octets of an average frame of the internet mix that NAPA-FP and docs/performance.md plan with.
const USUAL_FRAME: u32 = 700;
const SMALLEST_FRAME: u32 = 64;

/// Looks at everything that matters to NICs of these names; the worst findings come first, else the order is that of the
/// checks.
pub fn examine(machine: &Machine, nics: &[&str]) -> Vec<Finding> {
    let nics: Vec<&Nic> = machine.nics.iter().filter(|nic| nics.contains(&&nic.name[..])).collect();
    let mut findings = Vec::new();
    for nic in &nics {
        findings.extend(bus::check(machine, nic));
        findings.extend(queues::check(machine, nic));
        findings.extend(interrupts::check(machine, nic));
    }
    findings.extend(cpu::check(machine, &nics));
    findings.extend(memory::check(machine, &nics));
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn is_fast(nic: &Nic) -> bool {
    nic.speed_bits().is_some_and(|bits| bits >= FAST)
}
