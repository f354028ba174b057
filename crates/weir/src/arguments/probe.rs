//! Options of `weir probe`. `probe::config` offers the same options in a file.

use super::groups::settings_help;
use super::values::{parse_cores, parse_overload, parse_packet_octets, parse_sample, parse_shed};
use super::{
    ACTIONS, CONTROL, Cores, Enrichment, Hardening, INPUT, LocalTime, METERING, Metering, OPERATION, OUTPUT, OVERLOAD,
    Output, PERFORMANCE, Reporting, Sinks, Times,
};
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use weir_capture::SourceSpec;
use weir_control::parse_address;
use weir_ledger::Timing;
use weir_probe::{OverloadPolicy, ShedOrder};
use weir_text::units::{parse_duration, parse_length};

/// Meter live traffic continuously and export flow records to collectors and files
#[derive(Clone, Debug, Args)]
#[command(after_help = after_help(), args_override_self = true)]
pub struct ProbeOptions {
    /// Input source; may be repeated. A live interface (af_packet:INTERFACE or af_xdp:INTERFACE; settings:
    /// see below), a capture or generated traffic (synth:mix,...)
    #[arg(short = 'i', long = "input", value_name = "SOURCE", help_heading = INPUT)]
    pub inputs: Vec<SourceSpec>,

    /// Capture from af_xdp:lo, too, which takes all loopback traffic away from this machine
    #[arg(long, help_heading = INPUT)]
    pub force: bool,

    #[command(flatten)]
    pub sinks: Sinks,

    #[command(flatten)]
    pub metering: Metering,

    #[command(flatten)]
    pub enrichment: Enrichment,

    /// Hand packets on to interfaces, pipes and files by the rules of this file (weir help rules)
    #[arg(long, value_name = "FILE", help_heading = ACTIONS)]
    pub rules: Option<PathBuf>,

    /// Read options from this TOML file. Its keys are the long option names; the command line takes precedence
    #[arg(long, value_name = "FILE", help_heading = OPERATION)]
    pub config: Option<PathBuf>,

    /// Validate the configuration, print it and exit. Lists all problems, also those of interfaces, captures, output files
    /// and names of collectors. Starts nothing and leaves no file
    #[arg(long, help_heading = OPERATION)]
    pub check: bool,

    /// Print all options in the format of --config and exit
    #[arg(long, help_heading = OPERATION)]
    pub print_config: bool,

    /// How packets are distributed over threads
    #[arg(long, value_name = "LAYOUT", default_value = "fused", help_heading = PERFORMANCE)]
    pub layout: Layout,

    /// What to do when packets arrive faster than they can be metered. shed: reduce detail level by level (inspection of
    /// payload and TCP analysis in the order of --shed, records of small new flows, then sampling) and restore it when the load
    /// falls. lose: keep full detail and count lost packets. 0 to 13: stay at this overload level (weir help overload)
    #[arg(long, value_name = "POLICY", default_value = "shed", value_parser = parse_overload, help_heading = OVERLOAD)]
    pub overload: OverloadPolicy,

    /// What the first overload levels leave out, one each, in this order: dpi (inspection of payload) and tcp (TCP analysis).
    /// Before dpi there may be fingerprints (JA3, JA4, JA3S, HASSH); later levels then move up by one
    #[arg(long, value_name = "ORDER", default_value = "dpi,tcp", value_parser = parse_shed, help_heading = OVERLOAD)]
    pub shed: ShedOrder,

    /// Packet sampling: meter one packet in N, chosen at random (1 to 16383; suffix k). Records carry the sampling rate and
    /// have no TCP analysis and no application
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_sample, help_heading = METERING)]
    pub sample: u32,

    /// Metering threads of --layout spread [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..), help_heading = PERFORMANCE)]
    pub meters: Option<u8>,

    /// Batch size: packets whose flow cache slots are prefetched together, 1 to 64
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u8).range(1..=64), help_heading = PERFORMANCE)]
    pub batch: u8,

    /// Before metering, measure alternative layouts, core assignments, ring block sizes, batch sizes and polling modes with
    /// the actual traffic, each for TIME (--autotune without TIME: 1s). Then meter with the fastest
    #[arg(long = "autotune", value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s", value_parser = parse_duration, help_heading = PERFORMANCE)]
    pub autotune_ns: Option<u64>,

    /// Poll for packets without sleeping. Each thread uses a whole core
    #[arg(long, help_heading = PERFORMANCE)]
    pub busy_poll: bool,

    /// At the start, touch and lock the memory of rings and flow caches, so that the kernel does not swap it out. Needs root,
    /// the capability CAP_IPC_LOCK, or a sufficient limit of locked memory (ulimit -l)
    #[arg(long, help_heading = PERFORMANCE)]
    pub lock_memory: bool,

    /// Cores for reading and metering threads, as in 2,3,4 or 2-4. Each thread takes the next core of the list [default:
    /// cores on the NUMA node of the NIC if there are enough]
    #[arg(long, value_name = "LIST", value_parser = parse_cores, help_heading = PERFORMANCE)]
    pub cores: Option<Cores>,

    /// Cores for export threads [default: cores on the NUMA node of the NIC if there are enough]
    #[arg(long, value_name = "LIST", value_parser = parse_cores, help_heading = PERFORMANCE)]
    pub export_cores: Option<Cores>,

    /// If started as root: drop to this user (name or number) after opening sources and sinks. With 'root', keep all
    /// privileges
    #[arg(long, value_name = "USER", default_value = "nobody", help_heading = OPERATION)]
    pub user: String,

    #[command(flatten)]
    pub hardening: Hardening,

    /// Wait for interfaces that do not exist, are down or are removed, and attach to them when they are up. For af_packet:
    /// with one queue, without fanout and hardware timestamps, and for af_xdp: with one queue
    #[arg(long, help_heading = OPERATION)]
    pub wait: bool,

    /// Format of the status and of the totals on standard error. With --log-format json they are JSON, too
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = OUTPUT)]
    pub status: StatusFormat,

    /// Interval of the status on standard error (units ms, s, m, h, d)
    #[arg(long = "interval", value_name = "TIME", default_value = "1s", value_parser = parse_duration, help_heading = OUTPUT)]
    pub interval_ns: u64,

    /// Stop after this time (units ms, s, m, h, d) [default: run until a signal]
    #[arg(long = "duration", value_name = "TIME", value_parser = parse_duration, help_heading = OPERATION)]
    pub duration_ns: Option<u64>,

    /// At the end (a signal, --duration): time in which the sinks get the last records (units ms, s, m, h, d). Collectors get
    /// them faster than ?rate= if this needs it. Records that are not written then are counted as lost
    #[arg(long = "drain-timeout", value_name = "TIME", default_value = "20s", value_parser = parse_duration, help_heading = OPERATION)]
    pub drain_timeout_ns: u64,

    /// Serve health, status and metrics for Prometheus over HTTP. A port alone is on loopback; other addresses need
    /// --tls-cert, --tls-key and --token-file (weir help control) [default: off]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_address, help_heading = CONTROL)]
    pub listen: Option<SocketAddr>,

    /// With --listen and without a store (parquet:FOLDER): flow records that have ended and are kept in memory for the page
    /// and /stored, the last ones; suffixes k and M. 0 keeps none
    #[arg(long, value_name = "N", default_value = "65536", value_parser = parse_length, help_heading = CONTROL)]
    pub listen_records: usize,

    /// With --listen and a recorder (--rules): octets of the packets of a flow that /packets answers with, at most; 0: none
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = parse_packet_octets, help_heading = CONTROL)]
    pub listen_packets: usize,

    /// With --listen: show names of hosts on the page and by GET /names, from answers of DNS in the traffic (which their
    /// sender can forge) and from /etc/hosts, and the usual services of ports. No name server is asked
    #[arg(long, requires = "listen", conflicts_with = "anonymise", help_heading = CONTROL)]
    pub names: bool,

    /// Permit changes over HTTP to clients with the token in this file, which its owner alone may read. At least 16
    /// characters in one line
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = CONTROL)]
    pub token_file: Option<PathBuf>,

    /// Serve HTTPS with the certificate chain in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "listen", requires = "tls_key", help_heading = CONTROL)]
    pub tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = CONTROL)]
    pub tls_key: Option<PathBuf>,

    #[command(flatten)]
    pub reporting: Reporting,

    #[command(flatten)]
    pub zone: LocalTime,

    #[command(flatten)]
    pub times: Times,
}

impl ProbeOptions {
    /// Times that are no options of users.
    pub fn timing(&self) -> Timing {
        self.times.timing()
    }

    /// Records of flows that have ended which are kept for the HTTP interface: none with a store.
    pub fn kept_records(&self) -> usize {
        let mut sinks = self.sinks.outputs.iter().flat_map(Output::sinks);
        let is_kept = self.listen.is_some() && sinks.all(|sink| sink.spec.folder().is_none());
        if is_kept { self.listen_records } else { 0 }
    }

    /// Metering threads of `--layout spread`.
    pub fn metering_threads(&self) -> u8 {
        self.meters.unwrap_or(2)
    }
}

impl ProbeOptions {
    /// Whether payload is inspected. The threads that meter get no payload from other threads.
    pub fn inspects(&self) -> bool {
        self.layout == Layout::Fused && self.metering.inspects()
    }
}

/// Threads of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// One thread per receive queue reads and meters
    Fused,
    /// Two threads per receive queue: one reads, one meters
    Split,
    /// One thread per receive queue reads; the threads of --meters share the flows of all queues and balance their load
    Spread,
}

/// Format of the status of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusFormat {
    /// One line per interval, the summary and the ledger
    Text,
    /// One JSON object per line (weir help probe-guide)
    Json,
}

fn after_help() -> String {
    format!("{EXAMPLES}\n{}{SIGNALS}", settings_help())
}

const EXAMPLES: &str = "\
Examples:
  weir probe -i af_packet:eth0                              a status line every second; at Ctrl-C,
                                                            the largest flows
  weir probe -i af_packet:eth0 --by host --duration 1m      at the end, the top talkers
  weir probe -i af_packet:eth0,queues=4 --cores 2-5 -o ipfix+udp://192.0.2.1:4739
  weir probe -i af_packet:eth0 -o '/srv/flows-%Y%m%d-%H%M.csv.gz?rotate=5m'
                                                            compressed files of 5 minutes each
  weir probe -i af_packet:eth0 --listen 9477                health and metrics at
                                                            http://127.0.0.1:9477/metrics
  weir probe -i af_packet:eth0 --print-config > probe.toml  write a configuration file
  weir probe --config probe.toml --check                    validate it
  weir probe --config probe.toml                            run with it
";

const SIGNALS: &str = "
Signals:
  SIGINT, SIGTERM  stop receiving, end and export all flows within --drain-timeout, exit; another
                   one, more than 2 s later, exits at once
  SIGHUP           read the file of --config again; timeouts, filter and sinks change without
                   a restart. Load the files of --rules, --networks, --geo and --tags again
  SIGUSR1          print the totals since the start: pipelines and ledger

Exit codes:
  0  success; also when the reader of an output stops early
  1  usage error, or a source or sink cannot be opened; nothing was metered
  2  finished, but packets were lost, a capture was damaged or not read to its end, or records
     were not delivered; the summary has the counts. Malformed packets are traffic";
