//! Options of `weir top`.

use super::groups::Times;
use super::{INPUT, OUTPUT};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use weir_text::units::{parse_duration, parse_number};

/// Watch a probe, an interface or stored flows in the terminal: rates, losses, hosts, flows, failures
///
/// Keys choose the list, its order and a filter; ? shows them. An interface is metered by a probe of its own, which
/// ends with the screen
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Top {
    /// HTTP interface of a running probe or of weir view (http://HOST:PORT), an interface (eth0, af_packet:eth0,queues=2),
    /// a store or a capture
    #[arg(value_name = "URL|INTERFACE|FOLDER|FILE")]
    pub target: String,

    /// Token of the probe, in a file that its owner alone may read; beyond loopback the probe asks for it
    #[arg(long, value_name = "FILE", help_heading = INPUT)]
    pub token_file: Option<PathBuf>,

    /// Certificates (PEM) that the probe's certificate has to be signed by, for an https URL
    #[arg(long, value_name = "FILE", help_heading = INPUT)]
    pub ca: Option<PathBuf>,

    /// The list to begin with
    #[arg(long, value_name = "LIST", default_value = "hosts", help_heading = OUTPUT)]
    pub list: TopList,

    /// Only flows that match this expression (weir help expressions)
    #[arg(long = "where", value_name = "EXPRESSION", help_heading = OUTPUT)]
    pub filter: Option<String>,

    /// Sort by this number, the largest first, or NAME:asc: a heading, a column of weir read --by as JSON, a field of flows,
    /// or of a probe rate [default: bytes; failures: start_time]
    #[arg(long, value_name = "NAME", help_heading = OUTPUT)]
    pub sort: Option<String>,

    /// Rows, 1 to 1000 [default: 200; with --once 20]
    #[arg(long, value_name = "N", value_parser = parse_rows, help_heading = OUTPUT)]
    pub top: Option<usize>,

    /// Time between two questions, from 200ms to 1h
    #[arg(long = "interval", value_name = "TIME", default_value = "1s", value_parser = parse_interval, help_heading = OUTPUT)]
    pub interval_ns: u64,

    /// Show names of hosts and services beside addresses and ports: of a probe or weir view that was started with --names
    #[arg(long, help_heading = OUTPUT)]
    pub names: bool,

    /// Show times in local time (the variable TZ, or the zone of this machine). Times in --where are UTC [default: UTC]
    #[arg(long, help_heading = OUTPUT)]
    pub local_time: bool,

    /// Print one screen as text and end; of a probe the rates are those of one interval. The width is that of the
    /// terminal or of the variable COLUMNS, else 80
    #[arg(long, help_heading = OUTPUT)]
    pub once: bool,

    #[command(flatten)]
    pub times: Times,
}

/// A list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TopList {
    /// Sums by host
    Hosts,
    /// Sums by source and destination
    Pairs,
    /// Sums by server and port
    Servers,
    /// Sums by application
    Applications,
    /// Single flows
    Flows,
    /// Flows that failed
    Failures,
}

fn parse_rows(text: &str) -> Result<usize, String> {
    let rows = parse_number(text).ok().filter(|rows| (1..=1000).contains(rows));
    rows.map(|rows| rows as usize).ok_or_else(|| "use a number from 1 to 1000".into())
}

fn parse_interval(text: &str) -> Result<u64, String> {
    let interval = parse_duration(text).ok().filter(|ns| (200_000_000..=3_600_000_000_000).contains(ns));
    interval.ok_or_else(|| "use a time from 200ms to 1h".into())
}

const EXAMPLES: &str = "\
Examples:
  weir top eth0                              what does this interface carry now?
  weir top http://127.0.0.1:9477             watch a probe that runs with --listen 9477
  weir top https://192.0.2.1:9477 --ca ca.pem --token-file token
                                             a probe elsewhere
  weir top capture.pcap                      hosts, servers and failures of a capture
  weir top /var/lib/weir/flows --list failures
  weir top http://127.0.0.1:9477 --once --list pairs --top 5 --where 'port 443'
                                             one screen as text, for scripts

Exit codes:
  0  success: the user has ended the screen, or SIGINT or SIGTERM; --once has printed all
  1  usage error; nothing answers, or the interface or the files cannot be read; standard output is
     no terminal and --once is missing
  2  ended, but the probe of an interface failed meanwhile; with --once: not all flows were read
     in time, or files are damaged";
