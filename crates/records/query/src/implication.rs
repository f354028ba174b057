//! Which expressions can be told from their text to hold, or not to hold, whenever another one does.
//!
//! Sound, not complete: what is reported holds for every record; much that holds is not found, for
//! example what several conditions match together. The number of comparisons is limited.

use crate::condition::{Check, Node, Test, TextOperator};
use crate::expression::Expression;
use crate::literal::Values;
use std::ptr::fn_addr_eq;
use weir_fields::{Field, Kind, Read};

/// Comparisons of two nodes that are left.
#[derive(Debug)]
pub struct Effort(pub u32);

impl Effort {
    fn is_left(&mut self) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 > 0
    }
}

impl Expression {
    /// Whether each record that matches this matches the other one, as far as that is found.
    pub fn implies(&self, other: &Self, effort: &mut Effort) -> bool {
        self.text() == other.text() || implies(self.root(), other.root(), effort)
    }

    /// Whether no record matches, as far as that is found.
    pub fn contradicts_itself(&self, effort: &mut Effort) -> bool {
        is_never(self.root(), effort)
    }
}

fn implies(one: &Node, other: &Node, effort: &mut Effort) -> bool {
    if !effort.is_left() {
        return false;
    }
    match (one, other) {
        (_, Node::Always) => true,
        (Node::Any(nodes), _) => nodes.iter().all(|node| implies(node, other, effort)),
        (_, Node::All(nodes)) => nodes.iter().all(|node| implies(one, node, effort)),
        (Node::All(nodes), Node::Any(others)) => {
            nodes.iter().any(|node| implies(node, other, effort))
                || others.iter().any(|other| implies(one, other, effort))
        }
        (Node::All(nodes), _) => nodes.iter().any(|node| implies(node, other, effort)),
        (_, Node::Any(nodes)) => nodes.iter().any(|node| implies(one, node, effort)),
        (Node::Not(one), Node::Not(other)) => implies(other, one, effort),
        (Node::Test(one), Node::Test(other)) => test_implies(one, other),
        (_, Node::Not(other)) => excludes(one, other, effort),
        _ => false,
    }
}

fn is_never(node: &Node, effort: &mut Effort) -> bool {
    match node {
        Node::Any(nodes) => nodes.iter().all(|node| is_never(node, effort)),
        Node::All(nodes) => {
            nodes.iter().any(|node| is_never(node, effort))
                || nodes.iter().enumerate().any(|(at, node)| {
                    nodes[..at].iter().any(|before| excludes(before, node, effort) || excludes(node, before, effort))
                })
        }
        _ => false,
    }
}

/// Whether no record matches both.
fn excludes(one: &Node, other: &Node, effort: &mut Effort) -> bool {
    if !effort.is_left() {
        return false;
    }
    match (one, other) {
        (Node::Any(nodes), _) => nodes.iter().all(|node| excludes(node, other, effort)),
        (_, Node::Any(nodes)) => nodes.iter().all(|node| excludes(one, node, effort)),
        (Node::All(nodes), _) if nodes.iter().any(|node| excludes(node, other, effort)) => true,
        (_, Node::All(nodes)) => nodes.iter().any(|node| excludes(one, node, effort)),
        (Node::Not(one), _) => implies(other, one, effort),
        (_, Node::Not(other)) => implies(one, other, effort),
        (Node::Test(one), Node::Test(other)) => tests_exclude(one, other),
        _ => false,
    }
}

fn test_implies(one: &Test, other: &Test) -> bool {
    let (is_same, is_side) = (is_same(&one.field, &other.field), is_side(&one.field, &other.field));
    match (one.negate, other.negate) {
        // A value of one side is a value of both sides.
        (false, false) => (is_same || is_side) && is_within(one.field.kind, &one.check, &other.check),
        (true, true) => is_same && is_within(one.field.kind, &other.check, &one.check),
        (false, true) => is_same && has_one_value(&one.field) && is_apart(&one.check, &other.check),
        (true, false) => false,
    }
}

fn tests_exclude(one: &Test, other: &Test) -> bool {
    if !is_same(&one.field, &other.field) {
        return false;
    }
    match (one.negate, other.negate) {
        (false, false) => has_one_value(&one.field) && is_apart(&one.check, &other.check),
        (false, true) => is_within(one.field.kind, &one.check, &other.check),
        (true, false) => is_within(one.field.kind, &other.check, &one.check),
        (true, true) => false,
    }
}

/// Whether two fields are read in the same way.
fn is_same(one: &Field, other: &Field) -> bool {
    one.name == other.name
        && match (one.read, other.read) {
            (Read::Column(_), Read::Column(_)) => true,
            (Read::One(one), Read::One(other)) => fn_addr_eq(one, other),
            (Read::Sides(one, of_one), Read::Sides(other, of_other)) => {
                fn_addr_eq(one, other) && fn_addr_eq(of_one, of_other)
            }
            _ => false,
        }
}

/// Whether a field is one side of another one.
fn is_side(one: &Field, both: &Field) -> bool {
    one.name == both.name
        && match (one.read, both.read) {
            // The TCP flags of both sides are one value.
            (Read::One(_), Read::Sides(..)) if matches!(one.kind, Kind::Flags) => false,
            (Read::One(one), Read::Sides(source, destination)) => {
                fn_addr_eq(one, source) || fn_addr_eq(one, destination)
            }
            _ => false,
        }
}

fn has_one_value(field: &Field) -> bool {
    !matches!(field.read, Read::Sides(..))
}

/// Whether each value that passes one check passes the other one, too.
fn is_within(kind: Kind, one: &Check, other: &Check) -> bool {
    match (one, other) {
        (Check::Present, Check::Present) => true,
        (Check::Flags(one), Check::Flags(other)) => one & other == *other,
        (Check::Values(Values::Whole(one)), Check::Values(Values::Whole(other))) => other.covers(one),
        (Check::Values(Values::Fraction(one)), Check::Values(Values::Fraction(other))) => other.covers(one),
        (Check::Values(Values::Address(one)), Check::Values(Values::Address(other))) => other.covers(one),
        (Check::Text(one, patterns), Check::Text(other, others)) => patterns.iter().all(|pattern| {
            others.iter().any(|of_other| match (one, other) {
                (TextOperator::Has, TextOperator::Has) => pattern == of_other,
                (one, other) if one == other => other.holds(kind, pattern, of_other),
                (TextOperator::Equal, TextOperator::EndsWith) => other.holds(kind, pattern, of_other),
                _ => false,
            })
        }),
        _ => false,
    }
}

/// Whether no value passes both checks.
fn is_apart(one: &Check, other: &Check) -> bool {
    match (one, other) {
        (Check::Values(Values::Whole(one)), Check::Values(Values::Whole(other))) => !one.overlaps(other),
        (Check::Values(Values::Address(one)), Check::Values(Values::Address(other))) => !one.overlaps(other),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(text: &str) -> Expression {
        Expression::new(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn narrower_conditions_imply_wider_ones_and_not_the_reverse() {
        for (narrow, wide) in [
            ("port 1 and port 2", "port 1"),
            ("port 2 and (port 3 or port 1)", "port 1 or port 3"),
            ("net 10.1.0.0/16", "net 10.0.0.0/8"),
            ("host 10.1.2.3", "net 10.0.0.0/8"),
            ("src host 10.1.2.3", "net 10.0.0.0/8"),
            ("src host 10.1.2.3 and dst port 53", "src net 10.0.0.0/8"),
            ("net 2001:db8:1::/48", "net 2001:db8::/32"),
            ("port 80", "port in {80, 443}"),
            ("port 80-90", "port 80-100"),
            ("tcp dst port 443", "tcp"),
            ("not net 10.0.0.0/8", "not net 10.1.0.0/16"),
            ("port not in {80, 443}", "port != 80"),
            ("ip_version = 4", "ip_version != 6"),
            ("sni ends-with .www.example", "sni ends-with .example"),
            ("sni = a.example", "sni ends-with example"),
            ("application = tls", "application in {tls, quic}"),
            ("tcp and not port 22", "not port 22"),
            ("host 10.0.0.1 and host 10.0.0.2", "net 10.0.0.0/24"),
        ] {
            let implies = |one: &str, other: &str| expression(one).implies(&expression(other), &mut Effort(1000));
            assert!(implies(narrow, wide), "{narrow} → {wide}");
            assert!(!implies(wide, narrow), "{wide} → {narrow}");
        }
    }

    #[test]
    fn what_does_not_follow_is_not_claimed() {
        for (one, other) in [
            ("net 10.0.0.0/8", "src net 10.0.0.0/8"),
            ("src port 1", "dst port 1"),
            ("port != 1", "port 2"),
            ("port 1", "port != 2"),
            ("not ip_version = 4", "ip_version != 4"),
            ("sni = a.example", "dns_name = a.example"),
            ("vlan 1 or vlan 2", "vlan 1"),
            ("tcp", "udp"),
        ] {
            assert!(!expression(one).implies(&expression(other), &mut Effort(1000)), "{one} → {other}");
        }
        let wide = expression("port 1 or port 2");
        assert!(!expression("port 1").implies(&wide, &mut Effort(1)), "without effort nothing is found");
    }

    #[test]
    fn contradictions_are_found_and_only_they() {
        for text in [
            "port 1 and not port 1",
            "tcp and udp",
            "ip_version = 4 and ip_version = 6",
            "src port 1 and src port 2",
            "net 10.1.0.0/16 and not net 10.0.0.0/8",
            "port 80 and port != 80",
            "(tcp and udp) or (vlan 1 and not vlan 1)",
            "src host 10.0.0.1 and not net 10.0.0.0/8",
            "tcp and (vlan 5 and udp)",
        ] {
            assert!(expression(text).contradicts_itself(&mut Effort(1000)), "{text}");
        }
        for text in ["port 1 and port 2", "src port 1 and dst port 2", "net 10.0.0.0/8 and not net 10.1.0.0/16", "sni"]
        {
            assert!(!expression(text).contradicts_itself(&mut Effort(1000)), "{text}");
        }
    }
}
