//! Live traffic by its name.
//!
//! ```text
//! SCHEME:NAME[,key=value]...       af_packet:eth0,queues=4       dpdk:0000:17:00.0,queues=8
//! SCHEME:NAME+NAME[,...]           af_packet:eth0+eth1: the two directions of a network tap, merged
//! ```
//! Out: one [`LiveSource`] per receive queue, each to be read by its own thread. Both directions of
//! a flow are delivered by the same one.

mod af_packet;
pub mod af_xdp;
mod counters;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod interface;
pub mod links;
mod netlink;
mod tap;

use crate::error::Error;
use crate::live_error::{self, LiveError};
use crate::source::LiveSource;
use crate::system;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use tap::{InTurn, Merge, Tap};

/// One source per receive queue.
type Queues = Vec<Box<dyn LiveSource + Send>>;

/// Schemes of live sources, with the colon.
pub const LIVE_SCHEMES: [&str; 3] = [af_packet::SCHEME, af_xdp::SCHEME, DPDK];
const DPDK: &str = "dpdk:";

/// A live source. Wrong settings are an error when it is checked or opened.
#[derive(Clone, Debug)]
pub struct LiveSpec {
    /// As the user wrote it.
    text: String,
    /// The length without settings.
    short_length: usize,
    devices: Vec<Device>,
    settings: Result<Settings, Arc<LiveError>>,
}

/// An interface of the kernel or a port of DPDK.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    scheme: &'static str,
    /// The name of the interface; for DPDK, the device with its arguments.
    pub name: String,
}

#[derive(Clone, Debug)]
enum Settings {
    AfPacket(af_packet::Settings),
    AfXdp(af_xdp::Settings),
    #[cfg(feature = "dpdk")]
    Dpdk(dpdk::Settings),
}

impl LiveSpec {
    /// The source with other blocks of the receive ring; `None` if it has none, or if the user has set
    /// them.
    pub fn with_blocks(&self, settings: &str) -> Option<Self> {
        let changed = format!("{self},{settings}").parse::<Self>().ok()?;
        matches!(changed.settings, Ok(Settings::AfPacket(_))).then_some(changed)
    }

    /// The source as the user wrote it, without settings.
    pub fn short_name(&self) -> &str {
        &self.text[..self.short_length]
    }

    /// One, or the interfaces of a tap.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Number of queues in the settings; `None` if it is known only when the source is open.
    pub fn requested_queues(&self) -> Option<usize> {
        match &self.settings {
            Ok(Settings::AfPacket(settings)) => Some(settings.queues.into()),
            Ok(Settings::AfXdp(settings)) => settings.queues.map(|(first, last)| (last + 1 - first) as usize),
            #[cfg(feature = "dpdk")]
            Ok(Settings::Dpdk(settings)) => Some(settings.queues.into()),
            Err(_) => (!self.text.starts_with(af_xdp::SCHEME)).then_some(1),
        }
    }

    /// Whether other sources may share its packets: the members of a fanout group. True for wrong
    /// settings.
    pub fn may_share(&self) -> bool {
        match &self.settings {
            Ok(Settings::AfPacket(settings)) => settings.fanout.is_some(),
            Ok(_) => false,
            Err(_) => true,
        }
    }

    /// Whether DPDK reads it, and not the kernel.
    pub fn is_dpdk(&self) -> bool {
        self.text.starts_with(DPDK)
    }

    /// The capabilities that it needs to be opened. Those of DPDK depend on the device.
    pub fn needed_capabilities(&self) -> &'static [&'static str] {
        match &self.settings {
            Ok(Settings::AfPacket(settings)) if settings.hardware => live_error::FOR_TIMESTAMPS,
            Ok(Settings::AfPacket(_)) => live_error::FOR_AF_PACKET,
            Ok(Settings::AfXdp(_)) => live_error::FOR_AF_XDP,
            _ => &[],
        }
    }

    /// Whether it needs AF_XDP in the kernel.
    pub fn is_af_xdp(&self) -> bool {
        self.text.starts_with(af_xdp::SCHEME)
    }

    /// Opens it: one source per receive queue, in the order of their numbers.
    ///
    /// # Errors
    /// [`Error::Live`]: no such interface, no permission, or a wrong setting.
    pub fn open(&self) -> Result<Queues, Error> {
        if (1..self.devices.len()).any(|at| self.devices[..at].contains(&self.devices[at])) {
            return Err(failed(&self.text)(LiveError::DuplicateInterface));
        }
        match self.settings()? {
            Settings::AfPacket(settings) => self
                .open_devices::<_, af_packet::TimeOrder>(|name, interface| af_packet::open(name, interface, settings)),
            Settings::AfXdp(settings) => {
                self.open_devices::<_, InTurn>(|name, interface| af_xdp::open(name, interface, settings))
            }
            #[cfg(feature = "dpdk")]
            Settings::Dpdk(settings) => {
                self.open_devices::<_, InTurn>(|_, _| dpdk::open(settings).map_err(|error| Box::new(error).into()))
            }
        }
    }

    fn settings(&self) -> Result<&Settings, Error> {
        let name = || self.name_of(&self.devices[0]);
        self.settings.as_ref().map_err(|cause| failed(&name())(cause.clone().into()))
    }

    /// Opens each device by its name as a source and its own name, and merges the queues of a tap.
    fn open_devices<Q, M>(&self, open: impl Fn(&str, &str) -> Result<Vec<Q>, LiveError>) -> Result<Queues, Error>
    where
        Q: LiveSource + Send + 'static,
        M: Merge<Q> + 'static,
    {
        let open = |device: &Device| {
            let name = self.name_of(device);
            open(&name, &device.name).map_err(failed(&name))
        };
        let mut opened: Vec<Vec<Q>> = self.devices.iter().map(open).collect::<Result<_, _>>()?;
        if let [queues] = &mut opened[..] {
            return Ok(queues.drain(..).map(|queue| Box::new(queue) as Box<dyn LiveSource + Send>).collect());
        }
        let merged = tap::queue_by_queue(opened).map_err(failed(&self.text))?;
        Ok(merged.into_iter().map(|queues| Box::new(Tap::<Q, M>::new(queues)) as Box<dyn LiveSource + Send>).collect())
    }

    /// One device as a source with these settings.
    fn name_of(&self, device: &Device) -> String {
        format!("{device}{}", &self.text[self.short_length..])
    }

    /// Checks it without opening it: its settings, its interfaces and their queues. The devices of DPDK
    /// are known only to DPDK.
    ///
    /// # Errors
    /// As [`LiveSpec::open`], but no permission is checked.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_dpdk() && cfg!(feature = "dpdk") {
            return Ok(());
        }
        let settings = self.settings()?;
        let check = |device: &Device| match settings {
            Settings::AfPacket(settings) => af_packet::check(&device.name, settings),
            Settings::AfXdp(settings) => af_xdp::check(&device.name, settings),
            #[cfg(feature = "dpdk")]
            Settings::Dpdk(_) => Ok(()),
        };
        self.devices.iter().try_for_each(|device| check(device).map_err(failed(&self.name_of(device))))
    }

    /// Returns whether it can attach to its interfaces again, as far as its settings and interfaces
    /// say; for AF_XDP it also needs memory that may be locked. True if it cannot be opened.
    pub fn can_wait(&self) -> bool {
        match &self.settings {
            Ok(Settings::AfPacket(settings)) => settings.can_wait(),
            Ok(Settings::AfXdp(settings)) => self.devices.iter().all(|device| af_xdp::can_wait(&device.name, settings)),
            _ => !self.is_dpdk(),
        }
    }

    /// Returns the indexes of its interfaces: they change if an interface is removed and another one of
    /// its name appears.
    pub fn interface_indexes(&self) -> Vec<Option<u32>> {
        self.devices.iter().map(|device| system::interface_index(&device.name)).collect()
    }

    /// The loopback interface that it would take away from this host, if there is one.
    pub fn captured_loopback(&self) -> Option<&str> {
        let is_loopback = |device: &&Device| {
            device.scheme == af_xdp::SCHEME
                && system::hardware_type(&device.name).is_ok_and(|kind| kind == libc::ARPHRD_LOOPBACK)
        };
        self.devices.iter().find(is_loopback).map(|device| &*device.name)
    }

    /// Returns a warning to print when it is opened, if it has side effects on the host.
    pub fn notice(&self) -> Option<&'static str> {
        self.text.starts_with(af_xdp::SCHEME).then_some(af_xdp::NOTICE)
    }
}

impl FromStr for LiveSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let scheme = LIVE_SCHEMES.into_iter().find(|scheme| text.starts_with(scheme));
        let scheme = scheme.ok_or_else(|| failed(text)(LiveError::UnknownScheme(&LIVE_SCHEMES)))?;
        let short_length = text.find(',').unwrap_or(text.len());
        let (names, values) = (&text[scheme.len()..short_length], text.get(short_length + 1..));
        // The arguments of a DPDK device may contain any character.
        let names: Vec<&str> = if scheme == DPDK { vec![names] } else { names.split('+').collect() };
        let devices = names.into_iter().map(|name| Device { scheme, name: name.into() }).collect();
        let settings = match scheme {
            af_packet::SCHEME => af_packet::Settings::parse(values).map(Settings::AfPacket).map_err(LiveError::from),
            af_xdp::SCHEME => af_xdp::Settings::parse(values).map(Settings::AfXdp).map_err(LiveError::from),
            #[cfg(feature = "dpdk")]
            _ => dpdk::Settings::parse(&text[DPDK.len()..]).map(Settings::Dpdk).map_err(|error| Box::new(error).into()),
            #[cfg(not(feature = "dpdk"))]
            _ => Err(LiveError::NoDpdk),
        };
        Ok(Self { text: text.into(), short_length, devices, settings: settings.map_err(Arc::new) })
    }
}

impl fmt::Display for LiveSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Device {
    /// Returns whether it is up and has a link; `None` if it does not exist or is not the kernel's.
    pub fn has_link(&self) -> Option<bool> {
        if self.scheme == DPDK { None } else { system::has_link(&self.name).ok() }
    }

    /// Returns whether it exists and is up; true if it is not the kernel's.
    pub fn is_up(&self) -> bool {
        self.scheme == DPDK || system::is_up(&self.name).unwrap_or(false)
    }

    /// Returns whether it is DPDK's device of this name.
    pub fn is_dpdk_device(&self, name: &str) -> bool {
        self.scheme == DPDK && self.name.split(';').next() == Some(name)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.scheme, self.name)
    }
}

fn failed(source: &str) -> impl FnOnce(LiveError) -> Error {
    move |cause| Error::Live { name: source.into(), cause }
}

/// Whether there is an interface of the kernel with this name.
pub fn is_interface(name: &str) -> bool {
    system::interface_index(name).is_some()
}

#[cfg(all(test, not(feature = "dpdk")))]
mod tests {
    use super::*;

    #[test]
    fn build_without_dpdk_says_how_to_get_it() {
        let spec: LiveSpec = "dpdk:net_null0,queues=4".parse().expect("it is live traffic");
        let Err(error) = spec.open() else { panic!("it cannot be opened") };
        let text = error.to_string();
        assert!(text.starts_with("dpdk:net_null0,queues=4: this weir was built without DPDK"), "{text}");
        assert!(text.contains("--features dpdk"), "{text}");
    }
}
