//! What stands behind `dpdk:`, read.
//!
//! ```text
//! DEVICE[,key=value]...
//! 0000:17:00.0,queues=8                              a card by its PCI address
//! net_pcap0;rx_pcap=a.pcap;rx_pcap=b.pcap,queues=2   a virtual device with DPDK's arguments
//! ```
//! DPDK separates arguments by commas, as Weir does its settings: within the device they are written as semicolons.

use crate::BURST;

/// Packet buffers beyond the descriptors that a queue needs at least: those of the burst that was handed over and of one more.
const SPARE: u32 = 2 * BURST as u32;

/// What to open.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// A card: its PCI address, `0000:17:00.0`, and DPDK's arguments behind it.
    Card(String),
    /// A virtual device and DPDK's arguments.
    Virtual(String),
}

impl Device {
    /// As DPDK writes it, with its arguments.
    pub(super) fn arguments(&self) -> &str {
        match self {
            Self::Card(text) | Self::Virtual(text) => text,
        }
    }

    /// Without its arguments.
    pub(super) fn name(&self) -> &str {
        self.arguments().split(',').next().unwrap_or_default()
    }
}

/// How to open it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub device: Device,
    /// Receive queues.
    pub queues: u16,
    /// Descriptors of each queue, if the user has said.
    pub descriptors: Option<u16>,
    /// Packet buffers of each queue, if the user has said.
    mbufs: Option<u32>,
    /// Octets of each packet to hand over at most.
    pub snap: usize,
    /// Memory in huge pages, or not, if the user has said.
    pub huge_pages: Option<bool>,
    /// The processor of DPDK's own threads, if the user has said.
    pub core: Option<u32>,
    /// Hash both directions of a flow to the same queue.
    pub symmetric: bool,
}

impl Settings {
    /// Packet buffers of each queue: twice the descriptors, unless the user has said.
    pub(super) fn mbufs(&self) -> u32 {
        self.mbufs.unwrap_or(2 * u32::from(self.descriptors.unwrap_or(super::DESCRIPTORS)).max(SPARE))
    }

    /// Reads them.
    ///
    /// # Errors
    /// What is wrong, and what there is.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let mut settings = Self {
            device: device(parts.next().unwrap_or_default())?,
            queues: 1,
            descriptors: None,
            mbufs: None,
            snap: usize::MAX,
            huge_pages: None,
            core: None,
            symmetric: true,
        };
        let mut seen: Vec<&str> = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            if seen.contains(&key) {
                return Err(format!("{key} is given twice"));
            }
            seen.push(key);
            match key {
                "queues" => settings.queues = number(key, value, 1, 1024)? as u16,
                "descriptors" => settings.descriptors = Some(number(key, value, 1, 32768)? as u16),
                "mbufs" => settings.mbufs = Some(number(key, value, 1, 1 << 24)?),
                "snap" => settings.snap = number(key, value, 1, u32::MAX)? as usize,
                "hugepages" => settings.huge_pages = Some(switch(key, value)?),
                "core" => settings.core = Some(number(key, value, 0, 1023)?),
                "symmetric" => settings.symmetric = switch(key, value)?,
                _ => {
                    return Err(format!(
                        "{part:?} is no setting: there are queues, descriptors, mbufs, snap, hugepages, core and symmetric, each \
                            with =VALUE; arguments for DPDK stand behind the device, each after a semicolon"
                    ));
                }
            }
        }
        let descriptors = u32::from(settings.descriptors.unwrap_or(super::DESCRIPTORS));
        match settings.mbufs {
            Some(mbufs) if mbufs < descriptors + SPARE => Err(format!(
                "mbufs={mbufs} is too few for descriptors={descriptors}: each descriptor holds one, and {SPARE} more are on their way"
            )),
            _ => Ok(settings),
        }
    }
}

fn device(text: &str) -> Result<Device, String> {
    let name = text.split(';').next().unwrap_or_default();
    if name.is_empty() || name.contains('=') {
        return Err(
            "which device? A PCI address as in dpdk:0000:17:00.0, or a virtual device as in dpdk:net_null0".into()
        );
    }
    let arguments = text.replace(';', ",");
    if is_address(name) {
        // One way to write it, in which the system has it too.
        return Ok(Device::Card(arguments.replacen(name, &name.to_ascii_lowercase(), 1)));
    }
    if name.contains(':') {
        return Err(format!(
            "{name} is no PCI address, which has the form 0000:17:00.0 (domain, bus, device, function)"
        ));
    }
    Ok(Device::Virtual(arguments))
}

/// Domain, bus, device and function: `0000:17:00.0`.
fn is_address(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [4, 2, 2, 1] && parts.iter().all(|part| part.bytes().all(|octet| octet.is_ascii_hexdigit()))
}

fn number(key: &str, value: &str, least: u32, most: u32) -> Result<u32, String> {
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{key}={value}: a number from {least} to {most} is needed"))
}

fn switch(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{key}={value}: on or off is needed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_dpdks_arguments_behind_semicolons_and_settings_behind_commas() {
        let settings = Settings::parse(
            "net_pcap0;rx_pcap=a.pcap;rx_pcap=b=c.pcap,queues=2,snap=96,hugepages=off,core=0,symmetric=off",
        );
        let settings = settings.expect("all of it is known");
        assert_eq!(settings.device, Device::Virtual("net_pcap0,rx_pcap=a.pcap,rx_pcap=b=c.pcap".into()));
        let numbers = (settings.queues, settings.snap, settings.huge_pages, settings.core, settings.symmetric);
        assert_eq!(numbers, (2, 96, Some(false), Some(0), false));
        assert_eq!(settings.mbufs(), 8192);
        let card = Settings::parse("0000:1A:00.0;x=Y").expect("an address");
        assert_eq!((card.device.arguments(), card.device.name()), ("0000:1a:00.0,x=Y", "0000:1a:00.0"));
        let card = Settings::parse("0000:17:00.0,descriptors=1024,mbufs=1152").expect("just enough");
        assert_eq!((card.device, card.descriptors), (Device::Card("0000:17:00.0".into()), Some(1024)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        for (text, says) in [
            ("", "which device"),
            ("queues=2", "which device"),
            ("17:00.0", "0000:17:00.0"),
            ("net_null0,queue=2", "there are queues,"),
            ("net_null0,rx_pcap=x", "after a semicolon"),
            ("net_null0,queues=0", "a number from 1 to 1024"),
            ("net_null0,queues=many", "a number from 1"),
            ("net_null0,queues", "a number from 1"),
            ("net_null0,hugepages=yes", "on or off"),
            ("net_null0,core=-1", "a number from 0"),
            ("net_null0,snap=64,snap=96", "twice"),
            ("net_null0,descriptors=1024,mbufs=1151", "128 more"),
        ] {
            let error = Settings::parse(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
