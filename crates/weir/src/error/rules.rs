//! Errors: `--rules`, and `weir rules`.

use super::advice::input_advice;
use std::io;
use std::path::PathBuf;

/// `--rules`, and `weir rules`.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error("{0}: packets would be mixed with the log; name a file or a pipe of their own")]
    PacketsInLog(String),
    #[error("{}", rules_problems(.path, .problems))]
    Invalid { path: PathBuf, problems: RulesProblems },
    #[error("{path}: {error}{}", input_advice(error))]
    File { path: String, error: io::Error },
    #[error("{path}: it has more than {most} MiB, which is too long for rules; is the name right?")]
    TooLong { path: String, most: u64 },
    #[error(
        "{0}: [hold] octets cannot grow beyond 64 MiB, or what they were at the start, while the probe runs; restart it for that"
    )]
    ReloadEnlargesHold(String),
    #[error("{0}: outputs cannot change while the probe runs; restart it for that")]
    ReloadChangesEgress(String),
    #[error(
        "--rules: line {line}: '{rule}' never matches: no flow has {field} without {option}; add it, or remove the rule"
    )]
    RuleNeedsOption { rule: String, line: usize, field: &'static str, option: &'static str },
    #[error("--rules: line {line}: '{rule}': no flow has the tag {tag}; --tags has {lists}")]
    RuleNeedsTag { rule: String, line: usize, tag: String, lists: String },
    #[error(
        "--rules: line {line}: '{rule}': no flow has {tag} then: its list has only names and fingerprints, which are not \
         known yet; {advice}"
    )]
    RuleNeedsAddresses { rule: String, line: usize, tag: String, advice: &'static str },
    #[error(
        "{output}: the probe runs as {user} (--user), who cannot write into this pipe, so the probe could not open it \
         again for another reader: {error}; give that user the pipe (chown {user})"
    )]
    FifoOfUser { output: String, user: String, error: io::Error },
}

/// The problems of a rules file.
#[derive(Debug)]
pub struct RulesProblems {
    /// Lines, counted from 1, and texts.
    pub problems: Vec<(usize, String)>,
    /// The check ends with this number of them.
    pub most: usize,
}

fn rules_problems(path: &std::path::Path, RulesProblems { problems, most }: &RulesProblems) -> String {
    let line = |(line, problem): &(usize, String)| format!("{}: line {line}: {problem}", path.display());
    let mut text = problems.iter().map(line).collect::<Vec<_>>().join("\n");
    if problems.len() >= *most {
        text += &format!("\n{}: the check ended with problem {most}; there may be more", path.display());
    }
    text
}
