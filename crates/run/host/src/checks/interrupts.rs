//! Check of the CPUs that handle the interrupts of a NIC.

use crate::finding::{Finding, Severity, Step};
use crate::lists::list;
use crate::machine::Machine;
use crate::nic::{Irq, Nic};
use crate::units::count;

pub fn check(machine: &Machine, nic: &Nic) -> Finding {
    let name = &nic.name;
    if nic.irqs.is_empty() {
        return Finding::unknown("irq", name, "interrupts of its receive queues");
    }
    let mut cpus: Vec<u32> = nic.irqs.iter().flat_map(Irq::cpus).copied().collect();
    cpus.sort_unstable();
    cpus.dedup();
    let irqs = count(nic.irqs.len(), "interrupt");
    let Some(node) = machine.node_of(nic) else {
        let summary = format!("whether its {irqs} are handled on the NUMA node of the NIC: the node is unknown");
        return Finding::unknown("irq", name, summary);
    };
    let is_remote = |cpu: &&u32| !node.cpus.contains(cpu);
    let remote_irqs = nic.irqs.iter().filter(|irq| irq.cpus().iter().any(|cpu| is_remote(&cpu))).count();
    let severity = if nic.is_fast() { Severity::Critical } else { Severity::Warning };
    let note = match machine.irqbalance {
        Some(true) => "Stop irqbalance first; it would move the interrupts again.",
        _ => "",
    };
    if remote_irqs > 0 && !node.cpus.is_empty() {
        let remote_cpus: Vec<u32> = cpus.iter().filter(is_remote).copied().collect();
        let summary = format!(
            "{remote_irqs} of {irqs} may be handled on another NUMA node than that of the NIC ({}; node {} has {})",
            cpu_list(&remote_cpus),
            node.id,
            cpu_list(&node.cpus)
        );
        let impact = "The NIC writes packets into the cache of its own node. CPUs of other nodes fetch them over the \
                      interconnect between sockets.";
        return Finding::new(severity, "irq", name, summary, impact).with_steps(steps(machine, nic, node.id), note);
    }
    if let [one] = cpus[..]
        && nic.irqs.len() > 1
        && node.cpus.len() > 1
    {
        let summary = format!("all {irqs} are handled by CPU {one}");
        let impact = "One core receives the packets of all queues, and the other cores wait for it.";
        return Finding::new(severity, "irq", name, summary, impact).with_steps(steps(machine, nic, node.id), note);
    }
    Finding::ok("irq", name, format!("{irqs}, handled on NUMA node {} by {}", node.id, cpu_list(&cpus)))
}

/// Assigns each interrupt to a core of the node, in the order in which `weir plan` assigns queues.
fn steps(machine: &Machine, nic: &Nic, node: u32) -> Vec<Step> {
    let cores = machine.cores(Some(node));
    let cpus = cores.iter().filter_map(|core| core.first()).cycle();
    let step = |(irq, cpu): (&Irq, &u32)| Step::Write {
        path: format!("/proc/irq/{}/smp_affinity_list", irq.number),
        text: cpu.to_string(),
    };
    nic.irqs.iter().zip(cpus).map(step).collect()
}

fn cpu_list(cpus: &[u32]) -> String {
    format!("CPU{} {}", if cpus.len() == 1 { "" } else { "s" }, list(cpus))
}
