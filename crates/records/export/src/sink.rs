//! The interface of all sinks, their options and errors.

use crate::element::MIN_MESSAGE_BYTES;
use crate::kafka_options::{InvalidKafkaOption, UnusableOptions};
use crate::options_records::MeteringStatus;
use crate::profile::PROFILES;
use crate::watch::Watch;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use weir_fields::{Column, InvalidFields, Profile, columns, default_columns};
use weir_flow::{FlowRecord, KeyOptions};
use weir_ledger::{SinkCounters, Timing};
use weir_store::UpkeepTimes;

/// Longest UDP payload over IPv4, octets.
pub(crate) const MAX_MTU: usize = 65_507;

/// A destination of flow records.
pub trait Sink {
    /// Writes a batch. Losses are counted in [`Sink::counters`] and are not errors, except when no
    /// further write can succeed: the reader of a pipe closed it, or a file cannot be written that
    /// was not opened with [`FileMode::Append`].
    ///
    /// # Errors
    /// The sink has ended. Every record of this batch that was not written is counted as lost, as
    /// are the records of later batches.
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error>;

    /// Connects, if the sink needs a connection and has none, or the address of this host on the way to
    /// the collector has changed. May wait for a name server for long.
    /// Called by the thread that writes to the sink, again and again. Returns whether there is a
    /// new connection, with new [`Sink::udp_endpoints`].
    fn connect(&mut self) -> bool {
        false
    }

    /// Receives the status of the metering process, for sinks that report it to collectors. The last
    /// one before [`Sink::finish`] is that of the whole run.
    fn set_metering_status(&mut self, _status: &MeteringStatus) {}

    /// Does what is due also without records: sends again what collectors have to get regularly, and
    /// ends a file whose time is over. Called about once a second while there are no records, and at [`Sink::wakes_at`].
    fn tick(&mut self) {}

    /// When [`Sink::connect`] and [`Sink::tick`] have to be called at the latest while there are no records: for the
    /// next attempt to connect, or for records that wait. `None` if about once a second is enough.
    fn wakes_at(&self) -> Option<Instant> {
        None
    }

    /// Opens the file again by its name, if another program has moved or removed it.
    fn reopen(&mut self) {}

    /// The run ends: about `flows` records follow, which should be written until a time. A limit of
    /// their rate is exceeded as far as this needs. Called before each batch, and before [`Sink::finish`].
    fn drain(&mut self, _flows: u64, _until: Instant) {}

    /// Called once, before all others: while the sink waits for its collector, it looks at the watch, and tells it of
    /// progress. A sink without waits needs none.
    fn watch(&mut self, _watch: &Watch) {}

    /// Writes all buffered records.
    ///
    /// # Errors
    /// As [`Sink::write`].
    fn finish(&mut self) -> Result<(), Error>;

    /// Records by outcome, so far.
    fn counters(&self) -> &SinkCounters;

    /// Local and remote address of the datagrams that the sink sends; `None` for a sink without
    /// datagrams. The probe does not meter this traffic of its own.
    fn udp_endpoints(&self) -> Option<[SocketAddr; 2]> {
        None
    }

    /// How a collector takes records; `None` if the sink does not know, as over UDP.
    fn intake(&self) -> Option<Intake> {
        None
    }

    /// Gives up flows that wait: the last ones that were written, at most this number. Returns how many. They are in no
    /// counter. `all`: also those that the collector may have in part, which may reach it nevertheless.
    fn take_back(&mut self, _most: u64, _all: bool) -> u64 {
        0
    }
}

/// How a collector takes records at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intake {
    /// There is a connection, or nothing shows that there is none.
    pub is_connected: bool,
    /// Messages wait for the system to take octets of them, which [`SinkCounters::octets`] counts.
    pub is_stalled: bool,
    /// Memory for more that waits, bytes; `usize::MAX` if it waits on disk.
    pub room: usize,
    /// Whether [`Sink::take_back`] gives up what waits.
    pub gives_back: bool,
}

/// How a regular file that exists is opened. It makes no difference for devices and pipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMode {
    /// A file that is not empty is refused.
    New,
    /// The content is replaced.
    Overwrite,
    /// Records are appended. The file must have the same format and columns. An incomplete last
    /// record, which a crash leaves, is removed, and logged. After a failed write, writing is tried again.
    Append,
}

/// A user and a group, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User ID.
    pub user: u32,
    /// Group ID.
    pub group: u32,
}

/// Options that apply to all sinks of a run.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Writes a bidirectional flow as two unidirectional records even where the format supports
    /// one.
    pub uniflow: bool,
    /// Observation Domain ID (IPFIX), Source ID (NetFlow v9), engine ID (NetFlow v5, low octet).
    pub observation_domain: u32,
    /// The records are anonymised, which a store notes.
    pub anonymised: bool,
    /// Some records are directions of flows already, which a store notes.
    pub directions: bool,
    /// The records are transactions, which a store notes.
    pub transactions: bool,
    /// The flow key of the records, which IPFIX reports.
    pub key: KeyOptions,
    /// Payload is inspected: records of basic templates have the application.
    pub applications: bool,
    /// A collector that cannot be reached is no error: [`Sink::connect`] tries it again.
    pub retries: bool,
    /// The columns of JSON and CSV, if the sink does not select others.
    pub columns: Vec<&'static Column>,
    /// The columns of a store, if the sink does not select others.
    pub stored_columns: Vec<&'static Column>,
    /// Records have these fields only, because they were stored; `None` if they are metered.
    pub known: Option<Vec<&'static Column>>,
    /// How files are opened.
    pub file_mode: FileMode,
    /// Owner of new files; `None` for the user and group of the process.
    pub file_owner: Option<Owner>,
    /// When a sink whose output cannot be used tries again, and warns again.
    pub attempts: Attempts,
    /// Times of the thread that looks after a store.
    pub store_upkeep: UpkeepTimes,
}

/// Times of a sink whose output cannot be used for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// From a failed attempt to the next one; also between two looks at the output.
    pub retry: Duration,
    /// Shortest time between two warnings.
    pub log: Duration,
    /// From the end of a connection to the next attempt, which doubles up to the next time.
    pub reconnect: Duration,
    /// Longest time from a failed attempt to connect to the next one.
    pub reconnect_max: Duration,
    /// For an address to answer.
    pub connect: Duration,
    /// After this time, the system ends a connection whose other end accepts nothing.
    pub dead: Duration,
    /// Without live traffic and at the end of a run, a sink waits this long for a lost connection.
    pub outage: Duration,
    /// From when a sink of `failover:` takes no records until others get them, and the other way round.
    pub failover: Duration,
    /// After the last record, for the collector to close the connection.
    pub close: Duration,
}

impl From<&Timing> for Attempts {
    fn from(timing: &Timing) -> Self {
        Self {
            retry: timing.sink_retry,
            log: timing.sink_log,
            reconnect: timing.sink_reconnect,
            reconnect_max: timing.sink_reconnect_max,
            connect: timing.sink_connect,
            dead: timing.sink_dead,
            outage: timing.sink_outage,
            failover: timing.sink_failover,
            close: timing.sink_close,
        }
    }
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            uniflow: false,
            observation_domain: 1,
            anonymised: false,
            directions: false,
            transactions: false,
            key: KeyOptions::default(),
            applications: false,
            retries: false,
            columns: columns().iter().collect(),
            stored_columns: default_columns(Profile::Store, KeyOptions::default(), false, false),
            known: None,
            file_mode: FileMode::New,
            file_owner: None,
            attempts: Attempts::from(&Timing::default()),
            store_upkeep: UpkeepTimes::from(&Timing::default()),
        }
    }
}

/// A sink cannot be opened, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The sink specification is invalid.
    #[error(transparent)]
    Spec(#[from] InvalidSpec),
    /// The file cannot be used.
    #[error("{sink}: {problem}")]
    File {
        /// The sink as the user wrote it.
        sink: String,
        /// Why not.
        problem: UnusableFile,
    },
    /// The spool cannot be used.
    #[error("{sink}: {error}")]
    Spool {
        /// The sink as the user wrote it.
        sink: String,
        /// Why not.
        error: weir_spool::Error,
    },
    /// The operating system reported an error.
    #[error("{sink}: {error}")]
    Io {
        /// The sink as the user wrote it.
        sink: String,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// Kafka cannot be used.
    #[error("{sink}: {error}")]
    Kafka {
        /// The sink as the user wrote it.
        sink: String,
        /// Why not.
        error: weir_kafka::Error,
    },
    /// The options of librdkafka cannot be used.
    #[error("{sink}: {problem}")]
    KafkaOptions {
        /// The sink as the user wrote it.
        sink: String,
        /// Why not.
        problem: UnusableOptions,
    },
}

impl Error {
    /// What the operating system says of a file or folder of the spool.
    pub fn of_spool(&self) -> Option<&std::io::Error> {
        match self {
            Self::Spool { error: weir_spool::Error::Io { error, .. }, .. } => Some(error),
            _ => None,
        }
    }

    /// Whether the reader of the output closed it (`weir read ... | head`), which is not a failure.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

/// Why records cannot be written to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableFile {
    /// Another user may have made the link, so it is not followed.
    #[error("this is a symbolic link")]
    SymbolicLink,
    /// A named pipe cannot be written before a program reads it.
    #[error("no program reads this pipe")]
    NoReader,
    /// Only a new or empty file can be written.
    #[error("the file exists and is not empty")]
    NotEmpty,
    /// Another program, or another output of this one, has locked it.
    #[error("another program writes to this file")]
    Locked,
    /// Parquet has its index at the end, so it needs a file.
    #[error("this is no regular file")]
    NoFile,
    /// A store begins in an empty folder.
    #[error("the folder is not empty, and is no store of Weir")]
    NoStore,
    /// A store has one writer.
    #[error("another program writes to this store")]
    StoreLocked,
    /// Records cannot be appended.
    #[error("the file exists and has another format or other columns, or is damaged, so records cannot be appended")]
    OtherContent,
}

/// A text that is no specification of a sink.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{spec}: {invalid}")]
pub struct InvalidSpec {
    /// The specification as the user wrote it, with its scheme, without the setting `where`.
    pub spec: String,
    /// What is invalid.
    pub invalid: InvalidSink,
}

/// Why a sink specification is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSink {
    /// The scheme is missing.
    #[error(
        "not a sink; use a file name that ends with .json, .csv or .ipfix (or with .gz or .zst after that), or table:PATH, json:PATH, csv:PATH, \
         ipfix:PATH, parquet:FOLDER, arrow:PATH, json+unix:PATH, ipfix+udp://HOST:PORT, ipfix+tcp://HOST:PORT, \
         json+tcp://HOST:PORT, ipfix+tls://HOST:PORT, json+tls://HOST:PORT, syslog+udp://HOST:PORT, \
         syslog+tcp://HOST:PORT, syslog+tls://HOST:PORT, kafka://BROKER/TOPIC, netflow9+udp://HOST:PORT, \
         netflow5+udp://HOST:PORT, clickhouse+http://HOST:PORT/DATABASE.TABLE or clickhouse+https://HOST:PORT/DATABASE.TABLE"
    )]
    Scheme,
    /// There is no sink of this scheme.
    #[error(
        "there is no sink {scheme}; use {}{}",
        alternatives(.nearest),
        .file.as_ref().map_or(String::new(), |file| format!(", or {file} for a file of this name"))
    )]
    UnknownScheme {
        /// The scheme, with what follows it.
        scheme: String,
        /// The sinks that may be meant.
        nearest: Vec<String>,
        /// The path, if all of it may be a file name.
        file: Option<String>,
    },
    /// The path is an address; the file of this name has another path.
    #[error("this is an address; use ipfix+udp://HOST:PORT for a collector, or {0} for a file")]
    Address(String),
    /// The ending is that of another compression.
    #[error("files are compressed with gzip (.gz) or Zstandard (.zst), not .{0}")]
    Compression(String),
    /// Something is missing, or stands where it must not.
    #[error("{0}")]
    Syntax(&'static str),
    /// The text in brackets is not an address.
    #[error("{0} is not an IPv6 address")]
    NotIpv6(String),
    /// The address exists on every link, and there is no setting for the interface.
    #[error("{0} needs a scope (an interface), which cannot be set; use another address of the collector")]
    LinkLocal(String),
    /// The host is neither a name nor an address.
    #[error("{0:?} is neither a host name nor an address")]
    Host(String),
    /// The port is not a number, or 0.
    #[error("the port must be a number from 1 to 65535, not {0:?}")]
    Port(String),
    /// The MTU is not a number, or out of range.
    #[error("mtu must be a number of octets from {MIN_MESSAGE_BYTES} to {MAX_MTU}, not {0:?}")]
    Mtu(String),
    /// The rate is not a number.
    #[error("rate must be a number of datagrams per second, not {0:?}")]
    Rate(String),
    /// The interval is not a number, or 0.
    #[error("refresh must be a number of seconds from 1, not {0:?}")]
    Refresh(String),
    /// The profile is unknown.
    #[error("template must be {names}, not {0:?}", names = profile_names())]
    Template(String),
    /// The size of the buffer is not a size, or too small.
    #[error("buffer must be a size from 64KiB, such as 16MiB, not {0:?}")]
    Buffer(String),
    /// The size of the spool is not a size, or too small.
    #[error("limit must be a size from 1MiB, such as 20GiB, not {0:?}")]
    SpoolLimit(String),
    /// The spool cannot hold enough batches.
    #[error(
        "limit= must be at least buffer=, {buffer} octets, not {limit}: a batch is a quarter of buffer=, and the spool \
         has to hold some"
    )]
    BatchSpoolLimit {
        /// Limit of the spool, octets.
        limit: u64,
        /// Memory for batches, octets.
        buffer: usize,
    },
    /// The selection of fields is invalid.
    #[error(transparent)]
    Fields(#[from] InvalidFields),
    /// No field and no element has this name.
    #[error("there is no field or element {name:?} ({})", similar.map_or("names: weir help fields".into(), |similar| format!("did you mean {similar}?")))]
    Field {
        /// The name as the user wrote it.
        name: String,
        /// The most similar name.
        similar: Option<&'static str>,
    },
    /// The element is in the other format only.
    #[error("{format} has no element {name}")]
    NotInFormat {
        /// IPFIX or NetFlow v9.
        format: &'static str,
        /// The element.
        name: &'static str,
    },
    /// The format has no element for any field of the selection.
    #[error("{format} has no element for {selection:?} (weir help fields)")]
    NoElement {
        /// IPFIX or NetFlow v9.
        format: &'static str,
        /// The selection as the user wrote it.
        selection: String,
    },
    /// The setting of a file is unknown.
    #[error("{0:?} is not a setting of a file; use fields=NAME,..., rotate=5m or rotate=1GiB")]
    FileSetting(String),
    /// The setting of a store is unknown.
    #[error("{0:?} is not a setting of a store; use fields=NAME,..., keep=30d,200G or interval=1m")]
    StoreSetting(String),
    /// The value of `keep=` is neither a time nor a size, nor both.
    #[error(transparent)]
    Keep(#[from] weir_store::InvalidKeep),
    /// The value of `interval=` is no time.
    #[error("interval must be a time from 1s to 1h, not {0:?}")]
    Interval(String),
    /// Files of several intervals would have this name; these times tell them apart.
    #[error("files of different times would have this name; with this rotate= it needs {0}, for example flows-{0}.csv")]
    RepeatedName(String),
    /// The value of `rotate=` is neither a time nor a size.
    #[error(
        "rotate must be a time from 1s, such as 5m, 1h or 1d, or a size from 64KiB, such as 100MB or 1GiB, not {0:?}"
    )]
    Rotate(String),
    /// The name of a rotated file has an unknown conversion.
    #[error("%{0} is not a time; use %Y, %m, %d, %H, %M, %S or %j (day of the year), and %% for a percent sign")]
    Conversion(String),
    /// The name of a file has a conversion, but the file is not rotated.
    #[error("%{0} in the name is the time of a rotated file; add for example ?rotate=1h")]
    TimeWithoutRotation(char),
    /// The time between attempts to connect is no time, or out of range.
    #[error("retry must be a time from 1s to 1d, such as 1m, not {0:?}")]
    Retry(String),
    /// A setting of one value has several.
    #[error("{0}= is given twice")]
    Twice(String),
    /// A setting for a file has no value.
    #[error("{0}= names no file")]
    NoFile(String),
    /// No certificate has this name.
    #[error("name must be a host name or an address, not {0:?}")]
    ServerName(String),
    /// The setting of a sink of JSON over a connection is unknown.
    #[error(
        "{setting:?} is not a setting of this sink; use fields=NAME,..., buffer=16MiB, spool=FOLDER, limit=10GiB, \
         retry=1m{of_tls}"
    )]
    StreamSetting {
        /// The setting as the user wrote it.
        setting: String,
        /// Settings of TLS, if it has them.
        of_tls: &'static str,
    },
    /// The setting of a sink of IPFIX over a connection is unknown.
    #[error(
        "{setting:?} is not a setting of a {} connection; use template=NAME, fields=NAME,..., buffer=16MiB, \
         spool=FOLDER, limit=10GiB, retry=1m{of_tls}",
        if of_tls.is_empty() { "TCP" } else { "TLS" }
    )]
    TcpSetting {
        /// The setting as the user wrote it.
        setting: String,
        /// Settings of TLS, if it has them.
        of_tls: &'static str,
    },
    /// The limit of a datagram is not a number, or out of range.
    #[error("size must be a number of octets from 480 to {MAX_MTU}, not {0:?}")]
    Size(String),
    /// The facility is unknown.
    #[error("there is no facility {0:?}; use daemon, user, or local0 to local7")]
    Facility(String),
    /// The setting of a receiver of syslog is unknown.
    #[error("{setting:?} is not a setting of syslog here; use facility=NAME, fields=NAME,..., {others}{of_tls}")]
    SyslogSetting {
        /// The setting as the user wrote it.
        setting: String,
        /// Settings of the carrier.
        others: &'static str,
        /// Settings of TLS, if it has them.
        of_tls: &'static str,
    },
    /// The number of rows of a batch is not a number, or out of range.
    #[error("rows must be a number from 1 to 500000, not {0:?}")]
    Rows(String),
    /// The time after which a batch is sent is none, or out of range.
    #[error("wait must be a time from 10ms to 1h, not {0:?}")]
    BatchWait(String),
    /// The compression of batches is unknown.
    #[error("compression must be zstd or none, not {0:?}")]
    BatchCompression(String),
    /// The setting of a table of ClickHouse is unknown. Its value is not repeated.
    #[error(
        "{0}= is not a setting of ClickHouse; use fields=NAME,..., rows=N, wait=1s, compression=zstd, user=NAME, \
         password-file=FILE, probe=NAME, buffer=64MiB, spool=FOLDER, limit=10GiB, and with https ca=FILE and name=HOST"
    )]
    ClickHouseSetting(String),
    /// The name of the topic is none that Kafka has.
    #[error("a topic has up to 249 letters, digits, dots, underscores and hyphens, not {0:?}")]
    Topic(String),
    /// The format of messages is unknown.
    #[error("format must be protobuf or json, not {0:?}")]
    KafkaFormat(String),
    /// The setting of a sink of Kafka is unknown.
    #[error(
        "{0:?} is not a setting of Kafka; use format=json, fields=NAME,..., probe=NAME, buffer=16MiB, spool=FOLDER, \
         limit=10GiB, options=FILE, and options of librdkafka that have a dot in their name"
    )]
    KafkaSetting(String),
    /// The option of librdkafka is not for a sink.
    #[error(transparent)]
    KafkaOption(#[from] InvalidKafkaOption),
    /// The setting is unknown.
    #[error("{0:?} is not a setting; use mtu=N, rate=N, refresh=N, template=NAME, and fields=NAME,...")]
    Setting(String),
    /// The setting is unknown, and similar to another one.
    #[error("{invalid} (did you mean {similar}=?)")]
    Similar {
        /// The message of an unknown setting.
        invalid: Box<Self>,
        /// The setting that may be meant.
        similar: &'static str,
    },
}

impl InvalidSink {
    /// The setting that is unknown, as the user wrote it; `None` if something else is wrong.
    pub(crate) fn unknown_setting(&mut self) -> Option<&mut String> {
        match self {
            Self::Similar { invalid, .. } => invalid.unknown_setting(),
            Self::FileSetting(setting)
            | Self::StoreSetting(setting)
            | Self::StreamSetting { setting, .. }
            | Self::TcpSetting { setting, .. }
            | Self::SyslogSetting { setting, .. }
            | Self::ClickHouseSetting(setting)
            | Self::KafkaSetting(setting)
            | Self::Setting(setting) => Some(setting),
            _ => None,
        }
    }
}

fn profile_names() -> String {
    let names: Vec<String> = PROFILES.iter().map(|profile| profile.name.into()).collect();
    alternatives(&names)
}

/// A list as text: `a, b or c`.
fn alternatives(names: &[String]) -> String {
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}
