//! Where the card is plugged in, and whether its slot carries what its port brings.

use super::{SMALLEST_FRAME, USUAL_FRAME};
use crate::card::Card;
use crate::ethernet::line_rate;
use crate::figures::bits;
use crate::finding::{Finding, Severity};
use crate::machine::Machine;
use crate::pcie::bus_octets;

pub fn check(machine: &Machine, card: &Card) -> Vec<Finding> {
    let mut findings = vec![port(card), node(machine, card)];
    if card.pci.is_some() {
        findings.push(link(card));
    }
    findings
}

fn port(card: &Card) -> Finding {
    let driver = card.driver.as_deref().unwrap_or("not known");
    if card.state.as_deref() == Some("down") {
        let why = "Nothing comes in, and the card does not tell its speed.".into();
        return Finding::bad(Severity::Better, "port", &card.name, "the link is down".into(), why).by_hand(
            &[format!("ip link set {} up", card.name)],
            "If it is up and stays down: cable, module, other side.",
        );
    }
    match (card.speed_bits(), card.mtu) {
        (Some(speed), Some(mtu)) => {
            let what = format!("{}, driver {driver}; takes packets up to {mtu} octets (MTU)", bits(speed as f64));
            Finding::fine("port", &card.name, what)
        }
        (None, _) => Finding::unknown("port", &card.name, format!("speed of the port (driver {driver})")),
        (_, None) => Finding::unknown("port", &card.name, "the longest packet that it takes (MTU)"),
    }
}

fn node(machine: &Machine, card: &Card) -> Finding {
    let name = &card.name;
    if machine.nodes.is_empty() {
        return Finding::unknown("node", name, "nodes: the system does not name any");
    }
    let Some(node) = machine.node_of(card) else {
        let what =
            if card.pci.is_some() { "the card's node: the firmware does not say" } else { "a node: it has no slot" };
        return Finding::unknown("node", name, what);
    };
    let elsewhere = "Every packet crosses the link between sockets twice, and that link is slower than memory.";
    if node.cpus.is_empty() {
        let what = format!("plugged into node {}, which has no processor", node.id);
        let why = format!("{elsewhere} Move the card to a slot of another socket.");
        return Finding::bad(Severity::Wrong, "node", name, what, why);
    }
    if node.memory_octets == Some(0) {
        let what = format!("plugged into node {}, which has no memory", node.id);
        let why = format!(
            "{elsewhere} Put memory modules beside this socket (with sub-NUMA clustering: on the channels of this part), switch \
             sub-NUMA clustering off, or move the card."
        );
        return Finding::bad(Severity::Wrong, "node", name, what, why);
    }
    let rival =
        machine.cards.iter().find(|other| other.name < *name && other.node == Some(node.id) && super::is_fast(other));
    let taken = |id| machine.cards.iter().any(|card| card.node == Some(id) && super::is_fast(card));
    let free =
        machine.nodes.iter().find(|node| !node.cpus.is_empty() && node.memory_octets != Some(0) && !taken(node.id));
    if let (Some(rival), Some(free), true) = (rival, free, super::is_fast(card)) {
        let what = format!("shares node {} with {}, and node {} has no fast card", node.id, rival.name, free.id);
        let why = format!("Both share cores, cache and memory, and those of node {} idle. Move one card.", free.id);
        return Finding::bad(Severity::Better, "node", name, what, why);
    }
    Finding::fine(
        "node",
        name,
        format!("on node {}, with {}", node.id, crate::numbers::count(node.cpus.len(), "processor")),
    )
}

fn link(card: &Card) -> Finding {
    let name = &card.name;
    let Some(link) = card.link else {
        return Finding::unknown("pcie", name, "speed and width of its PCIe link");
    };
    let Some(speed) = card.speed_bits() else {
        return match card.link_maximum.filter(|maximum| maximum.bits() > link.bits() * 1.01) {
            Some(maximum) => narrow(card, format!("{link}; the card can {maximum}"), Severity::Better, ""),
            None => Finding::fine("pcie", name, link.to_string()),
        };
    };
    let fits = fits_bus(card, line_rate(speed, USUAL_FRAME) * f64::from(bus_octets(USUAL_FRAME)) * 8.0, USUAL_FRAME);
    if fits.severity != Severity::Fine {
        return fits;
    }
    let least = line_rate(speed, SMALLEST_FRAME).min(link.frames(SMALLEST_FRAME)) / 1e6;
    let full = format!(
        "{link} carries {} at {USUAL_FRAME} octets a frame; at {SMALLEST_FRAME}, {least:.1} M packets/s",
        bits(speed as f64)
    );
    match card.link_maximum.filter(|maximum| maximum.bits() > link.bits() * 1.01) {
        Some(maximum) => narrow(
            card,
            format!("{link}; the card can {maximum}"),
            Severity::Better,
            "It is enough for usual traffic, not for floods of small packets. ",
        ),
        None => Finding::fine("pcie", name, full),
    }
}

/// Whether the card's link carries so many bits a second, with what stands around the data, of frames of this size.
pub fn fits_bus(card: &Card, needed: f64, frame_octets: u32) -> Finding {
    let Some(link) = card.link else {
        return Finding::unknown("pcie", &card.name, "speed and width of its PCIe link");
    };
    let what = format!("{link} has {}, {} are needed", bits(link.bits()), bits(needed));
    if needed <= link.bits() {
        return Finding::fine("pcie", &card.name, what);
    }
    let carried = link.frames(frame_octets) * f64::from(frame_octets) * 8.0;
    let why = format!(
        "Frames of {frame_octets} octets get through at {}: writes have headers, and descriptors are written too. The card \
         drops the rest. ",
        bits(carried)
    );
    narrow(card, what, Severity::Wrong, &why)
}

fn narrow(card: &Card, what: String, severity: Severity, why: &str) -> Finding {
    let wider = |maximum: &crate::Link| card.link.is_some_and(|link| maximum.bits() > link.bits() * 1.01);
    let advice = match card.link_maximum.filter(wider) {
        Some(maximum) => format!(
            "Move the card to a slot with {maximum}, or look for the slot's setting (bifurcation, speed) in the firmware."
        ),
        None => "The card itself has no more: no slot mends that. Another card, or two.".into(),
    };
    let address = card.pci.as_deref().unwrap_or("ADDRESS");
    Finding::bad(severity, "pcie", &card.name, what, format!("{why}{advice}"))
        .by_hand(&[format!("lspci -vv -s {address} | grep Lnk")], "This shows what card and slot agreed on.")
}
