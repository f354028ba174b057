//! A flow as a person writes it, or copies it from a table: `192.0.2.1:4000 → 198.51.100.2:443`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// What may stand between both ends.
const SEPARATORS: [&str; 8] = ["<->", "->", "<-", "↔", "→", "←", "–", "-"];
/// Protocols whose flows have ports.
const WITH_PORTS: [&str; 5] = ["tcp", "udp", "udplite", "sctp", "dccp"];

/// Both ends of a flow, in either order, and its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowText {
    /// Addresses, with ports if the protocol has some.
    pub ends: [(IpAddr, Option<u16>); 2],
    /// The protocol in lower case, if it was written.
    pub protocol: Option<String>,
}

impl FlowText {
    /// Reads a flow: two ends with an arrow or `-` between them, and blanks anywhere around it; the protocol before it
    /// (`udp A → B`, as a row of a table begins) or behind it (`A → B/udp`). Without a protocol, the ends have ports, if
    /// they may have one. IPv6 addresses may be without brackets: what follows the last colon is then the port.
    ///
    /// `None` if the text is no flow, or one end has a port and the other has none.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (before, text) = match text.split_once(char::is_whitespace) {
            Some((word, rest)) if is_protocol(word) => (word, without_type_and_code(rest.trim_start())),
            _ => ("", text),
        };
        let (text, behind) = text.split_once('/').unwrap_or((text, ""));
        let protocol = match (before, behind.trim()) {
            ("", "") => None,
            ("", name) | (name, "") => Some(name.to_ascii_lowercase()),
            _ => return None,
        };
        if protocol.as_deref().is_some_and(|name| !is_protocol(name)) {
            return None;
        }
        let has_ports = protocol.as_deref().is_none_or(|name| WITH_PORTS.contains(&name));
        let separators = SEPARATORS.iter().filter_map(|separator| Some((text.find(separator)?, separator)));
        let (at, separator) = separators.min_by_key(|&(at, separator)| (at, usize::MAX - separator.len()))?;
        let ends = [&text[..at], &text[at + separator.len()..]].map(|end| parse_end(end.trim(), has_ports));
        let [Some(one), Some(other)] = ends else { return None };
        let (has_one_port, of_one_family) =
            (one.1.is_some() != other.1.is_some(), one.0.is_ipv4() == other.0.is_ipv4());
        (of_one_family && !has_one_port).then_some(Self { ends: [one, other], protocol })
    }
}

/// The rest of a row of ICMP: `8/0 A → B`.
fn without_type_and_code(text: &str) -> &str {
    let is_number = |text: &str| text.parse::<u8>().is_ok();
    match text.split_once(char::is_whitespace) {
        Some((word, rest)) if word.split_once('/').is_some_and(|(of, code)| is_number(of) && is_number(code)) => rest,
        _ => text,
    }
}

fn is_protocol(word: &str) -> bool {
    !word.is_empty()
        && word.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-')
        && word.parse::<IpAddr>().is_err()
}

/// An address, with a port if there is one.
fn parse_end(text: &str, has_ports: bool) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(end) = text.parse::<SocketAddr>() {
        return Some((end.ip(), Some(end.port())));
    }
    let with_port = || {
        let (address, port) = text.rsplit_once(':')?;
        Some((address.parse::<Ipv6Addr>().ok()?.into(), Some(port.parse().ok()?)))
    };
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let alone = || Some((inner.parse().ok()?, None));
    if has_ports { with_port().or_else(alone) } else { alone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<String> {
        let FlowText { ends, protocol } = FlowText::parse(text)?;
        let [one, other] = ends.map(|(address, port)| match port {
            Some(port) => SocketAddr::new(address, port).to_string(),
            None => address.to_string(),
        });
        Some(format!("{one} {other} {}", protocol.unwrap_or_default()).trim_end().to_owned())
    }

    #[test]
    fn both_ends_are_read_with_any_arrow_and_with_the_protocol_before_or_behind() {
        for text in [
            "192.0.2.1:4000-198.51.100.2:443",
            "192.0.2.1:4000 → 198.51.100.2:443",
            "  192.0.2.1:4000  →  198.51.100.2:443 ",
            "192.0.2.1:4000→198.51.100.2:443",
            "192.0.2.1:4000 -> 198.51.100.2:443",
            "192.0.2.1:4000->198.51.100.2:443",
            "192.0.2.1:4000 <-> 198.51.100.2:443",
            "192.0.2.1:4000 ← 198.51.100.2:443",
        ] {
            assert_eq!(parsed(text).as_deref(), Some("192.0.2.1:4000 198.51.100.2:443"), "{text}");
        }
        for (text, expected) in [
            ("udp 192.0.2.1:53 → 192.0.2.2:99", "192.0.2.1:53 192.0.2.2:99 udp"),
            ("192.0.2.1:53 → 192.0.2.2:99/UDP", "192.0.2.1:53 192.0.2.2:99 udp"),
            ("192.0.2.1-192.0.2.2/icmp", "192.0.2.1 192.0.2.2 icmp"),
            ("icmp6 128/0 2001:db8::1 → 2001:db8::2", "2001:db8::1 2001:db8::2 icmp6"),
            ("[2001:db8::1]:40000-[2001:db8::2]:53/udp", "[2001:db8::1]:40000 [2001:db8::2]:53 udp"),
            ("2001:db8::1:40000 → 2001:DB8:0::2:53", "[2001:db8::1]:40000 [2001:db8::2]:53"),
            ("2001:db8::1 → 2001:db8::2/esp", "2001:db8::1 2001:db8::2 esp"),
            ("[2001:db8::1] → [2001:db8::2]/50", "2001:db8::1 2001:db8::2 50"),
            ("2001:db8:1:2:3:4:5:6:80-2001:db8:1:2:3:4:5:7:81", "[2001:db8:1:2:3:4:5:6]:80 [2001:db8:1:2:3:4:5:7]:81"),
        ] {
            assert_eq!(parsed(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_flow_is_refused() {
        for text in [
            "",
            "-",
            "x",
            "192.0.2.1:80",
            "192.0.2.1:80-",
            "192.0.2.1:80-192.0.2.2",
            "192.0.2.1:80-[::1]:80",
            "192.0.2.1:80-192.0.2.2:81-192.0.2.3:82",
            "192.0.2.1:80-192.0.2.2:65536",
            "udp 192.0.2.1:1-192.0.2.2:2/tcp",
            "192.0.2.1:1-192.0.2.2:2/t c p",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
