//! Options of `weir synth`.

use super::OutputFiles;
use clap::Args;
use std::path::PathBuf;

/// Generate traffic and write it to a capture file
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Synth {
    /// Traffic profile (velan, mix, lossy or apps) and its settings (see below), separated by commas:
    /// velan,flows=131072,size=64,packets=8M,seed=1
    #[arg(value_name = "SPEC")]
    pub spec: String,

    /// Capture file to write (pcap with nanosecond time stamps), or packets:FILE for decoded packets
    /// (weir help packet-records). Use - for standard output
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub output: PathBuf,

    /// Also write the true flows as CSV, for lossy with their true TCP events, for apps with their applications. Keeps all
    /// flows in memory
    #[arg(long, value_name = "FILE")]
    pub truth: Option<PathBuf>,

    #[command(flatten)]
    pub output_files: OutputFiles,

    /// Print no progress; the default of --log-level is warn
    #[arg(short, long)]
    pub quiet: bool,
}

const EXAMPLES: &str = "\
Settings of all profiles:
  packets=N       stop after N packets [default: velan 8M, others 1M; none with duration]
  duration=TIME   stop after this capture time
  seed=1          seed of the random generator; the same settings give the same packets everywhere
  snap=BYTES      truncate frames to this length

velan: UDP packets of one size in random order, for stress tests
  flows=131072    concurrent flows
  size=64         frame length in octets, with FCS
  order=random    random or round (each flow in turn)
  directions=1    1 or 2
  rate=N          packets per second [default: 10 Gbit/s]
  new=0           new flows per second, each in place of the oldest

mix: TCP and UDP conversations with heavy-tailed lengths, for realistic traffic
  flows=10000     concurrent conversations
  new=N           new conversations per second [default: flows / 10]
  ramp=1s         time in which the first conversations begin
  ipv6=30% udp=40% rst=10%   shares of the conversations
  trains=0        share of segments of a request or response that follow the one before
                  them at once (100 Gbit/s)

lossy: TCP with known losses, retransmissions and duplicates, to test TCP analysis
  flows=1000      concurrent conversations
  new=N           new conversations per second [default: flows / 10]
  ipv6=30% rst=5%            shares of the conversations
  noid=20%        hosts that send IP identification 0
  loss=1%         lost segments
  before=50%      of these: lost before the capture point
  recut=20%       retransmissions with other segment boundaries
  reorder=0.5%    out-of-order segments
  spurious=0.1%   unneeded retransmissions
  duplicate=0.5%  segments that the capture contains twice
  routed=0        of these: captured before and after a router
  keepalive=1% zerowindow=1% conversations with keep-alives, with zero windows

apps: conversations that begin as those of applications, to test packet inspection
  flows=10000     concurrent conversations
  new=N           new conversations per second [default: flows / 10]
  ramp=1s         time in which the first conversations begin
  ipv6=30% rst=10%           shares of the conversations
  tls12=15% tls13=35% quic=20% http=8% dns=15% ssh=2% unknown=5% undecided=0
                  shares of the applications; those not given have the rest
  split=15%       first messages of clients that are cut into several segments
  records=5%      ClientHellos that are cut into several records
  missing=2%      conversations with a first packet that was not captured
  loss=2% duplicate=2% overlap=2% conflict=2% reorder=2%
                  with one that is retransmitted, captured twice, overlapping, repeated with other
                  octets, out of order

Examples:
  weir synth velan,flows=131072,size=64,packets=8M -o velan.pcap
  weir synth mix,flows=10000,packets=1M,seed=7 -o mix.pcap --truth flows.csv
  weir synth lossy,loss=5%,reorder=2% -o lossy.pcap --truth flows.csv
  weir synth apps,quic=50%,split=30% -o apps.pcap --truth flows.csv
  weir synth mix,packets=100k -o - | tshark -r -

Exit codes:
  0  success
  1  usage error, or an output cannot be opened
  2  an output could not be written completely";
