//! What is known of the values that many records have.

use crate::column::Column;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Bounds of the values of many records: there may be fewer values than they say, never others.
pub trait Bounds {
    /// The numbers or times of a column: nothing is outside, and an empty range says that there are none. `None`: not
    /// known.
    fn numbers(&self, column: &Column) -> Option<RangeInclusive<u64>>;

    /// Whether a record may have this address in a column.
    fn may_have(&self, column: &Column, address: IpAddr) -> bool;
}
