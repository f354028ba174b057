//! Hash tables whose memory is fixed at the start, however many entries come and go.

use ahash::RandomState;
use std::collections::{HashMap, TryReserveError};
use std::hash::Hash;

/// The capacity with which a hash table of up to `entries` never grows: hashbrown clears the traces of removed
/// entries in place as long as no more than half of it is in use, and else takes a larger table.
pub(crate) fn roomy(entries: usize) -> usize {
    2 * (entries + 1)
}

/// An empty list with room for so many.
///
/// # Errors
/// The system has no memory for them.
pub(crate) fn list<T>(entries: usize) -> Result<Vec<T>, TryReserveError> {
    let mut list = Vec::new();
    list.try_reserve_exact(entries)?;
    Ok(list)
}

/// A table for up to `entries` that never grows.
///
/// # Errors
/// The system has no memory for it.
pub(crate) fn table<K: Eq + Hash, V>(
    entries: usize,
    hasher: RandomState,
) -> Result<HashMap<K, V, RandomState>, TryReserveError> {
    let mut table = HashMap::with_hasher(hasher);
    if entries > 0 {
        table.try_reserve(roomy(entries))?;
    }
    Ok(table)
}

/// Entries that such a table has memory for: hashbrown takes a power of two, of which it uses seven of eight parts.
pub(crate) fn table_room(entries: usize) -> usize {
    if entries == 0 { 0 } else { (roomy(entries) * 8 / 7).next_power_of_two() / 8 * 7 }
}
