//! What is wrong with a rules file, and in which line.

use std::fmt;

/// All problems of a rules file.
#[derive(Debug, thiserror::Error)]
pub struct InvalidRules {
    /// In the order of the file: line, counted from 1, and problem.
    pub problems: Vec<(usize, Problem)>,
}

impl fmt::Display for InvalidRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (line, problem)) in self.problems.iter().enumerate() {
            write!(f, "{}line {line}: {problem}", if at > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

/// A problem of a rules file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file is not TOML.
    #[error("{0}")]
    Syntax(String),
    /// A table or key that does not exist.
    #[error("there is no '{key}' in {place}{}; there are: {known}", did_you_mean(.near))]
    UnknownKey {
        /// As the user wrote it.
        key: String,
        /// Where it stands.
        place: String,
        /// The most similar key, if one is similar.
        near: Option<String>,
        /// All keys.
        known: String,
    },
    /// A value of another kind.
    #[error("'{key}' must be {expected}")]
    Value {
        /// The key.
        key: String,
        /// What it may be.
        expected: &'static str,
    },
    /// The expression of a rule is invalid.
    #[error("where: {0}")]
    Expression(String),
    /// A field that is not known while the flow is active, or not yet at this level.
    #[error("where: '{field}' {reason}")]
    Field {
        /// The field.
        field: String,
        /// Why rules of this level cannot use it.
        reason: &'static str,
    },
    /// `to` names no egress.
    #[error("there is no egress '{name}'{}; write [egress.{name}] with its outputs", did_you_mean(.near))]
    UnknownEgress {
        /// As the user wrote it.
        name: String,
        /// The most similar name, if one is similar.
        near: Option<String>,
    },
    /// A rule that drops, and has keys for forwarding.
    #[error("action = \"drop\" contradicts '{0}': a dropped packet goes nowhere")]
    Contradiction(&'static str),
    /// An egress has the name that the table of the recorder stands for.
    #[error("an egress cannot have this name; the recorder is a table of its own: [recorder]")]
    NameOfRecorder,
    /// `record = true` in a rule that drops.
    #[error("action = \"drop\" contradicts 'record': to record packets and hand them on to no egress, write to = []")]
    DroppedAndRecorded,
    /// `record = true` without a recorder.
    #[error("record = true needs a recorder; write [recorder] with outputs = [\"folder:...\"]")]
    NoRecorder,
    /// No packet can reach a rule.
    #[error("no packet reaches this rule: line {0} matches whatever it matches")]
    Unreachable(usize),
    /// A rule of an earlier level drops all that it matches.
    #[error("no packet reaches this rule: line {0} drops whatever it matches, and that is final")]
    Dropped(usize),
    /// Two rules or egresses of one name.
    #[error("the name '{0}' is used twice")]
    Twice(String),
    /// More than there may be.
    #[error("there are {number} {what}, at most {most} are allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        number: usize,
        /// How many there may be.
        most: usize,
    },
}

fn did_you_mean(near: &Option<String>) -> String {
    near.as_ref().map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
}
