//! Errors: the configuration file of `weir probe`.

use super::advice::input_advice;
use std::io;
use weir_export::without_secrets;

/// The configuration file of `weir probe`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{path}: {}", lines_without_secrets(error))]
    Syntax { path: String, error: toml::de::Error },
    #[error("{path}: line {line}: {key}: {problem}")]
    Entry { path: String, line: usize, key: String, problem: ConfigProblem },
    #[error("{path}: {error}{}", input_advice(error))]
    File { path: String, error: io::Error },
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigProblem {
    #[error("unknown option{}", .0.as_ref().map_or_else(String::new, |name| format!("; did you mean {name}?")))]
    Unknown(Option<String>),
    #[error("this option was {0}")]
    Changed(&'static str),
    #[error(
        "unknown option: the file is of weir {of}, and this is weir {own}, which has other options (weir probe \
         --print-config lists them)"
    )]
    OfOtherVersion { of: String, own: &'static str },
    #[error("use true or false")]
    NotBoolean,
    #[error("{0} is not allowed here; use text or a number")]
    WrongType(&'static str),
    #[error("{0}")]
    Value(String),
}

/// The error shows a line of the file, which may be a sink with a password.
fn lines_without_secrets(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let lines: Vec<String> = text.lines().map(without_secrets).collect();
    lines.join("\n")
}
