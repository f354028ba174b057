//! Options of `weir view`.

use super::values::{parse_expression, parse_packet_octets, parse_time};
use super::{CONTROL, Enrichment, Hardening, INPUT, LocalTime, OUTPUT, Selection, Times};
use crate::error::InputError;
use crate::stored_times::NEWEST_FLOWS;
use clap::Args;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use weir_capture::SourceSpec;
use weir_control::parse_address;
use weir_query::Expression;

/// Show captures and stored flows on a page in the browser, without a probe
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct View {
    /// Stores (folders) and Parquet files, which are shown as they are, also while they grow; captures, - for standard input,
    /// IPFIX files and files of nfdump 1.7, whose flows go into a temporary store first (weir help view-guide)
    #[arg(value_name = "PATH")]
    pub paths: Vec<SourceSpec>,

    /// Where the page is served. A port alone is on loopback, and 0 any free one; other addresses need --tls-cert, --tls-key
    /// and --token-file (weir help control)
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", value_parser = parse_address, help_heading = CONTROL)]
    pub listen: SocketAddr,

    /// Open the page in the browser of this desktop (xdg-open)
    #[arg(long, help_heading = CONTROL)]
    pub open: bool,

    /// Folder of a recorder, or a capture, in which the packets of flows are found; several times for several. Default: the
    /// captures that are shown
    #[arg(long, value_name = "PATH", help_heading = INPUT)]
    pub packets: Vec<PathBuf>,

    /// Octets of the packets of a flow that /packets answers with, at most; 0: none
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = parse_packet_octets, help_heading = CONTROL)]
    pub listen_packets: usize,

    /// Begin with about this number of flows, the newest, if there are more; 0: with all
    #[arg(long, value_name = "FLOWS", default_value_t = NEWEST_FLOWS, help_heading = OUTPUT)]
    pub newest: u64,

    /// Show names of hosts, from answers of DNS in the flows as they are now (which their sender can forge) and from
    /// /etc/hosts, and the usual services of ports. No name server is asked
    #[arg(long, help_heading = OUTPUT)]
    pub names: bool,

    /// Only show flows that match this expression (weir help expressions)
    #[arg(long = "where", value_name = "EXPRESSION", value_parser = parse_expression, help_heading = INPUT)]
    pub records: Option<Expression>,

    /// Only show flows that start at this time or later, and of captures read only packets of this time: 2026-11-20T12:00,
    /// 2026-11-20, 12:00 (today), -2h (before now); UTC without a zone, unless with --local-time
    #[arg(long = "from", value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true, help_heading = INPUT)]
    pub from_ns: Option<u64>,

    /// The same at this time or earlier
    #[arg(long = "to", value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true, help_heading = INPUT)]
    pub to_ns: Option<u64>,

    #[command(flatten)]
    pub selection: Selection,

    #[command(flatten)]
    pub enrichment: Enrichment,

    /// The token in this file, which its owner alone may read, permits to read beyond loopback. At least 16 characters in
    /// one line
    #[arg(long, value_name = "FILE", help_heading = CONTROL)]
    pub token_file: Option<PathBuf>,

    /// Serve HTTPS with the certificate chain in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = CONTROL)]
    pub tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = CONTROL)]
    pub tls_key: Option<PathBuf>,

    #[command(flatten)]
    pub hardening: Hardening,

    /// Print the address of the page only, and warnings; the default of --log-level is warn
    #[arg(short, long, help_heading = OUTPUT)]
    pub quiet: bool,

    #[command(flatten)]
    pub zone: LocalTime,

    #[command(flatten)]
    pub times: Times,
}

impl View {
    /// The times of `--from` and `--to`.
    ///
    /// # Errors
    /// There is no time between them.
    pub fn times_ns(&self) -> Result<RangeInclusive<u64>, InputError> {
        let times = self.from_ns.unwrap_or(0)..=self.to_ns.unwrap_or(u64::MAX);
        if times.is_empty() { Err(InputError::FromAfterTo) } else { Ok(times) }
    }
}

const EXAMPLES: &str = "\
Examples:
  weir view capture.pcap                            prints the address of the page
  weir view capture.pcap --open                     also opens it
  weir view /var/flows                              a store, also while a probe writes it
  weir view monday.pcap tuesday.pcap.zst -f 'not port 22'
                                                    two captures, merged; only packets that match
  weir view /var/flows --packets /srv/packets       flows of a store, and their packets of a recorder
  weir view nfcapd.202611240000 flows.ipfix         flows of other exporters
  tcpdump -w - -i eth0 -c 100000 | weir view -      a pipe, when it has ended
  ssh server cat capture.pcap | weir view - --listen 8080 --where 'port 443'

Exit codes:
  0  success: SIGINT, SIGTERM or SIGHUP (nohup weir view ... ignores that)
  1  usage error, or something cannot be opened; nothing was shown
  2  the same signals, but an input was damaged or not read to its end; the page says so, too";
