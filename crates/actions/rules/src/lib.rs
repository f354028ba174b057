//! Rules: which packets of a flow are forwarded, where to, and how much of them.
//!
//! Input: a rules file (TOML), and flow records with their fields so far. Output: one [`Decision`]
//! per flow. Invariants: the same record always gets the same decision, and a decision never fails.
//! Not done here: sending packets, counting them.
//!
//! docs/rules.md defines the file.
#![forbid(unsafe_code)]

mod reader;
mod rules;

pub use reader::{InvalidRules, MAX_PROBLEMS};
pub use rules::{Action, Decision, Egress, Hold, Level, Rule, Rules, Slice};
