//! Parses the output of ethtool (version 5 and newer).

use serde::Serialize;

/// A value that was read from a program or a NIC, or why it could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Reading<T> {
    /// The value.
    Value(T),
    /// No value.
    Unavailable {
        /// Why there is none.
        #[serde(rename = "unavailable")]
        reason: String,
    },
}

impl<T> Reading<T> {
    /// The value, if there is one.
    pub fn ok(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Unavailable { .. } => None,
        }
    }

    /// Parses the value. `reason` explains why a value cannot be parsed.
    pub(crate) fn parse<U>(self, parse: impl FnOnce(&T) -> Option<U>, reason: &str) -> Reading<U> {
        match self {
            Self::Value(value) => {
                parse(&value).map_or_else(|| Reading::Unavailable { reason: reason.into() }, Reading::Value)
            }
            Self::Unavailable { reason } => Reading::Unavailable { reason },
        }
    }
}

/// Descriptors in the receive ring of each queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RingSize {
    /// Current setting.
    pub current: u32,
    /// Hardware limit.
    pub maximum: u32,
}

/// Number of receive queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Channels {
    /// Current setting.
    pub current: u32,
    /// Hardware limit.
    pub maximum: u32,
    /// Whether ethtool calls them `combined` (with a transmit queue each), else `rx`.
    pub combined: bool,
}

/// How the NIC chooses a receive queue (receive-side scaling).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RssConfig {
    /// The hash key in network byte order; empty if not reported.
    pub key: Vec<u8>,
    /// The indirection table: a queue for each value of the low bits of the hash; empty if not
    /// reported.
    pub table: Vec<u32>,
    /// The active hash function: `toeplitz`, `xor` or `crc32`.
    pub function: Option<String>,
    /// Whether the NIC hashes the XOR of both addresses and of both ports (`symmetric-xor`).
    pub symmetric_input: bool,
}

/// Parses `ethtool -g`.
pub fn ring(text: &str) -> Option<RingSize> {
    let (maximums, current) = sections(text)?;
    Some(RingSize { current: value(current, "RX")?, maximum: value(maximums, "RX")? })
}

/// Parses `ethtool -l`.
pub fn channels(text: &str) -> Option<Channels> {
    let (maximums, current) = sections(text)?;
    let number = |section, name| value(section, name).unwrap_or(0_u32);
    let combined = number(maximums, "Combined") > 0;
    let sum = |section| number(section, "RX").saturating_add(number(section, "Combined"));
    let channels = Channels { current: sum(current), maximum: sum(maximums), combined };
    (channels.current > 0).then_some(channels)
}

/// The sections of the hardware limits and of the current settings.
fn sections(text: &str) -> Option<(&str, &str)> {
    text.split_once("Current hardware settings:")
}

/// The number after a name and a colon.
fn value(section: &str, name: &str) -> Option<u32> {
    let values = section.lines().filter_map(|line| line.trim().split_once(':'));
    values.filter(|(key, _)| *key == name).find_map(|(_, value)| value.trim().parse().ok())
}

/// Parses `ethtool -x`.
pub fn rss(text: &str) -> Option<RssConfig> {
    let mut rss = RssConfig { key: vec![], table: vec![], function: None, symmetric_input: false };
    let mut section = "";
    for line in text.lines().map(str::trim) {
        let (name, rest) = line.split_once(':').unwrap_or((line, ""));
        if ["RSS hash key", "RSS hash function", "RSS input transformation"].contains(&name)
            || name.starts_with("RX flow hash indirection table")
        {
            section = name;
        } else if section == "RSS hash key" && !line.is_empty() {
            let octets = line.split(':').map(|octet| u8::from_str_radix(octet, 16));
            rss.key = octets.collect::<Result<_, _>>().unwrap_or_default();
            section = "";
        } else if section == "RSS hash function" && rest.trim() == "on" {
            rss.function = Some(name.into());
        } else if section == "RSS input transformation" && name == "symmetric-xor" {
            rss.symmetric_input = rest.trim() == "on";
        } else if section.starts_with("RX flow hash") && name.parse::<u32>().is_ok() {
            rss.table.extend(rest.split_whitespace().filter_map(|queue| queue.parse::<u32>().ok()));
        }
    }
    (!rss.key.is_empty() || !rss.table.is_empty()).then_some(rss)
}

/// Parses `ethtool -k`: which of the named features are on and can be switched off.
pub fn switched_on(text: &str, names: &[&str]) -> Vec<String> {
    let features = text.lines().filter_map(|line| line.trim().split_once(':'));
    let on = features.filter(|(name, state)| names.contains(name) && state.trim() == "on");
    on.map(|(name, _)| name.to_owned()).collect()
}

/// Parses `ethtool -n … rx-flow-hash …`: whether ports are hashed; `None` if nothing is hashed.
pub fn hashes_ports(text: &str) -> Option<bool> {
    text.contains("IP SA").then(|| text.contains("src port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_nic_is_parsed() {
        let text = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t8192\nRX Mini:\tn/a\nTX:\t\t8192\n\
                    Current hardware settings:\nRX:\t\t1024\nRX Mini:\tn/a\nTX:\t\t1024\n";
        assert_eq!(ring(text), Some(RingSize { current: 1024, maximum: 8192 }));
        let text = "Channel parameters for eth0:\nPre-set maximums:\nRX:\t\tn/a\nTX:\t\tn/a\nOther:\t\tn/a\n\
                    Combined:\t63\nCurrent hardware settings:\nRX:\t\tn/a\nOther:\t\tn/a\nCombined:\t8\n";
        assert_eq!(channels(text), Some(Channels { current: 8, maximum: 63, combined: true }));
        let text = "RX flow hash indirection table for eth0 with 4 RX ring(s):\n    0:      0     1     2     3\n\
                    \x20   8:      3     3     3     3\nRSS hash key:\n6d:5a:6d:5a\nRSS hash function:\n    toeplitz: on\n\
                    \x20   xor: off\nRSS input transformation:\n    symmetric-xor: on\n";
        let expected = RssConfig {
            key: vec![0x6d, 0x5a, 0x6d, 0x5a],
            table: vec![0, 1, 2, 3, 3, 3, 3, 3],
            function: Some("toeplitz".into()),
            symmetric_input: true,
        };
        assert_eq!(rss(text), Some(expected));
        let text = "Features for eth0:\nrx-checksumming: on\ngeneric-receive-offload: on\nlarge-receive-offload: on [fixed]\n\
                    rx-gro-hw: off\n";
        let names = ["generic-receive-offload", "large-receive-offload", "rx-gro-hw"];
        assert_eq!(switched_on(text, &names), ["generic-receive-offload"]);
        let text = "UDP over IPV4 flows use these fields for computing Hash flow key:\nIP SA\nIP DA\n";
        assert_eq!(hashes_ports(text), Some(false));
        assert_eq!(hashes_ports(&format!("{text}L4 bytes 0 & 1 [TCP/UDP src port]\n")), Some(true));
        assert_eq!(hashes_ports("TCP over IPV4 flows use these fields for computing Hash flow key:\nNone\n"), None);
    }

    #[test]
    fn output_without_values_is_none() {
        // Output of ethtool 6.1 for a virtual NIC without receive-side scaling.
        let text = "RX flow hash indirection table for eth0 with 1 RX ring(s):\nOperation not supported\nRSS hash key:\n\
                    Operation not supported\nRSS hash function:\n    toeplitz: on\n    xor: off\n    crc32: off\n";
        assert_eq!(rss(text), None);
        for text in ["", "\0", "RX:", "Current hardware settings:", "Current hardware settings:\nRX: -1\nCombined: x"] {
            assert_eq!((ring(text), channels(text), rss(text), hashes_ports(text)), (None, None, None, None), "{text}");
        }
    }
}
