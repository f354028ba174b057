//! Hash tables whose memory is fixed at the start, however many entries come and go.

/// The capacity with which a hash table of up to `entries` never grows: hashbrown clears the traces of removed
/// entries in place as long as no more than half of it is in use, and else takes a larger table.
pub(crate) fn roomy(entries: usize) -> usize {
    2 * (entries + 1)
}
