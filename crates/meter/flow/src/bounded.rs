//! Collections whose memory is taken at the start and never grows.

use ahash::RandomState;
use std::collections::{HashMap, TryReserveError};
use std::hash::Hash;

/// Capacity with which a hash table of up to `entries` never grows: hashbrown clears the traces of
/// removed entries in place if at most half of a full table is in use.
pub(crate) fn map_capacity(entries: usize) -> usize {
    2 * (entries + 1)
}

/// Entries that such a table has memory for: hashbrown uses seven eighths of a power of two.
pub(crate) fn allocated_entries(entries: usize) -> usize {
    if entries == 0 { 0 } else { (map_capacity(entries) * 8 / 7).next_power_of_two() / 8 * 7 }
}

/// An empty vector with capacity for `entries`.
pub(crate) fn vec_with_capacity<T>(entries: usize) -> Result<Vec<T>, TryReserveError> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(entries)?;
    Ok(vec)
}

/// An empty hash table for up to `entries`.
pub(crate) fn map_with_capacity<K: Eq + Hash, V>(
    entries: usize,
    hasher: RandomState,
) -> Result<HashMap<K, V, RandomState>, TryReserveError> {
    let mut map = HashMap::with_hasher(hasher);
    if entries > 0 {
        map.try_reserve(map_capacity(entries))?;
    }
    Ok(map)
}
