//! Network cards: where they are plugged in, how many queues they have, who serves them.

use crate::ethtool::{self, Channels, Known, Ring, Rss};
use crate::pcie::Link;
use crate::root::Root;
use serde::Serialize;

const NET: &str = "/sys/class/net";

/// What joins packets before anybody else sees them, as ethtool calls it, and as it is switched.
pub const JOINING: [(&str, &str); 5] = [
    ("generic-receive-offload", "gro"),
    ("large-receive-offload", "lro"),
    ("rx-gro-hw", "rx-gro-hw"),
    ("rx-gro-list", "rx-gro-list"),
    ("rx-udp-gro-forwarding", "rx-udp-gro-forwarding"),
];

/// An interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Card {
    /// Its name: `eth0`.
    pub name: String,
    /// Whether there is a device behind it, else it is made by the kernel (`lo`, `veth`).
    pub physical: bool,
    /// The driver's name.
    pub driver: Option<String>,
    /// Its place on the bus: `0000:17:00.0`.
    pub pci: Option<String>,
    /// The node it is plugged into.
    pub node: Option<u32>,
    /// The link to it.
    pub link: Option<Link>,
    /// What the card can.
    pub link_maximum: Option<Link>,
    /// Megabit a second; `None` if it does not say, as when the cable is out.
    pub speed_megabits: Option<u64>,
    /// Whether it is `up`, `down` or something else.
    pub state: Option<String>,
    /// The longest packet it takes, octets of IP.
    pub mtu: Option<u32>,
    /// Receive queues that the kernel has.
    pub queues: u32,
    /// Receive queues that the card has.
    pub channels: Known<Channels>,
    /// Its receive rings.
    pub ring: Known<Ring>,
    /// How it chooses a queue.
    pub rss: Known<Rss>,
    /// Features that join packets and are on.
    pub joining: Known<Vec<String>>,
    /// Whether it hashes ports of TCP over IPv4.
    pub hashes_tcp_ports: Known<bool>,
    /// Whether it hashes ports of UDP over IPv4.
    pub hashes_udp_ports: Known<bool>,
    /// The interrupts of its receive queues, in their order.
    pub irqs: Vec<Irq>,
}

/// An interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Irq {
    /// Its number.
    pub number: u32,
    /// Its name: `mlx5_comp0@pci:0000:17:00.0`.
    pub name: String,
    /// The processors that may serve it.
    pub allowed: Vec<u32>,
    /// Those that do, where the kernel tells.
    pub served_by: Vec<u32>,
}

impl Card {
    /// Bits a second of the link.
    pub fn speed_bits(&self) -> Option<u64> {
        self.speed_megabits?.checked_mul(1_000_000)
    }
}

/// The names of all interfaces.
pub fn names(root: &Root) -> Vec<String> {
    // The bonding driver keeps a file among the interfaces.
    root.names(NET).into_iter().filter(|name| name != "bonding_masters").collect()
}

/// What can be known of one. One with nothing behind it is asked for more only if it was `named`: there may be hundreds, for
/// containers.
pub fn read(root: &Root, name: &str, named: bool) -> Card {
    let folder = format!("{NET}/{name}");
    let place = root.link(&folder).unwrap_or_default();
    let pci = slot(&place);
    let device = pci.as_ref().map(|pci| format!("/sys/bus/pci/devices/{pci}"));
    let of = |what: &str| root.text(&format!("{}/{what}", device.as_ref()?));
    let link = |speed, width| Link::parse(&of(speed)?, &of(width)?);
    let driver = root.link(&format!("{folder}/device/driver"));
    let physical = pci.is_some() || driver.is_some();
    let said = |option: &str, more: &[&str]| match physical || named {
        true => root.ethtool(option, name, more),
        false => Known::No { not_known: "not asked: nothing is behind it".into() },
    };
    let hashes_ports = |kind| said("-n", &["rx-flow-hash", kind]).and(|text| ethtool::hashes_ports(text), "no answer");
    let features = JOINING.map(|(name, _)| name);
    Card {
        name: name.into(),
        physical,
        driver: driver.and_then(|path| Some(path.rsplit('/').next()?.to_owned())),
        node: of("numa_node").and_then(|node| node.parse().ok()),
        link: link("current_link_speed", "current_link_width"),
        link_maximum: link("max_link_speed", "max_link_width"),
        speed_megabits: root.number(&format!("{folder}/speed")).filter(|speed| *speed > 0 && *speed < 1 << 31),
        state: root.text(&format!("{folder}/operstate")).filter(|state| !state.is_empty()),
        mtu: root.number(&format!("{folder}/mtu")),
        queues: root.names(&format!("{folder}/queues")).iter().filter(|name| name.starts_with("rx-")).count() as u32,
        channels: said("-l", &[]).and(|text| ethtool::channels(text), "the card does not say"),
        ring: said("-g", &[]).and(|text| ethtool::ring(text), "the card does not say"),
        rss: said("-x", &[]).and(|text| ethtool::rss(text), "the card does not say"),
        joining: said("-k", &[]).and(
            |text| text.contains("generic-receive-offload").then(|| ethtool::switched_on(text, &features)),
            "ethtool does not name the features",
        ),
        hashes_tcp_ports: hashes_ports("tcp4"),
        hashes_udp_ports: hashes_ports("udp4"),
        irqs: irqs(root, device.as_deref()),
        pci,
    }
}

/// The node of an interface, or of an address on the bus; `None` if the firmware does not say.
///
/// # Errors
/// There is no card behind it, in words.
pub fn node(root: &Root, device: &str) -> Result<Option<u32>, String> {
    let pci = if is_pci_address(device) {
        device.to_owned()
    } else {
        let place = root.link(&format!("{NET}/{device}")).unwrap_or_default();
        slot(&place).ok_or_else(|| format!("there is no card behind {device}"))?
    };
    Ok(root.text(&format!("/sys/bus/pci/devices/{pci}/numa_node")).and_then(|node| node.parse().ok()))
}

/// The card's address in `../../devices/pci0000:00/0000:00:03.0/virtio2/net/eth0`. What hangs on a card of another kind, as
/// on one for USB, has none.
fn slot(place: &str) -> Option<String> {
    let parts: Vec<&str> = place.split('/').collect();
    let is_card = |pair: &&[&str]| is_pci_address(pair[0]) && (pair[1] == "net" || pair[1].starts_with("virtio"));
    parts.windows(2).rfind(is_card).map(|pair| pair[0].to_owned())
}

/// `0000:17:00.0`.
fn is_pci_address(part: &str) -> bool {
    let numbers: Vec<&str> = part.split([':', '.']).collect();
    let hexadecimal = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    part.len() >= 12 && part.contains('.') && numbers.len() == 4 && numbers.iter().all(hexadecimal)
}

/// The interrupts of receive queues, by the names that drivers give them; all of the card if none is named like that.
fn irqs(root: &Root, device: Option<&str>) -> Vec<Irq> {
    let Some(device) = device else { return vec![] };
    let mut numbers: Vec<u32> =
        root.names(&format!("{device}/msi_irqs")).iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let irq = |number: u32| {
        let name = root.text(&format!("/sys/kernel/irq/{number}/actions")).filter(|name| !name.is_empty())?;
        let allowed = root.list(&format!("/proc/irq/{number}/smp_affinity_list"))?;
        let served_by = root.list(&format!("/proc/irq/{number}/effective_affinity_list")).unwrap_or_default();
        Some(Irq { number, name, allowed, served_by })
    };
    let all: Vec<Irq> = numbers.into_iter().filter_map(irq).collect();
    let receives = |irq: &&Irq| {
        let name = irq.name.to_ascii_lowercase();
        ["rx", "comp", "input", "-fp-"].iter().any(|part| name.contains(part))
    };
    let receiving: Vec<Irq> = all.iter().filter(receives).cloned().collect();
    if receiving.is_empty() { all } else { receiving }
}
