//! The lists of the screen.

/// What the screen lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Sums by host.
    Hosts,
    /// Sums by source and destination.
    Pairs,
    /// Sums by server and its port.
    Servers,
    /// Sums by application.
    Applications,
    /// Single flows.
    Flows,
    /// Flows that failed.
    Failures,
}

impl List {
    /// All, in the order of their keys.
    pub const ALL: [Self; 6] =
        [Self::Hosts, Self::Pairs, Self::Servers, Self::Applications, Self::Flows, Self::Failures];

    /// What the screen calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Pairs => "pairs",
            Self::Servers => "servers",
            Self::Applications => "applications",
            Self::Flows => "flows",
            Self::Failures => "failures",
        }
    }

    /// The number of its key, from 1.
    pub fn number(self) -> usize {
        Self::ALL.iter().position(|list| *list == self).unwrap_or_default() + 1
    }

    /// The list of a key.
    pub fn of_key(key: char) -> Option<Self> {
        let number = key.to_digit(10)? as usize;
        Self::ALL.get(number.checked_sub(1)?).copied()
    }

    /// The fields of its groups, as `--by`; `None` for single flows.
    pub fn group_fields(self) -> Option<&'static str> {
        match self {
            Self::Hosts => Some("host"),
            Self::Pairs => Some("src_ip,dst_ip"),
            Self::Servers => Some("server_ip,service_port"),
            Self::Applications => Some("application"),
            Self::Flows | Self::Failures => None,
        }
    }
}
