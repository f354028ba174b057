//! The syntax of collectors in sinks: `HOST[:PORT][?mtu=N&rate=N]`. `open.rs` knows the schemes.

use crate::element::MIN_MESSAGE_BYTES;
use std::net::Ipv6Addr;

/// Default UDP payload of a datagram, octets. It leaves space for some tunnel headers on an
/// Ethernet path.
const DEFAULT_MTU: usize = 1420;
/// Longest UDP payload over IPv4, octets.
const MAX_MTU: usize = 65_507;
/// Default number of datagrams per second.
const DEFAULT_RATE: u32 = 10_000;

/// Destination and limits of datagrams.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Collector {
    pub host: String,
    pub port: u16,
    /// Longest UDP payload, octets.
    pub mtu: usize,
    /// Datagrams per second; 0 for no limit.
    pub rate: u32,
}

/// Why a sink specification is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSink {
    /// The scheme is missing or unknown.
    #[error(
        "not a sink; use json:PATH, csv:PATH, ipfix:PATH, ipfix+udp://HOST:PORT, netflow9+udp://HOST:PORT \
         or netflow5+udp://HOST:PORT"
    )]
    Scheme,
    /// A file scheme has no path.
    #[error("the file name is missing; use - for standard output")]
    NoPath,
    /// A collector scheme is not followed by `//`.
    #[error("//HOST:PORT must follow the scheme")]
    NoSlashes,
    /// The host is empty.
    #[error("the host is missing after //")]
    NoHost,
    /// An opening bracket has no closing one.
    #[error("the bracket of the IPv6 address is not closed")]
    OpenBracket,
    /// The text in brackets is not an address.
    #[error("{0} is not an IPv6 address")]
    NotIpv6(String),
    /// Something other than `:PORT` follows the closing bracket.
    #[error("after the bracket, :PORT or ?mtu=N&rate=N must follow")]
    AfterBracket,
    /// An IPv6 address has no brackets.
    #[error("an IPv6 address needs brackets: [::1]:4739")]
    NoBrackets,
    /// A path follows host or port.
    #[error("only ?mtu=N&rate=N may follow host and port")]
    Path,
    /// The port is not a number, or 0.
    #[error("the port must be a number from 1 to 65535, not {0:?}")]
    Port(String),
    /// The MTU is not a number, or out of range.
    #[error("mtu must be a number of octets from {MIN_MESSAGE_BYTES} to {MAX_MTU}, not {0:?}")]
    Mtu(String),
    /// The rate is not a number.
    #[error("rate must be a number of datagrams per second, not {0:?}")]
    Rate(String),
    /// The setting is unknown.
    #[error("{0:?} is not a setting; use mtu=N and rate=N")]
    Setting(String),
}

impl Collector {
    /// Parses `HOST[:PORT][?mtu=N&rate=N]`. An IPv6 address has brackets.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, InvalidSink> {
        let (endpoint, settings) = text.split_once('?').unwrap_or((text, ""));
        let (host, port) = split_port(endpoint)?;
        if host.is_empty() {
            return Err(InvalidSink::NoHost);
        }
        if host.contains('/') || port.is_some_and(|port| port.contains('/')) {
            return Err(InvalidSink::Path);
        }
        let port = match port {
            None => default_port,
            Some(port) => match port.parse() {
                Ok(number) if number > 0 => number,
                _ => return Err(InvalidSink::Port(port.into())),
            },
        };
        let mut collector = Self { host: host.into(), port, mtu: DEFAULT_MTU, rate: DEFAULT_RATE };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some(("mtu", octets)) => match octets.parse() {
                    Ok(number) if (MIN_MESSAGE_BYTES..=MAX_MTU).contains(&number) => collector.mtu = number,
                    _ => return Err(InvalidSink::Mtu(octets.into())),
                },
                Some(("rate", rate)) => {
                    collector.rate = rate.parse().map_err(|_| InvalidSink::Rate(rate.into()))?;
                }
                _ => return Err(InvalidSink::Setting(setting.into())),
            }
        }
        Ok(collector)
    }
}

/// Splits `HOST[:PORT]`, where an IPv6 address has brackets.
fn split_port(endpoint: &str) -> Result<(&str, Option<&str>), InvalidSink> {
    if let Some(bracketed) = endpoint.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']').ok_or(InvalidSink::OpenBracket)?;
        if host.parse::<Ipv6Addr>().is_err() {
            return Err(InvalidSink::NotIpv6(host.into()));
        }
        return match rest {
            "" => Ok((host, None)),
            rest => Ok((host, Some(rest.strip_prefix(':').ok_or(InvalidSink::AfterBracket)?))),
        };
    }
    match endpoint.split_once(':') {
        Some((_, port)) if port.contains(':') => Err(InvalidSink::NoBrackets),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((endpoint, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(String, u16, usize, u32), InvalidSink> {
        Collector::parse(text, 4739).map(|c| (c.host, c.port, c.mtu, c.rate))
    }

    #[test]
    fn collectors_are_parsed() {
        assert_eq!(parse("host"), Ok(("host".into(), 4739, 1420, 10_000)));
        assert_eq!(parse("192.0.2.1:2055?mtu=9000"), Ok(("192.0.2.1".into(), 2055, 9000, 10_000)));
        assert_eq!(parse("[2001:db8::1]"), Ok(("2001:db8::1".into(), 4739, 1420, 10_000)));
        assert_eq!(parse("[::1]:9?rate=0&mtu=1232"), Ok(("::1".into(), 9, 1232, 0)));
    }

    #[test]
    fn invalid_collectors_are_rejected() {
        use InvalidSink::*;
        for (text, expected) in [
            ("", NoHost),
            (":4739", NoHost),
            ("host:", Port("".into())),
            ("host:0", Port("0".into())),
            ("host:65536", Port("65536".into())),
            ("host:4739/", Path),
            ("host/path", Path),
            ("::1", NoBrackets),
            ("[::1", OpenBracket),
            ("[::1]4739", AfterBracket),
            ("[host]:4739", NotIpv6("host".into())),
            ("host?mtu=1231", Mtu("1231".into())),
            ("host?mtu=65508", Mtu("65508".into())),
            ("host?rate=fast", Rate("fast".into())),
            ("host?rate=-1", Rate("-1".into())),
            ("host?color=red", Setting("color=red".into())),
            ("host?mtu", Setting("mtu".into())),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
    }
}
