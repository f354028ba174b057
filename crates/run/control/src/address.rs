//! Where the server listens.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Why a text names no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// A port alone with a colon before it: other programs mean all addresses by it.
    #[error("write {0} to listen on loopback only, or 0.0.0.0:{0} to listen on all addresses")]
    PortWithColon(u16),
    /// Neither port nor address.
    #[error("write a port, as in 9477, or an IP address and a port, as in 192.0.2.1:9477 or [2001:db8::1]:9477")]
    Unknown,
}

/// Parses `PORT` (on 127.0.0.1), `ADDRESS:PORT` or `localhost:PORT`.
///
/// # Errors
/// The text is neither.
pub fn parse_address(text: &str) -> Result<SocketAddr, InvalidAddress> {
    let on_loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Err(InvalidAddress::PortWithColon(port));
    }
    let port = text.strip_prefix("localhost:").unwrap_or(text).parse().map(on_loopback);
    port.or_else(|_| text.parse()).map_err(|_| InvalidAddress::Unknown)
}

/// Whether only this machine reaches an address.
pub(crate) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_loopback() {
        for (text, address) in [
            ("9477", "127.0.0.1:9477"),
            ("localhost:9477", "127.0.0.1:9477"),
            ("[::1]:9477", "[::1]:9477"),
            ("0.0.0.0:0", "0.0.0.0:0"),
        ] {
            assert_eq!(parse_address(text).unwrap().to_string(), address);
        }
        assert_eq!(parse_address(":9477"), Err(InvalidAddress::PortWithColon(9477)));
        for text in ["", ":", "127.0.0.1", "::1:9477x", "70000", "probe.example:9477", "localhost:"] {
            assert_eq!(parse_address(text), Err(InvalidAddress::Unknown), "{text}");
        }
    }

    #[test]
    fn loopback_is_all_of_127_and_its_forms_in_ipv6() {
        for (address, expected) in [
            ("127.8.0.1:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
        ] {
            assert_eq!(is_loopback(address.parse().unwrap()), expected, "{address}");
        }
    }
}
