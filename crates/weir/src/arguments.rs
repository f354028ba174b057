//! What the user can write. The comments of this file are the help texts.

use crate::units::{parse_count, parse_duration, parse_flows, parse_length, parse_number};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use weir_probe::Overload;

/// Exact flow records from network traffic: every packet and byte accounted for.
#[derive(Debug, Parser)]
#[command(name = "weir", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  weir read capture.pcap                      a table of the largest flows, and a summary
  weir read *.pcapng.gz -o csv:flows.csv      several files as one, in time order, into CSV
  tcpdump -U -w - -i eth0 | weir read -          from a pipe
  weir read -i af_packet:eth0                 live, until Ctrl-C
  weir read capture.pcap -v                   and where each packet went
  weir tcp capture.pcap                       what TCP went through: is it the network or the server?
  weir probe -i af_packet:eth0                live traffic, a line a second
  weir doctor                                 what is wrong with this machine for a probe

Exit codes:
  0  done
  1  wrong use, or input that cannot be read at all; nothing was metered
  2  finished, but some input was malformed or some record was not delivered: the counts say which";

#[derive(Debug, Subcommand)]
pub enum Command {
    Read(Box<Read>),
    Probe(Box<Probe>),
    Tcp(Box<Tcp>),
    Synth(Synth),
    Bench(Bench),
    Doctor(Doctor),
    Plan(Plan),
    Fields(Fields),
    Completions(Completions),
    Man(Man),
}

/// Meter captures: flow records to a table, files and collectors
#[derive(Debug, Args)]
#[command(after_help = READ_EXAMPLES)]
pub struct Read {
    /// Captures (pcap or pcapng, plain, gzip or zstd), or - for standard input; several are merged in time order
    #[arg(value_name = "FILE")]
    pub files: Vec<OsString>,

    /// A source: a file, -, synth:velan,..., synth:mix,... or synth:lossy,... (see weir synth --help), repeatable; or, alone,
    /// live traffic of an interface, until Ctrl-C: af_packet:IFACE, with keys behind it (see below)
    #[arg(short = 'i', long = "input", value_name = "SOURCE")]
    pub inputs: Vec<OsString>,

    #[command(flatten)]
    pub sinks: Sinks,

    #[command(flatten)]
    pub metering: Metering,

    /// Write the ledger as JSON; - is standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,

    /// Print the ledger in words: where each packet and record went
    #[arg(short, long)]
    pub verbose: bool,

    /// No summary and no progress; errors and losses are still told
    #[arg(short, long)]
    pub quiet: bool,
}

const READ_EXAMPLES: &str = "\
Examples:
  weir read capture.pcap                              the 20 largest flows, and a summary
  weir read capture.pcap --top 0                      all flows
  weir read a.pcap b.pcapng.zst -o csv:flows.csv      two files as one, into CSV
  weir read capture.pcap -o json:- | jq .src_ip       one JSON object per flow
  weir read capture.pcap -f 'host 192.0.2.1 and tcp'  only what tcpdump would show; of tagged packets: 'vlan and ...'
  weir read tunnels.pcap --decap --key vlan           inner flows, per VLAN
  weir read capture.pcap -o ipfix+udp://192.0.2.1:4739 -o netflow5+udp://192.0.2.2:2055
  weir read -i synth:mix,flows=10000,packets=1M       generated traffic
  weir read -i af_packet:eth0 -o json:-               live traffic, until Ctrl-C; takes CAP_NET_RAW
  weir read capture.pcap -v --stats ledger.json       the ledger, in words and as JSON

af_packet: reads what an interface receives and sends, on lo what it receives. Keys and defaults:
  block=256KiB blocks=256 (of the kernel's ring, which is memory that is not swapped out; larger frames are cut) snap=
  promisc=on|off timestamps=kernel|hardware (hardware: the card's) fanout= (a number: programs that name the same one
  share the traffic; both directions of a flow, and its fragments, come to one of them)
af_xdp: takes what an interface receives before the network stack, which then does not see it: for mirror ports. Keys and
  defaults: queues= (one, or 0-3; all) mode=auto|copy|zerocopy attach=auto|native|generic snap= frames=4096

Exit codes:
  0  done (also when the reader of the output went away, as in weir read ... | head)
  1  wrong use, or an input or output that cannot be opened; nothing was metered
  2  finished, but an input is damaged or was not read to its end, packets could not be metered (malformed, or captured too short)
     or were dropped (by a full table, or because reading live traffic was too slow), or records were not delivered: the counts say which";

/// Meter live traffic: a pipeline per queue, records to collectors and files while it goes on
#[derive(Clone, Debug, Args)]
#[command(after_help = PROBE_EXAMPLES, args_override_self = true)]
pub struct Probe {
    /// A source: af_packet:INTERFACE and others (see the manual), each queue of it is a pipeline; also a file or
    /// synth:..., as weir read takes them; repeatable
    #[arg(short = 'i', long = "input", value_name = "SOURCE")]
    pub inputs: Vec<OsString>,

    #[command(flatten)]
    pub sinks: Sinks,

    #[command(flatten)]
    pub metering: Metering,

    /// Take what is not on the command line from a file: the names of these options, as TOML
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Say what would be done, and do nothing: opens no source and no sink
    #[arg(long)]
    pub check: bool,

    /// Print everything that is set as a file for --config, and do nothing
    #[arg(long)]
    pub print_config: bool,

    /// Threads of a pipeline: fused, one that does all; split, one that reads packets and one that meters them; or spread, one
    /// pipeline of all queues, in which a thread per queue reads and several meter, flows moving to those that have less to do
    #[arg(long, value_name = "LAYOUT", default_value = "fused")]
    pub layout: Layout,

    /// What is done when more comes than can be metered: shed, give up TCP analysis, then records of small new flows, then
    /// sample, step by step, and come back (docs/overload.md); lose, lose packets, and count them; or a number, stay on that
    /// level of the ladder, 0 to 12
    #[arg(long, value_name = "WHAT", default_value = "shed", value_parser = parse_overload)]
    pub overload: Overload,

    /// Meter one packet in N, chosen at random, with k or M; records say so, and have no TCP analysis. Under overload it may be fewer
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_sample)]
    pub sample: u32,

    /// Threads that meter, with --layout spread [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub meters: Option<u8>,

    /// Packets whose memory is fetched together, 1 to 64
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub batch: u8,

    /// Try layouts, cores, blocks of the kernel's ring, batches and busy polling first, each for so long, on the traffic that
    /// there is (or on the capture); go on with the best, and say why
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s", value_parser = parse_duration)]
    pub autotune: Option<u64>,

    /// Look for packets all the time instead of sleeping while there are none: takes a whole core for each thread
    #[arg(long)]
    pub busy_poll: bool,

    /// Cores for the pipelines' threads, one each, in turn: 2,3,4 or 2-4 [default: beside the card if it has enough]
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub cores: Option<Cores>,

    /// Cores for the outputs [default: beside the card if it has enough]
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub export_cores: Option<Cores>,

    /// Whose rights to keep when everything is open: a user's name or number; root keeps them all
    #[arg(long, value_name = "USER", default_value = "nobody")]
    pub user: String,

    /// How often a line per pipeline is printed, on standard error (ms, s, m, h)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub interval: u64,

    /// Stop after so long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<u64>,

    /// Write the ledger as JSON, at the end; - is standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,

    /// Print the ledger in words at the end: where each packet and record went
    #[arg(short, long)]
    pub verbose: bool,

    /// No lines and no summary; errors and losses are still told
    #[arg(short, long)]
    pub quiet: bool,
}

const PROBE_EXAMPLES: &str = "\
Examples:
  weir probe -i af_packet:eth0                              a line a second; Ctrl-C: the largest flows
  weir probe -i af_packet:eth0,queues=4 --cores 2-5 -o ipfix+udp://192.0.2.1:4739
  weir probe --config /etc/weir/probe.toml                  everything from a file
  weir probe -i af_packet:eth0 --print-config > probe.toml  the file to begin with
  weir probe --config probe.toml --check                    what would it do?

Signals: SIGINT and SIGTERM end it: what has come is metered, every flow is ended and exported; a second one ends it at
once. SIGHUP reads the file of --config again and takes over timeouts, filter and sinks.

Exit codes:
  0  done (also when the reader of an output went away)
  1  wrong use, or a source or sink that cannot be opened; nothing was metered
  2  finished, but packets were lost or could not be metered, or records were not delivered: the counts say which";

/// `shed`, `lose`, or a level.
fn parse_overload(text: &str) -> Result<Overload, String> {
    match (text, text.parse::<u8>()) {
        ("shed", _) => Ok(Overload::Shed),
        ("lose", _) => Ok(Overload::Drop),
        (_, Ok(level)) if level <= 12 => Ok(Overload::Level(level)),
        _ => Err("shed, lose, or the number of a level from 0 to 12 must stand there (docs/overload.md)".into()),
    }
}

/// One packet in so many.
fn parse_sample(text: &str) -> Result<u32, String> {
    // What the header of NetFlow v5 has room for.
    const MOST: u64 = (1 << 14) - 1;
    match parse_number(text)? {
        number @ 1..=MOST => Ok(number as u32),
        _ => Err(format!("one packet in N, from 1 (all) to {MOST}")),
    }
}

/// Threads of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// One that does all
    Fused,
    /// One that reads packets, and one that meters them
    Split,
    /// One per queue that reads, and several that meter what all of those read
    Spread,
}

/// Numbers of cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(pub Vec<usize>);

/// A list of cores as the kernel writes it: `2,3,8-11`.
fn parse_cores(text: &str) -> Result<Cores, String> {
    const MOST: usize = 1024;
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            (Ok(first), Ok(last)) if first <= last && last < MOST => cores.extend(first..=last),
            _ => return Err(format!("'{part}' is no core and no range; write for example 2,3 or 2-5")),
        }
    }
    Ok(Cores(cores))
}

/// Where records go.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct Sinks {
    /// A sink: table:PATH, json:PATH, csv:PATH, ipfix:PATH (PATH - is standard output), ipfix+udp://HOST:PORT,
    /// netflow9+udp://HOST:PORT, netflow5+udp://HOST:PORT; repeatable [default: table:-]
    #[arg(short = 'o', long = "output", value_name = "SINK")]
    pub outputs: Vec<String>,

    /// Flows in the table, with k, M or G, the largest by bytes of both directions; 0 for all, which takes memory for all
    #[arg(long, value_name = "N", default_value = "20", value_parser = parse_length)]
    pub top: usize,

    /// Write a two-way flow as two one-way records
    #[arg(long)]
    pub uniflow: bool,

    /// Observation domain (IPFIX), source ID (NetFlow v9), engine ID (v5, the low octet)
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub domain: u32,
}

/// What a record is.
#[derive(Clone, Debug, Args)]
pub struct Metering {
    /// Meter only packets that match an expression of tcpdump (man pcap-filter), judged by their outer headers; others are counted
    /// as filtered. Needs libpcap
    #[arg(short = 'f', long, value_name = "EXPR")]
    pub filter: Option<String>,

    /// Look inside tunnels: IP in IP, GRE, VXLAN, Geneve, GTP-U
    #[arg(long)]
    pub decap: bool,

    /// Meter frames without IP as flows of MAC addresses and EtherType
    #[arg(long)]
    pub layer2: bool,

    /// What else distinguishes flows
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub key: Vec<KeyPart>,

    /// One-way flows: each direction is metered as a flow of its own
    #[arg(long)]
    pub uniflow_key: bool,

    /// End a record when nothing came for so long (ms, s, m, h; a plain number is seconds)
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = parse_duration)]
    pub idle: u64,

    /// End a record when it has been open for so long; the flow goes on in another record
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = parse_duration)]
    pub active: u64,

    /// Flows in memory at a time, with k, M or G [default: 1048576]
    #[arg(long, value_name = "N", value_parser = parse_flows)]
    pub flows: Option<u32>,

    /// What a full table does with the packets of new flows
    #[arg(long, value_name = "POLICY", default_value = "overflow")]
    pub full: Full,
}

/// What `--key` adds to the flow key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeyPart {
    /// Both VLAN identifiers
    Vlan,
    /// The interface
    Interface,
    /// The tunnel's type and identifier (with --decap)
    Tunnel,
}

/// What a full table does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Full {
    /// Sum them into overflow records per prefix and port
    Overflow,
    /// End the record that has been idle for longest; an unanswered SYN evicts only unanswered flows
    EvictOldestIdle,
    /// Drop them, and count them
    Drop,
}

/// Tell what TCP went through in captures: what was sent again, lost, copied, late, and where
#[derive(Debug, Args)]
#[command(after_help = TCP_EXAMPLES)]
pub struct Tcp {
    /// Captures as weir read takes them, - for standard input, or synth:...; several are merged in time order. Takes about
    /// 600 octets of memory per connection, more if it was in trouble
    #[arg(value_name = "FILE")]
    pub files: Vec<OsString>,

    /// Follow only packets that match an expression of tcpdump (man pcap-filter), judged by their outer headers; others are counted
    /// as filtered. Needs libpcap
    #[arg(short = 'f', long, value_name = "EXPR")]
    pub filter: Option<String>,

    /// Look inside tunnels: IP in IP, GRE, VXLAN, Geneve, GTP-U
    #[arg(long)]
    pub decap: bool,

    /// Where connections are followed: on a graphics card, on the processor, or on a card if there is one that works (auto,
    /// the default); with auto on the command line it says why not
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<EngineChoice>,

    /// Connections in the list, with k, M or G; 0 for all
    #[arg(long, value_name = "N", default_value = "20", value_parser = parse_length)]
    pub top: usize,

    /// Connections that are followed, with k, M or G; packets of those that begin later are left out, and counted
    /// [default: as many as half of the free memory holds, 700 octets each; with so many that they need nearly all of it, the
    /// program may still end for lack of memory]
    #[arg(long, value_name = "N", value_parser = parse_flows)]
    pub connections: Option<u32>,

    /// What puts a connection at the top of the list
    #[arg(long, value_name = "WHAT", default_value = "retransmitted")]
    pub sort: TcpSort,

    /// Connections of fewer packets, with k, M or G, come behind all others [default: 20 with --sort retransmitted, else 1]
    #[arg(long, value_name = "N", value_parser = parse_number)]
    pub min_packets: Option<u64>,

    /// Show one connection segment by segment: its number in the list (#3), both ends (192.0.2.1:80-192.0.2.2:4000), or a
    /// part that only it has (:4000); reads the capture more than once
    #[arg(long, value_name = "KEY", conflicts_with_all = ["json", "csv", "html", "svg", "compare"])]
    pub explain: Option<String>,

    /// Also count by the rule "same addresses, ports and sequence number as before", and say what it misses; takes about
    /// 60 octets of memory per segment with payload
    #[arg(long)]
    pub compare: bool,

    /// Write totals and all connections as one JSON object; - is standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write all connections as CSV; - is standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write the report with plots as a page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the plots into a folder
    #[arg(long, value_name = "FOLDER")]
    pub svg: Option<PathBuf>,

    /// Write the ledger as JSON
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,

    /// Also say where each packet went, and what the engine ran on
    #[arg(short, long)]
    pub verbose: bool,

    /// No text and no progress; errors and losses are still told
    #[arg(short, long)]
    pub quiet: bool,
}

const TCP_EXAMPLES: &str = "\
Examples:
  weir tcp capture.pcap                               totals, the worst 20 connections, distributions, warnings
  weir tcp a.pcap b.pcapng.gz --top 0 --sort missing  two files as one; all connections, most lost octets first
  weir tcp capture.pcap --explain '#1'                the first of the list, segment by segment
  weir tcp capture.pcap --explain :52814              the one connection with that port
  weir tcp capture.pcap --html report.html            a page with plots
  weir tcp capture.pcap --json - | jq .totals         for programs; the fields are those of weir read -o json:
  weir tcp capture.pcap --compare                     beside what most tools count by

The share of retransmitted segments of a connection is: retransmissions, retransmissions of what was lost before the
capture, and repeated SYN, of both directions; among segments with payload, SYN or FIN. Copies that the capture made
count in neither. All terms are those of docs/tcp.md.

Exit codes:
  0  done
  1  wrong use, an input or output that cannot be opened, --engine gpu without a card, or --explain without its connection
  2  finished, but an input is damaged or was not read to its end, packets were refused or left out, an output was not
     written, or two ways to count do not agree: what is printed says which";

/// Where connections are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineChoice {
    /// On a card if one can be used, else on the processor
    Auto,
    /// On the processor
    Cpu,
    /// On a card, or not at all
    Gpu,
}

/// Orders of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TcpSort {
    /// Share of retransmitted segments
    Retransmitted,
    /// Octets that were sent again
    RetransmittedBytes,
    /// Packets
    Packets,
    /// Octets of payload
    Bytes,
    /// Octets that were never captured between others that were
    Missing,
    /// Copies that the capture made
    Duplicates,
    /// Segments out of order
    OutOfOrder,
    /// Announcements of a closed window
    ZeroWindow,
    /// Round trip of the handshake, both sides together
    Rtt,
    /// Time of the first packet, earliest first
    Start,
}

/// Write synthetic traffic into a capture file
#[derive(Debug, Args)]
#[command(after_help = SYNTH_EXAMPLES)]
pub struct Synth {
    /// velan, mix or lossy, then key=value pairs, with commas: velan,flows=131072,size=64,packets=8M,seed=1
    #[arg(value_name = "SPEC")]
    pub spec: String,

    /// The capture to write (pcap, nanoseconds); - is standard output
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub output: PathBuf,

    /// Also write the true flows, as CSV, with TCP events if the load is lossy; takes memory for all of them
    #[arg(long, value_name = "FILE")]
    pub truth: Option<PathBuf>,

    /// No progress and no closing line
    #[arg(short, long)]
    pub quiet: bool,
}

const SYNTH_EXAMPLES: &str = "\
velan: equal UDP packets in random order, for stress. Keys and defaults:
  flows=131072 size=64 (with FCS) packets=8M duration= seed=1 order=random|round directions=1|2
  rate= (packets per second; 10 Gbit/s) new=0 (flows that begin per second, each for the oldest) snap=
mix: conversations over TCP and UDP of heavy-tailed lengths, for realism. Keys and defaults:
  flows=10000 (at a time) new= (per second; flows / 10) packets=1M duration= seed=1 ramp=1s
  ipv6=30% udp=40% rst=10% snap=
lossy: TCP with segments lost, late, repeated and copied, for tests against its truth. Keys and defaults:
  flows=1000 (at a time) new= (per second; flows / 10) packets=1M duration= seed=1 ipv6=30% rst=5%
  noid=20% (hosts without IP identification) loss=1% before=50% (of these: lost before the probe)
  recut=20% (of those sent again) reorder=0.5% spurious=0.1% duplicate=0.5% routed=0 (of the duplicates)
  keepalive=1% zerowindow=1% (of the conversations) snap=
The same specification gives the same packets on every machine.

Examples:
  weir synth velan,flows=131072,size=64,packets=8M -o velan.pcap
  weir synth mix,flows=10000,packets=1M,seed=7 -o mix.pcap --truth flows.csv
  weir synth lossy,loss=5%,reorder=2% -o lossy.pcap --truth flows.csv
  weir synth mix,packets=100k -o - | tshark -r -";

/// Measure the meter on this machine, beside its ceilings
#[derive(Debug, Args)]
#[command(after_help = BENCH_EXAMPLES, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct Bench {
    #[command(subcommand)]
    pub what: Option<BenchWhat>,

    /// Tables to measure (see --list) [default: all, which takes half an hour]
    #[arg(value_name = "TABLE")]
    pub tables: Vec<String>,

    /// Measured rounds; in each of them all cases of a row run in turn
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// Small loads: tries that all works, measures nothing
    #[arg(long)]
    pub quick: bool,

    /// Write the figures and conditions as JSON; - is standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a plot per table into a folder
    #[arg(long, value_name = "FOLDER")]
    pub svg: Option<PathBuf>,

    /// Captures whose flows are hashed too [default: testdata/captures, if it is there]
    #[arg(long, value_name = "FOLDER")]
    pub captures: Option<PathBuf>,

    /// List the tables
    #[arg(long)]
    pub list: bool,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  weir bench --list                                     what there is to measure
  weir bench flows mix                                  two tables
  weir bench --json bench.json --svg plots              all tables, for people and programs
  weir bench flows --quick                              does it work here?
  weir bench live                                       live sources on a wire made for it (see weir bench live --help)

Exit codes:
  0  done
  1  wrong use, or no memory; nothing was measured
  2  packets were lost from the books, so the figures are worth nothing; or an output could not be written";

#[derive(Debug, Subcommand)]
pub enum BenchWhat {
    Live(BenchLive),
}

/// Measure live sources: the rate without loss, our share of the cost, idle cost, and a long run
///
/// Traffic is sent over a pair of virtual interfaces in a network namespace of its own, which is gone when this ends, however it ends. It
/// takes root's rights. dpdk plays frames from memory, and takes no rights.
#[derive(Debug, Args)]
#[command(after_help = BENCH_LIVE_EXAMPLES)]
pub struct BenchLive {
    /// Sources: af_packet, af_xdp, dpdk [default: all that can be opened here]
    #[arg(value_name = "SOURCE")]
    pub sources: Vec<String>,

    /// Measured rounds of costs, in each of which all cases run in turn; and flows tried on a quiet link
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,

    /// How long a trial takes, in seconds
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_seconds)]
    pub seconds: f64,

    /// What is sent: a capture, or synth:... [default: synth:mix,flows=200,packets=32k]
    #[arg(long, value_name = "FILE")]
    pub frames: Option<String>,

    /// Then run for so many minutes below the rate without loss; the exit code is 1 if a packet was lost or memory grew
    #[arg(long, value_name = "MINUTES", value_parser = parse_seconds)]
    pub soak: Option<f64>,

    /// How far below: so many percent of the rate without loss
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub at: u8,

    /// How often the long run tells how it is
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub interval: u64,

    /// Write the figures and conditions as JSON; - is standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.01..=1e5).contains(&number) => Ok(number),
        _ => Err("must be a number from 0.01 to 100000".into()),
    }
}

const BENCH_LIVE_EXAMPLES: &str = "\
Examples:
  weir bench live                                       every source that can be opened here, some minutes
  weir bench live af_packet --frames capture.pcap       other frames
  weir bench live af_packet --soak 10                   ... and then 10 minutes at 80 % of the rate without loss
  weir bench live --seconds 0.1 --rounds 1              does it work here?

Exit codes:
  0  done
  1  wrong use, or not permitted, and nothing was measured; or the long run lost a packet or its memory grew
  2  packets were lost from the books, so the figures are worth nothing; or it was interrupted; or an output could not be written";

/// Say what is wrong with this machine for a probe, why it costs packets, and what mends it
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct Doctor {
    /// Interfaces that packets come from [default: all that have a device behind them]
    #[arg(value_name = "IFACE")]
    pub interfaces: Vec<String>,

    /// Look at another machine: a recording of one, or a folder with its sys and proc
    #[arg(long, value_name = "PATH")]
    pub sysroot: Option<PathBuf>,

    /// Write down all that is read of this machine, as text, and do nothing else; - is standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fix", "json"])]
    pub record: Option<PathBuf>,

    /// Do what is safe: offloads off, rings larger, governor performance, interrupts onto the card's node, real-time threads
    /// not throttled. Each command is printed before it runs; with --sysroot none runs
    #[arg(long, conflicts_with = "json")]
    pub fix: bool,

    /// Findings and everything that was read as one JSON object, in place of the text
    #[arg(long)]
    pub json: bool,

    /// Also what is fine
    #[arg(short, long)]
    pub verbose: bool,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  weir doctor                                 this machine, all its cards
  weir doctor eth0 -v                         one card, and also what is fine
  sudo weir doctor eth0 --fix                 what is safe is done
  weir doctor --record machine.txt            to send to somebody
  weir doctor --sysroot machine.txt           what they see then
  weir doctor --json | jq '.findings[] | select(.severity == \"wrong\").what'

What cannot be read is listed as not known. Cards are asked by ethtool (apt install ethtool). Every check with its
reason is in docs/doctor.md.

Exit codes:
  0  nothing is wrong
  1  wrong use, no such interface, or nothing to read
  2  something is wrong";

/// Size a machine for a link, and lay pipelines out on its cores
#[derive(Debug, Args)]
#[command(after_help = PLAN_EXAMPLES)]
pub struct Plan {
    /// Speed of the link, bits a second, with k, M or G
    #[arg(long, value_name = "RATE", value_parser = parse_count)]
    pub link: u64,

    /// Octets of a frame with FCS, on average
    #[arg(long, value_name = "OCTETS", default_value_t = 700, value_parser = clap::value_parser!(u32).range(64..=65_535))]
    pub packet: u32,

    /// Flows at a time, with k, M or G
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_flows)]
    pub flows: u32,

    /// Packets a second, with k, M or G [default: as many as the link carries]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub rate: Option<u64>,

    /// Records a second, with k, M or G [default: a tenth of the flows]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub records: Option<u64>,

    /// Million packets a second that a core receives and meters [default: 7.4]
    #[arg(long, value_name = "N", value_parser = parse_mpps)]
    pub mpps_per_core: Option<f64>,

    /// Take that from what weir bench --json wrote on the machine: half of what it meters from memory
    #[arg(long, value_name = "FILE", conflicts_with = "mpps_per_core")]
    pub bench: Option<PathBuf>,

    /// The card [default: the fastest]
    #[arg(long, value_name = "IFACE")]
    pub iface: Option<String>,

    /// Plan for another machine: a recording of one (weir doctor --record), or a folder with its sys and proc
    #[arg(long, value_name = "PATH")]
    pub sysroot: Option<PathBuf>,

    /// One JSON object in place of the text
    #[arg(long)]
    pub json: bool,

    /// Also what fits
    #[arg(short, long)]
    pub verbose: bool,
}

/// Million packets a second of a core: above 0.
fn parse_mpps(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(mpps) if (0.001..=10_000.0).contains(&mpps) => Ok(mpps),
        _ => Err("must be a number from 0.001 to 10000, as in 7.4".into()),
    }
}

const PLAN_EXAMPLES: &str = "\
Examples:
  weir plan --link 100G                                  usual frames of 700 octets, 1 M flows
  weir plan --link 100G --packet 64 --flows 2M           the worst that can come
  weir plan --link 40G --rate 5M --iface eth1            a rate that was measured, a card
  weir bench mix --json bench.json && weir plan --link 100G --bench bench.json
  weir plan --link 100G --sysroot machine.txt --json     another machine, for programs

Exit codes:
  0  it fits, as far as is known
  1  wrong use, no such interface, or nothing to read
  2  it does not fit: what is printed says what, and why";

/// List every field of a flow record
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weir fields | less")]
pub struct Fields {}

/// Write completions for a shell to standard output
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir completions bash > /etc/bash_completion.d/weir
  weir completions zsh > /usr/share/zsh/site-functions/_weir
  weir completions fish > ~/.config/fish/completions/weir.fish")]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Write the manual pages
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir man | man -l -                       the page of weir itself
  weir man -o /usr/local/share/man/man1     all pages, one per command")]
pub struct Man {
    /// Folder for the pages of all commands [default: the page of weir itself to standard output]
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    pub output: Option<PathBuf>,
}
