//! Options of `weir bench` and `weir bench live`.

use super::OutputFiles;
use super::values::parse_seconds;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use weir_export::SinkSpec;
use weir_text::units::parse_duration;

/// Benchmark Weir on this machine
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct Bench {
    #[command(subcommand)]
    pub command: Option<BenchCommand>,

    /// Tables to measure (--list shows their names) [default: all; takes half an hour or more]
    #[arg(value_name = "TABLE")]
    pub tables: Vec<String>,

    /// Number of measured rounds. In each round all cases of a row run in turn
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// Run everything with small inputs to check that it works. The figures mean nothing
    #[arg(long)]
    pub quick: bool,

    /// Table encode: send made-up records to this sink instead of to receivers that forget them
    ///
    /// Repeat it for several sinks. The sink gets 262144 records per round: use a table or topic for tests. The figure
    /// "end to end" ends when all of them are confirmed.
    #[arg(long, value_name = "SINK")]
    pub to: Vec<SinkSpec>,

    /// Write figures and conditions as JSON. Use - for standard output, where they replace the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    #[command(flatten)]
    pub output_files: OutputFiles,

    /// List the tables and exit
    #[arg(long)]
    pub list: bool,
}

const EXAMPLES: &str = "\
Examples:
  weir bench --list                                     list the tables
  weir bench flows mix                                  measure two tables
  weir bench --json bench.json                          all tables, as text and JSON
  weir bench flows --quick                              check that it works here
  weir bench encode --to kafka://192.0.2.1/test         records per second into a broker
  weir bench live                                       live sources (see weir bench live --help)

Exit codes:
  0  success
  1  usage error, or not enough memory; nothing was measured
  2  packets are missing from the counters, so the figures are invalid; or an output could not be
     written";

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    Live(BenchLive),
}

/// Benchmark live sources: loss-free rate, Weir's share of the cost, idle cost, long runs
///
/// Sends traffic over a pair of virtual interfaces in a network namespace of its own, which ends with the program.
/// Needs root. The source dpdk replays frames from memory instead and needs no privileges.
#[derive(Debug, Args)]
#[command(after_help = LIVE_EXAMPLES)]
pub struct BenchLive {
    /// Sources to measure: af_packet, af_xdp, dpdk [default: all that can be opened]
    #[arg(value_name = "SOURCE")]
    pub sources: Vec<String>,

    /// Number of measured rounds, and of single flows sent over the idle link
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// Duration of a trial, in seconds
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_seconds)]
    pub seconds: f64,

    /// Frames to send: a capture, or synth:... [default: synth:mix,flows=200,packets=32k]
    #[arg(long, value_name = "SOURCE")]
    pub frames: Option<String>,

    /// Afterwards, run for this many minutes below the loss-free rate. The exit code is 1 if a packet is lost or memory grows
    #[arg(long, value_name = "MINUTES", value_parser = parse_seconds)]
    pub soak: Option<f64>,

    /// Rate of the --soak run, in percent of the loss-free rate
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub at: u8,

    /// Interval of the --soak run's statistics lines (units ms, s, m, h)
    #[arg(long = "interval", value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub interval_ns: u64,

    /// Write figures and conditions as JSON. Use - for standard output, where they replace the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    #[command(flatten)]
    pub output_files: OutputFiles,
}

const LIVE_EXAMPLES: &str = "\
Examples:
  weir bench live                                       all sources; takes some minutes
  weir bench live af_packet --frames capture.pcap       send the frames of a capture
  weir bench live af_packet --soak 10                   then run 10 minutes at 80 % of the loss-free
                                                        rate
  weir bench live --seconds 0.1 --rounds 1              check that it works here

Exit codes:
  0  success
  1  usage error or missing privileges, and nothing was measured; or the --soak run lost a packet
     or its memory grew
  2  packets are missing from the counters, so the figures are invalid; or it was interrupted; or
     an output could not be written";
