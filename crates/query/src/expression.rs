//! A compiled expression: a tree that is applied to each record, without allocation.

use crate::condition::Node;
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
