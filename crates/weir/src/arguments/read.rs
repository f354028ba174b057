//! Options of `weir read`.

use super::groups::settings_help;
use super::values::parse_time;
use super::{ACTIONS, Enrichment, Hardening, INPUT, LocalTime, Metering, OUTPUT, OutputFiles, Reporting, Sinks, Times};
use crate::error::InputError;
use clap::{Args, value_parser};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use weir_capture::SourceSpec;

/// Meter captures and write flow records to a table, files or collectors
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub struct Read {
    /// Captures (pcap or pcapng; plain, gzip or zstd), - for standard input, or decoded packets (packets:FILE; see
    /// weir help packet-records). Several are merged in time order. Or stored flows: stores (folders), Parquet files
    /// (weir help store), IPFIX files (weir help ipfix-files) and files of nfdump 1.7
    #[arg(value_name = "FILE|FOLDER")]
    pub files: Vec<SourceSpec>,

    /// Input source; may be repeated. A capture, - (standard input) or generated traffic (synth:mix,...; see
    /// weir synth --help). Or one live interface, read until Ctrl-C (af_packet:INTERFACE or af_xdp:INTERFACE; see below)
    #[arg(short = 'i', long = "input", value_name = "SOURCE", help_heading = INPUT)]
    pub inputs: Vec<SourceSpec>,

    /// Only read packets of this time and later, or stored flows that start then: 2026-11-20T12:00, 2026-11-20, 12:00 (today),
    /// -2h (before now); UTC without a zone, unless with --local-time
    #[arg(long = "from", value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true, help_heading = INPUT)]
    pub from_ns: Option<u64>,

    /// Only read packets of this time and earlier, or stored flows that start then
    #[arg(long = "to", value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true, help_heading = INPUT)]
    pub to_ns: Option<u64>,

    /// Capture from af_xdp:lo, too, which takes all loopback traffic away from this machine
    #[arg(long, help_heading = INPUT)]
    pub force: bool,

    /// Threads that read and meter captures: one meters, the others read ahead. More than are useful are not
    /// started. The records are the same with any number. Each sink has a thread of its own [default: the cores of this
    /// machine; 1 for an uncompressed capture of short packets, which a second one makes no faster]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024), help_heading = INPUT)]
    pub threads: Option<u16>,

    #[command(flatten)]
    pub sinks: Sinks,

    /// Show names in tables: of hosts, from answers of DNS in the same traffic (which their sender can forge) and from
    /// /etc/hosts, and the usual services of ports. No name server is asked
    #[arg(long, conflicts_with = "anonymise", help_heading = OUTPUT)]
    pub names: bool,

    /// Write *Traffic* and *Quality* of the page of weir view as one HTML file, to send to someone: it needs no Weir and no
    /// network (weir help page). Use - for standard output, where it replaces the table
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub html: Option<PathBuf>,

    #[command(flatten, next_help_heading = OUTPUT)]
    pub output_files: OutputFiles,

    #[command(flatten)]
    pub metering: Metering,

    #[command(flatten)]
    pub enrichment: Enrichment,

    /// Hand packets on to interfaces, pipes and files by the rules of this file (weir help rules)
    #[arg(long, value_name = "FILE", help_heading = ACTIONS)]
    pub rules: Option<PathBuf>,

    #[command(flatten)]
    pub hardening: Hardening,

    #[command(flatten)]
    pub reporting: Reporting,

    #[command(flatten)]
    pub zone: LocalTime,

    #[command(flatten)]
    pub times: Times,
}

impl Read {
    pub fn sources(&self) -> Vec<SourceSpec> {
        [&self.files[..], &self.inputs].concat()
    }

    /// The times of `--from` and `--to`; `None` without them.
    ///
    /// # Errors
    /// There is no time between them.
    pub fn times_ns(&self) -> Result<Option<RangeInclusive<u64>>, InputError> {
        times_ns(self.from_ns, self.to_ns)
    }
}

/// The times of `--from` and `--to`; `None` without them.
///
/// # Errors
/// There is no time between them.
pub fn times_ns(from_ns: Option<u64>, to_ns: Option<u64>) -> Result<Option<RangeInclusive<u64>>, InputError> {
    let times = from_ns.unwrap_or(0)..=to_ns.unwrap_or(u64::MAX);
    if times.is_empty() {
        return Err(InputError::FromAfterTo);
    }
    Ok((from_ns.is_some() || to_ns.is_some()).then_some(times))
}

fn after_help() -> String {
    format!("{EXAMPLES}\n{}{EXIT_CODES}", settings_help())
}

const EXAMPLES: &str = "\
Examples:
  weir read capture.pcap                              the 20 largest flows, and a summary
  weir read capture.pcap --top 0                      all flows
  weir read a.pcap b.pcapng.zst -o csv:flows.csv      two captures, merged; all flows as CSV
  weir read capture.pcap -o flows.json.zst            compressed; readable while it is written
  weir read capture.pcap -o 'flows-%Y%m%d-%H%M.csv?rotate=5m'
                                                      a file for each 5 minutes of the capture
  weir read capture.pcap -o json:- | jq .src_ip       one JSON object per flow
  weir read capture.pcap -f 'host 192.0.2.1 and tcp'  only packets that match
  weir read capture.pcap -f 'vlan and udp port 53'    the same for VLAN-tagged packets
  weir read capture.pcap --where 'dst port 443 and bytes > 1M'
                                                      only flows that match
  weir read capture.pcap --by host                    top talkers: sums of the flows of each host
  weir read capture.pcap --by src_ip/24,service_port --sort flows -o csv:-
  weir read capture.pcap --by src_ip --count hosts,ports --sort hosts
                                                      who scans: different hosts and ports
  weir read capture.pcap --every 10s                  a time line
  weir read capture.pcap --sort duration --top 5      the longest flows
  weir read capture.pcap --html report.html           a page with plots, to send to someone
  weir read flows --from -2h --by host                top talkers of the last two hours of a store
  weir read flows --where 'host 192.0.2.1' -o json:-  stored flows of a host
  weir read flows.ipfix --by host                     IPFIX files of Weir, YAF and others
  weir read nfcapd.202611240000 --by host             files of nfdump 1.7 (weir help nfdump-files)
  weir read tunnels.pcap --decap --key vlan           inner flows, separate for each VLAN
  weir read capture.pcap -o ipfix+udp://192.0.2.1:4739 -o netflow5+udp://192.0.2.2:2055
  weir read -i synth:mix,flows=10000,packets=1M       generated traffic
  weir read capture.pcap -o packets:FILE              decoded packets instead of records
  weir read -i af_packet:eth0 -o json:-               live traffic until Ctrl-C; needs CAP_NET_RAW
  weir read capture.pcap -v --stats ledger.json       the ledger, as text and as JSON
";

const EXIT_CODES: &str = "
Exit codes:
  0  success; also when the reader of the output stops early (weir read ... | head)
  1  usage error, or an input or output cannot be opened; nothing was metered
  2  finished, but an input was damaged, has an unknown link type or was not read to its end,
     packets were dropped, or records were not delivered; the summary has the counts. Malformed
     packets are traffic";
