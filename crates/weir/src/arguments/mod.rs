//! The command line: commands, options and their help texts.
//!
//! The doc comments of the structures in this module are the help texts. Options that several
//! commands share are in `groups.rs`, option values that need parsing in `values.rs`.

mod bench;
mod bypass;
mod clickhouse;
mod groups;
mod health;
mod machine;
mod packets;
mod probe;
mod query;
mod read;
mod rules;
mod store;
mod synth;
mod tcp;
mod top;
mod usage;
mod values;
mod view;

pub use bench::{Bench, BenchCommand, BenchLive};
pub use bypass::{Bypass, BypassAction, EveEvent};
pub use clickhouse::{Check as ClickHouseCheck, ClickHouse, ClickHouseCommand, Schema as ClickHouseSchema};
pub use groups::{
    Enrichment, FullPolicy, Hardening, Inspection, KeyField, LocalTime, Metering, OutputFiles, Reporting, Selection,
    Sinks, Switch, Times,
};
pub use health::Health;
pub use machine::{Doctor, Plan};
pub use packets::Packets;
pub use probe::{Layout, ProbeOptions, StatusFormat};
pub use query::{Query, QueryFormat, SqlEngine};
pub use read::{Read, times_ns};
pub use rules::{RulesArguments, RulesCheck, RulesCommand};
pub use store::Store;
pub use synth::Synth;
pub use tcp::{EngineChoice, FailedChoice, GroupChoice, Tcp};
pub use top::{Top, TopList};
pub use usage::{command_of, join_value, with_short_value, with_tip};
pub use values::{Cores, FieldList, InvalidOutput, Output, RecordSink};
pub use view::View;

use values::parse_fields;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use tracing::level_filters::LevelFilter;
use weir_text::zone::Zone;

/// Headings of option groups in help texts.
const INPUT: &str = "Input";
const OUTPUT: &str = "Output";
const METERING: &str = "Metering";
const ENRICHMENT: &str = "Enrichment";
const INSPECTION: &str = "Applications";
const PERFORMANCE: &str = "Performance";
const OVERLOAD: &str = "Overload";
const ACTIONS: &str = "Actions on packets";
const OPERATION: &str = "Operation";
const CONTROL: &str = "HTTP interface";
const LOGGING: &str = "Logging";

/// Exact flow records from network traffic: every packet and byte is accounted for.
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true, disable_help_subcommand = true, max_term_width = 100, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub logging: Logging,
}

const EXAMPLES: &str = "\
Examples:
  weir read capture.pcap                    print the largest flows and a summary
  weir read *.pcapng.gz -o flows.csv.gz     merge captures in time order; write all flows as CSV
  tcpdump -U -w - -i eth0 | weir read -     read from a pipe
  weir read -i af_packet:eth0               meter live traffic until Ctrl-C
  weir read capture.pcap -v                 also print where each packet went
  weir top eth0                             watch what an interface carries: hosts, flows, failures
  weir tcp capture.pcap                     find retransmissions, losses and delays per connection
  weir read capture.pcap -o parquet:flows   keep all flows in a folder of Parquet files
  weir query top-talkers -i flows           ask them: ready questions and SQL
  weir view capture.pcap --open             look at the flows of a capture or store in the browser
  weir clickhouse schema | clickhouse-client --multiquery
                                            make a table for -o clickhouse+http://HOST/weir.flows
  weir packets /srv/packets --flow ID -o flow.pcapng
                                            write the recorded packets of a flow to a capture
  weir probe -i af_packet:eth0              run as a probe, with its status every second
  weir bypass --eve eve.json --token-file token
                                            Suricata tells a probe which packets it needs no more
  weir health --ready                       ask a running probe whether it does its work
  weir doctor                               check this machine for settings that lose packets

'weir COMMAND --help' describes a command, its options and its exit codes. 'weir help topics' lists
texts about subjects: 'weir help expressions' is about --where.

Exit codes:
  0  success
  1  usage error, or input that cannot be opened; nothing was metered
  2  finished, but an input was damaged or not read to its end, packets were lost, or records
     were not delivered; the summary has the counts. Malformed packets are traffic";

#[derive(Debug, Subcommand)]
pub enum Command {
    Read(Box<Read>),
    Probe(Box<ProbeOptions>),
    View(Box<View>),
    Tcp(Box<Tcp>),
    Top(Box<Top>),
    Packets(Box<Packets>),
    Rules(RulesArguments),
    Store(Store),
    Query(Box<Query>),
    Clickhouse(ClickHouse),
    Bypass(Box<Bypass>),
    Health(Health),
    Synth(Synth),
    Bench(Bench),
    Doctor(Doctor),
    Plan(Plan),
    Fields(Fields),
    Completions(Completions),
    Man(Man),
    Help(Help),
}

impl Arguments {
    /// Parses the command line of a start. With `--local-time`, local time becomes the current zone, in which
    /// the times of the command line are.
    ///
    /// # Errors
    /// An option is invalid, or the local zone is not known.
    pub fn parse_at_start(given: &[OsString]) -> Result<Self, clap::Error> {
        let arguments = Self::try_parse_from(given);
        let is_local = match &arguments {
            Ok(arguments) => arguments.command.as_ref().is_some_and(Command::has_local_time),
            // The error may name the zone.
            Err(_) => given.iter().any(|argument| argument == "--local-time"),
        };
        if !is_local {
            return arguments;
        }
        Zone::use_local()
            .map_err(|error| clap::Error::raw(ErrorKind::ValueValidation, format!("--local-time: {error}\n")))?;
        Self::try_parse_from(given)
    }
}

impl Command {
    /// Whether times are in local time.
    fn has_local_time(&self) -> bool {
        match self {
            Self::Read(read) => read.zone.local_time,
            Self::Probe(probe) => probe.zone.local_time,
            Self::View(view) => view.zone.local_time,
            Self::Tcp(tcp) => tcp.zone.local_time,
            Self::Packets(packets) => packets.zone.local_time,
            Self::Top(top) => top.local_time,
            _ => false,
        }
    }

    /// Whether the user wants no more than warnings and errors.
    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Read(read) => read.reporting.quiet,
            Self::Probe(probe) => probe.reporting.quiet,
            Self::View(view) => view.quiet,
            Self::Tcp(tcp) => tcp.reporting.quiet,
            Self::Packets(packets) => packets.quiet,
            Self::Bypass(bypass) => bypass.quiet,
            Self::Store(store) => store.quiet,
            Self::Query(query) => query.quiet,
            Self::Synth(synth) => synth.quiet,
            _ => false,
        }
    }
}

/// Options of the log on standard error, for all commands.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = LOGGING)]
pub struct Logging {
    /// Log events of this severity and above [default: info]
    #[arg(long, value_name = "LEVEL", global = true, value_parser = log_level())]
    pub log_level: Option<LevelFilter>,

    /// Format of the log on standard error: text, or one JSON object per line
    #[arg(long, value_name = "FORMAT", global = true, default_value = "text")]
    pub log_format: LogFormat,
}

impl Logging {
    /// The level in effect.
    pub fn level(&self, quiet: bool) -> LevelFilter {
        self.log_level.unwrap_or(if quiet { LevelFilter::WARN } else { LevelFilter::INFO })
    }
}

fn log_level() -> impl TypedValueParser<Value = LevelFilter> {
    PossibleValuesParser::new(["error", "warn", "info", "debug"]).map(|name| name.parse().expect("a level's name"))
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// List all fields of a flow record
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir fields | less                all fields
  weir fields basic                 those of JSON and CSV without --fields
  weir fields 'fwd_*,*_rtt_ns'      some fields

  weir fields --format csv          a machine-readable list; also json
  weir fields basic --format sql    the columns of a table of DuckDB

The last lines of all fields are words of --where, --by and --sort, which are no columns
('weir help expressions').")]
pub struct Fields {
    /// Fields to list: names, profiles (basic, layer2, tcp, places, applications, store, all) and patterns with *, separated by commas
    #[arg(value_name = "FIELDS", default_value = "all", value_parser = parse_fields)]
    pub fields: FieldList,

    /// Format of the list
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: FieldsFormat,
}

/// Format of the list of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FieldsFormat {
    /// A table for people
    Text,
    /// One array, with an object for each field
    Json,
    /// A line for each field
    Csv,
    /// CREATE TABLE for DuckDB, with a comment for each column
    Sql,
}

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir completions bash > /etc/bash_completion.d/weir
  weir completions zsh > /usr/share/zsh/site-functions/_weir
  weir completions fish > ~/.config/fish/completions/weir.fish")]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Print or install the manual pages
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir man | man -l -                       show the manual page of weir
  weir man expressions | man -l -           that of a topic
  weir man -o /usr/local/share/man/man1     write the pages of all commands, and to man7 beside it
                                            those of all topics")]
pub struct Man {
    /// A command, or a topic (weir help topics)
    #[arg(value_name = "COMMAND|TOPIC", conflicts_with = "output")]
    pub name: Option<String>,

    /// Write the pages of all commands and topics into this directory; those of topics (section 7) into man7 beside it, if its
    /// name is man1 [default: print the page of weir]
    #[arg(short = 'o', long = "output", value_name = "DIRECTORY")]
    pub output: Option<PathBuf>,
}

/// Print the help of a command, or a text about a subject
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir help topics              list all texts about subjects
  weir help expressions         what --where selects
  weir help fields              every field of a flow record
  weir help read                the help of a command: the same as weir read --help")]
pub struct Help {
    /// A command, or a topic (weir help topics)
    #[arg(value_name = "COMMAND|TOPIC")]
    pub words: Vec<String>,
}
