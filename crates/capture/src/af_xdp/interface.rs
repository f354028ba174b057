//! A network interface by its name: whether it is there, is Ethernet, and has the queues that are asked for.

use crate::system;
use std::fs;

/// An interface that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Queues on which it receives.
    pub queues: u32,
}

impl Interface {
    /// Looks an interface up.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn find(name: &str) -> Result<Self, String> {
        let Some(index) = system::interface_index(name) else {
            return Err(format!("there is no interface '{name}' (ip link lists them)"));
        };
        let kind = system::hardware_type(name).map_err(|error| format!("cannot ask about {name}: {error}"))?;
        if !matches!(kind, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
            return Err(format!(
                "it carries no Ethernet (hardware type {kind}), and af_xdp reads nothing else; af_packet: may read it"
            ));
        }
        let told = system::receiving_queues(name).map_err(|error| format!("cannot ask about {name}: {error}"))?;
        Ok(Self { name: name.into(), index, queues: told.unwrap_or_else(|| listed(name)).max(1) })
    }

    /// The first and the last queue of those that are asked for, which are all if there is no range.
    ///
    /// # Errors
    /// The interface has not as many, in words.
    pub fn range(&self, asked: Option<(u32, u32)>) -> Result<(u32, u32), String> {
        let all = (0, self.queues - 1);
        match asked {
            Some((first, last)) if last > all.1 => {
                let asked = if first == last { format!("{last}") } else { format!("{first}-{last}") };
                let has = if all.1 == 0 { "only queue 0".into() } else { format!("queues 0-{}", all.1) };
                let name = &self.name;
                Err(format!("queues={asked}: {name} has {has}; ethtool -l {name} shows how many it could have"))
            }
            Some(range) => Ok(range),
            None => Ok(all),
        }
    }
}

/// Queues of an interface whose driver does not say how many it has.
fn listed(name: &str) -> u32 {
    let Ok(folder) = fs::read_dir(format!("/sys/class/net/{name}/queues")) else { return 1 };
    folder.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-")).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_that_are_not_there_are_refused_with_those_that_are() {
        let interface = Interface { name: "eth0".into(), index: 2, queues: 4 };
        assert_eq!(interface.range(None), Ok((0, 3)));
        assert_eq!(interface.range(Some((1, 3))), Ok((1, 3)));
        assert!(interface.range(Some((2, 4))).unwrap_err().contains("queues=2-4: eth0 has queues 0-3"));
        let interface = Interface { queues: 1, ..interface };
        assert!(interface.range(Some((1, 1))).unwrap_err().contains("only queue 0"));
    }

    #[test]
    fn no_such_interface_is_told() {
        assert!(Interface::find("no-such-one").unwrap_err().contains("no interface 'no-such-one'"));
        assert!(Interface::find("").is_err());
        assert_eq!(Interface::find("lo").map(|interface| interface.queues), Ok(1));
    }
}
