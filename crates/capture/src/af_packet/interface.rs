//! Looks up a network interface: whether it exists, is up, and has a supported link type.

use crate::live_error::LiveError;
use crate::system;
use std::io::ErrorKind;

/// LINKTYPE numbers (the tcpdump registry) of Ethernet and raw IP.
pub(super) const ETHERNET: u16 = 1;
const RAW_IP: u16 = 101;
/// Hardware type of devices that carry raw IP over a radio link; missing in `libc`.
const ARPHRD_RAWIP: u16 = 519;

/// An interface that is up.
#[derive(Debug)]
pub(super) struct Interface {
    name: String,
    /// Interface index.
    pub index: i32,
    /// LINKTYPE number of its frames.
    pub link_type: u16,
    /// Whether every frame that is sent is received again.
    pub is_loopback: bool,
}

impl Interface {
    /// Looks an interface up.
    ///
    /// # Errors
    /// It does not exist, is down, or has an unsupported hardware type.
    pub fn find(name: &str) -> Result<Self, LiveError> {
        let Some(index) = system::interface_index(name) else {
            return Err(LiveError::NoInterface { name: name.into(), existing: system::interface_names() });
        };
        let query_error = || LiveError::io(format!("query {name}"));
        let hardware_type = system::hardware_type(name).map_err(query_error())?;
        let link_type = link_type(hardware_type).ok_or(LiveError::HardwareType(hardware_type))?;
        if !system::is_up(name).map_err(query_error())? {
            return Err(LiveError::InterfaceDown(name.into()));
        }
        let is_loopback = hardware_type == libc::ARPHRD_LOOPBACK;
        Ok(Self { name: name.into(), index: index as i32, link_type, is_loopback })
    }

    /// Makes the NIC time-stamp every frame that it receives.
    ///
    /// # Errors
    /// Not permitted, or the NIC cannot do it.
    pub fn enable_hardware_timestamps(&self) -> Result<(), LiveError> {
        system::enable_hardware_timestamps(&self.name).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => LiveError::TimestampPermission,
            _ if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE)) => {
                LiveError::HardwareTimestamps(self.name.clone())
            }
            _ => LiveError::Io { action: "configure the NIC for timestamps=hardware".into(), error },
        })
    }
}

/// Returns the LINKTYPE number for a hardware type.
fn link_type(hardware_type: u16) -> Option<u16> {
    match hardware_type {
        libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(ETHERNET),
        libc::ARPHRD_NONE | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 | libc::ARPHRD_SIT | ARPHRD_RAWIP => {
            Some(RAW_IP)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_types_without_known_link_type_are_refused() {
        assert_eq!([libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].map(link_type), [Some(1); 2]);
        assert_eq!([libc::ARPHRD_NONE, libc::ARPHRD_TUNNEL, ARPHRD_RAWIP].map(link_type), [Some(101); 3]);
        assert_eq!([libc::ARPHRD_IPGRE, libc::ARPHRD_INFINIBAND, libc::ARPHRD_IEEE80211].map(link_type), [None; 3]);
    }

    #[test]
    fn unknown_interface_is_refused_with_the_existing_ones() {
        let error = Interface::find("weir-none").unwrap_err().to_string();
        assert!(error.starts_with("there is no interface 'weir-none'; there are: "), "{error}");
        assert!(error.contains("lo"), "{error}");
        // Longer than a name can be, and empty.
        assert!(Interface::find("a-name-that-is-longer-than-any").is_err());
        assert!(Interface::find("").is_err());
    }
}
