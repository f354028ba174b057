//! `kafka://BROKER[:PORT][,...]/TOPIC`: a message for each record in a topic of Kafka.

use super::clickhouse::{PROBE, parse_probe};
use super::collector::parse_host;
use super::file::FIELDS;
use super::spool::{LIMIT, SPOOL};
use super::stream::BUFFER;
use super::{SinkKind, SinkSetting, WHERE};
use crate::host::host_name;
use crate::kafka::{Destination, KafkaOutput, KafkaSink, MessageFormat, QueuedFlow};
use crate::kafka_options::{ConnectionTimes, Options, check_visible};
use crate::protobuf::MessageEncoder;
use crate::rotation::parse_size;
use crate::sink::{Attempts, Error, ExportOptions, InvalidSink, Sink};
use crate::spooled::{SpoolSettings, Spooled};
use crate::stream::DEFAULT_BUFFER_BYTES;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_fields::{Column, select_columns};

const DEFAULT_PORT: u16 = 9092;
/// Limit of Kafka.
const MAX_TOPIC_OCTETS: usize = 249;

const FORMAT: SinkSetting = SinkSetting {
    name: "format",
    value: "protobuf",
    default: "protobuf",
    effect: "Kafka: protobuf (as goflow2) or json",
};
const OPTIONS: SinkSetting = SinkSetting {
    name: "options",
    value: "FILE",
    default: "",
    effect: "Kafka: file of options of librdkafka, NAME=VALUE on each line; the place for passwords",
};
const TRANSACTIONAL_ID: SinkSetting = SinkSetting {
    name: "transactional.id",
    value: "NAME",
    default: "",
    effect: "Kafka: with spool=, records are sent in transactions of this name: each once, also after a kill",
};
const COMPRESSION: SinkSetting = SinkSetting {
    name: "compression.type",
    value: "zstd",
    default: "zstd",
    effect: "Kafka: an option of librdkafka; all that have a dot are possible",
};

pub(super) const KIND: SinkKind = SinkKind {
    scheme: "kafka",
    place: "://BROKER/TOPIC",
    writes: "messages of a topic of Kafka, protobuf or JSON",
    example: "kafka://192.0.2.1/flows",
    settings: &[FORMAT, FIELDS, PROBE, BUFFER, SPOOL, LIMIT, TRANSACTIONAL_ID, OPTIONS, COMPRESSION, WHERE],
    endings: &[],
    view: None,
    parse: |text| Ok(Arc::new(KafkaTopic::parse(text)?)),
};

/// A topic and its settings.
#[derive(Debug)]
struct KafkaTopic {
    /// Hosts, an IPv6 address without brackets, and ports.
    brokers: Vec<(String, u16)>,
    topic: String,
    is_json: bool,
    columns: Option<Vec<&'static Column>>,
    probe: Option<String>,
    buffer_bytes: usize,
    options: Vec<(String, String)>,
    options_file: Option<PathBuf>,
    spool: Option<SpoolSettings>,
    transactional_id: Option<String>,
}

impl KafkaTopic {
    fn parse(rest: &str) -> Result<Self, InvalidSink> {
        const PLACE: InvalidSink = InvalidSink::Syntax("//BROKER[:PORT][,BROKER...]/TOPIC must follow the scheme");
        let text = rest.strip_prefix("//").ok_or(PLACE)?;
        let (place, settings) = text.split_once('?').unwrap_or((text, ""));
        let (brokers, topic) = place.split_once('/').ok_or(PLACE)?;
        let brokers = brokers.split(',').map(|broker| {
            let (host, port) = parse_host(broker, Some(DEFAULT_PORT))?;
            Ok((host.to_owned(), port))
        });
        let mut kafka = Self {
            brokers: brokers.collect::<Result<_, InvalidSink>>()?,
            topic: topic.into(),
            is_json: false,
            columns: None,
            probe: Some(host_name()),
            buffer_bytes: DEFAULT_BUFFER_BYTES as usize,
            options: Vec::new(),
            options_file: None,
            spool: None,
            transactional_id: None,
        };
        let is_legal = |octet: u8| octet.is_ascii_alphanumeric() || b"._-".contains(&octet);
        if topic.len() > MAX_TOPIC_OCTETS || ["", ".", ".."].contains(&topic) || !topic.bytes().all(is_legal) {
            return Err(InvalidSink::Topic(topic.into()));
        }
        settings.split('&').filter(|setting| !setting.is_empty()).try_for_each(|setting| kafka.add(setting))?;
        kafka.spool.iter().try_for_each(SpoolSettings::check_settings)?;
        if kafka.transactional_id.is_some() && kafka.spool.is_none() {
            return Err(InvalidSink::Syntax(
                "transactional.id= needs a spool, whose batches it sends; add spool=FOLDER",
            ));
        }
        Ok(kafka)
    }

    fn add(&mut self, setting: &str) -> Result<(), InvalidSink> {
        let unknown = || InvalidSink::KafkaSetting(setting.into());
        let (name, value) = setting.split_once('=').ok_or_else(unknown)?;
        match (name, value) {
            ("format", "protobuf" | "json") => self.is_json = value == "json",
            ("format", _) => return Err(InvalidSink::KafkaFormat(value.into())),
            ("fields", _) => self.columns = Some(select_columns(value)?),
            ("buffer", _) => {
                let bytes = parse_size(value).and_then(|bytes| bytes.try_into().ok());
                self.buffer_bytes = bytes.ok_or_else(|| InvalidSink::Buffer(value.into()))?;
            }
            ("probe", name) => self.probe = parse_probe(name)?,
            ("spool" | "limit", _) => SpoolSettings::set(&mut self.spool, name, value)?,
            ("transactional.id", "") => return Err(InvalidSink::Syntax("the name after transactional.id= is missing")),
            ("transactional.id", _) => self.transactional_id = Some(value.into()),
            ("options", "") => return Err(InvalidSink::Syntax("the name of the file is missing after options=")),
            ("options", _) => self.options_file = Some(value.into()),
            _ if !name.contains('.') => return Err(unknown()),
            _ => {
                check_visible(name)?;
                self.options.push((name.into(), value.into()));
            }
        }
        Ok(())
    }

    /// The brokers, as an option of librdkafka.
    fn broker_list(&self) -> String {
        let address = |(host, port): &(String, u16)| {
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
        };
        self.brokers.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// The topic and the format, as spools name them.
    fn collector(&self) -> String {
        let format = if self.is_json { "?format=json" } else { "" };
        format!("kafka://{}/{}{format}", self.broker_list(), self.topic)
    }

    /// Where it goes, with all options.
    fn destination(&self, name: &str, options: &ExportOptions) -> Result<Destination, Error> {
        let failed = |problem| Error::KafkaOptions { sink: name.into(), problem };
        let Attempts { reconnect, reconnect_max, connect, .. } = options.attempts;
        let times = ConnectionTimes { reconnect, reconnect_max, connect };
        let mut all = Options::of_weir(&self.broker_list(), self.buffer_bytes, times);
        if let Some(path) = &self.options_file {
            all.add_file(path).map_err(failed)?;
        }
        all.0.extend(self.options.iter().cloned());
        all.read_files().map_err(failed)?;
        if let Some(id) = &self.transactional_id {
            all.set_transactional(id);
        }
        let (topic, transactional_id) = (self.topic.clone(), self.transactional_id.clone());
        Ok(Destination { topic, transactional_id, options: all, buffer_bytes: self.buffer_bytes })
    }

    fn output(
        &self,
        name: &str,
        spool: Option<Spooled<QueuedFlow>>,
        retries: bool,
        options: &ExportOptions,
    ) -> Result<KafkaOutput, Error> {
        let destination = self.destination(name, options)?;
        KafkaOutput::open(name, destination, spool, retries, options.attempts)
            .map_err(|error| Error::Kafka { sink: name.into(), error })
    }
}

impl super::Destination for KafkaTopic {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let spool = self.spool.as_ref().map(|spool| spool.open(name, &self.collector(), options)).transpose()?;
        let output = self.output(name, spool, options.retries, options)?;
        let format = match self.is_json {
            true => MessageFormat::Json(self.columns.clone().unwrap_or_else(|| options.columns.clone())),
            false => {
                let (selected, known) = (self.columns.as_deref(), options.known.as_deref());
                MessageFormat::Protobuf(MessageEncoder::new(options.observation_domain, selected, known))
            }
        };
        Ok(Box::new(KafkaSink::new(name, output, format, self.probe.clone(), options)))
    }

    fn check(&self, name: &str, options: &ExportOptions) -> Result<(), Error> {
        self.check_files(name, options)?;
        self.output(name, None, true, options).map(drop)
    }

    fn check_files(&self, name: &str, options: &ExportOptions) -> Result<(), Error> {
        self.spool.iter().try_for_each(|spool| spool.check(name, &self.collector(), options))
    }

    fn columns(&self) -> Option<&[&'static Column]> {
        self.columns.as_deref()
    }

    fn has_intake(&self) -> bool {
        true
    }

    fn tcp_ports(&self) -> Vec<u16> {
        self.brokers.iter().map(|(_, port)| *port).collect()
    }

    fn spool(&self) -> Option<&Path> {
        self.spool.as_ref().map(|spool| spool.folder.as_path())
    }

    fn memory_bytes(&self, _: &[&'static Column], _: bool) -> u64 {
        // With a spool that cannot be written, as much again waits for it.
        self.buffer_bytes as u64 * if self.spool.is_some() { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink_spec::SinkSpec;

    #[test]
    fn topics_are_parsed() {
        let parse = |text: &str| KafkaTopic::parse(text).unwrap();
        let kafka = parse("//a,b:9093,[::1]:9094/flows?format=json&compression.type=lz4&options=/etc/weir/kafka");
        assert_eq!(kafka.brokers, [("a".into(), 9092), ("b".into(), 9093), ("::1".into(), 9094)]);
        assert_eq!((kafka.topic.as_str(), kafka.is_json), ("flows", true));
        assert_eq!(kafka.options, [("compression.type".into(), "lz4".into())]);
    }

    #[test]
    fn invalid_topics_are_rejected() {
        for (spec, expected) in [
            ("kafka:a", "//BROKER[:PORT][,BROKER...]/TOPIC must follow the scheme"),
            ("kafka://a", "//BROKER[:PORT][,BROKER...]/TOPIC must follow the scheme"),
            ("kafka://a/", "a topic has up to 249 letters, digits, dots, underscores and hyphens, not \"\""),
            ("kafka://a/b/c", "a topic has up to 249"),
            ("kafka://a,/b", "the host is missing"),
            ("kafka://a:b/c", "the port must be a number"),
            ("kafka://a/b?format=avro", "format must be protobuf or json, not \"avro\""),
            ("kafka://a/b?buffer=1", "buffer must be a size from 64KiB"),
            ("kafka://a/b?probe=\u{1}", "the name of the probe must have up to 255 octets"),
            ("kafka://a/b?linger=1", "\"linger=1\" is not a setting of Kafka; use format=json, fields=NAME,..."),
            ("kafka://a/b?sasl.password=x", "sasl.password is a secret, which other users see in a command line"),
            ("kafka://a/b?message.timeout.ms=1", "message.timeout.ms cannot be set: records wait as long"),
            (
                "kafka://a/b?transactional.id=a",
                "transactional.id= needs a spool, whose batches it sends; add spool=FOLDER",
            ),
            ("kafka://a/b?transactional.id=&spool=a", "the name after transactional.id= is missing"),
            ("kafka://a/b?limit=1GiB", "limit= is the size of a spool; add spool=FOLDER"),
            ("kafka://a/b?spool=", "the folder of the spool is missing"),
            ("kafka://a/b?options=", "the name of the file is missing after options="),
        ] {
            let error = spec.parse::<SinkSpec>().expect_err(spec).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
