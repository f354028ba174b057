//! Looks up a network interface: whether it exists, is Ethernet, and has the requested queues.

use crate::live_error::LiveError;
use crate::system;
use std::fs;

/// An Ethernet interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub name: String,
    /// Interface index.
    pub index: u32,
    /// Number of receive queues.
    pub queues: u32,
}

impl Interface {
    /// Looks an interface up.
    ///
    /// # Errors
    /// It does not exist or is not Ethernet.
    pub fn find(name: &str) -> Result<Self, LiveError> {
        let Some(index) = system::interface_index(name) else {
            return Err(LiveError::NoInterface { name: name.into(), existing: system::interface_names() });
        };
        let query_error = || LiveError::io(format!("query {name}"));
        let hardware_type = system::hardware_type(name).map_err(query_error())?;
        if !matches!(hardware_type, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
            return Err(LiveError::NotEthernet(hardware_type));
        }
        let queues = system::receive_queues(name).map_err(query_error())?;
        Ok(Self { name: name.into(), index, queues: queues.unwrap_or_else(|| listed_queues(name)).max(1) })
    }

    /// Returns the first and the last of the requested queues; without a request, those of all
    /// queues.
    ///
    /// # Errors
    /// The interface has fewer queues.
    pub fn queue_range(&self, requested: Option<(u32, u32)>) -> Result<(u32, u32), LiveError> {
        match requested {
            Some((first, last)) if last >= self.queues => {
                let requested = if first == last { format!("{last}") } else { format!("{first}-{last}") };
                Err(LiveError::NoQueue { name: self.name.clone(), requested, queues: self.queues })
            }
            Some(range) => Ok(range),
            None => Ok((0, self.queues - 1)),
        }
    }
}

/// Number of queues of an interface whose driver does not report it.
fn listed_queues(name: &str) -> u32 {
    let Ok(folder) = fs::read_dir(format!("/sys/class/net/{name}/queues")) else { return 1 };
    folder.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-")).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_queues_are_refused_with_the_existing_ones() {
        let interface = Interface { name: "eth0".into(), index: 2, queues: 4 };
        assert_eq!(interface.queue_range(None).unwrap(), (0, 3));
        assert_eq!(interface.queue_range(Some((1, 3))).unwrap(), (1, 3));
        let error = |interface: &Interface, range| interface.queue_range(Some(range)).unwrap_err().to_string();
        assert!(error(&interface, (2, 4)).contains("queues=2-4: eth0 has queues 0-3"));
        assert!(error(&Interface { queues: 1, ..interface }, (1, 1)).contains("only queue 0"));
    }

    #[test]
    fn unknown_interface_is_refused() {
        let error = Interface::find("no-such-one").unwrap_err().to_string();
        assert!(error.contains("no interface 'no-such-one'"), "{error}");
        assert!(Interface::find("").is_err());
        assert_eq!(Interface::find("lo").unwrap().queues, 1);
    }
}
