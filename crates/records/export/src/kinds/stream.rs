//! Collectors over a connection: `//HOST[:PORT][?NAME=VALUE&...]` over TCP, with TLS or without, or the path of a
//! Unix socket.

use super::SinkSetting;
use super::collector::{parse_endpoint, parse_template_setting};
use super::file::split;
use crate::connection::Peer;
use crate::json_stream::JsonStreamSink;
use crate::rotation::parse_size;
use crate::sink::{Error, ExportOptions, InvalidSink, Sink};
use crate::spooled::SpoolSettings;
use crate::stream::{DEFAULT_BUFFER_BYTES, StreamOutput, StreamSettings};
use crate::template::{TemplateSettings, TemplateSink, Transport};
use crate::tls::{Tls, TlsSettings, is_server_name};
use crate::waiting::READ_AHEAD_BYTES;
use std::io;
use std::path::Path;
use std::time::Duration;
use weir_fields::{Column, Format, select_columns};
use weir_text::units::parse_duration;

pub(super) const BUFFER: SinkSetting = SinkSetting {
    name: "buffer",
    value: "16MiB",
    default: "16MiB",
    effect: "connections: memory for records that wait for the collector, from 64KiB",
};

pub(super) const RETRY: SinkSetting = SinkSetting {
    name: "retry",
    value: "1m",
    default: "",
    effect: "connections: longest time from one attempt to connect to the next, from 1s to 1d",
};
pub(super) const CA: SinkSetting = SinkSetting {
    name: "ca",
    value: "FILE",
    default: "",
    effect: "TLS: PEM file with the CA of the collector, in place of those of the system",
};
pub(super) const NAME: SinkSetting = SinkSetting {
    name: "name",
    value: "SERVERNAME",
    default: "",
    effect: "TLS: the name in the certificate of the collector, in place of HOST",
};
pub(super) const CERTIFICATE: SinkSetting =
    SinkSetting { name: "cert", value: "FILE", default: "", effect: "TLS: PEM file with the client certificate" };
pub(super) const KEY: SinkSetting =
    SinkSetting { name: "key", value: "FILE", default: "", effect: "TLS: PEM file with the key of cert=" };

const RETRY_TIMES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(86_400)];

/// A collector of IPFIX over TCP.
#[derive(Debug)]
pub(super) struct TcpCollector {
    stream: StreamSettings,
    templates: TemplateSettings,
}

impl TcpCollector {
    pub fn parse(rest: &str, default_port: u16, is_tls: bool) -> Result<Self, InvalidSink> {
        let (host, port, settings) = parse_endpoint(rest, Some(default_port))?;
        let mut stream = StreamSettings::tcp(host, port, is_tls);
        let mut templates = None;
        for (name, value) in each(settings) {
            let is_known = stream.set(name, value)?
                || (name != "refresh" && parse_template_setting(name, value, Some(Format::Ipfix), &mut templates)?);
            if !is_known {
                return Err(InvalidSink::TcpSetting { setting: shown(name, value), of_tls: of_tls(is_tls) });
            }
        }
        let templates = templates.unwrap_or(TemplateSettings::COLLECTOR);
        templates.check()?;
        stream.check_settings()?;
        Ok(Self { stream, templates })
    }
}

impl super::Destination for TcpCollector {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let stream = Transport::Stream(Box::new(self.stream.open("ipfix", name, options)?));
        Ok(Box::new(TemplateSink::new(name, Format::Ipfix, self.templates.clone(), stream, options)?))
    }

    fn check(&self, name: &str, options: &ExportOptions) -> Result<(), Error> {
        self.stream.check("ipfix", name, options)
    }

    fn stream(&self) -> Option<(&'static str, &StreamSettings)> {
        Some(("ipfix", &self.stream))
    }
}

/// A collector of JSON over TCP or a Unix socket.
#[derive(Debug)]
pub(super) struct JsonCollector {
    stream: StreamSettings,
    columns: Option<Vec<&'static Column>>,
}

impl JsonCollector {
    pub fn parse_tcp(rest: &str, is_tls: bool) -> Result<Self, InvalidSink> {
        let (host, port, settings) = parse_endpoint(rest, None)?;
        Self::parse(StreamSettings::tcp(host, port, is_tls), settings)
    }

    pub fn parse_unix(text: &str) -> Result<Self, InvalidSink> {
        match split(text) {
            ("", _) => Err(InvalidSink::Syntax("the path of the Unix socket is missing")),
            (path, settings) => Self::parse(StreamSettings::of(Peer::Unix(path.into()), None), settings),
        }
    }

    fn parse(mut stream: StreamSettings, settings: &str) -> Result<Self, InvalidSink> {
        let mut columns = None;
        for (name, value) in each(settings) {
            match name {
                "fields" => columns = Some(select_columns(value)?),
                _ if stream.set(name, value)? => {}
                _ => {
                    let (setting, of_tls) = (shown(name, value), of_tls(stream.tls.is_some()));
                    return Err(InvalidSink::StreamSetting { setting, of_tls });
                }
            }
        }
        stream.check_settings()?;
        Ok(Self { stream, columns })
    }
}

impl super::Destination for JsonCollector {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let columns = self.columns.clone().unwrap_or_else(|| options.columns.clone());
        Ok(Box::new(JsonStreamSink::new(name, self.stream.open("json", name, options)?, columns, options)))
    }

    fn check(&self, name: &str, options: &ExportOptions) -> Result<(), Error> {
        self.stream.check("json", name, options)
    }

    fn stream(&self) -> Option<(&'static str, &StreamSettings)> {
        Some(("json", &self.stream))
    }

    fn columns(&self) -> Option<&[&'static Column]> {
        self.columns.as_deref()
    }
}

impl StreamSettings {
    fn of(peer: Peer, tls: Option<TlsSettings>) -> Self {
        Self { peer, tls, buffer_bytes: DEFAULT_BUFFER_BYTES as usize, retry: None, spool: None }
    }

    pub(super) fn tcp(host: &str, port: u16, is_tls: bool) -> Self {
        Self::of(Peer::Tcp { host: host.into(), port }, is_tls.then(TlsSettings::default))
    }

    /// Returns whether it has this setting.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<bool, InvalidSink> {
        match (name, &mut self.tls) {
            ("buffer", _) => {
                let bytes = parse_size(value).and_then(|bytes| bytes.try_into().ok());
                self.buffer_bytes = bytes.ok_or_else(|| InvalidSink::Buffer(value.into()))?;
            }
            ("retry", _) => {
                let [least, most] = RETRY_TIMES;
                let time = parse_duration(value).ok().map(Duration::from_nanos);
                let time = time.filter(|time| (least..=most).contains(time));
                self.retry = Some(time.ok_or_else(|| InvalidSink::Retry(value.into()))?);
            }
            ("spool" | "limit", _) => SpoolSettings::set(&mut self.spool, name, value)?,
            ("ca" | "cert" | "key", Some(_)) if value.is_empty() => return Err(InvalidSink::NoFile(name.into())),
            ("ca", Some(tls)) => tls.ca = Some(value.into()),
            ("cert", Some(tls)) => tls.certificate = Some(value.into()),
            ("key", Some(tls)) => tls.key = Some(value.into()),
            ("name", Some(tls)) => {
                if !is_server_name(value) {
                    return Err(InvalidSink::ServerName(value.into()));
                }
                tls.name = Some(value.into());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks the settings together.
    pub(super) fn check_settings(&self) -> Result<(), InvalidSink> {
        let has_one = |tls: &TlsSettings| tls.certificate.is_some() != tls.key.is_some();
        if self.tls.as_ref().is_some_and(has_one) {
            let reason = "cert= and key= go together: the client certificate and its key, or neither";
            return Err(InvalidSink::Syntax(reason));
        }
        self.spool.as_ref().map_or(Ok(()), SpoolSettings::check_settings)
    }

    /// Reads the files of TLS.
    fn load_tls(&self) -> io::Result<Option<Tls>> {
        let (Some(settings), Peer::Tcp { host, .. }) = (&self.tls, &self.peer) else { return Ok(None) };
        Tls::load(host, settings).map(Some)
    }

    /// The collector, as spools name it: the format and the other end.
    fn collector(&self, format: &str) -> String {
        match &self.peer {
            Peer::Tcp { host, port } => {
                let carrier = if self.tls.is_some() { "tls" } else { "tcp" };
                format!("{format}+{carrier}://{host}:{port}")
            }
            Peer::Unix(path) => format!("{format}+unix:{}", path.display()),
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.buffer_bytes as u64 + if self.spool.is_some() { READ_AHEAD_BYTES as u64 } else { 0 }
    }

    pub(super) fn spool_folder(&self) -> Option<&Path> {
        self.spool.as_ref().map(|spool| spool.folder.as_path())
    }

    /// Connects, with the files of TLS and the spool of a sink of this format.
    pub(super) fn open(&self, format: &str, name: &str, options: &ExportOptions) -> Result<StreamOutput, Error> {
        let error = |error: io::Error| Error::Io { sink: name.into(), error };
        let tls = self.load_tls().map_err(error)?;
        let spool = self.spool.as_ref().map(|spool| spool.open(name, &self.collector(format), options)).transpose()?;
        StreamOutput::open(name, self.clone(), tls, options, spool).map_err(error)
    }

    pub(super) fn check(&self, format: &str, name: &str, options: &ExportOptions) -> Result<(), Error> {
        self.check_files(format, name, options)?;
        let checked = self.load_tls().and_then(|_| self.peer.addresses());
        checked.map(drop).map_err(|error| Error::Io { sink: name.into(), error })
    }

    pub(super) fn check_files(&self, format: &str, name: &str, options: &ExportOptions) -> Result<(), Error> {
        self.spool.iter().try_for_each(|spool| spool.check(name, &self.collector(format), options))
    }

    pub(super) fn tcp_port(&self) -> Option<u16> {
        if let Peer::Tcp { port, .. } = self.peer { Some(port) } else { None }
    }
}

/// The settings, each with its value.
pub(super) fn each(settings: &str) -> impl Iterator<Item = (&str, &str)> {
    let settings = settings.split('&').filter(|setting| !setting.is_empty());
    settings.map(|setting| setting.split_once('=').unwrap_or((setting, "")))
}

/// A setting as the user wrote it.
pub(super) fn shown(name: &str, value: &str) -> String {
    if value.is_empty() { name.into() } else { format!("{name}={value}") }
}

/// The settings of TLS, for a message.
pub(super) fn of_tls(is_tls: bool) -> &'static str {
    if is_tls { ", ca=FILE, name=SERVERNAME, cert=FILE, key=FILE" } else { "" }
}

#[cfg(test)]
mod tests {
    use crate::sink_spec::SinkSpec;

    #[test]
    fn invalid_connections_are_rejected() {
        for (spec, expected) in [
            ("ipfix+tcp://h?mtu=1400", "\"mtu=1400\" is not a setting of a TCP connection; use template=NAME"),
            ("ipfix+tcp://h?refresh=5", "\"refresh=5\" is not a setting of a TCP connection"),
            ("ipfix+tcp://h?buffer=1", "buffer must be a size from 64KiB, such as 16MiB, not \"1\""),
            ("ipfix+tcp://h?template=pmacct&fields=octetDeltaCount", "fields= replaces the elements of a profile"),
            ("ipfix+tcp://h?ca=a", "\"ca=a\" is not a setting of a TCP connection"),
            ("ipfix+tcp://h?buffer=1MiB&retry=5s&buffer=1MiB", "buffer= is given twice"),
            ("json+tls://h:1?fields=all&fields=tcp", "fields= is given twice"),
            ("ipfix+tcp://h?retry=0", "retry must be a time from 1s to 1d, such as 1m, not \"0\""),
            ("ipfix+tls://h?cert=a", "cert= and key= go together"),
            ("json+tls://h:1?key=a", "cert= and key= go together"),
            ("json+tls://h:1?ca=", "ca= names no file"),
            ("ipfix+tls://h?name=a..b", "name must be a host name or an address, not \"a..b\""),
            ("ipfix+tls://h?colour=red", "\"colour=red\" is not a setting of a TLS connection; use template=NAME"),
            ("ipfix+tcp:h", "//HOST:PORT must follow"),
            ("json+tcp://h", "the port is missing"),
            ("json+tcp://h:1?template=full", "\"template=full\" is not a setting of this sink; use fields=NAME,..."),
            ("json+tcp://h:1?limit=1GiB", "limit= is the size of a spool; add spool=FOLDER"),
            ("json+tcp://h:1?spool=", "the folder of the spool is missing"),
            ("ipfix+tcp://h?spool=a,limit=9k", "limit must be a size from 1MiB, such as 20GiB, not \"9k\""),
            ("json+unix:", "the path of the Unix socket is missing"),
            ("json+unix:a?rotate=5m", "\"rotate=5m\" is not a setting of this sink"),
        ] {
            let error = spec.parse::<SinkSpec>().expect_err(spec).to_string();
            assert!(error.starts_with(&format!("{spec}: {expected}")), "{error}");
        }
    }
}
