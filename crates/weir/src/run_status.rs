//! How a command that ran to its end has ended.

use std::process::ExitCode;

/// Result of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// Everything was metered and delivered; no problems were found.
    Success,
    /// Finished, but input was damaged, something was not delivered, or problems were found.
    Problems,
}

/// How it has ended, and what was wrong, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub status: RunStatus,
    pub problems: Vec<String>,
}

impl RunStatus {
    pub fn and(self, other: Self) -> Self {
        if self == Self::Success { other } else { self }
    }

    pub fn from_problems(problems: bool) -> Self {
        if problems { Self::Problems } else { Self::Success }
    }
}

impl From<RunStatus> for ExitCode {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Success => Self::SUCCESS,
            RunStatus::Problems => Self::from(2),
        }
    }
}
