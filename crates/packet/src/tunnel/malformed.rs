//! The error of all tunnel parsers.

use weir_ledger::RefusalReason;

/// A tunnel header, or the IP header inside the tunnel, is truncated or impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<RefusalReason> for Malformed {
    fn from(_: RefusalReason) -> Self {
        Self
    }
}
