//! Network interfaces: driver, PCIe slot, receive queues, RSS, offloads and interrupts.

use crate::ethtool::{self, Channels, Reading, RingSize, RssConfig};
use crate::pcie::PcieLink;
use crate::sysroot::Sysroot;
use serde::Serialize;

const NET: &str = "/sys/class/net";
/// From this bit rate on, settings that cost time per packet lose packets.
const FAST_BITS_PER_SECOND: u64 = 10_000_000_000;

/// Offloads that merge received packets: name of the feature and short name for `ethtool -K`.
pub const MERGING_OFFLOADS: [(&str, &str); 5] = [
    ("generic-receive-offload", "gro"),
    ("large-receive-offload", "lro"),
    ("rx-gro-hw", "rx-gro-hw"),
    ("rx-gro-list", "rx-gro-list"),
    ("rx-udp-gro-forwarding", "rx-udp-gro-forwarding"),
];

/// A network interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nic {
    /// Interface name: `eth0`.
    pub name: String,
    /// Whether a device belongs to it. Virtual interfaces (`lo`, `veth`) have none.
    pub physical: bool,
    /// Name of the driver.
    pub driver: Option<String>,
    /// PCI address: `0000:17:00.0`.
    pub pci: Option<String>,
    /// NUMA node of its slot.
    pub node: Option<u32>,
    /// Current speed and width of the PCIe link.
    pub link: Option<PcieLink>,
    /// Largest speed and width that the NIC supports.
    pub link_maximum: Option<PcieLink>,
    /// Mbit/s; `None` if not reported, for example without a cable.
    pub speed_mbps: Option<u64>,
    /// Operational state: `up`, `down` or another.
    pub state: Option<String>,
    /// MTU in octets.
    pub mtu: Option<u32>,
    /// Receive queues of the kernel.
    pub queues: u32,
    /// Receive queues of the NIC.
    pub channels: Reading<Channels>,
    /// Size of its receive rings.
    pub ring: Reading<RingSize>,
    /// Receive-side scaling.
    pub rss: Reading<RssConfig>,
    /// Active offloads that merge received packets.
    pub merging_offloads: Reading<Vec<String>>,
    /// Whether RSS hashes the ports of TCP over IPv4.
    pub hashes_tcp_ports: Reading<bool>,
    /// Whether RSS hashes the ports of UDP over IPv4.
    pub hashes_udp_ports: Reading<bool>,
    /// Interrupts of its receive queues, in order of the queues.
    pub irqs: Vec<Irq>,
}

/// An interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Irq {
    /// Its number.
    pub number: u32,
    /// Its name: `mlx5_comp0@pci:0000:17:00.0`.
    pub name: String,
    /// CPUs that may handle it (`smp_affinity_list`).
    pub affinity: Vec<u32>,
    /// CPUs that do handle it (`effective_affinity_list`); empty if the kernel does not report it.
    pub effective_affinity: Vec<u32>,
}

impl Nic {
    /// Link speed in bits per second.
    pub fn speed_bits_per_second(&self) -> Option<u64> {
        self.speed_mbps?.checked_mul(1_000_000)
    }

    /// Whether the link has at least 10 Gbit/s.
    pub(crate) fn is_fast(&self) -> bool {
        self.speed_bits_per_second().is_some_and(|bits| bits >= FAST_BITS_PER_SECOND)
    }

    /// Number of receive queues in use.
    pub(crate) fn receive_queues(&self) -> u32 {
        self.channels.ok().map_or(self.queues, |channels| channels.current)
    }
}

impl Irq {
    /// CPUs that handle the interrupt, as far as known.
    pub(crate) fn cpus(&self) -> &[u32] {
        if self.effective_affinity.is_empty() { &self.affinity } else { &self.effective_affinity }
    }
}

/// Names of all interfaces.
pub fn names(sysroot: &Sysroot) -> Vec<String> {
    // The bonding driver has a file in this folder.
    sysroot.names(NET).into_iter().filter(|name| name != "bonding_masters").collect()
}

/// Reads an interface. Of virtual interfaces, runs ethtool only for those that the user has
/// `named`: there may be hundreds, for containers.
pub fn read(sysroot: &Sysroot, name: &str, named: bool) -> Nic {
    let folder = format!("{NET}/{name}");
    let pci = sysroot.link(&folder).and_then(|target| pci_address_in(&target));
    let device = pci.as_ref().map(|pci| format!("/sys/bus/pci/devices/{pci}"));
    let attribute = |file: &str| sysroot.text(&format!("{}/{file}", device.as_ref()?));
    let link = |speed, width| PcieLink::parse(&attribute(speed)?, &attribute(width)?);
    let driver = sysroot.link(&format!("{folder}/device/driver"));
    let physical = pci.is_some() || driver.is_some();
    let ethtool = |option: &str, more: &[&str]| match physical || named {
        true => sysroot.ethtool(option, name, more),
        false => Reading::Unavailable { reason: "not read: the interface is virtual".into() },
    };
    let not_reported = "the NIC does not report it";
    let hashes_ports =
        |kind| ethtool("-n", &["rx-flow-hash", kind]).parse(|text| ethtool::hashes_ports(text), not_reported);
    let offloads = MERGING_OFFLOADS.map(|(name, _)| name);
    Nic {
        name: name.into(),
        physical,
        driver: driver.and_then(|path| Some(path.rsplit('/').next()?.to_owned())),
        node: attribute("numa_node").and_then(|node| node.parse().ok()),
        link: link("current_link_speed", "current_link_width"),
        link_maximum: link("max_link_speed", "max_link_width"),
        speed_mbps: sysroot.number(&format!("{folder}/speed")).filter(|speed| *speed > 0 && *speed < 1 << 31),
        state: sysroot.text(&format!("{folder}/operstate")).filter(|state| !state.is_empty()),
        mtu: sysroot.number(&format!("{folder}/mtu")),
        queues: sysroot.names(&format!("{folder}/queues")).iter().filter(|name| name.starts_with("rx-")).count() as u32,
        channels: ethtool("-l", &[]).parse(|text| ethtool::channels(text), not_reported),
        ring: ethtool("-g", &[]).parse(|text| ethtool::ring(text), not_reported),
        rss: ethtool("-x", &[]).parse(|text| ethtool::rss(text), not_reported),
        merging_offloads: ethtool("-k", &[]).parse(
            |text| text.contains("generic-receive-offload").then(|| ethtool::switched_on(text, &offloads)),
            "ethtool does not list the features",
        ),
        hashes_tcp_ports: hashes_ports("tcp4"),
        hashes_udp_ports: hashes_ports("udp4"),
        irqs: irqs(sysroot, device.as_deref()),
        pci,
    }
}

/// The NUMA node of an interface or of a PCI address: `None` if there is no such PCI device,
/// `Some(None)` if the firmware does not report its node.
pub fn node(sysroot: &Sysroot, device: &str) -> Option<Option<u32>> {
    let pci = if is_pci_address(device) {
        device.to_owned()
    } else {
        pci_address_in(&sysroot.link(&format!("{NET}/{device}"))?)?
    };
    Some(sysroot.text(&format!("/sys/bus/pci/devices/{pci}/numa_node")).and_then(|node| node.parse().ok()))
}

/// The PCI address in `../../devices/pci0000:00/0000:00:03.0/virtio2/net/eth0`. An interface on
/// another device of a PCI card, such as a USB controller, has none.
fn pci_address_in(target: &str) -> Option<String> {
    let parts: Vec<&str> = target.split('/').collect();
    let is_nic = |pair: &&[&str]| is_pci_address(pair[0]) && (pair[1] == "net" || pair[1].starts_with("virtio"));
    parts.windows(2).rfind(is_nic).map(|pair| pair[0].to_owned())
}

/// Whether a text looks like `0000:17:00.0`.
fn is_pci_address(text: &str) -> bool {
    let numbers: Vec<&str> = text.split([':', '.']).collect();
    let is_hexadecimal = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    text.len() >= 12 && text.contains('.') && numbers.len() == 4 && numbers.iter().all(is_hexadecimal)
}

/// Interrupts of receive queues, by the names of drivers; all of the NIC if no name matches.
fn irqs(sysroot: &Sysroot, device: Option<&str>) -> Vec<Irq> {
    let Some(device) = device else { return vec![] };
    let mut numbers: Vec<u32> =
        sysroot.names(&format!("{device}/msi_irqs")).iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let irq = |number: u32| {
        let name = sysroot.text(&format!("/sys/kernel/irq/{number}/actions")).filter(|name| !name.is_empty())?;
        let affinity = sysroot.list(&format!("/proc/irq/{number}/smp_affinity_list"))?;
        let effective_affinity = sysroot.list(&format!("/proc/irq/{number}/effective_affinity_list"));
        Some(Irq { number, name, affinity, effective_affinity: effective_affinity.unwrap_or_default() })
    };
    let all: Vec<Irq> = numbers.into_iter().filter_map(irq).collect();
    let is_receive = |irq: &&Irq| {
        let name = irq.name.to_ascii_lowercase();
        ["rx", "comp", "input", "-fp-"].iter().any(|part| name.contains(part))
    };
    let receive: Vec<Irq> = all.iter().filter(is_receive).cloned().collect();
    if receive.is_empty() { all } else { receive }
}
