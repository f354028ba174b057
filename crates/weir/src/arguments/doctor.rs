//! Options of `weir doctor`.

use clap::Args;
use std::path::PathBuf;

/// Check this machine for settings that make a probe lose packets
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Doctor {
    /// Interfaces to check [default: all that belong to a physical device]
    #[arg(value_name = "INTERFACE")]
    pub interfaces: Vec<String>,

    /// Check another machine: a file written by --record, or a directory with copies of its /sys and /proc
    #[arg(long, value_name = "PATH")]
    pub sysroot: Option<PathBuf>,

    /// Record everything that the checks read of this machine in a text file, and exit; - is standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fix", "json"])]
    pub record: Option<PathBuf>,

    /// Apply the safe changes: offloads off, larger receive rings, CPU governor 'performance', interrupts on the NIC's NUMA
    /// node, real-time throttling off. Prints each command before it runs. With --sysroot it only prints them
    #[arg(long, conflicts_with = "json")]
    pub fix: bool,

    /// Print findings and everything that was read as one JSON object
    #[arg(long)]
    pub json: bool,

    /// Also list the checks that passed
    #[arg(short, long)]
    pub verbose: bool,
}

const EXAMPLES: &str = "\
Examples:
  weir doctor                                 check this machine and all its NICs
  weir doctor eth0 -v                         check one NIC; also list the checks that passed
  sudo weir doctor eth0 --fix                 apply the safe changes
  weir doctor --record machine.txt            record this machine, to check it elsewhere
  weir doctor --sysroot machine.txt           check a recorded machine
  weir doctor --json | jq '.findings[] | select(.severity == \"critical\").summary'

Values that cannot be read are listed as unknown. NIC settings are read with ethtool (apt install
ethtool). docs/doctor.md explains every check.

Exit codes:
  0  nothing critical
  1  usage error, no such interface, or nothing to read
  2  critical findings";
