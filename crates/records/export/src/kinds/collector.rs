//! `//HOST[:PORT][?NAME=VALUE&...]`: a collector and its settings.

use super::SinkSetting;
use crate::element::MIN_MESSAGE_BYTES;
use crate::element_selection::select_elements;
use crate::profile::PROFILES;
use crate::sink::{Error, ExportOptions, InvalidSink, MAX_MTU, Sink};
use crate::template::{TemplateSettings, TemplateSink, Transport};
use crate::udp::{Collector, UdpOutput};
use std::net::{IpAddr, Ipv6Addr, ToSocketAddrs};
use std::time::Duration;
use weir_fields::Format;

/// Default UDP payload of a datagram, octets. It leaves space for some tunnel headers on an
/// Ethernet path.
const DEFAULT_MTU: usize = 1420;
const DEFAULT_DATAGRAMS_PER_S: u32 = 10_000;

pub(super) const MTU: SinkSetting =
    SinkSetting { name: "mtu", value: "N", default: "1420", effect: "longest UDP payload of a datagram, octets" };
pub(super) const RATE: SinkSetting =
    SinkSetting { name: "rate", value: "N", default: "10000", effect: "datagrams per second; 0 for no limit" };
pub(super) const TEMPLATE: SinkSetting = SinkSetting {
    name: "template",
    value: "NAME",
    default: "basic",
    effect: "IPFIX, NetFlow v9: basic, full, or a profile (weir help collectors)",
};
pub(super) const ELEMENTS: SinkSetting =
    SinkSetting { name: "fields", value: "LIST", default: "", effect: "IPFIX, NetFlow v9: elements of the records" };
pub(super) const REFRESH: SinkSetting = SinkSetting {
    name: "refresh",
    value: "N",
    default: "60",
    effect: "IPFIX, NetFlow v9: seconds after which templates are retransmitted",
};

/// A collector that gets templates.
#[derive(Debug)]
pub(super) struct TemplateCollector {
    format: Format,
    collector: Collector,
    templates: TemplateSettings,
}

impl TemplateCollector {
    pub fn parse(rest: &str, default_port: u16, format: Format) -> Result<Self, InvalidSink> {
        let (collector, templates) = parse_collector(rest, default_port, Some(format))?;
        Ok(Self { format, collector, templates: templates.unwrap_or(TemplateSettings::COLLECTOR) })
    }
}

impl super::Destination for TemplateCollector {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let udp = Transport::Udp(connect(&self.collector, name, MIN_MESSAGE_BYTES, options)?);
        Ok(Box::new(TemplateSink::new(name, self.format, self.templates.clone(), udp, options)?))
    }

    fn check(&self, name: &str, _: &ExportOptions) -> Result<(), Error> {
        resolve(&self.collector, name)
    }

    fn collector(&self) -> Option<String> {
        Some(self.collector.address())
    }
}

pub(super) fn connect(
    collector: &Collector,
    name: &str,
    min_payload: usize,
    options: &ExportOptions,
) -> Result<UdpOutput, Error> {
    let udp = UdpOutput::open(name, collector.clone(), min_payload, options.retries, options.attempts);
    udp.map_err(|error| Error::Io { sink: name.into(), error })
}

/// Resolves the name of a collector. May wait for a name server.
pub(super) fn resolve(collector: &Collector, name: &str) -> Result<(), Error> {
    let addresses = (collector.host.as_str(), collector.port).to_socket_addrs();
    addresses.map(drop).map_err(|error| Error::Io { sink: name.into(), error })
}

/// Parses `//HOST[:PORT][?NAME=VALUE&...]`. An IPv6 address has brackets. The template settings are
/// `None` if the text has none. `format`: that of the templates, if there are any.
pub(super) fn parse_collector(
    rest: &str,
    default_port: u16,
    format: Option<Format>,
) -> Result<(Collector, Option<TemplateSettings>), InvalidSink> {
    let (host, port, settings) = parse_endpoint(rest, Some(default_port))?;
    let mut templates: Option<TemplateSettings> = None;
    let mut collector = Collector { host: host.into(), port, mtu: DEFAULT_MTU, rate: DEFAULT_DATAGRAMS_PER_S };
    for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
        match setting.split_once('=') {
            Some(("mtu", octets)) => match octets.parse() {
                Ok(number) if (MIN_MESSAGE_BYTES..=MAX_MTU).contains(&number) => collector.mtu = number,
                _ => return Err(InvalidSink::Mtu(octets.into())),
            },
            Some(("rate", rate)) => {
                collector.rate = rate.parse().map_err(|_| InvalidSink::Rate(rate.into()))?;
            }
            Some((name, value)) if parse_template_setting(name, value, format, &mut templates)? => {}
            _ => return Err(InvalidSink::Setting(setting.into())),
        }
    }
    templates.iter().try_for_each(TemplateSettings::check)?;
    Ok((collector, templates))
}

/// Parses `//HOST[:PORT][?SETTINGS]`: host, port and settings.
pub(super) fn parse_endpoint(rest: &str, default_port: Option<u16>) -> Result<(&str, u16, &str), InvalidSink> {
    let text = rest.strip_prefix("//").ok_or(InvalidSink::Syntax("//HOST:PORT must follow the scheme"))?;
    let (endpoint, settings) = text.split_once('?').unwrap_or((text, ""));
    let (host, port) = parse_host(endpoint, default_port)?;
    Ok((host, port, settings))
}

/// Parses `HOST[:PORT]`.
pub(super) fn parse_host(endpoint: &str, default_port: Option<u16>) -> Result<(&str, u16), InvalidSink> {
    // It is not repeated.
    if endpoint.contains('@') {
        return Err(InvalidSink::Syntax("a host has no user and no password in front of it"));
    }
    let (host, port) = split_port(endpoint)?;
    if host.is_empty() {
        return Err(InvalidSink::Syntax("the host is missing after //"));
    }
    if host.contains('/') || port.is_some_and(|port| port.contains('/')) {
        return Err(InvalidSink::Syntax("only ?NAME=VALUE&... may follow host and port"));
    }
    if host.parse::<IpAddr>().is_err() && !is_host_name(host) {
        return Err(InvalidSink::Host(host.into()));
    }
    let port = match port {
        None => default_port.ok_or(InvalidSink::Syntax("the port is missing: //HOST:PORT"))?,
        Some(port) => match port.parse() {
            Ok(number) if number > 0 => number,
            _ => return Err(InvalidSink::Port(port.into())),
        },
    };
    Ok((host, port))
}

/// Adds a setting of templates. Returns whether it is one. `format`: as for [`parse_collector`].
pub(super) fn parse_template_setting(
    name: &str,
    value: &str,
    format: Option<Format>,
    templates: &mut Option<TemplateSettings>,
) -> Result<bool, InvalidSink> {
    if ![TEMPLATE.name, ELEMENTS.name, REFRESH.name].contains(&name) {
        return Ok(false);
    }
    let templates = templates.get_or_insert(TemplateSettings::COLLECTOR);
    match name {
        "template" => {
            let profile = PROFILES.iter().find(|profile| profile.name == value);
            let profile = profile.ok_or_else(|| InvalidSink::Template(value.into()))?;
            templates.elements.profile = profile;
        }
        "fields" => {
            let list = format.map(|format| select_elements(value, format)).transpose()?;
            templates.elements.list = list.unwrap_or_default();
        }
        _ => {
            let seconds = value.parse().ok().filter(|&seconds| seconds > 0);
            let seconds = seconds.ok_or_else(|| InvalidSink::Refresh(value.into()))?;
            templates.refresh = Duration::from_secs(seconds);
        }
    }
    Ok(true)
}

impl TemplateSettings {
    /// Checks the settings together.
    pub(super) fn check(&self) -> Result<(), InvalidSink> {
        let has_profile = !["basic", "full"].contains(&self.elements.profile.name);
        if !self.elements.list.is_empty() && has_profile {
            return Err(InvalidSink::Syntax(
                "fields= replaces the elements of a profile; use it with template=basic or full",
            ));
        }
        Ok(())
    }
}

/// Splits `HOST[:PORT]`, where an IPv6 address has brackets.
fn split_port(endpoint: &str) -> Result<(&str, Option<&str>), InvalidSink> {
    if let Some(bracketed) = endpoint.strip_prefix('[') {
        let (host, rest) =
            bracketed.split_once(']').ok_or(InvalidSink::Syntax("the bracket of the IPv6 address is not closed"))?;
        let (address, scope) = host.split_once('%').unwrap_or((host, ""));
        let Ok(address) = address.parse::<Ipv6Addr>() else { return Err(InvalidSink::NotIpv6(host.into())) };
        // RFC 4291 section 2.7: the last 4 bits of a multicast prefix are the scope; 1 and 2 are an
        // interface and a link.
        let is_local_multicast = [0xff01, 0xff02].contains(&(address.segments()[0] & 0xff0f));
        if address.is_unicast_link_local() || is_local_multicast || !scope.is_empty() {
            return Err(InvalidSink::LinkLocal(host.into()));
        }
        let after_bracket = InvalidSink::Syntax("after the bracket, :PORT or ?mtu=N must follow");
        return match rest {
            "" => Ok((host, None)),
            rest => Ok((host, Some(rest.strip_prefix(':').ok_or(after_bracket)?))),
        };
    }
    match endpoint.split_once(':') {
        Some((_, port)) if port.contains(':') => Err(InvalidSink::Syntax("an IPv6 address needs brackets: [::1]:4739")),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((endpoint, None)),
    }
}

/// RFC 1123 section 2.1, and underscores. The last label of a name is not a number: that would be an
/// address.
pub(super) fn is_host_name(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !(label.starts_with('-') || label.ends_with('-'))
            && label.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"-_".contains(&octet))
    };
    let last = name.rsplit('.').next().unwrap_or(name);
    name.len() <= 253 && name.split('.').all(is_label) && !last.bytes().all(|octet| octet.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(String, u16, usize, u32), InvalidSink> {
        parse_collector(&format!("//{text}"), 4739, Some(Format::Ipfix)).map(|(c, _)| (c.host, c.port, c.mtu, c.rate))
    }

    #[test]
    fn defaults_of_help_texts_are_those_of_a_collector() {
        let named = [TEMPLATE, REFRESH, MTU, RATE].map(|setting| format!("{}={}", setting.name, setting.default));
        let parsed = |settings: &str| {
            format!("{:?}", TemplateCollector::parse(&format!("//192.0.2.1{settings}"), 1, Format::Ipfix).unwrap())
        };
        assert_eq!(parsed(""), parsed(&format!("?{}", named.join("&"))));
        assert_ne!(parsed(""), parsed("?rate=9999"));
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
        for (text, expected) in [
            ("", "the host is missing"),
            (":4739", "the host is missing"),
            ("host:", "the port must be a number from 1 to 65535, not \"\""),
            ("host:0", "the port must be a number from 1 to 65535, not \"0\""),
            ("host:65536", "the port must be a number from 1 to 65535, not \"65536\""),
            ("host:4739/", "only ?NAME=VALUE&... may follow"),
            ("host/path", "only ?NAME=VALUE&... may follow"),
            ("::1", "an IPv6 address needs brackets"),
            ("192.0.2.300:4739", "\"192.0.2.300\" is neither a host name nor an address"),
            ("two words:4739", "\"two words\" is neither a host name nor an address"),
            ("-host:4739", "\"-host\" is neither a host name nor an address"),
            ("a..b:4739", "\"a..b\" is neither a host name nor an address"),
            ("[::1", "the bracket of the IPv6 address is not closed"),
            ("[::1]4739", "after the bracket"),
            ("[host]:4739", "host is not an IPv6 address"),
            ("host?mtu=1231", "mtu must be a number of octets from 1232 to 65507, not \"1231\""),
            ("host?mtu=65508", "mtu must be a number of octets from 1232 to 65507, not \"65508\""),
            ("host?rate=fast", "rate must be a number of datagrams per second, not \"fast\""),
            ("host?rate=-1", "rate must be a number of datagrams per second, not \"-1\""),
            (
                "host?template=rich",
                "template must be basic, full, nfdump, pmacct, goflow2, akvorado, ntopng, logstash or ipfixcol2, not \"rich\"",
            ),
            ("host?fields=", "there is no field or element \"\" (names: weir help fields)"),
            ("host?fields=octetDeltaCount,", "there is no field or element \"\" (names: weir help fields)"),
            (
                "host?fields=octetDeltacount",
                "there is no field or element \"octetDeltacount\" (did you mean octetDeltaCount?)",
            ),
            ("host?template=pmacct&fields=octetDeltaCount", "fields= replaces the elements of a profile"),
            ("host?refresh=0", "refresh must be a number of seconds from 1, not \"0\""),
            ("host?color=red", "\"color=red\" is not a setting"),
            ("host?mtu", "\"mtu\" is not a setting"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
