//! Which processors serve the card's interrupts.

use super::is_fast;
use crate::card::Card;
use crate::finding::{Finding, Severity, Step};
use crate::machine::Machine;
use crate::numbers::{count, list};

pub fn check(machine: &Machine, card: &Card) -> Vec<Finding> {
    if card.pci.is_none() {
        return vec![];
    }
    vec![irqs(machine, card)]
}

fn irqs(machine: &Machine, card: &Card) -> Finding {
    let name = &card.name;
    if card.irqs.is_empty() {
        return Finding::unknown("irq", name, "interrupts of its queues");
    }
    let serving = |irq: &crate::Irq| if irq.served_by.is_empty() { irq.allowed.clone() } else { irq.served_by.clone() };
    let mut cpus: Vec<u32> = card.irqs.iter().flat_map(serving).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let irqs = count(card.irqs.len(), "interrupt");
    let Some(node) = machine.node_of(card) else {
        let what = format!("whether its {irqs} are served on the card's node: that is not known");
        return Finding::unknown("irq", name, what);
    };
    let far: Vec<&crate::Irq> =
        card.irqs.iter().filter(|irq| serving(irq).iter().any(|cpu| !node.cpus.contains(cpu))).collect();
    let severity = if is_fast(card) { Severity::Wrong } else { Severity::Better };
    if !far.is_empty() && !node.cpus.is_empty() {
        let on: Vec<u32> = far.iter().flat_map(|irq| serving(irq)).filter(|cpu| !node.cpus.contains(cpu)).collect();
        let what = format!(
            "{} of {irqs} may be served on another node than the card's ({}; node {} has {})",
            far.len(),
            processors(&on),
            node.id,
            list(&node.cpus)
        );
        let why =
            "Packets that the card wrote into the cache of its node are fetched over the link between sockets.".into();
        return Finding::bad(severity, "irq", name, what, why).fixed_by(steps(machine, card, node.id), note(machine));
    }
    if let [one] = cpus[..]
        && card.irqs.len() > 1
        && node.cpus.len() > 1
    {
        let what = format!("all {irqs} are served by processor {one}");
        let why = "One core takes the packets of all queues out of the card; the others wait for it.".into();
        return Finding::bad(severity, "irq", name, what, why).fixed_by(steps(machine, card, node.id), note(machine));
    }
    Finding::fine("irq", name, format!("{irqs}, served on node {} by {}", node.id, processors(&cpus)))
}

/// Each interrupt to a core of the node, as the planner lays queues out.
fn steps(machine: &Machine, card: &Card, node: u32) -> Vec<Step> {
    let cores = machine.cores(Some(node));
    let cores = cores.iter().filter_map(|core| core.first()).cycle();
    let step = |(irq, cpu): (&crate::Irq, &u32)| Step::Write {
        path: format!("/proc/irq/{}/smp_affinity_list", irq.number),
        text: cpu.to_string(),
    };
    card.irqs.iter().zip(cores).map(step).collect()
}

fn processors(cpus: &[u32]) -> String {
    format!("processor{} {}", if cpus.len() == 1 { "" } else { "s" }, list(cpus))
}

fn note(machine: &Machine) -> &'static str {
    if machine.irqbalance == Some(true) { "irqbalance would move them again: stop it first." } else { "" }
}
