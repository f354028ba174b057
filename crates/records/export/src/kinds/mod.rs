//! The kinds of sinks, a file each: scheme, settings, example, and how it opens.

mod arrow;
mod clickhouse;
mod collector;
mod csv;
mod file;
mod ipfix;
mod ipfix_tcp;
mod ipfix_tls;
mod ipfix_udp;
mod json;
mod json_tcp;
mod json_tls;
mod json_unix;
mod kafka;
mod netflow5_udp;
mod netflow9_udp;
mod parquet;
mod row_sink;
mod spool;
mod stream;
mod syslog;
mod syslog_tcp;
mod syslog_tls;
mod syslog_udp;
mod table;
mod text_file;

pub use clickhouse::ClickHouseTable;
pub use file::is_standard_output;
pub(crate) use file::{SinkFile, split};

use crate::sink::{Error, ExportOptions, InvalidSink, Sink};
use crate::stream::StreamSettings;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use weir_fields::Column;

/// All kinds of sinks, in the order of help texts and pages.
pub const SINK_KINDS: [SinkKind; 20] = [
    table::KIND,
    json::KIND,
    csv::KIND,
    ipfix::KIND,
    parquet::KIND,
    arrow::KIND,
    json_unix::KIND,
    ipfix_udp::KIND,
    ipfix_tcp::KIND,
    ipfix_tls::KIND,
    json_tcp::KIND,
    json_tls::KIND,
    syslog_udp::KIND,
    syslog_tcp::KIND,
    syslog_tls::KIND,
    kafka::KIND,
    netflow9_udp::KIND,
    netflow5_udp::KIND,
    clickhouse::KIND_HTTP,
    clickhouse::KIND_HTTPS,
];

const WHERE: SinkSetting = SinkSetting {
    name: "where",
    value: "EXPRESSION",
    default: "",
    effect: "only the records that match; the last setting (weir help expressions)",
};

/// A kind of sink.
pub struct SinkKind {
    /// What its specifications begin with.
    pub scheme: &'static str,
    /// What follows the scheme: `:PATH` or `://HOST:PORT`.
    pub place: &'static str,
    /// What it writes, for help texts and pages.
    pub writes: &'static str,
    /// A specification.
    pub example: &'static str,
    /// What may follow `?`, joined by `&`.
    pub settings: &'static [SinkSetting],
    /// Endings of file names that need no scheme.
    pub endings: &'static [&'static str],
    /// How it writes a view; `None` for a sink that has records only.
    pub view: Option<ViewFormat>,
    /// Parses what follows the scheme and its colon.
    pub(crate) parse: fn(&str) -> Result<Arc<dyn Destination>, InvalidSink>,
}

impl SinkKind {
    /// Whether it sends records to a collector, instead of a file.
    pub fn is_collector(&self) -> bool {
        self.place.starts_with("://")
    }
}

/// A setting of a sink.
#[derive(Clone, Copy, Debug)]
pub struct SinkSetting {
    /// The name in front of `=`.
    pub name: &'static str,
    /// What stands for the value.
    pub value: &'static str,
    /// The value without this setting; empty without one.
    pub default: &'static str,
    /// What it does.
    pub effect: &'static str,
}

impl SinkSetting {
    /// Whether every sink has it.
    pub fn is_of_all(&self) -> bool {
        self.name == WHERE.name
    }
}

/// How a view is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewFormat {
    /// For people.
    Table,
    /// A row per group.
    Csv,
    /// An object per group.
    Json,
}

/// Where a sink writes, and how: a valid specification of a kind.
pub(crate) trait Destination: fmt::Debug + Send + Sync {
    /// Opens the sink. `name` is that of its counters.
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error>;

    /// Checks what [`Destination::open`] needs, and changes nothing: the file can be appended to, or the
    /// name of the collector has an address.
    fn check(&self, name: &str, options: &ExportOptions) -> Result<(), Error>;

    /// The format and the connection of a sink that has one. All functions below follow from it then.
    fn stream(&self) -> Option<(&'static str, &StreamSettings)> {
        None
    }

    /// Checks that it can make files while it runs: not what it reads at the start only, such as passwords.
    fn check_files(&self, name: &str, options: &ExportOptions) -> Result<(), Error> {
        match self.stream() {
            Some((format, stream)) => stream.check_files(format, name, options),
            None => self.check(name, options),
        }
    }

    /// The file; `None` for a collector and a folder.
    fn file(&self) -> Option<&SinkFile> {
        None
    }

    /// The folder in which it makes files as long as it runs.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// The folder in which records wait for the collector.
    fn spool(&self) -> Option<&Path> {
        self.stream().and_then(|(_, stream)| stream.spool_folder())
    }

    /// The other end, with its port, or the path of its socket; `None` if the specification in front of `?` says it.
    fn collector(&self) -> Option<String> {
        self.stream().map(|(_, stream)| stream.peer.address())
    }

    /// The TCP ports to which it connects, again and again while it runs.
    fn tcp_ports(&self) -> Vec<u16> {
        self.stream().and_then(|(_, stream)| stream.tcp_port()).into_iter().collect()
    }

    /// Whether it knows how its collector takes records ([`Sink::intake`]).
    fn has_intake(&self) -> bool {
        self.stream().is_some()
    }

    /// Whether it makes files after the start, besides rotated ones.
    fn makes_files(&self) -> bool {
        self.folder().is_some() || self.spool().is_some()
    }

    /// What it takes beside its queue, bytes, with these default columns. `runs_on`: until a signal.
    fn memory_bytes(&self, _stored_columns: &[&'static Column], _runs_on: bool) -> u64 {
        self.stream().map_or(0, |(_, stream)| stream.memory_bytes())
    }

    /// The columns that the specification selects.
    fn columns(&self) -> Option<&[&'static Column]> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink_spec::SinkSpec;

    #[test]
    fn the_page_lists_all_sinks_and_their_settings() {
        let page = include_str!("../../../../../docs/outputs.md");
        for SinkKind { scheme, place, writes, example, settings, .. } in &SINK_KINDS {
            let row = format!("| `{scheme}{place}` | {writes} |");
            assert!(page.lines().any(|line| line == row), "{row}");
            assert_eq!(example.parse::<SinkSpec>().map(|spec| spec.to_string()), Ok((*example).into()));
            for SinkSetting { name, value, default, .. } in *settings {
                let has_row = |line: &str| line.starts_with(&format!("| `?{name}={value}`"));
                let default = format!("| {default} | ").replace("|  |", "| |");
                assert!(page.lines().any(|line| has_row(line) && line.contains(&default)), "?{name}={value} {default}");
            }
        }
    }
}
