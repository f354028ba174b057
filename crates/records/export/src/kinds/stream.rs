//! Collectors over a connection: `//HOST[:PORT][?NAME=VALUE&...]` over TCP, or the path of a Unix socket.

use super::SinkSetting;
use super::collector::{parse_endpoint, parse_template_setting};
use super::file::split;
use crate::connection::Peer;
use crate::json_stream::JsonStreamSink;
use crate::rotation::parse_size;
use crate::sink::{Error, ExportOptions, InvalidSink, Owner, Sink};
use crate::spooled::{DEFAULT_LIMIT, SpoolSettings, Spooled};
use crate::stream::{DEFAULT_BUFFER_BYTES, StreamOutput, StreamSettings};
use crate::template::{TemplateSettings, TemplateSink, Transport};
use crate::waiting::READ_AHEAD_BYTES;
use std::io;
use std::path::{Path, PathBuf};
use weir_fields::{Column, Format, select_columns};
use weir_spool::SMALLEST_LIMIT;

pub(super) const BUFFER: SinkSetting = SinkSetting {
    name: "buffer",
    value: "16MiB",
    default: "16MiB",
    effect: "connections: memory for records that wait for the collector, from 64KiB",
};

pub(super) const SPOOL: SinkSetting = SinkSetting {
    name: "spool",
    value: "FOLDER",
    default: "",
    effect: "connections: folder for records that wait while the collector is away or slow, also for the next run",
};

pub(super) const LIMIT: SinkSetting = SinkSetting {
    name: "limit",
    value: "10GiB",
    default: "",
    effect: "size of the spool, from 1MiB: then its oldest records are lost",
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
        stream.check_settings()?;
        Ok(Self { stream, templates })
    }
}

impl super::Destination for TcpCollector {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let stream = Transport::Stream(self.stream.open("ipfix", name, options)?);
        Ok(Box::new(TemplateSink::new(name, Format::Ipfix, self.templates.clone(), stream, options)?))
    }

    fn check(&self, name: &str, _: &ExportOptions) -> Result<(), Error> {
        self.stream.check("ipfix", name)
    }

    fn spool(&self) -> Option<&Path> {
        self.stream.spool.as_ref().map(|spool| spool.folder.as_path())
    }

    fn tcp_port(&self) -> Option<u16> {
        self.stream.tcp_port()
    }

    fn memory_bytes(&self, _: &[&'static Column], _: bool) -> u64 {
        self.stream.memory_bytes()
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
        stream.check_settings()?;
        Ok(Self { stream, columns })
    }
}

impl super::Destination for JsonCollector {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let columns = self.columns.clone().unwrap_or_else(|| options.columns.clone());
        Ok(Box::new(JsonStreamSink::new(name, self.stream.open("json", name, options)?, columns, options)))
    }

    fn check(&self, name: &str, _: &ExportOptions) -> Result<(), Error> {
        self.stream.check("json", name)
    }

    fn spool(&self) -> Option<&Path> {
        self.stream.spool.as_ref().map(|spool| spool.folder.as_path())
    }

    fn columns(&self) -> Option<&[&'static Column]> {
        self.columns.as_deref()
    }

    fn tcp_port(&self) -> Option<u16> {
        self.stream.tcp_port()
    }

    fn memory_bytes(&self, _: &[&'static Column], _: bool) -> u64 {
        self.stream.memory_bytes()
    }
}

impl StreamSettings {
    fn of(peer: Peer) -> Self {
        Self { peer, buffer_bytes: DEFAULT_BUFFER_BYTES as usize, spool: None }
    }

    /// Returns whether it has this setting. `spool=FOLDER,limit=SIZE` is the same as `spool=FOLDER&limit=SIZE`.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, InvalidSink> {
        let spool = || SpoolSettings { folder: PathBuf::new(), limit: DEFAULT_LIMIT };
        match name {
            "buffer" => {
                let bytes = parse_size(value).and_then(|bytes| bytes.try_into().ok());
                self.buffer_bytes = bytes.ok_or_else(|| InvalidSink::Buffer(value.into()))?;
            }
            "spool" => {
                let (folder, limit) = value.rsplit_once(",limit=").map_or((value, None), |(a, b)| (a, Some(b)));
                if folder.is_empty() {
                    return Err(InvalidSink::Syntax("the folder of the spool is missing: spool=FOLDER"));
                }
                self.spool.get_or_insert_with(spool).folder = folder.into();
                if let Some(limit) = limit {
                    return self.set("limit", limit);
                }
            }
            "limit" => {
                let limit = parse_size(value).filter(|&limit| limit >= SMALLEST_LIMIT);
                let limit = limit.ok_or_else(|| InvalidSink::SpoolLimit(value.into()))?;
                self.spool.get_or_insert_with(spool).limit = limit;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn check_settings(&self) -> Result<(), InvalidSink> {
        if self.spool.as_ref().is_some_and(|spool| spool.folder.as_os_str().is_empty()) {
            return Err(InvalidSink::Syntax("limit= is the size of a spool; add spool=FOLDER"));
        }
        Ok(())
    }

    /// The collector, as spools name it: the format and the other end.
    fn collector(&self, format: &str) -> String {
        match &self.peer {
            Peer::Tcp { host, port } => format!("{format}+tcp://{host}:{port}"),
            Peer::Unix(path) => format!("{format}+unix:{}", path.display()),
        }
    }

    fn memory_bytes(&self) -> u64 {
        self.buffer_bytes as u64 + if self.spool.is_some() { READ_AHEAD_BYTES as u64 } else { 0 }
    }

    fn open(&self, format: &str, name: &str, options: &ExportOptions) -> Result<StreamOutput, Error> {
        let error = |error: io::Error| Error::Io { sink: name.into(), error };
        let owner = options.file_owner.map(|Owner { user, group }| (user, group));
        let spool = self.spool.as_ref().map(|spool| Spooled::open(name, spool.of_sink(&self.collector(format), owner)));
        let spool = spool.transpose().map_err(|error| Error::Spool { sink: name.into(), error })?;
        StreamOutput::open(name, self.clone(), options.retries, options.attempts, spool).map_err(error)
    }

    fn check(&self, format: &str, name: &str) -> Result<(), Error> {
        if let Some(spool) = &self.spool {
            let checked = weir_spool::check(&spool.of_sink(&self.collector(format), None));
            checked.map_err(|error| Error::Spool { sink: name.into(), error })?;
        }
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
            ("json+tcp://h:1?limit=1G", "limit= is the size of a spool; add spool=FOLDER"),
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
