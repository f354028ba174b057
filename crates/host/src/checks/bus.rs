//! Where the NIC is plugged in, and whether its slot carries what its port brings.

use super::{SMALLEST_FRAME, USUAL_FRAME};
use crate::ethernet::line_rate;
use crate::finding::{Finding, Severity};
use crate::machine::Machine;
use crate::nic::Nic;
use crate::pcie::bus_octets;
use crate::units::bits;

pub fn check(machine: &Machine, nic: &Nic) -> Vec<Finding> {
    let mut findings = vec![port(nic), node(machine, nic)];
    if nic.pci.is_some() {
        findings.push(link(nic));
    }
    findings
}

fn port(nic: &Nic) -> Finding {
    let driver = nic.driver.as_deref().unwrap_or("not known");
    if nic.state.as_deref() == Some("down") {
        let impact = "Nothing comes in, and the NIC does not tell its speed.".into();
        return Finding::bad(Severity::Warning, "port", &nic.name, "the link is down".into(), impact).by_hand(
            &[format!("ip link set {} up", nic.name)],
            "If it is up and stays down: cable, module, other side.",
        );
    }
    match (nic.speed_bits(), nic.mtu) {
        (Some(speed), Some(mtu)) => {
            let summary = format!("{}, driver {driver}; takes packets up to {mtu} octets (MTU)", bits(speed as f64));
            Finding::fine("port", &nic.name, summary)
        }
        (None, _) => Finding::unknown("port", &nic.name, format!("speed of the port (driver {driver})")),
        (_, None) => Finding::unknown("port", &nic.name, "the longest packet that it takes (MTU)"),
    }
}

fn node(machine: &Machine, nic: &Nic) -> Finding {
    let name = &nic.name;
    if machine.nodes.is_empty() {
        return Finding::unknown("node", name, "nodes: the system does not name any");
    }
    let Some(node) = machine.node_of(nic) else {
        let summary =
            if nic.pci.is_some() { "the NIC's node: the firmware does not say" } else { "a node: it has no slot" };
        return Finding::unknown("node", name, summary);
    };
    let elsewhere = "Every packet crosses the link between sockets twice, and that link is slower than memory.";
    if node.cpus.is_empty() {
        let summary = format!("plugged into node {}, which has no processor", node.id);
        let impact = format!("{elsewhere} Move the NIC to a slot of another socket.");
        return Finding::bad(Severity::Critical, "node", name, summary, impact);
    }
    if node.memory_bytes == Some(0) {
        let summary = format!("plugged into node {}, which has no memory", node.id);
        let impact = format!(
            "{elsewhere} Put memory modules beside this socket (with sub-NUMA clustering: on the channels of this part), switch \
             sub-NUMA clustering off, or move the NIC."
        );
        return Finding::bad(Severity::Critical, "node", name, summary, impact);
    }
    let rival =
        machine.nics.iter().find(|other| other.name < *name && other.node == Some(node.id) && super::is_fast(other));
    let taken = |id| machine.nics.iter().any(|nic| nic.node == Some(id) && super::is_fast(nic));
    let free =
        machine.nodes.iter().find(|node| !node.cpus.is_empty() && node.memory_bytes != Some(0) && !taken(node.id));
    if let (Some(rival), Some(free), true) = (rival, free, super::is_fast(nic)) {
        let summary = format!("shares node {} with {}, and node {} has no fast NIC", node.id, rival.name, free.id);
        let impact = format!("Both share cores, cache and memory, and those of node {} idle. Move one NIC.", free.id);
        return Finding::bad(Severity::Warning, "node", name, summary, impact);
    }
    Finding::fine(
        "node",
        name,
        format!("on node {}, with {}", node.id, crate::lists::count(node.cpus.len(), "processor")),
    )
}

fn link(nic: &Nic) -> Finding {
    let name = &nic.name;
    let Some(link) = nic.link else {
        return Finding::unknown("pcie", name, "speed and width of its PCIe link");
    };
    let Some(speed) = nic.speed_bits() else {
        return match nic.link_maximum.filter(|maximum| maximum.bits() > link.bits() * 1.01) {
            Some(maximum) => narrow(nic, format!("{link}; the NIC can {maximum}"), Severity::Warning, ""),
            None => Finding::fine("pcie", name, link.to_string()),
        };
    };
    let fits = fits_bus(nic, line_rate(speed, USUAL_FRAME) * f64::from(bus_octets(USUAL_FRAME)) * 8.0, USUAL_FRAME);
    if fits.severity != Severity::Ok {
        return fits;
    }
    let least = line_rate(speed, SMALLEST_FRAME).min(link.frames(SMALLEST_FRAME)) / 1e6;
    let full = format!(
        "{link} carries {} at {USUAL_FRAME} octets a frame; at {SMALLEST_FRAME}, {least:.1} M packets/s",
        bits(speed as f64)
    );
    match nic.link_maximum.filter(|maximum| maximum.bits() > link.bits() * 1.01) {
        Some(maximum) => narrow(
            nic,
            format!("{link}; the NIC can {maximum}"),
            Severity::Warning,
            "It is enough for usual traffic, not for floods of small packets. ",
        ),
        None => Finding::fine("pcie", name, full),
    }
}

/// Whether the NIC's link carries so many bits a second, with what stands around the data, of frames of this size.
pub fn fits_bus(nic: &Nic, needed: f64, frame_octets: u32) -> Finding {
    let Some(link) = nic.link else {
        return Finding::unknown("pcie", &nic.name, "speed and width of its PCIe link");
    };
    let summary = format!("{link} has {}, {} are needed", bits(link.bits()), bits(needed));
    if needed <= link.bits() {
        return Finding::fine("pcie", &nic.name, summary);
    }
    let carried = link.frames(frame_octets) * f64::from(frame_octets) * 8.0;
    let impact = format!(
        "Frames of {frame_octets} octets get through at {}: writes have headers, and descriptors are written too. The NIC \
         drops the rest. ",
        bits(carried)
    );
    narrow(nic, summary, Severity::Critical, &impact)
}

fn narrow(nic: &Nic, summary: String, severity: Severity, impact: &str) -> Finding {
    let wider = |maximum: &crate::PcieLink| nic.link.is_some_and(|link| maximum.bits() > link.bits() * 1.01);
    let advice = match nic.link_maximum.filter(wider) {
        Some(maximum) => format!(
            "Move the NIC to a slot with {maximum}, or look for the slot's setting (bifurcation, speed) in the firmware."
        ),
        None => "The NIC itself has no more: no slot mends that. Another NIC, or two.".into(),
    };
    let address = nic.pci.as_deref().unwrap_or("ADDRESS");
    Finding::bad(severity, "pcie", &nic.name, summary, format!("{impact}{advice}"))
        .by_hand(&[format!("lspci -vv -s {address} | grep Lnk")], "This shows what NIC and slot agreed on.")
}
