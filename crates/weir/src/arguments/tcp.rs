//! Options of `weir tcp`.

use super::values::{parse_expression, parse_time};
use super::{Hardening, INPUT, LocalTime, OUTPUT, OutputFiles, Reporting, Selection};
use clap::builder::{NonEmptyStringValueParser, PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command, ValueEnum};
use std::ffi::OsStr;
use std::path::PathBuf;
use weir_capture::SourceSpec;
use weir_query::Expression;
use weir_tcp_report::{GroupBy, GroupOrder, InvalidGroupOrder, InvalidOrder, SortOrder};
use weir_text::units::{parse_flows, parse_length, parse_number};

const ANALYSIS: &str = "Analysis";
const LIST: &str = "Connection list";

/// Analyse TCP connections: retransmissions, losses, delays, and where they occur
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Tcp {
    /// Captures (pcap or pcapng; plain, gzip or zstd), - for standard input, or synth:... (see weir synth --help). Several
    /// are merged in time order
    #[arg(value_name = "FILE")]
    pub files: Vec<SourceSpec>,

    #[command(flatten)]
    pub selection: Selection,

    /// Only read packets of this time and later: 2026-11-20T12:00, 2026-11-20, 12:00 (today), -2h (before now); UTC without
    /// a zone, unless with --local-time. Connections that began before have no SYN then
    #[arg(long = "from", value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true, help_heading = INPUT)]
    pub from_ns: Option<u64>,

    /// Only read packets of this time and earlier
    #[arg(long = "to", value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true, help_heading = INPUT)]
    pub to_ns: Option<u64>,

    /// Only report connections that match this expression, as in 'src net 10.0.0.0/8 and port 443 and bytes > 1M' (weir help
    /// expressions). All packets are analysed; the report and the ledger count the other connections. Conditions on payload,
    /// VLANs and other things that are not known of a connection are refused
    #[arg(long = "where", value_name = "EXPRESSION", value_parser = parse_expression, help_heading = LIST)]
    pub connections_where: Option<Expression>,

    /// Instead of connections, list their sums by server (address and port), by client (address), or by network of both
    /// (/24, /64): failures, times, octets, and on which side of the capture point segments were lost
    #[arg(long, value_name = "GROUP", conflicts_with = "explain", help_heading = LIST)]
    pub by: Option<GroupChoice>,

    /// With --by network: sum up by the names of this table, CSV with the columns prefix and name (weir help enrichment);
    /// addresses in none of its networks by /24 and /64
    #[arg(long, value_name = "FILE", requires = "by", help_heading = LIST)]
    pub networks: Option<PathBuf>,

    /// Show names in the text report: of hosts, from answers of DNS over UDP in the same captures (which their sender can
    /// forge) and from /etc/hosts, and the usual services of ports. No name server is asked
    #[arg(long, help_heading = LIST)]
    pub names: bool,

    /// Failed connections of a scan (one source with 20 targets or more) or flood (one target with 20 sources or more) as
    /// one line, or all in the list
    #[arg(long, value_name = "LIST", default_value = "grouped", help_heading = LIST)]
    pub failed: FailedChoice,

    /// Where the analysis runs [default: auto]. --verbose logs the engine in use; --engine auto logs why no GPU is used
    #[arg(long, value_name = "ENGINE", help_heading = ANALYSIS)]
    pub engine: Option<EngineChoice>,

    /// Number of connections in each of both lists, failed connections and others; suffixes k, M and G. 0 lists all
    #[arg(long, value_name = "N", default_value = "20", value_parser = parse_length, help_heading = LIST)]
    pub top: usize,

    /// Maximum number of connections to analyse; suffixes k, M and G. Packets of further connections are counted and left
    /// out. A connection needs about 1000 bytes of memory [default: as many as fit into half of the free memory]
    #[arg(long, value_name = "N", value_parser = parse_flows, help_heading = ANALYSIS)]
    pub connections: Option<u32>,

    /// Sort both lists by this property, or by a field that is a number (fwd_tcp_mss), largest value first. Failed
    /// connections come first, those that never opened before those that were reset. With --by, a column of its table
    /// [default: retransmitted; with --by connections]
    #[arg(long, value_name = "PROPERTY", value_parser = SortOrderParser, help_heading = LIST)]
    pub sort: Option<TcpOrder>,

    /// List connections with fewer than N packets after all others; suffixes k, M and G [default: 20 with --sort
    /// retransmitted, else 1]
    #[arg(long, value_name = "N", value_parser = parse_number, help_heading = LIST)]
    pub min_packets: Option<u64>,

    /// Explain one connection segment by segment. CONNECTION is its number in the list (#3), both endpoints
    /// (192.0.2.1:80-192.0.2.2:4000), its Community ID, or a part that identifies it (:4000). Reads the capture more than once
    #[arg(long, value_name = "CONNECTION", value_parser = NonEmptyStringValueParser::new(), conflicts_with_all = ["json", "csv", "arrow", "html", "svg", "compare"], help_heading = ANALYSIS)]
    pub explain: Option<String>,

    /// Also count retransmissions by the simple rule "same addresses, ports and sequence number as before", and list the
    /// differences. Needs about 60 bytes of memory per segment with payload
    #[arg(long, help_heading = ANALYSIS)]
    pub compare: bool,

    /// Write totals and all connections as one JSON object. Use - for standard output, where it replaces the report
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub json: Option<PathBuf>,

    /// Write all connections as CSV. Use - for standard output, where it replaces the report
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub csv: Option<PathBuf>,

    /// Write all connections as a stream of Apache Arrow, with the columns of CSV. Use - for standard output, where it
    /// replaces the report
    #[arg(long, value_name = "FILE", conflicts_with = "by", help_heading = OUTPUT)]
    pub arrow: Option<PathBuf>,

    /// Write the report with plots and time lines as one self-contained HTML page. Reads the capture twice
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub html: Option<PathBuf>,

    /// Write the plots as SVG files into this directory
    #[arg(long, value_name = "DIRECTORY", help_heading = OUTPUT)]
    pub svg: Option<PathBuf>,

    #[command(flatten, next_help_heading = OUTPUT)]
    pub output_files: OutputFiles,

    #[command(flatten)]
    pub hardening: Hardening,

    #[command(flatten)]
    pub reporting: Reporting,

    #[command(flatten)]
    pub zone: LocalTime,
}

/// Where the TCP analysis runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineChoice {
    /// On a GPU if one can be used, else on the CPU
    Auto,
    /// On the CPU
    Cpu,
    /// On a GPU; fail if none can be used
    Gpu,
}

/// What `--by` sums up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupChoice {
    /// Address and port of the server
    Server,
    /// Address of the client
    Client,
    /// Networks of client and server: those of --networks, else /24 and /64
    Network,
}

impl From<GroupChoice> for GroupBy {
    fn from(choice: GroupChoice) -> Self {
        match choice {
            GroupChoice::Server => Self::Server,
            GroupChoice::Client => Self::Client,
            GroupChoice::Network => Self::Network,
        }
    }
}

/// Which failed connections have a line of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailedChoice {
    /// Scans and floods are one line each
    Grouped,
    /// All failed connections
    All,
}

/// An order of `--sort`: of connections, or of the groups of `--by`. Some names are of both.
#[derive(Clone, Debug)]
pub struct TcpOrder {
    pub text: String,
    pub connections: Result<SortOrder, InvalidOrder>,
    pub groups: Result<GroupOrder, InvalidGroupOrder>,
}

/// Parses names of orders and of fields. The help lists the orders.
#[derive(Clone)]
struct SortOrderParser;

impl TypedValueParser for SortOrderParser {
    type Value = TcpOrder;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<TcpOrder, clap::Error> {
        let parse = |text: String| {
            let (connections, groups) = (SortOrder::named(&text), GroupOrder::named(&text));
            match (&connections, &groups) {
                (Err(error), Err(_)) => Err(error.clone()),
                _ => Ok(TcpOrder { text, connections, groups }),
            }
        };
        StringValueParser::new().try_map(parse).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(SortOrder::all().map(|order| PossibleValue::new(order.name()).help(order.description()))))
    }
}

const EXAMPLES: &str = "\
Examples:
  weir tcp capture.pcap                               what is unusual, totals, the worst 20
                                                      connections, distributions and warnings
  weir tcp capture.pcap --by server --sort response   sums of each server, the slowest first
  weir tcp capture.pcap --by network                  on which side of the capture point each
                                                      network loses segments
  weir tcp capture.pcap --where 'net 10.2.0.0/16 and port 443'
                                                      only connections that match
  weir tcp a.pcap b.pcapng.gz --top 0 --sort missing  two captures, merged; all connections, those
                                                      with most missing octets first
  weir tcp capture.pcap --sort response               the slowest server first
  weir tcp capture.pcap --explain '#1'                the connection that lists number 1,
                                                      segment by segment
  weir tcp capture.pcap --explain :52814              the only connection with this port
  weir tcp capture.pcap --html report.html            an HTML page with plots
  weir tcp capture.pcap --json - | jq .totals         for programs; field names as in
                                                      weir read -o json:-
  weir tcp capture.pcap --compare                     differences from the rule of most tools

The share of retransmitted segments counts retransmissions (also of segments lost before the
capture point) and retransmitted SYNs of both directions, divided by all segments with payload, SYN
or FIN. Duplicates that the capture made are in neither number. The delay of a connection says where
most of its time went: network, server or client. 'weir help tcp-guide' defines all terms.

Exit codes:
  0  success
  1  usage error, an input or output cannot be opened, --engine gpu without a usable GPU, or
     --explain found no such connection
  2  finished, but an input was damaged or not read to its end, packets were left out,
     an output was not written, or cross-checked counts differ; the report has the details";
