//! Network NICs: where they are plugged in, how many queues they have, who serves them.

use crate::ethtool::{self, Channels, Reading, RingSize, RssConfig};
use crate::pcie::PcieLink;
use crate::sysroot::Sysroot;
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
pub struct Nic {
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
    pub link: Option<PcieLink>,
    /// What the NIC can.
    pub link_maximum: Option<PcieLink>,
    /// Megabit a second; `None` if it does not say, as when the cable is out.
    pub speed_mbps: Option<u64>,
    /// Whether it is `up`, `down` or something else.
    pub state: Option<String>,
    /// The longest packet it takes, octets of IP.
    pub mtu: Option<u32>,
    /// Receive queues that the kernel has.
    pub queues: u32,
    /// Receive queues that the NIC has.
    pub channels: Reading<Channels>,
    /// Its receive rings.
    pub ring: Reading<RingSize>,
    /// How it chooses a queue.
    pub rss: Reading<RssConfig>,
    /// Features that join packets and are on.
    pub joining: Reading<Vec<String>>,
    /// Whether it hashes ports of TCP over IPv4.
    pub hashes_tcp_ports: Reading<bool>,
    /// Whether it hashes ports of UDP over IPv4.
    pub hashes_udp_ports: Reading<bool>,
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
    pub effective_affinity: Vec<u32>,
}

impl Nic {
    /// Bits a second of the link.
    pub fn speed_bits(&self) -> Option<u64> {
        self.speed_mbps?.checked_mul(1_000_000)
    }
}

/// The names of all interfaces.
pub fn names(sysroot: &Sysroot) -> Vec<String> {
    // The bonding driver keeps a file among the interfaces.
    sysroot.names(NET).into_iter().filter(|name| name != "bonding_masters").collect()
}

/// What can be known of one. One with nothing behind it is asked for more only if it was `named`: there may be hundreds, for
/// containers.
pub fn read(sysroot: &Sysroot, name: &str, named: bool) -> Nic {
    let folder = format!("{NET}/{name}");
    let place = sysroot.link(&folder).unwrap_or_default();
    let pci = slot(&place);
    let device = pci.as_ref().map(|pci| format!("/sys/bus/pci/devices/{pci}"));
    let of = |what: &str| sysroot.text(&format!("{}/{what}", device.as_ref()?));
    let link = |speed, width| PcieLink::parse(&of(speed)?, &of(width)?);
    let driver = sysroot.link(&format!("{folder}/device/driver"));
    let physical = pci.is_some() || driver.is_some();
    let said = |option: &str, more: &[&str]| match physical || named {
        true => sysroot.ethtool(option, name, more),
        false => Reading::Unavailable { reason: "not asked: nothing is behind it".into() },
    };
    let hashes_ports = |kind| said("-n", &["rx-flow-hash", kind]).and(|text| ethtool::hashes_ports(text), "no answer");
    let features = JOINING.map(|(name, _)| name);
    Nic {
        name: name.into(),
        physical,
        driver: driver.and_then(|path| Some(path.rsplit('/').next()?.to_owned())),
        node: of("numa_node").and_then(|node| node.parse().ok()),
        link: link("current_link_speed", "current_link_width"),
        link_maximum: link("max_link_speed", "max_link_width"),
        speed_mbps: sysroot.number(&format!("{folder}/speed")).filter(|speed| *speed > 0 && *speed < 1 << 31),
        state: sysroot.text(&format!("{folder}/operstate")).filter(|state| !state.is_empty()),
        mtu: sysroot.number(&format!("{folder}/mtu")),
        queues: sysroot.names(&format!("{folder}/queues")).iter().filter(|name| name.starts_with("rx-")).count() as u32,
        channels: said("-l", &[]).and(|text| ethtool::channels(text), "the NIC does not say"),
        ring: said("-g", &[]).and(|text| ethtool::ring(text), "the NIC does not say"),
        rss: said("-x", &[]).and(|text| ethtool::rss(text), "the NIC does not say"),
        joining: said("-k", &[]).and(
            |text| text.contains("generic-receive-offload").then(|| ethtool::switched_on(text, &features)),
            "ethtool does not name the features",
        ),
        hashes_tcp_ports: hashes_ports("tcp4"),
        hashes_udp_ports: hashes_ports("udp4"),
        irqs: irqs(sysroot, device.as_deref()),
        pci,
    }
}

/// The node of an interface, or of an address on the bus; `None` if the firmware does not say.
///
/// # Errors
/// There is no NIC behind it, in words.
pub fn node(sysroot: &Sysroot, device: &str) -> Result<Option<u32>, String> {
    let pci = if is_pci_address(device) {
        device.to_owned()
    } else {
        let place = sysroot.link(&format!("{NET}/{device}")).unwrap_or_default();
        slot(&place).ok_or_else(|| format!("there is no NIC behind {device}"))?
    };
    Ok(sysroot.text(&format!("/sys/bus/pci/devices/{pci}/numa_node")).and_then(|node| node.parse().ok()))
}

/// The NIC's address in `../../devices/pci0000:00/0000:00:03.0/virtio2/net/eth0`. What hangs on a NIC of another kind, as
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

/// The interrupts of receive queues, by the names that drivers give them; all of the NIC if none is named like that.
fn irqs(sysroot: &Sysroot, device: Option<&str>) -> Vec<Irq> {
    let Some(device) = device else { return vec![] };
    let mut numbers: Vec<u32> =
        sysroot.names(&format!("{device}/msi_irqs")).iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let irq = |number: u32| {
        let name = sysroot.text(&format!("/sys/kernel/irq/{number}/actions")).filter(|name| !name.is_empty())?;
        let allowed = sysroot.list(&format!("/proc/irq/{number}/smp_affinity_list"))?;
        let effective_affinity =
            sysroot.list(&format!("/proc/irq/{number}/effective_affinity_list")).unwrap_or_default();
        Some(Irq { number, name, allowed, effective_affinity })
    };
    let all: Vec<Irq> = numbers.into_iter().filter_map(irq).collect();
    let receives = |irq: &&Irq| {
        let name = irq.name.to_ascii_lowercase();
        ["rx", "comp", "input", "-fp-"].iter().any(|part| name.contains(part))
    };
    let receiving: Vec<Irq> = all.iter().filter(receives).cloned().collect();
    if receiving.is_empty() { all } else { receiving }
}
