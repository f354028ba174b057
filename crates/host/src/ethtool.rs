//! What ethtool says of a NIC, taken from its text (version 5 and newer).

use serde::Serialize;

/// Something that a program or a NIC was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Reading<T> {
    /// The value that was read.
    Value(T),
    /// No value.
    Unavailable {
        /// Why there is none.
        #[serde(rename = "unavailable")]
        reason: String,
    },
}

impl<T> Reading<T> {
    /// The answer, if there is one.
    pub fn ok(&self) -> Option<&T> {
        match self {
            Self::Value(answer) => Some(answer),
            Self::Unavailable { .. } => None,
        }
    }

    /// Another answer from this one; `silent` if there is nothing in it.
    pub(crate) fn and<U>(self, read: impl FnOnce(&T) -> Option<U>, silent: &str) -> Reading<U> {
        match self {
            Self::Value(answer) => {
                read(&answer).map_or_else(|| Reading::Unavailable { reason: silent.into() }, Reading::Value)
            }
            Self::Unavailable { reason } => Reading::Unavailable { reason },
        }
    }
}

/// Descriptors of the receive ring of each queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RingSize {
    /// Now.
    pub current: u32,
    /// At most.
    pub maximum: u32,
}

/// Receive queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Channels {
    /// Now.
    pub current: u32,
    /// At most.
    pub maximum: u32,
    /// Whether ethtool calls them `combined` (with a transmit queue each), else `rx`.
    pub combined: bool,
}

/// How the NIC chooses a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RssConfig {
    /// The key, in the order of the wire; empty if the NIC does not tell.
    pub key: Vec<u8>,
    /// The queue of each value of the hash's low bits; empty if the NIC does not tell.
    pub table: Vec<u32>,
    /// The function that is on: `toeplitz`, `xor`, `crc32`.
    pub function: Option<String>,
    /// Whether the NIC joins both addresses, and both ports, before it hashes (`symmetric-xor`).
    pub symmetric_input: bool,
}

/// `ethtool -g`.
pub fn ring(text: &str) -> Option<RingSize> {
    let (maximums, current) = sections(text)?;
    Some(RingSize { current: value(current, "RX")?, maximum: value(maximums, "RX")? })
}

/// `ethtool -l`.
pub fn channels(text: &str) -> Option<Channels> {
    let (maximums, current) = sections(text)?;
    let of = |section, name| value(section, name).unwrap_or(0_u32);
    let combined = of(maximums, "Combined") > 0;
    let all = |section| of(section, "RX").saturating_add(of(section, "Combined"));
    let channels = Channels { current: all(current), maximum: all(maximums), combined };
    (channels.current > 0).then_some(channels)
}

/// What a NIC can at most, and what it is set to.
fn sections(text: &str) -> Option<(&str, &str)> {
    text.split_once("Current hardware settings:")
}

/// A number behind a name.
fn value(section: &str, name: &str) -> Option<u32> {
    let values = section.lines().filter_map(|line| line.trim().split_once(':'));
    values.filter(|(key, _)| *key == name).find_map(|(_, value)| crate::lists::number(value))
}

/// `ethtool -x`.
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

/// `ethtool -k`: the features that are on and can be switched off, of those that are asked for.
pub fn switched_on(text: &str, names: &[&str]) -> Vec<String> {
    let features = text.lines().filter_map(|line| line.trim().split_once(':'));
    let on = features.filter(|(name, state)| names.contains(name) && state.trim() == "on");
    on.map(|(name, _)| name.to_owned()).collect()
}

/// `ethtool -n … rx-flow-hash …`: whether ports are hashed; `None` if nothing is.
pub fn hashes_ports(text: &str) -> Option<bool> {
    text.contains("IP SA").then(|| text.contains("src port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_card_says_is_understood() {
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
    fn a_card_that_says_nothing_is_not_known() {
        // What ethtool 6.1 says of a virtual NIC without receive-side scaling.
        let text = "RX flow hash indirection table for eth0 with 1 RX ring(s):\nOperation not supported\nRSS hash key:\n\
                    Operation not supported\nRSS hash function:\n    toeplitz: on\n    xor: off\n    crc32: off\n";
        assert_eq!(rss(text), None);
        for text in ["", "\0", "RX:", "Current hardware settings:", "Current hardware settings:\nRX: -1\nCombined: x"] {
            assert_eq!((ring(text), channels(text), rss(text), hashes_ports(text)), (None, None, None, None), "{text}");
        }
    }
}
