//! Options of `weir rules`.

use super::groups::Hardening;
use super::{Enrichment, INPUT, Metering};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use weir_capture::SourceSpec;

/// Check a rules file, and try it on captures
#[derive(Debug, Args)]
pub struct RulesArguments {
    #[command(subcommand)]
    pub command: RulesCommand,
}

#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    Check(Box<RulesCheck>),
}

/// Check a rules file; with a capture, print what each rule and egress would get of it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RulesCheck {
    /// The rules file (weir help rules)
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// A capture, - (standard input) or generated traffic (synth:apps,...); may be repeated. Nothing is sent
    #[arg(long = "with", value_name = "CAPTURE", help_heading = INPUT)]
    pub with: Vec<SourceSpec>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub metering: Metering,

    #[command(flatten)]
    pub enrichment: Enrichment,

    #[command(flatten)]
    pub hardening: Hardening,
}

const EXAMPLES: &str = "\
Examples:
  weir rules check rules.toml                         is the file valid?
  weir rules check rules.toml --with capture.pcap     packets and octets of each rule and output
  weir rules check rules.toml --with synth:apps       the same for generated traffic

Exit codes:
  0  the file is valid
  1  the file has problems, each in a line; or the capture cannot be read
  2  an output cannot be opened here, or the capture is damaged";
