//! Errors: `weir doctor`, `weir plan` and `weir bench`.

use std::io;

/// `weir doctor`, `weir plan` and `weir bench`.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error("no interface '{name}'; there is {existing}")]
    UnknownInterface { name: String, existing: String },
    #[error("--bench {path}: {problem}")]
    BenchReport { path: String, problem: BenchReportProblem },
    #[error(transparent)]
    Bench(weir_bench::Error),
    #[error("the --soak run lost packets, or its memory grew")]
    Soak,
}

/// What is wrong with a file that should be a report of `weir bench --json`.
#[derive(Debug, thiserror::Error)]
pub enum BenchReportProblem {
    #[error(transparent)]
    Read(io::Error),
    #[error("not JSON: {0}")]
    Syntax(serde_json::Error),
    #[error("made with --quick, whose figures mean nothing; run weir bench without it")]
    Quick,
    #[error("no figures of the tables mix or flows; run weir bench mix --json FILE")]
    NoFigures,
}
