//! Options of `weir doctor` and `weir plan`.

use super::OutputFiles;
use super::values::{Link, parse_link, parse_mpps};
use clap::Args;
use std::path::PathBuf;
use weir_text::units::{parse_count, parse_flows};

/// Options of both commands.
#[derive(Debug, Args)]
pub struct MachineOptions {
    /// Use another machine: a file written by weir doctor --record, or a directory with copies of its /sys and /proc
    #[arg(long, value_name = "PATH")]
    pub sysroot: Option<PathBuf>,

    /// Print the result as one JSON object, with all values that it is based on
    #[arg(long)]
    pub json: bool,

    /// Also list the checks that passed. weir plan: also tables by packet size, cores, descriptors and trimming, and the
    /// use of a GPU
    #[arg(short, long)]
    pub verbose: bool,
}

/// Check this machine for settings that make a probe lose packets
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct Doctor {
    /// Interfaces to check [default: all that belong to a physical device]
    #[arg(value_name = "INTERFACE")]
    pub interfaces: Vec<String>,

    /// Also check the configuration file of a probe, and whether this machine has what it needs: capabilities, interfaces,
    /// space. A folder stands for its files *.toml [default: /etc/weir, if there is one]
    #[arg(long, value_name = "PATH", conflicts_with = "sysroot")]
    pub config: Option<PathBuf>,

    #[command(flatten)]
    pub machine: MachineOptions,

    /// Record everything that the checks read of this machine in a text file, and exit. Use - for standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fix", "json"])]
    pub record: Option<PathBuf>,

    #[command(flatten)]
    pub output_files: OutputFiles,

    /// Apply the safe changes: offloads off, larger receive rings, CPU governor 'performance', interrupts on the NIC's NUMA
    /// node, real-time throttling off. Prints each command before it runs. With --sysroot it only prints them
    #[arg(long, conflicts_with = "json")]
    pub fix: bool,
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  weir doctor                                 check this machine and all its NICs
  weir doctor eth0 -v                         check one NIC; also list the checks that passed
  weir doctor --config probe.toml             also what this probe needs; default: those of /etc/weir
  sudo weir doctor eth0 --fix                 apply the safe changes
  weir doctor --record machine.txt            record this machine, to check it elsewhere
  weir doctor --sysroot machine.txt           check a recorded machine
  weir doctor --json | jq '.findings[] | select(.severity == \"critical\").summary'

Values that cannot be read are listed as unknown. NIC settings are read with ethtool (apt install
ethtool). 'weir help doctor-guide' explains every check.

Exit codes:
  0  no critical findings
  1  usage error, no such interface, nothing to read, or an output cannot be opened
  2  critical findings, or an output could not be written";

/// Calculate the cores and memory that a probe needs for a link
#[derive(Debug, Args)]
#[command(after_help = PLAN_EXAMPLES)]
pub struct Plan {
    /// Speed of the link, with its unit: 100Gbit/s, or short 100G, 100Gbit or 100Gbps; from 1bit/s to 1000Tbit/s. Several
    /// ports, as of a break-out cable: 4x25G, 2x50G, 10x10G
    #[arg(long, value_name = "RATE", value_parser = parse_link)]
    pub link: Link,

    /// Average frame length in octets, with FCS
    #[arg(long, value_name = "OCTETS", default_value_t = 700, value_parser = clap::value_parser!(u32).range(64..=65_535))]
    pub packet: u32,

    /// Flows active at the same time; suffixes k, M and G
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_flows)]
    pub flows: u32,

    /// The probe records MAC addresses (--mac-addresses) and needs more memory per flow. It also needs longer per packet:
    /// name the rate of a core (--mpps-per-core)
    #[arg(long)]
    pub mac_addresses: bool,

    /// The probe records transactions (--transactions), each question of DNS and request of HTTP/1: count their memory
    #[arg(long)]
    pub transactions: bool,

    /// Packets per second; suffixes k, M and G [default: as many as fully load the link]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub rate: Option<u64>,

    /// Flow records per second; suffixes k, M and G [default: a tenth of the flows]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub records: Option<u64>,

    /// Million packets per second that one core can receive and meter [default: 7.4]
    #[arg(long, value_name = "N", value_parser = parse_mpps)]
    pub mpps_per_core: Option<f64>,

    /// Derive --mpps-per-core from a file that weir bench --json wrote on the machine: half of its metering rate
    #[arg(long, value_name = "FILE", conflicts_with = "mpps_per_core")]
    pub bench: Option<PathBuf>,

    /// Write a plot of the pipelines needed by packet size, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    #[command(flatten)]
    pub output_files: OutputFiles,

    /// NIC to plan for [default: the fastest]
    #[arg(long, value_name = "INTERFACE")]
    pub iface: Option<String>,

    #[command(flatten)]
    pub machine: MachineOptions,
}

const PLAN_EXAMPLES: &str = "\
Examples:
  weir plan --link 100G                                  average frames of 700 octets, 1 M flows
  weir plan --link 100G --packet 64 --flows 2M           the worst case: smallest frames
  weir plan --link 40G --rate 5M --iface eth1            a measured packet rate and a given NIC
  weir bench mix --json bench.json && weir plan --link 100G --bench bench.json
  weir plan --link 4x25G -v --svg cores.svg              a break-out cable; all tables, and a plot
  weir plan --link 100G --sysroot machine.txt --json     another machine, as JSON

Exit codes:
  0  the machine is large enough, as far as known
  1  usage error, no such interface, nothing to read, or an output cannot be opened
  2  the machine is too small, and the output lists what is missing; or the output could not be
     written";
