//! Findings of the checks, and their remedies.

use serde::Serialize;
use std::fmt;
use std::process::{Command, Stdio};

/// The subject of findings that are not about an interface.
pub const MACHINE: &str = "machine";

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Packets are lost, or measured values are wrong.
    Critical,
    /// Costs performance, at least under load.
    Warning,
    /// The value could not be read.
    Unknown,
    /// Nothing to improve.
    Ok,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How serious it is.
    pub severity: Severity,
    /// The name of the check in docs/doctor.md.
    pub check: &'static str,
    /// The interface, or `machine`.
    pub subject: String,
    /// What was found, in one line.
    pub summary: String,
    /// Why it costs packets; empty if nothing is wrong.
    pub impact: String,
    /// How to repair it.
    pub remedy: Option<Remedy>,
}

/// How to repair a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Commands for a root shell, one per line.
    pub commands: Vec<String>,
    /// What `--fix` does; empty if the user has to decide.
    pub steps: Vec<Step>,
    /// What to know before running the commands; may be empty.
    pub note: String,
}

/// One change that `--fix` makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Runs a program with arguments.
    Run(Vec<String>),
    /// Writes a text into a file below `/sys` or `/proc`.
    Write {
        /// The file.
        path: String,
        /// The text.
        text: String,
    },
}

/// Why a step has failed: the message of the operating system, or of the program that was run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StepError(String);

impl Finding {
    /// A finding without a remedy.
    pub fn new(
        severity: Severity,
        check: &'static str,
        subject: &str,
        summary: impl Into<String>,
        impact: impl Into<String>,
    ) -> Self {
        let (summary, impact) = (summary.into(), impact.into());
        Self { severity, check, subject: subject.into(), summary, impact, remedy: None }
    }

    /// Nothing to improve.
    pub fn ok(check: &'static str, subject: &str, summary: impl Into<String>) -> Self {
        Self::new(Severity::Ok, check, subject, summary, "")
    }

    /// A value that could not be read, and why.
    pub fn unknown(check: &'static str, subject: &str, summary: impl fmt::Display) -> Self {
        Self::new(Severity::Unknown, check, subject, summary.to_string(), "")
    }

    /// Adds safe steps, which are also the commands.
    pub(crate) fn with_steps(mut self, steps: Vec<Step>, note: &str) -> Self {
        let commands = steps.iter().map(Step::to_string).collect();
        self.remedy = Some(Remedy { commands, steps, note: note.into() });
        self
    }

    /// Adds commands that only the user may run.
    pub fn with_commands(mut self, commands: &[String], note: &str) -> Self {
        self.remedy = Some(Remedy { commands: commands.to_vec(), steps: vec![], note: note.into() });
        self
    }
}

impl Step {
    /// A program with its arguments, from a line without quotes.
    pub(crate) fn run(line: &str) -> Self {
        Self::Run(line.split_whitespace().map(String::from).collect())
    }

    /// Makes the change on this machine.
    ///
    /// # Errors
    /// The operating system or the program has refused it.
    ///
    /// # Panics
    /// If [`Step::Run`] is empty.
    pub fn apply(&self) -> Result<(), StepError> {
        match self {
            Self::Write { path, text } => std::fs::write(path, text).map_err(|error| StepError(error.to_string())),
            Self::Run(words) => {
                let (program, arguments) = words.split_first().expect("a step has a program");
                let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
                let output = output.map_err(|error| StepError(format!("{program}: {error}")))?;
                if output.status.success() {
                    return Ok(());
                }
                let message = String::from_utf8_lossy(&output.stderr);
                let first_line = message.lines().next().map(|line| line.trim().to_owned());
                Err(StepError(first_line.unwrap_or_else(|| output.status.to_string())))
            }
        }
    }
}

/// Formats a step as a shell command.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(words) => f.write_str(&words.join(" ")),
            Self::Write { path, text } => write!(f, "echo {text} > {path}"),
        }
    }
}
