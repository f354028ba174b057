//! A sink as the user writes it becomes something that takes records.

use crate::element::SHORTEST_MESSAGE;
use crate::netflow5::Netflow5;
use crate::output::Output;
use crate::sink::{Error, ExportOptions, Sink};
use crate::templated::{FILE_MESSAGE, Templated, Transport, Version};
use crate::text::{Format, Text};
use crate::udp::Datagrams;

/// UDP payload of a datagram, octets, if not said: fits a path with some tunnels in it.
const MTU: usize = 1420;
/// Longest UDP payload over IPv4, octets.
const LONGEST_DATAGRAM: usize = 65_507;
/// Datagrams per second, if not said.
const RATE: u32 = 10_000;

/// Opens a sink: `json:PATH`, `csv:PATH`, `ipfix:PATH` (`-` is standard output), `ipfix+udp://HOST:PORT`,
/// `netflow9+udp://HOST:PORT`, `netflow5+udp://HOST:PORT`. The port may be left out (4739, 2055, 9995). Behind it may
/// stand `?mtu=N` (UDP payload of a datagram, octets, 1420 if not said) and `rate=N` (datagrams per second, 10 000 if not
/// said, 0 for no limit), joined by `&`.
///
/// # Errors
/// A specification that makes no sense, or a file or socket that cannot be opened.
pub fn open(spec: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
    let wrong = |what: &str| Error::Spec { spec: spec.into(), what: what.into() };
    let (scheme, rest) = spec.split_once(':').ok_or_else(|| wrong(SCHEMES))?;
    if let "json" | "csv" | "ipfix" = scheme {
        if rest.is_empty() {
            return Err(wrong("a file name must follow, or - for standard output"));
        }
        return Ok(match scheme {
            "json" => Box::new(Text::create(spec, rest, Format::Json, options)?),
            "csv" => Box::new(Text::create(spec, rest, Format::Csv, options)?),
            _ => {
                let transport = Transport::File(Output::create(spec, rest)?);
                Box::new(Templated::new(spec, Version::Ipfix, transport, FILE_MESSAGE, options))
            }
        });
    }
    let port = match scheme {
        "ipfix+udp" => 4739,
        "netflow9+udp" => 2055,
        "netflow5+udp" => 9995,
        _ => return Err(wrong(SCHEMES)),
    };
    let rest = rest.strip_prefix("//").ok_or_else(|| wrong("//HOST:PORT must follow"))?;
    let collector = Collector::parse(rest, port).map_err(|what| wrong(&what))?;
    let datagrams = Datagrams::connect(&collector.host, collector.port, collector.rate)
        .map_err(|error| Error::Io { sink: spec.into(), error })?;
    Ok(match scheme {
        "netflow5+udp" => Box::new(Netflow5::new(spec, datagrams, collector.mtu, options)),
        _ => {
            let version = if scheme == "ipfix+udp" { Version::Ipfix } else { Version::Netflow9 };
            Box::new(Templated::new(spec, version, Transport::Udp(datagrams), collector.mtu, options))
        }
    })
}

const SCHEMES: &str = "not a sink: json:PATH, csv:PATH, ipfix:PATH, ipfix+udp://HOST:PORT, netflow9+udp://HOST:PORT \
                       and netflow5+udp://HOST:PORT are";

/// Where datagrams go, and how.
#[derive(Debug, PartialEq, Eq)]
struct Collector {
    host: String,
    port: u16,
    mtu: usize,
    rate: u32,
}

impl Collector {
    /// Reads `HOST[:PORT][?mtu=N&rate=N]`; an IPv6 address stands in brackets.
    fn parse(text: &str, default_port: u16) -> Result<Self, String> {
        let (place, settings) = text.split_once('?').unwrap_or((text, ""));
        let (host, port) = match place.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed.split_once(']').ok_or("the bracket of the address is not closed")?;
                if host.parse::<std::net::Ipv6Addr>().is_err() {
                    return Err(format!("{host} is not an IPv6 address"));
                }
                (
                    host,
                    if port.is_empty() {
                        None
                    } else {
                        Some(port.strip_prefix(':').ok_or("a colon and the port must follow the bracket")?)
                    },
                )
            }
            None => match place.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err("an IPv6 address stands in brackets: [::1]:4739".into());
                }
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        if host.is_empty() {
            return Err("a host must follow //".into());
        }
        if host.contains('/') || port.is_some_and(|port| port.contains('/')) {
            return Err("nothing may follow the port but ?mtu=N&rate=N".into());
        }
        let port = match port {
            None => default_port,
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => port,
                _ => return Err(format!("the port must be a number from 1 to 65535, not {port:?}")),
            },
        };
        let mut collector = Self { host: host.into(), port, mtu: MTU, rate: RATE };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some(("mtu", octets)) => match octets.parse() {
                    Ok(octets) if (SHORTEST_MESSAGE..=LONGEST_DATAGRAM).contains(&octets) => collector.mtu = octets,
                    _ => {
                        return Err(format!(
                            "mtu must be a number from {SHORTEST_MESSAGE} to {LONGEST_DATAGRAM}, not {octets:?}"
                        ));
                    }
                },
                Some(("rate", number)) => match number.parse() {
                    Ok(number) => collector.rate = number,
                    Err(_) => return Err(format!("rate must be a number of datagrams per second, not {number:?}")),
                },
                _ => return Err(format!("{setting:?} is not a setting: mtu=N and rate=N are")),
            }
        }
        Ok(collector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(String, u16, usize, u32), String> {
        Collector::parse(text, 4739).map(|c| (c.host, c.port, c.mtu, c.rate))
    }

    #[test]
    fn collectors_are_read_as_they_are_written() {
        assert_eq!(parse("host"), Ok(("host".into(), 4739, 1420, 10_000)));
        assert_eq!(parse("192.0.2.1:2055?mtu=9000"), Ok(("192.0.2.1".into(), 2055, 9000, 10_000)));
        assert_eq!(parse("[2001:db8::1]"), Ok(("2001:db8::1".into(), 4739, 1420, 10_000)));
        assert_eq!(parse("[::1]:9?rate=0&mtu=1232"), Ok(("::1".into(), 9, 1232, 0)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = [
            "",
            ":4739",
            "host:",
            "host:0",
            "host:65536",
            "host:4739/",
            "host/path",
            "::1",
            "[::1",
            "[::1]4739",
            "[host]:4739",
            "host?mtu=1231",
            "host?mtu=65508",
            "host?rate=fast",
            "host?rate=-1",
            "host?color=red",
            "host?mtu",
        ];
        for text in wrong {
            assert!(parse(text).is_err(), "{text}");
        }
        for spec in ["", "json", "json:", "xml:file", "ipfix+udp:host", "ipfix+tcp://host:4739", "netflow7+udp://host"]
        {
            let error = open(spec, &ExportOptions::default()).err().expect("no sink");
            assert!(matches!(error, Error::Spec { .. }), "{spec}");
        }
    }
}
