//! Counts the packets of new flows while small flows get no records
//! ([`crate::Detail::small_flows`]).
//!
//! A direct-mapped hash table: a flow may replace another, which is then counted from 0 again.
//! Large flows still pass, because their packets follow each other soon.

use crate::mapped_array::MappedArray;
use std::io;

/// A flow is small up to this many packets.
const SMALL_PACKETS: u32 = 8;
/// Largest number of flows.
const ENTRIES: usize = 1 << 16;

/// Packet counts of flows without a record: per entry 24 bits of the hash, 8 of the count.
#[derive(Debug)]
pub(crate) struct SmallFlowFilter(MappedArray<u32>);

impl SmallFlowFilter {
    pub fn new() -> io::Result<Self> {
        Ok(Self(MappedArray::with_small_pages(ENTRIES)?))
    }

    pub const fn memory_bytes() -> usize {
        ENTRIES * size_of::<u32>()
    }

    /// Counts a packet of a flow. Returns whether the flow had more than [`SMALL_PACKETS`] packets.
    pub fn is_large(&mut self, hash: u64) -> bool {
        let entry = &mut self.0[(hash >> 8) as usize % ENTRIES];
        // These bits of the hash do not choose the entry.
        let tag = (hash >> 32) as u32 & !0xff;
        let before = if *entry & !0xff == tag { *entry & 0xff } else { 0 };
        *entry = tag | (before + 1).min(0xff);
        before >= SMALL_PACKETS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_is_large_after_eight_packets_among_other_flows() {
        let mut filter = SmallFlowFilter::new().unwrap();
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for packet in 0..300 {
            assert_eq!(filter.is_large(hash(1)), packet >= 8, "{packet}");
            // Ten packets, each of another flow: they seldom displace the first flow.
            let small = (0..10).filter(|other| filter.is_large(hash(1000 + 10 * packet + other)));
            assert_eq!(small.count(), 0);
        }
    }
}
