//! The tree of an expression, and what its comparisons mean.
//!
//! A field that does not apply to a record has no value. Each comparison with it is false, also
//! `!=`; `not` of such a comparison is true. A field of both sides is compared with both values: one
//! has to match, except for `!=` and `not in`, where none may match.

use crate::literal::{Values, address_key, address_of_key, mac_key};
use std::cell::RefCell;
use weir_fields::{Bounds, Column, Field, FieldValue, Kind};
use weir_flow::FlowRecord;

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Always,
    All(Box<[Node]>),
    Any(Box<[Node]>),
    Not(Box<Node>),
    Test(Test),
}

impl Node {
    /// Whether a record matches.
    pub fn matches(&self, flow: &FlowRecord) -> bool {
        match self {
            Self::Always => true,
            Self::All(nodes) => nodes.iter().all(|node| node.matches(flow)),
            Self::Any(nodes) => nodes.iter().any(|node| node.matches(flow)),
            Self::Not(node) => !node.matches(flow),
            Self::Test(test) => test.matches(flow),
        }
    }
}

impl Node {
    /// Whether all records match that have the same values of the known fields, or none; `None` if it
    /// depends on other fields.
    pub fn matches_by(&self, known: &[&str], flow: &FlowRecord) -> Option<bool> {
        // One node decides, or all of them together.
        let all = |nodes: &[Self], decisive: bool| {
            let mut result = Some(!decisive);
            for node in nodes {
                match node.matches_by(known, flow) {
                    Some(matches) if matches == decisive => return Some(decisive),
                    Some(_) => {}
                    None => result = None,
                }
            }
            result
        };
        match self {
            Self::Always => Some(true),
            Self::All(nodes) => all(nodes, false),
            Self::Any(nodes) => all(nodes, true),
            Self::Not(node) => node.matches_by(known, flow).map(|matches| !matches),
            Self::Test(test) => known.contains(&test.field.name).then(|| test.matches(flow)),
        }
    }

    /// Whether a record of many may match, or with `negated` may not match.
    pub fn may_match(&self, bounds: &dyn Bounds, negated: bool) -> bool {
        let may = |node: &Self| node.may_match(bounds, negated);
        match (self, negated) {
            (Self::Always, _) => !negated,
            (Self::All(nodes), false) | (Self::Any(nodes), true) => nodes.iter().all(may),
            (Self::All(nodes), true) | (Self::Any(nodes), false) => nodes.iter().any(may),
            (Self::Not(node), _) => node.may_match(bounds, !negated),
            // Bounds do not say what all records have.
            (Self::Test(test), _) => negated || test.negate || test.may_match(bounds),
        }
    }

    /// Calls a function with each comparison.
    pub fn visit<'a>(&'a self, visit: &mut impl FnMut(&'a Test)) {
        match self {
            Self::Always => {}
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().for_each(|node| node.visit(visit)),
            Self::Not(node) => node.visit(visit),
            Self::Test(test) => visit(test),
        }
    }
}

/// A comparison of a field.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub field: Field,
    pub check: Check,
    /// `!=` and `not in`.
    pub negate: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Check {
    /// The field has a value, or at least one of several words.
    Present,
    Values(Values),
    /// All of these TCP flags are set; those of a flow are of both directions together.
    Flags(u16),
    Text(TextOperator, Box<[Box<str>]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextOperator {
    Equal,
    /// One of several names is equal.
    Has,
    StartsWith,
    EndsWith,
    Contains,
}

impl TextOperator {
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "starts-with" => Self::StartsWith,
            "ends-with" => Self::EndsWith,
            "contains" => Self::Contains,
            _ => return None,
        })
    }

    /// Whether a text of a field of this kind matches.
    pub fn holds(self, kind: Kind, text: &str, pattern: &str) -> bool {
        if let Kind::List(&of) = kind {
            // All of it, or one of its entries.
            return [text].into_iter().chain(text.split(',')).any(|text| self.holds(of, text, pattern));
        }
        let (text, pattern) = match (kind, self) {
            (Kind::HostName, Self::Equal | Self::EndsWith) => (without_final_dot(text), without_final_dot(pattern)),
            _ => (text, pattern),
        };
        let is_caseless = matches!(kind, Kind::CaselessText | Kind::HostName);
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let is_equal = |part: &[u8]| if is_caseless { part.eq_ignore_ascii_case(pattern) } else { part == pattern };
        match self {
            Self::Equal => is_equal(text),
            Self::Has => text.split(|octet| *octet == b' ').any(is_equal),
            Self::StartsWith => text.get(..pattern.len()).is_some_and(is_equal),
            Self::EndsWith => text.len().checked_sub(pattern.len()).is_some_and(|at| is_equal(&text[at..])),
            Self::Contains => pattern.is_empty() || text.windows(pattern.len()).any(is_equal),
        }
    }
}

/// A name of a host without the dot at its end, which stands for the root.
pub(crate) fn without_final_dot(name: &str) -> &str {
    name.strip_suffix('.').filter(|name| !name.is_empty()).unwrap_or(name)
}

impl Test {
    pub fn present(field: Field) -> Self {
        Self { field, check: Check::Present, negate: false }
    }

    fn may_match(&self, bounds: &dyn Bounds) -> bool {
        let columns = self.field.bounded_by();
        columns.is_empty() || columns.iter().any(|column| self.check.may_hold(column, bounds))
    }

    fn matches(&self, flow: &FlowRecord) -> bool {
        let mut values = self.field.values(flow);
        // The TCP flags of a flow are those of both directions together.
        if let [FieldValue::TcpFlags(source), FieldValue::TcpFlags(destination)] = values {
            values = [FieldValue::TcpFlags(source | destination), FieldValue::NotApplicable];
        }
        let mut known = values.iter().filter(|value| is_known(value));
        if self.negate {
            // At least one value, and none that matches.
            let mut any = false;
            known.all(|value| {
                any = true;
                !self.check.holds(self.field.kind, value)
            }) && any
        } else {
            known.any(|value| self.check.holds(self.field.kind, value))
        }
    }
}

fn is_known(value: &FieldValue<'_>) -> bool {
    !matches!(value, FieldValue::NotApplicable | FieldValue::NoValue)
}

impl Check {
    /// Whether a value of a column may match.
    fn may_hold(&self, column: &Column, bounds: &dyn Bounds) -> bool {
        match self {
            Self::Values(Values::Whole(set)) => {
                bounds.numbers(column).is_none_or(|numbers| set.intersects(*numbers.start(), *numbers.end()))
            }
            Self::Values(Values::Address(set)) => {
                set.iter().any(|(first, last)| first != last || bounds.may_have(column, address_of_key(first)))
            }
            _ => true,
        }
    }

    /// Whether a value that is known matches.
    fn holds(&self, kind: Kind, value: &FieldValue<'_>) -> bool {
        match (self, value) {
            (Self::Present, FieldValue::Approximate(set)) => set.0 != 0,
            (Self::Present, FieldValue::Degraded(set)) => set.0 != 0,
            (Self::Present, FieldValue::Notes(set)) => set.0 != 0,
            (Self::Present, _) => true,
            (Self::Flags(bits), FieldValue::TcpFlags(flags)) => *flags & bits == *bits,
            (Self::Values(Values::Whole(set)), value) => whole(value).is_some_and(|number| set.contains(number)),
            (Self::Values(Values::Fraction(set)), FieldValue::Float(number)) => set.contains(*number),
            (Self::Values(Values::Fraction(set)), value) => whole(value).is_some_and(|n| set.contains(n as f64)),
            (Self::Values(Values::Address(set)), FieldValue::Ip(address)) => set.contains(address_key(*address)),
            (Self::Text(operator, patterns), value) => {
                with_text(value, |text| patterns.iter().any(|pattern| operator.holds(kind, text, pattern)))
            }
            _ => false,
        }
    }
}

/// The number of a value.
fn whole(value: &FieldValue<'_>) -> Option<u64> {
    match *value {
        FieldValue::Unsigned(number) | FieldValue::Implied(number) | FieldValue::Time(number) => Some(number),
        FieldValue::Protocol(number) | FieldValue::Code(number, _) => Some(number.into()),
        FieldValue::TcpFlags(bits) => Some(bits.into()),
        FieldValue::Approximate(set) => Some(set.0.into()),
        FieldValue::Degraded(set) => Some(set.0.into()),
        FieldValue::Notes(set) => Some(set.0.into()),
        FieldValue::Mac(octets) => Some(mac_key(octets)),
        _ => None,
    }
}

/// Calls a function with the text of a value, which is in a buffer that is reused.
fn with_text<T>(value: &FieldValue<'_>, use_text: impl FnOnce(&str) -> T) -> T {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    match value {
        FieldValue::Code(_, word) => use_text(word),
        FieldValue::Text(text) => use_text(text),
        value => BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            value.append_text(buffer);
            use_text(std::str::from_utf8(buffer).expect("the text of a value is UTF-8"))
        }),
    }
}
