//! Options of `weir bypass`.

use super::groups::Hardening;
use super::{INPUT, OUTPUT};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use weir_control::ProbeUrl;
use weir_text::units::parse_duration;

/// Let Suricata tell a probe about flows: follow its EVE file, and override the rules for flows that it names
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Bypass {
    /// EVE file of Suricata (JSON, one event per line), or - for standard input. A file is followed from its end on, also
    /// when it is rotated or truncated
    #[arg(long, value_name = "FILE", help_heading = INPUT)]
    pub eve: PathBuf,

    /// Read what the file has already, too
    #[arg(long, help_heading = INPUT)]
    pub from_start: bool,

    /// Events that select a flow
    #[arg(long, value_name = "EVENTS", value_delimiter = ',', default_value = "alert", help_heading = INPUT)]
    pub on: Vec<EveEvent>,

    /// Of alerts and drops, only those of these signatures (sid)
    #[arg(long, value_name = "ID", value_delimiter = ',', help_heading = INPUT)]
    pub signature: Vec<u64>,

    /// HTTP interface of the probe, which runs with --rules and --token-file
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9477", help_heading = OUTPUT)]
    pub to: ProbeUrl,

    /// The token of the probe, in a file that its owner alone may read
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub token_file: PathBuf,

    /// Certificates (PEM) that the probe's certificate has to be signed by, for an https URL
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub ca: Option<PathBuf>,

    /// What happens to the packets of a flow
    #[arg(long, value_name = "ACTION", default_value = "shunt", help_heading = OUTPUT)]
    pub action: BypassAction,

    /// With --action shunt: forward this number of further packets of the flow
    #[arg(long, value_name = "PACKETS", default_value = "0", help_heading = OUTPUT)]
    pub more: u32,

    /// How long, from 1s to 1d (units s, m, h, d)
    #[arg(long = "expiry", value_name = "TIME", default_value = "5m", value_parser = parse_expiry, help_heading = OUTPUT)]
    pub expiry_seconds: u64,

    /// Print no summary; the default of --log-level is warn
    #[arg(short, long, help_heading = OUTPUT)]
    pub quiet: bool,

    #[command(flatten)]
    pub hardening: Hardening,
}

/// What an override does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BypassAction {
    /// No further packet is forwarded
    Shunt,
    /// The same, counted as dropped
    Drop,
    /// All packets are forwarded, whatever the rules say
    Forward,
}

/// An event that selects a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EveEvent {
    /// A signature has matched
    Alert,
    /// Suricata has dropped a packet of the flow
    Drop,
    /// A flow that Suricata had bypassed has ended or timed out there
    Bypassed,
}

fn parse_expiry(text: &str) -> Result<u64, String> {
    let seconds = parse_duration(text).ok().map(|ns| ns / 1_000_000_000);
    seconds.filter(|seconds| (1..=86_400).contains(seconds)).ok_or_else(|| "use a time from 1s to 1d".into())
}

const EXAMPLES: &str = "\
Examples:
  weir bypass --eve /var/log/suricata/eve.json --token-file token --signature 1000001
                                         flows with this alert need no further packets
  weir bypass --eve eve.json --token-file token --on drop --action drop --expiry 1h
                                         what Suricata blocks
  weir bypass --eve - --token-file token --to https://192.0.2.1:9477 --ca ca.pem < eve.json
                                         events of a file, for a probe elsewhere

Exit codes:
  0  success: SIGINT, SIGTERM or the end of standard input; each event was delivered
  1  usage error, or a file cannot be read, or the probe refuses the token or runs without rules,
     or its certificate is not accepted
  2  finished, but lines were broken, or overrides were refused or not delivered; the summary has
     the counts";
