//! A compiled expression: a tree that is applied to each record, without allocation.

use crate::condition::{Check, Node, TextOperator};
use crate::error::ExpressionError;
use crate::parser;
use std::fmt;
use std::str::FromStr;
use weir_flow::FlowRecord;

/// A condition on flow records (docs/views.md).
#[derive(Clone)]
pub struct Expression {
    text: String,
    root: Node,
}

impl Expression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The expression is invalid. The error has the place.
    pub fn new(text: &str) -> Result<Self, ExpressionError> {
        Ok(Self { text: text.into(), root: parser::parse(text)? })
    }

    /// Whether a record matches.
    #[inline]
    pub fn matches(&self, flow: &FlowRecord) -> bool {
        self.root.matches(flow)
    }

    /// Whether all records match that have the same values of the known fields as this one:
    /// `Some(true)`, or none: `Some(false)`. `None` if it depends on other fields.
    pub fn matches_by(&self, known: &[&str], flow: &FlowRecord) -> Option<bool> {
        self.root.matches_by(known, flow)
    }

    /// Whether only these fields are compared, and none of a single side (`src host`).
    pub fn compares_only(&self, fields: &[&str]) -> bool {
        let mut only = true;
        self.root.visit(&mut |test| only &= fields.contains(&test.field.name) && !test.field.is_of_one_side());
        only
    }

    /// Names of the fields that are compared, each once.
    pub fn fields(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        self.root.visit(&mut |test| {
            if !names.contains(&test.field.name) {
                names.push(test.field.name);
            }
        });
        names
    }

    /// Names of lists (`--tags`) that a record must have, or must not have, as the user wrote them, each with
    /// its field.
    pub fn tags(&self) -> Vec<(&'static str, &str)> {
        let mut tags = Vec::new();
        self.root.visit(&mut |test| {
            if let Check::Text(TextOperator::Has, names) = &test.check {
                tags.extend(names.iter().map(|name| (test.field.name, &**name)));
            }
        });
        tags
    }

    /// The text as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for Expression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, ExpressionError> {
        Self::new(text)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}

/// Expressions are equal if their texts are.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}
