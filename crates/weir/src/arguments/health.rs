//! Options of `weir health`.

use super::INPUT;
use clap::Args;
use std::path::PathBuf;
use weir_control::ProbeUrl;
use weir_text::units::parse_duration;

/// Ask a running probe whether it is alive, and with --ready whether it does its work: for health checks of containers
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Health {
    /// HTTP interface of the probe (--listen), or of weir view: http://HOST:PORT
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:9477")]
    pub url: ProbeUrl,

    /// Ask whether it does its work, too: every pipeline responds, and every interface is up
    #[arg(long, help_heading = INPUT)]
    pub ready: bool,

    /// How long it has for its answer (units ms, s, m)
    #[arg(long = "timeout", value_name = "TIME", default_value = "5s", value_parser = parse_duration, help_heading = INPUT)]
    pub timeout_ns: u64,

    /// Token of the probe, in a file that its owner alone may read; beyond loopback the probe asks for it
    #[arg(long, value_name = "FILE", help_heading = INPUT)]
    pub token_file: Option<PathBuf>,

    /// Certificates (PEM) that the probe's certificate has to be signed by, for an https URL
    #[arg(long, value_name = "FILE", help_heading = INPUT)]
    pub ca: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  weir health                                is a probe alive that runs with --listen 9477?
  weir health --ready                        does it do its work?
  weir health http://127.0.0.1:9478 --timeout 1s
  weir health https://192.0.2.1:9477 --ca ca.pem --token-file token
                                             a probe elsewhere

Exit codes:
  0  it is: a sentence on standard output
  1  it is not, or does not answer: a sentence on standard error; usage error";
