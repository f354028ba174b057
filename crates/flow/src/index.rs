//! From the hash of a key to the place of its record.

use crate::Pages;

/// An index of places (numbers of records) by hash. It knows no keys: the caller says which place is meant.
///
/// `Hpc` is the one that the meter uses; others are there to be measured against it.
pub trait Index {
    /// Room for `flows` places, fixed from then on.
    fn new(flows: usize, pages: Pages) -> Self;

    /// Begins to fetch the memory that the hash leads to.
    fn prefetch(&self, hash: u64);

    /// A place that the hash may lead to, after one look: a hint what to fetch next.
    fn likely(&self, hash: u64) -> Option<u32>;

    /// The place under this hash that `is` accepts.
    fn find(&self, hash: u64, is: impl FnMut(u32) -> bool) -> Option<u32>;

    /// Enters a place that is not in the index. There is always room for as many as were asked for.
    fn insert(&mut self, hash: u64, place: u32);

    /// Removes a place that was entered under this hash.
    fn remove(&mut self, hash: u64, place: u32);

    /// Octets of memory taken.
    fn memory(&self) -> usize;

    /// How many memory areas (buckets, nodes) the longest search has to look at.
    fn longest_search(&self) -> usize;
}
