//! What was found, and what mends it.

use serde::Serialize;
use std::fmt;
use std::process::{Command, Stdio};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Packets are lost, or figures are wrong.
    Critical,
    /// Costs something, or will under load.
    Warning,
    /// Could not be read.
    Unknown,
    /// As it should be.
    Ok,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The check, as docs/doctor.md names it.
    pub check: &'static str,
    /// The interface, or `machine`.
    pub subject: String,
    /// What is so, in a line.
    pub summary: String,
    /// Why it costs packets; empty if nothing is wrong.
    pub impact: String,
    /// What mends it.
    pub remedy: Option<Remedy>,
}

/// What mends a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// What to type, as root, one command a line.
    pub commands: Vec<String>,
    /// What `--fix` does; none if a person has to.
    pub steps: Vec<Step>,
    /// What to know before.
    pub note: String,
}

/// One thing that `--fix` does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Runs a program with arguments.
    Run(Vec<String>),
    /// Writes a text into a file of the kernel.
    Write {
        /// The file.
        path: String,
        /// The text.
        text: String,
    },
}

impl Finding {
    /// Something that is wrong, or could be better.
    pub(crate) fn bad(severity: Severity, check: &'static str, subject: &str, summary: String, impact: String) -> Self {
        Self { severity, check, subject: subject.into(), summary, impact, remedy: None }
    }

    /// Something that is as it should be.
    pub(crate) fn fine(check: &'static str, subject: &str, summary: impl Into<String>) -> Self {
        Self::bad(Severity::Ok, check, subject, summary.into(), String::new())
    }

    /// Something that could not be read: what, and why.
    pub(crate) fn unknown(check: &'static str, subject: &str, summary: impl fmt::Display) -> Self {
        Self::bad(Severity::Unknown, check, subject, summary.to_string(), String::new())
    }

    /// Mended by steps that are safe: each is its own command.
    pub(crate) fn fixed_by(mut self, steps: Vec<Step>, note: &str) -> Self {
        let commands = steps.iter().map(Step::to_string).collect();
        self.remedy = Some(Remedy { commands, steps, note: note.into() });
        self
    }

    /// Mended by a person.
    pub(crate) fn by_hand(mut self, commands: &[String], note: &str) -> Self {
        self.remedy = Some(Remedy { commands: commands.to_vec(), steps: vec![], note: note.into() });
        self
    }
}

impl Step {
    /// A program with its arguments, as one line without quotes.
    pub(crate) fn run(line: &str) -> Self {
        Self::Run(line.split_whitespace().map(String::from).collect())
    }

    /// Does it, on this machine.
    ///
    /// # Errors
    /// What the system or the program said.
    pub fn apply(&self) -> Result<(), String> {
        match self {
            Self::Write { path, text } => std::fs::write(path, text).map_err(|error| error.to_string()),
            Self::Run(words) => {
                let (program, arguments) = words.split_first().ok_or("no program")?;
                let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
                let output = output.map_err(|error| format!("{program}: {error}"))?;
                if output.status.success() {
                    return Ok(());
                }
                let said = String::from_utf8_lossy(&output.stderr);
                Err(said.lines().next().map_or_else(|| output.status.to_string(), |line| line.trim().to_owned()))
            }
        }
    }
}

/// As one types it.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(words) => f.write_str(&words.join(" ")),
            Self::Write { path, text } => write!(f, "echo {text} > {path}"),
        }
    }
}
