//! A compiled expression: a tree that is applied to each record, without allocation.

use crate::condition::{Check, Node, TextOperator};
use crate::error::ExpressionError;
use crate::parser;
use std::fmt;
use std::str::FromStr;
use weir_fields::{Bounds, Kind};
use weir_flow::FlowRecord;
use weir_text::zone::Zone;

/// A condition on flow records (docs/views.md).
#[derive(Clone)]
pub struct Expression {
    text: String,
    root: Node,
}

impl Expression {
    /// Compiles an expression. Times without a zone are in UTC.
    ///
    /// # Errors
    /// The expression is invalid. The error has the place.
    pub fn new(text: &str) -> Result<Self, ExpressionError> {
        Self::in_zone(text, &Zone::UTC)
    }

    /// As [`Expression::new`]; times without a zone are not in UTC, but in this one.
    ///
    /// # Errors
    /// The expression is invalid. The error has the place.
    pub fn in_zone(text: &str, zone: &Zone) -> Result<Self, ExpressionError> {
        Ok(Self { text: text.into(), root: parser::parse(text, zone)? })
    }

    /// What matches both.
    pub fn and(&self, other: &Self) -> Self {
        let text = format!("({}) and ({})", self.text, other.text);
        Self { text, root: Node::All([self.root.clone(), other.root.clone()].into()) }
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

    /// Whether a record of many may match.
    pub fn may_match(&self, bounds: &dyn Bounds) -> bool {
        self.root.may_match(bounds, false)
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

    /// Comparisons with the names of lists (`--tags`) that a record has, also negated ones.
    pub fn tags(&self) -> Vec<TagTest<'_>> {
        let mut tags = Vec::new();
        self.root.visit(&mut |test| {
            let field = test.field.name;
            match (test.field.kind, &test.check) {
                (Kind::Names, Check::Text(operator, texts)) => {
                    tags.extend(texts.iter().map(|text| TagTest { field, operator: *operator, text }));
                }
                // Any name begins so.
                (Kind::Names, Check::Present) => {
                    tags.push(TagTest { field, operator: TextOperator::StartsWith, text: "" });
                }
                _ => {}
            }
        });
        tags
    }

    /// The text as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A comparison with the name of a list.
#[derive(Clone, Copy, Debug)]
pub struct TagTest<'a> {
    /// `tags`, `src_tags` or `dst_tags`.
    pub field: &'static str,
    /// The name or the part of it, as the user wrote it; empty if any name will do.
    pub text: &'a str,
    operator: TextOperator,
}

impl TagTest<'_> {
    /// Whether it holds for a record that is in this list.
    pub fn matches(&self, list: &str) -> bool {
        match self.operator {
            TextOperator::Equal | TextOperator::Has => list == self.text,
            TextOperator::StartsWith => list.starts_with(self.text),
            TextOperator::EndsWith => list.ends_with(self.text),
            TextOperator::Contains => list.contains(self.text),
        }
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
