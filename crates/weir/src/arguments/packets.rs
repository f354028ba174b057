//! Options of `weir packets`.

use super::values::{parse_expression, parse_time};
use super::{Hardening, INPUT, LocalTime, OUTPUT, OutputFiles};
use clap::{ArgGroup, Args};
use std::path::PathBuf;
use weir_query::Expression;
use weir_recorder::Query;

/// Find the packets of flows in recorded folders and captures, and write them to a file
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("wanted").required(true).multiple(true)
    .args(["flow", "records", "from_ns", "to_ns"]))]
pub struct Packets {
    /// Folders of a recorder, its files, captures (pcap or pcapng; plain, gzip or zstd), or - for standard input. Several
    /// are merged in time order. Files with an index beside them (FILE.idx) are read in part
    #[arg(value_name = "FOLDER|FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Find one flow, by its Community ID (field community_id of its record), or by addresses, ports and protocol:
    /// 192.0.2.1:40000-192.0.2.2:443/tcp (also with the arrow of tables), [2001:db8::1]:40000-[2001:db8::2]:53/udp,
    /// 192.0.2.1-192.0.2.2/icmp (all flows of ICMP between both)
    #[arg(long, value_name = "FLOW", value_parser = Query::flow, conflicts_with = "records", help_heading = INPUT)]
    pub flow: Option<Query>,

    /// Find the flows whose records match this expression, as in 'src net 10.0.0.0/8 and port 443 and bytes > 1M'
    /// (weir help expressions). Conditions on host, port and protocol alone need one pass, others meter the packets first
    #[arg(long = "where", value_name = "EXPRESSION", value_parser = parse_expression, help_heading = INPUT)]
    pub records: Option<Expression>,

    /// Only read packets of this time and later: 2026-11-20T12:00:00Z, 2026-11-20T12:00:00.5, 2026-11-20, 12:00 (today), -2h (before now); UTC without a zone, unless with --local-time
    #[arg(long = "from", value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true, help_heading = INPUT)]
    pub from_ns: Option<u64>,

    /// Only read packets of this time and earlier
    #[arg(long = "to", value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true, help_heading = INPUT)]
    pub to_ns: Option<u64>,

    /// Capture file to write: pcapng, or pcap if the name ends with .pcap. With .gz or .zst behind, compressed. Use - for
    /// standard output
    #[arg(short = 'o', long = "output", value_name = "FILE", help_heading = OUTPUT)]
    pub output: PathBuf,

    #[command(flatten, next_help_heading = OUTPUT)]
    pub output_files: OutputFiles,

    /// At the end, write what was read and found as JSON. Use - for standard output
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub stats: Option<PathBuf>,

    /// Print no progress and no result; the default of --log-level is warn
    #[arg(short, long, help_heading = OUTPUT)]
    pub quiet: bool,

    #[command(flatten)]
    pub zone: LocalTime,

    #[command(flatten)]
    pub hardening: Hardening,
}

impl Packets {
    /// What is searched.
    pub fn query(&self) -> Query {
        let query = match (&self.flow, &self.records) {
            (Some(flow), _) => flow.clone(),
            (None, Some(expression)) => Query::records(expression.clone()),
            (None, None) => Query::everything(),
        };
        query.within(self.from_ns.unwrap_or(0), self.to_ns.unwrap_or(u64::MAX))
    }
}

const EXAMPLES: &str = "\
Examples:
  weir packets /srv/packets --flow '1:LQU9qZlK+B5F3KDmev6m5PMibrg=' -o flow.pcapng
                                                      the packets of a flow record
  weir packets /srv/packets --flow 192.0.2.1:40000-192.0.2.2:443/tcp -o flow.pcapng
  weir packets /srv/packets --where 'host 192.0.2.1 and port 53' -o - | tshark -r -
  weir packets capture.pcap.gz --where 'application = tls and retransmitted > 100' -o slow.pcap
  weir packets a.pcapng b.pcapng --from 2026-11-20T12:00 --to 2026-11-20T12:01 -o minute.pcapng

Exit codes:
  0  success, also if no packet was found, which is reported
  1  usage error, or an input or output cannot be opened; nothing was written
  2  finished, but an input was damaged or not read to its end, or the output was not written";
