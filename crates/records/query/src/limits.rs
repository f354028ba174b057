//! Limits of expressions.

/// Longest expression, octets. It has space for some thousand addresses.
pub(crate) const MAX_OCTETS: usize = 64 << 10;
/// Limit of nested parentheses and negations.
pub(crate) const MAX_DEPTH: usize = 64;
