//! Which processors serve the NIC's interrupts.

use super::is_fast;
use crate::finding::{Finding, Severity, Step};
use crate::lists::{count, list};
use crate::machine::Machine;
use crate::nic::Nic;

pub fn check(machine: &Machine, nic: &Nic) -> Vec<Finding> {
    if nic.pci.is_none() {
        return vec![];
    }
    vec![irqs(machine, nic)]
}

fn irqs(machine: &Machine, nic: &Nic) -> Finding {
    let name = &nic.name;
    if nic.irqs.is_empty() {
        return Finding::unknown("irq", name, "interrupts of its queues");
    }
    let serving = |irq: &crate::Irq| {
        if irq.effective_affinity.is_empty() { irq.allowed.clone() } else { irq.effective_affinity.clone() }
    };
    let mut cpus: Vec<u32> = nic.irqs.iter().flat_map(serving).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let irqs = count(nic.irqs.len(), "interrupt");
    let Some(node) = machine.node_of(nic) else {
        let summary = format!("whether its {irqs} are served on the NIC's node: that is not known");
        return Finding::unknown("irq", name, summary);
    };
    let far: Vec<&crate::Irq> =
        nic.irqs.iter().filter(|irq| serving(irq).iter().any(|cpu| !node.cpus.contains(cpu))).collect();
    let severity = if is_fast(nic) { Severity::Critical } else { Severity::Warning };
    if !far.is_empty() && !node.cpus.is_empty() {
        let on: Vec<u32> = far.iter().flat_map(|irq| serving(irq)).filter(|cpu| !node.cpus.contains(cpu)).collect();
        let summary = format!(
            "{} of {irqs} may be served on another node than the NIC's ({}; node {} has {})",
            far.len(),
            processors(&on),
            node.id,
            list(&node.cpus)
        );
        let impact =
            "Packets that the NIC wrote into the cache of its node are fetched over the link between sockets.".into();
        return Finding::bad(severity, "irq", name, summary, impact)
            .fixed_by(steps(machine, nic, node.id), note(machine));
    }
    if let [one] = cpus[..]
        && nic.irqs.len() > 1
        && node.cpus.len() > 1
    {
        let summary = format!("all {irqs} are served by processor {one}");
        let impact = "One core takes the packets of all queues out of the NIC; the others wait for it.".into();
        return Finding::bad(severity, "irq", name, summary, impact)
            .fixed_by(steps(machine, nic, node.id), note(machine));
    }
    Finding::fine("irq", name, format!("{irqs}, served on node {} by {}", node.id, processors(&cpus)))
}

/// Each interrupt to a core of the node, as the planner lays queues out.
fn steps(machine: &Machine, nic: &Nic, node: u32) -> Vec<Step> {
    let cores = machine.cores(Some(node));
    let cores = cores.iter().filter_map(|core| core.first()).cycle();
    let step = |(irq, cpu): (&crate::Irq, &u32)| Step::Write {
        path: format!("/proc/irq/{}/smp_affinity_list", irq.number),
        text: cpu.to_string(),
    };
    nic.irqs.iter().zip(cores).map(step).collect()
}

fn processors(cpus: &[u32]) -> String {
    format!("processor{} {}", if cpus.len() == 1 { "" } else { "s" }, list(cpus))
}

fn note(machine: &Machine) -> &'static str {
    if machine.irqbalance == Some(true) { "irqbalance would move them again: stop it first." } else { "" }
}
