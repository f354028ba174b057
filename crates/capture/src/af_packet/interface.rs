//! A network interface by its name: whether it is there, up, and of a kind that can be read.

use super::socket::{self, Socket};
use std::io::ErrorKind;

/// LINKTYPE numbers (the tcpdump registry) of Ethernet and raw IP.
pub(super) const ETHERNET: u16 = 1;
const RAW_IP: u16 = 101;
/// Hardware type of devices that carry raw IP over a radio; the system's headers have it, `libc` has not.
const ARPHRD_RAWIP: u16 = 519;

/// An interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    name: String,
    /// Its number.
    pub index: i32,
    /// LINKTYPE number of its frames.
    pub link_type: u16,
    /// Whether all that is sent comes back as received.
    pub is_loopback: bool,
}

impl Interface {
    /// Looks an interface up.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn find(name: &str) -> Result<Self, String> {
        let Some(index) = socket::interface_index(name) else {
            let all = socket::interface_names().join(", ");
            return Err(format!("there is no interface '{name}'; there are: {all}"));
        };
        let about = socket::about_interface(name).map_err(|error| format!("cannot ask about {name}: {error}"))?;
        let link_type = link_type(about.hardware_type).ok_or_else(|| {
            format!(
                "interfaces of its kind (hardware type {}) cannot be read: Ethernet, loopback and IP tunnels can",
                about.hardware_type
            )
        })?;
        if !about.is_up {
            return Err(format!("the interface is down; as root: ip link set dev {name} up"));
        }
        let is_loopback = about.hardware_type == libc::ARPHRD_LOOPBACK;
        Ok(Self { name: name.into(), index, link_type, is_loopback })
    }

    /// Has the card stamp every frame that it receives.
    ///
    /// # Errors
    /// Why it does not, in words.
    pub fn stamp_by_card(&self) -> Result<(), String> {
        let asked = Socket::new().and_then(|socket| socket.stamp_by_card(&self.name));
        asked.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => {
                "timestamps=hardware: not permitted: to set up the card takes CAP_NET_ADMIN, and capturing CAP_NET_RAW".into()
            }
            _ if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE)) => format!(
                "timestamps=hardware: the card does not stamp every frame (ethtool -T {} says what it can); leave it out",
                self.name
            ),
            _ => format!("timestamps=hardware: the card cannot be asked: {error}"),
        })
    }
}

/// LINKTYPE number by hardware type.
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
    fn kinds_of_which_nobody_knows_how_a_frame_begins_are_not_read() {
        assert_eq!([libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].map(link_type), [Some(1); 2]);
        assert_eq!([libc::ARPHRD_NONE, libc::ARPHRD_TUNNEL, ARPHRD_RAWIP].map(link_type), [Some(101); 3]);
        assert_eq!([libc::ARPHRD_IPGRE, libc::ARPHRD_INFINIBAND, libc::ARPHRD_IEEE80211].map(link_type), [None; 3]);
    }

    #[test]
    fn an_interface_that_is_not_there_is_answered_with_those_that_are() {
        let told = Interface::find("weir-none").unwrap_err();
        assert!(told.starts_with("there is no interface 'weir-none'; there are: "), "{told}");
        assert!(told.contains("lo"), "{told}");
        // Longer than a name can be; and none at all.
        assert!(Interface::find("a-name-that-is-longer-than-any").is_err());
        assert!(Interface::find("").is_err());
    }
}
