//! The command line: commands, options and their help texts.
//!
//! The doc comments of the structures in this module are the help texts. One file per command;
//! options that several commands share are in `metering.rs`, option values that need parsing in
//! `values.rs`.

mod bench;
mod doctor;
mod metering;
mod pages;
mod plan;
mod probe;
mod read;
mod synth;
mod tcp;
mod values;

pub use bench::{Bench, BenchCommand, BenchLive};
pub use doctor::Doctor;
pub use metering::{FullPolicy, KeyField, Metering, Sinks};
pub use pages::{Completions, Fields, Man};
pub use plan::Plan;
pub use probe::{Layout, ProbeOptions};
pub use read::Read;
pub use synth::Synth;
pub use tcp::{EngineChoice, Tcp};
pub use values::Cores;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing::level_filters::LevelFilter;

/// Headings of option groups in help texts.
const INPUT: &str = "Input";
const OUTPUT: &str = "Output";
const METERING: &str = "Metering";
const PERFORMANCE: &str = "Performance";
const OVERLOAD: &str = "Overload";
const OPERATION: &str = "Operation";
const LOGGING: &str = "Logging";

/// Exact flow records from network traffic: every packet and byte is accounted for.
#[derive(Debug, Parser)]
#[command(name = "weir", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub logging: Logging,
}

const EXAMPLES: &str = "\
Examples:
  weir read capture.pcap                    print the largest flows and a summary
  weir read *.pcapng.gz -o csv:flows.csv    merge captures in time order; write all flows as CSV
  tcpdump -U -w - -i eth0 | weir read -     read from a pipe
  weir read -i af_packet:eth0               meter live traffic until Ctrl-C
  weir read capture.pcap -v                 also print where each packet went
  weir tcp capture.pcap                     find retransmissions, losses and delays per connection
  weir probe -i af_packet:eth0              run as a probe, with statistics every second
  weir doctor                               check this machine for settings that cost packets

'weir COMMAND --help' describes a command, its options and its exit codes.

Exit codes:
  0  success
  1  usage error, or input that cannot be opened; nothing was metered
  2  finished, but some input was malformed or some records were not delivered (see the counters)";

#[derive(Debug, Subcommand)]
pub enum Command {
    Read(Box<Read>),
    Probe(Box<ProbeOptions>),
    Tcp(Box<Tcp>),
    Synth(Synth),
    Bench(Bench),
    Doctor(Doctor),
    Plan(Plan),
    Fields(Fields),
    Completions(Completions),
    Man(Man),
}

impl Command {
    /// Whether the user wants no more than warnings and errors.
    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Read(read) => read.quiet,
            Self::Probe(probe) => probe.quiet,
            Self::Tcp(tcp) => tcp.quiet,
            Self::Synth(synth) => synth.quiet,
            _ => false,
        }
    }
}

/// Options of the log on standard error, for all commands.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = LOGGING)]
pub struct Logging {
    /// Log events of this severity and above [default: info; with --quiet: warn]
    #[arg(long, value_name = "LEVEL", global = true, value_parser = log_level())]
    pub log_level: Option<LevelFilter>,

    /// Format of the log on standard error: text, or one JSON object per line
    #[arg(long, value_name = "FORMAT", global = true, default_value = "text")]
    pub log_format: LogFormat,
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
