//! What a probe runs with: rules, lists and timeouts, as they were loaded last.

use serde::Serialize;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use utoipa::ToSchema;
use weir_ledger::{Ledger, PacketTotals, RuleCounters};

/// What a probe runs with.
#[derive(Clone, Debug, Default)]
pub struct InEffect {
    /// The sources.
    pub inputs: Vec<String>,
    /// The rules, with `--rules`.
    pub rules: Option<RulesFile>,
    /// Tables, databases and lists.
    pub lists: Vec<ListFile>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// The folders of stores, in the order of the sinks.
    pub stores: Vec<PathBuf>,
    /// Those of stores of transactions.
    pub transactions: Vec<PathBuf>,
}

/// A rules file.
#[derive(Clone, Debug, Default)]
pub struct RulesFile {
    /// Its name.
    pub file: String,
    /// When it was read, seconds since 1970.
    pub loaded: u64,
    /// Why the last reload kept all files as they are: the problem may be in another one.
    pub error: Option<String>,
    /// Its content.
    pub text: Arc<str>,
    /// Level, name and line of each rule.
    pub lines: Vec<(&'static str, String, usize)>,
}

/// A file of networks, of places, or a list of tags.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct ListFile {
    /// The option that names it, with the name of a list: `--tags botnets`.
    pub option: String,
    /// Its name.
    pub file: String,
    /// Type of a database, from its metadata.
    pub kind: Option<String>,
    /// Prefixes, networks of a database, or entries of a list.
    pub entries: u64,
    /// Lines that are not valid.
    pub lines_left_out: u64,
    /// When it was read, seconds since 1970.
    pub loaded: u64,
    /// Why the last reload kept all files as they are: the problem may be in another one.
    pub error: Option<String>,
}

/// Timeouts, seconds.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub struct Timeouts {
    /// A record ends when its flow had no packet for this time.
    pub idle: f64,
    /// A record ends when it has lasted for this time.
    pub active: f64,
    /// Time for the last records at the end of the probe.
    pub drain: f64,
    /// Interval of the status.
    pub interval: f64,
}

/// The rules in effect and what each has done.
#[derive(Serialize, ToSchema)]
pub struct RulesState<'a> {
    /// The rules file.
    file: &'a str,
    /// When it was read, seconds since 1970.
    loaded: u64,
    /// Why the last reload kept all files as they are: the problem may be in another one.
    error: Option<&'a str>,
    /// Its content.
    text: &'a str,
    /// Each rule, what no rule matched, overrides, and rules of earlier versions.
    rules: Vec<RuleState<'a>>,
}

/// A rule and what it has done since the start.
#[derive(Serialize, ToSchema)]
struct RuleState<'a> {
    /// Its level; `default` for what no rule matched, `override` for what overrides decided.
    level: &'static str,
    /// Its name, or the condition.
    rule: &'a str,
    /// Its line in the file; null for what is not in it.
    line: Option<usize>,
    /// Packets that it matched.
    packets_matched: u64,
    /// Their octets on the wire.
    octets_matched: u64,
    /// Those that were forwarded.
    packets_forwarded: u64,
    /// Their octets on the wire.
    octets_forwarded: u64,
}

/// Tables, databases and lists in effect.
#[derive(Serialize, ToSchema)]
pub struct Lists {
    /// In the order of the options.
    pub lists: Vec<ListFile>,
}

impl RulesFile {
    /// With the counters of a ledger.
    pub(crate) fn state<'a>(&'a self, ledger: &'a Ledger) -> RulesState<'a> {
        let Self { file, loaded, error, text, lines } = self;
        let lines: HashMap<_, _> = lines.iter().rev().map(|(level, name, line)| ((*level, &**name), *line)).collect();
        let rule = |RuleCounters { level, rule, matched, forwarded }: &'a RuleCounters| {
            let [matched, forwarded] = [matched, forwarded].map(|PacketTotals { packets, octets }| (*packets, *octets));
            RuleState {
                level,
                rule,
                line: lines.get(&(*level, &**rule)).copied(),
                packets_matched: matched.0,
                octets_matched: matched.1,
                packets_forwarded: forwarded.0,
                octets_forwarded: forwarded.1,
            }
        };
        let counters = ledger.actions.iter().flat_map(|actions| &actions.rules);
        RulesState { file, loaded: *loaded, error: error.as_deref(), text, rules: counters.map(rule).collect() }
    }
}
