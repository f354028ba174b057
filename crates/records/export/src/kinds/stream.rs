//! Collectors over a connection: `//HOST[:PORT][?NAME=VALUE&...]` over TCP, or the path of a Unix socket.

use super::SinkSetting;
use super::collector::{parse_endpoint, parse_template_setting};
use super::file::split;
use crate::connection::Peer;
use crate::json_stream::JsonStreamSink;
use crate::rotation::parse_size;
use crate::sink::{Error, ExportOptions, InvalidSink, Sink};
use crate::stream::{DEFAULT_BUFFER_BYTES, StreamOutput, StreamSettings};
use crate::template::{TemplateSettings, TemplateSink, Transport};
use std::io;
use weir_fields::{Column, Format, select_columns};

pub(super) const BUFFER: SinkSetting = SinkSetting {
    name: "buffer",
    value: "16MiB",
    default: "16MiB",
    effect: "connections: memory for records that wait for the collector, from 64KiB",
};

/// A collector of IPFIX over TCP.
#[derive(Debug)]
pub(super) struct TcpCollector {
    stream: StreamSettings,
    templates: TemplateSettings,
}

impl TcpCollector {
    pub fn parse(rest: &str, default_port: u16) -> Result<Self, InvalidSink> {
        let (host, port, settings) = parse_endpoint(rest, Some(default_port))?;
        let mut stream = StreamSettings::of(Peer::Tcp { host: host.into(), port });
        let mut templates = None;
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let is_known = stream.set(name, value)?
                || (name != "refresh" && parse_template_setting(name, value, Some(Format::Ipfix), &mut templates)?);
            if !is_known {
                return Err(InvalidSink::TcpSetting(setting.into()));
            }
        }
        let templates = templates.unwrap_or(TemplateSettings::COLLECTOR);
        templates.check()?;
        Ok(Self { stream, templates })
    }
}

impl super::Destination for TcpCollector {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let stream = Transport::Stream(self.stream.open(name, options)?);
        Ok(Box::new(TemplateSink::new(name, Format::Ipfix, self.templates.clone(), stream, options)?))
    }

    fn check(&self, name: &str, _: &ExportOptions) -> Result<(), Error> {
        self.stream.check(name)
    }

    fn tcp_port(&self) -> Option<u16> {
        self.stream.tcp_port()
    }

    fn memory_bytes(&self, _: &[&'static Column], _: bool) -> u64 {
        self.stream.buffer_bytes as u64
    }
}

/// A collector of JSON over TCP or a Unix socket.
#[derive(Debug)]
pub(super) struct JsonCollector {
    stream: StreamSettings,
    columns: Option<Vec<&'static Column>>,
}

impl JsonCollector {
    pub fn parse_tcp(rest: &str) -> Result<Self, InvalidSink> {
        let (host, port, settings) = parse_endpoint(rest, None)?;
        Self::parse(Peer::Tcp { host: host.into(), port }, settings)
    }

    pub fn parse_unix(text: &str) -> Result<Self, InvalidSink> {
        match split(text) {
            ("", _) => Err(InvalidSink::Syntax("the path of the Unix socket is missing")),
            (path, settings) => Self::parse(Peer::Unix(path.into()), settings),
        }
    }

    fn parse(peer: Peer, settings: &str) -> Result<Self, InvalidSink> {
        let (mut stream, mut columns) = (StreamSettings::of(peer), None);
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=').unwrap_or((setting, "")) {
                ("fields", selection) => columns = Some(select_columns(selection)?),
                (name, value) if stream.set(name, value)? => {}
                _ => return Err(InvalidSink::StreamSetting(setting.into())),
            }
        }
        Ok(Self { stream, columns })
    }
}

impl super::Destination for JsonCollector {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let columns = self.columns.clone().unwrap_or_else(|| options.columns.clone());
        Ok(Box::new(JsonStreamSink::new(name, self.stream.open(name, options)?, columns, options)))
    }

    fn check(&self, name: &str, _: &ExportOptions) -> Result<(), Error> {
        self.stream.check(name)
    }

    fn columns(&self) -> Option<&[&'static Column]> {
        self.columns.as_deref()
    }

    fn tcp_port(&self) -> Option<u16> {
        self.stream.tcp_port()
    }

    fn memory_bytes(&self, _: &[&'static Column], _: bool) -> u64 {
        self.stream.buffer_bytes as u64
    }
}

impl StreamSettings {
    fn of(peer: Peer) -> Self {
        Self { peer, buffer_bytes: DEFAULT_BUFFER_BYTES as usize }
    }

    /// Returns whether it has this setting.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, InvalidSink> {
        if name != BUFFER.name {
            return Ok(false);
        }
        let bytes = parse_size(value).and_then(|bytes| bytes.try_into().ok());
        self.buffer_bytes = bytes.ok_or_else(|| InvalidSink::Buffer(value.into()))?;
        Ok(true)
    }

    fn open(&self, name: &str, options: &ExportOptions) -> Result<StreamOutput, Error> {
        let error = |error: io::Error| Error::Io { sink: name.into(), error };
        StreamOutput::open(name, self.clone(), options.retries, options.attempts).map_err(error)
    }

    fn check(&self, name: &str) -> Result<(), Error> {
        self.peer.addresses().map(drop).map_err(|error| Error::Io { sink: name.into(), error })
    }

    fn tcp_port(&self) -> Option<u16> {
        if let Peer::Tcp { port, .. } = self.peer { Some(port) } else { None }
    }
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
            ("ipfix+tcp:h", "//HOST:PORT must follow"),
            ("json+tcp://h", "the port is missing"),
            ("json+tcp://h:1?template=full", "\"template=full\" is not a setting of this sink; use fields=NAME,..."),
            ("json+unix:", "the path of the Unix socket is missing"),
            ("json+unix:a?rotate=5m", "\"rotate=5m\" is not a setting of this sink"),
        ] {
            let error = spec.parse::<SinkSpec>().expect_err(spec).to_string();
            assert!(error.starts_with(&format!("{spec}: {expected}")), "{error}");
        }
    }
}
