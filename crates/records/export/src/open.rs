//! Opens a sink from its specification: a scheme, then a path or `//HOST[:PORT][?NAME=VALUE&...]`.

use crate::column::Column;
use crate::columns::select_columns;
use crate::compression::Compression;
use crate::element::{Format, MIN_MESSAGE_BYTES};
use crate::element_selection::select_elements;
use crate::file_output::{FileOutput, check_records, check_rotated};
use crate::file_settings;
use crate::ipfix_file::FileTemplates;
use crate::json_csv::{TextFormat, TextSink, check_text};
use crate::netflow5::{MIN_DATAGRAM_BYTES, Netflow5Sink};
use crate::profile::PROFILES;
use crate::rotation::{RotatedName, RotationSettings};
use crate::sink::{Error, ExportOptions, InvalidSink, MAX_MTU, Sink};
use crate::template::{TemplateSettings, TemplateSink, Transport};
use crate::udp::{Collector, UdpOutput};
use std::fs::File;
use std::net::{IpAddr, Ipv6Addr, ToSocketAddrs};
use std::time::Duration;

/// Default UDP payload of a datagram, octets. It leaves space for some tunnel headers on an
/// Ethernet path.
const DEFAULT_MTU: usize = 1420;
const DEFAULT_DATAGRAMS_PER_S: u32 = 10_000;

/// Opens a sink: `json:PATH`, `csv:PATH`, `ipfix:PATH` (`-` is standard output),
/// `ipfix+udp://HOST:PORT`, `netflow9+udp://HOST:PORT` or `netflow5+udp://HOST:PORT`. The default
/// ports are 4739, 2055 and 9995. Settings may follow after `?`, joined by `&`: `fields=NAME,...`
/// (the columns, or the elements of records; not for NetFlow v5), and for collectors `mtu=N` (UDP
/// payload of a datagram in octets, default 1420), `rate=N` (datagrams per second, default 10 000, 0
/// for no limit), and for IPFIX and NetFlow v9 `template=NAME` (`basic`, the default, `full`, or a
/// profile) and `refresh=N` (seconds after which templates are retransmitted, default 60).
///
/// # Errors
/// The specification is invalid, or the file or socket cannot be opened.
pub fn open(spec: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
    let connect = |collector, min_payload| {
        let udp = UdpOutput::open(spec, collector, min_payload, options.retries, options.attempts);
        udp.map_err(|error| Error::Io { sink: spec.into(), error })
    };
    Ok(match parse(spec).map_err(|invalid| Error::Spec { spec: spec.into(), invalid })? {
        Specification::Text(path, format, columns, rotated) => {
            let columns = columns.unwrap_or_else(|| options.columns.clone());
            Box::new(TextSink::create(spec, path, format, columns, rotated, options)?)
        }
        Specification::IpfixFile(path, templates, rotated) => {
            let mut file_templates = FileTemplates::default();
            let mut read = |compression, file: &File, length| file_templates.read_file(compression, file, length);
            let file = FileOutput::open(spec, path, rotated, options, &mut read)?;
            if file.is_rotated() {
                // These are the templates of files of an earlier run.
                file_templates = FileTemplates::default();
            }
            let mut sink = TemplateSink::new(spec, Format::Ipfix, templates, Transport::File(file), options);
            sink.begin(file_templates);
            Box::new(sink)
        }
        Specification::Templates(format, collector, templates) => {
            let udp = Transport::Udp(connect(collector, MIN_MESSAGE_BYTES)?);
            Box::new(TemplateSink::new(spec, format, templates, udp, options))
        }
        Specification::Netflow5(collector) => {
            Box::new(Netflow5Sink::new(spec, connect(collector, MIN_DATAGRAM_BYTES)?, options))
        }
    })
}

/// Checks the specification of a sink without opening it.
///
/// # Errors
/// The specification is invalid.
pub fn check(spec: &str) -> Result<(), Error> {
    parse(spec).map(drop).map_err(|invalid| Error::Spec { spec: spec.into(), invalid })
}

/// Checks whether [`open`] with [`FileMode::Append`](crate::FileMode::Append) can open the file of a sink, without changing it. A
/// new file is created and removed again. No error for standard output and collectors.
///
/// # Errors
/// The specification is invalid, the file cannot be opened, or it has other content.
pub fn check_output(spec: &str, options: &ExportOptions) -> Result<(), Error> {
    match parse(spec).map_err(|invalid| Error::Spec { spec: spec.into(), invalid })? {
        Specification::Text(.., Some(rotated)) | Specification::IpfixFile(.., Some(rotated)) => {
            check_rotated(spec, &rotated)
        }
        Specification::Text(path, ..) | Specification::IpfixFile(path, ..)
            if file_settings::is_standard_output(path) =>
        {
            Ok(())
        }
        Specification::Text(path, format, columns, None) => {
            check_text(spec, path, format, columns.as_ref().unwrap_or(&options.columns))
        }
        Specification::IpfixFile(path, ..) => {
            let mut templates = FileTemplates::default();
            check_records(spec, path.as_ref(), &mut |compression, file, length| {
                templates.read_file(compression, file, length)
            })
        }
        Specification::Templates(..) | Specification::Netflow5(_) => Ok(()),
    }
}

/// Checks the file name of a sink of another crate.
///
/// # Errors
/// It is not the name of a file.
pub fn check_path(spec: &str) -> Result<(), Error> {
    let (scheme, text) = spec.split_once(':').unwrap_or(("", spec));
    let checked = check_file_name(scheme, file_settings::split(text).0);
    checked.map_err(|invalid| Error::Spec { spec: spec.into(), invalid })
}

/// Whether a sink writes one file after another, so that it opens files while it runs.
pub fn is_rotated(spec: &str) -> bool {
    let settings = spec.split_once(':').map_or("", |(_, text)| file_settings::split(text).1);
    settings.split('&').any(|setting| setting.starts_with("rotate="))
}

/// Resolves the name of a collector. May wait for a name server.
///
/// # Errors
/// The specification is invalid, or the name has no address.
pub fn resolve(spec: &str) -> Result<(), Error> {
    let collector = match parse(spec).map_err(|invalid| Error::Spec { spec: spec.into(), invalid })? {
        Specification::Templates(_, collector, _) | Specification::Netflow5(collector) => collector,
        Specification::Text(..) | Specification::IpfixFile(..) => return Ok(()),
    };
    let addresses = (collector.host.as_str(), collector.port).to_socket_addrs();
    addresses.map(drop).map_err(|error| Error::Io { sink: spec.into(), error })
}

/// Schemes with what follows them.
const FILES: [&str; 4] = ["table:PATH", "json:PATH", "csv:PATH", "ipfix:PATH"];
const COLLECTORS: [&str; 3] = ["ipfix+udp://HOST:PORT", "netflow9+udp://HOST:PORT", "netflow5+udp://HOST:PORT"];
/// Endings of file names, and their schemes.
const ENDINGS: [(&str, &str); 5] =
    [("json", "json"), ("jsonl", "json"), ("ndjson", "json"), ("csv", "csv"), ("ipfix", "ipfix")];

/// A sink as the user wrote it, with its scheme: `csv:flows.csv` for `flows.csv`. What is no sink stays
/// as it is, and [`open`] refuses it.
pub fn full_name(spec: &str) -> String {
    match missing_scheme(spec) {
        Ok(Some(scheme)) => format!("{scheme}:{spec}"),
        _ => spec.into(),
    }
}

/// The scheme of a file name without one, by its ending. `None` if there is a scheme.
fn missing_scheme(spec: &str) -> Result<Option<&'static str>, InvalidSink> {
    let is_scheme = |text: &str| !text.is_empty() && !text.contains(['/', '.']);
    let Some((scheme, rest)) = spec.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        return scheme_of_ending(spec).map(Some).ok_or(InvalidSink::Scheme);
    };
    let is_collector = rest.starts_with("//");
    let of_kind = if is_collector { &COLLECTORS[..] } else { &FILES };
    let has_scheme = |sink: &&str| sink.split(':').next() == Some(scheme);
    // A collector without // is refused for that.
    if of_kind.iter().chain(&COLLECTORS).any(has_scheme) {
        return Ok(None);
    }
    let separator = if is_collector { "://" } else { ":" };
    let file = scheme_of_ending(spec).filter(|_| !is_collector).map(|_| format!("./{spec}"));
    Err(InvalidSink::UnknownScheme { scheme: format!("{scheme}{separator}"), nearest: nearest(scheme, of_kind), file })
}

/// The scheme of a file name, by its ending.
fn scheme_of_ending(spec: &str) -> Option<&'static str> {
    let (path, _) = file_settings::split(spec);
    let plain = path.strip_suffix(".gz").or(path.strip_suffix(".zst")).unwrap_or(path);
    let (_, ending) = plain.rsplit_once('.')?;
    ENDINGS.iter().find(|(known, _)| *known == ending).map(|&(_, scheme)| scheme)
}

/// The sinks whose schemes are most similar to what the user wrote; all if none is similar.
fn nearest(scheme: &str, sinks: &[&'static str]) -> Vec<&'static str> {
    let scheme = scheme.to_ascii_lowercase();
    let similarity = |sink: &&&str| {
        let name = sink.split(':').next().unwrap_or_default();
        // The second one knows transposed letters, the first one beginnings. It finds one or two letters
        // in any name.
        let beginning = Some(strsim::jaro_winkler(name, &scheme)).filter(|&similarity| similarity > 0.82);
        let similarity = strsim::normalized_damerau_levenshtein(name, &scheme).max(beginning.unwrap_or(0.0));
        (similarity * 100.0) as u32
    };
    let highest = sinks.iter().map(|sink| similarity(&sink)).max().filter(|&similarity| similarity > 65).unwrap_or(0);
    sinks.iter().filter(|sink| similarity(sink) + 3 > highest).copied().collect()
}

/// The columns that the settings of a file select, for a format of another crate.
///
/// # Errors
/// The settings are invalid.
pub fn columns_of_file(spec: &str) -> Result<Option<Vec<&'static Column>>, Error> {
    let (_, text) = spec.split_once(':').unwrap_or(("", spec));
    let settings = settings_of_file(file_settings::split(text).1);
    let columns = settings.and_then(|settings| Ok(settings.fields.map(select_columns).transpose()?));
    columns.map_err(|invalid| Error::Spec { spec: spec.into(), invalid })
}

/// A valid specification.
enum Specification<'a> {
    /// Path, format, the columns if they are selected, and rotation.
    Text(&'a str, TextFormat, Option<Vec<&'static Column>>, Option<RotatedName>),
    /// Path, templates and rotation.
    IpfixFile(&'a str, TemplateSettings, Option<RotatedName>),
    Templates(Format, Collector, TemplateSettings),
    Netflow5(Collector),
}

fn parse(spec: &str) -> Result<Specification<'_>, InvalidSink> {
    let (scheme, rest) = match missing_scheme(spec)? {
        Some(scheme) => (scheme, spec),
        None => spec.split_once(':').ok_or(InvalidSink::Scheme)?,
    };
    let no_path = InvalidSink::Syntax("the file name is missing; use - for standard output");
    let file = || match file_settings::split(rest) {
        ("", _) => Err(no_path.clone()),
        (path, settings) => {
            check_file_name(scheme, path)?;
            let FileSettings { fields, rotation } = settings_of_file(settings)?;
            Ok((path, fields, rotation.rotation(path)?))
        }
    };
    let text = |format| {
        let (path, fields, rotated) = file()?;
        Ok(Specification::Text(path, format, fields.map(select_columns).transpose()?, rotated))
    };
    let ipfix_file = || {
        let (path, fields, rotated) = file()?;
        let mut templates = TemplateSettings::FILE;
        if let Some(fields) = fields {
            templates.elements.list = select_elements(fields, Format::Ipfix)?;
        }
        Ok(Specification::IpfixFile(path, templates, rotated))
    };
    let collector = |default_port, format| {
        let endpoint = rest.strip_prefix("//").ok_or(InvalidSink::Syntax("//HOST:PORT must follow the scheme"))?;
        parse_collector(endpoint, default_port, format)
    };
    let templates = |default_port, format| {
        let (collector, templates) = collector(default_port, Some(format))?;
        Ok(Specification::Templates(format, collector, templates.unwrap_or(TemplateSettings::COLLECTOR)))
    };
    match scheme {
        "json" => text(TextFormat::Json),
        "csv" => text(TextFormat::Csv),
        "ipfix" => ipfix_file(),
        "ipfix+udp" => templates(4739, Format::Ipfix),
        "netflow9+udp" => templates(2055, Format::Netflow9),
        "netflow5+udp" => match collector(9995, None)? {
            (collector, None) => Ok(Specification::Netflow5(collector)),
            _ => Err(InvalidSink::Syntax("NetFlow v5 has no templates; remove template=, fields= and refresh=")),
        },
        _ => Err(InvalidSink::Scheme),
    }
}

/// The settings of a file.
#[derive(Default)]
struct FileSettings<'a> {
    /// The selection of fields.
    fields: Option<&'a str>,
    /// When a file ends.
    rotation: RotationSettings,
}

fn settings_of_file(text: &str) -> Result<FileSettings<'_>, InvalidSink> {
    let mut settings = FileSettings::default();
    for setting in text.split('&').filter(|setting| !setting.is_empty()) {
        match setting.split_once('=') {
            Some(("fields", selection)) => settings.fields = Some(selection),
            Some(("rotate", value)) => settings.rotation.add(value)?,
            _ => return Err(InvalidSink::FileSetting(setting.into())),
        }
    }
    Ok(settings)
}

/// Parses `HOST[:PORT][?NAME=VALUE&...]`. An IPv6 address has brackets. The template settings are
/// `None` if the text has none. `format`: that of the templates, if there are any.
fn parse_collector(
    text: &str,
    default_port: u16,
    format: Option<Format>,
) -> Result<(Collector, Option<TemplateSettings>), InvalidSink> {
    let (endpoint, settings) = text.split_once('?').unwrap_or((text, ""));
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
        None => default_port,
        Some(port) => match port.parse() {
            Ok(number) if number > 0 => number,
            _ => return Err(InvalidSink::Port(port.into())),
        },
    };
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
            Some(("template", name)) => {
                let profile = PROFILES.iter().find(|profile| profile.name == name);
                templates.get_or_insert(TemplateSettings::COLLECTOR).elements.profile =
                    profile.ok_or_else(|| InvalidSink::Template(name.into()))?;
            }
            Some(("fields", names)) => {
                let list = format.map(|format| select_elements(names, format)).transpose()?;
                templates.get_or_insert(TemplateSettings::COLLECTOR).elements.list = list.unwrap_or_default();
            }
            Some(("refresh", seconds)) => match seconds.parse() {
                Ok(number) if number > 0 => {
                    templates.get_or_insert(TemplateSettings::COLLECTOR).refresh = Duration::from_secs(number);
                }
                _ => return Err(InvalidSink::Refresh(seconds.into())),
            },
            _ => return Err(InvalidSink::Setting(setting.into())),
        }
    }
    let has_profile = |templates: &TemplateSettings| {
        let elements = &templates.elements;
        !elements.list.is_empty() && !["basic", "full"].contains(&elements.profile.name)
    };
    if templates.as_ref().is_some_and(has_profile) {
        return Err(InvalidSink::Syntax(
            "fields= replaces the elements of a profile; use it with template=basic or full",
        ));
    }
    Ok((collector, templates))
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

/// Endings of compressed files, most of which are not written.
const COMPRESSIONS: [&str; 13] =
    ["gz", "gzip", "tgz", "zst", "zstd", "bz2", "xz", "lzma", "lz4", "br", "z", "zip", "7z"];

/// Checks that a path is not what was meant for a collector, for standard output, or for another
/// compression.
fn check_file_name(scheme: &str, path: &str) -> Result<(), InvalidSink> {
    if is_address(path) {
        return Err(InvalidSink::Address(format!("{scheme}:./{path}")));
    }
    if path.starts_with("-.") && !file_settings::is_standard_output(path) {
        return Err(InvalidSink::Syntax("this is not standard output: use - for it, and -.gz or -.zst compressed"));
    }
    if ["/dev/stdout.", "/dev/stderr.", "/dev/fd/1.", "/dev/fd/2."].iter().any(|device| path.starts_with(device)) {
        return Err(InvalidSink::Syntax("there is no such device; standard output is -, and compressed -.gz or -.zst"));
    }
    let ending = |name: &str| {
        let (stem, ending) = name.rsplit_once('.')?;
        COMPRESSIONS.contains(&ending.to_ascii_lowercase().as_str()).then(|| (stem.to_owned(), ending.to_owned()))
    };
    match ending(path) {
        Some((_, ending)) if Compression::of(path).is_none() => Err(InvalidSink::Compression(ending)),
        Some((stem, _)) if ending(&stem).is_some() => {
            Err(InvalidSink::Syntax("a file is compressed once: end its name with one of .gz and .zst"))
        }
        _ => Ok(()),
    }
}

/// Whether what should be a path is an address, or `HOST:PORT`, whose port may have a typing error.
fn is_address(path: &str) -> bool {
    let is_ip = |text: &str| {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        inner.parse::<IpAddr>().is_ok()
    };
    let (host, port) = path.rsplit_once(':').unwrap_or_default();
    let is_port = port.len() <= 5
        && port.contains(|letter: char| letter.is_ascii_digit())
        && port.bytes().all(|octet| octet.is_ascii_alphanumeric());
    is_ip(path) || (is_ip(host) && !port.contains('.')) || (is_host_name(host) && is_port)
}

/// RFC 1123 section 2.1, and underscores. The last label of a name is not a number: that would be an
/// address.
fn is_host_name(host: &str) -> bool {
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

    #[test]
    fn invalid_sinks_are_rejected() {
        for (spec, expected) in [
            ("", "not a sink"),
            ("json", "not a sink"),
            ("json:", "the file name is missing"),
            ("xml:file", "there is no sink xml:; use table:PATH, json:PATH, csv:PATH or ipfix:PATH"),
            ("flows.txt", "not a sink"),
            ("-", "not a sink"),
            ("cvs:flows", "there is no sink cvs:; use csv:PATH"),
            ("ipfix://127.0.0.1:4739", "there is no sink ipfix://; use ipfix+udp://HOST:PORT"),
            ("netflow://host", "there is no sink netflow://; use netflow9+udp://HOST:PORT or netflow5+udp://HOST:PORT"),
            ("json://host", "there is no sink json://; use ipfix+udp://HOST:PORT, netflow9+udp"),
            ("table://host", "there is no sink table://; use ipfix+udp://HOST:PORT, netflow9+udp"),
            ("ipfix:flows.ipfix?template=basic", "\"template=basic\" is not a setting of a file; use fields=NAME,..."),
            ("csv:f-%H.csv?rotate=0", "rotate must be a time"),
            ("csv:f.csv?rotate=5m", "all files would have this name"),
            ("json:f-%H.json", "%H in the name is the time of a rotated file"),
            ("csv:flows.csv?fields=src_op", "there is no field \"src_op\" (did you mean src_ip?)"),
            ("json:-?fields=x*", "no field matches \"x*\""),
            ("ipfix+udp:host", "//HOST:PORT must follow"),
            (
                "ipfix:127.0.0.1:4739",
                "this is an address; use ipfix+udp://HOST:PORT for a collector, or ipfix:./127.0.0.1:4739 for a file",
            ),
            ("json:[::1]:4739", "this is an address"),
            ("csv:collector.example:2055", "this is an address"),
            ("csv:127.0.0.1:8O80", "this is an address"),
            ("csv:127.0.0.1:99999", "this is an address"),
            ("csv:127.0.0.1:", "this is an address"),
            ("csv:192.0.2.1", "this is an address"),
            ("csv:2001:db8::1", "this is an address"),
            ("csv:host:8o8o", "this is an address"),
            (
                "a:b.csv",
                "there is no sink a:; use table:PATH, json:PATH, csv:PATH or ipfix:PATH, or ./a:b.csv for a file of this name",
            ),
            (
                "ab:c.json.gz",
                "there is no sink ab:; use table:PATH, json:PATH, csv:PATH or ipfix:PATH, or ./ab:c.json.gz",
            ),
            ("CSV:flows", "there is no sink CSV:; use csv:PATH"),
            ("csv:-.bz2", "this is not standard output: use - for it, and -.gz or -.zst compressed"),
            ("csv:-.GZ", "this is not standard output"),
            ("csv:-.gz.zst", "this is not standard output"),
            ("csv:-.csv", "this is not standard output"),
            ("csv:/dev/stdout.gz", "there is no such device; standard output is -"),
            ("csv:flows.csv.bz2", "files are compressed with gzip (.gz) or Zstandard (.zst), not .bz2"),
            ("json:flows.GZ", "files are compressed with gzip (.gz) or Zstandard (.zst), not .GZ"),
            ("flows.csv.gz.zst", "not a sink"),
            ("csv:flows.csv.gz.zst", "a file is compressed once"),
            ("ipfix+tcp://host:4739", "there is no sink ipfix+tcp://; use ipfix+udp://HOST:PORT"),
            ("netflow7+udp://host", "there is no sink netflow7+udp://; use netflow9+udp://HOST:PORT or netflow5"),
        ] {
            let error = open(spec, &ExportOptions::default()).err().expect("the sink is invalid").to_string();
            assert!(error.starts_with(&format!("{spec}: {expected}")), "{error}");
        }
    }

    #[test]
    fn file_names_get_the_scheme_of_their_ending() {
        for (spec, name) in [
            ("flows.csv", "csv:flows.csv"),
            ("/tmp/a:b/flows.json", "json:/tmp/a:b/flows.json"),
            ("./a:b.ipfix", "ipfix:./a:b.ipfix"),
            ("flows.2026.jsonl", "json:flows.2026.jsonl"),
            ("flows.csv.gz", "csv:flows.csv.gz"),
            ("flows.ipfix.zst", "ipfix:flows.ipfix.zst"),
            ("flows.csv.gz?fields=tcp", "csv:flows.csv.gz?fields=tcp"),
            ("flows.gz", "flows.gz"),
            ("flows.txt", "flows.txt"),
            ("json:flows.csv", "json:flows.csv"),
            ("netflow://host", "netflow://host"),
        ] {
            assert_eq!(full_name(spec), name);
        }
    }

    fn parse(text: &str) -> Result<(String, u16, usize, u32), InvalidSink> {
        parse_collector(text, 4739, Some(Format::Ipfix)).map(|(c, _)| (c.host, c.port, c.mtu, c.rate))
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
            ("host?fields=", "there is no field or element \"\" (names: docs/fields.md)"),
            ("host?fields=octetDeltaCount,", "there is no field or element \"\" (names: docs/fields.md)"),
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
