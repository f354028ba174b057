//! Settings of a DPDK source.
//!
//! ```text
//! DEVICE[,key=value]...
//! 0000:17:00.0,queues=8                              a NIC by its PCI address
//! net_pcap0;rx_pcap=a.pcap;rx_pcap=b.pcap,queues=2   a virtual device with DPDK's arguments
//! ```
//! DPDK separates arguments by commas, as Weir does its settings, so within the device they are
//! written as semicolons.

use super::error::DpdkError;
use crate::settings::SourceSettings;
use crate::source::MAX_BURST_FRAMES;

const KEYS: &[&str] = &["queues", "descriptors", "mbufs", "snap", "hugepages", "core", "symmetric"];

/// Descriptors of a queue by default: at 10 million packets per second, packets of 0.4 ms.
const DESCRIPTORS: u16 = 4096;
/// Settings that an output has, too.
const OUTPUT_KEYS: &[&str] = &["descriptors", "hugepages", "core"];
/// Descriptors of a transmit queue by default.
const OUTPUT_DESCRIPTORS: u16 = 1024;
/// Packet buffers that a queue needs beyond its descriptors: those of the current burst and of one
/// more.
const SPARE: u32 = 2 * MAX_BURST_FRAMES as u32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// A NIC: its PCI address, `0000:17:00.0`, and DPDK's arguments after it.
    Pci(String),
    /// A virtual device and DPDK's arguments.
    Virtual(String),
}

impl Device {
    /// Name and arguments in DPDK's syntax.
    pub(super) fn arguments(&self) -> &str {
        match self {
            Self::Pci(text) | Self::Virtual(text) => text,
        }
    }

    /// Name without arguments.
    pub(super) fn name(&self) -> &str {
        self.arguments().split(',').next().unwrap_or_default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub device: Device,
    pub queues: u16,
    /// Descriptors of each queue, if given.
    pub descriptors: Option<u16>,
    /// Packet buffers of each queue, if given.
    mbufs: Option<u32>,
    /// Snap length in bytes.
    pub snap: usize,
    /// Whether to use huge pages, if given.
    pub huge_pages: Option<bool>,
    /// Core of DPDK's own threads, if given.
    pub core: Option<u32>,
    /// Both directions of a flow have the same hash.
    pub symmetric: bool,
}

impl Settings {
    pub(super) fn descriptors(&self) -> u16 {
        self.descriptors.unwrap_or(DESCRIPTORS)
    }

    /// Packet buffers of each queue; by default twice the descriptors.
    pub(super) fn mbufs(&self) -> u32 {
        self.mbufs.unwrap_or(2 * u32::from(self.descriptors()).max(SPARE))
    }

    /// Parses `DEVICE[,key=value]...`.
    ///
    /// # Errors
    /// A wrong device or setting.
    pub(crate) fn parse(text: &str) -> Result<Self, DpdkError> {
        Self::parse_keys(text, KEYS)
    }

    /// Parses `DEVICE[,key=value]...` of an output with this number of queues.
    ///
    /// # Errors
    /// As [`Settings::parse`].
    pub(super) fn parse_output(text: &str, queues: u16) -> Result<Self, DpdkError> {
        let settings = Self::parse_keys(text, OUTPUT_KEYS)?;
        Ok(Self { queues, descriptors: settings.descriptors.or(Some(OUTPUT_DESCRIPTORS)), ..settings })
    }

    fn parse_keys(text: &str, keys: &'static [&'static str]) -> Result<Self, DpdkError> {
        let (name, rest) = text.split_once(',').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let device = device(name)?;
        let values = SourceSettings::parse("dpdk", keys, rest)?;
        let on_or_off = [("on", true), ("off", false)];
        let settings = Self {
            device,
            queues: values.number("queues", [1, 1024])?.unwrap_or(1) as u16,
            descriptors: values.number("descriptors", [1, 32768])?.map(|number| number as u16),
            mbufs: values.number("mbufs", [1, 1 << 24])?.map(|number| number as u32),
            snap: values.number("snap", [1, u32::MAX.into()])?.map_or(usize::MAX, |bytes| bytes as usize),
            huge_pages: values.choice("hugepages", &on_or_off)?,
            core: values.number("core", [0, 1023])?.map(|number| number as u32),
            symmetric: values.choice("symmetric", &on_or_off)?.unwrap_or(true),
        };
        let descriptors = u32::from(settings.descriptors());
        match settings.mbufs {
            Some(mbufs) if mbufs < descriptors + SPARE => Err(DpdkError::Mbufs(mbufs, descriptors, SPARE)),
            _ => Ok(settings),
        }
    }
}

fn device(text: &str) -> Result<Device, DpdkError> {
    let name = text.split(';').next().unwrap_or_default();
    if name.is_empty() || name.contains('=') {
        return Err(DpdkError::NoDevice);
    }
    let arguments = text.replace(';', ",");
    if is_pci_address(name) {
        // Lower case, as in sysfs.
        return Ok(Device::Pci(arguments.replacen(name, &name.to_ascii_lowercase(), 1)));
    }
    if name.contains(':') {
        return Err(DpdkError::PciAddress(name.into()));
    }
    Ok(Device::Virtual(arguments))
}

/// Returns whether a name has the form of domain, bus, device and function: `0000:17:00.0`.
fn is_pci_address(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [4, 2, 2, 1] && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_arguments_follow_semicolons_and_settings_follow_commas() {
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
        assert_eq!((card.device, card.descriptors), (Device::Pci("0000:17:00.0".into()), Some(1024)));
    }

    #[test]
    fn wrong_settings_are_refused_with_the_right_ones() {
        for (text, says) in [
            ("", "no device is named"),
            ("queues=2", "no device is named"),
            ("17:00.0", "0000:17:00.0"),
            ("net_null0,queue=2", "its keys are: queues,"),
            ("net_null0,rx_pcap=x", "after a semicolon"),
            ("net_null0,queues=0", "a whole number from 1 to 1024"),
            ("net_null0,queues=many", "a whole number from 1"),
            ("net_null0,queues", "key=value"),
            ("net_null0,hugepages=yes", "on, off"),
            ("net_null0,core=-1", "a whole number from 0"),
            ("net_null0,snap=64,snap=96", "twice"),
            ("net_null0,descriptors=1024,mbufs=1151", "128 more"),
        ] {
            let error = Settings::parse(text).expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
