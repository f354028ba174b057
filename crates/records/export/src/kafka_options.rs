//! Options of librdkafka: those of the sink, and those of a file (`options=FILE`).
//!
//! Passwords and keys are in a file only, because a command line is visible to all users of a machine. No error has a
//! value of the file.

use crate::private_file::check_private;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The default compression, and the one of a library that was built without it.
const COMPRESSION: [&str; 2] = ["zstd", "lz4"];
const COMPRESSION_OPTION: &str = "compression.type";

/// Options with secrets.
const SECRETS: [&str; 6] = [
    "sasl.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
];

/// Options that are part of the sink, and what is in their place.
const OF_SINK: [(&str, &str); 15] = [
    ("bootstrap.servers", "the brokers are in the name of the sink"),
    ("metadata.broker.list", "the brokers are in the name of the sink"),
    ("queue.buffering.max.kbytes", "use buffer=16MiB"),
    ("queue.buffering.max.messages", "use buffer=16MiB"),
    ("message.timeout.ms", "records wait as long as there is room (buffer=)"),
    ("delivery.timeout.ms", "records wait as long as there is room (buffer=)"),
    ("transactional.id", "it is a setting of the sink: transactional.id=NAME"),
    ("acks", "a record counts as exported when all brokers that keep the topic have it"),
    ("request.required.acks", "a record counts as exported when all brokers that keep the topic have it"),
    ("plugin.library.paths", "a running probe loads no code"),
    ("log.queue", "its log is that of Weir"),
    ("log_level", "its log is that of Weir"),
    ("delivery.report.only.error", "Weir counts what is delivered"),
    ("enable.gapless.guarantee", "the client would end after the first lost message"),
    ("test.mock.num.brokers", "it is for tests of librdkafka"),
];

/// Files that librdkafka would read as it is: the options for their content.
const FILES: [(&str, &str); 3] = [
    ("ssl.ca.location", "ssl.ca.pem"),
    ("ssl.certificate.location", "ssl.certificate.pem"),
    ("ssl.key.location", "ssl.key.pem"),
];

/// Why an option cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKafkaOption {
    /// All users can read a command line.
    #[error("{0} is a secret, which other users see in a command line; write it into a file: options=FILE")]
    Secret(String),
    /// It belongs to the sink.
    #[error("{name} cannot be set: {reason}")]
    OfSink {
        /// Its name.
        name: String,
        /// What is in its place.
        reason: &'static str,
    },
}

/// Checks the name of an option.
fn check_name(name: &str) -> Result<(), InvalidKafkaOption> {
    match OF_SINK.iter().find(|(of_sink, _)| *of_sink == name) {
        Some((_, reason)) => Err(InvalidKafkaOption::OfSink { name: name.into(), reason }),
        None => Ok(()),
    }
}

/// Checks the name of an option in a sink specification.
pub(crate) fn check_visible(name: &str) -> Result<(), InvalidKafkaOption> {
    if SECRETS.iter().any(|secret| secret.eq_ignore_ascii_case(name)) {
        Err(InvalidKafkaOption::Secret(name.into()))
    } else {
        check_name(name)
    }
}

/// Why a file of options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UnusableOptions {
    /// The operating system reported an error.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// A line is none of an option.
    #[error("{}: line {line} is not NAME=VALUE; lines of comments begin with #", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line.
        line: usize,
    },
    /// An option cannot be used.
    #[error("{}: line {line}: {invalid}", path.display())]
    Option {
        /// The file.
        path: PathBuf,
        /// The number of the line.
        line: usize,
        /// Why not.
        invalid: InvalidKafkaOption,
    },
}

/// Times of a connection to a broker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionTimes {
    /// From its end to the next attempt.
    pub reconnect: Duration,
    /// The longest such time.
    pub reconnect_max: Duration,
    /// For a broker to answer.
    pub connect: Duration,
}

/// Options by name. The last one of a name counts. It has no `Debug`, because values may be secrets.
#[derive(Clone)]
pub(crate) struct Options(pub Vec<(String, String)>);

impl Options {
    /// The defaults of Weir.
    pub fn of_weir(brokers: &str, buffer_bytes: usize, times: ConnectionTimes) -> Self {
        let ms = |time: Duration, least: u128| time.as_millis().max(least).to_string();
        // The limit of librdkafka is a little larger than that of the sink, which counts what a message takes besides.
        let kbytes = (buffer_bytes / 1024 + 1024).min(i32::MAX as usize);
        let options = [
            ("bootstrap.servers", brokers.to_owned()),
            ("client.id", "weir".into()),
            ("enable.idempotence", "true".into()),
            (COMPRESSION_OPTION, COMPRESSION[0].into()),
            ("linger.ms", "50".into()),
            ("queue.buffering.max.kbytes", kbytes.to_string()),
            ("queue.buffering.max.messages", "10000000".into()),
            ("message.timeout.ms", "0".into()),
            ("reconnect.backoff.ms", ms(times.reconnect, 1)),
            ("reconnect.backoff.max.ms", ms(times.reconnect_max, 1)),
            ("socket.connection.setup.timeout.ms", ms(times.connect, 1000)),
            ("log.queue", "true".into()),
        ];
        Self(options.map(|(name, value)| (name.into(), value)).into())
    }

    /// Records are sent in transactions. Messages wait as long as a transaction may last.
    pub fn set_transactional(&mut self, id: &str) {
        self.0.retain(|(name, _)| name != "message.timeout.ms");
        self.0.push(("transactional.id".into(), id.into()));
    }

    /// Adds the options of a file, one a line.
    pub fn add_file(&mut self, path: &Path) -> Result<(), UnusableOptions> {
        let failed = |error| UnusableOptions::Io { path: path.into(), error };
        let mut file = File::open(path).map_err(failed)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        for (at, text) in text.lines().enumerate().map(|(at, text)| (at + 1, text.trim())) {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let line = || UnusableOptions::Line { path: path.into(), line: at };
            let (name, value) = text.split_once('=').ok_or_else(line)?;
            let name = name.trim();
            check_name(name).map_err(|invalid| UnusableOptions::Option { path: path.into(), line: at, invalid })?;
            if SECRETS.contains(&name) {
                check_private(&file, "file with a password").map_err(failed)?;
            }
            self.0.push((name.into(), value.trim().into()));
        }
        Ok(())
    }

    /// Replaces files of certificates and keys by their content: the client is made later, in the sandbox and without
    /// the privileges of the start. Folders stay.
    pub fn read_files(&mut self) -> Result<(), UnusableOptions> {
        for (name, value) in &mut self.0 {
            let Some((_, of_content)) = FILES.iter().find(|(of_file, _)| of_file == name) else { continue };
            let path = PathBuf::from(&*value);
            if value == "probe" || path.is_dir() {
                continue;
            }
            *value = fs::read_to_string(&path).map_err(|error| UnusableOptions::Io { path, error })?;
            *name = (*of_content).into();
        }
        Ok(())
    }

    /// Takes the other compression if the default one is not available. Returns whether this changes anything.
    pub fn compress_otherwise(&mut self, refused: &str) -> bool {
        let [default, other] = COMPRESSION;
        let mut of_name = self.0.iter_mut().filter(|(name, _)| name == COMPRESSION_OPTION);
        match (of_name.next(), of_name.next()) {
            (Some((_, value)), None) if refused == COMPRESSION_OPTION && value == default => {
                *value = other.into();
                true
            }
            _ => false,
        }
    }
}
