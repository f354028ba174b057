//! Options of `weir synth`.

use clap::Args;
use std::path::PathBuf;

/// Generate traffic and write it to a capture file
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Synth {
    /// Traffic profile (velan, mix or lossy) and its settings (see below), separated by commas:
    /// velan,flows=131072,size=64,packets=8M,seed=1
    #[arg(value_name = "SPEC")]
    pub spec: String,

    /// Capture file to write (pcap with nanosecond time stamps). Use - for standard output
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub output: PathBuf,

    /// Also write the true flows as CSV, for the profile lossy with their true TCP events. Keeps all flows in memory
    #[arg(long, value_name = "FILE")]
    pub truth: Option<PathBuf>,

    /// Print no progress; the default of --log-level is warn
    #[arg(short, long)]
    pub quiet: bool,
}

const EXAMPLES: &str = "\
Settings of all profiles:
  packets=N       stop after N packets [default: velan 8M, mix and lossy 1M; none with duration]
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

Examples:
  weir synth velan,flows=131072,size=64,packets=8M -o velan.pcap
  weir synth mix,flows=10000,packets=1M,seed=7 -o mix.pcap --truth flows.csv
  weir synth lossy,loss=5%,reorder=2% -o lossy.pcap --truth flows.csv
  weir synth mix,packets=100k -o - | tshark -r -

Exit codes:
  0  success
  1  usage error, or an output cannot be opened
  2  an output could not be written completely";
