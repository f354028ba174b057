//! Checks of the network link, the NUMA node and the PCIe link of a NIC.

use crate::ethernet::{AVERAGE_FRAME, SMALLEST_FRAME, line_rate};
use crate::finding::{Finding, Severity};
use crate::machine::Machine;
use crate::nic::Nic;
use crate::pcie::{PcieLink, bus_octets};
use crate::units::{bits, count};

pub fn check(machine: &Machine, nic: &Nic) -> Vec<Finding> {
    let mut findings = vec![port(nic), node(machine, nic)];
    if nic.pci.is_some() {
        findings.push(pcie(nic));
    }
    findings
}

fn port(nic: &Nic) -> Finding {
    let driver = nic.driver.as_deref().unwrap_or("unknown");
    if nic.state.as_deref() == Some("down") {
        let impact = "No packets arrive, and the NIC does not report its speed.";
        return Finding::new(Severity::Warning, "port", &nic.name, "the link is down", impact).with_commands(
            &[format!("ip link set {} up", nic.name)],
            "If the link stays down, check the cable, the transceiver and the other end.",
        );
    }
    match (nic.speed_bits_per_second(), nic.mtu) {
        (Some(speed), Some(mtu)) => {
            Finding::ok("port", &nic.name, format!("{}, driver {driver}, MTU {mtu} octets", bits(speed as f64)))
        }
        (None, _) => Finding::unknown("port", &nic.name, format!("link speed (driver {driver})")),
        (_, None) => Finding::unknown("port", &nic.name, "MTU"),
    }
}

fn node(machine: &Machine, nic: &Nic) -> Finding {
    let name = &nic.name;
    if machine.nodes.is_empty() {
        return Finding::unknown("node", name, "NUMA nodes: the kernel lists none");
    }
    let Some(node) = machine.node_of(nic) else {
        let reason =
            if nic.pci.is_some() { "the firmware does not report it" } else { "the interface has no PCIe slot" };
        return Finding::unknown("node", name, format!("NUMA node of the NIC: {reason}"));
    };
    let remote = "Every packet crosses the interconnect between sockets twice, which is slower than local memory.";
    if node.cpus.is_empty() {
        let summary = format!("plugged into NUMA node {}, which has no CPUs", node.id);
        let impact = format!("{remote} Move the NIC to a slot of another socket.");
        return Finding::new(Severity::Critical, "node", name, summary, impact);
    }
    if node.memory_bytes == Some(0) {
        let summary = format!("plugged into NUMA node {}, which has no memory", node.id);
        let impact = format!(
            "{remote} Install memory modules for this socket (with sub-NUMA clustering: on the channels of this cluster), \
             disable sub-NUMA clustering, or move the NIC."
        );
        return Finding::new(Severity::Critical, "node", name, summary, impact);
    }
    let rival = machine.nics.iter().find(|other| other.name < *name && other.node == Some(node.id) && other.is_fast());
    let has_fast_nic = |id| machine.nics.iter().any(|nic| nic.node == Some(id) && nic.is_fast());
    let idle = machine
        .nodes
        .iter()
        .find(|node| !node.cpus.is_empty() && node.memory_bytes != Some(0) && !has_fast_nic(node.id));
    if let (Some(rival), Some(idle), true) = (rival, idle, nic.is_fast()) {
        let summary =
            format!("shares NUMA node {} with {}, while NUMA node {} has no fast NIC", node.id, rival.name, idle.id);
        let impact = "Both NICs share the cores, the cache and the memory of one node, and the other node is idle. Move \
                      one NIC.";
        return Finding::new(Severity::Warning, "node", name, summary, impact);
    }
    Finding::ok("node", name, format!("on NUMA node {}, with {}", node.id, count(node.cpus.len(), "CPU")))
}

fn pcie(nic: &Nic) -> Finding {
    let name = &nic.name;
    let Some(link) = nic.link else {
        return Finding::unknown("pcie", name, "speed and width of its PCIe link");
    };
    let below_maximum = wider_maximum(nic).map(|maximum| format!("{link}; the NIC supports {maximum}"));
    let Some(speed) = nic.speed_bits_per_second() else {
        return match below_maximum {
            Some(summary) => too_narrow(nic, summary, Severity::Warning, ""),
            None => Finding::ok("pcie", name, link.to_string()),
        };
    };
    let needed = line_rate(speed, AVERAGE_FRAME) * f64::from(bus_octets(AVERAGE_FRAME)) * 8.0;
    let capacity = pcie_capacity(nic, needed, AVERAGE_FRAME);
    if capacity.severity != Severity::Ok {
        return capacity;
    }
    if let Some(summary) = below_maximum {
        let impact = "Enough for average traffic, but not for floods of small packets. ";
        return too_narrow(nic, summary, Severity::Warning, impact);
    }
    let smallest = line_rate(speed, SMALLEST_FRAME).min(link.frames_per_second(SMALLEST_FRAME)) / 1e6;
    let summary = format!(
        "{link} carries {} of {AVERAGE_FRAME}-octet frames, or {smallest:.1} M packets/s of {SMALLEST_FRAME} octets",
        bits(speed as f64)
    );
    Finding::ok("pcie", name, summary)
}

/// Whether the PCIe link of a NIC has the bit rate that frames of one size need, with all overhead.
pub fn pcie_capacity(nic: &Nic, needed_bits_per_second: f64, frame_octets: u32) -> Finding {
    let Some(link) = nic.link else {
        return Finding::unknown("pcie", &nic.name, "speed and width of its PCIe link");
    };
    let summary = format!("{link} has {}; {} are needed", bits(link.bits_per_second()), bits(needed_bits_per_second));
    if needed_bits_per_second <= link.bits_per_second() {
        return Finding::ok("pcie", &nic.name, summary);
    }
    let carried = link.frames_per_second(frame_octets) * f64::from(frame_octets) * 8.0;
    let impact = format!(
        "Only {} of {frame_octets}-octet frames get through, because write headers and descriptors take capacity, too. The \
         NIC drops the rest. ",
        bits(carried)
    );
    too_narrow(nic, summary, Severity::Critical, &impact)
}

fn too_narrow(nic: &Nic, summary: String, severity: Severity, impact: &str) -> Finding {
    let advice = match wider_maximum(nic) {
        Some(maximum) => format!(
            "Move the NIC to a slot with {maximum}, or check the firmware settings of the slot (bifurcation, link speed)."
        ),
        None => "The NIC supports no more, so another slot does not help. Use another NIC, or two.".into(),
    };
    let address = nic.pci.as_deref().unwrap_or("ADDRESS");
    Finding::new(severity, "pcie", &nic.name, summary, format!("{impact}{advice}")).with_commands(
        &[format!("lspci -vv -s {address} | grep Lnk")],
        "This shows the speed and width that NIC and slot support and use.",
    )
}

/// The largest link that the NIC supports, if it is more than the current one.
fn wider_maximum(nic: &Nic) -> Option<PcieLink> {
    let current = nic.link?.bits_per_second();
    nic.link_maximum.filter(|maximum| maximum.bits_per_second() > current * 1.01)
}
