//! Options that several commands share.

use super::values::{
    FieldList, Output, RecordSink, parse_expression, parse_fields, parse_groups, parse_interval, parse_timing,
    parse_transaction_sink,
};
use super::{ENRICHMENT, INPUT, INSPECTION, METERING, OPERATION, OUTPUT};
use clap::builder::{NonEmptyStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use weir_anonymise::AnonymisationSpec;
use weir_dpi::InspectionSettings;
use weir_enrich::{Sources, TagList};
use weir_export::{FileMode, SINK_KINDS, SinkKind, SinkSetting};
use weir_fields::{Column, Requirement, SumField, columns};
use weir_ledger::Timing;
use weir_query::{CountField, Expression, GroupField, Order, ViewSettings};
use weir_text::units::{parse_duration, parse_flows, parse_length};
use weir_text::wrap;

/// Live interfaces and their settings in the help texts of `weir read` and `weir probe`.
const LIVE: &str = "\
Live interfaces, with settings after the name, each after a comma:
  af_packet:INTERFACE    packets that the interface receives and sends (on lo, only received ones)
    queues=1               receive rings, each with a pipeline; weir read takes one
    block=256KiB           size of a block of the receive ring; longer frames are truncated
    blocks=256             number of blocks; the ring is locked in memory
    snap=OCTETS            truncate frames to this length [default: whole frames]
    promisc=on             promiscuous mode: on or off
    timestamps=kernel      time stamps of the kernel, or of the NIC: hardware
    fanout=NUMBER          share the traffic with other programs that use the same number; all
                           packets of a flow, fragments included, go to the same program
  af_xdp:INTERFACE       packets that the interface receives. The network stack of this host does
                         not see them, so use it on mirror ports only
    queues=0-3             receive queues: one, or a range [default: all]; weir read takes one
    mode=auto              auto, copy or zerocopy
    attach=auto            auto, native or generic
    snap=OCTETS            truncate frames to this length [default: whole frames]
    frames=4096            frame buffers per queue
  dpdk:DEVICE            in a build with DPDK (weir help dpdk)
";

/// Settings of sources and sinks in the help texts of `weir read` and `weir probe`. The page
/// reference of `docs` has the same.
pub(super) fn settings_help() -> String {
    let mut text = format!("{LIVE}\nSinks, with settings after ?, joined by &:\n");
    let files =
        "A file name with the ending of its format needs no scheme. - is standard output. .gz or .zst compresses";
    for (is_collector, note) in [(false, files), (true, "")] {
        let kinds = || SINK_KINDS.iter().filter(move |kind| kind.is_collector() == is_collector);
        let header = format!("{}. {note}", forms(kinds()));
        wrap(header.trim_end_matches(['.', ' ']), 94).iter().for_each(|line| text += &format!("  {line}\n"));
        let mut settings: Vec<&SinkSetting> = Vec::new();
        for setting in kinds().flat_map(|kind| kind.settings).filter(|setting| !setting.is_of_all()) {
            if !settings.iter().any(|known| known.name == setting.name) {
                settings.push(setting);
            }
        }
        settings.into_iter().for_each(|setting| append_setting(&mut text, setting));
    }
    text += "  any sink\n";
    SINK_KINDS[0].settings.iter().filter(|setting| setting.is_of_all()).for_each(|of| append_setting(&mut text, of));
    text
}

fn append_setting(text: &mut String, setting: &SinkSetting) {
    let value = if setting.default.is_empty() { setting.value } else { setting.default };
    for (at, line) in wrap(setting.effect, 70).iter().enumerate() {
        let name = if at == 0 { format!("{}={value}", setting.name) } else { String::new() };
        *text += &format!("    {name:<22} {line}\n");
    }
}

/// `json:PATH, csv:PATH`
fn forms<'a>(kinds: impl Iterator<Item = &'a SinkKind>) -> String {
    kinds.map(|kind| format!("{}{}", kind.scheme, kind.place)).collect::<Vec<_>>().join(", ")
}

fn output_help() -> String {
    format!(
        "Sink for flow records; may be repeated. A file name that ends with .json, .csv or .ipfix (and .gz or .zst after \
         that); {} (use - as PATH for standard output); balance:SINK,SINK,... divides the flows among sinks; failover:SINK,SINK,... sends them to the first that takes records; see below \
         [default: table:-]",
        forms(SINK_KINDS.iter())
    )
}

fn output() -> impl TypedValueParser<Value = Output> {
    NonEmptyStringValueParser::new().map(|text| Output::parse(&text))
}

/// Where flow records go: `weir read` and `weir probe`.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = OUTPUT)]
pub struct Sinks {
    #[arg(short = 'o', long = "output", value_name = "SINK", value_parser = output(), help = output_help())]
    pub outputs: Vec<Output>,

    /// Fields of JSON, CSV, Parquet, Arrow and the table: names, profiles (basic, layer2, tcp, places, applications,
    /// store, all) and patterns with *, separated by commas; see weir fields. A sink may select others:
    /// csv:PATH?fields=FIELDS [default: basic, for Parquet and Arrow store, and the fields of --layer2, --mac-addresses,
    /// --key, --networks, --geo and --tags if these are given]
    #[arg(long, value_name = "FIELDS", value_parser = parse_fields, conflicts_with_all = ["by", "every_ns"])]
    pub fields: Option<FieldList>,

    /// List the N largest flows, or rows of a view; suffixes k, M and G. 0 lists all, and keeps all flows in memory
    /// [default: 20; all rows of a view in CSV, JSON and time lines]
    #[arg(long, value_name = "N", value_parser = parse_length)]
    pub top: Option<usize>,

    /// Sort by this number, the largest first: any field (weir fields) of flows, or any number of a view. NAME:asc for
    /// the smallest first [default: bytes, the IP bytes of both directions]
    #[arg(long = "sort", value_name = "NAME")]
    pub order: Option<Order>,

    /// Sum up flows by these fields: host, src_ip, dst_ip, port, service_port, server_ip, protocol, application, vlan,
    /// interface, tunnel, country and as (with --geo), a prefix as in src_ip/24, or any field (weir help views). Tables, CSV and JSON have a row per group
    #[arg(long = "by", value_name = "FIELD", value_delimiter = ',')]
    pub by: Vec<GroupField>,

    /// Count the different values of these fields in each group: hosts (the addresses of the other side), ports (of the
    /// destination), or any field. Up to 512 are counted exactly, more are estimated with a standard error of 1.6 %: ~ in
    /// tables, hosts_error in CSV and JSON
    #[arg(long = "count", value_name = "FIELD", value_delimiter = ',', requires = "by", conflicts_with = "every_ns")]
    pub counts: Vec<CountField>,

    /// Add up these numbers, too, a column each: failures of DNS (dns_failed), HTTP (http_errors) and TCP (failed), losses
    /// by side, round trips of client and server (weir help views lists all). --sort NAME adds its own
    #[arg(long = "sum", value_name = "NAME", value_delimiter = ',')]
    pub sums: Vec<SumField>,

    /// Sum up flows in intervals of this length: a time line (units ms, s, m, h, d; at least 1ms). With --by, of each group
    #[arg(long = "every", value_name = "TIME", value_parser = parse_interval)]
    pub every_ns: Option<u64>,

    /// Groups of --by that are kept in memory, about 150 bytes each and 32 per field; with --every the intervals, or the
    /// pairs of a group and an interval. Suffixes k, M and G. Further groups are summed up as others [default: 1M; fewer
    /// where memory is limited]
    #[arg(long, value_name = "N", value_parser = parse_groups)]
    pub groups: Option<u64>,

    /// Only pass flow records that match this expression to the sinks, as in 'src net 10.0.0.0/8 and port 443 and
    /// bytes > 1M' (weir help expressions). All packets are metered; the ledger counts the other records as filtered. For one
    /// sink alone: -o 'SINK?where=EXPRESSION'
    #[arg(long = "where", value_name = "EXPRESSION", value_parser = parse_expression)]
    pub records: Option<Expression>,

    /// Anonymise records before any output has them: addresses by Crypto-PAn with the key in this file (32 octets, or 64
    /// hexadecimal digits), MAC addresses and names as keyed hashes. KEYFILE?ipv4=24&ipv6=48 keeps these leading bits of
    /// anonymised addresses only, names=drop leaves names out (weir help anonymise). Expressions of --where have the true values
    #[arg(long, value_name = "KEYFILE")]
    pub anonymise: Option<AnonymisationSpec>,

    /// Record each question of DNS and each request of HTTP/1 with its answer: JSON or CSV (a file, or - for standard
    /// output), Parquet, Arrow, or JSON over a connection; may be repeated (weir help transactions). Paths need --dpi-fields.
    /// --where does not apply: ?where=EXPRESSION does
    #[arg(long, value_name = "SINK", value_parser = parse_transaction_sink, help_heading = INSPECTION)]
    pub transactions: Vec<RecordSink>,

    /// Write each bidirectional flow as two unidirectional records. Flows are metered as without this option
    #[arg(long)]
    pub uniflow: bool,

    /// Observation domain ID (IPFIX), source ID (NetFlow v9) or engine ID (NetFlow v5, low 8 bits only)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub domain: u32,
}

impl Sinks {
    /// All sinks, also those of transactions.
    pub fn all(&self) -> impl Iterator<Item = &RecordSink> {
        self.outputs.iter().flat_map(Output::sinks).chain(&self.transactions)
    }

    /// The view of `--by` and `--every`, if there is one. `default_groups` applies without `--groups`.
    pub fn view(&self, default_groups: impl FnOnce(&ViewSettings) -> usize) -> Option<ViewSettings> {
        let is_view = !self.by.is_empty() || self.every_ns.is_some();
        is_view.then(|| {
            let (fields, counts) = (self.by.clone(), self.counts.clone());
            let (every_ns, order) = (self.every_ns, self.order.clone());
            let sums = self.sums.clone();
            let mut view = ViewSettings { fields, counts, sums, every_ns, order, groups: 1, ..ViewSettings::default() };
            let groups = self.groups.map(|groups| groups as usize);
            view.groups = groups.unwrap_or_else(|| default_groups(&view));
            view
        })
    }
}

/// Which packets are processed: `weir read`, `weir probe` and `weir tcp`.
#[derive(Clone, Debug, Args)]
pub struct Selection {
    /// Process only packets that match this capture filter (tcpdump syntax, see man pcap-filter). The filter sees the
    /// outer headers. Packets that do not match are counted as filtered. Needs libpcap
    #[arg(short = 'f', long, value_name = "EXPRESSION", help_heading = INPUT)]
    pub filter: Option<String>,

    /// Decapsulate tunnels and process the inner packets: IP in IP, GRE, VXLAN, Geneve and GTP-U
    #[arg(long, help_heading = INPUT)]
    pub decap: bool,
}

/// What a flow record is: `weir read` and `weir probe`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = METERING)]
pub struct Metering {
    #[command(flatten)]
    pub selection: Selection,

    /// Also meter frames without IP, as flows of MAC addresses and EtherType
    #[arg(long)]
    pub layer2: bool,

    /// Record the MAC addresses of IP flows, too: src_mac and dst_mac, with the word mixed_mac in approximate if they
    /// changed. Costs 120 to 180 ns per packet, and 25 bytes per slot of the flow cache (weir help performance)
    #[arg(long)]
    pub mac_addresses: bool,

    /// Add fields to the flow key: packets that differ in them belong to different flows. Separate several with commas
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub key: Vec<KeyField>,

    /// Meter each direction as a flow of its own
    #[arg(long)]
    pub uniflow_key: bool,

    /// Idle timeout: end a flow that has had no packet for this time (units ms, s, m, h, d; without a unit: seconds)
    #[arg(long = "idle", value_name = "TIME", default_value = "120s", value_parser = parse_duration)]
    pub idle_ns: u64,

    /// Active timeout: after this time write a record of a flow that still lasts, and continue it in a new record
    #[arg(long = "active", value_name = "TIME", default_value = "300s", value_parser = parse_duration)]
    pub active_ns: u64,

    /// Slots of the flow cache: how many flows can be active at the same time; suffixes k, M and G [default: 1048576]
    #[arg(long, value_name = "N", value_parser = parse_flows)]
    pub flows: Option<u32>,

    /// Inspect the first payload of each flow to recognise its application (weir help applications) [default: light; off with
    /// --layout split and spread]
    #[arg(long, value_name = "LEVEL", help_heading = INSPECTION)]
    pub dpi: Option<Inspection>,

    /// Inspect a flow until one of its directions has this many packets
    #[arg(long, value_name = "N", default_value_t = InspectionSettings::default().packets, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = INSPECTION)]
    pub dpi_packets: u32,

    /// Inspect this many octets of each direction of a TCP connection
    #[arg(long, value_name = "N", default_value_t = InspectionSettings::default().octets, value_parser = clap::value_parser!(u32).range(64..=i64::from(InspectionSettings::MAX_OCTETS)), help_heading = INSPECTION)]
    pub dpi_octets: u32,

    /// Also keep what may tell something about a person: paths, user agents, names of accounts
    #[arg(long, help_heading = INSPECTION)]
    pub dpi_fields: bool,

    /// Count the questions and answers of DNS and HTTP/1 in each flow; off reads no payload after the application is known
    #[arg(long, value_name = "WHETHER", default_value = "on", help_heading = INSPECTION)]
    pub dpi_transactions: Switch,

    /// Guess the application from the port where the payload tells nothing; application_by is then port
    #[arg(long, help_heading = INSPECTION)]
    pub dpi_ports: bool,

    /// How to treat packets of new flows when the flow cache is full
    #[arg(long, value_name = "POLICY", default_value = "overflow")]
    pub full: FullPolicy,
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

/// What `--dpi` selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Inspection {
    /// No inspection
    Off,
    /// Weir's own readers of common protocols
    Light,
    /// These, and nDPI beside them, if it is built in
    Full,
}

impl Metering {
    /// Whether payload is inspected.
    pub fn inspects(&self) -> bool {
        self.dpi != Some(Inspection::Off)
    }
}

/// Fields that `--key` adds to the flow key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeyField {
    /// Outer and inner VLAN ID
    Vlan,
    /// Interface that received the packet
    Interface,
    /// Tunnel type and identifier (with --decap)
    Tunnel,
}

/// What happens to packets of new flows when the flow cache is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FullPolicy {
    /// Aggregate them in overflow records by address prefix and port
    Overflow,
    /// End the flow that has been idle longest; an unanswered SYN evicts only unanswered flows
    EvictOldestIdle,
    /// Drop and count them
    Drop,
}

/// What is added to flow records, most of it from files: `weir read` and `weir probe`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = ENRICHMENT)]
pub struct Enrichment {
    /// Name the networks of source and destination from this table: CSV with the columns prefix, name, site, role and local
    /// (weir help enrichment)
    #[arg(long, value_name = "FILE")]
    pub networks: Option<PathBuf>,

    /// Add country and autonomous system of source and destination from this database in the MaxMind DB format; may be
    /// repeated: the first database that has a value gives it
    #[arg(long, value_name = "FILE")]
    pub geo: Vec<PathBuf>,

    /// Tag flows with NAME whose addresses, domain name, JA3 or JA4 are in this list, one entry per line; may be repeated
    #[arg(long, value_name = "NAME=FILE")]
    pub tags: Vec<TagList>,

    /// Add the name of the interface that captured the flow
    #[arg(long)]
    pub interface_names: bool,
}

impl Enrichment {
    /// The files.
    pub fn sources(&self) -> Sources {
        Sources { networks: self.networks.clone(), geo: self.geo.clone(), tags: self.tags.clone() }
    }

    /// Columns that JSON and CSV have besides, because of these options.
    pub fn columns(&self) -> impl Iterator<Item = &'static Column> {
        use Requirement::{Geo, InterfaceNames, Networks, Tags};
        let met = [Networks, Geo, Tags, InterfaceNames].into_iter().filter(|&requirement| self.meets(requirement));
        met.flat_map(|requirement| columns().iter().filter(move |column| column.properties.needs == Some(requirement)))
    }

    /// Whether the options meet a requirement of fields.
    pub fn meets(&self, requirement: Requirement) -> bool {
        match requirement {
            Requirement::Networks => self.networks.is_some(),
            Requirement::Geo => !self.geo.is_empty(),
            Requirement::Tags => !self.tags.is_empty(),
            Requirement::InterfaceNames => self.interface_names,
            _ => false,
        }
    }
}

/// What happens to output files that exist.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputFiles {
    /// Replace the content of output files. Without this option, a file that is not empty is refused
    #[arg(long)]
    overwrite: bool,
}

impl OutputFiles {
    pub fn mode(self) -> FileMode {
        if self.overwrite { FileMode::Overwrite } else { FileMode::New }
    }
}

/// What is reported: `weir read`, `weir probe` and `weir tcp`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = OUTPUT)]
pub struct Reporting {
    /// At the end, write the ledger (the counters of packets, bytes and records) as JSON. Use - for standard output,
    /// where it replaces the table or report
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,

    /// At the end, print the ledger: how many packets were received, refused, dropped and metered, and where the
    /// records went
    #[arg(short, long)]
    pub verbose: bool,

    /// Print nothing unless something was lost; the default of --log-level is warn. If packets were dropped or records were
    /// lost (exit code 2), the ledger is printed
    #[arg(short, long)]
    pub quiet: bool,
}

/// Whose times people read and write.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = OUTPUT)]
pub struct LocalTime {
    /// Show times in local time (the variable TZ, or the zone of this machine), and read times without a zone so; --every
    /// has its hours and days. CSV, JSON, logs, all other outputs and names of files stay in UTC [default: UTC]
    #[arg(long)]
    pub local_time: bool,
}

/// How far the process restricts itself.
#[derive(Clone, Copy, Debug, Args)]
pub struct Hardening {
    /// Do not restrict the process, once its inputs and outputs are open, to the system calls and files that it needs. To
    /// find out whether the sandbox is the cause of an error (weir help probe-guide)
    #[arg(long, help_heading = OPERATION)]
    pub no_sandbox: bool,
}

/// Times that tests change, and users do not: no help text has this option.
#[derive(Clone, Copy, Debug, Args)]
pub struct Times {
    /// Set times of `weir_ledger::Timing`: NAME=TIME,...
    #[arg(long, value_name = "NAME=TIME,...", hide = true, value_parser = parse_timing)]
    timing: Option<Timing>,
}

impl Times {
    /// All times; those that are not set have their defaults.
    pub fn timing(&self) -> Timing {
        self.timing.unwrap_or_default()
    }
}
